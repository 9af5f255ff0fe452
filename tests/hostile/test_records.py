"""Hostile records, through all four steps on a real broker: each is malformed or comes out exactly, and which is stated.

Under `fail` nothing advances and the error counts the malformed ones; under `drop` they are counted and all others come out;
under `quarantine` they are kept as they are.
`unit/test_json_decoder.py` has the decoder's other cases, without Spark.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from conftest import at, day
from fencepost.config.pipeline import Pipeline
from fencepost.errors import MalformedRecords, RecordRefused, SettingsError, TransitionRefused
from fencepost.formats.json import Json
from fencepost.model import State
from fencepost.rows.decode import is_malformed, read_source
from fencepost.rows.encode import output_columns, parse_output
from fencepost.rows.transform import value_schema
from fencepost.steps.advance import advance_batch
from fencepost_stack.broker import Broker
from kafka_tools import QUIET_LOG, Record, create_topic, group_offsets, produce, read_all
from oracle.json_reader import NotSo, read_record
from oracle.json_writer import SCHEMA as GENERATED
from oracle.json_writer import generate
from steps import latest, plan_and_write, records_of, run

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
    "i8": "tinyint",
    "f": "float",
    "days": "array<date>",
    "times": "map<string,array<struct<t: timestamp>>>",
    "ntz": "timestamp_ntz",
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
    b'{"n": -0}': {"n": 0},
    b'{"' + b"k" * 100_000 + b'": 1}': {},
    b'{"unknown": 1e400, "more": ' + b"9" * 5000 + b"}": {},
    b'{"i8": -128}': {"i8": -128},
    b'{"n": -2147483648, "big": 9223372036854775807}': {"n": -2147483648, "big": 9223372036854775807},
    b'{"d": 1e-400}': {"d": 0.0},
    b'{"d": -0.0}': {"d": -0.0},
    b'{"s": ""}': {"s": ""},
    b'{"s": 5}': {"s": "5"},
    b'{"s": 1.10}': {"s": "1.10"},
    b'{"s": 12345678901234567890123456}': {"s": "12345678901234567890123456"},
    b'{"s": 1e400}': {"s": "1e400"},
    b'{"s": true}': {"s": "true"},
    b'{"s" : {"a": [1.10, null], "b": "\\u00e9"} }': {"s": '{"a": [1.10, null], "b": "\\u00e9"}'},
    b'{"s": [] }': {"s": "[]"},
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
    b'{"dec": 1e2}': {"dec": 100.0},
    b'{"dec": 1.1000}': {"dec": 1.1},
    b'{"f": 16777217}': {"f": 16777216.0},
    b'{"t": "2026-01-01 01:02"}': {"t": "2026-01-01T01:02:00.000000Z"},
    b'{"t": "2026-01-01T01:02:03.1234560+0130"}': {"t": "2025-12-31T23:32:03.123456Z"},
    b'{"t": "2026-01-01t01:02:03z"}': {"t": "2026-01-01T01:02:03.000000Z"},
    b'{"ntz": "2026-01-01T01:02:03.5"}': {"ntz": "2026-01-01T01:02:03.500000"},
    b'{"days": ["2024-02-29", null]}': {"days": ["2024-02-29", None]},
    b'{"times": {"a": [{"t": "2026-01-01"}, {}]}}': {
        "times": {"a": [{"t": "2026-01-01T00:00:00.000000Z"}, {"t": None}]}
    },
    b'{"list": [], "map": {}}': {"list": [], "map": {}},
    b'{"list": [1, null], "map": {"a": null, "": 1}}': {"list": [1, None], "map": {"a": None, "": 1}},
    b'{"map": {"' + b"k" * 50_000 + b'": 1}}': {"map": {"k" * 50_000: 1}},
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
    *(b'{"big": ' + b"9" * 5000 + b"}", b'{"ok": "true"}', b'{"d": "1.5"}'),
    *(b'{"dec": 99999.5}', b'{"b": "!"}', b'{"list": ["x"]}', b'{"list": 1}', b'{"map": {"a": "x"}}', b'{"st": [{}]}'),
    *(b'{"t": "2026-02-30T00:00:00Z"}', b'{"t": "now"}', b'{"t": "12:00"}', b'{"t": "T12"}', b'{"t": "\\u0031:00"}'),
    *(b'{"day": "2026-02-30"}', b'{"day": 3}', b'{"s": "a\nb"}', b'{"s": "a\x01b"}', b'{"s": "\\q"}'),
    *(b'{"s": "\\ud800"}', b'{"s": "\\udc00"}', b'{"s": "\\ude00\\ud83d"}', b'{"s": "\\\\\\ud800"}'),
    *(b'{"s": "\xff"}', b'{"s": "\xc0\xaf"}', b'{"s": "\xed\xa0\x80"}', b'\xef\xbb\xbf{"n": 1}', '{"n": 1}'.encode("utf-16")),
    *(b'{"n": 1, "n": 2}', b'{"n": 1, "\\u006e": 1}', b'{"unknown": [{"a": 1, "a": 1}]}', b'{"map": {"a": 1, "a": 2}}'),
    *(b'{"n": 1.0}', b'{"n": 1e2}', b'{"i8": 200}', b'{"i8": -129}', b'{"list": [2147483648]}'),
    *(b'{"st": {"a": {"b": 2147483648}}}', b'{"dec": 1.005}', b'{"dec": "1,234.5"}'),
    *(b'{"d": 1e400}', b'{"f": 1e39}', b'{"d": "Infinity"}', b'{"d": "NaN"}', b'{"s": NaN}'),
    *(b'{"dec": "1.5"}', b'{"day": "2024-02-29 junk"}', b'{"day": "2024"}', b'{"day": "2024-2-29"}', b'{"days": ["2023-02-29"]}'),
    *(b'{"t": "2026"}', b'{"t": "2026-01-01T12"}', b'{"t": "2026-01-01T24:00"}', b'{"t": 0}', b'{"s": 01}'),
    *(b'{"t": "2026-01-01T00:00:00.1234567Z"}', b'{"s": [1.10,]}', b'{"s": {"a": 1, "a": 1}}'),
    *(b'{"t": "2026-01-01T00:00:00CET"}', b'{"t": "2026-01-01T00:00:00+19:00"}', b'{"t": "9999-12-31T23:59:59-01:00"}'),
    *(b'{"ntz": "2026-01-01T00:00:00Z"}', b'{"times": {"a": [{"t": "12:00"}]}}', b'{"t": "12:00", "t": "2026-01-01"}'),
    *(b'{"t": "\\u0001 12:00"}', b'{"b": "AP8"}', b'{"b": "QR=="}', b'{"\\ud800": 1}', b'{"unknown": ["\\udc00"]}'),
    *(b'{"map": {"' + b"k" * 50_001 + b'": 1}}', b'{"map": {"' + "\u20ac".encode() * 16_667 + b'": 1}}'),
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
    """Key and fields of all that comes out: neither the malformed nor the tombstones."""
    nothing = dict.fromkeys(SCHEMA)
    values = [*GOOD.values(), None, *(None for _ in BAD), None]
    return Counter(
        (KEYS[number % len(KEYS)], json.dumps({**nothing, **fields}))
        for number, fields in enumerate(values)
        if fields is not None
    )


@pytest.mark.parametrize("layout", [pytest.param("source", marks=pytest.mark.deep), "output"])
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

    settings |= {"on_malformed": "drop", "tombstones": "drop"}
    dropping = make_pipeline(SAME, SUITE, name=failing.name, source=settings, output=output)
    run(spark, dropping, day(1))
    batch = latest(dropping, day(1))
    assert batch.state is State.PUBLISHED
    assert batch.written is not None
    assert (batch.written.rows_in, batch.written.malformed, batch.written.rows) == (total, len(BAD), len(GOOD))
    assert batch.written.tombstones == 2
    own = [r for r in read_all(broker.bootstrap, dropping.output.topic) if r.batch == str(batch.id)]
    assert Counter((r.key, json.dumps(r.json)) for r in own) == expected()
    assert {r.headers for r in own} == {(*HEADERS[:-1], ("fencepost-batch", str(batch.id).encode()))}
    ends = {r.partition: r.end for r in batch.plan.ranges}
    assert group_offsets(broker.bootstrap, dropping.group, dropping.source.topic, [0, 1]) == ends


NONE_PASSES = SUITE + "  - {type: expect_expression_to_be_true, severity: quarantine, kwargs: {expression: 1 = 0}}\n"


def test_each_record_lies_in_quarantine_byte_for_byte(spark: Any, broker: Broker, make_pipeline: Make) -> None:
    """The malformed ones by the second job, all others because a rule says so that nothing passes; tombstones too."""
    pipeline = make_pipeline(
        "def transform(frame):\n    return frame\n",
        NONE_PASSES,
        source={"schema": SCHEMA, "on_malformed": "quarantine", "tombstones": "pass"},
        quality={"quarantine_limit": "none"},
    )
    fill(broker, pipeline)
    run(spark, pipeline, day(1))
    batch = latest(pipeline, day(1))
    assert batch.state is State.PUBLISHED
    assert batch.written is not None
    assert batch.written.quarantined == {"malformed": len(BAD), "expect_expression_to_be_true": len(GOOD) + 2}
    assert read_all(broker.bootstrap, pipeline.output.topic) == []
    source = read_all(broker.bootstrap, pipeline.source.topic)
    kept = read_all(broker.bootstrap, pipeline.quarantine_topic)

    def seen_as(record: Record, headers: int) -> tuple[Any, ...]:
        return record.key, record.value, record.timestamp, record.headers[:headers]

    assert Counter(seen_as(r, len(HEADERS)) for r in kept) == Counter(seen_as(r, len(HEADERS)) for r in source)
    assert {r.headers[-1] for r in kept} == {("fencepost-batch", str(batch.id).encode())}
    places = Counter(dict(r.headers)["fencepost-source"].decode() for r in kept)
    assert places == Counter(f"{pipeline.source.topic}:{r.partition}:{r.offset}" for r in source)


SQL = {f.name: f.dataType.simpleString() for f in from_arrow_schema(GENERATED, prefer_timestamp_ntz=True).fields}


@pytest.mark.deep
def test_what_spark_writes_of_generated_records_says_what_came_in(spark: Any, make_pipeline: Make) -> None:
    """Each that is not malformed, written as JSON and read by a parser that keeps number texts, says the same again; so it
    does where the gate reads it.
    """
    pipeline = make_pipeline("def transform(frame):\n    return frame\n", source={"schema": SQL})
    random = Random(7)
    values = [generate(random) for _ in range(400)]
    rows = [(None, bytearray(v), "t", 0, n, datetime.now(UTC)) for n, v in enumerate(values)]
    raw = spark.createDataFrame(
        rows, "key binary, value binary, topic string, partition int, offset long, timestamp timestamp"
    )
    frame = read_source(raw.coalesce(1), pipeline.source)
    counts = frame.groupBy(is_malformed()).count().collect()
    assert min(c["count"] for c in counts) > 100
    good = frame.where(~is_malformed())
    written = records_of(good, pipeline).collect()
    out = {row["_offset"]: bytes(row["value"]) for row in written}
    values_again = spark.createDataFrame([(row["value"],) for row in written], "value binary").coalesce(1)
    read = parse_output(values_again, pipeline.output.format, value_schema(pipeline, good))
    assert repr(read.collect()) == repr(good.select(read.columns).collect())
    for offset, value in enumerate(values):
        try:
            said = read_record(GENERATED, [], value)
        except NotSo:
            assert offset not in out, value
        else:
            assert read_record(GENERATED, [], out[offset]) == said, value


@pytest.mark.parametrize(
    "column",
    [
        "repeat('x', 20000001)",
        "map('', map(repeat('k', 50000), 1))",
        "named_struct('a', 1, 'A', 2, 'a.b', 3, '', 4)",
        "array(float('-0.0'), float('1.4E-45'), double('1.7976931348623157E308'))",
        "map('k', NULL)",
        "cast('1e-38' AS decimal(38,38))",
    ],
)
def test_what_is_written_is_read_back_as_it_was_to_be_judged(column: str, spark: Any, make_pipeline: Make) -> None:
    frame = spark.sql(f"SELECT X'00' AS _key, {column} AS odd")
    pipeline = make_pipeline()
    spark.conf.set("spark.sql.columnNameOfCorruptRecord", "odd")  # whatever a pipeline's Spark settings say
    try:
        read = parse_output(records_of(frame, pipeline), pipeline.output.records.format, value_schema(pipeline, frame))
        assert repr(read.select("odd").collect()) == repr(frame.select("odd").collect())
    finally:
        spark.conf.unset("spark.sql.columnNameOfCorruptRecord")


@pytest.mark.parametrize(
    "column",
    [
        "map(X'00', 1)",
        "map(1, 1)",
        "map(1.10BD, X'00FF')",
        "map(true, 1)",
        "map(date'2026-01-01', 1)",
        "array(map(timestamp'2026-01-01 00:00:00', 1))",
        "named_struct('a', map('k', map(array(1), 1)))",
        "named_struct('a', 1, 'a', 2)",
        "array(time'12:00:00')",
        "parse_json('1')",
        "array(map('k', parse_json('{}')))",
    ],
)
def test_a_result_that_json_cannot_say_is_refused(column: str, spark: Any, make_pipeline: Make) -> None:
    frame = spark.sql(f"SELECT X'00' AS _key, {column} AS odd")
    with pytest.raises(SettingsError, match=r"column 'odd' has .+, which JSON cannot express"):
        records_of(frame, make_pipeline())


@pytest.mark.parametrize(
    ("column", "kind", "of"),
    [
        ("text", "map<string,int>", "odd"),
        ("concat('{\"x\":[null,', text, ']}')", "struct<x: array<map<string,int>>>", "odd.x[]"),
        ("concat('{\"k\":', text, '}')", "map<string,map<string,int>>", "odd{}"),
    ],
)
def test_a_map_with_a_name_twice_is_refused_by_field(
    column: str, kind: str, of: str, spark: Any, make_pipeline: Make
) -> None:
    """As a source's record it is malformed. Spark reads it, and its SQL functions refuse it only where they make a map."""
    texts = spark.createDataFrame([('{"a":1,"a":2}',), ('{"a":1,"A":2}',), (None,)], "text string").coalesce(1)
    frame = texts.select(F.lit(b"k").alias("_key"), F.expr(f"from_json({column}, '{kind}')").alias("odd"))
    columns = output_columns(frame, make_pipeline(), None)
    rows = frame.select(columns["unfit"].alias("unfit"), columns["value"].alias("value")).collect()
    assert [row["unfit"] for row in rows] == [f"{of}: two entries of one name", None, None]
    assert [row["value"] is None for row in rows] == [True, False, False]


def test_a_minus_before_0_within_a_column_of_a_table_is_refused_by_field(spark: Any, make_pipeline: Make) -> None:
    """`jsonb` has none. A topic has, and a column of doubles."""
    frame = spark.sql(
        "SELECT X'00' AS _key, double('-0.0') AS plain, array(0.0D, double(text)) AS list, "
        "map('k', named_struct('x', float(text))) AS pairs, text FROM VALUES ('0.0'), ('-0.0'), (NULL) AS t(text)"
    )
    table = make_pipeline(output={"kind": "postgres", "table": "t"}, postgres={"host": "h", "dbname": "d", "user": "u"})
    for names, of in ((["plain", "list"], "list[]"), (["pairs"], "pairs{}.x")):
        some = frame.select("_key", *names)
        unfit = output_columns(some, table, None)["unfit"]
        said = f"{of}: -0.0, and jsonb has no minus for 0; add 0.0 to it"
        assert [row[0] for row in some.select(unfit).collect()] == [None, said, None]
    to_topic = output_columns(frame, make_pipeline(), None)["unfit"]
    assert [row[0] for row in frame.select(to_topic).collect()] == [None] * 3
    added = frame.selectExpr("_key", "transform(list, x -> x + 0.0D) AS list")
    assert added.select(output_columns(added, table, None)["unfit"]).distinct().collect() == [(None,)]


def test_a_text_that_is_not_utf8_fails_the_batch_by_field_and_record(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    columns = "'_key', '_topic', '_partition', '_offset', 'CAST(_key AS string) AS k'"
    pipeline = make_pipeline(f"def transform(frame):\n    return frame.selectExpr({columns})\n")
    topic = pipeline.source.topic
    create_topic(broker.bootstrap, topic, 1)
    produce(broker.bootstrap, topic, [(key, b"{}", 0, at(1)) for key in (b"\xc3\xa9", b"\xff")])
    with pytest.raises(RecordRefused) as found:
        plan_and_write(spark, pipeline, day(1))
    assert f"k: text that is not UTF-8 (source record {topic}:0:1). No offset moved" in str(found.value)
    assert read_all(broker.bootstrap, pipeline.output.topic) == []


NOT_UTF8 = "CAST(X'FF' AS string)"
CHANGED = [
    (NOT_UTF8, "odd: text that is not UTF-8"),
    (f"array('a', {NOT_UTF8})", "odd[]: text that is not UTF-8"),
    (f"map({NOT_UTF8}, 1)", "odd: a name that is not UTF-8"),
    (f"map('k', named_struct('a', {NOT_UTF8}))", "odd{}.a: text that is not UTF-8"),
    ("map(repeat('k', 50001), 1)", "odd: a name of more than 50,000 bytes"),
    ("named_struct('a', map(repeat('€', 16667), 1))", "odd.a: a name of more than 50,000 bytes"),
    ("date'9999-12-31' + 1", "odd: not within the years 1 to 9999"),
    ("date'0001-01-01' - 1", "odd: not within the years 1 to 9999"),
    ("timestamp_micros(253402300800000000)", "odd: not within the years 1 to 9999"),
    ("array(CAST(timestamp_micros(253402300800000000) AS timestamp_ntz))", "odd[]: not within the years 1 to 9999"),
    ("double('NaN')", "odd: JSON has no NaN and no Infinity"),
    ("array(1.5F, -float('Infinity'))", "odd[]: JSON has no NaN and no Infinity"),
    *((column, None) for column in ("1.5D", "'é€😀'", "date'9999-12-31'", "timestamp_micros(253402300799999999)")),
    *(
        (column, None)
        for column in ("map(repeat('\\n', 50000), 1)", "CAST(NULL AS string)", "array(NULL, date'0001-01-01')")
    ),
]


def test_a_row_that_json_would_change_has_no_value_and_says_why(spark: Any, make_pipeline: Make) -> None:
    """Spark replaces what is not UTF-8, so two keys would be one; and writes years that no reader takes."""
    frame = spark.sql("SELECT 1 AS i")
    for number, (column, _) in enumerate(CHANGED):
        one = spark.sql(f"SELECT {column} AS odd")
        out = Json().write(one, one.schema, None)
        assert out.unfit is not None
        frame = frame.crossJoin(one.select(out.data.alias(f"data{number}"), out.unfit.alias(f"unfit{number}")))
    row = frame.head()
    for number, (column, why) in enumerate(CHANGED):
        assert row[f"unfit{number}"] == why, column
        assert (row[f"data{number}"] is None) == (why is not None), column


def test_two_keys_that_are_not_utf8_stay_two(spark: Any, make_pipeline: Make) -> None:
    """A key is its text's bytes. In the value they are refused."""
    frame = spark.sql(
        "SELECT CAST(k AS string) AS _k, CAST(k AS string) AS k, 1 AS n FROM VALUES (X'FE'), (X'FF') AS t(k)"
    )
    pipeline = make_pipeline(output={"key": "_k"})
    assert sorted(bytes(row["key"]) for row in records_of(frame.drop("k"), pipeline).collect()) == [b"\xfe", b"\xff"]
    with pytest.raises(Exception, match="k: text that is not UTF-8"):
        records_of(frame, pipeline).collect()


def test_what_a_result_becomes_in_json_is_what_the_readme_says(spark: Any, make_pipeline: Make) -> None:
    columns = {
        "double('-0.0')": "-0.0",
        "map('1.10', X'00FF')": '{"1.10":"AP8="}',
        "array(timestamp'2026-01-01 00:00:00.000001')": '["2026-01-01T00:00:00.000001Z"]',
        "cast('1e37' AS decimal(38,0))": "1" + "0" * 37,
        "named_struct('a', CAST(NULL AS int))": '{"a":null}',
    }
    names = [f"c{n}" for n in range(len(columns))]
    selected = ", ".join(f"{column} AS {name}" for name, column in zip(names, columns, strict=True))
    row = records_of(spark.sql(f"SELECT X'00' AS _key, {selected}"), make_pipeline()).head()
    said = ",".join(f'"{name}":{text}' for name, text in zip(names, columns.values(), strict=True))
    assert bytes(row["value"]).decode() == f"{{{said}}}"


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
    told = f"to topic {pipeline.staging_topic}: .*make the transform write less"
    with pytest.raises(RecordRefused, match=told) as raised:
        plan_and_write(spark, pipeline, day(1))
    assert str(latest(pipeline, day(1)).id) in str(raised.value)
    assert read_all(broker.bootstrap, pipeline.staging_topic) == []
    assert group_offsets(broker.bootstrap, pipeline.group, pipeline.source.topic, [0]) == {}

    fixed = make_pipeline(LONG.replace("LENGTH", "2"), name=pipeline.name)
    assert run(spark, fixed, day(1)).state is State.PUBLISHED
    assert [len(r.json["name"]) for r in read_all(broker.bootstrap, fixed.output.topic)] == [2 * 64]

    for topic in (pipeline.staging_topic, pipeline.output.topic):
        allow(broker, topic, "1000000")
    again = make_pipeline(LONG.replace("LENGTH", "2000"), name=pipeline.name)
    assert run(spark, again, day(1), reprocess=True).state is State.PUBLISHED
    assert len(read_all(broker.bootstrap, again.output.topic)[-1].json["name"]) == 2000 * 64


def allow(broker: Broker, topic: str, largest: str) -> None:
    """Set a topic's max.message.bytes."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap}, logger=QUIET_LOG)
    entry = ConfigEntry("max.message.bytes", largest, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(20)
