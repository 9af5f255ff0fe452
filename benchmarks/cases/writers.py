"""The writer without Spark, as an executor runs it, and the same writer without transactions.

This is where benchmarks know Fencepost from the inside: `write._writer_task`, and the names `writer` makes its
transaction and reads its mark by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self
from unittest.mock import patch

import pyarrow as pa

from benchmarks.bench import Bench, batch_of
from benchmarks.data import DAY, Source, arrow_batches
from fencepost.ledger import Ledger
from fencepost.plan import plan_batch
from fencepost.transaction import Transaction
from fencepost.write import _writer_task
from fencepost.writer import write_partition

batches_of = arrow_batches
# An idempotent producer of librdkafka's, transactional or not, starts half a second later at random: when it asks for its
# producer id just while its first connection is being replaced, it asks again after 500 ms *(measured)*.
BEST_OF = 3


@contextmanager
def writer(
    bench: Bench, source: Source, batches: Sequence[pa.RecordBatch], *, transactional: bool = True, **output: Any
) -> Iterator[Callable[[], object]]:
    """`write_partition` of one task-partition, fed with Arrow batches that are there already."""
    pipeline = bench.pipeline(source.topic, output=output)
    plan_batch(pipeline, DAY)
    job = _writer_task(Ledger(pipeline), batch_of(pipeline))

    def run() -> object:
        if transactional:
            return write_partition(job, 0, iter(batches))
        with idempotent_only():
            return write_partition(job, 0, iter(batches))

    yield run
    rows, found = sum(b.num_rows for b in batches), bench.offsets_in(pipeline.output.topic)
    if found < rows or (not transactional and found != rows):
        raise RuntimeError(f"the writer left {found:,} offsets for {rows:,} rows: nothing is compared")
    bench.drop_pipeline(pipeline)


class Untransacted(Transaction):
    """The writer's producer with idempotence and nothing else: it only waits until everything is delivered."""

    def __init__(self, settings: Any, transactional_id: str, *rest: Any) -> None:
        super().__init__(settings, None, *rest)  # type: ignore[arg-type]

    def init(self) -> None:
        """Fences nobody."""

    def __enter__(self) -> Self:
        return self

    def _send_offsets(self, *_: Any) -> None:
        """There is no transaction to send them into."""

    def _commit(self) -> None:
        """There is none to commit."""


@contextmanager
def idempotent_only() -> Iterator[None]:
    """The writer without transaction, and so without a mark to read or to send."""
    with patch.multiple("fencepost.writer", Transaction=Untransacted, _mark=lambda *_: None):
        yield
