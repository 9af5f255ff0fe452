"""B1: read, transform, write: Fencepost's write job beside the same Spark job with Spark's own, at-least-once sink."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.bench import PARTITIONS, Bench
from benchmarks.cases.gate import SCHEMA
from benchmarks.cases.jobs import SIZES, sink_job, sink_options, size_words, write_job
from benchmarks.measure import at_least, ratios
from benchmarks.results import Result, result

ORDERS = 600_000
AS_IT_IS = """
SELECT _key, order_id, customer_id, country, currency, amount, quantity, discount, status, created_at, email FROM {source}
"""


def run(bench: Bench) -> Iterator[Result]:
    """Time of the sink by time of Fencepost, which is Fencepost's throughput by the sink's."""
    for rows, size in SIZES:
        source = bench.source(rows, size)
        words = size_words(source, size)
        sides = {
            "Fencepost": partial(write_job, bench, source, layout="source"),
            "sink": partial(sink_job, bench, source, sink_options()),
            "sink, its defaults": partial(sink_job, bench, source, {}),
        }
        meter = bench.meter(sides)
        rounds = bench.measure(f"B1 {words}, layout source", sides, meter=meter)
        case = f"write, {words}, layout source, with header"
        bench.spent += meter.spent("B1", case, source.rows)
        compares = "throughput: Fencepost ÷ Spark's sink"
        yield result("B1", case, ratios(rounds, "sink", "Fencepost"), compares, goal=at_least(0.8))
        defaults = ratios(rounds, "sink, its defaults", "Fencepost")
        yield result("B1", f"{case}; sink with its defaults", defaults, compares)

        sides = {
            "Fencepost": partial(write_job, bench, source, layout="output"),
            "sink": partial(sink_job, bench, source, sink_options(), by_key),
        }
        meter = bench.meter(sides)
        rounds = bench.measure(f"B1 {words}, layout output", sides, meter=meter)
        case = f"write, {words}, layout output, with header"
        bench.spent += meter.spent("B1", case, source.rows)
        compares = "throughput: Fencepost ÷ repartition, sort and Spark's sink"
        yield result("B1", case, ratios(rounds, "sink", "Fencepost"), compares, goal=at_least(1.0))

    source = bench.orders(ORDERS)
    json = {"source": {"format": "json", "schema": SCHEMA}, "output": {"format": "json"}}
    sides = {
        "Fencepost": partial(write_job, bench, source, transform=AS_IT_IS, sections=json),
        "sink": partial(sink_job, bench, source, sink_options(), parsed_and_written),
    }
    meter = bench.meter(sides)
    rounds = bench.measure(f"B1 {source.rows:,} orders", sides, meter=meter)
    case = f"write, {source.rows:,} orders in JSON, layout source, with header"
    bench.spent += meter.spent("B1", case, source.rows)
    yield result(
        "B1",
        case,
        ratios(rounds, "sink", "Fencepost"),
        "throughput: Fencepost ÷ from_json, to_json and Spark's sink",
    )


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
