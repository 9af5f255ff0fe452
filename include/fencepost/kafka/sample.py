"""Reads a sample of a topic. Half of the sample are the newest records, and the other half is spread over each
partition.

A sample only reads: it joins no group and commits nothing. A sample has no aborted and no uncommitted records.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, TIMESTAMP_NOT_AVAILABLE, Consumer, Message, TopicPartition

from fencepost.errors import KafkaUnavailable
from fencepost.kafka.client_settings import ClientSettings
from fencepost.kafka.clients import make_consumer
from fencepost.kafka.cluster import Cluster, Topic
from fencepost.kafka.offsets import REQUEST_TIMEOUT, read_until

PLACES = 8  # places in each partition at which the spread half is read
MOST_BYTES = 64_000_000
MOST_SECONDS = 30.0


@dataclass(frozen=True)
class Sampled:
    """A record of a sample. `timestamp` is in milliseconds, or None if the record has no timestamp. `at_load` says that
    the broker set the timestamp. `headers` has the names of the record's headers.
    """

    partition: int
    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    at_load: bool = False
    headers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sample:
    """Records by partition and offset, and the offsets that the topic has. `cut` says why there are fewer records than
    requested, and is empty otherwise.
    """

    topic: Topic
    records: tuple[Sampled, ...]
    earliest: tuple[int, ...]
    ends: tuple[int, ...]
    cut: str = ""

    @property
    def offsets(self) -> int:
        """Returns the number of the topic's offsets. Some offsets may have no record."""
        return sum(end - first for first, end in zip(self.earliest, self.ends, strict=True))

    @property
    def is_whole(self) -> bool:
        """Returns whether the sample has every record of the topic, as far as offsets show."""
        return len(self.records) >= self.offsets


def take_sample(
    cluster: Cluster,
    topic: Topic,
    group: str,
    wanted: int,
    *,
    most_bytes: int = MOST_BYTES,
    seconds: float = MOST_SECONDS,
) -> Sample:
    """Returns a sample of `wanted` records. Half of them are the newest records, and the others come from places all
    over each partition.

    The sample ends early at `most_bytes` of keys and values, or after `seconds`. Each half may use half of the bytes.
    `group` is a group that the user may read.

    Raises:
        KafkaUnavailable, AccessDenied: nothing could be read.
    """
    read = _Reading(cluster, topic, group, time.monotonic() + seconds)
    try:
        newest = read.newest(ceil(wanted / 2), most_bytes // 2)
        read.spread(wanted - len(read.found), newest, most_bytes)
    finally:
        read.close()
    return read.sample()


def take_newest(
    cluster: Cluster,
    topic: Topic,
    group: str,
    wanted: int,
    *,
    ends: Sequence[int] | None = None,
    most_bytes: int = MOST_BYTES,
    seconds: float = MOST_SECONDS,
) -> Sample:
    """Returns a sample of the newest records, about as many from each partition. If `ends` are given, only records
    below these ends are read. The limits and errors are those of `take_sample`.
    """
    read = _Reading(cluster, topic, group, time.monotonic() + seconds, ends)
    try:
        read.newest(wanted, most_bytes)
    finally:
        read.close()
    return read.sample()


def allot(wanted: int, sizes: Sequence[int]) -> list[int]:
    """Divides `wanted` into equal shares. No share is larger than its size, and the remainder goes to the other shares."""
    shares, left = [0] * len(sizes), min(wanted, sum(sizes))
    while left:
        open_ = [p for p, size in enumerate(sizes) if shares[p] < size]
        each = max(1, left // len(open_))
        for p in open_:
            more = min(each, sizes[p] - shares[p], left)
            shares[p] += more
            left -= more
    return shares


class _Full(Exception):
    """The read has used up its time or its bytes."""


@dataclass
class _Reading:
    """A consumer that reads stretches of a topic, and the records that it has read."""

    cluster: Cluster
    topic: Topic
    group: str
    deadline: float
    until: Sequence[int] | None = None
    found: dict[tuple[int, int], Sampled] = field(default_factory=dict)
    held: int = 0  # bytes
    cut: str = ""
    answered: bool = False  # whether Kafka has allowed a read

    def __post_init__(self) -> None:
        self.earliest = self.cluster.earliest(self.topic)
        stable = self.cluster.last_stable(self.topic)
        self.ends = stable if self.until is None else [min(e, s) for e, s in zip(self.until, stable, strict=True)]
        self.earliest = [min(first, end) for first, end in zip(self.earliest, self.ends, strict=True)]
        self.consumer: Consumer | None = None

    def _consumer(self) -> Consumer:
        """Returns the consumer, which is created for the first read. Creating it has an effect: a consumer asks for its
        group, and this makes Kafka create its topic of offsets.
        """
        # A broker sends at least one batch of records. What is fetched too early is thrown away.
        small = {
            **self.cluster.settings.values,
            "fetch.message.max.bytes": "262144",
            "queued.max.messages.kbytes": "4096",
        }
        small.pop("max.partition.fetch.bytes", None)
        self.consumer, self.complaints = make_consumer(ClientSettings(small), self.group)
        return self.consumer

    def close(self) -> None:
        if self.consumer is not None:
            self.consumer.close()

    def sample(self) -> Sample:
        records = tuple(self.found[at] for at in sorted(self.found))
        return Sample(self.topic, records, tuple(self.earliest), tuple(self.ends), self.cut)

    def newest(self, wanted: int, most_bytes: int) -> list[int]:
        """Reads `wanted` records from the ends backwards. Returns the offsets where the reads began.

        The stretches grow. If records are large, the newest records fill the bytes. If few offsets have a record, the
        stretches soon contain enough records.
        """
        begins = list(self.ends)
        quota = allot(wanted, [end - first for first, end in zip(self.earliest, self.ends, strict=True)])
        have, length = [0] * len(quota), 1
        try:
            while stretches := {
                p: (
                    max(self.earliest[p], begins[p] - self._length(length, have[p], n, self.ends[p] - begins[p])),
                    begins[p],
                )
                for p, n in enumerate(quota)
                if have[p] < n and begins[p] > self.earliest[p]
            }:
                for p, begin, records in self._read(stretches, None, most_bytes):
                    kept = records[-(quota[p] - have[p]) :]
                    self._keep(kept)
                    have[p] += len(kept)
                    begins[p] = begin if len(kept) == len(records) else kept[0].offset
                length *= 2
        except _Full:
            pass
        return begins

    @staticmethod
    def _length(length: int, have: int, quota: int, seen: int) -> int:
        return min(length, ceil((quota - have) * seen / have)) if have else length

    def spread(self, wanted: int, ends: Sequence[int], most_bytes: int) -> None:
        """Reads `wanted` further records before `ends`, at `PLACES` places in each partition."""
        sizes = [max(0, end - first) for first, end in zip(self.earliest, ends, strict=True)]
        quota = allot(max(0, wanted), sizes)
        places = min(PLACES, max(quota, default=0))
        left = max(0, most_bytes - self.held)
        try:
            for place in range(places):
                share = {p: n * (place + 1) // places - n * place // places for p, n in enumerate(quota)}
                stretches = {
                    p: (
                        self.earliest[p] + sizes[p] * place // places,
                        self.earliest[p] + sizes[p] * (place + 1) // places,
                    )
                    for p, n in share.items()
                    if n
                }
                if stretches:
                    each = max(1, left // places // len(stretches))
                    for _, _, records in self._read(stretches, share, most_bytes, each):
                        self._keep(records)
        except _Full:
            pass

    def _keep(self, records: Sequence[Sampled]) -> None:
        self.found |= {(one.partition, one.offset): one for one in records}

    def _read(
        self,
        stretches: Mapping[int, tuple[int, int]],
        share: Mapping[int, int] | None,
        most_bytes: int,
        each: int = MOST_BYTES,
    ) -> list[tuple[int, int, list[Sampled]]]:
        """Returns the records of these stretches as (partition, begin, records). It reads at most the partition's share
        of records, if there is one, and `each` bytes from each stretch.

        Raises:
            _Full: the limit was reached. The records read before are kept.
        """
        name, taken = self.topic.name, dict[int, list[Sampled]]({p: [] for p in stretches})
        open_, sizes, full = set(stretches), dict.fromkeys(stretches, 0), ""
        consumer = self.consumer or self._consumer()
        consumer.assign([TopicPartition(name, p, begin) for p, (begin, _) in stretches.items()])
        now = time.monotonic()
        until = max(now + 1.0, self.deadline)
        ends = {p: end for p, (_, end) in stretches.items()}
        try:
            for message in read_until(
                consumer,
                self.complaints,
                self.cluster.settings,
                ends,
                f"reading a sample of topic {name}",
                min(REQUEST_TIMEOUT, until - now),
                until,
            ):
                p = message.partition() or 0
                if p not in open_ or (message.offset() or 0) < stretches[p][0]:
                    continue
                one = sampled(message)
                size = len(one.key or b"") + len(one.value or b"")
                taken[p].append(one)
                sizes[p] += size
                self.held += size
                if self.held >= most_bytes:
                    full = "the records are large"
                elif time.monotonic() > self.deadline:
                    full = "its time was up"
                if full:
                    break
                if share is not None and (len(taken[p]) >= share[p] or sizes[p] >= each):
                    open_.discard(p)
                    consumer.incremental_unassign([TopicPartition(name, p)])
                    if not open_:
                        break
            if not full and time.monotonic() > self.deadline:
                full = "its time was up"
        except KafkaUnavailable:
            if not self.answered and not any(taken.values()):
                raise
            full = "its time was up"
        self.answered = True
        if full:
            self.cut = full
            for records in taken.values():
                self._keep(records)
            raise _Full
        return [(p, stretches[p][0], records) for p, records in taken.items()]


def sampled(message: Message) -> Sampled:
    """Returns a consumer's message as a record of a sample."""
    kind, at = message.timestamp()
    key, value = message.key(), message.value()
    return Sampled(
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        timestamp=None if kind == TIMESTAMP_NOT_AVAILABLE or at < 0 else at,
        key=None if key is None else bytes(key),
        value=None if value is None else bytes(value),
        at_load=kind == TIMESTAMP_LOG_APPEND_TIME,
        headers=tuple(header[0] for header in message.headers() or ()),
    )
