"""Composes the question about a rejected batch in Airflow's UI: what failed, with counts and a few records.

Airflow renders the text as Markdown and joins the lines of a paragraph. So the lines are a list, and all text from data
or from the suite is a code span. No character in a code span ends the line or the span, and nothing in it is Markdown,
HTML or a link. The length is limited for any batch.
"""

from __future__ import annotations

import json
import re

from fencepost.counts import count_of
from fencepost.model import PUBLISH_ANYWAY, Batch, Verdict
from fencepost.protocol.awaiting import Awaiting, sentence
from fencepost.quality.checks import CheckResult, SampleRow, Status
from fencepost.quality.report import Report, rank
from fencepost.quality.report_files import ReportMissing, report_file
from fencepost.quality.report_html import visible

PUBLISH, WRITE_AGAIN, SKIP = PUBLISH_ANYWAY, "write again", "skip this interval"
CHECKS = 6  # failed checks that the question lists
ROWS = 3  # unexpected records shown for each
COLUMNS = 4  # values of each record
TITLE, VALUE = 160, 80  # characters of a check's name, and of one value
MARKS = ("**not evaluated**", "**critical**", "warning")


def subject_of(batch: Batch) -> str:
    """Returns the question in one line."""
    return f"{batch.pipeline}: {batch.interval.description}, revision {batch.revision} was rejected"


def body_of(found: Awaiting) -> str:
    """Returns what is known about a rejected batch, and what each answer does."""
    batch, older = found.batch, found.in_force
    verdict = batch.require_verdict
    rows = batch.written.rows if batch.written else 0
    beside = "instead of" if batch.adds_to is None else "as an addition to"
    return (
        f"{sentence(found.description)} {len(verdict.failed_critical):,} critical and {len(verdict.failed_warning):,} warning "
        f"expectations of {verdict.expectations:,} failed, on {count_of(rows, 'record')}.\n\n{_failed(batch, verdict)}\n\n"
        "The whole report is on this task's tab *Report*.\n\n"
        f"- *{PUBLISH}*: consumers of validated data get it as it is"
        f"{f', {beside} revision {older.revision}' if older else ''}.\n"
        f"- *{WRITE_AGAIN}*: a new revision of the same input, judged again; choose it after you fixed the transform.\n"
        f"- *{SKIP}*: "
        + (
            f"revision {batch.revision} is left out, and revision {older.revision} stays {older.state}.\n"
            if older
            else "the frontier passes the interval, and the batch's output does not count.\n"
        )
    )


def _failed(batch: Batch, verdict: Verdict) -> str:
    report = report_of(batch)
    if report is None:
        named = [("**critical**", name) for name in verdict.failed_critical]
        named += [("warning", name) for name in verdict.failed_warning]
        lines = [f"- {mark} {_code(name, TITLE)}" for mark, name in named[:CHECKS]]
        lines += [
            *_more(len(named)),
            "- Its report is not in this worker's reports folder, so there are no counts or records.",
        ]
    else:
        bad = [check for check in report.in_order() if check.status is not Status.PASSED]
        lines = [line for check in bad[:CHECKS] for line in _check(check)] + _more(len(bad))
    return "\n".join([f"{_code(verdict.reason, 400)}\n", *lines])


def _more(failed: int) -> list[str]:
    return [f"- and {failed - CHECKS:,} more; the report lists them all"] if failed > CHECKS else []


def report_of(batch: Batch) -> Report | None:
    """Returns the report of the batch's verdict. Returns None if there is no verdict, or if this worker does not have
    the report.
    """
    try:
        report = Report.model_validate_json(report_file(batch.pipeline, batch, ".json").read_text(encoding="utf-8"))
    except (ReportMissing, OSError, ValueError):
        return None
    number = batch.verdict.number if batch.verdict else None
    same = (report.batch.id, report.batch.lease, report.number) == (batch.id, batch.lease, number)
    return report if same else None


def _check(check: CheckResult) -> list[str]:
    """Returns a line for the check, and one for each record shown."""
    outcome = ""
    if check.unexpected_count is not None and check.element_count is not None:
        share = f" ({check.unexpected_percent:.2f} %)" if check.unexpected_percent is not None else ""
        outcome = f": {check.unexpected_count:,} of {check.element_count:,} records are unexpected{share}"
    elif check.observed is not None:
        outcome = f": observed {_value(check.observed)}"
    lines = [f"- {MARKS[rank(check)]} {_code(check.title, TITLE)}{outcome}"]
    lines += [f"  - {_code(text, TITLE)}" for text in (check.description, check.error) if text]
    return lines + [f"  - {_row(row)}" for row in check.sample[:ROWS]]


def _row(row: SampleRow) -> str:
    where = _code(f"{row.topic}[{row.partition}]@{row.offset}", TITLE)
    key = "no key" if row.key is None else f"key {'0x ' if row.key_is_hex else ''}{_value(row.key)}"
    values = [f"{_code(name, VALUE)} = {_value(value)}" for name, value in list(row.values.items())[:COLUMNS]]
    left = [f"and {len(row.values) - COLUMNS} more"] if len(row.values) > COLUMNS else []
    return ", ".join([where, key, *values, *left])


def _value(value: object) -> str:
    return _code(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), VALUE)


def _code(text: str, longest: int) -> str:
    """Returns a text as a code span. The span's fence is longer than any run of backticks in the text, and `visible`
    removes line ends.
    """
    shown = visible(text, longest) or "(empty)"
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    return f"{fence} {shown} {fence}" if "`" in shown or shown != shown.strip() else f"{fence}{shown}{fence}"
