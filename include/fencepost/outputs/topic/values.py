"""What the ledger keeps of an output that is a topic: the topic as a plan froze it, and a staged batch's copy to it."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from fencepost.model import (
    BATCH_HEADER,
    Batch,
    OffsetRange,
    PlannedOutput,
    Publication,
    TopicEnds,
    between,
)


class TopicOutput(PlannedOutput, TopicEnds):
    """An output topic, where it ends, and what its records have beside key and value."""

    kind: Literal["topic"] = "topic"
    batch_header: bool = True  # whether its records name their batch
    headers: bool = False  # whether they have headers by the pipeline's transform
    timestamps: bool = False  # whether they have timestamps by it

    @property
    def name(self) -> str:
        """The topic's."""
        return self.topic

    @property
    def told(self) -> str:
        """For a person."""
        return f"topic {self.topic}"

    @property
    def topics(self) -> tuple[str, ...]:
        """Itself."""
        return (self.topic,)

    @property
    def direct(self) -> TopicEnds:
        """Itself: under `publish: direct` a batch is written there."""
        return self

    def ranges(self, batch: Batch) -> tuple[OffsetRange, ...]:
        """Where it ended when the batch came, to where it ended when all of it was there."""
        copy = batch.publication if isinstance(batch.publication, TopicPublication) else None
        begun, ended = copy.begun if copy is not None else self, published_ends(batch)
        if ended is None and batch.written is not None and not batch.is_staged:
            ended = begun
        return between(begun, ended) if ended is not None else ()

    def announced(self, batch: Batch) -> dict[str, Any]:
        """Topic and id, and how a reader tells the batch's records from others and reads them."""
        return {
            "topic": self.topic,
            "topic_id": self.topic_id,
            "header": BATCH_HEADER if self.batch_header else None,
            "format": batch.plan.output_format,
        }


class TopicPublication(Publication):
    """The copy of a staged batch from its staging topic to its output topic.

    `tasks` is 1 where the batch is copied in one transaction (`atomic`), and the number of staging partitions otherwise. `begun`
    is the output at the beginning, `ended` when all of the copy was in. Each task-partition has a mark.
    """

    kind: Literal["topic"] = "topic"
    lane: int = Field(ge=0)
    tasks: int = Field(ge=1)
    atomic: bool
    begun: TopicEnds
    ended: TopicEnds | None = None
    is_unseen: ClassVar[bool] = False

    @property
    def has_ended(self) -> bool:
        """Whether it is known where it ended."""
        return self.ended is not None

    @property
    def way(self) -> str:
        """`in one transaction`, or in how many task-partitions."""
        return "in one transaction" if self.tasks == 1 else f"in {self.tasks} task-partitions"

    @property
    def taker(self) -> str:
        """The brokers."""
        return "Kafka"

    @property
    def needs_spark(self) -> bool:
        """Where the batch is too large for one transaction."""
        return not self.atomic

    @property
    def transaction_seconds(self) -> float | None:
        """Of a batch that was copied in one transaction."""
        return self.seconds if self.atomic else None

    def without_marks(self, batch: Batch) -> str:
        """The output's records tell what is copied, if they name their batch."""
        if batch.plan.output_as(TopicOutput).batch_header:
            return "asks the output what is copied"
        return "has to give it up, when readers may have seen a part of it, or all: its records have no header"


def published_ends(batch: Batch) -> TopicEnds | None:
    """The output topic, and where it ended when all of a written batch was there; None while it is not published there."""
    if batch.plan.staging is None:
        return batch.written.output if batch.written else None
    return batch.publication.ended if isinstance(batch.publication, TopicPublication) else None


PLANNED, PUBLICATION = TopicOutput, TopicPublication
