"""The settings of a reader without a pipeline's folder. A reader has its own logins, in the same form as a pipeline's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Self

from pydantic import ConfigDict, ValidationError

from fencepost.config.client_config import ClientConfig
from fencepost.errors import SettingsError

BOOTSTRAP = "KAFKA_BOOTSTRAP"


class Reader(ClientConfig):
    """A reader of the output of the pipeline `name`."""

    model_config = ConfigDict(hide_input_in_errors=True)

    @property
    def label(self) -> str:
        """Returns the reader in words."""
        return f"reader of pipeline {self.name}"

    @property
    def written_in(self) -> str:
        """Returns the words for the reader's own settings, which it passes as arguments."""
        return self.label

    @classmethod
    def of(
        cls,
        pipeline: str,
        kafka: Mapping[str, str] | None,
        schema_registry: Mapping[str, Any] | None,
        postgres: Mapping[str, str] | None,
        iceberg: Mapping[str, str] | None = None,
    ) -> Self:
        """Returns a reader of that pipeline. Without settings for Kafka, KAFKA_BOOTSTRAP in the environment names the
        brokers.

        Raises:
            SettingsError: names the setting. It never has a value that could be a secret.
        """
        if kafka is None:
            kafka = {"bootstrap.servers": os.environ.get(BOOTSTRAP, "")}
        name = f"reader of pipeline {pipeline}"
        if not kafka.get("bootstrap.servers") and kafka.get("connection") is None:
            raise SettingsError(
                f'{name}: its Kafka is not named. Give kafka={{"bootstrap.servers": "host:port"}}, or '
                f'kafka={{"connection": NAME}} with a connection of Airflow\'s, or set {BOOTSTRAP}.'
            )
        given = {
            "name": pipeline,
            "kafka": kafka,
            "schema_registry": schema_registry,
            "postgres": postgres or {},
            "iceberg": iceberg or {},
        }
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            problems = "; ".join(f"{_place(one['loc'])}: {one['msg']}" for one in error.errors())
            raise SettingsError(f"{name}: {problems}.") from None


def _place(loc: tuple[int | str, ...]) -> str:
    """Returns the reader's own name of a setting: `connections.kafka` in the model is the argument `connection`."""
    places = [*map(str, loc)]
    return ".".join([*places[1:], "connection"] if places[:1] == ["connections"] else places)
