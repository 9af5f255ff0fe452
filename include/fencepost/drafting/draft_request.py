"""The options of `fencepost new`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from fencepost.config.source import SOURCE
from fencepost.drafting.names import source_names
from fencepost.errors import SettingsError


@dataclass(frozen=True)
class DraftRequest:
    """What a person asked `fencepost new` for. `topic` is the topic to read, and `more` are further topics, each of which
    becomes a source too.
    """

    name: str
    topic: str
    sample: int = 1000
    output: str | None = None
    format: str | None = None
    subject: str | None = None
    group: str | None = None
    cron: str = "0 0 * * *"
    timezone: str = "UTC"
    more: tuple[str, ...] = ()

    @property
    def topics(self) -> tuple[str, ...]:
        """Returns the topics to read."""
        return (self.topic, *self.more)

    @property
    def names(self) -> dict[str, str]:
        """Returns the name of the source of each topic."""
        return source_names(self.topics) if self.more else {self.topic: SOURCE}

    def of(self, topic: str) -> Self:
        """Returns the request for one of the topics."""
        return replace(self, topic=topic, more=())

    def check(self) -> None:
        """Checks that the topics differ, and that no option is for one of several topics.

        Raises:
            SettingsError: names the option, and the next step.
        """
        if twice := [one for n, one in enumerate(self.topics) if one in self.topics[:n]]:
            raise SettingsError(
                f"--from-topic {twice[0]}: given twice. A batch would read its records twice. Name each topic once."
            )
        if self.more and self.subject is not None:
            raise SettingsError(
                f"--subject {self.subject}: a subject is of one topic, and {len(self.topics)} are given. Draft its topic by "
                "itself, and copy the section source of that draft to sources."
            )

    @property
    def output_topic(self) -> str:
        """Returns the output topic of the draft. By default the topic has the pipeline's name, unless a source topic
        has that name.
        """
        return self.output or (self.name if self.name not in self.topics else f"{self.name}_out")

    @property
    def reading_group(self) -> str:
        """Returns the consumer group for reading. The consumer does not join it."""
        return self.group or self.name
