"""`fencepost diff` and `fencepost trace`: what a reprocessing changed, and where a record came from or went."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from typer.core import TyperCommand

from fencepost.cli.arguments import AsJson, End, PipelineName, Start, interval_of, pipeline_of
from fencepost.cli.console import out, print_json
from fencepost.cli.status import identity, span
from fencepost.cli.steps import spark_that_reads
from fencepost.counts import count_of
from fencepost.errors import SettingsError
from fencepost.model import Batch, describe_ranges
from fencepost.protocol.table_states import describe_changes, describe_state, states_for_programs

if TYPE_CHECKING:
    from fencepost.preview.diff import RevisionDifference
    from fencepost.preview.trace import TraceResult

TWO = "--revisions 1 2"


class DiffCommand(TyperCommand):
    """Explains the option --revisions if its second value is missing. The parser alone would take the next option for
    that value.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Returns the remaining arguments."""
        if "--revisions" in args:
            given = args[args.index("--revisions") + 1 :][:2]
            numbers = [*takewhile(str.isdecimal, given)]
            if len(numbers) < 2:
                said = " ".join(["--revisions", *(numbers or given[:1])])
                raise SettingsError(f"{said}: give two numbers, the earlier revision first, as in {TWO}.")
        return super().parse_args(ctx, args)


def diff(
    pipeline: PipelineName,
    start: Start,
    end: End,
    revisions: Annotated[tuple[int, int], typer.Option(help="The two revisions, the earlier one first.")],
    key: Annotated[
        list[str] | None,
        typer.Option(help="A column that identifies rows. Repeat --key for several. _key is the record's key."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show how a second revision of an interval differs from the first, in numbers and a sample of rows.

    Without --key whole rows are compared: each is in both revisions, or in one. With --key rows of the same key are compared, and
    the columns in which they differ are counted. Each revision includes its published additions. A revision need not be
    published.

    Example: fencepost diff nyc_flights --start 2013-01-01T00:00-05:00 --end 2013-01-02T00:00-05:00 --revisions 1 2
    """
    from fencepost.ledger.deployment import Deployment
    from fencepost.preview.diff import difference
    from fencepost.preview.past import revision_of

    found, interval = pipeline_of(pipeline), interval_of(start, end)
    if revisions[0] == revisions[1]:
        raise SettingsError(f"--revisions {revisions[0]} {revisions[1]}: give two, the earlier one first, as in {TWO}.")
    deployment = Deployment.of(found)
    known = deployment.ledger.read().revisions.get(interval)
    if known is None:
        raise SettingsError(
            f"pipeline {pipeline}: nothing was planned for {interval.description}. `fencepost ledger` lists the planned "
            "intervals."
        )
    pasts = [revision_of(known, number) for number in revisions]
    missing = [str(number) for number, past in zip(revisions, pasts, strict=True) if past is None]
    if missing:
        there = ", ".join(str(batch.revision) for batch in known.batches)
        added = "; an addition is part of its revision" if known.additions else ""
        raise SettingsError(
            f"--revisions: {interval.description} has no revision {', '.join(missing)}; there are {there}{added}."
        )
    one, other = (past for past in pasts if past is not None)
    with spark_that_reads(
        found, "diff", f"comparing revisions {one.batch.revision} and {other.batch.revision}"
    ) as spark:
        result = difference(spark, deployment, one, other, key or [])
    if as_json:
        print_json(
            {"pipeline": pipeline, "interval": interval.model_dump(mode="json"), **result.model_dump(mode="json")}
        )
        return
    _print_difference(f"{pipeline}: {interval.description}", result)


def _print_difference(title: str, result: RevisionDifference) -> None:
    from fencepost.preview.suggest import as_json

    first, second = result.revisions
    table = Table(title=title, title_justify="left")
    table.add_column("rows")
    table.add_column("number", justify="right", no_wrap=True)
    table.add_row(f"of revision {first}", f"{result.rows[0]:,}")
    table.add_row(f"of revision {second}", f"{result.rows[1]:,}")
    table.add_section()
    table.add_row("the same", f"{result.same:,}")
    if result.key:
        table.add_row(f"changed, by {', '.join(result.key)}", f"{result.changed:,}")
    table.add_row(f"only in {first}", f"{result.removed:,}")
    table.add_row(f"only in {second}", f"{result.added:,}")
    out.print(table)
    for name, number in result.columns.items():
        out.print(f"  {name}: {count_of(number, 'row differs', 'rows differ')}", markup=False, soft_wrap=True)
    for words, names in (
        (f"only revision {first} has", result.only_before),
        (f"only revision {second} has", result.only_after),
        ("compared as text, because their types differ:", result.retyped),
    ):
        if names:
            out.print(f"  {words} {', '.join(names)}", markup=False, soft_wrap=True)
    for line in _of_tables(result):
        out.print(f"  {line}", markup=False, soft_wrap=True)
    for row in result.sample:
        for sign, values in (("-", row.before), ("+", row.after)):
            if values is not None:
                out.print(f"{sign} {as_json(values)}", markup=False, soft_wrap=True)


def _of_tables(result: RevisionDifference) -> list[str]:
    """Returns which side tables have changed, and the two states of each."""
    lines = []
    for change in result.tables:
        lines.append(f"{describe_changes([change])}:")
        for revision, state in zip(change.revisions, (change.before, change.after), strict=True):
            lines.append(f"  revision {revision}: {describe_state(state) if state else 'made without it'}")
    return lines


def trace(
    pipeline: PipelineName,
    output: Annotated[str | None, typer.Option(help="An output record: TOPIC:PARTITION:OFFSET.")] = None,
    source: Annotated[str | None, typer.Option(help="A source record: TOPIC:PARTITION:OFFSET.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show which batch an output record belongs to, or which batch read a source record and what became of it.

    The answer has the batch's source ranges, state, verdict and report. For a source record it also has the records in quarantine
    that came from it. Which rows a source record became is not recorded. Under output.layout: source this command runs today's
    transform on that record and looks for its rows in the batch.

    Example: fencepost trace nyc_flights --source flights:0:17
    """
    from fencepost.ledger.deployment import Deployment
    from fencepost.preview.trace import check_output, check_source, location_of, trace_output, trace_source

    if (output is None) == (source is None):
        raise SettingsError("Give one of --output and --source, as TOPIC:PARTITION:OFFSET.")
    found = pipeline_of(pipeline)
    place = location_of("--output", output) if output is not None else location_of("--source", source or "")
    deployment = Deployment.of(found)
    view = deployment.ledger.read()
    check, trace_it = (check_output, trace_output) if output is not None else (check_source, trace_source)
    check(deployment, view, place)
    with spark_that_reads(found, "trace", f"tracing {place}") as spark:
        traced = trace_it(spark, deployment, view, place)
    if as_json:
        print_json({"pipeline": pipeline, **_plain(traced)})
        return
    _print_traced(traced, several=len(found.sources) > 1)


def _plain(traced: TraceResult) -> dict[str, object]:
    return {
        "place": str(traced.place),
        "source": traced.source,
        "batches": [
            {
                **identity(batch),
                "sources": [source.model_dump(mode="json") for source in batch.plan.inputs],
                "looked_back": [source.model_dump(mode="json") for source in batch.plan.looked_back],
                "tables": states_for_programs(batch.plan.tables),
                "verdict": batch.verdict.outcome if batch.verdict else None,
                "report": batch.verdict.report if batch.verdict else None,
            }
            for batch in traced.batches
        ],
        "looked_back_by": [identity(batch) for batch in traced.looked_back_by],
        "quarantine": [one.model_dump(mode="json") for one in traced.kept],
        "rows": [str(row) for row in traced.rows],
        "found": list(traced.found),
    }


def _print_traced(traced: TraceResult, *, several: bool) -> None:
    """Prints what is known about the record. The source is named if the pipeline has several."""
    lines = [f"{traced.place}, {traced.source}" if several and traced.source else str(traced.place)]
    for batch in traced.batches:
        lines += _of_batch(batch)
    lines += [f"  looked back at by {one.id}: {one.state}" for one in traced.looked_back_by]
    lines += [f"  in quarantine, of batch {one.batch}: {one.rule}: {one.reason}" for one in traced.kept]
    lines += [f"  row at {row}" for row in traced.rows]
    lines += [f"  {sentence}" for sentence in traced.found]
    for line in lines:
        out.print(line, markup=False, soft_wrap=True)


def _of_batch(batch: Batch) -> list[str]:
    what = f"addition {batch.revision} to revision {batch.adds_to}" if batch.adds_to else f"revision {batch.revision}"
    lines = [f"  {span(batch)} UTC, {what}: {batch.state}"]
    for source in batch.plan.inputs:
        ranges = describe_ranges(r for r in source.ranges if r.length)
        lines.append(f"    from topic {source.topic}, {ranges or 'no offsets'}")
    for source in batch.plan.looked_back:
        if ranges := describe_ranges(r for r in source.ranges if r.length):
            lines.append(f"    looked back at topic {source.topic}, {ranges}")
    lines += [f"    with side table {state.name}: {describe_state(state)}" for state in batch.plan.tables]
    if batch.verdict is not None:
        lines.append(f"    {batch.verdict.outcome}: {batch.verdict.reason}")
        lines.append(f"    {batch.verdict.report}")
    return lines
