"""The options of `fencepost new`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DraftRequest:
    """What a person asked `fencepost new` for."""

    name: str
    topic: str
    sample: int = 1000
    output: str | None = None
    format: str | None = None
    subject: str | None = None
    group: str | None = None
    cron: str = "0 0 * * *"
    timezone: str = "UTC"

    @property
    def output_topic(self) -> str:
        """Returns the output topic of the draft. By default the topic has the pipeline's name, unless the source topic
        has that name.
        """
        return self.output or (self.name if self.name != self.topic else f"{self.name}_out")

    @property
    def reading_group(self) -> str:
        """Returns the consumer group for reading. The consumer does not join it."""
        return self.group or self.name
