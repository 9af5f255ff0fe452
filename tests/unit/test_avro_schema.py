"""What of two schemas can be read, by the specification's rules; and what Spark cannot hold."""

from __future__ import annotations

import json
from typing import Any

import fastavro
import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from fencepost.formats import REGISTRY_FORMATS, Declared, SchemaReference
from fencepost.formats.avro import check_readable
from fencepost.formats.avro_decoder import AvroReader
from fencepost.formats.avro_schema import BadSchema, Incompatible, check_holdable, parse, render

FORMAT = REGISTRY_FORMATS["avro"]


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    """Fields are (name, type), or (name, type, what else it says)."""
    said = [{"name": n, "type": t, **(rest[0] if rest else {})} for n, t, *rest in fields]
    return {"type": "record", "name": name, "fields": said, **more}


def enum(*symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": list(symbols), **more}


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def decimal(precision: int, scale: int) -> dict[str, Any]:
    return logical("bytes", "decimal", precision=precision, scale=scale)


def resolved(writer: Any, reader: Any) -> AvroReader:
    return AvroReader(parse(json.dumps(writer)), parse(json.dumps(reader)))


MILLIS, MICROS = logical("long", "timestamp-millis"), logical("long", "timestamp-micros")
READABLE = {
    "the same": ("int", "int"),
    "promoted": ("int", "double"),
    "text as bytes": ("string", "bytes"),
    "into a union": ("int", ["null", "string", "long"]),
    "out of a union": (["int", "long"], "long"),
    "a default": (record(("a", "int")), record(("a", "int"), ("b", "string", {"default": ""}))),
    "a default of null": (record(), record(("b", ["int", "null"], {"default": None}))),
    "a field dropped": (record(("a", "int"), ("b", "string")), record(("a", "int"))),
    "a field renamed": (record(("a", "int")), record(("b", "int", {"aliases": ["a"]}))),
    "a record renamed": (record(name="x.Old"), record(name="y.New", aliases=["x.Old"])),
    "another namespace": (record(name="x.R"), record(name="y.R")),
    "a symbol with a default": (enum("A", "B"), enum("A", default="A")),
    "an annotation added": ("long", MILLIS),
    "an annotation dropped": (MILLIS, "long"),
    "more digits": (decimal(4, 2), decimal(9, 2)),
    "two records into one": ([record(name="A"), record(name="B")], record(name="C", aliases=["A", "B"])),
}
UNREADABLE = {
    "text as a number": (record(("n", "string")), record(("n", "int")), "n: written as string, read as int"),
    "narrower": (record(("n", "long")), record(("n", "int")), "n: written as long, read as int"),
    "a null": (record(("n", ["null", "int"])), record(("n", "int")), "n: written as null, read as int"),
    "no default": (record(), record(("n", "int")), "n: not written, and it has no default"),
    "a bad default": (
        record(),
        record(("n", "int", {"default": "x"})),
        "n: not written, and its default is not a value of int",
    ),
    "within": (
        record(("a", {"type": "array", "items": record(("n", "string"), name="I")})),
        record(("a", {"type": "array", "items": record(("n", "int"), name="I")})),
        "a[].n: written as string, read as int",
    ),
    "another record": (
        record(name="A"),
        record(name="B"),
        "written as record A, read as record B, which has no such alias",
    ),
    "a symbol": (enum("A", "B"), enum("A"), "enum E has neither the symbols B nor a default"),
    "another size": (
        {"type": "fixed", "name": "F", "size": 2},
        {"type": "fixed", "name": "F", "size": 3},
        "written as 2 bytes, read as 3",
    ),
    # Java reads these, and gives other values.
    "another unit": (
        record(("t", MILLIS)),
        record(("t", MICROS)),
        "t: written as long (timestamp-millis), read as long",
    ),
    "another scale": (
        record(("d", decimal(4, 2))),
        record(("d", decimal(9, 3))),
        "d: written as bytes (decimal(4,2)), read as",
    ),
    "fewer digits": (decimal(9, 2), decimal(4, 2), "written as bytes (decimal(9,2))"),
}


@pytest.mark.parametrize(("writer", "reader"), READABLE.values(), ids=READABLE)
def test_the_specification_lets_one_schema_read_the_other(writer: Any, reader: Any) -> None:
    resolved(writer, reader)


@pytest.mark.parametrize(("writer", "reader", "why"), UNREADABLE.values(), ids=UNREADABLE)
def test_what_cannot_be_read_is_refused_by_the_name_of_the_field(writer: Any, reader: Any, why: str) -> None:
    with pytest.raises(Incompatible) as found:
        resolved(writer, reader)
    assert why in str(found.value)


def test_a_schema_says_the_same_after_it_was_written_out() -> None:
    inner = {"type": "fixed", "name": "F", "size": 16, "logicalType": "decimal", "precision": 20, "scale": 3}
    schema = record(
        ("a", inner, {"doc": "why", "default": "\u0000" * 16}),
        ("b", ["null", "F"], {"default": None}),
        ("c", enum("A", default="A", namespace="other")),
        ("d", {"type": "map", "values": MILLIS}),
        name="n.s.R",
    )
    kind = parse(json.dumps(schema))
    assert parse(render(kind)) == kind
    assert "why" not in render(kind)


def test_names_may_come_from_schemas_that_it_refers_to() -> None:
    inner = record(("x", "int"), name="a.Inner")
    outer = record(("one", "a.Inner"), ("two", ["null", "a.Inner"]))
    assert parse(json.dumps(outer), [json.dumps(inner)]).fields[0].type.fields[0].name == "x"


def test_an_annotation_that_means_nothing_here_is_left_out() -> None:
    for kind in (
        logical("string", "date"),
        logical("int", "nonsense"),
        logical("bytes", "decimal", precision=2, scale=3),
    ):
        assert parse(json.dumps(kind)).logical is None


MONEY = {"type": "fixed", "name": "Money", "size": 4}
FROM_JAVA = {
    "an annotation that means nothing": record(("d", logical("bytes", "decimal", precision=2, scale=3))),
    "more digits than its bytes hold": record(("d", {**MONEY, "logicalType": "decimal", "precision": 99})),
    "a whole number for a double": record(("d", {"type": "double"}, {"default": 0})),
    "a name without a namespace, from within one": record(("m", "Money"), namespace="shop"),
    "a name in an object": record(("a", enum("A")), ("b", {"type": "E"})),
}


@pytest.mark.parametrize("schema", FROM_JAVA.values(), ids=FROM_JAVA)
def test_a_schema_that_java_and_so_the_registry_takes_is_one(schema: Any) -> None:
    """Java's Avro 1.12 takes each *(measured)*; fastavro's parser refuses each."""
    references = [json.dumps(MONEY)] if "shop" in json.dumps(schema) else []
    kind = parse(json.dumps(schema), references)
    assert parse(render(kind)) == kind


NO_SCHEMA = {
    "not JSON": ("{", "not JSON"),
    "no type": ("{}", "not an Avro schema"),
    "an unknown name": ('"X"', "no type 'X' is defined"),
    "twice": (record(("a", enum("A")), ("b", enum("A"))), "type E is defined twice"),
    "two fields": (record(("a", "int"), ("a", "int")), "a: a field has no name, or the name of another field"),
    "no name": (record(("a", "int"), name=""), "'' is not a name"),
    "half a character": (record(("a", enum("\ud800"))), "a: two symbols are the same, or one is not a text"),
    "a name that is none": (record(("a", "int"), name=7), "not an Avro schema"),
    "a union twice": (["int", "int"], "holds a type twice"),
}


@pytest.mark.parametrize(("schema", "why"), NO_SCHEMA.values(), ids=NO_SCHEMA)
def test_what_is_no_schema_is_refused(schema: Any, why: str) -> None:
    with pytest.raises(BadSchema) as found:
        parse(schema if isinstance(schema, str) else json.dumps(schema))
    assert why in str(found.value)


UNHOLDABLE = {
    "itself": (record(("next", ["null", "R"])), "next: R contains itself, and Spark has no such type"),
    "itself, further in": (
        record(("a", {"type": "array", "items": {"type": "map", "values": "R"}})),
        "a[]{}: R contains",
    ),
    "a name": (record(("q", record(("user-id", "int"), name="Q"))), "q: 'user-id': a column's name may have letters"),
    "a member's name": (record(("q", ["int", enum("A", name="a-b")])), "q: 'a-b': a column's name"),
    "digits": (record(("d", decimal(64, 39))), "d: a decimal of 39 digits behind the point"),
    "case": (record(("q", record(("a", "int"), ("A", "int"), name="Q"))), "q: fields a and A differ only in case"),
    "members": (
        record(("u", [record(name="x.A"), record(name="y.A")])),
        "u: two types of a union would be the same column in Spark",
    ),
}


@pytest.mark.parametrize(("schema", "why"), UNHOLDABLE.values(), ids=UNHOLDABLE)
def test_what_spark_cannot_hold_is_refused_by_the_name_of_the_field(schema: Any, why: str) -> None:
    with pytest.raises(BadSchema) as found:
        check_holdable(parse(json.dumps(schema)))
    assert why in str(found.value)


def test_a_field_that_no_column_can_hold_is_refused_with_the_way_on() -> None:
    for declared, setting in ((Declared(), "source.subject"), (None, "source.key_subject")):
        with pytest.raises(
            BadSchema, match=f"^d: a decimal of 64 digits behind.+ without the field.+ set {setting} to this"
        ):
            check_readable(parse(json.dumps(record(("d", decimal(64, 64))))), declared)


NODE = record(("id", "int"), ("next", ["null", "R"]), name="a.R")
BOTH = record(("b", record(("a", ["null", "A"]), name="B")), name="A")


@pytest.mark.parametrize(
    ("schema", "references"),
    [
        (NODE, []),
        (record(("n", "a.R")), [NODE]),
        (record(("n", "a.R"), ("m", ["null", "a.R"])), [NODE]),
        (record(("x", BOTH), ("y", "B")), []),
        (record(("y", "B")), [BOTH]),
        (record(("y", "B"), ("x", "A")), [BOTH]),
    ],
)
def test_a_schema_that_contains_itself_says_the_same_after_it_was_written_out(
    schema: Any, references: list[Any]
) -> None:
    kind = parse(json.dumps(schema), [json.dumps(one) for one in references])
    text = render(kind)
    assert render(parse(text)) == text
    assert fastavro.parse_schema(json.loads(text))


def test_an_outputs_schema_has_names_that_sparks_library_takes() -> None:
    """It refuses others when it encodes; no value has one, so they are read."""
    for schema, name in (
        (record(("a", "int"), name="my-server.orders.R"), "my-server"),
        (record(("a", "int"), name="my-record"), "my-record"),
        (record(("a", ["null", enum("in-progress")])), "in-progress"),
    ):
        with pytest.raises(BadSchema, match=f"{name!r}, in .+ is not a name in Avro"):
            FORMAT.written(json.dumps(schema), (), columns=True)
        FORMAT.reader(json.dumps(schema), (), Declared(), columns=True)


def test_a_value_has_to_be_a_record_whose_fields_can_be_columns() -> None:
    for schema, why in (
        ("int", "only a record has columns"),
        (record(("_Offset", "long")), "_offset: the transform's source"),
    ):
        with pytest.raises(ValueError, match=why):
            check_readable(parse(json.dumps(schema)), Declared())
        check_readable(parse(json.dumps(schema)), None)


def test_a_field_that_no_written_column_has_is_refused_in_an_outputs_schema_and_is_read() -> None:
    text = json.dumps(record(("_id", "int"), ("a", record(("_x", "int"), name="I"))))
    with pytest.raises(BadSchema, match=r"^_id: columns whose names begin with _ are not written"):
        FORMAT.written(text, (), columns=True)
    FORMAT.written(text, (), columns=False)  # a key is one column, whatever is in it
    FORMAT.reader(text, (), Declared(), columns=True)
    with pytest.raises(BadSchema, match="_fencepost_key: the transform's source already has a column of that name"):
        FORMAT.reader(json.dumps(record(("_fencepost_key", "int"))), (), Declared(), columns=True)


def test_names_made_of_columns_names_may_meet() -> None:
    """`t_a_b` is the record in a_b, and the one in the b of a."""
    inner, other = StructType([StructField("x", IntegerType())]), StructType([StructField("y", StringType())])
    kind = StructType([StructField("a", StructType([StructField("b", inner)])), StructField("a_b", other)])
    found = parse(FORMAT.derive(kind, "t", None))
    assert [one.type.others[0].name for one in found.fields] == ["t_a", "t_a_b_2"]
    assert found.fields[0].type.others[0].fields[0].type.others[0].name == "t_a_b"


def test_references_are_put_in_their_places_each_once() -> None:
    """Two that refer to the same schema, under names of their own."""
    money = json.dumps(record(("cents", "long"), name="m.Money"))
    price = SchemaReference("a", json.dumps(record(("m", "m.Money"), name="Price")), (SchemaReference("x", money),))
    fee = SchemaReference("b", json.dumps(record(("m", "m.Money"), name="Fee")), (SchemaReference("y", money),))
    text = json.dumps(record(("price", "Price"), ("fee", "Fee"), ("m", "m.Money")))
    FORMAT.reader(text, (price, fee), Declared(), columns=True)


def test_a_schema_of_types_without_end_is_refused() -> None:
    """Each record has two of the one before: a few lines of text."""
    schema = record(("x", "int"), name="R0")
    for number in range(1, 60):
        schema = record(("a", schema), ("b", f"R{number - 1}"), name=f"R{number}")
    with pytest.raises(BadSchema, match="more than 5,000 types"):
        parse(json.dumps(schema))
