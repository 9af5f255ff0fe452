"""The settings of clients for Kafka, a schema registry, PostgreSQL and Iceberg, for a pipeline or a reader of its output."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, ClassVar, Self

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

from fencepost.config.names import Names
from fencepost.config.services import SERVICES
from fencepost.config.services.connection import Settings
from fencepost.config.services.iceberg import check_iceberg
from fencepost.config.services.kafka import check_kafka
from fencepost.config.services.postgres import check_postgres
from fencepost.config.services.schema_registry import RegistrySettings
from fencepost.config.services.service import Service
from fencepost.errors import SettingsError

CONNECTION_NAME = re.compile(r"[\w.-]{1,200}", re.ASCII)
CHECKS: Mapping[str, Callable[..., None]] = {
    "kafka": check_kafka,
    "postgres": check_postgres,
    "iceberg": check_iceberg,
}  # by section: prefixes of settings in the client library's names


def _connection_name(name: str) -> str:
    if not CONNECTION_NAME.fullmatch(name):
        raise ValueError("the id of a connection has 1 to 200 letters, digits, _, - and .")
    return name


ConnectionName = Annotated[str, AfterValidator(_connection_name)]


class ClientConfig(Names, BaseModel):
    """Base of `Pipeline` and `Reader`: a section for each service. A section may name an Airflow connection."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    name: str  # the pipeline's name
    # The Airflow connections that sections name, by section. Their settings are merged into the sections' when a step
    # starts, or when a reader reads. From then on `resolved` is true (`config/connections.py`).
    connections: dict[str, ConnectionName] = Field(default_factory=dict)
    resolved: bool = False
    kafka: dict[str, SecretStr] = Field(default_factory=dict)
    schema_registry: RegistrySettings | None = None
    postgres: dict[str, SecretStr] = Field(default_factory=dict)
    iceberg: dict[str, SecretStr] = Field(default_factory=dict)

    # The checks of settings in the client library's names, by section.
    checks: ClassVar[Mapping[str, Callable[..., None]]] = CHECKS

    @property
    def label(self) -> str:
        """Returns in words whose settings these are."""
        raise NotImplementedError

    @property
    def written_in(self) -> str:
        """Returns where the settings are written, for a person."""
        raise NotImplementedError

    @property
    def within(self) -> Mapping[str, ClientConfig]:
        """Returns the settings of further servers within these, by the section that has them, such as `tables.rates`."""
        return {}

    def with_within(self, within: Mapping[str, ClientConfig]) -> Self:
        """Returns these settings with others in the place of those in `within`."""
        return self

    @property
    def all_connections(self) -> dict[str, str]:
        """Returns the connections that these settings name, also within them, by section."""
        within = {
            f"{at}.{section}": name for at, one in self.within.items() for section, name in one.connections.items()
        }
        return {**self.connections, **within}

    def checked(self, service: Service, settings: Settings) -> object:
        """Returns the whole settings of a service in the form of these. Wrong settings raise ValueError."""
        return service.checked(settings)

    def place(self, service: Service) -> str:
        """Returns the section of a service in the file, for a person."""
        return service.name

    @model_validator(mode="before")
    @classmethod
    def _connections_stand_apart(cls, values: object) -> object:
        """Moves `connection` out of the sections, because it is not a setting of librdkafka or libpq."""
        if not isinstance(values, dict):
            return values
        sections = {name: section for name in SERVICES if isinstance(section := values.get(name), Mapping)}
        named = {
            name: section["connection"] for name, section in sections.items() if section.get("connection") is not None
        }
        own = {name: {k: v for k, v in sections[name].items() if k != "connection"} for name in CHECKS if name in named}
        return {**values, **own, "connections": {**values.get("connections", {}), **named}}

    @field_validator("kafka", "postgres", "iceberg", mode="before")
    @classmethod
    def _scalars(cls, value: object) -> object:
        return scalars(value)

    @field_validator("kafka", "postgres", "iceberg")
    @classmethod
    def _keeps_the_protocol(cls, settings: dict[str, SecretStr], about: ValidationInfo) -> dict[str, SecretStr]:
        name = str(about.field_name)
        texts = {setting: value.get_secret_value() for setting, value in settings.items()}
        cls.checks[name](texts, whole=name not in about.data.get("connections", {}))
        return settings

    def plain(self, service: Service) -> dict[str, str]:
        """Returns the whole settings of a service as texts, with their secrets. Only clients may get these settings.

        Raises:
            SettingsError: see `require_resolved`.
        """
        self.require_resolved(service)
        return self.own(service)

    def own(self, service: Service) -> dict[str, str]:
        """Returns the settings of `plain` without empty values. Before a connection is looked up, it returns the
        settings without the connection's.
        """
        section = getattr(self, service.name) or {}
        if isinstance(section, BaseModel):
            section = section.model_dump(exclude_unset=True, exclude={"connection"})
        return {
            name: value.get_secret_value() if isinstance(value, SecretStr) else str(value)
            for name, value in section.items()
            if value is not None
        }

    def require_resolved(self, service: Service) -> None:
        """Checks that a service's connection was looked up, if it has one. Only then are its settings whole.

        Raises:
            SettingsError: the connection was not looked up. Steps in Airflow, its pages and the commands look it up
                first.
        """
        name = self.connections.get(service.name)
        if name is not None and not self.resolved:
            raise SettingsError(
                f"{self.label}: its {service.name} settings are in Airflow's connection {name}, which was not looked "
                "up. In your own code, call fencepost.airflow.with_connections(pipeline) first."
            )


def scalars(value: object) -> object:
    """Returns a section's values as texts. Other values than scalars are unchanged."""
    return {str(k): _scalar(v) for k, v in value.items()} if isinstance(value, Mapping) else value


def _scalar(value: object) -> object:
    """Returns a scalar of YAML, such as true or 5, as the text that librdkafka and Spark expect."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value
