"""Renders the verdict in a few lines for a terminal or a task log. The lines show coordinates of records, and never
their values.
"""

from __future__ import annotations

from collections.abc import Iterator

from fencepost.counts import count_of
from fencepost.formats.framing import describe_excluded
from fencepost.model import Batch, WriteSummary, describe_ranges
from fencepost.protocol.table_states import describe_state
from fencepost.quality.checks import CheckResult, Status
from fencepost.quality.quarantine import SourceAccounts, counted, malformed_words
from fencepost.quality.report import Report, addition_words, left_out_words, rank, withheld_words

LISTED = 6  # checks, and sources, named in the text
COORDINATES = 3  # records named for each check


def render_plain(report: Report) -> str:
    """Returns the verdict and the failed checks in 5 to 20 lines."""
    batch, evaluation = report.batch, report.evaluation
    lines = [
        f"{evaluation.outcome.upper()}  {batch.pipeline}  {batch.interval.description}  "
        f"revision {batch.revision}{addition_words(batch)}, validation {report.number}",
        evaluation.reason,
        *([f"{batch.plan.coverage_note}."] if batch.plan.coverage_note else []),
        *([f"{report.unread}."] if report.unread else []),
    ]
    bad = [check for check in report.in_order() if check.status is not Status.PASSED]
    lines += [f"  {_plain_check(check)}" for check in bad[:LISTED]]
    if len(bad) > LISTED:
        lines.append(f"  and {len(bad) - LISTED} more; the report lists them all")
    if batch.written is not None:
        lines.append(
            f"records: {', '.join([_rows_in(batch), *_counts_beside_output(report), f'{batch.written.rows:,} out'])}"
        )
    lines += [_source(one) for one in report.sources[:LISTED]]
    if len(report.sources) > LISTED:
        lines.append(f"and {len(report.sources) - LISTED} more sources; the report lists them all")
    lines += list(_looked_back(batch))
    if report.quarantined is not None and report.quarantined.rules:
        lines.append(
            f"quarantine {report.quarantined.topic}: {counted({r.rule: r.rows for r in report.quarantined.rules})}"
        )
    if batch.plan.staging is not None:
        lines.append(f"staged in {batch.plan.staging.topic}, to be published to {batch.plan.output.description}")
    if batch.plan.schemas is not None:
        lines += [f"{part}: {schema}" for part, schema in batch.plan.schemas.descriptions.items()]
    lines += [f"side table {state.name}: {describe_state(state)}" for state in batch.plan.tables]
    if report.receipt_check is not None:
        agrees = "agree" if report.receipt_check.agrees else "DO NOT AGREE"
        lines.append(f"receipts and read_committed {agrees}: {count_of(report.receipt_check.rows_read, 'record')} read")
    judged = sum(check.status is not Status.ERRORED for check in evaluation.checks)
    idle = sum(check.no_value for check in evaluation.checks)
    unread = "" if evaluation.read else ", no record read,"
    took = f"{judged} of {len(evaluation.checks)} evaluated{unread} in {evaluation.seconds:.1f} s"
    took += f"; {idle} of them had nothing to judge" if idle else ""
    lines += [f"expectations: {took if evaluation.checks else 'none evaluated'}", report.next_step]
    return "\n".join(lines)


def _counts_beside_output(report: Report) -> list[str]:
    """Returns the counts of rows that were read but are not in the output."""
    found, written = report.quarantined, report.batch.require_written
    if found is None:
        return [f"{written.malformed:,} malformed dropped", *_tombstones(written), *_excluded(written)]
    again = " again" if report.batch.plan.replays else ""
    parts = [f"{found.accounts.quarantined:,} quarantined{again}"]
    if found.accounts.withheld:
        parts.append(withheld_words(found.accounts.withheld))
    if found.accounts.dropped:
        parts.append(f"{found.accounts.dropped:,} malformed dropped")
    parts += [*_tombstones(written), *_excluded(written)]
    if found.accounts.left_out:
        parts.append(left_out_words(found.accounts.left_out, report.batch.plan.layout))
    return parts


def _tombstones(written: WriteSummary) -> list[str]:
    return [f"{count_of(written.tombstones, 'tombstone')} dropped"] if written.tombstones else []


def _excluded(written: WriteSummary) -> list[str]:
    return [f"{describe_excluded(written.excluded)} excluded"] if written.excluded else []


def _rows_in(batch: Batch) -> str:
    written = batch.require_written
    if batch.plan.replays is not None:
        return f"{written.rows_in or 0:,} from quarantine"
    return (
        "input not counted, because a retry found the rows already written"
        if written.rows_in is None
        else f"{written.rows_in:,} in"
    )


def _looked_back(batch: Batch) -> Iterator[str]:
    """Yields what the batch looked back at, and the rows that were left out because they belong to earlier intervals."""
    written = batch.written
    for one in batch.plan.looked_back if written is not None else ():
        assert written is not None
        found = written.sources.get(one.topic)
        counts = [count_of(one.offsets, "offset")]
        if found is not None and found.looked_back is not None:
            counts.append(count_of(found.looked_back, "record"))
        if found is not None and found.looked_back_malformed:
            counts.append(f"{found.looked_back_malformed:,} of them malformed and left out")
        yield f"looked back at topic {one.topic}: {', '.join(counts)}"
        if one.lost:
            yield f"not looked back at in topic {one.topic}, because it expired: {describe_ranges(one.lost)}"
    if written is not None and written.rows_of_earlier is not None:
        left_out = count_of(written.rows_of_earlier, "row belongs", "rows belong")
        yield f"{left_out} to earlier intervals and {'was' if written.rows_of_earlier == 1 else 'were'} left out"


def _source(one: SourceAccounts) -> str:
    counts = [
        *([count_of(one.offsets, "offset")] if one.offsets is not None else []),
        "not counted" if one.read is None else f"{one.read:,} in",
        *([f"{malformed_words(one)} as malformed"] if one.malformed else []),
        *([f"{count_of(one.tombstones, 'tombstone')} dropped"] if one.tombstones else []),
        *([f"{one.excluded:,} excluded"] if one.excluded else []),
        *([f"newest {one.newest:%Y-%m-%d %H:%M:%S} UTC"] if one.newest is not None else []),
    ]
    return f"source {one.topic}: {', '.join(counts)}"


def _plain_check(check: CheckResult) -> str:
    mark = ("NOT EVALUATED", "FAILED", "warning")[rank(check)]
    if check.status is Status.ERRORED:
        return f"{mark}  {check.title}: {check.error.splitlines()[0] if check.error else 'no reason given'}"
    if not check.unexpected_count:
        return f"{mark}  {check.title}"
    records = count_of(check.unexpected_count, "record")
    rows = [f"{row.topic}[{row.partition}]@{row.offset}" for row in check.sample]
    where = ", ".join(rows[:COORDINATES]) + (", …" if check.unexpected_count > COORDINATES else "")
    return f"{mark}  {check.title}: {records}" + (f", at {where}" if rows else "")
