"""Writes on the executors. A task-partition is written in one transaction, with one mark.

Invariant: however many attempts a task-partition has, each of its rows is in at most one committed transaction of a lease,
together with the mark that proves it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fencepost.counts import count_of
from fencepost.errors import FencepostError, ReceiptsDisagree, Superseded, TransformNotDeterministic, WriteFailed
from fencepost.failpoints import reached
from fencepost.kafka.errors import translated
from fencepost.kafka.transaction import Transaction
from fencepost.kafka.writers import Writers
from fencepost.model import BATCH_HEADER, NOTHING, Receipt, Tally
from fencepost.protocol.marks import MarkState, mark_metadata, same_rows
from fencepost.rows.quarantine_headers import QUARANTINED, Quarantining
from fencepost.rows.whole_records import WITHHELD, whole_records
from fencepost.spark.diagnosis import carry


@dataclass(frozen=True)
class WriteJob:
    """Everything that an executor needs to write any task-partition of a job. It has secrets.

    `to_own_partition` is set under layout `output`, where the shuffle has placed the rows: task-partition t writes
    output partition t. Rows whose column `quarantined` is not null go to the topic `quarantine` in the same
    transactions. Quarantined rows get headers from `quarantining`, and their keys choose the partition.
    """

    writers: Writers
    topic: str
    to_own_partition: bool
    batch_header: bool = True  # False if the rows already have the header, or if records are published without it
    staging_timestamp: int | None = None  # the Kafka timestamp of staged rows, which replaces the header
    quarantine: str | None = None
    quarantining: Quarantining | None = None
    compares: bool = False  # whether a later attempt compares its rows with those that are committed
    nonce: str = ""  # unique for the job; by it the driver recognizes an error that was raised here on purpose
    promised: Tally | None = None  # the tally that the only task-partition has to commit; None to accept any


def write_partition(job: WriteJob, task: int, batches: Iterator[pa.RecordBatch]) -> tuple[Receipt, bool]:
    """Writes task-partition `task` exactly once. Returns the receipt, and whether it was skipped without reading its
    rows.

    1. init_transactions: fence every earlier attempt and settle its open transaction;
    2. read the mark: write, skip (or compare the rows with the committed ones), or stop;
    3. begin with the first row, produce, send the mark, commit.

    Raises:
        Superseded: a later lease has committed this task-partition. This attempt is the zombie.
        TransformNotDeterministic: an earlier attempt has committed different rows.
        Retriable: a new attempt may succeed. In any case the producer is closed.
    """
    writers = job.writers
    transaction, mark = writers.init(task)  # 1, 2
    match writers.mark_state(mark):
        case MarkState.LOST:
            raise WriteFailed(
                f"{writers.describe_task(task)}: its mark is gone from group {writers.group}, so this attempt wrote "
                "nothing. Run again: "
                "the step then finds in the output what was committed."
            )
        case MarkState.DONE:
            assert mark is not None
            if job.compares:
                _check_same(job, mark, batches)
            return mark, not job.compares
        case MarkState.SUPERSEDED:
            assert mark is not None
            raise Superseded(
                f"{writers.describe_task(task)}: its mark has lease {mark.lease}, later than this attempt's "
                f"({writers.lease}): a newer plan has replaced this plan and its lane. This attempt wrote nothing. Let the newer "
                "run continue."
            )
    return _write(job, transaction, task, batches), False  # 3


def _write(job: WriteJob, transaction: Transaction, task: int, batches: Iterator[pa.RecordBatch]) -> Receipt:
    """Writes the rows in one transaction, and returns their receipt."""
    receipt = job.writers.nothing(task).model_copy(update={"topics": {job.topic: NOTHING}})
    named = job.batch_header and job.staging_timestamp is None
    header = (BATCH_HEADER, job.writers.batch.encode()) if named else None
    own = task if job.to_own_partition else None
    batches = whole_records(batches)
    first = next(batches, None)  # before the transaction begins, because the transform's first row may take long
    with translated(job.writers.describe_task(task), job.writers.settings), transaction:
        for rows in chain([first] if first is not None else [], batches):
            kept, failed, withheld = _parted(job, rows)
            transaction.produce_rows(
                job.topic, kept, partition=own, header=header, staging_timestamp=job.staging_timestamp
            )
            if failed is not None and job.quarantine is not None:
                transaction.produce_rows(job.quarantine, failed)
            receipt = _with(receipt, job, kept, failed, withheld)
            reached(f"{job.writers.failpoint}.rows", task)
        if job.promised is not None:
            _check_promised(job, task, receipt.tally(job.topic))
        job.writers.add_mark(transaction, receipt)
    return receipt


def _check_same(job: WriteJob, mark: Receipt, batches: Iterator[pa.RecordBatch]) -> None:
    """Checks that the rows are those that the mark's attempt has committed.

    Raises:
        TransformNotDeterministic: they differ, so a row could be in two task-partitions or in none.
    """
    seen = job.writers.nothing(mark.task)
    for rows in batches:
        seen = _with(seen, job, *_parted(job, rows))
    if not same_rows(mark, seen):
        raise TransformNotDeterministic(
            f"{job.writers.describe_task(mark.task)}: an earlier attempt committed {count_of(mark.rows, 'row')}, and "
            "the rows of this "
            f"attempt ({seen.rows:,}) differ. The transform gives different rows when it runs again, so rows could be lost or "
            "doubled. No offset moved. Make the transform deterministic: no clock, no random numbers or ids, no input that "
            "changes meanwhile, no undefined order (first, collect_list, ties of row_number). Sums of doubles differ in their "
            "last digits: sum decimals, or round. Then run again: a changed transform makes a new revision. If nothing in the "
            "pipeline's folder changed, `fencepost skip` the interval and run it with --reprocess, which writes all of it again."
        )


def _check_promised(job: WriteJob, task: int, tally: Tally) -> None:
    """Raises ReceiptsDisagree before the commit, unless the records are those that the task-partition has to commit."""
    assert job.promised is not None
    if (tally.rows, tally.fingerprint) != (job.promised.rows, job.promised.fingerprint):
        raise ReceiptsDisagree(
            f"{job.writers.describe_task(task)}: {count_of(tally.rows, 'record')} with fingerprint {tally.fingerprint:016x} were "
            f"read, but the receipts count {job.promised.rows:,} with {job.promised.fingerprint:016x}. The transaction "
            "is aborted."
        )


def _parted(job: WriteJob, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch | None, int]:
    """Returns the rows for the topic, the rows for quarantine (with rules, timestamps and headers), and the number of
    withheld rows.
    """
    whole = len(rows)
    if WITHHELD in rows.schema.names:
        rows = rows.filter(pc.invert(rows.column(WITHHELD))).drop_columns(WITHHELD)
    withheld = whole - len(rows)
    if QUARANTINED not in rows.schema.names:
        return rows, None, withheld
    assert job.quarantining is not None
    if job.quarantine is None:  # the topic is the quarantine's
        return job.quarantining.with_headers(rows), None, withheld
    own = rows.column(QUARANTINED)
    if own.null_count == len(rows):
        return rows, None, withheld
    return rows.filter(own.is_null()), job.quarantining.with_headers(rows.filter(own.is_valid())), withheld


def _with(
    receipt: Receipt, job: WriteJob, rows: pa.RecordBatch, failed: pa.RecordBatch | None, withheld: int
) -> Receipt:
    """Returns the receipt with these rows added. `rows` go to the output, `failed` to quarantine, and `withheld` is a
    number.
    """
    topics, rules = {**receipt.topics, job.topic: added(receipt.tally(job.topic), rows)}, dict(receipt.rules)
    if failed is not None and job.quarantine is not None:
        topics[job.quarantine] = added(receipt.tally(job.quarantine), failed)
        for number, count in zip(
            *np.unique(failed.column("rule").drop_null().to_numpy(), return_counts=True), strict=True
        ):
            rules[int(number)] = rules.get(int(number), 0) + int(count)
    return receipt.model_copy(update={"topics": topics, "rules": rules, "withheld": receipt.withheld + withheld})


def added(tally: Tally, rows: pa.RecordBatch) -> Tally:
    """Returns the tally with these rows added."""
    return Tally(
        rows=tally.rows + len(rows),
        fingerprint=(tally.fingerprint + _sum(rows.column("hash"))) % 2**64,
        bytes=tally.bytes + _length(rows.column("key")) + _length(rows.column("value")),
    )


def _sum(hashes: pa.Array) -> int:
    """Returns the sum modulo 2**64 of signed 64-bit hashes."""
    unsigned = hashes.to_numpy(zero_copy_only=True).view(np.uint64)
    return int(np.add.reduce(unsigned, dtype=np.uint64))


def _length(values: pa.Array) -> int:
    return pc.sum(pc.binary_length(values)).as_py() or 0  # the sum of nulls only is null


ANSWER_SCHEMA = "receipt string, skipped boolean"
TASKS = "fencepost.tasks"  # Spark's local property: which task-partition each Spark partition writes, as a list in JSON


def writer_of(job: WriteJob) -> Any:
    """Returns the function for `mapInArrow`: a Spark partition writes its task-partition and returns the receipt.

    The job's local property `TASKS` says which task-partition that is. The property is set later, because Spark plans
    the job with this function first.
    """

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _answer(job, batches)  # a nested function travels by value, the functions it calls by name

    return write


def _answer(job: WriteJob, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    task = json.loads(context.getLocalProperty(TASKS) or "")[context.partitionId()]
    try:
        receipt, skipped = write_partition(job, task, batches)
    except FencepostError as error:
        raise carry(error, job.nonce) from error
    reached(f"{job.writers.failpoint}.receipt", receipt.task)
    yield answer_of(receipt, skipped=skipped)


def answer_of(receipt: Receipt, *, skipped: bool) -> pa.RecordBatch:
    """Returns a task's only row, with the columns of `ANSWER_SCHEMA`. The receipt is the JSON of its mark."""
    return pa.RecordBatch.from_pydict({"receipt": pa.array([mark_metadata(receipt)]), "skipped": pa.array([skipped])})
