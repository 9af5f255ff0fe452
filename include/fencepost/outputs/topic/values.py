"""The ledger's values for an output that is a topic. The values are the topic as a plan freezes it, and the copy of a
staged batch.
"""

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
    """An output topic, its ends when the batch was planned, and whether its records have headers and timestamps."""

    kind: Literal["topic"] = "topic"
    batch_header: bool = True  # whether records have the header that names their batch
    headers: bool = False  # whether the transform sets headers
    timestamps: bool = False  # whether the transform sets timestamps

    @property
    def name(self) -> str:
        """Returns the topic's name."""
        return self.topic

    @property
    def description(self) -> str:
        """Returns `topic NAME`, for messages."""
        return f"topic {self.topic}"

    @property
    def topics(self) -> tuple[str, ...]:
        """Returns the output topic."""
        return (self.topic,)

    @property
    def direct(self) -> TopicEnds:
        """Returns the topic that a batch is written to under `publish: direct`."""
        return self

    def ranges(self, batch: Batch) -> tuple[OffsetRange, ...]:
        """Returns the ranges between the topic's ends before and after the batch. There are none before the batch is
        published there.
        """
        copy = batch.publication if isinstance(batch.publication, TopicPublication) else None
        begun, ended = copy.begun if copy is not None else self, published_ends(batch)
        if ended is None and batch.written is not None and not batch.is_staged:
            ended = begun
        return between(begun, ended) if ended is not None else ()

    def announced(self, batch: Batch) -> dict[str, Any]:
        """Returns the topic's id, the header that names a batch, and the format."""
        return {
            "topic_id": self.topic_id,
            "header": BATCH_HEADER if self.batch_header else None,
            "format": batch.plan.output_format,
        }


class TopicPublication(Publication):
    """The copy of a staged batch from its staging topic to its output topic.

    `tasks` is 1 if the batch is copied in one transaction (`atomic`), and otherwise the number of staging partitions.
    `begun` and `ended` are the output's ends before and after the copy. Each task-partition has a mark.
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
        """Returns whether the ends after the copy are known."""
        return self.ended is not None

    @property
    def method(self) -> str:
        """Returns `in one transaction`, or `in N task-partitions`."""
        return "in one transaction" if self.tasks == 1 else f"in {self.tasks} task-partitions"

    @property
    def target(self) -> str:
        """Returns `Kafka`, the word for what accepts or refuses the batch."""
        return "Kafka"

    @property
    def needs_spark(self) -> bool:
        """Returns whether Spark copies the batch, because it is too large for one transaction."""
        return not self.atomic

    @property
    def transaction_seconds(self) -> float | None:
        """Returns the seconds that the transaction took, or None if the batch was copied in several transactions."""
        return self.seconds if self.atomic else None

    def without_marks(self, batch: Batch) -> str:
        """Returns what the next run does if the marks are gone."""
        if batch.plan.output_as(TopicOutput).batch_header:
            return "finds the copied records in the output"
        return "gives it up, because its records have no header that names their batch. Readers may have seen some or all of them"


def published_ends(batch: Batch) -> TopicEnds | None:
    """Returns the output topic with its ends after the whole batch was written or copied. Returns None until then."""
    if batch.plan.staging is None:
        return batch.written.output if batch.written else None
    return batch.publication.ended if isinstance(batch.publication, TopicPublication) else None


PLANNED, PUBLICATION = TopicOutput, TopicPublication
