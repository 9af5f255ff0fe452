"""What drifted in a topic since a pipeline declared it: new fields, types that no longer fit, and how many records that is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from fencepost.config.loading import load_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.config.source import Source
from fencepost.doctor.fields import check_source_fields
from fencepost.drafting.drift import (
    Drift,
    FieldDrift,
    _of_avro,
    _of_json_schema,
    _set_aside,
    describe_drift,
    describe_notes,
    drift_of,
)
from fencepost.findings import Level


def declaring(
    folder: Path, /, *, quality: Any = None, on_malformed: str = "fail", source: Any = None, **schema: Any
) -> Pipeline:
    """A pipeline of JSON records with these columns, and further settings of the source."""
    place = folder / "declaring"
    place.mkdir(exist_ok=True)
    settings: dict[str, Any] = {
        "source": {"topic": "in", "schema": schema} if schema else {"topic": "in", "format": "bytes"},
        "output": {"topic": "out"},
        "schedule": {"start": "2026-01-01"},
        "kafka": {"bootstrap.servers": "127.0.0.1:1"},
    }
    settings["source"] |= {"on_malformed": on_malformed} | (source or {})
    settings["quality"] = quality or {}
    (place / "pipeline.yaml").write_text(yaml.safe_dump(settings))
    (place / "transform.sql").write_text("SELECT * FROM source")
    (place / "expectations.yaml").write_text("expectations: []")
    return load_pipeline(place)


def drift_in(pipeline: Pipeline, *sampled: Sequence[bytes | None]) -> Drift:
    """The drift of the only source."""
    return drift_of(pipeline, pipeline.sources["source"], *sampled)


def test_each_field_that_drifted_is_told_with_its_share(tmp_path: Path) -> None:
    """Also where one record has several, within objects and arrays, and of records that are no objects."""
    pipeline = declaring(
        tmp_path, n="int", at="timestamp not null", inner="struct<a:int>", items="array<struct<b:string>>", gone="int"
    )
    values = [
        b'{"n": 1, "at": "2026-01-01T00:00:00Z", "inner": {"a": 1}, "items": [{"b": 1}]}',
        b'{"n": 3000000000, "at": null, "inner": {"a": "x", "c": 1}, "items": [{"b": 1, "d": 1}, {"d": 2}], "user-id": 7}',
        b'{"n": "x", "at": "2026-01-01", "new": 1.5, "user-id": 8}',
        b'{"n": 1, broken',
        b"{broken",
        None,
    ]
    found = drift_in(pipeline, values)
    assert found.records == 5
    assert not found.fits
    assert {(one.name, one.records) for one in found.misfits} == {
        ("(the whole record)", 2),
        ("n", 2),
        ("at", 1),
        ("inner", 1),
    }
    assert found.malformed == 4
    assert found.undeclarable == ()
    assert set(found.undeclared) == {
        FieldDrift("user-id", 2, "bigint"),
        FieldDrift("new", 1, "double"),
        FieldDrift("inner.c", 1, ""),
        FieldDrift("items[*].d", 1, ""),
    }
    assert found.absent == ("gone",)
    assert "n does not fit in 2 of 5 sampled records: not an integer of 32 bits" in list(describe_drift(found))


@pytest.mark.parametrize("values", [[], [None], [b'{"n": 1}', None]])
def test_a_topic_that_has_what_is_declared_has_not_drifted(values: list[bytes | None], tmp_path: Path) -> None:
    assert drift_in(declaring(tmp_path, n="int"), values).fits


NEVER = ["x" * 256, "n\0l", "inner.A", "inner.n\0l", "items[*].B", "map.*.B"]
NEW = ["@timestamp", "user-id", "event.type", "_id", "", "N", "größe"]


def test_a_field_that_no_column_can_be_for_has_not_drifted(tmp_path: Path) -> None:
    """At any depth: names that nothing reads, and in structs names that Spark takes as another's."""
    pipeline = declaring(
        tmp_path, n="int", inner="struct<a: int>", items="array<struct<b: int>>", map="map<string, struct<b: int>>"
    )
    inner = {"a": 1, "user-id": 1, "A": 1, "größe": 1, "_id": 1, "n\0l": 1}
    record = {"n": 1, "inner": inner, "items": [{"B": 1}], "map": {"x": {"B": 1}}}
    record |= dict.fromkeys([*NEW, *NEVER[:2]], 1)
    found = drift_in(pipeline, [json.dumps(record).encode()] * 3)
    assert sorted(one.name for one in found.undeclarable) == sorted(NEVER)
    assert {one.name: one.what for one in found.undeclared} == {
        **dict.fromkeys(NEW, "bigint"), "inner.user-id": "", "inner.größe": "", "inner._id": ""
    }  # fmt: skip
    found = drift_in(pipeline, [json.dumps({"n": 1, "n\0l": 1}).encode()])
    assert list(describe_drift(found)) == []
    assert list(describe_notes(found)) == ["cannot be columns: n\0l"]


def test_fields_are_named_as_in_the_record(tmp_path: Path) -> None:
    """A field that two columns are read from is one field."""
    pipeline = declaring(
        tmp_path,
        at={"field": "@timestamp", "type": "timestamp not null"},
        text={"field": "@timestamp", "type": "string"},
        user_id={"field": "user-id", "type": "int"},
        gone={"field": "_gone", "type": "int"},
    )
    values = [b'{"@timestamp": "2026-01-01T00:00:00Z", "user-id": 1, "at": 5}', b'{"@timestamp": null, "user-id": "x"}']
    found = drift_in(pipeline, values)
    assert {(one.name, one.records, one.what) for one in found.misfits} == {
        ("@timestamp", 1, "null or missing, and declared not null"), ("user-id", 1, "not an integer of 32 bits")
    }  # fmt: skip
    assert found.undeclared == (FieldDrift("at", 1, "bigint"),)
    assert found.absent == ("_gone",)
    assert found.malformed == 1


def change(op: str | None, row: Any, table: str = "orders") -> bytes:
    """A change in Debezium's form."""
    side = "before" if op == "d" else "after"
    source = {"schema": "public", "table": table, "ts_ms": 1}
    return json.dumps({"op": op, side: row, "source": source}).encode()


def test_of_changes_the_rows_are_looked_at_by_the_rules_of_the_envelope(tmp_path: Path) -> None:
    """Of a delete only the key is there, and other tables say nothing."""
    settings = {"envelope": "debezium", "table": "public.orders", "key_format": "json", "key": {"id": "int not null"}}
    pipeline = declaring(tmp_path, source=settings, id="int not null", state="string not null", n="int")
    values = [
        change("c", {"id": 1, "state": "new", "n": 1}),
        change("u", {"id": 1, "state": "__debezium_unavailable_value", "n": "x", "_more": 1.5}),
        change("d", {"id": 1}),
        change("c", {"sku": 1}, "lines"),
        change(None, {"id": 1}),
        None,
    ]
    found = drift_in(pipeline, values, [b'{"id": 1}'] * 3 + [None, b'{"id": 1}', None])
    assert (found.records, found.malformed, found.excluded) == (4, 2, 1)
    assert [(one.name, one.records, one.what.partition(" ")[0]) for one in found.misfits] == [
        ("(the whole record)", 1, "no"), ("n", 1, "not"), ("state", 1, "the")
    ]  # fmt: skip
    assert found.undeclared == (FieldDrift("_more", 1, "double"),)
    assert found.absent == ()


def test_a_declared_field_that_is_now_written_in_another_case_has_drifted(tmp_path: Path) -> None:
    """Its column is null in every record, and declared again it is there again."""
    found = drift_in(declaring(tmp_path, n="int", orderId="int"), [b'{"n": 1, "orderid": 7}'] * 2)
    assert (found.undeclared, found.undeclarable) == ((FieldDrift("orderid", 2, "bigint"),), ())
    assert found.absent == ("orderId",)


GOOD, NO_JSON, MISFIT = b'{"n": 1}', b"NaN", b'{"n": "x"}'
HUNDREDTH = {"quarantine_limit": {"share": 0.01}}
NO_LIMIT = {"quarantine_limit": "none"}
SET_ASIDE: dict[str, tuple[str, Any, list[bytes], bool]] = {
    "one of a hundred, as many as the limit allows": ("quarantine", HUNDREDTH, [NO_JSON], True),
    "also of another type": ("quarantine", HUNDREDTH, [MISFIT], True),
    "two of a hundred": ("quarantine", HUNDREDTH, [NO_JSON, MISFIT], False),
    "two of a hundred, one above the limit of rows": (
        "quarantine",
        {"quarantine_limit": {"rows": 1}},
        [NO_JSON] * 2,
        False,
    ),
    "half without a limit": ("quarantine", NO_LIMIT, [NO_JSON] * 50, True),
    "a type that fits no more, and no limit says so": ("quarantine", NO_LIMIT, [MISFIT], False),
    "half that are dropped": ("drop", HUNDREDTH, [NO_JSON] * 50, True),
    "a type that fits no more, whose records are dropped": ("drop", HUNDREDTH, [MISFIT], False),
    "one that fails its batch": ("fail", NO_LIMIT, [NO_JSON], False),
}


@pytest.mark.parametrize(("policy", "quality", "bad", "fits"), SET_ASIDE.values(), ids=SET_ASIDE)
def test_malformed_records_that_are_set_aside_as_the_settings_say_have_not_drifted(
    policy: str, quality: Any, bad: list[bytes], fits: bool, tmp_path: Path
) -> None:
    pipeline = declaring(tmp_path, quality=quality, on_malformed=policy, n="int")
    found = drift_in(pipeline, [*bad, *[GOOD] * (100 - len(bad))])
    assert found.malformed == len(bad)
    assert found.fits is fits
    assert (list(describe_drift(found)) == []) is fits
    done = "go to quarantine" if policy == "quarantine" else "are dropped"
    said = f"{len(bad)} of 100 sampled records are malformed, and {done} (source.on_malformed)"
    assert list(describe_notes(found)) == ([said] if fits else [])


def record(*fields: dict[str, Any]) -> Any:
    return SimpleNamespace(id=1, text=json.dumps({"type": "record", "name": "R", "fields": list(fields)}))


def test_a_field_of_avro_that_no_reader_can_have_has_not_drifted() -> None:
    """A type that Spark lacks, a name that no column has, one that only differs in case."""
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 39}
    kinds = {
        "n": "int",
        "next": ["null", "R"],
        "wide": decimal,
        "user-id": "int",
        "N": "int",
        "_key": "int",
        "_id": "int",
    }
    writer = record(*({"name": name, "type": kind} for name, kind in kinds.items()))
    schemas: Any = SimpleNamespace(reader=record({"name": "n", "type": "int"}), writers=[writer], refused={})
    decoder: Any = SimpleNamespace(decode_values=lambda values: ([], [None] * len(values)))
    found = _of_avro([b"\0\0\0\0\1"], decoder, schemas)
    assert found.undeclared == (FieldDrift("_id", 1, "int"),)
    assert {one.name: one.what for one in found.undeclarable} == {
        "next": "next: R contains itself, and Spark has no such type",
        "wide": "wide: a decimal of 39 digits behind the point; Spark's have 38 at most",
        "user-id": "the schema: 'user-id': a column's name may have letters, digits and _ only",
        "N": "to Spark it is the same as another name that differs only in case",
        "_key": "the transform's source already has a column of that name",
    }


def test_a_field_of_avro_that_is_now_written_in_another_case_has_drifted() -> None:
    """The reader's default is read of every record."""
    reader = record({"name": "n", "type": "int"}, {"name": "orderId", "type": "int", "default": 0})
    writer = record({"name": "n", "type": "int"}, {"name": "orderid", "type": "int"})
    schemas: Any = SimpleNamespace(reader=reader, writers=[writer], refused={})
    decoder: Any = SimpleNamespace(decode_values=lambda values: ([], [None] * len(values)))
    found = _of_avro([b"\0\0\0\0\1\2\2"], decoder, schemas)
    assert (found.undeclared, found.undeclarable) == ((FieldDrift("orderid", 1, "int"),), ())


@pytest.mark.parametrize(
    ("why", "place"),
    [
        ("n: the reader's int cannot hold a string", "(schema id 7)"),
        ("the registry does not have it", "(the whole record)"),
        ("not looked up, because the batch has more than 100 unknown ids", "(the whole record)"),
    ],
)
def test_a_schema_that_the_reader_cannot_read_has_drifted_though_its_records_are_dropped(
    tmp_path: Path, why: str, place: str
) -> None:
    schemas: Any = SimpleNamespace(reader=record({"name": "n", "type": "int"}), writers=[], refused={7: why})
    decoder: Any = SimpleNamespace(decode_values=lambda values: ([], [f"schema id 7: {why}"] * len(values)))
    found = _of_avro([b"\0\0\0\0\7\2"], decoder, schemas)
    assert found.misfits == (FieldDrift(place, 1, f"schema id 7: {why}"),)
    dropping = Source(topic="t", format="avro", on_malformed="drop")
    limitless: Any = SimpleNamespace(quality=SimpleNamespace(quarantine_limit=None))
    assert bool(_set_aside(limitless, dropping, found, 1)) is (place == "(the whole record)")


def test_a_field_that_the_reader_knows_by_an_alias_has_not_drifted() -> None:
    old, new = {"name": "buyer", "type": "int"}, {"name": "customer", "type": "int", "aliases": ["buyer"]}
    schemas: Any = SimpleNamespace(
        reader=record(new), writers=[record(old, {"name": "more", "type": "int"})], refused={}
    )
    decoder: Any = SimpleNamespace(decode_values=lambda values: ([], [None] * len(values)))
    found = _of_avro([b"\0\0\0\0\1\2\2"], decoder, schemas)
    assert found.undeclared == (FieldDrift("more", 1, "int"),)


def test_a_property_that_the_schema_requires_is_missed_where_it_is_not_there() -> None:
    text = json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
    schemas: Any = SimpleNamespace(
        reader=SimpleNamespace(text=text), writers=[SimpleNamespace(id=1)], refused={}, others=()
    )
    frame, source = b"\0\0\0\0\1", Source(topic="in", format="json_schema")
    found = _of_json_schema([frame + b"{}", frame + b'{"n": 1}'], source, schemas)
    assert [(one.name, one.records) for one in found.misfits] == [("n", 1)]


def test_the_doctor_does_not_look_where_a_consumer_would_be_the_first() -> None:
    """A look would make Kafka's topic of offsets."""
    look: Any = SimpleNamespace(has_groups=False)
    (found,) = check_source_fields(look)
    assert found.level is Level.SKIPPED


def test_nothing_is_declared_of_bytes(tmp_path: Path) -> None:
    assert drift_in(declaring(tmp_path), [b"\xff", None]) == Drift(1)


@pytest.mark.parametrize(("tombstones", "warned"), [("fail", True), ("drop", False), ("pass", False)])
def test_the_doctor_warns_of_tombstones_that_would_fail_a_batch(
    tombstones: str, warned: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = declaring(tmp_path, n="int")
    pipeline = pipeline.model_copy(update={"source": pipeline.source.model_copy(update={"tombstones": tombstones})})
    values = [b'{"n": 1}', None, b'{"n": 2}']
    sample = SimpleNamespace(records=[SimpleNamespace(value=value) for value in values])
    monkeypatch.setattr("fencepost.doctor.fields.look_for_drift", lambda *_, **__: (sample, drift_in(pipeline, values)))
    look: Any = SimpleNamespace(has_groups=True, pipeline=pipeline, cluster=None)
    (found,) = check_source_fields(look)
    assert (found.level is Level.WARNING) is warned
    assert ("1 of 3 sampled records have no value" in str(found)) is warned
