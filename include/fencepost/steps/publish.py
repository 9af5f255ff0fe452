"""The copy of a staged batch to its output, between the two records of its publication.

A task-partition of the copy is written by the writers' own protocol: its id is fenced, its mark read, records and mark commit
together. So it is copied once, whoever copies it and however often. Up to `output.atomic_megabytes` the batch is one
task-partition, which this process copies in one transaction; above that each staging partition is one, which Spark copies.
"""

from __future__ import annotations

from functools import partial

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from fencepost.collector import without_collector
from fencepost.kafka.staged import read_staged
from fencepost.ledger.ledger import Ledger
from fencepost.model import TIMESTAMP_HEADER, Batch, Receipt
from fencepost.outputs.topic import is_of
from fencepost.spark.fingerprint import fingerprint_hash
from fencepost.spark.run_writers import run_writers
from fencepost.spark.source import read_ranges
from fencepost.spark.writer import write_partition
from fencepost.steps.failures import copy_failure
from fencepost.steps.writers import copy_job


def copy_here(ledger: Ledger, batch: Batch) -> tuple[Receipt, ...]:
    """Copy a batch that is published in one transaction; its receipt, from an earlier attempt where that was faster."""
    written = batch.known_written
    topic, ranges = written.output.topic, batch.output_ranges(written)
    records = read_staged(ledger.settings, ledger.pipeline.group, topic, ranges, str(batch.id))
    with without_collector():  # it would look at every message, again and again, for half of the time
        receipt, _ = write_partition(copy_job(ledger, batch), 0, records)
    return (receipt,)


def copy_on_spark(spark: SparkSession, ledger: Ledger, batch: Batch) -> tuple[Receipt, ...]:
    """Copy a batch by its staging partitions, each a task-partition; the receipts of all.

    Raises:
        WriteFailed: the job failed; what has committed stays, and the next attempt finds it.
    """
    written = batch.known_written
    job, ranges = copy_job(ledger, batch), batch.output_ranges(written)
    raw = read_ranges(spark, ledger.settings, written.output.topic, ranges, headers=True).where(is_of(batch))
    # The writer has put a record's own timestamp, if there is one, before the batch's header, and both behind all others.
    stamp = F.try_element_at("headers", F.lit(-2))
    is_stamped = F.coalesce(stamp["key"] == TIMESTAMP_HEADER, F.lit(False))
    ours = F.when(is_stamped, 2).otherwise(1)
    others = F.slice("headers", F.lit(1), F.size("headers") - ours).alias("headers")
    records = raw.select(
        "key",
        "value",
        F.when(is_stamped, stamp["value"].cast("string").cast("long"))
        .otherwise(F.unix_millis("timestamp"))
        .alias("timestamp"),
        F.expr(fingerprint_hash()).alias("hash"),
        *([others] if batch.plan.output.headers else []),  # a column that would take a tenth of the copy's time
    )
    failure = partial(copy_failure, ledger=ledger, batch=batch, nonce=job.nonce)
    return tuple(run_writers(records, job, {r: r.partition for r in ranges}, failure).receipts)
