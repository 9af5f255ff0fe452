"""`source.only`: which records are of a type to read, which are of others, and of which the type is not known."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from fencepost.config.loading import load_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.drafting.drift import FieldDrift, describe_notes, drift_of
from fencepost.errors import SettingsError
from fencepost.formats import REGISTRY_FORMATS, BadSchema, Declared, json_alike
from fencepost.formats.avro_decoder import AvroReader
from fencepost.formats.avro_rows import AvroDecoder
from fencepost.formats.avro_schema import Incompatible, parse
from fencepost.formats.declared import Only
from fencepost.formats.framing import ExcludedKind, Framing
from fencepost.formats.json_decoder import JsonDecoder
from fencepost.model import ReadSchemas, RegisteredSchema, Schemas, SourceSummary
from fencepost.schemas import freeze
from fencepost.schemas.registry import SchemaVersion
from fencepost.steps import source_counts
from fencepost.steps.source_counts import SourceCounts
from makers import a_batch, a_plan, of_source
from registry_tools import framed

OTHER = ExcludedKind.OTHER_TYPES
ONLY = Only("type", ("A", "C"))
NUMBER = pa.schema([("n", pa.int64())])
NO_TYPE = "type: null or missing, and source.only reads the record's type there"
NO_TEXT = "type: not a text, and source.only reads the record's type there"
DEEP = "[" * 200 + "]" * 200  # more than the parser takes


def record(name: str, *fields: str, **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": f, "type": "long"} for f in fields], **more}


def of_types(*names: str) -> Declared:
    return Declared(only=Only(None, names) if names else None)


A, B = record("acme.A", "n"), record("acme.B", "other")
UNION = ["null", A, B]
AVRO, JSON_SCHEMA = REGISTRY_FORMATS["avro"], REGISTRY_FORMATS["json_schema"]


@pytest.mark.parametrize(
    ("value", "n", "why"),
    [
        ('{"type":"A","n":1}', 1, None),
        ('{"n":2,"type":"C"}', 2, None),
        ('{"type":"\\u0041","n":3}', 3, None),
        ('{"type":"B","n":4}', None, OTHER),
        ('{"type":"a","n":4}', None, OTHER),
        ('{"type":"A ","n":4}', None, OTHER),
        ('{"type":"","n":4}', None, OTHER),
        ('{"type":"B","n":"no number","n2":[1,{}]}', None, OTHER),
        ('{"type":"B"}', None, OTHER),
        (f'{{"type":"B","n":{DEEP}}}', None, OTHER),
        (f'{{"type":"A","n":5,"more":{DEEP}}}', 5, None),
        ('{"n":1}', None, NO_TYPE),
        ("{}", None, NO_TYPE),
        ('{"Type":"A","n":1}', None, NO_TYPE),
        ('{"type":null,"n":1}', None, NO_TYPE),
        ('{"type":1,"n":1}', None, NO_TEXT),
        ('{"type":1.0,"n":1}', None, NO_TEXT),
        ('{"type":["A"],"n":1}', None, NO_TEXT),
        ('{"type":{"A":"A"},"n":1}', None, NO_TEXT),
        ('{"type":true,"n":1}', None, NO_TEXT),
        ('{"type":"A"}', None, "n: null or missing, and declared not null"),
        ('{"type":"B","type":"A","n":1}', None, "a duplicate name in one object"),
        ('["A"]', None, "not a JSON object"),
        ("{", None, "not JSON: EOF while parsing an object at line 1 column 1"),
        (None, None, None),
    ],
)
def test_a_json_record_is_read_excluded_or_malformed_by_the_text_of_its_type(
    value: str | None, n: int | None, why: str | None
) -> None:
    decoder = JsonDecoder(NUMBER, ["n"], only=ONLY)
    (column,), reasons = decoder.decode_values([None if value is None else value.encode()])
    assert column.to_pylist() == [n]
    assert reasons == [why]
    assert isinstance(reasons[0], ExcludedKind) == (why == OTHER)


@pytest.mark.parametrize("kept", [("A",), ("A", "B"), ("A", "B", "C")])
@pytest.mark.parametrize("declared", [NUMBER, pa.schema([("n", pa.int64()), ("type", pa.string())])])
def test_records_read_together_are_what_each_is_by_itself(
    kept: Sequence[str], declared: pa.Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the type is a column itself, and where most records are of other types."""
    monkeypatch.setattr(json_alike, "FEW", 1)
    values = [f'{{"type":"{"ABC"[row % 3]}","n":{row}}}'.encode() for row in range(300)]
    values[10] = b'{"type":null,"n":10}'
    values[20] = b'{"type":123,"n":20}'
    values[30] = b'{"type":"A","n":"x"}'
    values[40] = b'{"type":"\xff","n":40}'
    only = Only("type", tuple(kept))
    columns, why = JsonDecoder(declared, ["n"], only=only).decode_array(pa.array(values, pa.binary()))
    strange = {10: NO_TYPE, 20: NO_TEXT}
    for row, value in enumerate(values):
        wanted: int | None
        if row in strange:
            wanted, reason = None, strange[row]
        elif row in (30, 40):
            (alone, *_), (reason,) = JsonDecoder(declared, ["n"], only=only).decode_values([value])
            wanted = alone[0].as_py()
            assert reason is not None
            assert not isinstance(reason, ExcludedKind)
        else:
            read = "ABC"[row % 3] in kept
            wanted, reason = (row, None) if read else (None, OTHER)
        assert columns[0][row].as_py() == wanted, row
        assert why[row] == reason, row
    found = JsonDecoder(declared, ["n"], only=only)
    found.decode_array(pa.array(values, pa.binary()))
    assert found._alike._is_worth_it, "other types do not stop reading many at a time"


def test_names_of_avros_records_need_no_readable_schema() -> None:
    unreadable = record("B", "n", namespace="acme")
    unreadable["fields"][0]["type"] = "nowhere.Defined"
    for schema, names in (
        (A, {"acme.A"}),
        (unreadable, {"acme.B"}),
        (UNION, {"acme.A", "acme.B"}),
        (["null", "acme.Referenced", unreadable], {"acme.Referenced", "acme.B"}),
        ({"type": A}, {"acme.A"}),
        ({"type": "error", "name": "a.E", "namespace": "ignored", "fields": []}, {"a.E"}),
        ("string", set()),
        ({"type": "array", "items": A}, set()),
    ):
        assert AVRO.record_types(json.dumps(schema)) == names
    for bad in ("{", "3", "{}", '{"type": "record"}'):
        with pytest.raises(BadSchema):
            AVRO.record_types(bad)


def test_a_json_schema_is_named_by_its_title() -> None:
    assert JSON_SCHEMA.record_types('{"title": "OrderCreated", "$ref": "nowhere.json"}') == {"OrderCreated"}
    for bad in ('{"type": "object"}', '{"title": ""}', '{"title": 3}', "true", "{"):
        with pytest.raises(BadSchema):
            JSON_SCHEMA.record_types(bad)
    text = json.dumps({"title": "A", "type": "object", "properties": {"n": {"type": "integer"}}})
    assert JSON_SCHEMA.reader(text, (), of_types("B", "A"), columns=True)
    with pytest.raises(BadSchema, match=r"source\.only names B, and the schema's title is A"):
        JSON_SCHEMA.reader(text, (), of_types("B"), columns=True)


def test_the_reader_is_the_record_that_is_named_and_what_it_cannot_read_is_refused() -> None:
    def reader(schema: Any, *only: str) -> Any:
        return json.loads(AVRO.reader(json.dumps(schema), (), of_types(*only), columns=True))["name"]

    both = record("A", "n", namespace="acme", aliases=["B"])
    assert reader(A, "acme.A") == reader(UNION, "acme.A") == "A"
    assert reader(UNION, "acme.B") == "B"
    assert reader(both, "acme.A", "acme.B") == reader([both, B], "acme.A", "acme.B") == "A"
    assert reader(A, "elsewhere.A") == "A", "Avro compares names without their namespaces"
    for schema, only, says in (
        (
            A,
            ["acme.B"],
            "names acme.B, and record acme.A does not read that: it has neither this name nor such an alias",
        ),
        (A, ["acme.A", "acme.B"], "names acme.B, and record acme.A does not read"),
        (UNION, ["acme.A", "acme.B"], "names acme.B, and record acme.A does not read"),
        (UNION, ["acme.A", "acme.C"], r"names acme.C, and the schema's records are acme.A, acme.B"),
        ("string", ["string"], "names string, and string does not read"),
    ):
        with pytest.raises(BadSchema, match=rf"source\.only {says}"):
            reader(schema, *only)


@pytest.mark.parametrize("times", [1, 300])
def test_of_a_union_the_records_that_are_named_are_read_and_others_are_excluded(times: int) -> None:
    """One by one and many at a time, beside ids of other types; bytes that no branch has are malformed all the same."""
    framing = Framing(frozenset([1, 3]), {4: "gone"}, others=frozenset([2]))
    decoder = AvroDecoder(
        NUMBER, framing, json.dumps(A), {1: json.dumps(UNION), 3: json.dumps(A)}, Declared(only=Only(None, ("acme.A",)))
    )
    values = [
        (framed(1, b"\x02\x0e"), 7, None),
        (framed(1, b"\x04\x0e"), None, OTHER),
        (framed(1, b"\x00"), None, OTHER),
        (framed(1, b"\x04"), None, OTHER),  # what others are is not looked at
        (framed(1, b"\x06\x0e"), None, "schema id 1: the value: type 3 of a union of 3"),
        (framed(1, b"\x02"), None, "schema id 1: the value is not complete"),
        (framed(2, b"anything"), None, OTHER),
        (framed(3, b"\x10"), 8, None),
        (framed(4, b"\x10"), None, "schema id 4: gone"),
        (None, None, None),
    ] * times
    columns, why = decoder.decode_array(pa.array([value for value, _, _ in values], pa.binary()))
    assert columns[0].to_pylist() == [n for _, n, _ in values]
    assert why == [reason for _, _, reason in values]
    assert [isinstance(reason, ExcludedKind) for reason in why] == [reason == OTHER for _, _, reason in values]


def test_a_named_record_of_a_union_has_to_be_readable() -> None:
    other = [record("acme.A", "m"), B]
    AVRO.writer(json.dumps(UNION), (), json.dumps(A), of_types("acme.A"))
    with pytest.raises(Incompatible, match="n: not written, and it has no default"):
        AVRO.writer(json.dumps(other), (), json.dumps(A), of_types("acme.A"))
    with pytest.raises(Incompatible):
        AvroReader(parse(json.dumps(UNION)), parse(json.dumps(A)))


def test_what_a_plan_froze_of_other_types_is_told() -> None:
    one = RegisteredSchema(subject="s", id=5, version=1, text="{}")
    found = ReadSchemas(reader=one, writers=(one,), refused={6: "gone"}, others=(7, 9))
    assert found.ids == {5, 6, 7, 9}
    assert (
        Schemas(sources=of_source(found)).descriptions["source"].endswith("; records of ids 5; of other types ids 7, 9")
    )
    assert ReadSchemas.model_validate_json(found.model_dump_json()) == found


SUITE = "expectations: [{type: expect_table_row_count_to_be_between, kwargs: {max_value: 9}}]"


def pipeline_of(folder: Path, *, quality: Any = None, **source: Any) -> Pipeline:
    place = folder / "types"
    place.mkdir(exist_ok=True)
    settings: dict[str, Any] = {
        "source": {"topic": "in", "schema": {"n": "int"}, **source},
        "output": {"topic": "out"},
        "schedule": {"start": "2026-01-01"},
        "kafka": {"bootstrap.servers": "127.0.0.1:1"},
        "schema_registry": {"url": "http://127.0.0.1:1"},
        "quality": quality or {},
    }
    (place / "pipeline.yaml").write_text(yaml.safe_dump(settings))
    (place / "transform.sql").write_text("SELECT * FROM source")
    (place / "expectations.yaml").write_text(SUITE)
    return load_pipeline(place)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ({"only": ["A"]}, "for format json give the field that has the type: {field: type, values: "),
        ({"format": "bytes", "schema": {}, "only": ["A"]}, "format bytes does not look into values"),
        ({"format": "avro", "schema": {}, "only": {"field": "t", "values": ["A"]}}, "for format avro give a list of"),
        ({"only": {"field": "t", "values": []}}, "source.only.values: "),
        ({"only": []}, "source.only.values: "),
        ({"only": [1]}, "source.only.values.0: Input should be a valid string"),
        ({"only": {"field": "t", "values": ["A"], "value": 1}}, "source.only.value: unknown"),
        ({"only": "A"}, "source.only: "),
    ],
)
def test_types_that_make_no_sense_are_refused_by_name(tmp_path: Path, source: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingsError) as refused:
        pipeline_of(tmp_path, **source)
    assert says in str(refused.value)


def test_only_a_source_that_names_its_types_excludes_others(tmp_path: Path) -> None:
    assert pipeline_of(tmp_path).source.excludes == ()
    assert pipeline_of(tmp_path, only={"field": "", "values": ["A"]}).source.excludes == (OTHER,)
    avro = pipeline_of(tmp_path, format="avro", schema={}, only=["acme.A"])
    assert avro.source.declared.names == ("acme.A",)


def test_a_retry_that_finds_all_written_counts_the_source_again_if_it_excludes_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_counts, "count_source", lambda *_: SourceCounts(SourceSummary(rows_in=9)))
    batch = a_batch(plan=a_plan((0, 9)))
    plain, reading = pipeline_of(tmp_path), pipeline_of(tmp_path, only={"field": "type", "values": ["A"]})
    nothing: Any = None
    assert source_counts.count_again(nothing, plain, batch, plain.source) == SourceCounts(SourceSummary(rows_in=None))
    assert source_counts.count_again(nothing, reading, batch, reading.source) == SourceCounts(SourceSummary(rows_in=9))


def test_counts_of_kinds_are_those_that_were_found() -> None:
    counts = {"rows": 9, "malformed": 1, "tombstones": 0, "newest": None, "other_types": 3, "truncations": 0}
    assert SourceCounts.of(counts).summary.excluded == {"other_types": 3}


class FakeRegistry:
    """A registry that has record `acme.A` by the ids from 1000 on, and record `acme.B` by all others."""

    def text_by_id(self, schema_id: int) -> str:
        return json.dumps(A if schema_id >= 1000 else B)

    def by_id(self, schema_id: int) -> SchemaVersion:
        return SchemaVersion(schema_id, self.text_by_id(schema_id), subject="s")


def test_ids_of_other_types_share_no_limit_of_what_is_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(freeze, "registry_for", lambda *_: FakeRegistry())
    pipeline = pipeline_of(tmp_path, format="avro", schema={}, only=["acme.A"])
    known = ReadSchemas(reader=RegisteredSchema(subject="s", id=1, text=json.dumps(A)), writers=())
    found = freeze.look_up_ids(pipeline, pipeline.source_parts[0], known, [*range(2, 300), *range(1000, 1101)])
    assert found.others == tuple(range(2, 300))
    assert [writer.id for writer in found.writers] == list(range(1000, 1100))
    assert found.refused == {1100: freeze.NOT_LOOKED_UP}


def test_other_types_are_no_drift(tmp_path: Path) -> None:
    """Nor is the field of the type, which no column reads; a record without it does not fit."""
    pipeline = pipeline_of(tmp_path, only={"field": "type", "values": ["A"]})
    others = [b'{"type": "B", "n": "x", "new": 1}'] * 3
    drift = drift_of(
        pipeline, pipeline.sources["source"], [b'{"type": "A", "n": 1}', None, *others, b'{"type": "A", "n": 2}']
    )
    assert (drift.records, drift.excluded, drift.undeclared, drift.misfits, drift.malformed) == (2, 3, (), (), 0)
    assert list(describe_notes(drift)) == ["3 other sampled records are excluded"]
    drift = drift_of(pipeline, pipeline.sources["source"], [b'{"type": "A", "n": 1}', *others, b'{"n": 2}'])
    assert (drift.records, drift.excluded, drift.malformed) == (2, 3, 1)
    assert drift.misfits == (FieldDrift("(the whole record)", 1, NO_TYPE),)


def test_malformed_records_of_a_sample_are_a_share_of_those_that_the_source_reads(tmp_path: Path) -> None:
    """One of two is above a limit of 49%, beside however many of other types."""
    types = {"field": "type", "values": ["A"]}
    values = [b'{"type": "A", "n": 1}', b'{"n": 2}', *[b'{"type": "B"}'] * 98]
    for share, fits in ((0.49, False), (0.5, True)):
        quality = {"quarantine_limit": {"share": share}}
        pipeline = pipeline_of(tmp_path, quality=quality, only=types, on_malformed="quarantine")
        assert drift_of(pipeline, pipeline.sources["source"], values).fits is fits
