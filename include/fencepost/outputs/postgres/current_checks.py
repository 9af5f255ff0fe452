"""Checks whether a current table can be kept. Every reason against it comes with the statement that removes the reason.

The checks are made where those of the output table are made (`table_checks.py`): by plan, write, publication, `try` and the
doctor.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pyspark.sql import types as t

from fencepost.outputs.postgres.bookkeeping import Bookkeeping
from fencepost.outputs.postgres.columns import INTERVAL, NESTED
from fencepost.outputs.postgres.conversions import TableColumn, alteration
from fencepost.outputs.postgres.current_sql import CurrentShape, columns_of_both
from fencepost.outputs.postgres.identifiers import quoted
from fencepost.outputs.postgres.settings import CurrentSettings
from fencepost.outputs.postgres.table_checks import (
    ACTIONS,
    BELOW,
    KINDS,
    NAMED,
    hides_rows,
    references,
    refused_statements,
    unsafe_parts,
    why_hidden,
)
from fencepost.outputs.table.values import RESERVED_COLUMNS
from fencepost.postgres.connection import Session

ORDERED = (
    t.ByteType,
    t.ShortType,
    t.IntegerType,
    t.LongType,
    t.DecimalType,
    t.DateType,
    t.TimestampType,
    t.TimestampNTZType,
)
ORDERED_COLUMN = re.compile(r"(smallint|integer|bigint|numeric(\(.*\))?|date|timestamp(\(\d\))? with(out)? time zone)$")
UNEQUAL = (t.FloatType, t.DoubleType, *NESTED)
# The columns of each valid B-tree over all rows, in order, with their direction and place of nulls, and whether each is compared
# as the column is.
INDEXES = """SELECT i.indisunique AND i.indimmediate, i.indnkeyatts::integer,
    (SELECT jsonb_agg(jsonb_build_array(a.attname, o.option, c.opcdefault AND k.kind = coalesce(a.attcollation, 0))
        ORDER BY u.n)::text
    FROM unnest(i.indkey::smallint[]) WITH ORDINALITY AS u (number, n)
    JOIN unnest(i.indoption::smallint[]) WITH ORDINALITY AS o (option, n) USING (n)
    JOIN unnest(i.indcollation::oid[]) WITH ORDINALITY AS k (kind, n) USING (n)
    JOIN unnest(i.indclass::oid[]) WITH ORDINALITY AS p (class, n) USING (n)
    JOIN pg_catalog.pg_opclass AS c ON c.oid = p.class
    LEFT JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = u.number)
FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS x ON x.oid = i.indexrelid
JOIN pg_catalog.pg_am AS m ON m.oid = x.relam
WHERE i.indrelid = $1::bigint::oid AND m.amname = 'btree' AND i.indpred IS NULL AND i.indexprs IS NULL
AND i.indisvalid AND i.indisready AND i.indislive"""
# Unique indexes and exclusion constraints, with the columns of each.
UNIQUE = """SELECT x.relname::text, i.indexprs IS NOT NULL OR i.indpred IS NOT NULL OR NOT i.indisunique, ARRAY(
    SELECT a.attname::text FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = i.indrelid
    AND a.attnum = ANY ((i.indkey::smallint[])[0:i.indnkeyatts - 1]))::text[]
FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS x ON x.oid = i.indexrelid
WHERE i.indrelid = $1::bigint::oid AND (i.indisunique OR i.indisexclusion) ORDER BY 1"""
FOREIGN_KEYS = """SELECT c.conname::text, format('%I.%I', n.nspname, r.relname) FROM pg_catalog.pg_constraint AS c
JOIN pg_catalog.pg_class AS r ON r.oid = c.confrelid JOIN pg_catalog.pg_namespace AS n ON n.oid = r.relnamespace
WHERE c.conrelid = $1::bigint::oid AND c.contype = 'f' ORDER BY 1"""
COLLATIONS = """SELECT a.attname::text, coalesce(l.collname::text, '') FROM pg_catalog.pg_attribute AS a
LEFT JOIN pg_catalog.pg_collation AS l ON l.oid = a.attcollation
WHERE a.attrelid = $1::bigint::oid AND a.attnum > 0 AND NOT a.attisdropped"""


class IndexColumn(NamedTuple):
    """A column of an index. `option` is 0 for ascending with nulls last, and 3 for descending with nulls first. `plain` says
    that it is compared as the table's column is. An expression has no name.
    """

    name: str | None
    option: int
    plain: bool


def why_not_columns(settings: CurrentSettings, schema: t.StructType) -> list[str]:
    """Returns why a transform's result with these columns cannot have this current table. There is no reason if nothing
    is known of the columns.
    """
    found, kinds = list[str](), {field.name: field.dataType for field in schema.fields}
    if not kinds:
        return []
    uses = [("key", settings.key), ("order_by", settings.order_by), ("deleted", (settings.deleted,))]
    for use, names in uses:
        for name in names:
            if name is None or name == INTERVAL:
                continue
            if (kind := kinds.get(name)) is None:
                found.append(f"output.current.{use} names column {name}, which the transform does not give")
            elif use == "key" and isinstance(kind, UNEQUAL):
                found.append(
                    f"key column {name} is of type {kind.simpleString()}, whose values are not safely equal; cast it"
                )
            elif use == "order_by" and not isinstance(kind, ORDERED):
                found.append(
                    f"column {name} of output.current.order_by is of type {kind.simpleString()}; only integers, decimals, dates "
                    "and timestamps order rows safely; cast it"
                )
            elif use == "deleted" and not isinstance(kind, t.BooleanType):
                found.append(
                    f"column {name} of output.current.deleted is of type {kind.simpleString()}, and not boolean"
                )
    return found


def shape_of(history: Bookkeeping, current: Bookkeeping, settings: CurrentSettings) -> CurrentShape:
    """Returns the shape of a current table that exists, with the columns of both tables."""
    oids = history.oid(), current.oid()
    assert oids[0] is not None, "the output table exists"
    assert oids[1] is not None, "the current table exists"
    there = [column.name for column in history.columns(oids[0])]
    own = [column.name for column in current.columns(oids[1]) if not column.computed]
    columns = columns_of_both(there, own, (*settings.key, *settings.order_by))
    return CurrentShape(history.quoted, current.quoted, settings.key, settings.order_by, settings.deleted, columns)


def types_of(current: Bookkeeping, oid: int, names: Sequence[str]) -> dict[str, str]:
    """Returns the exact type and collation of these columns."""
    collations = dict(current.session.run(COLLATIONS, oid))
    return {one.name: f"{one.kind} {collations[one.name]}".strip() for one in current.columns(oid) if one.name in names}


def why_not_history(tx: Session, history: Bookkeeping, oid: int, settings: CurrentSettings) -> list[str]:
    """Returns why the output table with this oid cannot have a current table."""
    if parts := _parts(tx, oid):
        return [f"output table {history.table} has parts ({parts}), and one index cannot order the rows of all of them"]
    kinds = {column.name: column for column in history.columns(oid)}
    found = list[str]()
    for name in settings.order_by:
        if name in kinds and not ORDERED_COLUMN.match(kinds[name].base or kinds[name].kind):
            found.append(f"column {name} of output.current.order_by is {kinds[name].kind} in table {history.table}")
    if found or not {*settings.key, *settings.order_by} <= kinds.keys():
        return found
    if has_index(tx, oid, settings) or not has_rows(tx, history):
        return []
    columns = ", ".join(map(quoted, (*settings.key, *settings.order_by)))
    return [
        f"output table {history.table} has rows and no index on key and order, so each publication would read all of it: "
        f"CREATE INDEX CONCURRENTLY ON {history.quoted} ({columns})"
    ]


def why_not_current(tx: Session, current: Bookkeeping, oid: int, settings: CurrentSettings) -> list[str]:
    """Returns why the table with this oid cannot be the current table."""
    kind, persistence, is_part = tx.run(
        "SELECT relkind::text, relpersistence::text, relispartition FROM pg_catalog.pg_class WHERE oid = $1::bigint::oid",
        oid,
    )[0]
    parts = _parts(tx, oid)
    if kind != "r" or is_part or parts:
        what = (
            "partitioned" if kind == "p" else "a part of another table" if is_part else f"a table with parts ({parts})"
        )
        return [f"it is {KINDS.get(kind, what)}, and only an ordinary table without parts can be a current table"]
    if persistence == "t":
        return ["it is temporary, and ends with its session"]
    if hides_rows(tx, oid):
        return [why_hidden(current.quoted)]
    found = [*unsafe_parts(tx, oid), *_why_not_keyed(tx, current, oid, settings)]
    found += [
        f"its constraint {name} refers to table {to}, so rows of another table would decide whether a key may be there: ALTER "
        f"TABLE {current.quoted} DROP CONSTRAINT {quoted(name)}"
        for name, to in tx.run(FOREIGN_KEYS, oid)
    ]
    found += [
        f"rows of table {one.table} refer to its rows with ON DELETE {ACTIONS[one.action]} (constraint {one.name}), so a key "
        f"that is deleted would change them for good: {one.cure}"
        for one in references(tx, oid)
        if one.acts
    ]
    return found or refused_statements(tx, [("DELETE", current.quoted, oid), ("UPDATE", current.quoted, oid)])


def why_not_between(
    history: Bookkeeping,
    history_oid: int,
    current: Bookkeeping,
    oid: int,
    settings: CurrentSettings,
    result: Sequence[str],
    adds: Sequence[str],
) -> list[str]:
    """Returns why rows of the output table do not fit the current table. `result` are the columns of the transform's
    result, and `adds` those that the publication adds to the current table.
    """
    there = {column.name: column for column in history.columns(history_oid)}
    own = {column.name: column for column in current.columns(oid)}
    named = {*settings.key, *settings.order_by}
    wanted = [name for name in there if (name in result and name != settings.deleted) or name in named]
    alter, found = f"ALTER TABLE {current.quoted}", list[str]()
    types, own_types = types_of(history, history_oid, [*there]), types_of(current, oid, [*own])
    for name in wanted:
        if name not in own and name not in adds:
            found.append(f"it has no column {name}: {alter} ADD COLUMN {quoted(name)} {there[name].kind}")
    for name in columns_of_both([*there], [name for name, column in own.items() if not column.computed], [*named]):
        if types[name] != own_types[name]:
            found.append(
                f"column {name} is {own_types[name]}, and in table {history.table} it is {types[name]}: "
                f"{alteration(current.quoted, own[name], there[name].kind)}"
            )
    return [*found, *_unfilled(own, there, alter)]


def _unfilled(own: dict[str, TableColumn], there: dict[str, TableColumn], alter: str) -> Iterator[str]:
    for name, column in own.items():
        if (name not in there or name in RESERVED_COLUMNS) and not column.filled:
            yield (
                f"column {name} may not be null and has no default, and the output table does not give it: {alter} ALTER COLUMN "
                f"{quoted(name)} DROP NOT NULL"
            )


def has_index(tx: Session, oid: int, settings: CurrentSettings) -> bool:
    """Returns whether the table has an index that finds the newest row of a key: first the key's columns in any order,
    then the columns of `order_by`, all in one direction.
    """
    return any(_finds_newest(columns, settings) for _, columns in _indexes(tx, oid))


def has_rows(tx: Session, of: Bookkeeping) -> bool:
    """Returns whether a table has any rows."""
    return bool(tx.run(f"SELECT EXISTS (SELECT 1 FROM {of.quoted})")[0][0])


def _indexes(tx: Session, oid: int) -> Iterator[tuple[bool, list[IndexColumn]]]:
    """Yields whether each index is a unique key, and its columns."""
    for is_unique, count, columns in tx.run(INDEXES, oid):
        yield is_unique, [IndexColumn(*one) for one in json.loads(columns)[:count]]


def _finds_newest(columns: Sequence[IndexColumn], settings: CurrentSettings) -> bool:
    keys, rest = columns[: len(settings.key)], columns[len(settings.key) :][: len(settings.order_by)]
    if not all(one.plain for one in (*keys, *rest)):
        return False
    if {one.name for one in keys} != {*settings.key} or tuple(one.name for one in rest) != settings.order_by:
        return False
    # A scan of either, forwards or backwards, gives the order that the statement asks for.
    return {one.option for one in rest} in ({0}, {3})


def _why_not_keyed(tx: Session, current: Bookkeeping, oid: int, settings: CurrentSettings) -> Iterator[str]:
    key = {*settings.key}
    columns = ", ".join(map(quoted, settings.key))
    if not any(is_unique and {one.name for one in found} == key for is_unique, found in _indexes(tx, oid)):
        yield f"it has no unique key on {', '.join(settings.key)}: ALTER TABLE {current.quoted} ADD PRIMARY KEY ({columns})"
    for name, is_other, of in tx.run(UNIQUE, oid):
        if is_other or not key <= {*of}:
            yield (
                f"index {name} is unique on other columns than the key, so two keys that swap a value could not be written one "
                f"after the other: DROP INDEX {quoted(current.schema, name)}, or drop its constraint"
            )


def _parts(tx: Session, oid: int) -> str:
    """Returns the partitions and inheritance children, or that the table is partitioned."""
    found = tx.run(
        f"{BELOW} SELECT format('%I.%I', n.nspname, c.relname), c.oid = $1::bigint::oid, c.relkind = 'p' FROM below "
        f"{NAMED.format(tree='below')} ORDER BY 1",
        oid,
    )
    names = [name for name, is_all, _ in found if not is_all]
    return ", ".join(names[:5]) or ("partitions" if any(is_parted for _, _, is_parted in found) else "")
