"""`source.envelope`: a topic of Debezium's through all four steps. What is published has fixed values; all else is counted."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from conftest import at, day
from envelopes import MYSQL, NO_OP, POSTGRES, TOAST, change, wrapped
from fencepost.config.pipeline import Pipeline
from fencepost.errors import MalformedRecords
from fencepost.ledger.deployment import Deployment
from fencepost.ledger.ledger import Ledger
from fencepost.model import State
from fencepost.preview.trace import location_of, trace_source
from fencepost.quality.quarantine import Accounts
from fencepost.testing.trial import Trials
from fencepost_stack.broker import Broker
from kafka_tools import create_topic, produce, read_all
from steps import latest, plan_and_write, run
from tables import ask

Make = Callable[..., Pipeline]
SUITE = "expectations: [{type: expect_table_row_count_to_be_between, kwargs: {max_value: 100}}]\n"
ROWS = """
def transform(frame):
    types = {f.name: f.dataType.simpleString() for f in frame.schema if f.name in ("_op", "_source")}
    source = "struct<ts:timestamp,lsn:bigint,position:string,db:string,table:string,snapshot:string>"
    assert types == {"_op": "string", "_source": source}, types
    return frame.selectExpr(
        "_key_id", "id", "name", "price", "made_at", "_op AS op", "_source.lsn AS lsn", "_source.table AS table",
        "string(_source.ts) AS ts", "_source.snapshot AS snapshot", "_offset AS at",
    )
"""
COLUMNS = {
    "id": "bigint not null",
    "name": "string not null",
    "price": {"type": "decimal(12,2)", "from": "base64"},
    "made_at": {"type": "timestamp_ntz", "from": "epoch_micros"},
}
SOURCE: dict[str, Any] = {
    "schema": COLUMNS,
    "envelope": "debezium",
    "table": "public.orders",
    "key_format": "json",
    "key": {"id": "bigint not null"},
    "tombstones": "pass",
    "on_malformed": "quarantine",
}
SCHEMA = {
    "type": "struct",
    "fields": [
        {
            "type": "struct",
            "field": side,
            "optional": True,
            "name": "s.public.orders.Value",
            "fields": [
                {"type": "int64", "field": "id", "optional": False},
                {"type": "string", "field": "name", "optional": False},
                {
                    "type": "bytes",
                    "name": "org.apache.kafka.connect.data.Decimal",
                    "parameters": {"scale": "2", "connect.decimal.precision": "12"},
                    "field": "price",
                    "optional": True,
                },
                {"type": "int64", "name": "io.debezium.time.MicroTimestamp", "field": "made_at", "optional": True},
            ],
        }
        for side in ("before", "after")
    ],
    "name": "s.public.orders.Envelope",
}
SCALE_3 = json.dumps(SCHEMA).replace('"scale": "2"', '"scale": "3"')


def row(number: int, name: str | None, price: str = "BNI=", **others: Any) -> str:
    return json.dumps({"id": number, "name": name, "price": price, "made_at": 1_767_225_600_000_001, **others})


def with_schema(text: str) -> str:
    return wrapped(text, json.dumps(SCHEMA))


def key(number: int) -> bytes:
    return json.dumps({"id": number}).encode()


SNAPSHOT = POSTGRES.replace('"snapshot":"false"', '"snapshot":"last"').replace("24023128", "24023100")
MESSAGE = f'{{"op":"m","ts_ms":1,"source":{POSTGRES},"message":{{"prefix":"p","content":"AQ=="}}}}'
# By offset. The second half has its schema beside it.
RECORDS: list[tuple[bytes | None, str | None]] = [
    (key(1), change("r", after=row(1, "one"), source=SNAPSHOT)),
    (key(2), change("c", after=row(2, "two", big="any"))),
    (key(2), change("u", before=row(2, "two"), after=row(2, "zwei", "+w=="))),
    (key(2), change("d", before='{"id":2,"name":null,"price":null}')),
    (key(2), None),
    (None, change("t")),
    (b"p", MESSAGE.replace('"op"', '"op"')),
    (key(9), change("c", after='{"code":"x"}', source=MYSQL)),
    (key(3), with_schema(change("c", after=row(3, "three")))),
    (key(3), with_schema(change("u", after=row(3, "__debezium_unavailable_value")))),
    (key(3), with_schema(change("u", after=row(3, "drei", big="__debezium_unavailable_value")))),
    (key(4), with_schema(row(4, "flat"))),
    (key(5), wrapped(change("c", after=row(5, "five")), SCALE_3)),
    (key(6), with_schema(change("d"))),
]
WHEN = "2026-01-01T00:00:00.000001"
AT = "2026-01-01 00:00:00.123456"


def published(number: int, name: str | None, op: str, offset: int, price: float | None = 12.34, **others: Any) -> Any:
    values = {"id": number, "name": name, "price": price, "made_at": WHEN, "op": op, "lsn": 24023128}
    values |= {"table": "public.orders", "ts": AT, "snapshot": "false", "at": offset}
    return key(number), {**values, **others}


def fill(broker: Broker, pipeline: Pipeline, records: list[tuple[bytes | None, str | None]] = RECORDS) -> None:
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    given = [(k, None if value is None else value.encode(), 0, at(1)) for k, value in records]
    produce(broker.bootstrap, pipeline.source.topic, given)


def test_each_change_is_its_row_and_what_is_no_change_is_counted_or_malformed_by_name(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    """`tombstones: pass` without a column `_tombstone`, since a deletion is there already."""
    output, quality = {"key": "_key_id"}, {"quarantine_limit": "none"}
    pipeline = make_pipeline(ROWS, SUITE, source=SOURCE, output=output, quality=quality)
    fill(broker, pipeline)
    assert run(spark, pipeline, day(1)).state is State.PUBLISHED
    found = [(r.key, r.json) for r in read_all(broker.bootstrap, pipeline.output.topic)]
    wanted = [
        published(1, "one", "read", 0, lsn=24023100, snapshot="last"),
        published(2, "two", "create", 1),
        published(2, "zwei", "update", 2, -0.05),
        published(2, None, "delete", 3, None, made_at=None),
        published(3, "three", "create", 8),
        published(3, "drei", "update", 10),
    ]
    assert sorted(found, key=lambda one: one[1]["at"]) == [(b"%d" % json.loads(k)["id"], value) for k, value in wanted]
    batch = latest(pipeline, day(1))
    assert batch.written is not None
    kinds = {"other_tables": 1, "truncations": 1, "messages": 1, "deletion_tombstones": 1}
    assert batch.written.excluded == kinds
    accounts = Accounts.of(batch.plan, batch.written)
    assert accounts.differences() == []
    assert (accounts.read, accounts.included, accounts.written, accounts.malformed_kept) == (14, 10, 6, 4)
    assert batch.written.tombstones == 0
    aside = read_all(broker.bootstrap, pipeline.quarantine_topic)
    reasons = {dict(r.headers)["fencepost-source"].decode().rpartition(":")[2]: dict(r.headers) for r in aside}
    assert {offset: headers["fencepost-reason"].decode() for offset, headers in reasons.items()} == {
        "9": f"name: {TOAST}",
        "11": NO_OP,
        "12": "field price: the schema has a decimal of scale 3, and source.schema one of scale 2",
        "13": "before: null in a delete, so its row is not known. Set REPLICA IDENTITY FULL for the table, or DEFAULT if it "
        "has a primary key",
    }
    traced = trace_source(
        spark, Deployment.of(pipeline), Ledger(pipeline).peek(), location_of("--source", f"{pipeline.source.topic}:0:4")
    )
    assert traced.found == ("It is excluded: the source reads no tombstones behind deletions.",)


def test_a_topic_that_is_flattened_does_not_pass_as_an_empty_one(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    pipeline = make_pipeline(ROWS, SUITE, source={**SOURCE, "on_malformed": "fail"}, output={"key": "_key_id"})
    fill(broker, pipeline, [(key(1), row(1, "one")), (key(1), None)])
    with pytest.raises(
        MalformedRecords, match=r"1 of 2 records .* first: 0:0\. .*no op: the value is not a Debezium envelope"
    ):
        plan_and_write(spark, pipeline, day(1))


def test_changes_come_into_a_table(spark: Any, broker: Broker, make_table: Make) -> None:
    transform = """
def transform(frame):
    return frame.selectExpr("id", "name", "price", "made_at", "_op AS op", "_source.lsn AS lsn")
"""
    pipeline = make_table(transform, SUITE, source=SOURCE, quality={"quarantine_limit": "none"})
    fill(broker, pipeline, RECORDS[:8])
    assert run(spark, pipeline, day(1)).state is State.PUBLISHED
    made = datetime(2026, 1, 1, 0, 0, 0, 1)  # noqa: DTZ001
    assert ask(pipeline, "select id, name, price, made_at, op, lsn from numbers order by lsn, id, op") == [
        (1, "one", Decimal("12.34"), made, "read", 24023100),
        (2, "two", Decimal("12.34"), made, "create", 24023128),
        (2, None, None, None, "delete", 24023128),
        (2, "zwei", Decimal("-0.05"), made, "update", 24023128),
    ]


def test_tests_of_a_transform_give_changes_by_their_rows(spark: Any, broker: Broker, make_pipeline: Make) -> None:
    columns = '"id", "_op AS op", "_source.lsn AS lsn", "_source.ts AS ts"'
    pipeline = make_pipeline(
        f"def transform(frame):\n    return frame.selectExpr({columns})\n", SUITE, source=SOURCE, output={"key": "id"}
    )
    with Trials() as trials:
        outcome = trials(
            pipeline.folder,
            [
                {"id": 1},
                {"id": 2, "_op": "delete", "_source": {"lsn": 5, "ts": "2026-01-01T00:00:00Z"}},
                {"_value": change("u", after=row(3, "x")).encode(), "_key": key(3)},
                {"_value": None, "_key": key(3)},
                {"_value": change("t").encode(), "_key": key(3)},
                {"_value": row(4, "x").encode(), "_key": key(4)},
            ],
        )
    assert [(one["id"], one["op"], one["lsn"]) for one in outcome.rows] == [
        (1, "create", None),
        (2, "delete", 5),
        (3, "update", 24023128),
    ]
    assert outcome.excluded == {"truncations": 1, "deletion_tombstones": 1}
    assert [(one.given, one.reason) for one in outcome.quarantined] == [(5, NO_OP)]
