"""Hostile records, through all four steps on a real broker: each is malformed or comes out exactly, and which is stated.

Under `fail` nothing advances and the error counts the malformed ones; under `drop` they are counted and all others come out. What
Spark would read in its own way and change in silence is malformed here: what follows the first object, half a character, a
time without a day.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from conftest import at, day
from fencepost.advance import advance_batch
from fencepost.errors import MalformedRecords, RecordRefused, TransitionRefused
from fencepost.local.broker import Broker
from fencepost.model import State
from fencepost.settings import Pipeline
from kafka_tools import QUIET_LOG, create_topic, group_offsets, read_all
from steps import latest, plan_and_write, run

Make = Callable[..., Pipeline]

SCHEMA = {
    "n": "int",
    "big": "bigint",
    "d": "double",
    "s": "string",
    "t": "timestamp",
    "day": "date",
    "b": "binary",
    "dec": "decimal(5,2)",
    "list": "array<int>",
    "map": "map<string,int>",
    "st": "struct<a: struct<b: int>>",
    "ok": "boolean",
}
SAME = "def transform(frame):\n    return frame.select('_key', '_partition', '_offset', '_headers', {columns})\n"
SAME = SAME.format(columns=", ".join(map(repr, SCHEMA)))
SUITE = "expectations:\n  - type: expect_column_to_exist\n    kwargs: {column: n}\n"
SUITE += "  - type: expect_column_value_lengths_to_be_between\n    kwargs: {column: s, max_value: 1000000}\n"

# The value, and the fields that come out of it; all others are null.
GOOD: dict[bytes, dict[str, Any]] = {
    b"{}": {},
    b' \t\r\n{"n": 1}\n ': {"n": 1},
    b'{"n": null, "unknown": {"a": [1]}}': {},
    b'{"N": 1}': {},
    b'{"n": 1, "n": 2}': {"n": 2},
    b'{"n": -2147483648, "big": 9223372036854775807}': {"n": -2147483648, "big": 9223372036854775807},
    b'{"d": 1e-400}': {"d": 0.0},
    b'{"d": -0.0}': {"d": -0.0},
    b'{"s": ""}': {"s": ""},
    b'{"s": 5}': {"s": "5"},
    b'{"s": {"a": [1, null]}}': {"s": '{"a":[1,null]}'},
    b'{"s": "a\\u0000b\\n\\"\\\\ud800"}': {"s": 'a\0b\n"\\ud800'},
    b'{"s": "\\ud83d\\ude00\xf0\x9f\x98\x80"}': {"s": "\U0001f600\U0001f600"},
    b'{"s": "12:00"}': {"s": "12:00"},
    b'{"s": "' + b"x" * 900_000 + b'"}': {"s": "x" * 900_000},
    b'{"unknown": ' + b"[" * 900 + b"]" * 900 + b"}": {},
    b'{"t": "2026-01-01T01:02:03.123456+01:00"}': {"t": "2026-01-01T00:02:03.123456Z"},
    b'{"t": "2026-01-01"}': {"t": "2026-01-01T00:00:00.000000Z"},
    b'{"t": "9999-12-31T23:59:59.999999Z"}': {"t": "9999-12-31T23:59:59.999999Z"},
    b'{"t": "0001-01-01T00:00:00Z"}': {"t": "0001-01-01T00:00:00.000000Z"},
    b'{"day": "2024-02-29"}': {"day": "2024-02-29"},
    b'{"b": "AP8="}': {"b": "AP8="},
    b'{"dec": 1.5}': {"dec": 1.5},
    b'{"list": [], "map": {}}': {"list": [], "map": {}},
    b'{"list": [1, null], "map": {"a": null, "": 1}}': {"list": [1, None], "map": {"a": None, "": 1}},
    b'{"st": null}': {},
    b'{"st": {"a": null}}': {"st": {"a": None}},
    b'{"st": {"a": {"b": null}}}': {"st": {"a": {"b": None}}},
    b'{"ok": true}': {"ok": True},
}
BAD = [
    *(b"", b" ", b"null", b"3", b'"x"', b"[]", b'[{"n": 1}]', b"{", b'{"n": 1', b'{"n": 1,}', b'{"n": 1 "s": 2}'),
    *(b"{n: 1}", b'{"n": 01}', b'{"n": +1}', b'{"n": 0x1}', b'{"n": NaN}', b'{"d": Infinity}', b'/**/{"n": 1}', b'{"n": 1}//'),
    *(b'{"n": 1} trailing', b'{"n": 1} {"n": 2}', b'{"n": 1},{"n": 2}', b'{"n": 1}]', b'{"n": 1}]{}', b'\xc2\xa0{"n": 1}'),
    *(b'{"n": "5"}', b'{"n": true}', b'{"n": 1.5}', b'{"n": 2147483648}', b'{"big": 9223372036854775808}', b'{"n": {}}'),
    *(b'{"big": ' + b"9" * 5000 + b"}", b'{"' + b"k" * 100_000 + b'": 1}', b'{"ok": "true"}', b'{"d": "1.5"}'),
    *(b'{"dec": 99999.5}', b'{"b": "!"}', b'{"list": ["x"]}', b'{"list": 1}', b'{"map": {"a": "x"}}', b'{"st": [{}]}'),
    *(b'{"t": "2026-02-30T00:00:00Z"}', b'{"t": "now"}', b'{"t": "12:00"}', b'{"t": "T12"}', b'{"t": "\\u0031:00"}'),
    *(b'{"day": "2026-02-30"}', b'{"day": 3}', b'{"s": "a\nb"}', b'{"s": "a\x01b"}', b'{"s": "\\q"}'),
    *(b'{"s": "\\ud800"}', b'{"s": "\\udc00"}', b'{"s": "\\ude00\\ud83d"}', b'{"s": "\\\\\\ud800"}'),
    *(b'{"s": "\xff"}', b'{"s": "\xc0\xaf"}', b'{"s": "\xed\xa0\x80"}', b'\xef\xbb\xbf{"n": 1}', '{"n": 1}'.encode("utf-16")),
    *(b"[" * 100_000, b'{"a":' * 3000, b'{"unknown": ' + b"[" * 3000 + b"]" * 3000 + b"}"),
]  # fmt: skip
KEYS = [None, b"", b"k", b"\xff\xfe", b"k" * 10_000]
HEADERS = [("h", b"1"), ("h", b"1"), ("h", None), ("", b"\xff"), ("fencepost-batch", b"another/batch")]


def fill(broker: Broker, pipeline: Pipeline) -> None:
    """Good and bad ones by turns on two partitions, and tombstones; every key, headers doubled and without a value."""
    create_topic(broker.bootstrap, pipeline.source.topic, 2)
    producer = Producer({"bootstrap.servers": broker.bootstrap}, logger=QUIET_LOG)
    values = [*GOOD, None, *BAD, None]
    for number, value in enumerate(values):
        key = KEYS[number % len(KEYS)]
        producer.produce(pipeline.source.topic, value, key, partition=number % 2, timestamp=at(1), headers=HEADERS)
    assert producer.flush(30) == 0


def expected() -> Counter[tuple[bytes | None, str]]:
    """Key and fields of all that comes out; a tombstone's fields are null."""
    nothing = dict.fromkeys(SCHEMA)
    values = [*GOOD.values(), {}, *(None for _ in BAD), {}]
    return Counter(
        (KEYS[number % len(KEYS)], json.dumps({**nothing, **fields}))
        for number, fields in enumerate(values)
        if fields is not None
    )


@pytest.mark.parametrize("layout", ["source", "output"])
def test_each_record_is_malformed_or_comes_out_exactly(
    layout: str, spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    settings: dict[str, Any] = {"schema": SCHEMA, "headers": True}
    output = {"layout": layout, "headers": "_headers"}
    failing = make_pipeline(SAME, SUITE, source=settings, output=output)
    fill(broker, failing)
    total = len(GOOD) + len(BAD) + 2
    with pytest.raises(MalformedRecords, match=rf"{len(BAD)} of {total} records"):
        plan_and_write(spark, failing, day(1))
    with pytest.raises(TransitionRefused):
        advance_batch(failing, day(1))
    assert latest(failing, day(1)).state is State.PLANNED
    assert group_offsets(broker.bootstrap, failing.group, failing.source.topic, [0, 1]) == {}

    dropping = make_pipeline(SAME, SUITE, name=failing.name, source={**settings, "on_malformed": "drop"}, output=output)
    run(spark, dropping, day(1))
    batch = latest(dropping, day(1))
    assert batch.state is State.PUBLISHED
    assert batch.written is not None
    assert (batch.written.rows_in, batch.written.malformed, batch.written.rows) == (total, len(BAD), len(GOOD) + 2)
    own = [r for r in read_all(broker.bootstrap, dropping.output.topic) if r.batch == str(batch.id)]
    assert Counter((r.key, json.dumps(r.json)) for r in own) == expected()
    assert {r.headers for r in own} == {(*HEADERS[:-1], ("fencepost-batch", str(batch.id).encode()))}
    ends = {r.partition: r.end for r in batch.plan.ranges}
    assert group_offsets(broker.bootstrap, dropping.group, dropping.source.topic, [0, 1]) == ends


LONG = """
from pyspark.sql import functions as F
def transform(frame):
    digits = F.concat_ws("", F.transform(F.sequence(F.lit(1), F.lit(LENGTH)), lambda i: F.sha2(i.cast("string"), 256)))
    return frame.select("_key", "n", digits.alias("name"))
"""


def test_a_record_beyond_the_topics_limit_is_refused_until_transform_or_limit_is_mended(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    """librdkafka takes it, the broker does not: its topic allows less than message.max.bytes. Both ways out are tried."""
    pipeline = make_pipeline(LONG.replace("LENGTH", "2000"))
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    create_topic(broker.bootstrap, pipeline.output.topic, 1, **{"max.message.bytes": "20000"})
    producer = Producer({"bootstrap.servers": broker.bootstrap}, logger=QUIET_LOG)
    producer.produce(pipeline.source.topic, b'{"n": 1}', b"k", timestamp=at(1))
    assert producer.flush(30) == 0
    with pytest.raises(RecordRefused, match=r"make the transform write less") as raised:
        plan_and_write(spark, pipeline, day(1))
    assert str(latest(pipeline, day(1)).id) in str(raised.value)
    assert read_all(broker.bootstrap, pipeline.output.topic) == []
    assert group_offsets(broker.bootstrap, pipeline.group, pipeline.source.topic, [0]) == {}

    mended = make_pipeline(LONG.replace("LENGTH", "2"), name=pipeline.name)
    assert run(spark, mended, day(1)).state is State.PUBLISHED
    assert [len(r.json["name"]) for r in read_all(broker.bootstrap, mended.output.topic)] == [2 * 64]

    allow(broker, pipeline.output.topic, "1000000")
    again = make_pipeline(LONG.replace("LENGTH", "2000"), name=pipeline.name)
    assert run(spark, again, day(1), reprocess=True).state is State.PUBLISHED
    assert len(read_all(broker.bootstrap, again.output.topic)[-1].json["name"]) == 2000 * 64


def allow(broker: Broker, topic: str, largest: str) -> None:
    """Set a topic's max.message.bytes."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap}, logger=QUIET_LOG)
    entry = ConfigEntry("max.message.bytes", largest, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(20)
