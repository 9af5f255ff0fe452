"""`source.envelope`: which row a change has, what is excluded, and what is malformed, by fixed texts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from envelopes import (
    AT,
    COLUMNS,
    FROM_POSTGRES,
    MYSQL,
    NO_OP,
    ORACLE,
    PLACEHOLDER,
    POSTGRES,
    SQL_SERVER,
    TOAST,
    change,
    decoder_of,
    rows_of,
    wrapped,
)
from fencepost.config.loading import load_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.drafting.drift import FieldDrift, drift_of
from fencepost.errors import SettingsError
from fencepost.formats.declared import Envelope, FieldOf
from fencepost.formats.envelope import is_unavailable, unavailable
from fencepost.formats.framing import ExcludedKind, Framing
from fencepost.formats.json_envelope import MOST_SCHEMAS
from fencepost.formats.rows import decode_first

NO_BEFORE = (
    "before: null in a delete, so its row is not known. Set REPLICA IDENTITY FULL for the table, or DEFAULT if it has a "
    "primary key"
)


def read(value: str | bytes | None, *columns: pa.Field, required: Sequence[str] = (), **envelope: Any) -> Any:
    schema = pa.schema(columns) if columns else COLUMNS
    (found,) = rows_of(decoder_of(schema, required, **envelope), [value])
    return found


ROW, OLD = '{"id":7,"name":"Anne"}', '{"id":7,"name":"Ann"}'


@pytest.mark.parametrize("wrap", [str, wrapped, lambda text: f'{{"payload":{text},"schema":null}}'])
@pytest.mark.parametrize(
    ("value", "word", "name"),
    [
        (change("c", after=ROW), "create", "Anne"),
        (change("r", after=ROW), "read", "Anne"),
        (change("u", before=OLD, after=ROW), "update", "Anne"),
        (change("u", after=ROW), "update", "Anne"),
        (change("d", before=OLD), "delete", "Ann"),
        (change("d", before=OLD, after=ROW), "delete", "Ann"),
    ],
)
def test_a_change_is_the_row_that_it_leaves_or_the_row_that_it_deletes(
    wrap: Any, value: str, word: str, name: str
) -> None:
    assert read(wrap(value)) == [7, name, word, FROM_POSTGRES]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        (POSTGRES, FROM_POSTGRES),
        (
            MYSQL,
            {
                "ts": AT.replace(microsecond=123000),
                "lsn": None,
                "position": "mysql-bin.000003:154",
                "db": "inventory",
                "table": "inventory.customers",
                "snapshot": "last",
            },
        ),
        (
            SQL_SERVER,
            {
                "ts": AT.replace(microsecond=123000),
                "lsn": None,
                "position": "00000027:00000758:0003",
                "db": "testDB",
                "table": "dbo.customers",
                "snapshot": "false",
            },
        ),
        (
            ORACLE,
            {
                "ts": AT.replace(microsecond=123000),
                "lsn": None,
                "position": "2122185",
                "db": "ORCLPDB1",
                "table": "DEBEZIUM.CUSTOMERS",
                "snapshot": "false",
            },
        ),
        ("{}", dict.fromkeys(FROM_POSTGRES)),
        (
            '{"snapshot":true,"ts_ms":-1}',
            dict.fromkeys(FROM_POSTGRES) | {"snapshot": "true", "ts": datetime(1969, 12, 31, 23, 59, 59, 999000, UTC)},
        ),
        ("null", None),
    ],
)
def test_where_a_change_comes_from_has_one_form_for_all_connectors(source: str, found: Any) -> None:
    assert read(change("c", after=ROW, source=source)) == [7, "Anne", "create", found]
    without = change("c", after=ROW).replace(f'"source":{POSTGRES},', "")
    assert read(without) == [7, "Anne", "create", None]


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("7", "source: not an object"),
        ("[]", "source: not an object"),
        ('{"ts_us":1.5}', "source.ts_us: not an integer of 64 bits"),
        ('{"ts_ms":"1"}', "source.ts_ms: not an integer of 64 bits"),
        ('{"ts_ms":true}', "source.ts_ms: not an integer of 64 bits"),
        ('{"ts_ms":253402300800000}', "source.ts_ms: not within the years 1 to 9999"),
        ('{"ts_us":-62135596800000001}', "source.ts_ms: not within the years 1 to 9999"),
        ('{"lsn":9223372036854775808}', "source.lsn: not an integer of 64 bits"),
        ('{"lsn":"0/16"}', "source.lsn: not an integer of 64 bits"),
        ('{"file":"f","pos":1e3}', "source.pos: not an integer of 64 bits"),
        ('{"file":3}', "source.file: not a text"),
        ('{"table":{}}', "source.table: not a text"),
        ('{"snapshot":1}', "source.snapshot: not a text"),
    ],
)
def test_a_source_of_another_form_is_malformed(source: str, why: str) -> None:
    assert read(change("c", after=ROW, source=source)) == why


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("{}", NO_OP),
        (ROW, NO_OP),
        ('{"op":null,"after":{"id":7}}', NO_OP),
        ('{"payload":{"id":7}}', NO_OP),
        ('{"payload":null}', NO_OP),
        ('{"payload":"op"}', NO_OP),
        (wrapped(ROW), NO_OP),
        (wrapped("null"), NO_OP),
        (wrapped(wrapped(change("c", after=ROW))), NO_OP),
        ('{"ts_ms":1}', NO_OP),
        (change("x", after=ROW), "op: none of c, r, u, d, t, m"),
        (change("C", after=ROW), "op: none of c, r, u, d, t, m"),
        (change("create", after=ROW), "op: none of c, r, u, d, t, m"),
        (change(1, after=ROW), "op: none of c, r, u, d, t, m"),
        (change(["c"], after=ROW), "op: none of c, r, u, d, t, m"),
        (change({}, after=ROW), "op: none of c, r, u, d, t, m"),
        (change(True, after=ROW), "op: none of c, r, u, d, t, m"),
        (change("d"), NO_BEFORE),
        (change("d", after=ROW), NO_BEFORE),
        ('{"op":"d"}', NO_BEFORE),
        (change("c"), "after: null or missing, and op says create"),
        (change("c", before=ROW), "after: null or missing, and op says create"),
        ('{"op":"u"}', "after: null or missing, and op says update"),
        (change("r", after="[]"), "after: not an object"),
        (change("u", after="7"), "after: not an object"),
        (change("d", before="[1]"), "before: not an object"),
        (
            change("c", after='"{\\"_id\\":1}"'),
            "after: a text, which MongoDB's connector writes, and not an object with the row's fields",
        ),
        (change("c", after=ROW).replace('"op":"c"', '"op":"c","op":"d"'), "a duplicate name in one object"),
        (change("c", after='{"id":1,"id":2}'), "a duplicate name in one object"),
        (change("u", before='{"id":1,"id":2}', after=ROW), "a duplicate name in one object"),
        (wrapped(change("c", after=ROW))[:-1] + ',"payload":{}}', "a duplicate name in one object"),
        ("[]", "not a JSON object"),
        (change("c", after='{"id":"seven"}'), "id: not an integer of 64 bits"),
    ],
)
def test_a_value_that_is_no_change_of_a_row_is_malformed_by_its_reason(value: str, why: str) -> None:
    assert read(value) == why


@pytest.mark.parametrize("tail", [" ", "}", "{", ',"x":{}}', ',"x":{}', "", '"'])
def test_what_follows_a_payload_is_read_even_where_the_schema_is_known(tail: str) -> None:
    """The first record makes the schema's bytes known."""
    first, cut = wrapped(change("c", after=ROW)), wrapped(change("c", after=ROW))[:-1]
    sound = json.dumps(json.loads(first))
    found = rows_of(decoder_of(), [first, cut + tail, sound])
    assert found[0] == found[2] == [7, "Anne", "create", FROM_POSTGRES]
    try:
        json.loads(cut + tail)
        assert found[1] == found[0]
    except ValueError:
        assert found[1].startswith("not JSON"), found


def test_excluded_are_truncations_messages_other_tables_and_the_tombstones_behind_deletions() -> None:
    """Whatever else they have. A tombstone is excluded, not only without a value."""
    message = f'{{"source":{POSTGRES},"op":"m","ts_ms":1,"message":{{"prefix":"p","content":"AQ=="}}}}'
    values = [
        change("c", after=ROW),
        change("d", before=OLD),
        None,
        change("t"),
        message,
        change("c", after=ROW, source=MYSQL),
    ]
    of_all = [ExcludedKind.DELETION_TOMBSTONES, ExcludedKind.TRUNCATIONS, ExcludedKind.MESSAGES]
    found = rows_of(decoder_of(), values)
    assert found[2:5] == of_all
    assert [row[2] for row in (found[0], found[1], found[5])] == ["create", "delete", "create"]
    found = rows_of(decoder_of(captured_table="public.orders"), values)
    assert found[2:] == [*of_all, ExcludedKind.OTHER_TABLES]
    assert [row[:3] for row in found[:2]] == [[7, "Anne", "create"], [7, "Ann", "delete"]]
    found = rows_of(decoder_of(captured_table="inventory.customers"), values)
    other = ExcludedKind.OTHER_TABLES
    assert found[:5] == [other, other, of_all[0], other, of_all[2]]
    assert found[5][:3] == [7, "Anne", "create"]


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (change("c", after='{"id":"no number"}', source=MYSQL), ExcludedKind.OTHER_TABLES),
        (change("z", source=MYSQL), ExcludedKind.OTHER_TABLES),
        (
            change("c", after=ROW, source="null"),
            "source.table: missing, so whether the record is of source.table is not known",
        ),
        (
            change("c", after=ROW, source="{}"),
            "source.table: missing, so whether the record is of source.table is not known",
        ),
        (change("c", after=ROW, source='{"table":"orders"}'), ExcludedKind.OTHER_TABLES),
        (change("c", after=ROW, source='{"schema":"Public","table":"orders"}'), ExcludedKind.OTHER_TABLES),
        (change("c", after=ROW, source='{"db":"public","table":"orders"}'), [7, "Anne", "create"]),
        (ROW, NO_OP),
    ],
)
def test_of_another_table_nothing_else_matters(value: str, found: Any) -> None:
    row = read(value, captured_table="public.orders")
    assert (row[:3] if isinstance(row, list) else row) == found


def test_only_the_row_of_the_operation_is_read() -> None:
    bad = '{"id":"x","name":{"a":[1]}}'
    assert read(change("u", before=bad, after=ROW))[:3] == [7, "Anne", "update"]
    assert read(change("d", before=OLD, after=bad))[:3] == [7, "Ann", "delete"]


def test_of_a_deletion_only_the_keys_columns_have_to_be_there() -> None:
    """Without REPLICA IDENTITY FULL `before` has only these."""
    columns = pa.schema([("number", pa.int64()), ("name", pa.string())])
    fields, required = {"number": FieldOf("id")}, ["number", "name"]
    none, some = '{"id":null,"name":null}', '{"id":7,"name":null}'
    by_key = decoder_of(columns, required, fields=fields, key=frozenset(["id"]))
    missing = "{}: null or missing, and declared not null"
    found = rows_of(
        by_key, [change("d", before=some), change("d", before=none), change("u", after=some), change("d", before="{}")]
    )
    assert found[0][:3] == [7, None, "delete"]
    assert found[1:] == [missing.format("id"), missing.format("name"), missing.format("id")]
    unknown = decoder_of(columns, required, fields=fields)
    found = rows_of(unknown, [change("d", before=none), change("u", after=none)])
    assert found[0][:3] == [None, None, "delete"]
    assert found[1] == missing.format("id")


UUIDS = '["b68a35a7-17ad-35b3-af2a-ae46edb4545a"]'
CODES = list(PLACEHOLDER.encode())
BASE64 = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.string(), f'"{PLACEHOLDER}"'),
        (pa.string(), f'"{BASE64}"'),
        (pa.string(), '"5f5f646562657a69756d5f756e617661696c61626c655f76616c7565"'),
        (pa.string(), json.dumps(f'{{"{PLACEHOLDER}":"{PLACEHOLDER}"}}')),
        (pa.string(), f'["{PLACEHOLDER}"]'),
        (pa.binary(), f'"{BASE64}"'),
        (pa.int64(), f'"{PLACEHOLDER}"'),
        (pa.timestamp("us", "UTC"), f'"{PLACEHOLDER}"'),
        (pa.list_(pa.string()), f'["{PLACEHOLDER}"]'),
        (pa.list_(pa.string()), UUIDS),
        (pa.list_(pa.binary()), f'["{BASE64}"]'),
        (pa.list_(pa.int32()), str(CODES)),
        (pa.list_(pa.int64()), str(CODES)),
        (pa.list_(pa.float64()), str([float(code) for code in CODES])),
        (pa.list_(pa.float32()), str([float(code) for code in CODES])),
        (pa.list_(pa.bool_()), json.dumps([True] * len(CODES))),
        (pa.map_(pa.string(), pa.string()), f'{{"{PLACEHOLDER}":"{PLACEHOLDER}"}}'),
        (pa.string(), f'{{"{PLACEHOLDER}":"{PLACEHOLDER}"}}'),
    ],
)
def test_a_value_that_the_log_does_not_have_is_malformed_in_a_declared_column_alone(
    kind: pa.DataType, value: str
) -> None:
    row, needed = f'{{"id":7,"big":{value}}}', pa.field("id", pa.int64())
    for text in (change("u", after=row), change("d", before=row), wrapped(change("c", after=row))):
        assert read(text, needed, pa.field("big", kind)) == f"big: {TOAST}"
        assert read(text, needed, pa.field("big", kind), required=["big"]) == f"big: {TOAST}"
        assert read(text, needed)[0] == 7
    assert read(change("u", before=row, after='{"id":7}'), needed, pa.field("big", kind))[:2] == [7, None]


@pytest.mark.parametrize(
    "value",
    [
        f"{PLACEHOLDER}_",
        PLACEHOLDER.upper(),
        "b68a35a7-17ad-35b3-af2a-ae46edb4545a",
        "",
        None,
        7,
        [],
        [PLACEHOLDER, PLACEHOLDER],
        [None],
        [[PLACEHOLDER]],
        [{}],
        CODES[:-1],
        [*CODES[:-1], 0],
        [0] * 28,
        [False] + [True] * 27,
        [None] * 28,
        ["a"] * 28,
        [[]] * 28,
        [{"value": 95}] * 28,
        {},
        {PLACEHOLDER: "x"},
        {PLACEHOLDER: PLACEHOLDER, "a": "b"},
        b"",
        (PLACEHOLDER,),
        Decimal("0.95"),
    ],
)
def test_what_is_only_like_the_placeholder_is_a_value(value: Any) -> None:
    assert not is_unavailable(value)
    assert unavailable([value, PLACEHOLDER, value]) == [1]
    assert unavailable([value]) == []


@pytest.mark.parametrize(
    "value",
    [
        PLACEHOLDER.encode(),
        [PLACEHOLDER.encode()],
        [(PLACEHOLDER, PLACEHOLDER)],
        [Decimal(code).scaleb(-2) for code in CODES],
        [{"scale": 0, "value": "Xw=="}, *({"scale": 0, "value": one} for one in ["Xw==", "ZA==", "ZQ=="])],
    ],
)
def test_other_forms_of_the_placeholder(value: Any) -> None:
    is_whole = not isinstance(value, list) or len(value) in (1, 28)
    assert is_unavailable(value) is is_whole
    assert unavailable([None, value]) == [1] * is_whole


def test_numbers_texts_and_minus_zeros_stay_exact_below_every_wrapper() -> None:
    """They are read from the record's own text, whose payload may have been cut out."""
    columns = pa.schema([("s", pa.string()), ("x", pa.float64()), ("d", pa.decimal128(38, 20)), ("n", pa.string())])
    row = '{"s":{"b": [1.50, -0]},"x":-0,"d":0.12345678901234567890,"n":1.2300}'
    decoder = decoder_of(columns)
    texts = [
        change("c", after=row),
        wrapped(change("c", after=row)),
        json.dumps(json.loads(wrapped(change("c", after='{"x":0}')))),
    ]
    for found in rows_of(decoder, texts)[:2]:
        assert found[:3] == ['{"b": [1.50, -0]}', 0.0, Decimal("0.12345678901234567890")]
        assert str(found[1]) == "-0.0"
        assert found[3:5] == ["1.2300", "create"]
        assert found[5] == FROM_POSTGRES
    long = "9" * 1500
    for wrap in (str, wrapped):
        assert read(wrap(change("c", after=f'{{"n":{long}}}')), pa.field("n", pa.string()))[0] == long
    deep = "[" * 300 + "]" * 300
    for wrap in (str, wrapped):
        assert read(wrap(change("c", after=f'{{"n":{deep}}}')), pa.field("n", pa.string()))[0] == deep
        assert read(wrap(change("u", before=f'{{"n":{deep}}}', after=ROW)))[:2] == [7, "Anne"]
        too_deep = "[" * 1001 + "]" * 1001
        assert read(wrap(change("c", after=f'{{"n":{too_deep}}}'))) == "more than 1000 nested arrays and objects"


def test_a_change_of_schema_in_the_middle_is_seen_and_no_number_of_schemas_changes_a_row() -> None:
    schemas = [json.dumps({"type": "struct", "fields": [], "name": f"s{n}.Envelope"}) for n in range(3 * MOST_SCHEMAS)]
    values = [wrapped(change("c", after=f'{{"id":{n},"name":"x"}}'), schemas[n % len(schemas)]) for n in range(500)]
    values += [change("c", after=f'{{"id":{n},"name":"x"}}') for n in range(500, 600)]
    assert [row[0] for row in rows_of(decoder_of(), values)] == list(range(600))


def test_a_column_of_the_table_may_be_named_as_a_column_of_the_envelope() -> None:
    columns = pa.schema(
        [("op", pa.string()), ("source", pa.string()), ("payload", pa.string()), ("operation", pa.string())]
    )
    row = '{"op":"x","source":"y","payload":"z","_op":"w"}'
    decoder = decoder_of(columns, fields={"operation": FieldOf("_op")})
    for wrap in (str, wrapped):
        assert rows_of(decoder, [wrap(change("c", after=row))])[0][:5] == ["x", "y", "z", "w", "create"]


def test_a_framed_envelope_names_its_schema_in_reasons_but_not_where_it_is_excluded() -> None:
    framing, head = Framing(frozenset([3])), b"\0\0\0\0\3"
    values = [head + change("c", after=ROW).encode(), head + ROW.encode(), head + change("t").encode(), None, b"{}"]
    found = rows_of(decoder_of(framing=framing), values)
    assert found[0][:3] == [7, "Anne", "create"]
    assert found[1:4] == [f"schema id 3: {NO_OP}", ExcludedKind.TRUNCATIONS, ExcludedKind.DELETION_TOMBSTONES]
    assert found[4].startswith("2 bytes, and no schema id")


def test_an_executor_gives_the_reason_and_the_kind_in_columns_of_their_own() -> None:
    values = [change("c", after=ROW), None, change("t"), ROW]
    batch = pa.RecordBatch.from_pydict({"value": pa.array([v and v.encode() for v in values], pa.binary())})
    names = ["id", "name", "_op", "_source", "_tombstone", "_malformed", "_excluded"]
    (found,) = decode_first(decoder_of, names, keep=False)([batch])
    assert found.select(["id", "_op", "_tombstone", "_malformed", "_excluded"]).to_pylist() == [
        {"id": 7, "_op": "create", "_tombstone": False, "_malformed": None, "_excluded": None},
        {"id": None, "_op": None, "_tombstone": True, "_malformed": None, "_excluded": "deletion_tombstones"},
        {"id": None, "_op": None, "_tombstone": False, "_malformed": None, "_excluded": "truncations"},
        {"id": None, "_op": None, "_tombstone": False, "_malformed": NO_OP, "_excluded": None},
    ]


def pipeline_of(tmp_path: Path, **source: Any) -> Pipeline:
    folder = tmp_path / "orders"
    folder.mkdir(exist_ok=True)
    settings = {
        "source": {"topic": "in", "schema": {"id": "bigint"}, **source},
        "output": {"topic": "out", "partitions": 1},
        "schedule": {"start": "2026-01-01"},
        "kafka": {"bootstrap.servers": "x:1"},
    }
    (folder / "pipeline.yaml").write_text(yaml.safe_dump(settings))
    (folder / "transform.sql").write_text("SELECT id FROM source")
    (folder / "expectations.yaml").write_text("expectations: []")
    return load_pipeline(folder)


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ({"envelope": "canal"}, "Input should be 'debezium'"),
        ({"table": "public.orders"}, "table needs envelope: debezium"),
        ({"truncations": "drop"}, "truncations needs envelope: debezium"),
        ({"envelope": "debezium", "truncations": "pass"}, "Input should be 'fail' or 'drop'"),
        ({"envelope": "debezium", "table": "orders"}, "give the table as schema.table, or as database.table"),
        ({"envelope": "debezium", "table": ".orders"}, "give the table as schema.table"),
        ({"envelope": "debezium", "format": "bytes", "schema": {}}, "envelope needs format: json, json_schema or avro"),
        (
            {"envelope": "debezium", "only": {"field": "t", "values": ["a"]}},
            "only: with envelope, table takes the changes",
        ),
    ],
)
def test_the_settings_of_an_envelope_that_cannot_be_are_refused(tmp_path: Path, source: Any, what: str) -> None:
    with pytest.raises(SettingsError, match=what.replace(".", r"\.")):
        pipeline_of(tmp_path, **source)


def test_the_settings_say_what_is_read_and_which_records_may_be_excluded(tmp_path: Path) -> None:
    kinds = (ExcludedKind.TRUNCATIONS, ExcludedKind.MESSAGES, ExcludedKind.DELETION_TOMBSTONES)
    plain = pipeline_of(tmp_path, envelope="debezium", tombstones="pass").source
    assert plain.declared.envelope == Envelope()
    assert plain.excludes == kinds
    assert not plain.passes_tombstones
    key = {"key_format": "json", "key": {"id": "bigint", "other": {"field": "of", "type": "string"}}}
    one = pipeline_of(tmp_path, envelope="debezium", table="public.orders", **key).source
    assert one.declared.envelope == Envelope("public.orders", frozenset(["id", "of"]))
    assert one.excludes == (ExcludedKind.OTHER_TABLES, *kinds)
    without = pipeline_of(tmp_path, tombstones="pass").source
    assert (without.declared.envelope, without.excludes, without.passes_tombstones) == (None, (), True)


def test_drift_is_that_of_the_rows(tmp_path: Path) -> None:
    """A deletion's row may lack fields, so it says nothing about them."""
    columns = {"id": "bigint not null", "name": "string", "gone": "int", "x": {"type": "int", "field": "x"}}
    pipeline = pipeline_of(tmp_path, envelope="debezium", schema=columns)
    values = [
        wrapped(change("c", after='{"id":1,"name":{"a":[1]},"more":1.5,"x":1}')),
        change("u", before=ROW, after='{"id":1,"name":"x","x":1}'),
        change("d", before='{"id":null,"name":null}'),
        change("d"),
        change("t"),
        change("u", after='{"id":1,"x":"no number"}'),
        ROW,
        "{",
        None,
    ]
    drift = drift_of(pipeline, pipeline.sources["source"], [value and value.encode() for value in values])
    assert (drift.records, drift.excluded, drift.malformed) == (7, 1, 4)
    assert drift.undeclared == (FieldDrift("more", 1, "double"),)
    assert drift.absent == ("gone",)
    assert [(one.name, one.records, one.what[:12]) for one in drift.misfits] == [
        ("(the whole record)", 1, NO_BEFORE[:12]),
        ("(the whole record)", 1, NO_OP[:12]),
        ("(the whole record)", 1, "not JSON: EO"),
        ("x", 1, "not an integ"),
    ]
