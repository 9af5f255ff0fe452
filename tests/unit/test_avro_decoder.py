"""Bytes are exactly one value of their schema, or malformed with the place and the reason."""

from __future__ import annotations

import json
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from time import process_time
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_type

from avro_reading import BothWays, check_column, varint
from avro_schemas import Chance, written
from fencepost.formats.avro import to_spark
from fencepost.formats.avro_decoder import AvroReader
from fencepost.formats.avro_plain import MOST_EMPTY, read_long
from fencepost.formats.avro_schema import AvroType, Incompatible, parse, render
from fencepost.formats.format import BadSchema
from fencepost.formats.framing import Malformed


def reader_of(writer: Any, reader: Any = None) -> BothWays:
    return BothWays(parse(json.dumps(writer)), parse(json.dumps(writer if reader is None else reader)))


def record(**fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


MAP = {"type": "map", "values": "int"}
ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
DECIMAL = logical("bytes", "decimal", precision=4, scale=2)
FIXED = {"type": "fixed", "name": "F", "size": 2, "logicalType": "decimal", "precision": 3, "scale": 0}
MALFORMED: dict[str, tuple[Any, bytes, str]] = {
    "an int that Java reads as 5": ("int", varint(8589934597), "f: not an int of 32 bits"),
    "an int one too large": ("int", varint(2**31), "f: not an int of 32 bits"),
    "an int one too small": ("int", varint(-(2**31) - 1), "f: not an int of 32 bits"),
    "a small int in six bytes": ("int", b"\x82\x80\x80\x80\x80\0", "f: not an int of 32 bits"),
    "a long one too large": ("long", varint(2**63), "a number of more than 64 bits"),
    "a long of eleven bytes": ("long", b"\x80" * 10 + b"\0", "a number of more than ten bytes"),
    "a boolean of 2": ("boolean", b"\2", "f: the byte 02 is not a boolean"),
    "a boolean of 255": ("boolean", b"\xff", "f: the byte FF is not a boolean"),
    "a name twice": (MAP, b"\4\2a\2\2a\4\0", "f: two entries of one name"),
    "a name twice, in two blocks": (MAP, b"\2\2a\2\2\2a\4\0", "f: two entries of one name"),
    "a name that is not UTF-8": (MAP, b"\2\2\xff\2\0", "f: text that is not UTF-8"),
    "a text that is not UTF-8": ("string", b"\2\xff", "f: text that is not UTF-8"),
    "half a surrogate pair": ("string", b"\6\xed\xa0\x80", "f: text that is not UTF-8"),
    "an overlong text": ("string", b"\4\xc0\x80", "f: text that is not UTF-8"),
    "a text of a negative length": ("string", varint(-1), "f: a length of -1 bytes"),
    "a text of two gigabytes": ("string", varint(2**31), "f: a length of 2,147,483,648 bytes, and 0 are left"),
    "a text of one too many": ("string", b"\4a", "f: a length of 2 bytes, and 1 are left"),
    "bytes of a negative length": ("bytes", varint(-(2**63)), "f: a length of -9"),
    "bytes of one too many": ("bytes", b"\4a", "f: a length of 2 bytes, and 1 are left"),
    "more items than bytes": (array("int"), varint(2**40) + b"\0", "f: 1,099,511,627,776 items, and 1 byte is left"),
    "the smallest count": (array("int"), varint(-(2**63)) + b"\0\0", "f: 9,223,372,036,854,775,808 items"),
    "more entries than bytes": (MAP, varint(2**40) + b"\0", "f: 1,099,511,627,776 entries, and 1 byte is left"),
    "nulls without end": (array("null"), varint(2**62) + b"\0", "f: more than 10,000 items that take no bytes"),
    "a block that ends early": (array("int"), b"\3\2\2\2\0", "f: a block of items has another length than it declares"),
    "a block that ends late": (MAP, b"\1\x0a\2a\2\0", "f: a block of items has another length than it declares"),
    "a block of a negative size": (
        array("int"),
        b"\1\1\2\0",
        "f: a block of items has another length than it declares",
    ),
    "a symbol behind the last": (ENUM, b"\4", "f: symbol 2 of 2"),
    "a symbol before the first": (ENUM, b"\1", "f: symbol -1 of 2"),
    "a type behind the last": (["null", "int"], b"\4\2", "f: type 2 of a union of 2"),
    "a type before the first": (["null", "int"], b"\1\2", "f: type -1 of a union of 2"),
    "a decimal of five digits": (DECIMAL, b"\6" + (10_000).to_bytes(3), "f: not a decimal of 4 digits"),
    "a decimal beyond Spark's": (DECIMAL, b"\x28" + b"\x7f" * 20, "f: not a decimal of 4 digits"),
    "a decimal of no bytes": (DECIMAL, b"\0", "f: not a decimal of 4 digits"),
    "a fixed decimal of four digits": (FIXED, (-1000).to_bytes(2, signed=True), "f: not a decimal of 3 digits"),
    "half a fixed": (FIXED, b"\0", "the value is not complete"),
    "half a float": ("float", b"\0\0\0", "the value is not complete"),
    "half a double": ("double", b"\0" * 7, "the value is not complete"),
    "half a long": ("long", b"\x80", "the value is not complete"),
    "nothing": ("int", b"", "the value is not complete"),
    "something behind it": ("int", b"\2\0", "something follows the value, which ends after 1 of 2 bytes"),
    "milliseconds beyond Spark's": (logical("long", "timestamp-millis"), varint(2**60), "f: a time beyond Spark's"),
    "milliseconds long before": (logical("long", "local-timestamp-millis"), varint(-(2**60)), "f: a time beyond"),
    "a day and a millisecond": (logical("int", "time-millis"), varint(86_400_000), "f: not a time of day"),
    "before midnight": (logical("long", "time-micros"), varint(-1), "f: not a time of day"),
    "a UUID with a line's end": (
        logical("string", "uuid"),
        b"\x4a" + b"0" * 8 + b"-0000" * 3 + b"-" + b"0" * 12 + b"\n",
        "UUID",
    ),
    "within": (record(x=array(record(y="boolean") | {"name": "I"})) | {"name": "O"}, b"\2\2\0", "f.x[].y: the byte 02"),
}


@pytest.mark.parametrize(("kind", "data", "why"), MALFORMED.values(), ids=MALFORMED)
def test_bytes_that_are_not_one_value_are_malformed_at_their_place(kind: Any, data: bytes, why: str) -> None:
    """Read or skipped."""
    schema = record(f=kind)
    with pytest.raises(Malformed) as found:
        reader_of(schema).read(data)
    assert why in str(found.value)
    if "beyond" in why:  # not Avro's bound, and no column is for it
        assert reader_of(schema, record()).read(data) == ()
        return
    with pytest.raises(Malformed) as found:
        reader_of(schema, record()).read(data)
    assert why in str(found.value)


def of_name(name: str, /, **fields: Any) -> dict[str, Any]:
    return record(**fields) | {"name": name}


NODE = of_name("Node", id="int", next=["null", "Node"])
TREE = of_name("Tree", name="string", kids=array("Tree"))
BY_NAME = of_name("ByName", kids={"type": "map", "values": ["null", "ByName"]})
MUTUAL = of_name("A", b=of_name("B", a=["null", "A"], n="int"))
ODD_NAMES = {"type": "record", "name": "my-server.orders.R-1", "fields": [{"name": "user-id", "type": "int"}]}
# A type that no column has, a value as bytes, and another one.
UNREAD: dict[str, tuple[Any, bytes, bytes]] = {
    "a list": (NODE, b"\2\2\4\2\6\0", b"\2\0"),
    "a list, or null": (["null", NODE], b"\2\2\2\4\0", b"\0"),
    "a tree": (TREE, b"\2a\4\2b\0\2c\2\2d\0\0\0", b"\2a\0"),
    "a tree, in blocks that say their size": (TREE, b"\2a\1\6\2b\0\1\6\2c\0\0", b"\2a\0"),
    "a map": (BY_NAME, b"\4\2a\0\2b\2\0\0", b"\0"),
    "each other": (["null", MUTUAL], b"\2\2\0\2\4", b"\0"),
    "each other, from within": (of_name("O", a=MUTUAL, b="B"), b"\0\4" + b"\2\0\6\2", b"\0\4\0\4"),
    "nulls in a list": (of_name("N", n=array("null"), next=["null", "N"]), b"\4\0\2\0\0", b"\0\0"),
    "64 digits": (logical("bytes", "decimal", precision=64, scale=2), b"\4\4\xd2", b"\2\xfb"),
    "127 digits in a list": (
        of_name("D", d=logical("bytes", "decimal", precision=127, scale=127), next=["null", "D"]),
        b"\2\5\2\2\5\0",
        b"\2\5\0",
    ),
    "a billion digits": (logical("bytes", "decimal", precision=10**9, scale=0), b"\2\5", b"\2\xfb"),
    "a namespace with a hyphen": (ODD_NAMES, b"\2", b"\4"),
    "a symbol with a hyphen": (ENUM | {"symbols": ["in-progress", "done"]}, b"\0", b"\2"),
    "records of one name": ([of_name("x.A", a="int"), of_name("y.A", a="string")], b"\0\2", b"\2\2x"),
    "fields that differ in case": (of_name("C", a="int", A="int"), b"\2\2", b"\4\4"),
    "milliseconds beyond Spark's": (logical("long", "timestamp-millis"), varint(2**62), varint(-(2**62))),
    "such in a list": (
        of_name("M", m=logical("long", "timestamp-millis"), next=["null", "M"]),
        varint(2**62) + b"\0",
        b"\2\2" + varint(-(2**62)) + b"\0",
    ),
}


@pytest.mark.parametrize(("kind", "one", "other"), UNREAD.values(), ids=UNREAD)
def test_a_field_that_is_not_read_need_not_be_of_a_type_that_spark_has(kind: Any, one: bytes, other: bytes) -> None:
    """By itself, among others in a column, and with a schema as a plan freezes it."""
    writer = parse(render(parse(json.dumps(record(a="int", f=kind, z="string")))))
    wanted = parse(json.dumps(record(z="string", a="int")))
    reader = BothWays(writer, wanted)
    records = [b"\2" + one + b"\2x", b"\4" + other + b"\2y"]
    assert [reader.read(data) for data in records] == [("x", 1), ("y", 2)]
    assert check_column(reader.one_way, reader.kind, [*records * 3, records[0][:-1], *records]).sum() == 8
    for data in records:
        for end in range(len(data)):
            with pytest.raises(Malformed):
                reader.one_way.read(data[:end])
    for path in (lambda k: array(k), lambda k: ["null", k] if not isinstance(k, list) else k):
        BothWays(parse(json.dumps(record(a="int", f=path(kind)))), parse(json.dumps(record(a="int"))))


UNREAD_MALFORMED: dict[str, tuple[Any, bytes, str]] = {
    "a type behind the last": (NODE, b"\2\4", "f: type 2 of a union of 2"),
    "more items than bytes": (TREE, b"\2a" + varint(2**40) + b"\0", "f: 1,099,511,627,776 items, and 1 byte is left"),
    "a block that ends early": (TREE, b"\2a\1\4\2b\0\0", "f: a block of items has another length than it declares"),
    "a name twice": (BY_NAME, b"\4\2a\0\2a\0\0", "f: two entries of one name"),
    "a name twice, in two blocks": (BY_NAME, b"\2\2a\0\2\2a\0\0", "f: two entries of one name"),
    "a text that is not UTF-8": (TREE, b"\2a\2\2\xff\0\0", "f: text that is not UTF-8"),
    "an int of 33 bits": (NODE, varint(2**31) + b"\0", "f: not an int of 32 bits"),
    "a symbol behind the last": (of_name("S", e=ENUM, next=["null", "S"]), b"\0\2\4\0", "f: symbol 2 of 2"),
    "65 digits of 64": (
        logical("bytes", "decimal", precision=64, scale=0),
        b"\x38" + (10**64).to_bytes(28),
        "not a decimal",
    ),
    "nulls without end": (
        of_name("N", n=array("null"), next=["null", "N"]),
        varint(2**62) + b"\0\0",
        "f: more than 10,000 it",
    ),
    "itself without end": (
        ["null", of_name("E", a="int", e="E", f="E")],
        b"\2" + b"\2" * 9,
        "the value is not complete",
    ),
    "itself without a byte": (
        ["null", of_name("E", e="E", f="E")],
        b"\2",
        "f: record E contains itself without an end",
    ),
    "each other without a byte": (
        ["null", of_name("E", x=of_name("X"), y="X", e=of_name("F", e="E"))],
        b"\2",
        "f: record E contains itself without an end",
    ),
}


@pytest.mark.parametrize(("kind", "data", "why"), UNREAD_MALFORMED.values(), ids=UNREAD_MALFORMED)
def test_a_field_that_is_not_read_has_to_be_a_value_of_its_type(kind: Any, data: bytes, why: str) -> None:
    with pytest.raises(Malformed) as found:
        reader_of(record(f=kind), record()).read(data)
    assert why in str(found.value)


def test_what_contains_itself_is_read_past_however_deep_it_is() -> None:
    """Deeper than Python nests calls."""
    deep = b"\2\2" * 100_000 + b"\2\0"
    assert reader_of(record(f=NODE, z="string"), record(z="string")).read(deep + b"\2z") == ("z",)


def test_what_contains_itself_is_read_as_deep_as_the_readers_schema_goes() -> None:
    inner = of_name("Second", id="int") | {"aliases": ["Node"]}
    reader = reader_of(NODE, of_name("Node", next=["null", inner], id="int"))
    assert reader.read(b"\2\0") == (None, 1)
    assert reader.read(b"\2\2\4\2\6\0") == ((2,), 1)


def test_what_fastavro_writes_of_types_that_contain_themselves_is_read_past() -> None:
    """Of values made up by chance."""
    random = Random(3)

    def tree(depth: int) -> Any:
        return {
            "name": "n" * random.randrange(70),
            "kids": [tree(depth - 1) for _ in range(depth and random.randrange(4))],
        }

    schema = record(a="int", f=TREE, z="string")
    reader = reader_of(schema, record(z="string", a="int"))
    for number in range(50):
        assert reader.read(written(schema, {"a": number, "f": tree(5), "z": "é"})) == ("é", number)


@pytest.mark.parametrize(("kind", "data", "why"), MALFORMED.values(), ids=MALFORMED)
@pytest.mark.parametrize("null_first", [True, False])
def test_they_are_so_behind_other_fields_and_in_a_union_with_null(
    kind: Any, data: bytes, why: str, null_first: bool
) -> None:
    """Most fields have a shorter way, which must find the same."""
    if isinstance(kind, list):
        null_first, others = True, kind[1:]
    else:
        others = [kind]
    schema = record(a="string", b=["null", "double"], f=["null", *others] if null_first else [*others, "null"])
    before, index = (
        b"\4\xc3\xa9\2" + struct.pack("<d", 0.5),
        b"" if isinstance(kind, list) else b"\2" if null_first else b"\0",
    )
    reader = reader_of(schema)
    with pytest.raises(Malformed) as found:
        reader.read(before + index + data)
    assert why.partition(" after ")[0] in str(found.value)
    assert reader.read(before + (b"\0" if null_first else b"\2")) == ("é", 0.5, None)


GOOD: dict[str, tuple[Any, bytes, Any]] = {
    "the largest int": ("int", varint(2**31 - 1), 2**31 - 1),
    "the smallest int": ("int", varint(-(2**31)), -(2**31)),
    "a small int in five bytes": ("int", b"\x82\x80\x80\x80\0", 1),
    "the largest long": ("long", varint(2**63 - 1), 2**63 - 1),
    "the smallest long": ("long", varint(-(2**63)), -(2**63)),
    "a small long in ten bytes": ("long", b"\x82" + b"\x80" * 8 + b"\0", 1),
    "a text whose length has two bytes": ("string", b"\x82\0a", "a"),
    "blocks that say their size": (array("int"), b"\3\4\2\4\1\2\6\0", [1, 2, 3]),
    "a type in two bytes": (["null", "int"], b"\x82\0\6", 3),
    "some nulls": (array("null"), varint(3) + b"\0", [None] * 3),
    "a decimal with a sign's byte too many": (DECIMAL, b"\6\0\0\5", Decimal("0.05")),
    "the last decimal": (DECIMAL, b"\4" + (-9999).to_bytes(2, signed=True), Decimal("-99.99")),
    "milliseconds": (logical("long", "timestamp-millis"), varint(-1), -1000),
    "the last of the day": (logical("int", "time-millis"), varint(86_399_999), 86_399_999),
    "one of several": (["null", "int", "string"], b"\4\2x", (None, "x")),
    "an integer or a longer one": (["int", "long"], b"\0\2", 1),
}


@pytest.mark.parametrize(("kind", "data", "value"), GOOD.values(), ids=GOOD)
def test_odd_but_good_bytes_are_a_value(kind: Any, data: bytes, value: Any) -> None:
    schema = record(f=kind)
    assert reader_of(schema).read(data) == (value,)
    pa.array([(value,)], to_arrow_type(to_spark(parse(json.dumps(schema)))))


PROMOTED: list[tuple[Any, Any, bytes, Any]] = [
    ("int", logical("long", "timestamp-millis"), varint(3), 3000),
    ("string", "bytes", b"\4\xc3\xa9", "é".encode()),
    ("bytes", "string", b"\4\xc3\xa9", "é"),
    ("long", "double", varint(2**53 + 1), 2.0**53),
    ("long", "float", varint(2**60 + 2**36 + 1), 2.0**60 + 2.0**37),  # by way of a double it would be 2**60
    ("long", "float", varint(-(2**60) - 2**36 - 1), -(2.0**60) - 2.0**37),
    ("int", "float", varint(2**24 + 1), 2.0**24),
    ("int", ["null", "string", "float"], varint(1), (None, 1.0)),
    ("string", ["null", "int", "bytes"], b"\2x", (None, b"x")),
    (ENUM, ENUM | {"symbols": ["B", "C"], "default": "C"}, b"\0", "C"),
    (ENUM, ENUM | {"symbols": ["B", "C"], "default": "C"}, b"\2", "B"),
    (DECIMAL, "bytes", b"\2\5", b"\5"),
]


@pytest.mark.parametrize(("writer", "reader", "data", "value"), PROMOTED)
def test_a_value_becomes_the_readers(writer: Any, reader: Any, data: bytes, value: Any) -> None:
    assert reader_of(record(f=writer), record(f=reader)).read(data) == (value,)


# A number of each logical type, and what it is.
INTS: dict[str | None, tuple[int, Any]] = {
    None: (19_792, 19_792),
    "date": (19_792, date(2024, 3, 10)),
    "time-millis": (19_792, 19_792),
}
LONGS: dict[str | None, tuple[int, Any]] = {
    None: (-5_000_000_000, -5_000_000_000),
    "time-micros": (86_399_999_999, 86_399_999_999),
    "timestamp-millis": (1_710_028_800_001, datetime(2024, 3, 10, 0, 0, 0, 1000, UTC)),
    "timestamp-micros": (1_710_028_800_000_001, datetime(2024, 3, 10, 0, 0, 0, 1, UTC)),
    "timestamp-nanos": (1_710_028_800_000_000_001, 1_710_028_800_000_000_001),
    "local-timestamp-millis": (-1, datetime(1969, 12, 31, 23, 59, 59, 999_000)),  # noqa: DTZ001
    "local-timestamp-micros": (-1, datetime(1969, 12, 31, 23, 59, 59, 999_999)),  # noqa: DTZ001
    "local-timestamp-nanos": (-1, -1),
}


def annotated(kind: str, name: str | None) -> Any:
    return kind if name is None else logical(kind, name)


@pytest.mark.parametrize("long", LONGS)
@pytest.mark.parametrize("int_", INTS)
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("null", [True, False])
def test_an_int_and_a_long_are_one_number_only_if_neither_has_a_logical_type(
    int_: str | None, long: str | None, order: tuple[int, int], null: bool
) -> None:
    both = [annotated("int", int_), annotated("long", long)]
    numbers, wanted = zip(INTS[int_], LONGS[long], strict=True)
    union = [*(["null"] if null else []), *(both[n] for n in order)]
    schema = record(f=union)
    reader, kind = reader_of(schema), to_arrow_type(to_spark(parse(json.dumps(schema))))
    for which in (0, 1):
        data = varint(order.index(which) + null) + varint(numbers[which])
        (found,) = pa.array([reader.read(data)], kind).to_pylist()
        if int_ is None and long is None:
            assert found == {"f": wanted[which]}
        else:
            members = {f"member_{name}": wanted[n] if n == which else None for n, name in enumerate(("int", "long"))}
            assert found == {"f": {name: members[name] for name in (f"member_{('int', 'long')[n]}" for n in order)}}


@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        ([logical("int", "date"), logical("long", "timestamp-millis")], "long"),
        ([logical("int", "date"), logical("long", "timestamp-millis")], ["null", "long"]),
        ([logical("int", "date"), logical("long", "timestamp-millis")], ["int", "long"]),
        ([logical("int", "date"), logical("long", "timestamp-millis")], ["string", "long"]),
        ([logical("int", "time-millis"), logical("long", "time-micros")], "double"),
        (["int", logical("long", "timestamp-millis")], logical("long", "timestamp-millis")),
        (["null", logical("int", "date"), "long"], ["float", "double"]),
        (["string", DECIMAL], "bytes"),
    ],
)
def test_numbers_of_several_units_are_not_read_as_one(writer: Any, reader: Any) -> None:
    with pytest.raises(
        Incompatible, match=r"^f: written as .+ or .+, read as .+, which does not show which type a value had"
    ):
        reader_of(record(f=writer), record(f=reader))


def test_one_unit_in_several_types_is_read_as_one() -> None:
    for writer, reader, data, value in (
        (["int", "long"], "long", b"\0\5", -3),
        (["int", "long"], "double", b"\2\5", -3.0),
        (["null", logical("int", "date")], ["null", "int"], b"\2\6", 3),
        (["null", logical("int", "date"), "string"], ["null", logical("int", "date"), "bytes"], b"\4\2x", (None, b"x")),
        ([logical("string", "uuid"), "bytes"], "bytes", b"\2\2x", b"x"),
    ):
        assert reader_of(record(f=writer), record(f=reader)).read(data) == (value,)


# A default as it stands in the schema, and the value.
DEFAULTS: list[tuple[Any, str, Any]] = [
    ("float", "16777217", 16777216.0),
    ("float", "0.1", 0.10000000149011612),
    ("float", "1.00000017881393432617", 1.0000001192092896),  # its double is midway to the float above
    ("float", str(2**60 + 2**36 + 1), 2.0**60 + 2.0**37),
    ("float", str(2**128 - 2**103 - 1), 3.4028234663852886e38),
    ("float", "-1e-50", -0.0),
    ("double", "9007199254740993", 9007199254740992.0),
    ("double", "0e99999999999999999999", 0.0),
    ("double", "-0.0", -0.0),
    (["null", "double"], "12345678901234567890", 12345678901234567890.0),
    (["float", "double"], "0.1", 0.10000000149011612),
    (["float", "double"], "1e39", 1e39),
    (["float", "string"], "16777217", (16777216.0, None)),
    (array("float"), "[16777217, 0.5]", [16777216.0, 0.5]),
    ({"type": "map", "values": "double"}, '{"a": 9007199254740993}', [("a", 9007199254740992.0)]),
    (record(x="float") | {"name": "I"}, '{"x": 16777217}', (16777216.0,)),
]
UNFIT_DEFAULTS: list[tuple[Any, str]] = [
    ("float", "1e39"),
    ("float", str(-(2**128) + 2**103)),
    ("double", "1e400"),
    ("double", "1" + "0" * 400),
    (array("float"), "[0, 1e39]"),
    ("int", "1.0"),
    ("long", "1e2"),
    ("double", "true"),
]


def defaulted(kind: Any, text: str) -> AvroType:
    """As a plan freezes it."""
    schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": "f", "type": kind, "default": "HERE"}]})
    return parse(render(parse(schema.replace('"HERE"', text))))


@pytest.mark.parametrize(("kind", "text", "value"), DEFAULTS, ids=[text[:30] for _, text, _ in DEFAULTS])
def test_a_default_is_the_nearest_value_of_its_type(kind: Any, text: str, value: Any) -> None:
    reader = defaulted(kind, text)
    found = BothWays(parse(json.dumps(record())), reader).read(b"")
    assert repr(found) == repr((value,))
    pa.array([found], to_arrow_type(to_spark(reader)))


@pytest.mark.parametrize(("kind", "text"), UNFIT_DEFAULTS, ids=[text[:30] for _, text in UNFIT_DEFAULTS])
def test_a_default_beyond_its_type_is_refused_where_it_would_be_read(kind: Any, text: str) -> None:
    reader = defaulted(kind, text)
    with pytest.raises(Incompatible, match="f: not written, and its default is not a value of"):
        AvroReader(parse(json.dumps(record())), reader)


def test_a_default_of_thousands_of_digits_is_refused_by_name() -> None:
    with pytest.raises(BadSchema, match="it has a number of more than 1,000 digits"):
        defaulted("double", "1" + "0" * 5000)


@pytest.mark.parametrize("name", ["NaN", "Infinity", "-Infinity"])
def test_a_default_that_is_no_json_is_no_schema(name: str) -> None:
    with pytest.raises(BadSchema, match=f"it is not JSON, which has no {name}"):
        defaulted("double", name)


def test_a_value_that_becomes_the_readers_is_first_one_of_the_writers() -> None:
    for writer, reader, data in (
        ("bytes", "string", b"\2\xff"),
        ("string", "bytes", b"\2\xff"),
        ("int", "long", varint(2**31)),
        (DECIMAL, "bytes", b"\6" + (10_000).to_bytes(3)),
        (DECIMAL, DECIMAL | {"precision": 9}, b"\6" + (10_000).to_bytes(3)),
    ):
        with pytest.raises(Malformed, match=r"^f: "):
            reader_of(record(f=writer), record(f=reader)).read(data)


def test_arrays_within_arrays_cannot_claim_nulls_without_end() -> None:
    """Each claims as many as one record may have, in three bytes."""
    data = varint(1000) + (varint(MOST_EMPTY) + b"\0") * 1000 + b"\0"
    reader, begin = reader_of(array(array("null"))), process_time()
    with pytest.raises(Malformed, match="items that take no bytes"):
        reader.read(data)
    assert process_time() - begin < 1
    assert reader.read(varint(1) + varint(MOST_EMPTY) + b"\0\0") == [[None] * MOST_EMPTY], "each record again"


def test_a_part_of_a_value_and_a_value_with_something_behind_it_are_malformed_and_no_bytes_are_an_error() -> None:
    """Of schemas made up by chance, and with a byte changed anywhere: a value that pyarrow takes, or `Malformed`."""
    for seed in range(40):
        chance, random, records = Chance(seed), Random(seed), list[bytes]()
        schema = chance.record()
        both = reader_of(schema)
        for _ in range(20):
            data = written(schema, chance.value(schema))
            both.one_way.read(data)
            for bad in (data + b"\0", data[: random.randrange(len(data))] if data else b"\0"):
                with pytest.raises(Malformed):
                    both.one_way.read(bad)
                records.append(bad)
            records.append(data)
            for _ in range(10 if data else 0):
                at = random.randrange(len(data))
                records.append(data[:at] + random.randbytes(1) + data[at + 1 :])
                try:
                    found = both.one_way.read(records[-1])
                except Malformed:
                    continue
                pa.array([found], both.kind)
        check_column(both.one_way, both.kind, records)


def test_the_field_whose_text_is_not_utf8_is_named() -> None:
    schema = record(a="int", b="string", c=["null", "string"], d="string")
    good = [b"\2", b"\2x", b"\2\2y", b"\2z"]
    for place, name in ((1, "b"), (2, "c"), (3, "d")):
        data = b"".join(part[:-1] + b"\xff" if n == place else part for n, part in enumerate(good))
        with pytest.raises(Malformed, match=f"^{name}: text that is not UTF-8"):
            reader_of(schema).read(data)
    assert reader_of(schema).read(b"".join(good)) == (1, "x", "y", "z")


def test_every_number_of_64_bits_is_read() -> None:
    random, reader = Random(7), reader_of(record(f="long", may=["null", "long"]))
    for bits in range(1, 64):
        for number in (2**bits - 1, -(2**bits), random.randrange(2**bits), -random.randrange(2**bits)):
            data = varint(number)
            assert read_long(data, 0) == (number, len(data))
            assert reader.read(data + b"\2" + data) == (number, number)


def test_floats_are_the_bits_that_were_written() -> None:
    reader, kind = reader_of(record(f="double")), pa.struct({"f": pa.float64()})
    for value in (float("inf"), -0.0, 5e-324, 0.1):
        ((found,),) = [reader.read(struct.pack("<d", value))]
        assert struct.pack("<d", found) == struct.pack("<d", value)
    bits = [struct.pack("<d", -0.0), bytes.fromhex("0100000000 00f07f"), bytes.fromhex("0200000000 00f8ff")]  # two NaN
    column, sound = reader.read_many(pa.array(bits), 0, kind)
    assert sound.all()
    assert bytes(column.field(0).buffers()[1]) == b"".join(bits)


USUAL = record(
    boolean="boolean",
    int="int",
    long="long",
    float="float",
    double="double",
    bytes="bytes",
    string="string",
    enum=ENUM,
    fixed={"type": "fixed", "name": "Four", "size": 4},
    date=logical("int", "date"),
    micros=logical("long", "timestamp-micros"),
    millis=logical("long", "timestamp-millis"),
    local=logical("long", "local-timestamp-millis"),
    decimal=DECIMAL,
    uuid=logical("string", "uuid"),
    map=MAP,
    several=["null", "int", "string"],
    texts=array("string"),
    inner=["null", record(x=["null", "long"], y=array(array("int"))) | {"name": "Inner"}],
)


@pytest.mark.parametrize("may_be_null", [False, True])
def test_usual_records_become_columns_at_once_and_the_others_are_left(may_be_null: bool) -> None:
    """A thousand records as fastavro writes them, with some between them that are malformed or unusual."""
    schema, chance = json.loads(json.dumps(USUAL)), Chance(5)
    if may_be_null:
        for one in schema["fields"]:
            one["type"] = one["type"] if isinstance(one["type"], list) else ["null", one["type"]]
    good = [written(schema, chance.value(schema)) for _ in range(1000)]
    records = [b"12345" + (one[: len(one) // 2] if n % 50 == 7 else one) for n, one in enumerate(good)]
    reader, kind = (
        AvroReader(parse(json.dumps(schema)), parse(json.dumps(schema))),
        to_arrow_type(to_spark(parse(json.dumps(schema)))),
    )
    column, sound = reader.read_many(pa.array(records), 5, kind)
    assert sound.tolist() == [n % 50 != 7 for n in range(1000)]
    values = [reader.read(one) for n, one in enumerate(good) if n % 50 != 7]
    assert column.filter(pa.array(sound)).equals(pa.array(values, kind))


def test_an_array_that_is_longer_than_most_is_left() -> None:
    """A round for each of its items would take longer than to read it by itself."""
    schema = record(f=array("int"), g="int")
    records = [varint(n) + b"\2" * n + b"\0" * (n > 0) + b"\6" for n in [3] * 100 + [400, 0, 20]]
    both = reader_of(schema)
    assert check_column(both.one_way, both.kind, records).tolist() == [True] * 100 + [False, True, False]
