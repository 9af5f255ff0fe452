"""Who asks Kafka, a schema registry and PostgreSQL, with which settings: a pipeline, or a reader of its output."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from fencepost.config.kafka_options import check_kafka
from fencepost.config.postgres_options import check_postgres
from fencepost.config.registry import RegistrySettings
from fencepost.errors import SettingsError

CONNECTION_NAME = re.compile(r"[\w.-]{1,200}", re.ASCII)
CONNECTED = ("kafka", "schema_registry", "postgres")  # sections that may name a connection


def _connection_name(name: str) -> str:
    if not CONNECTION_NAME.fullmatch(name):
        raise ValueError("the id of a connection has 1 to 200 letters, digits, _, - and .")
    return name


ConnectionName = Annotated[str, AfterValidator(_connection_name)]


class Asker(BaseModel):
    """Base of both. `kafka` is in librdkafka's names, `postgres` in libpq's; each section may name a connection of Airflow's."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    name: str  # of the pipeline
    # The connections of Airflow's that sections name, by section. Their settings are merged into the sections' when a step
    # starts, or a reader reads, and `resolved` is true from then on (`config/connections.py`).
    connections: dict[str, ConnectionName] = Field(default_factory=dict)
    resolved: bool = False
    kafka: dict[str, SecretStr] = Field(default_factory=dict)
    schema_registry: RegistrySettings | None = None
    postgres: dict[str, SecretStr] = Field(default_factory=dict)

    @property
    def told(self) -> str:
        """Who it is, for a person."""
        raise NotImplementedError

    @property
    def written_in(self) -> str:
        """Where its settings are written, for a person."""
        raise NotImplementedError

    @property
    def announcements_topic(self) -> str:
        """Where each publication, skip and withdrawal is announced, for readers."""
        return f"fencepost.{self.name}.published"

    @model_validator(mode="before")
    @classmethod
    def _connections_stand_apart(cls, values: object) -> object:
        """Take `connection` out of sections of settings: it is none of librdkafka's, and none of libpq's."""
        if not isinstance(values, dict):
            return values
        sections = {name: found for name in CONNECTED if isinstance(found := values.get(name), Mapping)}
        named = {name: found["connection"] for name, found in sections.items() if found.get("connection") is not None}
        own = {
            name: {k: v for k, v in sections[name].items() if k != "connection"}
            for name in ("kafka", "postgres")
            if name in named
        }
        return {**values, **own, "connections": {**values.get("connections", {}), **named}}

    @field_validator("kafka", "postgres", mode="before")
    @classmethod
    def _scalars(cls, value: object) -> object:
        return scalars(value)

    @field_validator("postgres")
    @classmethod
    def _postgres_keeps_the_protocol(
        cls, postgres: dict[str, SecretStr], about: ValidationInfo
    ) -> dict[str, SecretStr]:
        whole = "postgres" not in about.data.get("connections", {})
        check_postgres({name: value.get_secret_value() for name, value in postgres.items()}, whole=whole)
        return postgres

    @field_validator("kafka")
    @classmethod
    def _kafka_keeps_the_protocol(cls, kafka: dict[str, SecretStr], about: ValidationInfo) -> dict[str, SecretStr]:
        whole = "kafka" not in about.data.get("connections", {})
        check_kafka({name: value.get_secret_value() for name, value in kafka.items()}, whole=whole)
        return kafka


def scalars(value: object) -> object:
    """A section's values as texts."""
    return {str(k): _scalar(v) for k, v in value.items()} if isinstance(value, Mapping) else value


def _scalar(value: object) -> object:
    """YAML's true and 5 as the texts that librdkafka and Spark expect."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def require_resolved(asker: Asker, section: str) -> None:
    """Check that a section is whole: that its connection, if it names one, was looked up.

    Raises:
        SettingsError: it was not. Steps in Airflow, its pages and the commands do so first.
    """
    name = asker.connections.get(section)
    if name is not None and not asker.resolved:
        raise SettingsError(
            f"{asker.told}: its {section} settings are in Airflow's connection {name}, which was not looked up. In "
            "code of your own call fencepost.airflow.with_connections(pipeline) first."
        )
