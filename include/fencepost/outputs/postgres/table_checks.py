"""May this table be published to? Every reason against it that the catalogue shows, in one place.

A plan asks, a write before its first record is staged, a publication when it begins and again under its lock, `fencepost try`
and the doctor. So what a publication would refuse is refused before anything is staged, in the same words and with a statement
that cures it. A publication asks once more when its rows are copied, and so finds a part that was attached meanwhile.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from fencepost.errors import StoreUnavailable
from fencepost.outputs.postgres.connection import Session, StatementFailed
from fencepost.outputs.postgres.names import RESERVED_COLUMNS, STORE_TABLES, quoted
from fencepost.outputs.table.pipeline_table import Owner

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

# The table, its partitions and inheritance children, theirs, and so on.
BELOW = (
    "WITH RECURSIVE below (oid) AS (SELECT $1::bigint::oid UNION SELECT i.inhrelid FROM pg_catalog.pg_inherits AS i "
    "JOIN below ON i.inhparent = below.oid)"
)
# The table, what it is a part of, what that is a part of, and so on.
ABOVE = (
    "WITH RECURSIVE above (oid) AS (SELECT $1::bigint::oid UNION SELECT i.inhparent FROM pg_catalog.pg_inherits AS i "
    "JOIN above ON i.inhrelid = above.oid)"
)
NAMED = (
    "JOIN pg_catalog.pg_class AS c ON c.oid = {tree}.oid JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace"
)


@dataclass(frozen=True)
class Reference:
    """A foreign key that refers to the table, or to a part of it. `parts` are it and those that it is for parts, with the oids of
    their tables. `is_own`: it is a key of the table itself, or of a part of it."""

    table: str
    name: str
    action: str
    deferred: bool
    definition: str
    is_own: bool
    parts: frozenset[tuple[int, str]]

    @property
    def acts(self) -> bool:
        """Whether the server changes rows that refer to a row which is removed."""
        return self.action in ACTIONS

    @property
    def cure(self) -> str:
        """The statement after which rows may be removed and written again in one transaction, and what refers to them stays."""
        alter, name, put_off = f"ALTER TABLE {self.table}", quoted(self.name), "DEFERRABLE INITIALLY DEFERRED"
        if not self.acts and self.action != RESTRICT:
            return f"{alter} ALTER CONSTRAINT {name} {put_off}"
        plain = END_OF_KEY.sub("", self.definition)
        return f"{alter} DROP CONSTRAINT {name}, ADD CONSTRAINT {name} {plain} {put_off}"


def why_not_owned(tx: Session, oid: int, owner: Owner) -> list[str]:
    """Why the table with this oid can be no pipeline's: it is none, or shares rows with the table of another owner.

    Raises:
        StoreUnavailable: there is no such table any more.
    """
    found = tx.run(
        "SELECT relkind::text, relpersistence::text FROM pg_catalog.pg_class WHERE oid = $1::bigint::oid", oid
    )
    if not found:
        raise StoreUnavailable("The output's table was dropped, or made anew, meanwhile. Run again.")
    kind, persistence = found[0]
    if kind not in "rp":
        return [f"it is {KINDS.get(kind, 'no table')}, and batches go to ordinary or partitioned tables"]
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
    """Why no revision of this owner can be published to the table with this oid: of the interval that starts then, or of any.
    Where there is a reason, the transaction may take no statement any more."""
    if why := why_not_owned(tx, oid, owner):
        return why
    if hides_rows(tx, oid):
        return [why_hidden(quoted(*table.split(".", 1)))]
    why = list(unsafe_parts(tx, oid))
    if not allow_referential_actions:
        why += [_of_action(one) for one in references(tx, oid) if one.acts][:SHOWN]
    return why or _refused_statements(tx, table, oid, start)


def hides_rows(tx: Session, oid: int) -> bool:
    """Whether row level security may hide rows of a table from this user. Its parts' own policies do not count in it."""
    return bool(tx.run("SELECT row_security_active($1::bigint::oid)", oid)[0][0])


def why_hidden(table: str) -> str:
    """Why a table whose rows may be hidden from the user is of no use, with the statements that would do."""
    return (
        f"row level security of {table} may hide rows from the user of `postgres:`, or keep them from being removed: "
        f"ALTER ROLE … BYPASSRLS; or, if the user owns it, ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY"
    )


def doubts(tx: Session, oid: int) -> list[tuple[str, str]]:
    """What may keep a later revision from the table, each with the statement that helps. A first one removes no rows."""
    return [
        (
            f"rows of table {one.table} refer to its rows (constraint {one.name}): the server refuses to remove such a row, even "
            "where the same transaction writes it again, so an interval that they refer to cannot be reprocessed",
            one.cure,
        )
        for one in references(tx, oid)
        if not one.acts and (one.action == RESTRICT or not one.deferred)
    ]


def references(tx: Session, oid: int) -> list[Reference]:
    """The foreign keys of all tables that refer to the table or a part of it, by the constraint that a person has written."""
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
    """The tables of other owners that are parts of this one, or of which this one is a part."""
    relatives = list[tuple[str, str, bool]]()
    for trees, tree in ((BELOW, "below"), (ABOVE, "above")):
        relatives += tx.run(
            f"{trees} SELECT n.nspname::text, n.nspname || '.' || c.relname, {tree == 'below'} FROM {tree} "
            f"{NAMED.format(tree=tree)} WHERE {tree}.oid <> $1::bigint::oid",
            oid,
        )
    for schema in sorted({schema for schema, _, _ in relatives}):
        tables = quoted(schema, STORE_TABLES[0])
        readable = tx.run(
            "SELECT has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT') FROM pg_catalog.pg_class AS c "
            "JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname::text = $1 AND c.relname::text = $2",
            schema,
            STORE_TABLES[0],
        )
        if not readable:
            continue
        if not readable[0][0]:
            yield (
                f"a part of it, or what it is a part of, is in schema {schema}, where the user cannot see whether it belongs to "
                f"another pipeline: GRANT USAGE ON SCHEMA {quoted(schema)}, and GRANT SELECT ON {tables}"
            )
            continue
        found = tx.run(f"SELECT name, pipeline, cluster FROM {tables} WHERE (pipeline, cluster) <> ($1, $2)", *owner)
        others = {name: Owner(*of) for name, *of in found}
        for _, name, is_part in relatives:
            if (other := others.get(name)) is not None:
                how = f"table {name} is a part of it" if is_part else f"it is a part of table {name}"
                yield (
                    f"{how}, and belongs to {other}: a revision of one would remove rows of the other. Detach it, or "
                    "name another output.table"
                )


def unsafe_parts(tx: Session, oid: int) -> Iterator[str]:
    """Parts that do not keep what is committed, or commit by themselves. Temporary children of other sessions count for nothing:
    the server leaves them out."""
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
        f"rows of table {one.table} refer to its rows with ON DELETE {ACTIONS[one.action]} (constraint {one.name}): a revision "
        f"removes the rows of its interval before it writes its own, and the server would change those of {one.table} for good: "
        f"{one.cure}; or accept that by output.allow_referential_actions: true"
    )


def _refused_statements(tx: Session, table: str, oid: int, start: datetime | None) -> list[str]:
    """What the server refuses of the statements of a publication, whatever their rows are: asked by EXPLAIN, which does not run
    them. Publications of logical replication are why.

    EXPLAIN locks what the statement would lock. So of an interval the server is asked as it is told to remove its rows later: a
    table may have more partitions than the server has locks, and others may have locked some.
    """
    schema, name = table.split(".", 1)
    registered, batches = (quoted(schema, own) for own in STORE_TABLES)
    without = _without_identity(tx, oid)
    for right, target, statement in (
        ("DELETE", quoted(schema, name), "DELETE FROM {}"),
        ("UPDATE", batches, "UPDATE {} SET closed = closed"),
        ("UPDATE", registered, "UPDATE {} SET oid = oid"),
    ):
        rights = "has_table_privilege(to_regclass($1), $2) AND has_table_privilege(to_regclass($1), 'SELECT')"
        if not tx.run(f"SELECT {rights}", target, right)[0][0]:
            continue  # it is not there yet, or its rights are lacking, which is said elsewhere
        by_interval = right == "DELETE" and start is not None and _has_interval(tx, oid)
        where, value = (f"{quoted(INTERVAL)} = $1::timestamptz", start) if by_interval else ("$1::boolean", True)
        try:
            tx.run(f"EXPLAIN {statement.format(target)} WHERE {where}", value)
        except StatementFailed as failed:
            of_parts = without if right == "DELETE" and without else [target]
            cure = "; ".join(f"ALTER TABLE {part} REPLICA IDENTITY FULL" for part in of_parts[:SHOWN])
            cure += f"; and so of {len(of_parts) - SHOWN} more of its parts" if len(of_parts) > SHOWN else ""
            what = f"the {right}s of {target} are published by logical replication"
            if failed.sqlstate == NO_IDENTITY:
                return [f"{what}, and without a replica identity the server refuses them: {cure}"]
            if failed.sqlstate == NOT_COVERED:
                return [
                    f"{what}, and its replica identity and the columns of that publication do not go together, so the server "
                    f"refuses them: {cure}, with all columns in the publication; or publish = 'insert'"
                ]
            raise
    return []


def _has_interval(tx: Session, oid: int) -> bool:
    """Whether the table has the column of intervals, of its type."""
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
