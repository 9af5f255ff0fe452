"""Reading the ledger: each record once, for as long as one looks.

Invariant: what is kept is what a reader of the whole topic would have now. The newest record of every revision counts, each
one goes on where the one before it stopped, and a record that nobody of Fencepost's wrote is refused and never passed over.

Price: the newest record of every revision stays in memory (about 13 KB a batch).
"""

from __future__ import annotations

import gc
import json
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import NoReturn

from confluent_kafka import TopicPartition
from pydantic import BaseModel, ConfigDict, ValidationError

from fencepost.errors import LedgerLost, LedgerUnreadable, TopicMissing
from fencepost.kafka import REQUEST_TIMEOUT, Cluster, Settings, Topic, make_consumer, read_until
from fencepost.model import LEDGER_VERSION, Batch, Event, State
from fencepost.settings import Pipeline
from fencepost.transitions import View

# One that died in its transaction hides the ledger until the broker aborts it: after its time-out, and the broker looks
# every ten seconds.
OPEN_TRANSACTION_LIMIT = 90.0  # seconds

Record = tuple[int, bytes | None, bytes | None]  # offset, key, value

BATCH_KEY = re.compile(rb"\d{8}T\d{6}(\.\d{6})?Z-\d{8}T\d{6}(\.\d{6})?Z/\d+")
FOREIGN = (
    "Find out who writes to this topic; the ledger is for Fencepost alone. Where its key is no batch's (<interval>/<revision>), "
    "a record with that key and no value withdraws it; otherwise restore the topic from a copy."
)
RESTORE = "Restore the ledger topic from a copy."


class LedgerReader:
    """The newest record of every revision, as far as it has been committed. Safe to share between threads."""

    def __init__(self, pipeline: Pipeline, settings: Settings, timeout: float = REQUEST_TIMEOUT) -> None:
        """`timeout` is for one answer of Kafka's, in seconds."""
        self._pipeline = pipeline
        self._settings = settings
        self._timeout = timeout
        self._lock = threading.Lock()
        self._topic: Topic | None = None
        self._next = 0
        self._known = Records(pipeline)
        self._view: View | None = None

    @property
    def topic(self) -> Topic | None:
        """The topic that was read last."""
        return self._topic

    def look(self, cluster: Cluster) -> tuple[tuple[str, int], list[Batch]]:
        """All batches known now, and a value that changes when they do; for those who only show them.

        1. where the ledger ends now; a topic that is not there yet is an empty ledger, and nobody's transaction is waited for;
        2. a topic deleted and created again has another id: what was read from the old one is forgotten;
        3. records from where the last look ended.

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
            self._read(cluster, topic, end)  # 3
            return (topic.id, self._next), list(self._known.batches.values())

    def read(self, cluster: Cluster) -> View:
        """All that is committed now; for those who decide. Never takes part of the ledger for all of it.

        1. the topic is the one that was read before;
        2. a transaction under way is waited for;
        3. records from where the last read ended.

        Raises:
            LedgerLost: the topic was deleted and created again since the last read, or lost records.
            LedgerUnreadable: as `look`.
        """
        with self._lock:
            topic = cluster.describe(self._pipeline.ledger_topic)
            end = cluster.high_watermarks(topic)[0]
            if self._topic is not None and (self._topic.id != topic.id or end < self._next):  # 1
                raise LedgerLost(
                    f"pipeline {self._pipeline.name}: its ledger {topic.name} was deleted and created again, or lost records, "
                    "while this step was at work. Nothing was recorded. Restore the ledger from a copy, then run again."
                )
            self._topic = topic
            if end > self._next:
                doing = f"reading ledger {topic.name}"
                cluster.await_stable(topic, [end], OPEN_TRANSACTION_LIMIT, doing)  # 2
                self._read(cluster, topic, end)  # 3
            return self._view_of_known()

    def await_visible(self, cluster: Cluster) -> None:
        """Wait until everybody can read what is committed: its markers are written a moment after a commit was answered."""
        if self._topic is not None:
            doing = f"reading ledger {self._topic.name}"
            cluster.await_stable(self._topic, cluster.high_watermarks(self._topic), OPEN_TRANSACTION_LIMIT, doing)

    def _view_of_known(self) -> View:
        if self._view is None:
            with without_collector():
                self._view = View.of(self._known.batches.values())
        return self._view

    def _forget(self, topic: Topic | None) -> None:
        self._topic, self._next, self._known, self._view = topic, 0, Records(self._pipeline), None

    def _read(self, cluster: Cluster, topic: Topic, end: int) -> None:
        """Take the committed records between the last read and `end`."""
        if end <= self._next:
            return
        doing = f"reading ledger {topic.name}"
        consumer, complaints = make_consumer(self._settings, self._pipeline.group)
        try:
            begin = self._next or cluster.earliest(topic)[0]
            consumer.assign([TopicPartition(topic.name, 0, begin)])
            messages = read_until(consumer, complaints, self._settings, {0: end}, doing, self._timeout)
            with without_collector():
                self._known.take((m.offset() or 0, m.key(), m.value()) for m in messages)
        finally:
            consumer.close()
        self._next, self._view = end, None


class Records:
    """The newest record of every revision, of records that are taken in the order of their offsets."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self.batches: dict[bytes, Batch] = {}

    def take(self, records: Iterable[Record]) -> None:
        """Add the records that follow those taken before; all of them, or on an error none.

        Of several records under one key the newest counts, and is parsed; of those before it, their histories are compared. A
        record under a key that no batch has is withdrawn by a later one with that key and no value; compaction removes both.

        Raises:
            LedgerUnreadable: a record is not this pipeline's, is damaged, or is an older one copied behind newer ones.
        """
        by_key: dict[bytes | None, list[tuple[int, bytes | None]]] = {}
        for offset, key, value in records:
            by_key.setdefault(key, []).append((offset, value))
        taken: dict[bytes, Batch] = {}
        for key, (*older, newest) in by_key.items():
            if newest[1] is None and not BATCH_KEY.fullmatch(key or b""):
                continue  # withdrawn
            known = self.batches.get(key or b"")
            history = known.history if known else ()
            if known is not None or not all(_is_continued(a, b) for (_, a), (_, b) in pairwise([*older, newest])):
                for offset, value in older if BATCH_KEY.fullmatch(key or b"") else ():
                    history = self._goes_on(history, past(key, value, offset, self._pipeline), offset)
            batch = own_batch(key, newest[1], newest[0], self._pipeline)
            self._goes_on(history, batch.history, newest[0])
            taken[key or b""] = batch
        self.batches |= taken

    def _goes_on(self, before: tuple[Event, ...], after: tuple[Event, ...], offset: int) -> tuple[Event, ...]:
        """The later history, which begins with the one before it."""
        if after[: len(before)] != before:
            raise LedgerUnreadable(
                f"ledger {self._pipeline.ledger_topic}, offset {offset}: an older record stands behind a newer one of the "
                f"same batch. {FOREIGN}"
            )
        return after


HISTORY = b',"history":['  # a record's last field; in a text of it the quotes would be escaped


def _is_continued(before: bytes | None, after: bytes | None) -> bool:
    """Whether one record's history plainly begins with the other's, byte by byte; False where only parsing tells."""
    if not before or not after or not (before.endswith(b"]}") and after.endswith(b"]}")):
        return False
    first, second = before.rfind(HISTORY), after.rfind(HISTORY)
    return first >= 0 and second >= 0 and after.startswith(before[first:-2], second)


def key_of(batch: Batch) -> bytes:
    """The key of a batch's records."""
    return f"{batch.interval}/{batch.revision}".encode()


def to_record(batch: Batch) -> bytes:
    """A batch's record. One that was read in an older version is written in the present one, whose fields it has."""
    return batch.model_copy(update={"version": LEDGER_VERSION}).model_dump_json(exclude_none=True).encode()


def own_batch(key: bytes | None, value: bytes | None, offset: int, pipeline: Pipeline) -> Batch:
    """The batch of a record of this pipeline's, with its lease.

    Raises:
        LedgerUnreadable: the record is not this pipeline's, or is damaged.
    """
    where = f"ledger {pipeline.ledger_topic}, offset {offset}"
    batch = parse(value, where)
    if batch.pipeline != pipeline.name or key != key_of(batch):
        raise LedgerUnreadable(f"{where}: not a record of this pipeline's. {FOREIGN}")
    if batch.lease is not None:
        return batch
    if batch.state is not State.PLANNED:
        raise LedgerUnreadable(f"{where}: damaged in lease. {RESTORE}")
    return batch.model_copy(update={"lease": offset})


class _Past(BaseModel):
    """As much of a record as matters when a newer one of its batch is there."""

    model_config = ConfigDict(extra="ignore")

    history: tuple[Event, ...] = ()


def past(key: bytes | None, value: bytes | None, offset: int, pipeline: Pipeline) -> tuple[Event, ...]:
    """The history in a record that a newer one has replaced.

    Raises:
        LedgerUnreadable: as `own_batch`.
    """
    try:
        return _Past.model_validate_json(value or b"").history
    except ValidationError:
        return own_batch(key, value, offset, pipeline).history


def parse(value: bytes | None, where: str) -> Batch:
    """A ledger record's batch, or LedgerUnreadable naming the offset and not the content."""
    try:
        return Batch.model_validate_json(value or b"")
    except ValidationError:
        _refuse(value, where)


def _refuse(value: bytes | None, where: str) -> NoReturn:
    try:
        raw = json.loads(value or b"")
        version = raw.get("version")
    except (ValueError, AttributeError, RecursionError):
        raise LedgerUnreadable(f"{where}: not a record of Fencepost's. {FOREIGN}") from None
    if isinstance(version, int) and version > LEDGER_VERSION:
        raise LedgerUnreadable(
            f"{where}: written by a newer Fencepost (record version {version}, this one reads {LEDGER_VERSION}). Upgrade."
        )
    try:
        Batch.model_validate(raw)
        fields = "its encoding"
    except ValidationError as error:
        fields = ", ".join(sorted({_field(e["loc"]) for e in error.errors()}))
    raise LedgerUnreadable(f"{where}: damaged in {fields}. {RESTORE}") from None


def _field(location: tuple[int | str, ...]) -> str:
    """The top field where a record is damaged: names below it may be anything."""
    return str(location[0]) if location and location[0] in Batch.model_fields else "fields it should not have"


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
