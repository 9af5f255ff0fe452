"""Writes one Kafka transaction with one producer: begin, produce, offsets, commit. A transaction is committed as a
whole or not at all.

Invariant: a `Transaction` that leaves its `with` block without an exception is committed. A transaction that raises
`CommitStateUnknown` may be committed. A transaction whose commit raises `WriterFenced` may be committed too: the broker
can accept the commit, the answer can get lost, and a newer producer's init can settle the transaction before the next
try. By then the outcome is final, so an attempt that reads after its own init sees it. After any other exception, no
read_committed reader will ever see a record of the transaction.

Price: an instance starts another transaction only after a successful commit. By then every record of the transaction
was acknowledged, so no record can arrive late. librdkafka has no client side of KIP-890, so after any other end a stale
record could get into the next transaction. A new instance with the same transactional.id starts a new epoch, which
keeps stale records out.
"""

from __future__ import annotations

import logging
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Self, cast

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from fencepost.errors import (
    CommitStateUnknown,
    FencepostError,
    Retriable,
    TransactionTimedOut,
    WriteFailed,
    WriterFenced,
)
from fencepost.failpoints import reached
from fencepost.kafka.client_settings import TRANSACTION_TIMEOUT_MS, ClientSettings
from fencepost.kafka.clients import make_producer
from fencepost.kafka.cluster import Cluster, check_allowed
from fencepost.kafka.errors import FENCED, RequiredRight, translate
from fencepost.kafka.produce_arguments import arguments_of

log = logging.getLogger("fencepost.kafka.transaction")

INIT_TIMEOUT = 60.0  # seconds; an init that fences waits for the markers of the older transaction
COMMIT_TIMEOUT = 120.0
SLICE = 2.0  # seconds between checks of what the error callback received
WAIT_FOR_ROOM = 0.01  # seconds in which brokers accept some records of a full queue
PURGED = {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}
ROWS_AT_ONCE = 2000  # number of rows whose arguments stay in the processor's cache


class Transaction:
    """The transactions of one transactional producer, one after another.

    `init()` fences every older producer with the same transactional.id and settles its open transaction. `with` then
    begins a transaction, and commits or aborts it at the end. `failpoint` is the prefix of the transaction's
    failpoints. `shorter` is the advice how to make a transaction shorter that takes too long. This advice follows the
    advice "raise its timeout".
    """

    def __init__(
        self,
        settings: ClientSettings,
        transactional_id: str,
        failpoint: str,
        task: int | None = None,
        shorter: str = "",
    ) -> None:
        self.id = transactional_id
        self._settings = settings
        self._failpoint, self._task, self._shorter = failpoint, task, shorter
        self._timeout = int(settings.values.get("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS)) / 1000  # seconds
        self._ended = False  # True while a transaction is open, and for good once one did not commit
        self._first: float | None = None  # when the transaction's first record was enqueued
        self._offsets: list[tuple[list[TopicPartition], str]] = []
        self._topics: dict[str, RequiredRight] = {}  # rights that the transaction's records need
        self._producer, self._complaints = make_producer(settings, transactional_id)

    def _error(self, error: KafkaError, doing: str, *needs: RequiredRight) -> FencepostError:
        """Returns the FencepostError for a KafkaError.

        librdkafka reports a newer producer in two cases. Either there is a newer producer, or the broker ended a
        transaction that took too long and fenced its producer *(measured)*. The duration distinguishes the two cases.
        This measurement starts before the broker's.
        """
        found = translate(error, f"{self.id}: {doing}", self._settings, self._complaints, needs)
        took = time.monotonic() - self._first if self._first is not None else 0.0
        if not isinstance(found, WriterFenced) or took < self._timeout:
            return found
        return TransactionTimedOut(
            f"{self.id}: {doing}: the transaction took {took:.1f} s, longer than transaction.timeout.ms "
            f"({self._timeout * 1000:.0f}), so the broker ended it. Raise kafka.transaction.timeout.ms in "
            f"pipeline.yaml{self._shorter}; then run again. If another run writes the same batch, its newer producer ended "
            f"the transaction, and you need not change anything. ({error.str()})"
        )

    def _at(self, step: str) -> None:
        reached(f"{self._failpoint}.{step}", self._task)

    def init(self) -> None:
        """Fences older producers with this id. An older producer has no open transaction afterwards, and can begin
        none.
        """
        self._at("init")
        deadline = time.monotonic() + INIT_TIMEOUT
        while True:
            try:
                self._producer.init_transactions(SLICE)  # may be called again after a time-out
                break
            except KafkaException as raised:
                error = raised.args[0]
                self._producer.poll(0)  # serves the error callback, which alone receives the reason for silence
                if self._complaints.denied is not None or not error.retriable() or time.monotonic() > deadline:
                    raise self._error(error, "init_transactions") from raised
        self._at("initialised")

    def __enter__(self) -> Self:
        assert not self._ended, f"{self.id}: a producer whose transaction failed is never used again"
        self._ended, self._offsets, self._topics, self._first = True, [], {}, None
        with self._translated("begin_transaction"):
            self._producer.begin_transaction()
        self._at("begun")
        return self

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        header: tuple[str, bytes] | None = None,
    ) -> None:
        """Enqueues one record."""
        row = pa.RecordBatch.from_arrays([_one(key), _one(value)], ["key", "value"])
        self.produce_rows(topic, row, partition=partition, header=header)

    def produce_rows(
        self,
        topic: str,
        rows: pa.RecordBatch,
        *,
        partition: int | None = None,
        header: tuple[str, bytes] | None = None,
        staging_timestamp: int | None = None,
    ) -> None:
        """Enqueues rows in order, with the columns of `arguments_of`. Waits for room if librdkafka's queue is full."""
        self._first = self._first or time.monotonic()
        self._topics[topic] = RequiredRight("Write", "topic", topic)
        with self._translated("producing records"):
            place = self._producer.topic(topic)
            for first in range(0, len(rows), ROWS_AT_ONCE):
                some = rows.slice(first, ROWS_AT_ONCE)
                given = arguments_of(
                    some, place, partition=partition, header=header, staging_timestamp=staging_timestamp
                )
                done = self._producer.enqueue(given.starts, given.counts)
                while done < len(given):
                    self._producer.poll(WAIT_FOR_ROOM)
                    self._raise_failed()
                    done += self._producer.enqueue(given.starts[done:], given.counts[done:])

    def add_offsets(self, offsets: Iterable[TopicPartition], group: str) -> None:
        """Adds offsets of a group to the transaction, which commits them with the records. The offsets are sent once
        all records are delivered.
        """
        self._offsets.append((list(offsets), group))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Commits, in numbered steps. It aborts if a step before the commit fails.

        1. deliver every record, or abort with the record's own error;
        2. send the groups' offsets into the transaction;
        3. commit. After a time-out ask again; the outcome is unknown only if no answer ever comes.
        """
        if error is not None:
            self._give_up(error)
            return
        try:
            self._deliver()  # 1
            for offsets, group in self._offsets:  # 2
                self._send_offsets(offsets, group)
            self._at("offsets-sent")
        except BaseException as failed:
            self._give_up(failed)
            raise
        self._commit()  # 3
        self._ended = False
        self._at("committed")

    def _deliver(self) -> None:
        while self._waiting():
            self._raise_failed()
        self._raise_failed()

    def _waiting(self) -> bool:
        """Serves callbacks for a while. Returns whether a record is not delivered yet."""
        with self._translated("delivering records"):
            return self._producer.flush(SLICE) > 0

    @contextmanager
    def _translated(self, doing: str) -> Iterator[None]:
        try:
            yield
        except KafkaException as raised:
            raise self._error(raised.args[0], doing, *self._topics.values()) from raised

    def _raise_failed(self) -> None:
        if self._complaints.denied is not None:
            raise self._error(self._complaints.denied, "delivering records", *self._topics.values())
        if self._producer.failed is not None:
            doing = f"delivering records to topic {self._producer.failed_topic}"
            raise self._error(self._producer.failed, doing, *self._topics.values())

    def _send_offsets(self, offsets: Sequence[TopicPartition], group: str) -> None:
        deadline = time.monotonic() + INIT_TIMEOUT
        needs = [RequiredRight("Read", "group", group), *(RequiredRight("Read", "topic", tp.topic) for tp in offsets)]
        while True:
            try:
                self._producer.send_offsets_to_transaction(list(offsets), group, SLICE)
                return
            except KafkaException as raised:
                error = raised.args[0]
                # Do not try again after fencing, or if an abort is due. After a time-out, repeat the same arguments.
                if error.txn_requires_abort() or not error.retriable() or time.monotonic() > deadline:
                    raise self._error(error, "send_offsets_to_transaction", *needs) from raised

    def _commit(self) -> None:
        self._at("committing")
        deadline = time.monotonic() + COMMIT_TIMEOUT
        while True:
            try:
                self._producer.commit_transaction(SLICE)
                return
            except KafkaException as raised:
                error = raised.args[0]
                if error.txn_requires_abort() or error.code() in FENCED:
                    self._abort()
                    raise self._error(error, "commit_transaction") from raised
                if not error.retriable() or time.monotonic() > deadline:
                    raise CommitStateUnknown(
                        f"{self.id}: commit_transaction: {error.str()}. It is unknown whether the transaction "
                        "committed. Run again: the next attempt finds out."
                    ) from raised

    def _give_up(self, failed: BaseException) -> None:
        """Aborts the transaction. A call of a fenced client may fail without a reason, and the abort then returns the
        reason.

        If the user may not write to a topic, librdkafka drops the records and may give no reason *(measured)*. So this
        method asks the cluster for the rights.
        """
        answer = self._abort()
        dropped = self._producer.failed
        if isinstance(failed, WriteFailed) and dropped is not None and dropped.code() in PURGED:
            with suppress(Retriable):
                check_allowed(Cluster(self._settings, SLICE), self._topics.values(), f"{self.id}: delivering records")
        if isinstance(failed, WriteFailed) and answer is not None and answer.code() in FENCED:
            raise self._error(answer, "abort_transaction") from failed

    def _abort(self) -> KafkaError | None:
        """Aborts if the brokers answer. Otherwise the next init_transactions aborts."""
        try:
            self._producer.abort_transaction(SLICE * 5)
        except KafkaException as raised:
            log.info("%s: the next init_transactions has to abort the transaction: %s", self.id, raised.args[0].str())
            return cast("KafkaError", raised.args[0])
        return None


def _one(value: bytes | None) -> pa.Array:
    """Returns an array of one value. `pa.array` would load pandas, which takes half a second."""
    if value is None:
        return pa.nulls(1, pa.binary())
    offsets = struct.pack("=ii", 0, len(value))
    return pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(offsets), pa.py_buffer(value)])
