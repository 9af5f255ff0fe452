"""What a read_committed consumer sees after the four steps, on a real broker and real Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from conftest import TRANSFORM, at, day
from fencepost.config.pipeline import Pipeline
from fencepost.errors import MalformedRecords, SettingsError
from fencepost.ledger.ledger import Ledger
from fencepost.model import State
from fencepost.rows.transform import select
from fencepost.steps.advance import advance_batch
from fencepost.steps.plan import plan_batch
from fencepost_stack.broker import Broker
from kafka_tools import QUIET_LOG, assert_at_end, create_topic, group_offsets, produce, read_all
from oracle.murmur2 import partition_of
from steps import latest, plan_and_write, run

Make = Callable[..., Pipeline]

AGGREGATE = """
from pyspark.sql import functions as F

def transform(frame):
    return frame.groupBy("_key").agg(F.sum("n").alias("n"), F.count("*").alias("name"))
"""
KEEP_ORDER = """
def transform(frame):
    return frame.select("_key", "_partition", "_offset", "n", "name")
"""


def fill(
    broker: Broker, pipeline: Pipeline, days: int = 2, per_day: int = 40, partitions: int = 2
) -> list[tuple[Any, ...]]:
    """`per_day` records a day over all partitions; some keys are used again and again, so order matters."""
    create_topic(broker.bootstrap, pipeline.source.topic, partitions)
    records = []
    for number in range(1, days + 1):
        for i in range(per_day):
            key = f"k{i % 7}".encode()
            partition = i % 7 % partitions
            records.append((key, {"n": 1000 * number + i, "name": "ü"}, partition, at(number, i * 20 / per_day)))
    produce(broker.bootstrap, pipeline.source.topic, records)
    return records


@pytest.mark.parametrize("layout", ["source", pytest.param("output", marks=pytest.mark.deep)])
def test_output_is_the_source_transformed_record_for_record(
    layout: str, spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    pipeline = make_pipeline(KEEP_ORDER if layout == "output" else TRANSFORM, output={"layout": layout})
    records = fill(broker, pipeline)
    for number in (1, 2):
        run(spark, pipeline, day(number))

    seen = read_all(broker.bootstrap, pipeline.output.topic)
    assert Counter((r.key, r.json["n"]) for r in seen) == Counter((k, v["n"]) for k, v, _, _ in records)
    assert {r.json["name"] for r in seen} == {"ü"}
    assert [r.partition for r in seen] == [partition_of(r.key or b"", 3) for r in seen]
    for key in {r.key for r in seen}:
        mine = [r.json["n"] for r in seen if r.key == key]
        assert mine == [v["n"] for k, v, _, _ in records if k == key], "a key's records are in the source's order"
    assert {r.batch for r in seen} == {str(latest(pipeline, day(n)).id) for n in (1, 2)}


def test_groups_move_with_the_ledger(spark: Any, broker: Broker, make_pipeline: Make) -> None:
    pipeline = make_pipeline()
    fill(broker, pipeline)
    plan_and_write(spark, pipeline, day(1))
    assert group_offsets(broker.bootstrap, pipeline.group, pipeline.source.topic, [0, 1]) == {}
    run(spark, pipeline, day(1))
    batch = latest(pipeline, day(1))
    assert batch.state is State.PUBLISHED
    ends = {r.partition: r.end for r in batch.plan.ranges}
    assert group_offsets(broker.bootstrap, pipeline.group, pipeline.source.topic, [0, 1]) == ends
    topic = pipeline.output.topic
    assert_at_end(broker.bootstrap, pipeline.validated_group, topic, [0, 1, 2])


def test_a_published_interval_run_again_is_a_noop_that_says_so(spark: Any, broker: Broker, make_pipeline: Make) -> None:
    pipeline = make_pipeline()
    fill(broker, pipeline, days=1)
    run(spark, pipeline, day(1))
    before = read_all(broker.bootstrap, pipeline.output.topic)

    again = plan_batch(pipeline, day(1))
    assert (again.changed, again.message) == (False, "already published, revision 1")
    assert plan_and_write(spark, pipeline, day(1)).changed is False
    assert advance_batch(pipeline, day(1)).message == "already published, revision 1"
    assert read_all(broker.bootstrap, pipeline.output.topic) == before


def test_reprocess_makes_a_second_revision_of_the_same_input(spark: Any, broker: Broker, make_pipeline: Make) -> None:
    pipeline = make_pipeline()
    fill(broker, pipeline, days=1)
    run(spark, pipeline, day(1))
    first = latest(pipeline, day(1))
    produce(broker.bootstrap, pipeline.source.topic, [(b"k1", {"n": 5, "name": "late"}, 1, at(1))])

    run(spark, pipeline, day(1), reprocess=True)
    second = latest(pipeline, day(1))
    assert (second.revision, second.state) == (2, State.PUBLISHED)
    assert second.plan.inputs == first.plan.inputs
    assert Ledger(pipeline).read().known(day(1)).all[0].state is State.SUPERSEDED
    seen = Counter(r.batch for r in read_all(broker.bootstrap, pipeline.output.topic))
    assert seen == {str(first.id): 40, str(second.id): 40}


def test_a_request_is_carried_out_once_and_each_other_one_too(spark: Any, broker: Broker, make_pipeline: Make) -> None:
    """As a run has it that is cleared again and again."""
    pipeline = make_pipeline()
    fill(broker, pipeline, days=1)
    run(spark, pipeline, day(1))
    for request, revision in (("backfill 7", 2), ("backfill 8", 3)):
        plan_and_write(spark, pipeline, day(1), reprocess=True)
        assert not plan_batch(pipeline, day(1), reprocess=True, request=request).changed, (
            "it takes over what is under way"
        )
        run(spark, pipeline, day(1))
        again = plan_batch(pipeline, day(1), reprocess=True, request=request)
        assert (again.changed, again.revision, again.state) == (False, revision, State.PUBLISHED)
        assert f"revision {revision} answers the request {request} for reprocess" in again.message
    assert plan_batch(pipeline, day(1), reprocess=True, request="backfill 9").message.startswith("planned revision 4")
    run(spark, pipeline, day(1))
    assert plan_batch(pipeline, day(1), reprocess=True, request="backfill 7").message.startswith("already published")
    assert [batch.requests for batch in Ledger(pipeline).read().known(day(1)).all] == [
        (),
        ("backfill 7",),
        ("backfill 8",),
        ("backfill 9",),
    ]


@pytest.mark.deep
def test_a_late_record_falls_in_the_batch_that_is_open(spark: Any, broker: Broker, make_pipeline: Make) -> None:
    pipeline = make_pipeline()
    fill(broker, pipeline, days=1)
    run(spark, pipeline, day(1))
    produce(broker.bootstrap, pipeline.source.topic, [(b"late", {"n": 1, "name": "late"}, 0, at(1))])
    produce(broker.bootstrap, pipeline.source.topic, [(b"new", {"n": 2, "name": "new"}, 0, at(2))])
    run(spark, pipeline, day(2))
    second = str(latest(pipeline, day(2)).id)
    assert [r.key for r in read_all(broker.bootstrap, pipeline.output.topic) if r.batch == second] == [b"late", b"new"]


def test_an_empty_interval_is_written_and_judged_without_spark(broker: Broker, make_pipeline: Make) -> None:
    pipeline = make_pipeline()
    fill(broker, pipeline, days=1)
    assert run(None, pipeline, day(5)).state is State.PUBLISHED
    batch = latest(pipeline, day(5))
    assert batch.written is not None
    assert (batch.written.rows_in, batch.written.rows) == (0, 0)


def test_an_aggregate_is_written_by_output_partition(spark: Any, broker: Broker, make_pipeline: Make) -> None:
    pipeline = make_pipeline(AGGREGATE, output={"layout": "output"})
    records = fill(broker, pipeline, days=1)
    run(spark, pipeline, day(1))
    wanted: Counter[bytes] = Counter()
    for key, value, _, _ in records:
        wanted[key] += value["n"]
    assert {r.key: r.json["n"] for r in read_all(broker.bootstrap, pipeline.output.topic)} == dict(wanted)


BRACES = r"""
-- It isn't {source}: a comment's quote opens no text.
WITH source AS (SELECT *, regexp_extract(name, '(x{2,3})', 1) AS xs /* {0} "{ */ FROM {source})
SELECT _key, n, xs, get_json_object('{"a": {"b": "{source}"}}', '$.a.b') AS b, r'\d{1}' AS raw, "{}'" AS `c{n}` FROM source
"""


@pytest.mark.deep
def test_braces_in_a_sql_transform_are_data(spark: Any, broker: Broker, make_pipeline: Make) -> None:
    pipeline = make_pipeline()
    pipeline.transform_file.unlink()
    (pipeline.folder / "transform.sql").write_text(BRACES)
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    produce(broker.bootstrap, pipeline.source.topic, [(b"k", {"n": 1, "name": "axxb"}, 0, at(1))])
    run(spark, pipeline, day(1))
    wanted = {"n": 1, "xs": "xx", "b": "{source}", "raw": r"\d{1}", "c{n}": "{}'"}
    assert [r.json for r in read_all(broker.bootstrap, pipeline.output.topic)] == [wanted]
    assert not spark.catalog.tableExists("source"), "the view is gone again"


def test_plain_source_is_the_source_too(spark: Any) -> None:
    assert [tuple(r) for r in select(spark, "SELECT id + 1 FROM source", {"source": spark.range(2)}).collect()] == [
        (1,),
        (2,),
    ]


def test_a_transform_that_shuffles_is_refused_under_layout_source(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    pipeline = make_pipeline(AGGREGATE)
    fill(broker, pipeline, days=1)
    plan_batch(pipeline, day(1))
    with pytest.raises(SettingsError, match=r"output\.layout: output"):
        plan_and_write(spark, pipeline, day(1))
    assert read_all(broker.bootstrap, pipeline.output.topic) == []


def test_malformed_records_stop_the_batch_and_are_named(spark: Any, broker: Broker, make_pipeline: Make) -> None:
    pipeline = make_pipeline()
    create_topic(broker.bootstrap, pipeline.source.topic, 2)
    bad = [b"{", b"[]", b"null", b"", b'{"n": "x"}', b'{"n": 1.5}', b"\xff\xfe", b'{"n": 1} trailing', b"3"]
    bad += [b'{"n": 1} {"n": 2}', b'{"n": 1},{"n": 2}', b'{"n": 1}]', b'{"n": 1}]{}']
    good = [(b"k", {"n": 1, "name": "a"}, 0, at(1))]
    produce(broker.bootstrap, pipeline.source.topic, [*good, *((b"k", b, 1, at(1)) for b in bad)])
    with pytest.raises(MalformedRecords, match="13 of 14 records") as raised:
        plan_and_write(spark, pipeline, day(1))
    assert ", ".join(f"1:{i}" for i in range(13)) in str(raised.value)

    dropping = make_pipeline(name=pipeline.name, source={"on_malformed": "drop"})
    run(spark, dropping, day(1))
    written = latest(dropping, day(1)).written
    assert written is not None
    assert (written.rows_in, written.rows, written.malformed) == (14, 1, 13)
    assert written.malformed_at == tuple((pipeline.source.topic, 1, i) for i in range(13))


EMPTY = """
def transform(frame):
    return frame.select("_key", "n", "name"){}
"""


@pytest.mark.parametrize("severity", ["quarantine", "critical"])
@pytest.mark.parametrize("empties", ['.where("false")', ".limit(0)"])
def test_a_result_that_spark_knows_to_be_empty_is_written_without_rows(
    spark: Any, broker: Broker, make_pipeline: Make, empties: str, severity: str
) -> None:
    """Spark plans no task for it, and reads nothing. The records are counted and the malformed ones kept all the same."""
    rule = f'[{{"type": "expect_column_values_to_not_be_null", "kwargs": {{"column": "n"}}, "severity": "{severity}"}}]'
    sections: dict[str, Any] = {"output": {"layout": "output"}, "source": {"on_malformed": "quarantine"}}
    pipeline = make_pipeline(
        EMPTY.format(empties), f'{{"expectations": {rule}}}', quality={"quarantine_limit": "none"}, **sections
    )
    create_topic(broker.bootstrap, pipeline.source.topic, 2)
    records: list[Any] = [(b"k%d" % n, {"n": n, "name": "a"}, n % 2, at(1)) for n in range(10)]
    produce(broker.bootstrap, pipeline.source.topic, [*records, (b"bad", b"{", 1, at(1))])
    run(spark, pipeline, day(1))
    batch = latest(pipeline, day(1))
    assert batch.state is State.PUBLISHED
    assert batch.written is not None
    results = 0 if severity == "quarantine" else None
    assert (batch.written.rows_in, batch.written.rows, batch.written.results) == (11, 0, results)
    assert batch.written.quarantined == {"malformed": 1}
    assert read_all(broker.bootstrap, pipeline.output.topic) == []


def test_tombstones_timestamps_and_headers_can_be_kept(spark: Any, broker: Broker, make_pipeline: Make) -> None:
    keep = (
        'def transform(frame):\n    return frame.select("_key", "_timestamp", "_headers", "_tombstone", "n", "name")\n'
    )
    pipeline = make_pipeline(
        keep,
        source={"headers": True, "tombstones": "pass"},
        output={"timestamp": "_timestamp", "headers": "_headers", "publish": "direct"},
    )
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap}, logger=QUIET_LOG)
    headers = [("trace", b"1"), ("trace", b"2"), ("fencepost-batch", b"another/pipeline")]
    producer.produce(pipeline.source.topic, b'{"n": 1}', b"a", timestamp=at(1), headers=headers)
    producer.produce(pipeline.source.topic, None, b"a", timestamp=at(1) + 1)
    assert producer.flush(10) == 0
    plan_and_write(spark, pipeline, day(1))

    kept, tombstone = read_all(broker.bootstrap, pipeline.output.topic)
    assert kept.timestamp == at(1)
    assert kept.headers == (
        ("trace", b"1"),
        ("trace", b"2"),
        ("fencepost-batch", str(latest(pipeline, day(1)).id).encode()),
    )
    assert kept.json == {"n": 1, "name": None}
    assert (tombstone.value, tombstone.timestamp) == (None, at(1) + 1)


def test_bytes_go_through_untouched(spark: Any, broker: Broker, make_pipeline: Make) -> None:
    pipeline = make_pipeline(
        "def transform(frame):\n    return frame\n",
        "expectations:\n  - type: expect_table_row_count_to_equal\n    kwargs: {value: 3}\n",
        source={"format": "bytes", "schema": {}},
        output={"format": "bytes"},
    )
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    values = [b"\x00\xff", b"", b"x" * 500_000]
    produce(broker.bootstrap, pipeline.source.topic, [(b"k", v, 0, at(1)) for v in values])
    run(spark, pipeline, day(1))
    assert [r.value for r in read_all(broker.bootstrap, pipeline.output.topic)] == values
