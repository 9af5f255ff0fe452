"""A deployment is a pipeline on its Kafka cluster. Every step gets a deployment."""

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

    Keep one deployment for all of a process's work on a pipeline, because its ledger reads each record once. Use it
    from one thread only.

    A function that needs only one of the three gets only that. A function that needs more gets the deployment.
    """

    pipeline: Pipeline
    cluster: Cluster
    ledger: Ledger

    @classmethod
    def of(cls, pipeline: Pipeline, timeout: float = REQUEST_TIMEOUT) -> Self:
        """Returns the pipeline on the cluster that its settings name. `timeout` is the longest wait for a response from
        Kafka, in seconds.
        """
        cluster = Cluster(client_settings(pipeline), timeout)
        return cls(pipeline, cluster, Ledger(pipeline, cluster))
