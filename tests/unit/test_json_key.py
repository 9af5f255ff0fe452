"""Keys in JSON: what their declared fields are, with and without a schema beside them, and which keys are malformed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fencepost.config.pipeline import Pipeline
from fencepost.config.record_parts import with_registry
from fencepost.drafting.drift import Drift, drift_of
from fencepost.errors import SettingsError
from fencepost.formats.declared import Encoding, FieldOf
from fencepost.formats.format import taken_names
from fencepost.formats.framing import AnyId
from fencepost.formats.json_key_decoder import JsonKeyDecoder
from registry_tools import framed
from unit.test_record_types import pipeline_of

ID = pa.schema([("id", pa.int64())])
DEEP = "[" * 200 + "]" * 200  # more than the parser takes


def struct(**types: str) -> str:
    """A schema as Kafka Connect's JsonConverter writes it."""
    fields = [{"type": kind, "optional": False, "field": name} for name, kind in types.items()]
    return json.dumps({"type": "struct", "fields": fields, "optional": False, "name": "shop.public.orders.Key"})


def around(payload: str, schema: str = struct(id="int64")) -> str:
    return f'{{"schema":{schema},"payload":{payload}}}'


def decoded(decoder: JsonKeyDecoder, *keys: str | bytes | None) -> tuple[list[Any], list[str | None]]:
    values = [key.encode() if isinstance(key, str) else key for key in keys]
    columns, why = decoder.decode_array(pa.array(values, pa.binary()))
    return [column.to_pylist() for column in columns], why


@pytest.mark.parametrize(
    ("key", "found", "why"),
    [
        ('{"id":7}', 7, None),
        ('{"id":7,"more":[1]}', 7, None),
        (around('{"id":7}'), 7, None),
        ('{"payload":{"id":7},"schema":' + struct(id="int64") + "}", 7, None),
        (f' {{ "schema" : {struct(id="int64")} , "payload" : {{ "id" : 7 }} }} ', 7, None),
        ('{"schema":null,"payload":{"id":7}}', 7, None),
        (around(f'{{"id":7,"more":{DEEP}}}'), 7, None),
        (around('{"id":-0}'), 0, None),
        (around("null"), None, "null, and id is declared not null"),
        (around("{}"), None, "id: null or missing, and declared not null"),
        (around('{"id":null}'), None, "id: null or missing, and declared not null"),
        (around("7"), None, "payload: not an object"),
        (around('[{"id":7}]'), None, "payload: not an object"),
        (around('{"id":"7"}'), None, "id: not an integer of 64 bits"),
        (around('{"id":7}')[:-1] + ',"more":1}', None, "id: null or missing, and declared not null"),
        (around('{"id":7,"id":7}'), None, "a duplicate name in one object"),
        (
            around('{"id":7}', struct(id="string")),
            None,
            "field id: the schema says string, and source.key reads it as bigint",
        ),
        ('{"schema":"s","payload":{"id":7}}', None, "id: null or missing, and declared not null"),
        ('{"schema":null,"payload":null}', None, "id: null or missing, and declared not null"),
        ('{"payload":{"id":7}}', None, "id: null or missing, and declared not null"),
        ("7", None, "not a JSON object"),
        ('"7"', None, "not a JSON object"),
        ("null", None, "not a JSON object"),
        ("", None, "not JSON: EOF while parsing a value at line 1 column 0"),
        (b"\xff", None, "not JSON: expected value at line 1 column 1"),
        (None, None, None),
    ],
)
def test_a_key_is_its_fields_or_malformed_by_name(key: str | bytes | None, found: int | None, why: str | None) -> None:
    assert decoded(JsonKeyDecoder(ID, ["id"]), key) == ([[found]], [why])


def test_a_key_that_may_be_null_is_null_whatever_is_around_it() -> None:
    assert decoded(JsonKeyDecoder(ID), None, around("null"), around("{}"), "{}") == ([[None] * 4], [None] * 4)


def test_a_key_that_has_fields_of_these_names_has_nothing_around_it() -> None:
    kinds = pa.schema([("schema", pa.string()), ("payload", pa.int64())])
    assert decoded(JsonKeyDecoder(kinds), '{"schema":"public","payload":7}') == ([["public"], [7]], [None])
    renamed = JsonKeyDecoder(pa.schema([("of", pa.string())]), fields={"of": FieldOf("payload")})
    assert decoded(renamed, around('{"id":7}')) == ([['{"id":7}']], [None])


def test_fields_are_read_by_their_own_names() -> None:
    decoder = JsonKeyDecoder(
        pa.schema([("day", pa.date32()), ("of", pa.string())]), ["of"], None, {"of": FieldOf("@of")}
    )
    keys = ['{"@of":"a","day":"2024-02-29"}', around('{"@of":"b"}', struct(**{"@of": "string"})), '{"of":"c"}']
    (days, of), why = decoded(decoder, *keys)
    assert ([str(day) for day in days], of) == (["2024-02-29", "None", "None"], ["a", "b", None])
    assert why == [None, None, "@of: null or missing, and declared not null"]


def test_an_encoding_is_that_of_the_field() -> None:
    fields = {"day": FieldOf("d", Encoding("epoch_days"))}
    decoder = JsonKeyDecoder(pa.schema([("day", pa.date32())]), ["day"], None, fields)
    (days,), why = decoded(decoder, around('{"d":19782}', struct(d="int32")), '{"d":-1}', '{"d":"x"}')
    assert [str(day) for day in days] == ["2024-02-29", "1969-12-31", "None"]
    assert why[:2] == [None, None]
    assert why[2] is not None
    assert why[2].startswith("d: ")


def test_a_header_may_name_any_schema() -> None:
    decoder = JsonKeyDecoder(ID, ["id"], AnyId(frozenset()))
    keys = [framed(1, {"id": 1}), framed(2**32 - 1, {"id": 2}), b'{"id":3}', b"\0\0", framed(5, b"{"), None]
    assert decoded(decoder, *keys) == (
        [[1, 2, None, None, None, None]],
        [
            None,
            None,
            "the first byte is 0x7B, not 0: no schema id",
            "2 bytes, and no schema id; an id in a header of the record is not read",
            "schema id 5: not JSON: EOF while parsing an object at line 1 column 1",
            None,
        ],
    )


def test_many_keys_are_what_each_is_by_itself() -> None:
    keys = [('{"id":%d}', around('{"id":%d}'), '{"id":"%d"}', around("%d"))[n % 4] % n for n in range(2000)]
    (column,), why = decoded(JsonKeyDecoder(ID, ["id"]), *keys)
    assert column == [n if n % 4 < 2 else None for n in range(2000)]
    assert [reason is None for reason in why] == [n % 4 < 2 for n in range(2000)]


def drift_in(pipeline: Pipeline, *sampled: Sequence[bytes | None]) -> Drift:
    """The drift of the only source."""
    return drift_of(pipeline, pipeline.sources["source"], *sampled)


def test_keys_that_do_not_fit_are_told_by_the_doctor_and_by_schema(tmp_path: Path) -> None:
    source = {"key_format": "json", "key": {"id": "bigint not null"}}
    keys = [b'{"id":1}', None, b'{"id":2}', b"text", b"{", around('{"id":"x"}').encode()]
    drift = drift_in(pipeline_of(tmp_path, **source), [b'{"n":1}'] * 6, keys)
    assert {(one.name, one.what): one.records for one in drift.misfits} == {
        ("(the key)", "null, and id is declared not null"): 1,
        ("(the key)", "not JSON: expected ident"): 1,
        ("(the key)", "not JSON: EOF while parsing an object"): 1,
        ("(the key)", "id: not an integer of 64 bits"): 1,
    }
    assert (drift.malformed, drift.fits) == (4, False)
    assert drift_in(pipeline_of(tmp_path, **source), [b'{"n":1}'], [b'{"id":1}']).misfits == ()
    assert drift_in(pipeline_of(tmp_path), [b'{"n":1}'], [b"text"]).misfits == ()


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ({"key": {"id": "bigint"}}, "key needs key_format: json, json_schema or avro"),
        ({"key_format": "json"}, "key_format: json needs key: a mapping of field name to Spark SQL type"),
        ({"key_format": "json_schema"}, "key_format: json_schema needs key"),
        ({"key_format": "json", "key": {"id": "number"}}, "source.key.id.type: not a Spark SQL type"),
        ({"key_format": "json", "key": {"id": "int", "ID": "int"}}, "differ only in case"),
        ({"key_format": "json", "key": {"id": "int"}, "key_subject": "s"}, "key_subject needs key_format: avro"),
        ({"key_format": "json", "key": {"id": {"field": "Id"}}}, "key: id needs a type: key_format json has no schema"),
        (
            {"key_format": "avro", "key": {"id": {"type": "date", "from": "epoch_days"}}},
            "key: id: from, digits and infinity are for keys in JSON",
        ),
    ],
)
def test_keys_that_make_no_sense_are_refused_by_name(tmp_path: Path, source: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingsError) as refused:
        pipeline_of(tmp_path, **source)
    assert says in str(refused.value)


def test_the_keys_fields_are_known_by_their_own_names_and_json_keys_need_no_registry(tmp_path: Path) -> None:
    keys = {"id": "bigint", "of": {"field": "@of", "type": "string"}}
    pipeline = pipeline_of(tmp_path, key_format="json_schema", key=keys)
    assert pipeline.source.key_fields == {"id", "@of"}
    assert not pipeline.uses_registry
    assert with_registry(pipeline.source_parts) == []


def test_no_value_has_a_column_with_a_name_of_the_keys_columns() -> None:
    assert taken_names(["_key_id", "_KEY_", "_keys", "key_id"]) == ["_key_", "_key_id"]
