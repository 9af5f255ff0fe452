"""What the connector writes, value by value: what the rest of these tests, and the documents, take for granted.

The values are literal. A new version of the connector that writes others is seen here first.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fencepost_stack.broker import Broker
from fencepost_stack.schema_registry import SchemaRegistry
from kafka_tools import read_all
from registry_tools import client
from rigs.postgres_server import PostgresServer

from .database import FULL, KEYED, TABLES, Database
from .encodings import (
    AVRO_PRECISIONS,
    AVRO_TYPES,
    MADE_UP,
    PARAMETERS,
    PLACEHOLDERS,
    SCHEMA,
    SPECIALS,
    VALUES,
)
from .every_type import COLUMNS
from .scene import AVRO, KINDS, PLAIN, SCHEMAS, Scene, scene_of

pytestmark = pytest.mark.deep

SNAPSHOT, STREAM = 100, 200  # the first ids of rows with SPECIALS: there when the connector came, and later
LONG = 3000  # characters or bytes that a row's page does not keep


def insert(table: str, number: int, **values: str) -> str:
    """A statement: a row with these values, and those of VALUES where a column is required."""
    row = {"id": str(number), **{c.name: VALUES[c.name][0] for c in COLUMNS if c.required}, **values}
    return f"insert into {table} ({', '.join(row)}) values ({', '.join(row.values())})"


def all_values(table: str, number: int) -> str:
    return insert(table, number, **{name: value for name, (value, _) in VALUES.items()})


@pytest.fixture(scope="module")
def scene(
    postgres: PostgresServer,
    broker: Broker,
    schema_registry: SchemaRegistry,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Scene]:
    """Connectors that have read rows in their snapshot and changes after it."""
    database = Database.make(postgres)
    long = {
        "big_text": f"repeat('x', {LONG})",
        "big_raw": rf"decode(repeat('ab', {LONG}), 'hex')",
        "big_names": f"ARRAY[repeat('y', {LONG})]",
        "big_ids": "array_fill('00112233-4455-6677-8899-aabbccddeeff'::uuid, ARRAY[200])",
        "big_doc": f"jsonb_build_object('long', repeat('z', {LONG}))",
        "big_counts": f"array_fill(5, ARRAY[{LONG // 4 + 200}])",
    }
    for table in (KEYED, FULL):
        specials = enumerate(SPECIALS, SNAPSHOT)
        database.run(
            all_values(table, 1),
            *(insert(table, number, **{name: value}) for number, (name, value, *_) in specials),
        )
    with scene_of(tmp_path_factory.mktemp("connect"), broker, schema_registry, database, "seen") as made:
        for table in (KEYED, FULL):
            specials = enumerate(SPECIALS, STREAM)
            database.run(
                all_values(table, 2),
                *(insert(table, number, **{name: value}) for number, (name, value, *_) in specials),
                all_values(table, 3),
                f"update {table} set whole = 1 where id = 3",
                f"delete from {table} where id = 3",
                all_values(table, 4),
                f"update {table} set id = 5 where id = 4",
                insert(table, 6, **long),
                f"update {table} set whole = 1 where id = 6",
                f"update {table} set id = 7 where id = 6",
                f"delete from {table} where id = 7",
            )
        database.run("select pg_logical_emit_message(true, 'about', 'content')", f"truncate {KEYED}, {FULL}")
        made.await_mark(1)
        yield made


def events(scene: Scene, kind: str, table: str) -> list[tuple[int, dict[str, Any] | None]]:
    """The key's id and the envelope of each record of a table, in the topic's order; None is a tombstone.

    A tombstone does not say its table: it is that of the deletion before it.
    """
    found = []
    of_table = False
    for record in scene.follow(kind, table):
        event = scene.event(kind, record)
        of_table = of_table if event is None else event["source"]["table"] == table
        if of_table and record.key is not None:
            found.append((scene.key(kind, record)["id"], event))
    return found


def changes_of(scene: Scene, kind: str, table: str, number: int) -> list[dict[str, Any]]:
    return [event for at, event in events(scene, kind, table) if at == number and event is not None]


def rows(scene: Scene, kind: str, table: str) -> dict[int, dict[str, Any]]:
    """The first state of each row, by id."""
    found: dict[int, dict[str, Any]] = {}
    for number, event in events(scene, kind, table):
        if event is not None and event["after"]:
            found.setdefault(number, event["after"])
    return found


def in_json(value: Any, column: str) -> Any:
    """A value of Avro as JSON has it."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float):
        if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return float(str(np.float32(value))) if column == "tiny" else value
    if isinstance(value, dict):
        return {name: in_json(one, "") for name, one in value.items()}
    return value


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("kind", KINDS)
def test_each_type_is_written_like_this_of_an_old_row_and_of_a_new_one(scene: Scene, kind: str, table: str) -> None:
    found = rows(scene, kind, table)
    for number in (1, 2):
        values = {name: in_json(value, name) if kind == AVRO else value for name, value in found[number].items()}
        assert values == {"id": number, **{name: value for name, (_, value) in VALUES.items()}}
    ops = [changes_of(scene, kind, table, number)[0]["op"] for number in (1, 2)]
    assert ops == ["r", "c"]


@pytest.mark.parametrize("kind", KINDS)
def test_special_values_are_written_like_this_and_some_differ_in_the_snapshot(scene: Scene, kind: str) -> None:
    """The snapshot reads days before the Gregorian calendar by the Julian one, and loses the era of a date."""
    found = rows(scene, kind, KEYED)
    written = [
        (column, value, *(found[first + at][column] for first in (SNAPSHOT, STREAM)))
        for at, (column, value, *_) in enumerate(SPECIALS)
    ]
    if kind == AVRO:
        written = [(column, value, *(in_json(one, column) for one in both)) for column, value, *both in written]
    assert [repr(one) for one in written] == [repr(one) for one in SPECIALS]


def test_the_schema_beside_a_value_names_each_type(scene: Scene) -> None:
    schema = json.loads(scene.follow(SCHEMAS, KEYED)[0].value or b"")["schema"]
    (after,) = (one for one in schema["fields"] if one["field"] == "after")
    columns = {one["field"]: one for one in after["fields"]}
    assert {name: (one["type"], one.get("name")) for name, one in columns.items()} == SCHEMA
    assert {name: columns[name]["parameters"] for name in PARAMETERS} == PARAMETERS
    required = {"id", *(column.name for column in COLUMNS if column.required)}
    assert {name for name, one in columns.items() if not one["optional"]} == required


def test_the_schema_in_the_registry_keeps_connects_names(scene: Scene) -> None:
    registered = client(scene.registry).get_latest_version(f"{scene.topic(AVRO, KEYED)}-value")
    schema = json.loads(registered.schema.schema_str or "")
    (before,) = (one["type"][1] for one in schema["fields"] if one["name"] == "before")
    columns = {
        one["name"]: one["type"][1] if isinstance(one["type"], list) else one["type"] for one in before["fields"]
    }
    whole = {name: one if isinstance(one, dict) else {"type": one} for name, one in columns.items()}
    found = {name: (one["type"], one.get("connect.name")) for name, one in whole.items()}
    assert found == {name: (AVRO_TYPES.get(type_, type_), said) for name, (type_, said) in SCHEMA.items()}
    decimals = {name: (columns[name]["precision"], columns[name]["scale"]) for name in AVRO_PRECISIONS}
    assert decimals == AVRO_PRECISIONS
    assert {columns[name]["logicalType"] for name in AVRO_PRECISIONS} == {"decimal"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_deletion_tells_the_key_and_makes_up_what_may_not_be_null(scene: Scene, kind: str) -> None:
    """Unless the whole old row is in the log. In either case a tombstone follows."""
    for table in TABLES:
        told = [event for number, event in events(scene, kind, table) if number == 3]
        assert [event and event["op"] for event in told] == ["c", "u", "d", None]
        _, update, deletion, _ = told
        assert update is not None
        assert deletion is not None
        assert deletion["after"] is None
        if table == FULL:
            assert update["before"] == {**update["after"], "whole": VALUES["whole"][1]}
            assert deletion["before"] == update["after"]
        else:
            assert update["before"] is None
            before = {name: in_json(value, name) for name, value in deletion["before"].items() if value is not None}
            assert before == {"id": 3, **MADE_UP}


@pytest.mark.parametrize("kind", KINDS)
def test_a_changed_key_is_a_deletion_and_a_creation_at_one_place_of_the_log(scene: Scene, kind: str) -> None:
    for table in TABLES:
        told = [(number, event) for number, event in events(scene, kind, table) if number in (4, 5)]
        assert [(number, event and event["op"]) for number, event in told] == [(4, "c"), (4, "d"), (4, None), (5, "c")]
        deletion, creation = told[1][1], told[3][1]
        assert deletion is not None
        assert creation is not None
        assert deletion["source"]["lsn"] == creation["source"]["lsn"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_an_update_leaves_alone_beside_the_row_is_a_placeholder(scene: Scene, kind: str) -> None:
    """In an update and in the creation of a changed key, unless the whole old row is in the log."""
    for table in TABLES:
        first, update, *_ = changes_of(scene, kind, table, 6)
        created, *_ = changes_of(scene, kind, table, 7)
        for event in (update, created):
            found = {name: in_json(event["after"][name], name) for name in PLACEHOLDERS}
            whole = {name: in_json(first["after"][name], name) for name in PLACEHOLDERS}
            assert found == (whole if table == FULL else PLACEHOLDERS)


def test_a_truncation_has_no_key_and_is_told_only_if_asked_for(scene: Scene) -> None:
    told = [(record.key, scene.event(PLAIN, record)) for record in scene.follow(PLAIN, KEYED)]
    truncations = [(key, event) for key, event in told if event is not None and event["op"] == "t"]
    assert [(key, event["source"]["table"]) for key, event in truncations] == [(None, KEYED), (None, FULL)]
    assert all(event["before"] is event["after"] is None for _, event in truncations)
    for kind in (SCHEMAS, AVRO):
        found = [scene.event(kind, record) for table in TABLES for record in scene.follow(kind, table)]
        assert {event["op"] for event in found if event is not None} == {"r", "c", "u", "d"}


def test_a_message_goes_to_a_topic_of_its_own(scene: Scene) -> None:
    (record,) = read_all(scene.broker.bootstrap, f"{scene.prefix}_{PLAIN}.message")
    event = json.loads(record.value or b"")
    assert (event["op"], event["message"]) == ("m", {"prefix": "about", "content": "Y29udGVudA=="})
    assert "before" not in event
    assert "after" not in event
