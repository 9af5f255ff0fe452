"""`source.key`: the fields of a key in columns, through all four steps, for rows and for tombstones."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from conftest import at, day
from fencepost.config.pipeline import Pipeline
from fencepost.errors import MalformedRecords
from fencepost.model import State
from fencepost.testing.trial import Trials
from fencepost_stack.broker import Broker
from kafka_tools import create_topic, produce, read_all
from steps import latest, plan_and_write, replay, run

Make = Callable[..., Pipeline]
SUITE = "expectations: [{type: expect_table_row_count_to_be_between, kwargs: {max_value: 100}}]\n"
SMALL = "expectations: [{type: expect_column_values_to_be_between, severity: quarantine, kwargs: {column: n, max_value: 9}}]\n"
OF_KEY = (
    'def transform(frame):\n    return frame.selectExpr("_key_id", "_key_of", "_tombstone", "_key_id AS id", "n")\n'
)
KEYS: dict[str, Any] = {"id": "bigint", "of": {"field": "@of", "type": "string"}}
NO_LIMIT: dict[str, Any] = {"quarantine_limit": "none"}


def around(payload: Any) -> bytes:
    """As Kafka Connect's JsonConverter writes a key by default."""
    fields = [{"type": "int64", "optional": False, "field": "id"}, {"type": "string", "optional": True, "field": "@of"}]
    schema = {"type": "struct", "fields": fields, "optional": False, "name": "shop.public.orders.Key"}
    return json.dumps({"schema": schema, "payload": payload}).encode()


def test_fields_of_keys_are_columns_of_rows_and_of_tombstones(spark: Any, broker: Broker, make_pipeline: Make) -> None:
    """With and without a schema beside them. A deletion is nothing but its key."""
    source = {"schema": {"n": "int not null"}, "key_format": "json", "key": KEYS, "tombstones": "pass"}
    pipeline = make_pipeline(OF_KEY, SUITE, source=source, output={"key": "_key_id"})
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    records = [
        (b'{"id":1,"@of":"a"}', {"n": 1}, 0, at(1)),
        (around({"id": 2, "@of": None}), {"n": 2}, 0, at(1)),
        (b'{"id":3}', None, 0, at(1)),
        (around({"id": 4}), None, 0, at(1)),
        (None, {"n": 5}, 0, at(1)),
    ]
    produce(broker.bootstrap, pipeline.source.topic, records)
    assert run(spark, pipeline, day(1)).state is State.PUBLISHED
    found = [(r.key, r.value and r.json) for r in read_all(broker.bootstrap, pipeline.output.topic)]
    assert sorted(found, key=str) == sorted(
        [
            (b"1", {"id": 1, "n": 1}),
            (b"2", {"id": 2, "n": 2}),
            (b"3", None),
            (b"4", None),
            (None, {"id": None, "n": 5}),
        ],
        key=str,
    )


def test_a_key_that_does_not_fit_makes_its_record_malformed_and_hides_no_row_of_a_replay(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    """The row that failed a rule without `_record` has no key in a replay, and its columns of the key may not be null."""
    key = {"id": "bigint not null"}
    source = {"schema": {"n": "int"}, "key_format": "json", "key": key}
    rows = 'def transform(frame):\n    return frame.selectExpr("_key", "_key_id AS id", "n")\n'
    failing = make_pipeline(rows, SMALL, source=source)
    create_topic(broker.bootstrap, failing.source.topic, 1)
    records = [
        (b'{"id":1}', {"n": 1}, 0, at(1)),
        (b'{"id":2}', {"n": 10}, 0, at(1)),
        (b'{"id":"3"}', {"n": 3}, 0, at(1)),
        (None, {"n": 4}, 0, at(1)),
        (b"5", b"{", 0, at(1)),
    ]
    produce(broker.bootstrap, failing.source.topic, records)
    with pytest.raises(MalformedRecords, match=r"3 of 5 records .* first: 0:2, 0:3, 0:4\. .* key: id: not an integer"):
        plan_and_write(spark, failing, day(1))
    source["on_malformed"] = "quarantine"
    pipeline = make_pipeline(rows, SMALL, name=failing.name, source=source, quality=NO_LIMIT)
    assert run(spark, pipeline, day(1)).state is State.PUBLISHED
    assert [(r.key, r.json) for r in read_all(broker.bootstrap, pipeline.output.topic)] == [
        (b'{"id":1}', {"id": 1, "n": 1})
    ]
    aside = read_all(broker.bootstrap, pipeline.quarantine_topic)
    headers = [{name: value.decode() for name, value in record.headers} for record in aside]
    reasons = {one["fencepost-source"][-1:]: one["fencepost-reason"] for one in headers if "fencepost-source" in one}
    assert reasons["2"] == "key: id: not an integer of 64 bits"
    assert reasons["3"] == "key: null, and id is declared not null"
    assert reasons["4"].startswith("not JSON: ")
    kept = sorted((record.key, record.value) for record in aside if record.key is not None)
    assert kept == sorted([(b'{"id":2}', b'{"id":2,"n":10}'), (b'{"id":"3"}', b'{"n": 3}'), (b"5", b"{")])

    mended = make_pipeline(rows, SMALL.replace("9", "99"), name=failing.name, source=source, quality=NO_LIMIT)
    replay(spark, mended, day(1))
    added = latest(mended, day(1))
    assert added.written is not None
    assert (added.written.result_rows, added.written.rows, added.written.malformed) == (1, 1, 3)
    assert [r.json for r in read_all(broker.bootstrap, mended.output.topic) if r.batch == str(added.id)] == [
        {"id": 2, "n": 10}
    ]


def test_tests_of_a_transform_give_keys_or_their_fields(spark: Any, broker: Broker, make_pipeline: Make) -> None:
    source = {"schema": {"n": "int"}, "key_format": "json_schema", "key": KEYS, "tombstones": "pass"}
    pipeline = make_pipeline(OF_KEY, SUITE, source=source, output={"key": "_key_of"})
    with Trials() as trials:
        outcome = trials(
            pipeline.folder,
            [
                {"n": 1, "_key_id": 7, "_key_of": "a"},
                {"_value": b'{"n":2}', "_key": b'\0\0\0\0\x09{"id":8,"@of":"b"}'},
                {"_value": None, "_key": b'\0\0\0\0\x09{"@of":"c"}'},
                {"_value": b'{"n":4}', "_key": b'{"id":9}'},
            ],
        )
    assert outcome.rows == [{"id": 7, "n": 1}, {"id": 8, "n": 2}, None]
    assert outcome.keys == [b"a", b"b", b"c"]
    assert [(one.given, one.reason) for one in outcome.quarantined] == [
        (3, "key: the first byte is 0x7B, not 0: no schema id")
    ]
