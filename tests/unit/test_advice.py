"""What a person is told to do about a batch: commands that exist, and help in its state."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
import typer

from fencepost.cli.app import app
from fencepost.errors import TransitionRefused
from fencepost.model import Batch, Interval, OffsetRange, Outcome, State
from fencepost.outputs.postgres.values import PostgresPublication
from fencepost.protocol import advice
from fencepost.protocol.advice import what_next
from fencepost.protocol.decisions import (
    batch_to_judge,
    decide_skip,
    decide_withdraw,
    record_withdrawn,
    standing_plan,
)
from fencepost.protocol.snapshot import snapshot_of
from fencepost.protocol.view import PASSED, View
from fencepost.steps.plan import _starved
from makers import NOW, a_batch, a_decision, a_receipt, a_verdict, a_written, publish_prepared, reading
from unit.quality.reports import REPORTS


def batch(state: State, outcome: Outcome | None = None) -> Batch:
    written = a_written(a_receipt(rows=1)) if state in {State.WRITTEN, State.REJECTED, State.PUBLISHED} else None
    return a_batch(state, written=written, verdict=outcome and a_verdict(outcome))


@pytest.mark.parametrize(
    ("state", "outcome", "words"),
    [
        (State.PLANNED, None, "writes, judges and publishes it"),
        (State.WRITTEN, None, "clear validate) judges and publishes it"),
        (State.WRITTEN, Outcome.PASSED, "clear advance) publishes it"),
        (State.WRITTEN, Outcome.UNDETERMINED, "Read its report and fix what it names, most often the suite"),
        (State.REJECTED, Outcome.REJECTED, "If the suite is wrong, fix expectations.yaml"),
        (State.REJECTED, Outcome.UNDETERMINED, "If the suite is wrong, fix expectations.yaml"),
    ],
)
def test_the_advice_fits_the_batch(state: State, outcome: Outcome | None, words: str) -> None:
    assert words in what_next(batch(state, outcome))


@pytest.mark.parametrize("name", ["rejected", "empty_failed", "empty_rejected", "too_much_quarantined"])
def test_a_report_and_whoever_shows_the_rejected_batch_word_the_cure_alike(name: str) -> None:
    report = REPORTS[name]
    verdict = a_verdict(Outcome.REJECTED, failed_critical=report.evaluation.failed_critical)
    rejected = report.batch.model_copy(update={"state": State.REJECTED, "verdict": verdict})
    cure = report.next_step.removesuffix(" docs/operating.md says more.")
    assert cure.endswith("(in Airflow: clear write) writes and judges a new revision.")
    row = snapshot_of(View.of([rejected])).rows[0]
    found = row.awaiting()
    assert found is not None
    assert cure in found.advice == row.next_step


def test_only_the_advice_words_what_to_clear_in_airflow() -> None:
    package = Path(advice.__file__).parents[1]
    wording = [p.relative_to(package) for p in package.rglob("*.py") if "(in Airflow: clear" in p.read_text()]
    assert wording == [Path("protocol/advice.py")]


DECISION = a_decision("publish")
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
    "publish": lambda view, interval: publish_prepared(view, interval, NOW, DECISION),
    "skip": lambda view, interval: decide_skip(view, interval, DECISION),
    "advance": lambda view, interval: publish_prepared(view, interval, NOW),
    "withdraw": lambda view, interval: decide_withdraw(view, interval, DECISION),
    "validate": batch_to_judge,
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
        found = standing_plan(view, interval, options["reprocess"])
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
    with pytest.raises(TransitionRefused, match=r"never planned. `fencepost run` plans it"):
        batch_to_judge(View(), batch(State.PLANNED).interval)


@pytest.mark.parametrize(("state", "outcome"), SITUATIONS)
def test_the_advice_names_commands_that_exist_and_help(state: State, outcome: Outcome | None) -> None:
    given = batch(state, outcome)
    named = commands_in(what_next(given))
    assert named
    assert all(helps(words, given) for words in named)


def test_advance_after_a_refusal_by_the_table_asks_for_a_decision_and_not_for_a_passed_verdict() -> None:
    """The batch has passed. Whoever has fixed the table clears `advance`, and has to learn what publishes it."""
    refused = PostgresPublication(
        table="public.orders", ledger="id", lease=7, begun_at=NOW, refused="a text that is too long (SQLSTATE 22001)"
    )
    given = batch(State.REJECTED, Outcome.PASSED).model_copy(update={"publication": refused})
    told = refusal_of("advance", given)
    assert told is not None
    assert "a person has to decide" in told
    assert "verdict" not in told
    assert "only a passed" not in told
    named = commands_in(told)
    assert "publish" in [words[0] for words in named]
    assert all(helps(words, given) for words in named if words[0] != "publish")


@pytest.mark.parametrize("offsets", [0, 5])
def test_a_starved_interval_is_told_to_withdraw_only_what_can_be_withdrawn(offsets: int) -> None:
    """One that was planned by mistake may have taken the records, and be published with them."""
    given = batch(State.PUBLISHED, Outcome.PASSED)
    ranges = (OffsetRange(topic="in", partition=0, start=0, end=offsets),)
    later = reading(given, ranges)
    told = _starved(View.of([later]), later)
    named = commands_in(told)
    assert [words[0] for words in named] == ([] if offsets else ["withdraw"])
    assert all(helps(words, later) for words in named)
    assert ("not lost" in told) is bool(offsets)


@pytest.mark.parametrize("asked", [asked for asked in COMMANDS if asked != "withdraw"])
@pytest.mark.parametrize("state", [State.PLANNED, State.WRITTEN, State.REJECTED])
def test_a_withdrawn_interval_is_neither_judged_nor_published_nor_skipped_and_says_how_to_begin_again(
    asked: str, state: State
) -> None:
    given = record_withdrawn(batch(state), a_decision("withdraw", by="ann", reason="a typing error"))
    refusal = refusal_of(asked, given)
    assert refusal is not None
    assert "was withdrawn (withdraw by ann: a typing error)" in refusal
    assert [words[0] for words in commands_in(refusal)] == ["run"]
    assert all(helps(words, given) for words in commands_in(refusal))
