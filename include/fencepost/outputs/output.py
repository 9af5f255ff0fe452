"""Where a batch is published: what the steps ask of an output of any kind.

Which kinds there are, and what a kind's package has, is in `output_kinds.py`. A batch is judged where it was written: in its
staging topic or, under `publish: direct`, in the output topic itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Protocol

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from fencepost.config.pipeline import Pipeline
from fencepost.errors import FencepostError
from fencepost.finding import Answer
from fencepost.kafka.cluster import Cluster
from fencepost.kafka.writers import Offsets
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.lost import Named
from fencepost.model import Batch, Interval, PartitionId, PlannedOutput, Publication, TopicEnds
from fencepost.output_kinds import has_part, part_of
from fencepost.outputs.batch_topic import RecordTopic, StagingTopic
from fencepost.protocol.obstacle import Found, GivenUp, OutputState
from fencepost.protocol.view import View

# How the publication of a batch begins, and the records of its end: the seconds that it took, and the present time.
Begin = Callable[[View, Batch], Publication]
Record = Callable[[View, float, datetime], tuple[Batch, ...]]


class Target(Protocol):
    """An output before a batch is there. It raises Fencepost's errors, which name the output."""

    def prepare(self) -> object:
        """Make what can be made before a batch is there; raise NeedsOperator where it is not this pipeline's to write to."""
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


class Publisher(Protocol):
    """How a staged batch gets to an output, once and not twice, whoever publishes it and however often."""

    def ready(self, batch: Batch) -> Begin:
        """How the batch's publication begins, as the output is now; NeedsOperator where it does not take the batch."""
        ...

    def state(self, batch: Batch, *, publishing: bool) -> OutputState | None:
        """The output as the batch finds it; `publishing` asks what of its publication is committed. None where the batch needs
        nothing of it yet."""
        ...

    def committed(self, batch: Batch, found: Found) -> Record | None:
        """The end of a publication of which everything is committed, by what was found; None where something is not."""
        ...

    def publish(self, batch: Batch, spark: SparkSession | None) -> Record:
        """Put the batch there, as far as no earlier attempt has; the end of its publication. `spark` is there where it is needed.

        Raises:
            ReceiptsDisagree: what is staged is not what was written.
            TableRefusedData: it will never take the batch's rows as they are. The publication is closed.
        """
        ...

    def give_up(self, batch: Batch, found: Found) -> GivenUp | None:
        """Have no attempt at a publication commit any more, even one that comes late; None where all of it is committed."""
        ...


class KafkaOffsets(Protocol):
    """What an output commits in Kafka beside its records: marks of a publication, and how far it is validated."""

    def opening_offsets(self, view: View, batch: Batch) -> Offsets:
        """What the transaction that begins a publication commits beside the ledger's record."""
        ...

    def restore_marks(self, batch: Batch, found: Found) -> bool:
        """Restore lost commit marks. Returns whether any were missing."""
        ...

    def validated(self, view: View) -> Mapping[PartitionId, int]:
        """The offsets of group `<pipeline>.validated`, which tell readers how far the output is validated."""
        ...

    def validated_places(self, view: View, batches: Sequence[Batch]) -> set[PartitionId]:
        """Where a transition of these batches may move offsets of that group."""
        ...


class Columns(Protocol):
    """What an output says of a result's columns. One that takes whatever the format says has none."""

    def check_result(self, interval: Interval, schema: StructType) -> None:
        """Raise NeedsOperator unless it takes rows with these columns, before the first is written."""
        ...

    def would_take(self, interval: Interval | None, schema: StructType) -> str:
        """What a run would change there for rows with these columns, if anything, in words; raise as `check_result`. Changes
        nothing. Without an interval, the rows are a sample."""
        ...


class Contents(Protocol):
    """What an output has, as it can be compared with the ledger. It belongs to one pipeline on one cluster."""

    def missing_batches(self, read: Callable[[], View]) -> str:
        """What the ledger has published there and it lacks, with the commands that bring it back; empty if nothing.

        `read` gives the ledger as it is now.

        Raises:
            LedgerLost: it has a batch that the ledger does not know.
        """
        ...

    def move_here(self, view: View) -> None:
        """Make it this cluster's, where the pipeline was on another one before; LedgerLost where it has a batch that the ledger
        here does not know."""
        ...


class Output(Target, Publisher, Protocol):
    """An output of a pipeline. What not every kind has is an attribute, which is None where a kind has none of it.

    `topics` are the topics of Kafka that its records are in, if it has any: they may be written to, and read back, directly.
    """

    @property
    def topics(self) -> Sequence[RecordTopic]:
        """Its topics of Kafka."""
        ...

    @property
    def offsets(self) -> KafkaOffsets | None:
        """Its offsets in Kafka."""
        ...

    @property
    def columns(self) -> Columns | None:
        """Its columns."""
        ...

    @property
    def contents(self) -> Contents | None:
        """What it has."""
        ...


OpenOutput = Callable[[Ledger, str], Output]  # the output of that name, as the ledger's pipeline has it


class Examined(Protocol):
    """A pipeline as the doctor's checks see it (`preflight/look.py`)."""

    @property
    def pipeline(self) -> Pipeline:
        """Its settings."""
        ...

    @property
    def ledger(self) -> Ledger:
        """Its ledger."""
        ...

    @property
    def cluster(self) -> Cluster:
        """Its cluster."""
        ...

    @property
    def view(self) -> View:
        """All that is in the ledger; nothing if there is none."""
        ...


@dataclass(frozen=True)
class Checks:
    """The doctor's checks of one kind of output. If the first finds an error, the others are skipped for the reason `without`."""

    first: Callable[[Examined], Answer]
    without: str
    others: tuple[Callable[[Examined], Answer], ...]


def checks_of(pipeline: Pipeline) -> Checks | None:
    """The doctor's checks that the kind of the pipeline's output has; None if it has none."""
    kind = pipeline.output.kind
    checks: Checks | None = part_of(kind, "doctor", "CHECKS") if has_part(kind, "doctor") else None
    return checks


def output_of(ledger: Ledger, batch: Batch | None = None) -> Output:
    """The pipeline's output; with a batch, the output of that batch, which its pipeline may have left since."""
    chosen = ledger.pipeline.output if batch is None else batch.plan.output
    opened: OpenOutput = part_of(chosen.kind, "output", "OUTPUT")
    return opened(ledger, chosen.name)


def missing_of(ledger: Ledger) -> str:
    """What the pipeline's output lacks of what the ledger has published there; empty if nothing, or if it is not compared."""
    contents = output_of(ledger).contents
    return contents.missing_batches(ledger.read) if contents is not None else ""


def missing_or_why_not(ledger: Ledger) -> str:
    """The same, for who shows it: that the ledger is lost, or that the store does not answer, as well."""
    try:
        return missing_of(ledger)
    except FencepostError as error:
        return f"{ledger.pipeline.output.told} could not be compared with the ledger: {error}"


def written_to(ledger: Ledger, batch: Batch) -> RecordTopic:
    """What the batch is written to, and judged in: its staging topic, or its output."""
    staging = batch.plan.staging
    return _topic_of(ledger, batch) if staging is None else StagingTopic(ledger, staging.topic)


def read_back_from(ledger: Ledger, batch: Batch) -> RecordTopic:
    """Where a batch with records is read back: from its output's topic, if they are there by now; else where it was written."""
    return _topic_of(ledger, batch) if batch.published_ranges else written_to(ledger, batch)


def _topic_of(ledger: Ledger, batch: Batch) -> RecordTopic:
    (topic,) = output_of(ledger, batch).topics
    return topic


@dataclass(frozen=True)
class Destination:
    """Where a pipeline's next batch goes: to the output, and before that to the staging topic, if there is one."""

    output: Output
    staging: StagingTopic | None = None

    def prepare(self) -> None:
        """Make what is missing."""
        self.output.prepare()
        if self.staging is not None:
            self.staging.prepare_like(self.output.topics)

    def now(self) -> tuple[PlannedOutput, TopicEnds | None]:
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
            for topic in self.output.topics:
                topic.check_fits(self.staging)

    @property
    def topics(self) -> tuple[RecordTopic, ...]:
        """The topics that a batch's records pass, or end in."""
        return (*self.output.topics, *([self.staging] if self.staging is not None else []))


def destination_of(ledger: Ledger) -> Destination:
    """Where batches that the pipeline plans now go."""
    settings = ledger.pipeline.output
    staging = StagingTopic(ledger, ledger.pipeline.staging_topic) if settings.is_staged else None
    return Destination(output_of(ledger), staging)
