"""The announcement of a batch. An announcement has everything that a reader without the pipeline's folder and ledger
needs to know about the batch.

A record in topic `fencepost.<pipeline>.published` and the `extra` of the asset event both have these fields. The JSON
Schema of these fields is `docs/announcement.schema.json`. A test compares it with the fields in this module.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal, Self, TypeAlias

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, JsonValue, ValidationError

from fencepost.errors import SettingsError
from fencepost.model import Interval, Offset, OffsetRange, Outcome

ANNOUNCEMENT_VERSION = 1
Announced: TypeAlias = Literal["published", "skipped", "withdrawn"]


class Known(BaseModel):
    """The base of the announcement's values. They are immutable. A reader ignores fields that it does not know, so a
    newer release can add fields.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", json_schema_serialization_defaults_required=True)


class Column(Known):
    """A column of the output. `type` is Spark's JSON form: a name such as `long`, or an object for a nested type.

    `field` is the name of its field in the output's records, or None if it is the column's name.
    """

    name: str
    type: JsonValue
    nullable: bool = True
    field: str | None = None


class SchemaIds(Known):
    """The ids of the value's schema and of the key's schema in the schema registry. An id is None if there is no such
    schema.
    """

    value: int | None = None
    key: int | None = None


class AnnouncedSource(Known):
    """A topic of a batch's input: `[start, end)` by partition. Partitions without offsets are left out."""

    topic: str
    ranges: dict[str, tuple[Offset, Offset]]


class UnreadOffsets(Known):
    """Source offsets that no batch has read: `[start, end)` by topic and partition, and the reason."""

    offsets: int = Field(ge=1)
    ranges: dict[str, dict[str, tuple[Offset, Offset]]]
    reason: str


class Announcement(Known):
    """A publication, a skip or a withdrawal, as recorded in the ledger. `ledger_id` and `batch` together identify a batch.

    A skipped or withdrawn batch has no output. So its `rows` is 0, and its `ranges`, `quarantined` and `columns` are
    empty.
    """

    version: Literal[1] = Field(
        default=1, description="Version of this format. A reader refuses a version that it does not know."
    )
    state: Announced = Field(description="What became of the batch.")
    ledger_id: str = Field(
        description="Id of the ledger topic in which it was recorded. A batch's name is unique under one id: a pipeline that "
        "starts again from nothing has another ledger."
    )
    cluster_id: str = Field(description="Id of the Kafka cluster.")
    batch: str = Field(
        description="The batch's name, `<pipeline>/<interval>/<revision>`: the value of its records' header."
    )
    interval: Interval = Field(description="The batch's interval `[start, end)`.")
    revision: int = Field(ge=1, description="The number of the batch within its interval, 1 and up.")
    adds_to: int | None = Field(
        default=None, ge=1, description="The revision that an addition adds records to; null unless it is an addition."
    )
    replaces: tuple[int, ...] = Field(
        default=(), description="Announced revisions of this interval that no longer count because of this batch."
    )
    kind: str = Field(description="The kind of output: `topic`, `postgres` or `iceberg`.")
    output: str = Field(description="The name of the output topic or table.")
    current_table: str | None = Field(
        default=None,
        description="The current table, with the newest row of each key, that the publication has brought up to date; null if "
        "there is none, or a stale one.",
    )
    snapshot: int | None = Field(
        default=None,
        description="The id of the Iceberg snapshot that has published the batch; null if the output is no Iceberg table.",
    )
    topic_id: str | None = Field(
        default=None,
        description="The output topic's id; null if the output is no topic. A topic that was deleted and created again has "
        "another id and none of these records.",
    )
    ranges: dict[str, tuple[Offset, Offset]] = Field(
        default_factory=dict,
        description="First offset and end (exclusive) by partition of the topic. Other batches may have records in between.",
    )
    header: str | None = Field(
        default=None,
        description="The name of the header that names a record's batch; null if the records have no such header.",
    )
    format: str | None = Field(
        default=None, description="The format of a topic's values: `json`, `bytes`, `avro` or `json_schema`."
    )
    columns: tuple[Column, ...] = Field(default=(), description="The value's fields, or the table's columns.")
    schema_ids: SchemaIds | None = Field(
        default=None, description="Ids of the schemas that the records name; null without a registry."
    )
    rows: int = Field(ge=0, description="Number of records or rows.")
    quarantined: dict[str, int] = Field(
        default_factory=dict, description="Number of source records or rows in quarantine, by rule."
    )
    sources: tuple[AnnouncedSource, ...] = Field(
        default=(),
        description="The source topics of the batch's interval, with its first offset and its end (exclusive) by partition. An "
        "addition has the quarantine topic instead.",
    )
    unread: UnreadOffsets | None = Field(
        default=None,
        description="Source offsets before the range of the first interval that reads a topic, as they were when it was "
        "planned; null if there were none, and for other intervals. No batch reads them unless an earlier interval is planned.",
    )
    verdict: Outcome | None = Field(default=None, description="The verdict; null if the batch was not judged.")
    decided_by_person: bool = Field(
        description="True if a person decided about this batch; false if only its verdict did."
    )
    time: AwareDatetime = Field(description="When it was recorded.")
    complete_until: AwareDatetime | None = Field(
        default=None,
        description="Each interval that is planned so far and begins before this time is published or skipped; null if no "
        "interval is planned.",
    )

    @classmethod
    def of(cls, announced: Mapping[str, Any], where: str = "the event") -> Self:
        """Parses the `extra` of an event, or the value of a record.

        Raises:
            SettingsError: the content is not an announcement, or this release does not know its version.
        """
        version = announced.get("version")
        if isinstance(version, int) and version != ANNOUNCEMENT_VERSION:
            raise SettingsError(
                f"{where} is an announcement of version {version}; this release of Fencepost reads {ANNOUNCEMENT_VERSION}. "
                "Use the release that wrote it."
            )
        try:
            return cls.model_validate(announced)
        except ValidationError as error:
            fields = ", ".join(sorted({str(e["loc"][0]) if e["loc"] else "itself" for e in error.errors()}))
            raise SettingsError(
                f"{where} is not an announcement of Fencepost: wrong in {fields}. Pass the `extra` of an asset event, or the "
                "value of a record of topic fencepost.<pipeline>.published."
            ) from None

    @property
    def identity(self) -> tuple[str, str]:
        """Returns the ledger id and the batch's name. Together they are unique among all batches, even after the
        pipeline got a new ledger.
        """
        return self.ledger_id, self.batch

    @property
    def pipeline(self) -> str:
        """Returns the pipeline of the batch, from the batch's name."""
        return self.batch.partition("/")[0]

    @property
    def offset_ranges(self) -> tuple[OffsetRange, ...]:
        """Returns the batch's ranges in the output topic, in order of partitions."""
        found = (
            OffsetRange(topic=self.output, partition=int(p), start=start, end=end)
            for p, (start, end) in self.ranges.items()
        )
        return tuple(sorted(found, key=lambda r: r.partition))

    @property
    def json_value(self) -> dict[str, JsonValue]:
        """Returns all fields as JSON values."""
        return self.model_dump(mode="json")

    def record(self) -> bytes:
        """Returns the announcement as the value of a Kafka record."""
        return self.model_dump_json().encode()


def counting(announced: Iterable[Announcement]) -> list[Announcement]:
    """Returns the publications of one pipeline that count after these announcements, in order of time. Additions follow
    their batches.

    A publication replaces everything that was published for its interval, and an addition replaces nothing. A
    withdrawal removes the interval. A skip changes nothing: what was published before still counts.
    """
    found: dict[Interval, list[Announcement]] = {}
    for one in announced:
        if one.state == "published":
            found[one.interval] = [*(found.get(one.interval, []) if one.adds_to else []), one]
        elif one.state == "withdrawn":
            found.pop(one.interval, None)
    return [one for interval in sorted(found, key=lambda i: i.start) for one in found[interval]]


def json_schema() -> str:
    """Returns the text of `docs/announcement.schema.json`."""
    return json.dumps(Announcement.model_json_schema(mode="serialization"), indent=2) + "\n"
