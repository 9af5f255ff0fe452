"""B3: validate's scan of the output, read_committed beside read_uncommitted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Self, cast

from pyspark.sql import DataFrame, SparkSession

from benchmarks.bench import Bench, batch_of
from benchmarks.cases.jobs import SIZES, check_rows, size_words, write_all
from benchmarks.data import DAY
from benchmarks.measure import at_least, ratios
from benchmarks.results import Result, result
from fencepost.model import Batch
from fencepost.outputs.batch_topic import read_named
from fencepost.rows.fingerprint import rows_and_fingerprint
from fencepost.steps.plan import plan_batch


def run(bench: Bench) -> Iterator[Result]:
    """Time read_uncommitted by time read_committed: throughput of what validate does, by that of a reader that trusts."""
    for rows, size in SIZES:
        source = bench.source(rows, size)
        pipeline = bench.pipeline(source.topic)
        plan_batch(pipeline, DAY)
        write_all(bench, pipeline, source.rows)
        batch = batch_of(pipeline)
        sides = {
            "read_committed": partial(scan, bench, batch, bench.spark),
            "read_uncommitted": partial(scan, bench, batch, cast(SparkSession, Uncommitted(bench.spark))),
        }
        words = size_words(source, size)
        rounds = bench.measure(f"B3 {words}", sides)
        bench.drop_pipeline(pipeline)
        each = ratios(rounds, "read_uncommitted", "read_committed")
        compares = "throughput: read_committed ÷ read_uncommitted"
        yield result("B3", f"validate's scan, {words}", each, compares, goal=at_least(0.99))


@contextmanager
def scan(bench: Bench, batch: Batch, spark: SparkSession) -> Iterator[Callable[[], None]]:
    """Count and fingerprint of a batch, read as validate reads it."""
    written = batch.written
    assert written is not None

    def run() -> None:
        ranges = batch.output_ranges(written)
        records = read_named(spark, bench.settings, ranges, str(batch.id))
        found, _ = rows_and_fingerprint(records)
        check_rows(found, written.rows, "the scan")

    yield run


class Uncommitted:
    """Stands before a session: its Kafka reads are the same, with one option changed."""

    def __init__(self, spark: SparkSession) -> None:
        self._reader: Any = spark.read
        self.conf = spark.conf

    @property
    def read(self) -> Self:
        return self

    def format(self, name: str) -> Self:
        self._reader = self._reader.format(name)
        return self

    def options(self, **values: str) -> Self:
        for name, value in values.items():
            self.option(name, value)
        return self

    def option(self, name: str, value: str) -> Self:
        changed = "read_uncommitted" if name == "kafka.isolation.level" else value
        self._reader = self._reader.option(name, changed)
        return self

    def load(self) -> DataFrame:
        return cast(DataFrame, self._reader.load())
