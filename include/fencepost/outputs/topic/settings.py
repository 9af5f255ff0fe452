"""The section `output` of a pipeline whose output is a topic."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from fencepost.config.client_config import ClientConfig
from fencepost.config.output_settings import OutputSettings, RecordSettings
from fencepost.config.sections import Lineage, Mark, TopicName, check_subjects
from fencepost.formats.column_names import twins

AVRO_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")


class TopicSettings(RecordSettings, OutputSettings):
    """A topic as the output. `key`, `timestamp`, `headers` and `tombstone` name columns of the transform's result."""

    kind: Literal["topic"] = "topic"
    topic: Annotated[TopicName, Mark.FROM_ENVIRONMENT]
    # staged: a batch is written to the staging topic, judged there, and copied to the output when it is published. direct: it
    # is written to the output and judged there, so a reader that ignores batches sees records that are not judged yet.
    publish: Annotated[Literal["staged", "direct"], Mark.DECIDES_NO_RECORD] = "staged"
    # Up to this size in megabytes a staged batch is copied in one transaction, so that readers see all of it or nothing.
    atomic_megabytes: Annotated[float, Mark.DECIDES_NO_RECORD] = Field(default=256, ge=0, le=65_536)
    batch_header: Annotated[bool, Mark.DECIDES_NO_RECORD] = True  # whether published records carry their batch's header

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
    def is_staged(self) -> bool:
        """Returns whether batches go to the staging topic first."""
        return self.publish == "staged"

    @property
    def is_copied(self) -> bool:
        """Returns whether a publication copies records. It does for a staged batch."""
        return self.is_staged

    @property
    def records(self) -> RecordSettings:
        """Returns these settings themselves, because they include the settings of records."""
        return self

    def lineage_name(self, config: ClientConfig, lineage: Lineage) -> tuple[str, str]:
        """Returns OpenLineage's namespace of the cluster, and the topic's name."""
        from fencepost.kafka.client_settings import lineage_namespace

        return lineage_namespace(config, lineage.kafka), self.topic

    @model_validator(mode="after")
    def _key_and_subjects_suit_the_formats(self) -> Self:
        if self.key_format != "bytes" and self.key is None:
            raise ValueError(f"key_format: {self.key_format} needs key: a column of the transform's result")
        check_subjects(self)
        return self

    @model_validator(mode="after")
    def _fields_can_be_written(self) -> Self:
        if private := [column for column in self.fields if column.startswith("_")]:
            raise ValueError(f"fields: column {private[0]} is not written, because its name begins with _")
        if self.fields and self.format == "bytes":
            raise ValueError("fields: format bytes has no fields, it writes the column value as it is")
        names = list(self.fields.values())
        if repeated := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"fields: two columns would be field {repeated[0]!r}")
        if both := twins(names):
            raise ValueError(
                f"fields: {both[0]!r} and {both[1]!r} differ only in case, so Spark could not read the records back"
            )
        if self.format == "avro" and (strange := [name for name in names if not AVRO_NAME.fullmatch(name)]):
            raise ValueError(f"fields: {strange[0]!r} is not a name in Avro, which has letters of ASCII, digits and _")
        return self

    @model_validator(mode="after")
    def _a_tombstone_has_a_key(self) -> Self:
        if self.tombstone is not None and self.key is None:
            raise ValueError("tombstone needs key: a record without key and value says nothing")
        if self.tombstone is not None and self.tombstone == self.key:
            raise ValueError("tombstone cannot be the key's column")
        return self

    @model_validator(mode="after")
    def _header_is_a_choice_of_staged_batches(self) -> Self:
        if self.publish == "direct" and not self.batch_header:
            raise ValueError(
                "batch_header: false needs publish: staged. Under publish: direct every record needs its batch's header: only "
                "the header distinguishes published records from rejected or superseded ones between them"
            )
        return self


SETTINGS = TopicSettings
