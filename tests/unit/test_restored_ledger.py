"""A ledger that was restored from a copy counts leases from the beginning: what was planned in it still comes last.

A copy that is older than the last publication is behind the offsets that were committed with it.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from fencepost.errors import LedgerLost
from fencepost.kafka.cluster import Topic
from fencepost.ledger import completeness
from fencepost.ledger.completeness import check_accounted_for
from fencepost.model import Batch, Decision, OffsetRange, PartitionId, State
from fencepost.outputs.topic.publication import validated_ends
from fencepost.protocol.decisions import decide_skip, record_withdrawn
from fencepost.protocol.frontier import accounted_for, frontier, of_topic
from fencepost.protocol.view import View
from makers import planned, reading
from unit.pages.ledgers import START, batch, hour


def planned_in(topic: str, lease: int, made: Batch) -> Batch:
    """The batch, planned in that ledger topic."""
    return planned(made, ledger_topic_id=topic).model_copy(update={"lease": lease})


def at(topic: str, end: int) -> dict[PartitionId, int]:
    """Each partition of a topic at the same offset."""
    return {(topic, p): end for p in range(4)}


OLD = [planned_in("L1", 500, batch(0)), planned_in("L1", 700, batch(1, State.REJECTED))]
# It was planned when the topic was lost: its record, copied, has a low offset.
COPIED = [planned_in("L1", 3, batch(2, State.SUPERSEDED)), planned_in("L2", 5, batch(2, revision=2))]
AFTER = [planned_in("L2", 9, batch(3))]


@pytest.mark.parametrize("behind", [[], COPIED, COPIED + AFTER, AFTER])
def test_the_frontier_does_not_pass_what_was_rejected_before_the_ledger_was_restored(behind: list[Batch]) -> None:
    view = View.of([*OLD, *behind])
    assert view.anchor == hour(0)
    assert frontier(view) == frontier(View.of(OLD)) == at("orders-in", 100)
    assert validated_ends(view) == validated_ends(View.of(OLD))


def test_the_newest_plan_is_the_restored_ledgers_whatever_its_lease() -> None:
    """Its output topic is the one that validated offsets are of."""
    made = planned_in("L2", 2, batch(1))
    moved_on = planned(made, output=made.plan.output.model_copy(update={"topic_id": "again"}))
    assert validated_ends(View.of([OLD[0], moved_on])) == at("orders-out", 200)


TOPIC = "orders-in"


PIPELINE: Any = SimpleNamespace(
    name="orders", group="orders", ledger_topic="orders.ledger", source_topics={TOPIC: None}
)


def check(view: View, offsets: dict[int, int]) -> None:
    """With the group at those offsets."""
    check_accounted_for(PIPELINE, view, TOPIC, at_offsets(offsets))


def at_offsets(offsets: dict[int, int]) -> dict[PartitionId, TopicPartition]:
    return {(TOPIC, p): TopicPartition(TOPIC, p, o) for p, o in offsets.items()}


HISTORY = [batch(0), batch(1), batch(2, State.SKIPPED), batch(3)]
COMMITTED = dict.fromkeys(range(4), 400)


def test_the_ledger_accounts_for_the_offsets_committed_with_it() -> None:
    check(View.of(HISTORY), COMMITTED)
    check(View.of([*HISTORY, batch(4, State.PLANNED)]), COMMITTED)


@pytest.mark.parametrize(
    "copied",
    [HISTORY[:1], HISTORY[:3], [*HISTORY[:3], batch(3, State.PLANNED)], [*HISTORY[:3], batch(3, State.WRITTEN)]],
)
def test_offsets_ahead_of_the_ledger_say_that_it_is_an_old_copy(copied: list[Batch]) -> None:
    """Also where the batch was planned, or written, before the copy was made: it was published since."""
    with pytest.raises(LedgerLost, match=r"group orders has offsets of topic orders-in \(partition 0: 400"):
        check(View.of(copied), COMMITTED)


def test_a_publication_repeated_on_a_copy_moves_no_offset_back() -> None:
    """It brings such a ledger to where the offsets are, or hides that more is missing."""
    after = View.of(HISTORY)  # the copy has the batch as written
    check(after, COMMITTED)
    with pytest.raises(LedgerLost, match="is incomplete"):
        check(after, dict.fromkeys(range(4), 500))


@pytest.mark.parametrize("offsets", [{}, {0: 400}, dict.fromkeys(range(4), 0), {0: 400, 1: 250}])
def test_offsets_that_expired_or_were_set_back_prove_nothing(offsets: dict[int, int]) -> None:
    check(View.of(HISTORY), offsets)


def test_offsets_set_forward_by_hand_are_named_with_where_they_belong() -> None:
    with pytest.raises(LedgerLost, match=r"by hand, set them back: orders-in:2 to 400 \(kafka-consumer-groups"):
        check(View.of(HISTORY), {**COMMITTED, 2: 401})


@pytest.mark.parametrize("of_output", [False, True])
def test_what_another_run_published_meanwhile_is_no_loss(of_output: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan reads the ledger again after it has read offsets and output, so the ledger accounts for both unless it is a copy."""
    before, now = View.of(HISTORY[:3]), View.of(HISTORY)
    offsets = {} if of_output else COMMITTED
    monkeypatch.setattr(completeness, "offsets_of", lambda *_, **__: at_offsets(offsets))
    named = [(str(HISTORY[3].id), "topic orders-out")] if of_output else []

    def plan(again: View) -> None:
        cluster = SimpleNamespace(describe=lambda name: Topic(name, "id", 4))
        ledger = SimpleNamespace(topic_id="of a copy", read=lambda: again)
        deployment: Any = SimpleNamespace(pipeline=PIPELINE, cluster=cluster, ledger=ledger)
        completeness.check_complete(deployment, before, lambda: named)

    plan(now)
    with pytest.raises(LedgerLost, match=f"has records of its batch {HISTORY[3].id}" if of_output else "400"):
        plan(before)


WITHDRAW = Decision(action="withdraw", by="ann", reason="a mistake", decided_at=START)


def ranged(made: Batch, *ranges: tuple[int, int], lost: tuple[int, int] | None = None) -> Batch:
    """The batch with other ranges: from each partition's start to its end."""
    parts = tuple(OffsetRange(topic=TOPIC, partition=p, start=s, end=e) for p, (s, e) in enumerate(ranges))
    gone = (OffsetRange(topic=TOPIC, partition=len(ranges) - 1, start=lost[0], end=lost[1]),) if lost else ()
    return reading(made, parts, gone)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param([ranged(batch(0), (5, 5))], [record_withdrawn(ranged(batch(0), (5, 5)), WITHDRAW)], id="all withdrawn"),
        pytest.param(
            [ranged(batch(0), (5, 5)), ranged(batch(1, State.REJECTED), (5, 9))],
            [record_withdrawn(ranged(batch(0), (5, 5)), WITHDRAW), ranged(batch(1, State.REJECTED), (5, 9))],
            id="the first interval withdrawn",
        ),
        pytest.param(
            [ranged(batch(0), (0, 5)), ranged(batch(1, State.REJECTED), (5, 5), (4, 9), lost=(0, 4))],
            [
                ranged(batch(0), (0, 5)),
                record_withdrawn(ranged(batch(1, State.REJECTED), (5, 5), (4, 9), lost=(0, 4)), WITHDRAW),
            ],
            id="a younger partition's only batch withdrawn, whose first records had expired",
        ),
        pytest.param(
            [ranged(batch(0), (0, 5)), ranged(batch(1, State.REJECTED), (5, 9))],
            [
                ranged(batch(0), (0, 5)),
                ranged(batch(1, State.SUPERSEDED), (5, 9)),
                ranged(batch(1, State.PLANNED, revision=2), (7, 9), lost=(5, 7)),
            ],
            id="records expired between two revisions",
        ),
        pytest.param(
            [ranged(batch(1), (5, 9))],
            [ranged(batch(1), (5, 9)), ranged(batch(0, State.PLANNED).model_copy(update={"lease": 99}), (0, 5))],
            id="an earlier interval planned later",
        ),
        pytest.param(
            [ranged(batch(0), (0, 5))],
            [ranged(batch(0), (0, 5)), ranged(batch(0, State.PLANNED, revision=2), (0, 5))],
            id="a published interval reprocessed",
        ),
    ],
)  # fmt: skip
def test_nothing_an_operator_or_the_source_does_takes_offsets_ahead_of_the_ledger(
    before: list[Batch], after: list[Batch]
) -> None:
    committed = frontier(View.of(before))
    assert committed
    check(View.of(after), of_topic(committed, TOPIC))
    assert all(accounted_for(View.of(after))[p] >= end for p, end in committed.items())


def test_a_skip_on_a_copy_is_compared_as_a_publication_is() -> None:
    view = View.of([batch(0), batch(1, State.REJECTED)])
    decided = view.updated(decide_skip(view, hour(1), WITHDRAW.model_copy(update={"action": "skip"})))
    check(decided, dict.fromkeys(range(4), 200))
    with pytest.raises(LedgerLost):
        check(decided, dict.fromkeys(range(4), 300))
