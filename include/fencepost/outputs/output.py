"""Where a batch is written, read back and published: what the steps ask of an output of any kind.

A second kind is a second class beside `KafkaTopicOutput`, a second value beside `TopicOutput`, and a line in `output_of`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from fencepost.ledger.ledger import Ledger
from fencepost.model import Batch, Interval, OffsetRange, TopicOutput
from fencepost.outputs.topic import KafkaTopicOutput
from fencepost.protocol.frontier import Place
from fencepost.protocol.view import View


class Output(Protocol):
    """An output of a pipeline. It raises Fencepost's errors, which name the output."""

    def prepare(self) -> str:
        """Make it if it is missing; return its identity, which changes when it is deleted and created again."""
        ...

    def now(self) -> TopicOutput:
        """Its identity and its ends now: for a plan, and for the end of a write."""
        ...

    def newest_batches(self) -> Iterator[str]:
        """The batches of this pipeline that own the output's newest records."""
        ...

    def check_keeps(self, interval: Interval) -> None:
        """Raise NeedsOperator unless it takes the interval's records and keeps them until they are judged."""
        ...

    def check_same(self, batch: Batch) -> None:
        """Raise TopicRecreated unless the batch was planned on this very output."""
        ...

    def await_readable(self, batch: Batch, limit: float, doing: str) -> None:
        """Wait until a reader sees everything that a written batch committed; OpenTransaction after `limit` seconds."""
        ...

    def read_back(self, spark: SparkSession, batch: Batch) -> DataFrame:
        """The records of a written batch that still exist: key, value (binary), topic, partition, offset."""
        ...

    def deleted(self, batch: Batch) -> tuple[OffsetRange, ...]:
        """The parts of a written batch's ranges that the output no longer has."""
        ...

    def is_compacted(self) -> bool:
        """Whether it drops a record once its key has a newer one; False if we may not ask."""
        ...

    def validated(self, view: View) -> tuple[str, Mapping[Place, int]]:
        """The group whose offsets tell readers how far the output is validated, and those offsets."""
        ...


def output_of(ledger: Ledger, batch: Batch | None = None) -> Output:
    """The pipeline's output; with a batch, the output of that batch, which its pipeline may have left since."""
    return KafkaTopicOutput(ledger, ledger.pipeline.output.topic if batch is None else batch.plan.output.topic)
