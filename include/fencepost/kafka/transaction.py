"""One Kafka transaction of one producer: begin, produce, offsets, commit, or nothing at all.

Invariant: a `Transaction` that leaves its `with` block without an exception is committed; one that raises
`CommitStateUnknown` may be, and so may one whose commit raises `WriterFenced`: a broker can take the commit, its answer can
get lost, and a newer producer's init settle it before it is asked again. By then the outcome is final, so an attempt
that reads after its own init sees it. After any other exception nothing of it will ever be visible to read_committed.

Price: an instance goes on to a next transaction only behind a commit that succeeded: every record of the one before was
acknowledged then, so none can arrive late. librdkafka has no client side of KIP-890, so after anything else a stale record
could get into the next transaction; a new instance under the same transactional.id starts with a new epoch, and none can.
"""

from __future__ import annotations

import logging
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self, cast

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from fencepost.errors import CommitStateUnknown, FencepostError, TransactionTimedOut, WriteFailed, WriterFenced
from fencepost.failpoints import reached
from fencepost.kafka.client_settings import TRANSACTION_TIMEOUT_MS, ClientSettings
from fencepost.kafka.clients import make_producer
from fencepost.kafka.errors import FENCED, translate
from fencepost.kafka.produce_arguments import arguments_of

log = logging.getLogger("fencepost.kafka.transaction")

INIT_TIMEOUT = 60.0  # seconds; an init that fences waits for the older transaction's markers
COMMIT_TIMEOUT = 120.0
SLICE = 2.0  # seconds between looks at what the error callback heard
WAIT_FOR_ROOM = 0.01  # seconds in which brokers take some of a full queue
ROWS_AT_ONCE = 2000  # whose arguments stay in the processor's cache


class Transaction:
    """A transactional producer's transaction, and the ones that follow it in a chain.

    `init()` fences every older producer of the same transactional.id and settles its open transaction. `with` then
    begins, and ends with commit or abort. `failpoint` prefixes the names of this transaction's failpoints. `shorter` is what a
    person can do about one that takes too long, beside giving it more time.
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
        self._ended = False  # set while a transaction is open, and for good when one did not commit
        self._first: float | None = None  # when the transaction's first record was enqueued
        self._offsets: list[tuple[list[TopicPartition], str]] = []
        self._producer, self._complaints = make_producer(settings, transactional_id)

    def _error(self, error: KafkaError, doing: str) -> FencepostError:
        """The FencepostError for it.

        The broker fences the producer of a transaction that it ended, and librdkafka reports a newer producer in both cases
        *(measured)*. The clock tells them apart: the broker's begins later than this one.
        """
        found = translate(error, f"{self.id}: {doing}", self._settings, self._complaints)
        took = time.monotonic() - self._first if self._first is not None else 0.0
        if not isinstance(found, WriterFenced) or took < self._timeout:
            return found
        return TransactionTimedOut(
            f"{self.id}: {doing}: the transaction took {took:.1f} s, longer than transaction.timeout.ms "
            f"({self._timeout * 1000:.0f}), so the broker ended it. In pipeline.yaml, {self._shorter}raise "
            "kafka.transaction.timeout.ms; then run again. Where another run writes the same batch, its newer producer ended "
            f"it, and there is nothing to mend. ({error.str()})"
        )

    def _at(self, step: str) -> None:
        reached(f"{self._failpoint}.{step}", self._task)

    def init(self) -> None:
        """Fence older producers of this id; afterwards no transaction of theirs is open, or ever will be."""
        self._at("init")
        deadline = time.monotonic() + INIT_TIMEOUT
        while True:
            try:
                self._producer.init_transactions(SLICE)  # may be called again after a time-out
                break
            except KafkaException as raised:
                error = raised.args[0]
                if self._complaints.denied is not None or not error.retriable() or time.monotonic() > deadline:
                    raise self._error(error, "init_transactions") from raised
        self._at("initialised")

    def __enter__(self) -> Self:
        assert not self._ended, f"{self.id}: a producer whose transaction failed is never used again"
        self._ended, self._offsets, self._first = True, [], None
        with self._translated("begin_transaction"):
            self._producer.begin_transaction()
        self._at("begun")
        return self

    def produce(
        self, topic: str, value: bytes | None, key: bytes | None = None, *, partition: int | None = None
    ) -> None:
        """Enqueue one record."""
        row = pa.RecordBatch.from_arrays([_one(key), _one(value)], ["key", "value"])
        self.produce_rows(topic, row, partition=partition)

    def produce_rows(
        self,
        topic: str,
        rows: pa.RecordBatch,
        *,
        partition: int | None = None,
        header: tuple[str, bytes] | None = None,
        stamp: str | None = None,
    ) -> None:
        """Enqueue rows in their order, as `arguments_of` takes them; waits for room when librdkafka's queue is full."""
        self._first = self._first or time.monotonic()
        with self._translated("producing records"):
            place = self._producer.topic(topic)
            for first in range(0, len(rows), ROWS_AT_ONCE):
                some = rows.slice(first, ROWS_AT_ONCE)
                given = arguments_of(some, place, partition=partition, header=header, stamp=stamp)
                done = self._producer.enqueue(given.starts, given.counts)
                while done < len(given):
                    self._producer.poll(WAIT_FOR_ROOM)
                    self._raise_failed()
                    done += self._producer.enqueue(given.starts[done:], given.counts[done:])

    def add_offsets(self, offsets: Iterable[TopicPartition], group: str) -> None:
        """Offsets of a group that commit with the records, or not at all. Sent when all records are delivered."""
        self._offsets.append((list(offsets), group))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Commit, in numbered steps; abort when anything before the commit fails.

        1. every record is delivered, or the transaction is aborted with the record's own error;
        2. the groups' offsets are sent into the transaction;
        3. commit; a time-out is asked again, and only silence to the end is an unknown outcome.
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
        """Whether records are still to be delivered, after a while of serving their callbacks."""
        with self._translated("delivering records"):
            return self._producer.flush(SLICE) > 0

    @contextmanager
    def _translated(self, doing: str) -> Iterator[None]:
        try:
            yield
        except KafkaException as raised:
            raise self._error(raised.args[0], doing) from raised

    def _raise_failed(self) -> None:
        if self._complaints.denied is not None:
            raise self._error(self._complaints.denied, "delivering records")
        if self._producer.failed is not None:
            raise self._error(self._producer.failed, "delivering records")

    def _send_offsets(self, offsets: Sequence[TopicPartition], group: str) -> None:
        deadline = time.monotonic() + INIT_TIMEOUT
        while True:
            try:
                self._producer.send_offsets_to_transaction(list(offsets), group, SLICE)
                return
            except KafkaException as raised:
                error = raised.args[0]
                # Fenced, or to be aborted: no use asking again. A time-out is repeated with the same arguments.
                if error.txn_requires_abort() or not error.retriable() or time.monotonic() > deadline:
                    raise self._error(error, "send_offsets_to_transaction") from raised

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
                        f"{self.id}: commit_transaction: {error.str()}. Whether it committed is not known; run again: the "
                        "next attempt settles it."
                    ) from raised

    def _give_up(self, failed: BaseException) -> None:
        """Abort. A fenced client can have ended a call without saying why; to the abort it says so."""
        answer = self._abort()
        if isinstance(failed, WriteFailed) and answer is not None and answer.code() in FENCED:
            raise self._error(answer, "abort_transaction") from failed

    def _abort(self) -> KafkaError | None:
        """Abort as far as the brokers answer. Where they do not, the next init_transactions does it."""
        try:
            self._producer.abort_transaction(SLICE * 5)
        except KafkaException as raised:
            log.info("%s: abort left to the next init_transactions: %s", self.id, raised.args[0].str())
            return cast("KafkaError", raised.args[0])
        return None


def _one(value: bytes | None) -> pa.Array:
    """An array of one value. `pa.array` would load pandas for it, which takes half a second."""
    if value is None:
        return pa.nulls(1, pa.binary())
    offsets = struct.pack("=ii", 0, len(value))
    return pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(offsets), pa.py_buffer(value)])
