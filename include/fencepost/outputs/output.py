"""Where a batch is written, read back and published: what the steps ask of an output of any kind.

A second kind is a second class beside `KafkaTopicOutput`, a second value beside `TopicOutput`, and a line in `output_of`.
Under `publish: staged` a batch has two: it is written to the staging topic, and published to the output.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from fencepost.ledger.ledger import Ledger
from fencepost.ledger.lost import Named
from fencepost.model import Batch, Interval, OffsetRange, TopicOutput
from fencepost.outputs.topic import KafkaTopicOutput, StagingTopic
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

    def newest_batches(self) -> Iterator[Named]:
        """The batches of this pipeline that own the output's newest records."""
        ...

    def check_keeps(self, interval: Interval) -> None:
        """Raise NeedsOperator unless it takes the interval's records and keeps them until they are judged."""
        ...

    def check_takes(self, batch: Batch) -> None:
        """Raise NeedsOperator unless it takes a staged batch's records now, and keeps them for a while."""
        ...

    def identity(self) -> str:
        """What changes when it is deleted and created again; TopicMissing where it does not exist."""
        ...

    def await_readable(self, batch: Batch, limit: float, doing: str) -> None:
        """Wait until a reader sees everything that a batch committed here; OpenTransaction after `limit` seconds."""
        ...

    def read_back(self, spark: SparkSession, batch: Batch) -> DataFrame:
        """The records of a batch that still exist here: key, value (binary), topic, partition, offset."""
        ...

    def deleted(self, batch: Batch) -> tuple[OffsetRange, ...]:
        """The parts of a batch's ranges here that the output no longer has."""
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


def written_to(ledger: Ledger, batch: Batch) -> Output:
    """What the batch is written to, and judged in: its staging topic, or its output."""
    staging = batch.plan.staging
    return output_of(ledger, batch) if staging is None else StagingTopic(ledger, staging.topic)


@dataclass(frozen=True)
class Destination:
    """Where a pipeline's next batch goes: to the output, and before that to the staging topic, if there is one."""

    output: KafkaTopicOutput
    staging: StagingTopic | None = None
    batch_header: bool = True
    headers: bool = False

    def prepare(self) -> str:
        """Make what is missing; the output's identity."""
        identity = self.output.prepare()
        if self.staging is not None:
            self.staging.prepare_like(self.output)
        return identity

    def now(self) -> tuple[TopicOutput, TopicOutput | None]:
        """Both as they are now, made if they are missing, and where they end: for a plan."""
        self.prepare()
        has = {"batch_header": self.batch_header, "headers": self.headers}
        return self.output.now().model_copy(update=has), self.staging.now() if self.staging is not None else None

    def newest_batches(self) -> Iterator[Named]:
        """The batches of this pipeline's that the newest records name, wherever these are."""
        staged = self.staging.newest_batches() if self.staging is not None else iter(())
        return chain(self.output.newest_batches(), staged)

    def check_keeps(self, interval: Interval) -> None:
        """What is written is there until it is judged, and the output takes it, or NeedsOperator."""
        self.output.check_keeps(interval)
        if self.staging is not None:
            self.staging.check_keeps(interval)
            self.output.check_fits(self.staging)


def destination_of(ledger: Ledger) -> Destination:
    """Where batches that the pipeline plans now go."""
    settings = ledger.pipeline.output
    staging = StagingTopic(ledger, ledger.pipeline.staging_topic) if settings.publish == "staged" else None
    return Destination(
        KafkaTopicOutput(ledger, settings.topic), staging, settings.batch_header, settings.headers is not None
    )
