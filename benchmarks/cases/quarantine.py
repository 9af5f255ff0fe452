"""B10: the price of quarantine rules: a write of JSON records under ten, which no row fails, or one row in a hundred."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from benchmarks.bench import SUITE, Bench
from benchmarks.cases.gate import SCHEMA
from benchmarks.cases.jobs import check_rows
from benchmarks.data import DAY, KEYS, Source
from benchmarks.measure import at_most, ratios
from benchmarks.results import Result, result
from fencepost.steps.plan import plan_batch
from fencepost.steps.write import write_batch

ROWS = 1_000_000
TRANSFORM = "SELECT *, round(amount * quantity * (1 - discount), 2) AS total FROM {source} WHERE quantity > 0"
RULES = """
expectations:
  - {severity: quarantine, type: expect_column_values_to_be_between, kwargs: {column: customer_id, min_value: LOWEST}}
  - {severity: quarantine, type: expect_column_values_to_not_be_null, kwargs: {column: order_id}}
  - {severity: quarantine, type: expect_column_values_to_not_be_null, kwargs: {column: customer_id}}
  - severity: quarantine
    type: expect_column_values_to_be_in_set
    kwargs: {column: status, value_set: [new, paid, sent, returned]}
  - severity: quarantine
    type: expect_column_values_to_be_in_set
    kwargs: {column: country, value_set: [AT, BE, DE, ES, FR, IT, NL, PL]}
  - {severity: quarantine, type: expect_column_values_to_be_between, kwargs: {column: amount, min_value: 0, max_value: 1000}}
  - {severity: quarantine, type: expect_column_values_to_be_between, kwargs: {column: quantity, min_value: 1, max_value: 100}}
  - {severity: quarantine, type: expect_column_values_to_match_regex, kwargs: {column: email, regex: '^[^@ ]+@[^@ ]+$'}}
  - {severity: quarantine, type: expect_column_value_lengths_to_equal, kwargs: {column: currency, value: 3}}
  - {severity: quarantine, type: expect_expression_to_be_true, kwargs: {expression: total <= amount * quantity + 0.01}}
"""
KEEPING_NONE = SUITE.replace("column: value", "column: order_id")


def run(bench: Bench) -> Iterator[Result]:
    """Time of the write with rules by time without."""
    source = bench.orders(ROWS)
    sides = {
        "off": partial(write, bench, source, KEEPING_NONE),
        "none": partial(write, bench, source, RULES.replace("LOWEST", "0")),
        "some": partial(write, bench, source, RULES.replace("LOWEST", str(KEYS // 100))),
    }
    rounds = bench.measure(f"B10 {source.rows:,} orders", sides)
    for side, words in (("none", "none failing"), ("some", "1 % failing")):
        each = ratios(rounds, side, "off")
        case = f"10 quarantine rules, {words}, {source.rows:,} orders in JSON"
        yield result("B10", case, each, "time: rules ÷ none", goal=at_most(1.1))


@contextmanager
def write(bench: Bench, source: Source, suite: str) -> Iterator[Callable[[], None]]:
    """The write step of a batch just planned; each order is written, or in quarantine."""
    pipeline = bench.pipeline(
        source.topic,
        transform=TRANSFORM,
        expectations=suite,
        source={"format": "json", "schema": SCHEMA},
        output={"format": "json"},
    )
    plan_batch(pipeline, DAY)

    def job() -> None:
        found = write_batch(bench.spark, pipeline, DAY).details
        quarantined = found["quarantined"]
        assert isinstance(quarantined, dict)
        check_rows(int(str(found["rows"])) + sum(int(str(n)) for n in quarantined.values()), source.rows, "write_batch")

    yield job
    bench.drop_pipeline(pipeline)
    if "quarantine" in suite:
        bench.drop(pipeline.quarantine_topic)
