"""What the command line says: whole paths, and advice that fits the batch."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from fencepost.cli import app
from fencepost.errors import TransitionRefused
from fencepost.model import (
    Batch,
    Decision,
    Interval,
    Layout,
    Outcome,
    Plan,
    Receipt,
    State,
    Verdict,
    Written,
    utc_now,
)
from fencepost.transitions import PASSED, View, judging, planning, published, skipped, what_next

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
    written = Written(
        receipts=(Receipt(task=0, lease=0, rows=0, fingerprint=0),),
        output_ends=(),
        rows_in=0,
        value_schema="",
        seconds=0,
        written_at=NOW,
    )
    return Batch(
        pipeline="p",
        interval=Interval.of(NOW, NOW + timedelta(days=1)),
        revision=1,
        state=state,
        lease=0,
        plan=plan,
        written=written if state in {State.WRITTEN, State.REJECTED, State.PUBLISHED} else None,
        verdict=verdict,
    )


@pytest.mark.parametrize(
    ("state", "outcome", "words"),
    [
        (State.PLANNED, None, "writes, judges and publishes it"),
        (State.WRITTEN, None, "does what is left"),
        (State.WRITTEN, Outcome.PASSED, "does what is left"),
        (State.WRITTEN, Outcome.UNDETERMINED, "See its report, mend what it names, most often the suite"),
        (State.REJECTED, Outcome.REJECTED, "With the suite mended"),
        (State.REJECTED, Outcome.UNDETERMINED, "With the suite mended"),
    ],
)
def test_the_advice_fits_the_batch(state: State, outcome: Outcome | None, words: str) -> None:
    assert words in what_next(batch(state, outcome))


DECISION = Decision(action="publish", by="somebody", reason="known", decided_at=NOW)
SITUATIONS = [
    (State.PLANNED, None),
    (State.WRITTEN, None),
    (State.WRITTEN, Outcome.PASSED),
    (State.WRITTEN, Outcome.UNDETERMINED),
    (State.REJECTED, Outcome.REJECTED),
    (State.REJECTED, Outcome.UNDETERMINED),
    (State.PUBLISHED, Outcome.PASSED),
    (State.SKIPPED, None),
    (State.SKIPPED, Outcome.REJECTED),
]
COMMANDS: dict[str, Callable[[View, Interval], object]] = {
    "publish": lambda view, interval: published(view, interval, NOW, DECISION),
    "skip": lambda view, interval: skipped(view, interval, DECISION),
    "advance": lambda view, interval: published(view, interval, NOW),
    "validate": judging,
}


def commands_in(message: str) -> list[list[str]]:
    """The command lines that a message names."""
    return [shlex.split(line)[1:] for line in re.findall(r"`(fencepost [^`]+)`", message)]


def helps(words: list[str], given: Batch) -> bool:
    """Whether a command line is one, is about this batch, and does something for it."""
    verb, *rest = words
    command = typer.main.get_command(app).commands[verb]  # type: ignore[attr-defined]
    options = command.make_context(verb, rest).params
    interval = Interval.of(datetime.fromisoformat(options["start"]), datetime.fromisoformat(options["end"]))
    assert (options["pipeline"], interval) == (given.pipeline, given.interval)
    view = View.of([given])
    if verb == "run":
        found = planning(view, interval, options["reprocess"])
        return found is None or found.state not in PASSED
    return bool(COMMANDS[verb](view, interval))


def refusal_of(asked: str, given: Batch) -> str | None:
    """What a command's refusal says of a batch; None where it is not refused."""
    try:
        COMMANDS[asked](View.of([given]), given.interval)
    except TransitionRefused as refused:
        return str(refused)
    return None


@pytest.mark.parametrize(("state", "outcome"), SITUATIONS)
@pytest.mark.parametrize("asked", COMMANDS)
def test_what_is_refused_names_commands_that_exist_and_help(asked: str, state: State, outcome: Outcome | None) -> None:
    given = batch(state, outcome)
    refusal = refusal_of(asked, given)
    named = commands_in(refusal or "")
    assert refusal is None or named, refusal
    assert all(helps(words, given) for words in named), refusal


def test_an_interval_that_was_never_planned_is_told_how_to_begin() -> None:
    with pytest.raises(TransitionRefused, match=r"never planned. `fencepost run` begins"):
        judging(View(), batch(State.PLANNED).interval)


@pytest.mark.parametrize(("state", "outcome"), SITUATIONS)
def test_the_advice_names_commands_that_exist_and_help(state: State, outcome: Outcome | None) -> None:
    given = batch(state, outcome)
    named = commands_in(what_next(given))
    assert named
    assert all(helps(words, given) for words in named)


def test_a_list_of_pipelines_breaks_no_line_when_it_is_piped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FENCEPOST_PIPELINES", str(tmp_path))
    monkeypatch.setenv("FENCEPOST_STATE", str(tmp_path / ".state"))
    monkeypatch.setenv("COLUMNS", "80")
    broken = tmp_path / "a_broken_pipeline_with_a_name_that_takes_its_path_beyond_eighty_columns"[:80]
    for folder in (tmp_path / "orders", broken):
        folder.mkdir()
        (folder / "transform.sql").write_text("SELECT 1")
        (folder / "expectations.yaml").write_text("")
    description = "a description of more than eighty columns [with brackets], " + "word " * 20
    (tmp_path / "orders" / "pipeline.yaml").write_text(GOOD % f'"{description}"')
    shown = CliRunner().invoke(app, ["pipelines"])
    assert shown.exit_code == 2
    assert next(line for line in shown.stdout.splitlines() if line.startswith("orders ")).rstrip().endswith("word")
    assert f"{broken}" in shown.stderr.splitlines()[0], "a path is for copying"
