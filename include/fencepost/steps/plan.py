"""Step one, plan: freeze what a batch reads and the ids it writes under.

What is frozen is never computed again. Ranges of neighbouring intervals touch and never overlap, so no record is lost or
read twice. A late record falls in the batch that is open when it arrives.

Here the facts are gathered; what the plan is, `protocol/planning.py` decides of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from pydantic import JsonValue

from fencepost.config.java_options import java_settings
from fencepost.config.pipeline import QUARANTINE, Pipeline
from fencepost.config.software import software
from fencepost.counts import count_of
from fencepost.errors import NeedsOperator, SettingsError
from fencepost.failpoints import reached
from fencepost.kafka.cluster import Topic
from fencepost.kafka.sample import take_newest
from fencepost.ledger.ledger import Change, Ledger, Recorded
from fencepost.ledger.lost import check_not_lost
from fencepost.model import (
    Batch,
    Decision,
    Interval,
    PartitionId,
    State,
    StepResult,
    TopicEnds,
    TopicInput,
    describe_topics,
    utc_now,
)
from fencepost.outputs.output import Destination, destination_of
from fencepost.outputs.quarantine import QuarantineTopic
from fencepost.preflight.found import described, source_found
from fencepost.preflight.limits import check_before_plan, check_limits
from fencepost.preflight.rights import require_rights
from fencepost.protocol.advice import REASON
from fencepost.protocol.decisions import (
    answer_to,
    decide_withdraw,
    free_lane,
    is_carried_out,
    record_answer,
    standing_plan,
    why_it_stays,
)
from fencepost.protocol.obstacle import GivenUp, quarantine_obstacle
from fencepost.protocol.planning import (
    Facts,
    Neighbours,
    SourceFacts,
    check_same_cluster,
    check_same_source,
    decide_plan,
    decide_revision,
    last_cluster,
    moves_here,
    starts_of,
)
from fencepost.protocol.ranges import CLOCKS, credible_until
from fencepost.protocol.replay import known_link
from fencepost.protocol.revision import Circumstances, may_be_revised, reason_to_revise
from fencepost.protocol.unread import EPOCH, unread, unread_at_plan
from fencepost.protocol.view import PASSED, View
from fencepost.schemas.freeze import freeze_schemas
from fencepost.steps.obstacle import give_up_if_stopped

LOOK_BACK_SECONDS = 10.0  # to learn how records are stamped that no batch reads


def plan_batch(
    pipeline: Pipeline,
    interval: Interval,
    *,
    reprocess: bool = False,
    decision: Decision | None = None,
    allow_future: bool = False,
    another_cluster: bool = False,
    known_cluster: str | None = None,
    request: str | None = None,
    ledger: Ledger | None = None,
) -> StepResult:
    """Freeze the interval's batch, or find it frozen already.

    0. check that this is the cluster of the last publication, before anything is made on it;
    1. check the user's rights on topics, and make the ledger, the topic of announcements and the output if they are missing;
    2. check the cluster's limits, which could make every write fail;
    3. gather the facts. Before anything is planned, in this order: the ledger must be complete, the interval must have ended, the
       source must be the topic of the neighbouring plans, a lane must be free, transform and suite must load;
    4. decide and freeze in one coordinator transaction. The output must keep the records until they are judged.

    `reprocess` plans another revision of a finished interval: the same frozen input, new output. A publication that cannot go on
    is given up for it. A `decision` says who asked for it and why; it is stored with the new revision. `allow_future` plans an
    interval that has not ended. `another_cluster` says that the pipeline has moved. `known_cluster` is that of the last
    publication, where somebody else than the ledger knows it: a cluster that the pipeline came to by mistake has an empty ledger.

    `request` names who asks for that, where the same request may come again: a run's parameters stay with it when it is cleared.
    The revision that answers a request records it, and no other does: `reprocess` writes an interval once for each request, and
    `another_cluster` names one cluster.
    """
    ledger = ledger or Ledger(pipeline)
    if known_cluster is not None and not another_cluster:
        check_same_cluster(pipeline.name, ledger.cluster.id, known_cluster)  # 0
    output = ready(ledger, moved=another_cluster, request=request)  # 1, 2
    answered = answer_to(ledger.read(), interval, request)
    asks = reprocess and answered is None
    given_up = give_up_if_stopped(ledger, interval, decision) if asks else None

    def gather(view: View) -> Facts | None:
        asks = reprocess and answer_to(view, interval, request) is None
        if is_carried_out(view, interval, decision) or standing_plan(view, interval, asks, given_up) is not None:
            return None
        earlier, known = view.last(interval), last_cluster(view)
        was_told = (another_cluster and moves_here(view, ledger.cluster.id, request)) or (
            earlier is not None and earlier.plan.cluster_id == ledger.cluster.id
        )
        if known is not None and not was_told:
            check_same_cluster(pipeline.name, ledger.cluster.id, known)  # 0
        check_not_lost(ledger, view, output.newest_batches)
        if view.holder(interval) is None and not allow_future:
            check_has_ended(pipeline, interval)
        source, near = ledger.cluster.describe(pipeline.source.topic), Neighbours.of(view, interval)
        for batch in near.planned:
            check_same_source(batch, source.name, source.id, source.partitions)
        free_lane(view, pipeline.lanes, view.last(interval))  # a plan that waits for a lane comes by every second
        check_before_plan(ledger, view)
        return facts_of_plan(ledger, near, interval, output)

    def decide(view: View, facts: Facts | None) -> Change:
        planned = decide_plan(
            view, interval, facts, reprocess=reprocess, decision=decision, given_up=given_up, request=request
        )
        return Change(planned)

    recorded = ledger.decide(gather, decide)  # 3, 4
    reached("plan.frozen")
    if asks and request is not None:
        ledger.transact(lambda view: Change(record_answer(view, interval, request)))
    result = found_planned(recorded, interval)
    return with_answer(result, answered, request, "reprocess") if reprocess and answered is not None else result


def with_answer(result: StepResult, answered: Batch, request: str | None, asked: str) -> StepResult:
    """The result of a plan whose request was answered before, which it says."""
    told = f"{request} asked for {asked}, and revision {answered.revision} was planned for that"
    if answered.state not in (State.PLANNED, State.WRITTEN):
        told += f". A new backfill with {asked}, and 'Override parameters on existing runs', asks for it again"
    return result.model_copy(update={"message": f"{result.message}. {told}"})


def finished_before(ledger: Ledger, interval: Interval) -> StepResult | None:
    """What `plan_batch` says of an interval that is published or skipped, by the ledger alone; None if there may be work."""
    view = ledger.read() if ledger.exists() else View()
    batch = view.last(interval)
    return found_planned(Recorded(view), interval) if batch is not None and batch.state in PASSED else None


def ready(ledger: Ledger, *, moved: bool = False, request: str | None = None) -> Destination:
    """The destination. Checks the source, rights and the cluster's limits; makes destination and ledger if missing. `moved`: the
    pipeline was on another cluster before, as the request says."""
    pipeline, cluster = ledger.pipeline, ledger.cluster
    require_rights(pipeline, cluster)
    cluster.describe(pipeline.source.topic)
    output = destination_of(ledger)
    ledger.create()
    view = ledger.read()
    ledger.announcements.prepare()
    contents = output.output.contents
    if contents is not None and moved and moves_here(view, cluster.id, request):
        contents.move_here(view)
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


def revise(
    ledger: Ledger, batch: Batch, circumstances: Callable[[Batch], Circumstances], given_up: GivenUp | None = None
) -> Batch:
    """Plan the batch's input again as a new revision, which supersedes it, if its circumstances ask for that; return what was
    planned last for the interval.

    They are gathered again, of the batch as it stands by then: a concurrent run may have published it.
    """
    output, interval = destination_of(ledger), batch.interval

    def gather(view: View) -> tuple[Circumstances | None, Facts | None]:
        latest = view.last(interval)
        if latest is None or latest.revision != batch.revision or not may_be_revised(latest):
            return None, None
        found = circumstances(latest)
        if reason_to_revise(latest, found) is None:
            return None, None
        check_not_lost(ledger, view, output.newest_batches)
        if latest.adds_to is not None:
            return found, facts_of_addition(ledger, known_link(view, interval), interval, output)
        return found, facts_of_plan(ledger, Neighbours.of(view, interval), interval, output)

    def decide(view: View, gathered: tuple[Circumstances | None, Facts | None]) -> Change:
        return Change(decide_revision(view, batch, *gathered, given_up))

    return ledger.decide(gather, decide).last(interval)


def facts_of_plan(ledger: Ledger, near: Neighbours, interval: Interval, output: Destination) -> Facts:
    """What the plan of an interval with these neighbours depends on."""
    source = source_facts(ledger, near, interval)
    if near.own is None and near.before is None:
        source = replace(source, last_timestamps=_last_timestamps(ledger, source, starts_of(near, source)))
    return _facts(ledger, near, source, None, interval, output)


def source_facts(ledger: Ledger, near: Neighbours, interval: Interval) -> SourceFacts:
    """What the source has for an interval with these neighbours."""
    pipeline, cluster = ledger.pipeline, ledger.cluster
    topic = cluster.describe(pipeline.source.topic)
    for batch in near.planned:
        check_same_source(batch, topic.name, topic.id, topic.partitions)
    if near.own is not None:
        return SourceFacts(topic=topic.name, topic_id=topic.id, earliest=tuple(cluster.earliest(topic)))
    stable = tuple(cluster.last_stable(topic))  # first: a record that arrives meanwhile is the next batch's
    until = credible_until(interval, utc_now())
    limit = None if until is None else _milliseconds(until)

    def first_at(moment: datetime, starts: list[int] | None = None) -> tuple[int | None, ...]:
        return tuple(cluster.first_at_or_after(topic, _milliseconds(moment), pipeline.group, starts, limit))

    by_start = None
    if not near.before:  # an interval that begins with 1970 has records without a timestamp too
        by_start = tuple(cluster.earliest(topic)) if interval.start <= EPOCH else first_at(interval.start)
    known = SourceFacts(
        topic=topic.name, topic_id=topic.id, stable=stable, by_start=by_start, earliest=(0,) * len(stable)
    )
    by_end = first_at(interval.end, starts_of(near, known))
    return replace(known, by_end=by_end, earliest=tuple(cluster.earliest(topic)))


def _last_timestamps(ledger: Ledger, source: SourceFacts, starts: Sequence[int]) -> dict[PartitionId, int]:
    """By partition, the timestamp of the last committed record before an offset, in milliseconds; -1: it has none.

    Partitions that have no such record are left out, and those in which none is met in time.
    """
    topic = Topic(source.topic, source.topic_id, len(starts))  # without what was added meanwhile
    found = take_newest(
        ledger.cluster, topic, ledger.pipeline.group, topic.partitions, ends=starts, seconds=LOOK_BACK_SECONDS
    )
    return {(topic.name, one.partition): -1 if one.timestamp is None else one.timestamp for one in found.records}


def facts_of_addition(ledger: Ledger, link: Batch, interval: Interval, output: Destination) -> Facts:
    """What the plan of an addition depends on that takes what this batch or addition quarantined.

    Raises:
        NeedsOperator: the quarantine topic no longer has all of it.
    """
    planned = link.known_quarantine
    read = TopicInput(topic=planned.topic, topic_id=planned.topic_id, ranges=link.quarantine_ranges(link.known_written))
    stopped = quarantine_obstacle(link, read, source_found(ledger, read, described(ledger, read.topic)))
    if stopped is not None:
        raise stopped.error(link)
    return _facts(ledger, Neighbours(), None, link, interval, output)


def _facts(
    ledger: Ledger,
    near: Neighbours,
    source: SourceFacts | None,
    link: Batch | None,
    interval: Interval,
    output: Destination,
) -> Facts:
    """What a plan depends on beside the ledger and this, as it is now. Makes topics that are missing."""
    pipeline, digests = ledger.pipeline, ledger.pipeline.write_digests()
    now, staging = output.now()
    unkept = None
    try:
        output.check_keeps(interval)
    except NeedsOperator as error:
        unkept = error
    sets_apart = link is not None or pipeline.quarantines
    return Facts(
        pipeline=pipeline.name,
        neighbours=near,
        source=source,
        link=link,
        output=now,
        staging=staging,
        quarantine=_quarantine(ledger) if sets_apart else None,
        ledger_topic_id=ledger.topic_id,
        layout=pipeline.output.layout,
        lanes=pipeline.lanes,
        accept_loss=pipeline.source.on_expired == "skip",
        quarantines_malformed=pipeline.source.on_malformed == QUARANTINE,
        digests=digests,
        software=software(),
        output_format=pipeline.output.records.format,
        schemas=freeze_schemas(
            pipeline
        ),  # after the ranges: whoever wrote a record in them has registered its schema before
        now=utc_now(),
        clock=time.time_ns() // 1_000_000,
        unkept=unkept,
        cluster_id=ledger.cluster.id,
    )


def _quarantine(ledger: Ledger) -> TopicEnds:
    """The pipeline's quarantine topic, created if it is missing, and where it ends now."""
    topic = QuarantineTopic(ledger)
    topic.prepare()
    topic.check_keeps()
    return topic.now()


def _milliseconds(moment: datetime) -> int:
    """For Kafka's search by timestamp, where negative numbers mean something else. No record is older than 1970."""
    return max(0, round(moment.timestamp() * 1000))


def found_planned(recorded: Recorded, interval: Interval) -> StepResult:
    """What is planned of the interval, and whether that was done here."""
    view, batch, changed = recorded.view, recorded.last(interval), bool(recorded.changed)
    starved_by = view.starved_by(interval)
    offsets = batch.plan.offsets
    if changed:
        message = (
            f"planned revision {batch.revision}: {count_of(offsets, 'offset')} of {describe_topics(batch.plan.ranges)}"
        )
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
    before = unread_at_plan(batch)
    if before.offsets and unread(view).start == interval.start:
        message += f". {before.description}. {before.advice(batch.pipeline)}"
        details["unread"] = before.offsets
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
