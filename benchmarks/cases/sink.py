"""B1: read, transform, write: Fencepost's write job beside the same Spark job with Spark's own, at-least-once sink.

Short jobs write to the output, with a header on every record; those at volume to the staging topic, as they do by default.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.bench import PARTITIONS, STEADY, Bench
from benchmarks.cases.gate import SCHEMA
from benchmarks.cases.jobs import (
    AT_VOLUME,
    ORDERS_AT_VOLUME,
    SIZES,
    sink_job,
    sink_options,
    size_words,
    write_job,
)
from benchmarks.data import Source
from benchmarks.measure import Goal, Side, at_least, ratios
from benchmarks.results import Result, result

ORDERS = 600_000
AS_IT_IS = """
SELECT _key, order_id, customer_id, country, currency, amount, quantity, discount, status, created_at, email FROM {source}
"""


def run(bench: Bench) -> Iterator[Result]:
    """Time of the sink by time of Fencepost, which is Fencepost's throughput by the sink's."""
    yield from jobs(bench, SIZES, ORDERS, "direct", ", with header")
    yield from jobs(bench, AT_VOLUME, ORDERS_AT_VOLUME, "staged", ", staged, at volume", STEADY)


def jobs(
    bench: Bench, sizes: Iterable[tuple[int, int]], orders: int, publish: str, suffix: str, steady: float | None = None
) -> Iterator[Result]:
    """Bytes of two sizes in either layout, and orders in JSON. Short orders have no goal."""
    for rows, size in sizes:
        source = bench.source(rows, size)
        words = f"{size_words(source, size)}, layout source{suffix}"
        sides = {
            "Fencepost": partial(write_job, bench, source, layout="source", publish=publish),
            "sink": partial(sink_job, bench, source, sink_options()),
            "sink with its defaults": partial(sink_job, bench, source, {}),
        }
        yield from beside(bench, source, words, sides, at_least(0.8), steady)

        words = f"{size_words(source, size)}, layout output{suffix}"
        sides = {
            "Fencepost": partial(write_job, bench, source, layout="output", publish=publish),
            "repartition, sort and sink": partial(sink_job, bench, source, sink_options(), by_key),
        }
        yield from beside(bench, source, words, sides, at_least(1.0), steady)

    source = bench.orders(orders)
    words = f"{source.rows:,} orders in JSON, layout source{suffix}"
    json = {"source": {"format": "json", "schema": SCHEMA}, "output": {"format": "json"}}
    sides = {
        "Fencepost": partial(write_job, bench, source, transform=AS_IT_IS, sections=json, publish=publish),
        "from_json, to_json and sink": partial(sink_job, bench, source, sink_options(), parsed_and_written),
    }
    yield from beside(bench, source, words, sides, at_least(0.8) if steady else None, steady)


def beside(
    bench: Bench, source: Source, words: str, sides: Mapping[str, Side], goal: Goal | None, steady: float | None
) -> Iterator[Result]:
    """The first side beside each of the others. The goal is for the first of these, which has the same settings."""
    meter = bench.meter(sides, steady)
    rounds = bench.measure(f"B1 {words}", sides, meter=meter)
    case = f"write, {words}"
    bench.spent += meter.spent("B1", case, source.rows)
    ours, *others = sides
    for other in others:
        named = case if other == others[0] else f"{case}; {other}"
        compares, note = f"throughput: {ours} ÷ Spark's {other}", meter.differs(rounds, other, ours)
        mine = goal if other == others[0] else None
        yield result("B1", named, ratios(rounds, other, ours), compares, goal=mine, note=note)


def parsed_and_written(frame: DataFrame) -> DataFrame:
    """JSON to columns and back as a Spark user would write it."""
    columns = ", ".join(f"`{name}` {kind.removesuffix(' not null')}" for name, kind in SCHEMA.items())
    parsed = F.from_json(F.col("value").cast("string"), columns)
    return frame.select("key", F.to_json(parsed, {"ignoreNullFields": "false"}).cast("binary").alias("value"))


def by_key(frame: DataFrame) -> DataFrame:
    """Each key's records in one Spark partition, in the source's order: what layout `output` gives, in Spark's own way.

    Spark's hash of the key is cheaper than Kafka's, which Fencepost needs; the sink's producer finds Kafka's partition.
    """
    return frame.repartition(PARTITIONS, "key").sortWithinPartitions("partition", "offset")
