"""Copies a staged batch to its output topic, and finds what readers see of the copy.

The copy uses the protocol of the writers. A task-partition's id is fenced, its mark is read, and its records and mark
are committed together. So every task-partition is copied once, however many attempts copy it. Up to
`output.atomic_megabytes` the batch is one task-partition, which this process copies in one transaction. Above that each
staging partition is a task-partition, which Spark copies.
"""

from __future__ import annotations

import secrets
from functools import partial

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from fencepost.config.pipeline import Pipeline
from fencepost.errors import FencepostError, WriteFailed
from fencepost.kafka.staged import read_published, read_staged
from fencepost.kafka.writers import Writers
from fencepost.ledger.deployment import Deployment
from fencepost.model import TIMESTAMP_HEADER, Batch, Receipt, Tally, between
from fencepost.outputs.batch_topic import staged_records
from fencepost.outputs.topic.values import TopicOutput, TopicPublication
from fencepost.rows.fingerprint import fingerprint_hash
from fencepost.rows.run_writers import run_writers
from fencepost.rows.writer import WriteJob, added, write_partition
from fencepost.spark.diagnosis import HOW_TO_SEE, common_failure, describe

# A publication goes on as it began: what the settings say now is for those that begin later.
SHORTER = ", and lower output.atomic_megabytes for batches whose publication begins later"


def publication_writers(deployment: Deployment, batch: Batch) -> Writers:
    """Returns the writers that may copy a batch that is being published."""
    pipeline, publication = deployment.pipeline, batch.publication_as(TopicPublication)
    tasks = range(publication.tasks)
    return Writers(
        settings=deployment.cluster.settings,
        batch=str(batch.id),
        ledger=publication.ledger,
        lease=publication.require_lease,
        group=pipeline.publisher_group(publication.lane),
        transactional_ids=tuple(pipeline.publisher_id(publication.lane, t) for t in tasks),
        marks=tuple((batch.plan.output_as(TopicOutput).topic, t, 0) for t in tasks),
        opened=True,
        failpoint="publish",
        shorter=SHORTER if publication.atomic else "",
    )


def seen_in_output(deployment: Deployment, batch: Batch, task: int) -> Tally:
    """Returns which records of one of the copy's task-partitions readers see in the output: all or none. It waits for open
    transactions.

    The result is sound while no other writer can commit under the task-partition's id.

    Raises:
        OpenTransaction: another producer's open transaction hides part of the output.
    """
    publication, limit = (
        batch.publication_as(TopicPublication),
        deployment.pipeline.quality.open_transaction_wait_seconds,
    )
    topic = deployment.cluster.describe(publication.begun.topic)
    ends = deployment.cluster.high_watermarks(topic)
    doing = f"batch {batch.id}: looking for what is copied"
    deployment.cluster.await_stable(topic, ends, limit, doing)
    ranges = between(publication.begun, publication.begun.model_copy(update={"ends": tuple(ends)}))
    own = ranges if publication.atomic else [r for r in ranges if r.partition == task]
    found = Tally()
    for rows in read_published(deployment.cluster.settings, deployment.pipeline.group, own, str(batch.id)):
        found = added(found, rows)
    return found


def copy_job(deployment: Deployment, batch: Batch) -> WriteJob:
    """Returns the job that copies a batch that is being published."""
    publication, output = batch.publication_as(TopicPublication), batch.plan.output_as(TopicOutput)
    return WriteJob(
        writers=publication_writers(deployment, batch),
        topic=output.topic,
        to_own_partition=not publication.atomic,
        batch_header=output.batch_header,
        nonce=secrets.token_hex(16),
        promised=batch.require_written.tally if publication.tasks == 1 else None,
    )


def copy_here(deployment: Deployment, batch: Batch) -> tuple[Receipt, ...]:
    """Copies a batch that is published in one transaction, and returns its receipt. The receipt is an earlier attempt's
    if that attempt has committed.
    """
    ranges = batch.output_ranges(batch.require_written)
    records = read_staged(deployment.cluster.settings, deployment.pipeline.group, ranges, batch)
    receipt, _ = write_partition(copy_job(deployment, batch), 0, records)
    return (receipt,)


def copy_on_spark(spark: SparkSession, deployment: Deployment, batch: Batch) -> tuple[Receipt, ...]:
    """Copies a batch with a task-partition for each staging partition. Returns the receipts of all task-partitions.

    Raises:
        WriteFailed: the job failed. Task-partitions that have committed are kept, and the next attempt finds them.
    """
    job, ranges = copy_job(deployment, batch), batch.output_ranges(batch.require_written)
    output = batch.plan.output_as(TopicOutput)
    raw = staged_records(spark, deployment.cluster.settings, batch, ranges, headers=output.headers or output.timestamps)
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
    failure = partial(copy_failure, pipeline=deployment.pipeline, batch=batch, nonce=job.nonce)
    return tuple(run_writers(records, job, {r: r.partition for r in ranges}, failure).receipts)


def copy_failure(error: Exception, pipeline: Pipeline, batch: Batch, nonce: str) -> FencepostError:
    """Returns why the copy of a staged batch failed."""
    return common_failure(error, str(batch.id), nonce) or WriteFailed(
        f"batch {batch.id}: the Spark job that publishes it failed: {describe(error, pipeline.folder)}. What had not "
        f"committed is aborted; run again. {HOW_TO_SEE}."
    )
