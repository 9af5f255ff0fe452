"""B1: read, transform, write: Fencepost's write job beside the same Spark job with Spark's own, at-least-once sink."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from pyspark.sql import DataFrame

from benchmarks.bench import PARTITIONS, Bench
from benchmarks.cases.jobs import SIZES, sink_job, sink_options, size_words, write_job
from benchmarks.measure import at_least, ratios
from benchmarks.results import Result, result


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
        rounds = bench.measure(f"B1 {words}, layout source", sides)
        case = f"write, {words}, layout source, with header"
        compares = "throughput: Fencepost ÷ Spark's sink"
        yield result("B1", case, ratios(rounds, "sink", "Fencepost"), compares, goal=at_least(1.25))
        defaults = ratios(rounds, "sink, its defaults", "Fencepost")
        yield result("B1", f"{case}; sink with its defaults", defaults, compares)

        sides = {
            "Fencepost": partial(write_job, bench, source, layout="output"),
            "sink": partial(sink_job, bench, source, sink_options(), by_key),
        }
        rounds = bench.measure(f"B1 {words}, layout output", sides)
        case = f"write, {words}, layout output, with header"
        compares = "throughput: Fencepost ÷ repartition, sort and Spark's sink"
        yield result("B1", case, ratios(rounds, "sink", "Fencepost"), compares, goal=at_least(1.0))


def by_key(frame: DataFrame) -> DataFrame:
    """Each key's records in one Spark partition, in the source's order: what layout `output` gives, in Spark's own way.

    Spark's hash of the key is cheaper than Kafka's, which Fencepost needs; the sink's producer finds Kafka's partition.
    """
    return frame.repartition(PARTITIONS, "key").sortWithinPartitions("partition", "offset")
