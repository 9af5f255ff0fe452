"""The store consists of two tables in the schema of each output table. This module has their statements.

`fencepost_tables` has a row for each output table, with its owner (a pipeline on a cluster), and its oid at the last
comparison. `fencepost_batches` has a row for each table and interval, by the interval's start.
`outputs/table/revisions.py` explains that row.

If the oid is the same, no other table has taken the name. After a restore, a move or a swap the oid differs. Then the
table still belongs to the pipeline if each interval in it has the published rows.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import types as t

from fencepost.errors import TableRefused
from fencepost.model import Batch
from fencepost.outputs.postgres.casts import BASE_TYPES, BaseType
from fencepost.outputs.postgres.columns import INTERVAL, OWN, REVISION, column_differences
from fencepost.outputs.postgres.conversions import TableColumn
from fencepost.outputs.postgres.identifiers import quoted
from fencepost.outputs.postgres.table_checks import (
    BELOW,
    NAMED,
    hides_rows,
    unsafe_parts,
    why_hidden,
    why_not_converted,
)
from fencepost.outputs.table.comparison import Difference, listed
from fencepost.outputs.table.current import CurrentBasis, RegisteredCurrent
from fencepost.outputs.table.pipeline_table import Owner, check_owner
from fencepost.outputs.table.revisions import Committed, IntervalRow
from fencepost.outputs.table.values import CurrentKeys, TablePublication
from fencepost.postgres.connection import Session

TABLES = """(
    name text PRIMARY KEY, pipeline text NOT NULL, cluster text NOT NULL, oid bigint,
    made_at timestamp with time zone NOT NULL DEFAULT now(), current jsonb)"""
BATCHES = """(
    table_name text, interval_start timestamp with time zone, interval_end timestamp with time zone,
    ledger text NOT NULL DEFAULT '', lease bigint NOT NULL DEFAULT -1,
    closed boolean NOT NULL DEFAULT false, refused text NOT NULL DEFAULT '', batch text NOT NULL DEFAULT '',
    revisions jsonb NOT NULL DEFAULT '{}', rows bigint NOT NULL DEFAULT 0, fingerprint numeric NOT NULL DEFAULT 0,
    sources jsonb, verdict text NOT NULL DEFAULT '', changed_at timestamp with time zone NOT NULL DEFAULT now(), keys jsonb,
    PRIMARY KEY (table_name, interval_start))"""
KEYS = {"fencepost_tables": ("name",), "fencepost_batches": ("table_name", "interval_start")}
HELD = "interval_start, interval_end, ledger, lease, closed, refused, revisions::text, keys::text"
UNINDEXED = f"""{BELOW} SELECT format('%I.%I', n.nspname, c.relname) FROM below {NAMED.format(tree="below")}
WHERE c.relkind <> 'p' AND NOT EXISTS (
    SELECT 1 FROM pg_catalog.pg_index AS i
    JOIN pg_catalog.pg_class AS x ON x.oid = i.indexrelid
    JOIN pg_catalog.pg_am AS m ON m.oid = x.relam
    JOIN pg_catalog.pg_opclass AS o ON o.oid = i.indclass[0]
    JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
    WHERE i.indrelid = c.oid AND a.attname = $2::name AND m.amname = 'btree' AND o.opcdefault
    AND i.indpred IS NULL AND i.indisvalid AND i.indisready AND i.indislive) ORDER BY 1"""
# The bounds of the partitions that are chosen by the interval alone: partitions without partitions of their own, and partitions
# that other columns divide further. A null stands for a table that accepts any interval: one without partitions, or a part of a
# table that other columns divide.
BOUNDS = """WITH RECURSIVE divided (oid) AS (
    SELECT p.partrelid FROM pg_catalog.pg_partitioned_table AS p WHERE NOT EXISTS (
        SELECT 1 FROM unnest(p.partattrs::smallint[]) AS k (number)
        LEFT JOIN pg_catalog.pg_attribute AS a ON a.attrelid = p.partrelid AND a.attnum = k.number
        WHERE a.attname IS DISTINCT FROM $2::name)),
tree (oid) AS (
    SELECT $1::bigint::oid UNION ALL SELECT i.inhrelid FROM tree JOIN divided USING (oid)
    JOIN pg_catalog.pg_inherits AS i ON i.inhparent = tree.oid WHERE NOT i.inhdetachpending)
SELECT CASE WHEN NOT EXISTS (
    SELECT 1 FROM pg_partition_ancestors($1::bigint::oid::regclass) AS above
    WHERE above.relid <> $1::bigint::oid AND above.relid NOT IN (SELECT oid FROM divided))
THEN pg_get_partition_constraintdef(oid) END FROM tree WHERE oid NOT IN (SELECT oid FROM divided)"""
# Times that an interval may begin with: not infinity, and no year beyond 9999.
IS_A_START = f"{quoted(INTERVAL)} BETWEEN '0001-01-01Z' AND '9999-12-31Z'"
MADE_MEANWHILE = {"23505", "42P07"}  # errors of CREATE … IF NOT EXISTS if another session was faster
MOST = 100  # intervals in a statement that removes them


@dataclass(frozen=True)
class RegisteredTable:
    """An output table in the store, or a current table, which has `current`. `oid` is None if the table did not exist
    when it was registered.
    """

    oid: int | None
    owner: Owner
    current: RegisteredCurrent | None = None


class Bookkeeping:
    """The store's rows about one output table, and the table itself, in one transaction."""

    def __init__(self, session: Session, table: str) -> None:
        self._run, self.session = session.run, session
        self.table = table
        self.schema, self.name = table.split(".", 1)
        self.quoted = f"{quoted(self.schema)}.{quoted(self.name)}"
        self._tables = f"{quoted(self.schema)}.fencepost_tables"
        self._batches = f"{quoted(self.schema)}.fencepost_batches"

    def is_prepared(self) -> bool:
        """Returns whether both tables of the store exist."""
        return all(self._oid(name) is not None for name in (self._tables, self._batches))

    def prepare(self) -> None:
        """Creates both tables of the store if they are missing."""
        for name, columns in ((self._tables, TABLES), (self._batches, BATCHES)):
            if self._oid(name) is None:
                self._run(f"CREATE TABLE IF NOT EXISTS {name} {columns}")

    def why_not_kept(self) -> str:
        """Returns why the store's own tables cannot be relied upon, with the statements that repair them. The text is
        empty if they can.

        Without its key a table of the store could have two rows for an interval, and two publications could each lock
        one of them.
        """
        for name, key in KEYS.items():
            table = f"{quoted(self.schema)}.{quoted(name)}"
            if not self._has_key(table, key):
                one, other = (", ".join(f"{alias}.{column}" for column in key) for alias in ("a", "b"))
                age = "made_at" if name == "fencepost_tables" else "changed_at"
                return (
                    f"table {self.schema}.{name} has no unique key on {', '.join(key)}, as after a restore without constraints, "
                    f"so two could publish at once: DELETE FROM {table} AS a USING {table} AS b WHERE ({one}) = ({other}) AND "
                    f"(a.{age}, a.ctid) < (b.{age}, b.ctid); ALTER TABLE {table} ADD PRIMARY KEY ({', '.join(key)})."
                )
            if (oid := self._oid(table)) is None:
                continue
            if hides_rows(self.session, oid):
                return why_hidden(table)
            for why in unsafe_parts(self.session, oid):
                return f"table {self.schema}.{name}: {why}"
        return ""

    def _has_key(self, table: str, key: Sequence[str]) -> bool:
        """Returns whether the table has a unique key on these columns that the server checks immediately."""
        found = self._run(
            "SELECT 1 FROM pg_catalog.pg_index AS i WHERE i.indrelid = to_regclass($1) AND i.indisunique AND i.indisvalid "
            "AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL AND (SELECT string_agg(a.attname::text, ',' "
            "ORDER BY a.attname) FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = i.indrelid AND a.attnum = ANY "
            "((i.indkey::smallint[])[0:i.indnkeyatts - 1])) = $2",
            table,
            ",".join(sorted(key)),
        )
        return bool(found)

    def registered(self, *, lock: bool = False) -> RegisteredTable | None:
        """Returns the table's row in the store, or None if there is none. `lock` keeps the row unchanged until the end
        of the transaction.
        """
        share = " FOR SHARE" if lock else ""
        found = self._run(
            f"SELECT oid, pipeline, cluster, current::text FROM {self._tables} WHERE name = $1{share}", self.table
        )
        if not found:
            return None
        ((oid, pipeline, cluster, current),) = found
        return RegisteredTable(oid, Owner(pipeline, cluster), current_of(oid, current) if current is not None else None)

    def oid(self) -> int | None:
        """Returns the table's present oid, or None if it does not exist."""
        return self._oid(self.quoted)

    def _oid(self, name: str) -> int | None:
        found: int | None = self._run("SELECT to_regclass($1)::oid::bigint", name)[0][0]
        return found

    def register(self, owner: Owner, *, moved: bool = False) -> int | None:
        """Registers the table for this owner. Returns the table's oid, or None if the table does not exist.

        `moved` says that the pipeline may take the table over from its other cluster.

        Raises:
            TableRefused: another pipeline owns the table, or it has rows that were not published.
            AnotherCluster: the pipeline owns the table on another cluster.
        """
        known, oid = self.registered(), self.oid()
        if known is not None and known.oid == oid and known.owner == owner and known.current is None:
            return oid
        if oid is not None:
            # So that the table is not replaced while it is compared.
            self._run(f"LOCK TABLE ONLY {self.quoted} IN ACCESS SHARE MODE")
            oid = self.oid()
        if known is None and (former := self.former_name(owner, oid)) is not None:
            self._rename(former)
        self._run(
            f"INSERT INTO {self._tables} (name, pipeline, cluster) VALUES ($1, $2, $3) ON CONFLICT (name) DO NOTHING",
            self.table,
            *owner,
        )
        self._run(f"SELECT 1 FROM {self._tables} WHERE name = $1 FOR UPDATE", self.table)
        known = self.registered()
        assert known is not None, "its row is locked"
        if known.current is not None:
            raise TableRefused(
                f"table {self.table} is the current table of table {known.current.basis.history}. Name another output.table."
            )
        if not (moved and known.owner.pipeline == owner.pipeline):
            check_owner(self.table, owner, known.owner)
        if why := self.why_another(known, oid):
            raise TableRefused(why)
        self._run(
            f"UPDATE {self._tables} SET oid = $1::bigint, cluster = $2 WHERE name = $3", oid, owner.cluster, self.table
        )
        return oid

    def why_another(self, known: RegisteredTable | None, oid: int | None) -> str:
        """Returns why the table with this oid cannot be the registered table. The text is empty if it is the registered
        table, or can be.

        An interval without any rows is no reason. The comparison with the ledger names such an interval, and its batch
        can be published again.
        """
        if oid is None or (known is not None and known.oid == oid):
            return ""
        if hides_rows(self.session, oid):
            return why_hidden(self.quoted)
        if known is None or not any(row.revisions for row in self.rows()) or not self._has_own_columns(oid):
            return self._why_foreign() if self._has_rows() else ""
        if not (differs := [one for one in self.differences() if one.has]):
            return ""
        starts = ", ".join(f"'{one.start.isoformat()}'" for one in differs[:MOST] if one.start is not None)
        these = [f"{quoted(INTERVAL)} IN ({starts})"] if starts else []
        these += [f"({IS_A_START}) IS NOT TRUE"] if any(one.start is None for one in differs) else []
        return (
            f"table {self.table} has been replaced (restored, moved, swapped or created again), and {len(differs)} of its "
            f"intervals do not have the rows that were published there: {listed(differs)}. If it is an older or newer copy, "
            "restore it together with fencepost_tables and fencepost_batches. Or remove only these intervals (DELETE FROM "
            f"{self.quoted} WHERE {' OR '.join(these)}), and run again: `fencepost status` then names the missing intervals, "
            "with the commands that bring them back. If the rows belong to others, name another output.table."
        )

    def _why_foreign(self) -> str:
        return (
            f"table {self.table} has rows that the pipeline did not publish there. Name another output.table, or move the rows "
            "elsewhere and empty the table. If the rows are the pipeline's, and the table was restored or moved without "
            "Fencepost's bookkeeping, restore its rows of fencepost_tables and fencepost_batches too."
        )

    def differences(self, name: str = "") -> list[Difference]:
        """Returns the intervals whose rows in the table differ from the published rows, in order of time. It reads the
        whole table, as of one moment. `name` is the table's name in the store, if the store has another name.
        """
        found = self._run(
            f"WITH counted AS (SELECT CASE WHEN {IS_A_START} THEN {quoted(INTERVAL)} END AS start, "
            f"{quoted(REVISION)} AS revision, count(*) AS rows FROM {self.quoted} GROUP BY 1, 2), "
            "has AS (SELECT start, jsonb_object_agg(coalesce(revision::text, 'none'), rows) AS revisions "
            "FROM counted GROUP BY 1), published AS (SELECT interval_start AS start, interval_end, "
            "(SELECT jsonb_object_agg(key, value->'rows') FROM jsonb_each(revisions) WHERE value->'rows' <> '0') AS revisions "
            f"FROM {self._batches} WHERE table_name = $1) SELECT start, interval_end, coalesce(has.revisions, '{{}}')::text, "
            "coalesce(published.revisions, '{}')::text FROM has FULL JOIN published USING (start) "
            "WHERE has.revisions IS DISTINCT FROM published.revisions ORDER BY start",
            name or self.table,
        )
        return [Difference(start, end, json.loads(has), json.loads(said)) for start, end, has, said in found]

    def _has_own_columns(self, oid: int) -> bool:
        kinds = {column.name: column.kind for column in self.columns(oid)}
        return all(kinds.get(name) == kind for name, kind in OWN.items())

    def former_name(self, owner: Owner, oid: int | None) -> str | None:
        """Returns the name of this table in the store, if the table was renamed, or moved together with the store's own
        tables.

        Returns None if no other table of this owner is missing, or if the rows differ from the rows that were published
        under the missing table's name.
        """
        if oid is None or not self._has_own_columns(oid) or hides_rows(self.session, oid) or not self._has_rows():
            return None
        place = "strpos(name, '.')"
        gone = f"to_regclass(quote_ident(left(name, {place} - 1)) || '.' || quote_ident(substr(name, {place} + 1))) IS NULL"
        found = self._run(
            f"SELECT name, oid FROM {self._tables} WHERE pipeline = $1 AND cluster = $2 AND current IS NULL AND {gone}",
            *owner,
        )
        names = [name for name, former in found if former == oid] or [name for name, _ in found]
        return names[0] if len(names) == 1 and not self.differences(names[0]) else None

    def _rename(self, name: str) -> None:
        """Changes the table's name in the store to its present name."""
        self._run(f"UPDATE {self._tables} SET name = $1 WHERE name = $2", self.table, name)
        self._run(f"UPDATE {self._batches} SET table_name = $1 WHERE table_name = $2", self.table, name)

    def _has_rows(self) -> bool:
        return bool(self._run(f"SELECT EXISTS (SELECT 1 FROM {self.quoted})")[0][0])

    def columns(self, oid: int) -> list[TableColumn]:
        """Returns the table's columns, with the exact types in the catalogue."""
        rows = self._run(
            "SELECT a.attname::text, format_type(a.atttypid, a.atttypmod), NOT a.attnotnull OR a.atthasdef OR a.attidentity <> "
            "'', a.attgenerated <> '' OR a.attidentity = 'a', CASE t.typtype WHEN 'd' THEN format_type(t.typbasetype, NULL) ELSE "
            "'' END, a.atthasdef AND a.attgenerated = '', a.attidentity <> '', EXISTS (SELECT 1 FROM "
            "pg_partition_tree(coalesce(pg_partition_root($1::bigint::oid::regclass), $1::bigint::oid::regclass)) AS part "
            "JOIN pg_catalog.pg_partitioned_table AS p ON p.partrelid = part.relid JOIN pg_catalog.pg_attribute AS k "
            "ON k.attrelid = p.partrelid AND k.attnum = ANY (p.partattrs::smallint[]) WHERE k.attname = a.attname), "
            "EXISTS (SELECT 1 FROM pg_catalog.pg_index AS i WHERE i.indrelid = a.attrelid AND i.indisprimary "
            "AND a.attnum = ANY (i.indkey::smallint[])) "
            "FROM pg_catalog.pg_attribute AS a JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid "
            "WHERE a.attrelid = $1::bigint::oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
            oid,
        )
        below = {name: BaseType(*base) for name, *base in self._run(BASE_TYPES, oid)}
        return [replace(TableColumn(*row), below=below[row[0]]) for row in rows]

    def why_not_accepted(self, oid: int, schema: t.StructType, *, add: bool) -> list[str]:
        """Returns why the table does not accept rows with these columns. Each reason comes with the statement that
        solves it. With `add`, missing columns are no reason, because the publication adds them.
        """
        table, columns = self.altered(oid), self.columns(oid)
        return column_differences(table, schema, columns, add=add) or why_not_converted(
            self.session, table, schema, columns
        )

    def altered(self, oid: int) -> str:
        """Returns the quoted table whose columns a person can change. For a partition, this is the partitioned table."""
        found = self._run(
            "SELECT n.nspname::text, c.relname::text FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n "
            "ON n.oid = c.relnamespace WHERE c.oid = coalesce(pg_partition_root($1::bigint::oid::regclass), $1::bigint::oid)",
            oid,
        )
        return quoted(*found[0])

    def is_partitioned(self, oid: int) -> bool:
        """Returns whether the table is partitioned."""
        return bool(self._run("SELECT relkind = 'p' FROM pg_catalog.pg_class WHERE oid = $1::bigint::oid", oid)[0][0])

    def unindexed(self, oid: int) -> list[str]:
        """Returns the quoted tables that have rows but no index on the interval. These are the table itself, its
        partitions and its children.

        Only a valid B-tree over all rows counts, whose first key is the interval itself. An index that is still being
        built, or whose build failed, is not valid.
        """
        return [name for (name,) in self._run(UNINDEXED, oid, INTERVAL)]

    def without_partition(self, oid: int, starts: Collection[datetime]) -> set[datetime]:
        """Returns the intervals without a partition. There are none for a table that has no partitions.

        Intervals whose partition depends on other columns too are left out.
        """
        bounds = [constraint for (constraint,) in self._run(BOUNDS, oid, INTERVAL)]
        if not starts or None in bounds:
            return set()
        takes = " OR ".join(f"({constraint}) IS NOT FALSE" for constraint in bounds) or "false"
        found = self._run(
            f"SELECT {quoted(INTERVAL)} FROM (SELECT text::timestamptz AS {quoted(INTERVAL)} FROM jsonb_array_elements_text("
            f"$1::jsonb) AS t (text)) AS r WHERE NOT ({takes})",
            json.dumps([start.isoformat() for start in starts]),
        )
        return {row[0] for row in found}

    def create(self, columns: str) -> None:
        """Creates the output table, with an index on its intervals. The table's replica identity is all columns, so its
        rows can be removed even if logical replication publishes the table.
        """
        self._run(f"CREATE TABLE {self.quoted} ({columns})")
        self._run(f"ALTER TABLE {self.quoted} REPLICA IDENTITY FULL")
        self._run(f"CREATE INDEX ON {self.quoted} ({quoted(INTERVAL)})")

    def add_columns(self, columns: dict[str, str]) -> None:
        """Adds these columns to the table. The values are the columns' types."""
        added = ", ".join(f"ADD COLUMN {quoted(name)} {kind}" for name, kind in columns.items())
        if added:
            self._run(f"ALTER TABLE {self.quoted} {added}")

    def why_not_made(self) -> str:
        """Returns why the user cannot create tables in the schema. The text is empty if the user can."""
        found = self._run(
            "SELECT has_schema_privilege(oid, 'CREATE') FROM pg_catalog.pg_namespace WHERE nspname = $1::name",
            self.schema,
        )
        if not found:
            return f"there is no schema {self.schema}: CREATE SCHEMA {quoted(self.schema)}"
        if not found[0][0]:
            return f"the user may not create tables in schema {self.schema}: `fencepost acls` prints the rights that it needs"
        return ""

    def lock_table(self) -> None:
        """Locks the table so that it is neither dropped nor created again. The table's partitions are not locked, so
        publications do not wait for sessions that use other partitions.
        """
        self._run(f"LOCK TABLE ONLY {self.quoted} IN ROW EXCLUSIVE MODE")

    def lock_row(self, start: datetime) -> IntervalRow:
        """Locks the interval's row and returns it. A missing row is inserted first. The insert waits for another
        session that inserts the same row.
        """
        self._run(
            f"INSERT INTO {self._batches} (table_name, interval_start) VALUES ($1, $2::timestamptz) "
            "ON CONFLICT (table_name, interval_start) DO NOTHING",
            self.table,
            start,
        )
        locked = (
            f"SELECT {HELD} FROM {self._batches} WHERE table_name = $1 AND interval_start = $2::timestamptz FOR UPDATE"
        )
        return _held(self._run(locked, self.table, start)[0])

    def row(self, start: datetime) -> IntervalRow:
        """Returns the interval's committed row."""
        found = self._run(
            f"SELECT {HELD} FROM {self._batches} WHERE table_name = $1 AND interval_start = $2::timestamptz",
            self.table,
            start,
        )
        return _held(found[0]) if found else IntervalRow(start)

    def rows(self) -> list[IntervalRow]:
        """Returns the committed rows of all intervals."""
        found = self._run(
            f"SELECT {HELD} FROM {self._batches} WHERE table_name = $1 ORDER BY interval_start", self.table
        )
        return [_held(row) for row in found]

    def named(self) -> Iterator[str]:
        """Returns the name of the last committed batch of each interval."""
        found = self._run(
            f"SELECT batch FROM {self._batches} WHERE table_name = $1 AND revisions <> '{{}}' AND batch <> ''",
            self.table,
        )
        return (row[0] for row in found)

    def filled(self, oid: int) -> set[datetime]:
        """Returns the starts of the intervals that have rows in the table. It makes a step in the index for each
        interval, or reads the table.
        """
        column = quoted(INTERVAL)
        if self.unindexed(oid):
            found = self._run(f"SELECT DISTINCT CASE WHEN {IS_A_START} THEN {column} END FROM {self.quoted}")
            return {row[0] for row in found} - {None}
        # One step in the index, whatever its order.
        next_one = f"SELECT min({column}) FROM {self.quoted} WHERE {IS_A_START}"
        found = self._run(
            f"WITH RECURSIVE starts (start) AS ({next_one} UNION ALL SELECT ({next_one} AND {column} > starts.start) "
            "FROM starts WHERE starts.start IS NOT NULL) SELECT start FROM starts WHERE start IS NOT NULL"
        )
        return {row[0] for row in found}

    def remove(self, batch: Batch, keys: tuple[str, str] | None = None) -> None:
        """Removes the rows that the batch replaces. A revision replaces all rows of its interval. An addition replaces
        only the rows of its own revision number.

        `keys` are columns, and the quoted table that gets their values in the removed rows, each once.
        """
        of_addition = f" AND {quoted(REVISION)} = {batch.revision}" if batch.adds_to is not None else ""
        statement = f"DELETE FROM {self.quoted} WHERE {quoted(INTERVAL)} = $1::timestamptz{of_addition}"
        if keys is not None:
            columns, into = keys
            statement = (
                f"WITH gone AS ({statement} RETURNING {columns}) INSERT INTO {into} SELECT DISTINCT {columns} FROM gone"
            )
        self._run(statement, batch.interval.start)

    def count(self, start: datetime) -> dict[int, int]:
        """Returns the number of the interval's rows, by revision."""
        found = self._run(
            f"SELECT {quoted(REVISION)}, count(*) FROM {self.quoted} WHERE {quoted(INTERVAL)} = $1::timestamptz GROUP BY 1",
            start,
        )
        return dict(found)

    def read(self, start: datetime, revision: int, columns: str) -> pa.Table:
        """Returns the rows of a revision of the interval with this start."""
        # The driver runs a statement without values as a COPY, in batches.
        return self.session.arrow_table(
            f"SELECT {columns} FROM {self.quoted} WHERE {quoted(INTERVAL)} = '{start.isoformat()}'::timestamptz "
            f"AND {quoted(REVISION)} = {revision}"
        )

    def what_acts(self) -> str:
        """Returns the triggers and rules of the table, its partitions and its children, by name. The text is empty if
        there are none.
        """
        found = self._run(
            f"{BELOW} SELECT 'trigger ' || tgname FROM pg_catalog.pg_trigger WHERE tgrelid IN (SELECT oid FROM below) AND NOT "
            "tgisinternal AND tgparentid = 0 UNION SELECT 'rule ' || rulename FROM pg_catalog.pg_rewrite WHERE ev_class IN "
            "(SELECT oid FROM below) ORDER BY 1",
            self.oid(),
        )
        return ", ".join(row[0] for row in found)

    def grown(self) -> int | None:
        """Returns by how many rows this transaction has made the table longer, by the server's counters. Returns None
        if the counters are off.
        """
        found = self._run(
            f"{BELOW} SELECT sum(pg_stat_get_xact_tuples_inserted(oid) - pg_stat_get_xact_tuples_deleted(oid))::bigint "
            "FROM below WHERE current_setting('track_counts')::boolean",
            self.oid(),
        )
        return found[0][0]  # type: ignore[no-any-return]

    def record(
        self,
        batch: Batch,
        publication: TablePublication,
        revisions: Mapping[int, Committed],
        sources: str,
        keys: CurrentKeys | None,
    ) -> None:
        """Records in the interval's row that the publication is committed, and what it did in the current table."""
        verdict = str(batch.verdict.outcome) if batch.verdict else ""
        self._run(
            f"UPDATE {self._batches} SET interval_end = $1::timestamptz, ledger = $2, lease = $3, closed = false, refused = '', "
            "batch = $4, revisions = $5::jsonb, rows = $6, fingerprint = $7::numeric, sources = $8::jsonb, verdict = $9, "
            "changed_at = now(), keys = $10::jsonb WHERE table_name = $11 AND interval_start = $12::timestamptz",
            batch.interval.end,
            publication.ledger,
            publication.require_lease,
            str(batch.id),
            json.dumps({number: one._asdict() for number, one in revisions.items()}),
            sum(one.rows for one in revisions.values()),
            str(batch.require_written.fingerprint),
            sources,
            verdict,
            keys.model_dump_json() if keys is not None else None,
            self.table,
            batch.interval.start,
        )

    def close(self, batch: Batch, publication: TablePublication, refused: str) -> None:
        """Records in the interval's row that the publication was given up. The row's revisions do not change."""
        self._run(
            f"UPDATE {self._batches} SET ledger = $1, lease = $2, closed = true, refused = $3, changed_at = now() "
            "WHERE table_name = $4 AND interval_start = $5::timestamptz",
            publication.ledger,
            publication.require_lease,
            refused,
            self.table,
            batch.interval.start,
        )


def _held(row: tuple[Any, ...]) -> IntervalRow:
    start, end, ledger, lease, closed, refused, revisions, keys = row
    committed = {int(number): Committed(**one) for number, one in json.loads(revisions).items()}
    current = CurrentKeys.model_validate_json(keys) if keys is not None else None
    return IntervalRow(start, end, ledger, lease, closed, refused, committed, current)


def current_of(oid: int | None, text: str) -> RegisteredCurrent:
    """Parses column `current` of a current table with that number."""
    said = json.loads(text)
    basis = CurrentBasis(said["history"], oid, said.get("history_oid"), said.get("digest", ""))
    return RegisteredCurrent(basis, said.get("stale", ""))
