"""The copy of a staged batch to its output, between the two records of its publication.

A task-partition of the copy is written by the writers' own protocol: its id is fenced, its mark read, records and mark commit
together. So it is copied once, whoever copies it and however often. Up to `output.atomic_megabytes` the batch is one
task-partition, which this process copies in one transaction; above that each staging partition is one, which Spark copies.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Sequence
from contextlib import suppress

from confluent_kafka import TopicPartition
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from fencepost.config.pipeline import Pipeline
from fencepost.errors import FencepostError, WriteFailed
from fencepost.kafka.staged import read_staged
from fencepost.ledger.ledger import Ledger
from fencepost.model import TIMESTAMP_HEADER, Batch, Receipt, Tally, between
from fencepost.outputs.topic import is_of
from fencepost.protocol.marks import mark_metadata
from fencepost.spark.diagnosis import HOW_TO_SEE, describe, find_carried, how_the_jvm_ended
from fencepost.spark.fingerprint import fingerprint_hash
from fencepost.spark.source import read_ranges, task_ranges
from fencepost.spark.writer import (
    ANSWER_SCHEMA,
    TASKS,
    WriterTask,
    added,
    write_partition,
    writer_of,
)

log = logging.getLogger("fencepost.steps.publish")

# A publication goes on as it began: what the settings say now is for those that begin later.
SHORTER = ", and lower output.atomic_megabytes for batches whose publication begins later"


def publication_task(ledger: Ledger, batch: Batch) -> WriterTask:
    """What a process needs to copy a batch that is being published. Holds secrets."""
    pipeline, publication, written = ledger.pipeline, batch.known_publication, batch.known_written
    tasks, output = range(publication.tasks), batch.plan.output
    return WriterTask(
        settings=ledger.settings,
        batch=str(batch.id),
        ledger=publication.ledger,
        lease=publication.known_lease,
        topic=output.topic,
        group=pipeline.publisher_group(publication.lane),
        transactional_ids=tuple(pipeline.publisher_id(publication.lane, t) for t in tasks),
        marks=tuple((output.topic, t, 0) for t in tasks),
        to_own_partition=not publication.atomic,
        batch_header=output.batch_header,
        nonce=secrets.token_hex(16),
        promised=written.tally if publication.tasks == 1 else None,
        opened=True,
        failpoint="publish",
        shorter=SHORTER if publication.atomic else "",
    )


def publishing_marks(pipeline: Pipeline, batch: Batch, receipts: Sequence[Receipt]) -> dict[str, list[TopicPartition]]:
    """The marks of a batch's publication that say these receipts, by group: for the transaction that begins it."""
    group, topic = pipeline.publisher_group(batch.known_publication.lane), batch.plan.output.topic
    return {group: [TopicPartition(topic, r.task, 0, metadata=mark_metadata(r)) for r in receipts]}


def seen_in_output(ledger: Ledger, batch: Batch, task: int) -> Tally:
    """What readers see in the output of a task-partition of the copy, all of it or nothing; waits for open transactions.

    Sound while nobody else can commit under the task-partition's id.

    Raises:
        OpenTransaction: another producer's open transaction hides part of the output.
    """
    publication, limit = batch.known_publication, ledger.pipeline.quality.open_transaction_wait_seconds
    topic = ledger.cluster.describe(publication.begun.topic)
    ends = ledger.cluster.high_watermarks(topic)
    doing = f"batch {batch.id}: looking for what is copied"
    ledger.cluster.await_stable(topic, ends, limit, doing)
    ranges = between(publication.begun, publication.begun.model_copy(update={"ends": tuple(ends)}))
    own = ranges if publication.atomic else [r for r in ranges if r.partition == task]
    found = Tally()
    for rows in read_staged(ledger.settings, ledger.pipeline.group, topic.name, own, str(batch.id)):
        found = added(found, rows)
    return found


def copy_here(ledger: Ledger, batch: Batch) -> tuple[Receipt, ...]:
    """Copy a batch that is published in one transaction; its receipt, from an earlier attempt where that was faster."""
    written = batch.known_written
    topic, ranges = written.output.topic, batch.output_ranges(written)
    records = read_staged(ledger.settings, ledger.pipeline.group, topic, ranges, str(batch.id))
    receipt, _ = write_partition(publication_task(ledger, batch), 0, records)
    return (receipt,)


def copy_on_spark(spark: SparkSession, ledger: Ledger, batch: Batch) -> tuple[Receipt, ...]:
    """Copy a batch by its staging partitions, each a task-partition; the receipts of all.

    Raises:
        WriteFailed: the job failed; what has committed stays, and the next attempt finds it.
    """
    written = batch.known_written
    job, ranges = publication_task(ledger, batch), batch.output_ranges(written)
    raw = read_ranges(spark, ledger.settings, written.output.topic, ranges, headers=True).where(is_of(batch))
    # The writer has put a record's own timestamp, if there is one, before the batch's header, and both behind all others.
    stamp = F.try_element_at("headers", F.lit(-2))
    is_stamped = F.coalesce(stamp["key"] == TIMESTAMP_HEADER, F.lit(False))
    ours = F.when(is_stamped, 2).otherwise(1)
    records = raw.select(
        "key",
        "value",
        F.when(is_stamped, stamp["value"].cast("string").cast("long"))
        .otherwise(F.unix_millis("timestamp"))
        .alias("timestamp"),
        F.slice("headers", F.lit(1), F.size("headers") - ours).alias("headers"),
        F.expr(fingerprint_hash()).alias("hash"),
    )
    answered = records.mapInArrow(writer_of(job), ANSWER_SCHEMA)
    tasks = [r.partition for r in task_ranges(answered) or ()]
    spark.sparkContext.setLocalProperty(TASKS, json.dumps(tasks))
    try:
        return tuple(Receipt.model_validate_json(a["receipt"]) for a in answered.collect())
    except Exception as error:
        raise _cause(error, ledger, batch, job.nonce) from error
    finally:
        with suppress(Exception):  # a JVM that died has none
            spark.sparkContext.setLocalProperty(TASKS, None)  # type: ignore[arg-type]  # which removes it


def _cause(error: Exception, ledger: Ledger, batch: Batch, nonce: str) -> FencepostError:
    """What really failed: Spark wraps a task's error in its own, text only."""
    if how_the_jvm_ended(error):
        return WriteFailed(f"batch {batch.id}: the driver died.")  # `jvm_watched` says it
    ours = find_carried(str(error), nonce)
    if ours is not None:
        return ours if str(batch.id) in str(ours) else type(ours)(f"batch {batch.id}: {ours}")
    return WriteFailed(
        f"batch {batch.id}: the Spark job that publishes it failed: {describe(error, ledger.pipeline.folder)}. What had not "
        f"committed is aborted; run again. {HOW_TO_SEE}."
    )
