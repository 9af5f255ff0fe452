"""B23, B24: a join of two sources: a whole run beside Spark's own source and sink, and a look back beside one interval of all
records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

from benchmarks.bench import Bench
from benchmarks.cases.jobs import check_rows, sink_options
from benchmarks.data import DAY, START, Source
from benchmarks.measure import at_least, at_most, ratios
from benchmarks.results import Result, result
from fencepost.config.pipeline import Pipeline
from fencepost.model import Interval
from fencepost.rows.source import read_ranges
from fencepost.steps.advance import advance_batch
from fencepost.steps.plan import plan_batch
from fencepost.steps.validate import validate_batch
from fencepost.steps.write import write_batch

ROWS, SIZE = 1_000_000, 200
JOIN = "SELECT o._key, concat(o.value, p.value) AS value FROM orders AS o JOIN payments AS p ON o._key = p._key"
BACK = JOIN.replace(" AS value", " AS value, o._lookback AND p._lookback AS _lookback")
NOON = START + timedelta(hours=12)
MORNING, AFTERNOON = Interval.of(START, NOON), Interval.of(NOON, DAY.end)


def beside_spark(bench: Bench) -> Iterator[Result]:
    """Throughput from plan to published by that of the same join with Spark's source and sink."""
    sources = pairs(bench)
    rows = sources["orders"].rows
    sides = {"Fencepost": partial(whole, bench, sources), "Spark": partial(by_spark, bench, sources)}
    meter = bench.meter(sides)
    words = f"{rows:,} with {rows:,} records of {SIZE} B by key"
    rounds = bench.measure(f"B23 {words}", sides, meter=meter)
    bench.spent += meter.spent("B23", f"a join of {words}", rows)
    compares = "throughput: Fencepost, plan to published ÷ Spark's source and sink"
    yield result("B23", f"a join of {words}", ratios(rounds, "Spark", "Fencepost"), compares, goal=at_least(0.5))


def look_back(bench: Bench) -> Iterator[Result]:
    """Time of half a day that looks back at the other half by the time of the whole day in one interval."""
    sources = pairs(bench)
    sides = {"look back": partial(half_by_half, bench, sources), "at once": partial(whole, bench, sources)}
    rows = sources["orders"].rows
    rounds = bench.measure(f"B24 {rows:,} records a side", sides)
    case = f"a join of {rows:,} with {rows:,} records, half of each looked back at"
    compares = "time, plan to published: with a look back ÷ all in one interval"
    yield result("B24", case, ratios(rounds, "look back", "at once"), compares, goal=at_most(1.0))


def pairs(bench: Bench) -> dict[str, Source]:
    """Two topics with the same keys, each once in each of them, in two orders."""
    return {name: bench.keyed(name, ROWS, SIZE, seed) for seed, name in enumerate(("orders", "payments"))}


def join_of(bench: Bench, sources: dict[str, Source], transform: str = JOIN, **settings: Any) -> Pipeline:
    sections = {name: {"topic": one.topic, "format": "bytes", **settings} for name, one in sources.items()}
    return bench.pipeline(None, transform, sources=sections, output={"layout": "output"})


@contextmanager
def whole(bench: Bench, sources: dict[str, Source]) -> Iterator[Callable[[], None]]:
    """All four steps of the day."""
    pipeline = join_of(bench, sources)
    yield lambda: all_steps(bench, pipeline, DAY, sources["orders"].rows)
    bench.drop_pipeline(pipeline)


@contextmanager
def half_by_half(bench: Bench, sources: dict[str, Source]) -> Iterator[Callable[[], None]]:
    """All four steps of the afternoon, which looks back at the morning."""
    pipeline = join_of(bench, sources, BACK, lookback="1 day")
    before = all_steps(bench, pipeline, MORNING)
    yield lambda: all_steps(bench, pipeline, AFTERNOON, sources["orders"].rows - before)
    bench.drop_pipeline(pipeline)


@contextmanager
def by_spark(bench: Bench, sources: dict[str, Source]) -> Iterator[Callable[[], None]]:
    """The same exact read and join as a Spark user would write them, ending in `df.write.format("kafka")`."""
    topic = bench.new_topic()

    def run() -> None:
        frames = [read_ranges(bench.spark, bench.settings, one.ranges, headers=False) for one in sources.values()]
        orders, payments = (frame.select("key", "value") for frame in frames)
        joined = (
            orders.alias("o").join(payments.alias("p"), "key").selectExpr("key", "concat(o.value, p.value) AS value")
        )
        writer = joined.write.format("kafka").option("kafka.bootstrap.servers", bench.broker.bootstrap)
        writer.options(**sink_options()).option("topic", topic).save()

    yield run
    check_rows(bench.offsets_in(topic), sources["orders"].rows, "Spark's sink")
    bench.drop(topic)


def all_steps(bench: Bench, pipeline: Pipeline, interval: Interval, rows: int | None = None) -> int:
    """Plan, write, validate and publish an interval, which gives so many rows. Returns their number."""
    plan_batch(pipeline, interval)
    write_batch(bench.spark, pipeline, interval)
    validate_batch(bench.spark, pipeline, interval)
    published = advance_batch(pipeline, interval, spark=lambda: bench.spark)
    found = int(str(published.details["rows"]))
    check_rows(found, found if rows is None else rows, "advance_batch")
    return found
