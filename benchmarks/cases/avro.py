"""B12: Avro in and out, beside JSON in and out: the write of the same orders."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from benchmarks.bench import Bench
from benchmarks.cases.gate import SCHEMA, TRANSFORM
from benchmarks.cases.jobs import write_job
from benchmarks.measure import at_most, ratios
from benchmarks.results import Result, result

ROWS = 1_000_000


def run(bench: Bench) -> Iterator[Result]:
    """Time of the write in Avro by time in JSON. The warm-up registers the output's schema."""
    json_source, avro_source = bench.orders(ROWS), bench.avro_orders(ROWS)
    json: dict[str, Any] = {"source": {"format": "json", "schema": SCHEMA}, "output": {"format": "json"}}
    avro: dict[str, Any] = {
        "source": {"format": "avro"},
        "output": {"format": "avro", "subject": "bills"},
        "schema_registry": {"url": bench.registry.url, "auto_register": True},
    }
    sides = {
        "json": partial(write_job, bench, json_source, TRANSFORM, json),
        "avro": partial(write_job, bench, avro_source, TRANSFORM, avro),
    }
    meter = bench.meter(sides)
    rounds = bench.measure(f"B12 {json_source.rows:,} orders", sides, meter=meter)
    case = f"Avro in and out, {json_source.rows:,} orders"
    bench.spent += meter.spent("B12", case, json_source.rows)
    yield result("B12", case, ratios(rounds, "avro", "json"), "time of the write: Avro ÷ JSON", goal=at_most(0.7))
