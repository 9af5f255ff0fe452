"""A Kafka topic as the output. Several pipelines may write to the topic, so a record's header names its batch.

A staged batch is copied to the topic with the protocol of the writers (`copying.py`). So a batch is copied exactly
once, however many attempts there are. Under `publish: direct` a batch is written to the topic and judged in it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from fencepost.errors import SettingsError, Superseded, TopicMissing
from fencepost.kafka.writers import Offsets, mark_offsets
from fencepost.ledger.completeness import Named, newest_batches
from fencepost.model import (
    Batch,
    Interval,
    OffsetRange,
    PartitionId,
    Receipt,
    by_partition,
    describe_ranges,
    utc_now,
)
from fencepost.outputs.batch_topic import RecordTopic, read_named
from fencepost.outputs.output import Ending, OpenOutput
from fencepost.outputs.topic.copying import copy_here, copy_on_spark, publication_writers, seen_in_output
from fencepost.outputs.topic.publication import (
    CopyBeginning,
    CopyEnding,
    TopicState,
    copied_receipts,
    is_whole,
    opening_marks,
    validated_ends,
)
from fencepost.outputs.topic.settings import TopicSettings
from fencepost.outputs.topic.values import TopicOutput, TopicPublication
from fencepost.outputs.topic_settings import loss_reason, what_needs_keys
from fencepost.protocol.advice import run_from
from fencepost.protocol.frontier import of_topic
from fencepost.protocol.obstacle import AbandonedPublication, ObservedState
from fencepost.protocol.ranges import without_expired
from fencepost.protocol.view import View

log = logging.getLogger("fencepost.outputs.topic")
MEGABYTE = 1_000_000


class KafkaTopicOutput(RecordTopic):
    """An `Output` that is a topic."""

    role = "output"
    columns = None  # a topic accepts whatever the format accepts
    current = None
    contents = None  # not compared with the ledger: records may be missing because of the topic's retention

    @property
    def topics(self) -> tuple[RecordTopic, ...]:
        """Returns the topic."""
        return (self,)

    @property
    def offsets(self) -> KafkaTopicOutput:
        """Returns the output itself, which commits the marks of a publication and the offsets of group
        `<pipeline>.validated`.
        """
        return self

    @property
    def _set(self) -> TopicSettings:
        """Returns the settings of the pipeline's output.

        Raises:
            SettingsError: the output is no longer a topic.
        """
        settings = self._pipeline.output
        if not isinstance(settings, TopicSettings):
            raise SettingsError(f"pipeline {self._pipeline.name}: its output is {settings.description}, not a topic.")
        return settings

    def prepare(self) -> str:
        """Creates the topic if it is missing. Returns its id."""
        self._known = self._cluster.ensure_topic(self._name, self._pipeline.output.partitions)
        return self._known.id

    def planned(self) -> TopicOutput:
        """Returns the topic's present id and ends, and whether its records have headers and timestamps."""
        settings, now = self._set, self.now()
        return TopicOutput(
            topic=now.topic,
            topic_id=now.topic_id,
            ends=now.ends,
            batch_header=settings.batch_header,
            headers=settings.headers is not None,
            timestamps=settings.timestamp is not None,
        )

    def newest_batches(self) -> Iterator[Named]:
        """Returns the batches of this pipeline that own the newest records of each partition."""
        return newest_batches(self._deployment, self._topic)

    def check_takes(self, batch: Batch) -> None:
        """Does the check of `check_keeps` before the publication of a staged batch, because the topic's settings may
        have changed.
        """
        self.check(batch.interval, f"Nothing is published. Then {run_from(batch, 'advance')} publishes the batch.")

    def refusal(self, settings: Mapping[str, str], interval: Interval) -> str | None:
        """Returns why a topic with these settings would refuse the records or delete them too early. The answer depends
        on the pipeline's settings: keys, timestamps, and whether records are judged in this topic.
        """
        own = self._set
        if own.key is None and (refused := what_needs_keys(settings)):
            return refused
        return loss_reason(settings, interval, utc_now(), stamped=own.timestamp is not None, judged=not own.is_staged)

    def read_back(self, spark: SparkSession, batch: Batch) -> DataFrame:
        """Returns the records in the batch's ranges that name the batch, as far as their offsets still exist."""
        kept, _ = self._kept_and_deleted(batch)
        return read_named(spark, self._deployment.cluster.settings, kept, str(batch.id))

    def validated(self, view: View) -> Mapping[PartitionId, int]:
        """Returns the ends of validated records in this topic. Committed offsets of other topics, from earlier
        settings, do not change.
        """
        return {(self._name, partition): end for partition, end in of_topic(validated_ends(view), self._name).items()}

    def validated_places(self, view: View, batches: Sequence[Batch]) -> set[PartitionId]:
        """Returns the topic's partitions that have validated records, or that one of these batches was planned with."""
        planned = (b.plan.output for b in batches)
        places = {(self._name, p) for o in planned if isinstance(o, TopicOutput) for p in range(len(o.ends))}
        return {*self.validated(view)} | places

    def _ranges(self, batch: Batch) -> tuple[OffsetRange, ...]:
        return batch.published_ranges

    def _names_batches(self, batch: Batch) -> bool:
        """Returns whether the batch's records have the header that names it."""
        return batch.plan.output_as(TopicOutput).batch_header

    def _id_then(self, batch: Batch) -> str:
        """Returns the id that the topic had when the batch was written or copied to it."""
        return (
            batch.publication_as(TopicPublication).begun if batch.is_staged else batch.plan.output_as(TopicOutput)
        ).topic_id

    def ready(self, batch: Batch) -> CopyBeginning:
        """Returns the beginning of a copy at the topic's present end."""
        self.check_takes(batch)
        return CopyBeginning(self.now(), self._deployment.ledger.topic_id, self._set.atomic_megabytes * MEGABYTE)

    def opening_offsets(self, view: View, batch: Batch) -> Offsets:
        """Returns the opening marks of the batch's publication."""
        publication = batch.publication_as(TopicPublication)
        group, receipts = self._pipeline.publisher_group(publication.lane), opening_marks(view, publication)
        return mark_offsets(group, batch.plan.output_as(TopicOutput).topic, receipts)

    def state(self, batch: Batch, *, publishing: bool) -> TopicState:
        """Returns the topic's present id, and the marks of the batch's publication."""
        try:
            topic_id = self.identity()
        except TopicMissing:
            topic_id = ""
        if not publishing:
            return TopicState(topic_id)
        marks = publication_writers(self._deployment, batch).found_marks()
        return TopicState(topic_id, marks, self._unverifiable_reason(batch) if None in marks and topic_id else "")

    def _unverifiable_reason(self, batch: Batch) -> str:
        """Returns why the topic cannot show what was copied. The text is empty if it can, or if nothing was written to
        it since the publication began.
        """
        topic, begun = self._topic, batch.publication_as(TopicPublication).begun
        ends = self._cluster.high_watermarks(topic)
        starts = [*begun.ends, *[0] * topic.partitions][: topic.partitions]
        if ends == starts:
            return ""
        written = [
            OffsetRange(topic=topic.name, partition=p, start=s, end=max(s, e))
            for p, (s, e) in enumerate(zip(starts, ends, strict=True))
        ]
        if not batch.plan.output_as(TopicOutput).batch_header:
            return "its records have no header (output.batch_header: false)"
        if expired := without_expired(written, by_partition(topic.name, self._cluster.earliest(topic)))[1]:
            return f"output topic {topic.name} no longer has {describe_ranges(expired)}"
        return f"output topic {topic.name} is compacted" if self.is_compacted() else ""

    def committed(self, batch: Batch, found: ObservedState) -> Ending | None:
        """Returns the end of the publication if the marks show that all of it is copied, otherwise None."""
        receipts = copied_receipts(batch.publication_as(TopicPublication), _state(found).marks)
        return None if receipts is None else self._ending(batch, receipts)

    def publish(self, batch: Batch, spark: SparkSession | None) -> Ending:
        """Copies the batch. If an earlier attempt has copied a task-partition, its receipt comes from its mark."""
        if spark is None:
            return self._ending(batch, copy_here(self._deployment, batch))
        return self._ending(batch, copy_on_spark(spark, self._deployment, batch))

    def _ending(self, batch: Batch, receipts: Sequence[Receipt]) -> CopyEnding:
        ends = KafkaTopicOutput(
            self._deployment, self._name
        ).now()  # asked after every commit, so they are behind the whole batch
        return CopyEnding(batch, tuple(receipts), ends)

    def restore_marks(self, batch: Batch, found: ObservedState) -> bool:
        """Restores lost marks from the records in the topic. A mark is lost if its group was deleted or has expired.
        Returns whether any mark was lost.
        """
        marks = _state(found).marks
        if None not in marks:
            return False
        deployment, publication, topic = self._deployment, batch.publication_as(TopicPublication), self._name
        writers = publication_writers(deployment, batch)

        def stood_for(task: int) -> Receipt:
            view = deployment.ledger.read()
            now = view.last(batch.interval)
            if now is None or now.publication_under(publication.require_lease) is None:
                raise Superseded(f"batch {batch.id}: its publication has ended, so this attempt copies nothing more.")
            seen = seen_in_output(deployment, batch, task)
            log.warning(
                "batch %s: the mark of task-partition %d is gone; the output has %d of its records",
                batch.id,
                task,
                seen.rows,
            )
            if not seen.rows:
                return opening_marks(view, publication)[task]
            return Receipt(task=task, ledger=publication.ledger, lease=publication.require_lease, topics={topic: seen})

        for task in (task for task, mark in enumerate(marks) if mark is None):
            writers.restore(task, stood_for)
        return True

    def give_up(self, batch: Batch, found: ObservedState) -> AbandonedPublication | None:
        """Ends a copy that cannot go on, so that no later attempt copies more of the batch. Returns None if the whole
        batch is copied.

        1. restore lost marks from what readers see;
        2. give every task-partition a mark of this publication, which is empty if the task-partition has not committed;
        3. count what has committed, because readers may have seen it.

        If the topic is gone, its marks are gone too. A late attempt does not find its mark, and stops.
        """
        publication, writers = batch.publication_as(TopicPublication), publication_writers(self._deployment, batch)
        state = _state(found)
        written, tasks = batch.require_written, range(publication.tasks)
        known = publication.ledger == found.ledger_topic_id and publication.begun.topic_id == state.topic_id
        if not state.topic_id:
            for task in tasks:
                writers.fence(task)
            receipts: list[Receipt] = []
        else:
            if known and None in state.marks:
                known = not state.unverifiable_reason
                if known:
                    self.restore_marks(batch, found)  # 1
            receipts = [writers.close(task) for task in tasks]  # 2
        if known and is_whole(batch, receipts):
            return None
        seen = sum(r.tally(self._name).rows for r in receipts) if known else written.rows  # 3
        log.info("batch %s: its publication is given up after %d of %d records", batch.id, seen, written.rows)
        return AbandonedPublication(lease=publication.require_lease, seen=seen)


def _state(found: ObservedState) -> TopicState:
    """Returns the observed state of the topic."""
    assert isinstance(found.output, TopicState), "a batch's state is observed at its own output"
    return found.output


OUTPUT: OpenOutput = KafkaTopicOutput
