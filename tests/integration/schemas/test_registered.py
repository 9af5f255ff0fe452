"""`fencepost new` from topics whose schemas are in a registry: the draft keeps the format, and publishes the records."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.schema_registry import SchemaRegistryClient

from avro_schemas import Chance, written
from conftest import at
from fencepost.cli.new import as_plain
from fencepost.config.loading import load_pipeline
from fencepost.drafting.connection import connection_of
from fencepost.drafting.draft import Draft, draft_pipeline
from fencepost.drafting.draft_request import DraftRequest
from fencepost.drafting.drift import look_for_drift
from fencepost.errors import RegistryUnavailable, SettingsError
from fencepost.kafka.client_settings import client_settings
from fencepost.kafka.cluster import Cluster
from fencepost.ledger.deployment import Deployment
from fencepost.model import State
from fencepost.preview.trial import try_pipeline
from fencepost.preview.trial_input import newest
from fencepost_stack.broker import Broker
from fencepost_stack.schema_registry import SchemaRegistry
from kafka_tools import create_topic, produce, read_all
from registry_tools import framed, register
from steps import latest, run

New = Callable[..., Draft]


@pytest.fixture
def new(tmp_path: Path, broker: Broker, schema_registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch) -> New:
    """Draft a pipeline of a topic on the tests' broker, with the tests' registry."""
    monkeypatch.setenv("FENCEPOST_PIPELINES", str(tmp_path))

    def draft(name: str, topic: str, **options: Any) -> Draft:
        given = connection_of(None, [f"bootstrap.servers={broker.bootstrap}"], [f"url={schema_registry.url}"])
        return draft_pipeline(DraftRequest(name, topic, **options), given)

    return draft


def fill(broker: Broker, topic: str, values: list[bytes | None]) -> None:
    create_topic(broker.bootstrap, topic, 2)
    produce(broker.bootstrap, topic, [(b"k", value, n % 2, at(1)) for n, value in enumerate(values)])


def published(spark: Any, draft: Draft, broker: Broker) -> list[Any]:
    """What the draft's first interval publishes, with no failed check."""
    pipeline = load_pipeline(draft.folder)
    assert run(spark, pipeline, draft.chosen.interval).state is State.PUBLISHED
    verdict = latest(pipeline, draft.chosen.interval).verdict
    assert verdict is not None
    assert verdict.failed_warning == ()
    return read_all(broker.bootstrap, pipeline.output.topic)


SEEDS = int(os.environ.get("DRAFT_SEEDS", "3"))


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(SEEDS))
def test_avro_of_any_schema_is_drafted_and_published(
    seed: int, spark: Any, broker: Broker, schema_registry: SchemaRegistry, new: New
) -> None:
    chance, topic = Chance(seed), f"new-avro-{seed}"
    schema = chance.record()
    schema["fields"] += [{"name": "_private", "type": "int"}, {"name": "select", "type": ["null", "string"]}]
    number = register(schema_registry, f"{topic}-value", schema)
    values: list[bytes | None] = [framed(number, written(schema, chance.value(schema))) for _ in range(60)]
    fill(broker, topic, [*values, None])
    draft = new(f"avro_{seed}", topic)
    assert draft.format == "avro"
    settings = yaml.safe_load((draft.folder / "pipeline.yaml").read_text())
    assert settings["schema_registry"]["auto_register"] is True
    assert settings["source"]["schema"] == {"private": {"field": "_private"}}
    assert len(published(spark, draft, broker)) == 61


@pytest.mark.deep
def test_json_schema_is_drafted_and_published(
    spark: Any, broker: Broker, schema_registry: SchemaRegistry, new: New
) -> None:
    """Names that JSON allows stay, and a field whose type is no column's is declared with one that the sample has."""
    schema = {
        "type": "object",
        "properties": {
            "user-id": {"type": "integer"},
            "@timestamp": {"type": "string", "format": "date-time"},
            "amount": {"type": ["string", "number"]},
            "tags": {"type": "object", "additionalProperties": {"type": "string"}},
            "anything": {},
        },
        "required": ["user-id"],
    }
    number = register(schema_registry, "new-json-schema-value", schema, "JSON")
    one = {"user-id": 1, "@timestamp": "2026-01-01T00:00:00Z", "tags": {"a": "b"}, "anything": [1]}
    values = [json.dumps(one | {"amount": n if n % 2 else str(n)}).encode() for n in range(60)]
    fill(broker, "new-json-schema", [framed(number, value) for value in values] + [framed(99_999, b"{}"), None])
    draft = new("json_schema_daily", "new-json-schema")
    assert draft.format == "json_schema"
    settings = yaml.safe_load((draft.folder / "pipeline.yaml").read_text())
    assert settings["source"]["schema"] == {"amount": "string", "anything": "array<bigint>"}
    assert dict(draft.fields.malformed) == {"schema id 99999: the registry does not have it": 1}
    found = published(spark, draft, broker)
    assert len(found) == 61
    assert {json.loads(record.value[5:])["user-id"] for record in found if record.value} == {1}


TIME, CONNECT = "io.debezium.time", "org.apache.kafka.connect.data"
ORIGIN = {"ts_ms": 1_767_225_600_000, "schema": "public", "table": "orders", "db": "shop"}
CHANGES = [("c", None, 1), ("u", 1, 2), ("d", 2, None), ("c", None, 5)]  # the operation, and the row before and after


def of_avro(name: str, kind: str, meaning: str | None = None, **more: Any) -> dict[str, Any]:
    """A field as Confluent's Avro converter writes it."""
    said = {} if meaning is None else {"connect.version": 1, "connect.name": meaning}
    return {"name": name, "type": {"type": kind, **said, **more}}


def test_changes_in_avro_are_drafted_with_their_envelope_and_published(
    spark: Any, broker: Broker, schema_registry: SchemaRegistry, new: New
) -> None:
    """The registry says types and meanings. A name that no column has is mapped, and of two tables one is read."""
    row = {
        "type": "record",
        "name": "Value",
        "fields": [
            of_avro("id", "long"),
            of_avro("_at", "long", f"{TIME}.MicroTimestamp"),
            of_avro("amount", "bytes", f"{CONNECT}.Decimal", logicalType="decimal", precision=64, scale=2),
        ],
    }
    source = [{"name": name, "type": "long" if name == "ts_ms" else "string"} for name in ORIGIN]
    envelope = {
        "type": "record",
        "name": "Envelope",
        "namespace": "shop.public.orders",
        "fields": [
            {"name": "before", "type": ["null", row], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "source", "type": {"type": "record", "name": "Source", "fields": source}},
            {"name": "op", "type": "string"},
        ],
    }
    number = register(schema_registry, "new-avro-changes-value", envelope)

    def side(at: int | None) -> Any:
        micros = 1_767_225_600_000_000
        return None if at is None else {"id": at, "_at": micros + at, "amount": (1234).to_bytes(2)}

    values: list[bytes | None] = []
    for op, before, after in CHANGES:
        origin = ORIGIN | {"table": "lines" if after == 5 else "orders"}
        change = {"before": side(before), "after": side(after), "source": origin, "op": op}
        values.append(framed(number, written(envelope | {"fields": undecided(envelope["fields"])}, change)))
    fill(broker, "new-avro-changes", [*values, None])
    draft = new("avro_changes", "new-avro-changes")
    settings = yaml.safe_load((draft.folder / "pipeline.yaml").read_text())["source"]
    assert (settings["format"], settings["envelope"], settings["table"]) == ("avro", "debezium", "public.orders")
    assert settings["schema"] == {"at": {"field": "_at"}}
    assert {one.output: one.type for one in draft.fields.columns} == {
        "id": "bigint", "at": "timestamp_ntz", "amount": "decimal(38,2)"
    }  # fmt: skip
    assert "public.orders (3), public.lines (1)" in draft.fields.notes[0]
    assert len(published(spark, draft, broker)) == 3


def undecided(fields: Any) -> Any:
    """The schema's fields without the decimal's meaning, so that a value is its bytes."""
    text = json.dumps(fields).replace('"logicalType": "decimal"', '"note": "decimal"')
    return json.loads(text)


def test_changes_in_json_schema_are_drafted_with_their_encodings_and_published(
    spark: Any, broker: Broker, schema_registry: SchemaRegistry, new: New
) -> None:
    row = {
        "type": "object",
        "properties": {
            "id": {"type": "integer", "connect.type": "int64"},
            "_at": {"type": "integer", "title": f"{TIME}.MicroTimestamp", "connect.type": "int64"},
            "note": {"oneOf": [{"type": "null"}, {"type": "string"}]},
        },
    }
    source = {"type": "object", "properties": {name: {"type": "string"} for name in ORIGIN}}
    source["properties"]["ts_ms"] = {"type": "integer"}
    sides = {side: {"oneOf": [{"type": "null"}, row]} for side in ("before", "after")}
    schema = {"type": "object", "properties": sides | {"source": source, "op": {"type": "string"}}}
    number = register(schema_registry, "new-json-changes-value", schema, "JSON")

    def side(at: int | None) -> Any:
        return None if at is None else {"id": at, "_at": 1_767_225_600_000_000 + at, "note": None}

    values: list[bytes | None] = [
        framed(number, json.dumps({"before": side(b), "after": side(a), "source": ORIGIN, "op": op}).encode())
        for op, b, a in CHANGES
    ]
    fill(broker, "new-json-changes", [*values, None])
    draft = new("json_changes", "new-json-changes")
    settings = yaml.safe_load((draft.folder / "pipeline.yaml").read_text())["source"]
    assert (settings["format"], settings["envelope"]) == ("json_schema", "debezium")
    assert settings["schema"] == {"at": {"field": "_at", "type": "timestamp_ntz", "from": "epoch_micros"}}
    found = [json.loads(one.value[5:]) for one in published(spark, draft, broker) if one.value]
    assert sorted((one["op"], one["id"], one["at"][-6:]) for one in found) == [
        ("create", 1, "000001"), ("create", 5, "000005"), ("delete", 2, "000002"), ("update", 2, "000002")
    ]  # fmt: skip


@pytest.mark.deep
def test_a_trial_registers_nothing_and_says_what_a_run_would(
    spark: Any, broker: Broker, schema_registry: SchemaRegistry, new: New
) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}
    number = register(schema_registry, "new-tried-value", schema)
    fill(broker, "new-tried", [framed(number, b"\x02"), framed(99_998, b"\x02")] * 30)
    pipeline = load_pipeline(new("tried_daily", "new-tried").folder)
    client = SchemaRegistryClient({"url": schema_registry.url})
    before = sorted(client.get_subjects())
    deployment = Deployment.of(pipeline)
    trial = try_pipeline(spark, deployment, newest(deployment, 60))
    assert sorted(client.get_subjects()) == before
    assert trial.remarks == ("A run would register a first schema of subject tried_daily-value.",)
    assert (trial.written, trial.malformed) == (30, 30)
    assert trial.rows[0] == {"n": "1"}


def test_an_empty_topic_with_a_registered_schema_is_drafted(
    spark: Any, broker: Broker, schema_registry: SchemaRegistry, new: New
) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}
    register(schema_registry, "new-empty-value", schema)
    fill(broker, "new-empty", [])
    draft = new("empty_daily", "new-empty")
    assert draft.format == "avro"
    assert as_plain(draft)["columns"] == {"n": {"source": "n", "field": "n", "type": "int", "note": ""}}
    assert published(spark, draft, broker) == []


def test_what_the_registry_knows_and_no_pipeline_reads_is_refused(
    broker: Broker, schema_registry: SchemaRegistry, new: New
) -> None:
    """Protobuf, by name; several subjects, with their names; ids that no registry knows."""
    proto = register(schema_registry, "new-proto-value", 'syntax = "proto3"; message M { int32 n = 1; }', "PROTOBUF")
    fill(broker, "new-proto", [framed(proto, b"\x00\x08\x01")] * 3)
    with pytest.raises(SettingsError, match="Protobuf with a schema registry"):
        new("refused", "new-proto")

    def one(name: str) -> dict[str, Any]:
        return {"type": "record", "name": name, "fields": [{"name": "n", "type": "int"}]}

    first, second = register(schema_registry, "shop.A", one("A")), register(schema_registry, "shop.B", one("B"))
    fill(broker, "new-several", [framed(first, b"\x02"), framed(second, b"\x04")] * 10)
    with pytest.raises(SettingsError, match=r"several subjects \(shop.A, shop.B\).*--subject.*source.only"):
        new("refused", "new-several")
    draft = new("several_daily", "new-several", subject="shop.A")
    assert (draft.fields.bad, draft.fields.excluded, draft.fields.good) == (0, 10, 10)
    assert yaml.safe_load((draft.folder / "pipeline.yaml").read_text())["source"]["only"] == ["A"]
    fill(broker, "new-foreign", [b"\0\0\1\0\0foreign"] * 3)
    with pytest.raises(
        SettingsError, match=f"The registry at {schema_registry.url} knows none of the ids in topic new-foreign"
    ):
        new("refused", "new-foreign")
    with pytest.raises(
        SettingsError, match="Leave out --format, because the registry says which format the values have"
    ):
        new("refused", "new-several", format="json")


@pytest.mark.parametrize("path", ["", "/apis", "/apis/ccompat", "/apis/registry/v3"])
def test_a_registry_without_its_path_is_told_from_one_that_lacks_the_ids(
    path: str, broker: Broker, schema_registry: SchemaRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FENCEPOST_PIPELINES", str(tmp_path))
    topic = f"new-path{path.replace('/', '-')}"
    fill(broker, topic, [framed(1, b"\x02")] * 3)
    url = schema_registry.url.removesuffix("/apis/ccompat/v7") + path
    given = connection_of(None, [f"bootstrap.servers={broker.bootstrap}"], [f"url={url}"])
    with pytest.raises(RegistryUnavailable, match=r"is not a schema registry's.*Check its url, including the path"):
        draft_pipeline(DraftRequest("refused", topic), given)


def test_drift_of_a_registered_topic_is_told(broker: Broker, schema_registry: SchemaRegistry, new: New) -> None:
    """Avro: a field of a newer version, for a pipeline that reads by an older one. JSON Schema: a property that no schema has."""
    first = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}
    second = {**first, "fields": [*first["fields"], {"name": "more", "type": "string", "default": ""}]}
    ids = [register(schema_registry, "new-drift-value", schema) for schema in (first, second)]
    fill(broker, "new-drift", [framed(ids[0], b"\x02"), framed(ids[1], b"\x02\x02x"), framed(ids[1], b"\x02")])
    pipeline = load_pipeline(new("drift_daily", "new-drift").folder)
    pipeline = pipeline.model_copy(update={"source": pipeline.source.model_copy(update={"version": 1})})
    _, drift = look_for_drift(pipeline, pipeline.sources["source"], Cluster(client_settings(pipeline)), 100)
    assert [(one.name, one.records, one.what) for one in drift.undeclared] == [("more", 2, "string")]
    assert [(one.records, one.what) for one in drift.misfits] == [(1, f"schema id {ids[1]}: the value is not complete")]
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    number = register(schema_registry, "new-drift-json-value", schema, "JSON")
    values = [b'{"n": 1}', b'{"n": 1, "user-id": 2}', b'{"n": "x"}']
    fill(broker, "new-drift-json", [framed(number, value) for value in values])
    pipeline = load_pipeline(new("drift_json", "new-drift-json").folder)
    _, drift = look_for_drift(pipeline, pipeline.sources["source"], Cluster(client_settings(pipeline)), 100)
    assert [(one.name, one.records, one.what) for one in drift.undeclared] == [("user-id", 1, "bigint")]
    assert [(one.name, one.records) for one in drift.misfits] == [("n", 1)]
