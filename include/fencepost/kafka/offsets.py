"""Reads records up to an end, and a group's committed offsets."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from fencepost.kafka.client_settings import ClientSettings
from fencepost.kafka.clients import ConsumerReports, make_consumer
from fencepost.kafka.errors import COORDINATOR_MOVED, DENIED, RequiredRight, translate
from fencepost.model import OffsetRange

REQUEST_TIMEOUT = 30.0  # seconds for one answer of the cluster
SLICE = 2.0  # seconds between checks of what the error callback received


def read_until(
    consumer: Consumer,
    reports: ConsumerReports,
    settings: ClientSettings,
    ends: Mapping[int, int],
    doing: str,
    timeout: float = REQUEST_TIMEOUT,
    until: float = math.inf,
) -> Iterator[Message]:
    """Yields the messages of `batches_until`, one by one."""
    for messages in batches_until(consumer, reports, settings, ends, doing, timeout, until):
        yield from messages


def batches_until(
    consumer: Consumer,
    reports: ConsumerReports,
    settings: ClientSettings,
    ends: Mapping[int, int],
    doing: str,
    timeout: float = REQUEST_TIMEOUT,
    until: float = math.inf,
) -> Iterator[list[Message]]:
    """Yields the messages below `ends` in the assigned partitions of one topic, as they arrive, until each partition
    has reached its end.

    If the last offsets of a partition are markers or aborted records, Kafka's end-of-partition event ends the
    partition. A partition that the caller unassigns meanwhile counts as read.

    A partition below its end makes progress by a message, or by fetched aborted records and markers, which give no
    message. So a long run of aborted records has no time limit. A broker that is down is noticed even if other brokers
    still send records after the ends.

    `until` is a time of the monotonic clock. A read that still makes progress then ends early without an error.

    Raises:
        KafkaUnavailable: no progress for `timeout` seconds.
    """
    waiting = dict(ends)
    fetched = reports.fetched
    moved_at, has_moved = time.monotonic(), False
    while waiting:
        first = consumer.poll(1.0)
        taken: list[Message] = []
        moved = False
        for message in [] if first is None else [first, *consumer.consume(10_000, timeout=0)]:
            partition, offset, error = message.partition() or 0, message.offset() or 0, message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise translate(error, doing, settings, reports, _reads(consumer))
            if partition not in waiting:
                continue
            moved = True
            if offset < waiting[partition] and error is None:
                taken.append(message)
            if offset + (error is None) >= waiting[partition]:
                del waiting[partition]
        if not moved:
            moved = any(offset > fetched.get(p, offset) for p, offset in reports.fetched.items() if p in waiting)
            fetched = reports.fetched
        if first is None and reports.denied is not None:
            raise translate(KafkaError(KafkaError._TIMED_OUT), doing, settings, reports, _reads(consumer))
        if taken:
            yield taken
        if moved:
            moved_at, has_moved = time.monotonic(), True
        elif time.monotonic() > min(moved_at + timeout, math.inf if has_moved else until):
            raise translate(KafkaError(KafkaError._TIMED_OUT), doing, settings, reports, _reads(consumer))
        if time.monotonic() > until:
            return
        assigned = {tp.partition for tp in consumer.assignment()}
        waiting = {p: end for p, end in waiting.items() if p in assigned}


def messages_of(
    settings: ClientSettings, group: str, ranges: Sequence[OffsetRange], doing: str
) -> Iterator[list[Message]]:
    """Yields the committed messages of these ranges of one topic, as they arrive. The messages keep the order of each
    partition.

    Raises:
        FencepostError: Kafka does not give all offsets of the ranges.
    """
    wanted = {r.partition: r for r in ranges if r.length}
    if not wanted:
        return
    consumer, complaints = make_consumer(settings, group)
    try:
        consumer.assign([TopicPartition(r.topic, p, r.start) for p, r in wanted.items()])
        ends = {p: r.end for p, r in wanted.items()}
        yield from batches_until(consumer, complaints, settings, ends, doing)
    finally:
        consumer.close()


def _reads(consumer: Consumer) -> list[RequiredRight]:
    return [RequiredRight("Read", "topic", tp.topic) for tp in consumer.assignment()]


def committed_offsets(
    settings: ClientSettings, group: str, partitions: Sequence[TopicPartition], doing: str, *, stable: bool = True
) -> dict[tuple[str, int], TopicPartition]:
    """Returns a group's committed offsets with their metadata.

    With `stable`, no open transaction is about to change one of the offsets. On UNSTABLE_OFFSET_COMMIT librdkafka and
    this function repeat the request until it times out. A dead producer's transaction may be open until then. Without
    `stable` the function does not wait. The request names each partition and asks for stable offsets. Otherwise Kafka
    can silently leave out an offset that a transaction just committed.

    Raises:
        AccessDenied: the login is refused, or the user may not read the group or a topic. Only a poll reports the login and the
        group.
    """
    needs = [RequiredRight("Read", "topic", tp.topic) for tp in partitions]
    consumer, complaints = make_consumer(settings, group, committed_only=stable)
    try:
        deadline = time.monotonic() + REQUEST_TIMEOUT
        while True:
            try:
                answered = consumer.committed(list(partitions), timeout=SLICE)
                unstable = [tp.error for tp in answered if tp.error is not None]
                if not unstable:
                    return {(tp.topic, tp.partition): tp for tp in answered if tp.offset >= 0}
                error = unstable[0]
            except KafkaException as raised:
                error = raised.args[0]
            heard = consumer.poll(0)
            if heard is not None and (refusal := heard.error()) is not None and refusal.code() in DENIED:
                error = refusal
            again = error.code() in {KafkaError.UNSTABLE_OFFSET_COMMIT, KafkaError._TIMED_OUT, *COORDINATOR_MOVED}
            again = (again or error.retriable()) and complaints.denied is None
            if not again or time.monotonic() > deadline:
                raise translate(error, doing, settings, complaints, needs)
            time.sleep(0.05)
    finally:
        consumer.close()
