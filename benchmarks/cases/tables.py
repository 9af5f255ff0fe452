"""B15, B16, B20, B21: into a table: a whole run beside Spark's own JDBC writer, a backfill of a year into one table, a whole
run into a table whose columns the server converts to, and a batch that changes keys of a current table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from confluent_kafka import Producer

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
from fencepost.model import Interval
from fencepost.rows.source import read_ranges
from fencepost.steps.advance import advance_batch
from fencepost.steps.plan import plan_batch
from fencepost.steps.validate import validate_batch
from fencepost.steps.write import write_batch
from fencepost_stack.state_folder import StateFolder

ROWS, SIZE = 2_000_000, 100
SELECTED = "SELECT cast(_key AS string) AS key, cast(value AS string) AS value FROM {source}"
# The same records with an id, whose hyphens a uuid may lack, and a table that has other types for both columns.
TYPED = "SELECT cast(value AS string) AS value, md5(_key) AS key FROM {source}"
CONVERTED = (
    "CREATE TABLE numbers (key uuid, value varchar(100), fencepost_interval timestamptz NOT NULL, "
    "fencepost_revision integer NOT NULL); CREATE INDEX ON numbers (fencepost_interval)"
)
JDBC = JarSet("jdbc", Path(__file__).parents[1] / "jdbc-jars.lock")
# What makes Spark's writer quick: the driver sends many rows in one statement, and each of them is large.
QUICKEST = {"reWriteBatchedInserts": "true", "batchsize": "10000", "isolationLevel": "READ_COMMITTED"}
DAYS, OF_A_DAY = 365, 1_000
ENDS = 20  # intervals at each end whose median counts
CHANGED, FEW_KEYS, MANY_KEYS = 10_000, 200_000, 2_000_000
# Each record is the newest row of a key; `note` makes a revision change every row.
CHANGES = (
    "SELECT (_offset * {partitions} + _partition) * {step} AS id, _offset AS pos, cast(value AS string) AS value, "
    "'{note}' AS note FROM {{source}}"
)


def beside_jdbc(bench: Bench) -> Iterator[Result]:
    """Plan to published by Spark's own writer, which is at-least-once and has no gate."""
    folder = StateFolder.default().jars / JDBC.name
    if not is_there(JDBC, folder):
        download(JDBC, folder)
    (jar,) = folder.glob("*.jar")
    bench.end_session()
    bench.spark_settings["spark.driver.extraClassPath"] = str(jar)
    source = bench.source(ROWS, SIZE)
    words = size_words(source, SIZE)
    sides = {"Fencepost": partial(whole, bench, source), "JDBC": partial(jdbc, bench, source)}
    rounds = bench.measure(f"B15 {words}", sides)
    compares = "time: Fencepost, plan to published ÷ Spark's JDBC writer"
    yield result("B15", f"into a table, {words}", ratios(rounds, "Fencepost", "JDBC"), compares, goal=at_most(2.0))
    bench.end_session()
    bench.spark_settings.clear()


def converted(bench: Bench) -> Iterator[Result]:
    """Plan to published into a table whose columns the server checks and converts to, by one that holds texts."""
    source = bench.source(ROWS, SIZE)
    words = size_words(source, SIZE)
    sides = {
        "converted": partial(whole, bench, source, TYPED, CONVERTED),
        "copied": partial(whole, bench, source, TYPED),
    }
    rounds = bench.measure(f"B20 {words}", sides)
    compares = "time: plan to published, converted ÷ copied as text"
    yield result(
        "B20",
        f"into a table of other types, {words}",
        ratios(rounds, "converted", "copied"),
        compares,
        goal=at_most(1.5),
    )


@contextmanager
def whole(bench: Bench, source: Source, selected: str = SELECTED, table: str = "") -> Iterator[Callable[[], None]]:
    """All four steps of a batch. `table` is the statement that creates the table first."""
    sections = into_a_table(bench)
    if table:
        bench.postgres.query(sections["postgres"], table)
    pipeline = bench.pipeline(source.topic, selected, **sections)
    yield lambda: all_steps(bench, pipeline, source.rows)
    bench.drop_pipeline(pipeline)


@contextmanager
def jdbc(bench: Bench, source: Source) -> Iterator[Callable[[], None]]:
    """The same records, read and selected alike, by Spark's own writer."""
    store = bench.postgres.database()
    url = f"jdbc:postgresql://{store['host']}:{store['port']}/{store['dbname']}"
    options = QUICKEST | {"user": store["user"], "password": store["password"], "driver": "org.postgresql.Driver"}

    def job() -> None:
        raw = read_ranges(bench.spark, bench.settings, source.ranges, headers=False)
        frame = raw.selectExpr("cast(key AS string) AS key", "cast(value AS string) AS value")
        frame.write.jdbc(url, "numbers", mode="overwrite", properties=options)
        ((rows,),) = bench.postgres.query(store, "SELECT count(*) FROM numbers")
        check_rows(rows, source.rows, "Spark's JDBC writer")

    yield job


def day_of(number: int) -> Interval:
    """The interval of a day, the last of which is over by `DAY`: those of days that are still to come have no records."""
    start = DAY.start - timedelta(days=DAYS - number)
    return Interval.of(start, start + timedelta(days=1))


def backfill(bench: Bench) -> Iterator[Result]:
    """The last intervals of a year by the first, one after another into one table."""
    days = max(2 * ENDS, DAYS // 8) if bench.quick else DAYS
    topic = filled_days(bench, days)
    pipeline = bench.pipeline(topic, SELECTED, **into_a_table(bench), schedule={"start": day_of(0).start})
    deployment = Deployment.of(pipeline)
    seconds = [one_day(bench, deployment, number) for number in range(days)]
    first, last = median(seconds[1 : 1 + ENDS]), median(seconds[-ENDS:])  # the first one makes the table
    case = f"a backfill of {days} intervals of {OF_A_DAY:,} rows into one table"
    note = f"first {first:.2f} s, last {last:.2f} s"
    yield result("B16", case, [last / first], f"time: last {ENDS} ÷ first {ENDS}", goal=at_most(1.2), note=note)


def changed_keys(bench: Bench) -> Iterator[Result]:
    """The publication of a batch that changes some keys of a current table, by the number of keys that the table has."""
    source, sizes = bench.source(CHANGED, SIZE), (bench.rows(FEW_KEYS), bench.rows(MANY_KEYS))
    few, many = (f"{keys:,} keys" for keys in sizes)
    sides = {
        name: partial(changes_keys, bench, source, filled_table(bench, source, keys), keys)
        for name, keys in zip((few, many), sizes, strict=True)
    }
    rounds = bench.measure(f"B21 {source.rows:,} changed", sides)
    case = f"{source.rows:,} changed keys of a current table"
    yield result("B21", case, ratios(rounds, many, few), f"time: {many} ÷ {few}", goal=at_most(1.3))


def filled_table(bench: Bench, source: Source, keys: int) -> Pipeline:
    """A pipeline whose current table has so many keys, each with an older row in the output table."""
    output = {"current": {"table": "newest", "key": ["id"], "order_by": ["pos"]}, **into_a_table(bench)["output"]}
    pipeline = bench.pipeline(source.topic, SELECTED, output=output, postgres=bench.postgres.database())
    all_steps(bench, with_note(pipeline, source, keys, "first"), source.rows)
    store = {name: value.get_secret_value() for name, value in pipeline.postgres.items()}
    rows = f"SELECT n, -1, repeat('x', {SIZE}), 'old'"
    numbers = f"generate_series(0, {keys - 1}) AS n"
    before = DAY.start - timedelta(days=2)
    bench.postgres.query(
        store,
        f"INSERT INTO numbers (id, pos, value, note, fencepost_interval, fencepost_revision) {rows}, %s, 1 FROM {numbers}",
        (before,),
    )
    bench.postgres.query(
        store, f"INSERT INTO newest (id, pos, value, note) {rows} FROM {numbers} ON CONFLICT DO NOTHING"
    )
    bench.postgres.query(store, "VACUUM ANALYZE numbers, newest")
    return pipeline


def with_note(pipeline: Pipeline, source: Source, keys: int, note: str) -> Pipeline:
    """The pipeline, whose transform gives rows with this note, spread over all keys."""
    step = max(keys // source.rows, 1)
    (pipeline.folder / "transform.sql").write_text(CHANGES.format(partitions=PARTITIONS, step=step, note=note))
    return load_pipeline(pipeline.folder)


@contextmanager
def changes_keys(bench: Bench, source: Source, pipeline: Pipeline, keys: int) -> Iterator[Callable[[], None]]:
    """The step advance of a revision whose rows all differ from those that are there."""
    changed = with_note(pipeline, source, keys, bench.new_name())
    plan_batch(changed, DAY, reprocess=True)
    write_batch(bench.spark, changed, DAY)
    validate_batch(bench.spark, changed, DAY)

    def job() -> None:
        published = advance_batch(changed, DAY)
        done: Any = published.details["current"]
        check_rows(done["changed"], source.rows, "advance_batch")

    yield job


def one_day(bench: Bench, deployment: Deployment, number: int) -> float:
    """The seconds of an interval's four steps, which share a ledger as those of `fencepost run --each` do."""
    pipeline, day = deployment.pipeline, day_of(number)

    @contextmanager
    def side() -> Iterator[Callable[[], None]]:
        def job() -> None:
            plan_batch(pipeline, day, deployment=deployment)
            write_batch(bench.spark, pipeline, day, deployment=deployment)
            validate_batch(bench.spark, pipeline, day, deployment=deployment)
            published = advance_batch(pipeline, day, deployment=deployment)
            check_rows(int(str(published.details["rows"])), OF_A_DAY, "advance_batch")

        yield job

    return bench.once(side)


def filled_days(bench: Bench, days: int) -> str:
    """A topic with records of so many days."""
    topic = f"days-{days}"
    bench.cluster.ensure_topic(topic, PARTITIONS, {"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": bench.broker.bootstrap, "partitioner": "murmur2_random"})
    for number in range(days):
        noon = round((day_of(number).start + timedelta(hours=12)).timestamp() * 1000)
        for row in range(OF_A_DAY):
            producer.produce(topic, b"%0100d" % row, b"key-%d" % row, timestamp=noon)
        producer.flush(60)
    return topic


def into_a_table(bench: Bench) -> dict[str, Any]:
    """The sections of a pipeline whose output is a table in a database of its own."""
    output = {"kind": "postgres", "table": "numbers", "partitions": PARTITIONS}
    return {"output": output, "postgres": bench.postgres.database()}
