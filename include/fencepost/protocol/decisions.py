"""Decides what may happen to a batch, with pure functions of the ledger. No function talks to Kafka.

```
 planned ──▶ written ──▶ published ──(new revision published)──▶ superseded
    │           ├──────▶ rejected ──▶ published (fixed suite, or an operator) │ superseded │ skipped
    └───────────┴──(new revision)──▶ superseded
```

A staged batch, and a batch for a table, is `publishing` before it is published (`protocol/publication.py`). From `publishing` it
can become published, be given up for a new revision or a skip, or be rejected by its output.

An operator may skip an unpublished batch. A skipped batch counts, like a published batch, until a new revision of it is
published. An operator may withdraw an interval that has no offsets or is not published. Its remaining revisions then
become withdrawn.

An addition (`protocol/replay.py`) passes through the same states. An addition replaces nothing, and skipping an
addition does not change its batch. Publishing a new revision of the interval supersedes the batch and its additions.

Every function returns the records to write, or raises an error with the reason. There are no records if the work is
done already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from fencepost.counts import count_of
from fencepost.errors import DEFECT, FactsOutdated, NoFreeLane, NotRecorded, Overtaken, Superseded, TransitionRefused
from fencepost.model import (
    AskedBatch,
    Batch,
    BatchId,
    Decision,
    HistoryEntry,
    Interval,
    Outcome,
    Plan,
    Publication,
    Receipt,
    Schemas,
    SideTableState,
    State,
    Verdict,
    WriteSummary,
    describe_topics,
)
from fencepost.protocol.advice import REASON, go_on, or_give_up, plan_first, what_next, why_not_passed
from fencepost.protocol.obstacle import AbandonedPublication, is_unseen
from fencepost.protocol.view import DECIDED, OVER, PASSED, REPLACEABLE, View, has_had_offsets, has_passed


def free_lane(view: View, lanes: int, but_for: Batch | None) -> str:
    """Returns the lowest lane that no planned batch holds. There are `lanes` lanes. `but_for` is about to be
    superseded, so its lane is free.

    Additions have their own lanes and hold none of the lanes for batches.

    Raises:
        NoFreeLane: names the batches that hold lanes.
    """
    holders = {b.plan.lane: b for b in view.all() if b.state is State.PLANNED and b.adds_to is None and b != but_for}
    for lane in map(str, range(lanes)):
        if lane not in holders:
            return lane
    held = ", ".join(str(b.id) for _, b in sorted(holders.items()))
    raise NoFreeLane(
        f"all {lanes} lanes are held by batches that are planned but not written yet ({held}). Let them finish, run them "
        "again, or raise `lanes` in pipeline.yaml."
    )


def replay_lane(view: View, but_for: Batch | None) -> str:
    """Returns the lowest lane for additions that no other planned addition holds. The number of lanes is not limited.

    Additions have their own lanes, so an addition that fails does not hold up the scheduled batches.
    """
    held = {b.plan.lane for b in view.all() if b.state is State.PLANNED and b.adds_to is not None and b != but_for}
    return next(lane for n in range(len(held) + 1) if (lane := f"replay-{n}") not in held)


def unfinished_ids(view: View, lane: str) -> dict[str, int]:
    """Returns which of the lane's transactional ids may have an open transaction: for each topic, how many of its
    partitions, counted from 0.

    A written batch leaves no open transaction. Each of its task-partitions has a mark, earlier holders of the id were
    fenced, and later holders find the mark. Before a batch wrote, it also fenced the ids that earlier batches had left.
    A batch without offsets uses no id and fences none.
    """
    found: dict[str, int] = {}
    for batch in sorted((b for b in view.all() if b.plan.lane == lane), key=view.order, reverse=True):
        if batch.plan.is_empty:
            continue
        if batch.written is not None:
            break
        for block in batch.plan.tasks:
            found[block.topic] = max(block.partitions, found.get(block.topic, 0))
    return found


def standing_plan(
    view: View, interval: Interval, reprocess: bool, given_up: AbandonedPublication | None = None
) -> Batch | None:
    """Returns the interval's newest revision, or None if one has to be planned.

    `reprocess` asks for another revision of a finished interval. It keeps a revision that is under way, so a retried
    request makes one revision, not two. A batch that is being published is replaced only if that very publication was
    `given_up`. An addition that is under way is replaced. Without `reprocess` an addition under way is finished.

    Raises:
        TransitionRefused: the interval overlaps part of a planned interval.
    """
    for other in view.kept_intervals:
        if other != interval and other.overlaps(interval):
            raise TransitionRefused(
                f"interval {interval} overlaps the planned interval {other}, and no record may belong to two intervals. Use "
                "the start and end of the planned interval, or an interval outside of it."
            )
    latest = None if view.is_withdrawn(interval) else view.last(interval)
    if latest is None:
        return None
    finished = {State.PUBLISHED, State.REJECTED, State.SKIPPED}
    if latest.adds_to is not None:
        finished |= REPLACEABLE
    ended = latest.state in finished or (given_up is not None and given_up.is_of(latest))
    return None if reprocess and ended else latest


def answer_to(view: View, interval: Interval, request: str | None) -> Batch | None:
    """Returns the revision of the interval that answers the request. Returns None if there is none, or if the request
    has no id.

    The request is then not carried out again, whatever the state of that revision.
    """
    known = view.revisions.get(interval)
    return next((batch for batch in known.all if request in batch.requests), None) if known else None


def record_answer(view: View, interval: Interval, request: str) -> tuple[Batch, ...]:
    """Records that the interval's newest revision, which is under way, also answers this request.

    A batch that is being published does not answer the request, because the request may be meant to replace that batch.
    """
    batch = view.last(interval)
    if batch is None or batch.state not in REPLACEABLE or answer_to(view, interval, request) is not None:
        return ()
    return (batch.model_copy(update={"requests": (*batch.requests, request)}),)


def record_planned(
    view: View,
    interval: Interval,
    pipeline: str,
    plan: Plan,
    note: str,
    decision: Decision | None = None,
    given_up: AbandonedPublication | None = None,
    adds_to: int | None = None,
    request: str | None = None,
) -> tuple[Batch, ...]:
    """Returns the records of a new revision: its own record, and the record of the unfinished revision that it
    supersedes, if there is one.

    A published or skipped revision does not change. `adds_to` is the revision that an addition adds to. An addition may
    supersede only an unfinished addition. A batch that is being published is superseded only if that very publication
    was `given_up`.
    """
    note = f"{decision.action} by {decision.by}: {decision.reason}" if decision else note
    latest = view.last(interval)
    revision = latest.revision + 1 if latest else 1
    fresh = Batch(
        pipeline=pipeline,
        interval=interval,
        revision=revision,
        adds_to=adds_to,
        state=State.PLANNED,
        plan=plan,
        decision=decision,
        requests=(request,) if request is not None else (),
        history=(HistoryEntry(state=State.PLANNED, at=plan.planned_at, note=note),),
    )
    ending = f"; {given_up.history_note(latest)}" if latest and given_up and given_up.is_of(latest) else ""
    if latest is None or (latest.state not in REPLACEABLE and not ending):
        return (fresh,)
    by = f"by revision {revision}{ending}"
    return (fresh, in_state(latest, State.SUPERSEDED, plan.planned_at, by))


def record_schemas(
    view: View, interval: Interval, revision: int, known: Schemas | None, found: Schemas
) -> tuple[Batch, ...]:
    """Records `found` as the schemas of a planned batch. The schemas are recorded only if the batch still has the
    schemas that this attempt has as `known`.

    Otherwise another attempt was faster, and both attempts use the schemas that it recorded. So a whole batch is
    decoded and encoded in the same way.

    Raises:
        Superseded: see `record_written`.
        Overtaken: the batch still has the known schemas, but is no longer planned. For example, it was skipped.
    """
    batch = own_revision(view, interval, revision)
    if batch.plan.schemas != known or known == found:
        return ()
    return (_with_plan(batch, schemas=found),)


def record_tables(
    view: View, interval: Interval, revision: int, found: tuple[SideTableState, ...]
) -> tuple[Batch, ...]:
    """Records the states of the side tables that a planned batch is made with, before any task-partition writes. The
    first attempt to record counts. An attempt that has read other contents does not write this revision.

    Raises:
        Superseded: see `record_written`.
        Overtaken: no states are recorded, and the batch is no longer planned. For example, it was skipped.
    """
    batch = own_revision(view, interval, revision)
    if batch.plan.tables or not found:
        return ()
    return (_with_plan(batch, tables=found),)


def _with_plan(batch: Batch, **found: object) -> Batch:
    """Returns a planned batch whose plan has what an attempt found before its first task-partition writes."""
    if batch.state is not State.PLANNED:
        raise Overtaken(
            f"batch {batch.id} is {batch.state} by now, so this attempt writes nothing more. Run again to see it."
        )
    return batch.model_copy(update={"plan": batch.plan.model_copy(update=found)})


def record_written(
    view: View, interval: Interval, revision: int, result: WriteSummary, receipts: Sequence[Receipt]
) -> tuple[Batch, ...]:
    """Records that all task-partitions of a planned batch have committed. `result` is the sum of the receipts.

    Raises:
        TransitionRefused: the receipts do not cover the plan.
        Superseded: a newer revision was planned while this batch was written, or its interval was withdrawn.
    """
    batch = own_revision(view, interval, revision)
    if batch.state is not State.PLANNED:
        return ()  # another attempt was faster; its receipts come from the same marks as ours
    check_receipts(batch, receipts, result.bypassed)
    done = in_state(batch, State.WRITTEN, result.written_at, count_of(result.rows, "row"))
    return (done.model_copy(update={"written": result}),)


def check_receipts(batch: Batch, receipts: Sequence[Receipt], bypassed: int) -> None:
    """Checks that receipts cover the plan. Each task-partition has one receipt, under the batch's own lease.

    `bypassed` is the number of records that bypass the transform. If there are none, the task-partitions for malformed
    records need no receipts.
    """
    wanted = batch.plan.receipt_count(bypassed)
    tasks = sorted(r.task for r in receipts)
    own = (batch.plan.ledger_topic_id, batch.require_lease)
    foreign = [r.task for r in receipts if (r.ledger, r.lease) != own]
    if tasks != list(range(wanted)) or foreign:
        missing = sorted(set(range(wanted)) - set(tasks))
        raise TransitionRefused(
            f"batch {batch.id}: receipts do not cover the plan: {wanted} task-partitions, missing {missing}, "
            f"under another lease {foreign}. Run the write step again."
        )


def batch_to_judge(view: View, interval: Interval) -> Batch:
    """Returns the batch for a validate step. A batch that is published, being published or skipped is returned too, and
    does not change.
    """
    batch = _standing(view, interval)
    if batch.written is None and batch.state not in PASSED:
        raise TransitionRefused(
            f"batch {batch.id} is {batch.state}; only a written batch can be judged. {go_on(batch)} writes and judges it."
        )
    return batch


def record_verdict(view: View, interval: Interval, revision: int, verdict: Verdict) -> tuple[Batch, ...]:
    """Records a verdict on a written or rejected batch.

    Raises:
        Overtaken: another validation was recorded after this validation began. The other validation may have used a
            newer suite.
    """
    batch = own_revision(view, interval, revision)
    if batch.verdict == verdict or batch.state in DECIDED:
        return ()  # recorded by a commit whose answer got lost; or published or skipped by a concurrent run
    if batch.state not in {State.WRITTEN, State.REJECTED}:
        raise TransitionRefused(
            f"batch {batch.id} is {batch.state}; only a written batch can be judged. {go_on(batch)} writes and judges it."
        )
    before = batch.verdict.number if batch.verdict else 0
    if verdict.number != before + 1:
        raise Overtaken(
            f"batch {batch.id}: validation {before} was recorded first and takes precedence. Run the validate step "
            "again to judge again."
        )
    # An undetermined verdict decides nothing: a rejected batch stays rejected, a written one written.
    state = {Outcome.PASSED: State.WRITTEN, Outcome.REJECTED: State.REJECTED}.get(verdict.outcome, batch.state)
    after = in_state(batch, state, verdict.judged_at, f"validation {verdict.number}: {verdict.outcome}")
    # A refusal by its output no longer counts: once the batch has passed again, the output is asked again.
    return (after.model_copy(update={"verdict": verdict, "publication": None}),)


def is_carried_out(view: View, interval: Interval, decision: Decision | None) -> bool:
    """Returns whether a decision that answers a question is recorded already, by a commit whose response was lost.

    Raises:
        Overtaken: the batch has changed since the question was asked, so the answer no longer applies.
    """
    if decision is None or decision.asked is None:
        return False
    asked, batch = decision.asked, view.last(interval)
    if batch is not None and batch.decision == decision.model_copy(update={"asked": None}):
        return True
    if batch is not None and batch.state is State.REJECTED and asked == asked_about(batch):
        return False
    now = "nothing is planned"
    if batch is not None:
        judged_by = f", after validation {batch.verdict.number}" if batch.verdict else ""
        now = f"batch {batch.id} is {batch.state}{judged_by}"
    raise Overtaken(
        f"{decision.by} answered {decision.action!r} about batch {asked.batch}, rejected by validation {asked.validation}, but "
        f"now {now}. Nothing was decided. In Airflow the next attempt asks again about the present state: wait for it, or "
        "clear decide."
    )


def asked_about(batch: Batch) -> AskedBatch:
    """Returns the identity and the present verdict of a judged batch. An answer counts only while both are the same."""
    return AskedBatch(
        batch=str(batch.id),
        lease=batch.require_lease,
        validation=batch.require_verdict.number,
        addition=batch.adds_to is not None,
    )


class Beginning(Protocol):
    """The state of an output before a batch is published there. Each kind of output has its own frozen value."""

    def publication(self, view: View, batch: Batch, now: datetime) -> Publication:
        """Returns the publication that begins now."""
        ...


@dataclass(frozen=True)
class PreparedBatch:
    """A batch that was checked for its publication: its topics exist as planned, and its output accepts it.

    `beginning` is None for a batch that its write step has written to the output already.
    """

    batch: BatchId
    beginning: Beginning | None = None


def to_publish(view: View, interval: Interval, decision: Decision | None = None) -> Batch | None:
    """Returns the newest revision if it may be published now. Returns None if there is nothing more to do.

    A revision may be published after a passed verdict, or on an operator's decision about a rejected batch. Without a
    decision a skipped batch does not change, because a run that was overtaken by the operator's skip has nothing more
    to do.

    Raises:
        TransitionRefused: the revision may not be published. The message has the next step.
    """
    if is_carried_out(view, interval, decision):
        return None
    batch = _standing(view, interval)
    if batch.state in {State.PUBLISHED, State.PUBLISHING} or (batch.state is State.SKIPPED and decision is None):
        return None
    if batch.state is State.SKIPPED and batch.adds_to is not None:
        raise TransitionRefused(
            f"batch {batch.id}, an addition to revision {batch.adds_to}, is skipped, so its output does not count. "
            f"{batch.command('replay', REASON)} replays the same records again."
        )
    if batch.state is State.SKIPPED:
        raise TransitionRefused(
            f"batch {batch.id} is skipped, so its output does not count. {batch.command('run', '--reprocess')} writes "
            "the same input as a new revision, judges it, and publishes it if it passes."
        )
    if batch.written is None or batch.state not in {State.WRITTEN, State.REJECTED}:
        raise TransitionRefused(
            f"batch {batch.id} is {batch.state}, not written. {go_on(batch)} writes, judges and publishes it."
        )
    if batch.written.tasks != (wanted := batch.plan.receipt_count(batch.written.bypassed)):
        raise TransitionRefused(
            f"batch {batch.id}: its result has the sums of {batch.written.tasks} receipts, but its plan has {wanted} "
            "task-partitions. Nothing is published. Restore the ledger topic from a copy."
        )
    if not has_passed(batch) and not (decision and batch.state is State.REJECTED):
        raise TransitionRefused(f"batch {batch.id}: {why_not_passed(batch)} {what_next(batch)}")
    return batch


def decide_publish(
    view: View, interval: Interval, now: datetime, decision: Decision | None, prepared: PreparedBatch | None
) -> tuple[Batch, ...]:
    """Publishes the newest revision and supersedes the revision that was published or skipped before.

    A staged batch, or a batch for a table, begins to be published.

    Raises:
        FactsOutdated: another batch than the `prepared` batch may be published now.
        TransitionRefused: see `to_publish`.
    """
    batch = to_publish(view, interval, decision)
    if batch is None:
        return ()
    if prepared is None or prepared.batch != batch.id:
        raise FactsOutdated(f"batch {batch.id} became the one to publish after the ledger was read.")
    note = f"{decision.action} by {decision.by}: {decision.reason}" if decision else ""
    decided = batch.model_copy(update={"decision": decision or batch.decision})
    if not batch.needs_publish_step:
        return published(view, decided, now, note)
    if prepared.beginning is None:
        raise NotRecorded(f"batch {batch.id} is staged, and it is not known how its publication begins. {DEFECT}")
    publication = prepared.beginning.publication(view, batch, now)
    begun = in_state(decided, State.PUBLISHING, now, note or publication.method)
    return (begun.model_copy(update={"publication": publication}),)


def published(view: View, batch: Batch, now: datetime, note: str) -> tuple[Batch, ...]:
    """Returns the records of a batch's publication. The records are the published batch, and the superseded older
    revision with its additions.

    An addition supersedes nothing.
    """
    records = [in_state(batch, State.PUBLISHED, now, note)]
    if batch.adds_to is not None:
        return tuple(records)
    for older in view.known(batch.interval).all:
        if older.revision < batch.revision and older.state in PASSED:
            records.append(in_state(older, State.SUPERSEDED, now, f"by revision {batch.revision}"))
    return tuple(records)


def decide_skip(
    view: View, interval: Interval, decision: Decision, given_up: AbandonedPublication | None = None
) -> tuple[Batch, ...]:
    """Skips the interval on an operator's decision. The frontier then passes the interval without output. For an
    addition, only the addition is dropped.

    A batch that is being published is skipped only if that very publication was `given_up`.
    """
    if is_carried_out(view, interval, decision):
        return ()
    batch = _standing(view, interval)
    if batch.state is State.SKIPPED:
        return ()
    note = f"{decision.action} by {decision.by}: {decision.reason}"
    if given_up is not None and given_up.is_of(batch):
        note += f"; {given_up.history_note(batch)}"
    elif batch.state is State.PUBLISHING:
        raise TransitionRefused(
            f"batch {batch.id} is being published and can be finished, so it can no longer be skipped: {_seen(batch)}. "
            f"{go_on(batch)} finishes it; {batch.command('run', '--reprocess')} then replaces it by a new revision."
        )
    elif batch.state not in {State.PLANNED, State.WRITTEN, State.REJECTED}:
        raise TransitionRefused(
            f"batch {batch.id} is {batch.state}; only an unpublished batch can be skipped. "
            f"{batch.command('run', '--reprocess')} replaces it by a new revision."
        )
    after = in_state(batch, State.SKIPPED, decision.decided_at, note)
    return (after.model_copy(update={"decision": decision}),)


def decide_withdraw(view: View, interval: Interval, decision: Decision) -> tuple[Batch, ...]:
    """Withdraws an interval on an operator's decision, as if it had never been planned.

    An interval without offsets can be withdrawn in any state. An interval with offsets can be withdrawn while it is not
    published or skipped and no later interval begins where it ends. The offsets of a withdrawn interval belong to the
    interval that is planned next. A withdrawn interval can be planned again, with the offsets that no other interval
    has by then.

    Raises:
        TransitionRefused: the records of the interval would end up in no interval, or in two.
    """
    _known(view, interval)
    if view.is_withdrawn(interval):
        return ()
    if refusal := why_it_stays(view, interval):
        raise TransitionRefused(refusal)
    standing = [b for b in view.known(interval).all if b.state not in OVER]
    return tuple(record_withdrawn(b, decision) for b in standing)


def why_it_stays(view: View, interval: Interval) -> str | None:
    """Returns why a planned interval cannot be withdrawn, or None."""
    _known(view, interval)
    planned, after = view.known(interval), view.after(interval)
    latest = planned.last_batch
    if not has_had_offsets(latest):
        return None
    passed = next((b for b in planned.all if b.state in DECIDED), None)
    under_way = planned.last
    if under_way.adds_to is not None and under_way.state not in DECIDED:
        return (
            f"batch {under_way.id} is an addition to the published revision {under_way.adds_to}: neither can be withdrawn. "
            f"{under_way.command('skip', REASON)} drops the addition alone."
        )
    if passed is not None and passed.state is State.PUBLISHING:
        stuck = (
            or_give_up(passed)
            if is_unseen(passed)
            else f"If it cannot go on, {passed.command('run', '--reprocess')} replaces it, and {passed.command('skip', REASON)} "
            "drops it."
        )
        return (
            f"batch {passed.id} is being published: {_seen(passed)}, and after a withdrawal another interval would read its "
            f"records again. {go_on(passed)} finishes it. {stuck}"
        )
    if passed is not None:
        return (
            f"batch {passed.id} is {passed.state} and has offsets of {describe_topics(passed.plan.source_topics)}: after a "
            "withdrawal another interval would read them again. Only an interval without offsets, or an unpublished one, can be "
            "withdrawn."
        )
    if after is not None:
        return (
            f"batch {latest.id} has records, and interval {after.interval} begins where it ends. After a withdrawal these "
            f"records would be in no interval. Withdraw {after.interval} first, or finish this batch."
        )
    return None


def _seen(batch: Batch) -> str:
    """Returns what readers may already see of a publication that was not given up. Readers of an unseen publication see
    nothing before its commit.
    """
    return (
        f"{batch.require_publication.target} may have committed it"
        if is_unseen(batch)
        else "readers may see its records already"
    )


def record_withdrawn(batch: Batch, decision: Decision) -> Batch:
    """Returns the batch, withdrawn on an operator's decision."""
    note = f"{decision.action} by {decision.by}: {decision.reason}"
    after = in_state(batch, State.WITHDRAWN, decision.decided_at, note)
    return after.model_copy(update={"decision": decision})


def in_state(batch: Batch, state: State, at: datetime, note: str) -> Batch:
    """Returns the batch in another state, with one more line of history."""
    return batch.model_copy(
        update={"state": state, "history": (*batch.history, HistoryEntry(state=state, at=at, note=note))}
    )


def _known(view: View, interval: Interval) -> Batch:
    batch = view.last(interval)
    if batch is None:
        raise TransitionRefused(f"interval {interval} was never planned. {plan_first('`fencepost run`')}.")
    return batch


def _standing(view: View, interval: Interval) -> Batch:
    batch = _known(view, interval)
    if batch.state is State.WITHDRAWN:
        raise TransitionRefused(
            f"batch {batch.id} was withdrawn ({batch.history[-1].note}), so its interval counts as never planned. "
            f"{batch.command('run')} plans it again."
        )
    return batch


def own_revision(view: View, interval: Interval, revision: int) -> Batch:
    """Returns the revision, which has to be the interval's newest revision.

    Raises:
        Superseded: a newer revision was planned, or this revision was withdrawn.
    """
    batch = _known(view, interval)
    if batch.revision != revision:
        raise Superseded(f"revision {revision} of {interval} has been superseded by revision {batch.revision}.")
    if batch.state is State.WITHDRAWN:
        raise Superseded(
            f"batch {batch.id} was withdrawn ({batch.history[-1].note}), so its output does not count. "
            f"{batch.command('run')} plans the interval again."
        )
    return batch
