"""JSON records with a schema registry, through all four steps, on a real broker and a real registry.

Records come from the SDK's JSONSerializer, and its JSONDeserializer reads them; both validate against the registered schema.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from jsonschema import Draft7Validator
from pyspark.sql.types import StructType

import registry_tools
from conftest import at, day
from fencepost.config.pipeline import Pipeline
from fencepost.errors import RecordRefused, SettingsError
from fencepost.formats.json_framed import JsonSchema, to_spark
from fencepost.formats.json_schema import parse
from fencepost.ledger.ledger import Ledger
from fencepost.model import RegisteredSchema, State
from fencepost.schemas.report import report_schemas
from fencepost.steps.plan import plan_batch
from fencepost_stack.broker import Broker
from fencepost_stack.schema_registry import SchemaRegistry
from kafka_tools import create_topic, produce, read_all
from registry_tools import client, framed
from steps import latest, plan_and_write, run

Make = Callable[..., Pipeline]

NULL: dict[str, Any] = {"type": "null"}


def of(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    """A closed object: in an open one, a later version could add no property."""
    found = {"title": "T", "type": "object", "properties": properties, "additionalProperties": False}
    return found | ({"required": list(required)} if required else {})


FIRST = of(("n",), n={"type": "integer"}, buyer={"type": "string"})
SECOND = of(
    ("n",),
    n={"type": "integer"},
    buyer={"type": "string"},
    paid={"oneOf": [NULL, {"type": "string", "format": "date-time"}]},
    lines={"type": "array", "items": of(("sku",), sku={"type": "string"}, price={"type": ["number", "null"]})},
    tags={"type": "object", "additionalProperties": {"type": "string"}},
    amount={"type": ["string", "number"]},
)
OUT = of(
    ("n", "place", "paid"),
    n={"type": "integer"},
    place={"enum": ["AT", "DE"]},
    paid={"type": ["string", "null"], "format": "date-time"},
    note={"type": "string"},
    lines={"type": "array", "items": {"anyOf": [of(sku={"type": "string"}, price={"type": ["number", "null"]}), NULL]}},
)
FORMAT = "json_schema"
register = partial(registry_tools.register, kind="JSON")


def serialized(registry: SchemaRegistry, topic: str, schema: Any, value: Any) -> bytes:
    """As the SDK writes it, with the schema that is registered."""
    serializer = JSONSerializer(json.dumps(schema), client(registry), conf={"auto.register.schemas": False})
    found = serializer(value, SerializationContext(topic, MessageField.VALUE))
    assert found is not None
    return found


def deserialized(registry: SchemaRegistry, topic: str, raw: bytes | None) -> Any:
    """As the SDK reads it."""
    reader = JSONDeserializer(None, schema_registry_client=client(registry))
    return reader(raw, SerializationContext(topic, MessageField.VALUE))


@pytest.mark.deep  # Avro goes that way in any case
def test_a_batch_of_two_versions_goes_from_the_sdk_through_the_steps_to_the_sdk(
    spark: Any, broker: Broker, make: Make, schema_registry: SchemaRegistry
) -> None:
    """The output has nulls that are written, nulls that are left out, and a tombstone; it is published through staging."""
    transform = """
def transform(frame):
    return frame.selectExpr(
        "_key", "_tombstone", "_topic", "_partition", "_offset", "n", "buyer AS place", "paid", "amount AS note", "lines"
    )
"""
    pipeline = make(
        transform,
        source={"schema": {"amount": "string"}, "tombstones": "pass"},
        output={"format": "json_schema", "partitions": 2, "publish": "staged"},
    )
    source, out = pipeline.source.topic, pipeline.output.topic
    create_topic(broker.bootstrap, source, 2)
    ids = [register(schema_registry, f"{source}-value", schema) for schema in (FIRST, SECOND)]
    out_id = register(schema_registry, f"{out}-value", OUT)
    lines = [{"sku": "é", "price": 0.1}, {"sku": "b", "price": None}]
    new = {"buyer": "DE", "paid": "2026-01-01T12:00:00.000001Z", "lines": lines, "tags": {"a": "b"}, "amount": 1.50}
    records = [(b"0", serialized(schema_registry, source, FIRST, {"n": 0, "buyer": "AT"}), 0, at(1))]
    records.append((b"1", serialized(schema_registry, source, SECOND, {"n": 1} | new), 1, at(1)))
    records.append((b"2", None, 0, at(1)))  # type: ignore[arg-type]
    assert [records[i][1][:5] for i in (0, 1)] == [framed(schema_id, b"") for schema_id in ids]
    produce(broker.bootstrap, source, records)

    run(spark, pipeline, day(1))

    raw = {r.key: r.value for r in read_all(broker.bootstrap, out)}
    assert raw[b"2"] is None
    assert raw[b"0"][:5] == framed(out_id, b"")
    assert deserialized(schema_registry, out, raw[b"0"]) == {"n": 0, "place": "AT", "paid": None}
    del lines[1]["price"]  # left out, since other nulls in the object must be
    wanted = {"n": 1, "place": "DE", "paid": new["paid"], "note": "1.5", "lines": lines}
    assert deserialized(schema_registry, out, raw[b"1"]) == wanted
    batch = latest(pipeline, day(1))
    assert batch.state is State.PUBLISHED
    assert batch.plan.schemas is not None
    assert batch.plan.schemas.descriptions == {
        "source": f"subject {source}-value (version 2, id {ids[1]}); records of ids {ids[0]}, {ids[1]}",
        "output": f"subject {out}-value (version 1, id {out_id})",
    }


@pytest.mark.deep  # Avro has each kind, too
def test_each_kind_of_malformed_record_is_quarantined_with_its_id_and_an_unknown_id_is_looked_up(
    spark: Any, broker: Broker, make: Make, schema_registry: SchemaRegistry
) -> None:
    """Also after a newer version came: what the plan froze decides."""
    settings = {"on_malformed": "quarantine", "tombstones": "pass"}
    pipeline = make(source=settings, quality={"quarantine_limit": "none"})
    topic = pipeline.source.topic
    create_topic(broker.bootstrap, topic, 1)
    good = register(schema_registry, f"{topic}-value", of(("n",), n={"type": "integer"}))
    later = register(schema_registry, f"{topic}-other", of(n={"type": "string"}))
    avro = register(schema_registry, f"{topic}-avro", "string", kind="AVRO")
    values = [
        framed(good, {"n": 5}),
        b'{"n": 5}',
        b"\0",
        framed(good, b""),
        framed(good, {"n": "x"}),
        framed(good, {}),
        framed(later, {"n": 6}),
        framed(later, {"n": "7"}),
        framed(avro, {"n": 8}),
        framed(2**31 - 1, {"n": 9}),
        None,
    ]
    produce(broker.bootstrap, topic, [(b"k", value, 0, at(1)) for value in values])
    plan_batch(pipeline, day(1))
    register(schema_registry, f"{topic}-value", of(n={"type": "boolean"}))

    run(spark, pipeline, day(1))

    assert [r.json and r.json["n"] for r in read_all(broker.bootstrap, pipeline.output.topic)] == [5, 6, None]
    kept = [dict(r.headers) for r in read_all(broker.bootstrap, pipeline.quarantine_topic)]
    assert {
        int(h["fencepost-source"].decode().removeprefix(f"{topic}:0:")): h["fencepost-reason"].decode() for h in kept
    } == {
        1: "the first byte is 0x7B, not 0: no schema id",
        2: "1 byte, and no schema id; an id in a header of the record is not read",
        3: f"schema id {good}: not JSON: EOF while parsing a value at line 1 column 0",
        4: f"schema id {good}: n: not an integer of 64 bits",
        5: f"schema id {good}: n: null or missing, and declared not null",
        7: f"schema id {later}: n: not an integer of 64 bits",
        8: f"schema id {avro}: its schema is not of type JSON",
        9: f"schema id {2**31 - 1}: the registry does not have it",
    }
    schemas = latest(pipeline, day(1)).plan.schemas
    assert schemas is not None
    values = schemas.of(pipeline.source.topic).value
    assert values is not None
    assert values.ids == {good, later, avro, 2**31 - 1}


def test_a_schema_that_is_no_columns_type_is_refused_at_plan_with_its_place(
    broker: Broker, make: Make, schema_registry: SchemaRegistry
) -> None:
    """So is a subject of Avro. Nothing is planned."""
    pipeline = make()
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    subject = f"{pipeline.source.topic}-value"
    number = register(schema_registry, subject, SECOND)
    with pytest.raises(SettingsError) as found:
        plan_batch(pipeline, day(1))
    assert f"source: subject {subject} (version 1, id {number}): #/properties/amount/type: several types" in str(
        found.value
    )
    register(schema_registry, f"{subject}-avro", "string", kind="AVRO")
    pipeline = make(name=pipeline.name, source={"subject": f"{subject}-avro"})
    with pytest.raises(SettingsError, match=r"is of type AVRO, and the pipeline's format needs JSON"):
        plan_batch(pipeline, day(1))
    assert Ledger(pipeline).read().last(day(1)) is None


def test_the_result_fits_the_outputs_schema_or_is_refused_before_a_row_is_written(
    spark: Any, broker: Broker, make: Make, schema_registry: SchemaRegistry
) -> None:
    """By its type before the job, by a row with the field and the record. `auto_register` registers what the registry takes."""
    give = "def transform(frame):\n    return frame.selectExpr('_topic', '_partition', '_offset', {})\n"
    output = {"format": "json_schema", "key": None}
    pipeline = make(output=output)
    source, out = pipeline.source.topic, pipeline.output.topic
    subject = f"{out}-value"
    create_topic(broker.bootstrap, source, 1)
    good = register(schema_registry, f"{source}-value", of(n={"type": "integer"}))
    register(schema_registry, subject, of(("n",), n={"type": "integer"}, ok={"type": "boolean"}))
    produce(broker.bootstrap, source, [(b"k", framed(good, {"n": 5}), 0, at(number)) for number in (1, 2)])
    wrong = [
        ("'CAST(n AS double) AS n'", "field n: the transform gives double, which does not fit in integer. Cast it."),
        ("'n', 'n AS more'", "the schema has no property for more, which the transform gives."),
        ("'true AS ok'", "the transform does not give n, which is required, of type integer. Add it to the result."),
    ]
    for columns, why in wrong:
        pipeline.transform_file.write_text(give.format(columns))
        with pytest.raises(SettingsError, match=why):
            plan_and_write(spark, pipeline, day(1))
    pipeline.transform_file.write_text(give.format("'nullif(n, 5) AS n'"))
    (reported,) = report_schemas(spark, pipeline)[1:]
    assert (reported.gives, reported.is_compatible) == ("struct<n:bigint>", True)
    with pytest.raises(RecordRefused, match=rf"n: null, and its type is integer \(source record {source}:0:0\)"):
        plan_and_write(spark, pipeline, day(1))
    assert read_all(broker.bootstrap, out, committed=False) == []

    auto = make(name=pipeline.name, output=output, schema_registry={"auto_register": True})
    auto.transform_file.write_text(give.format("'n', 'true AS ok', 'CAST(n AS string) AS text'"))
    run(spark, auto, day(1))
    registry = client(schema_registry)
    assert registry.get_versions(subject) == [1, 2]
    second = registry.get_version(subject, 2)
    assert json.loads(second.schema.schema_str)["properties"]["n"] == {"type": "integer"}
    (record,) = read_all(broker.bootstrap, out)
    assert record.value[:5] == framed(second.schema_id, b"")
    assert deserialized(schema_registry, out, record.value) == {"n": 5, "ok": True, "text": "5"}
    auto.transform_file.write_text(give.format("'true AS n', 'true AS ok'"))
    with pytest.raises(SettingsError, match=r"not compatible .*: text is gone; n is boolean, and was integer. Nothing"):
        plan_and_write(spark, auto, day(2))
    assert registry.get_versions(subject) == [1, 2]


NULLABLE: dict[str, Any] = {"type": ["integer", "null"]}
INTEGER: dict[str, Any] = {"type": "integer"}
EACH = {"null_or_one": NULLABLE, "one_or_none": INTEGER}
WRITTEN = of(
    ("must", "must_or_null", "inner"),
    must=INTEGER,
    must_or_null=NULLABLE,
    may=INTEGER,
    may_or_null=NULLABLE,
    word={"enum": ["a", "b"]},
    inner=of(a=INTEGER, b=NULLABLE),
    list={"type": "array", "items": NULLABLE},
    full={"type": "array", "items": INTEGER},
    map={"type": "object", "additionalProperties": {"type": ["number", "null"]}},
    day={"type": "string", "format": "date"},
    **{"a-b.c": {"type": "string"}},
)
ROWS: list[tuple[dict[str, Any], str | None]] = [
    ({"must": 1, "inner": {}}, None),
    ({"must": 1, "inner": {"b": 2}, "must_or_null": 3, "may": 4, "may_or_null": 5, "word": "b"}, None),
    ({"must": 1, "inner": {"a": 1}, "list": [None, 1], "full": [], "map": {"x": None}, "a-b.c": '"}{é'}, None),
    ({"must": 1, "inner": {"a": 1}, "day": datetime(2026, 1, 31, tzinfo=UTC).date()}, None),
    ({"inner": {}}, "must: null, and its type is integer"),
    ({"must": 1}, "inner: null, and its type is object"),
    ({"must": 1, "inner": {}, "word": "c"}, "word: not one of the values in its enum"),
    ({"must": 1, "inner": {}, "full": [1, None]}, "full[]: null, and its type is integer"),
    ({"must": 1, "inner": {}, "map": {"x": float("nan")}}, "map{}: JSON has no NaN and no Infinity"),
]


def test_what_is_written_is_valid_and_is_read_back_and_what_is_not_says_why(spark: Any) -> None:
    """A null is written where the schema takes one, and left out where it does not."""
    kind, form = to_spark(parse(json.dumps(WRITTEN))), JsonSchema()
    assert isinstance(kind, StructType)
    schema = RegisteredSchema(subject="s", id=7, text=form.written(json.dumps(WRITTEN), (), columns=True))
    frame = spark.createDataFrame([tuple(row.get(n) for n in kind.fieldNames()) for row, _ in ROWS], kind)
    encoded = form.write(frame, kind, schema)
    assert encoded.unfit is not None
    found = frame.select("*", encoded.data.alias("value"), encoded.unfit.alias("_unfit"))
    rows = found.collect()
    assert [row["_unfit"] for row in rows] == [why for _, why in ROWS]
    for row in rows:
        assert (row["value"] is None) == (row["_unfit"] is not None)
        if row["value"] is not None:
            assert bytes(row["value"][:5]) == framed(7, b"")
            Draft7Validator(WRITTEN).validate(json.loads(bytes(row["value"][5:])))
    good = found.where("_unfit IS NULL")
    back = form.parse(good.select("value"), kind, [], schema)
    assert back.collect() == good.select(*(f"`{n}`" for n in kind.fieldNames())).collect()
    other = schema.model_copy(update={"id": 8})
    with pytest.raises(Exception, match="does not begin with schema id 8"):
        form.parse(good.select("value"), kind, [], other).collect()


def test_an_object_whose_nulls_are_both_required_and_forbidden_is_not_written(spark: Any) -> None:
    mixed = of(inner=of(("null_or_one",), **EACH))
    kind, form = to_spark(parse(json.dumps(mixed))), JsonSchema()
    schema = RegisteredSchema(subject="s", id=7, text=form.written(json.dumps(mixed), (), columns=True))
    with pytest.raises(ValueError, match="field inner: the object has required nullable properties"):
        form.check_fits(kind, schema)


DATES = {"enum": ["2026-01-31", "2026-01-31T01:02:03.000004Z", "AP8="]}


def test_what_is_written_as_text_is_compared_with_an_enum_of_texts(spark: Any) -> None:
    """A date, for example, whose text is among them."""
    columns = {
        "date'2026-01-31'": None,
        "date'2026-02-01'": "f: not one of the values in its enum",
        "timestamp'2026-01-31 01:02:03.000004'": None,
        "timestamp'2026-01-31 01:02:03'": "f: not one of the values in its enum",
        "X'00FF'": None,
        "X'00'": "f: not one of the values in its enum",
        "CAST(X'FF' AS string)": "f: text that is not UTF-8",
    }
    form = JsonSchema()
    schema = RegisteredSchema(subject="s", id=7, text=form.written(json.dumps(of(f=DATES)), (), columns=True))
    for column, why in columns.items():
        frame = spark.sql(f"SELECT {column} AS f")
        encoded = form.write(frame, frame.schema, schema)
        assert encoded.unfit is not None
        value, unfit = frame.select(encoded.data, encoded.unfit).head()
        assert (unfit, value is None) == (why, why is not None), column
        if value is not None:
            Draft7Validator(of(f=DATES)).validate(json.loads(bytes(value[5:])))


def test_names_that_json_does_not_hold_are_not_written(spark: Any) -> None:
    form, kind = JsonSchema(), of(f={"type": "object", "additionalProperties": {"type": "integer"}})
    schema = RegisteredSchema(subject="s", id=7, text=form.written(json.dumps(kind), (), columns=True))
    for column, why in (
        ("CAST(X'FF' AS string)", "that is not UTF-8"),
        ("repeat('k', 50001)", "of more than 50,000 bytes"),
    ):
        frame = spark.sql(f"SELECT map({column}, 1) AS f")
        encoded = form.write(frame, frame.schema, schema)
        assert frame.select(encoded.data, encoded.unfit).head() == (None, f"f: a name {why}")
