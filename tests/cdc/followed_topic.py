"""A topic that is read as it grows."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, TopicPartition

from kafka_tools import QUIET_LOG, Record

LIMIT = 240.0  # seconds for what has to come


class FollowedTopic:
    """A topic of one partition, which may not exist yet: its records so far, and those to come."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self.records: list[Record] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "tests",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 500,
                "allow.auto.create.topics": False,
                "auto.offset.reset": "earliest",
            },
            logger=QUIET_LOG,
        )
        self._consumer.assign([TopicPartition(topic, 0, 0)])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

    def read_until(self, found: Callable[[Record], bool], what: str) -> Record:
        """The first record like that, of those not read before; all up to it are in `records` then."""
        deadline = time.monotonic() + LIMIT
        while True:
            message = self._consumer.poll(0.2)
            if message is not None and not message.error():
                record = Record(
                    message.partition(),
                    message.offset(),
                    message.key(),
                    message.value(),
                    message.timestamp()[1],
                    tuple(message.headers() or ()),
                )
                self.records.append(record)
                if found(record):
                    return record
            assert time.monotonic() < deadline, (
                f"waited {LIMIT:.0f} s for {what} in {self.topic}, {len(self.records)} records so far"
            )
