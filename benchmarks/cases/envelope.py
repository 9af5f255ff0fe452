"""B18: changes in Debezium's envelope, without and with their schema beside them, and the rows of the same orders alone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from benchmarks.bench import Bench
from benchmarks.cases.gate import SCHEMA, TRANSFORM
from benchmarks.cases.jobs import write_job
from benchmarks.measure import ratios
from benchmarks.results import Result, result

ROWS = 300_000  # a record with its schema has three kilobytes


def run(bench: Bench) -> Iterator[Result]:
    """Time of the write of enveloped orders by time of the orders alone."""
    source = {"format": "json", "schema": SCHEMA}
    flat = bench.orders(ROWS)
    sides = {"row": partial(write_job, bench, flat, TRANSFORM, {"source": source, "output": {"format": "json"}})}
    for name, schemas in (("envelope", False), ("envelope with schema", True)):
        enveloped = bench.enveloped_orders(ROWS, schemas=schemas)
        sections = {"source": {**source, "envelope": "debezium"}, "output": {"format": "json"}}
        sides[name] = partial(write_job, bench, enveloped, TRANSFORM, sections)
    meter = bench.meter(sides)
    rounds = bench.measure(f"B18 {flat.rows:,} orders", sides, meter=meter)
    bench.spent += meter.spent("B18", f"enveloped orders, {flat.rows:,}", flat.rows)
    for name in list(sides)[1:]:
        case, compares = f"{flat.rows:,} orders in JSON, {name}", "time of the write: envelope ÷ row"
        yield result("B18", case, ratios(rounds, name, "row"), compares)
