"""A pipeline on the three-node cluster, its source's truth, and the checker that reads what came of it."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from confluent_kafka import Producer

import arming
from conftest import at
from fencepost.config.pipeline import Pipeline
from kafka_cluster import KafkaCluster
from kafka_tools import QUIET_LOG, Record, end_offset, group_offsets, read_all
from oracle.murmur2 import murmur2
from waiting import await_true

KEYS = 9


@dataclass
class Scene:
    """What a seed plays on. `told` is the story so far, for the message of a failure."""

    cluster: KafkaCluster
    pipeline: Pipeline
    spark: Any
    strikes: Path
    source_partitions: int = 2
    output_partitions: list[int] = field(default_factory=lambda: [3])  # the counts it had, in order
    produced: Counter[tuple[bytes, int]] = field(default_factory=Counter)
    told: list[str] = field(default_factory=list)
    killing: Lock = field(default_factory=Lock)  # one fault at a time kills and starts nodes

    def tell(self, line: str) -> None:
        self.told.append(line)

    def armed(self, failpoint: str) -> AbstractContextManager[None]:
        return arming.armed(self.spark, failpoint, self.strikes)

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
            n = self.produced.total()
            key = f"k{self.source_partitions}.{chance.randrange(KEYS)}".encode()
            clock = min(max(number + chance.choice([0] * 18 + [-1, 1]), 1), days)
            when = at(clock, chance.uniform(0.1, 23.8))
            value = json.dumps({"n": n, "name": "x"}).encode()
            partition = murmur2(key) % self.source_partitions
            producer.produce(topic, value, key, partition=partition, timestamp=when)
            self.produced[(key, n)] += 1
        assert producer.flush(60) == 0
        assert failed == [], "the source is not what this scene takes for it"

    def differences(self) -> list[str]:
        """Everything that is not as exactly-once promises, once every day is published."""
        newest = self._ledger()
        published = {name for name, batch in newest.items() if batch["state"] == "published"}
        output = self.pipeline.output.topic
        seen = [r for r in read_all(self.cluster.direct, output) if r.batch in published]
        states = Counter(batch["state"] for batch in newest.values())
        return [
            *[
                f"{count} batches are {state}"
                for state, count in states.items()
                if state not in {"published", "superseded"}
            ],
            *self._records(seen),
            *self._offsets(),
            *self._hanging(),
        ]

    def _ledger(self) -> dict[str, dict[str, Any]]:
        newest = {}
        for record in read_all(self.cluster.direct, self.pipeline.ledger_topic):
            newest[f"{self.pipeline.name}/{(record.key or b'').decode()}"] = json.loads(record.value or b"")
        return newest

    def _records(self, seen: list[Record]) -> list[str]:
        there = Counter((r.key, r.json["n"]) for r in seen)
        found = [f"lost {one}" for one in (self.produced - there).elements()]
        found += [f"too many of {one}" for one in (there - self.produced).elements()]
        orders: dict[tuple[bytes | None, int], list[int]] = defaultdict(list)
        for record in seen:
            orders[(record.key, record.partition)].append(record.json["n"])
            allowed = {(murmur2(record.key or b"") & 0x7FFFFFFF) % count for count in self.output_partitions}
            found += [f"{record.key!r} in partition {record.partition}"] if record.partition not in allowed else []
        return found + [f"order of {place}: {order}" for place, order in orders.items() if order != sorted(order)]

    def _offsets(self) -> list[str]:
        pipeline = self.pipeline
        partitions = range(self.source_partitions)
        ends = {p: end_offset(self.cluster.direct, pipeline.source.topic, p) for p in partitions}
        have = group_offsets(self.cluster.direct, pipeline.group, pipeline.source.topic, partitions)
        return [] if have == ends else [f"group offsets {have}, the source ends at {ends}"]

    def _hanging(self) -> list[str]:
        topics = {self.pipeline.output.topic: self.output_partitions[-1], self.pipeline.ledger_topic: 1}
        found = []
        for topic, partitions in topics.items():
            for p in range(partitions):
                end, stable = (end_offset(self.cluster.direct, topic, p, committed=c) for c in (False, True))
                found += [f"{topic}-{p}: stable up to {stable} of {end}"] if stable < end else []
        return found
