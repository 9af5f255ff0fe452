"""The settings of a reader who has no pipeline's folder: its own logins, in the form that a pipeline gives them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator

from fencepost.config.kafka_options import check_kafka
from fencepost.config.postgres_options import check_postgres
from fencepost.config.registry import RegistrySettings
from fencepost.errors import SettingsError

BOOTSTRAP = "KAFKA_BOOTSTRAP"


class Reader(BaseModel):
    """Who reads a pipeline's output: `kafka` by librdkafka's names, `postgres` by libpq's."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    told: str  # who it is, for messages
    kafka: dict[str, SecretStr]
    schema_registry: RegistrySettings | None = None
    postgres: dict[str, SecretStr] = Field(default_factory=dict)

    @field_validator("kafka")
    @classmethod
    def _kafka_is_known(cls, kafka: dict[str, SecretStr]) -> dict[str, SecretStr]:
        check_kafka({name: value.get_secret_value() for name, value in kafka.items()})
        return kafka

    @field_validator("postgres")
    @classmethod
    def _postgres_is_known(cls, postgres: dict[str, SecretStr]) -> dict[str, SecretStr]:
        check_postgres({name: value.get_secret_value() for name, value in postgres.items()})
        return postgres

    @classmethod
    def of(
        cls,
        pipeline: str,
        kafka: Mapping[str, str] | None,
        schema_registry: Mapping[str, Any] | None,
        postgres: Mapping[str, str] | None,
    ) -> Self:
        """A reader of that pipeline. Without settings for Kafka, KAFKA_BOOTSTRAP in the environment names the brokers.

        Raises:
            SettingsError: names the setting, and no value that could be a secret.
        """
        if kafka is None:
            kafka = {"bootstrap.servers": os.environ.get(BOOTSTRAP, "")}
        name = f"reader of pipeline {pipeline}"
        if not kafka.get("bootstrap.servers"):
            raise SettingsError(
                f'{name}: its Kafka is not named. Give kafka={{"bootstrap.servers": "host:port"}}, or set {BOOTSTRAP}.'
            )
        given = {"told": name, "kafka": kafka, "schema_registry": schema_registry, "postgres": postgres or {}}
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            told = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
            raise SettingsError(f"{name}: {told}.") from None
