"""Pipelines of several sources for tests: two regions whose union is published, or orders joined with payments."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from conftest import at
from fencepost_stack.broker import Broker
from kafka_tools import create_topic, produce

UNION = """
def transform(north, south):
    both = north.unionByName(south)
    return both.selectExpr("_key", "_record", "n", "name", "_topic AS region")
"""
JOIN = "SELECT o._key, o.n, o.name, p.paid FROM orders o JOIN payments p ON o.n = p.n\n"
NUMBERS = {"schema": {"n": "int", "name": "string"}}
ANY = "expectations: [{type: expect_table_row_count_to_be_between, kwargs: {max_value: 1000}}]"
OFF = {"quarantine_limit": "none"}


def regions(name: str, **changes: Any) -> dict[str, Any]:
    return {region: {"topic": f"{name}-{region}", **NUMBERS, **changes} for region in ("north", "south")}


def fill(broker: Broker, topic: str, values: Iterable[Any], number: int = 1, partitions: int = 2) -> None:
    """Writes a day's records to the topic, over its partitions in turn. The first day creates the topic."""
    if number == 1:
        create_topic(broker.bootstrap, topic, partitions)
    records = [(f"k{i}".encode(), value, i % partitions, at(number, i)) for i, value in enumerate(values)]
    produce(broker.bootstrap, topic, records)


def numbers(values: Iterable[int], **more: Any) -> list[dict[str, Any]]:
    return [{"n": n, "name": "x", **more} for n in values]
