"""Recognises topics of Debezium's envelopes in JSON, and finds what their records say about a table's columns and key."""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fencepost.config.source import Source, SourceColumn
from fencepost.config.sql_types import without_not_null
from fencepost.drafting.columns import DraftColumn, Fields, KnownField, inferred_fields, object_in, unit_among
from fencepost.drafting.names import column_names, why_not_read
from fencepost.drafting.types import infer
from fencepost.formats.connect_json import Declaration, declaration_of, fields_of, row_fields
from fencepost.formats.declared import Envelope
from fencepost.formats.envelope import change_of, is_unavailable
from fencepost.formats.framing import Excluded, Malformed
from fencepost.formats.json_columns import BELOW_MICROSECOND
from fencepost.formats.json_envelope import enveloped_in

FROM = {
    "seconds": "epoch_seconds",
    "milliseconds": "epoch_millis",
    "microseconds": "epoch_micros",
    "nanoseconds": "epoch_nanos",
}
OF_DAYS = frozenset(("date", "day", "birthday"))  # words of a name
LISTED = 5  # fields that a sentence names
LONGEST_DECIMAL = 16  # bytes of a decimal of 38 digits


@dataclass(frozen=True)
class Changes:
    """The changes in a sample. `rows` has the row of each record of the table, or None. `known` has the fields that the
    schema in the records declares; it is empty if the records bring no schema.

    `tables` has the number of changes of each table, the most frequent one first. `unavailable` are the fields that are
    the connector's placeholder in some record.
    """

    rows: Sequence[Mapping[str, Any] | None]
    tables: Mapping[str, int]
    known: Mapping[str, KnownField]
    unavailable: frozenset[str] = frozenset()

    @property
    def chosen(self) -> str | None:
        """Returns the most frequent table if there are several."""
        return chosen_of(self.tables)


def is_mongodb(record: dict[str, Any]) -> bool:
    """Returns whether a record is a change of MongoDB, whose document is a text."""
    change, _ = payload_of(record)
    source = change.get("source")
    return isinstance(source, dict) and source.get("connector") == "mongodb" and "op" in change


def payload_of(record: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """Returns what a record of Kafka Connect's JSON converter says, and its schema, or None."""
    payload = enveloped_in(record)
    return payload, None if payload is record else record.get("schema")


def is_envelope(record: dict[str, Any]) -> bool:
    """Returns whether a record is a change of a row in Debezium's form. MongoDB's changes have no row."""
    change, _ = payload_of(record)
    sides = [change[side] for side in ("after", "before") if side in change]
    rows = all(side is None or isinstance(side, dict) for side in sides)
    return isinstance(change.get("op"), str) and isinstance(change.get("source"), dict) and bool(sides) and rows


def changes_in(values: Sequence[bytes | None]) -> Changes | None:
    """Returns the changes in these values, or None if most objects are no changes."""
    objects = [object_in(value) for value in values]
    envelopes = sum(one is not None and is_envelope(one) for one in objects)
    if 2 * envelopes <= sum(one is not None for one in objects):
        return None
    found = [None if one is None else _row(one) for one in objects]
    tables = Counter(table for one in found if one is not None and (table := one[0]) is not None)
    ordered = dict(tables.most_common())
    chosen = chosen_of(ordered)
    rows = [None if one is None or chosen not in (None, one[0]) else one for one in found]
    known, missing = dict[str, KnownField](), set[str]()
    for one in rows:
        if one is None:
            continue
        known |= _known(row_fields(one[2]))
        missing.update(name for name, value in one[1].items() if is_unavailable(value))
    sound = [None if one is None or any(map(is_unavailable, one[1].values())) else one[1] for one in rows]
    known = {name: _truncated(one, [row.get(name) for row in sound if row is not None]) for name, one in known.items()}
    return Changes(sound, ordered, known, frozenset(missing))


def _truncated(known: KnownField, values: Sequence[Any]) -> KnownField:
    """Returns a column whose digits below the microsecond are cut off, if any of its values has such digits."""
    declared = known.declared
    nanos = declared.encoding == "epoch_nanos" and any(isinstance(value, int) and value % 1000 for value in values)
    texts = declared.type == "timestamp" and declared.encoding is None
    if not nanos and not (texts and any(isinstance(one, str) and BELOW_MICROSECOND.search(one) for one in values)):
        return known
    note = "the values have digits below the microsecond, which are cut off"
    return KnownField(declared.model_copy(update={"digits": "truncate"}), note)


def _row(record: dict[str, Any]) -> tuple[str | None, Mapping[str, Any], Any] | None:
    """Returns the table, the row and the schema of a change, or None if it has no row."""
    payload, schema = payload_of(record)
    try:
        change = change_of(payload, Envelope())
    except (Malformed, Excluded):
        return None
    row = payload.get(change.side)
    if not isinstance(row, dict):
        return None
    return None if change.source is None else change.source[4], row, schema


def row_in(record: dict[str, Any], source: Source) -> Mapping[str, Any]:
    """Returns the object with a source's columns in a record that the source reads."""
    if source.envelope is None:
        return record
    found = _row(record)
    return {} if found is None else found[1]


def _known(fields: Mapping[str, Mapping[str, Any]]) -> dict[str, KnownField]:
    return {name: known_as(declaration_of(schema)) for name, schema in fields.items()}


def known_as(found: Declaration, field: str | None = None) -> KnownField:
    """Returns a column that a schema declares. `field` is its field's name, or None if it is the column's."""
    settings = {"type": found.sql, "field": field, "from": found.encoding}
    return KnownField(SourceColumn.model_validate(settings), found.note)


def envelope_fields(
    values: Sequence[bytes | None], keys: Sequence[bytes | None], changes: Changes, source: Source
) -> Fields:
    """Returns the columns of the table whose changes the source reads. Where the records bring no schema, a column's note
    says what its values may mean.
    """
    fields = inferred_fields(values, changes.rows, source, changes.known)
    columns = [
        one if one.field in changes.known else replace(one, note=one.note or doubt(one)) for one in fields.columns
    ]
    notes = tuple(_notes(changes, columns, any(key is not None for key in keys)))
    return replace(fields, columns=tuple(columns), notes=notes)


def _notes(changes: Changes, columns: Sequence[DraftColumn], has_keys: bool) -> Iterator[str]:
    yield from of_tables(changes.tables)
    if changes.unavailable:
        yield (
            f"Debezium's placeholder stands for values that the database's log does not have: {_listed(changes.unavailable)}. "
            "Such changes are malformed. Set REPLICA IDENTITY FULL for the table, or remove these columns from "
            "source.schema."
        )
    doubted = [one.field for one in columns if "? Then {" in one.note]
    if doubted:
        yield (
            f"The records bring no schema, so some columns may be times or decimals: {_listed(doubted)}. Comments in "
            "pipeline.yaml say how to declare these. The connector's setting decimal.handling.mode: string makes decimals "
            "readable."
        )
    if not has_keys:
        yield (
            "No sampled record has a key, so the table has no primary key. Its deletes can be read only under REPLICA "
            "IDENTITY FULL."
        )


def chosen_of(tables: Mapping[str, int]) -> str | None:
    """Returns the first of several tables. A topic of one table needs no choice."""
    return next(iter(tables)) if len(tables) > 1 else None


def of_tables(tables: Mapping[str, int]) -> Iterator[str]:
    """Yields a note about a topic of several tables. `tables` has the number of changes of each."""
    if (chosen := chosen_of(tables)) is not None:
        counts = ", ".join(f"{table} ({count:,})" for table, count in tables.items())
        yield (
            f"The topic has the changes of several tables: {counts}. The draft reads {chosen}, which source.table names. The "
            "others are counted and left out."
        )


def _listed(names: Iterable[str]) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - LISTED:,} more" if len(ordered) > LISTED else ""
    return f"{', '.join(ordered[:LISTED])}{more}"


def doubt(column: DraftColumn) -> str:
    """Returns what a column's values may mean instead of numbers or texts, and how to declare it then. The text is empty
    if there is nothing to say.
    """
    if column.sql == "bigint":
        if (unit := unit_among(column.values)) not in ("", "seconds"):
            return f"{unit} since 1970? Then {{type: timestamp_ntz, from: {FROM[unit]}}}"
        if OF_DAYS.intersection(column.words):
            return "days since 1970? Then {type: date, from: epoch_days}"
    if column.sql == "string" and _are_base64(column.values):
        return 'a decimal in Base64? Then {type: "decimal(precision,scale)", from: base64}, by the table\'s own scale'
    return ""


def _are_base64(values: Sequence[Any]) -> bool:
    """Returns whether texts may be unscaled decimals. One of them has to end as no word does."""
    texts = [value for value in values if value is not None]
    return any(text.endswith("=") for text in texts) and all(map(_is_base64, texts))


def _is_base64(text: str) -> bool:
    try:
        return 0 < len(base64.b64decode(text, validate=True)) <= LONGEST_DECIMAL
    except (binascii.Error, ValueError):
        return False


def draft_key(keys: Sequence[bytes | None], fields: Fields) -> dict[str, SourceColumn]:
    """Returns the columns of the key, which are not null. The result is empty if the keys are no JSON objects.

    A field that the row has too is declared as in the row.
    """
    objects, known = list[Mapping[str, Any]](), dict[str, KnownField]()
    for key in keys:
        one = object_in(key)
        if one is None:
            if key is not None:
                return {}
            continue
        payload, schema = payload_of(one)
        objects.append(payload)
        known |= _known(fields_of(schema))
    seen = Counter(name for one in objects for name in one)
    of_row = {one.field: one.declared for one in fields.columns if one.declared is not None}
    found = dict[str, SourceColumn]()
    for name, column in column_names(
        {name: count for name, count in seen.items() if why_not_read(name) is None}
    ).items():
        if name in of_row:
            declared = of_row[name]
        elif name in known:
            declared = known[name].declared
        else:
            declared = SourceColumn(type=infer(one.get(name) for one in objects).sql)
        found[column] = required(declared).model_copy(update={"field": None if name == column else name})
    return found


def required(column: SourceColumn) -> SourceColumn:
    """Returns a column, declared `not null`."""
    assert column.type is not None, "JSON has no schema that gives it"
    return column.model_copy(update={"type": f"{without_not_null(column.type)} not null"})


def with_key(fields: Fields, key: Mapping[str, SourceColumn]) -> Fields:
    """Returns the fields with the columns of the key declared `not null`."""
    names = {one.field or name for name, one in key.items()}
    columns = [
        replace(one, declared=required(one.declared)) if one.declared is not None and one.field in names else one
        for one in fields.columns
    ]
    return replace(fields, columns=tuple(columns))
