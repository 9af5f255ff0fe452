"""A topic of changes is recognised, and drafted by the schema in its records, or by their values without a guess."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fencepost.config.loading import load_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.config.side_tables import KINDS
from fencepost.config.source import Source
from fencepost.drafting.columns import Fields
from fencepost.drafting.connect_properties import encoded_properties, row_properties
from fencepost.drafting.connection import connection_of
from fencepost.drafting.debezium import changes_in
from fencepost.drafting.draft_request import DraftRequest
from fencepost.drafting.draft_source import DraftSource
from fencepost.drafting.settings import settings_yaml
from fencepost.drafting.source import source_of
from fencepost.drafting.times import ChosenInterval
from fencepost.drafting.transform import transform_sql
from fencepost.drafting.writing import suite_yaml
from fencepost.errors import SettingsError
from fencepost.kafka.cluster import Topic
from fencepost.kafka.sample import Sample
from fencepost.model import Interval
from fencepost.output_kinds import OUTPUT_KINDS

ROOT = Path(__file__).parents[3]
CONNECT, TIME = "org.apache.kafka.connect.data", "io.debezium.time"
PLACEHOLDER = "__debezium_unavailable_value"
Row = dict[str, Any] | None


def change(op: str, before: Row, after: Row, table: str = "orders", schema: Any = None) -> bytes:
    """A change as Debezium's connector for PostgreSQL writes it; with the schema if there is one."""
    source = {"connector": "postgresql", "ts_ms": 1_767_225_600_000, "lsn": 5, "schema": "public", "table": table}
    payload = {"before": before, "after": after, "source": source | {"db": "shop", "snapshot": "false"}, "op": op}
    return json.dumps(payload if schema is None else {"schema": schema, "payload": payload}).encode()


def struct(*fields: tuple[str, str, str | None, dict[str, str] | None]) -> dict[str, Any]:
    """The schema of a row: a name, Connect's type, the schema's name and its parameters for each field."""
    found = [
        {"field": field, "type": kind, "optional": True}
        | ({} if name is None else {"name": name})
        | ({} if parameters is None else {"parameters": parameters})
        for field, kind, name, parameters in fields
    ]
    return {"type": "struct", "fields": found}


def envelope(row: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": [row | {"field": "before"}, row | {"field": "after"}]}


@pytest.fixture
def draft(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Draft values and keys; return what `source_of` finds."""
    folder = tmp_path_factory.mktemp("p") / "p"
    folder.mkdir()
    (folder / "pipeline.yaml").write_text(
        "source: {topic: t, format: bytes}\noutput: {topic: o}\nschedule: {start: 2026-01-01}\n"
        "kafka: {bootstrap.servers: b:9092}\n"
    )
    (folder / "transform.sql").write_text("SELECT value FROM source")
    (folder / "expectations.yaml").write_text("")
    pipeline, connection = load_pipeline(folder), connection_of(None, ["bootstrap.servers=b:9092"], ())

    def found(values: list[bytes | None], keys: list[bytes | None] | None = None) -> tuple[Source, Fields]:
        return source_of(pipeline, DraftRequest("p", "t"), connection, values, keys or [None] * len(values))

    return found


def declared(fields: Fields) -> dict[str, dict[str, Any]]:
    """What the draft declares of each column."""
    return {
        one.name: one.declared.model_dump(by_alias=True, exclude_defaults=True)
        for one in fields.columns
        if one.declared is not None
    }


KEY = b'{"id": 1}'


def test_types_and_encodings_come_from_the_schema_in_the_records(draft: Any) -> None:
    """Also of a column that no sampled row has, and of the key."""
    row = struct(
        ("id", "int64", None, None),
        ("amount", "bytes", f"{CONNECT}.Decimal", {"scale": "2", "connect.decimal.precision": "12"}),
        ("valid_to", "int64", f"{TIME}.MicroTimestamp", None),
        ("born", "int32", f"{TIME}.Date", None),
        ("seen", "string", f"{TIME}.ZonedTimestamp", None),
        ("_id", "string", None, None),
        ("never", "int64", f"{TIME}.NanoTimestamp", None),
    )
    after = {"id": 1, "amount": "BNI=", "valid_to": 1_767_225_600_000_000, "born": 20454, "seen": None, "_id": "x"}
    key_schema = struct(("id", "int64", None, None))
    key = json.dumps({"schema": key_schema, "payload": {"id": 1}}).encode()
    source, fields = draft([change("c", None, after, schema=envelope(row))] * 3, [key] * 3)
    assert (source.format, source.envelope, source.captured_table) == ("json", "debezium", None)
    assert declared(fields) == {
        "id": {"type": "bigint not null"},
        "amount": {"type": "decimal(12,2)", "from": "base64"},
        "valid_to": {"type": "timestamp_ntz", "from": "epoch_micros"},
        "born": {"type": "date", "from": "epoch_days"},
        "seen": {"type": "timestamp"},
        "id_2": {"type": "string", "field": "_id"},
        "never": {"type": "timestamp_ntz", "from": "epoch_nanos"},
    }
    assert (source.key_format, list(source.key), source.key["id"].type) == ("json", ["id"], "bigint not null")
    assert fields.bad == 0
    assert fields.notes == ()


def test_digits_below_the_microsecond_are_cut_off_where_the_sample_has_them(draft: Any) -> None:
    """Otherwise the draft would set aside what `datetime2(7)` of SQL Server has."""
    row = struct(
        ("id", "int64", None, None),
        ("fine", "int64", f"{TIME}.NanoTimestamp", None),
        ("coarse", "int64", f"{TIME}.NanoTimestamp", None),
        ("zoned", "string", f"{TIME}.ZonedTimestamp", None),
    )
    after = {"id": 1, "fine": -100, "coarse": 1000, "zoned": "2026-01-01T00:00:00.1234567+11:00"}
    _, fields = draft([change("c", None, after, schema=envelope(row))])
    assert {name: one.get("digits") for name, one in declared(fields).items()} == {
        "id": None, "fine": "truncate", "coarse": None, "zoned": "truncate"
    }  # fmt: skip
    assert fields.bad == 0


def test_without_a_schema_no_scale_and_no_unit_is_guessed_and_a_person_is_told(draft: Any) -> None:
    rows = [
        {"id": n, "amount": "BNI=", "valid_to": 1_767_225_600_000_000 + n, "birth_date": 20454, "word": "paid"}
        for n in range(3)
    ]
    rows[1]["valid_to"] = 9_223_372_036_825_200_000  # an infinity
    source, fields = draft([change("c", None, row) for row in rows], [KEY] * 3)
    assert declared(fields) == {
        "id": {"type": "bigint not null"}, "amount": {"type": "string"}, "valid_to": {"type": "bigint"},
        "birth_date": {"type": "bigint"}, "word": {"type": "string"},
    }  # fmt: skip
    assert {one.name: one.note.partition("?")[0] for one in fields.columns if "?" in one.note} == {
        "amount": "a decimal in Base64", "valid_to": "microseconds since 1970", "birth_date": "days since 1970"
    }  # fmt: skip
    assert all(not one.time for one in fields.columns)
    (note,) = fields.notes
    assert note.startswith(
        "The records bring no schema, so some columns may be times or decimals: amount, birth_date, va"
    )
    assert source.key["id"].type == "bigint not null"


def test_columns_are_those_of_rows_and_tombstones_truncations_and_messages_are_not_counted(draft: Any) -> None:
    values = [
        change("r", None, {"id": 1, "state": "new"}),
        change("u", {"id": 1}, {"id": 1, "state": "paid", "_more": 1}),
        change("d", {"id": 1, "state": None, "old": True}, None),
        None,
        change("t", None, None),
        change("m", None, None),
    ]
    source, fields = draft(values, [KEY] * 4 + [None] * 2)
    assert declared(fields) == {
        "id": {"type": "bigint not null"}, "state": {"type": "string"}, "more": {"type": "bigint", "field": "_more"},
        "old": {"type": "boolean"},
    }  # fmt: skip
    assert (fields.records, fields.good, fields.excluded, fields.tombstones, fields.bad) == (6, 3, 3, 0, 0)
    assert source.tombstones == "fail"


def test_of_several_tables_the_most_frequent_is_read_and_all_are_named(draft: Any) -> None:
    """So is the key: that of a message is another one too."""
    values = [change("c", None, {"id": n}) for n in range(3)] + [change("c", None, {"sku": "x"}, "lines")]
    source, fields = draft(values, [KEY] * 3 + [b'{"sku": "x"}'])
    with_message, _ = draft([*values[:3], change("m", None, None)], [KEY] * 3 + [b'{"prefix": "p"}'])
    assert (source.captured_table, list(source.key), list(with_message.key)) == ("public.orders", ["id"], ["id"])
    assert list(declared(fields)) == ["id"]
    assert (fields.good, fields.excluded) == (3, 1)
    assert "public.orders (3), public.lines (1)" in fields.notes[0]


def test_a_placeholder_says_nothing_about_a_type_and_a_person_is_told_the_cure(draft: Any) -> None:
    values = [
        change("c", None, {"id": 1, "tags": ["a"], "n": 5}),
        change("u", None, {"id": 1, "tags": [PLACEHOLDER], "n": PLACEHOLDER}),
    ]
    _, fields = draft(values, [KEY, KEY])
    assert declared(fields) == {
        "id": {"type": "bigint not null"}, "tags": {"type": "array<string>"}, "n": {"type": "bigint"}
    }  # fmt: skip
    assert fields.bad == 1
    assert "REPLICA IDENTITY FULL" in next(note for note in fields.notes if "placeholder" in note and "n, tags" in note)


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ([None], {}),
        ([b"\0\0\0\0\1\2"], {}),
        ([b"1"], {}),
        ([b'{"id": 1}', b"x"], {}),
        ([b'{"id": 1, "user-id": "x"}'], {"id": "bigint not null", "user_id": "string not null"}),
    ],
)
def test_only_a_key_that_is_a_json_object_is_drafted(keys: list[bytes | None], key: dict[str, str], draft: Any) -> None:
    source, fields = draft([change("c", None, {"id": 1, "n": 2})] * len(keys), keys)
    assert {name: one.type for name, one in source.key.items()} == key
    assert source.key_format == ("json" if key else "bytes")
    assert declared(fields)["id"]["type"] == ("bigint not null" if key else "bigint")
    assert any("no primary key" in note for note in fields.notes) is (keys == [None])


OTHERS = {
    "a flattened topic": {"id": 1, "__deleted": "false", "__op": "u"},
    "a field called op": {"op": "c", "id": 1},
    "a change without a row": {"op": "c", "source": {"db": "x"}},
    "MongoDB's documents": {"op": "c", "source": {"connector": "mongodb"}, "after": '{"_id": 1}', "before": None},
}


@pytest.mark.parametrize("what", OTHERS)
def test_other_records_are_not_taken_for_changes(what: str, draft: Any) -> None:
    values = [json.dumps(OTHERS[what]).encode()]
    assert changes_in(values) is None
    source, fields = draft(values)
    assert source.envelope is None
    assert fields.bad == 0
    assert bool(fields.notes) is (what == "MongoDB's documents")
    if what == "a flattened topic":
        assert declared(fields)["deleted"] == {"type": "boolean", "field": "__deleted", "from": "text"}
        assert declared(fields)["op"] == {"type": "string", "field": "__op"}
        assert [column.values for column in fields.columns if column.name == "deleted"] == [[False]]


def test_most_records_decide_what_a_topic_is() -> None:
    one, other = change("c", None, {"id": 1}), b'{"a": 1}'
    assert changes_in([one, other]) is None
    assert changes_in([one, one, other, None, b"{"]) is not None


def test_a_topic_without_a_row_is_refused(draft: Any) -> None:
    with pytest.raises(SettingsError, match="no sampled change has a row with a field"):
        draft([change("c", None, None)])


def drafted(tmp_path: Any, source: Source, fields: Fields) -> Pipeline:
    """The pipeline of the three files of a draft."""
    folder = tmp_path / "drafted"
    folder.mkdir()
    interval = Interval.model_validate({"start": "2026-01-01T00:00:00Z", "end": "2026-01-02T00:00:00Z"})
    chosen = ChosenInterval(interval, True, 1, 0, interval.start)
    sample = Sample(Topic("t", "1", 2), (), (0, 0), (9, 9))
    sources = [DraftSource("source", sample, source, fields)]
    text = settings_yaml(
        DraftRequest("drafted", "t"), connection_of(None, ["bootstrap.servers=b:1"], ()), sources, chosen
    )
    (folder / "pipeline.yaml").write_text(text)
    (folder / "transform.sql").write_text(transform_sql(fields, source))
    (folder / "expectations.yaml").write_text(suite_yaml([], 1) + "  []\n")
    return load_pipeline(folder)


def test_the_files_say_the_same(draft: Any, tmp_path: Any) -> None:
    """Also where the row has columns of the names that the envelope's columns get."""
    row = struct(
        ("id", "int64", None, None),
        ("op", "int64", f"{TIME}.Timestamp", None),
        ("@at", "bytes", f"{CONNECT}.Decimal", {"scale": "2"}),
        ("a: b", "struct", None, None),
    )
    row["fields"][3]["fields"] = [{"field": "c d", "type": "int32"}]
    values = [
        change("c", None, {"id": 1, "op": 5, "@at": "BNI=", "a: b": {"c d": 1}}, name, envelope(row))
        for name in ("x", "x", "y")
    ]
    source, fields = draft(values, [KEY] * 3)
    pipeline = drafted(tmp_path, source, fields)
    assert pipeline.source == source
    sql = (tmp_path / "drafted" / "transform.sql").read_text()
    assert "_op AS op_2" in sql
    assert "_source.lsn AS lsn" in sql


def test_a_draft_names_each_kind_of_table_with_its_page(draft: Any, tmp_path: Any) -> None:
    drafted(tmp_path, *draft([change("c", None, {"id": 1})]))
    text = (tmp_path / "drafted" / "pipeline.yaml").read_text()
    (line,) = (line for line in text.splitlines() if line.startswith("output:"))
    pages = dict(re.findall(r"kind: (\w+) \((docs/\w+\.md)\)", line))
    assert pages.keys() == OUTPUT_KINDS.keys() - {"topic"}
    for kind, page in pages.items():
        assert f"kind: {kind}" in (ROOT / page).read_text()


def test_a_draft_names_each_kind_of_side_table(draft: Any, tmp_path: Any) -> None:
    drafted(tmp_path, *draft([change("c", None, {"id": 1})]))
    text = (tmp_path / "drafted" / "pipeline.yaml").read_text()
    (line,) = (line for line in text.splitlines() if line.startswith("# tables:"))
    assert {kind for kind in KINDS if f"a {kind}" in line} == KINDS.keys()
    assert "docs/side-tables.md" in line


def test_properties_say_what_connect_s_converter_means_by_them() -> None:
    """A schema as Confluent's JSON Schema converter registers it: nullable columns are one of null and a type."""
    decimal = {"title": f"{CONNECT}.Decimal", "connect.type": "bytes", "connect.parameters": {"scale": "2"}}
    row = {
        "type": "object",
        "properties": {
            "id": {"type": "integer", "connect.type": "int64"},
            "at": {"type": "integer", "title": f"{TIME}.MicroTimestamp", "connect.type": "int64"},
            "amount": {"oneOf": [{"type": "null"}, decimal | {"type": "string"}]},
            "exact": decimal | {"type": "number"},
            "note": {"type": "string", "title": "io.debezium.data.Json", "connect.type": "string"},
        },
    }
    schema = {
        "properties": {"after": {"oneOf": [{"type": "null"}, {"$ref": "#/definitions/row"}]}, "op": {"type": "string"}},
        "definitions": {"row": row},
    }
    properties = row_properties(schema, envelope=True)
    assert list(properties) == ["id", "at", "amount", "exact", "note"]
    found = {name: (one.sql, one.encoding) for name, one in encoded_properties(schema, properties).items()}
    assert found == {
        "at": ("timestamp_ntz", "epoch_micros"), "amount": ("decimal(38,2)", "base64"), "exact": ("decimal(38,2)", None)
    }  # fmt: skip
    assert row_properties({"properties": {"after": {"$ref": "#/nowhere"}}}, envelope=True) == {}
