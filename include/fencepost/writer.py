"""The write step's other half, in the executors: one task-partition, one transaction, one mark.

Invariant: however often a task-partition is attempted, by whoever, at most one transaction of a lease commits, and it
commits rows and mark together.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import TopicPartition

from fencepost.errors import Superseded
from fencepost.failpoints import reached
from fencepost.kafka import Settings, make_consumer, read_committed_offsets, translated
from fencepost.marks import Standing, from_metadata, standing, to_metadata
from fencepost.model import BATCH_HEADER, Receipt
from fencepost.transaction import Transaction

log = logging.getLogger("fencepost.writer")


@dataclass(frozen=True)
class WriterTask:
    """What an executor needs to write any task-partition of a batch. Travels inside the task, so it may hold secrets.

    `marks[t]` is the mark's (topic, partition, offset) of task-partition t. `partitions` is set under layout `output`,
    where the shuffle has placed the rows already: task-partition t writes output partition t.
    """

    settings: Settings
    batch: str
    lease: int
    topic: str
    group: str
    transactional_ids: tuple[str, ...]
    marks: tuple[tuple[str, int, int], ...]
    to_own_partition: bool
    batch_header: bool


def write_partition(job: WriterTask, task: int, batches: Iterator[pa.RecordBatch]) -> tuple[Receipt, bool]:
    """Write task-partition `task` exactly once; the receipt, and whether an earlier attempt had committed it.

    1. init_transactions: fences every earlier attempt and settles its open transaction;
    2. read the mark: its lease says whether to write, to skip, or to stop;
    3. begin with the first row, produce, send the mark, commit.

    Raises:
        Superseded: a later lease has committed here; this attempt is the zombie.
        Retriable: anything a new attempt can settle. The producer is gone either way.
    """
    transaction = Transaction(job.settings, job.transactional_ids[task], "write", task)
    consumer, complaints = make_consumer(job.settings, job.group)
    try:
        transaction.init()  # 1
        topic, partition, offset = job.marks[task]
        doing = f"batch {job.batch}, task-partition {task}: reading its mark in group {job.group}"
        place = TopicPartition(topic, partition)
        found = read_committed_offsets(consumer, complaints, job.settings, [place], doing).get((topic, partition))
        mark = from_metadata(found.metadata, doing) if found else None
        reached("write.mark-read", task)
        match standing(mark, job.lease):  # 2
            case Standing.DONE:
                assert mark is not None
                return mark, True
            case Standing.SUPERSEDED:
                assert mark is not None
                raise Superseded(
                    f"{doing}: it carries lease {mark.lease}, later than ours ({job.lease}): another plan has taken lane and "
                    "place of this one. This attempt wrote nothing; look at the ledger, and let the newer run go on."
                )
        first = next(batches, None)
        rows, fingerprint = 0, 0
        with translated(f"batch {job.batch}, task-partition {task}", job.settings), transaction:  # 3
            for batch in chain([first] if first is not None else [], batches):
                _produce(job, task, transaction, batch)
                rows += batch.num_rows
                fingerprint = (fingerprint + _sum(batch.column("hash"))) % 2**64
                reached("write.rows", task)
            receipt = Receipt(task=task, lease=job.lease, rows=rows, fingerprint=fingerprint)
            place = TopicPartition(topic, partition, offset, metadata=to_metadata(receipt))
            transaction.add_offsets([place], consumer.consumer_group_metadata())
        return receipt, False
    finally:
        consumer.close()


def _produce(job: WriterTask, task: int, transaction: Transaction, batch: pa.RecordBatch) -> None:
    """Hand every row of an Arrow batch to librdkafka, in order."""
    own = [(BATCH_HEADER, job.batch.encode())] if job.batch_header else []
    keys, values = batch.column("key").to_pylist(), batch.column("value").to_pylist()
    fixed: dict[str, Any] = {"partition": task} if job.to_own_partition else {}
    produce, topic = transaction.produce, job.topic
    names = batch.schema.names
    if "timestamp" not in names and "headers" not in names:
        if own:
            fixed["headers"] = own
        for key, value in zip(keys, values, strict=True):
            while True:
                try:
                    produce(topic, value, key, **fixed)
                    break
                except BufferError:
                    transaction.wait_for_room()
        return
    nothing = [None] * batch.num_rows
    timestamps = batch.column("timestamp").to_pylist() if "timestamp" in names else nothing
    headers = batch.column("headers").to_pylist() if "headers" in names else nothing
    for key, value, timestamp, kept in zip(keys, values, timestamps, headers, strict=True):
        row = fixed if timestamp is None else {**fixed, "timestamp": timestamp}
        # A header of ours in the source names another pipeline's batch; ours replaces it.
        others = [(h["key"], h["value"]) for h in kept or [] if h["key"] != BATCH_HEADER]
        while True:
            try:
                produce(topic, value, key, headers=[*others, *own], **row)
                break
            except BufferError:
                transaction.wait_for_room()


def _sum(hashes: pa.Array) -> int:
    """Sum modulo 2**64 of signed 64-bit hashes."""
    unsigned = hashes.to_numpy(zero_copy_only=True).view(np.uint64)
    return int(np.add.reduce(unsigned, dtype=np.uint64))


RECEIPT_SCHEMA = "task int, lease long, rows long, fingerprint string, skipped boolean"


def writer_of(job: WriterTask, tasks: tuple[int, ...]) -> Any:
    """The function for `mapInArrow`: Spark partition i writes task-partition `tasks[i]` and answers with its receipt."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _answer(job, tasks, batches)  # what is nested travels by value, what it calls by name

    return write


def _answer(job: WriterTask, tasks: tuple[int, ...], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    receipt, skipped = write_partition(job, tasks[context.partitionId()], batches)
    reached("write.receipt", receipt.task)
    yield pa.RecordBatch.from_pydict(
        {
            "task": pa.array([receipt.task], pa.int32()),
            "lease": pa.array([receipt.lease], pa.int64()),
            "rows": pa.array([receipt.rows], pa.int64()),
            "fingerprint": pa.array([str(receipt.fingerprint)]),
            "skipped": pa.array([skipped]),
        }
    )
