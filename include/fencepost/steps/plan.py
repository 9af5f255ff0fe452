"""Step one, plan, freezes what a batch reads, and the ids under which it writes.

Frozen values are never computed again. Ranges of neighbouring intervals touch and never overlap, so no record is lost
or read twice. A late record belongs to the batch that is open when the record arrives.

This module gathers the facts, and `protocol/planning.py` makes the plan from them.
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
from fencepost.config.source import Source
from fencepost.counts import count_of
from fencepost.doctor.limits import check_before_plan, check_limits
from fencepost.doctor.observed_state import source_state, topic_or_none
from fencepost.doctor.rights import require_rights
from fencepost.errors import NeedsOperator, SettingsError
from fencepost.failpoints import reached
from fencepost.kafka.cluster import Topic
from fencepost.kafka.sample import take_newest
from fencepost.ledger.completeness import check_complete
from fencepost.ledger.deployment import Deployment
from fencepost.ledger.ledger import Change, Ledger, Recorded
from fencepost.model import (
    Batch,
    Decision,
    Interval,
    Layout,
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
from fencepost.protocol.obstacle import AbandonedPublication, quarantine_obstacle
from fencepost.protocol.planning import (
    Neighbours,
    PlanFacts,
    SourceFacts,
    check_same_cluster,
    check_same_source,
    check_source_topics,
    decide_plan,
    decide_revision,
    last_cluster,
    moves_here,
    new_source_begins,
    sources_confirmed,
    starts_of,
)
from fencepost.protocol.ranges import CLOCKS, credible_until
from fencepost.protocol.replay import require_link
from fencepost.protocol.revision import CurrentInputs, may_be_revised, revision_reason
from fencepost.protocol.unread import EPOCH, Unread, unread, unread_at_plan
from fencepost.protocol.view import PASSED, View
from fencepost.schemas.freeze import freeze_schemas
from fencepost.steps.obstacle import give_up_if_stopped

UNREAD_SECONDS = 10.0  # for reading the timestamps of records that no batch reads


def plan_batch(
    pipeline: Pipeline,
    interval: Interval,
    *,
    reprocess: bool = False,
    decision: Decision | None = None,
    allow_future: bool = False,
    another_cluster: bool = False,
    sources_changed: bool = False,
    known_cluster: str | None = None,
    request: str | None = None,
    deployment: Deployment | None = None,
) -> StepResult:
    """Freezes the interval's batch. It does nothing if the batch is frozen already.

    0. check that this is the cluster of the last publication, before anything is created on it;
    1. check the user's rights on topics, and create the ledger, the topic of announcements and the output if they are missing;
    2. check the cluster's limits, which could make every write fail;
    3. gather the facts. Check first, in this order: the ledger is complete, the interval has ended, the sources are those of the
       neighbouring plans, a lane is free, transform and suite load;
    4. decide and freeze in one coordinator transaction. The output has to keep the records until they are judged.

    `reprocess` plans another revision of a finished interval, with the same frozen input and new output. A publication
    that cannot go on is given up. `decision` names the person who requested the revision, and the reason. The decision
    is stored with the new revision. `allow_future` plans an interval that has not ended. `another_cluster` confirms
    that the pipeline has moved. `sources_changed` confirms that it reads other topics than its newest batch.
    `known_cluster` is the cluster of the last publication if a source other than the ledger knows it, because on a wrong
    cluster the ledger is empty.

    `request` identifies a request that may come again: a DAG run keeps its parameters when it is cleared. The revision that
    answers a request records it. So `reprocess` writes an interval once for each request, `another_cluster` confirms one
    cluster only, and `sources_changed` one set of topics.
    """
    deployment = deployment or Deployment.of(pipeline)
    if known_cluster is not None and not another_cluster:
        check_same_cluster(pipeline.name, deployment.cluster.id, known_cluster)  # 0
    output = ready(deployment, moved=another_cluster, request=request)  # 1, 2
    answered = answer_to(deployment.ledger.read(), interval, request)
    asks = reprocess and answered is None
    given_up = give_up_if_stopped(deployment, interval, decision) if asks else None

    def gather(view: View) -> PlanFacts | None:
        asks = reprocess and answer_to(view, interval, request) is None
        if is_carried_out(view, interval, decision) or standing_plan(view, interval, asks, given_up) is not None:
            return None
        earlier, known = view.last(interval), last_cluster(view)
        was_told = (another_cluster and moves_here(view, deployment.cluster.id, request)) or (
            earlier is not None and earlier.plan.cluster_id == deployment.cluster.id
        )
        if known is not None and not was_told:
            check_same_cluster(pipeline.name, deployment.cluster.id, known)  # 0
        check_complete(deployment, view, output.newest_batches)
        if view.range_owner(interval) is None and not allow_future:
            check_has_ended(pipeline, interval)
        near = Neighbours.of(view, interval, pipeline.source_topics)
        confirmed = sources_changed and sources_confirmed(view, pipeline.source_topics, request)
        check_source_topics(view, interval, pipeline.name, near, tuple(pipeline.source_topics), confirmed=confirmed)
        for name in near.topics(pipeline.source_topics):
            check_neighbours(near, deployment.cluster.describe(name))
        free_lane(view, pipeline.lanes, view.last(interval))  # before costly checks: a waiting plan tries every second
        check_before_plan(deployment, view)
        return replace(facts_of_plan(deployment, near, interval, output), sources_changed=confirmed)

    def decide(view: View, facts: PlanFacts | None) -> Change:
        planned = decide_plan(
            view, interval, facts, reprocess=reprocess, decision=decision, given_up=given_up, request=request
        )
        return Change(planned)

    recorded = deployment.ledger.decide(gather, decide)  # 3, 4
    reached("plan.frozen")
    if asks and request is not None:
        deployment.ledger.transact(lambda view: Change(record_answer(view, interval, request)))
    result = planned_already(recorded, interval)
    return with_answer(result, answered, request, "reprocess") if reprocess and answered is not None else result


def with_answer(result: StepResult, answered: Batch, request: str | None, asked: str) -> StepResult:
    """Returns the result of a plan whose request an earlier revision answers. The result's message names that revision."""
    remark = f"revision {answered.revision} answers the request {request} for {asked}"
    if answered.state not in (State.PLANNED, State.WRITTEN):
        remark += f". A new backfill with {asked}, and 'Override parameters on existing runs', requests it again"
    return result.model_copy(update={"message": f"{result.message}. {remark}"})


def finished_before(ledger: Ledger, interval: Interval) -> StepResult | None:
    """Returns the result of `plan_batch` for a published or skipped interval, by the ledger alone. Returns None if
    there may be work.
    """
    view = ledger.read() if ledger.exists() else View()
    batch = view.last(interval)
    return planned_already(Recorded(view), interval) if batch is not None and batch.state in PASSED else None


def ready(deployment: Deployment, *, moved: bool = False, request: str | None = None) -> Destination:
    """Checks the source, the rights and the cluster's limits, and creates the ledger and the destination if they are
    missing. Returns the destination. `moved` says that the request confirms the pipeline's move from another cluster.
    """
    pipeline, cluster = deployment.pipeline, deployment.cluster
    require_rights(pipeline, cluster)
    for topic in pipeline.source_topics:
        cluster.describe(topic)
    output = destination_of(deployment)
    deployment.ledger.create()
    view = deployment.ledger.read()
    deployment.ledger.announcements.prepare()
    contents = output.output.contents
    if contents is not None and moved and moves_here(view, cluster.id, request):
        contents.move_here(view)
    output.prepare()
    check_limits(deployment)
    java_settings(deployment.cluster.settings.common())
    return output


def withdraw_batch(pipeline: Pipeline, interval: Interval, decision: Decision) -> StepResult:
    """Withdraws an interval, so that intervals planned later get its records. It moves no offsets."""
    recorded = Ledger(pipeline).transact(lambda view: Change(decide_withdraw(view, interval, decision)))
    done = "withdrew" if recorded.changed else "already withdrawn:"
    batch, changed = recorded.last(interval), bool(recorded.changed)
    return StepResult.of("plan", batch, f"{done} interval {interval}", changed=changed)


def check_has_ended(pipeline: Pipeline, interval: Interval) -> None:
    """Checks that the interval has ended, by this machine's clock.

    Raises:
        SettingsError: the interval has not ended. The interval's batch would take the records of all earlier intervals
            that are not planned yet.
    """
    now = utc_now()
    if interval.end > now + CLOCKS:
        raise SettingsError(
            f"pipeline {pipeline.name}: interval {interval} ends in the future (this machine's clock says {now:%Y-%m-%d %H:%M} "
            "UTC). Its batch would take all records that are in the source now, and earlier intervals that are planned later "
            "would get none. Check the times, or wait until the interval has ended. `fencepost run --allow-future` plans it now."
        )


def revise(
    deployment: Deployment,
    batch: Batch,
    current_inputs: Callable[[Batch], CurrentInputs],
    given_up: AbandonedPublication | None = None,
) -> Batch:
    """Plans the batch's input again as a new revision if there is a reason. The new revision supersedes the batch.
    Returns the batch that was planned last for the interval.

    `current_inputs` is called again for the batch's present state, because a concurrent run may have published it.
    """
    output, interval = destination_of(deployment), batch.interval

    def gather(view: View) -> tuple[CurrentInputs | None, PlanFacts | None]:
        latest = view.last(interval)
        if latest is None or latest.revision != batch.revision or not may_be_revised(latest):
            return None, None
        found = current_inputs(latest)
        if revision_reason(latest, found) is None:
            return None, None
        check_complete(deployment, view, output.newest_batches)
        if latest.adds_to is not None:
            return found, facts_of_addition(deployment, require_link(view, interval), interval, output)
        near = Neighbours.of(view, interval, deployment.pipeline.source_topics)
        return found, facts_of_plan(deployment, near, interval, output)

    def decide(view: View, gathered: tuple[CurrentInputs | None, PlanFacts | None]) -> Change:
        return Change(decide_revision(view, batch, *gathered, given_up))

    return deployment.ledger.decide(gather, decide).last(interval)


def facts_of_plan(deployment: Deployment, near: Neighbours, interval: Interval, output: Destination) -> PlanFacts:
    """Returns the facts for the plan of an interval with these neighbours."""
    sources = [source_facts(deployment, near, interval, source) for source in sources_of(deployment.pipeline, near)]
    for number, source in enumerate(sources):
        if near.own is None and source.topic not in near.readers:
            stamps = _last_timestamps(deployment, source, starts_of(near, source))
            sources[number] = replace(source, last_timestamps=stamps)
    return _facts(deployment, near, tuple(sources), None, interval, output)


def sources_of(pipeline: Pipeline, near: Neighbours) -> list[Source]:
    """Returns the sources that a batch with these neighbours reads."""
    topics = near.topics(pipeline.source_topics)
    return [source for topic, source in pipeline.source_topics.items() if topic in topics]


def check_neighbours(near: Neighbours, topic: Topic) -> None:
    """Checks that the offsets of the neighbouring batches in a source topic belong to it (`check_same_source`)."""
    for batch in near.of_topic(topic.name):
        check_same_source(batch, topic.name, topic.id, topic.partitions)


def source_facts(deployment: Deployment, near: Neighbours, interval: Interval, source: Source) -> SourceFacts:
    """Returns the facts of a source for an interval with these neighbours."""
    pipeline, cluster = deployment.pipeline, deployment.cluster
    topic = cluster.describe(source.topic)
    check_neighbours(near, topic)
    known = SourceFacts(
        topic=topic.name,
        topic_id=topic.id,
        setting=source.setting,
        accept_loss=source.on_expired == "skip",
        lookback=source.lookback.time if source.lookback is not None else None,
        accept_lookback_loss=source.lookback is not None and source.lookback.on_expired == "skip",
        quarantines_malformed=source.on_malformed == QUARANTINE,
        earliest=(0,) * topic.partitions,
    )
    if near.own is not None:
        return replace(known, earliest=tuple(cluster.earliest(topic)))
    stable = tuple(cluster.last_stable(topic))  # first: a record that arrives meanwhile belongs to the next batch
    until = credible_until(interval, utc_now())
    limit = None if until is None else _milliseconds(until)

    def first_at(moment: datetime, starts: list[int] | None = None) -> tuple[int | None, ...]:
        return tuple(cluster.first_at_or_after(topic, _milliseconds(moment), pipeline.group, starts, limit))

    by_start, begins = None, new_source_begins(interval, near, topic.name)
    if begins is not None:  # an interval that begins in 1970 also has the records without a timestamp
        by_start = tuple(cluster.earliest(topic)) if begins <= EPOCH else first_at(begins)
    known = replace(known, stable=stable, by_start=by_start)
    by_end = first_at(interval.end, starts_of(near, known))
    return replace(known, by_end=by_end, earliest=tuple(cluster.earliest(topic)))


def _last_timestamps(deployment: Deployment, source: SourceFacts, starts: Sequence[int]) -> dict[PartitionId, int]:
    """Returns the timestamp of the last committed record before the start of each partition, in milliseconds. The
    timestamp is -1 if the record has none.

    Partitions without such a record are left out. Partitions in which no record was found in time are left out too.
    """
    topic = Topic(source.topic, source.topic_id, len(starts))  # without partitions that were added meanwhile
    found = take_newest(
        deployment.cluster, topic, deployment.pipeline.group, topic.partitions, ends=starts, seconds=UNREAD_SECONDS
    )
    return {(topic.name, one.partition): -1 if one.timestamp is None else one.timestamp for one in found.records}


def facts_of_addition(deployment: Deployment, link: Batch, interval: Interval, output: Destination) -> PlanFacts:
    """Returns the facts for the plan of an addition that replays the quarantined records of `link`, a batch or
    addition.

    Raises:
        NeedsOperator: the quarantine topic no longer has all of the records to replay.
    """
    planned = link.require_quarantine
    read = TopicInput(
        topic=planned.topic, topic_id=planned.topic_id, ranges=link.quarantine_ranges(link.require_written)
    )
    stopped = quarantine_obstacle(
        link, read, source_state(deployment, read, topic_or_none(deployment.cluster, read.topic), None)
    )
    if stopped is not None:
        raise stopped.error(link)
    return _facts(deployment, Neighbours(), (), link, interval, output)


def _facts(
    deployment: Deployment,
    near: Neighbours,
    sources: tuple[SourceFacts, ...],
    link: Batch | None,
    interval: Interval,
    output: Destination,
) -> PlanFacts:
    """Returns the present facts for a plan with these sources or this link. It creates missing topics."""
    pipeline, digests = deployment.pipeline, deployment.pipeline.write_digests()
    now, staging = output.now()
    unkept = None
    try:
        output.check_keeps(interval)
    except NeedsOperator as error:
        unkept = error
    sets_apart = link is not None or pipeline.quarantines
    return PlanFacts(
        pipeline=pipeline.name,
        neighbours=near,
        sources=sources,
        reads=tuple(pipeline.source_topics),
        link=link,
        output=now,
        staging=staging,
        quarantine=_quarantine(deployment) if sets_apart else None,
        ledger_topic_id=deployment.ledger.topic_id,
        # Each source reads the quarantine topic by itself, so no row has a source partition of its own.
        layout=Layout.OUTPUT if link is not None and len(pipeline.sources) > 1 else pipeline.output.layout,
        lanes=pipeline.lanes,
        digests=digests,
        software=software(),
        output_format=pipeline.output.records.format,
        # After the ranges, because the schema of each record in them was registered before it was written.
        schemas=freeze_schemas(pipeline),
        now=utc_now(),
        clock=time.time_ns() // 1_000_000,
        unkept=unkept,
        cluster_id=deployment.cluster.id,
    )


def _quarantine(deployment: Deployment) -> TopicEnds:
    """Returns the pipeline's quarantine topic with its present ends, and creates the topic if it is missing."""
    topic = QuarantineTopic(deployment)
    topic.prepare()
    topic.check_keeps()
    return topic.now()


def _milliseconds(moment: datetime) -> int:
    """Returns the milliseconds since 1970 for Kafka's search by timestamp. The number is never negative, because
    negative numbers have other meanings.
    """
    return max(0, round(moment.timestamp() * 1000))


def planned_already(recorded: Recorded, interval: Interval) -> StepResult:
    """Returns the plan's result. It has the interval's batch, and says whether this step planned it."""
    view, batch, changed = recorded.view, recorded.last(interval), bool(recorded.changed)
    starved_by = view.starved_by(interval)
    offsets = batch.plan.offsets
    if changed:
        topics = describe_topics(batch.plan.source_topics)
        message = f"planned revision {batch.revision}: {count_of(offsets, 'offset')} of {topics}"
        if batch.plan.looked_back:
            message += f", and a look back at {count_of(batch.plan.offsets_looked_back, 'offset')}"
        if lost := batch.plan.looked_back_lost_note:
            message += f", without what had expired: {lost}"
    elif batch.state is State.PUBLISHED:
        message = f"already published, revision {batch.revision}"
    elif batch.state is State.SKIPPED:
        message = f"already skipped, revision {batch.revision}"
    else:
        message = f"revision {batch.revision} is {'planned already' if batch.state is State.PLANNED else batch.state}"
    if batch.adds_to is not None and not changed:
        message += f", an addition to revision {batch.adds_to}, which is published"
        message += "" if batch.state in PASSED else ". This run finishes the addition"
    details: dict[str, JsonValue] = {"offsets": offsets, "lane": batch.plan.lane, "lease": batch.lease}
    if batch.plan.looked_back:
        details["offsets_looked_back"] = batch.plan.offsets_looked_back
    if batch.plan.also_covers is not None:
        message += f". {batch.plan.coverage_note}"
        details["also_covers"] = str(batch.plan.also_covers)
    first_read = {one.topic for one in unread_at_plan(batch).topics if view.before(interval, one.topic) is None}
    before = Unread(tuple(one for one in unread(view).topics if one.topic in first_read))
    if before.offsets:
        message += f". {before.description}. {before.advice(batch.pipeline)}"
        details["unread"] = before.offsets
    if starved_by is not None:
        message += f". {_starved(view, starved_by)}"
        details["starved_by"] = str(starved_by.id)
    return StepResult.of("plan", batch, message, changed=changed, **details)


def _starved(view: View, by: Batch) -> str:
    """Returns the advice for an interval that has no offsets because a later interval was planned first."""
    when = by.interval
    remark = f"It has no records: the later interval {when} was planned first and begins at the same offsets. "
    if why_it_stays(view, when) is None:
        return (
            f"{remark}If {when} was a mistake, {by.command('withdraw', REASON)} removes it. Intervals that are "
            "planned afterwards then get their records"
        )
    return (
        f"{remark}The records of this interval are not lost: they are in {when}, which cannot be withdrawn, or in an interval "
        "planned after it"
    )
