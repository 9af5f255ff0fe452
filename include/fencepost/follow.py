"""The ledger for those who look often: what was read is kept, and a look reads only what is new.

Price: the newest record of every revision stays in memory (about 13 KB a batch). Nothing is decided from this view;
whoever changes the ledger reads it whole, in `ledger.py`.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Message, TopicPartition

from fencepost.errors import TopicMissing
from fencepost.kafka import Cluster, Settings, Topic, make_consumer, read_until
from fencepost.ledger import BATCH_KEY, own_batch
from fencepost.model import Batch
from fencepost.settings import Pipeline


class LedgerFollower:
    """The newest record of every revision, as far as it has been committed. Safe to share between threads."""

    def __init__(self, pipeline: Pipeline, settings: Settings, timeout: float) -> None:
        """`timeout` is for one answer of Kafka's, in seconds."""
        self._pipeline = pipeline
        self._settings = settings
        self._timeout = timeout
        self._lock = threading.Lock()
        self._topic: Topic | None = None
        self._next = 0
        self._batches: dict[bytes, Batch] = {}

    def look(self, cluster: Cluster) -> tuple[tuple[str, int], list[Batch]]:
        """All batches known now, and a value that changes when they do.

        1. where the ledger ends now; a topic that is not there yet is an empty ledger;
        2. a topic deleted and created again has another id: what was read from the old one is forgotten;
        3. records from where the last look ended; of several of one revision only the newest is parsed.

        Raises:
            KafkaUnavailable, AccessDenied: as they are. What was known stays known.
            LedgerUnreadable: a record is not Fencepost's, or of a newer version.
        """
        with self._lock:
            try:
                topic = cluster.describe(self._pipeline.ledger_topic)  # 1
            except TopicMissing:
                self._forget(None)
                return ("", 0), []
            end = cluster.last_stable(topic)[0]
            if self._topic != topic or end < self._next:  # 2
                self._forget(topic)
            if end > self._next:  # 3
                newest = self._read(cluster, topic, end)
                with without_collector():
                    self._batches |= {
                        key: own_batch(key, m.value(), m.offset() or 0, self._pipeline)
                        for key, m in newest.items()
                        if m.value() is not None or BATCH_KEY.fullmatch(key)  # else: a foreign record, withdrawn
                    }
                self._next = end
            return (topic.id, self._next), list(self._batches.values())

    def _forget(self, topic: Topic | None) -> None:
        self._topic, self._next, self._batches = topic, 0, {}

    def _read(self, cluster: Cluster, topic: Topic, end: int) -> dict[bytes, Message]:
        """The newest committed record of each key between the last look and `end`."""
        doing = f"reading ledger {topic.name}"
        consumer, complaints = make_consumer(self._settings, self._pipeline.group)
        try:
            begin = max(self._next, cluster.earliest(topic)[0])
            consumer.assign([TopicPartition(topic.name, 0, begin)])
            messages = read_until(consumer, complaints, self._settings, {0: end}, doing, self._timeout)
            return {message.key() or b"": message for message in messages}
        finally:
            consumer.close()


@contextmanager
def without_collector() -> Iterator[None]:
    """For a moment in which thousands of batches are made: the collector's rounds would take four times the work itself."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
