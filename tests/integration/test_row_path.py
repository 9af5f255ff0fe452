"""A write, `fencepost try`, the pytest fixture and `fencepost trace` make and flag the same rows of the same records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from conftest import at, day
from fencepost.config.pipeline import Pipeline
from fencepost.errors import FencepostError, RecordRefused, SettingsError
from fencepost.kafka.client_settings import ClientSettings
from fencepost.ledger.deployment import Deployment
from fencepost.model import OffsetRange
from fencepost.preview.trace import location_of, trace_source
from fencepost.preview.trial import Trial, try_pipeline
from fencepost.preview.trial_input import newest, of_interval
from fencepost.rows.row_by_row import RowsMoved, partitions_read, require_read
from fencepost.rows.source import read_ranges
from fencepost.schemas.report import report_schemas
from fencepost.testing.trial import Trials
from fencepost_stack.broker import Broker
from kafka_tools import create_topic, produce, read_all
from steps import latest, plan_and_write, run

Make = Callable[..., Pipeline]

EXPLODING = """
def transform(frame):
    frame.sparkSession.conf.set("my.LAYOUT", "1")
    rows = frame.selectExpr("_key", "_partition", "_offset", "_record", "explode(split(name, ',')) AS item").where("item <> ''")
    return rows.selectExpr("_key", "_partition", "_offset", "_record", "int(item) AS n")
"""
RULES = """
expectations:
  - {type: expect_column_values_to_not_be_in_set, severity: quarantine, description: no 2, kwargs: {column: n, value_set: [-2]}}
  - {type: expect_column_values_to_be_between, severity: quarantine, description: none below 0, kwargs: {column: n, min_value: 0}}
"""
SET, BETWEEN = "expect_column_values_to_not_be_in_set(n)", "expect_column_values_to_be_between(n)"
VALUES: list[tuple[bytes, bytes | None]] = [
    (b"a", b'{"n": 0, "name": "1,2"}'),
    (b"b", b'{"n": 0, "name": "5,-1,-2"}'),
    (b"none", b'{"n": 0, "name": ""}'),
    (b"bad", b"{"),
    (b"gone", None),
    (b"c", b'{"n": 0, "name": "-5,-6"}'),
    (b"d", b'{"n": 0, "name": "3"}'),
]
ROWS = [(b"a", 1), (b"a", 2), (b"d", 3)]
RULE_OF = {b"b": SET, b"c": BETWEEN, b"bad": "malformed"}  # and three rows are withheld: 5 and -1, and one of -5 and -6
LOOSE: dict[str, Any] = {
    "source": {"on_malformed": "quarantine", "tombstones": "drop"},
    "quality": {"quarantine_limit": "none"},
}


@pytest.fixture(scope="module")
def trials(spark: Any) -> Iterator[Trials]:
    """The pytest fixture's own object."""
    with Trials() as made:
        yield made


@pytest.mark.parametrize("layout", ["source", pytest.param("output", marks=pytest.mark.deep)])
def test_each_gives_the_same_rows_and_flags(
    layout: str, spark: Any, broker: Broker, trials: Trials, make_pipeline: Make
) -> None:
    pipeline = make_pipeline(EXPLODING.replace("LAYOUT", layout), RULES, output={"layout": layout}, **LOOSE)
    source = pipeline.source.topic
    create_topic(broker.bootstrap, source, 1)
    produce(broker.bootstrap, source, [(key, value, 0, at(1)) for key, value in VALUES])

    deployment = Deployment.of(pipeline)
    trial = try_pipeline(spark, deployment, of_interval(deployment, day(1)))
    assert spark.conf.get(f"my.{layout}", "") == "", "a trial has a session of its own"
    assert (trial.read, trial.malformed, trial.written, trial.withheld, trial.results) == (7, 1, 3, 3, 8)
    assert {(one.name.split(" ")[0], one.rows) for one in trial.unpublished} == {
        *((SET, 1), (BETWEEN, 1), ("malformed", 1), ("tombstones", 1))
    }
    if layout == "source":
        assert trial.rows == ({"n": "1"}, {"n": "2"})

    outcome = trials(pipeline.folder, [{"_key": key, "_value": value} for key, value in VALUES])
    assert list(zip(outcome.keys, [row and row["n"] for row in outcome.rows], strict=True)) == ROWS
    given = {VALUES[one.given][0]: one.rule for one in outcome.quarantined if one.given is not None}
    assert (given, len(outcome.quarantined)) == (RULE_OF, 3)
    assert (outcome.withheld, outcome.tombstones) == (3, 1)

    run(spark, pipeline, day(1))
    written = latest(pipeline, day(1)).written
    assert written is not None
    records = read_all(broker.bootstrap, pipeline.output.topic)
    assert Counter((r.key, r.json["n"]) for r in records) == Counter(ROWS)
    kept = read_all(broker.bootstrap, pipeline.quarantine_topic)
    assert {r.key: (dict(r.headers)["fencepost-rule"] or b"").decode() for r in kept} == RULE_OF
    assert (len(kept), written.withheld, written.malformed, written.tombstones) == (3, 3, 1, 1)
    if layout == "output":
        return

    view = deployment.ledger.read()
    traced = {
        key: trace_source(spark, deployment, view, location_of("--source", f"{source}:0:{offset}"))
        for offset, (key, _) in enumerate(VALUES)
    }
    for key, found in traced.items():
        places = {f"{pipeline.output.topic}:{r.partition}:{r.offset}" for r in records if r.key == key}
        assert {str(place) for place in found.rows} == places
        assert [one.rule for one in found.kept] == ([RULE_OF[key]] if key in RULE_OF else [])


TWICE = 'def transform(frame):\n    return frame.selectExpr("_key", "_record", "explode(array(n, n + 1)) AS n")'
NOT_ROW_BY_ROW = "under output.layout: source a transform works row by row"


@pytest.mark.parametrize(
    ("transform", "error", "words"),
    [
        pytest.param(
            "def transform(frame):\n    one = frame.select('_key', 'n')\n    return one.union(one)\n",
            SettingsError,
            NOT_ROW_BY_ROW,
            id="a union of the source with itself",
        ),
        pytest.param(
            "def transform(frame):\n    return frame.select('_key', 'n').coalesce(1)\n",
            SettingsError,
            NOT_ROW_BY_ROW,
            id="merged partitions",
            marks=pytest.mark.deep,
        ),
        pytest.param(
            f"{TWICE}.sortWithinPartitions('n')\n",
            SettingsError,
            "do not follow each other: between the rows of the record at topic ",
            id="rows of a record apart",
        ),
        pytest.param(
            "def transform(frame):\n"
            "    frame.createOrReplaceTempView('all_records')\n"
            "    most = frame.sparkSession.sql('SELECT max(n) AS most FROM all_records')\n"
            "    return frame.select('_key', 'n', most.scalar().alias('most'))\n",
            None,
            "",
            id="an aggregate in a subquery",
        ),
        pytest.param(
            'def transform(frame):\n    return frame.selectExpr("_key", "_record", "explode(array(1, -1)) AS n", '
            "\"double('NaN') AS d\")\n",
            RecordRefused,
            "NaN",
            id="a row that does not fit beside one that fails a rule",
            marks=pytest.mark.deep,
        ),
    ],
)
def test_what_fails_a_write_fails_a_trial_and_the_fixture_and_nothing_else_does(
    transform: str,
    error: type[FencepostError] | None,
    words: str,
    spark: Any,
    broker: Broker,
    trials: Trials,
    make_pipeline: Make,
) -> None:
    pipeline = make_pipeline(transform, RULES, **LOOSE)
    create_topic(broker.bootstrap, pipeline.source.topic, 2)
    numbers = [1, 0, 2]
    produce(broker.bootstrap, pipeline.source.topic, [(b"k", {"n": n, "name": "x"}, 0, at(1)) for n in numbers])
    deployment = Deployment.of(pipeline)

    def tried() -> Trial:
        return try_pipeline(spark, deployment, newest(deployment, 10))

    def in_the_fixture() -> Any:
        return trials(pipeline.folder, [{"n": n, "name": "x"} for n in numbers])

    def written() -> Any:
        return plan_and_write(spark, pipeline, day(1))

    if error is None:
        written()
        assert tried().written == len(in_the_fixture().rows) == 3
        return
    for makes in (written, in_the_fixture):
        with pytest.raises(error) as raised:
            makes()
        assert words in str(raised.value)
    if error is SettingsError:
        with pytest.raises(error, match=words):
            tried()
    else:
        assert [words in stop for stop in tried().stops] == [True]


def test_a_transform_gets_the_source_record_only_where_rules_may_need_it(spark: Any, make_pipeline: Make) -> None:
    """`fencepost schema` asks the transform for its types, as a run would."""
    keeps = 'def transform(frame):\n    return frame.selectExpr("_key", "_record", "n")\n'
    assert report_schemas(spark, make_pipeline(keeps, RULES)) == []
    with pytest.raises(SettingsError, match="_record"):
        report_schemas(spark, make_pipeline(keeps))


def test_a_union_of_topics_has_the_ranges_of_each_and_of_nothing_else(spark: Any, broker: Broker) -> None:
    """Also of a range without records. So the task-partition of each Spark partition is known before a job runs."""
    ranges = []
    for topic, partitions in (("union-a", 2), ("union-b", 3)):
        create_topic(broker.bootstrap, topic, partitions)
        produce(broker.bootstrap, topic, [(b"k", {"n": n}, n % partitions, at(1)) for n in range(6)])
        ranges += [OffsetRange(topic=topic, partition=p, start=0, end=2 if p < 2 else 0) for p in range(partitions)]
    settings = ClientSettings({"bootstrap.servers": broker.bootstrap})
    one, other = (
        read_ranges(spark, settings, [part for part in ranges if part.topic == topic], headers=False)
        for topic in ("union-a", "union-b")
    )
    both = other.where("length(value) > 0").select("value").union(one.select("value"))
    assert partitions_read(both) == [*ranges[2:], *ranges[:2]]
    written = both.mapInArrow(lambda batches: batches, "value binary")
    assert require_read(written, ranges) == [*ranges[2:], *ranges[:2]]
    assert written.count() == 8
    for wrong in (both.union(one.select("value")), both.union(spark.range(2).selectExpr("binary('x') AS value"))):
        with pytest.raises(RowsMoved):
            require_read(wrong, ranges)
