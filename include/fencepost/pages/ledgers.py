"""Snapshots of all ledgers, kept between requests. A request only reads what is new in Kafka since the last one.

Invariant: no page waits for an absent Kafka longer than a few seconds. For a moment, no pipeline asks a cluster again that did
not answer, so pages say at once what is wrong.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from fencepost.collector import without_collector
from fencepost.config.pipeline import Pipeline
from fencepost.errors import AccessDenied, FencepostError, KafkaUnavailable
from fencepost.kafka.client_settings import ClientSettings, client_settings
from fencepost.kafka.cluster import Cluster
from fencepost.ledger.reader import LedgerReader
from fencepost.pages.snapshot import Snapshot, take
from fencepost.protocol.frontier import Place

TIMEOUT = 4.0  # seconds for one answer from Kafka; a page is not worth more
PAUSE = 5.0  # seconds in which a cluster that did not answer is not asked again

T = TypeVar("T")


@dataclass
class _Shared:
    """One cluster, shared by all pipelines with the same settings."""

    cluster: Cluster | None = None
    failure: FencepostError | None = None
    failed_at: float = 0.0


@dataclass
class _Kept:
    """One pipeline's ledger."""

    follower: LedgerReader
    lock: threading.Lock = field(default_factory=threading.Lock)
    position: tuple[str, int] | None = None
    snapshot: Snapshot | None = None


class Ledgers:
    """One per process. Safe to use from many threads."""

    def __init__(self, timeout: float = TIMEOUT) -> None:
        self._timeout = timeout
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, frozenset[tuple[str, str]]], _Kept] = {}
        self._shared: dict[frozenset[tuple[str, str]], _Shared] = {}

    def snapshot(self, pipeline: Pipeline) -> Snapshot:
        """The pipeline's present ledger.

        Raises:
            FencepostError: Kafka does not answer or refuses access, or the ledger cannot be read; says what to do.
        """
        settings = client_settings(pipeline)
        identity = frozenset(settings.values.items())
        with self._lock:
            kept = self._kept.setdefault(
                (pipeline.name, identity), _Kept(LedgerReader(pipeline, settings, self._timeout))
            )
        with kept.lock:
            position, batches = self._asking(identity, settings, kept.follower.look)
            if kept.snapshot is None or position != kept.position:
                with without_collector():
                    kept.position, kept.snapshot = position, take(pipeline.name, batches)
            return kept.snapshot

    def source_ends(self, pipeline: Pipeline) -> dict[Place, int] | None:
        """The high watermark of every partition of the source; None if the topic does not exist.

        Raises:
            FencepostError: as `snapshot`.
        """
        settings = client_settings(pipeline)

        def ask(cluster: Cluster) -> dict[Place, int] | None:
            topic = cluster.find(pipeline.source.topic)
            if topic is None:
                return None
            ends = cluster.high_watermarks(topic)
            return {(pipeline.source.topic, partition): end for partition, end in enumerate(ends)}

        return self._asking(frozenset(settings.values.items()), settings, ask)

    def _asking(self, identity: frozenset[tuple[str, str]], settings: ClientSettings, ask: Callable[[Cluster], T]) -> T:
        """The cluster's answer, or its failure of a moment ago."""
        with self._lock:
            shared = self._shared.setdefault(identity, _Shared())
            if shared.failure is not None and time.monotonic() - shared.failed_at < PAUSE:
                raise shared.failure
            if shared.cluster is None:
                shared.cluster = Cluster(settings, self._timeout)
            cluster = shared.cluster
        try:
            answer = ask(cluster)
        except (KafkaUnavailable, AccessDenied) as error:
            with self._lock:
                # A client remembers a refusal, so the next attempt needs a new client.
                shared.cluster, shared.failure, shared.failed_at = None, error, time.monotonic()
            raise
        shared.failure = None
        return answer
