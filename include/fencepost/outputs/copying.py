"""The output as a topic that staged batches are copied to.

A task-partition of the copy is written by the writers' own protocol: its id is fenced, its mark read, records and mark commit
together. So it is copied once, whoever copies it and however often. Up to `output.atomic_megabytes` the batch is one
task-partition, which this process copies in one transaction; above that each staging partition is one, which Spark copies.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from functools import partial
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from fencepost.errors import FencepostError, Superseded, TopicMissing, WriteFailed
from fencepost.kafka.staged import read_staged
from fencepost.kafka.writers import Offsets, mark_offsets
from fencepost.ledger.ledger import Ledger
from fencepost.model import TIMESTAMP_HEADER, Batch, OffsetRange, Receipt, by_partition, describe_ranges, utc_now
from fencepost.outputs.publication import Begin, Record, publication_writers, seen_in_output
from fencepost.outputs.topic import KafkaTopicOutput, staged_records
from fencepost.protocol.obstacle import Found, GivenUp, copied_receipts, is_whole
from fencepost.protocol.publication import begin_publication, opening_marks, record_copied
from fencepost.protocol.ranges import without_expired
from fencepost.protocol.view import View
from fencepost.spark.diagnosis import HOW_TO_SEE, describe, of_any_job
from fencepost.spark.fingerprint import fingerprint_hash
from fencepost.spark.run_writers import run_writers
from fencepost.spark.writer import WriteJob, write_partition

log = logging.getLogger("fencepost.outputs.copying")
MEGABYTE = 1_000_000


class PublishedTopic(KafkaTopicOutput):
    """An `Output` that is a topic, with all that publishes a staged batch there."""

    def ready(self, batch: Batch) -> Begin:
        """The copy begins where the topic ends now."""
        self.check_takes(batch)
        now, atomic = self.now(), self._pipeline.topic_output.atomic_megabytes * MEGABYTE
        return lambda view, batch: begin_publication(view, batch, now, self._ledger.topic_id, atomic, utc_now())

    def opening_offsets(self, view: View, batch: Batch) -> Offsets:
        """The marks that a publication begins with."""
        publication = batch.copy_to_topic
        group, receipts = self._pipeline.publisher_group(publication.lane), opening_marks(view, publication)
        return mark_offsets(group, batch.plan.topic.topic, receipts)

    def found(self, batch: Batch, *, publishing: bool) -> dict[str, Any]:
        """Its id, and the marks of a publication."""
        try:
            topic_id = self.identity()
        except TopicMissing:
            topic_id = ""
        found: dict[str, Any] = {"output_topic_id": topic_id}
        if publishing:
            marks = publication_writers(self._ledger, batch).found_marks()
            found |= {"marks": marks, "untold": self._untold(batch) if None in marks and topic_id else ""}
        return found

    def _untold(self, batch: Batch) -> str:
        """Why the topic cannot tell what was copied; empty where it can, as long as nothing has been written there at all."""
        topic, begun = self._topic, batch.copy_to_topic.begun
        ends = self._cluster.high_watermarks(topic)
        starts = [*begun.ends, *[0] * topic.partitions][: topic.partitions]
        if ends == starts:
            return ""
        written = [
            OffsetRange(topic=topic.name, partition=p, start=s, end=max(s, e))
            for p, (s, e) in enumerate(zip(starts, ends, strict=True))
        ]
        if not batch.plan.topic.batch_header:
            return "its records have no header (output.batch_header: false)"
        if expired := without_expired(written, by_partition(topic.name, self._cluster.earliest(topic)))[1]:
            return f"output topic {topic.name} no longer has {describe_ranges(expired)}"
        return f"output topic {topic.name} is compacted" if self.is_compacted() else ""

    def needs_spark(self, batch: Batch) -> bool:
        """What is too large for one transaction."""
        return not batch.copy_to_topic.atomic

    def committed(self, batch: Batch, found: Found) -> Record | None:
        """By the marks of the copy."""
        receipts = copied_receipts(batch.copy_to_topic, found.marks)
        return None if receipts is None else self._record(batch, receipts)

    def publish(self, batch: Batch, spark: SparkSession | None) -> Record:
        """Copy the batch; receipts come from earlier attempts where those were faster."""
        if spark is None:
            return self._record(batch, copy_here(self._ledger, batch))
        return self._record(batch, copy_on_spark(spark, self._ledger, batch))

    def _record(self, batch: Batch, receipts: Sequence[Receipt]) -> Record:
        ended = PublishedTopic(self._ledger, self._name).now()  # behind every commit, so all of the batch lies below
        known = (batch.interval, batch.revision, batch.copy_to_topic.known_lease, receipts, ended)
        return lambda view, seconds, now: record_copied(view, *known, seconds, now)

    def mend(self, batch: Batch, found: Found) -> bool:
        """Write the marks anew that are gone: an expired or deleted group had them. What they said, the topic tells."""
        if None not in found.marks:
            return False
        ledger, publication, topic = self._ledger, batch.copy_to_topic, self._name
        writers = publication_writers(ledger, batch)

        def stood_for(task: int) -> Receipt:
            view = ledger.read()
            now = view.last(batch.interval)
            if now is None or now.publication_under(publication.known_lease) is None:
                raise Superseded(
                    f"batch {batch.id}: its publication has ended meanwhile, so nothing of it is copied any more."
                )
            seen = seen_in_output(ledger, batch, task)
            log.warning("batch %s: mark %d is gone; its output has %d records of it", batch.id, task, seen.rows)
            if not seen.rows:
                return opening_marks(view, publication)[task]
            return Receipt(task=task, ledger=publication.ledger, lease=publication.known_lease, topics={topic: seen})

        for task in (task for task, mark in enumerate(found.marks) if mark is None):
            writers.restore(task, stood_for)
        return True

    def give_up(self, batch: Batch, found: Found) -> GivenUp | None:
        """End a copy that cannot go on, so that no attempt copies any more of it; None where all of it is copied after all.

        1. marks that are gone are written anew, from what readers see;
        2. every task-partition gets a mark of the publication, an empty one where none of it has committed;
        3. what had committed is counted: readers may have seen it.

        Where the topic is gone, its marks went with it. An attempt that comes late misses them, and stops.
        """
        publication, writers = batch.copy_to_topic, publication_writers(self._ledger, batch)
        written, tasks = batch.known_written, range(publication.tasks)
        known = publication.ledger == found.ledger_topic_id and publication.begun.topic_id == found.output_topic_id
        if not found.output_topic_id:
            for task in tasks:
                writers.fence(task)
            receipts: list[Receipt] = []
        else:
            if known and None in found.marks:
                known = not found.untold
                if known:
                    self.mend(batch, found)  # 1
            receipts = [writers.close(task) for task in tasks]  # 2
        if known and is_whole(batch, receipts):
            return None
        seen = sum(r.tally(self._name).rows for r in receipts) if known else written.rows  # 3
        log.info("batch %s: its publication is given up after %d of %d records", batch.id, seen, written.rows)
        return GivenUp(lease=publication.known_lease, seen=seen)


def copy_job(ledger: Ledger, batch: Batch) -> WriteJob:
    """The job that copies a batch that is being published."""
    publication, output = batch.copy_to_topic, batch.plan.topic
    return WriteJob(
        writers=publication_writers(ledger, batch),
        topic=output.topic,
        to_own_partition=not publication.atomic,
        batch_header=output.batch_header,
        nonce=secrets.token_hex(16),
        promised=batch.known_written.tally if publication.tasks == 1 else None,
    )


def copy_here(ledger: Ledger, batch: Batch) -> tuple[Receipt, ...]:
    """Copy a batch that is published in one transaction; its receipt, from an earlier attempt where that was faster."""
    ranges = batch.output_ranges(batch.known_written)
    records = read_staged(ledger.settings, ledger.pipeline.group, ranges, batch)
    receipt, _ = write_partition(copy_job(ledger, batch), 0, records)
    return (receipt,)


def copy_on_spark(spark: SparkSession, ledger: Ledger, batch: Batch) -> tuple[Receipt, ...]:
    """Copy a batch by its staging partitions, each a task-partition; the receipts of all.

    Raises:
        WriteFailed: the job failed; what has committed stays, and the next attempt finds it.
    """
    job, ranges = copy_job(ledger, batch), batch.output_ranges(batch.known_written)
    output = batch.plan.topic
    raw = staged_records(spark, ledger.settings, batch, ranges, headers=output.headers or output.timestamps)
    # The writer has put a row's own timestamp, if it has one, behind all other headers.
    last = F.try_element_at("headers", F.lit(-1))
    is_stamped = F.coalesce(last["key"] == TIMESTAMP_HEADER, F.lit(False))
    stamp = F.when(is_stamped, last["value"].cast("string").cast("long")).alias("timestamp")
    others = F.when(is_stamped, F.slice("headers", F.lit(1), F.size("headers") - 1)).otherwise(F.col("headers"))
    records = raw.select(
        "key",
        "value",
        F.expr(fingerprint_hash()).alias("hash"),
        *([stamp] if output.timestamps else []),
        *([others.alias("headers")] if output.headers else []),
    )
    failure = partial(copy_failure, ledger=ledger, batch=batch, nonce=job.nonce)
    return tuple(run_writers(records, job, {r: r.partition for r in ranges}, failure).receipts)


def copy_failure(error: Exception, ledger: Ledger, batch: Batch, nonce: str) -> FencepostError:
    """Why the copy of a staged batch failed."""
    return of_any_job(error, str(batch.id), nonce) or WriteFailed(
        f"batch {batch.id}: the Spark job that publishes it failed: {describe(error, ledger.pipeline.folder)}. What had not "
        f"committed is aborted; run again. {HOW_TO_SEE}."
    )
