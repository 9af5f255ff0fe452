"""Keeps snapshots of all ledgers between requests. A request reads only the records since the last request.

Invariant: no page waits longer than a few seconds for a Kafka that is down, however many pipelines and logins it shows.
An address that did not answer is not asked again for some seconds. In that time pages say immediately what is wrong.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from fencepost.config.pipeline import Pipeline
from fencepost.errors import AccessDenied, FencepostError, KafkaUnavailable, LoginRefused
from fencepost.garbage_collector import without_collector
from fencepost.kafka.client_settings import ClientSettings, client_settings
from fencepost.kafka.cluster import Cluster, Topic
from fencepost.ledger.deployment import Deployment
from fencepost.ledger.reader import LedgerReader
from fencepost.model import PartitionId, by_partition
from fencepost.outputs.output import missing_of
from fencepost.pages.logins import Logins
from fencepost.protocol.snapshot import Snapshot, snapshot_of
from fencepost.protocol.view import View

TIMEOUT = 4.0  # seconds that a page waits for one answer of Kafka
PAUSE = 5.0  # seconds in which a cluster that did not answer is not asked again
IDLE = 300.0  # seconds after which an unused client is closed; each has threads and connections

Identity = frozenset[tuple[str, str]]  # a cluster and a login: the settings of a client
T = TypeVar("T")
K = TypeVar("K")


@dataclass
class _Failure:
    """The error of a cluster that refused access or did not answer. The error is valid for `PAUSE` seconds."""

    error: FencepostError
    at: float


@dataclass
class _KnownLedger:
    """One pipeline's ledger, with its last snapshot."""

    identity: Identity
    follower: LedgerReader
    lock: threading.Lock = field(default_factory=threading.Lock)
    position: tuple[str, int] | None = None
    snapshot: Snapshot | None = None


@dataclass
class _Client:
    """A client, and the time of its last use."""

    cluster: Cluster
    used: float


class Ledgers:
    """The snapshots of all ledgers. There is one object per process, and many threads may use it."""

    def __init__(self, timeout: float = TIMEOUT) -> None:
        """`timeout` is the longest wait for an answer of Kafka, in seconds."""
        self.logins: Logins | None = None  # Airflow's connections: see `LazyApp`
        self._timeout = timeout
        self._whole: dict[str, Pipeline] = {}  # with the last known settings of its connections
        self._lock = threading.Lock()
        self._kept: dict[str, _KnownLedger] = {}
        self._clients: dict[Identity, _Client] = {}
        self._failed: dict[Identity, _Failure] = {}  # failures of one login
        self._away: dict[str, _Failure] = {}  # failures of an address, so of every login
        self._answered: dict[str, float] = {}  # when each address last answered anybody

    def deadline(self) -> float:
        """Returns the time until which a page that starts now may wait for clusters that have never answered."""
        return time.monotonic() + self._timeout

    def snapshot(self, pipeline: Pipeline, until: float | None = None) -> Snapshot:
        """Returns the pipeline's present ledger. `until` is the `deadline` of a page that shows several pipelines.

        Raises:
            FencepostError: Kafka does not answer or refuses access, or the ledger cannot be read. The message has the
                next step.
        """
        return self._logged_in(pipeline, lambda whole: self._snapshot(whole, until))

    def _snapshot(self, pipeline: Pipeline, until: float | None) -> Snapshot:
        settings = client_settings(pipeline)
        identity = frozenset(settings.values.items())
        with self._lock:
            kept = self._kept.get(pipeline.name)
            if kept is None or kept.identity != identity:
                kept = _KnownLedger(identity, LedgerReader(pipeline, settings, self._timeout))
                self._kept[pipeline.name] = kept
        with kept.lock:
            position, batches = self._asking(settings, kept.follower.peek, until)
            if kept.snapshot is None or position != kept.position:
                with without_collector():
                    kept.position, kept.snapshot = position, snapshot_of(View.of(batches))
            return kept.snapshot

    def source_ends(self, pipeline: Pipeline) -> dict[PartitionId, int]:
        """Returns the high watermark of every partition of the sources. A topic that does not exist has none.

        Raises:
            FencepostError: see `snapshot`.
        """

        return self._of_sources(pipeline, lambda cluster, topic: cluster.high_watermarks(topic))

    def source_begins(self, pipeline: Pipeline) -> dict[PartitionId, int]:
        """Returns the first offset that each partition of the sources still has. A topic that does not exist has none.

        Raises:
            FencepostError: see `snapshot`.
        """

        return self._of_sources(pipeline, lambda cluster, topic: cluster.earliest(topic))

    def _of_sources(
        self, pipeline: Pipeline, offsets: Callable[[Cluster, Topic], Sequence[int]]
    ) -> dict[PartitionId, int]:
        def ask(cluster: Cluster) -> dict[PartitionId, int]:
            found: dict[PartitionId, int] = {}
            for name in pipeline.source_topics:
                if (topic := cluster.find(name)) is not None:
                    found |= by_partition(name, offsets(cluster, topic))
            return found

        return self._logged_in(pipeline, lambda whole: self._asking(client_settings(whole), ask))

    def missing_batches(self, pipeline: Pipeline) -> str:
        """Returns which published batches of the ledger the pipeline's output table lacks. The text is empty if none is
        missing.

        The method waits for the database, so `pages/comparisons.py` calls it in the background.

        Raises:
            FencepostError: see `snapshot`. Other causes are that the database does not answer or refuses access, and
                that the ledger is lost.
        """

        def ask(whole: Pipeline) -> str:
            return missing_of(Deployment.of(whole, timeout=self._timeout))

        return self._logged_in(pipeline, ask)

    def _logged_in(self, pipeline: Pipeline, ask: Callable[[Pipeline], T]) -> T:
        """Returns the answer of `ask`, which needs a login. If the login is refused, its connection is looked up once
        more.
        """
        whole = self._with_connections(pipeline)
        try:
            return ask(whole)
        except LoginRefused:
            renewed = self._with_connections(pipeline, self._refused_at(whole))
            if renewed == whole:
                raise
            return ask(renewed)

    def _with_connections(self, pipeline: Pipeline, since: float | None = None) -> Pipeline:
        """Returns the pipeline with the settings of its connections. The connections were looked up within the last
        minute, or after `since` if it is given.

        If the settings have changed, the client with the old settings is closed, because it would continue with the old
        password.
        """
        if not pipeline.connections or self.logins is None:
            return pipeline
        whole = self.logins.with_connections(pipeline, since)  # without the lock: a secrets backend may be slow
        with self._lock:
            before = self._whole.get(pipeline.name)
            self._whole[pipeline.name] = whole
            if before is not None and before.kafka != whole.kafka:
                old = frozenset(client_settings(before).values.items())
                self._clients.pop(old, None)
                self._failed.pop(old, None)  # an error refers to the objects that raised it
        return whole

    def _refused_at(self, whole: Pipeline) -> float:
        """Returns the time at which the cluster refused this login. A connection that was looked up later need not be
        looked up again.
        """
        with self._lock:
            failure = self._failed.get(frozenset(client_settings(whole).values.items()))
        return failure.at if failure is not None else time.monotonic()

    def _asking(self, settings: ClientSettings, ask: Callable[[Cluster], T], until: float | None = None) -> T:
        """Returns the cluster's answer. Raises the cluster's error if it failed within the last `PAUSE` seconds."""
        identity, address = frozenset(settings.values.items()), settings.bootstrap
        cluster, began = self._client(identity, settings, until), time.monotonic()
        try:
            answer = ask(cluster)
        except (KafkaUnavailable, AccessDenied) as error:
            with self._lock:
                if (client := self._clients.get(identity)) is not None and client.cluster is cluster:
                    del self._clients[identity]  # the client remembers a refusal, so the next attempt needs a new one
                failure = _Failure(error, time.monotonic())
                if isinstance(error, KafkaUnavailable) and self._answered.get(address, 0) < began:
                    self._away[address] = failure
                else:  # the address has answered another login meanwhile
                    self._failed[identity] = failure
            raise
        with self._lock:
            self._answered[address] = time.monotonic()
            self._away.pop(address, None)
            self._failed.pop(identity, None)
        return answer

    def _client(self, identity: Identity, settings: ClientSettings, until: float | None) -> Cluster:
        """Returns the client of that login, created if it is missing. Unused clients are closed.

        Raises:
            FencepostError: the cluster failed within the last `PAUSE` seconds, or the page has waited long enough for other
            clusters.
        """
        now, address = time.monotonic(), settings.bootstrap
        with self._lock:
            self._away, self._failed = _fresh(self._away, now), _fresh(self._failed, now)
            failure = self._away.get(address) or self._failed.get(identity)
            if failure is not None:
                raise failure.error
            waited = (
                until is not None and now > until and any(f.at > until - self._timeout for f in self._away.values())
            )
            if waited and now - self._answered.get(address, -PAUSE) >= PAUSE:
                raise KafkaUnavailable(
                    f"Kafka at {address} was not asked: other clusters kept this page waiting. Load the page again."
                )
            client = self._clients.get(identity) or _Client(Cluster(settings, self._timeout), now)
            client.used = now
            self._clients[identity] = client
            self._clients = {key: one for key, one in self._clients.items() if now - one.used < IDLE}
            return client.cluster


def _fresh(failures: dict[K, _Failure], now: float) -> dict[K, _Failure]:
    return {key: failure for key, failure in failures.items() if now - failure.at < PAUSE}
