"""B8: the gate: validate of a JSON pipeline with ten expectations, beside the write of the same batch."""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.bench import Bench
from benchmarks.cases.jobs import write_all
from benchmarks.data import DAY
from benchmarks.measure import Round, at_most, ratios
from benchmarks.results import Result, result
from fencepost.steps.plan import plan_batch
from fencepost.steps.validate import validate_batch

ROWS = 1_000_000
SCHEMA = {
    "order_id": "bigint not null",
    "customer_id": "int not null",
    "country": "string",
    "currency": "string",
    "amount": "double",
    "quantity": "int",
    "discount": "double",
    "status": "string",
    "created_at": "timestamp",
    "email": "string",
}
TRANSFORM = """
SELECT _key, order_id, customer_id, country, currency, amount, quantity, status, created_at, email,
       round(amount * quantity * (1 - discount), 2) AS total
FROM {source}
WHERE quantity > 0
"""
EXPECTATIONS = """
expectations:
  - {type: expect_table_row_count_to_be_between, kwargs: {min_value: 1}}
  - {type: expect_column_values_to_not_be_null, kwargs: {column: order_id}}
  - {type: expect_column_values_to_be_unique, kwargs: {column: order_id}}
  - {type: expect_column_values_to_not_be_null, kwargs: {column: customer_id}}
  - {type: expect_column_values_to_be_in_set, kwargs: {column: status, value_set: [new, paid, sent, returned]}}
  - {type: expect_column_values_to_be_in_set, kwargs: {column: country, value_set: [AT, BE, DE, ES, FR, IT, NL, PL]}}
  - {type: expect_column_values_to_be_between, kwargs: {column: amount, min_value: 0, max_value: 1000}}
  - {type: expect_column_values_to_be_between, kwargs: {column: quantity, min_value: 1, max_value: 100}}
  - {type: expect_column_values_to_match_regex, kwargs: {column: email, regex: '^[^@ ]+@[^@ ]+$'}}
  - {type: expect_column_value_lengths_to_equal, kwargs: {column: currency, value: 3}}
"""


def run(bench: Bench) -> Iterator[Result]:
    """Time of validate by time of write. Validate needs what was written, so the order is always the same."""
    source = bench.orders(ROWS)
    rounds: list[Round] = []
    progress, case = f"B8 {source.rows:,} rows", f"gate, {source.rows:,} rows × 10 expectations, JSON"
    meter = bench.meter(("write", "validate"))
    for number in range(-1, bench.rounds):
        pipeline = bench.pipeline(
            source.topic,
            transform=TRANSFORM,
            expectations=EXPECTATIONS,
            source={"format": "json", "schema": SCHEMA},
            output={"format": "json"},
        )
        plan_batch(pipeline, DAY)
        seconds = {}
        for step in ("write", "validate"):
            bench.settle()
            with meter.watch(step):
                began = time.perf_counter()
                if step == "write":
                    write_all(bench, pipeline, source.rows)
                else:
                    validate_batch(bench.spark, pipeline, DAY)  # raises unless all ten pass
                seconds[step] = time.perf_counter() - began
            bench.told(progress, "warm-up" if number < 0 else f"round {number + 1}/{bench.rounds}", step, seconds[step])
        if number < 0:
            meter.warm()
        else:
            rounds.append(seconds)
        bench.drop_pipeline(pipeline)
    bench.spent += meter.spent("B8", case, source.rows)
    yield result("B8", case, ratios(rounds, "validate", "write"), "time: validate ÷ write", goal=at_most(0.6))
