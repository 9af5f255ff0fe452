"""The sections of `pipeline.yaml` except output, services and notifications. The sections are frozen values that check
themselves.

This module does not import Spark, Airflow or Great Expectations, because Airflow's DAG processor loads it every few seconds.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, auto
from typing import Annotated, Literal, Protocol, Self
from zoneinfo import ZoneInfo

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    field_validator,
    model_validator,
)

from fencepost.config.cron import Cron, check_cron
from fencepost.config.notify import Ask
from fencepost.config.sql_types import ALLOWED, is_sql_type, without_not_null
from fencepost.formats import FORMATS, REGISTRY_KEY_FORMATS
from fencepost.suite.numbers import number_of, shown

TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
MINUTES_OF_A_YEAR = 366 * 24 * 60  # a year: above some number no timedelta holds it, and Airflow could read no pipeline


class Mark(Enum):
    """A property of a setting, in the annotation of its field."""

    FROM_ENVIRONMENT = auto()  # The value may contain `${NAME}`. Messages and pages show it.
    DECIDES_NO_RECORD = auto()  # The value is in no digest of a batch.


def marked(model: type[BaseModel], mark: Mark) -> frozenset[str]:
    """Returns the fields of a section with this mark."""
    return frozenset(name for name, field in model.model_fields.items() if mark in field.metadata)


def _topic_name(name: str) -> str:
    if not TOPIC_NAME.fullmatch(name) or name in {".", ".."}:
        raise ValueError("a topic name has 1 to 249 of the characters a-z A-Z 0-9 . _ -")
    return name


def _format_name(name: str) -> str:
    if name not in FORMATS:
        raise ValueError(f"allowed are {', '.join(sorted(FORMATS))}")
    return name


def _column_type(text: str) -> str:
    """Returns a Spark SQL type such as `int`, `string not null` or `array<struct<a: int>>`."""
    if not is_sql_type(without_not_null(text)):
        raise ValueError(f"not a Spark SQL type; allowed are {ALLOWED}, each optionally followed by 'not null'")
    return text.strip()


def _field_name(name: str) -> str:
    if "\0" in name:
        raise ValueError("a name has no NUL character")
    return name


TopicName = Annotated[str, AfterValidator(_topic_name)]
FormatName = Annotated[str, AfterValidator(_format_name)]
FieldName = Annotated[str, AfterValidator(_field_name)]
ColumnType = Annotated[str, AfterValidator(_column_type)]
KeyFormat = Literal["bytes", "avro"]  # that keys are written in
Subject = Annotated[str, Field(min_length=1, max_length=1_000)]
Version = Annotated[int, Field(ge=1)]  # of a schema in a subject; None means the latest


def _moment(value: object) -> object:
    """Returns a time in UTC. YAML gives dates, times with a zone and times without. A time without a zone is read as
    UTC.
    """
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


class WithSubjects(Protocol):
    """Records whose keys and values have formats."""

    @property
    def format(self) -> str:
        """Returns the format of values."""

    @property
    def key_format(self) -> str:
        """Returns the format of keys."""


def check_subjects(part: WithSubjects) -> None:
    """Checks that subjects and versions are given only for a format with a registry."""
    values, keys = FORMATS[part.format].has_registry, part.key_format in REGISTRY_KEY_FORMATS
    for name, used, what in (
        ("subject", values, "format: avro or json_schema"),
        ("version", values, "format: avro or json_schema"),
        ("key_subject", keys, "key_format: avro"),
        ("key_version", keys, "key_format: avro"),
    ):
        if getattr(part, name) is not None and not used:
            raise ValueError(f"{name} needs {what}")


class Section(BaseModel):
    """The base of the sections. A section is frozen, and an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Schedule(Section):
    """When Airflow runs the pipeline. A cron divides time into intervals, and each interval has a batch."""

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
        """Returns the cron that divides time into intervals. `start` and `end` do not limit it."""
        return Cron(self.cron, self.timezone)

    @property
    def patience(self) -> timedelta:
        """Returns the longest time that one step may take, with all its retries."""
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
            raise ValueError("it means the machine's own time zone; name a time zone, such as UTC or Europe/Vienna")
        unknown = "not a time zone of the IANA database, such as UTC or Europe/Vienna"
        # Copies of the time zone database within its folder; `right` counts leap seconds.
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
            raise ValueError(f"end ({self.end}) must be after start ({self.start})")
        return self


def _as_written(number: object) -> object:
    """Returns the number with the digits that it is written with. Any other value is unchanged."""
    exact = number_of(number)
    return number if exact is None else exact


class QuarantineLimit(Section):
    """How much of a batch may go to quarantine. A batch above the limit is rejected as a whole.

    `rows` limits all quarantined records. `share` applies twice: to malformed records as a share of the records read,
    and to rows that fail a rule as a share of the transform's rows. A transform that filters or aggregates would make
    any other share meaningless.
    """

    rows: int | None = Field(default=None, ge=0)
    share: Annotated[Decimal, BeforeValidator(_as_written), PlainSerializer(shown), Field(ge=0, le=1)] | None = None

    @model_validator(mode="after")
    def _limits_something(self) -> Self:
        if self.rows is None and self.share is None:
            raise ValueError("give rows, share, or both; quarantine_limit: none sets no limit")
        return self


class Quality(Section):
    """How a batch is judged. `empty` is the verdict on a batch without records."""

    sample_rows: int = Field(default=20, ge=0, le=1_000)
    empty: Literal["pass", "reject"] = "pass"
    open_transaction_wait_seconds: float = Field(default=60, ge=0)
    # How long Airflow waits for a person's decision on a rejected batch. 0: Airflow does not ask.
    ask_operator_minutes: float = Field(default=0, ge=0, le=MINUTES_OF_A_YEAR)
    ask: Ask = Ask()
    quarantine_limit: QuarantineLimit | None = QuarantineLimit(share=Decimal("0.01"))
    quarantine_topic: Annotated[TopicName | None, Mark.FROM_ENVIRONMENT] = None

    @field_validator("quarantine_limit", mode="before")
    @classmethod
    def _none_is_no_limit(cls, limit: object) -> object:
        if limit is None:
            raise ValueError("left empty; give rows, share, or both. quarantine_limit: none sets no limit")
        return None if limit == "none" else limit

    @model_validator(mode="after")
    def _users_need_a_question(self) -> Self:
        if self.ask.assigned_users and not self.ask_operator_minutes:
            raise ValueError("ask.assigned_users needs ask_operator_minutes above 0: without it nobody is asked")
        return self


HOST_AND_PORT = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}")


class Lineage(Section):
    """The `host:port` by which lineage names a cluster or a server, if it differs from the connection's."""

    kafka: str | None = None
    postgres: str | None = None

    @field_validator("kafka", "postgres")
    @classmethod
    def _is_address(cls, address: str | None) -> str | None:
        if address is not None and not HOST_AND_PORT.fullmatch(address):
            raise ValueError("not host:port, such as kafka.example.com:9092")
        return address


DEFAULT_POOL = "fencepost_spark"
DEFAULT_CONNECTION = "spark_default"  # SparkSubmitOperator's default
AirflowName = Annotated[str, Field(min_length=1, max_length=250)]
DagTag = Annotated[str, Field(min_length=1, max_length=100)]


class AirflowSettings(Section):
    """A pipeline's settings for a team's Airflow. Among them are the owner of its DAG, the pool and queue of its tasks,
    and the connection that names Spark's master.
    """

    spark_connection: str = Field(default=DEFAULT_CONNECTION, pattern=r"^[\w.-]{1,200}$")
    pool: AirflowName = DEFAULT_POOL  # pool of the tasks that run Spark jobs
    queue: AirflowName | None = None
    owner: AirflowName = "fencepost"
    tags: tuple[DagTag, ...] = ()
