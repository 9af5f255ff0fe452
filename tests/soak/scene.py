"""A pipeline on the three-node cluster, its source's truth, and the checker that reads what came of it."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

import arming
from conftest import at
from fencepost.config.pipeline import Pipeline
from kafka_tools import QUIET_LOG, Record, end_offset, group_offsets, read_all
from oracle.murmur2 import murmur2
from rigs.kafka_cluster import KafkaCluster
from rigs.spark_cluster import SparkCluster
from waiting import await_true

KEYS = 9
BAD = 0.05  # of the records, where the pipeline quarantines: half of them malformed, half failing a rule
FOREIGN = b"foreign"  # the key of what somebody else writes


@dataclass
class Scene:
    """What a seed plays on. `told` is the story so far, for the message of a failure."""

    cluster: KafkaCluster
    pipeline: Pipeline
    make_mended: Callable[[], Pipeline]  # the same, with a suite that lets the records pass that failed its rule
    spark: Any
    strikes: Path
    workers: SparkCluster | None = None  # None: Spark runs in the driver alone
    source_partitions: int = 2
    output_partitions: list[int] = field(default_factory=lambda: [3])  # the counts it had, in order
    produced: Counter[tuple[bytes, int]] = field(default_factory=Counter)  # records for the output
    bad: Counter[tuple[bytes, bytes]] = field(default_factory=Counter)  # records for quarantine
    replayed: Counter[tuple[bytes, int]] = field(
        default_factory=Counter
    )  # of them, those that pass since the suite was fixed
    told: list[str] = field(default_factory=list)
    killing: Lock = field(default_factory=Lock)  # one fault at a time kills and starts nodes

    def tell(self, line: str) -> None:
        self.told.append(line)

    def armed(self, failpoint: str) -> AbstractContextManager[None]:
        return arming.armed(self.spark, failpoint, self.strikes)

    @property
    def staged(self) -> bool:
        return self.pipeline.output.publish == "staged"

    @property
    def quarantines(self) -> bool:
        return self.pipeline.source.on_malformed == "quarantine"

    def fix(self) -> None:
        """From now on records that failed the rule pass, and malformed ones stay malformed."""
        self.pipeline = self.make_mended()
        for (key, value), count in list(self.bad.items()):
            if value.endswith(b"}"):
                self.replayed[(key, json.loads(value)["n"])] += count
                del self.bad[(key, value)]

    def fill(self, number: int, days: int, chance: random.Random) -> None:
        """Records of a day; some clocks run behind or ahead by a day. `n` grows along each key, which keeps its
        partition."""
        failed: list[object] = []

        def delivered(error: object, _: object) -> None:
            if error is not None:
                failed.append(error)

        config = {"bootstrap.servers": self.cluster.direct, "enable.idempotence": True, "on_delivery": delivered}
        producer = Producer(config, logger=QUIET_LOG)
        topic = self.pipeline.source.topic
        # A broker that was down or cut off may not have heard of the newest partition yet.
        await_true(
            lambda: len(producer.list_topics(topic, 20).topics[topic].partitions) == self.source_partitions, topic
        )
        for _ in range(chance.randint(20, 120)):
            n = self.produced.total() + self.bad.total()
            key = f"k{self.source_partitions}.{chance.randrange(KEYS)}".encode()
            clock = min(max(number + chance.choice([0] * 18 + [-1, 1]), 1), days)
            when = at(clock, chance.uniform(0.1, 23.8))
            value, is_bad = json.dumps({"n": n, "name": "x"}).encode(), self.quarantines and chance.random() < BAD
            if is_bad:
                value = b'{"n": %d, "name": "x"}' % (-n - 1) if chance.random() < 0.5 else b'{"n": %d, "na' % n
            partition = murmur2(key) % self.source_partitions
            producer.produce(topic, value, key, partition=partition, timestamp=when)
            if is_bad:
                self.bad[(key, value)] += 1
            else:
                self.produced[(key, n)] += 1
        assert producer.flush(60) == 0
        assert failed == [], "the source is not what this scene takes for it"

    def differences(self) -> list[str]:
        """Everything that is not as exactly-once promises, once every day is published."""
        newest = self._ledger()
        published = {name for name, batch in newest.items() if batch["state"] == "published"}
        # Who reads a staged pipeline's output need not know which batches are published.
        own = [r for r in read_all(self.cluster.direct, self.pipeline.output.topic) if r.key != FOREIGN]
        seen = own if self.staged else [r for r in own if r.batch in published]
        states = Counter(batch["state"] for batch in newest.values())
        return [
            *[
                f"{count} batches are {state}"
                for state, count in states.items()
                if state not in {"published", "superseded"}
            ],
            *self._records(seen),
            *self._quarantine(newest),
            *self._announcements(newest),
            *self._offsets(),
            *self._hanging(),
        ]

    def _ledger(self) -> dict[str, dict[str, Any]]:
        newest = {}
        for record in read_all(self.cluster.direct, self.pipeline.ledger_topic):
            if b"/" not in (record.key or b""):
                continue  # which topic has the announcements
            newest[f"{self.pipeline.name}/{(record.key or b'').decode()}"] = json.loads(record.value or b"")
        return newest

    def _records(self, seen: list[Record]) -> list[str]:
        there = Counter((r.key, r.json["n"]) for r in seen)
        wanted = self.produced + self.replayed
        found = [f"lost {one}" for one in (wanted - there).elements()]
        found += [f"too many of {one}" for one in (there - wanted).elements()]
        orders: dict[tuple[bytes | None, int], list[int]] = defaultdict(list)
        for record in seen:
            if (record.key, record.json["n"]) not in self.replayed:  # an addition comes when it comes
                orders[(record.key, record.partition)].append(record.json["n"])
            allowed = {(murmur2(record.key or b"") & 0x7FFFFFFF) % count for count in self.output_partitions}
            found += [f"{record.key!r} in partition {record.partition}"] if record.partition not in allowed else []
        return found + [f"order of {place}: {order}" for place, order in orders.items() if order != sorted(order)]

    def _quarantine(self, ledger: dict[str, dict[str, Any]]) -> list[str]:
        """What is left in quarantine is what the newest published revision of each interval sent there."""
        if not self.quarantines:
            return []
        links: dict[str, tuple[int, str]] = {}
        for name, batch in ledger.items():
            if batch["state"] == "published":
                interval = json.dumps(batch["interval"])
                links[interval] = max(links.get(interval, (0, "")), (batch["revision"], name))
        left = {name for _, name in links.values()}
        seen = read_all(self.cluster.direct, self.pipeline.quarantine_topic)
        there = Counter((r.key, r.value) for r in seen if r.batch in left)
        found = [f"lost from quarantine {one}" for one in (self.bad - there).elements()]
        return found + [f"too many in quarantine of {one}" for one in (there - self.bad).elements()]

    def _announcements(self, ledger: dict[str, dict[str, Any]]) -> list[str]:
        """Each publication and each skip that the ledger recorded is announced once, and nothing else is."""
        seen = [r.json for r in read_all(self.cluster.direct, self.pipeline.announcements_topic)]
        told = Counter((one["batch"], one["state"]) for one in seen)
        wanted = Counter(
            (name, state)
            for name, batch in ledger.items()
            for state in {event["state"] for event in batch["history"]} & {"published", "skipped"}
        )
        found = [f"not announced: {one}" for one in (wanted - told).elements()]
        return found + [f"announced too often: {one}" for one in (told - wanted).elements()]

    def _offsets(self) -> list[str]:
        pipeline = self.pipeline
        partitions = range(self.source_partitions)
        ends = {p: end_offset(self.cluster.direct, pipeline.source.topic, p) for p in partitions}
        have = group_offsets(self.cluster.direct, pipeline.group, pipeline.source.topic, partitions)
        # A partition that came after the last plan has neither records nor an offset.
        have |= {p: 0 for p in partitions if p not in have and ends[p] == 0}
        return [] if have == ends else [f"group offsets {have}, the source ends at {ends}"]

    def _hanging(self) -> list[str]:
        topics = [self.pipeline.output.topic, self.pipeline.ledger_topic, self.pipeline.announcements_topic]
        topics += [self.pipeline.staging_topic] if self.staged else []
        topics += [self.pipeline.quarantine_topic] if self.quarantines else []
        known = AdminClient({"bootstrap.servers": self.cluster.direct}, logger=QUIET_LOG).list_topics(timeout=20).topics
        found = []
        for topic in topics:
            for p in known[topic].partitions:
                end, stable = (end_offset(self.cluster.direct, topic, p, committed=c) for c in (False, True))
                found += [f"{topic}-{p}: stable up to {stable} of {end}"] if stable < end else []
        return found
