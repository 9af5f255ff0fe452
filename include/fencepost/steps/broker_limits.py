"""What the brokers allow: how long a transaction may take, and how long a mark lives."""

from __future__ import annotations

from datetime import timedelta

from fencepost.errors import SettingsError
from fencepost.kafka.client_settings import TRANSACTION_TIMEOUT_MS, ClientSettings
from fencepost.kafka.cluster import Cluster


def check_transaction_timeout(cluster: Cluster, settings: ClientSettings) -> None:
    """Check that the broker accepts the producers' transaction timeout."""
    ours = int(settings.values.get("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS))
    limit = int(cluster.broker_config("transaction.max.timeout.ms", "900000"))
    if ours > limit:
        raise SettingsError(
            f"kafka.transaction.timeout.ms is {ours}, above the broker's transaction.max.timeout.ms of {limit}: the broker "
            f"would refuse every write. Set it to at most {limit} in pipeline.yaml, or raise the broker's limit."
        )


def marks_kept_for(cluster: Cluster) -> timedelta:
    """How long a mark certainly lives: the shorter of the two broker retentions that it depends on."""
    offsets = timedelta(minutes=int(cluster.broker_config("offsets.retention.minutes", "10080")))
    ids = timedelta(milliseconds=int(cluster.broker_config("transactional.id.expiration.ms", "604800000")))
    return min(offsets, ids)
