"""`fencepost quarantine`: what is in a pipeline's quarantine topic, by interval and rule."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from fencepost.cli.arguments import AsJson, PipelineName, moment_of, pipeline_of
from fencepost.cli.console import out, print_json
from fencepost.cli.status import identity, span
from fencepost.errors import SettingsError
from fencepost.model import Batch
from fencepost.protocol.snapshot import Snapshot, snapshot_of
from fencepost.protocol.view import View


def quarantine(
    pipeline: PipelineName,
    start: Annotated[str | None, typer.Option(help="Only intervals that end after this time, ISO 8601.")] = None,
    end: Annotated[str | None, typer.Option(help="Only intervals that start before this time, ISO 8601.")] = None,
    every: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Every batch: also rejected, superseded and skipped ones, and those whose records were replayed.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what the published intervals have in quarantine, by interval and rule. Reads the ledger only.

    Records that a replay has taken are not listed. Those that failed again are listed under the addition, one attempt later.
    `fencepost replay` sends what is left through the present transform and checks.

    The records are in the topic that it names. The last header of a record names its batch.

    Example: fencepost quarantine nyc_flights --start 2013-01-01 --end 2013-02-01
    """
    from fencepost.ledger.ledger import Ledger

    first = moment_of("--start", start) if start else None
    last = moment_of("--end", end) if end else None
    if first and last and last <= first:
        raise SettingsError(f"--end {end} does not lie after --start {start}.")
    ledger = Ledger(pipeline_of(pipeline))
    snapshot = snapshot_of(ledger.read() if ledger.exists() else View())
    found = list(quarantined_batches(snapshot, first, last, every=every))
    if as_json:
        print_json({"pipeline": pipeline, "batches": [as_plain(batch) for batch in found]})
        return
    if not found:
        out.print(f"{pipeline}: nothing in quarantine{' of published batches' if not every else ''}.", soft_wrap=True)
        return
    table = Table(title=f"{pipeline}: quarantine", title_justify="left")
    replayed = any(batch.plan.attempt > 1 for batch in found)
    for name in ("interval (UTC)", *(("rev", "state") if every else ()), *(("tried",) if replayed else ()), "records"):
        table.add_column(name, justify="right" if name in {"rev", "tried", "records"} else "left", no_wrap=True)
    table.add_column("rule", overflow="fold")
    for batch in found:
        for rule, rows in batch.known_written.quarantined.items():
            which = (str(batch.revision), str(batch.state)) if every else ()
            tried = (str(batch.plan.attempt),) if replayed else ()
            table.add_row(span(batch), *which, *tried, f"{rows:,}", escape(rule))
    out.print(table)
    for topic in dict.fromkeys(b.plan.quarantine.topic for b in found if b.plan.quarantine):
        out.print(
            f"the records are in topic {topic}; the last header of each names its batch", markup=False, soft_wrap=True
        )


def quarantined_batches(
    snapshot: Snapshot, start: datetime | None, end: datetime | None, *, every: bool
) -> Iterable[Batch]:
    """The batches with quarantined records whose intervals overlap the time, in order. Pure.

    Of each published interval that is the batch, or the last published addition to it; with `every`, it is all batches there are.
    """
    for row in snapshot.rows:
        if (start and row.interval.end <= start) or (end and row.interval.start >= end):
            continue
        listed = row.revisions.all if every else (row.revisions.link,)
        yield from (b for b in listed if b is not None and b.written is not None and b.written.quarantined)


def as_plain(batch: Batch) -> dict[str, Any]:
    """A batch's quarantined records for programs: counts by rule, and the offset ranges."""
    written = batch.known_written
    return {
        **identity(batch),
        "attempt": batch.plan.attempt,
        "quarantined": written.quarantined,
        "topic": batch.known_quarantine.topic,
        "ranges": {str(r.partition): [r.start, r.end] for r in batch.quarantine_ranges(written) if r.length},
    }
