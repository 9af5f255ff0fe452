"""The frozen values that pass between the steps. They are validated when they are read from JSON.

Units: offsets are Kafka's (the first offset of a range is inclusive, the end exclusive), times are UTC, and durations
are seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, TypeVar

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    SerializeAsAny,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from fencepost.errors import DEFECT, NotRecorded
from fencepost.output_kinds import known_kind, part_of

T = TypeVar("T")
Offset = Annotated[int, Field(ge=0)]
PartitionId = tuple[str, int]  # a topic, and the number of one of its partitions

LEDGER_VERSION = 1
FAR = 125_000_000_000_000  # milliseconds, in the year 5931
BATCH_HEADER = "fencepost-batch"
TIMESTAMP_HEADER = "fencepost-timestamp"  # a staged record's header: its row's own timestamp, in milliseconds, as text
MALFORMED = "malformed"  # the rule's name for malformed records
QUARANTINE_LIMIT = "quality.quarantine_limit"  # the check's name if too many records went to quarantine
EMPTY_SOURCE = (
    ".empty"  # the end of the check's name if a source gave no record: `source.empty`, `sources.orders.empty`
)


class Frozen(BaseModel):
    """Base of all values: immutable, and without undeclared fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class State(StrEnum):
    """The state of a batch. `protocol/decisions.py` decides the transitions."""

    PLANNED = "planned"
    WRITTEN = "written"
    REJECTED = "rejected"
    PUBLISHING = "publishing"
    PUBLISHED = "published"
    SUPERSEDED = "superseded"
    SKIPPED = "skipped"
    WITHDRAWN = "withdrawn"


class Layout(StrEnum):
    """What a task-partition has: the range of one source partition, or the rows of one output partition."""

    SOURCE = "source"
    OUTPUT = "output"


class TaskKind(StrEnum):
    """What a task-partition writes: rows of the transform's result, or records that bypass the transform.

    Malformed records bypass the transform. In a replay, result rows bypass the transform too.
    """

    ROWS = "rows"
    MALFORMED = "malformed"


class Outcome(StrEnum):
    """The gate's verdict on a batch. Only a batch with `passed` advances by itself."""

    PASSED = "passed"
    REJECTED = "rejected"
    UNDETERMINED = "undetermined"


class Interval(Frozen):
    """The half-open time `[start, end)` of one DAG run."""

    start: AwareDatetime
    end: AwareDatetime

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.end <= self.start:
            raise ValueError(f"an interval ends after it starts: {self.start} .. {self.end}")
        return self

    @classmethod
    def of(cls, start: datetime, end: datetime) -> Interval:
        """Returns the interval in UTC. A time without a zone is read as UTC."""
        return cls(start=to_utc(start), end=to_utc(end))

    def __str__(self) -> str:
        return f"{_basic(self.start)}-{_basic(self.end)}"

    @property
    def description(self) -> str:
        """Returns the interval for a message, such as `2013-01-01 00:00 to 2013-01-02 00:00 UTC`."""
        return f"{self.start:%Y-%m-%d %H:%M} to {self.end:%Y-%m-%d %H:%M} UTC"

    def command(self, verb: str, pipeline: str, *options: str) -> str:
        """Returns a `fencepost` command line for this interval of a pipeline."""
        times = ("--start", _iso(self.start), "--end", _iso(self.end))
        return f"`{' '.join(['fencepost', verb, pipeline, *times, *options])}`"

    def overlaps(self, other: Interval) -> bool:
        """Returns whether the two intervals have time in common."""
        return self.start < other.end and other.start < self.end


class BatchId(Frozen):
    """A batch's name: pipeline, interval and revision. A batch's name does not depend on a run id or a try number."""

    pipeline: str
    interval: Interval
    revision: int = Field(ge=1)

    def __str__(self) -> str:
        return f"{self.pipeline}/{self.interval}/{self.revision}"


class OffsetRange(Frozen):
    """Records `start <= offset < end` of one partition of a topic."""

    topic: str
    partition: int = Field(ge=0)
    start: Offset
    end: Offset

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.end < self.start:
            raise ValueError(f"partition {self.partition}: end {self.end} is before start {self.start}")
        return self

    @property
    def partition_id(self) -> PartitionId:
        """Returns the partition, by topic and number."""
        return self.topic, self.partition

    @property
    def length(self) -> int:
        """Returns the number of offsets. There may be fewer records, because markers and aborted records take offsets
        too.
        """
        return self.end - self.start

    def holds(self, partition: PartitionId, offset: int) -> bool:
        """Returns whether the range contains this offset of this partition."""
        return self.partition_id == partition and self.start <= offset < self.end


class UnreadRange(OffsetRange):
    """Offsets before the first range of a partition. `last_timestamp` is the timestamp of the last committed record
    among them, in milliseconds. `last_timestamp` is None if it is not known, and negative if the record has none.
    """

    last_timestamp: int | None = None


def by_partition(topic: str, offsets: Sequence[int]) -> dict[PartitionId, int]:
    """Returns the offsets as a dictionary. The given offsets are in the order of the topic's partitions."""
    return {(topic, partition): offset for partition, offset in enumerate(offsets)}


def describe_topics(topics: Iterable[str]) -> str:
    """Returns the topics in a message, for example `topic orders`. A topic that is given several times is named once."""
    names = [*dict.fromkeys(topics)]
    return f"{'topic' if len(names) == 1 else 'topics'} {', '.join(names)}"


def describe_ranges(ranges: Iterable[OffsetRange]) -> str:
    """Returns the ranges in a message, for example `partition 1: offsets 0 to 2`. The last offset is included."""
    return ", ".join(f"partition {r.partition}: offsets {r.start} to {r.end - 1}" for r in ranges)


_RANGES_OF_INPUT = frozenset({"ranges", "lost", "unread"})


class TopicInput(Frozen):
    """The part of a batch's input that is in one topic: an offset range for each partition.

    `lost` are ranges that were deleted from the topic before they could be planned. Only a pipeline with `on_expired:
    skip` accepts them. `unread` are the offsets before the ranges, if no earlier interval was planned.

    All ranges belong to `topic`. The JSON has the topic only once, so that a record of the ledger stays small.
    """

    kind: Literal["topic"] = "topic"
    topic: str
    topic_id: str
    ranges: tuple[OffsetRange, ...]
    lost: tuple[OffsetRange, ...] = ()
    unread: tuple[UnreadRange, ...] = ()

    @property
    def offsets(self) -> int:
        """Returns the number of offsets in the ranges."""
        return sum(part.length for part in self.ranges)

    @model_validator(mode="after")
    def _of_this_topic(self) -> Self:
        if any(part.topic != self.topic for part in (*self.ranges, *self.lost, *self.unread)):
            raise ValueError(f"ranges of another topic than {self.topic}")
        return self

    @model_serializer(mode="wrap")
    def _topic_once(self, serialized: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = serialized(self)
        for name in _RANGES_OF_INPUT & fields.keys():
            for part in fields[name]:
                del part["topic"]
        return fields

    @model_validator(mode="before")
    @classmethod
    def _topic_in_each(cls, value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        topic = {"topic": value.get("topic")}
        return {
            name: [topic | part if isinstance(part, dict) else part for part in field]
            if name in _RANGES_OF_INPUT and isinstance(field, list | tuple)
            else field
            for name, field in value.items()
        }


PlannedInput = TopicInput  # the only kind of input so far; `kind` names it


class TopicEnds(Frozen):
    """A topic and its ends. `ends[p]` is the high watermark of partition `p`.

    A topic that was deleted and created again has a new `topic_id`.
    """

    topic: str
    topic_id: str
    ends: tuple[Offset, ...]


class SideTableState(Frozen):
    """The content of a side table that a batch is made with.

    `fingerprint` is a hash of the rows, in the order of the table's key, and of their types. `bytes` is their size in
    memory. `value_schema` has the columns as Spark's JSON of a struct. Two states with the same fingerprint have the same
    rows. `offsets` are the ends up to which a topic was read.
    """

    name: str
    fingerprint: str = Field(min_length=1)
    rows: int = Field(ge=0)
    bytes: int = Field(ge=0)
    value_schema: str
    read_at: AwareDatetime
    offsets: TopicEnds | None = None


def _of_kind(name: str) -> Callable[[object], object]:
    """Returns a validator that parses JSON as the class of that name in the output's kind (`output_kinds.py`). It does
    not change other values.
    """

    def read(value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        kind = known_kind(value.get("kind"))
        if kind is None:
            raise ValueError("no such kind of output")
        return part_of(kind, "values", name).model_validate(value)

    return read


class PlannedOutput(Frozen):
    """The output of a batch in the form that a plan freezes. Each kind of output has its own class."""

    kind: str
    # Whether a batch without records has to be published too, because it may replace records.
    takes_empty: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """Returns the name of the output topic or table."""
        raise NotImplementedError

    @property
    def description(self) -> str:
        """Returns the output in a message, for example `topic orders`."""
        raise NotImplementedError

    @property
    def topics(self) -> tuple[str, ...]:
        """Returns the Kafka topics that hold the output's records. By default there are none."""
        return ()

    @property
    def direct(self) -> TopicEnds | None:
        """Returns the topic that an unstaged batch is written to, or None if every batch has to be staged."""
        return None

    def ranges(self, batch: Batch) -> tuple[OffsetRange, ...]:
        """Returns the batch's ranges in the output topic (`Batch.published_ranges`). By default there are none."""
        return ()

    def announced(self, batch: Batch) -> dict[str, Any]:
        """Returns the fields of the batch's `Announcement` that only this kind of output has. By default there are
        none.
        """
        return {}


AnyPlannedOutput = Annotated[SerializeAsAny[PlannedOutput], BeforeValidator(_of_kind("PLANNED"))]
P = TypeVar("P", bound=PlannedOutput)


class RegisteredSchema(Frozen):
    """A schema of the registry in the form that a plan freezes. `text` is its JSON, without documentation.

    `version` is None for a schema that was looked up by its id. A frozen writer's schema uses the reader's names. The
    text of a writer's schema is empty if only the reader's schema is needed.
    """

    subject: str
    id: int = Field(ge=0)
    version: int | None = None
    text: str

    def __str__(self) -> str:
        version = "" if self.version is None else f"version {self.version}, "
        return f"subject {self.subject} ({version}id {self.id})"


class ReadSchemas(Frozen):
    """How the keys or the values of a source are decoded. The schema with the record's id is resolved into the schema
    `reader`.

    Records with an id in `refused` are malformed, for the reason in `refused`. Records with an id in `others` are of
    other types than those that the source reads. The schema of any other id is looked up when a record has the id.
    """

    reader: RegisteredSchema
    writers: tuple[RegisteredSchema, ...]
    refused: dict[int, str] = Field(default_factory=dict)
    others: tuple[int, ...] = ()

    @property
    def ids(self) -> set[int]:
        """Returns the known ids. Refused ids and those of other types are included."""
        return {writer.id for writer in self.writers} | self.refused.keys() | set(self.others)


class SourceSchemas(Frozen):
    """The schemas of a source's values and keys. A part without a registry has None."""

    value: ReadSchemas | None = None
    key: ReadSchemas | None = None


class Schemas(Frozen):
    """The schemas of a batch's keys and values, for sources and output if their formats use a registry. `sources` has the
    schemas of a source by its topic.

    With `auto_register` a plan may lack the output's schema. The write job then registers the schema of the transform's
    result, and records it in the ledger before it writes.
    """

    sources: dict[str, SourceSchemas] = Field(default_factory=dict)
    output: RegisteredSchema | None = None
    output_key: RegisteredSchema | None = None

    def of(self, topic: str) -> SourceSchemas:
        """Returns the schemas of the source with this topic, which has none if its formats use no registry."""
        return self.sources.get(topic, NO_SOURCE_SCHEMAS)

    def read(self, topic: str, *, is_key: bool) -> ReadSchemas | None:
        """Returns the schemas of a source's keys or values."""
        return self.of(topic).key if is_key else self.of(topic).value

    def with_read(self, topic: str, found: ReadSchemas, *, is_key: bool) -> Self:
        """Returns these schemas with others of a source's keys or values."""
        changed = self.of(topic).model_copy(update={"key" if is_key else "value": found})
        return self.model_copy(update={"sources": {**self.sources, topic: changed}})

    def written(self, *, is_key: bool) -> RegisteredSchema | None:
        """Returns the schema of the output's keys or values."""
        return self.output_key if is_key else self.output

    def with_written(self, found: RegisteredSchema | None, *, is_key: bool) -> Self:
        """Returns these schemas with another of the output's keys or values."""
        return self.model_copy(update={"output_key" if is_key else "output": found})

    @property
    def descriptions(self) -> dict[str, str]:
        """Returns the schema of each part as text. Parts without a schema are left out."""
        found = {}
        for topic, schemas in self.sources.items():
            source = "source" if len(self.sources) == 1 else f"source {topic}"
            for part, read in ((source, schemas.value), (f"{source} key", schemas.key)):
                if read is None:
                    continue
                ids = ", ".join(str(number) for number in sorted(writer.id for writer in read.writers))
                found[part] = f"{read.reader}; records of ids {ids}"
                if read.others:
                    found[part] += f"; of other types ids {', '.join(map(str, read.others))}"
        for part, written in (("output", self.output), ("output key", self.output_key)):
            if written is not None:
                found[part] = str(written)
        return found


NO_SOURCE_SCHEMAS = SourceSchemas()
NO_SCHEMAS = Schemas()


class Tally(Frozen):
    """The records committed to one topic: their number, their fingerprint, and the bytes of their keys and values.

    The fingerprint is the sum, modulo 2**64, of a 64-bit hash of every record's key and value. The fingerprint does not
    depend on the order of the records.
    """

    rows: int = Field(default=0, ge=0)
    fingerprint: int = Field(default=0, ge=0, lt=2**64)
    bytes: int = Field(default=0, ge=0)

    @classmethod
    def total(cls, tallies: Iterable[Tally]) -> Tally:
        """Returns the sum of these tallies."""
        each = list(tallies)
        return cls(
            rows=sum(t.rows for t in each),
            fingerprint=sum(t.fingerprint for t in each) % 2**64,
            bytes=sum(t.bytes for t in each),
        )


class TaskBlock(Frozen):
    """Task-partitions of one kind: one for each of the first `partitions` partitions of a topic."""

    kind: TaskKind
    topic: str
    partitions: int = Field(ge=1)


class TaskPartition(NamedTuple):
    """One task-partition. The tuple has the task-partition's number in the batch, which is also in the receipt, and the
    topic and partition.

    The task-partition's mark is the offset of that partition in the group of its kind. The transactional id consists of
    the lane, the topic and the partition. So a mark always belongs to the same id. After that id is fenced, no late
    transaction commits the mark.
    """

    number: int
    topic: str
    partition: int

    @property
    def partition_id(self) -> PartitionId:
        """Returns the partition, by topic and number."""
        return self.topic, self.partition


class Replayed(Frozen):
    """The records that an addition replays. These are all records that `batch` sent to quarantine, with their tally.

    `attempt` is how often the records that fail again will have failed. `attempt` is 2 for the first addition to an
    interval's batch.
    """

    batch: str
    tally: Tally
    attempt: int = Field(ge=2)


class Plan(Frozen):
    """A frozen batch: what it reads, and the ids that it writes under. A plan is never computed again.

    `output` is the topic or table that the batch is for. A staged batch is written to `staging` first, and reaches
    `output` when it is published. The `ends` of topics are their ends when the batch was planned. `lane` names the
    batch's transactional ids and the groups of its marks: a number, or `replay-<n>` for an addition. Earlier batches may
    have left transactions open. `unfinished_ids` has the ids of the lane that may have one: for each topic, how many of
    its partitions, counted from 0. These ids are fenced first, except those of this batch's rows. `digests` has a digest
    for each part that decides the output. `software` has the versions of the programs that write the batch. The batch's
    lease is an offset of the ledger topic with the id `ledger_topic_id`.

    `staging_timestamp` is set with `staging`. All of the batch's records in the staging topic have this timestamp, in
    milliseconds. No other batch in the ledger has the same timestamp, so it identifies the records. In the output a
    header identifies the batch's records. In the staging topic a header would cost a writer of small records as much
    time as everything else *(measured: librdkafka allocates its memory in one thread and frees it in another)*.

    `tasks` has a block of task-partitions for each kind and topic. The task-partitions are numbered through all blocks. The
    first blocks are for rows. Under layout `source` each has the partitions of an input, and under `output` the only one
    has the partitions of the written topic. `quarantine` is set if the pipeline quarantines records. With `on_malformed:
    quarantine` a further block, with the partitions of the input, writes the malformed records if there are any. It begins
    when the rows of all blocks have committed. Under layout `source` it uses the same transactional ids.

    An addition's input is the quarantine topic, where it reads the records that `replays` names. Records that are still malformed
    or cannot be replayed are quarantined again by the task-partitions for malformed records, which an addition always has.

    `also_covers` is set if the batch has records and the preceding planned interval ended before this interval begins.
    No interval was planned for the time between, so its records belong to this batch too.

    `looked_back` has the ranges that earlier intervals consumed and that the transform gets again, for each source that looks
    back. No offset of them is consumed.

    The write job may add schemas to `schemas` before it writes, because the plan may not know the ids of all records. It
    also adds the states of the side tables to `tables` before it writes.
    """

    inputs: tuple[PlannedInput, ...] = Field(min_length=1)
    looked_back: tuple[PlannedInput, ...] = ()
    output: AnyPlannedOutput
    staging: TopicEnds | None = None
    staging_timestamp: int | None = Field(default=None, gt=0)
    ledger_topic_id: str
    layout: Layout
    tasks: tuple[TaskBlock, ...] = Field(min_length=1)
    lane: str = Field(min_length=1)
    unfinished_ids: dict[str, Annotated[int, Field(ge=1)]]
    digests: dict[str, str]
    software: str
    planned_at: AwareDatetime
    quarantine: TopicEnds | None = None
    output_format: str = Field(min_length=1)  # the format of the written values, by which they are read back
    schemas: Schemas | None = None  # None: the pipeline uses no registry
    tables: tuple[SideTableState, ...] = ()
    replays: Replayed | None = None
    also_covers: Interval | None = None
    cluster_id: str | None = None  # the Kafka cluster that the batch was planned on

    @model_validator(mode="after")
    def _is_written_somewhere(self) -> Self:
        if self.staging is None and self.output.direct is None:
            raise ValueError(f"a batch for {self.output.description} has to be staged")
        return self

    @model_validator(mode="after")
    def _has_one_block_of_a_kind_and_topic(self) -> Self:
        """Checks that no two blocks have the same kind and topic. They would be written at the same time under the same
        transactional ids.
        """
        blocks = [(block.kind, block.topic) for block in self.tasks]
        rows_first = sorted(blocks, key=lambda one: one[0] is not TaskKind.ROWS)
        if blocks[0][0] is not TaskKind.ROWS or blocks != rows_first or len({*blocks}) != len(blocks):
            raise ValueError(
                f"tasks has to begin with the blocks of rows, and to have one block of each kind and topic: {blocks}"
            )
        return self

    @property
    def coverage_note(self) -> str:
        """Returns a sentence about the time that the batch covers besides its own interval. The text is empty if there
        is none.
        """
        return (
            f"It also covers {self.also_covers.description}, for which no interval was planned"
            if self.also_covers
            else ""
        )

    @property
    def attempt(self) -> int:
        """Returns how often the records that the batch quarantines have failed. Records that do not come from a replay
        have failed once.
        """
        return self.replays.attempt if self.replays else 1

    def tasks_of(self, kind: TaskKind) -> tuple[TaskPartition, ...]:
        """Returns the task-partitions of that kind, in order."""
        found, first = list[TaskPartition](), 0
        for block in self.tasks:
            if block.kind is kind:
                found += [TaskPartition(first + p, block.topic, p) for p in range(block.partitions)]
            first += block.partitions
        return tuple(found)

    def tasks_by_range(self, kind: TaskKind) -> dict[OffsetRange, int]:
        """Returns the number of the task-partition of that kind for each range of an input that has such
        task-partitions.
        """
        numbers = {task.partition_id: task.number for task in self.tasks_of(kind)}
        topics = {topic for topic, _ in numbers}
        return {part: numbers[part.partition_id] for part in self.ranges if part.topic in topics}

    @property
    def row_task_count(self) -> int:
        """Returns how many task-partitions write rows."""
        return sum(block.partitions for block in self.tasks if block.kind is TaskKind.ROWS)

    def receipt_count(self, bypassed: int) -> int:
        """Returns how many task-partitions have to commit, if `bypassed` records bypass the transform
        (`WriteSummary.bypassed`).
        """
        return sum(block.partitions for block in self.tasks) if bypassed else self.row_task_count

    @property
    def quarantines_malformed(self) -> bool:
        """Returns whether the plan has task-partitions for malformed records."""
        return any(block.kind is TaskKind.MALFORMED for block in self.tasks)

    def keeps_malformed(self, topic: str) -> bool:
        """Returns whether malformed records of this source topic go to quarantine. In an addition all of them do."""
        malformed = {block.topic for block in self.tasks if block.kind is TaskKind.MALFORMED}
        return self.replays is not None or topic in malformed

    @property
    def source_topics(self) -> tuple[str, ...]:
        """Returns the topics of the inputs. In an addition it is the quarantine topic."""
        return tuple(one.topic for one in self.inputs)

    def input_of(self, topic: str) -> PlannedInput:
        """Returns the input from this topic, which has to be one of the inputs'."""
        return next(one for one in self.inputs if one.topic == topic)

    @property
    def ranges(self) -> tuple[OffsetRange, ...]:
        """Returns the ranges of all inputs."""
        return tuple(part for one in self.inputs for part in one.ranges)

    @property
    def lost(self) -> tuple[OffsetRange, ...]:
        """Returns the ranges of all inputs that were deleted before they could be planned."""
        return tuple(part for one in self.inputs for part in one.lost)

    @property
    def unread(self) -> tuple[UnreadRange, ...]:
        """Returns the offsets before the ranges of all inputs, if no earlier interval was planned."""
        return tuple(part for one in self.inputs for part in one.unread)

    @property
    def write_topic(self) -> TopicEnds:
        """Returns the topic that the write step writes to: the staging topic or the output topic."""
        found = self.staging or self.output.direct
        assert found is not None, "a plan without one is refused"
        return found

    def output_as(self, kind: type[P]) -> P:
        """Returns the output as an instance of this class.

        Raises:
            NotRecorded: the output is of another kind.
        """
        if not isinstance(self.output, kind):
            raise NotRecorded(f"{self.output.description} is another kind of output. {DEFECT}")
        return self.output

    @property
    def offsets(self) -> int:
        """Returns the number of offsets that the batch reads."""
        return sum(part.length for part in self.ranges)

    @property
    def looked_back_lost(self) -> tuple[OffsetRange, ...]:
        """Returns the ranges that the transform would have got again, and that had been deleted by then."""
        return tuple(part for one in self.looked_back for part in one.lost)

    @property
    def looked_back_lost_note(self) -> str:
        """Returns in words what had been deleted before the transform could get it again. The text is empty if nothing had."""
        lost = (f"topic {one.topic}, {describe_ranges(one.lost)}" for one in self.looked_back if one.lost)
        return "; ".join(lost)

    @property
    def looked_back_ranges(self) -> tuple[OffsetRange, ...]:
        """Returns the ranges that the transform gets again, of all sources that look back."""
        return tuple(part for one in self.looked_back for part in one.ranges)

    @property
    def offsets_looked_back(self) -> int:
        """Returns the number of offsets that the transform gets again."""
        return sum(part.length for part in self.looked_back_ranges)

    @property
    def is_empty(self) -> bool:
        """Returns whether the batch reads no offsets of its own. Then it is written without Spark."""
        return self.offsets == 0


class Receipt(Frozen):
    """The content of a mark. It says what task-partition `task` has committed under `lease`, by topic.

    `ledger` is the id of the ledger topic in which the lease is an offset. `rules` has the number of quarantined rows
    by the position of the failed rule in the suite. `withheld` is the number of rows that were not written because
    another row of their source record went to quarantine.
    """

    task: int = Field(ge=0)
    ledger: str
    lease: Offset
    topics: dict[str, Tally]
    rules: dict[int, int] = Field(default_factory=dict)
    withheld: int = Field(default=0, ge=0)

    @property
    def rows(self) -> int:
        """Returns the number of records committed to all topics."""
        return sum(t.rows for t in self.topics.values())

    def tally(self, topic: str) -> Tally:
        """Returns the tally of that topic, or `NOTHING` if the receipt does not have the topic."""
        return self.topics.get(topic, NOTHING)


NOTHING = Tally()

# In the metadata of a column of `value_schema`: the name of its field in the output's records, where it has another one.
WRITTEN_AS = "fencepost.field"


class SourceSummary(Frozen):
    """What a batch has read of one source. `excluded` has the records that the source does not read, by `ExcludedKind`.
    `malformed_at` has the topic, partition and offset of the first few records that were dropped as malformed.
    `tombstones` are records without a value that were dropped. `newest` is the latest timestamp of a record that is not
    excluded.

    `rows_in` and `newest` are None if a retry found the rows committed and did not read the source again.

    `looked_back` is the number of records of earlier intervals that were read again, or None if the source does not look back.
    `looked_back_malformed` of them were left out.
    """

    rows_in: int | None = Field(default=None, ge=0)
    malformed: int = Field(default=0, ge=0)
    malformed_at: tuple[tuple[str, int, int], ...] = ()
    tombstones: int = Field(default=0, ge=0)
    excluded: dict[str, int] = Field(default_factory=dict)
    newest: AwareDatetime | None = None
    looked_back: int | None = Field(default=None, ge=0)
    looked_back_malformed: int = Field(default=0, ge=0)

    @property
    def included(self) -> int | None:
        """Returns how many of the records read are not excluded, or None if they were not counted."""
        return None if self.rows_in is None else self.rows_in - sum(self.excluded.values())


class WriteSummary(Frozen):
    """A summary of what all task-partitions of a batch have committed, with the ends of the batch's topics after the
    write. All of the batch's records lie before these ends.

    The receipts themselves stay in the marks. `tasks` is the number of receipts, and `topics` has the tally of each
    topic. `withheld` is the number of rows that were not written because another row of their source record went to
    quarantine. If the pipeline has quarantine rules, `rules` has the number of rows that failed each rule, in the
    suite's order. `results` is then the number of rows of the transform's result, as Spark counted them before anything
    was written.

    `sources` has what was read of each source, by its topic. An addition has there the records that it replayed.
    `result_rows` is the number of result rows that it replayed, which the rules judged without the transform.
    `unreadable_results` is the number of result rows that no longer fit the output's format. They count as malformed.
    `rows_of_earlier` is the number of rows of the transform's result that come from looked-back records alone, and were left
    out. It is None if no source looks back.
    """

    tasks: int = Field(ge=1)
    topics: dict[str, Tally]
    rules: dict[str, int] = Field(default_factory=dict)
    withheld: int = Field(default=0, ge=0)
    output: TopicEnds
    sources: dict[str, SourceSummary] = Field(default_factory=dict)
    result_rows: int = Field(default=0, ge=0)
    unreadable_results: int = Field(default=0, ge=0)
    rows_of_earlier: int | None = Field(default=None, ge=0)
    quarantine: TopicEnds | None = None
    results: int | None = Field(default=None, ge=0)
    value_schema: str = ""  # the value's fields with the transform's types, as Spark writes a schema in JSON
    seconds: float = Field(ge=0)
    written_at: AwareDatetime

    @classmethod
    def of(cls, receipts: Sequence[Receipt], rules: Sequence[str] = (), **known: Any) -> Self:
        """Returns the sums of these receipts, with the other fields from `known`. `rules` are the names of the suite's
        rules, in order.
        """
        topics = sorted({topic for receipt in receipts for topic in receipt.topics})
        return cls(
            tasks=len(receipts),
            topics={topic: Tally.total(receipt.tally(topic) for receipt in receipts) for topic in topics},
            rules={name: sum(receipt.rules.get(n, 0) for receipt in receipts) for n, name in enumerate(rules)},
            withheld=sum(receipt.withheld for receipt in receipts),
            **known,
        )

    @property
    def tally(self) -> Tally:
        """Returns the tally of the topic that the batch was written to: the output or the staging topic."""
        return self.topics.get(self.output.topic, NOTHING)

    @property
    def rows(self) -> int:
        """Returns the number of records in the topic that the batch was written to."""
        return self.tally.rows

    @property
    def fingerprint(self) -> int:
        """Returns the fingerprint of the records in the topic that the batch was written to."""
        return self.tally.fingerprint

    @property
    def bytes(self) -> int:
        """Returns the bytes of keys and values in the topic that the batch was written to."""
        return self.tally.bytes

    @property
    def quarantined(self) -> dict[str, int]:
        """Returns the number of records in quarantine by failed rule, `malformed` first. Rules without records are left
        out.
        """
        malformed = self.quarantined_tally.rows - sum(self.rules.values())
        return {rule: rows for rule, rows in {MALFORMED: malformed, **self.rules}.items() if rows}

    @property
    def rows_in(self) -> int | None:
        """Returns the number of records that were read, or None if they were not counted. Result rows of a replay are
        included.
        """
        found = [one.rows_in for one in self.sources.values() if one.rows_in is not None]
        return None if len(found) < len(self.sources) else sum(found) + self.result_rows

    @property
    def malformed(self) -> int:
        """Returns the number of malformed records. Unreadable result rows are included."""
        return sum(one.malformed for one in self.sources.values()) + self.unreadable_results

    @property
    def malformed_at(self) -> tuple[tuple[str, int, int], ...]:
        """Returns the topic, partition and offset of the first few records of each source that were dropped as malformed."""
        return tuple(place for one in self.sources.values() for place in one.malformed_at)

    @property
    def tombstones(self) -> int:
        """Returns the number of records without a value that were dropped."""
        return sum(one.tombstones for one in self.sources.values())

    @property
    def excluded(self) -> dict[str, int]:
        """Returns the number of records that no source reads, by `ExcludedKind`."""
        kinds = {kind: None for one in self.sources.values() for kind in one.excluded}
        return {kind: sum(one.excluded.get(kind, 0) for one in self.sources.values()) for kind in kinds}

    @property
    def newest(self) -> datetime | None:
        """Returns the latest timestamp of a record of any source that is not excluded."""
        return max((one.newest for one in self.sources.values() if one.newest is not None), default=None)

    @property
    def bypassed(self) -> int:
        """Returns the number of records that bypass the transform. Malformed records and result rows bypass it."""
        return self.malformed + self.result_rows

    @property
    def quarantined_tally(self) -> Tally:
        """Returns the tally of the quarantine topic."""
        return NOTHING if self.quarantine is None else self.topics.get(self.quarantine.topic, NOTHING)


class Publication(Frozen):
    """The publication of a staged batch, from its beginning on. Each kind of output has its own class.

    `lease` is the offset of the record that began the publication, in the ledger topic with the id `ledger`. The
    ledger's reader fills it in, as it does for a plan. `refused` is why the output refused the batch at the last
    attempt.
    """

    kind: str
    ledger: str
    lease: Offset | None = None
    begun_at: AwareDatetime
    seconds: float = Field(default=0, ge=0)
    refused: str = ""
    # Whether readers see nothing of the publication before its commit, so that it may be given up at any time.
    # It has no default: no answer is safe for a kind of output that gives none.
    is_unseen: ClassVar[bool]

    @property
    def has_ended(self) -> bool:
        """Returns whether the ledger has recorded the end of the publication."""
        raise NotImplementedError

    @property
    def method(self) -> str:
        """Returns how the batch is published, for a message, such as `in one transaction`."""
        raise NotImplementedError

    @property
    def details(self) -> dict[str, JsonValue]:
        """Returns what only this kind of publication has to say in the step's result. By default there is nothing."""
        return {}

    @property
    def target(self) -> str:
        """Returns what accepts or refuses the batch, for a message, such as `Kafka`."""
        raise NotImplementedError

    @property
    def needs_spark(self) -> bool:
        """Returns whether Spark has to publish the batch. By default it does not."""
        return False

    @property
    def transaction_seconds(self) -> float | None:
        """Returns how long the only Kafka transaction of the publication was open. By default it returns None."""
        return None

    def without_marks(self, batch: Batch) -> str:
        """Returns what the next attempt does after the publication's marks have expired, for a message. The text is
        empty if the publication has no marks.
        """
        return ""

    @property
    def require_lease(self) -> int:
        """Returns the publication's lease. Only a publication that was read from the ledger has a lease."""
        if self.lease is None:
            raise NotRecorded(f"a publication has no lease before it is read from the ledger. {DEFECT}")
        return self.lease


AnyPublication = Annotated[SerializeAsAny[Publication], BeforeValidator(_of_kind("PUBLICATION"))]
B = TypeVar("B", bound=Publication)


class Verdict(Frozen):
    """The gate's verdict on one revision, and the path of its report. `number` counts the revision's validations.

    `suite_digest` is a digest of the suite and of the settings under `quality` that decide a verdict.
    """

    outcome: Outcome
    reason: str
    number: int = Field(ge=1)
    expectations: int = Field(ge=0)
    failed_critical: tuple[str, ...] = ()
    failed_warning: tuple[str, ...] = ()
    unexpected_rows: int = Field(default=0, ge=0)
    suite_digest: str
    report: str
    seconds: float = Field(ge=0)
    judged_at: AwareDatetime


class AskedBatch(Frozen):
    """The rejected batch that a question is about: its name, its lease, and the number of the validation that rejected
    it.
    """

    batch: str
    lease: Offset
    validation: int = Field(ge=1)
    addition: bool = False


PUBLISH_ANYWAY = "publish anyway"  # the action of the answer in Airflow; that of the command is "publish"


class Decision(Frozen):
    """An operator's decision about a batch: who, when and why.

    A decision that answers a question holds only for the batch in `asked`, in its state at that time. `asked` itself is
    not recorded.
    """

    action: str
    by: str
    reason: str = Field(min_length=1)
    decided_at: AwareDatetime
    asked: AskedBatch | None = Field(default=None, exclude=True)


class HistoryEntry(Frozen):
    """One line of a batch's history."""

    state: State
    at: AwareDatetime
    note: str = ""


class Batch(Frozen):
    """A ledger record with everything that is known about one revision of one interval.

    A revision with `adds_to` is an addition to that revision. An addition has those records of the revision's
    quarantine that passed, and replaces nothing. `lease` is the ledger offset of the record that planned the batch. A
    record cannot contain its own offset, so the ledger's reader fills the lease in.

    `requests` are the requests that this revision answers. One request planned the revision, and the other requests
    found it under way. Each request is answered by only one revision.
    """

    version: int = Field(default=LEDGER_VERSION, ge=LEDGER_VERSION, le=LEDGER_VERSION)
    pipeline: str
    interval: Interval
    revision: int = Field(ge=1)
    adds_to: int | None = Field(default=None, ge=1)
    state: State
    lease: Offset | None = None
    plan: Plan
    written: WriteSummary | None = None
    verdict: Verdict | None = None
    decision: Decision | None = None
    requests: tuple[str, ...] = ()
    publication: AnyPublication | None = None
    history: tuple[HistoryEntry, ...] = Field(min_length=1)

    @property
    def id(self) -> BatchId:
        """Returns the batch's name."""
        return BatchId(pipeline=self.pipeline, interval=self.interval, revision=self.revision)

    def command(self, verb: str, *options: str) -> str:
        """Returns a `fencepost` command line for this batch's interval, which a person can paste."""
        return self.interval.command(verb, self.pipeline, *options)

    def output_ranges(self, written: WriteSummary) -> tuple[OffsetRange, ...]:
        """Returns the batch's ranges in the written topic. In each partition they go from its end at the plan to its
        end after the write.
        """
        return between(self.plan.write_topic, written.output)

    @property
    def rows_read(self) -> dict[str, int | None]:
        """Returns the number of records that were read of each input, by topic. A number is None if they were not counted,
        or if the batch is not written. In an addition the topic is the quarantine topic.
        """
        topics, written = self.plan.source_topics, self.written
        if written is None or self.plan.replays is not None:
            return dict.fromkeys(topics, written.rows_in if written else None)
        return {topic: written.sources[topic].rows_in if topic in written.sources else None for topic in topics}

    @property
    def malformed_dropped(self) -> int:
        """Returns the number of malformed records that the batch left out without quarantine."""
        sources = {} if self.written is None else self.written.sources
        return sum(one.malformed for topic, one in sources.items() if not self.plan.keeps_malformed(topic))

    @property
    def require_written(self) -> WriteSummary:
        """Returns `written`, which has to be recorded.

        Raises:
            NotRecorded: the batch is not written.
        """
        return self._recorded(self.written, "result of a write")

    @property
    def require_publication(self) -> Publication:
        """Returns `publication`, which has to be recorded.

        Raises:
            NotRecorded: the publication has not begun.
        """
        return self._recorded(self.publication, "publication")

    def publication_as(self, kind: type[B]) -> B:
        """Returns the publication as an instance of this class.

        Raises:
            NotRecorded: the publication is of another kind, or has not begun.
        """
        found = self.publication
        return self._recorded(found if isinstance(found, kind) else None, f"publication of class {kind.__name__}")

    @property
    def require_verdict(self) -> Verdict:
        """Returns `verdict`, which has to be recorded.

        Raises:
            NotRecorded: the batch was not judged.
        """
        return self._recorded(self.verdict, "verdict")

    @property
    def require_quarantine(self) -> TopicEnds:
        """Returns the quarantine topic of the plan, which has to have one.

        Raises:
            NotRecorded: the pipeline quarantined nothing.
        """
        return self._recorded(self.plan.quarantine, "quarantine topic")

    @property
    def require_staging(self) -> TopicEnds:
        """Returns the staging topic of the plan, which has to have one.

        Raises:
            NotRecorded: the batch is not staged.
        """
        return self._recorded(self.plan.staging, "staging topic")

    @property
    def require_staging_timestamp(self) -> int:
        """Returns the timestamp of the batch's records in the staging topic.

        Raises:
            NotRecorded: the batch is not staged.
        """
        return self._recorded(self.plan.staging_timestamp, "timestamp for staged records")

    def _recorded(self, value: T | None, what: str) -> T:
        if value is None:
            raise NotRecorded(f"batch {self.id} is {self.state}, and its record in the ledger has no {what}. {DEFECT}")
        return value

    def publication_under(self, lease: int) -> Publication | None:
        """Returns the batch's publication if it has this lease and is under way. Otherwise it returns None. A
        publication under way is neither given up nor ended.
        """
        publication = self.publication
        if self.state is not State.PUBLISHING or publication is None or publication.require_lease != lease:
            return None
        return publication

    @property
    def published_ranges(self) -> tuple[OffsetRange, ...]:
        """Returns the batch's ranges in the output topic, by partition. A batch that was written without records has
        empty ranges.

        There are none before the batch is published there, or if the output is not a topic.
        """
        return self.plan.output.ranges(self)

    @property
    def is_staged(self) -> bool:
        """Returns whether the batch was written to a staging topic and has records."""
        return self.plan.staging is not None and self.written is not None and self.written.rows > 0

    @property
    def needs_publish_step(self) -> bool:
        """Returns whether the batch has to be published to its output. A staged batch has to be. Some outputs,
        such as a table, also need the step for a batch without records.
        """
        return self.is_staged or (self.written is not None and self.plan.output.takes_empty)

    def quarantine_ranges(self, written: WriteSummary) -> tuple[OffsetRange, ...]:
        """Returns the batch's ranges in the quarantine topic, as in `output_ranges`. There are none if the pipeline
        quarantines nothing.
        """
        if self.plan.quarantine is None or written.quarantine is None:
            return ()
        return between(self.plan.quarantine, written.quarantine)

    @property
    def changed_at(self) -> datetime:
        """Returns when the batch last changed."""
        return self.history[-1].at

    @property
    def require_lease(self) -> int:
        """Returns the batch's lease. Only a batch that was read from the ledger has a lease."""
        return self._recorded(self.lease, "lease before it is read from there")


def between(begun: TopicEnds, ended: TopicEnds) -> tuple[OffsetRange, ...]:
    """Returns the ranges between two ends of a topic, by partition. A partition that is newer than `begun` starts at 0."""
    starts = begun.ends
    return tuple(
        OffsetRange(topic=ended.topic, partition=p, start=starts[p] if p < len(starts) else 0, end=end)
        for p, end in enumerate(ended.ends)
    )


class StepResult(Frozen):
    """The result of a step. A result has ids and small numbers only, for XCom and for `--json`.

    `changed` is False if the step's work was done already. `message` is a sentence for a person.
    """

    step: str
    batch: str
    revision: int
    state: State
    changed: bool
    message: str
    details: dict[str, JsonValue] = Field(default_factory=dict)

    @classmethod
    def of(cls, step: str, batch: Batch, message: str, *, changed: bool, **details: JsonValue) -> Self:
        """Returns the result of a step. `batch` is the batch after the step."""
        return cls(
            step=step,
            batch=str(batch.id),
            revision=batch.revision,
            state=batch.state,
            changed=changed,
            message=message,
            details=details,
        )


def offsets_of(details: object) -> int | None:
    """Returns the number of source offsets that a write reads, by the details of a plan's result. Looked-back offsets count.
    Returns None for other details.
    """
    found = details.get("offsets") if isinstance(details, Mapping) else None
    again = details.get("offsets_looked_back", 0) if isinstance(details, Mapping) else 0
    return found + again if isinstance(found, int) and isinstance(again, int) else None


def utc_now() -> datetime:
    """Returns the current time, in UTC, to the second."""
    return datetime.now(UTC).replace(microsecond=0)


def to_utc(moment: datetime) -> datetime:
    """Returns the time in UTC. A time without a zone is read as UTC."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def time_of(milliseconds: int) -> datetime:
    """Returns a record's timestamp as a time. A producer may write any number, so the time is limited to the years 1970
    to 5931.
    """
    return datetime.fromtimestamp(min(max(0, milliseconds), FAR) / 1000, UTC)


def describe_timestamp(milliseconds: int) -> str:
    """Returns a record's timestamp for a message."""
    if milliseconds < FAR:
        return f"timestamp {milliseconds}, {time_of(milliseconds):%Y-%m-%d %H:%M} UTC"
    return f"timestamp {milliseconds}, in the year {1970 + milliseconds // 31_556_952_000}"


def _iso(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def _basic(moment: datetime) -> str:
    moment = moment.astimezone(UTC)
    # Not strftime: it takes three times as long, and its %Y has three digits before the year 1000.
    day, time = (
        f"{moment.year:04}{moment.month:02}{moment.day:02}",
        f"{moment.hour:02}{moment.minute:02}{moment.second:02}",
    )
    text = f"{day}T{time}"
    return f"{text}.{moment.microsecond:06d}Z" if moment.microsecond else f"{text}Z"
