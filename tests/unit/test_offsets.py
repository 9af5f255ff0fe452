"""When a read with an end gives up: what counts as progress, on a consumer and a clock of the test's own."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from fencepost.errors import KafkaUnavailable
from fencepost.kafka import offsets
from fencepost.kafka.client_settings import ClientSettings
from fencepost.kafka.clients import ConsumerReports
from fencepost.kafka.offsets import batches_until

SETTINGS = ClientSettings({"bootstrap.servers": "127.0.0.1:1"})
LIMIT = 30.0  # seconds


def message(partition: int, offset: int, *, end: bool = False) -> Any:
    error = KafkaError(KafkaError._PARTITION_EOF) if end else None
    return SimpleNamespace(partition=lambda: partition, offset=lambda: offset, error=lambda: error)


class OneSecondPolls:
    """A consumer: each poll takes a second, and gives what `answers` says of that second."""

    def __init__(self, answers: Callable[[int], tuple[Sequence[Any], Mapping[int, int]]]) -> None:
        self.answers, self.now, self.rest = answers, 0, list[Any]()
        self.reports = ConsumerReports()

    def poll(self, timeout: float) -> Any:
        self.now += 1
        messages, fetched = self.answers(self.now)
        partitions = {str(p): {"next_offset": offset} for p, offset in fetched.items()} | {"-1": {"next_offset": 0}}
        self.reports.take_statistics(json.dumps({"topics": {"t": {"partitions": partitions}}}))
        first, self.rest = (messages[0], list(messages[1:])) if messages else (None, [])
        return first

    def consume(self, count: int, timeout: float) -> list[Any]:
        return self.rest

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition("t", 0), TopicPartition("t", 1)]


def read(
    monkeypatch: pytest.MonkeyPatch,
    ends: Mapping[int, int],
    answers: Callable[[int], tuple[Sequence[Any], Mapping[int, int]]],
    **limits: float,
) -> tuple[OneSecondPolls, list[int]]:
    """The consumer, and the offsets of all messages that were read."""
    consumer = OneSecondPolls(answers)
    monkeypatch.setattr(offsets, "time", SimpleNamespace(monotonic=lambda: consumer.now))
    found: list[int] = []
    for messages in batches_until(consumer, consumer.reports, SETTINGS, ends, "reading", LIMIT, **limits):  # type: ignore[arg-type]
        found += [m.offset() or 0 for m in messages]
    return consumer, found


def test_aborted_records_that_take_twenty_times_the_limit_are_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(second: int) -> tuple[Sequence[Any], Mapping[int, int]]:
        return ([message(0, 601)] if second == 600 else []), {0: second}

    consumer, found = read(monkeypatch, {0: 602}, answers)
    assert (consumer.now, found) == (600, [601])


@pytest.mark.parametrize("last", [10, 600])
def test_a_broker_that_is_gone_is_noticed_after_the_limit(monkeypatch: pytest.MonkeyPatch, last: int) -> None:
    """Behind a stretch of aborted records, where the offset to fetch next stays as it is from that second on."""
    seconds: list[int] = []

    def answers(second: int) -> tuple[Sequence[Any], Mapping[int, int]]:
        seconds.append(second)
        return [], {0: min(second, last)}

    with pytest.raises(KafkaUnavailable, match="reading: no answer from Kafka"):
        read(monkeypatch, {0: 700}, answers)
    assert seconds[-1] == last + LIMIT + 1


def test_what_others_send_behind_the_ends_hides_no_broker_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partition 0 has reached its end, and its producers go on; the leader of partition 1 is gone."""

    def answers(second: int) -> tuple[Sequence[Any], Mapping[int, int]]:
        assert second < 100, "it would go on for ever"
        return [message(0, second)], {0: second, 1: 5}

    with pytest.raises(KafkaUnavailable):
        read(monkeypatch, {0: 10, 1: 6}, answers)


def test_a_reader_that_works_for_longer_than_the_limit_between_messages_is_no_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumer = OneSecondPolls(lambda second: ([] if second == 102 else [message(0, second // 100)], {0: 2}))
    monkeypatch.setattr(offsets, "time", SimpleNamespace(monotonic=lambda: consumer.now))
    found = []
    for messages in batches_until(consumer, consumer.reports, SETTINGS, {0: 2}, "reading", LIMIT):  # type: ignore[arg-type]
        found += [m.offset() for m in messages]
        consumer.now += 100
    assert found == [0, 1]


def test_a_read_with_a_last_moment_ends_there_without_an_error_while_it_makes_progress(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumer, found = read(monkeypatch, {0: 700}, lambda second: ([], {0: second}), until=20)
    assert (consumer.now, found) == (21, [])
    with pytest.raises(KafkaUnavailable):
        read(monkeypatch, {0: 700}, lambda _: ([], {0: 7}), until=20)
