"""`fencepost try`: shows what a run would make of a sample, before anything is written."""

from __future__ import annotations

import importlib
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from fencepost.cli.arguments import AsJson, PipelineName, interval_of, pipeline_of
from fencepost.cli.console import err, out, print_json, working
from fencepost.cli.steps import spark_session
from fencepost.config.pipeline import Pipeline
from fencepost.counts import count_of
from fencepost.errors import FencepostError, SettingsError
from fencepost.model import Interval
from fencepost.protocol.table_states import ends_of, short_fingerprint, size

if TYPE_CHECKING:
    from fencepost.ledger.deployment import Deployment
    from fencepost.preview.trial import Trial
    from fencepost.preview.trial_input import TrialInput
    from fencepost.preview.trial_rows import SourceSample

LONGEST = 60  # how many characters of a value are shown


def try_(
    pipeline: PipelineName,
    last: Annotated[
        int | None, typer.Option(help="Number of the newest records of each source to try.  [default: 1000]")
    ] = None,
    start: Annotated[str | None, typer.Option(help="Start of an interval, ISO 8601; UTC if it has no zone.")] = None,
    end: Annotated[str | None, typer.Option(help="End of the interval (exclusive), ISO 8601.")] = None,
    watch: Annotated[bool, typer.Option(help="Try again whenever a file in the pipeline's folder changes.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what a run would make of some records: rows, quarantined records with the reasons, and the verdict.

    It reads the newest records of each source. With --start and --end it reads what the interval's batch read or would read,
    100,000 records of each source at most. Side tables are read as they are now. On a sample, checks about a whole batch are
    not judged, and aggregates and joins are partial. It creates no topic, registers no schema, writes no record of the ledger
    and commits no offset. If your transform itself changes something elsewhere, that happens here too.

    Exit code 1: the records would not be published.

    Example: fencepost try nyc_flights --last 500
    """
    from fencepost.preview.trial_input import check_records

    if (start is None) != (end is None):
        raise SettingsError("--start and --end belong together: give both, or --last.")
    if start is not None and last is not None:
        raise SettingsError("--last is for the newest records, --start and --end for an interval: give one of them.")
    if watch and as_json:
        raise SettingsError("--watch is for a person to read: give it without --json.")
    check_records(1000 if last is None else last)
    interval = None if start is None or end is None else interval_of(start, end)
    found = pipeline_of(pipeline)
    if watch:  # a worker that is reused would keep the modules that it has imported
        found = found.model_copy(update={"spark": {**found.spark, "spark.python.worker.reuse": "false"}})
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        sys.dont_write_bytecode = True
    _load_ahead()
    with spark_session(found, (last or 1000) * len(found.sources)) as spark:
        if watch:
            _watch(spark(), pipeline, found.folder, interval, last or 1000)
            return
        executor = ThreadPoolExecutor(1)
        asked = executor.submit(_choose_input, found, interval, last or 1000)  # Kafka answers while Spark starts
        executor.shutdown(wait=False)  # Ctrl-C does not wait for Kafka
        trial = _tried(spark(), *asked.result())
    if as_json:
        print_json(as_plain(trial))
    else:
        show(trial, found)
    if not trial.passes:
        raise typer.Exit(1)


def _load_ahead() -> None:
    from fencepost.quality.loading import load_ahead

    load_ahead()


def _choose_input(pipeline: Pipeline, interval: Interval | None, last: int) -> tuple[Deployment, TrialInput]:
    """Returns the deployment, and the records that the trial reads."""
    from fencepost.doctor.folder import check_pipeline
    from fencepost.ledger.deployment import Deployment
    from fencepost.preview.trial_input import newest, of_interval

    check_pipeline(pipeline)
    deployment = Deployment.of(pipeline)
    return deployment, newest(deployment, last) if interval is None else of_interval(deployment, interval)


def _tried(spark: Any, deployment: Deployment, trial_input: TrialInput) -> Trial:
    from fencepost.preview.trial import try_pipeline

    with working("trying"):
        return try_pipeline(spark, deployment, trial_input)


def _watch(spark: Any, name: str, folder: Path, interval: Interval | None, last: int) -> None:
    """Runs the trial, and runs it again at each change of a file, until Ctrl-C."""
    while True:
        before = state_of(folder)
        began = time.monotonic()
        try:
            forget_modules(folder)
            pipeline = pipeline_of(name)
            show(_tried(spark, *_choose_input(pipeline, interval, last)), pipeline)
        except FencepostError as error:
            err.print(f"[bold red]{type(error).__name__}[/]: ", end="")
            err.print(str(error), markup=False, soft_wrap=True)
        err.print(f"{time.monotonic() - began:.1f} s. Waiting for a change in {folder}; Ctrl-C ends.", markup=False)
        while state_of(folder) == before:
            time.sleep(0.2)


def state_of(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Returns the modification time, size and inode of each file in the folder. These values show whether a file has
    changed.
    """
    found = {}
    for path in sorted(folder.rglob("*")):
        try:
            stat = path.stat()
        except OSError:
            continue
        if "__pycache__" not in path.parts and path.is_file():
            found[str(path)] = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
    return found


def forget_modules(folder: Path) -> None:
    """Forgets the modules that were imported from the folder, so that they are imported again."""
    inside = str(folder.resolve()) + os.sep
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and os.path.realpath(file).startswith(inside):
            del sys.modules[name]
    importlib.invalidate_caches()


def show(trial: Trial, pipeline: Pipeline) -> None:
    """Prints a trial's result for a person."""
    trial_input = trial.trial_input
    what = "sample"
    if trial_input.interval is not None:
        what = "whole batch" if trial_input.whole else "part of the batch"
        what += ", as it is frozen" if trial_input.frozen else ", as a plan would freeze it"
    out.print(f"{_of_topics(trial)} ({what})", markup=False, soft_wrap=True)
    if trial.tables:
        _show_tables(trial, pipeline)
    _show_rows(trial)
    counts = Table(show_header=False, box=None, pad_edge=False)
    counts.add_column(justify="right")
    counts.add_column(overflow="fold")
    tombstones = f", {trial.tombstones:,} of them {'tombstones' if trial.tombstones > 1 else 'a tombstone'}"
    rows = f"rows would be written to {pipeline.output.description}{tombstones if trial.tombstones else ''}"
    counts.add_row(f"{trial.written:,}", Text(rows))
    for one in trial.unpublished:
        first = f" (first at {one.first})" if one.first else ""
        name = f"{one.name} in topic {one.topic}" if one.topic and pipeline.several else one.name
        counts.add_row(f"{one.rows:,}", Text(f"{name}: {one.reason}{first}"))
    if trial.withheld:
        counts.add_row(f"{trial.withheld:,}", Text("rows would be withheld: another row of their record fails a rule"))
    out.print(counts)
    _show_checks(trial)
    for stop in trial.stops:
        out.print(f"It would fail: {stop}.", markup=False)
    for remark in trial.remarks:
        out.print(remark, markup=False)
    style = "bold green" if trial.passes else "bold red"
    out.print(f"[{style}]{trial.verdict}[/]", end="")
    out.print("" if trial.stops else f": {trial.evaluation.reason}", markup=False)


def _of_topics(trial: Trial) -> str:
    """Returns the number of records of each topic. A topic that the interval does not read has none."""
    read = {part.topic for part in trial.trial_input.ranges}
    return ", ".join(
        f"{count_of(source.read, 'record')} of topic {topic}"
        if topic in read
        else f"topic {topic} is not in this interval's batch"
        for topic, source in trial.sources.items()
    )


def _show_tables(trial: Trial, pipeline: Pipeline) -> None:
    table = Table(title="side tables", title_justify="left")
    table.add_column("table", overflow="fold")
    table.add_column("from", overflow="fold")
    table.add_column("rows", justify="right")
    table.add_column("size", justify="right")
    table.add_column("fingerprint", overflow="fold")
    table.add_column("up to, by partition", overflow="fold")
    for state in trial.tables:
        place = Text(pipeline.tables[state.name].description)
        numbers = f"{state.rows:,}", size(state), short_fingerprint(state)
        table.add_row(Text(state.name), place, *numbers, Text(ends_of(state)))
    out.print(table)


def _show_rows(trial: Trial) -> None:
    table = Table(title="the result", title_justify="left")
    table.add_column("column", overflow="fold")
    table.add_column("type", overflow="fold", max_width=24)
    for number in range(len(trial.rows)):
        table.add_column(f"row {number + 1}", overflow="fold", max_width=20)
    for name, kind in trial.columns:
        table.add_row(Text(name), Text(kind), *(Text(_shown(row.get(name))) for row in trial.rows))
    out.print(table)


def _shown(value: str | None) -> str:
    from fencepost.drafting.writing import printable

    if value is None:
        return "null"
    plain = printable(value)
    return plain if len(plain) <= LONGEST else f"{plain[: LONGEST - 3]}..."


def _show_checks(trial: Trial) -> None:
    table = Table(title="checks", title_justify="left")
    table.add_column("severity")
    table.add_column("check", overflow="fold")
    table.add_column("result", overflow="fold")
    for check in trial.evaluation.checks:
        result = str(check.status)
        if check.not_judged:
            result = (
                "not judged: about a whole batch" if not trial.trial_input.whole else f"not judged: {check.not_judged}"
            )
        elif check.error:
            result = f"could not be evaluated: {check.error.splitlines()[0]}"
        elif check.unexpected_count:
            result += f": {count_of(check.unexpected_count, 'record')}"
        table.add_row(str(check.severity), Text(check.title.removeprefix("expect_")), Text(result))
    out.print(table)


def _of_source(source: SourceSample) -> dict[str, Any]:
    return {
        "read": source.read,
        "malformed": source.malformed,
        "tombstones": source.refused_tombstones,
        "excluded": {kind.value: one.rows for kind, one in source.excluded.items()},
    }


def as_plain(trial: Trial) -> dict[str, Any]:
    """Returns a trial's result as JSON, for programs."""
    trial_input = trial.trial_input
    return {
        "interval": trial_input.interval.model_dump(mode="json") if trial_input.interval else None,
        "ranges": [one.model_dump(mode="json") for one in trial_input.ranges],
        "whole": trial_input.whole,
        "frozen": trial_input.frozen,
        "tables": [state.model_dump(mode="json", exclude={"value_schema"}) for state in trial.tables],
        "read": trial.read,
        "malformed": trial.malformed,
        "excluded": trial.excluded,
        "sources": {topic: _of_source(source) for topic, source in trial.sources.items()},
        "results": trial.results,
        "written": trial.written,
        "tombstones": trial.tombstones,
        "withheld": trial.withheld,
        "unpublished": [
            {"name": s.name, "reason": s.reason, "rows": s.rows, "first": s.first, "topic": s.topic or None}
            for s in trial.unpublished
        ],
        "columns": dict(trial.columns),
        "rows": list(trial.rows),
        "checks": [check.model_dump(mode="json", exclude={"sample"}) for check in trial.evaluation.checks],
        "stops": list(trial.stops),
        "remarks": list(trial.remarks),
        "verdict": trial.verdict,
        "reason": trial.evaluation.reason,
        "passes": trial.passes,
    }
