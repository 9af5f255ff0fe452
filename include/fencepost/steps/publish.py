"""The copy of a staged batch to its output, between the two records of its publication; and its end where it cannot go on.

A task-partition of the copy is written by the writers' own protocol: its id is fenced, its mark read, records and mark commit
together. So it is copied once, whoever copies it and however often. Up to `output.atomic_megabytes` the batch is one
task-partition, which this process copies in one transaction; above that each staging partition is one, which Spark copies.
"""

from __future__ import annotations

import json
import logging
import secrets
from contextlib import suppress

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from fencepost.errors import FencepostError, NeedsOperator, WriteFailed
from fencepost.kafka.staged import read_staged
from fencepost.ledger.ledger import Ledger
from fencepost.model import TIMESTAMP_HEADER, Batch, Publication, Receipt, describe_ranges, utc_now
from fencepost.outputs.topic import is_of
from fencepost.protocol.publication import GivenUp, is_whole, marks_may_be_gone
from fencepost.spark.diagnosis import HOW_TO_SEE, describe, find_carried, how_the_jvm_ended
from fencepost.spark.fingerprint import fingerprint_hash
from fencepost.spark.source import read_ranges, task_ranges
from fencepost.spark.writer import (
    ANSWER_SCHEMA,
    TASKS,
    WriterTask,
    close_partition,
    committed_receipts,
    write_partition,
    writer_of,
)
from fencepost.steps.topics import same_topics

log = logging.getLogger("fencepost.steps.publish")

# A publication goes on as it began: what the settings say now is for those that begin later.
SHORTER = ", and lower output.atomic_megabytes for batches whose publication begins later"


def publication_task(ledger: Ledger, batch: Batch) -> WriterTask:
    """What a process needs to copy a batch that is being published. Holds secrets."""
    pipeline, publication, written = ledger.pipeline, _publication(batch), batch.written
    assert written is not None
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
        failpoint="publish",
        shorter=SHORTER if publication.atomic else "",
    )


def copied_receipts(ledger: Ledger, batch: Batch) -> list[Receipt] | None:
    """The receipts of the copy, where its marks say that all of it has ended; else None."""
    return committed_receipts(publication_task(ledger, batch))


def check_may_go_on(ledger: Ledger, batch: Batch) -> None:
    """A copy that is not whole may be gone on with: its marks are sure to be there, and so are its staged records.

    Raises:
        TopicRecreated, NeedsOperator: it may not.
    """
    kept_for = ledger.cluster.marks_kept_for()
    if marks_may_be_gone(_publication(batch), utc_now(), kept_for):
        raise NeedsOperator(
            f"batch {batch.id}: its publication began more than {kept_for * 0.9} ago and did not end, so Kafka may have "
            "forgotten the marks of what is copied. "
            f"{batch.command('run')} (in Airflow: clear write) writes and judges a new revision."
        )
    check_staged(ledger, batch)


def check_staged(ledger: Ledger, batch: Batch) -> None:
    """The batch's topics are those it was planned on, and its staged records are all there.

    Raises:
        TopicRecreated, NeedsOperator: its publication cannot go on.
    """
    _, staging = same_topics(ledger, batch)
    if gone := staging.deleted(batch):
        raise NeedsOperator(
            f"batch {batch.id}: staging topic {batch.plan.written_to.topic} no longer has {describe_ranges(gone)}: its retention "
            "(output.staging_hours when it was made), or somebody, deleted them before the batch was published. "
            f"{batch.command('run')} (in Airflow: clear write) writes and judges a new revision."
        )


def copy_here(ledger: Ledger, batch: Batch) -> list[Receipt]:
    """Copy a batch that is published in one transaction; its receipt, from an earlier attempt where that was faster."""
    written = batch.written
    assert written is not None
    topic, ranges = written.output.topic, batch.output_ranges(written)
    records = read_staged(ledger.settings, ledger.pipeline.group, topic, ranges, str(batch.id))
    receipt, _ = write_partition(publication_task(ledger, batch), 0, records)
    return [receipt]


def copy_on_spark(spark: SparkSession, ledger: Ledger, batch: Batch) -> list[Receipt]:
    """Copy a batch by its staging partitions, each a task-partition; the receipts of all.

    Raises:
        WriteFailed: the job failed; what has committed stays, and the next attempt finds it.
    """
    written = batch.written
    assert written is not None
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
        return [Receipt.model_validate_json(a["receipt"]) for a in answered.collect()]
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
    try:
        check_staged(ledger, batch)
    except FencepostError as found:
        return found
    return WriteFailed(
        f"batch {batch.id}: the Spark job that publishes it failed: {describe(error, ledger.pipeline.folder)}. What had not "
        f"committed is aborted; run again. {HOW_TO_SEE}."
    )


def give_up(ledger: Ledger, batch: Batch) -> GivenUp | None:
    """End a publication that cannot go on, so that no attempt copies any more of it; None where all of it is copied after all.

    1. every task-partition gets a mark, an empty one where none of it has committed;
    2. what had committed is counted: readers may have seen it.
    """
    publication, job, written = _publication(batch), publication_task(ledger, batch), batch.written
    assert written is not None
    receipts = [close_partition(job, task) for task in range(publication.tasks)]  # 1
    remade = publication.ledger != ledger.topic_id or publication.begun.topic_id != output_id(ledger, batch)
    if not remade and is_whole(batch, receipts):
        return None
    rows = sum(r.tally(job.topic).rows for r in receipts)  # 2
    # Where marks are gone with their topic, mean nothing in this ledger or may have expired, they do not tell.
    known = not remade and not marks_may_be_gone(publication, utc_now(), ledger.cluster.marks_kept_for())
    seen = rows if known else written.rows
    log.info("batch %s: its publication is given up after %d of %d records", batch.id, seen, written.rows)
    return GivenUp(lease=publication.known_lease, seen=seen)


def output_id(ledger: Ledger, batch: Batch) -> str:
    """The id that the batch's output topic has now."""
    return ledger.cluster.describe(batch.plan.output.topic).id


def _publication(batch: Batch) -> Publication:
    assert batch.publication is not None, f"batch {batch.id} is {batch.state}"
    return batch.publication
