"""A topic as any other consumer sees it, read_committed; and what is wrong with it, difference by difference."""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from oracle.flights_truth import ExpectedRecord


class NotReadable(AssertionError):
    """The range could not be read to its end in time, so nothing can be said about it."""


@dataclass(frozen=True)
class ActualRecord:
    """A record as it was read. `timestamp` is in milliseconds since 1970 UTC."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int = 0
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def place(self) -> str:
        """Its Kafka coordinates."""
        return f"{self.partition}@{self.offset}"


@dataclass(frozen=True)
class Difference:
    """One thing that is wrong: `kind` is lost, duplicate, foreign, value, partition or order."""

    kind: str
    detail: str

    def __repr__(self) -> str:
        return f"{self.kind}: {self.detail}"


def read_topic(
    at: str | Mapping[str, str], topic: str, ranges: Mapping[int, tuple[int, int]] | None = None, timeout: float = 30.0
) -> list[ActualRecord]:
    """Committed records by partition and offset: of `ranges` (partition to first and end offset), or of all there is.

    `at` is the brokers' address, or librdkafka's settings of a reader.

    Raises:
        NotReadable: after `timeout` seconds the last stable offset (an open transaction) or the reader is still
            before the end.
    """
    deadline = time.monotonic() + timeout
    settings = {"bootstrap.servers": at} if isinstance(at, str) else dict(at)
    admin = AdminClient(settings)
    if ranges is None:
        partitions = admin.list_topics(topic, timeout=timeout).topics[topic].partitions
        first = _offsets(admin, topic, partitions, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)
        high = _offsets(admin, topic, partitions, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)
        ranges = {p: (first[p], high[p]) for p in partitions}
    wanted = {p: (start, end) for p, (start, end) in ranges.items() if start < end}
    _await_stable(admin, topic, {p: end for p, (_, end) in wanted.items()}, deadline)
    consumer = Consumer(
        {
            **settings,
            "group.id": "oracle",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
        }
    )
    try:
        consumer.assign([TopicPartition(topic, p, start) for p, (start, _) in wanted.items()])
        records = _read(consumer, {p: end for p, (_, end) in wanted.items()}, deadline)
    finally:
        consumer.close()
    return sorted(records, key=lambda r: (r.partition, r.offset))


def _read(consumer: Consumer, ends: dict[int, int], deadline: float) -> list[ActualRecord]:
    """Messages below `ends`. Markers give no message, so a partition may also end by Kafka's end-of-partition event."""
    records = []
    while ends:
        if time.monotonic() > deadline:
            raise NotReadable(f"time is up and these partitions are not read to their ends: {ends}")
        message = consumer.poll(0.2)
        if message is None:
            continue
        partition, offset, error = message.partition(), message.offset(), message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
        if partition not in ends:
            continue
        if error is None and offset < ends[partition]:
            key, value, headers = message.key(), message.value(), message.headers() or []
            records.append(ActualRecord(partition, offset, key, value, message.timestamp()[1], tuple(headers)))
        if error is not None or offset + 1 >= ends[partition]:
            del ends[partition]
    return records


def _await_stable(admin: AdminClient, topic: str, ends: Mapping[int, int], deadline: float) -> None:
    while True:
        stable = _offsets(admin, topic, ends, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)
        behind = [f"partition {p}: stable up to {stable[p]}, end {end}" for p, end in ends.items() if stable[p] < end]
        if not behind:
            return
        if time.monotonic() > deadline:
            raise NotReadable(f"topic {topic}: an open transaction hides records: {'; '.join(behind)}")
        time.sleep(0.1)


def _offsets(
    admin: AdminClient, topic: str, partitions: Any, spec: OffsetSpec, isolation: IsolationLevel
) -> dict[int, int]:
    asked = {TopicPartition(topic, p): spec for p in partitions}
    answers = admin.list_offsets(asked, isolation_level=isolation, request_timeout=10) if asked else {}
    return {tp.partition: future.result().offset for tp, future in answers.items()}


def compare(expected: Sequence[ExpectedRecord], actual: Sequence[ActualRecord]) -> list[Difference]:
    """All that distinguishes the actual records from the expected ones; an empty list means equality.

    Under each key, records are matched by their whole value. What is left over is a duplicate when the same record
    was matched already, else it is paired with a lost record of its key as a wrong value, else it is foreign. Every
    record's partition is checked, and under each key the order of what matched.
    """
    wanted: dict[bytes | None, list[ExpectedRecord]] = defaultdict(list)
    for record in expected:
        wanted[record.key].append(record)
    found: dict[bytes | None, list[ActualRecord]] = defaultdict(list)
    for one in sorted(actual, key=lambda r: (r.partition, r.offset)):
        found[one.key].append(one)
    differences = []
    for key in [*wanted, *(k for k in found if k not in wanted)]:
        differences += _compare_key(key, wanted.get(key, []), found.get(key, []))
    return differences


def _compare_key(
    key: bytes | None, wanted: Sequence[ExpectedRecord], found: Sequence[ActualRecord]
) -> list[Difference]:
    name = f"key {key.decode(errors='replace')}" if key is not None else "no key"
    texts = [_canonical(record.value) for record in wanted]
    differences, matched, left = [], [], []
    open_, known = Counter(texts), set(texts)
    for one in found:
        text = _canonical(_parsed(one.value))
        if open_[text] > 0:
            open_[text] -= 1
            matched.append(text)
        elif text in known:
            differences.append(Difference("duplicate", f"{name}: {one.place} is there already: {text}"))
        else:
            left.append(one)
        if wanted and one.partition != wanted[0].partition:
            where = f"{one.place} belongs in partition {wanted[0].partition}"
            differences.append(Difference("partition", f"{name}: {where}: {text}"))
    lost = [json.loads(text) for text in open_.elements()]
    for one in left:
        value = _parsed(one.value)
        if lost:
            nearest = min(lost, key=lambda expected: len(_fields(expected, value)))
            lost.remove(nearest)
            fields = ", ".join(_fields(nearest, value))
            differences.append(Difference("value", f"{name}: {one.place}: {fields}: {_canonical(value)}"))
        else:
            differences.append(Difference("foreign", f"{name}: {one.place} is not expected: {_canonical(value)}"))
    differences += [Difference("lost", f"{name}: {_canonical(value)}") for value in lost]
    there = Counter(matched)
    in_order = [text for text in texts if there[text] > 0]
    for place, (want, have) in enumerate(zip(in_order, matched, strict=False)):
        if want != have:
            differences.append(Difference("order", f"{name}: number {place + 1} should be {want}, is {have}"))
            break
    return differences


def _fields(expected: Any, actual: Any) -> list[str]:
    """`field is x, not y` for each field that differs."""
    if not isinstance(expected, dict) or not isinstance(actual, dict):
        return [f"is {actual!r}, not {expected!r}"]
    nothing = "missing"
    return [
        f"{name} is {actual.get(name, nothing)!r}, not {expected.get(name, nothing)!r}"
        for name in sorted({*expected, *actual})
        if _canonical(expected.get(name, nothing)) != _canonical(actual.get(name, nothing))
    ]


def _canonical(value: Any) -> str:
    """One text for equal JSON. 1, 1.0 and true are three values here, where Python takes them for one."""
    return json.dumps(value, sort_keys=True, default=repr)


def _parsed(value: bytes | None) -> Any:
    """The JSON value; bytes that are none, as they are."""
    try:
        return json.loads(value) if value is not None else None
    except ValueError:
        return value
