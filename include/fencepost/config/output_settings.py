"""The section `output` of pipeline.yaml, with the settings that every kind of output has. Each kind has its own class
(`output_kinds.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, SerializeAsAny
from pydantic_core import PydanticCustomError

from fencepost.config.client_config import ClientConfig
from fencepost.config.sections import (
    FieldName,
    FormatName,
    KeyFormat,
    Lineage,
    Mark,
    Section,
    Subject,
    TopicName,
    Version,
)
from fencepost.model import Layout
from fencepost.output_kinds import DEFAULT_KIND, OUTPUT_KINDS, known_kind, part_of


class RecordSettings(Section):
    """The settings of a batch's records in the staging topic, or directly in the output topic.

    `key`, `timestamp`, `headers` and `tombstone` name columns of the transform's result. `fields` has the names of fields in
    the value, by column, where they differ. The defaults give JSON records without a key.
    """

    format: FormatName = "json"
    subject: Subject | None = None
    version: Version | None = None
    key: str | None = None
    key_format: KeyFormat = "bytes"
    key_subject: Subject | None = None
    key_version: Version | None = None
    timestamp: str | None = None
    headers: str | None = None
    fields: dict[str, FieldName] = Field(default_factory=dict)
    tombstone: str | None = None  # a column of booleans: if it is true, the record has no value
    takes_tombstones: ClassVar[bool] = True
    keeps_minus_zero: ClassVar[bool] = True  # also within an array, a map or a struct


class OutputSettings(Section):
    """Where and how batches are written. Every kind of output has these settings."""

    partitions: Annotated[int, Mark.DECIDES_NO_RECORD] = Field(default=4, ge=1, le=10_000)
    layout: Layout = Layout.SOURCE
    staging_topic: Annotated[TopicName | None, Mark.DECIDES_NO_RECORD] = None
    staging_hours: Annotated[float, Mark.DECIDES_NO_RECORD] = Field(default=168, ge=6, le=24 * 366)
    kind: str

    # Sections of services that the kind needs, and what each has to contain.
    services: ClassVar[Mapping[str, str]] = {}
    # Whether the output is compared with the ledger, so that a page says what it lacks.
    is_compared: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """Returns the name of the topic or table."""
        raise NotImplementedError

    @property
    def description(self) -> str:
        """Describes the output in a sentence."""
        raise NotImplementedError

    @property
    def topics(self) -> tuple[str, ...]:
        """Returns the Kafka topics of the output. The tuple is empty unless the output is a topic."""
        return ()

    @property
    def is_staged(self) -> bool:
        """Returns whether a batch is written to the staging topic, and judged there, before it is published."""
        return True

    @property
    def is_copied(self) -> bool:
        """Returns whether publishing a batch needs as many resources as writing a batch. If it does, Airflow's pool
        counts the publication.
        """
        return False

    @property
    def current_table(self) -> str | None:
        """Returns the name of the output's current table, or None if it has none."""
        return None

    @property
    def records(self) -> RecordSettings:
        """Returns how staged records are written. For a topic these are the settings of the topic's own records."""
        raise NotImplementedError

    def lineage_name(self, config: ClientConfig, lineage: Lineage) -> tuple[str, str]:
        """Returns the namespace and the name of the output, as OpenLineage's specification names datasets."""
        raise NotImplementedError

    def current_lineage_name(self, config: ClientConfig, lineage: Lineage) -> tuple[str, str] | None:
        """Returns the namespace and the name of the output's current table, or None if it has none."""
        return None

    def grants(self, config: ClientConfig, *, reader: bool) -> list[tuple[str, list[str]]]:
        """Returns the statements that grant rights outside Kafka, by their use. The list is empty if the kind needs no
        such rights.
        """
        return []


def settings_of(kind: str) -> type[OutputSettings]:
    """Returns the class of a kind's settings."""
    found: type[OutputSettings] = part_of(kind, "settings", "SETTINGS")
    return found


def kind_of(output: Any) -> str | None:
    """Returns the output's kind, or None if there is no such kind. If the output names no kind, this is the default."""
    return known_kind(
        output.get("kind", DEFAULT_KIND) if isinstance(output, Mapping) else getattr(output, "kind", None)
    )


def _of_its_kind(output: object) -> object:
    kind = kind_of(output)
    if not isinstance(output, Mapping | OutputSettings):
        raise PydanticCustomError("output_section", "not a section")
    if kind is None:
        raise PydanticCustomError("output_kind", "kind is {kinds}", {"kinds": " or ".join(OUTPUT_KINDS)})
    return settings_of(kind).model_validate(output)


AnyOutputSettings = Annotated[SerializeAsAny[OutputSettings], BeforeValidator(_of_its_kind)]
