"""Step four, advance, publishes a batch. No other step moves offsets. They are moved in one transaction with the
ledger.

A staged batch is first published to its output, after the record that its publication has begun. When it is complete,
the ledger records that the batch is published. Only `outputs/` knows the kinds of output.

Running the step twice is a no-op, because the ledger decides. Group offsets are for standard lag tools. Group offsets
expire, and every advance restores them from the ledger.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from confluent_kafka import TopicPartition
from pydantic import JsonValue
from pyspark.sql import SparkSession

from fencepost.config.pipeline import Pipeline
from fencepost.doctor.rights import denials_named
from fencepost.errors import (
    AccessDenied,
    FencepostError,
    KafkaRefused,
    NeedsOperator,
    ReceiptsDisagree,
    RecordRefused,
    SettingsError,
    TableRefused,
    TableRefusedData,
    TableUnavailable,
    TransactionTimedOut,
    TransitionRefused,
    TruncationsRefused,
    WriteFailed,
)
from fencepost.failpoints import reached
from fencepost.formats.framing import ExcludedKind
from fencepost.kafka.cluster import Cluster
from fencepost.kafka.offsets import committed_offsets
from fencepost.ledger.completeness import check_accounted_for
from fencepost.ledger.deployment import Deployment
from fencepost.ledger.ledger import Change, Ledger, Recorded
from fencepost.model import Batch, Decision, Interval, PartitionId, State, StepResult, utc_now
from fencepost.outputs.output import Ending, missing_of, output_of
from fencepost.protocol.advice import after_refusal, after_truncation, or_give_up, write_again
from fencepost.protocol.announcing import announcement, last_announced
from fencepost.protocol.decisions import PreparedBatch, decide_publish, decide_skip, to_publish
from fencepost.protocol.frontier import by_topic, frontier
from fencepost.protocol.obstacle import ObservedState
from fencepost.protocol.publication import record_refused, record_rejected
from fencepost.protocol.snapshot import snapshot_of
from fencepost.protocol.view import PASSED, View
from fencepost.spark.diagnosis import jvm_watched
from fencepost.steps.obstacle import check_can_go_on, give_up, give_up_if_stopped

log = logging.getLogger("fencepost.steps.advance")
F = TypeVar("F")
# What ends a publication that its output does not take. One that is away, or another attempt, is not among them.
REFUSALS = (RecordRefused, KafkaRefused, AccessDenied, SettingsError, TransactionTimedOut, TableRefused)


def advance_batch(
    pipeline: Pipeline,
    interval: Interval,
    decision: Decision | None = None,
    *,
    deployment: Deployment | None = None,
    spark: Callable[[], SparkSession] | None = None,
) -> StepResult:
    """Publishes the interval's newest revision and moves the frontier. It does nothing if both are done.

    A `decision` publishes a rejected batch too. `spark` gives the session for a staged batch that is too large for one
    transaction. Without `spark` a session is started.

    1. decide that the batch is published. A batch that is written to its output already is published by this decision;
    2. publish a staged batch to its output, as far as no earlier attempt has;
    3. record that it is published, which moves the frontier.

    Raises:
        TransitionRefused: receipts do not cover the plan, or the batch has not passed.
        TopicRecreated: a topic was deleted and created again since the batch was planned.
        NeedsOperator: staged records are gone.
        TruncationsRefused: the batch left out a truncation, which the settings refuse since it was written.
        TableRefusedData: the table does not accept the batch's rows. The batch is rejected.
    """
    deployment = deployment or Deployment.of(pipeline)
    result, batch = _begin(deployment, interval, decision)  # 1
    if batch.state is not State.PUBLISHING:
        return _with_missing_batches(deployment, result)
    finished = _finish(deployment, batch, spark or _own_session(pipeline))
    assert finished is not None
    return _with_missing_batches(deployment, finished)


def begin_batch(pipeline: Pipeline, interval: Interval, decision: Decision | None = None) -> StepResult:
    """Decides that the interval's newest revision is published, and does nothing more. A staged batch is then copied by
    advance.
    """
    return _begin(Deployment.of(pipeline), interval, decision)[0]


def advance_without_spark(
    pipeline: Pipeline, interval: Interval, decision: Decision | None = None, *, deployment: Deployment | None = None
) -> StepResult | None:
    """Returns the result of `advance_batch`. Returns None if Spark has to copy the batch. The batch's publication has
    begun by then.
    """
    deployment = deployment or Deployment.of(pipeline)
    result, batch = _begin(deployment, interval, decision)
    finished = _finish(deployment, batch, None) if batch.state is State.PUBLISHING else result
    return None if finished is None else _with_missing_batches(deployment, finished)


def _with_missing_batches(deployment: Deployment, result: StepResult) -> StepResult:
    """Returns the result, with the published batches that the output lacks. This interval is finished even if some are
    missing.
    """
    try:
        missing = missing_of(deployment)
    except TableUnavailable as error:
        log.warning(
            "pipeline %s: the output was not compared with the ledger: %s", deployment.pipeline.name, str(error)
        )
        return result
    if not missing:
        return result
    log.warning("pipeline %s: %s", deployment.pipeline.name, missing)
    return result.model_copy(
        update={
            "message": f"{result.message}. But {missing}",
            "details": {**result.details, "missing_batches": missing},
        }
    )


def skip_batch(pipeline: Pipeline, interval: Interval, decision: Decision) -> StepResult:
    """Lets the frontier pass an interval without its output, on an operator's decision. Skipping an addition drops only
    the addition.

    A publication to a topic that cannot go on is given up first. A publication to a table is given up too if it is not
    committed.

    Raises:
        TransitionRefused: the batch is published, or is being published to a topic that accepts it, or is committed to
            a table.
    """
    deployment = Deployment.of(pipeline)
    given_up = give_up_if_stopped(deployment, interval, decision)

    def skip(view: View, _: None) -> tuple[Batch, ...]:
        return decide_skip(view, interval, decision, given_up)

    return _commit(deployment, interval, lambda _: None, skip, "skipped")[0]


def _begin(deployment: Deployment, interval: Interval, decision: Decision | None) -> tuple[StepResult, Batch]:
    def gather(view: View) -> PreparedBatch | None:
        batch = to_publish(view, interval, decision)
        return None if batch is None else _prepare(deployment, batch)

    def publish(view: View, prepared: PreparedBatch | None) -> tuple[Batch, ...]:
        return decide_publish(view, interval, utc_now(), decision, prepared)

    result, batch = _commit(deployment, interval, gather, publish, "published")
    reached("advance.begun")
    return result, batch


def _prepare(deployment: Deployment, batch: Batch) -> PreparedBatch:
    """Checks the batch's topics, whose offsets are about to be published. The output of a staged batch is checked too."""
    check_can_go_on(deployment, batch)
    _check_truncations(deployment.pipeline, batch)
    return PreparedBatch(batch.id, output_of(deployment, batch).ready(batch) if batch.needs_publish_step else None)


def _check_truncations(pipeline: Pipeline, batch: Batch) -> None:
    """Checks the truncations that the batch left out when it was written. A current table may have been added since."""
    for source in pipeline.sources.values():
        counts = batch.require_written.sources.get(source.topic)
        left_out = counts.excluded.get(ExcludedKind.TRUNCATIONS, 0) if counts is not None else 0
        if left_out and (why := pipeline.why_truncations_fail(source)):
            raise TruncationsRefused(
                f"batch {batch.id}: it left out {left_out:,} {ExcludedKind.TRUNCATIONS.noun(left_out)} of the source table, "
                f"and {why}. {after_truncation(pipeline.output.current_table)}"
            )


def _finish(deployment: Deployment, batch: Batch, spark: Callable[[], SparkSession] | None) -> StepResult | None:
    """Publishes what is not published yet, and records it. Returns None if that needs Spark and there is no session."""
    try:
        return _finished(deployment, batch, spark)
    except TableUnavailable as error:
        raise TableUnavailable(f"{error} {or_give_up(batch)}") from error


def _finished(deployment: Deployment, batch: Batch, spark: Callable[[], SparkSession] | None) -> StepResult | None:
    began = time.monotonic()
    interval, output = batch.interval, output_of(deployment, batch)
    try:
        found = check_can_go_on(deployment, batch)
    except TableRefusedData as error:  # which an earlier attempt has closed, and not recorded
        _record_rejected(deployment.ledger, batch, error)
        raise
    ending = output.committed(batch, found)
    if ending is None:
        if spark is None and batch.require_publication.needs_spark:
            return None
        log.info("batch %s is published %s", batch.id, batch.require_publication.method)
        ending = _published(deployment, batch, found, spark)
    reached("advance.copied")
    seconds = round(time.monotonic() - began, 3)
    ended: Ending = ending

    def check(view: View) -> None:
        check_can_go_on(deployment, batch)

    return _commit(deployment, interval, check, lambda view, _: ended.records(view, seconds, utc_now()), "published")[0]


def _published(
    deployment: Deployment, batch: Batch, found: ObservedState, spark: Callable[[], SparkSession] | None
) -> Ending:
    """Returns the end of the publication.

    Raises:
        NeedsOperator: the staged records differ from those that were written, for good. The publication is given up.
        TableRefusedData: the table does not accept the rows. The batch is rejected.
        RecordRefused, KafkaRefused, AccessDenied, SettingsError, TransactionTimedOut, TableRefused: the output does not
            accept the batch. The ledger records that, and the next attempt tries again.
    """
    output = output_of(deployment, batch)
    session = spark() if spark is not None and batch.require_publication.needs_spark else None
    try:
        if session is None:
            return output.publish(batch, None)
        with denials_named(deployment.pipeline, deployment.cluster.settings), jvm_watched(f"batch {batch.id}, advance"):
            return output.publish(batch, session)
    except ReceiptsDisagree as error:
        give_up(deployment, batch, found)
        raise NeedsOperator(
            f"{error} Staged records were lost, or another program writes records with this batch's header to topic "
            f"{batch.plan.write_topic.topic}. {write_again(batch)}."
        ) from error
    except TableRefusedData as error:
        _record_rejected(deployment.ledger, batch, error)
        raise
    except REFUSALS as error:
        _record_refused(deployment.ledger, batch, str(error))
        raise type(error)(f"{error} {after_refusal(batch)}") from error
    except WriteFailed:
        check_can_go_on(deployment, batch)  # which says more, if that is why
        raise


def _record_rejected(ledger: Ledger, batch: Batch, error: TableRefusedData) -> None:
    """Records in the ledger that the table refused the batch's data. A person then decides about the batch."""
    lease = batch.require_publication.require_lease
    ledger.transact(
        lambda view: Change(record_rejected(view, batch.interval, batch.revision, lease, error.why, utc_now()))
    )


def _record_refused(ledger: Ledger, batch: Batch, why: str) -> None:
    """Records in the ledger why the publication was refused. An operator may then give it up."""
    lease = batch.require_publication.require_lease
    try:
        ledger.transact(
            lambda view: Change(record_refused(view, batch.interval, batch.revision, lease, why, utc_now()))
        )
    except FencepostError as error:  # the next attempt meets the refusal again, and records it then
        log.warning("batch %s: the ledger could not record that its output refused it: %s", batch.id, str(error))


def _own_session(pipeline: Pipeline) -> Callable[[], SparkSession]:
    def start() -> SparkSession:
        from fencepost.spark.session import build_session

        return build_session(pipeline, "advance")

    return start


def _commit(
    deployment: Deployment,
    interval: Interval,
    gather_facts: Callable[[View], F],
    transition: Callable[[View, F], tuple[Batch, ...]],
    word: str,
) -> tuple[StepResult, Batch]:
    """Gathers what a transition depends on (`gather_facts`) and the groups' offsets. Commits the transition with the
    offsets that it moves.
    """
    pipeline = deployment.pipeline

    def gather(view: View) -> tuple[F, Committed]:
        if view.last(interval) is None:
            raise TransitionRefused(
                f"pipeline {pipeline.name}: interval {interval} was never planned, so it holds nothing back and there is "
                f"nothing to decide. {interval.command('run', pipeline.name)} processes it; `fencepost status {pipeline.name}` "
                "lists the planned intervals."
            )
        return gather_facts(view), _offsets_now(deployment, view, interval)

    def decide(view: View, gathered: tuple[F, Committed]) -> Change:
        facts, have = gathered
        batches = transition(view, facts)
        after = view.updated(batches) if batches else view
        moves = _offsets_to_move(deployment, after, have)
        for begun in batches:
            if begun.publication is None or begun.publication.lease is not None:
                continue
            if (offsets := output_of(deployment, begun).offsets) is not None:
                moves |= offsets.opening_offsets(view, begun)
        return Change(batches, moves, after)

    reached("advance.deciding")
    recorded = deployment.ledger.decide(gather, decide)
    reached("advance.answered")
    batch, changed = recorded.last(interval), bool(recorded.changed)
    revision, publication = f"revision {batch.revision}", batch.publication
    snapshot = snapshot_of(recorded.view)
    if batch.adds_to is not None:
        revision += f", an addition to revision {batch.adds_to}"
    if not changed:
        done = f"already {batch.state}, {revision}"
    else:
        done = f"{'began to publish' if batch.state is State.PUBLISHING else word} {revision}"
        done += f", {publication.method}" if publication is not None else ""
    result = StepResult.of(
        "advance",
        batch,
        done,
        changed=changed,
        frontier={topic: dict(ends) for topic, ends in by_topic(frontier(recorded.view)).items()},
        frontier_time=snapshot.frontier_time.isoformat() if snapshot.frontier_time else None,
        verdict_final=snapshot.is_last_verdict_final,
        sources=dict(batch.rows_read),
        rows=batch.written.rows if batch.written else 0,
        quarantined=dict(batch.written.quarantined) if batch.written else {},
        published_at=batch.changed_at.isoformat(),
        method=publication.method if publication else None,
        adds_to=batch.adds_to,
        announcement=_announced(deployment.cluster, recorded, batch),
        **(publication.details if publication is not None else {}),
    )
    return result, batch


def _announced(cluster: Cluster, recorded: Recorded, batch: Batch) -> dict[str, JsonValue] | None:
    """Returns what was announced about the batch in its present state. This attempt may have announced it, or an
    earlier attempt that died before it could return the announcement.
    """
    for one in recorded.announced:
        if one.batch == str(batch.id):
            return one.json_value
    found = last_announced(recorded.view, batch) if batch.state in PASSED else None
    return announcement(recorded.view, found[0], cluster.id, found[1]).json_value if found else None


Committed = Mapping[str, Mapping[PartitionId, TopicPartition]]  # by group


def _offsets_now(deployment: Deployment, view: View, interval: Interval) -> Committed:
    """Returns the offsets of both groups. It asks about every partition that has offsets by the ledger, or whose offset
    a transition of this interval may move.
    """
    pipeline, batches = deployment.pipeline, view.known(interval).batches
    read = _moving_topics(pipeline, view)
    source = {*frontier(view), *(part.partition_id for batch in batches for part in batch.plan.ranges)}
    source = {place for place in source if place[0] in read}
    offsets = output_of(deployment).offsets
    output = offsets.validated_places(view, batches) if offsets is not None else set[PartitionId]()
    found: dict[str, Mapping[PartitionId, TopicPartition]] = {}
    for group, places in ((pipeline.group, source), (pipeline.validated_group, output)):
        asked, doing = [TopicPartition(*place) for place in sorted(places)], f"reading offsets of group {group}"
        found[group] = committed_offsets(deployment.cluster.settings, group, asked, doing) if asked else {}
    return found


def _offsets_to_move(deployment: Deployment, after: View, have: Committed) -> dict[str, list[TopicPartition]]:
    """Returns the offsets of both groups that differ from the offsets in the changed ledger. The ledger was read after
    the offsets.

    If another run moved offsets after these were read, `after` has that run's record. So no offset is moved back.

    Raises:
        LedgerLost: source offsets are ahead, so the ledger lacks the batches that moved them. Moving the offsets back
            would hide that.
    """
    pipeline = deployment.pipeline
    moves: dict[str, list[TopicPartition]] = {}
    read = _moving_topics(pipeline, after)
    ends_read = {place: end for place, end in frontier(after).items() if place[0] in read}
    wanted: dict[str, Mapping[PartitionId, int]] = {pipeline.group: ends_read}
    if (offsets := output_of(deployment).offsets) is not None:
        wanted[pipeline.validated_group] = offsets.validated(after)
    for group, ends in wanted.items():
        if group == pipeline.group:
            for topic in read:
                check_accounted_for(pipeline, after, topic, have[group])
        behind = [
            TopicPartition(*place, end) for place, end in sorted(ends.items()) if not _is_at(have[group], place, end)
        ]
        if behind:
            moves[group] = behind
    return moves


def _moving_topics(pipeline: Pipeline, view: View) -> tuple[str, ...]:
    """Returns the source topics whose offsets move: those of the newest interval that the pipeline still reads. Another topic
    may be deleted, and Kafka refuses every commit that has an offset of a deleted topic.
    """
    newest = view.newest.plan.source_topics if view.newest is not None else ()
    return tuple(topic for topic in newest if topic in pipeline.source_topics)


def _is_at(have: Mapping[PartitionId, TopicPartition], place: PartitionId, end: int) -> bool:
    found = have.get(place)
    return found is not None and found.offset == end
