"""The announcement of a batch: what a reader who has neither the pipeline's folder nor its ledger knows of it.

It is the record in topic `fencepost.<pipeline>.published` and the `extra` of the asset event, field by field. Its JSON Schema is
`docs/announcement.schema.json`, which a test compares with the fields here.
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
    """Immutable, and tolerant of fields that a newer release adds: a reader passes over what it does not know."""

    model_config = ConfigDict(frozen=True, extra="ignore", json_schema_serialization_defaults_required=True)


class Column(Known):
    """A column of the output: `type` as Spark writes one in JSON, a name such as `long`, or an object of a nested type."""

    name: str
    type: JsonValue
    nullable: bool = True


class SchemaIds(Known):
    """Ids in the schema registry: of the values, and of the keys where these have a schema."""

    value: int | None = None
    key: int | None = None


class UnreadOffsets(Known):
    """Offsets of the source that no batch read: by topic and partition the first and the end (exclusive), and why."""

    offsets: int = Field(ge=1)
    ranges: dict[str, dict[str, tuple[Offset, Offset]]]
    reason: str


class Announcement(Known):
    """A publication, a skip or a withdrawal, as the ledger has recorded it. `ledger_id` and `batch` together name a batch.

    Of a batch that was skipped or withdrawn nothing counts: `rows` is 0, and `ranges`, `quarantined` and `columns` are empty.
    """

    version: Literal[1] = Field(
        default=1, description="Of this shape. A reader refuses a version that it does not know."
    )
    state: Announced = Field(description="What became of the batch.")
    ledger_id: str = Field(
        description="Id of the ledger topic in which it was recorded. Names of batches are unique under one id: a pipeline that "
        "begins anew has another ledger."
    )
    cluster_id: str = Field(description="Id of the Kafka cluster.")
    batch: str = Field(
        description="The batch's name, `<pipeline>/<interval>/<revision>`: the value of its records' header."
    )
    interval: Interval = Field(description="The half-open stretch of time that it is for.")
    revision: int = Field(ge=1, description="Which writing of the interval it is.")
    adds_to: int | None = Field(
        default=None, ge=1, description="Of an addition, which replaces nothing: the revision that it adds records to."
    )
    replaces: tuple[int, ...] = Field(
        default=(), description="Revisions of this interval that were announced before and count no more."
    )
    kind: str = Field(description="Of the output: `topic` or `postgres`.")
    topic: str | None = Field(default=None, description="The output topic; null if the output is a table.")
    topic_id: str | None = Field(
        default=None,
        description="Its id. One that was deleted and created again has another, and none of these records.",
    )
    ranges: dict[str, tuple[Offset, Offset]] = Field(
        default_factory=dict,
        description="By partition of the topic, the first offset and the end (exclusive). Other batches may have records there.",
    )
    table: str | None = Field(default=None, description="The output table; null if the output is a topic.")
    header: str | None = Field(
        default=None, description="The header of a record that names its batch; null if its records have none."
    )
    format: str | None = Field(
        default=None, description="Of a topic's values: `json`, `bytes`, `avro` or `json_schema`."
    )
    columns: tuple[Column, ...] = Field(default=(), description="The value's fields, or the table's columns.")
    schema_ids: SchemaIds | None = Field(
        default=None, description="The schemas in the registry that its records name; null without a registry."
    )
    rows: int = Field(ge=0, description="How many records or rows it has.")
    quarantined: dict[str, int] = Field(
        default_factory=dict, description="By rule, how many source records or rows went to quarantine."
    )
    unread: UnreadOffsets | None = Field(
        default=None,
        description="What the source had before the batch's range when it was planned, of the first interval of all; null if "
        "there was nothing. No batch reads it unless an earlier interval is planned.",
    )
    verdict: Outcome | None = Field(default=None, description="Of the suite; null if it was not judged.")
    decided_by_person: bool = Field(description="Whether a person decided, and not the verdict alone.")
    time: AwareDatetime = Field(description="When it was recorded.")
    complete_until: AwareDatetime | None = Field(
        default=None,
        description="Every interval that was planned by then and begins before this is published or skipped; null without any.",
    )

    @classmethod
    def of(cls, told: Mapping[str, Any], where: str = "the event") -> Self:
        """The announcement in an event's `extra`, or in a record's value.

        Raises:
            SettingsError: it is none, or is of a version that this release does not know.
        """
        version = told.get("version")
        if isinstance(version, int) and version != ANNOUNCEMENT_VERSION:
            raise SettingsError(
                f"{where} is an announcement of version {version}, and this release of Fencepost reads {ANNOUNCEMENT_VERSION}. "
                "Use the release that wrote it."
            )
        try:
            return cls.model_validate(told)
        except ValidationError as error:
            fields = ", ".join(sorted({str(e["loc"][0]) if e["loc"] else "itself" for e in error.errors()}))
            raise SettingsError(
                f"{where} is not an announcement of Fencepost: wrong in {fields}. `extra` of an asset event, or the value of a "
                "record of topic fencepost.<pipeline>.published, is one."
            ) from None

    @property
    def identity(self) -> tuple[str, str]:
        """What names the batch among all that ever were."""
        return self.ledger_id, self.batch

    @property
    def pipeline(self) -> str:
        """The pipeline that it is a batch of."""
        return self.batch.partition("/")[0]

    @property
    def output(self) -> str:
        """The output's name: topic or table."""
        return self.topic or self.table or ""

    @property
    def offset_ranges(self) -> tuple[OffsetRange, ...]:
        """Where in the topic it is, in order of partitions."""
        found = (
            OffsetRange(topic=self.output, partition=int(p), start=start, end=end)
            for p, (start, end) in self.ranges.items()
        )
        return tuple(sorted(found, key=lambda r: r.partition))

    @property
    def json_value(self) -> dict[str, JsonValue]:
        """As JSON's values, with every field."""
        return self.model_dump(mode="json")

    def record(self) -> bytes:
        """A record's value."""
        return self.model_dump_json().encode()


def counting(told: Iterable[Announcement]) -> list[Announcement]:
    """The publications that count after these announcements of one pipeline, in order of time, additions behind their batches.

    A publication takes the place of all of its interval, and an addition stands beside it. A withdrawal leaves nothing of the
    interval, and a skip changes nothing: what was published before still counts.
    """
    found: dict[Interval, list[Announcement]] = {}
    for one in told:
        if one.state == "published":
            found[one.interval] = [*(found.get(one.interval, []) if one.adds_to else []), one]
        elif one.state == "withdrawn":
            found.pop(one.interval, None)
    return [one for interval in sorted(found, key=lambda i: i.start) for one in found[interval]]


def json_schema() -> str:
    """The JSON Schema of a record, as the documents have it."""
    return json.dumps(Announcement.model_json_schema(mode="serialization"), indent=2) + "\n"
