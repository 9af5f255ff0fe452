"""`fencepost status` and `fencepost ledger`: the state of every interval, and what awaits a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from fencepost.counts import count_of
from fencepost.model import Batch, PartitionId, State, utc_now
from fencepost.protocol.table_states import changes_since, describe_changes, describe_state, states_for_programs

if TYPE_CHECKING:
    from fencepost.protocol.awaiting import Awaiting
    from fencepost.protocol.snapshot import Row
    from fencepost.protocol.view import Revisions
from fencepost.cli.arguments import AsJson, PipelineName, pipeline_of
from fencepost.cli.console import out, print_json

SHOWN_REPORTS = 10  # how many of the newest batches that await a person are shown

STATE_STYLE = {
    State.PUBLISHED: "green",
    State.PUBLISHING: "blue",
    State.REJECTED: "bold red",
    State.SKIPPED: "magenta",
    State.SUPERSEDED: "dim",
    State.WITHDRAWN: "dim",
    State.PLANNED: "yellow",
    State.WRITTEN: "cyan",
}


def status(pipeline: PipelineName, as_json: AsJson = False) -> None:
    """Show what awaits a person, the state of every interval, what holds the frontier back, and the frontier's lag.

    What awaits a person comes first, with the command for it. The frontier has, for each partition of each source, the offset up
    to which every interval is published or skipped.

    Example: fencepost status nyc_flights
    """
    from fencepost.kafka.cluster import offsets_by_partition
    from fencepost.ledger.deployment import Deployment
    from fencepost.outputs.output import missing_or_why_not
    from fencepost.protocol.announcing import complete_until
    from fencepost.protocol.frontier import by_topic, offsets_behind
    from fencepost.protocol.look_back import made_without
    from fencepost.protocol.snapshot import snapshot_of
    from fencepost.protocol.view import View

    found = pipeline_of(pipeline)
    deployment = Deployment.of(found)
    view = deployment.ledger.read() if deployment.ledger.exists() else View()
    snapshot, until = snapshot_of(view), complete_until(view)
    sources = [deployment.cluster.describe(topic) for topic in found.source_topics]
    stable = offsets_by_partition(sources, deployment.cluster.last_stable)
    lag = offsets_behind(snapshot.frontier, stable) if snapshot.frontier else {}
    hole, rows = snapshot.hole, snapshot.rows
    awaiting = snapshot.awaiting(utc_now(), found.schedule.patience)
    missing = missing_or_why_not(deployment) if rows else ""
    before = (
        snapshot.unread.still_in(offsets_by_partition(sources, deployment.cluster.earliest))
        if snapshot.unread.offsets
        else snapshot.unread
    )
    without = made_without(view)
    unannounced = deployment.ledger.announcements.loss(deployment.cluster.find(found.announcements_topic))
    if as_json:
        print_json(
            {
                "pipeline": pipeline,
                "awaiting_person": [_awaiting(one) for one in awaiting],
                "batches": [_interval(row) for row in rows],
                "frontier": by_topic(snapshot.frontier),
                "lag": by_topic(lag),
                "held_back_by": str(hole.batch.id) if hole else None,
                "output_lacks": missing or None,
                "complete_until": until.isoformat() if until else None,
                "announcements_lost": unannounced,
                "unread": {"offsets": before.offsets, "ranges": before.by_topic, "reason": before.reason}
                if before.offsets
                else None,
                "made_without": [
                    {
                        "records_of": {"start": one.consumed.start.isoformat(), "end": one.consumed.end.isoformat()},
                        "topic": one.topic,
                        "intervals": [{"start": i.start.isoformat(), "end": i.end.isoformat()} for i in one.later],
                    }
                    for one in without
                ],
            }
        )
        return
    if not rows:
        command = f"`fencepost run {pipeline} --start ... --end ...`"
        out.print(f"{pipeline}: nothing has been planned yet. Start it in Airflow, or with {command}.", soft_wrap=True)
        return
    _print_awaiting(awaiting)
    if missing:
        out.print(f"{missing}\n", style="bold red", markup=False, soft_wrap=True)
    if unannounced:
        message = f"{pipeline}: {unannounced} `fencepost announce {pipeline}` writes it again.\n"
        out.print(message, style="bold red", markup=False, soft_wrap=True)
    out.print(_table(f"{pipeline}: intervals", [b for row in rows for b in row.lines]))
    out.print(
        _progress([*found.source_topics], snapshot.frontier, lag)
        + (f"   complete until {until:%Y-%m-%d %H:%M} UTC" if until else ""),
        markup=False,
        soft_wrap=True,
    )
    quarantined = [sum(row.left_in_quarantine.values()) for row in rows if row.left_in_quarantine]
    if quarantined:
        every = " --all" if any(row.left_in_quarantine and row.revisions.link is None for row in rows) else ""
        out.print(
            f"in quarantine: {count_of(sum(quarantined), 'record')} of {count_of(len(quarantined), 'interval')}; "
            f"`fencepost quarantine {pipeline}{every}` lists them by rule",
            soft_wrap=True,
        )
    replayed = [row.replayed for row in rows if row.replayed]
    if replayed:
        taken, passed = (sum(each) for each in zip(*replayed, strict=True))
        additions = sum(len(row.additions) for row in rows)
        out.print(
            f"replayed: {count_of(taken, 'record')} in {count_of(additions, 'addition')}, which added "
            f"{count_of(passed, 'row')} to the output (marked + in the table)",
            soft_wrap=True,
        )
    if made := [row for row in rows if row.newest.plan.tables]:
        out.print(f"side tables of {span(made[-1].newest)}, revision {made[-1].newest.revision}:")
        _print_tables(made[-1].newest, made[-1].revisions)
    for batch in [row.batch for row in rows if row.batch.plan.also_covers is not None][-SHOWN_REPORTS:]:
        out.print(
            f"[bold yellow]covers more than its interval:[/] {batch.id}. {batch.plan.coverage_note}.", soft_wrap=True
        )
    for batch in [row.batch for row in rows if row.batch.plan.looked_back_lost_note][-SHOWN_REPORTS:]:
        lost = escape(batch.plan.looked_back_lost_note)
        out.print(f"[bold yellow]not looked back at, because it had expired:[/] {batch.id}. {lost}.", soft_wrap=True)
    if before.offsets:
        message = f"[bold yellow]never read:[/] {escape(before.description)}. {escape(before.advice(pipeline))}."
        out.print(message, soft_wrap=True)
    for one in without:
        message = f"[bold yellow]made without records:[/] {escape(one.description)}. {escape(one.advice(pipeline))}."
        out.print(message, soft_wrap=True)
    for row in rows:
        if row.interval.end > utc_now() and not row.revisions.is_withdrawn:
            out.print(
                f"[bold yellow]ends in the future:[/] {row.batch.id}. Earlier intervals that are planned from now "
                "on get no records. If this interval was a mistake, `fencepost withdraw` removes it.",
                soft_wrap=True,
            )
    if hole:
        known = any(one.batch == hole.batch for one in awaiting)
        line = f"[bold red]held back by[/] {hole.batch.id} ({hole.batch.state})"
        out.print(line if known else f"{line}: {escape(hole.next_step)}", soft_wrap=True)


def _progress(topics: Sequence[str], reached: Mapping[PartitionId, int], lag: Mapping[PartitionId, int]) -> str:
    """Returns the frontier in these source topics and the offsets behind it. Several topics are named."""
    from fencepost.protocol.frontier import of_topic, total_of_topic

    ends = {topic: ", ".join(f"{p}:{o}" for p, o in of_topic(reached, topic).items()) for topic in topics}
    behind = {topic: f"{number:,}" for topic, number in total_of_topic(lag).items()}
    if len(topics) == 1:
        return f"frontier: {ends[topics[0]]}   offsets behind: {sum(lag.values()):,}"
    listed = [f"{topic} {ends[topic] or 'not read yet'}" for topic in topics]
    numbers = ", ".join(f"{topic} {number}" for topic, number in behind.items())
    return f"frontier: {'; '.join(listed)}   offsets behind: {sum(lag.values()):,}{f' ({numbers})' if numbers else ''}"


def _print_tables(batch: Batch, revisions: Revisions) -> None:
    """Prints the side tables that the batch was made with, and which of them have changed since an earlier revision."""
    lines = [f"{state.name}: {describe_state(state)}" for state in batch.plan.tables]
    for line in filter(None, [*lines, describe_changes(changes_since(revisions, batch))]):
        out.print(f"  {line}", markup=False, soft_wrap=True)


def _interval(row: Row) -> dict[str, Any]:
    return {
        **_summary(row.batch),
        "newest_revision": row.newest.revision,
        "newest_state": row.newest.state,
        "additions": [_summary(b) for b in row.additions],
        "left_in_quarantine": row.left_in_quarantine if row.revisions.link else {},
    }


def _awaiting(one: Awaiting) -> dict[str, Any]:
    older = one.in_force
    return {
        **_summary(one.batch),
        "reason": one.reason,
        "in_force": {"revision": older.revision, "state": older.state} if older else None,
        "says": one.description,
        "do": one.advice,
    }


def _print_awaiting(awaiting: Sequence[Awaiting]) -> None:
    """Prints what awaits a person. The newest entry is printed in full, and the others are counted."""
    if not awaiting:
        return
    out.print("[bold red]awaiting a person[/]")
    if len(awaiting) > SHOWN_REPORTS:
        out.print(f"  {len(awaiting) - SHOWN_REPORTS} earlier ones; --json lists them all")
    for one in awaiting[-SHOWN_REPORTS:]:
        out.print(f"  {span(one.batch)}: {one.description}.", markup=False, soft_wrap=True)
        if one.batch.verdict is not None:
            out.print(f"    {one.batch.verdict.report}", markup=False, soft_wrap=True)
        out.print(
            f"    {one.advice}", markup=False, soft_wrap=True
        )  # a command is for copying, so its line is not broken
    out.print()


def show_ledger(pipeline: PipelineName, as_json: AsJson = False) -> None:
    """Show every revision of every interval in the ledger, with its history: who or what changed its state, and when.

    Example: fencepost ledger nyc_flights --json
    """
    from fencepost.ledger.ledger import Ledger
    from fencepost.protocol.view import View

    found = pipeline_of(pipeline)
    ledger = Ledger(found)
    view = ledger.read() if ledger.exists() else View()
    batches = view.all()
    if as_json:
        print_json([b.model_dump(mode="json") for b in batches])
        return
    out.print(_table(f"ledger {found.ledger_topic}", batches))
    _print_reports(batches)
    for batch in batches:
        if batch.plan.tables:
            out.print(f"  {batch.id}, side tables:", markup=False, soft_wrap=True)
            _print_tables(batch, view.known(batch.interval))
    for batch in batches:
        for event in batch.history:
            out.print(
                f"  {event.at:%Y-%m-%d %H:%M:%S}  {batch.id}  {event.state}  {event.note}", markup=False, soft_wrap=True
            )


def identity(batch: Batch) -> dict[str, Any]:
    """Returns the identity and the state of a batch as JSON, for programs."""
    return {
        "batch": str(batch.id),
        "start": batch.interval.start.isoformat(),
        "end": batch.interval.end.isoformat(),
        "revision": batch.revision,
        "adds_to": batch.adds_to,
        "state": batch.state,
    }


def _summary(batch: Batch) -> dict[str, Any]:
    return {
        **identity(batch),
        "rows_in": batch.written.rows_in if batch.written else None,
        "sources": _sources(batch),
        "rows": batch.written.rows if batch.written else None,
        "quarantined": batch.written.quarantined if batch.written else {},
        "tombstones_dropped": batch.written.tombstones if batch.written else 0,
        "excluded": batch.written.excluded if batch.written else {},
        "replayed": batch.plan.replays.tally.rows if batch.plan.replays else None,
        "tables": states_for_programs(batch.plan.tables),
        "also_covers": str(batch.plan.also_covers) if batch.plan.also_covers else None,
        "published": batch.publication.method if batch.publication and batch.publication.has_ended else None,
        "verdict": batch.verdict.outcome if batch.verdict else None,
        "report": batch.verdict.report if batch.verdict else None,
    }


def _sources(batch: Batch) -> dict[str, Any]:
    """Returns the offsets of the batch, the records that it has read, and the offsets that it looked back at, by topic."""
    found: dict[str, dict[str, Any]] = {
        one.topic: {"offsets": one.offsets, "rows_in": batch.rows_read[one.topic]} for one in batch.plan.inputs
    }
    for one in batch.plan.looked_back:
        found[one.topic]["offsets_looked_back"] = one.offsets
        if one.lost:
            found[one.topic]["offsets_not_looked_back"] = sum(part.length for part in one.lost)
    return found


def span(batch: Batch) -> str:
    """Returns a batch's interval in short form, for a table."""
    return f"{batch.interval.start:%Y-%m-%d %H:%M} → {batch.interval.end:%m-%d %H:%M}"


def _table(title: str, batches: list[Batch]) -> Table:
    table = Table(title=title, title_justify="left")
    for name in ("interval (UTC)", "rev", "state", "in", "out", "verdict"):
        table.add_column(name, justify="right" if name in {"rev", "in", "out"} else "left", no_wrap=True)
    for batch in batches:
        row = _summary(batch)
        revision = str(batch.revision) if batch.adds_to is None else f"+{batch.revision}"
        cells = [span(batch), revision, f"[{STATE_STYLE[batch.state]}]{batch.state}[/]"]
        cells += ["" if row[name] is None else str(row[name]) for name in ("rows_in", "rows", "verdict")]
        table.add_row(*cells)
    return table


def _print_reports(batches: list[Batch]) -> None:
    """Prints the paths of the reports below the table. A path is for copying, so its line is not broken."""
    for batch in batches:
        if batch.verdict is not None:
            out.print(f"  {batch.id}  {batch.verdict.outcome}  {batch.verdict.report}", markup=False, soft_wrap=True)
