"""The command line: the four steps without Airflow, a look at the ledger, and the local stack.

Exit codes: 0 published, or nothing to do; 1 rejected; 2 usage or settings; 3 worth running again; 4 a person has to
act. `--json` prints one JSON document on standard output; everything else goes to standard error.
"""

from __future__ import annotations

import getpass
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from typer.core import TyperGroup

from fencepost.errors import FencepostError, SettingsError
from fencepost.failures import unexpected
from fencepost.jobs import start_log
from fencepost.local.commands import register
from fencepost.model import Batch, Decision, Interval, State, StepResult, to_utc, utc_now
from fencepost.settings import Pipeline, find_pipeline, load_pipelines, pipelines_folder

if TYPE_CHECKING:
    from fencepost.awaiting import Awaiting
    from fencepost.transitions import View

err = Console(stderr=True, highlight=False)
out = Console(highlight=False)

SHOWN_REPORTS = 10  # of batches that wait for somebody; the newest

STATE_STYLE = {
    State.PUBLISHED: "green",
    State.REJECTED: "bold red",
    State.SKIPPED: "magenta",
    State.SUPERSEDED: "dim",
    State.PLANNED: "yellow",
    State.WRITTEN: "cyan",
}


class Commands(TyperGroup):
    """Keeps from Click what Click would name otherwise: it takes an EOFError for a closed terminal, and exits with 1."""

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        """Run the command. Nothing here asks for input, so a stream that ended is Spark's or a worker's."""
        try:
            return super().invoke(ctx)
        except EOFError as error:
            raise unexpected(error, str(ctx.invoked_subcommand or "")) from error
        except KeyboardInterrupt:
            err.print("interrupted; run the same command again to go on.")
            raise typer.Exit(130) from None


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Exactly-once batch ETL from Kafka to Kafka, on Spark, Airflow and Great Expectations.",
    epilog="Exit codes: 0 published or nothing to do, 1 rejected, 2 usage or settings, 3 run it again, 4 a person has to act.",
)

PipelineName = Annotated[str, typer.Argument(help="The pipeline's name: its folder in include/pipelines.")]
Start = Annotated[str, typer.Option(help="Start of the interval, ISO 8601; UTC where no zone is given.")]
End = Annotated[str, typer.Option(help="End of the interval (exclusive), ISO 8601.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Reason = Annotated[str, typer.Option(help="Why; stored in the ledger with who and when.")]


@app.command()
def run(
    pipeline: PipelineName,
    start: Start,
    end: End,
    reprocess: Annotated[
        bool, typer.Option(help="Write a published interval again: same frozen input, a new revision.")
    ] = False,
    allow_future: Annotated[
        bool, typer.Option(help="Plan an interval that has not ended: those before it get no records afterwards.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Plan, write, validate and publish one interval, here and now, without Airflow.

    Run again after any failure: what is done is found done, and what is not is finished.

    Example: fencepost run nyc_flights --start 2013-01-01T00:00-05:00 --end 2013-01-02T00:00-05:00
    """
    found, interval = _pipeline(pipeline), _interval(start, end)
    steps: list[StepResult] = []
    failure: FencepostError | None = None
    try:
        for result in _steps(found, interval, reprocess, allow_future):
            steps.append(result)
            style = "bold yellow" if "starved_by" in result.details else "bold"
            err.print(f"[{style}]{result.step:9}[/] {escape(result.message)}", soft_wrap=True)
    except Exception as error:
        if not as_json:
            raise
        failure = error if isinstance(error, FencepostError) else unexpected(error)
    if as_json:
        _print_json(
            {
                "pipeline": pipeline,
                "interval": interval.model_dump(mode="json"),
                "steps": [s.model_dump(mode="json") for s in steps],
                "error": {"type": type(failure).__name__, "message": str(failure)} if failure else None,
                "exit_code": failure.exit_code if failure else 0,
            }
        )
        raise typer.Exit(failure.exit_code if failure else 0)


def _steps(pipeline: Pipeline, interval: Interval, reprocess: bool, allow_future: bool) -> Iterator[StepResult]:
    """The four steps in their order; Spark is started by the first that needs it."""
    from fencepost.advance import advance_batch
    from fencepost.ledger import Ledger
    from fencepost.plan import plan_batch
    from fencepost.validate import validate_batch, validate_without_spark
    from fencepost.write import write_batch, write_without_spark

    ledger = Ledger(pipeline)
    planned = plan_batch(pipeline, interval, reprocess=reprocess, allow_future=allow_future, ledger=ledger)
    yield planned
    if planned.state in {State.PUBLISHED, State.SKIPPED}:
        return
    with _session(pipeline) as spark:
        yield write_without_spark(pipeline, interval, ledger=ledger) or write_batch(
            spark(), pipeline, interval, ledger=ledger
        )
        yield validate_without_spark(pipeline, interval, ledger=ledger) or validate_batch(
            spark(), pipeline, interval, ledger=ledger
        )
    yield advance_batch(pipeline, interval, ledger=ledger)


@contextmanager
def _session(pipeline: Pipeline) -> Iterator[Callable[[], Any]]:
    """A function that gives the session, started at its first call and stopped at the end."""
    from fencepost.spark import build_session

    sessions: list[Any] = []

    def spark() -> Any:
        if not sessions:
            with err.status("starting Spark"):
                sessions.append(build_session(pipeline, "run"))
        return sessions[0]

    try:
        yield spark
    finally:
        for session in sessions:
            with suppress(Exception):  # a JVM that was killed cannot be stopped; the step's own error says so
                session.stop()


@app.command()
def status(pipeline: PipelineName, as_json: AsJson = False) -> None:
    """What awaits a person, where every interval stands, what holds the frontier back, and how far the source is ahead."""
    from fencepost.awaiting import awaiting_person
    from fencepost.ledger import Ledger
    from fencepost.transitions import View, frontier, holding_back, what_next

    found = _pipeline(pipeline)
    ledger = Ledger(found)
    view = ledger.read() if ledger.exists() else View()
    ends = frontier(view)
    source = ledger.cluster.describe(found.source.topic)
    stable = ledger.cluster.last_stable(source)
    lag = {p: end - ends.get(p, 0) for p, end in enumerate(stable)} if ends else {}
    hole = holding_back(view)
    awaiting = awaiting_person(view, utc_now(), found.schedule.patience)
    current = [b for i in view.intervals if (b := view.effective(i)) is not None]
    if as_json:
        _print_json(
            {
                "pipeline": pipeline,
                "awaiting_person": [_awaiting(one) for one in awaiting],
                "batches": [_summary(b) | _newest(view, b) for b in current],
                "frontier": {str(p): o for p, o in sorted(ends.items())},
                "lag": {str(p): n for p, n in lag.items()},
                "held_back_by": str(hole.id) if hole else None,
            }
        )
        return
    if not current:
        command = f"`fencepost run {pipeline} --start ... --end ...`"
        out.print(f"{pipeline}: nothing was planned yet. Start it in Airflow, or with {command}.", soft_wrap=True)
        return
    _print_awaiting(awaiting)
    out.print(_table(f"{pipeline}: intervals", [b for c in current for b in _lines_of(view, c)]))
    out.print(
        f"frontier: {', '.join(f'{p}:{o}' for p, o in sorted(ends.items()))}   offsets behind: {sum(lag.values())}",
        soft_wrap=True,
    )
    for batch in current:
        if batch.interval.end > utc_now() and not view.is_withdrawn(batch.interval):
            out.print(
                f"[bold yellow]ends in the future:[/] {batch.id}. Intervals before it that are planned from now on get no "
                "records. If it was a mistake, `fencepost withdraw` takes it out of the order.",
                soft_wrap=True,
            )
    if hole:
        known = any(one.batch == hole for one in awaiting)
        line = f"[bold red]held back by[/] {hole.id} ({hole.state})"
        out.print(line if known else f"{line}: {escape(what_next(hole))}", soft_wrap=True)


def _lines_of(view: View, counts: Batch) -> list[Batch]:
    """The revision that counts, and the newest one where that is another."""
    newest = view.latest(counts.interval)
    return [counts] if newest is None or newest.revision == counts.revision else [counts, newest]


def _newest(view: View, counts: Batch) -> dict[str, Any]:
    newest = view.latest(counts.interval) or counts
    return {"newest_revision": newest.revision, "newest_state": newest.state}


def _awaiting(one: Awaiting) -> dict[str, Any]:
    older = one.in_force
    return {
        **_summary(one.batch),
        "need": one.need,
        "in_force": {"revision": older.revision, "state": older.state} if older else None,
        "says": one.says,
        "do": one.advice,
    }


def _print_awaiting(awaiting: Sequence[Awaiting]) -> None:
    """What awaits a person, first of all; the newest in full, the others counted."""
    if not awaiting:
        return
    out.print("[bold red]awaiting a person[/]")
    if len(awaiting) > SHOWN_REPORTS:
        out.print(f"  {len(awaiting) - SHOWN_REPORTS} earlier ones; --json lists them all")
    for one in awaiting[-SHOWN_REPORTS:]:
        out.print(f"  {_span(one.batch)}: {one.says}.", markup=False, soft_wrap=True)
        if one.batch.verdict is not None:
            out.print(f"    {one.batch.verdict.report}", markup=False, soft_wrap=True)
        out.print(f"    {one.advice}", markup=False, soft_wrap=True)  # a command is for copying, so it is not broken
    out.print()


@app.command(name="ledger")
def show_ledger(pipeline: PipelineName, as_json: AsJson = False) -> None:
    """Every revision of every interval as the ledger has it, with its history."""
    from fencepost.ledger import Ledger

    ledger = Ledger(_pipeline(pipeline))
    batches = ledger.read().all() if ledger.exists() else []
    if as_json:
        _print_json([b.model_dump(mode="json") for b in batches])
        return
    out.print(_table(f"ledger {ledger.pipeline.ledger_topic}", batches))
    _print_reports(batches)
    for batch in batches:
        for event in batch.history:
            out.print(
                f"  {event.at:%Y-%m-%d %H:%M:%S}  {batch.id}  {event.state}  {event.note}", markup=False, soft_wrap=True
            )


@app.command()
def skip(pipeline: PipelineName, start: Start, end: End, reason: Reason) -> None:
    """Let the frontier pass an interval without its output; stored in the ledger with who, when and why."""
    from fencepost.advance import skip_batch

    out.print(skip_batch(_pipeline(pipeline), _interval(start, end), _decision("skip", reason)).message)


@app.command()
def withdraw(pipeline: PipelineName, start: Start, end: End, reason: Reason) -> None:
    """Take an interval that was planned by mistake out of the order, so that those before it get records again.

    For one without records, or not yet published. Stored in the ledger with who, when and why.
    """
    from fencepost.plan import withdraw_batch

    out.print(withdraw_batch(_pipeline(pipeline), _interval(start, end), _decision("withdraw", reason)).message)


@app.command()
def publish(pipeline: PipelineName, start: Start, end: End, reason: Reason) -> None:
    """Publish a rejected batch all the same; stored in the ledger with who, when and why."""
    from fencepost.advance import advance_batch

    decision = _decision("publish", reason)
    out.print(advance_batch(_pipeline(pipeline), _interval(start, end), decision).message)


@app.command()
def pipelines(as_json: AsJson = False) -> None:
    """The pipelines there are, and what is wrong with those that cannot be loaded. Executes each transform.py.

    What a transform.sql says is not checked, nor whether the columns exist that a suite names: that takes a run.
    """
    from fencepost.preflight import check_pipeline

    _use_local_kafka()
    good, bad = load_pipelines()
    for name, pipeline in list(good.items()):
        try:
            check_pipeline(pipeline)
        except SettingsError as found:
            bad[name] = found
            del good[name]
    if as_json:
        listed = [{"name": n, "source": p.source.topic, "output": p.output.topic} for n, p in good.items()]
        _print_json(
            {"folder": str(pipelines_folder()), "pipelines": listed, "broken": {n: str(e) for n, e in bad.items()}}
        )
    else:
        for name, pipeline in good.items():
            out.print(
                f"{name:24} {pipeline.source.topic} → {pipeline.output.topic}   {pipeline.description}",
                markup=False,
                soft_wrap=True,
            )
    for _, error in sorted(bad.items()):
        err.print(str(error), style="red", markup=False, soft_wrap=True)
    if bad:
        raise typer.Exit(SettingsError.exit_code)


@app.command()
def demo() -> None:
    """Start everything, load real flights, run three days through Airflow, and show what came of it."""
    from fencepost.local.demo import demo as run_demo

    run_demo()


register(app)  # up, down, services


def _interval(start: str, end: str) -> Interval:
    first, last = _moment("--start", start), _moment("--end", end)
    if last <= first:
        raise SettingsError(
            f"--end {end} does not lie after --start {start}. An interval is from its start up to its end."
        )
    return Interval(start=first, end=last)


def _moment(option: str, text: str) -> datetime:
    try:
        return to_utc(datetime.fromisoformat(text))
    except ValueError:
        raise SettingsError(f"{option} {text}: not a time in ISO 8601, such as 2013-01-01T00:00-05:00.") from None
    except OverflowError:
        raise SettingsError(f"{option} {text}: not within the years 1 to 9999 in UTC.") from None


def _decision(action: str, reason: str) -> Decision:
    if not reason.strip():
        raise SettingsError("--reason: say why, for those who read the ledger later.")
    return Decision(action=action, by=_user(), reason=reason, decided_at=utc_now())


def _user() -> str:
    """Who decides, by name; in a container the user may have a number alone."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def _pipeline(name: str) -> Pipeline:
    _use_local_kafka()
    return find_pipeline(name)


def _use_local_kafka() -> None:
    """Without KAFKA_BOOTSTRAP the local stack's broker is meant, where it has been started."""
    if "KAFKA_BOOTSTRAP" not in os.environ:
        from fencepost.local.stack import Stack

        kafka = Stack().services()["kafka"]
        if kafka["running"]:
            os.environ["KAFKA_BOOTSTRAP"] = kafka["bootstrap"]


def _summary(batch: Batch) -> dict[str, Any]:
    return {
        "batch": str(batch.id),
        "start": batch.interval.start.isoformat(),
        "end": batch.interval.end.isoformat(),
        "revision": batch.revision,
        "state": batch.state,
        "rows_in": batch.written.rows_in if batch.written else None,
        "rows": batch.written.rows if batch.written else None,
        "verdict": batch.verdict.outcome if batch.verdict else None,
        "report": batch.verdict.report if batch.verdict else None,
    }


def _span(batch: Batch) -> str:
    return f"{batch.interval.start:%Y-%m-%d %H:%M} → {batch.interval.end:%m-%d %H:%M}"


def _table(title: str, batches: list[Batch]) -> Table:
    table = Table(title=title, title_justify="left")
    for name in ("interval (UTC)", "rev", "state", "in", "out", "verdict"):
        table.add_column(name, justify="right" if name in {"rev", "in", "out"} else "left", no_wrap=True)
    for batch in batches:
        row = _summary(batch)
        cells = [_span(batch), str(batch.revision), f"[{STATE_STYLE[batch.state]}]{batch.state}[/]"]
        cells += ["" if row[name] is None else str(row[name]) for name in ("rows_in", "rows", "verdict")]
        table.add_row(*cells)
    return table


def _print_reports(batches: list[Batch]) -> None:
    """Where the reports lie, outside the table: a path is for copying, so it is not broken."""
    for batch in batches:
        if batch.verdict is not None:
            out.print(f"  {batch.id}  {batch.verdict.outcome}  {batch.verdict.report}", markup=False, soft_wrap=True)


def _print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def main() -> None:
    """The console script: Fencepost's errors become one clear line and an exit code."""
    try:
        start_log(os.environ.get("FENCEPOST_LOG", "WARNING"))
        app()
    except FencepostError as error:
        err.print(f"[bold red]{type(error).__name__}[/]: ", end="")
        err.print(str(error), markup=False, soft_wrap=True)
        sys.exit(error.exit_code)
    except Exception as error:  # a bug, or something nobody foresaw; its words may quote records
        found = unexpected(error)
        err.print(str(found), markup=False, soft_wrap=True)
        sys.exit(found.exit_code)
