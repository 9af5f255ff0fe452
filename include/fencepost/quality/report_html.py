"""Renders the report as one HTML file that needs no network. The page loads nothing and runs nothing.

Jinja escapes all data. Characters that would reorder, hide or break a line are shown by their number.
"""

from __future__ import annotations

import functools
import json
import re
import unicodedata
from importlib import resources
from typing import Any

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup, escape

from fencepost.formats.framing import ExcludedKind
from fencepost.model import Outcome
from fencepost.protocol import table_states
from fencepost.quality.checks import CheckResult, Status
from fencepost.quality.quarantine import malformed_words
from fencepost.quality.report import (
    Report,
    addition_words,
    earlier_rows_words,
    left_out_label,
    left_out_words,
    rank,
    withheld_words,
)

CELL = 160  # characters of one value in a table
SHOWN = 8  # how many unexpected records of a check are always visible
FEW = 12  # a table with more rows is folded
WORDS = {Outcome.PASSED: "Passed", Outcome.REJECTED: "Rejected", Outcome.UNDETERMINED: "Undetermined"}
RANKS = ("not evaluated", "critical failed", "warning", "passed")


def render_html(report: Report) -> str:
    """Returns the whole page. Any data can be shown: a character that cannot be drawn appears as its number."""
    plan, written = report.batch.plan, report.batch.written
    checks = report.in_order()
    begins = plan.write_topic.ends
    ends = written.output.ends if written else begins
    return template_of("fencepost.quality", "report.html.j2").render(
        report=report,
        batch=report.batch,
        plan=plan,
        written=written,
        evaluation=report.evaluation,
        quarantined=report.quarantined,
        word=WORDS[report.evaluation.outcome],
        span=report.batch.interval.description,
        checks=checks,
        failed=[check for check in checks if check.status is not Status.PASSED],
        counts=[(name, sum(rank(c) == i for c in checks)) for i, name in enumerate(RANKS)],
        output_ranges=[(p, start, end) for p, (start, end) in enumerate(zip(begins, ends, strict=False))],
        few=FEW,
        shown=SHOWN,
    )


@functools.cache
def template_of(package: str, name: str) -> Template:
    """Returns the template of a page. The template escapes all data."""
    # importlib.resources also works where executors and jobs import the package from a zip.
    source = resources.files(package).joinpath(name).read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    filters: dict[str, Any] = {
        "visible": visible,
        "cell": cell,
        "number": lambda value: f"{value:,}",
        "percent": percent,
        "moment": lambda value: f"{value:%Y-%m-%d %H:%M:%S} UTC",
        "rank": lambda check: RANKS[rank(check)],
        "arguments": arguments_of,
        "left_out": left_out_words,
        "left_out_label": left_out_label,
        "earlier_rows": earlier_rows_words,
        "withheld": withheld_words,
        "malformed": malformed_words,
        "excluded_noun": lambda kind, records: ExcludedKind(kind).noun(records),
        "addition": addition_words,
        "code_spans": code_spans,
        **table_filters(),
    }
    environment.filters |= filters
    return environment.from_string(source)


def table_filters() -> dict[str, Any]:
    """Returns the filters with which a page shows the state of a side table."""
    return {
        "table_size": table_states.size,
        "table_fingerprint": table_states.short_fingerprint,
        "table_read_at": table_states.read_at,
        "table_ends": table_states.ends_of,
    }


def code_spans(text: str) -> Markup:
    """Returns the text, escaped, with code in backticks turned into code spans."""
    return Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", str(escape(text))))  # noqa: S704 - escaped


def visible(value: object, longest: int | None = None) -> str:
    """Returns the text. A character that draws nothing, or moves other characters, is shown as `⟨U+202E⟩`."""
    text = str(value)
    cut = len(text) - longest if longest is not None and len(text) > longest else 0
    shown = "".join(_shown(character) for character in (text[:longest] if cut else text))
    return f"{shown}… (+{cut:,})" if cut else shown


def cell(value: Any) -> str:
    """Returns a value for a table cell. Text stays as it is, and everything else becomes JSON. The value is cut to the
    cell's length.
    """
    if value is None:
        return "null"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return visible(text, CELL) if text else "(empty text)"


def percent(value: float | None) -> str:
    """Returns a share such as `1.43 %`, with a non-breaking space. A small share is never shown as 0."""
    if value is None:
        return ""
    return "< 0.01\u00a0%" if 0 < value < 0.01 else f"{value:.2f}\u00a0%"


def arguments_of(check: CheckResult) -> str:
    """Returns an expectation's arguments on one line. The columns are left out, because the title has them."""
    columns = ("column", "column_A", "column_B", "column_list")
    rest = {name: value for name, value in check.kwargs.items() if name not in columns}
    return ", ".join(f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in rest.items())


def _shown(character: str) -> str:
    # Control and format characters (with bidirectional marks), surrogates, private and unassigned ones; line
    # separators.
    if character != " " and unicodedata.category(character)[0] in "CZ":
        return "⏎" if character == "\n" else f"⟨U+{ord(character):04X}⟩"
    return character
