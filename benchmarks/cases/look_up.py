"""B22: the price of a look-up: a write of orders that finds each order's customer in a side table of 100,000 rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from benchmarks.bench import Bench
from benchmarks.cases.gate import SCHEMA
from benchmarks.cases.jobs import write_all
from benchmarks.data import DAY, KEYS, Source
from benchmarks.measure import at_most, ratios
from benchmarks.results import Result, result
from fencepost.steps.plan import plan_batch

ROWS = 2_000_000
WITHOUT = "SELECT *, 'customer 000000' AS customer FROM source"  # as wide as a row with its customer
WITH = "SELECT o.*, c.customer FROM source AS o LEFT JOIN customers AS c USING (customer_id)"
TABLE: dict[str, Any] = {
    "customers": {
        "file": "customers.csv",
        "key": "customer_id",
        "schema": {"customer_id": "int not null", "customer": "string"},
    }
}


def run(bench: Bench) -> Iterator[Result]:
    """Time of the write with the look-up by time of the write without it. Both write rows of the same width."""
    source = bench.orders(ROWS)
    sides = {name: partial(_write_job, bench, source, looks_up=name == "with") for name in ("without", "with")}
    rounds = bench.measure(f"B22 {source.rows:,} orders", sides)
    case = f"a customer of {KEYS:,} for each of {source.rows:,} orders in JSON"
    yield result(
        "B22", case, ratios(rounds, "with", "without"), "time of the write: with ÷ without look-up", goal=at_most(1.1)
    )


@contextmanager
def _write_job(bench: Bench, source: Source, *, looks_up: bool) -> Iterator[Callable[[], None]]:
    sections: dict[str, Any] = {"source": {"format": "json", "schema": SCHEMA}, "output": {"format": "json"}}
    suite = "expectations: [{type: expect_column_values_to_not_be_null, kwargs: {column: customer}}]"
    if looks_up:
        sections["tables"] = TABLE
    pipeline = bench.pipeline(source.topic, WITH if looks_up else WITHOUT, suite, **sections)
    if looks_up:
        lines = (f"{number},customer {number:06}" for number in range(KEYS))
        (pipeline.folder / "customers.csv").write_text("\n".join(["customer_id,customer", *lines, ""]))
    plan_batch(pipeline, DAY)
    yield lambda: write_all(bench, pipeline, source.rows)
    bench.drop_pipeline(pipeline)
