"""Where a batch is written, read back and published: what the steps ask of an output, whatever kind it is of.

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
    """An output of a pipeline. Errors are Fencepost's own, and name the output."""

    def prepare(self) -> str:
        """Make it where it is missing; its identity, which changes when it is deleted and made again."""
        ...

    def now(self) -> TopicOutput:
        """What it is, and where it ends now: for a plan, and for the end of a write."""
        ...

    def newest_batches(self) -> Iterator[str]:
        """The batches of this pipeline's that its newest records belong to."""
        ...

    def check_keeps(self, interval: Interval) -> None:
        """It takes the interval's records and keeps them until they are judged, or NeedsOperator."""
        ...

    def check_same(self, batch: Batch) -> None:
        """It is the one that the batch was planned on, or TopicRecreated."""
        ...

    def await_readable(self, batch: Batch, limit: float, doing: str) -> None:
        """Wait until all that a written batch committed can be read; OpenTransaction after `limit` seconds."""
        ...

    def read_back(self, spark: SparkSession, batch: Batch) -> DataFrame:
        """The records of a written batch that are there: key, value (binary), topic, partition, offset."""
        ...

    def deleted(self, batch: Batch) -> tuple[OffsetRange, ...]:
        """What the output no longer has of where a written batch lies."""
        ...

    def is_compacted(self) -> bool:
        """Whether it drops records with a newer one of their key; False where we may not ask."""
        ...

    def validated(self, view: View) -> tuple[str, Mapping[Place, int]]:
        """The group whose offsets tell readers how far it is validated, and where they belong."""
        ...


def output_of(ledger: Ledger, batch: Batch | None = None) -> Output:
    """Where the pipeline writes; of a batch, where that one was written, which its pipeline may have left since."""
    return KafkaTopicOutput(ledger, ledger.pipeline.output.topic if batch is None else batch.plan.output.topic)
