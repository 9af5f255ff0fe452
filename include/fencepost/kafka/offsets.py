"""Reads that have an end: records up to an offset, and the offsets a group has committed."""

from __future__ import annotations

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
from fencepost.kafka.clients import make_consumer
from fencepost.kafka.errors import COORDINATOR_MOVED, Complaints, translate

REQUEST_TIMEOUT = 30.0  # seconds for one answer of the cluster


def read_until(
    consumer: Consumer,
    complaints: Complaints,
    settings: ClientSettings,
    ends: Mapping[int, int],
    doing: str,
    timeout: float = REQUEST_TIMEOUT,
) -> Iterator[Message]:
    """The messages of `batches_until`, one by one."""
    for messages in batches_until(consumer, complaints, settings, ends, doing, timeout):
        yield from messages


def batches_until(
    consumer: Consumer,
    complaints: Complaints,
    settings: ClientSettings,
    ends: Mapping[int, int],
    doing: str,
    timeout: float = REQUEST_TIMEOUT,
) -> Iterator[list[Message]]:
    """Messages of the assigned partitions (of one topic) below `ends`, as they come, until every partition has reached its end.

    A partition whose last offsets are markers or aborted records ends with Kafka's end-of-partition event. A partition
    that is unassigned meanwhile counts as read.

    Raises:
        KafkaUnavailable: nothing came for `timeout` seconds.
    """
    waiting = dict(ends)
    deadline = time.monotonic() + timeout
    while waiting:
        first = consumer.poll(1.0)
        if first is not None:
            deadline = time.monotonic() + timeout
        elif time.monotonic() > deadline or complaints.denied is not None:
            raise translate(KafkaError(KafkaError._TIMED_OUT), doing, settings, complaints)
        taken: list[Message] = []
        for message in [] if first is None else [first, *consumer.consume(10_000, timeout=0)]:
            partition, offset, error = message.partition() or 0, message.offset() or 0, message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise translate(error, doing, settings, complaints)
            if partition not in waiting:
                continue
            if offset < waiting[partition] and error is None:
                taken.append(message)
            if offset + (error is None) >= waiting[partition]:
                del waiting[partition]
        if taken:
            yield taken
        assigned = {tp.partition for tp in consumer.assignment()}
        waiting = {p: end for p, end in waiting.items() if p in assigned}


def committed_offsets(
    settings: ClientSettings, group: str, partitions: Sequence[TopicPartition], doing: str, *, settled: bool = True
) -> dict[tuple[str, int], TopicPartition]:
    """A group's committed offsets with their metadata; where `settled`, none that a transaction is about to change.

    Partitions are named one by one and read_committed asks for stable offsets: without both, an offset just committed
    in a transaction can be left out in silence. UNSTABLE_OFFSET_COMMIT is asked again, by librdkafka and here, until the
    request's time is up: as long as a dead producer's transaction is open. Not `settled`, nothing is waited for.
    """
    consumer, complaints = make_consumer(settings, group, committed_only=settled)
    try:
        deadline = time.monotonic() + REQUEST_TIMEOUT
        while True:
            try:
                answered = consumer.committed(list(partitions), timeout=REQUEST_TIMEOUT)
                unstable = [tp.error for tp in answered if tp.error is not None]
                if not unstable:
                    return {(tp.topic, tp.partition): tp for tp in answered if tp.offset >= 0}
                error = unstable[0]
            except KafkaException as raised:
                error = raised.args[0]
            again = error.code() in {KafkaError.UNSTABLE_OFFSET_COMMIT, *COORDINATOR_MOVED} or error.retriable()
            if not again or time.monotonic() > deadline:
                raise translate(error, doing, settings, complaints)
            time.sleep(0.05)
    finally:
        consumer.close()
