"""A source with `empty: reject` has to give each batch a record, however many the others give."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.config.source import Source
from fencepost.model import Outcome, SourceSummary, State
from fencepost.protocol.advice import after_rejection
from fencepost.quality.checks import Evaluation, Status
from fencepost.quality.empty_sources import judge_empty_sources
from makers import a_batch, a_written

NORTH = SourceSummary(rows_in=1_000_000)
NONE = SourceSummary(rows_in=0)


def evaluation(outcome: Outcome = Outcome.PASSED) -> Evaluation:
    return Evaluation(outcome=outcome, reason="As it is.", read=True, rows=9, checks=(), suite_digest="", seconds=0)


def judged(south: SourceSummary | None, outcome: Outcome = Outcome.PASSED, **settings: Any) -> Evaluation:
    """The evaluation of a batch that read a million records of topic `n`, and these of topic `s`; None: it has no such input."""
    topics = {"n": NORTH} if south is None else {"n": NORTH, "s": south}
    sources = {
        "n": Source(topic="n", schema={"a": "int"}).under("sources.north"),
        "s": Source(topic="s", schema={"a": "int"}, **settings).under("sources.south"),
    }
    return judge_empty_sources(evaluation(outcome), a_written().model_copy(update={"sources": topics}), sources)


def test_a_dead_source_rejects_the_batch_by_its_topic_and_its_setting() -> None:
    found = judged(NONE, empty="reject")
    assert (found.outcome, found.failed_critical) == (Outcome.REJECTED, ("sources.south.empty",))
    assert found.reason == "Topic s gave no record; sources.south.empty is 'reject'."
    (check,) = found.checks
    assert (check.status, check.kwargs, check.observed) == (Status.FAILED, {"topic": "s"}, {"read": 0, "excluded": 0})
    rejected = judged(NONE, Outcome.REJECTED, empty="reject")
    assert rejected.reason == "Topic s gave no record; sources.south.empty is 'reject'. As it is."


def test_a_source_whose_records_are_all_excluded_is_empty() -> None:
    excluded = SourceSummary(rows_in=12, excluded={"other_types": 12})
    found = judged(excluded, empty="reject")
    assert found.reason == "Topic s gave only excluded records (12); sources.south.empty is 'reject'."
    one = SourceSummary(rows_in=13, malformed=1, excluded={"other_types": 12})
    assert judged(one, empty="reject") == evaluation(), "a malformed record is a record"


@pytest.mark.parametrize(
    ("south", "settings"),
    [
        (NONE, {}),
        (NONE, {"empty": "pass"}),
        (SourceSummary(rows_in=1), {"empty": "reject"}),
        (None, {"empty": "reject"}),
    ],
    ids=["by default", "pass", "a record", "no input of the topic"],
)
def test_the_verdict_stays_if_the_source_may_be_empty_or_is_not_or_was_not_read(
    south: SourceSummary | None, settings: dict[str, Any]
) -> None:
    assert judged(south, **settings) == evaluation()


def test_a_source_that_nobody_counted_is_undetermined() -> None:
    found = judged(SourceSummary(), empty="reject")
    assert (found.outcome, [check.status for check in found.checks]) == (Outcome.UNDETERMINED, [Status.ERRORED])
    assert found.reason.startswith("It is not known whether topic s gave a record, because a retry found")
    assert judged(SourceSummary()) == evaluation()


def test_an_undetermined_verdict_stays_as_it_is() -> None:
    assert judged(NONE, Outcome.UNDETERMINED, empty="reject") == evaluation(Outcome.UNDETERMINED)


def test_the_next_step_names_the_setting_and_no_new_revision_which_would_read_the_same_range() -> None:
    batch = a_batch(State.REJECTED)
    said = after_rejection(batch, 9, ["sources.south.empty"])
    assert said.startswith("If such an interval is right, set sources.south.empty to pass; then `fencepost run ")
    assert said.endswith("Records that arrive now belong to a later batch.")
    assert "writes and judges a new revision" not in said
    assert "fix expectations.yaml" in after_rejection(batch, 9, ["sources.south.empty", "expect_column_to_exist(a)"])
