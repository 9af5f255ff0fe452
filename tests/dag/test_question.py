"""The question shows enough to decide on the spot, and nothing of a record is Markdown, HTML or a link in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from fencepost.airflow.question import body_of, subject_of
from fencepost.model import Batch, State
from fencepost.protocol.awaiting import Awaiting, AwaitingReason
from fencepost.protocol.snapshot import snapshot_of
from fencepost.protocol.view import View
from fencepost.quality.report import Report
from unit.quality.reports import FAILED_SET, FAILED_WARNING, PASSING, REPORTS, check, judged, report, sample

HOSTILE = [
    "\n\n# evil",
    "\r\n- evil",
    "[a](https://evil.example) ![b](https://evil.example/x.png) <https://evil.example>",
    "https://evil.example www.evil.example me@evil.example",
    "```\n<script>evil()</script>",
    "<img src=x onerror=evil>",
    "| evil | b |\n|---|---|",
    "\u2028    evil\x00\x1b[31m",
    "`evil` ``evil`` \\",
    "evil`",
    "` ` evil ` [a](b)",
]


def rejected(made: Report, reports: Path | None, revision: int = 1) -> Batch:
    """The rejected batch that the report is about, with its report in the reports folder, where one is named."""
    made = made.model_copy(update={"batch": made.batch.model_copy(update={"revision": revision})})
    return judged(made, reports)


@pytest.fixture
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty FENCEPOST_REPORTS."""
    monkeypatch.setenv("FENCEPOST_REPORTS", str(tmp_path))
    return tmp_path


def ask(batch: Batch, *older: Batch) -> str:
    (found,) = snapshot_of(View.of((*older, batch))).awaiting()
    return body_of(found)


def code_and_rest(body: str) -> tuple[str, list[Any]]:
    """The code spans' text, and all other tokens, as a CommonMark parser with GFM's tables takes it."""
    tokens = MarkdownIt("gfm-like", {"linkify": False, "html": True}).parse(body)
    inside = [t for token in tokens for t in (token, *(token.children or []))]
    spans = [t.content for t in inside if t.type == "code_inline"]
    return "\n".join(spans), [t for t in inside if t.type not in {"code_inline", "inline"}]


def test_the_failed_checks_are_shown_with_counts_and_a_few_records(reports: Path) -> None:
    body = ask(rejected(REPORTS["rejected"], reports))
    assert (
        "- **critical** `expect_column_values_to_be_in_set(carrier)`: 27 of 842 records are unexpected (3.21 %)" in body
    )
    assert "Only carriers we know" in body
    assert "- `flight_delays[0]@1040`, key `N14228`, `carrier` = `W`" in body
    assert body.count("- `flight_delays[") == 3 + 2, "three of 20, and both of the warning"
    assert "observed `-4.5`" in body
    assert "- warning `expect_column_values_to_be_between(dep_delay)`" in body
    assert "to_not_be_null" not in body, "what holds is not listed"


@pytest.mark.parametrize("hostile", HOSTILE)
def test_nothing_from_data_or_suite_is_interpreted(reports: Path, hostile: str) -> None:
    row = sample(1, key=hostile, **{hostile: hostile})
    failed = check(
        0,
        "expect_column_values_to_be_in_set",
        FAILED_SET.status,
        description=hostile,
        kwargs={"column": hostile},
        element_count=3,
        missing_count=0,
        unexpected_count=1,
        unexpected_percent=33.3,
        sample=(row,),
    )
    batch = rejected(report(failed), reports)
    assert batch.verdict is not None
    batch = batch.model_copy(update={"verdict": batch.verdict.model_copy(update={"reason": hostile})})
    code, rest = code_and_rest(ask(batch))
    assert code.count("evil") >= 5, "reason, title, description, key, name and value"
    assert not any("evil" in t.content for t in rest)
    allowed = {
        "paragraph_open",
        "paragraph_close",
        "text",
        "softbreak",
        "em_open",
        "em_close",
        "strong_open",
        "strong_close",
    }
    lists = {"bullet_list_open", "bullet_list_close", "list_item_open", "list_item_close"}
    assert {t.type for t in rest} <= allowed | lists


def test_the_question_is_bounded_whatever_failed(reports: Path) -> None:
    wide = {f"c{n}" * 200: "v" * 9999 for n in range(50)}
    failed = [
        FAILED_SET.model_copy(
            update={"index": n, "description": "d" * 9999, "sample": (sample(1, "k" * 9999, **wide),) * 9}
        )
        for n in range(20)
    ]
    body = ask(rejected(report(*failed), reports))
    assert len(body) < 20_000
    assert "and 14 more; the report lists them all" in body
    assert "and 46 more" in body


def test_without_sample_rows_no_value_of_a_record_is_in_it(reports: Path) -> None:
    body = ask(rejected(report(*PASSING, FAILED_SET.model_copy(update={"sample": ()})), reports))
    assert "27 of 842" in body
    assert "N14228" not in body


def test_without_the_report_it_names_the_checks_and_says_that_there_is_none(reports: Path) -> None:
    body = ask(rejected(REPORTS["rejected"], None))
    assert "**critical** `expect_column_values_to_be_in_set(carrier)`" in body
    assert "Its report is not in this worker's reports folder" in body


@pytest.mark.parametrize("changes", [{"number": 2}, {"lease": 7}])
def test_a_report_of_another_attempt_under_the_same_name_is_not_shown(reports: Path, changes: dict[str, int]) -> None:
    batch = rejected(REPORTS["rejected"], reports)
    assert batch.verdict is not None
    if "lease" in changes:
        batch = batch.model_copy(update=changes)
    else:
        batch = batch.model_copy(update={"verdict": batch.verdict.model_copy(update=changes)})
    assert "N14228" not in ask(batch)


def test_beside_a_published_revision_it_says_what_each_answer_does_to_that_one(reports: Path) -> None:
    second = rejected(REPORTS["rejected"], reports, revision=2)
    first = second.model_copy(update={"revision": 1, "state": State.PUBLISHED})
    body = ask(second, first)
    assert body.startswith(
        "Revision 2 was rejected; revision 1 stays published until revision 2 is published. 2 critical and 1 warning"
    )
    assert "instead of revision 1" in body
    assert "revision 2 is left out, and revision 1 stays published" in body
    assert "frontier" not in body
    assert "the frontier passes the interval" in ask(second)
    assert subject_of(second) == "nyc_flights: 2013-01-01 00:00 to 2013-01-02 00:00 UTC, revision 2 was rejected"


def test_a_skipped_interval_that_was_written_again_stays_skipped(reports: Path) -> None:
    second = rejected(REPORTS["rejected"], reports, revision=2)
    first = second.model_copy(update={"revision": 1, "state": State.SKIPPED})
    assert snapshot_of(View.of((first, second))).awaiting() == (Awaiting(second, AwaitingReason.REJECTED, first),)
    assert "revision 1 stays skipped" in ask(second, first)
    assert FAILED_WARNING.title in ask(second, first)
