"""The coordinator's decisions, whatever the ledger: the frontier never passes a hole, and a refusal says why."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.errors import FencepostError, Overtaken, Superseded, TransitionRefused
from fencepost.model import Batch, Interval, Layout, Outcome, Plan, Receipt, State, Verdict, WriteSummary
from fencepost.outputs.topic.publication import TopicState, validated_ends
from fencepost.protocol.decisions import (
    batch_to_judge,
    decide_skip,
    free_lane,
    record_planned,
    record_verdict,
    record_withdrawn,
    record_written,
    standing_plan,
    unfinished_ids,
)
from fencepost.protocol.frontier import frontier
from fencepost.protocol.revision import CurrentInputs, revision_reason
from fencepost.protocol.view import PASSED, View
from makers import NOW, a_batch, a_decision, a_plan, a_receipt, a_topic, a_verdict, a_written, publish_prepared
from makers import a_day as day

DECISION = a_decision("publish")
PARTITIONS = 2


def plan_of(ranges: tuple[tuple[int, int], ...] = ((0, 1),), lane: str = "0") -> Plan:
    """A plan of these ranges, one per source partition."""
    return a_plan(*ranges, lane=lane)


def result_of(lease: int, writers: int, end: int = 1) -> WriteSummary:
    """What a write of that lease brings."""
    return a_written(*receipts_of(lease, writers), output=a_topic(end, topic="out"))


def receipts_of(lease: int, writers: int) -> tuple[Receipt, ...]:
    """The receipts of all writers under that lease."""
    return tuple(a_receipt(t, lease) for t in range(writers))


def batch_of(number: int, revision: int, state: State, lease: int, outcome: Outcome | None, plan: Plan) -> Batch:
    """A batch in a state, with what a batch in that state has."""
    has_output = state not in {State.PLANNED, State.SUPERSEDED}
    return a_batch(
        state,
        interval=day(number),
        revision=revision,
        lease=lease,
        plan=plan,
        written=result_of(lease, plan.row_task_count, lease + 1) if has_output else None,
        verdict=a_verdict(outcome) if outcome else None,
    )


@st.composite
def ledgers(draw: st.DrawFn) -> View:
    """Contiguous intervals in any state, each with a few revisions, planned in any order."""
    count = draw(st.integers(1, 5))
    order = draw(st.permutations(range(count)))
    at = [draw(st.integers(0, 3)) for _ in range(PARTITIONS)]
    batches, lease = [], 0
    for number in range(count):
        lengths = [draw(st.integers(0, 2)) for _ in range(PARTITIONS)]
        plan = plan_of(tuple((s, s + n) for s, n in zip(at, lengths, strict=True)), draw(st.sampled_from("012")))
        at = [s + n for s, n in zip(at, lengths, strict=True)]
        revisions = draw(st.integers(1, 3))
        standing = draw(st.sampled_from([None, State.PUBLISHED, State.SKIPPED]))  # an older revision, still in force
        for revision in range(1, revisions + 1):
            last = revision == revisions
            older = standing if standing and revision == revisions - 1 else State.SUPERSEDED
            open_or_done = [s for s in State if s not in {State.SUPERSEDED, State.WITHDRAWN, State.PUBLISHING}]
            state = draw(st.sampled_from(open_or_done)) if last else older
            lease = order[number] * 10 + revision
            outcome = draw(st.sampled_from([None, *Outcome])) if last else None
            batches.append(batch_of(number, revision, state, lease, outcome, plan))
    return View.of(batches)


def passed(view: View, interval: Interval) -> bool:
    """Whether the frontier may pass an interval, said in another way than the product does."""
    return any(b.state in {State.PUBLISHED, State.SKIPPED} for b in view.known(interval).all)


@given(ledgers())
def test_the_frontier_passes_no_record_of_an_interval_that_is_neither_published_nor_skipped(view: View) -> None:
    ends, anchor = frontier(view), view.anchor
    assert anchor is not None
    for interval in view.intervals:
        if interval.start >= anchor.start and not passed(view, interval):
            for part in view.known(interval).all[-1].plan.ranges:
                assert part.length == 0 or ends["in", part.partition] <= part.start


@given(ledgers())
def test_the_frontier_goes_as_far_as_the_run_is_unbroken(view: View) -> None:
    anchor = view.anchor
    assert anchor is not None
    run = [i for i in view.intervals if i.start >= anchor.start]
    if all(passed(view, i) for i in run):
        last = view.known(run[-1]).all[-1]
        assert frontier(view) == {part.partition_id: part.end for part in last.plan.ranges}


@given(ledgers(), st.data())
def test_no_transition_moves_the_frontier_or_the_validated_ends_back(view: View, data: st.DataObject) -> None:
    interval = data.draw(st.sampled_from(view.intervals))
    latest = view.last(interval)
    assert latest is not None
    transition = data.draw(
        st.sampled_from(
            [
                lambda: record_planned(view, interval, "p", latest.plan, "again"),
                lambda: publish_prepared(view, interval, NOW),
                lambda: publish_prepared(view, interval, NOW, DECISION),
                lambda: decide_skip(view, interval, DECISION),
                lambda: record_verdict(view, interval, latest.revision, next_verdict(latest)),
            ]
        )
    )
    try:
        records = transition()
    except FencepostError:
        return
    newest = {(b.interval, b.revision): b for b in (*view.all(), *(_with_lease(b) for b in records))}
    after = View.of(newest.values())
    assert all(frontier(after)[p] >= end for p, end in frontier(view).items())
    assert all(validated_ends(after)[p] >= end for p, end in validated_ends(view).items())


def next_verdict(batch: Batch) -> Verdict:
    """A passed verdict that nothing overtook."""
    return a_verdict(Outcome.PASSED, 2 if batch.verdict else 1)


def _with_lease(batch: Batch) -> Batch:
    return batch if batch.lease is not None else batch.model_copy(update={"lease": 1000})


@given(ledgers(), st.data())
def test_a_refused_transition_names_the_batch_and_the_reason(view: View, data: st.DataObject) -> None:
    interval = data.draw(st.sampled_from(view.intervals))
    latest = view.last(interval)
    assert latest is not None
    for transition in (
        lambda: publish_prepared(view, interval, NOW),
        lambda: decide_skip(view, interval, DECISION),
        lambda: record_verdict(view, interval, latest.revision, next_verdict(latest)),
        lambda: record_verdict(view, interval, latest.revision, a_verdict(Outcome.PASSED, 9)),
        lambda: late(view, latest),
        lambda: batch_to_judge(view, interval),
    ):
        refusal = refused(transition)
        if refusal is not None:
            assert str(latest.id) in refusal
            assert refusal.endswith(".")
            assert len(refusal) > len(f"batch {latest.id} is {latest.state}")


def late(view: View, batch: Batch) -> tuple[Batch, ...]:
    """The transition of a write under a later lease."""
    lease, writers = batch.require_lease + 1, batch.plan.row_task_count
    return record_written(view, batch.interval, batch.revision, result_of(lease, writers), receipts_of(lease, writers))


def refused(transition: Callable[[], object]) -> str | None:
    """The message a transition is refused with, or None where it is not."""
    try:
        transition()
    except FencepostError as refusal:
        return str(refusal)
    return None


QUARANTINING = a_plan((0, 1), (0, 1), malformed_tasks=2)


@pytest.mark.parametrize(
    ("tasks", "malformed", "is_enough"),
    [
        ([0, 1], 0, True),
        ([0, 1, 2, 3], 1, True),
        ([0, 1], 1, False),
        ([0, 1, 2], 1, False),
        ([0, 1, 3], 1, False),
        ([2, 3], 1, False),
        ([0, 1, 2, 3], 0, False),
        ([0, 1, 1, 3], 1, False),
    ],
)
def test_a_batch_is_written_when_its_rows_and_its_malformed_records_are(
    tasks: list[int], malformed: int, is_enough: bool
) -> None:
    """Task-partitions for malformed records are asked for where the source has some, and then each of them."""
    view = View.of([a_batch(plan=QUARANTINING)])
    receipts = [a_receipt(t) for t in tasks]
    result = a_written(*receipts, malformed=malformed)
    refusal = refused(lambda: record_written(view, day(0), 1, result, receipts))
    assert (refusal is None) is is_enough, refusal


WIDE, NARROW, NONE = (a_plan(*ranges) for ranges in (((0, 1),) * 3, ((0, 1),), ((1, 1),) * 4))
FEW_ROWS = a_plan((0, 1), (0, 1), rows_tasks=1, malformed_tasks=2)
BY_OUTPUT = a_plan((0, 1), (0, 1), rows_tasks=1, malformed_tasks=2, layout=Layout.OUTPUT)


@pytest.mark.parametrize(
    ("plans", "ids"),
    [
        ([], {}),
        ([(WIDE, True)], {}),
        ([(WIDE, False)], {"in": 3}),
        ([(WIDE, False), (NARROW, False)], {"in": 3}),
        ([(WIDE, False), (NARROW, True)], {}),
        ([(WIDE, True), (NARROW, False)], {"in": 1}),
        ([(WIDE, False), (NONE, True)], {"in": 3}),
        ([(WIDE, True), (NONE, False)], {}),
        ([(QUARANTINING, False)], {"in": 2}),
        ([(FEW_ROWS, False)], {"in": 2}),
        ([(BY_OUTPUT, False), (NARROW, False)], {"in": 2, "out": 1}),
        ([(BY_OUTPUT, True), (NARROW, False)], {"in": 1}),
    ],
)
def test_ids_are_unsettled_from_the_batches_since_one_was_written(
    plans: list[tuple[Plan, bool]], ids: dict[str, int]
) -> None:
    """A written batch has a mark under each of its ids, and fenced what was there before; one without offsets did neither."""
    view = View.of(
        a_batch(
            State.WRITTEN if written else State.SUPERSEDED,
            interval=day(number),
            lease=number,
            plan=plan,
            written=a_written() if written else None,
        )
        for number, (plan, written) in enumerate(plans)
    )
    assert unfinished_ids(view, "0") == ids
    assert unfinished_ids(view, "1") == {}


@pytest.mark.parametrize(
    ("planned", "now", "is_revised"),
    [("t-1", "t-1", False), ("t-1", "t-2", True), ("t-1", "", True), (None, "", False)],
)
def test_a_quarantine_topic_that_was_made_anew_asks_for_a_new_revision(
    planned: str | None, now: str, is_revised: bool
) -> None:
    plan = a_plan((0, 1), quarantine=a_topic(0, topic="bad", topic_id=planned) if planned else None)
    for state in (State.PLANNED, State.WRITTEN, State.REJECTED):
        found = CurrentInputs(
            digests=plan.digests,
            software=plan.software,
            now=NOW,
            marks_kept_for=timedelta(days=7),
            output=TopicState(plan.output.topic_id),
            quarantine_topic_id=now,
            quarantine_topic="bad",
        )
        why = revision_reason(a_batch(state, plan=plan), found)
        assert (why is not None) is is_revised
        assert why is None or "quarantine topic" in why


@given(ledgers(), st.data())
def test_only_a_passed_verdict_or_an_operator_publishes(view: View, data: st.DataObject) -> None:
    interval = data.draw(st.sampled_from(view.intervals))
    latest = view.last(interval)
    assert latest is not None
    decision = data.draw(st.sampled_from([None, DECISION]))
    try:
        records = publish_prepared(view, interval, NOW, decision)
    except TransitionRefused:
        return
    if records:
        assert latest.state is State.WRITTEN or decision
        assert latest.state is State.REJECTED or (latest.verdict and latest.verdict.outcome is Outcome.PASSED)
        newest = {b.revision: b for b in (*view.known(interval).all, *records)}
        assert [b.state for b in newest.values() if b.state in PASSED] == [State.PUBLISHED]


@given(ledgers(), st.integers(1, 3))
def test_a_free_lane_is_held_by_no_planned_batch(view: View, lanes: int) -> None:
    held = {b.plan.lane for b in view.all() if b.state is State.PLANNED}
    refusal = refused(lambda: free_lane(view, lanes, None))
    assert (refusal is not None) == (held >= set(map(str, range(lanes))))
    if refusal is None:
        lane = free_lane(view, lanes, None)
        assert lane not in held
        blocks = [block for b in view.all() if b.plan.lane == lane for block in b.plan.tasks]
        for topic, partitions in unfinished_ids(view, lane).items():
            assert partitions in {block.partitions for block in blocks if block.topic == topic}


@given(ledgers())
def test_planning_an_interval_that_overlaps_another_in_part_is_refused(view: View) -> None:
    known = view.intervals[0]
    part = Interval(start=known.start + timedelta(hours=1), end=known.end)
    with pytest.raises(TransitionRefused, match="overlaps the planned interval"):
        standing_plan(view, part, reprocess=False)


def test_receipts_that_do_not_cover_the_plan_are_refused() -> None:
    """Fewer task-partitions than planned (a coalesced shuffle), one twice, one of another lease."""
    batch = batch_of(0, 1, State.PLANNED, 7, None, plan_of(((0, 1), (0, 1))))
    view = View.of([batch])
    whole = result_of(7, 2)
    receipts = receipts_of(7, 2)
    assert record_written(view, day(0), 1, whole, receipts)[0].state is State.WRITTEN
    for others in (receipts[:1], receipts[:1] * 2, receipts_of(6, 2)):
        with pytest.raises(TransitionRefused, match="receipts do not cover the plan"):
            record_written(view, day(0), 1, whole, others)


def test_the_receipts_of_a_superseded_revision_are_refused() -> None:
    view = View.of(
        [batch_of(0, 1, State.SUPERSEDED, 1, None, plan_of()), batch_of(0, 2, State.PLANNED, 2, None, plan_of())]
    )
    with pytest.raises(Superseded, match="superseded by revision 2"):
        record_written(view, day(0), 1, result_of(1, 1), receipts_of(1, 1))


@pytest.mark.parametrize("state", [State.PLANNED, State.WRITTEN])
def test_what_is_brought_for_a_withdrawn_interval_is_refused_and_says_so(state: State) -> None:
    batch = batch_of(0, 1, state, 1, None, plan_of())
    view = View.of([record_withdrawn(batch, DECISION.model_copy(update={"action": "withdraw"}))])
    said = r"was withdrawn \(withdraw by operator: looked at it\), so its output does not count. `fencepost run"
    with pytest.raises(Superseded, match=said):
        record_written(view, day(0), 1, result_of(1, 1), receipts_of(1, 1))
    with pytest.raises(Superseded, match=said):
        record_verdict(view, day(0), 1, a_verdict(Outcome.PASSED))


@pytest.mark.parametrize("first", [Outcome.REJECTED, Outcome.PASSED])
def test_of_two_validations_side_by_side_the_first_that_is_recorded_counts(first: Outcome) -> None:
    """The slower one may have read an older suite: its passed verdict would publish what a fixed suite rejected."""
    written_batch = batch_of(0, 1, State.WRITTEN, 0, None, plan_of())
    (after,) = record_verdict(View.of([written_batch]), day(0), 1, a_verdict(first))
    view = View.of([after])
    with pytest.raises(Overtaken, match="validation 1 was recorded first"):
        record_verdict(view, day(0), 1, a_verdict(Outcome.PASSED).model_copy(update={"reason": "of the slower one"}))
    assert record_verdict(view, day(0), 1, a_verdict(first)) == (), "its own commit, asked about once more"
    assert record_verdict(view, day(0), 1, a_verdict(Outcome.PASSED, 2))[0].state is State.WRITTEN


@pytest.mark.parametrize("state", sorted(PASSED))
@pytest.mark.parametrize("outcome", list(Outcome))
def test_a_validation_that_a_publication_overtook_records_nothing(state: State, outcome: Outcome) -> None:
    """Found by the soak's twins: the slower run was refused, and red, though its interval was published."""
    view = View.of([batch_of(0, 1, state, 0, Outcome.PASSED, plan_of())])
    assert record_verdict(view, day(0), 1, a_verdict(outcome, 2)) == ()


def test_a_skipped_interval_stays_passed_while_it_is_written_again() -> None:
    """Found by the model: the frontier stood behind a planned batch, and the next advance moved it back."""
    view = View.of([batch_of(0, 1, State.SKIPPED, 0, None, plan_of())])
    assert standing_plan(view, day(0), reprocess=True) is None
    (fresh,) = record_planned(view, day(0), "p", plan_of(), "reprocess was requested")
    again = View.of([*view.all(), fresh.model_copy(update={"lease": 1})])
    assert frontier(again) == frontier(view) == {("in", 0): 1}
    after = View.of([*view.all(), batch_of(0, 2, State.WRITTEN, 1, Outcome.PASSED, plan_of())])
    assert [b.state for b in publish_prepared(after, day(0), NOW)] == [State.PUBLISHED, State.SUPERSEDED]


def test_a_run_that_a_skip_overtook_has_nothing_left_to_do() -> None:
    """Found by the model: validate and advance refused for ever, and the run stayed red."""
    skipped_early = batch_of(0, 1, State.PLANNED, 0, None, plan_of())
    view = View.of([decide_skip(View.of([skipped_early]), day(0), DECISION)[0]])
    assert batch_to_judge(view, day(0)).state is State.SKIPPED
    assert publish_prepared(view, day(0), NOW) == ()
    with pytest.raises(TransitionRefused, match="is skipped, so its output does not count"):
        publish_prepared(view, day(0), NOW, DECISION)


@given(
    st.sampled_from(sorted(set(State) - {State.PUBLISHING})),
    st.sampled_from(["now", "before"]),
    st.timedeltas(timedelta(0), timedelta(days=20)),
    st.timedeltas(timedelta(hours=1), timedelta(days=10)),
)
def test_a_batch_is_revised_only_while_it_is_open_and_for_a_reason(
    state: State, digest: str, age: timedelta, kept: timedelta
) -> None:
    batch = batch_of(0, 1, state, 0, None, plan_of())
    found = CurrentInputs(
        digests={"transform": digest},
        software=batch.plan.software,
        now=NOW + age,
        marks_kept_for=kept,
        output=TopicState(batch.plan.output.topic_id),
    )
    reason = revision_reason(batch, found)
    is_open = state in {State.PLANNED, State.WRITTEN, State.REJECTED}
    changed, old = digest != "now", state is State.PLANNED and age > kept * 0.9
    assert (reason is not None) == (is_open and (changed or old))
    # A mark is committed after the plan, so one that may be gone is never trusted.
    assert reason is not None or state is not State.PLANNED or age < kept
