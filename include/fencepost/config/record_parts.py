"""The parts of a pipeline's records: the values and the keys of each source and of the output. The schema of a part may be
in a registry.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from fencepost.config.output_settings import RecordSettings
from fencepost.config.source import Source
from fencepost.formats import REGISTRY_FORMATS, REGISTRY_KEY_FORMATS, Declared


@dataclass(frozen=True, kw_only=True)
class RecordPart:
    """The values, or with `is_key` the keys, of some records. `setting` is the section of pipeline.yaml that says how they
    are encoded, and `topic` gives the subject its default name.
    """

    setting: str
    section: Source | RecordSettings
    topic: str
    is_key: bool = False

    @property
    def name(self) -> str:
        """Returns the part's name for programs, such as `source_key`."""
        return f"{self.setting}_key" if self.is_key else self.setting

    @property
    def title(self) -> str:
        """Returns the part in a message, such as `source key`."""
        return f"{self.setting} key" if self.is_key else self.setting

    @property
    def format(self) -> str:
        """Returns the name of the part's format."""
        return self.section.key_format if self.is_key else self.section.format

    @property
    def in_registry(self) -> bool:
        """Returns whether the part's schema is in a registry."""
        return self.format in (REGISTRY_KEY_FORMATS if self.is_key else REGISTRY_FORMATS)

    @property
    def subject(self) -> str:
        """Returns the subject of the part's schema. The default is the subject that follows from the topic."""
        if self.is_key:
            return self.section.key_subject or f"{self.topic}-key"
        return self.section.subject or f"{self.topic}-value"

    @property
    def version(self) -> int | None:
        """Returns the version that the settings fix, or None."""
        return self.section.key_version if self.is_key else self.section.version

    def setting_of(self, name: str) -> str:
        """Returns a setting of the part in a message: `subject` of the keys of a source is `source.key_subject`."""
        return f"{self.setting}.key_{name}" if self.is_key else f"{self.setting}.{name}"


@dataclass(frozen=True, kw_only=True)
class SourcePart(RecordPart):
    """The values or the keys of a source, or of a side table that is a topic. `key_setting` is the name of the setting
    that declares the fields of keys.
    """

    section: Source
    key_setting: str = "key"

    @property
    def declared(self) -> Declared:
        """Returns what the settings declare about the schema of values. They declare nothing about the schema of keys."""
        return Declared() if self.is_key else self.section.declared


@dataclass(frozen=True, kw_only=True)
class OutputPart(RecordPart):
    """The values or the keys of the output."""

    section: RecordSettings


P = TypeVar("P", bound=RecordPart)


def with_registry(parts: Iterable[P]) -> list[P]:
    """Returns those of the parts whose schemas are in a registry."""
    return [part for part in parts if part.in_registry]


def parts_of_source(source: Source, key_setting: str = "key") -> tuple[SourcePart, ...]:
    """Returns the values and the keys of a source, or of a side table that is a topic."""
    return tuple(
        SourcePart(setting=source.setting, section=source, topic=source.topic, is_key=is_key, key_setting=key_setting)
        for is_key in (False, True)
    )
