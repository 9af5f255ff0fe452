"""The statements that compute a current table from its history. They are composed here and run elsewhere.

Each key is looked up by itself (`LATERAL … LIMIT 1`) in an index on key and order, because a join of the keys with the
history reads all of the history. Rows are compared by image (`record_image_ne`), because `=` calls 1.0 and 1.00 equal, and
-0 and 0.

The two temporary tables have names of their own for columns: a key's columns are k0, k1, …, and a row's are v0, v1, ….
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fencepost.outputs.postgres.identifiers import quoted
from fencepost.outputs.table.values import RESERVED_COLUMNS

INTERVAL, REVISION = RESERVED_COLUMNS
KEYS, CHANGES = "pg_temp.fencepost_keys", "pg_temp.fencepost_changes"
DELETED, ADDED, CHANGED, SAME = "deleted", "added", "changed", "same"
# The server has no statistics of rows that this transaction has written, and might read a whole table for a few keys.
LOOK_UP = ("enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin", "jit")


@dataclass(frozen=True)
class CurrentShape:
    """The quoted names of history and current table, and the columns that decide a row. `columns` are those that both
    tables have, without Fencepost's own unless key or order names one.
    """

    history: str
    current: str
    key: tuple[str, ...]
    order_by: tuple[str, ...]
    deleted: str | None
    columns: tuple[str, ...]

    @property
    def key_columns(self) -> str:
        """Returns the key's columns, quoted."""
        return ", ".join(map(quoted, self.key))

    @property
    def index(self) -> str:
        """Returns the columns of the index that the history needs."""
        return ", ".join(map(quoted, (*self.key, *self.order_by)))


def look_up_only() -> str:
    """Returns the statement that makes the server look each row up in an index, until the end of the transaction."""
    settings = ", ".join(f"set_config('{name}', 'off', true)" for name in LOOK_UP)
    return f"SELECT {settings}"


def make_keys(shape: CurrentShape) -> str:
    """Returns the statement that makes the table of the keys that a publication touches."""
    columns = ", ".join(f"{quoted(column)} AS k{n}" for n, column in enumerate(shape.key))
    return f"CREATE TEMPORARY TABLE fencepost_keys ON COMMIT DROP AS SELECT {columns} FROM {shape.history} WITH NO DATA"


def add_brought(shape: CurrentShape, revision: int) -> str:
    """Returns the statement that adds the keys of the rows of a revision of interval `$1`."""
    return (
        f"INSERT INTO {KEYS} SELECT DISTINCT {shape.key_columns} FROM {shape.history} "
        f"WHERE {quoted(INTERVAL)} = $1::timestamptz AND {quoted(REVISION)} = {revision}"
    )


def nulls(shape: CurrentShape, revision: int | None) -> str:
    """Returns the query for the columns of key and order that are null in a row: of a revision of interval `$1`, or of
    any.
    """
    columns = ", ".join(
        f"coalesce(bool_or({quoted(column)} IS NULL), false)" for column in (*shape.key, *shape.order_by)
    )
    return f"SELECT {columns} FROM {shape.history}{_of_revision(revision)}"


def ties(shape: CurrentShape, revision: int) -> str:
    """Returns the query for the number of rows of a revision of interval `$1` beside which the history has another row
    of the same key and order.
    """
    same = " AND ".join(f"o.{quoted(column)} = b.{quoted(column)}" for column in (*shape.key, *shape.order_by))
    return (
        f"SELECT count(*) FROM {shape.history} AS b JOIN LATERAL (SELECT 1 FROM {shape.history} AS o WHERE {same} "
        f"AND {_differ(_image(shape, 'o'), _image(shape, 'b'))} LIMIT 1) AS other ON true{_of_revision(revision, 'b.')}"
    )


def all_ties(shape: CurrentShape) -> str:
    """Returns the query for the number of rows of the history that differ from the first row of the same key and order."""
    group = ", ".join(f"h.{quoted(column)}" for column in (*shape.key, *shape.order_by))
    return (
        f"SELECT count(*) FROM (SELECT {_image(shape, 'h')} AS own, first_value({_image(shape, 'h')}) OVER (PARTITION BY "
        f"{group}) AS first FROM {shape.history} AS h) AS compared WHERE {_differ('own', 'first')}"
    )


def compare_touched(shape: CurrentShape) -> str:
    """Returns the statement that makes the table of changes for the touched keys."""
    columns = ", ".join(f"k{n}" for n in range(len(shape.key)))
    order = ", ".join(f"h.{quoted(column)} DESC" for column in shape.order_by)
    newest = (
        f"SELECT true AS is_there, {_values(shape, 'newest')} FROM (SELECT h.* FROM {shape.history} AS h WHERE "
        f"{_of_key(shape, 'h', 'k')} ORDER BY {order} LIMIT 1) AS newest{_kept(shape)}"
    )
    there = f"SELECT true AS is_there, {_values(shape, 't')} FROM {shape.current} AS t WHERE {_of_key(shape, 't', 'k')} LIMIT 1"
    return (
        f"CREATE TEMPORARY TABLE fencepost_changes ON COMMIT DROP AS SELECT {_of_prefix('k', columns)}, {_what(shape)} AS what, "
        f"{_of_prefix('n', _v(shape))} FROM (SELECT DISTINCT {columns} FROM {KEYS}) AS k "
        f"LEFT JOIN LATERAL ({newest}) AS n ON true LEFT JOIN LATERAL ({there}) AS c ON true"
    )


def compare_all(shape: CurrentShape) -> str:
    """Returns the statement that makes the table of changes for all keys."""
    pairs = tuple(enumerate(shape.key))
    columns = ", ".join(f"{quoted(column)} AS k{n}" for n, column in pairs)
    order = ", ".join([*map(quoted, shape.key), *(f"{quoted(column)} DESC" for column in shape.order_by)])
    newest = (
        f"SELECT true AS is_there, {columns}, {_values(shape, 'newest')} FROM (SELECT DISTINCT ON ({shape.key_columns}) * "
        f"FROM {shape.history} ORDER BY {order}) AS newest{_kept(shape)}"
    )
    there = f"SELECT true AS is_there, {columns}, {_values(shape, 't')} FROM {shape.current} AS t"
    keys = ", ".join(f"coalesce(n.k{n}, c.k{n}) AS k{n}" for n, _ in pairs)
    same = " AND ".join(f"n.k{n} = c.k{n}" for n, _ in pairs)
    return (
        f"CREATE TEMPORARY TABLE fencepost_changes ON COMMIT DROP AS SELECT {keys}, {_what(shape)} AS what, "
        f"{_of_prefix('n', _v(shape))} FROM ({newest}) AS n FULL JOIN ({there}) AS c ON {same}"
    )


COUNT = f"SELECT what, count(*) FROM {CHANGES} GROUP BY 1"


def delete(shape: CurrentShape) -> str:
    """Returns the statement that deletes the rows of keys that have no row any more."""
    return f"DELETE FROM {shape.current} AS t USING {CHANGES} AS x WHERE x.what = '{DELETED}' AND {_of_key(shape, 't', 'x')}"


def update(shape: CurrentShape) -> str:
    """Returns the statement that changes the rows of keys whose newest row is another one. Such a row is never deleted and
    inserted, because rows of other tables may refer to it.
    """
    values = ", ".join(f"{quoted(column)} = x.v{n}" for n, column in enumerate(shape.columns))
    return (
        f"UPDATE {shape.current} AS t SET {values} FROM {CHANGES} AS x WHERE x.what = '{CHANGED}' "
        f"AND {_of_key(shape, 't', 'x')}"
    )


def insert(shape: CurrentShape) -> str:
    """Returns the statement that inserts the rows of keys that had none."""
    columns = ", ".join(map(quoted, shape.columns))
    return f"INSERT INTO {shape.current} ({columns}) SELECT {_v(shape)} FROM {CHANGES} WHERE what = '{ADDED}'"


def differing(shape: CurrentShape) -> str:
    """Returns the query for the number of changed keys that the current table has otherwise than it was told."""
    values = ", ".join(f"x.v{n}" for n in range(len(shape.columns)))
    there = f"SELECT true AS is_there, {_values(shape, 't')} FROM {shape.current} AS t WHERE {_of_key(shape, 't', 'x')} LIMIT 1"
    other = _differ(f"ROW({values})", f"ROW({_of_prefix('c', _v(shape))})")
    return (
        f"SELECT count(*) FROM {CHANGES} AS x LEFT JOIN LATERAL ({there}) AS c ON true WHERE CASE x.what "
        f"WHEN '{DELETED}' THEN c.is_there IS NOT NULL WHEN '{SAME}' THEN false ELSE c.is_there IS NULL OR {other} END"
    )


def lacking(history: str, batches: str) -> str:
    """Returns the query for the number of published intervals of table `$1`, other than `$2`, of which the history has no
    row. It makes a step in the index for each interval.
    """
    return (
        f"SELECT count(*) FROM {batches} AS b WHERE b.table_name = $1 AND b.interval_start <> $2::timestamptz AND b.rows > 0 "
        f"AND (SELECT true FROM {history} AS h WHERE h.{quoted(INTERVAL)} = b.interval_start LIMIT 1) IS NULL"
    )


def _of_revision(revision: int | None, of: str = "") -> str:
    if revision is None:
        return ""
    return f" WHERE {of}{quoted(INTERVAL)} = $1::timestamptz AND {of}{quoted(REVISION)} = {revision}"


def _of_key(shape: CurrentShape, table: str, keys: str) -> str:
    return " AND ".join(f"{table}.{quoted(column)} = {keys}.k{n}" for n, column in enumerate(shape.key))


def _values(shape: CurrentShape, of: str) -> str:
    return ", ".join(f"{of}.{quoted(column)} AS v{n}" for n, column in enumerate(shape.columns))


def _v(shape: CurrentShape) -> str:
    return ", ".join(f"v{n}" for n in range(len(shape.columns)))


def _of_prefix(of: str, names: str) -> str:
    return ", ".join(f"{of}.{name}" for name in names.split(", "))


def _kept(shape: CurrentShape) -> str:
    return f" WHERE newest.{quoted(shape.deleted)} IS NOT TRUE" if shape.deleted is not None else ""


def _image(shape: CurrentShape, of: str) -> str:
    """Returns a history's row as far as it decides what is in the current table."""
    more = [shape.deleted] if shape.deleted is not None and shape.deleted not in shape.columns else []
    return f"ROW({', '.join(f'{of}.{quoted(column)}' for column in (*shape.columns, *more))})"


def _differ(one: str, other: str) -> str:
    return f"pg_catalog.record_image_ne({one}, {other})"


def _what(shape: CurrentShape) -> str:
    n, c = (f"ROW({_of_prefix(of, _v(shape))})" for of in ("n", "c"))
    return (
        f"CASE WHEN n.is_there IS NULL THEN CASE WHEN c.is_there IS NULL THEN '{SAME}' ELSE '{DELETED}' END "
        f"WHEN c.is_there IS NULL THEN '{ADDED}' WHEN {_differ(n, c)} THEN '{CHANGED}' ELSE '{SAME}' END"
    )


def columns_of_both(history: Sequence[str], current: Sequence[str], named: Sequence[str]) -> tuple[str, ...]:
    """Returns the columns of the current table that are computed. Fencepost's own are among them only if key or order
    (`named`) has them.
    """
    return tuple(name for name in current if name in history and (name not in RESERVED_COLUMNS or name in named))
