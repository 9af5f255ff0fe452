"""What the command line says: whole paths, and advice that fits the batch."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fencepost.cli import _interval, advice, app
from fencepost.errors import SettingsError
from fencepost.model import Batch, Interval, Layout, Outcome, Plan, State, Verdict, utc_now

NOW = utc_now()
GOOD = """
description: %s
source: {topic: orders-of-all-countries-in-one-topic, format: bytes}
output: {topic: paid-orders-of-all-countries-in-one-topic}
schedule: {start: 2026-01-01}
kafka: {bootstrap.servers: "127.0.0.1:1"}
"""


def batch(state: State, outcome: Outcome | None = None) -> Batch:
    plan = Plan(
        source_topic="in",
        source_topic_id="a",
        ranges=(),
        output_topic="out",
        output_topic_id="b",
        output_ends=(),
        layout=Layout.SOURCE,
        writers=1,
        lane=0,
        fence_up_to=1,
        settings_digest="",
        software="",
        planned_at=NOW,
    )
    verdict = outcome and Verdict(
        outcome=outcome, reason="", number=1, expectations=1, suite_digest="", report="r", seconds=0, judged_at=NOW
    )
    interval = Interval.of(NOW, NOW + timedelta(days=1))
    return Batch(pipeline="p", interval=interval, revision=1, state=state, plan=plan, verdict=verdict)


@pytest.mark.parametrize(
    ("start", "end", "words"),
    [
        ("2026-01-02", "2026-01-01", "--end 2026-01-01 does not lie after --start 2026-01-02"),
        ("2026-01-01", "2026-01-01", "does not lie after"),
        ("2026-01-01T00:00-05:00", "2026-01-01T05:00Z", "does not lie after"),
        ("yesterday", "2026-01-01", "--start yesterday: not a time in ISO 8601"),
        ("2026-01-01", "2026-13-01", "--end 2026-13-01: not a time"),
        ("0001-01-01T00:00+05:00", "2026-01-01", "years 1 to 9999"),
        ("2026-01-01", "9999-12-31T23:59-05:00", "years 1 to 9999"),
    ],
)
def test_times_that_make_no_interval_are_told_in_the_options_words(start: str, end: str, words: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(words)):
        _interval(start, end)


@pytest.mark.parametrize(
    ("state", "outcome", "words"),
    [
        (State.PLANNED, None, "its write step is due"),
        (State.WRITTEN, None, "its validate and advance steps are due"),
        (State.WRITTEN, Outcome.PASSED, "its advance step is due"),
        (State.WRITTEN, Outcome.UNDETERMINED, "it could not be judged; see its report, mend what it names"),
        (State.REJECTED, Outcome.REJECTED, "mend the suite and validate again"),
        (State.REJECTED, Outcome.UNDETERMINED, "mend the suite and validate again"),
    ],
)
def test_the_advice_fits_the_batch(state: State, outcome: Outcome | None, words: str) -> None:
    assert words in advice(batch(state, outcome))


def test_a_list_of_pipelines_breaks_no_line_when_it_is_piped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FENCEPOST_PIPELINES", str(tmp_path))
    monkeypatch.setenv("FENCEPOST_STATE", str(tmp_path / ".state"))
    monkeypatch.setenv("COLUMNS", "80")
    broken = tmp_path / "a_broken_pipeline_with_a_name_that_takes_its_path_beyond_eighty_columns"[:80]
    for folder in (tmp_path / "orders", broken):
        folder.mkdir()
        (folder / "transform.sql").write_text("SELECT 1")
        (folder / "expectations.yaml").write_text("expectations: [{type: expect_column_to_exist, kwargs: {column: a}}]")
    description = "a description of more than eighty columns [with brackets], " + "word " * 20
    (tmp_path / "orders" / "pipeline.yaml").write_text(GOOD % f'"{description}"')
    shown = CliRunner().invoke(app, ["pipelines"])
    assert shown.exit_code == 2
    assert next(line for line in shown.stdout.splitlines() if line.startswith("orders ")).rstrip().endswith("word")
    assert f"{broken}" in shown.stderr.splitlines()[0], "a path is for copying"
