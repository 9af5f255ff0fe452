"""A JSON Schema declares columns' types, or is refused with the place: every construct, and schemas made up by chance."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, StructType

from fencepost.formats import Declared, SchemaReference
from fencepost.formats.declared import Encoding, FieldOf
from fencepost.formats.format import BadSchema
from fencepost.formats.framing import Framing, UnknownId
from fencepost.formats.json_decoder import JsonDecoder
from fencepost.formats.json_framed import JsonSchema, to_spark
from fencepost.formats.json_schema import JsonType, Property, parse, render, to_json

FORMAT = JsonSchema()
TEXT = {"type": "string"}


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def field(schema: Any, **beside: Any) -> JsonType:
    """The type of a property with this schema."""
    (found,) = parse(json.dumps(of(f=schema) | beside)).properties
    return found.type


SAYS: list[tuple[str, Any]] = [
    ("string", TEXT),
    ("bigint", {"type": "integer", "minimum": 1, "format": "int32", "title": "t", "default": 3}),
    ("double", {"type": "number", "multipleOf": 0.1}),
    ("double", {"type": ["integer", "number"]}),
    ("boolean", {"type": ["boolean"]}),
    ("date", {"type": "string", "format": "date"}),
    ("timestamp", {"type": "string", "format": "date-time"}),
    ("string", {"type": "string", "format": "email", "pattern": "@"}),
    ("string", {"type": "string", "format": "date", "enum": ["2026-01-01"]}),
    ("array<bigint>", {"type": "array", "items": {"type": "integer"}, "minItems": 1}),
    ("array<string>", {"items": TEXT}),
    ("struct<a:string,b:array<double>>", of(a=TEXT, b={"type": "array", "items": {"type": "number"}})),
    ("struct<a:string>", {"properties": {"a": TEXT}, "patternProperties": {"^x-": TEXT}}),
    ("struct<a:string>", of(a=TEXT) | {"additionalProperties": {"type": "integer"}, "oneOf": [{"required": ["a"]}]}),
    ("map<string,bigint>", {"type": "object", "additionalProperties": {"type": "integer"}}),
    ("map<string,bigint>", {"type": "object", "properties": {}, "additionalProperties": {"type": "integer"}}),
    ("string", {"enum": ["a", "b"]}),
    ("double", {"enum": [1, 2.5]}),
    ("boolean", {"const": False}),
    ("bigint", {"anyOf": [{"const": 1}, {"const": 2}]}),
    ("string", {"allOf": [TEXT], "description": "d"}),
    ("bigint", {"$ref": "#/definitions/a~1b%20", "description": "d"}),
    ("struct<x:bigint>", {"$ref": "#there"}),
    ("string", {"type": "string", "if": {"const": "a"}, "then": {"minLength": 1}, "not": {"const": "b"}}),
]
BESIDE = {
    "definitions": {
        "a/b ": {"type": "integer"},
        "anchor": {"$id": "#there"} | of(x={"$ref": "#/definitions/a~1b%20"}),
        "loop": of(next={"oneOf": [{"type": "null"}, {"$ref": "#/definitions/loop"}]}),
    }
}


@pytest.mark.parametrize(("kind", "schema"), SAYS, ids=[json.dumps(schema) for _, schema in SAYS])
def test_a_property_is_a_column_of_that_type(kind: str, schema: Any) -> None:
    found = field(schema, **BESIDE)
    assert (to_spark(found).simpleString(), found.nullable) == (kind, False)


NULLABLE: list[Any] = [
    {"type": ["null", "integer"]},
    {"oneOf": [{"type": "null"}, {"type": "integer"}]},
    {"anyOf": [{"$ref": "#/definitions/a~1b%20"}, {"const": None}]},
    {"anyOf": [{"type": ["integer", "null"]}, {"type": "integer"}]},
    {"enum": [1, None]},
    {"type": ["integer", "null"], "enum": [1, None]},
]


@pytest.mark.parametrize("schema", NULLABLE, ids=json.dumps)
def test_every_way_to_allow_null_makes_a_property_nullable(schema: Any) -> None:
    found = field(schema, **BESIDE)
    assert (found.kind, found.nullable) == ("integer", True)
    required = json.loads(render(parse(json.dumps(of(f=schema) | BESIDE | {"required": ["f"]}))))
    assert required["required"] == ["f"]


def test_an_enum_without_null_takes_none() -> None:
    assert not field({"type": ["integer", "null"], "enum": [1, 2]}).nullable


REFUSED: list[tuple[Any, str]] = [
    ({}, "#/properties/f: it gives no type"),
    (True, "#/properties/f: it gives no type"),
    (False, "#/properties/f: no value can have this schema"),
    ({"minimum": 3}, "#/properties/f: it gives no type"),
    ({"type": "null"}, "#/properties/f/type: always null"),
    ({"type": "text"}, "#/properties/f/type: JSON Schema has no type text"),
    ({"type": ["string", "integer"]}, "#/properties/f/type: several types (integer, string)"),
    ({"enum": [1, "a"]}, "#/properties/f/enum: several types (integer, string)"),
    ({"const": [1]}, "#/properties/f/items: it gives no type"),
    ({"oneOf": [TEXT, {"type": "integer"}]}, "#/properties/f/oneOf: 2 schemas (string, integer), but a column has one"),
    ({"anyOf": [of(a=TEXT), of(b=TEXT)]}, "#/properties/f/anyOf: 2 schemas (object, object)"),
    ({"allOf": [of(a=TEXT), of(b=TEXT)]}, "#/properties/f/allOf: 2 schemas (object, object)"),
    ({"allOf": [TEXT, TEXT]}, "#/properties/f/allOf: 2 schemas (string, string)"),
    ({"oneOf": [{"type": "null"}]}, "#/properties/f/oneOf: 1 schemas (null)"),
    ({"type": "string", "oneOf": [TEXT]}, "#/properties/f: its type is given twice: oneOf, type"),
    ({"$ref": "#/definitions/loop", "type": "string"}, "#/properties/f: something other than $ref also gives its type"),
    ({"type": "array"}, "#/properties/f/items: it gives no type"),
    ({"type": "array", "items": [TEXT, TEXT]}, "#/properties/f/items: a type for each position"),
    ({"type": "array", "prefixItems": [TEXT]}, "#/properties/f/prefixItems: a type for each position"),
    ({"type": "object"}, "#/properties/f: an object without properties"),
    (of(), "#/properties/f: an object without properties"),
    ({"type": "object", "patternProperties": {"^x": TEXT}}, "#/properties/f/patternProperties: names by a pattern"),
    (of(a={"items": {"oneOf": [TEXT, {"type": "number"}]}}), "#/properties/f/properties/a/items/oneOf: 2 schemas"),
    (of(**{"a/b": {}}), "#/properties/f/properties/a~1b: it gives no type"),
    (of(a=TEXT, A=TEXT), "#/properties/f/properties: a and A differ only in case"),
    (of(**{"": TEXT}), "'' is not a name of a column"),
    ({"$ref": "#/definitions/loop"}, "#/definitions/loop: it contains itself"),
    ({"$ref": "#"}, "#: it contains itself"),
    ({"$ref": "#/definitions/none"}, "#/properties/f/$ref: #/definitions/none is neither in the schema nor among"),
    ({"$ref": "other.json"}, "#/properties/f/$ref: other.json is neither"),
    ({"$ref": 7}, "#/properties/f: something other than $ref"),
    (of(a=TEXT) | {"required": True}, "it is not a JSON Schema"),
]


@pytest.mark.parametrize(("schema", "why"), REFUSED, ids=[json.dumps(schema) for schema, _ in REFUSED])
def test_what_no_column_is_refused_with_its_place_and_may_be_declared(schema: Any, why: str) -> None:
    text = json.dumps(of(f=schema, g=TEXT) | BESIDE)
    with pytest.raises(BadSchema) as found:
        FORMAT.reader(text, (), Declared(), columns=True)
    assert why in str(found.value)
    place = why.startswith(("#", "'"))
    assert (
        "Declare the type of the outermost field that contains this under source.schema" in str(found.value)
    ) == place
    assert json.loads(FORMAT.reader(text, (), Declared({"f": "string"}), columns=True)) == of(g=TEXT)


ROOTS: list[tuple[str, str]] = [
    ("nonsense", "it is not JSON"),
    ("[]", "it is not a JSON Schema"),
    (json.dumps(TEXT), "its values are of type string, and only an object with properties has columns"),
    (json.dumps({"type": "object", "additionalProperties": TEXT}), "of type object (additionalProperties)"),
    (json.dumps(of()), "#/properties: it has none"),
    (json.dumps(of(_Key=TEXT)), "the transform's source already has _key"),
    ("[" * 100_000, "nested too deeply"),
    (
        json.dumps(
            {
                "$ref": "#/definitions/d0",
                "definitions": {
                    f"d{n}": of(a={"$ref": f"#/definitions/d{n + 1}"}, b={"$ref": f"#/definitions/d{n + 1}"})
                    for n in range(40)
                }
                | {"d40": TEXT},
            }
        ),
        "more than 5,000 types",
    ),
]


@pytest.mark.parametrize(("text", "why"), ROOTS, ids=[why for _, why in ROOTS])
def test_a_document_that_has_no_columns_is_refused(text: str, why: str) -> None:
    with pytest.raises(BadSchema) as found:
        FORMAT.reader(text, (), Declared(), columns=True)
    assert why in str(found.value)


ODD = of(
    **{
        "@timestamp": {"type": "string", "format": "date-time"},
        "_id": {"type": "integer"},
        "": TEXT,
        "a`b": TEXT,
        "_key": {},
    }
)
MAPPED = {"at": FieldOf("@timestamp"), "empty": FieldOf(""), "key": FieldOf("_key")}


def test_a_property_of_any_name_is_read_in_the_column_that_the_settings_name() -> None:
    """With the type of the schema, or with the declared one. The others stay in columns of their names."""
    declared = Declared({"key": "string"}, (), MAPPED)
    frozen = FORMAT.reader(json.dumps(ODD), (), declared, columns=True)
    names = ["@timestamp", "_id", "", "a`b"]
    assert json.loads(frozen) == of(**{name: ODD["properties"][name] for name in names})
    columns = [("at", "@timestamp"), ("_id", "_id"), ("empty", ""), ("a`b", "a`b")]
    assert declared.with_registered_types(names) == columns
    root = json.dumps({"$ref": "#/definitions/it", "definitions": {"it": ODD}})
    assert FORMAT.reader(root, (), declared, columns=True) == frozen


def test_two_columns_of_one_property_have_the_types_that_each_says() -> None:
    fields = {"a": FieldOf("x"), "b": FieldOf("x"), "text": FieldOf("x")}
    declared = Declared({"text": "string"}, (), fields)
    assert json.loads(FORMAT.reader(json.dumps(of(x={"type": "integer"})), (), declared, columns=True)) == of(
        x={"type": "integer"}
    )
    assert declared.with_registered_types(["x"]) == [("a", "x"), ("b", "x")]


CANNOT_BE: list[tuple[Declared, str]] = [
    (Declared(), "#/properties/_key: it gives no type"),
    (
        Declared({"key": "string"}, (), {"key": FieldOf("_key")}),
        "'' is not a name of a column. Read the property in a column of another name",
    ),
    (
        Declared({"_": "string"}, (), MAPPED | {"_": FieldOf("_key"), "key": FieldOf("nowhere")}),
        "it has no 'nowhere', and source.schema.key has no type",
    ),
    (
        Declared({"key": "string"}, (), MAPPED | {"_id": FieldOf("@timestamp")}),
        "source.schema reads another field in column _id. Read the property in a column of another name: "
        "under source.schema, `other_name: {field: '_id'}`",
    ),
    (
        Declared({"key": "string", "_id": "int"}, (), MAPPED | {"_id": FieldOf("@timestamp")}),
        "source.schema reads another field in column _id",
    ),
    (Declared({"key": "string", "_ID": "int"}, (), MAPPED), "_id and _ID differ only in case"),
    (
        Declared({"key": "string"}, (), MAPPED | {"empty": FieldOf("", Encoding(truncates=True))}),
        "source.schema.empty: digits: truncate is for a time",
    ),
]


@pytest.mark.parametrize(("declared", "why"), CANNOT_BE, ids=[why for _, why in CANNOT_BE])
def test_a_column_that_cannot_be_is_refused_with_the_way_on(declared: Declared, why: str) -> None:
    with pytest.raises(BadSchema) as found:
        FORMAT.reader(json.dumps(ODD), (), declared, columns=True)
    assert why in str(found.value)


def test_a_property_that_every_source_has_is_read_in_another_column() -> None:
    with pytest.raises(BadSchema, match=r"already has _offset. Read .+, `other_name: {field: '_offset'}`"):
        FORMAT.reader(json.dumps(of(_offset=TEXT)), (), Declared(), columns=True)
    FORMAT.reader(json.dumps(of(_offset=TEXT)), (), Declared(fields={"place": FieldOf("_offset")}), columns=True)


def test_a_property_that_begins_with_an_underscore_is_written_from_a_column_of_another_name() -> None:
    text = json.dumps(of(_id=TEXT, a=TEXT))
    with pytest.raises(BadSchema, match=r"^_id: .+ `output.fields: {other_name: _id}`"):
        FORMAT.written(text, (), columns=True)
    assert json.loads(FORMAT.written(text, (), columns=True, mapped=["_id"])) == of(_id=TEXT, a=TEXT)


@pytest.mark.parametrize("base", [{}, {"$id": "http://example.com/schemas/order.json"}])
def test_references_are_found_by_their_names_and_frozen_in_their_places(base: dict[str, Any]) -> None:
    """Also where the schema has an address of its own, and where a reference refers on."""
    buyer = {"definitions": {"Buyer": of(home={"$ref": "http://elsewhere/address.json"}), "Loop": {"$ref": "#"}}}
    address = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **of(town={"$ref": "#/$defs/T"}),
        "$defs": {"T": TEXT},
    }
    far = SchemaReference("http://elsewhere/address.json", json.dumps(address))
    references = [SchemaReference("buyer.json", json.dumps(buyer), (far,))]
    text = json.dumps(of(who={"$ref": "buyer.json#/definitions/Buyer"}) | base)
    frozen = FORMAT.reader(text, references, Declared(), columns=True)
    assert json.loads(frozen) == of(who=of(home=of(town=TEXT)))


def test_a_name_is_the_document_that_the_one_that_says_it_refers_to() -> None:
    """Two may call different documents money.json; and one document may have two names."""
    text, number = (
        SchemaReference("money.json", json.dumps(TEXT)),
        SchemaReference("money.json", json.dumps({"type": "integer"})),
    )
    price = SchemaReference("price.json", json.dumps(of(cents={"$ref": "money.json"})), (number,))
    again = SchemaReference("again.json", number.text)
    schema = of(
        price={"$ref": "price.json"}, note={"$ref": "money.json"}, n={"$ref": "again.json"}, same={"$ref": "price.json"}
    )
    for references in ([price, text, again], [text, again, price]):
        found = FORMAT.reader(json.dumps(schema), references, Declared(), columns=True)
        priced = of(cents={"type": "integer"})
        assert json.loads(found) == of(price=priced, note=TEXT, n={"type": "integer"}, same=priced)


def test_a_document_is_found_by_its_address_too_and_knows_its_own_names() -> None:
    base = "http://example.com/schemas/"
    number = SchemaReference("money.json", json.dumps({"type": "integer"}))
    price = SchemaReference(
        f"{base}price.json", json.dumps(of(cents={"$ref": "money.json#"}) | {"$id": f"{base}price.json"}), (number,)
    )
    text = SchemaReference("money.json", json.dumps(TEXT))
    schema = of(price={"$ref": "price.json"}, note={"$ref": "money.json"}) | {"$id": f"{base}order.json"}
    found = FORMAT.reader(json.dumps(schema), [price, text], Declared(), columns=True)
    assert json.loads(found) == of(price=of(cents={"type": "integer"}), note=TEXT)


UNWRITABLE = {
    "a property that nothing declares": (of(a=TEXT) | {"required": ["a", "b"]}, "#/required: b must be there"),
    "within": (of(a=of(x=TEXT) | {"required": ["b"]}), "#/properties/a/required: b must be there"),
    "in a list": (
        of(a={"type": "array", "items": of(x=TEXT) | {"required": ["b"]}}),
        "#/properties/a/items/required: b",
    ),
    "of a map": (
        of(a={"type": "object", "additionalProperties": TEXT, "required": ["b"]}),
        "#/properties/a/required: b must",
    ),
    "a name that no written column has": (
        of(_id=TEXT, a=TEXT),
        "_id: columns whose names begin with _ are not written",
    ),
}


@pytest.mark.parametrize(("schema", "why"), UNWRITABLE.values(), ids=UNWRITABLE)
def test_a_schema_that_no_row_can_be_written_with_is_refused_and_can_be_read(schema: Any, why: str) -> None:
    with pytest.raises(BadSchema) as found:
        FORMAT.written(json.dumps(schema), (), columns=True)
    assert why in str(found.value)
    frozen = FORMAT.reader(json.dumps(schema), (), Declared(), columns=True)
    assert FORMAT.reader(frozen, (), Declared(), columns=True) == frozen


def kinds(depth: int = 2) -> st.SearchStrategy[JsonType]:
    """Types that `parse` may find. Enums are of texts."""
    plain = st.sampled_from(["string", "integer", "number", "boolean", "date", "date-time"])
    enums = st.builds(
        JsonType,
        st.just("string"),
        st.booleans(),
        values=st.lists(st.text(), min_size=1, max_size=3, unique=True).map(tuple),
    )
    simple = st.builds(JsonType, plain, st.booleans()) | enums
    if not depth:
        return simple
    inner = st.deferred(lambda: kinds(depth - 1))
    several = st.builds(JsonType, st.sampled_from(["array", "map"]), st.booleans(), items=inner)
    return simple | several | objects(inner, st.booleans())


def objects(inner: st.SearchStrategy[JsonType], nullable: st.SearchStrategy[bool]) -> st.SearchStrategy[JsonType]:
    names = st.lists(st.sampled_from(["a", "b-c", "d.e", "é", "$x"]), min_size=1, max_size=3, unique=True)
    properties = names.flatmap(
        lambda found: st.tuples(*(st.builds(Property, st.just(name), inner, st.booleans()) for name in found))
    )
    return st.builds(JsonType, st.just("object"), nullable, properties, st.booleans())


ROOT = objects(kinds(), st.just(False))


def in_other_words(kind: JsonType, draw: Any, definitions: dict[str, Any]) -> Any:
    """A schema that says the same in another way: by references, oneOf, or without saying `type`."""
    plain = to_json(kind)
    if kind.items is not None:
        plain["items" if kind.kind == "array" else "additionalProperties"] = in_other_words(
            kind.items, draw, definitions
        )
    if kind.kind == "object":
        plain["properties"] = {p.name: in_other_words(p.type, draw, definitions) for p in kind.properties}
    if kind.nullable and draw(st.booleans()):
        plain["type"] = plain["type"][0]
        if kind.values:
            plain["enum"] = plain["enum"][:-1]
        plain = {draw(st.sampled_from(["oneOf", "anyOf"])): draw(st.permutations([plain, {"type": "null"}]))}
    elif draw(st.booleans()):
        plain = {"allOf": [plain], "title": "the same"}
    if draw(st.booleans()):
        definitions[f"d{len(definitions)}"] = plain
        return {"$ref": f"#/definitions/d{len(definitions) - 1}"}
    return plain


@given(ROOT, st.data())
@settings(max_examples=300)
def test_a_type_is_what_its_schema_says_in_whatever_words(kind: JsonType, data: st.DataObject) -> None:
    assert parse(render(kind)) == kind
    definitions: dict[str, Any] = {}
    other = in_other_words(kind, data.draw, definitions)
    assert parse(json.dumps(other | {"definitions": definitions})) == kind


def values(kind: JsonType) -> st.SearchStrategy[Any]:
    """Values that a validator takes for the type, within what Spark's types hold."""
    if kind.values:
        found: st.SearchStrategy[Any] = st.sampled_from(kind.values)
    elif kind.kind == "array" and kind.items is not None:
        found = st.lists(values(kind.items), max_size=2)
    elif kind.kind == "map" and kind.items is not None:
        found = st.dictionaries(st.text(max_size=3), values(kind.items), max_size=2)
    elif kind.kind == "object":
        must = {one.name: values(one.type) for one in kind.properties if one.required}
        may = {one.name: values(one.type) for one in kind.properties if not one.required}
        found = st.fixed_dictionaries(must, optional=may)
    else:
        found = PLAIN[kind.kind]
    return found | st.none() if kind.nullable else found


PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "string": st.text(),
    "integer": st.integers(-(2**63), 2**63 - 1),
    "number": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**15), 10**15),
    "boolean": st.booleans(),
    "date": st.dates().map(str),
    "date-time": st.datetimes().map(lambda moment: moment.isoformat() + "Z"),
}


@given(ROOT.flatmap(lambda kind: st.tuples(st.just(kind), values(kind))))
@settings(max_examples=300)
def test_a_record_that_is_valid_fits_the_declared_types(given: tuple[JsonType, Any]) -> None:
    kind, value = given
    Draft7Validator(to_json(kind)).validate(value)
    fields = to_spark(kind)
    assert isinstance(fields, StructType)
    required = [one.name for one in kind.properties if one.required and not one.type.nullable]
    decoder = JsonDecoder(to_arrow_schema(fields), required, framing=Framing(frozenset([7])))
    columns, why = decoder.decode_values([b"\0\0\0\0\7" + json.dumps(value).encode()])
    assert why == [None]
    assert [column.null_count == 1 for column in columns] == [value.get(name) is None for name in fields.fieldNames()]


def decoder_of(kind: DataType, *required: str) -> JsonDecoder:
    assert isinstance(kind, StructType)
    return JsonDecoder(to_arrow_schema(kind), required, framing=Framing(frozenset([7]), {8: "gone"}, "unknown"))


FRAMED: list[tuple[bytes, str]] = [
    (b"", "0 bytes, and no schema id; an id in a header of the record is not read"),
    (b"\0\0\0\7", "4 bytes, and no schema id; an id in a header of the record is not read"),
    (b'{"n": 1}', "the first byte is 0x7B, not 0: no schema id"),
    (b"\0\0\0\0\x08{}", "schema id 8: gone"),
    (b"\0\0\0\0\x07", "schema id 7: not JSON: EOF while parsing a value at line 1 column 0"),
    (b'\0\0\0\0\x07{"n": "x"}', "schema id 7: n: not an integer of 64 bits"),
    (b"\0\0\0\0\x07{}", "schema id 7: n: null or missing, and declared not null"),
]


@pytest.mark.parametrize(("value", "why"), FRAMED, ids=[why for _, why in FRAMED])
def test_a_malformed_record_is_said_with_its_id(value: bytes, why: str) -> None:
    decoder = decoder_of(to_spark(parse(json.dumps(of(n={"type": "integer"})))), "n")
    _, found = decoder.decode_values([b'\0\0\0\0\7{"n": 1}', value])
    assert found == [None, why]
    with pytest.raises(UnknownId, match="unknown"):
        decoder.decode_values([b"\0\0\0\1\7{}"])
