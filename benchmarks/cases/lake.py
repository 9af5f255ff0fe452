"""B19: into an Iceberg table: a whole run beside Spark's own append, and a commit into a table of many intervals."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.bench import PARTITIONS, Bench
from benchmarks.cases.jobs import check_rows, size_words
from benchmarks.cases.staged import all_steps
from benchmarks.data import DAY, Source
from benchmarks.measure import at_most, ratios
from benchmarks.results import Result, result
from fencepost.config.loading import load_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.jars import JarSet, download, is_there
from fencepost.ledger.deployment import Deployment
from fencepost.outputs.iceberg.catalog import catalog_of
from fencepost.outputs.iceberg.data_files import write_data_files
from fencepost.rows.source import read_ranges
from fencepost.steps.advance import advance_batch
from fencepost.steps.plan import plan_batch
from fencepost.steps.validate import validate_batch
from fencepost.steps.write import write_batch
from fencepost_stack.state_folder import StateFolder

ROWS, SIZE = 5_000_000, 200
INTERVALS, OF_A_BATCH = 3_650, 1_000
RUNTIME = JarSet("iceberg-spark-runtime", Path(__file__).parents[2] / "tests" / "rigs" / "jars.lock")


def run(bench: Bench) -> Iterator[Result]:
    """Plan to published by Spark's own append, which is at-least-once and has no gate."""
    folder = StateFolder.default().jars / RUNTIME.name
    if not is_there(RUNTIME, folder):
        download(RUNTIME, folder)
    bench.end_session()
    bench.spark_settings["spark.driver.extraClassPath"] = os.pathsep.join(map(str, folder.glob("*.jar")))
    source = bench.source(ROWS, SIZE)
    words = size_words(source, SIZE)
    sides = {"Fencepost": partial(whole, bench, source), "Spark": partial(append, bench, source)}
    rounds = bench.measure(f"B19 {words}", sides)
    compares = "time: Fencepost, plan to published ÷ Spark's append"
    yield result(
        "B19", f"into an Iceberg table, {words}", ratios(rounds, "Fencepost", "Spark"), compares, goal=at_most(3.0)
    )
    bench.end_session()
    bench.spark_settings.clear()
    yield from many_intervals(bench)


def into_a_lake(bench: Bench) -> dict[str, Any]:
    """The sections of a pipeline whose output is a table in a catalog and a warehouse of its own."""
    database = bench.postgres.database()
    name = bench.new_name()
    settings = {
        "type": "sql",
        "uri": "postgresql://{host}:{port}/{dbname}".format(**database),
        "user": database["user"],
        "password": database["password"],
        "warehouse": (bench.folder / "warehouses" / name).as_uri(),
    }
    return {"output": {"kind": "iceberg", "table": "bench.numbers", "partitions": PARTITIONS}, "iceberg": settings}


@contextmanager
def whole(bench: Bench, source: Source) -> Iterator[Callable[[], None]]:
    """All four steps of a batch."""
    pipeline = bench.pipeline(source.topic, noted(""), **into_a_lake(bench))
    yield lambda: all_steps(bench, pipeline, source.rows)
    bench.drop_pipeline(pipeline)


@contextmanager
def append(bench: Bench, source: Source) -> Iterator[Callable[[], None]]:
    """The same records, read and selected alike, by Spark's own writer."""
    name, spark = bench.new_name(), bench.spark
    spark.conf.set(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set(f"spark.sql.catalog.{name}.type", "hadoop")
    spark.conf.set(f"spark.sql.catalog.{name}.warehouse", (bench.folder / "warehouses" / name).as_uri())
    spark.sql(f"CREATE TABLE {name}.bench.numbers (key string, value string, note string)")

    def job() -> None:
        raw = read_ranges(spark, bench.settings, source.ranges, headers=False)
        frame = raw.selectExpr("cast(key AS string) AS key", "cast(value AS string) AS value", "'' AS note")
        frame.writeTo(f"{name}.bench.numbers").append()
        check_rows(spark.table(f"{name}.bench.numbers").count(), source.rows, "Spark's append")

    yield job


def many_intervals(bench: Bench) -> Iterator[Result]:
    """The step advance of a revision, by the number of intervals that its table has."""
    source = bench.source(OF_A_BATCH * (40 if bench.quick else 1), SIZE)
    many = bench.rows(INTERVALS) if bench.quick else INTERVALS
    sizes = {"new table": 0, f"{many:,} intervals": many}
    tables = {name: filled(bench, source, intervals) for name, intervals in sizes.items()}
    sides = {name: partial(revise, bench, pipeline, source) for name, pipeline in tables.items()}
    rounds = bench.measure(f"B19 {many:,} intervals", sides)
    old, new = f"{many:,} intervals", "new table"
    case = f"a commit of {source.rows:,} rows into an Iceberg table of {many:,} intervals"
    yield result("B19", case, ratios(rounds, old, new), f"time: {old} ÷ {new}", goal=at_most(2.0))


def filled(bench: Bench, source: Source, intervals: int) -> Pipeline:
    """A pipeline whose table has a published interval, and so many older ones."""
    pipeline = bench.pipeline(source.topic, noted("first"), **into_a_lake(bench))
    all_steps(bench, pipeline, source.rows)
    table = catalog_of(pipeline).load_table("bench.numbers")
    files = []
    for number in range(intervals):
        batch = one_row(table, DAY.start - timedelta(days=number + 1))
        files += write_data_files("bench.numbers", table.metadata, table.io, [batch], uuid.uuid4().hex)
    if files:
        with table.transaction() as transaction, transaction.update_snapshot().merge_append() as update:
            for file in files:
                update.append_data_file(file)
    return pipeline


def one_row(table: Any, start: datetime) -> pa.RecordBatch:
    """A row of an interval, in the table's types."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    schema = schema_to_pyarrow(table.schema())
    values = {"key": "k", "value": "v", "note": "old", "fencepost_interval": start, "fencepost_revision": 1}
    return pa.RecordBatch.from_pylist([values], schema=schema)


def noted(note: str) -> str:
    """The transform whose rows have this note."""
    return f"SELECT cast(_key AS string) AS key, cast(value AS string) AS value, '{note}' AS note FROM {{source}}"  # noqa: S608


@contextmanager
def revise(bench: Bench, pipeline: Pipeline, source: Source) -> Iterator[Callable[[], None]]:
    """The step advance of a revision of the published interval."""
    (pipeline.folder / "transform.sql").write_text(noted(bench.new_name()))
    changed = load_pipeline(pipeline.folder)
    plan_batch(changed, DAY, reprocess=True)
    write_batch(bench.spark, changed, DAY)
    validate_batch(bench.spark, changed, DAY)
    deployment = Deployment.of(changed)

    def job() -> None:
        published = advance_batch(changed, DAY, deployment=deployment)
        check_rows(int(str(published.details["rows"])), source.rows, "advance_batch")

    yield job
