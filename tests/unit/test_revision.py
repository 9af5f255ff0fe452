"""When a batch is written as a new revision: one circumstance at a time, on every state it can be in."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fencepost.errors import KafkaUnavailable, SourceDataExpired, SourcesChanged, TopicRecreated
from fencepost.model import Batch, OffsetRange, Replayed, State, Tally
from fencepost.outputs.topic.publication import TopicState, output_obstacle, validated_ends
from fencepost.protocol.obstacle import SourceState, obstacle
from fencepost.protocol.revision import CurrentInputs, revision_reason
from fencepost.protocol.view import View
from makers import (
    NOW,
    a_batch,
    a_day,
    a_plan,
    a_publication,
    a_receipt,
    a_source,
    a_topic,
    a_written,
    an_output,
    planned,
    staged,
)

GONE = (OffsetRange(topic="in", partition=0, start=0, end=3),)
SAME = CurrentInputs(
    digests={"transform": "now"}, software="1", now=NOW, marks_kept_for=timedelta(days=7), output=TopicState("out-1")
)


def batch(state: State, lease: int = 1, number: int = 1, ends: tuple[int, ...] = (5,), **plan: Any) -> Batch:
    """Interval `number`, five rows of one partition."""
    done = a_written(a_receipt(0, lease, rows=5), output=a_topic(*ends, topic="out"))
    return a_batch(
        state,
        interval=a_day(number),
        lease=lease,
        plan=a_plan((5 * number, 5 * number + 5), **plan),
        written=None if state is State.PLANNED else done,
    )


UNFINISHED = [State.PLANNED, State.WRITTEN, State.REJECTED]
FINISHED = [State.PUBLISHED, State.SKIPPED, State.SUPERSEDED]


@pytest.mark.parametrize("state", [*UNFINISHED, *FINISHED])
def test_a_planned_batch_in_a_ledger_made_anew_from_a_copy_is_written_anew_and_no_other(state: State) -> None:
    """Its lease is an offset of the ledger it was planned in; what is written needs its marks no more."""
    moved = batch(state, ledger_topic_id="ledger-1")
    found = replace(SAME, ledger_topic_id="ledger-2")
    assert ("ledger" in (revision_reason(moved, found) or "")) == (state is State.PLANNED)
    assert revision_reason(moved, replace(SAME, ledger_topic_id="ledger-1")) is None


@pytest.mark.parametrize("state", [*UNFINISHED, *FINISHED])
def test_nothing_changed_nothing_revised(state: State) -> None:
    assert revision_reason(batch(state), SAME) is None


@pytest.mark.parametrize("state", UNFINISHED)
@pytest.mark.parametrize(
    ("change", "word"),
    [({"digests": {"transform": "e"}}, "transform"), ({"output": TopicState("out-2")}, "created again")],
)
def test_other_settings_or_another_output_topic_ask_for_a_revision(
    state: State, change: dict[str, Any], word: str
) -> None:
    assert word in (revision_reason(batch(state), replace(SAME, **change)) or "")


def test_the_reason_names_the_parts_that_changed() -> None:
    known = batch(State.PLANNED, digests={"transform": "d", "spark": "s", "files": "f"})
    found = replace(SAME, digests={"transform": "e", "spark": "t", "files": "f"})
    assert (revision_reason(known, found) or "").endswith(": Spark settings, transform")


def test_other_software_matters_to_what_is_not_written_in_full() -> None:
    found = replace(SAME, software="2")
    assert revision_reason(batch(State.PLANNED), found) == "it was planned with 1, and this software is 2"
    assert revision_reason(batch(State.WRITTEN), found) is None
    assert revision_reason(batch(State.REJECTED), found) is None


SOURCE = SourceState("in", "in-1", 1)
EXPIRED = replace(SOURCE, expired=GONE)
ACCEPTED = replace(EXPIRED, accept_loss=True)


@pytest.mark.parametrize("change", [{"sources": {"in": ACCEPTED}}, {"now": NOW + timedelta(days=6.5)}])
def test_lost_records_and_old_marks_matter_until_it_is_written(change: dict[str, Any]) -> None:
    found = replace(SAME, **change)
    assert revision_reason(batch(State.PLANNED), found)
    assert revision_reason(batch(State.WRITTEN), found) is None
    assert revision_reason(batch(State.REJECTED), found) is None


@pytest.mark.parametrize(
    ("source", "error", "says"),
    [
        (EXPIRED, SourceDataExpired, "no longer has partition 0: offsets 0 to 2.*set source.on_expired: skip"),
        (
            replace(SOURCE, topic_id="in-2"),
            TopicRecreated,
            "source topic in was deleted and created again.*rename its folder",
        ),
        (
            replace(SOURCE, topic_id="", partitions=0),
            TopicRecreated,
            "source topic in was deleted since.*rename its folder",
        ),
        (
            replace(SOURCE, topic="other"),
            SourcesChanged,
            "it reads source topic in, which the pipeline no longer reads. If a topic in pipeline.yaml is wrong, correct it",
        ),
        (replace(SOURCE, partitions=0), KafkaUnavailable, "the broker that answered knows only 0.*run again"),
    ],
)
def test_what_a_new_revision_would_meet_as_well_is_told_and_nothing_is_revised(
    source: SourceState, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        revision_reason(batch(State.PLANNED), replace(SAME, sources={source.topic: source}))


@pytest.mark.parametrize("state", [*UNFINISHED, State.PUBLISHING])
def test_a_source_made_anew_stops_a_batch_until_its_publication_begins(state: State) -> None:
    """From then on it needs its source no more, and readers may see some of it."""
    held, found = in_staging(state), replace(HERE, sources={"in": replace(SOURCE, topic_id="in-2")})
    stopped = obstacle(held, found)
    assert (stopped is None) == (state is State.PUBLISHING)
    assert stopped is None or stopped.cure.startswith(
        "To continue with the present topic, give the pipeline a new name"
    )


def test_an_addition_needs_what_it_reads_in_quarantine_until_it_is_written() -> None:
    planned_on = a_source((0, 5), topic="bad")
    addition = a_batch(
        State.PLANNED,
        revision=2,
        adds_to=1,
        plan=a_plan(inputs=(planned_on,), replays=Replayed(batch="p/1", tally=Tally(rows=5), attempt=2)),
    )
    there = SourceState("bad", planned_on.topic_id, 1)
    assert obstacle(addition, replace(SAME, sources={"bad": there})) is None
    for gone in (replace(there, topic_id="bad-2"), replace(there, topic_id=""), replace(there, expired=GONE)):
        stopped = obstacle(addition, replace(SAME, sources={"bad": gone}))
        assert stopped is not None
        assert "the quarantined records of batch p/1 cannot be replayed: quarantine topic bad " in stopped.why
        assert "drops addition 2" in stopped.next_step(addition)
    assert obstacle(addition.model_copy(update={"state": State.WRITTEN}), SAME) is None


def test_a_published_batch_whose_output_was_made_anew_is_written_again_on_request() -> None:
    stopped = output_obstacle(batch(State.PUBLISHED), "out-2")
    assert stopped is not None
    assert "--reprocess` writes the interval again" in str(stopped.error(batch(State.PUBLISHED)))


@pytest.mark.parametrize("state", FINISHED)
def test_what_is_finished_is_left_alone_whatever_changed(state: State) -> None:
    changed = CurrentInputs(
        digests={"transform": "e"},
        software="2",
        now=NOW + timedelta(days=99),
        marks_kept_for=timedelta(days=7),
        output=TopicState("out-2"),
        sources={"in": replace(SOURCE, topic_id="in-2")},
    )
    assert revision_reason(batch(state), changed) is None


def test_ends_in_an_output_topic_that_is_gone_are_not_validated_ends() -> None:
    old = batch(State.PUBLISHED, lease=1, number=1, ends=(100,))
    new = batch(State.PUBLISHED, lease=2, number=2, ends=(7,), output=an_output(0, topic_id="out-2"))
    assert validated_ends(View.of([old])) == {("out", 0): 100}
    assert validated_ends(View.of([old, new])) == {("out", 0): 7}


HERE = replace(SAME, staging_topic_id="staging-1")
QUARANTINING = replace(HERE, quarantine_topic_id="bad-1", quarantine_topic="bad")
WHOLE = (a_receipt(0, 7, rows=5),)
EMPTY = (a_receipt(0, 7, rows=0),)
OPENING = (a_receipt(0, 6, rows=0),)


def in_staging(state: State) -> Batch:
    """A staged batch; one that is being published has a publication, in ledger ``."""
    publication = a_publication() if state is State.PUBLISHING else None
    return staged(batch(state), publication=publication)


@pytest.mark.parametrize("state", [*UNFINISHED, State.PUBLISHING])
@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"staging_topic_id": ""}, "staging topic staging was deleted since"),
        ({"staging_topic_id": "staging-2"}, "staging topic staging was deleted and created again"),
        ({"staged_gone": GONE}, "no longer has partition 0: offsets 0 to 2: retention"),
        ({"output": TopicState("out-2")}, "output topic out was deleted and created again"),
    ],
)
def test_a_staged_batch_whose_records_are_gone_before_it_is_published_is_written_anew(
    state: State, change: dict[str, Any], word: str
) -> None:
    assert revision_reason(in_staging(state), HERE) is None
    assert word in (revision_reason(in_staging(state), replace(HERE, **change)) or "")


@pytest.mark.parametrize("state", [*UNFINISHED, State.PUBLISHING])
@pytest.mark.parametrize(
    "change", [{"quarantine_topic_id": "bad-2"}, {"quarantine_topic_id": ""}, {"quarantine_topic": "worse"}]
)
def test_a_staged_batch_needs_its_quarantine_topic_until_its_publication_begins(
    state: State, change: dict[str, Any]
) -> None:
    """Readers may see what is being published: it is given up only if it cannot be finished."""
    held = planned(in_staging(state), quarantine=a_topic(0, topic="bad"))
    assert revision_reason(held, QUARANTINING) is None
    why = revision_reason(held, replace(QUARANTINING, **change))
    assert ("quarantine topic" in (why or "")) == (state is not State.PUBLISHING)


def test_a_publication_is_given_up_for_its_own_records_whatever_went_to_quarantine() -> None:
    """The copy holds what was staged: rows in quarantine are neither asked of it nor allowed in it."""
    receipt = a_receipt(0, 1, rows=5)
    both = receipt.model_copy(update={"topics": {**receipt.topics, "bad": Tally(rows=3, fingerprint=3)}})
    held = staged(
        a_batch(
            State.PUBLISHING,
            plan=a_plan((0, 8), quarantine=a_topic(0, topic="bad")),
            written=a_written(both, output=a_topic(5, topic="out"), quarantine=a_topic(3, topic="bad")),
            publication=a_publication(),
        )
    )
    gone = replace(QUARANTINING, staged_gone=GONE)
    assert revision_reason(held, replace(gone, output=TopicState("out-1", WHOLE))) is None
    assert "no longer has" in (revision_reason(held, gone) or "")
    too_much = (a_receipt(0, 7, rows=8),)
    assert "does not hold" in (revision_reason(held, replace(QUARANTINING, output=TopicState("out-1", too_much))) or "")


@pytest.mark.parametrize("state", FINISHED)
def test_staged_records_are_needed_no_more_once_that_is_over(state: State) -> None:
    assert revision_reason(in_staging(state), replace(HERE, staging_topic_id="", staged_gone=GONE)) is None


def test_a_staged_batch_without_records_has_none_that_could_be_gone() -> None:
    empty = staged(a_batch(State.WRITTEN, written=a_written(a_receipt(rows=0)), plan=a_plan((0, 1))))
    assert revision_reason(empty, replace(HERE, staging_topic_id="", staged_gone=GONE)) is None


@pytest.mark.parametrize(
    "change",
    [
        {"digests": {"transform": "e"}},
        {"software": "2"},
        {"quarantine_topic_id": "x"},
        {"now": NOW + timedelta(days=99)},
    ],
)
def test_what_is_being_published_is_not_written_anew_for_settings_or_software(change: dict[str, Any]) -> None:
    assert revision_reason(in_staging(State.PUBLISHING), replace(HERE, **change)) is None


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"output": TopicState("out-1", WHOLE), "staging_topic_id": "", "staged_gone": GONE}, None),
        ({"output": TopicState("out-2", WHOLE)}, "output topic"),
        ({"output": TopicState("", WHOLE)}, "output topic out was deleted during"),
        ({"output": TopicState("out-1", WHOLE), "ledger_topic_id": "ledger-2"}, "its ledger was restored from a copy"),
        ({"output": TopicState("out-1", EMPTY)}, "its copy does not hold the records"),
        ({"output": TopicState("out-1", OPENING)}, None),
        ({"output": TopicState("out-1", OPENING), "staged_gone": GONE}, "no longer has"),
        ({"output": TopicState("out-1", OPENING), "now": NOW + timedelta(days=99)}, None),
        ({"output": TopicState("out-1", (None,))}, None),
        ({"output": TopicState("out-1", (None,), "it is compacted")}, "are gone, and it is compacted"),
        ({"output": TopicState("out-1", OPENING, "it is compacted")}, None),
        ({"output": TopicState("out-1", WHOLE, "it is compacted")}, None),
    ],
)
def test_a_publication_is_given_up_when_it_cannot_be_finished_and_no_sooner(
    change: dict[str, Any], word: str | None
) -> None:
    """What is copied in full only has to be recorded; an empty mark is that of somebody who gave it up, and went no further."""
    found = revision_reason(in_staging(State.PUBLISHING), replace(HERE, **change))
    assert (found is None) if word is None else word in (found or "")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, None),
        ({"software": "2"}, None),
        (
            {"digests": {"transform": "e"}},
            "Kafka refused its copy: too large. And these parts changed since it was",
        ),
        ({"output": TopicState("out-1", WHOLE), "digests": {"transform": "e"}}, None),
        ({"staged_gone": GONE}, "no longer has"),
    ],
)
def test_a_refused_publication_is_written_anew_once_something_was_mended(
    change: dict[str, Any], why: str | None
) -> None:
    """Unchanged, it is tried again: perhaps the topic's settings were raised. An attempt that was faster may have copied it."""
    held = staged(batch(State.PUBLISHING), publication=a_publication(refused="too large."))
    found = replace(HERE, **change)
    stopped = obstacle(held, found)
    assert (stopped is None) == ("output" in change)
    assert stopped is None or stopped.lasting == ("staged_gone" in change)
    assert (revision_reason(held, found) is None) if why is None else why in (revision_reason(held, found) or "")
