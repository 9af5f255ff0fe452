"""One pipeline under attack, and a checker that shares no code with the writer: an oracle of its own, plain consumers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any, Self

from confluent_kafka import Consumer, TopicPartition

from conftest import at, day
from fencepost.config.pipeline import Pipeline
from fencepost.ledger.ledger import Ledger
from fencepost.model import Interval, State
from kafka_tools import QUIET_LOG, Record, create_topic, end_offset, group_offsets, produce, read_all
from oracle.murmur2 import murmur2
from waiting import await_true

PARTITIONS = 2
PER_PARTITION = 60
KEYS = 7  # a partition; few, so that a key's order can be lost

Sent = tuple[bytes, object, int, int]  # key, value, partition, and timestamp in milliseconds


class Follower(Thread):
    """A read_committed reader of a topic that reads along while things break, from the start to `stop`."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(name=f"follower of {topic}", daemon=True)
        self.seen: list[tuple[int, int, bytes | None, bytes | None]] = []
        self._positions = dict.fromkeys(range(partitions), 0)
        self._topic, self._ending = topic, Event()
        config = {"bootstrap.servers": bootstrap, "group.id": "follower", "enable.auto.commit": False}
        self._consumer = Consumer(config | {"isolation.level": "read_committed"}, logger=QUIET_LOG)
        self._consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])

    def run(self) -> None:
        while not self._ending.is_set():
            for message in self._consumer.consume(1000, timeout=0.1):
                if message.error() is None:
                    self.seen.append((message.partition(), message.offset(), message.key(), message.value()))

    def stop(self) -> None:
        self._ending.set()
        self.join()
        self._consumer.close()


@dataclass
class Attacked:
    """A pipeline with its source filled for day 1 (or more days), and what its output has to be."""

    bootstrap: str
    pipeline: Pipeline
    struck: Path  # where failpoints leave the pid of the process they struck
    days: tuple[int, ...] = (1,)
    bad: int = 0  # in each partition so many records that fail a rule, and as many malformed ones
    follower: Follower = field(init=False)
    aside: Follower = field(init=False)  # of the quarantine topic, where there are bad records

    @property
    def interval(self) -> Interval:
        return day(self.days[0])

    def __enter__(self) -> Self:
        self.struck.mkdir(parents=True, exist_ok=True)
        for topic, records in self.sent().items():
            create_topic(self.bootstrap, topic, len({partition for _, _, partition, _ in records}))
            produce(self.bootstrap, topic, records)
        create_topic(self.bootstrap, self.pipeline.output.topic, self.pipeline.output.partitions)
        self.follower = Follower(self.bootstrap, self.pipeline.output.topic, self.pipeline.output.partitions)
        self.follower.start()
        if self.bad:
            topic = self.pipeline.quarantine_topic
            create_topic(self.bootstrap, topic, self.pipeline.output.partitions)
            self.aside = Follower(self.bootstrap, topic, self.pipeline.output.partitions)
            self.aside.start()
        return self

    def __exit__(self, *_: object) -> None:
        for follower in (self.follower, *([self.aside] if self.bad else [])):
            if follower.is_alive():
                follower.stop()

    def source(self) -> list[tuple[bytes, dict[str, object], int, int]]:
        """The source's records; `n` grows along each key."""
        return [
            (f"p{p}k{n % KEYS}".encode(), {"n": 1000 * d + n, "name": "x"}, p, at(d, n * 20 / PER_PARTITION))
            for d in self.days
            for p in range(PARTITIONS)
            for n in range(PER_PARTITION)
        ]

    def bad_source(self) -> list[tuple[bytes, bytes, int, int]]:
        """The source's bad records: those that fail a rule, and those that are malformed."""
        return [
            (f"p{p}bad{n}".encode(), text % (d, p, n), p, at(d, 1))
            for d in self.days
            for p in range(PARTITIONS)
            for n in range(self.bad)
            for text in (b'{"n": -1, "name": "%d %d %d"}', b'{"n": "%d %d %d"}')
        ]

    def encoded(self, value: dict[str, object], partition: int) -> object:
        """A good record's value as it lies in that partition of the source; here JSON."""
        return value

    def decoded(self, record: Record) -> dict[str, int]:
        """An output record's value."""
        return record.json

    def sent(self) -> dict[str, list[Sent]]:
        """The records of each source topic, in the order in which they were produced."""
        good: list[Sent] = [(k, self.encoded(v, p), p, t) for k, v, p, t in self.source()]
        return {self.pipeline.source.topic: self.mixed(good, self.bad_source())}

    def mixed(self, good: Sequence[Sent], bad_ones: Sequence[Sent]) -> list[Sent]:
        """Good and bad records as they lie in a topic: the bad ones between the good ones of their day."""
        each = len(good) // len(self.days)
        mixed: list[Sent] = []
        for number, day_ in enumerate(self.days):
            own = good[number * each : (number + 1) * each]
            bad = [record for record in bad_ones if record[3] == at(day_, 1)]
            step = max(1, len(own) // (len(bad) + 1))
            for position, record in enumerate(own):
                if position % step == step - 1 and bad:
                    mixed.append(bad.pop())
                mixed.append(record)
            mixed += bad
        return mixed

    def await_struck(self, failpoint: str, going: Callable[[], bool] = lambda: True) -> int:
        """Wait for a failpoint to strike; the pid of the process it struck. `going`: whether it still may."""
        file = self.struck / failpoint

        def struck_or_never() -> bool:
            return (file.exists() and file.read_text() != "") or not going()

        await_true(struck_or_never, f"{failpoint} to strike")
        assert file.exists(), f"{failpoint} did not strike"
        return int(file.read_text())

    def has_struck(self, failpoint: str) -> bool:
        return (self.struck / failpoint).exists()

    def differences_of_followers(self) -> list[str]:
        """What they who read along saw beside, or missed of, what is there in the end; nothing is the good answer."""
        found = []
        aside = [(self.aside, self.pipeline.quarantine_topic)] if self.bad else []
        for follower, topic in ((self.follower, self.pipeline.output.topic), *aside):
            final = [(r.partition, r.offset, r.key, r.value) for r in read_all(self.bootstrap, topic)]
            found += differences_of_a_follower(follower, final)
        return found

    def differences(self) -> list[str]:
        """Everything that is not as exactly-once promises, once all days are published; nothing is the good answer."""
        output = self.pipeline.output
        seen = read_all(self.bootstrap, output.topic)
        return [
            *self._differences_of_records([(r.partition, r.key, self.decoded(r)) for r in seen]),
            *differences_of_a_follower(self.follower, [(r.partition, r.offset, r.key, r.value) for r in seen]),
            *self._differences_of_quarantine(),
            *self.differences_of_frontier(len(self.days)),
            *self._differences_of_validated(),
            *self._differences_of_the_ledger(),
            *self._differences_of_the_announcements(),
            *self.open_transactions(),
        ]

    def _differences_of_records(self, seen: list[tuple[int, bytes | None, dict[str, int]]]) -> list[str]:
        wanted = Counter((key, value["n"]) for key, value, _, _ in self.source())
        there = Counter((key, value["n"]) for _, key, value in seen)
        found = [f"lost {one}" for one in (wanted - there).elements()]
        found += [f"too many of {one}" for one in (there - wanted).elements()]
        for partition, key, value in seen:
            if partition != (murmur2(key or b"") & 0x7FFFFFFF) % self.pipeline.output.partitions:
                found.append(f"{key!r} in partition {partition}")
            if value["doubled"] != 2 * value["n"]:
                found.append(f"not what the transform says: {value}")
        for key in {k for _, k, _ in seen}:
            order = [value["n"] for _, k, value in seen if k == key]
            found += [f"order of {key!r}: {order}"] if order != sorted(order) else []
        return found

    def _differences_of_quarantine(self) -> list[str]:
        """Each bad record lies in quarantine once, as it was, under its batch; and no other record does."""
        if not self.bad:
            return []
        seen = read_all(self.bootstrap, self.pipeline.quarantine_topic)
        wanted = Counter((key, value, time) for key, value, _, time in self.bad_source())
        there = Counter((r.key, r.value, r.timestamp) for r in seen)
        found = [f"lost from quarantine {one}" for one in (wanted - there).elements()]
        found += [f"too many in quarantine of {one}" for one in (there - wanted).elements()]
        batches = {r.headers[-1] for r in seen}
        found += [f"batches in quarantine: {batches}"] if len(batches) != len(self.days) else []
        final = [(r.partition, r.offset, r.key, r.value) for r in seen]
        return found + differences_of_a_follower(self.aside, final)

    def differences_of_frontier(self, days: int) -> list[str]:
        """The same of the group's offsets in each source topic, once so many days are published."""
        found = []
        for topic, records in self.sent().items():
            there = Counter(partition for _, _, partition, _ in records)
            wanted = {partition: number * days // len(self.days) for partition, number in there.items()}
            frontier = group_offsets(self.bootstrap, self.pipeline.group, topic, sorted(wanted))
            found += [f"group offsets {frontier} in {topic}"] if frontier != wanted else []
        return found

    def _differences_of_validated(self) -> list[str]:
        pipeline, found = self.pipeline, []
        parts = range(pipeline.output.partitions)
        validated = group_offsets(self.bootstrap, f"{pipeline.name}.validated", pipeline.output.topic, parts)
        ends = {p: end_offset(self.bootstrap, pipeline.output.topic, p) for p in parts}
        too_far = {p: o for p, o in validated.items() if o > ends[p]}
        records = [
            r for r in read_all(self.bootstrap, pipeline.output.topic) if r.offset >= validated.get(r.partition, 0)
        ]
        if too_far or records:
            found.append(f"validated offsets {validated} with ends {ends} leave out {len(records)} records")
        return found

    def _ledger(self) -> dict[bytes | None, Any]:
        """The newest record of each batch."""
        raw = read_all(self.bootstrap, f"fencepost.{self.pipeline.name}.ledger")
        return {r.key: json.loads(r.value or b"") for r in raw if b"/" in (r.key or b"")}

    def _differences_of_the_announcements(self) -> list[str]:
        """Each publication and each skip in the ledger is announced once, and nothing else is; readers see what is announced."""
        topic = f"fencepost.{self.pipeline.name}.published"
        seen = [r.json for r in read_all(self.bootstrap, topic)]
        told = Counter((one["batch"].partition("/")[2].encode(), one["state"]) for one in seen)
        wanted = Counter(
            (key or b"", state)
            for key, batch in self._ledger().items()
            for state in {event["state"] for event in batch["history"]} & {"published", "skipped"}
        )
        found = [
            f"announced {one} {times} times, and recorded {wanted[one]}"
            for one, times in told.items()
            if times != wanted[one]
        ]
        found += [f"not announced: {one}" for one in wanted - told]
        for one in seen if self.pipeline.output.publish == "staged" else ():
            there = [
                r
                for r in read_all(self.bootstrap, one["output"])
                if r.batch == one["batch"] and one["ranges"].get(str(r.partition), [0, 0])[0] <= r.offset
                if r.offset < one["ranges"].get(str(r.partition), [0, 0])[1]
            ]
            found += [f"{one['batch']}: announced {one['rows']} rows, and {len(there)} are there"] * (
                len(there) != one["rows"]
            )
        return found

    def _differences_of_the_ledger(self) -> list[str]:
        newest = self._ledger()
        states = Counter(b["state"] for b in newest.values())
        found = [] if states == {State.PUBLISHED.value: len(self.days)} else [f"states in the ledger: {dict(states)}"]
        rows = Counter[str]()
        for batch in newest.values():
            rows.update({topic: tally["rows"] for topic, tally in batch["written"]["topics"].items()})
        staged = self.pipeline.output.publish == "staged"
        wanted = {
            self.pipeline.staging_topic if staged else self.pipeline.output.topic: len(self.source()),
            self.pipeline.quarantine_topic: len(self.bad_source()),
        }
        if rows != Counter(wanted):
            found.append(f"the ledger promises {dict(rows)} rows")
        assert Ledger(self.pipeline).read().all(), "the product reads its own ledger"
        return found

    def open_transactions(self) -> list[str]:
        """No transaction is left hanging on any topic we wrote to."""
        topics = {
            self.pipeline.output.topic: self.pipeline.output.partitions,
            f"fencepost.{self.pipeline.name}.ledger": 1,
            f"fencepost.{self.pipeline.name}.published": 1,
            **({self.pipeline.quarantine_topic: self.pipeline.output.partitions} if self.bad else {}),
        }
        if self.pipeline.output.publish == "staged":
            topics[self.pipeline.staging_topic] = self.pipeline.output.partitions
        found = []
        for topic, partitions in topics.items():
            for p in range(partitions):
                end, stable = (end_offset(self.bootstrap, topic, p, committed=c) for c in (False, True))
                found += [f"{topic}-{p}: stable up to {stable} of {end}"] if stable < end else []
        return found


def differences_of_a_follower(
    follower: Follower, final: list[tuple[int, int, bytes | None, bytes | None]]
) -> list[str]:
    """Who read along saw exactly what is there in the end: nothing that vanished, nothing twice."""
    await_true(lambda: len(follower.seen) >= len(final), f"{follower.name} to catch up", 30)
    follower.stop()
    followed, final_ones = Counter(follower.seen), Counter(final)
    return [f"{follower.name} saw {one}" for one in (followed - final_ones)] + [
        f"{follower.name} missed {one}" for one in (final_ones - followed)
    ]
