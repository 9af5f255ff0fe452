"""Avro values in Spark's columns and back, compared with fastavro and with Java's Avro, which share no code with ours."""

from __future__ import annotations

import json
import os
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import NullType, StructField, StructType

from avro_schemas import Chance, as_arrow_gives_it, as_spark_has_it, read, written
from fencepost.formats import REGISTRY_FORMATS, REGISTRY_KEY_FORMATS, Declared
from fencepost.formats.avro import encode
from fencepost.formats.avro_schema import parse, render
from fencepost.model import ReadSchemas, RegisteredSchema
from registry_tools import framed

pytestmark = pytest.mark.deep

KEYS = REGISTRY_KEY_FORMATS["avro"]  # a key is any value

SCHEMAS = 10  # of each example
EXAMPLES = int(os.environ.get("AVRO_SCHEMAS", "10")) // SCHEMAS
RECORDS = int(os.environ.get("AVRO_RECORDS", "100"))  # of each schema


def registered(schema: Any, schema_id: int = 1) -> RegisteredSchema:
    return RegisteredSchema(subject="s", id=schema_id, version=1, text=render(parse(json.dumps(schema))))


def schemas_of(writer: Any, reader: Any = None) -> ReadSchemas:
    return ReadSchemas(reader=registered(writer if reader is None else reader), writers=(registered(writer),))


def decoded(spark: Any, payloads: list[bytes], writer: Any, reader: Any = None) -> list[tuple[Any, str | None]]:
    """Each value and the reason why there is none."""
    raw = spark.createDataFrame([(i, framed(1, p)) for i, p in enumerate(payloads)], "i int, value binary").coalesce(1)
    table = (
        KEYS.read_key(raw, "value", "out", Declared(schemas=schemas_of(writer, reader)))
        .orderBy("i")
        .toArrow()
        .to_pydict()
    )
    kind = writer if reader is None else reader
    return [(as_arrow_gives_it(kind, v), why) for v, why in zip(table["out"], table["malformed_out"], strict=True)]


@settings(
    max_examples=EXAMPLES,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
    database=None,
)
@given(seed=st.integers(0, 2**32))
def test_what_fastavro_wrote_is_read_as_fastavro_reads_it_and_written_so_that_fastavro_reads_the_same(
    spark: Any, seed: int
) -> None:
    """By another schema than it was written with, in one Spark job. Of each record also a part, and one with something behind it:
    they are malformed, and no field of them comes through."""
    chance = Chance(seed)
    writers = [chance.record() for _ in range(SCHEMAS)]
    readers = [chance.evolved(writer) for writer in writers]
    rows: list[tuple[int, int, bool, bytes]] = []
    for number in [n for n in range(SCHEMAS) for _ in range(RECORDS)]:
        payload = written(writers[number], chance.value(writers[number]))
        behind = chance.random.randbytes(chance.random.randint(1, 20))
        parts = [payload + behind, *([payload[: chance.random.randrange(len(payload))]] if payload else [])]
        rows += [(len(rows) + i, number, not i, framed(1, p)) for i, p in enumerate((payload, *parts))]
    frame = spark.createDataFrame(rows, "i int, number int, whole boolean, value binary").coalesce(1)
    for number, (writer, reader) in enumerate(zip(writers, readers, strict=True)):
        own = frame.withColumn("own", F.when(F.col("number") == number, F.col("value")))
        frame = KEYS.read_key(own, "own", f"read{number}", Declared(schemas=schemas_of(writer, reader))).drop("own")
        if not union_in_container(reader):
            kind = frame.schema[f"read{number}"].dataType
            again = encode(F.col(f"read{number}"), kind, registered(reader))
            unfit = F.lit(None).cast("string") if again.unfit is None else again.unfit
            frame = frame.withColumn(f"again{number}", again.data).withColumn(f"unfit{number}", unfit)
    table = frame.drop("value", "number", "whole").toArrow().sort_by("i")
    found = {name: table.column(name).to_pylist() for name in table.column_names}
    for i, number, whole, value in rows:
        writer, reader, case = writers[number], readers[number], (seed, number, value)
        read_as, why = found[f"read{number}"][i], found[f"malformed_read{number}"][i]
        if not whole:
            assert read_as is None, case
            assert why.startswith("schema id 1: "), case
            continue
        assert why is None, case
        wanted = read(value[5:], writer, reader)
        assert as_arrow_gives_it(reader, read_as) == as_spark_has_it(reader, wanted), case
        if not union_in_container(reader):
            assert found[f"unfit{number}"][i] is None, case
            assert read(found[f"again{number}"][i][5:], reader) == wanted, case


def test_what_is_read_of_bytes_by_chance_is_what_java_reads(spark: Any) -> None:
    """Of values with a byte changed, added or taken away. Java reads more of them: a boolean of 2, or a number that it cuts."""
    chance = Chance(1)
    schemas = [record(**{f"f{i}": kind for i, kind in enumerate(kinds)}) for kinds in PLAIN_AND_NESTED]
    rows = [
        (number, framed(1, mutated(chance, written(schema, chance.value(schema)))))
        for number, schema in enumerate(schemas)
        for _ in range(400)
    ]
    frame = spark.createDataFrame(rows, "number int, value binary").coalesce(1)
    read = 0
    for number, schema in enumerate(schemas):
        ours = KEYS.read_key(
            frame.where(F.col("number") == number), "value", "ours", Declared(schemas=schemas_of(schema))
        )
        java = from_avro(F.substring("value", 6, 2**31 - 1), json.dumps(schema), {**JAVA})
        table = ours.where("malformed_ours IS NULL").select("ours", java.alias("java")).toArrow()
        read += table.num_rows
        if table["ours"].equals(table["java"]):  # Python has no year 10,000
            continue
        for one, other in zip(table["ours"].to_pylist(), table["java"].to_pylist(), strict=True):
            assert repr(as_arrow_gives_it(schema, one)) == repr(as_arrow_gives_it(schema, other)), schema
    assert len(rows) / 10 < read < len(rows) * 0.9


def mutated(chance: Chance, payload: bytes) -> bytes:
    at, byte = chance.random.randrange(len(payload) + 1), chance.random.randbytes(1)
    return chance.random.choice(
        [payload[:at] + byte + payload[at + 1 :], payload[:at] + byte + payload[at:], payload[:at] + payload[at + 1 :]]
    )


def union_in_container(kind: Any, *, inside: bool = False) -> bool:
    """Whether a union of several types is in an array or a map: those are read, and not written."""
    if isinstance(kind, list):
        several = len([b for b in kind if b != "null"]) > 1
        return (inside and several) or any(union_in_container(b, inside=inside) for b in kind)
    if isinstance(kind, str):
        return False
    if any(union_in_container(f["type"], inside=inside) for f in kind.get("fields", ())):
        return True
    return any(union_in_container(kind[k], inside=True) for k in ("items", "values") if k in kind)


def record(**fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}


PLAIN_AND_NESTED: list[list[Any]] = [
    ["int", "long", "boolean", "int"],
    ["string", "bytes", ["null", "string"], {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}],
    [{"type": "array", "items": "long"}, {"type": "map", "values": ["null", "int"]}, "string"],
    [["null", "boolean", "long", "string"], "float", {"type": "fixed", "name": "F", "size": 3}],
    [{"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 3}, {"type": "int", "logicalType": "date"}],
    [{"type": "long", "logicalType": name} for name in ("timestamp-millis", "timestamp-micros")],
]
JAVA = {  # as the columns are called in `decode`
    "mode": "PERMISSIVE",
    "datetimeRebaseMode": "CORRECTED",
    "enableStableIdentifiersForUnionType": "true",
    "stableIdentifierPrefixForUnionType": "member_",
}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
BRANCHES = [
    "null",
    "int",
    "string",
    {"type": "map", "values": "int"},
    {"type": "array", "items": "string"},
    DECIMAL,
    {"type": "enum", "name": "E", "symbols": ["A"]},
    {"type": "record", "name": "Nulls", "fields": [{"name": "all", "type": {"type": "array", "items": "null"}}]},
]
BROKEN = [
    ("cut", 1, b"\x80", "the value is not complete"),
    ("not UTF-8", 2, b"\x02\xff", "broken: text that is not UTF-8"),
    ("digits", 5, written("bytes", (123456).to_bytes(4)), "broken: not a decimal of 4 digits"),
    ("no such symbol", 6, b"\x02", "broken: symbol 1 of 1"),
    ("no such type", 8, b"", "broken: type 8 of a union of 8"),
]


def test_a_broken_value_is_malformed_and_leaves_no_field(spark: Any) -> None:
    """Each has a sound field before it."""
    writer = record(before="int", broken=BRANCHES)
    payloads = [written("int", 5) + bytes([2 * branch]) + payload for _, branch, payload, _ in BROKEN]
    most = written(writer, {"before": 5, "broken": Decimal("-99.99")})
    found = decoded(spark, [*payloads, most, written(writer, {"before": 5, "broken": None})], writer)
    assert found.pop() == ({"before": 5, "broken": None}, None)
    value, why = found.pop()
    assert (value["broken"]["member_bytes"], why) == (Decimal("-99.99"), None)
    for (name, _, _, words), (value, why) in zip(BROKEN, found, strict=True):
        assert value is None, name
        assert words in str(why), name


WHOLE = {
    "boolean": [True, False],
    "int": [2**31 - 1, -(2**31)],
    "long": [2**63 - 1, -(2**63), 2**53 + 1],
    "float": [2.0**100, -0.5],
    "double": [1e308, 5e-324, 0.1],
    "string": ["é", ""],
    "bytes": [b"\xff", b""],
}


@pytest.mark.parametrize("kind", WHOLE)
def test_an_array_of_plain_values_keeps_them_whole(spark: Any, kind: str) -> None:
    """Nested, and behind a null, too."""
    array: Any = {"type": "array", "items": kind}
    schema = record(one=array, several={"type": "array", "items": array}, may=["null", array])
    value = {"one": WHOLE[kind], "several": [WHOLE[kind]], "may": WHOLE[kind]}
    assert decoded(spark, [written(schema, value)], schema) == [(value, None)]


def test_floats_become_the_doubles_of_a_later_schema(spark: Any) -> None:
    was, now = (record(a={"type": "array", "items": kind}) for kind in ("float", "double"))
    assert decoded(spark, [written(was, {"a": [0.5, 2.0**100]})], was, now) == [({"a": [0.5, 2.0**100]}, None)]


def test_a_record_without_a_header_is_malformed_and_a_null_is_not(spark: Any) -> None:
    raw = [None, b"", b"\0\0\0", b'{"n": 1}', framed(7, b"\x02"), framed(1, b"\x02")]
    frame = spark.createDataFrame(list(enumerate(raw)), "i int, value binary").coalesce(1)
    schemas = schemas_of(record(n="int")).model_copy(update={"refused": {7: "n: written as string, read as int"}})
    rows = KEYS.read_key(frame, "value", "out", Declared(schemas=schemas)).orderBy("i").collect()
    assert [row["malformed_out"] for row in rows] == [
        None,
        "0 bytes, and no schema id; an id in a header of the record is not read",
        "3 bytes, and no schema id; an id in a header of the record is not read",
        "the first byte is 0x7B, not 0: no schema id",
        "schema id 7: n: written as string, read as int",
        None,
    ]
    assert [row["out"] and row["out"]["n"] for row in rows] == [None] * 5 + [1]


def test_a_field_keeps_its_value_where_only_the_record_has_another_namespace(spark: Any) -> None:
    """Java would take the alias for no alias, and give the default."""
    writer = {"type": "record", "name": "x.R", "fields": [{"name": "a", "type": "int"}]}
    reader = {"type": "record", "name": "y.R", "fields": [{"name": "b", "type": "int", "aliases": ["a"], "default": 1}]}
    assert decoded(spark, [written(writer, {"a": 7})], writer, reader) == [({"b": 7}, None)]


def test_a_default_of_an_added_field_may_be_any_type_of_its_union(spark: Any) -> None:
    writer = record(a="int")
    reader = {**writer, "fields": [{"name": "n", "type": ["int", "null"], "default": 3}, *writer["fields"]]}
    assert decoded(spark, [written(writer, {"a": 7})], writer, reader) == [({"n": 3, "a": 7}, None)]


UNFIT = [
    ("int", "CAST(NULL AS int)", "f: null, and its type is int"),
    (record(x="int"), "named_struct('x', CAST(NULL AS int))", "f.x: null, and its type is int"),
    (
        ["int", "string"],
        "named_struct('member_int', 1, 'member_string', 'x')",
        "f: not one of member_int, member_string is set",
    ),
    (
        ["int", "string"],
        "named_struct('member_int', CAST(NULL AS int), 'member_string', CAST(NULL AS string))",
        "f: not one of member_int, member_string is set",
    ),
    ({"type": "array", "items": "int"}, "array(1, NULL)", "f[]: null, and its type is int"),
    ({"type": "map", "values": "int"}, "map('k', CAST(NULL AS int))", "f{}: null, and its type is int"),
    (
        {"type": "map", "values": "int"},
        """from_json('{"k":1,"k":2}', 'map<string,int>')""",
        "f: two entries of one name",
    ),
    ({"type": "enum", "name": "E", "symbols": ["A"]}, "'B'", "f: not one of the symbols of enum E"),
    ({"type": "fixed", "name": "F", "size": 2}, "X'00'", "f: not 2 bytes long, as fixed F is"),
    ({"type": "string", "logicalType": "uuid"}, "'x'", "f: not a UUID"),
    (
        {"type": "string", "logicalType": "uuid"},
        "'00000000-0000-0000-0000-000000000000\n'",
        "f: not a UUID",
    ),
    ({"type": "int", "logicalType": "time-millis"}, "86400000", "f: not a time of day"),
    ({"type": "long", "logicalType": "time-micros"}, "-1L", "f: not a time of day"),
    ("string", "CAST(X'FF' AS string)", "f: text that is not UTF-8"),
    (
        {"type": "long", "logicalType": "timestamp-millis"},
        "timestamp'2026-01-01 00:00:00.000001'",
        "f: a time with microseconds, and its type is long (timestamp-millis); cut it with date_trunc('MILLISECOND', …)",
    ),
]


def test_a_row_that_a_field_does_not_hold_says_so_and_has_no_bytes(spark: Any) -> None:
    frame = spark.createDataFrame([(1,)], "i int")
    for number, (kind, sql, _) in enumerate(UNFIT):
        inner = json.loads(json.dumps(kind).replace('"name": "R"', '"name": "Inner"'))
        one = frame.selectExpr(f"named_struct('f', {sql}) AS whole")
        out = encode(F.expr(f"named_struct('f', {sql})"), one.schema["whole"].dataType, registered(record(f=inner)))
        assert out.unfit is not None
        frame = frame.withColumn(f"data{number}", out.data).withColumn(f"unfit{number}", out.unfit)
    row = frame.head()
    for number, (kind, _, why) in enumerate(UNFIT):
        assert (row[f"data{number}"], row[f"unfit{number}"]) == (None, why), kind


def test_a_map_whose_names_are_not_utf8_is_not_written(spark: Any) -> None:
    """Java would replace what is none, and two names would be one."""
    frame = spark.sql("SELECT named_struct('m', map(CAST(X'FF' AS string), 1)) AS whole")
    schema = registered(record(m={"type": "map", "values": "int"}))
    out = encode(F.col("whole"), frame.schema["whole"].dataType, schema)
    assert out.unfit is not None
    assert frame.select(out.data, out.unfit).head() == (None, "m: a name that is not UTF-8")


NARROWED = [  # what was written and no longer fits, what still does, and the transform's type now
    ("3000000000L", "7L", "int"),
    ("0.1D", "0.5D", "float"),
    ("1.25BD", "1.50BD", "decimal(2,1)"),
    ("array(1L, 3000000000L)", "array(1L, NULL)", "array<int>"),
    ("map('k', 3000000000L)", "map('k', 1L)", "map<string,int>"),
    ("named_struct('x', 3000000000L)", "named_struct('x', 1L)", "struct<x:int>"),
    ("7L", "CAST(NULL AS bigint)", "void"),
]


def test_a_value_that_a_narrowed_transform_does_not_hold_says_so_and_fails_no_job(spark: Any) -> None:
    """The schema is the same, and so are its id and the values of before: a replay meets them with the narrower type."""
    for large, small, now in NARROWED:
        frame = spark.sql(
            f"SELECT 0 AS i, named_struct('f', {large}) AS whole UNION ALL SELECT 1, named_struct('f', {small})"
        )
        kind = frame.schema["whole"].dataType
        schema = registered(json.loads(REGISTRY_FORMATS["avro"].derive(kind, "r", None)))
        values = frame.select("i", encode(F.col("whole"), kind, schema).data.alias("value")).coalesce(1)
        type_ = NullType() if now == "void" else spark.sql(f"SELECT CAST(NULL AS {now}) AS f").schema["f"].dataType
        narrow = StructType([StructField("f", type_)])
        parsed = REGISTRY_FORMATS["avro"].parse(values, narrow, [F.col("i")], schema, "why").orderBy("i").collect()
        said = "f: the column's type, which is narrower now, does not hold the value"
        assert [(row["f"] is None, row["why"]) for row in parsed] == [(True, said), (now == "void", None)], now


HEARTBEAT = {"type": "record", "name": "Heartbeat", "fields": []}


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (["null", HEARTBEAT], [None, {}]),
        (["int", HEARTBEAT, "string"], [1, {}, "x"]),
        (HEARTBEAT, [{}]),
        ({"type": "array", "items": HEARTBEAT}, [[], [{}, {}]]),
    ],
)
def test_a_record_without_fields_is_read_and_written(kind: Any, values: list[Any], spark: Any) -> None:
    """Spark itself writes no struct without fields."""
    schema = record(n="int", beat=kind)
    payloads = [written(schema, {"n": 5, "beat": value}) for value in values]
    raw = spark.createDataFrame([(framed(1, p),) for p in payloads], "value binary").coalesce(1)
    found = KEYS.read_key(raw, "value", "out", Declared(schemas=schemas_of(schema)))
    again = encode(F.col("out"), found.schema["out"].dataType, registered(schema))
    unfit = F.lit(None).cast("string") if again.unfit is None else again.unfit
    rows = found.select("value", "malformed_out", again.data.alias("again"), unfit.alias("unfit")).collect()
    for row in rows:
        assert (row["malformed_out"], row["unfit"], row["again"]) == (None, None, row["value"])
    assert len(rows) == len(values)


def test_a_null_has_no_bytes(spark: Any) -> None:
    """A record without a key, whatever its schema."""
    for schema in (record(x="int"), record(x=["int", "string"]), "string"):
        frame = spark.createDataFrame([(None,)], decode_type(spark, schema))
        out = encode(F.col("c"), frame.schema["c"].dataType, registered(schema))
        unfit = F.lit(None) if out.unfit is None else out.unfit
        assert frame.select(out.data, unfit).head() == (None, None)


def decode_type(spark: Any, schema: Any) -> Any:
    """A column `c` of the type that Spark reads a schema as."""
    raw = spark.createDataFrame([(None,)], "raw binary")
    return KEYS.read_key(raw, "raw", "c", Declared(schemas=schemas_of(schema))).select("c").schema


def test_a_number_goes_into_the_wider_type_of_a_union(spark: Any) -> None:
    """Spark reads int and long as one column."""
    schema = record(a=["int", "long"], b=["null", "double", "float"])
    frame = spark.sql("SELECT named_struct('a', 5L, 'b', 0.5D) AS whole")
    row = frame.select(
        encode(F.col("whole"), frame.schema["whole"].dataType, registered(schema)).data.alias("v")
    ).head()
    assert row["v"][5:] == b"\x02" + written("long", 5) + b"\x02" + written("double", 0.5)


def test_a_day_or_a_timestamp_is_the_member_of_a_union_that_it_was(spark: Any) -> None:
    """Fixed bytes: one who reads and writes by the same rule would agree on any."""
    days, moments = {"type": "int", "logicalType": "date"}, {"type": "long", "logicalType": "timestamp-millis"}
    schema = record(u=["null", days, moments])
    members = [
        "'member_int', date'2024-03-10', 'member_long', CAST(NULL AS timestamp)",
        "'member_int', CAST(NULL AS date), 'member_long', timestamp'2024-03-10 00:00:00.001'",
    ]
    frame = spark.sql(" UNION ALL ".join(f"SELECT named_struct('u', named_struct({one})) AS whole" for one in members))
    data = encode(F.col("whole"), frame.schema["whole"].dataType, registered(schema)).data
    payloads = [bytes(row[0])[5:] for row in frame.coalesce(1).select(data).collect()]
    assert payloads == [bytes.fromhex("02a0b502"), bytes.fromhex("048280c6dac463")]
    found = [value["u"] for value, _ in decoded(spark, payloads, schema)]
    moment = datetime(2024, 3, 10, 0, 0, 0, 1000, UTC)
    assert found == [
        {"member_int": date(2024, 3, 10), "member_long": None},
        {"member_int": None, "member_long": moment},
    ]


def test_what_is_wider_in_the_schema_is_widened_and_nothing_is_rounded(spark: Any) -> None:
    schema = record(a="long", b="double", c={**DECIMAL, "precision": 12, "scale": 3}, d=["null", "int"], e="double")
    sql = "named_struct('a', 1S, 'b', CAST(0.1 AS float), 'c', 1.25BD, 'd', 3Y, 'e', 7)"
    frame = spark.sql(f"SELECT {sql} AS whole")
    row = frame.select(
        encode(F.col("whole"), frame.schema["whole"].dataType, registered(schema)).data.alias("v")
    ).head()
    assert row["v"][:5] == framed(1, b"")
    narrow = 0.10000000149011612
    assert read(row["v"][5:], schema) == {"a": 1, "b": narrow, "c": Decimal("1.250"), "d": 3, "e": 7.0}
