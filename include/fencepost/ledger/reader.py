"""Reads the ledger, each record only once.

Invariant: the reader always has what a new reader of the whole topic would have. The newest record of every revision
counts, and each record continues the history of the record before it. A foreign record is refused and never skipped.

Price: the newest record of every revision stays in memory, about 16 KB for each batch.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterable
from itertools import pairwise
from typing import cast

from confluent_kafka import Message, TopicPartition

from fencepost.config.pipeline import Pipeline
from fencepost.errors import LedgerLost, LedgerUnreadable, TopicMissing, TransitionRefused
from fencepost.garbage_collector import without_collector
from fencepost.kafka.client_settings import ClientSettings
from fencepost.kafka.clients import make_consumer
from fencepost.kafka.cluster import Cluster, Topic
from fencepost.kafka.offsets import REQUEST_TIMEOUT, read_until
from fencepost.ledger.codec import (
    ANNOUNCED_IN_KEY,
    BATCH_KEY,
    FOREIGN,
    is_continued,
    read_announced_in,
    read_history,
    read_record,
)
from fencepost.model import Batch, HistoryEntry
from fencepost.protocol.advice import plan_first
from fencepost.protocol.view import View

# The transaction of a dead coordinator hides the ledger until the broker aborts it after its time-out, which the broker checks
# every ten seconds.
OPEN_TRANSACTION_LIMIT = 90.0  # seconds
LARGE = 4000  # records; for fewer the garbage collector takes a tenth of a second at most

COMMIT_HEADER = "fencepost-commit"  # a record's header: the attempt of a coordinator that committed it
Record = tuple[int, bytes | None, bytes | None]  # offset, key, value


class LedgerReader:
    """Reads the newest committed record of every revision. Threads may share it."""

    def __init__(self, pipeline: Pipeline, settings: ClientSettings, timeout: float = REQUEST_TIMEOUT) -> None:
        """`timeout` is the longest wait for a response from Kafka, in seconds."""
        self._pipeline = pipeline
        self._settings = settings
        self._timeout = timeout
        self._lock = threading.Lock()
        self._topic: Topic | None = None
        self._next = 0
        self._known = NewestRecords(pipeline)
        self._view: View | None = None
        self._attempts: set[bytes] = set()

    @property
    def topic(self) -> Topic | None:
        """Returns the topic that was read last."""
        return self._topic

    @property
    def announced_in(self) -> str | None:
        """Returns the id of the topic that has all of the ledger's announcements, or None before the first
        announcement.
        """
        return self._known.announced_in

    def peek(self, cluster: Cluster) -> tuple[tuple[str, int], list[Batch]]:
        """Returns all batches in the ledger, and a value that changes whenever the batches change. Only callers that
        show the batches may use it.

        1. find the ledger's end. A topic that does not exist yet is an empty ledger. Open transactions are not awaited;
        2. forget what was read before if the topic was deleted and created again, which gives it another id;
        3. read the records after the last one that was read.

        Raises:
            KafkaUnavailable, AccessDenied: from Kafka. Records that were read before are kept.
            LedgerUnreadable: a record is foreign, damaged, or of a newer version.
        """
        with self._lock:
            topic = cluster.find(self._pipeline.ledger_topic)  # 1
            if topic is None:
                self._forget(None)
                return ("", 0), []
            end = cluster.last_stable(topic)[0]
            if self._topic != topic or end < self._next:  # 2
                self._forget(topic)
            with without_collector():
                self._read(cluster, topic, end)  # 3
            return (topic.id, self._next), list(self._known.batches.values())

    def find(self, cluster: Cluster) -> Topic:
        """Returns the ledger's topic.

        Raises:
            TransitionRefused: the topic does not exist. Unlike Kafka's own error, the message does not advise to create
                it.
            LedgerLost: the topic existed at the last read and no longer exists.
        """
        try:
            return cluster.describe(self._pipeline.ledger_topic)
        except TopicMissing:
            if self._topic is not None:
                raise self._lost("was deleted") from None
        name = self._pipeline.name
        raise TransitionRefused(
            f"pipeline {name}: its ledger {self._pipeline.ledger_topic} does not exist, so nothing was ever planned. "
            f"{plan_first(f'`fencepost run {name} --start ... --end ...`')}. If something was planned, the "
            "ledger was deleted: restore it from a copy, and do not create the topic by hand."
        )

    def _lost(self, how: str) -> LedgerLost:
        return LedgerLost(
            f"pipeline {self._pipeline.name}: its ledger {self._pipeline.ledger_topic} {how} during this step. "
            "Nothing was recorded. Restore the ledger from a copy, then run again."
        )

    def read(self, cluster: Cluster) -> View:
        """Returns everything that is committed now, for callers that decide what happens to a batch. It never returns part
        of the ledger.

        1. check that the topic is the one that was read before;
        2. wait for an open transaction;
        3. read the records after the last one that was read.

        Raises:
            TransitionRefused: there is no ledger.
            LedgerLost: since the last read the topic was deleted, or deleted and created again, or lost records.
            LedgerUnreadable: see `peek`.
        """
        with self._lock:
            topic = self.find(cluster)
            end = cluster.high_watermarks(topic)[0]
            if self._topic is not None and (self._topic.id != topic.id or end < self._next):  # 1
                raise self._lost("was deleted and created again, or lost records,")
            self._topic = topic
            if end > self._next:
                cluster.await_stable(topic, [end], OPEN_TRANSACTION_LIMIT, f"reading ledger {topic.name}")  # 2
            large = end - self._next > LARGE
            if large:
                gc.collect()
            with without_collector():
                self._read(cluster, topic, end)  # 3
                if self._view is None:
                    self._view = View.of(self._known.batches.values())
                if large:
                    # A step keeps these objects to its end, so the collector must not visit them again and again. Garbage would
                    # stay as well, such as Kafka clients with their threads, so it is collected before.
                    gc.freeze()
            return self._view

    def has_read(self, attempt: bytes) -> bool:
        """Returns whether the reader has read a record that this attempt committed."""
        return attempt in self._attempts

    def await_visible(self, cluster: Cluster) -> None:
        """Waits until every reader sees all commits. The broker writes a commit's markers a moment after its response."""
        if self._topic is not None:
            doing = f"reading ledger {self._topic.name}"
            cluster.await_stable(self._topic, cluster.high_watermarks(self._topic), OPEN_TRANSACTION_LIMIT, doing)

    def _forget(self, topic: Topic | None) -> None:
        self._topic, self._next, self._known, self._view = topic, 0, NewestRecords(self._pipeline), None
        self._attempts = set()

    def _noted(self, message: Message) -> Record:
        """Remembers the attempt that committed the record, and returns the record."""
        headers = dict(cast("list[tuple[str, bytes | None]]", message.headers() or []))
        self._attempts.add(headers.get(COMMIT_HEADER) or b"")
        return message.offset() or 0, message.key(), message.value()

    def _read(self, cluster: Cluster, topic: Topic, end: int) -> None:
        """Reads the committed records up to `end`."""
        if end <= self._next:
            return
        doing = f"reading ledger {topic.name}"
        consumer, complaints = make_consumer(self._settings, self._pipeline.group)
        try:
            begin = self._next or cluster.earliest(topic)[0]
            consumer.assign([TopicPartition(topic.name, 0, begin)])
            messages = read_until(consumer, complaints, self._settings, {0: end}, doing, self._timeout)
            taken = self._known.take(self._noted(m) for m in messages)
        finally:
            consumer.close()
        self._next, self._view = end, self._view and self._view.updated(taken)


class NewestRecords:
    """The newest record of every revision. The object takes records in the order of their offsets."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self.batches: dict[bytes, Batch] = {}
        self.announced_in: str | None = None

    def take(self, records: Iterable[Record]) -> list[Batch]:
        """Adds the records that follow the records taken before. It adds all of them, or none if there is an error.
        Returns their batches.

        Of several records with one key, the newest counts and is parsed. Of the older records only the histories are
        compared. A foreign record has a key that is not a batch's. A foreign record counts as removed after a later
        record with its key and no value.

        Raises:
            LedgerUnreadable: a record is damaged, belongs to another pipeline, or is older than the record before it.
        """
        by_key: dict[bytes | None, list[tuple[int, bytes | None]]] = {}
        for offset, key, value in records:
            by_key.setdefault(key, []).append((offset, value))
        taken: dict[bytes, Batch] = {}
        for offset, value in by_key.pop(ANNOUNCED_IN_KEY, [])[-1:]:
            self.announced_in = read_announced_in(value, offset, self._pipeline)
        for key, (*older, newest) in by_key.items():
            if newest[1] is None and not BATCH_KEY.fullmatch(key or b""):
                continue  # removed
            known = self.batches.get(key or b"")
            history = known.history if known else ()
            if known is not None or not all(is_continued(a, b) for (_, a), (_, b) in pairwise([*older, newest])):
                for offset, value in older if BATCH_KEY.fullmatch(key or b"") else ():
                    history = self._goes_on(history, read_history(key, value, offset, self._pipeline), offset)
            batch = read_record(key, newest[1], newest[0], self._pipeline)
            self._goes_on(history, batch.history, newest[0])
            taken[key or b""] = batch
        self.batches |= taken
        return list(taken.values())

    def _goes_on(
        self, before: tuple[HistoryEntry, ...], after: tuple[HistoryEntry, ...], offset: int
    ) -> tuple[HistoryEntry, ...]:
        """Checks that the later history begins with the earlier history, and returns the later history."""
        if after[: len(before)] != before:
            raise LedgerUnreadable(
                f"ledger {self._pipeline.ledger_topic}, offset {offset}: an older record follows a newer one of the "
                f"same batch. {FOREIGN}"
            )
        return after
