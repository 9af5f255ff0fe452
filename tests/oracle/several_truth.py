"""What a pipeline of several topics has to give in each interval: plain Python over the records that a test has written itself.

An interval takes records by the order in which the test wrote and planned. A union has each record that it takes once. A join
without a look back has a pair if and only if one interval takes both of its records.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Written(NamedTuple):
    """A record of a topic; `time` is its timestamp in milliseconds."""

    key: bytes
    value: bytes
    partition: int
    time: int


def number_of(record: Written) -> int | None:
    """The record's `n`, or None if the record is malformed: it is no JSON object, or `n` is no integer."""
    try:
        n = json.loads(record.value)["n"]
    except ValueError:
        return None
    return n if isinstance(n, int) else None


def fields_of(record: Written) -> dict[str, Any]:
    """The fields of a record that is not malformed."""
    found: dict[str, Any] = json.loads(record.value)
    return found


def readable(records: Iterable[Written]) -> list[Written]:
    """The records that are not malformed."""
    return [record for record in records if number_of(record) is not None]


def malformed(records: Iterable[Written]) -> list[Written]:
    """The other ones."""
    return [record for record in records if number_of(record) is None]


def pairs(left: Iterable[Written], right: Iterable[Written]) -> list[tuple[Written, Written]]:
    """Each readable record of `left` with each one of `right` that has the same `n`."""
    by_number = defaultdict(list)
    for other in readable(right):
        by_number[number_of(other)].append(other)
    return [(one, other) for one in readable(left) for other in by_number[number_of(one)]]


@dataclass
class Topics:
    """Topics as a test fills them, and what each interval takes of them, by its number and the topic."""

    records: dict[str, list[list[Written]]] = field(default_factory=dict)
    taken: dict[int, dict[str, list[Written]]] = field(default_factory=dict)
    ends: dict[str, dict[int, int]] = field(default_factory=dict)  # the first offset that no interval has taken
    _ended: int | None = None  # where the interval before ends

    def widen(self, topic: str, partitions: int) -> None:
        """The topic has so many partitions from now on; a new one is empty."""
        there = self.records.setdefault(topic, [])
        there += [[] for _ in range(partitions - len(there))]

    def write(self, topic: str, records: Iterable[Written]) -> None:
        for record in records:
            self.records[topic][record.partition].append(record)

    def plan(self, number: int, topics: Sequence[str], start: int, end: int) -> None:
        """An interval of that time (milliseconds) takes records of these topics. It is planned now, behind all others.

        It goes on where the last one ended that read the topic, and a topic that none has read begins with the time behind the
        interval before. It ends before the first record of its end or later.
        """
        begins = start if self._ended is None else self._ended
        took: dict[str, list[Written]] = {}
        for topic in topics:
            known, took[topic] = self.ends.get(topic), list[Written]()
            for partition, log in enumerate(self.records[topic]):
                first = _first(log, 0, begins) if known is None else known.get(partition, 0)
                last = max(first, _first(log, first, end))
                took[topic] += log[first:last]
                self.ends.setdefault(topic, {})[partition] = last
        self.taken[number], self._ended = took, end


def _first(log: Sequence[Written], since: int, time: int) -> int:
    """The first offset at or behind `since` whose record has that timestamp or a later one; or the end."""
    return next((n for n in range(since, len(log)) if log[n].time >= time), len(log))
