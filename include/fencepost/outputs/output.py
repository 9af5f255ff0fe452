"""Where a batch is published: what the steps ask of an output of any kind.

A third kind is a module with a class that is an `Output`, a line in `output_of`, and its values beside `TopicOutput` and
`TopicPublication` in `model.py`. A batch is judged where it was written: in its staging topic or, under `publish: direct`, in the
output topic itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from fencepost.config.pipeline import Pipeline, TopicSettings
from fencepost.errors import FencepostError
from fencepost.kafka.writers import Offsets
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.lost import Named
from fencepost.model import Batch, Interval, PartitionId, PlannedOutput, TableOutput, TopicOutput
from fencepost.outputs.copying import PublishedTopic
from fencepost.outputs.postgres import PostgresTable
from fencepost.outputs.publication import Begin, Record
from fencepost.outputs.topic import KafkaTopicOutput, StagingTopic
from fencepost.protocol.obstacle import Found, GivenUp
from fencepost.protocol.view import View


class Output(Protocol):
    """An output of a pipeline. It raises Fencepost's errors, which name the output."""

    def prepare(self) -> object:
        """Make what can be made before a batch is there; raise NeedsOperator where it is not this pipeline's to write to."""
        ...

    def move_here(self, view: View) -> None:
        """Make it this cluster's, where the pipeline was on another one before; LedgerLost where it has a batch that the ledger
        here does not know."""
        ...

    def planned(self) -> PlannedOutput:
        """What a plan says of it."""
        ...

    def newest_batches(self) -> Iterator[Named]:
        """The batches of this pipeline that it has, or that own its newest records."""
        ...

    def check_keeps(self, interval: Interval) -> None:
        """Raise NeedsOperator unless it takes the interval's records; of records that are judged there, unless it keeps them."""
        ...

    def check_result(self, interval: Interval, schema: StructType) -> None:
        """Raise NeedsOperator unless it takes rows with these columns, before the first is written."""
        ...

    def would_take(self, interval: Interval | None, schema: StructType) -> str:
        """What a run would change there for rows with these columns, if anything, in words; raise as `check_result`. Changes
        nothing. Without an interval, the rows are a sample."""
        ...

    def ready(self, batch: Batch) -> Begin:
        """How the batch's publication begins, as the output is now; NeedsOperator where it does not take the batch."""
        ...

    def opening_offsets(self, view: View, batch: Batch) -> Offsets:
        """What the transaction that begins a publication commits beside the ledger's record."""
        ...

    def found(self, batch: Batch, *, publishing: bool) -> dict[str, Any]:
        """What a batch finds of it: fields of `Found`; `publishing` asks what of its publication is committed."""
        ...

    def mend(self, batch: Batch, found: Found) -> bool:
        """Write anew what tells how much of a publication is committed, where that was lost; False if nothing was."""
        ...

    def needs_spark(self, batch: Batch) -> bool:
        """Whether Spark has to publish the batch."""
        ...

    def committed(self, batch: Batch, found: Found) -> Record | None:
        """The end of a publication of which everything is committed, by what was found; None where something is not."""
        ...

    def publish(self, batch: Batch, spark: SparkSession | None) -> Record:
        """Put the batch there, as far as no earlier attempt has; the end of its publication.

        Raises:
            ReceiptsDisagree: what is staged is not what was written.
            TableRefusedData: it will never take the batch's rows as they are. The publication is closed.
        """
        ...

    def give_up(self, batch: Batch, found: Found) -> GivenUp | None:
        """Have no attempt at a publication commit any more, even one that comes late; None where all of it is committed."""
        ...

    def lacks(self, read: Callable[[], View]) -> str:
        """What the ledger has published there and it lacks, with the commands that bring it back; empty if nothing.

        `read` gives the ledger as it is now.

        Raises:
            LedgerLost: it has a batch that the ledger does not know.
        """
        ...

    def validated(self, view: View) -> tuple[str, Mapping[PartitionId, int]]:
        """The group whose offsets tell readers how far the output is validated, and those offsets."""
        ...

    def validated_places(self, view: View, batches: Sequence[Batch]) -> set[PartitionId]:
        """Where a transition of these batches may move offsets of that group."""
        ...


def output_of(ledger: Ledger, batch: Batch | None = None) -> Output:
    """The pipeline's output; with a batch, the output of that batch, which its pipeline may have left since."""
    output = batch.plan.output if batch is not None else None
    if isinstance(output, TableOutput):
        return PostgresTable(ledger, output.table)
    if isinstance(output, TopicOutput):
        return PublishedTopic(ledger, output.topic)
    settings = ledger.pipeline.output
    if isinstance(settings, TopicSettings):
        return PublishedTopic(ledger, settings.topic)
    return PostgresTable(ledger, settings.table)


def lacks_of(pipeline: Pipeline, ledger: Ledger) -> str:
    """What the pipeline's output lacks, for who shows it: that the ledger is lost, or that the store does not answer, as well."""
    if pipeline.output.topic is not None:
        return ""
    try:
        return output_of(ledger).lacks(ledger.read)
    except FencepostError as error:
        return f"{pipeline.output.told} could not be compared with the ledger: {error}"


def written_to(ledger: Ledger, batch: Batch) -> KafkaTopicOutput:
    """What the batch is written to, and judged in: its staging topic, or its output."""
    staging = batch.plan.staging
    return KafkaTopicOutput(ledger, batch.plan.topic.topic) if staging is None else StagingTopic(ledger, staging.topic)


@dataclass(frozen=True)
class Destination:
    """Where a pipeline's next batch goes: to the output, and before that to the staging topic, if there is one."""

    output: Output
    staging: StagingTopic | None = None

    def prepare(self) -> None:
        """Make what is missing."""
        self.output.prepare()
        if self.staging is not None:
            self.staging.prepare_like(self.topic)

    def now(self) -> tuple[PlannedOutput, TopicOutput | None]:
        """Both as a plan has them, made if they are missing."""
        self.prepare()
        return self.output.planned(), self.staging.now() if self.staging is not None else None

    def newest_batches(self) -> Iterator[Named]:
        """The batches of this pipeline's that the newest records name, wherever these are."""
        staged = self.staging.newest_batches() if self.staging is not None else iter(())
        return chain(self.output.newest_batches(), staged)

    def check_keeps(self, interval: Interval) -> None:
        """What is written is there until it is judged, and the output takes it, or NeedsOperator."""
        self.output.check_keeps(interval)
        if self.staging is not None:
            self.staging.check_keeps(interval)
            if self.topic is not None:
                self.topic.check_fits(self.staging)

    @property
    def topic(self) -> KafkaTopicOutput | None:
        """The output, if it is a topic."""
        return self.output if isinstance(self.output, KafkaTopicOutput) else None


def destination_of(ledger: Ledger) -> Destination:
    """Where batches that the pipeline plans now go."""
    settings = ledger.pipeline.output
    staging = StagingTopic(ledger, ledger.pipeline.staging_topic) if settings.publish == "staged" else None
    return Destination(output_of(ledger), staging)
