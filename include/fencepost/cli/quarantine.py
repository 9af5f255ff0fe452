"""`fencepost quarantine`: what is in a pipeline's quarantine topic, by interval and rule."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from fencepost.cli.arguments import AsJson, PipelineName, moment_of, pipeline_of
from fencepost.cli.console import out, print_json
from fencepost.cli.status import identity, span
from fencepost.config.pipeline import Pipeline
from fencepost.errors import SettingsError
from fencepost.model import MALFORMED, Batch
from fencepost.protocol.snapshot import Snapshot, snapshot_of
from fencepost.protocol.view import View
from fencepost.suite.declared import rule_names

if TYPE_CHECKING:
    from fencepost.ledger.deployment import Deployment
    from fencepost.outputs.quarantine import QuarantinedRecord


def quarantine(
    pipeline: PipelineName,
    start: Annotated[str | None, typer.Option(help="Only intervals that end after this time, ISO 8601.")] = None,
    end: Annotated[str | None, typer.Option(help="Only intervals that start before this time, ISO 8601.")] = None,
    every: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Show every batch, also if it is rejected, superseded or skipped, or if its records were replayed.",
        ),
    ] = False,
    most: Annotated[
        int | None,
        typer.Option("--show", min=1, help="Also show this many records: where each is from, and why it is there."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what the published intervals have in quarantine, by interval and rule. Reads the ledger, and with --show the records.

    Records that a replay has taken are not listed. Those that failed again are listed under the addition, with a higher attempt.
    `fencepost replay` sends what is left through the present transform and checks.

    The output names the topic with the records. The last header of a record names its batch. With --show the first records of the
    newest batches are listed, without keys and values.

    Example: fencepost quarantine nyc_flights --start 2013-01-01 --end 2013-02-01
    """
    from fencepost.ledger.deployment import Deployment

    first = moment_of("--start", start) if start else None
    last = moment_of("--end", end) if end else None
    if first and last and last <= first:
        raise SettingsError(f"--end {end} is not after --start {start}.")
    known = pipeline_of(pipeline)
    deployment, described = Deployment.of(known), descriptions_of(known)
    snapshot = snapshot_of(deployment.ledger.read() if deployment.ledger.exists() else View())
    found = list(quarantined_batches(snapshot, first, last, every=every))
    records = list(islice(_records(deployment, found, most or 0), most or 0))
    if as_json:
        document: dict[str, Any] = {"pipeline": pipeline, "batches": [as_plain(batch) for batch in found]}
        document |= {"descriptions": described}
        print_json(document if most is None else document | {"records": [one._asdict() for one in records]})
        return
    if not found:
        message = f"{pipeline}: nothing in quarantine{' of published batches' if not every else ''}."
        if not every and any(quarantined_batches(snapshot, first, last, every=True)):
            message += " With --all the command lists rejected batches too, and records that were replayed."
        out.print(message, markup=False, soft_wrap=True)
        return
    table = Table(title=f"{pipeline}: quarantine", title_justify="left")
    replayed = any(batch.plan.attempt > 1 for batch in found)
    for name in ("interval (UTC)", *(("rev", "state") if every else ()), *(("tried",) if replayed else ()), "records"):
        table.add_column(name, justify="right" if name in {"rev", "tried", "records"} else "left", no_wrap=True)
    table.add_column("rule", overflow="fold")
    for batch in found:
        for rule, rows in batch.require_written.quarantined.items():
            which = (str(batch.revision), str(batch.state)) if every else ()
            tried = (str(batch.plan.attempt),) if replayed else ()
            table.add_row(span(batch), *which, *tried, f"{rows:,}", escape(describe_rule(rule, described)))
    out.print(table)
    for topic in dict.fromkeys(b.plan.quarantine.topic for b in found if b.plan.quarantine):
        out.print(
            f"the records are in topic {topic}; the last header of each names its batch", markup=False, soft_wrap=True
        )
    if known.replays_results_only and any(MALFORMED in batch.require_written.quarantined for batch in found):
        out.print(
            "malformed records are not replayed, because a row may come from several records; correct their source's schema "
            "in pipeline.yaml, and run the interval with --reprocess",
            markup=False,
            soft_wrap=True,
        )
    from fencepost.drafting.writing import printable

    for one in records:
        reason = "" if one.reason in (one.rule, described.get(one.rule)) else f": {one.reason}"
        text = f"{one.place}, from {one.source or 'an unknown record'}: {describe_rule(one.rule, described)}{reason}"
        out.print(printable(text), markup=False, soft_wrap=True)


def descriptions_of(pipeline: Pipeline) -> dict[str, str]:
    """Returns the descriptions of the rules in today's suite, by rule. It is empty if the suite cannot be read."""
    try:
        rules = pipeline.suite.rules
    except SettingsError:
        return {}
    return {name: rule.description for name, rule in zip(rule_names(rules), rules, strict=True) if rule.description}


def describe_rule(rule: str, described: Mapping[str, str]) -> str:
    """Returns a rule's name, and its description if it has one."""
    return f"{rule}: {described[rule]}" if rule in described else rule


def _records(deployment: Deployment, batches: Sequence[Batch], most: int) -> Iterator[QuarantinedRecord]:
    """Yields the records of these batches, the newest batch first."""
    from fencepost.outputs.quarantine import QuarantineTopic

    for batch in reversed(batches):
        yield from QuarantineTopic(deployment, batch).some(batch, most)


def quarantined_batches(
    snapshot: Snapshot, start: datetime | None, end: datetime | None, *, every: bool
) -> Iterable[Batch]:
    """Yields the batches with quarantined records whose intervals overlap the time, in order. Pure.

    For each published interval it yields the batch, or its last published addition. With `every` the function yields
    every batch.
    """
    for row in snapshot.rows:
        if (start and row.interval.end <= start) or (end and row.interval.start >= end):
            continue
        listed = row.revisions.all if every else (row.revisions.link,)
        yield from (b for b in listed if b is not None and b.written is not None and b.written.quarantined)


def as_plain(batch: Batch) -> dict[str, Any]:
    """Returns a batch's quarantined records as JSON, for programs. It has counts by rule, and the offset ranges."""
    written = batch.require_written
    return {
        **identity(batch),
        "attempt": batch.plan.attempt,
        "quarantined": written.quarantined,
        "topic": batch.require_quarantine.topic,
        "ranges": {str(r.partition): [r.start, r.end] for r in batch.quarantine_ranges(written) if r.length},
    }
