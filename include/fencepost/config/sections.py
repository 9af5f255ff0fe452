"""What the sections of pipeline.yaml are made of: frozen values that refuse unknown fields, and the texts that fields take."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Protocol

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator

from fencepost.config.sql_types import ALLOWED, is_sql_type, without_not_null
from fencepost.formats import FORMATS, REGISTRY_KEY_FORMATS

TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")


def _topic_name(name: str) -> str:
    if not TOPIC_NAME.fullmatch(name) or name in {".", ".."}:
        raise ValueError("a topic name has 1 to 249 of the characters a-z A-Z 0-9 . _ -")
    return name


def _format_name(name: str) -> str:
    if name not in FORMATS:
        raise ValueError(f"allowed are {', '.join(sorted(FORMATS))}")
    return name


def _column_type(text: str) -> str:
    """A Spark SQL type such as `int`, `string not null` or `array<struct<a: int>>`."""
    if not is_sql_type(without_not_null(text)):
        raise ValueError(f"not a Spark SQL type; allowed are {ALLOWED}, each optionally followed by 'not null'")
    return text.strip()


TopicName = Annotated[str, AfterValidator(_topic_name)]
FormatName = Annotated[str, AfterValidator(_format_name)]
ColumnType = Annotated[str, AfterValidator(_column_type)]
KeyFormat = Literal["bytes", "avro"]
Subject = Annotated[str, Field(min_length=1, max_length=1_000)]
Version = Annotated[int, Field(ge=1)]  # of a subject; without it the latest


class Decoded(Protocol):
    """A section that says how keys and values are decoded or encoded."""

    @property
    def format(self) -> str:
        """Of values."""
        ...

    @property
    def key_format(self) -> str:
        """Of keys."""
        ...


def check_subjects(part: Decoded) -> None:
    """Check that subjects and versions are given only where a registry has a say."""
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
    """Base of the sections: frozen; an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


HOST_AND_PORT = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}")


class Lineage(Section):
    """The `host:port` by which lineage names a cluster or a server, where it is not to be the one of a connection."""

    kafka: str | None = None
    postgres: str | None = None

    @field_validator("kafka", "postgres")
    @classmethod
    def _is_address(cls, address: str | None) -> str | None:
        if address is not None and not HOST_AND_PORT.fullmatch(address):
            raise ValueError("not host:port, such as kafka.example.com:9092")
        return address
