"""Avro as Kafka Connect and Debezium write it, through all four steps, on a real broker and a real registry."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from avro_schemas import written
from conftest import at, day
from fencepost.config.pipeline import Pipeline
from fencepost.doctor.fields import check_source_fields
from fencepost.doctor.inspection import Inspection
from fencepost.drafting.connection import connection_of
from fencepost.drafting.draft import draft_pipeline
from fencepost.drafting.draft_request import DraftRequest
from fencepost.errors import SettingsError
from fencepost.model import State
from fencepost.steps.plan import plan_batch
from fencepost_stack.broker import Broker
from fencepost_stack.schema_registry import SchemaRegistry
from kafka_tools import create_topic, produce, read_all
from registry_tools import framed, register
from steps import run

Make = Callable[..., Pipeline]
FORMAT = "avro"


def connect(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "connect.version": 1, "connect.name": name, **more}


VARIABLE = {
    "type": "record",
    "name": "VariableScaleDecimal",
    "namespace": "io.debezium.data",
    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
    "connect.name": "io.debezium.data.VariableScaleDecimal",
}
DECIMAL = {"precision": 64, "scale": 2, "logicalType": "decimal", "connect.parameters": {"scale": "2"}}
FIELDS: dict[str, Any] = {
    "n": "int",
    "day": connect("int", "io.debezium.time.Date"),
    "made_at": connect("long", "io.debezium.time.MicroTimestamp"),
    "_timestamp": connect("long", "io.debezium.time.NanoTimestamp"),
    "seen_at": connect("string", "io.debezium.time.ZonedTimestamp"),
    "valid_to": ["null", connect("long", "io.debezium.time.MicroTimestamp")],
    "price": VARIABLE,
    "total": connect("bytes", "org.apache.kafka.connect.data.Decimal", **DECIMAL),
    "stops": {"type": "array", "items": ["null", connect("long", "io.debezium.time.Timestamp")]},
    "__deleted": ["null", "string"],
}
SCHEMA = {
    "type": "record",
    "name": "Value",
    "namespace": "shop.public.orders",
    "fields": [{"name": name, "type": kind} for name, kind in FIELDS.items()],
}
COLUMNS = {
    "changed_at": {"field": "_timestamp", "digits": "truncate"},
    "valid_to": {"infinity": None},
    "price": "decimal(12,3)",
    "deleted": {"field": "__deleted"},
}
MICROS = 1_767_225_600_000_001
GOOD = {
    "n": 1,
    "day": 20_454,
    "made_at": MICROS,
    "_timestamp": -1,
    "seen_at": "2026-01-01T01:00:00+01:00",
    "valid_to": 9_223_372_036_825_200_000,
    "price": {"scale": 1, "value": b"\xfb"},
    "total": b"\x04\xd2",
    "stops": [0, None],
    "__deleted": "false",
}
TRANSFORM = """
def transform(frame):
    types = {field.name: field.dataType.simpleString() for field in frame.schema if not field.name.startswith("_")}
    assert types == {
        "n": "int", "day": "date", "made_at": "timestamp_ntz", "changed_at": "timestamp_ntz", "seen_at": "timestamp",
        "valid_to": "timestamp_ntz", "price": "decimal(12,3)", "total": "decimal(38,2)",
        "stops": "array<timestamp_ntz>", "deleted": "string",
    }, types
    return frame
"""


def plain(kind: Any) -> Any:
    """A decimal as bytes, because the tests give the bytes."""
    return "bytes" if isinstance(kind, dict) and kind.get("logicalType") == "decimal" else kind


def payload(**changes: Any) -> bytes:
    fields = [{"name": name, "type": plain(kind)} for name, kind in FIELDS.items()]
    return written({"type": "record", "name": "Value", "fields": fields}, GOOD | changes)


def test_debeziums_types_are_columns_of_what_they_mean_and_other_values_are_malformed_by_name(
    spark: Any, broker: Broker, make: Make, schema_registry: SchemaRegistry
) -> None:
    source = {"schema": COLUMNS, "on_malformed": "quarantine"}
    pipeline = make(TRANSFORM, source=source, quality={"quarantine_limit": "none"})
    topic = pipeline.source.topic
    create_topic(broker.bootstrap, topic, 1)
    number = register(schema_registry, f"{topic}-value", SCHEMA)
    values = [
        framed(number, payload()),
        framed(number, payload(made_at=9_223_372_036_825_200_000)),
        framed(number, payload(day=2_932_897)),
        framed(number, payload(seen_at="2026-01-01T00:00:00.0000001Z")),
        framed(number, payload(price={"scale": 4, "value": b"\1"})),
        framed(number, payload(total=(10**38).to_bytes(17))),
        framed(number, payload(stops=[9_223_372_036_825_200])),
        b"\0" + (number).to_bytes(8) + payload(),
        b"\1" + uuid4().bytes + payload(),
        payload(n=-64),
    ]
    produce(broker.bootstrap, topic, [(b"k", value, 0, at(1)) for value in values])

    assert run(spark, pipeline, day(1)).state is State.PUBLISHED

    (record,) = read_all(broker.bootstrap, pipeline.output.topic)
    assert record.json == {
        "n": 1,
        "day": "2026-01-01",
        "made_at": "2026-01-01T00:00:00.000001",
        "changed_at": "1969-12-31T23:59:59.999999",
        "seen_at": "2026-01-01T00:00:00.000000Z",
        "valid_to": None,
        "price": -0.5,
        "total": 12.34,
        "stops": ["1970-01-01T00:00:00.000000", None],
        "deleted": "false",
    }
    kept = [dict(r.headers) for r in read_all(broker.bootstrap, pipeline.quarantine_topic)]
    reasons = {int(h["fencepost-source"].rpartition(b":")[2]): h["fencepost-reason"].decode() for h in kept}
    begins = {
        1: f"schema id {number}: made_at: an infinity;",
        2: f"schema id {number}: day: not within the years 1 to 9999",
        3: f"schema id {number}: seen_at: digits below the microsecond",
        4: f"schema id {number}: price: not a decimal(12,3)",
        5: f"schema id {number}: total: a decimal of more than 38 digits",
        6: f"schema id {number}: stops[]: an infinity;",
        7: "a schema id of 8 bytes, as serializers of Apicurio Registry may write it",
        8: "the first byte is 0x01, which a schema's GUID of 16 bytes follows",
        9: "the first byte is 0x7F, not 0: no schema id; an id in a header of the record is not read",
    }
    assert {place: reason[: len(begins[place])] for place, reason in reasons.items()} == begins


def test_a_column_of_a_field_that_the_schema_does_not_have_is_refused_by_the_plan(
    broker: Broker, make: Make, schema_registry: SchemaRegistry
) -> None:
    pipeline = make(source={"schema": {"gone": {"field": "__gone"}}})
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    register(schema_registry, f"{pipeline.source.topic}-value", SCHEMA)
    with pytest.raises(SettingsError, match=r"column 'gone' of source\.schema: the schema has no field '__gone'"):
        plan_batch(pipeline, day(1))


@pytest.mark.parametrize(
    ("front", "header", "said"),
    [
        (b"\0" + (5).to_bytes(8), "trace", "begin with a schema id of 8 bytes, as serializers of Apicurio Registry"),
        (b"\1" + uuid4().bytes, "trace", "begin with a schema's GUID of 16 bytes"),
        (b"", "__value_schema_id", "have their schema id in the header __value_schema_id"),
        (b"", "apicurio.value.globalId", "have their schema id in the header apicurio.value.globalId"),
    ],
    ids=["8 bytes", "a GUID", "Confluent's header", "Apicurio's header"],
)
def test_new_and_the_doctor_name_ids_that_are_not_read(
    front: bytes,
    header: str,
    said: str,
    broker: Broker,
    make: Make,
    schema_registry: SchemaRegistry,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pipeline = make(source={"schema": COLUMNS})
    topic = pipeline.source.topic
    create_topic(broker.bootstrap, topic, 1)
    register(schema_registry, f"{topic}-value", SCHEMA)
    produce(broker.bootstrap, topic, [(b"k", front + payload(), 0, at(1))] * 5, headers=[(header, b"x")])

    monkeypatch.setenv("FENCEPOST_PIPELINES", str(tmp_path))
    given = connection_of(None, [f"bootstrap.servers={broker.bootstrap}"], [f"url={schema_registry.url}"])
    with pytest.raises(SettingsError, match=f"^topic {topic}: 5 of 5 sampled values {said}.+ Let the producer write"):
        draft_pipeline(DraftRequest("drafted", topic), given)
    findings = list(check_source_fields(Inspection(pipeline)))
    assert [one.found for one in findings if f"5 of 5 sampled values {said}" in one.found]
