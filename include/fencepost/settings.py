"""A pipeline's settings: one folder in, one frozen value out, or an error that names file, field and cure.

A folder holds `pipeline.yaml`, `transform.py` or `transform.sql`, and `expectations.yaml`. Nothing here imports
Spark, Airflow or Great Expectations: Airflow's DAG processor loads it every few seconds.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args
from zoneinfo import ZoneInfo

from croniter import croniter
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)

from fencepost.client_settings import SHOWN_KAFKA, check_kafka, check_spark
from fencepost.decisive import digest, digest_of_file, digest_of_files, digest_of_spark
from fencepost.errors import SettingsError
from fencepost.model import Layout
from fencepost.sql_types import ALLOWED, is_sql_type
from fencepost.yaml_file import read_yaml

PIPELINE_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
NOT_NULL = re.compile(r"(?<!\s)\s+not\s+null$", re.IGNORECASE)
SECRET_KEYS = re.compile(r"password|secret|\.key$|\.pem$|token|jaas|access.?key", re.IGNORECASE)
# Of environment variables: Airflow's own hold its keys, and URLs with passwords.
SECRET_NAMES = re.compile(
    r"PASS|PWD|SECRET|TOKEN|KEY|CREDENTIAL|JAAS|(_|^)DSN(_|$)|_CONN(_|$)|^AIRFLOW__|^AIRFLOW_(CONN|VAR)_", re.IGNORECASE
)

URL_WITH_PASSWORD = re.compile(r"://[^/\s@]*:[^/\s]*@")


def _topic(name: str) -> str:
    if not TOPIC_NAME.fullmatch(name) or name in {".", ".."}:
        raise ValueError("a topic name has 1 to 249 of the characters a-z A-Z 0-9 . _ -")
    return name


def _column_type(text: str) -> str:
    """A Spark SQL type such as `int`, `string not null` or `array<struct<a: int>>`."""
    if not is_sql_type(NOT_NULL.sub("", text.strip())):
        raise ValueError(f"not a Spark SQL type; allowed are {ALLOWED}, each optionally followed by 'not null'")
    return text.strip()


Topic = Annotated[str, AfterValidator(_topic)]
ColumnType = Annotated[str, AfterValidator(_column_type)]


def _moment(value: object) -> object:
    """YAML gives dates, naive times and aware times; all become UTC."""
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


class Section(BaseModel):
    """Base of the sections: frozen, and an unknown field is an error, not a silence."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Source(Section):
    """Where records come from. `columns` (in YAML: `schema`) declares JSON fields by Spark SQL type."""

    topic: Topic
    format: Literal["json", "bytes"] = "json"
    columns: dict[str, ColumnType] = Field(default_factory=dict, alias="schema")
    headers: bool = False
    on_malformed: Literal["fail", "drop"] = "fail"
    on_expired: Literal["fail", "skip"] = "fail"

    @field_validator("columns")
    @classmethod
    def _no_reserved_names(cls, columns: dict[str, str]) -> dict[str, str]:
        seen: dict[str, str] = {}
        for name in columns:
            if name.startswith("_") or not re.fullmatch(r"\w+", name):
                raise ValueError(f"column {name!r}: names are letters, digits and _, and do not begin with _")
            if (other := seen.setdefault(name.lower(), name)) != name:
                raise ValueError(f"columns {other!r} and {name!r}: Spark takes names that differ in case only for one")
        return columns

    @model_validator(mode="after")
    def _schema_goes_with_json(self) -> Self:
        if self.format == "json" and not self.columns:
            raise ValueError("format json needs a schema: a mapping of field name to Spark SQL type")
        if self.format == "bytes" and self.columns:
            raise ValueError("format bytes takes no schema: the record's value is one binary column, value")
        return self


class CommitEvery(Section):
    """How much of a task-partition one transaction holds at most: rows, or seconds of writing; one of the two."""

    rows: int | None = Field(default=None, ge=1)
    seconds: float | None = Field(default=None, ge=0.01, le=600)

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.rows is None) == (self.seconds is None):
            raise ValueError("give rows or seconds, one of the two")
        return self


class Output(Section):
    """Where records go. `key`, `timestamp` and `headers` name columns of the transform's result."""

    topic: Topic
    format: Literal["json", "bytes"] = "json"
    key: str | None = None
    timestamp: str | None = None
    headers: str | None = None
    partitions: int = Field(default=4, ge=1, le=10_000)
    layout: Layout = Layout.SOURCE
    # Without it a task-partition is one transaction; with it a chain of them, which a retry takes up where it ended.
    commit_every: CommitEvery | None = None

    @model_validator(mode="before")
    @classmethod
    def _header_is_no_choice(cls, values: object) -> object:
        if isinstance(values, dict) and "batch_header" in values:
            raise ValueError(
                "batch_header is not a setting any more, take it out: every record carries its batch's header, which alone tells "
                "published records from rejected or superseded ones that lie between them"
            )
        return values


class Schedule(Section):
    """When Airflow runs the pipeline: cron boundaries cut time into the intervals batches are for."""

    cron: str = "0 0 * * *"
    timezone: str = "UTC"
    start: Moment
    end: Moment | None = None
    catchup: bool = False
    retries: int = Field(default=3, ge=0, le=100)
    retry_delay_seconds: int = Field(default=30, ge=0)
    timeout_minutes: int = Field(default=60, ge=1)
    # A scheduled run that has not ended well so long after its interval's end raises Airflow's deadline alert.
    deadline_minutes: float | None = Field(default=None, gt=0, le=366 * 24 * 60)
    # Called with the alert, beside Fencepost's own log entry: a function or notifier by its import path.
    deadline_callback: str | None = None

    @property
    def patience(self) -> timedelta:
        """How long one step may take with all its retries."""
        tries = timedelta(minutes=self.timeout_minutes) * (self.retries + 1)
        return tries + timedelta(seconds=self.retry_delay_seconds) * self.retries

    @field_validator("deadline_callback")
    @classmethod
    def _is_importable_name(cls, name: str | None) -> str | None:
        if name is not None and not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", name):
            raise ValueError("not the import path of a function, such as my_company.alerts.page_somebody")
        return name

    @field_validator("cron")
    @classmethod
    def _is_cron(cls, cron: str) -> str:
        if not croniter.is_valid(cron):
            raise ValueError("not a cron expression, such as '0 0 * * *' for midnight")
        return cron

    @field_validator("timezone")
    @classmethod
    def _is_timezone(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except Exception as error:
            raise ValueError("not a time zone of the IANA database, such as UTC or Europe/Vienna") from error
        return name

    @model_validator(mode="after")
    def _callback_needs_a_deadline(self) -> Self:
        if self.deadline_callback is not None and self.deadline_minutes is None:
            raise ValueError("deadline_callback needs deadline_minutes: without it there is no deadline to miss")
        return self

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.end is not None and self.end <= self.start:
            raise ValueError(f"end ({self.end}) must lie after start ({self.start})")
        return self


class Quality(Section):
    """How a batch is judged. `empty` says what a batch without records is: passed, or rejected."""

    engine: Literal["auto", "pandas", "spark"] = "auto"
    pandas_max_rows: int = Field(default=1_000_000, ge=0)
    pandas_max_megabytes: int = Field(default=256, ge=0)  # of Spark's default heap of 1 GB
    sample_rows: int = Field(default=20, ge=0, le=1_000)
    empty: Literal["pass", "reject"] = "pass"
    open_transaction_wait_seconds: float = Field(default=60, ge=0)
    # How long Airflow waits for a person's decision on a rejected batch; 0: nobody is asked.
    ask_operator_minutes: float = Field(default=0, ge=0)


class Pipeline(Section):
    """One pipeline, as read from its folder. `kafka` is in librdkafka's names, `spark` in Spark's."""

    name: str
    folder: Path
    description: str = ""
    source: Source
    output: Output
    schedule: Schedule
    quality: Quality = Quality()
    # One lane: a batch is planned when the one before it is written, so a key's records keep their order from interval
    # to interval. More lanes write intervals side by side, and give that order up.
    lanes: int = Field(default=1, ge=1, le=64)
    kafka: dict[str, SecretStr] = Field(default_factory=dict)
    spark: dict[str, str] = Field(default_factory=dict)

    @field_validator("kafka", mode="before")
    @classmethod
    def _kafka_scalars(cls, value: object) -> object:
        return {str(k): _scalar(v) for k, v in value.items()} if isinstance(value, Mapping) else value

    @field_validator("spark", mode="before")
    @classmethod
    def _spark_scalars(cls, value: object) -> object:
        return {str(k): _scalar(v) for k, v in value.items()} if isinstance(value, Mapping) else value

    @field_validator("kafka")
    @classmethod
    def _kafka_keeps_the_protocol(cls, kafka: dict[str, SecretStr]) -> dict[str, SecretStr]:
        check_kafka({name: value.get_secret_value() for name, value in kafka.items()})
        return kafka

    @field_validator("spark")
    @classmethod
    def _spark_keeps_the_protocol(cls, spark: dict[str, str]) -> dict[str, str]:
        check_spark(spark)
        return spark

    @model_validator(mode="after")
    def _two_topics(self) -> Self:
        if self.source.topic == self.output.topic:
            raise ValueError(
                f"output.topic is the source topic ({self.source.topic}); a batch would read its own output"
            )
        return self

    @property
    def ledger_topic(self) -> str:
        """The compacted topic that holds the truth about every batch."""
        return f"fencepost.{self.name}.ledger"

    @property
    def coordinator_id(self) -> str:
        """The transactional.id under which the ledger is written."""
        return f"{self.name}.coordinator"

    @property
    def group(self) -> str:
        """The consumer group whose offsets are the frontier."""
        return self.name

    @property
    def validated_group(self) -> str:
        """The consumer group whose offsets are the ends of validated output."""
        return f"{self.name}.validated"

    def lane_group(self, lane: int) -> str:
        """The consumer group that holds a lane's marks."""
        return f"{self.name}.lane-{lane}"

    def writer_id(self, lane: int, task: int) -> str:
        """The transactional.id of one task-partition of a lane."""
        return f"{self.name}.{lane}.{task}"

    @property
    def transform_file(self) -> Path:
        """`transform.py` or `transform.sql`."""
        script = self.folder / "transform.py"
        return script if script.exists() else self.folder / "transform.sql"

    @property
    def expectations_file(self) -> Path:
        """The suite."""
        return self.folder / "expectations.yaml"

    def write_digests(self) -> dict[str, str]:
        """A digest of each part of what decides a batch's output. Reads the pipeline's folder.

        The suite is left out on purpose: mending it must not ask for the output to be written again. So are the values of
        credentials, and not their names: they say who may read, and a digest of one in the ledger could be guessed at.
        """
        spark = {name: "" if SECRET_KEYS.search(name) else value for name, value in self.spark.items()}
        source = self.source.model_dump(mode="json", exclude_defaults=True, exclude={"on_expired"})
        output = self.output.model_dump(mode="json", exclude_defaults=True, exclude={"partitions", "commit_every"})
        # How long a chain's links are changes nothing; that there is one does: it needs rows in one order.
        chained = self.output.commit_every is not None
        return {
            "source": digest(source),
            "output": digest([output, chained]),
            "spark": digest_of_spark(spark),
            "transform": digest_of_file(self.transform_file),
            "files": digest_of_files(self.folder),
        }


def pipelines_folder() -> Path:
    """`FENCEPOST_PIPELINES`, or `include/pipelines` beside this package."""
    named = os.environ.get("FENCEPOST_PIPELINES")
    return Path(named) if named else Path(__file__).resolve().parent.parent / "pipelines"


def load_pipelines(folder: Path | None = None) -> tuple[dict[str, Pipeline], dict[str, SettingsError]]:
    """All pipelines of a folder by name, and beside them what is wrong with each that could not be loaded."""
    folder = folder or pipelines_folder()
    if not folder.is_dir():
        raise SettingsError(f"{folder}: no such folder. Set FENCEPOST_PIPELINES to the folder that holds pipelines.")
    good: dict[str, Pipeline] = {}
    bad: dict[str, SettingsError] = {}
    for entry in sorted(folder.iterdir()):
        if not entry.is_dir() or entry.name.startswith((".", "_")):
            continue
        try:
            good[entry.name] = load_pipeline(entry)
        except SettingsError as error:
            bad[entry.name] = error
    return good, bad


def find_pipeline(name: str) -> Pipeline:
    """The pipeline of that name; the error lists the names there are."""
    folder = pipelines_folder()
    if not PIPELINE_NAME.fullmatch(name) or not (folder / name).is_dir():
        there = sorted(p.name for p in folder.iterdir() if p.is_dir()) if folder.is_dir() else []
        raise SettingsError(f"no pipeline {name!r} in {folder}; there are: {', '.join(there) or 'none'}.")
    return load_pipeline(folder / name)


def load_pipeline(folder: Path) -> Pipeline:
    """Read and check one pipeline's folder.

    Raises:
        SettingsError: naming file, field, what was found and what is allowed.
    """
    file = folder / "pipeline.yaml"
    if not PIPELINE_NAME.fullmatch(folder.name):
        raise SettingsError(
            f"{folder}: a pipeline's folder is named with a-z, 0-9 and _, beginning with a letter, 63 at most; "
            "the name becomes its DAG, group and transactional ids."
        )
    raw = read_yaml(file)
    if not isinstance(raw, dict):
        raise SettingsError(
            f"{file}: expected a mapping with source, output and schedule, found {type(raw).__name__}; "
            "a field is written 'name: value', with a space."
        )
    for field in raw:
        if field in ("name", "folder"):
            raise SettingsError(f"{file}: {field}: not allowed here; a pipeline is named by its folder.")
        if not isinstance(field, str):
            raise SettingsError(
                f"{file}: {_shown(field)}: unknown field; allowed here are {', '.join(_fields(Pipeline))}."
            )
    secrets: set[str] = set()
    try:
        values = _with_environment(raw, file, secrets)
        pipeline = Pipeline(name=folder.name, folder=folder, **values)
    except ValidationError as error:
        raise SettingsError(_explain(error, file, secrets)) from None
    scripts = [f.name for f in (folder / "transform.py", folder / "transform.sql") if f.exists()]
    if len(scripts) != 1:
        found = "both" if scripts else "neither"
        raise SettingsError(f"{folder}: expected one of transform.py and transform.sql, found {found}.")
    if not pipeline.expectations_file.exists():
        raise SettingsError(
            f"{pipeline.expectations_file}: not there. A pipeline without expectations would pass everything; declare one."
        )
    return pipeline


# A reference, the escaped text `${`, or, without a name, what is neither.
REFERENCE = re.compile(r"\$?\$\{(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>(?:(?!\$\{)[^}])*))?\})?")
# They show in messages and on pages.
PUBLIC = {("source", "topic"), ("output", "topic"), *(("kafka", name) for name in SHOWN_KAFKA)}


def _with_environment(value: Any, file: Path, secrets: set[str], path: tuple[str, ...] = ()) -> Any:
    """`${NAME}` and `${NAME:-default}` replaced from the environment, where they are allowed; `$${` is the text `${`.

    What came from a name such as DB_PASSWORD is added to `secrets`, so that no message shows it.

    Raises:
        SettingsError: a reference stands where none is allowed, is not set, or would show a secret.
    """
    if isinstance(value, dict):
        return {k: _with_environment(v, file, secrets, (*path, str(k))) for k, v in value.items()}
    if isinstance(value, list):
        return [_with_environment(v, file, secrets, (*path, str(i))) for i, v in enumerate(value)]
    if not isinstance(value, str):
        return value

    def resolve(match: re.Match[str]) -> str:
        if match[0].startswith("$$"):
            return match[0][1:]
        name = match["name"]
        if refusal := _refused_reference(path, name):
            raise SettingsError(f"{file}: {'.'.join(path)}: {refusal} The text ${{ itself is written $${{.")
        found = os.environ.get(name, match["default"])
        if found is None:
            raise SettingsError(
                f"{file}: {'.'.join(path)}: ${{{name}}} is not set in the environment; set it, or write ${{{name}:-default}}."
            )
        if URL_WITH_PASSWORD.search(found) and (path in PUBLIC or path[0] == "spark"):
            raise SettingsError(
                f"{file}: {'.'.join(path)}: ${{{name}}} holds a URL with a password, and this field shows in messages, on pages "
                "or among a process's arguments; take another variable."
            )
        if SECRET_NAMES.search(name) and len(found) > 2:
            secrets.add(found)
        return found

    return REFERENCE.sub(resolve, value)


def _refused_reference(path: tuple[str, ...], name: str | None) -> str | None:
    """Why this field takes no value from that variable of the environment."""
    if name is None:
        return "found ${ without a name of the environment behind it, as in ${NAME} or ${NAME:-default}."
    if path not in PUBLIC and path[0] not in {"kafka", "spark"}:
        return (
            f"${{{name}}} is not allowed here; the environment is taken for values under kafka and spark, source.topic and "
            "output.topic."
        )
    if path in PUBLIC and SECRET_NAMES.search(name):
        return f"${{{name}}} looks like a secret, and this field shows in messages and on pages; take another variable."
    if path[0] == "spark" and (SECRET_NAMES.search(name) or SECRET_KEYS.search(path[-1])):
        return (
            f"${{{name}}} looks like a secret, and spark settings are arguments of spark-submit, which everybody on the machine "
            "can read; take it from os.environ in transform.py, or set it in Spark's own spark-defaults.conf."
        )
    return None


def _explain(error: ValidationError, file: Path, secrets: set[str]) -> str:
    """Every error with its field, what was found and what is allowed; without secrets."""
    lines = []
    for one in error.errors(include_url=False):
        where = ".".join(str(p) for p in one["loc"]) or "(whole file)"
        message = one["msg"].removeprefix("Value error, ")
        if one["type"] == "extra_forbidden":
            message = f"unknown field; allowed here are {', '.join(_siblings(one['loc']))}"
        elif one["type"] == "missing":
            message = "required, and missing"
        found = one["input"]
        if not _hidden(one["loc"], one):  # a secret is taken out first: shortened, it would not be known again
            message += f" (found {_shown(_without(secrets, found) if isinstance(found, str) else found)})"
        lines.append(f"{file}: {where}: {message}")
    return _without(secrets, ";\n".join(lines) + ".").encode("utf-8", "backslashreplace").decode()


def _without(secrets: set[str], text: str) -> str:
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def _hidden(loc: tuple[int | str, ...], one: Any) -> bool:
    """Whether an error is told without the value: a secret, or a section as a whole, which may hold one."""
    names = [str(part) for part in loc]
    if one["type"] == "missing" or "kafka" in names[:1] or SECRET_KEYS.search(".".join(names)):
        return True
    return isinstance(one["input"], dict | list) and not (names[:1] == ["spark"] and len(names) > 1)


def _siblings(loc: tuple[int | str, ...]) -> list[str]:
    """The fields allowed beside an unknown one."""
    model: Any = Pipeline
    for part in loc[:-1]:
        field = model.model_fields[part].annotation
        model = next(
            kind for kind in get_args(field) or (field,) if kind is not type(None)
        )  # a section may be optional
    return _fields(model)


def _fields(model: type[BaseModel]) -> list[str]:
    names = [f.alias or n for n, f in model.model_fields.items()]
    return [n for n in names if n not in {"name", "folder"}] if model is Pipeline else names


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _scalar(value: object) -> object:
    """YAML's true and 5 as the texts librdkafka and Spark expect."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value
