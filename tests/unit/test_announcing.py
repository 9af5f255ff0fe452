"""What a change of the ledger announces, and that its history says the same: a topic that was lost is written again as it was."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from fencepost.kafka.cluster import Topic
from fencepost.ledger.announcements import KEPT, loss_reason, missing_announcements, unfit_for_announcements
from fencepost.model import WRITTEN_AS, Batch, Decision, HistoryEntry, Outcome, RegisteredSchema, Schemas, State
from fencepost.outputs.postgres.values import PostgresOutput, PostgresPublication
from fencepost.protocol.announcement import Announcement
from fencepost.protocol.announcing import announced_changes, announcement, complete_until, history, last_announced
from fencepost.protocol.decisions import decide_skip, decide_withdraw, in_state, record_planned
from fencepost.protocol.view import View
from makers import (
    NOW,
    a_batch,
    a_day,
    a_decision,
    a_plan,
    a_publication,
    a_receipt,
    a_source,
    a_topic,
    a_verdict,
    a_written,
    an_output,
    planned,
    publish_prepared,
    staged,
)

SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": "n", "type": "integer", "nullable": False, "metadata": {}},
            {
                "name": "tags",
                "type": {"type": "array", "elementType": "string", "containsNull": True},
                "nullable": True,
                "metadata": {WRITTEN_AS: "all-tags"},
            },
        ],
    }
)


class Play:
    """A ledger, and all that its changes have announced; a minute passes with each."""

    def __init__(self) -> None:
        self.view, self.now, self.lease = View(), NOW, 0
        self.announced: list[Announcement] = []

    def commit(self, batches: Sequence[Batch]) -> tuple[Announcement, ...]:
        """As the ledger's transaction does it."""
        found = announced_changes(self.view, batches)
        for batch in batches:
            if batch.lease is None:
                batch = batch.model_copy(update={"lease": (lease := self.lease)})
                self.lease = lease + 1
            self.view = self.view.updated([batch])
        until = complete_until(self.view)
        said = tuple(announcement(self.view, one, "c", until) for one in found)
        self.announced += said
        self.now += timedelta(minutes=1)
        return said

    def plan(self, day: int, *, offsets: int = 3, adds_to: int | None = None) -> Batch:
        """A revision of the day, written and judged."""
        when = a_day(day)
        plan = a_plan((0, offsets), planned_at=self.now)
        self.commit(record_planned(self.view, when, "p", plan, "", adds_to=adds_to))
        batch = self.view.known(when).last
        written = a_written(a_receipt(lease=batch.require_lease, rows=offsets), written_at=self.now)
        done = in_state(batch, State.WRITTEN, self.now, "")
        verdict = a_verdict(Outcome.PASSED)
        self.commit([done.model_copy(update={"written": written, "verdict": verdict})])
        return self.view.known(when).last

    def decision(self, action: str) -> Decision:
        return a_decision(action, decided_at=self.now)

    def publish(self, day: int, **how: Any) -> tuple[Announcement, ...]:
        return self.commit(publish_prepared(self.view, a_day(day), self.now, **how))

    def skip(self, day: int) -> tuple[Announcement, ...]:
        return self.commit(decide_skip(self.view, a_day(day), self.decision("skip")))

    def withdraw(self, day: int) -> tuple[Announcement, ...]:
        return self.commit(decide_withdraw(self.view, a_day(day), self.decision("withdraw")))

    @property
    def history(self) -> list[Announcement]:
        return history(self.view, "c")


def at(day: int) -> datetime:
    return a_day(day).start


def test_a_publication_a_skip_and_a_withdrawal_are_announced_and_nothing_else_is() -> None:
    play = Play()
    play.plan(0)
    assert play.announced == [], "planned, written and judged"
    (one,) = play.publish(0)
    assert (one.state, one.batch, one.rows, one.verdict, one.decided_by_person) == (
        "published",
        f"p/{a_day(0)}/1",
        3,
        Outcome.PASSED,
        False,
    )
    assert (one.ranges, one.replaces, one.adds_to, one.header) == ({"0": (0, 3)}, (), None, "fencepost-batch")
    play.plan(1)
    (skipped,) = play.skip(1)
    assert (skipped.state, skipped.rows, skipped.ranges, skipped.columns, skipped.decided_by_person) == (
        "skipped",
        0,
        {},
        (),
        True,
    )
    play.plan(2)
    (withdrawn,) = play.withdraw(2)
    assert (withdrawn.state, withdrawn.replaces) == ("withdrawn", ())
    assert play.publish(0) == (), "published already"


def test_a_newer_revision_names_those_that_count_no_more_with_their_additions() -> None:
    play = Play()
    play.plan(0)
    play.publish(0)
    play.plan(0, adds_to=1)
    (addition,) = play.publish(0)
    assert (addition.revision, addition.adds_to, addition.replaces) == (2, 1, ())
    play.plan(0)
    (third,) = play.publish(0)
    assert (third.revision, third.replaces) == (3, (1, 2))
    play.plan(0)
    (fourth,) = play.publish(0)
    assert fourth.replaces == (3,), "what is superseded already is not replaced again"
    assert play.history == play.announced


def test_a_withdrawal_of_several_revisions_is_one_and_names_what_was_announced() -> None:
    play = Play()
    play.plan(0, offsets=0)
    play.publish(0)
    play.plan(0, offsets=0)
    (withdrawn,) = play.withdraw(0)
    assert (withdrawn.state, withdrawn.revision, withdrawn.replaces) == ("withdrawn", 2, (1,))
    play.plan(0)
    (again,) = play.publish(0)
    assert (again.revision, again.replaces) == (3, ()), "a withdrawn revision counts no more already"
    assert play.history == play.announced


def test_complete_until_is_the_first_interval_that_is_neither_published_nor_skipped() -> None:
    play = Play()
    for day in (0, 1, 2):
        play.plan(day)
    assert play.publish(1)[0].complete_until == at(0)
    assert play.publish(0)[0].complete_until == at(2)
    assert play.skip(2)[0].complete_until == at(3)
    play.plan(0)  # a reprocess under way takes nothing back
    play.plan(4)
    assert play.publish(4)[0].complete_until == at(5), "of day 3 nothing is planned: its records are in day 4"
    play.plan(3, offsets=0)
    assert play.publish(0)[0].complete_until == at(3)
    assert play.withdraw(3)[0].complete_until == at(5)
    assert play.history == play.announced


def test_the_history_says_again_what_was_announced_however_it_went_on() -> None:
    """Also in the second in which another interval changed: then the order is that of intervals."""
    play = Play()
    for day in range(4):
        play.plan(day, offsets=day)
    for day in (2, 1):
        play.publish(day)
    play.skip(3)
    play.withdraw(0)
    play.plan(0)
    play.publish(0)
    play.plan(3)
    play.publish(3)
    play.plan(2)
    play.publish(2)
    play.plan(2, adds_to=5)
    assert play.history == play.announced
    assert [one.state for one in play.announced] == [
        *("published", "published", "skipped", "withdrawn", "published", "published", "published")
    ]
    last = play.view.known(a_day(3)).last
    found = last_announced(play.view, last)
    assert found is not None
    assert found[0].batch == last
    assert last_announced(play.view, play.view.known(a_day(2)).last) is None


@pytest.mark.parametrize("action", ["publish", "publish anyway"])
def test_who_published_what_a_table_had_refused_after_it_passed_is_told(action: str) -> None:
    """By command, or as an answer in Airflow."""
    play = Play()
    play.commit([play.plan(0).model_copy(update={"state": State.WRITTEN, "verdict": a_verdict(Outcome.PASSED)})])
    assert play.publish(0, decision=play.decision(action))[0].decided_by_person is True


def test_who_decided_is_told_of_what_has_not_passed_or_was_published_by_command() -> None:
    play = Play()
    rejected = play.plan(0).model_copy(update={"state": State.REJECTED, "verdict": a_verdict(Outcome.REJECTED)})
    play.commit([rejected])
    (one,) = play.publish(0, decision=play.decision("publish"))
    assert (one.verdict, one.decided_by_person) == (Outcome.REJECTED, True)
    reprocessed = play.plan(1).model_copy(update={"decision": play.decision("reprocess")})
    play.commit([reprocessed])
    assert play.publish(1)[0].decided_by_person is False, "a person asked for the revision; it passed by itself"


def of(batch: Batch) -> Announcement:
    entered = HistoryEntry(state=State.PUBLISHED, at=NOW)
    published = batch.model_copy(update={"state": State.PUBLISHED, "history": (entered,)})
    (one,) = announced_changes(View(), [published])
    return announcement(View.of([published]), one, "c", None)


def a_written_one(**changes: Any) -> Batch:
    return a_batch(State.WRITTEN, written=a_written(a_receipt(rows=2), value_schema=SCHEMA), **changes)


def test_the_sources_of_a_batch_are_told_by_topic_though_their_partitions_have_the_same_numbers() -> None:
    orders, payments = a_source((0, 5), (2, 2), topic="orders"), a_source((3, 7), (0, 9), topic="payments")
    one = of(planned(a_written_one(), inputs=(orders, payments)))
    assert one.json_value["sources"] == [
        {"topic": "orders", "ranges": {"0": [0, 5]}},
        {"topic": "payments", "ranges": {"0": [3, 7], "1": [0, 9]}},
    ]
    assert Announcement.of(json.loads(one.record())) == one


@pytest.mark.parametrize("action", ["skip", "withdraw"])
def test_a_batch_without_output_has_its_sources_too(action: str) -> None:
    play = Play()
    play.plan(0)
    decide = decide_skip if action == "skip" else decide_withdraw
    (one,) = play.commit(decide(play.view, a_day(0), play.decision(action)))
    assert one.json_value["sources"] == [{"topic": "in", "ranges": {"0": [0, 3]}}]


def test_an_addition_was_read_from_quarantine() -> None:
    play = Play()
    play.plan(0)
    play.publish(0)
    kept = a_source((4, 6), topic="bad")
    play.commit([planned(play.plan(0, adds_to=1), inputs=(kept,))])
    (one,) = play.publish(0)
    assert (one.adds_to, one.json_value["sources"]) == (1, [{"topic": "bad", "ranges": {"0": [4, 6]}}])


def test_columns_are_those_of_the_transform_with_their_types() -> None:
    one = of(a_written_one())
    assert [c.model_dump() for c in one.columns] == [
        {"name": "n", "type": "integer", "nullable": False, "field": None},
        {
            "name": "tags",
            "type": {"type": "array", "elementType": "string", "containsNull": True},
            "nullable": True,
            "field": "all-tags",
        },
    ]
    assert one.schema_ids is None


def test_a_batch_whose_transform_did_not_run_has_the_columns_of_the_newest_whose_did() -> None:
    empty = a_batch(State.PUBLISHED, interval=a_day(1), written=a_written())
    later = a_written_one(interval=a_day(2))
    assert later.written is not None
    later = later.model_copy(update={"written": later.written.model_copy(update={"written_at": NOW + timedelta(1)})})
    view = View.of([a_written_one(), empty, later.model_copy(update={"written": later.written})])
    (one,) = announced_changes(View(), [empty])
    assert [c.name for c in announcement(view, one, "c", None).columns] == ["n", "tags"]


def test_a_staged_batch_has_the_ranges_of_its_output_and_not_of_its_staging_topic() -> None:
    copied = a_publication(ended=a_topic(9, 7, topic="out"), begun=a_topic(5, 7, topic="out"))
    one = of(staged(a_written_one(), publication=copied))
    assert (one.output, one.ranges) == ("out", {"0": (5, 9)})


def test_a_table_has_its_name_and_no_ranges() -> None:
    batch = planned(a_written_one(), output=PostgresOutput(table="public.t"), staging=a_topic(0, topic="staging"))
    committed = PostgresPublication(table="public.t", ledger="", lease=3, begun_at=NOW, ended_at=NOW)
    one = of(batch.model_copy(update={"publication": committed}))
    assert (one.kind, one.output) == ("postgres", "public.t")
    assert (one.topic_id, one.ranges, one.header, one.format) == (None, {}, None, None)
    assert (one.rows, len(one.columns)) == (2, 2)


def test_ids_of_schemas_and_a_missing_header_are_told() -> None:
    schema = RegisteredSchema(subject="out-value", id=7, version=1, text="{}")
    bare = planned(
        a_written_one(), schemas=Schemas(output=schema), output=an_output(0, batch_header=False), output_format="avro"
    )
    one = of(bare)
    assert (one.format, one.header) == ("avro", None)
    assert one.schema_ids is not None
    assert (one.schema_ids.value, one.schema_ids.key) == (7, None)


@pytest.mark.parametrize(
    ("partitions", "settings", "refused"),
    [
        (1, KEPT, None),
        (1, {}, None),
        (2, KEPT, "has 2 partitions; it needs one"),
        (1, {**KEPT, "cleanup.policy": "compact"}, "cleanup.policy=compact"),
        (1, {**KEPT, "retention.ms": "604800000"}, "retention.ms=604800000"),
        (1, {**KEPT, "retention.bytes": "1000"}, "retention.bytes=1000"),
    ],
)
def test_a_topic_that_would_lose_announcements_or_their_order_is_refused(
    partitions: int, settings: dict[str, str], refused: str | None
) -> None:
    found = unfit_for_announcements(Topic("t", "id", partitions), settings)
    assert (found is None) if refused is None else (found is not None and refused in found)


@pytest.mark.parametrize(
    ("announced_in", "found", "begin", "how"),
    [
        (None, None, 0, None),
        (None, "2", 5, None),
        ("1", "1", 0, None),
        ("1", None, 0, "no longer exists"),
        ("1", "2", 0, "was deleted and created again"),
        ("1", "1", 7, "begins at offset 7"),
    ],
)
def test_a_topic_is_known_by_its_id_to_have_all_announcements(
    announced_in: str | None, found: str | None, begin: int, how: str | None
) -> None:
    """Whatever was written to one that was created again: its offsets say nothing."""
    lost = loss_reason(announced_in, found and Topic("t", found, 1), begin)  # type: ignore[arg-type]
    assert (lost is None) if how is None else (lost is not None and how in lost)


def test_what_a_topic_lacks_is_found_by_ledger_batch_and_state() -> None:
    play = Play()
    play.plan(0)
    play.publish(0)
    (one,) = play.announced
    assert missing_announcements([one], play.history) == []
    assert missing_announcements([one.model_copy(update={"ledger_id": "another"})], play.history) == [one]
    assert missing_announcements([], play.history) == [one]
