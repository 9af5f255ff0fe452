"""The question about a rejected batch: what failed, with counts and a few records, as Airflow's UI shows it.

Airflow draws the text as Markdown. So everything that came from data or from the suite stands in one indented block, in
which Markdown and HTML mean nothing, with no character in it that ends a line. The text is bounded, whatever the batch.
"""

from __future__ import annotations

import json

from fencepost.awaiting import Awaiting, sentence
from fencepost.model import Batch, Verdict
from fencepost.quality.checks import CheckResult, SampleRow, Status
from fencepost.quality.report import Report, rank, span
from fencepost.quality.report_html import visible
from fencepost.reports import ReportMissing, report_file

PUBLISH, WRITE_AGAIN, SKIP = "publish anyway", "write again", "skip this interval"
CHECKS = 6  # failed checks that the question lists
ROWS = 3  # unexpected records that it shows of each
COLUMNS = 4  # values of each record
TITLE, VALUE = 160, 80  # characters of a check's name, and of one value
MARKS = ("NOT EVALUATED", "CRITICAL", "warning")


def subject_of(batch: Batch) -> str:
    """The question in one line."""
    return f"{batch.pipeline}: {span(batch.interval)}, revision {batch.revision} was rejected"


def body_of(found: Awaiting) -> str:
    """What is known of a rejected batch, and what each answer does."""
    batch, older = found.batch, found.in_force
    verdict = batch.verdict
    assert verdict is not None
    block = "\n".join(f"    {line}" for line in _failed(batch, verdict))
    rows = batch.written.rows if batch.written else 0
    return (
        f"{sentence(found.says)} {len(verdict.failed_critical):,} critical and {len(verdict.failed_warning):,} warning "
        f"expectations of {verdict.expectations:,} failed, on {rows:,} records.\n\n{block}\n\n"
        "The whole report is on this task's tab *Report*.\n\n"
        f"- *{PUBLISH}*: consumers of validated data get it as it is"
        f"{f', in the place of revision {older.revision}' if older else ''}.\n"
        f"- *{WRITE_AGAIN}*: the same input, a new revision, judged again: for a transform that was mended.\n"
        f"- *{SKIP}*: "
        + (
            f"revision {batch.revision} is left out, and revision {older.revision} stays {older.state}.\n"
            if older
            else "the frontier passes the interval, and nobody gets its output.\n"
        )
    )


def _failed(batch: Batch, verdict: Verdict) -> list[str]:
    report = _report(batch, verdict)
    said = [visible(line, 400) for line in verdict.reason.splitlines()[:CHECKS]]
    if report is None:
        named = [("CRITICAL", name) for name in verdict.failed_critical]
        named += [("warning", name) for name in verdict.failed_warning]
        lines = [f"{mark:13} {visible(name, TITLE)}" for mark, name in named[:CHECKS]]
        return [
            *said,
            *lines,
            *_more(len(named)),
            "(its report is not where this worker looks for it: no counts, no records)",
        ]
    bad = [check for check in report.in_order() if check.status is not Status.PASSED]
    return [*said, *(line for check in bad[:CHECKS] for line in _check(check)), *_more(len(bad))]


def _more(failed: int) -> list[str]:
    return [f"and {failed - CHECKS:,} more; the report lists them all"] if failed > CHECKS else []


def _report(batch: Batch, verdict: Verdict) -> Report | None:
    """The verdict's own report, or None where it is not to be had here."""
    try:
        report = Report.model_validate_json(report_file(batch, ".json").read_text(encoding="utf-8"))
    except (ReportMissing, OSError, ValueError):
        return None
    same = (report.batch.id, report.batch.lease, report.number) == (batch.id, batch.lease, verdict.number)
    return report if same else None


def _check(check: CheckResult) -> list[str]:
    lines = ["", f"{MARKS[rank(check)]:13} {visible(check.title, TITLE)}"]
    if check.description:
        lines.append(f"{'':13} {visible(check.description, TITLE)}")
    if check.error:
        lines.append(f"{'':13} {visible(check.error, TITLE)}")
    if check.unexpected_count is not None and check.element_count is not None:
        share = f" ({check.unexpected_percent:.2f} %)" if check.unexpected_percent is not None else ""
        lines.append(f"{'':13} {check.unexpected_count:,} of {check.element_count:,} records are unexpected{share}")
    elif check.observed is not None:
        lines.append(f"{'':13} observed {_value(check.observed)}")
    lines += [f"{'':13} - {_row(row)}" for row in check.sample[:ROWS]]
    return lines


def _row(row: SampleRow) -> str:
    where = f"{row.topic}[{row.partition}]@{row.offset}"
    key = "no key" if row.key is None else f"key {'0x' if row.key_is_hex else ''}{_value(row.key)}"
    values = [f"{visible(name, VALUE)} = {_value(value)}" for name, value in list(row.values.items())[:COLUMNS]]
    left = [f"and {len(row.values) - COLUMNS} more"] if len(row.values) > COLUMNS else []
    return ", ".join([where, key, *values, *left])


def _value(value: object) -> str:
    return visible(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), VALUE)
