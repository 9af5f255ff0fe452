"""The protocols that the steps use for an output of any kind.

`output_kinds.py` lists the kinds and the parts of their packages. A batch is judged in the topic that it is written to.
A batch is written to its staging topic, or under `publish: direct` to the output topic itself.
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
from fencepost.findings import Answer
from fencepost.kafka.writers import Offsets
from fencepost.ledger.completeness import Named
from fencepost.ledger.deployment import Deployment
from fencepost.model import Batch, Interval, PartitionId, PlannedOutput, TopicEnds
from fencepost.output_kinds import has_part, part_of
from fencepost.outputs.batch_topic import RecordTopic, StagingTopic
from fencepost.protocol.decisions import Beginning
from fencepost.protocol.obstacle import AbandonedPublication, ObservedState, OutputState
from fencepost.protocol.view import View


class Ending(Protocol):
    """The end of a publication whose rows are all committed. Each kind of output has its own frozen value."""

    def records(self, view: View, seconds: float, now: datetime) -> tuple[Batch, ...]:
        """Returns the ledger's records of the end. `seconds` is how long the publication took."""
        ...


class Target(Protocol):
    """The methods of an output that plan and write need. Errors are Fencepost's and name the output."""

    def prepare(self) -> object:
        """Creates what is missing in the output. Raises NeedsOperator if this pipeline may not write to it."""
        ...

    def planned(self) -> PlannedOutput:
        """Returns the output as a plan freezes it."""
        ...

    def newest_batches(self) -> Iterator[Named]:
        """Yields the batches of this pipeline that the output has. A topic yields the batches that own its newest
        records.
        """
        ...

    def check_keeps(self, interval: Interval) -> None:
        """Raises NeedsOperator unless the output accepts the interval's records. If the records are judged in the
        output, the output has to keep them too.
        """
        ...


class Publisher(Protocol):
    """Publishes a staged batch to an output exactly once, however many attempts there are."""

    def ready(self, batch: Batch) -> Beginning:
        """Checks the output, and returns what the batch's publication begins with. Raises NeedsOperator if the output
        does not accept the batch.
        """
        ...

    def state(self, batch: Batch, *, publishing: bool) -> OutputState | None:
        """Returns the present state of the output. With `publishing` the state includes what the batch's publication
        has committed. Returns None if the batch needs nothing of the output yet.
        """
        ...

    def committed(self, batch: Batch, found: ObservedState) -> Ending | None:
        """Returns the end of the publication if `found` shows that all of it is committed, otherwise None."""
        ...

    def publish(self, batch: Batch, spark: SparkSession | None) -> Ending:
        """Publishes what earlier attempts have not published yet, and returns the end of the publication. `spark` is
        None if the publication does not need Spark.

        Raises:
            ReceiptsDisagree: the staged records differ from those that were written.
            TableRefusedData: the table does not accept the batch's rows as they are. The publication is closed.
        """
        ...

    def give_up(self, batch: Batch, found: ObservedState) -> AbandonedPublication | None:
        """Makes sure that no attempt at the publication can commit any more, not even a late attempt. Returns None if
        the whole publication is committed.
        """
        ...


class KafkaOffsets(Protocol):
    """The offsets that an output commits in Kafka. An output commits the marks of a publication, and the ends of the
    validated records.
    """

    def opening_offsets(self, view: View, batch: Batch) -> Offsets:
        """Returns the offsets that are committed when a publication begins, in the transaction of the ledger's record."""
        ...

    def restore_marks(self, batch: Batch, found: ObservedState) -> bool:
        """Restores lost commit marks. Returns whether any were missing."""
        ...

    def validated(self, view: View) -> Mapping[PartitionId, int]:
        """Returns the offsets of group `<pipeline>.validated`, from which readers learn how far the output is
        validated.
        """
        ...

    def validated_places(self, view: View, batches: Sequence[Batch]) -> set[PartitionId]:
        """Returns the partitions whose offsets in group `<pipeline>.validated` a transition of these batches may move."""
        ...


class Columns(Protocol):
    """Checks the columns of a transform's result against the output."""

    def check_result(self, interval: Interval, schema: StructType) -> None:
        """Raises NeedsOperator unless the output accepts rows with these columns. It is called before the first row is
        written.
        """
        ...

    def would_take(self, interval: Interval | None, schema: StructType) -> str:
        """Returns what a run would change in the output for these columns, in words, or an empty text if nothing. It
        changes nothing, and raises the errors of `check_result`. Without an interval, the rows are a sample.
        """
        ...


class Contents(Protocol):
    """Compares an output's contents with the ledger. Only one pipeline on one cluster may own this kind of output."""

    def missing_batches(self, read: Callable[[], View]) -> str:
        """Returns the published batches that the output lacks, with the commands that publish them again. The text is
        empty if none is missing.

        `read` reads the ledger again.

        Raises:
            LedgerLost: the output has a batch that is not in the ledger.
        """
        ...

    def move_here(self, view: View) -> None:
        """Registers the output for this cluster, after the pipeline has moved from another cluster. Raises LedgerLost
        if the output has a batch that is not in this cluster's ledger.
        """
        ...


class Current(Protocol):
    """The current table of an output of rows, with the newest row of each key."""

    def why_stale(self) -> str:
        """Returns why the current table is stale, with the next step. The text is empty if it is not stale."""
        ...

    def rebuild(self, read: Callable[[], View]) -> str:
        """Computes the current table from all of the output's rows. Returns what that changed, in words.

        Raises:
            NeedsOperator: the output lacks published rows, or the current table cannot be kept.
        """
        ...


class Output(Target, Publisher, Protocol):
    """An output of a pipeline. `offsets`, `columns`, `contents` and `current` are None for an output without them.

    `topics` are the Kafka topics that hold the output's records, if any. Steps may write to them and read them directly.
    """

    @property
    def topics(self) -> Sequence[RecordTopic]:
        """Returns the Kafka topics that hold the output's records."""
        ...

    @property
    def offsets(self) -> KafkaOffsets | None:
        """Returns the offsets that the output commits in Kafka, or None if it commits none."""
        ...

    @property
    def columns(self) -> Columns | None:
        """Returns the check of a result's columns, or None if the output has no columns."""
        ...

    @property
    def contents(self) -> Contents | None:
        """Returns the comparison with the ledger, or None if the output's contents are not compared."""
        ...

    @property
    def current(self) -> Current | None:
        """Returns the output's current table, or None if it has none."""
        ...


OpenOutput = Callable[[Deployment, str], Output]  # the deployment's output of that name


class Inspected(Protocol):
    """A pipeline that the doctor examines (`doctor/inspection.py`)."""

    @property
    def pipeline(self) -> Pipeline:
        """Returns the pipeline with its settings."""
        ...

    @property
    def deployment(self) -> Deployment:
        """Returns the pipeline on its cluster."""
        ...

    @property
    def view(self) -> View:
        """Returns the ledger's contents. The view is empty if there is no ledger."""
        ...


@dataclass(frozen=True)
class Checks:
    """The doctor's checks of one kind of output. If the first check finds an error, the other checks are skipped for
    the reason `without`.
    """

    first: Callable[[Inspected], Answer]
    without: str
    others: tuple[Callable[[Inspected], Answer], ...]


def checks_of(pipeline: Pipeline) -> Checks | None:
    """Returns the doctor's checks for the kind of the pipeline's output, or None if it has none."""
    kind = pipeline.output.kind
    checks: Checks | None = part_of(kind, "doctor", "CHECKS") if has_part(kind, "doctor") else None
    return checks


def output_of(deployment: Deployment, batch: Batch | None = None) -> Output:
    """Returns the pipeline's output. With a batch it returns the output that the batch was planned for, even if the
    pipeline now has another output.
    """
    chosen = deployment.pipeline.output if batch is None else batch.plan.output
    opened: OpenOutput = part_of(chosen.kind, "output", "OUTPUT")
    return opened(deployment, chosen.name)


def missing_of(deployment: Deployment) -> str:
    """Returns the published batches that the pipeline's output lacks, as text. The text is empty if none is missing, or
    if this kind of output is not compared.
    """
    contents = output_of(deployment).contents
    return contents.missing_batches(deployment.ledger.read) if contents is not None else ""


def missing_or_why_not(deployment: Deployment) -> str:
    """Returns the text of `missing_of`, or the error as text: the ledger is lost, or the database does not answer."""
    try:
        return missing_of(deployment)
    except FencepostError as error:
        return f"{deployment.pipeline.output.description} could not be compared with the ledger: {error}"


def written_to(deployment: Deployment, batch: Batch) -> RecordTopic:
    """Returns the topic that the batch is written to and judged in: its staging topic or its output."""
    staging = batch.plan.staging
    return _topic_of(deployment, batch) if staging is None else StagingTopic(deployment, staging.topic)


def read_back_from(deployment: Deployment, batch: Batch) -> RecordTopic:
    """Returns the topic to read a batch back from. Once the batch is published in an output topic, this is the output
    topic. Before the publication the result is the topic that the batch was written to.
    """
    return _topic_of(deployment, batch) if batch.published_ranges else written_to(deployment, batch)


def _topic_of(deployment: Deployment, batch: Batch) -> RecordTopic:
    (topic,) = output_of(deployment, batch).topics
    return topic


@dataclass(frozen=True)
class Destination:
    """The destination of a pipeline's next batch. A batch goes to the output, and before that to the staging topic if
    there is one.
    """

    output: Output
    staging: StagingTopic | None = None

    def prepare(self) -> None:
        """Creates the output and the staging topic if they are missing."""
        self.output.prepare()
        if self.staging is not None:
            self.staging.prepare_like(self.output.topics)

    def now(self) -> tuple[PlannedOutput, TopicEnds | None]:
        """Returns the output and the staging topic in the form that a plan freezes, and creates them if they are
        missing.
        """
        self.prepare()
        return self.output.planned(), self.staging.now() if self.staging is not None else None

    def newest_batches(self) -> Iterator[Named]:
        """Returns the batches of this pipeline that own the newest records of the output and the staging topic."""
        staged = self.staging.newest_batches() if self.staging is not None else iter(())
        return chain(self.output.newest_batches(), staged)

    def check_keeps(self, interval: Interval) -> None:
        """Raises NeedsOperator unless the written records are kept until they are judged, and the output accepts them."""
        self.output.check_keeps(interval)
        if self.staging is not None:
            self.staging.check_keeps(interval)
            for topic in self.output.topics:
                topic.check_fits(self.staging)

    @property
    def topics(self) -> tuple[RecordTopic, ...]:
        """Returns the topics of the output and the staging topic."""
        return (*self.output.topics, *([self.staging] if self.staging is not None else []))


def destination_of(deployment: Deployment) -> Destination:
    """Returns the destination of batches that the pipeline plans now."""
    settings = deployment.pipeline.output
    staging = StagingTopic(deployment, deployment.pipeline.staging_topic) if settings.is_staged else None
    return Destination(output_of(deployment), staging)
