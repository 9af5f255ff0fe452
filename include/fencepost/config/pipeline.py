"""A pipeline's settings: frozen values that check themselves.

Nothing here imports Spark, Airflow or Great Expectations: Airflow's DAG processor loads it every few seconds.
"""

from __future__ import annotations

import os
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self
from zoneinfo import ZoneInfo

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    field_validator,
    model_validator,
)

from fencepost.config.airflow_settings import AirflowSettings
from fencepost.config.client_config import ClientConfig, scalars
from fencepost.config.cron import Cron, check_cron
from fencepost.config.digest import digest, digest_of_file, digest_of_files, digest_of_spark
from fencepost.config.notify import Ask, Notify
from fencepost.config.output_settings import AnyOutputSettings, RecordSettings
from fencepost.config.sections import (
    ColumnType,
    FormatName,
    KeyFormat,
    Lineage,
    Section,
    Subject,
    TopicName,
    Version,
    check_subjects,
)
from fencepost.config.services.schema_registry import SCHEMA_REGISTRY
from fencepost.config.spark_options import check_spark
from fencepost.config.strict_yaml import read_yaml
from fencepost.formats import FORMATS
from fencepost.formats.names import twins
from fencepost.suite.numbers import number_of, shown

if TYPE_CHECKING:
    from fencepost.suite.declared import Suite

PIPELINE_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
NOT_IN_FILE = frozenset(("name", "folder", "connections", "resolved"))  # fields that pipeline.yaml does not set
MINUTES_OF_A_YEAR = 366 * 24 * 60  # beyond some number, no timedelta holds it, and Airflow could read no pipeline


def _moment(value: object) -> object:
    """A moment in UTC. YAML gives dates, times with a zone and times without; one without is taken as UTC."""
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        try:
            return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        except OverflowError:
            raise ValueError("not within the years 1 to 9999 in UTC") from None
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    return value


Moment = Annotated[datetime, BeforeValidator(_moment)]


class Source(Section):
    """Where records come from. `columns` (in YAML: `schema`) declares JSON fields by Spark SQL type; for json_schema, those
    whose type is not to come from the registry.

    `subject` and `version` say which schema of the registry a value is read with, `key_subject` and `key_version` a key.
    """

    topic: TopicName
    format: FormatName = "json"
    subject: Subject | None = None
    version: Version | None = None
    key_format: KeyFormat = "bytes"
    key_subject: Subject | None = None
    key_version: Version | None = None
    columns: dict[str, ColumnType] = Field(default_factory=dict, alias="schema")
    headers: bool = False
    on_malformed: Literal["fail", "drop", "quarantine"] = "fail"
    tombstones: Literal["fail", "drop", "pass"] = "fail"
    on_expired: Literal["fail", "skip"] = "fail"

    @field_validator("columns")
    @classmethod
    def _no_reserved_names(cls, columns: dict[str, str]) -> dict[str, str]:
        for name in columns:
            if name.startswith("_") or not re.fullmatch(r"\w+", name):
                raise ValueError(f"column {name!r}: names are letters, digits and _, and do not begin with _")
        if both := twins(columns):
            raise ValueError(f"columns {both[0]!r} and {both[1]!r} differ only in case: to Spark they are the same")
        return columns

    @model_validator(mode="after")
    def _columns_suit_the_format(self) -> Self:
        FORMATS[self.format].check_columns(self.columns)
        check_subjects(self)
        return self


class Schedule(Section):
    """When Airflow runs the pipeline: cron boundaries cut time into intervals, with a batch for each."""

    cron: str = "0 0 * * *"
    timezone: str = "UTC"
    start: Moment
    end: Moment | None = None
    catchup: bool = True
    retries: int = Field(default=3, ge=0, le=100)
    retry_delay_seconds: int = Field(default=30, ge=0, le=MINUTES_OF_A_YEAR * 60)
    timeout_minutes: int = Field(default=60, ge=1, le=MINUTES_OF_A_YEAR)
    # Airflow raises its deadline alert if a scheduled run has not succeeded this long after its interval's end.
    deadline_minutes: float | None = Field(default=None, gt=0, le=MINUTES_OF_A_YEAR)

    @property
    def boundaries(self) -> Cron:
        """Where the schedule cuts time into intervals. `start` and `end` do not bound them."""
        return Cron(self.cron, self.timezone)

    @property
    def patience(self) -> timedelta:
        """The longest time that one step may take with all its retries."""
        tries = timedelta(minutes=self.timeout_minutes) * (self.retries + 1)
        return tries + timedelta(seconds=self.retry_delay_seconds) * self.retries

    @field_validator("cron")
    @classmethod
    def _is_cron(cls, cron: str) -> str:
        check_cron(cron)
        return cron

    @field_validator("timezone")
    @classmethod
    def _is_timezone(cls, name: str) -> str:
        if name in ("localtime", "posixrules"):
            raise ValueError("it is another time zone on another machine; name one, such as UTC or Europe/Vienna")
        unknown = "not a time zone of the IANA database, such as UTC or Europe/Vienna"
        # Copies of the database, in its folder; `right` counts leap seconds.
        if name.startswith(("posix/", "right/")):
            raise ValueError(unknown)
        try:
            ZoneInfo(name)
        except Exception as error:
            raise ValueError(unknown) from error
        return name

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.end is not None and self.end <= self.start:
            raise ValueError(f"end ({self.end}) must lie after start ({self.start})")
        return self


def _as_written(number: object) -> object:
    """The number with the digits that it is written with, where it is one."""
    exact = number_of(number)
    return number if exact is None else exact


class QuarantineLimit(Section):
    """How much of a batch may go to quarantine; above it the batch is rejected as a whole.

    `rows` counts all quarantined records. `share` applies twice: to malformed records as a share of the records read, and to
    rows that fail a rule as a share of the transform's rows. With a filter or an aggregate, another share would mean little.
    """

    rows: int | None = Field(default=None, ge=0)
    share: Annotated[Decimal, BeforeValidator(_as_written), PlainSerializer(shown), Field(ge=0, le=1)] | None = None

    @model_validator(mode="after")
    def _limits_something(self) -> Self:
        if self.rows is None and self.share is None:
            raise ValueError("give rows, share, or both; quarantine_limit: none is no limit")
        return self


class Quality(Section):
    """How a batch is judged. `empty` is the verdict on a batch without records."""

    sample_rows: int = Field(default=20, ge=0, le=1_000)
    empty: Literal["pass", "reject"] = "pass"
    open_transaction_wait_seconds: float = Field(default=60, ge=0)
    # How long Airflow waits for a person's decision on a rejected batch; 0: it does not ask.
    ask_operator_minutes: float = Field(default=0, ge=0, le=MINUTES_OF_A_YEAR)
    ask: Ask = Ask()
    quarantine_limit: QuarantineLimit | None = QuarantineLimit(share=Decimal("0.01"))
    quarantine_topic: TopicName | None = None

    @field_validator("quarantine_limit", mode="before")
    @classmethod
    def _none_is_no_limit(cls, limit: object) -> object:
        if limit is None:
            raise ValueError("left empty; give rows, share, or both. quarantine_limit: none is no limit")
        return None if limit == "none" else limit

    @model_validator(mode="after")
    def _users_need_a_question(self) -> Self:
        if self.ask.assigned_users and not self.ask_operator_minutes:
            raise ValueError("ask.assigned_users needs ask_operator_minutes above 0: without it nobody is asked")
        return self


class Pipeline(ClientConfig):
    """One pipeline, as read from its folder. `kafka` is in librdkafka's names, `spark` in Spark's."""

    folder: Path
    description: str = ""
    source: Source
    output: AnyOutputSettings
    schedule: Schedule
    quality: Quality = Quality()
    notify: tuple[Notify, ...] = ()
    lineage: Lineage = Lineage()
    # One lane: a batch is planned only when the one before it is written, so a key's records keep their order from interval
    # to interval. More lanes write intervals side by side and give up that order.
    lanes: int = Field(default=1, ge=1, le=64)
    spark: dict[str, str] = Field(default_factory=dict)
    airflow: AirflowSettings = AirflowSettings()

    @field_validator("spark", mode="before")
    @classmethod
    def _spark_scalars(cls, value: object) -> object:
        return scalars(value)

    @field_validator("spark")
    @classmethod
    def _spark_keeps_the_protocol(cls, spark: dict[str, str]) -> dict[str, str]:
        check_spark(spark)
        return spark

    @model_validator(mode="after")
    def _events_can_happen(self) -> Self:
        events = {event for entry in self.notify for event in entry.on}
        if "late" in events and self.schedule.deadline_minutes is None:
            raise ValueError("notify: late needs schedule.deadline_minutes: without it there is no deadline to miss")
        if "awaiting" in events and not self.quality.ask_operator_minutes:
            raise ValueError("notify: awaiting needs quality.ask_operator_minutes above 0: without it nobody is asked")
        return self

    @model_validator(mode="after")
    def _a_store_where_one_is_asked(self) -> Self:
        for service, what in self.output.services.items():
            if not getattr(self, service) and service not in self.connections:
                raise ValueError(f"output.kind: {self.output.kind} needs {service}: with {what}, or with a connection")
        return self

    @model_validator(mode="after")
    def _two_topics(self) -> Self:
        own = self.output.topics
        if self.source.topic in own:
            raise ValueError(
                f"output.topic is the source topic ({self.source.topic}); a batch would read its own output"
            )
        for topic in {self.ledger_topic, self.announcements_topic}.intersection(own):
            raise ValueError(
                f"output.topic is {topic}, which is the pipeline's ledger or topic of announcements; name another"
            )
        if self.staging_topic in {self.source.topic, *own, self.ledger_topic, self.announcements_topic}:
            raise ValueError(
                f"output.staging_topic is {self.staging_topic}, which is the pipeline's source, output, ledger or topic of "
                "announcements; records that are not judged need a topic of their own"
            )
        taken = {
            self.source.topic: "source.topic",
            **dict.fromkeys(own, "output.topic"),
            self.staging_topic: "output.staging_topic",
            self.ledger_topic: "the ledger",
            self.announcements_topic: "the topic of announcements",
        }
        if (what := taken.get(self.quarantine_topic)) is not None:
            raise ValueError(
                f"quality.quarantine_topic is {what} ({self.quarantine_topic}); quarantined records need a topic of their own"
            )
        return self

    @model_validator(mode="after")
    def _a_registry_where_one_is_asked(self) -> Self:
        if self.uses_registry and self.schema_registry is None:
            asking = " and ".join(f"{field}: {name}" for field, name in self._in_registry.items())
            raise ValueError(f"{asking} needs schema_registry: with the url of one")
        return self

    @property
    def uses_registry(self) -> bool:
        """Whether a part of its records has its schema in a registry."""
        return bool(self._in_registry)

    @property
    def _in_registry(self) -> dict[str, str]:
        """The formats of parts whose schemas are in a registry, by the setting."""
        formats = {
            "source.format": self.source.format,
            "source.key_format": self.source.key_format,
            "output.format": self.output.records.format,
            "output.key_format": self.output.records.key_format,
        }
        return {field: name for field, name in formats.items() if FORMATS[name].has_registry}

    def subject(self, part: Literal["source", "source_key", "output", "output_key"]) -> str:
        """The subject of a part's schema: by the name of its topic unless another is set."""
        section = self.encoded(part)
        topic = self.source.topic if section is self.source else self.output.name
        if part.endswith("_key"):
            return section.key_subject or f"{topic}-key"
        return section.subject or f"{topic}-value"

    def encoded(self, part: Literal["source", "source_key", "output", "output_key"]) -> Source | RecordSettings:
        """The settings that say how a part is encoded."""
        return self.source if part.startswith("source") else self.output.records

    @property
    def told(self) -> str:
        """For a person."""
        return f"pipeline {self.name}"

    @property
    def written_in(self) -> str:
        """Where its settings are written."""
        return str(self.folder / "pipeline.yaml")

    @property
    def ledger_topic(self) -> str:
        """The compacted topic that holds the truth about every batch."""
        return f"fencepost.{self.name}.ledger"

    @property
    def staging_topic(self) -> str:
        """Where batches are written under `publish: staged`."""
        return self.output.staging_topic or f"fencepost.{self.name}.staging"

    @property
    def quarantine_topic(self) -> str:
        """Where malformed records go, and rows that fail a rule, if the pipeline quarantines any."""
        return self.quality.quarantine_topic or f"fencepost.{self.name}.quarantine"

    @property
    def coordinator_id(self) -> str:
        """The transactional.id that writes the ledger."""
        return f"{self.name}.coordinator"

    @property
    def group(self) -> str:
        """The consumer group whose offsets are the frontier."""
        return self.name

    @property
    def validated_group(self) -> str:
        """The consumer group whose offsets are the ends of validated output."""
        return f"{self.name}.validated"

    def lane_group(self, lane: str) -> str:
        """The consumer group that holds a lane's marks."""
        return f"{self.name}.lane-{lane}"

    def malformed_group(self, lane: str) -> str:
        """The consumer group that holds the marks of a lane's task-partitions for malformed records."""
        return f"{self.name}.malformed-{lane}"

    def writer_id(self, lane: str, task: int) -> str:
        """The transactional.id of one task-partition of a lane."""
        return f"{self.name}.{lane}.{task}"

    def publisher_group(self, lane: int) -> str:
        """The consumer group that holds a publishing lane's marks."""
        return f"{self.name}.publish-{lane}"

    def publisher_id(self, lane: int, task: int) -> str:
        """The transactional.id of one task-partition of a publishing lane."""
        return f"{self.name}.publish-{lane}.{task}"

    @property
    def transform_file(self) -> Path:
        """`transform.py` or `transform.sql`."""
        script = self.folder / "transform.py"
        return script if os.path.lexists(script) else self.folder / "transform.sql"

    @property
    def expectations_file(self) -> Path:
        """The suite's file."""
        return self.folder / "expectations.yaml"

    def write_digests(self) -> dict[str, str]:
        """A digest for each part that decides a batch's output. Reads the pipeline's folder.

        Of the suite only the rules of severity `quarantine` count: if another expectation is corrected, Fencepost must not
        write the output again. Credentials are in no digest: one in the ledger would help to guess them.
        """
        source = self.source.model_dump(mode="json", exclude_defaults=True, exclude={"on_expired"})
        output = self.output.model_dump(mode="json", exclude_defaults=True, exclude={*self.output.changes_no_record})
        rules, registry = self.digest_of_rules(), self.schema_registry
        self.require_resolved(SCHEMA_REGISTRY)
        return {
            "source": digest(source),
            "output": digest(output),
            "spark": digest_of_spark(self.spark),
            "transform": digest_of_file(self.transform_file),
            "files": digest_of_files(self.folder),
            **({QUARANTINE: rules} if rules else {}),
            # In another registry an id is another schema.
            **({"registry": digest(registry.url)} if self.uses_registry and registry else {}),
        }

    @cached_property
    def suite(self) -> Suite:
        """The suite, read when it is first asked for: a pipeline whose suite is wrong still shows its state.

        Raises:
            SettingsError: the suite cannot be read, or is wrong.
        """
        return load_suite(self.expectations_file)

    @property
    def quarantines(self) -> bool:
        """Whether it may send records to quarantine."""
        return self.source.on_malformed == QUARANTINE or bool(self.suite.rules)

    def digest_of_rules(self) -> str | None:
        """A digest of the suite's rules of severity `quarantine`; None if it has none."""
        rules = [rule.model_dump(mode="json", exclude={"index"}) for rule in self.suite.rules]
        return digest(rules) if rules else None


QUARANTINE = "quarantine"  # the severity whose rules decide what is written, and the name of their digest


def load_suite(file: Path) -> Suite:
    """Read and check `expectations.yaml`.

    Raises:
        SettingsError: names file, field, what was found and what is allowed.
    """
    from fencepost.suite.declared import suite_of  # its models take a while to build, and few commands read a suite

    return suite_of(read_yaml(file), file)
