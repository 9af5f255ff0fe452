"""Holds a pipeline's Kafka settings with their secrets in plain text. Only clients may use these settings."""

from __future__ import annotations

from dataclasses import dataclass

from fencepost.config.client_config import ClientConfig
from fencepost.config.services.kafka import CONSUMER_ONLY, KAFKA, PRODUCER_ONLY
from fencepost.errors import (
    SettingsError,
)

TRANSACTION_TIMEOUT_MS = 600_000  # below the broker's default limit of 900,000


@dataclass
class ClientSettings:
    """A pipeline's resolved librdkafka settings with their secrets. They are never printed or logged."""

    values: dict[str, str]

    def __repr__(self) -> str:
        return f"Settings({', '.join(sorted(self.values))})"

    @property
    def bootstrap(self) -> str:
        """Returns the address of the cluster, for messages."""
        return self.values.get("bootstrap.servers", "")

    def common(self) -> dict[str, str]:
        """Returns the settings that every kind of client understands."""
        return {k: v for k, v in self.values.items() if k not in PRODUCER_ONLY | CONSUMER_ONLY}

    def for_producer(self) -> dict[str, str]:
        """Returns the settings for a producer. Settings that only consumers understand are left out."""
        return {k: v for k, v in self.values.items() if k not in CONSUMER_ONLY}

    def for_consumer(self) -> dict[str, str]:
        """Returns the settings for a consumer. Settings that only producers understand are left out."""
        return {k: v for k, v in self.values.items() if k not in PRODUCER_ONLY}


def client_settings(config: ClientConfig) -> ClientSettings:
    """Returns the Kafka settings of a pipeline or a reader, with their secrets in plain text. Only clients may get
    these settings.

    Raises:
        SettingsError: `bootstrap.servers` is missing, or in a connection that was not looked up.
    """
    values = config.plain(KAFKA)
    if not values.get("bootstrap.servers"):
        name = config.connections.get("kafka")
        how = "write ${KAFKA_BOOTSTRAP} to take it from the environment"
        raise SettingsError(
            f"{config.written_in}: kafka.bootstrap.servers: required but missing; "
            f"{how if name is None else f'add it to the extra of connection {name}'}."
        )
    return ClientSettings(values)


def lineage_namespace(config: ClientConfig, named: str | None) -> str:
    """Returns the namespace of topics for OpenLineage. The namespace is `named` if that is given, and otherwise the
    first broker, as OpenLineage's specification says.
    """
    first = client_settings(config).bootstrap.partition(",")[0].strip()
    return f"kafka://{named or first}"
