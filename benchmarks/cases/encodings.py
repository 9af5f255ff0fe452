"""B17: the price of encoded values: a write of orders with two epochs and a decimal in a text, beside plain types."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from benchmarks.bench import Bench
from benchmarks.cases.gate import SCHEMA
from benchmarks.cases.jobs import write_job
from benchmarks.measure import at_most, ratios
from benchmarks.results import Result, result

ROWS = 1_000_000
TRANSFORM = "SELECT *, round(amount * quantity, 2) AS total FROM {source} WHERE quantity > 0"
PLAIN: dict[str, Any] = SCHEMA | {"amount": "decimal(12,2)", "changed_at": "timestamp"}
ENCODED = PLAIN | {
    "amount": {"type": "decimal(12,2)", "from": "text"},
    "created_at": {"type": "timestamp", "from": "epoch_micros"},
    "changed_at": {"type": "timestamp", "from": "epoch_millis"},
}


def run(bench: Bench) -> Iterator[Result]:
    """Time of the write of encoded orders by time of the write of plain ones. Both write the same records."""
    plain, encoded = bench.dated_orders(ROWS, encoded=False), bench.dated_orders(ROWS, encoded=True)
    sections: dict[str, Any] = {
        name: {"source": {"format": "json", "schema": schema}, "output": {"format": "json"}}
        for name, schema in (("plain", PLAIN), ("encoded", ENCODED))
    }
    sides = {
        "plain": partial(write_job, bench, plain, TRANSFORM, sections["plain"]),
        "encoded": partial(write_job, bench, encoded, TRANSFORM, sections["encoded"]),
    }
    rounds = bench.measure(f"B17 {plain.rows:,} orders", sides)
    case = f"two epochs and a decimal in a text, {plain.rows:,} orders in JSON"
    yield result(
        "B17", case, ratios(rounds, "encoded", "plain"), "time of the write: encoded ÷ plain", goal=at_most(1.3)
    )
