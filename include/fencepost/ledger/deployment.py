"""A pipeline on its Kafka cluster: what a step is handed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from fencepost.config.pipeline import Pipeline
from fencepost.kafka.client_settings import client_settings
from fencepost.kafka.cluster import Cluster
from fencepost.kafka.offsets import REQUEST_TIMEOUT
from fencepost.ledger.ledger import Ledger


@dataclass(frozen=True)
class Deployment:
    """A pipeline on one Kafka cluster: the pipeline's settings, the clients of the cluster, and the pipeline's ledger there.

    Keep one for all of a process's work on a pipeline: its ledger reads each record once. Use it from one thread only.

    A function that needs one of the three takes that one. It takes the deployment if it needs more.
    """

    pipeline: Pipeline
    cluster: Cluster
    ledger: Ledger

    @classmethod
    def of(cls, pipeline: Pipeline, timeout: float = REQUEST_TIMEOUT) -> Self:
        """The pipeline on the cluster that its settings name. `timeout` is how many seconds one response from Kafka may take."""
        cluster = Cluster(client_settings(pipeline), timeout)
        return cls(pipeline, cluster, Ledger(pipeline, cluster))
