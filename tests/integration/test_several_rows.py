"""A source record that gives several rows is published whole or quarantined whole, so a replay doubles none of them."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from conftest import at, day
from fencepost.config.loading import load_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.errors import SettingsError
from fencepost.ledger.deployment import Deployment
from fencepost.model import Batch, State, WriteSummary
from fencepost.quality.quarantine import Accounts
from fencepost.steps import write_job
from fencepost.steps.plan import plan_batch
from fencepost.steps.side_tables import SettledTables
from fencepost.steps.validate import validate_batch
from fencepost.steps.write import write_batch
from fencepost_stack.broker import Broker
from kafka_tools import QUIET_LOG, Record, create_topic, read_all
from steps import latest, plan_and_write, replay, run

Make = Callable[..., Pipeline]
DEEP = pytest.mark.deep

KEPT = '"_key", "_partition", "_offset", "_record"'
EXPLODING = f"""
def transform(frame):
    rows = frame.selectExpr({KEPT}, "explode(split(name, ',')) AS item").where("item <> ''")
    return rows.selectExpr({KEPT}, "int(item) AS n")
"""
JOINING = f"""
from pyspark.sql import functions as F

def transform(frame):
    names = ["1,2", "5,-1,-2", "-5,-6", "7,-7", "3"]
    rows = [(name, int(item)) for name in names for item in name.split(",")]
    table = frame.sparkSession.createDataFrame(rows, "name string, item int").coalesce(1)
    return frame.drop("n").join(F.broadcast(table), "name").selectExpr({KEPT}, "item AS n")
"""
MAPPING = f"""
def transform(frame):
    kept = frame.select({KEPT}, "name")

    def rows(batches):
        for batch in batches:
            batch["n"] = batch["name"].fillna("").str.split(",")
            found = batch.explode("n")
            yield found[found["n"] != ""].astype({{"n": "int32"}}).drop(columns="name")

    return kept.mapInPandas(rows, kept.selectExpr({KEPT}, "int(name) AS n").schema)
"""
JOINED_TO_ITSELF = f"""
def transform(frame):
    parts = [frame.selectExpr({KEPT}, f"get(split(name, ','), {{i}}) AS item") for i in range(3)]
    rows = parts[0].union(parts[1]).union(parts[2]).where("item <> ''")
    return rows.selectExpr({KEPT}, "int(item) AS n")
"""
SQL = """
SELECT _key, _partition, _offset, _record, int(item) AS n
FROM {source} LATERAL VIEW posexplode(split(name, ',')) AS place, item WHERE item <> ''
"""
RULES = """
expectations:
  - type: expect_column_values_to_not_be_in_set
    severity: quarantine
    kwargs: {column: n, value_set: [-2]}
  - type: expect_column_values_to_be_between
    severity: quarantine
    kwargs: {column: n, min_value: 0}
  - type: expect_column_values_to_not_be_null
    kwargs: {column: n}
"""
RECORDS: list[tuple[bytes, str | None]] = [
    (b"good", "1,2"),
    (b"mixed", "5,-1,-2"),
    (b"none", ""),
    (b"bad", "-5,-6"),
    (b"twin", "7,-7"),
    (b"twin", "7,-7"),
    (b"gone", None),
    (b"one", "3"),
]
ROWS = Counter((key, int(n)) for key, name in RECORDS for n in (name or "").split(",") if n)
SETTINGS: dict[str, Any] = {
    "source": {"on_malformed": "quarantine", "tombstones": "drop"},
    "quality": {"quarantine_limit": "none"},
}
SMALL = {"spark.sql.execution.arrow.maxRecordsPerBatch": 2}  # so that a record's rows lie in several batches


def fill(broker: Broker, pipeline: Pipeline) -> None:
    """The records, and one that is malformed, on two partitions; `gone` is a tombstone."""
    create_topic(broker.bootstrap, pipeline.source.topic, 2)
    producer = Producer({"bootstrap.servers": broker.bootstrap}, logger=QUIET_LOG)
    for number, (key, name) in enumerate(RECORDS):
        value = None if name is None else json.dumps({"n": 0, "name": name}).encode()
        producer.produce(pipeline.source.topic, value, key, number % 2, timestamp=at(1, number))
    producer.produce(pipeline.source.topic, b"{", b"broken", 0, timestamp=at(1))
    assert producer.flush(30) == 0


def rows_of(records: list[Record]) -> Counter[tuple[bytes | None, int]]:
    return Counter((r.key, r.json["n"]) for r in records)


def quarantined(broker: Broker, batch: Batch) -> Counter[tuple[bytes | None, str]]:
    """Key and rule of what a batch has in quarantine."""
    assert batch.plan.quarantine is not None
    found = read_all(broker.bootstrap, batch.plan.quarantine.topic)
    ours = [r for r in found if r.headers[-1][1] == str(batch.id).encode()]
    return Counter((r.key, (dict(r.headers)["fencepost-rule"] or b"").decode()) for r in ours)


def accounts_of(batch: Batch) -> Accounts:
    assert batch.written is not None
    found = Accounts.of(batch.plan, batch.written)
    assert found.differences() == []
    return found


SET, BETWEEN = "expect_column_values_to_not_be_in_set(n)", "expect_column_values_to_be_between(n)"


@pytest.mark.parametrize(
    ("transform", "layout"),
    [
        pytest.param(EXPLODING, "output", id="explode"),
        pytest.param(JOINING, "source", id="a join that matches several times", marks=DEEP),
        pytest.param(MAPPING, "source", id="mapInPandas", marks=DEEP),
        pytest.param(JOINED_TO_ITSELF, "output", id="a union of the source with itself", marks=DEEP),
        pytest.param(SQL, "source", id="posexplode in SQL", marks=DEEP),
    ],
)
def test_a_record_is_published_whole_or_quarantined_whole_through_replays(
    transform: str, layout: str, spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    name: str | None = None
    in_sql: Path | None = None

    def pipeline_with(rules: str) -> Pipeline:
        nonlocal in_sql
        if in_sql is not None:
            in_sql.unlink()
        made = make_pipeline(transform, rules, name=name, output={"layout": layout}, spark=SMALL, **SETTINGS)
        if transform is SQL:
            in_sql = made.transform_file.rename(made.folder / "transform.sql")
        return load_pipeline(made.folder)

    pipeline = pipeline_with(RULES)
    name = pipeline.name
    fill(broker, pipeline)
    run(spark, pipeline, day(1))
    base = latest(pipeline, day(1))
    assert base.state is State.PUBLISHED
    whole = {b"good", b"one"}
    assert rows_of(read_all(broker.bootstrap, pipeline.output.topic)) == Counter(
        {row: n for row, n in ROWS.items() if row[0] in whole}
    )
    assert quarantined(broker, base) == {
        (b"mixed", SET): 1,
        (b"bad", BETWEEN): 1,
        (b"twin", BETWEEN): 2,
        (b"broken", "malformed"): 1,
    }
    found = accounts_of(base)
    assert (found.results, found.written, found.failed, found.withheld) == (12, 3, 4, 5)

    replay(spark, pipeline_with(RULES.replace("[-2]", "[-99]").replace("min_value: 0", "min_value: -3")), day(1))
    first = latest(pipeline, day(1))
    whole |= {b"mixed"}
    assert rows_of(read_all(broker.bootstrap, pipeline.output.topic)) == Counter(
        {row: n for row, n in ROWS.items() if row[0] in whole}
    )
    assert quarantined(broker, first) == {(b"bad", BETWEEN): 1, (b"twin", BETWEEN): 2, (b"broken", "malformed"): 1}
    found = accounts_of(first)
    assert (found.read, found.results, found.written, found.failed, found.withheld) == (5, 9, 3, 3, 3)

    replay(spark, pipeline_with(RULES.replace("[-2]", "[-99]").replace("min_value: 0", "min_value: -100")), day(1))
    second = latest(pipeline, day(1))
    assert rows_of(read_all(broker.bootstrap, pipeline.output.topic)) == ROWS, "each row once"
    assert quarantined(broker, second) == {(b"broken", "malformed"): 1}
    assert accounts_of(second).withheld == 0


@pytest.mark.deep
@pytest.mark.parametrize("layout", ["source", "output"])
def test_a_retry_takes_withheld_rows_from_the_marks(
    layout: str, spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    pipeline = make_pipeline(EXPLODING, RULES, output={"layout": layout}, **SETTINGS)
    fill(broker, pipeline)
    plan_batch(pipeline, day(1))
    first = write_job.run_write_job(spark, Deployment.of(pipeline), latest(pipeline, day(1)), SettledTables())
    write_batch(spark, pipeline, day(1))
    batch = latest(pipeline, day(1))
    assert batch.written is not None
    sums = WriteSummary.of(
        first.receipts, first.rules, **batch.written.model_dump(include={"output", "seconds", "written_at"})
    )
    assert (batch.written.topics, batch.written.rules, batch.written.withheld) == (
        sums.topics,
        sums.rules,
        sums.withheld,
    )
    assert batch.written.tasks == sums.tasks
    assert accounts_of(batch).withheld == 5
    assert validate_batch(spark, pipeline, day(1)).details["verdict"] == "passed"


def test_a_transform_that_moves_a_records_rows_apart_is_refused(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    sorting = EXPLODING.rstrip() + '.sortWithinPartitions("n")\n'
    pipeline = make_pipeline(sorting, RULES, **SETTINGS)
    fill(broker, pipeline)
    with pytest.raises(
        SettingsError,
        match=r"do not follow each other: between the rows of the record at topic .*, partition \d, offset \d",
    ):
        plan_and_write(spark, pipeline, day(1))
    assert latest(pipeline, day(1)).state is State.PLANNED
    assert read_all(broker.bootstrap, pipeline.output.topic) == []
    assert read_all(broker.bootstrap, pipeline.quarantine_topic) == []


def test_a_window_withholds_what_the_writers_withhold(spark: Any) -> None:
    """Of a record with failed rows, wherever they are: all but one with the lowest rule. A row without a record stays."""
    from pyspark.sql import functions as F

    from fencepost.rows.whole_records import withheld_rows

    chance = random.Random(2)
    places = [None, *((t, p, n) for t in "ab" for p in range(2) for n in range(15))]
    rows = [(n, *(chance.choice(places) or (None, None, None)), chance.choice([None, None, 0, 1])) for n in range(200)]
    frame = spark.createDataFrame(rows, "n int, t string, p int, o long, rule int").repartition(3)
    alone, place = F.xxhash64("n"), [F.col(name) for name in ("t", "p", "o")]
    withheld = frame.select("n", withheld_rows(F.col("rule"), place, alone).alias("withheld"))
    kept = {row["n"] for row in withheld.where("NOT withheld").collect()}
    assert len(kept) < len(rows)
    for record in places:
        of_place = [(rule, n) for n, *at, rule in rows if tuple(at) == (record or (None, None, None))]
        failed = [rule for rule, _ in of_place if rule is not None]
        left = [rule for rule, n in of_place if n in kept]
        whole = record is None or not failed
        assert left == ([rule for rule, _ in of_place] if whole else [min(failed)]), record


@pytest.mark.parametrize(
    ("transform", "several"),
    [
        ("return frame", False),
        ("return frame.where('n > 0').withColumn('m', frame.n + 1).limit(3)", False),
        ("return frame.join(frame.sparkSession.range(3).toDF('n'), 'n', 'left_semi')", False),
        ("return frame.dropDuplicates(['n'])", False),
        ("return frame.groupBy('_record', 'n').count()", False),
        ("return frame.selectExpr('*', 'row_number() over (partition by n order by _offset) AS place')", False),
        ("return frame.selectExpr('n', 'first(_record) over (partition by n) AS _record')", True),
        ("return frame.join(frame.sparkSession.range(3).toDF('n'), 'n')", True),
        ("return frame.sample(True, 2.0)", True),
        ("return frame.rdd.flatMap(lambda row: [row, row]).toDF(frame.schema)", True),
        ("return frame.cube('n', '_record').count()", True),
    ],
)
def test_the_plan_tells_whether_a_record_may_give_several_rows(spark: Any, transform: str, several: bool) -> None:
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    from fencepost.rows.multiplying import may_multiply

    namespace: dict[str, Any] = {}
    exec(f"def transform(frame):\n    {transform}", namespace)  # noqa: S102
    rows = spark.range(3).selectExpr(
        "id AS n", "id AS _offset", "struct(id AS offset) AS _record", "explode(array(1, 2)) AS x"
    )
    source = rows.observe(Observation("the_source"), F.count(F.lit(1)).alias("rows"))
    assert may_multiply(namespace["transform"](source), "the_source") is several
