"""Pipelines of two sources under attack, a union and a join; and what their output has to be, by the oracle.

The second source has one partition more. Both have bad records at the same partitions and offsets.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from conftest import at
from kafka_tools import Record, read_all
from oracle.murmur2 import murmur2
from oracle.several_truth import Written, fields_of, malformed, pairs

from .checker import KEYS, PER_PARTITION, Attacked, Sent, differences_of_a_follower

SIZES = (2, 3)  # partitions of the first and of the second source
ROWS = {
    "source": sum(SIZES),
    "output": 3,
}  # task-partitions of rows, by layout; behind them are those of malformed records
SECOND = SIZES[0]  # among those of a union, and of malformed records, the first one of the second source
OFF = {"quarantine_limit": "none"}
UNION = """
def transform(north, south):
    both = north.unionByName(south)
    return both.selectExpr("_key", "_record", "n", "n * 2 AS doubled", "name", "_topic AS region")
"""
JOIN = """
def transform(orders, payments):
    paid = payments.selectExpr("n AS paid_for", "name AS payment")
    found = orders.join(paid, orders.n == paid.paid_for)
    return found.selectExpr("_key", "n", "n * 2 AS doubled", "name", "payment")
"""
LOWEST = "{min_value: 0, column: n}"
RULES = f"""
expectations:
  - {{type: expect_column_values_to_be_between, severity: quarantine, kwargs: {LOWEST}}}
  - {{type: expect_column_values_to_not_be_null, kwargs: {{column: n}}}}
"""
SHAPES: dict[str, tuple[str, str, tuple[str, str]]] = {
    "union": (UNION, "source", ("north", "south")),
    "join": (JOIN, "output", ("orders", "payments")),
}


def settings_of(name: str, shape: str, publish: str) -> dict[str, Any]:
    """What `make_pipeline` takes, for a pipeline of that name and shape."""
    transform, layout, sources = SHAPES[shape]
    columns = {"schema": {"n": "int", "name": "string"}, "on_malformed": "quarantine"}
    return {
        "name": name,
        "transform": transform,
        "expectations": RULES,
        "sources": {source: {"topic": f"{name}-{source}", **columns} for source in sources},
        "output": {"layout": layout, "publish": publish},
        "quality": OFF,
        "spark": {"spark.sql.execution.arrow.maxRecordsPerBatch": 10},
    }


@dataclass
class TwoSources(Attacked):
    """`bad` is the number of records in each partition that fail a rule, and of malformed ones."""

    @property
    def topics(self) -> list[str]:
        """The sources' topics: the smaller one first."""
        return [source.topic for source in self.pipeline.sources.values()]

    def sent(self) -> dict[str, list[Sent]]:
        return {topic: self.mixed(self.good(i), self.bad_ones(i)) for i, topic in enumerate(self.topics)}

    def good(self, number: int) -> list[Sent]:
        """The good records of the first source (0) or the second (1)."""
        raise NotImplementedError

    def bad_ones(self, number: int) -> list[Sent]:
        """The bad records of a source. Of those that fail the rule, the first source's have other numbers than the second's
        (`worst`)."""
        return [
            (f"{'ab'[number]}{p}bad{i}".encode(), text % (self.worst(number, d, p, i), d, p, i), p, at(d, 1))
            for d in self.days
            for p in range(SIZES[number])
            for i in range(self.bad)
            for text in (b'{"n": %d, "name": "%d %d %d"}', b'{"n": "%d %d %d %d"}')
        ]

    def worst(self, number: int, day_: int, partition: int, nth: int) -> int:
        """The number of a record that fails the rule."""
        raise NotImplementedError

    def replayed(self) -> tuple[list[tuple[bytes, int]], list[Written]]:
        """What passes in a replay once the rule is mended (key and number), and the records that stay as they are."""
        raise NotImplementedError

    def raw(self, number: int) -> list[Written]:
        """The records of a source as the oracle takes them."""
        records = self.sent()[self.topics[number]]
        return [Written(k, v if isinstance(v, bytes) else json.dumps(v).encode(), p, t) for k, v, p, t in records]


@dataclass
class Union(TwoSources):
    """North and south, row by row. Keys say the region, so that a key's records lie in one partition."""

    def good(self, number: int) -> list[Sent]:
        return [
            (
                f"{'ab'[number]}{p}k{n % KEYS}".encode(),
                {"n": 1000 * d + n, "name": "x"},
                p,
                at(d, n * 20 / PER_PARTITION),
            )
            for d in self.days
            for p in range(SIZES[number])
            for n in range(PER_PARTITION)
        ]

    def worst(self, number: int, day_: int, partition: int, nth: int) -> int:
        return (-1, -9)[number]

    def source(self) -> list[tuple[bytes, Any, int, int]]:
        return [*self.good(0), *self.good(1)]

    def bad_source(self) -> list[tuple[bytes, Any, int, int]]:
        return [*self.bad_ones(0), *self.bad_ones(1)]

    def replayed(self) -> tuple[list[tuple[bytes, int]], list[Written]]:
        north = [(key, -1) for key, value, _, _ in self.bad_ones(0) if b'"n": -1' in value]
        failing = [Written(*record) for record in self.bad_source() if b'"n": -1' not in record[1]]
        return north, failing

    def _differences_of_records(self, seen: list[tuple[int, bytes | None, dict[str, Any]]]) -> list[str]:
        regions = dict(zip((b"a", b"b"), self.topics, strict=True))
        wrong = [f"{key!r} of {v['region']}" for _, key, v in seen if regions[(key or b"")[:1]] != v["region"]]
        return [*super()._differences_of_records(seen), *wrong]


@dataclass
class Join(TwoSources):
    """Orders and payments, by their number. Of a day's 120 orders each has one payment, two or none; some payments have no
    order."""

    def good(self, number: int) -> list[Sent]:
        each = 2 * PER_PARTITION // SIZES[number]
        return [
            (f"{'ab'[number]}{p}k{n % KEYS}".encode(), {"n": 1000 * d + of, "name": f"{number} {n}"}, p, at(d, n / 10))
            for d in self.days
            for p in range(SIZES[number])
            for n in range(p * each, (p + 1) * each)
            for of in [n if number == 0 else _paid_for(n)]
        ]

    def worst(self, number: int, day_: int, partition: int, nth: int) -> int:
        return -1000 * day_ - 10 * partition - nth - 1

    def source(self) -> list[tuple[bytes, Any, int, int]]:
        return [(row[0], row[1], 0, 0) for row in self._joined() if row[1]["n"] >= 0]

    def bad_source(self) -> list[tuple[bytes, Any, int, int]]:
        """What has to be in quarantine: malformed records as they were, and results."""
        kept = [*malformed(self.raw(0)), *malformed(self.raw(1))]
        return [*kept, *((row[0], row[1], 0, 0) for row in self._joined() if row[1]["n"] < 0)]

    def replayed(self) -> tuple[list[tuple[bytes, int]], list[Written]]:
        results = [(key, value["n"]) for key, value in self._joined() if value["n"] < 0]
        return results, [*malformed(self.raw(0)), *malformed(self.raw(1))]

    def _joined(self) -> list[tuple[bytes, dict[str, Any]]]:
        return [joined(*pair) for pair in pairs(self.raw(0), self.raw(1))]

    def _differences_of_records(self, seen: list[tuple[int, bytes | None, dict[str, Any]]]) -> list[str]:
        found = differences(((key, v) for _, key, v in seen), ((key, v) for key, v, _, _ in self.source()))
        for partition, key, _ in seen:
            if partition != (murmur2(key or b"") & 0x7FFFFFFF) % self.pipeline.output.partitions:
                found.append(f"{key!r} in partition {partition}")
        return found

    def _differences_of_quarantine(self) -> list[str]:
        if not self.bad:
            return []
        seen = read_all(self.bootstrap, self.pipeline.quarantine_topic)
        kept = [*malformed(self.raw(0)), *malformed(self.raw(1))]
        results = [row for row in self._joined() if row[1]["n"] < 0]
        final = [(r.partition, r.offset, r.key, r.value) for r in seen]
        return [*differences_in_quarantine(seen, kept, results), *differences_of_a_follower(self.aside, final)]


def _paid_for(n: int) -> int:
    """The order of payment `n`: order 0 to 29 has two, 90 to 119 has none, and each tenth payment has an unknown one."""
    return 500 + n if n % 10 == 9 else n % 90


def joined(order: Written, payment: Written) -> tuple[bytes, dict[str, Any]]:
    """The key and the value of a pair's row."""
    one, other = fields_of(order), fields_of(payment)
    return order.key, {"n": one["n"], "doubled": 2 * one["n"], "name": one["name"], "payment": other["name"]}


Row = tuple[bytes | None, dict[str, Any]]


def differences(there: Iterable[Row], wanted: Iterable[Row], what: str = "") -> list[str]:
    """Rows that are lost, and rows that are too many."""
    one, other = (Counter((key, json.dumps(value, sort_keys=True)) for key, value in rows) for rows in (there, wanted))
    lost = [f"{what}lost {row}" for row in (other - one).elements()]
    return lost + [f"{what}too many of {row}" for row in (one - other).elements()]


def differences_in_quarantine(seen: Iterable[Record], kept: Iterable[Written], results: Iterable[Row]) -> list[str]:
    """The same of records in quarantine: `kept` has those that are there as they were in their source."""
    as_they_were, rows = list[Record](), list[Row]()
    for record in seen:
        if dict(record.headers).get("fencepost-kept") == b"result":
            rows.append((record.key, record.json))
        else:
            as_they_were.append(record)
    there = Counter((r.key, r.value, r.timestamp) for r in as_they_were)
    wanted = Counter((record.key, record.value, record.time) for record in kept)
    found = [f"lost from quarantine {one}" for one in (wanted - there).elements()]
    found += [f"too many in quarantine of {one}" for one in (there - wanted).elements()]
    return found + differences(rows, results, "in quarantine ")


CASES: dict[str, type[TwoSources]] = {"union": Union, "join": Join}
