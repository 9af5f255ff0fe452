"""The writer without Spark, as an executor runs it, and the same writer without transactions.

This is where benchmarks know Fencepost from the inside: the job that executors get, and the names by which its writers make
their transaction and read their mark.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Self
from unittest.mock import patch

import pyarrow as pa
from confluent_kafka import TopicPartition

from benchmarks.bench import Bench, batch_of
from benchmarks.data import DAY, Source
from fencepost.kafka.transaction import ROWS_AT_ONCE, Transaction
from fencepost.kafka.writers import Writers
from fencepost.ledger.deployment import Deployment
from fencepost.model import BATCH_HEADER
from fencepost.rows.writer import write_partition
from fencepost.steps.plan import plan_batch
from fencepost.steps.writers import rows_job

BEST_OF = 3  # runs a round: they are short, and the machine has neighbours


@contextmanager
def writer(
    bench: Bench,
    source: Source,
    batches: Sequence[pa.RecordBatch],
    *,
    transactional: bool = True,
    batch_header: bool = True,
    **output: Any,
) -> Iterator[Callable[[], object]]:
    """`write_partition` of one task-partition, fed with Arrow batches that are there already.

    Its producer has started before. librdkafka takes half a second longer for one that is idempotent alone *(measured: it asks
    for its producer id before it has a broker, and again after 500 ms)*, which says nothing of transactions.
    """
    pipeline = bench.pipeline(source.topic, output=output)
    plan_batch(pipeline, DAY)
    job = replace(rows_job(Deployment.of(pipeline), batch_of(pipeline)), batch_header=batch_header)
    kind = Started if transactional else Untransacted
    started = kind(job.writers.settings, job.writers.transactional_ids[0], "write", 0)
    started.start(bench)

    def run() -> object:
        with ExitStack() as patched:
            patched.enter_context(patch("fencepost.kafka.writers.Transaction", lambda *_: started))
            if not transactional:
                patched.enter_context(patch.object(Writers, "_mark", lambda *_: None))
            return write_partition(job, 0, iter(batches))

    yield run
    rows, found = sum(b.num_rows for b in batches), bench.offsets_in(pipeline.output.topic)
    if found < rows or (not transactional and found != rows):
        raise RuntimeError(f"the writer left {found:,} offsets for {rows:,} rows: nothing is compared")
    bench.drop_pipeline(pipeline)


@contextmanager
def often(
    bench: Bench, source: Source, batches: Sequence[pa.RecordBatch], seconds: float
) -> Iterator[Callable[[], object]]:
    """The same rows by `Transaction` itself, with a commit of records and a group's offset every so many seconds."""
    pipeline = bench.pipeline(source.topic)
    plan_batch(pipeline, DAY)
    job = rows_job(Deployment.of(pipeline), batch_of(pipeline))
    writers = job.writers
    started = Started(writers.settings, writers.transactional_ids[0], "write", 0)
    started.start(bench)
    mark, header = TopicPartition(*writers.marks[0]), (BATCH_HEADER, writers.batch.encode())

    def run() -> None:
        pieces = (b.slice(first, ROWS_AT_ONCE) for b in batches for first in range(0, len(b), ROWS_AT_ONCE))
        piece = next(pieces, None)
        while piece is not None:
            end = time.monotonic() + seconds
            with started:
                while piece is not None and time.monotonic() < end:
                    started.produce_rows(job.topic, piece, header=header)
                    piece = next(pieces, None)
                started.add_offsets([mark], writers.group)

    yield run
    rows, found = sum(b.num_rows for b in batches), bench.offsets_in(pipeline.output.topic)
    if found < rows:
        raise RuntimeError(f"{found:,} offsets for {rows:,} rows: nothing is compared")
    bench.drop_pipeline(pipeline)


class Started(Transaction):
    """The writer's transaction, with its init behind it."""

    def start(self, bench: Bench) -> None:
        """What `init` does."""
        super().init()

    def init(self) -> None:
        """Done already."""


class Untransacted(Started):
    """The writer's producer with idempotence and nothing else: no transaction, so no mark to send; it waits for delivery."""

    def __init__(self, settings: Any, transactional_id: str, *rest: Any) -> None:
        super().__init__(settings, None, *rest)  # type: ignore[arg-type]

    def start(self, bench: Bench) -> None:
        """Have a record delivered: the producer has its id then."""
        topic = bench.new_topic()
        with self:
            self.produce(topic, b"first")
        bench.drop(topic)

    def __enter__(self) -> Self:
        return self

    def _send_offsets(self, *_: Any) -> None:
        """There is no transaction to send them into."""

    def _commit(self) -> None:
        """There is none to commit."""
