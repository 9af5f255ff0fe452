"""Step one, plan: freeze what a batch reads and the ids it writes under.

What is frozen is never computed again. Ranges of neighbouring intervals touch and never overlap, so no record is lost or
read twice. A late record falls in the batch that is open when it arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from pydantic import JsonValue

from fencepost.config.digest import software
from fencepost.config.java_options import java_settings
from fencepost.config.pipeline import QUARANTINE, Pipeline, quarantines
from fencepost.errors import SettingsError
from fencepost.failpoints import reached
from fencepost.kafka.cluster import Topic
from fencepost.ledger.ledger import Change, Ledger, Recorded
from fencepost.ledger.lost import check_not_lost
from fencepost.model import (
    Batch,
    Decision,
    Interval,
    Layout,
    Plan,
    SourceTopic,
    State,
    StepResult,
    TopicOutput,
    utc_now,
)
from fencepost.outputs.output import Destination, destination_of
from fencepost.outputs.quarantine import QuarantineTopic
from fencepost.preflight.limits import check_before_plan, check_limits
from fencepost.preflight.rights import require_rights
from fencepost.protocol.advice import REASON
from fencepost.protocol.decisions import (
    decide_withdraw,
    free_lane,
    is_carried_out,
    record_planned,
    replay_lane,
    standing_plan,
    unsettled_ids,
    why_it_stays,
)
from fencepost.protocol.obstacle import GivenUp
from fencepost.protocol.ranges import CLOCKS, credible_until, frozen_ranges, range_starts, without_expired
from fencepost.protocol.replay import known_link, replayed
from fencepost.protocol.view import PASSED, View
from fencepost.schemas.freeze import freeze_schemas
from fencepost.steps.obstacle import give_up_if_stopped
from fencepost.steps.topics import check_quarantined, check_same_topic, expired_error


def plan_batch(
    pipeline: Pipeline,
    interval: Interval,
    *,
    reprocess: bool = False,
    decision: Decision | None = None,
    allow_future: bool = False,
    ledger: Ledger | None = None,
) -> StepResult:
    """Freeze the interval's batch, or find it frozen already.

    1. check the user's rights on topics, and make the ledger and the output topic if they are missing;
    2. check the cluster's limits, which could make every write fail;
    3. decide and freeze in one coordinator transaction. Before anything is planned, in this order: the ledger must be
       complete, the interval must have ended, the source must be the topic of the neighbouring plans, a lane must be free,
       transform and suite must load. The output must keep the records until they are judged.

    `reprocess` plans another revision of a finished interval: the same frozen input, new output. A publication that cannot go on
    is given up for it. A `decision` says who asked for it and why; it is stored with the new revision. `allow_future` plans an
    interval that has not ended.
    """
    ledger = ledger or Ledger(pipeline)
    output = ready(ledger)  # 1, 2
    given_up = give_up_if_stopped(ledger, interval, decision) if reprocess else None
    checked = False

    def decide(view: View) -> Change | None:
        nonlocal checked
        if is_carried_out(view, interval, decision) or standing_plan(view, interval, reprocess, given_up) is not None:
            return None
        check_not_lost(ledger, view, output.newest_batches)
        if not checked:
            latest = view.holder(interval)
            if latest is None and not allow_future:
                check_has_ended(pipeline, interval)
            check_same_source(view, interval, ledger.cluster.describe(pipeline.source.topic))
            free_lane(view, pipeline.lanes, view.last(interval))  # a plan that waits for a lane comes by every second
            check_before_plan(ledger, view)
            checked = True
        change = decide_plan(ledger, view, interval, output, reprocess, decision, given_up)
        return kept_until_judged(output, change)

    recorded = ledger.transact(decide)  # 3
    reached("plan.frozen")
    return _result(recorded, interval)


def ready(ledger: Ledger) -> Destination:
    """The destination. Checks the source, rights and the cluster's limits; makes destination and ledger if missing."""
    pipeline, cluster = ledger.pipeline, ledger.cluster
    require_rights(pipeline, cluster)
    cluster.describe(pipeline.source.topic)
    output = destination_of(ledger)
    ledger.create()
    output.prepare()
    check_limits(ledger)
    java_settings(ledger.settings.common())
    return output


def withdraw_batch(pipeline: Pipeline, interval: Interval, decision: Decision) -> StepResult:
    """Take an interval out of the order, so that earlier intervals get their records again. Moves no offsets."""
    recorded = Ledger(pipeline).transact(lambda view: Change(decide_withdraw(view, interval, decision)))
    done = "withdrew" if recorded.changed else "already withdrawn:"
    batch, changed = recorded.last(interval), bool(recorded.changed)
    return StepResult.of("plan", batch, f"{done} interval {interval}", changed=changed)


def check_has_ended(pipeline: Pipeline, interval: Interval) -> None:
    """Check that the interval lies in the past, by this machine's clock.

    Raises:
        SettingsError: it does not. Its batch would take the records of every interval before it that is not planned yet.
    """
    now = utc_now()
    if interval.end > now + CLOCKS:
        raise SettingsError(
            f"pipeline {pipeline.name}: interval {interval} ends in the future (this machine's clock says {now:%Y-%m-%d %H:%M} "
            "UTC). Its batch would hold everything in the source now, and earlier intervals that are planned later would get "
            "no records. Check the times, or wait until the interval has ended. `fencepost run --allow-future` plans it now."
        )


def decide_plan(
    ledger: Ledger,
    view: View,
    interval: Interval,
    output: Destination,
    reprocess: bool,
    decision: Decision | None = None,
    given_up: GivenUp | None = None,
) -> Change | None:
    """The interval's first revision, or another one on `reprocess`; None if its batch stays as it is."""
    if standing_plan(view, interval, reprocess, given_up) is not None:
        return None
    note = "reprocess was asked for" if view.holder(interval) else ""
    plan = freeze(ledger, view, interval, output)
    return Change(record_planned(view, interval, ledger.pipeline.name, plan, note, decision, given_up))


def revise(
    ledger: Ledger, batch: Batch, reason: Callable[[Batch], str | None], given_up: GivenUp | None = None
) -> Batch:
    """Plan the batch's input again as a new revision, which supersedes it; return the interval's newest revision.

    `reason` gets the batch as it stands at the decision: a concurrent run may have published it.
    """
    output, interval = destination_of(ledger), batch.interval

    def decide(view: View) -> Change | None:
        change = decide_revision(ledger, view, batch, output, reason, given_up)
        if change is not None:
            check_not_lost(ledger, view, output.newest_batches)
        return kept_until_judged(output, change)

    return ledger.transact(decide).last(interval)


def decide_revision(
    ledger: Ledger,
    view: View,
    batch: Batch,
    output: Destination,
    reason: Callable[[Batch], str | None],
    given_up: GivenUp | None = None,
) -> Change | None:
    """The revision that replaces the batch; None if another run has revised it, or if the reason no longer holds.

    A batch that is being published is replaced only if that very publication was given up.
    """
    interval = batch.interval
    latest = view.last(interval)
    if latest is None or latest.revision != batch.revision or (why := reason(latest)) is None:
        return None
    if latest.state is State.PUBLISHING and (given_up is None or not given_up.is_of(latest)):
        return None
    if latest.adds_to is None:
        plan = freeze(ledger, view, interval, output)
    else:
        link = known_link(view, interval)
        plan = freeze_addition(ledger, view, interval, link, output)
    fresh = record_planned(view, interval, ledger.pipeline.name, plan, why, given_up=given_up, adds_to=latest.adds_to)
    return Change(fresh)


def check_same_source(view: View, interval: Interval, source: Topic) -> None:
    """Check that the plans that bound the interval's ranges read this very topic: its own plan, or else its neighbours'.

    Raises:
        TopicRecreated: the topic was deleted and created again, or is another one.
        KafkaUnavailable: the broker knew fewer of its partitions than one of those plans has.
    """
    latest = view.holder(interval)
    for batch in [latest] if latest else [view.before(interval), view.after(interval)]:
        if batch is not None:
            check_same_topic(batch, source)


def freeze(ledger: Ledger, view: View, interval: Interval, output: Destination) -> Plan:
    """The plan of the interval's next revision. It keeps the ranges of the one before, unless that was withdrawn.

    All that it depends on is asked here, after the ledger was read: what was known earlier may be older than a neighbour's plan.
    """
    pipeline, cluster = ledger.pipeline, ledger.cluster
    source = cluster.describe(pipeline.source.topic)
    latest = view.holder(interval)
    check_same_source(view, interval, source)
    gap = None
    if latest is not None:
        ranges, lost, gap = latest.plan.source.ranges, latest.plan.source.lost, latest.plan.also_covers
    else:
        before, after = view.before(interval), view.after(interval)
        stable = cluster.last_stable(source)  # asked first: a record that arrives meanwhile is the next batch's
        until = credible_until(interval, utc_now())

        def first_at(moment: datetime, starts: Sequence[int] | None = None) -> list[int | None]:
            limit = None if until is None else _milliseconds(until)
            return cluster.first_at_or_after(source, _milliseconds(moment), pipeline.group, starts, limit)

        starts = range_starts(before, after, stable, None if before else first_at(interval.start))
        by_end = first_at(interval.end, starts)
        ranges = frozen_ranges(interval, starts, after, stable, by_end)
        lost = ()
        if before is not None and before.interval.end < interval.start and any(r.length for r in ranges):
            gap = Interval(start=before.interval.end, end=interval.start)
    ranges, expired = without_expired(ranges, cluster.earliest(source))
    if expired and pipeline.source.on_expired == "fail":
        raise expired_error(pipeline, interval, expired)
    malformed_writers = len(ranges) if pipeline.source.on_malformed == QUARANTINE else 0
    read = SourceTopic(topic=source.name, topic_id=source.id, ranges=ranges, lost=(*lost, *expired))
    lane = free_lane(view, pipeline.lanes, view.last(interval))
    plan = _frozen(ledger, view, lane, read, output, malformed_writers)
    return plan.model_copy(update={"also_covers": gap})


def freeze_addition(ledger: Ledger, view: View, interval: Interval, link: Batch, output: Destination) -> Plan:
    """The plan of an addition: it takes from quarantine all that the link, a published batch or addition, sent there.

    Raises:
        NeedsOperator: the quarantine topic no longer has all of it.
    """
    planned, written = link.known_quarantine, link.known_written
    ranges = link.quarantine_ranges(written)
    read = SourceTopic(topic=planned.topic, topic_id=planned.topic_id, ranges=ranges)
    check_quarantined(ledger, link, read, str(link.id), "Nothing was planned.")
    lane = replay_lane(view, view.last(interval))
    plan = _frozen(ledger, view, lane, read, output, malformed_writers=len(ranges))
    return plan.model_copy(update={"replays": replayed(link)})


def _frozen(
    ledger: Ledger, view: View, lane: str, read: SourceTopic, output: Destination, malformed_writers: int
) -> Plan:
    """The plan of a batch that reads that in this lane, with everything else as it is now."""
    pipeline = ledger.pipeline
    now, staging = output.now()
    writers = len(read.ranges) if pipeline.output.layout is Layout.SOURCE else len((staging or now).ends)
    digests = pipeline.write_digests()
    return Plan(
        sources=(read,),
        output=now,
        staging=staging,
        ledger_topic_id=ledger.topic_id,
        layout=pipeline.output.layout,
        writers=writers,
        lane=lane,
        fence_up_to=unsettled_ids(view, lane),
        digests=digests,
        software=software(),
        planned_at=utc_now(),
        quarantine=_quarantine(ledger) if malformed_writers or quarantines(pipeline, digests) else None,
        malformed_writers=malformed_writers,
        # After the ranges: whoever wrote a record in them has registered its schema before.
        schemas=freeze_schemas(pipeline),
    )


def _quarantine(ledger: Ledger) -> TopicOutput:
    """The pipeline's quarantine topic, created if it is missing, and where it ends now."""
    topic = QuarantineTopic(ledger)
    topic.prepare()
    topic.check_keeps()
    return topic.now()


def kept_until_judged(output: Destination, change: Change | None) -> Change | None:
    """The change, after a check that the output keeps the planned records until they are judged."""
    for batch in change.batches if change else ():
        if batch.state is State.PLANNED and not batch.plan.is_empty:
            output.check_keeps(batch.interval)
    return change


def _milliseconds(moment: datetime) -> int:
    """For Kafka's search by timestamp, where negative numbers mean something else. No record is older than 1970."""
    return max(0, round(moment.timestamp() * 1000))


def _result(recorded: Recorded, interval: Interval) -> StepResult:
    view, batch, changed = recorded.view, recorded.last(interval), bool(recorded.changed)
    starved_by = view.starved_by(interval)
    offsets = batch.plan.offsets
    if changed:
        message = f"planned revision {batch.revision}: {offsets} offsets of topic {batch.plan.source.topic}"
    elif batch.state is State.PUBLISHED:
        message = f"already published, revision {batch.revision}"
    elif batch.state is State.SKIPPED:
        message = f"already skipped, revision {batch.revision}"
    else:
        message = f"already planned, revision {batch.revision}; it is {batch.state}"
    if batch.adds_to is not None and not changed:
        message += f", an addition to revision {batch.adds_to}, which is published"
        message += "" if batch.state in PASSED else ". This run finishes the addition"
    details: dict[str, JsonValue] = {"offsets": offsets, "lane": batch.plan.lane, "lease": batch.lease}
    if batch.plan.also_covers is not None:
        message += f". {batch.plan.told_also}"
        details["also_covers"] = str(batch.plan.also_covers)
    if starved_by is not None:
        message += f". {_starved(view, starved_by)}"
        details["starved_by"] = str(starved_by.id)
    return StepResult.of("plan", batch, message, changed=changed, **details)


def _starved(view: View, by: Batch) -> str:
    """The advice for an interval without offsets, if a later one was planned first."""
    when = by.interval
    told = f"It has no records: the later interval {when} was planned first and begins at the same offsets. "
    if why_it_stays(view, when) is None:
        return (
            f"{told}If {when} was a mistake, {by.command('withdraw', REASON)} takes it out of the order; intervals planned "
            "from then on get their records"
        )
    return (
        f"{told}The records of this interval are not lost: they are in {when}, which cannot be withdrawn, or in an interval "
        "planned after it"
    )
