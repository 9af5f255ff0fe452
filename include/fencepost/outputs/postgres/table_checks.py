"""Checks whether a table may be published to. The module finds every reason against a publication in the catalogue,
each with the statement that removes the reason.

The plan step makes these checks, and so does the write step before its first record is staged. A publication makes them
when it begins, and again under its lock. `fencepost try` and the doctor make them too. So a batch that a publication
would refuse is refused before anything is staged, in the same words. A publication checks once more after its rows are
copied, because a partition may have been attached meanwhile.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import types as t

from fencepost.errors import TableUnavailable
from fencepost.outputs.postgres.columns import casts_of, kind_for
from fencepost.outputs.postgres.conversions import TableColumn, alteration
from fencepost.outputs.postgres.identifiers import BOOKKEEPING_TABLES, quoted
from fencepost.outputs.postgres.rights import grant_of_temporary
from fencepost.outputs.table.pipeline_table import Owner
from fencepost.outputs.table.values import RESERVED_COLUMNS
from fencepost.postgres.connection import Session, StatementFailed

KINDS = {
    "v": "a view",
    "m": "a materialized view",
    "f": "a foreign table",
    "S": "a sequence",
    "c": "a composite type",
    "i": "an index",
    "I": "an index",
    "t": "a TOAST table",
}
ACTIONS = {"c": "CASCADE", "n": "SET NULL", "d": "SET DEFAULT"}
RESTRICT = "r"
END_OF_KEY = re.compile(r"( ON DELETE| DEFERRABLE| NOT DEFERRABLE| INITIALLY| NOT VALID).*$")
INTERVAL = RESERVED_COLUMNS[0]
NO_IDENTITY, NOT_COVERED = "55000", "42P10"  # SQLSTATEs
SHOWN = 5  # parts or keys that a reason names
OLDEST_THAT_CONVERTS = 16  # PostgreSQL's version; from 16 on the server tells of a text whether a type accepts it

# The table, its partitions and inheritance children, their children, and so on.
BELOW = (
    "WITH RECURSIVE below (oid) AS (SELECT $1::bigint::oid UNION SELECT i.inhrelid FROM pg_catalog.pg_inherits AS i "
    "JOIN below ON i.inhparent = below.oid)"
)
# The table, its parents, their parents, and so on.
ABOVE = (
    "WITH RECURSIVE above (oid) AS (SELECT $1::bigint::oid UNION SELECT i.inhparent FROM pg_catalog.pg_inherits AS i "
    "JOIN above ON i.inhrelid = above.oid)"
)
NAMED = (
    "JOIN pg_catalog.pg_class AS c ON c.oid = {tree}.oid JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace"
)


@dataclass(frozen=True)
class Reference:
    """A foreign key that refers to the table or to a part of it.

    `parts` has the key itself and the keys of partitions that the server derives from it, each with the oid of its
    table. `is_own` says that it is a key of the table itself, or of a part of the table.
    """

    table: str
    name: str
    action: str
    deferred: bool
    definition: str
    is_own: bool
    parts: frozenset[tuple[int, str]]

    @property
    def acts(self) -> bool:
        """Returns whether the server changes the referring rows when a row is removed."""
        return self.action in ACTIONS

    @property
    def cure(self) -> str:
        """Returns the statement that lets a transaction remove rows and write them again while other rows refer to
        them.
        """
        alter, name, put_off = f"ALTER TABLE {self.table}", quoted(self.name), "DEFERRABLE INITIALLY DEFERRED"
        if not self.acts and self.action != RESTRICT:
            return f"{alter} ALTER CONSTRAINT {name} {put_off}"
        plain = END_OF_KEY.sub("", self.definition)
        return f"{alter} DROP CONSTRAINT {name}, ADD CONSTRAINT {name} {plain} {put_off}"


def why_not_owned(tx: Session, oid: int, owner: Owner) -> list[str]:
    """Returns why the table with this oid cannot be a pipeline's output. For example, it is not a table, or it shares
    rows with another owner's table.

    Raises:
        TableUnavailable: the table no longer exists.
    """
    found = tx.run(
        "SELECT relkind::text, relpersistence::text FROM pg_catalog.pg_class WHERE oid = $1::bigint::oid", oid
    )
    if not found:
        raise TableUnavailable("The output's table was dropped or created again meanwhile. Run again.")
    kind, persistence = found[0]
    if kind not in "rp":
        return [f"it is {KINDS.get(kind, 'not a table')}, and only ordinary or partitioned tables can be outputs"]
    if persistence == "t":
        return ["it is temporary, and ends with its session"]
    return list(_other_owners(tx, oid, owner))


def why_not_published_to(
    tx: Session,
    table: str,
    oid: int,
    owner: Owner,
    *,
    start: datetime | None = None,
    allow_referential_actions: bool,
) -> list[str]:
    """Returns why revisions of this owner cannot be published to the table with this oid. It checks for the interval
    with this `start`, or without a start for any interval. If there is a reason, the transaction may no longer accept
    statements.
    """
    if why := why_not_owned(tx, oid, owner):
        return why
    if hides_rows(tx, oid):
        return [why_hidden(quoted(*table.split(".", 1)))]
    why = list(unsafe_parts(tx, oid))
    if not allow_referential_actions:
        why += [_of_action(one) for one in references(tx, oid) if one.acts][:SHOWN]
    return why or _refused_publication(tx, table, oid, start)


def why_not_converted(tx: Session, table: str, schema: t.StructType, columns: Sequence[TableColumn]) -> list[str]:
    """Returns why values cannot be converted to the types of these columns, although the types allow it. `table` is the
    quoted table whose columns a person can change.
    """
    names = [cast.name for cast in casts_of(schema, columns)]
    if not names:
        return []
    ((version, may_create, database, user),) = tx.run(
        "SELECT current_setting('server_version_num')::integer / 10000, has_database_privilege(current_database(), "
        "'TEMPORARY'), current_database()::text, current_user::text"
    )
    values = f"values of {'column' if len(names) == 1 else 'columns'} {', '.join(names)} have to be converted"
    if version < OLDEST_THAT_CONVERTS:
        there, kinds = (
            {column.name: column for column in columns},
            {f.name: kind_for(f.dataType) or "" for f in schema.fields},
        )
        alter = "; ".join(alteration(table, there[name], kinds[name]) for name in names)
        return [
            f"{values}, which takes PostgreSQL {OLDEST_THAT_CONVERTS} or later, and the server is PostgreSQL {version}: "
            f"upgrade it; or {alter}"
        ]
    if not may_create:
        return [f"{values}, for which the user has to create temporary tables: {grant_of_temporary(database, user)}"]
    return []


def hides_rows(tx: Session, oid: int) -> bool:
    """Returns whether row level security may hide rows of the table from this user. Policies of its partitions do not
    matter.
    """
    return bool(tx.run("SELECT row_security_active($1::bigint::oid)", oid)[0][0])


def why_hidden(table: str) -> str:
    """Returns why a table with row level security cannot be used, with the statements that solve it."""
    return (
        f"row level security of {table} may hide rows from the user of `postgres:`, or prevent their removal: "
        f"ALTER ROLE … BYPASSRLS; or, if the user owns it, ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY"
    )


def doubts(tx: Session, oid: int) -> list[tuple[str, str]]:
    """Returns what may prevent a later revision, which has to remove rows. Each doubt has the statement that solves it."""
    return [
        (
            f"rows of table {one.table} refer to its rows (constraint {one.name}): the server refuses to remove such a row, even "
            "if the same transaction writes it again, so an interval with such rows cannot be reprocessed",
            one.cure,
        )
        for one in references(tx, oid)
        if not one.acts and (one.action == RESTRICT or not one.deferred)
    ]


def references(tx: Session, oid: int) -> list[Reference]:
    """Returns the foreign keys that refer to the table or to a part of it. The `parts` of a key have the keys that the
    server derives for partitions.
    """
    found = tx.run(
        f"{BELOW}, up (rel, name, oid, parent) AS (SELECT c.conrelid, c.conname, c.oid, c.conparentid FROM "
        "pg_catalog.pg_constraint AS c "
        "JOIN below ON c.confrelid = below.oid WHERE c.contype = 'f' AND coalesce((to_jsonb(c)->>'conenforced')::boolean, true) "
        "UNION SELECT up.rel, up.name, p.oid, p.conparentid FROM pg_catalog.pg_constraint AS p JOIN up ON p.oid = up.parent) "
        "SELECT format('%I.%I', n.nspname, r.relname), c.conname::text, c.confdeltype::text, c.condeferred, "
        "pg_get_constraintdef(c.oid), c.conrelid IN (SELECT oid FROM below), "
        "jsonb_agg(DISTINCT jsonb_build_array(up.rel::bigint, up.name))::text FROM up "
        "JOIN pg_catalog.pg_constraint AS c ON c.oid = up.oid AND c.conparentid = 0 "
        "JOIN pg_catalog.pg_class AS r ON r.oid = c.conrelid JOIN pg_catalog.pg_namespace AS n ON n.oid = r.relnamespace "
        "GROUP BY c.oid, n.nspname, r.relname ORDER BY 1, 2",
        oid,
    )
    return [
        Reference(table, name, action, deferred, text, is_own, frozenset((rel, key) for rel, key in json.loads(parts)))
        for table, name, action, deferred, text, is_own, parts in found
    ]


def _other_owners(tx: Session, oid: int, owner: Owner) -> Iterator[str]:
    """Yields why the table shares rows with other owners' tables. Either another owner's table is a part of this table,
    or this table is a part of it.
    """
    relatives = list[tuple[str, str, bool]]()
    for trees, tree in ((BELOW, "below"), (ABOVE, "above")):
        relatives += tx.run(
            f"{trees} SELECT n.nspname::text, n.nspname || '.' || c.relname, {tree == 'below'} FROM {tree} "
            f"{NAMED.format(tree=tree)} WHERE {tree}.oid <> $1::bigint::oid",
            oid,
        )
    for schema in sorted({schema for schema, _, _ in relatives}):
        tables = quoted(schema, BOOKKEEPING_TABLES[0])
        readable = tx.run(
            "SELECT has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT') FROM pg_catalog.pg_class AS c "
            "JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname::text = $1 AND c.relname::text = $2",
            schema,
            BOOKKEEPING_TABLES[0],
        )
        if not readable:
            continue
        if not readable[0][0]:
            yield (
                f"a part or a parent of it is in schema {schema}, where the user cannot see whether that belongs to another "
                f"pipeline: GRANT USAGE ON SCHEMA {quoted(schema)}, and GRANT SELECT ON {tables}"
            )
            continue
        found = tx.run(f"SELECT name, pipeline, cluster FROM {tables} WHERE (pipeline, cluster) <> ($1, $2)", *owner)
        others = {name: Owner(*of) for name, *of in found}
        for _, name, is_part in relatives:
            if (other := others.get(name)) is not None:
                how = f"table {name} is a part of it" if is_part else f"it is a part of table {name}"
                yield (
                    f"{how}, and belongs to {other}: a revision of one table would remove rows of the other. Detach "
                    "the part, or name another output.table"
                )


def unsafe_parts(tx: Session, oid: int) -> Iterator[str]:
    """Yields the parts that lose committed rows in a crash, or that commit separately. Temporary children of other
    sessions are left out, because the server leaves them out too.
    """
    found = tx.run(
        f"{BELOW} SELECT format('%I.%I', n.nspname, c.relname), c.relkind::text, c.oid = $1::bigint::oid FROM below "
        f"{NAMED.format(tree='below')} WHERE c.relkind = 'f' OR (c.relkind = 'r' AND c.relpersistence = 'u') ORDER BY 1",
        oid,
    )
    for name, kind, is_all in found[:SHOWN]:
        what = "it" if is_all else f"its part {name}"
        if kind == "f":
            yield f"{what} is a foreign table, which commits by itself. Detach it"
        else:
            yield f"{what} is unlogged, and empty after a crash of the server: ALTER TABLE {name} SET LOGGED"


def _of_action(one: Reference) -> str:
    return (
        f"rows of table {one.table} refer to its rows with ON DELETE {ACTIONS[one.action]} (constraint {one.name}), so a "
        f"revision, which removes the rows of its interval, would change rows of {one.table} for good: {one.cure}; or accept "
        "this change with output.allow_referential_actions: true"
    )


def _refused_publication(tx: Session, table: str, oid: int, start: datetime | None) -> list[str]:
    """Returns the statements of a publication that the server would refuse for any rows."""
    schema, name = table.split(".", 1)
    registered, batches = (quoted(schema, own) for own in BOOKKEEPING_TABLES)
    return refused_statements(
        tx, [("DELETE", quoted(schema, name), oid), ("UPDATE", batches, None), ("UPDATE", registered, None)], start
    )


def refused_statements(
    tx: Session, statements: Sequence[tuple[str, str, int | None]], start: datetime | None = None
) -> list[str]:
    """Returns the statements that the server would refuse for any rows, because logical replication publishes their
    table. Each statement is DELETE or UPDATE, of a quoted table, with the oid of a table that may have parts. The
    statements are tested with EXPLAIN, which does not run them.

    EXPLAIN takes the locks of the statement. So with a `start`, a DELETE is limited to that interval, as in a
    publication. A table may have more partitions than the server has locks, and other sessions may have locked some of
    them.
    """
    for right, target, oid in statements:
        rights = "has_table_privilege(to_regclass($1), $2) AND has_table_privilege(to_regclass($1), 'SELECT')"
        if not tx.run(f"SELECT {rights}", target, right)[0][0]:
            continue  # it does not exist yet, or rights are missing, which another check reports
        without = _without_identity(tx, oid) if oid is not None else []
        by_interval = right == "DELETE" and oid is not None and start is not None and _has_interval(tx, oid)
        where, value = (f"{quoted(INTERVAL)} = $1::timestamptz", start) if by_interval else ("$1::boolean", True)
        statement = f"DELETE FROM {target}" if right == "DELETE" else f"UPDATE {target} SET {_any_column(tx, target)}"
        try:
            tx.run(f"EXPLAIN {statement} WHERE {where}", value)
        except StatementFailed as failed:
            of_parts = without or [target]
            cure = "; ".join(f"ALTER TABLE {part} REPLICA IDENTITY FULL" for part in of_parts[:SHOWN])
            cure += f"; and the same for {len(of_parts) - SHOWN} more of its parts" if len(of_parts) > SHOWN else ""
            what = f"the {right}s of {target} are published by logical replication"
            if failed.sqlstate == NO_IDENTITY:
                return [f"{what}, and without a replica identity the server refuses them: {cure}"]
            if failed.sqlstate == NOT_COVERED:
                return [
                    f"{what}, but not with all columns of the replica identity, so the server refuses them: {cure}, with all "
                    "columns in the publication; or publish = 'insert'"
                ]
            raise
    return []


def _any_column(tx: Session, target: str) -> str:
    """Returns the assignment of a column to itself, for an UPDATE that is only explained."""
    found = tx.run(
        "SELECT attname::text FROM pg_catalog.pg_attribute WHERE attrelid = to_regclass($1) AND attnum > 0 "
        "AND NOT attisdropped AND attgenerated = '' AND attidentity <> 'a' ORDER BY attnum LIMIT 1",
        target,
    )
    return f"{quoted(found[0][0])} = {quoted(found[0][0])}"


def _has_interval(tx: Session, oid: int) -> bool:
    """Returns whether the table has the interval's column, with the right type."""
    found = tx.run(
        "SELECT 1 FROM pg_catalog.pg_attribute WHERE attrelid = $1::bigint::oid AND attname = $2::name "
        "AND atttypid = 'timestamptz'::regtype",
        oid,
        INTERVAL,
    )
    return bool(found)


def _without_identity(tx: Session, oid: int) -> Sequence[str]:
    found = tx.run(
        f"{BELOW} SELECT format('%I.%I', n.nspname, c.relname) FROM below {NAMED.format(tree='below')} "
        "WHERE c.relkind = 'r' AND c.relreplident <> 'f' "
        "AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_index AS i WHERE i.indrelid = c.oid AND i.indimmediate AND CASE "
        "c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END) ORDER BY 1",
        oid,
    )
    return [row[0] for row in found]
