"""The nouns that pass between the steps: frozen values, validated when they are read back from JSON.

Units: offsets are Kafka's (first of a range inclusive, end exclusive); times are UTC; durations are seconds.
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
    model_validator,
)

from fencepost.errors import DEFECT, NotRecorded
from fencepost.output_kinds import OUTPUT_KINDS, part_of

T = TypeVar("T")
Offset = Annotated[int, Field(ge=0)]
PartitionId = tuple[str, int]  # a topic, and the number of one of its partitions

LEDGER_VERSION = 1
FAR = 125_000_000_000_000  # milliseconds, in the year 5931
BATCH_HEADER = "fencepost-batch"
TIMESTAMP_HEADER = "fencepost-timestamp"  # of a staged record: the timestamp that its row has, in milliseconds, as text
MALFORMED = "malformed"  # stands for a rule's name where records are malformed
QUARANTINE_LIMIT = "quality.quarantine_limit"  # stands for a check's name where too much went to quarantine


class Frozen(BaseModel):
    """Base of all values here: immutable; refuses fields that are not declared."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class State(StrEnum):
    """Where a batch stands. `protocol/decisions.py` decides the transitions."""

    PLANNED = "planned"
    WRITTEN = "written"
    REJECTED = "rejected"
    PUBLISHING = "publishing"
    PUBLISHED = "published"
    SUPERSEDED = "superseded"
    SKIPPED = "skipped"
    WITHDRAWN = "withdrawn"


class Layout(StrEnum):
    """What a task-partition is: the range of one source partition, or the rows of one output partition."""

    SOURCE = "source"
    OUTPUT = "output"


class TaskKind(StrEnum):
    """What a task-partition writes: rows of the transform's result, or records that never reach the transform.

    Those are the malformed ones and, in a replay, results of an earlier transform.
    """

    ROWS = "rows"
    MALFORMED = "malformed"


class Outcome(StrEnum):
    """The gate's verdict on a batch. Only `passed` lets it advance."""

    PASSED = "passed"
    REJECTED = "rejected"
    UNDETERMINED = "undetermined"


class Interval(Frozen):
    """The half-open stretch of time `[start, end)` that one run processes."""

    start: AwareDatetime
    end: AwareDatetime

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.end <= self.start:
            raise ValueError(f"an interval ends after it starts: {self.start} .. {self.end}")
        return self

    @classmethod
    def of(cls, start: datetime, end: datetime) -> Interval:
        """The interval in UTC; a time without a zone is taken as UTC."""
        return cls(start=to_utc(start), end=to_utc(end))

    def __str__(self) -> str:
        return f"{_basic(self.start)}-{_basic(self.end)}"

    @property
    def told(self) -> str:
        """For a person: `2013-01-01 00:00 to 2013-01-02 00:00 UTC`."""
        return f"{self.start:%Y-%m-%d %H:%M} to {self.end:%Y-%m-%d %H:%M} UTC"

    def command(self, verb: str, pipeline: str, *options: str) -> str:
        """A command line of `fencepost` about this interval of a pipeline."""
        times = ("--start", _iso(self.start), "--end", _iso(self.end))
        return f"`{' '.join(['fencepost', verb, pipeline, *times, *options])}`"

    def overlaps(self, other: Interval) -> bool:
        """Whether the two share a moment."""
        return self.start < other.end and other.start < self.end


class BatchId(Frozen):
    """A batch's name: pipeline, interval and revision. Never a run id, never a try number."""

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
            raise ValueError(f"partition {self.partition}: end {self.end} lies before start {self.start}")
        return self

    @property
    def partition_id(self) -> PartitionId:
        """The partition, by topic and number."""
        return self.topic, self.partition

    @property
    def length(self) -> int:
        """Number of offsets. There may be fewer records: markers and aborted records take offsets too."""
        return self.end - self.start

    def holds(self, partition: PartitionId, offset: int) -> bool:
        """Whether this offset of this partition lies in it."""
        return self.partition_id == partition and self.start <= offset < self.end


class UnreadRange(OffsetRange):
    """Offsets before the first range of a partition. `last_timestamp` is that of the last committed record among them, in
    milliseconds, as far as it is known; negative: it has none."""

    last_timestamp: int | None = None


def by_partition(topic: str, offsets: Sequence[int]) -> dict[PartitionId, int]:
    """The offsets of a topic's partitions, which are listed in their order, by partition."""
    return {(topic, partition): offset for partition, offset in enumerate(offsets)}


def describe_topics(ranges: Iterable[OffsetRange]) -> str:
    """Text for a person: `topic orders`, the topic that the ranges are of."""
    topics = list(dict.fromkeys(part.topic for part in ranges))
    return f"{'topic' if len(topics) == 1 else 'topics'} {', '.join(topics)}"


def describe_ranges(ranges: Iterable[OffsetRange]) -> str:
    """Text for a person: `partition 1: offsets 0 to 2`. The last offset is included."""
    return ", ".join(f"partition {r.partition}: offsets {r.start} to {r.end - 1}" for r in ranges)


class TopicInput(Frozen):
    """What a batch reads of one topic: an offset range for each partition.

    `lost` lists ranges that were deleted from the topic before they could be planned. Only a pipeline with
    `on_expired: skip` accepts that. `unread` lists what the topic had before the ranges, where no earlier interval was planned.
    """

    kind: Literal["topic"] = "topic"
    topic: str
    topic_id: str
    ranges: tuple[OffsetRange, ...]
    lost: tuple[OffsetRange, ...] = ()
    unread: tuple[UnreadRange, ...] = ()

    @model_validator(mode="after")
    def _of_this_topic(self) -> Self:
        if any(part.topic != self.topic for part in (*self.ranges, *self.lost, *self.unread)):
            raise ValueError(f"ranges of another topic than {self.topic}")
        return self


PlannedInput = TopicInput  # `kind` tells it from others


class TopicEnds(Frozen):
    """A topic and where it ends: `ends[p]` is the high watermark of partition `p`.

    `topic_id` is its identity: a topic that was deleted and created again has a new one.
    """

    topic: str
    topic_id: str
    ends: tuple[Offset, ...]


def _of_kind(name: str) -> Callable[[object], object]:
    """Reads JSON as the class that a kind of output has under that name (`output_kinds.py`); a value stays as it is."""

    def read(value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        kind = value.get("kind")
        if kind not in OUTPUT_KINDS:
            raise ValueError("no such kind of output")
        return part_of(kind, "values", name).model_validate(value)

    return read


class PlannedOutput(Frozen):
    """Where a batch goes, as its plan froze it. Each kind of output has its own class."""

    kind: str
    # Whether a batch without records is published to it by a step of its own too: something may have to go there.
    takes_empty: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """The output's."""
        raise NotImplementedError

    @property
    def told(self) -> str:
        """For a person."""
        raise NotImplementedError

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics of Kafka that its records are in; none unless the kind says so."""
        return ()

    @property
    def direct(self) -> TopicEnds | None:
        """Where a batch is written that is not staged; None where every batch has to be staged."""
        return None

    def ranges(self, batch: Batch) -> tuple[OffsetRange, ...]:
        """Where in its topic the batch lies, as `Batch.published_ranges`; nowhere unless the kind says so."""
        return ()

    def announced(self, batch: Batch) -> dict[str, Any]:
        """What the announcement of the batch says of it: fields of `Announcement`."""
        raise NotImplementedError


AnyPlannedOutput = Annotated[SerializeAsAny[PlannedOutput], BeforeValidator(_of_kind("PLANNED"))]
P = TypeVar("P", bound=PlannedOutput)


class RegisteredSchema(Frozen):
    """A schema of the registry, as a plan froze it. `text` is its JSON, without documentation.

    `version` is None for a schema that was found by its id alone. A frozen writer's schema has the reader's names; it has no
    text where the reader's alone decides.
    """

    subject: str
    id: int = Field(ge=0)
    version: int | None = None
    text: str

    def __str__(self) -> str:
        version = "" if self.version is None else f"version {self.version}, "
        return f"subject {self.subject} ({version}id {self.id})"


class ReadSchemas(Frozen):
    """How the keys or the values of a source are decoded: into `reader`, from the schema that each record's id names.

    Records of the ids in `refused` are malformed, for the reason there. Any other id is looked up when it is met.
    """

    reader: RegisteredSchema
    writers: tuple[RegisteredSchema, ...]
    refused: dict[int, str] = Field(default_factory=dict)

    @property
    def ids(self) -> set[int]:
        """The ids of which it is known what to do."""
        return {writer.id for writer in self.writers} | self.refused.keys()


class Schemas(Frozen):
    """The schemas of a batch's keys and values, for the parts that have a registry.

    The output's may be missing in a plan under `auto_register`: the write job then registers the schema of the transform's
    result, and records it here before it writes.
    """

    source: ReadSchemas | None = None
    source_key: ReadSchemas | None = None
    output: RegisteredSchema | None = None
    output_key: RegisteredSchema | None = None

    @property
    def told(self) -> dict[str, str]:
        """Which schema each part is read or written with, for a person; without parts that have none."""
        found = {}
        for part, read in (("source", self.source), ("source key", self.source_key)):
            if read is not None:
                ids = ", ".join(str(number) for number in sorted(writer.id for writer in read.writers))
                found[part] = f"{read.reader}; records of ids {ids}"
        for part, written in (("output", self.output), ("output key", self.output_key)):
            if written is not None:
                found[part] = str(written)
        return found


NO_SCHEMAS = Schemas()


class Tally(Frozen):
    """The records committed to one topic: their number, their fingerprint, and the bytes of their keys and values.

    The fingerprint is the sum, modulo 2**64, of a 64-bit hash of every record's key and value. It does not depend on order.
    """

    rows: int = Field(default=0, ge=0)
    fingerprint: int = Field(default=0, ge=0, lt=2**64)
    bytes: int = Field(default=0, ge=0)

    @classmethod
    def total(cls, tallies: Iterable[Tally]) -> Tally:
        """All of these together."""
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
    """One task-partition: its number in the batch, which receipts name, and the partition that it is for.

    Its mark is that partition's offset, in the group of its kind. Its transactional id is the lane's with the partition's number.
    So a mark belongs to one id for ever: whoever has fenced that id knows that nobody commits the mark late.
    """

    number: int
    topic: str
    partition: int


class Replayed(Frozen):
    """What an addition takes from quarantine: everything that the batch of that name sent there, and its tally.

    `attempt` is that of the records which fail again, 2 for the first addition to an interval's batch.
    """

    batch: str
    tally: Tally
    attempt: int = Field(ge=2)


class Plan(Frozen):
    """A frozen batch: what it reads, and the ids it writes under. Never computed again.

    `output` is the topic or table that the batch is for. A staged batch is written to `staging` first, and put into `output` when
    it is published. Topics' `ends` say where they ended when the batch was planned. `lane` names its transactional ids and the
    groups of its marks: a number, or of an addition `replay-<n>`. The lane's ids below `fence_up_to` that no row is written under
    may have open transactions of earlier, wider batches; they are fenced first.
    `digests` has a digest for each part that decides the output. `software` names the versions that write it.
    `ledger_topic_id` is the id of the ledger topic that the batch's lease is an offset of.

    `staged_at` is set with `staging`: the timestamp, in milliseconds, of each of the batch's records there. No other batch in the
    ledger has the same one, so it tells the records from others. In the output a header does so. That takes a writer of small
    records as much time as all else *(measured: librdkafka takes memory for it in one thread, and gives it back in another)*.

    `tasks` has a block of task-partitions for each kind; their numbers go through the blocks in order. The first block is of
    rows: under layout `source` for the partitions of what is read, under `output` for those of the topic that is written to.
    `quarantine` is set if the pipeline quarantines records. Under `on_malformed: quarantine` a second block, for the partitions
    of what is read, writes the malformed records if there are any. It begins when all of the first have committed, and uses the
    same transactional ids.

    An addition's input is the quarantine topic, where it reads what `replays` names. What is still malformed, and what cannot
    be replayed, is quarantined again by the task-partitions for malformed records, which it always has.

    `also_covers` is set if the batch has records and the interval that was planned before it ended earlier than this one begins:
    nothing was planned for that stretch, so its records are this batch's too.

    The write job may add to `schemas` before it writes what they decide: an id that the plan did not know.
    """

    inputs: tuple[PlannedInput, ...] = Field(min_length=1)
    output: AnyPlannedOutput
    staging: TopicEnds | None = None
    staged_at: int | None = Field(default=None, gt=0)
    ledger_topic_id: str
    layout: Layout
    tasks: tuple[TaskBlock, ...] = Field(min_length=1)
    lane: str = Field(min_length=1)
    fence_up_to: int = Field(ge=0)
    digests: dict[str, str]
    software: str
    planned_at: AwareDatetime
    quarantine: TopicEnds | None = None
    output_format: str = Field(min_length=1)  # of the values that it writes: they are read back by it
    schemas: Schemas | None = None  # None: no part of the pipeline has a registry
    replays: Replayed | None = None
    also_covers: Interval | None = None
    cluster_id: str | None = None  # of the Kafka cluster that it was planned on

    @model_validator(mode="after")
    def _is_written_somewhere(self) -> Self:
        if self.staging is None and self.output.direct is None:
            raise ValueError(f"a batch for {self.output.told} is staged")
        return self

    @model_validator(mode="after")
    def _has_one_block_of_a_kind(self) -> Self:
        """Blocks of one kind would be written side by side, under the same transactional ids."""
        kinds = [block.kind for block in self.tasks]
        if kinds[0] is not TaskKind.ROWS or len({*kinds}) != len(kinds):
            raise ValueError(f"task-partitions are those of rows, and then one block of any other kind: {kinds}")
        return self

    @property
    def told_also(self) -> str:
        """For a person, which stretch the batch covers besides its own interval; empty if none."""
        return f"It also covers {self.also_covers.told}, for which no interval was planned" if self.also_covers else ""

    @property
    def attempt(self) -> int:
        """How often the records that it quarantines have failed: 1 where they come from the source."""
        return self.replays.attempt if self.replays else 1

    @property
    def ids(self) -> int:
        """How many of the lane's transactional ids it uses."""
        return max(block.partitions for block in self.tasks)

    def tasks_of(self, kind: TaskKind) -> tuple[TaskPartition, ...]:
        """Its task-partitions of that kind, in order."""
        found, first = list[TaskPartition](), 0
        for block in self.tasks:
            if block.kind is kind:
                found += [TaskPartition(first + p, block.topic, p) for p in range(block.partitions)]
            first += block.partitions
        return tuple(found)

    def tasks_by_range(self, kind: TaskKind) -> dict[OffsetRange, int]:
        """The number of the task-partition of that kind for each range that it reads."""
        numbers = {(task.topic, task.partition): task.number for task in self.tasks_of(kind)}
        return {part: numbers[part.partition_id] for part in self.ranges}

    def task_count(self, aside: int = 0) -> int:
        """How many task-partitions have to commit if this many records do not reach the transform: `Written.aside`."""
        return sum(block.partitions for block in self.tasks if aside or block.kind is TaskKind.ROWS)

    @property
    def quarantines_malformed(self) -> bool:
        """Whether it has task-partitions for malformed records."""
        return any(block.kind is TaskKind.MALFORMED for block in self.tasks)

    @property
    def ranges(self) -> tuple[OffsetRange, ...]:
        """The ranges of all that it reads."""
        return tuple(part for one in self.inputs for part in one.ranges)

    @property
    def lost(self) -> tuple[OffsetRange, ...]:
        """The parts of them that were deleted before they could be planned."""
        return tuple(part for one in self.inputs for part in one.lost)

    @property
    def unread(self) -> tuple[UnreadRange, ...]:
        """What lay before them, where no earlier interval was planned."""
        return tuple(part for one in self.inputs for part in one.unread)

    @property
    def written_to(self) -> TopicEnds:
        """Where the write step writes the batch."""
        found = self.staging or self.output.direct
        assert found is not None, "a plan without one is refused"
        return found

    def output_as(self, kind: type[P]) -> P:
        """The output, as the class of its kind.

        Raises:
            NotRecorded: it is of another kind.
        """
        if not isinstance(self.output, kind):
            raise NotRecorded(f"{self.output.told} is of another kind of output. {DEFECT}")
        return self.output

    @property
    def offsets(self) -> int:
        """How many offsets the batch reads."""
        return sum(part.length for part in self.ranges)

    @property
    def is_empty(self) -> bool:
        """Whether it reads no offsets. Such a batch is written without Spark."""
        return self.offsets == 0


class Receipt(Frozen):
    """What a mark says: what task-partition `task` committed under `lease`, by topic.

    A lease is an offset of one ledger topic and means nothing in another; `ledger` is that topic's id. `rules` has the number of
    quarantined rows by the position of the rule they failed, among the rules of the suite. `withheld` is the number of rows that
    were not written because their source record went to quarantine with another of its rows.
    """

    task: int = Field(ge=0)
    ledger: str
    lease: Offset
    topics: dict[str, Tally]
    rules: dict[int, int] = Field(default_factory=dict)
    withheld: int = Field(default=0, ge=0)

    @property
    def rows(self) -> int:
        """Records committed to all topics."""
        return sum(t.rows for t in self.topics.values())

    def tally(self, topic: str) -> Tally:
        """What was committed to that topic; `NOTHING` if the receipt does not name it."""
        return self.topics.get(topic, NOTHING)


NOTHING = Tally()


class Written(Frozen):
    """What all task-partitions of a batch have committed, and where its topics ended then. Every record lies below those ends.

    It has the sums of the receipts, which themselves stay in the marks: `tasks` is their number, `topics` what they committed to
    each topic, `withheld` the rows that were not written because their source record went to quarantine with another of its rows.
    If the pipeline has quarantine rules, `rules` has the rows that failed each, in the suite's order, and `results` is the number
    of rows of the transform's result, as Spark counted them before anything was written.

    `rows_in` and `newest` are None if a retry found the rows committed and did not read the source again to count.

    An addition's `rows_in` are the records it took from quarantine. `judged_again` of them are results of an earlier transform:
    they need none, and the rules judged them as they were. Those that are not of the output's format any more count as malformed.
    """

    tasks: int = Field(ge=1)
    topics: dict[str, Tally]
    rules: dict[str, int] = Field(default_factory=dict)
    withheld: int = Field(default=0, ge=0)
    output: TopicEnds
    rows_in: int | None = Field(default=None, ge=0)
    malformed: int = Field(default=0, ge=0)
    malformed_at: tuple[tuple[str, int, int], ...] = ()  # (topic, partition, offset) of the first few dropped records
    tombstones: int = Field(default=0, ge=0)  # records without a value that were dropped
    judged_again: int = Field(default=0, ge=0)
    quarantine: TopicEnds | None = None
    results: int | None = Field(default=None, ge=0)
    newest: AwareDatetime | None = None  # the latest timestamp of a source record, malformed ones included
    value_schema: str = ""  # the value's fields with the transform's types, as Spark writes a schema in JSON
    seconds: float = Field(ge=0)
    written_at: AwareDatetime

    @classmethod
    def of(cls, receipts: Sequence[Receipt], rules: Sequence[str] = (), **known: Any) -> Self:
        """The sums of these receipts, and what else is `known`; `rules` are the names of the suite's rules, by position."""
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
        """All records that the task-partitions wrote to the output."""
        return self.topics.get(self.output.topic, NOTHING)

    @property
    def rows(self) -> int:
        """Their number."""
        return self.tally.rows

    @property
    def fingerprint(self) -> int:
        """Their fingerprint."""
        return self.tally.fingerprint

    @property
    def bytes(self) -> int:
        """Bytes of their keys and values."""
        return self.tally.bytes

    @property
    def quarantined(self) -> dict[str, int]:
        """Records committed to quarantine, by the rule they failed, `malformed` first. Rules without records are left out."""
        malformed = self.quarantined_tally.rows - sum(self.rules.values())
        return {rule: rows for rule, rows in {MALFORMED: malformed, **self.rules}.items() if rows}

    @property
    def aside(self) -> int:
        """Records read that are not for the transform: malformed ones, and results. 0 if there is none."""
        return self.malformed + self.judged_again

    @property
    def quarantined_tally(self) -> Tally:
        """All records committed to quarantine."""
        return NOTHING if self.quarantine is None else self.topics.get(self.quarantine.topic, NOTHING)


class Publication(Frozen):
    """A staged batch's way to its output, from the decision to publish it on. Each kind of output has its own class.

    `lease` is the offset, in the ledger topic with the id `ledger`, of the record that began the publication; the ledger's reader
    fills it in, as for a plan. `refused`: why the output did not take the batch when it was last tried.
    """

    kind: str
    ledger: str
    lease: Offset | None = None
    begun_at: AwareDatetime
    seconds: float = Field(default=0, ge=0)
    refused: str = ""
    # Whether readers see nothing of it before all of it is committed, so that it may be given up whatever holds it.
    is_unseen: ClassVar[bool] = True

    @property
    def has_ended(self) -> bool:
        """Whether all of the batch was there when the ledger said so."""
        raise NotImplementedError

    @property
    def way(self) -> str:
        """How the batch gets there, for a person: `in one transaction`."""
        raise NotImplementedError

    @property
    def taker(self) -> str:
        """Who may refuse it, for a person."""
        raise NotImplementedError

    @property
    def needs_spark(self) -> bool:
        """Whether Spark has to publish the batch; it has not unless the kind says so."""
        return False

    @property
    def transaction_seconds(self) -> float | None:
        """How long the transaction of Kafka was open that had all of the batch; None unless the kind says so."""
        return None

    def without_marks(self, batch: Batch) -> str:
        """What the next attempt does once marks of it have expired, for a person; empty where it has none."""
        return ""

    @property
    def known_lease(self) -> int:
        """The lease of a publication read from the ledger."""
        if self.lease is None:
            raise NotRecorded(f"a publication has no lease before it is read from the ledger. {DEFECT}")
        return self.lease


AnyPublication = Annotated[SerializeAsAny[Publication], BeforeValidator(_of_kind("PUBLICATION"))]
B = TypeVar("B", bound=Publication)


class Verdict(Frozen):
    """The gate's verdict on one revision, and the path of its report. `number` counts the revision's validations.

    `suite_digest` is of the suite and of the settings under `quality` that decide a verdict.
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


class Asked(Frozen):
    """The rejected batch that a question was about: its name, its lease, and the validation that rejected it."""

    batch: str
    lease: Offset
    validation: int = Field(ge=1)
    addition: bool = False


PUBLISH_ANYWAY = "publish anyway"  # an action: the answer to Airflow's question, where the command's is "publish"


class Decision(Frozen):
    """An operator's decision about a batch: who, when and why.

    A decision that answers a question holds only for what was `asked` about. `asked` itself is not recorded.
    """

    action: str
    by: str
    reason: str = Field(min_length=1)
    decided_at: AwareDatetime
    asked: Asked | None = Field(default=None, exclude=True)


class Event(Frozen):
    """One line of a batch's history."""

    state: State
    at: AwareDatetime
    note: str = ""


class Batch(Frozen):
    """A ledger record: everything known about one revision of one interval.

    A revision that `adds_to` an earlier one is an addition: it has what passed of that one's quarantine, and replaces nothing.
    `lease` is the ledger offset of the record that planned the batch. That record cannot contain its own offset, so the
    ledger's reader fills it in.

    `requests` names what asked for this revision: one that found it under way is added to that which planned it. Each request is
    answered by one revision.
    """

    version: int = Field(default=LEDGER_VERSION, ge=LEDGER_VERSION, le=LEDGER_VERSION)
    pipeline: str
    interval: Interval
    revision: int = Field(ge=1)
    adds_to: int | None = Field(default=None, ge=1)
    state: State
    lease: Offset | None = None
    plan: Plan
    written: Written | None = None
    verdict: Verdict | None = None
    decision: Decision | None = None
    requests: tuple[str, ...] = ()
    publication: AnyPublication | None = None
    history: tuple[Event, ...] = Field(min_length=1)

    @property
    def id(self) -> BatchId:
        """The batch's name."""
        return BatchId(pipeline=self.pipeline, interval=self.interval, revision=self.revision)

    def command(self, verb: str, *options: str) -> str:
        """A command line about this batch's interval, for messages: a person can paste it."""
        return self.interval.command(verb, self.pipeline, *options)

    def output_ranges(self, written: Written) -> tuple[OffsetRange, ...]:
        """Where the batch was written: in each partition of that topic, between its end at planning and after writing."""
        return between(self.plan.written_to, written.output)

    @property
    def known_written(self) -> Written:
        """What it wrote.

        Raises:
            NotRecorded: it is not written.
        """
        return self._recorded(self.written, "result of a write")

    @property
    def known_publication(self) -> Publication:
        """Its publication, which has begun.

        Raises:
            NotRecorded: it has not.
        """
        return self._recorded(self.publication, "publication")

    def publication_as(self, kind: type[B]) -> B:
        """The same, as the class of its kind of output.

        Raises:
            NotRecorded: it is of another kind, or has not begun.
        """
        found = self.publication
        return self._recorded(found if isinstance(found, kind) else None, f"publication of class {kind.__name__}")

    @property
    def known_verdict(self) -> Verdict:
        """Its verdict.

        Raises:
            NotRecorded: it was not judged.
        """
        return self._recorded(self.verdict, "verdict")

    @property
    def known_quarantine(self) -> TopicEnds:
        """The quarantine topic of its plan.

        Raises:
            NotRecorded: its pipeline quarantined nothing.
        """
        return self._recorded(self.plan.quarantine, "quarantine topic")

    @property
    def known_staging(self) -> TopicEnds:
        """The staging topic of its plan.

        Raises:
            NotRecorded: it was written to its output.
        """
        return self._recorded(self.plan.staging, "staging topic")

    @property
    def known_staged_at(self) -> int:
        """The timestamp of its records there.

        Raises:
            NotRecorded: as above.
        """
        return self._recorded(self.plan.staged_at, "timestamp for staged records")

    def _recorded(self, value: T | None, what: str) -> T:
        if value is None:
            raise NotRecorded(f"batch {self.id} is {self.state}, and its record in the ledger has no {what}. {DEFECT}")
        return value

    def publication_under(self, lease: int) -> Publication | None:
        """The batch's publication, if it is under way and has that lease: it was not given up, and has not ended."""
        publication = self.publication
        if self.state is not State.PUBLISHING or publication is None or publication.known_lease != lease:
            return None
        return publication

    @property
    def published_ranges(self) -> tuple[OffsetRange, ...]:
        """Where in the output's topic the batch lies, by partition: ranges without offsets where it is written without a record.

        Nothing while it is not there, or where the output is no topic.
        """
        return self.plan.output.ranges(self)

    @property
    def is_staged(self) -> bool:
        """Whether it was written to a staging topic, and has records there."""
        return self.plan.staging is not None and self.written is not None and self.written.rows > 0

    @property
    def is_put(self) -> bool:
        """Whether publishing it takes a step of its own: its staged records are put into its output."""
        return self.is_staged or (self.written is not None and self.plan.output.takes_empty)

    def quarantine_ranges(self, written: Written) -> tuple[OffsetRange, ...]:
        """Where its quarantined records are, in the same way; nothing if the pipeline quarantines nothing."""
        if self.plan.quarantine is None or written.quarantine is None:
            return ()
        return between(self.plan.quarantine, written.quarantine)

    @property
    def changed_at(self) -> datetime:
        """When the batch last changed."""
        return self.history[-1].at

    @property
    def known_lease(self) -> int:
        """The lease of a batch read from the ledger."""
        return self._recorded(self.lease, "lease before it is read from there")


def between(begun: TopicEnds, ended: TopicEnds) -> tuple[OffsetRange, ...]:
    """By partition; one that is younger than `begun` from its beginning."""
    starts = begun.ends
    return tuple(
        OffsetRange(topic=ended.topic, partition=p, start=starts[p] if p < len(starts) else 0, end=end)
        for p, end in enumerate(ended.ends)
    )


class StepResult(Frozen):
    """What a step returns: ids and small numbers only, fit for XCom and for `--json`.

    `changed` is False if the step found its work done already. `message` is one sentence for a person.
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
        """The result of a step; `batch` is the batch as it stands after it."""
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
    """How many offsets of its source a batch has, if these are the details of a plan's result."""
    found = details.get("offsets") if isinstance(details, Mapping) else None
    return found if isinstance(found, int) else None


def utc_now() -> datetime:
    """The current time, in UTC, to the second."""
    return datetime.now(UTC).replace(microsecond=0)


def to_utc(moment: datetime) -> datetime:
    """The moment in UTC; a time without a zone is taken as UTC."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def time_of(milliseconds: int) -> datetime:
    """A record's timestamp. A producer may write any number: what is far from now is cut, so that it can be calculated with."""
    return datetime.fromtimestamp(min(max(0, milliseconds), FAR) / 1000, UTC)


def told_time(milliseconds: int) -> str:
    """A record's timestamp, for a person."""
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
