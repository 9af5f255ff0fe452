"""What a store of output tables keeps of them: two tables in the schema of each output table, and their statements.

`fencepost_tables` has a row for each output table: its owner, a pipeline, and its identity. `fencepost_batches` has one for each
table and interval, by the interval's start: `protocol/store.py` says what it means.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from fencepost.config.table_rights import quoted
from fencepost.errors import StoreRefused
from fencepost.model import Batch, TablePublication
from fencepost.outputs.columns import INTERVAL, REVISION, TableColumn
from fencepost.outputs.connection import Session
from fencepost.protocol.store import Held

TABLES = """(
    name text PRIMARY KEY, pipeline text NOT NULL, identity text NOT NULL, oid bigint,
    made_at timestamp with time zone NOT NULL DEFAULT now())"""
BATCHES = """(
    table_name text, interval_start timestamp with time zone, interval_end timestamp with time zone,
    identity text NOT NULL DEFAULT '', ledger text NOT NULL DEFAULT '', lease bigint NOT NULL DEFAULT -1,
    closed boolean NOT NULL DEFAULT false, refused text NOT NULL DEFAULT '', batch text NOT NULL DEFAULT '',
    revisions integer[] NOT NULL DEFAULT '{}', rows bigint NOT NULL DEFAULT 0, fingerprint numeric NOT NULL DEFAULT 0,
    sources jsonb, verdict text NOT NULL DEFAULT '', changed_at timestamp with time zone NOT NULL DEFAULT now(),
    PRIMARY KEY (table_name, interval_start))"""
HELD = "interval_start, interval_end, identity, ledger, lease, closed, refused, array_to_string(revisions, ','), rows"
INDEXED = """WITH RECURSIVE tree (oid) AS (
    SELECT $1::bigint::oid UNION SELECT i.inhrelid FROM pg_catalog.pg_inherits AS i JOIN tree ON i.inhparent = tree.oid)
SELECT coalesce(bool_and(EXISTS (
    SELECT 1 FROM pg_catalog.pg_index AS i
    JOIN pg_catalog.pg_class AS x ON x.oid = i.indexrelid
    JOIN pg_catalog.pg_am AS m ON m.oid = x.relam
    JOIN pg_catalog.pg_opclass AS o ON o.oid = i.indclass[0]
    JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
    WHERE i.indrelid = c.oid AND a.attname = $2::name AND m.amname = 'btree' AND o.opcdefault
    AND i.indpred IS NULL AND i.indisvalid AND i.indisready AND i.indislive)), true)
FROM tree JOIN pg_catalog.pg_class AS c ON c.oid = tree.oid WHERE c.relkind <> 'p'"""
MADE_MEANWHILE = {"23505", "42P07"}  # what CREATE … IF NOT EXISTS says where another session was faster


@dataclass(frozen=True)
class Registered:
    """An output table as the store knows it. `oid` is None where the table does not exist."""

    identity: str
    oid: int | None
    pipeline: str = ""


class Store:
    """The store's tables beside one output table, in one transaction."""

    def __init__(self, session: Session, table: str) -> None:
        self._run, self.session = session.run, session
        self.table = table
        self.schema, self.name = table.split(".", 1)
        self.quoted = f"{quoted(self.schema)}.{quoted(self.name)}"
        self._tables = f"{quoted(self.schema)}.fencepost_tables"
        self._batches = f"{quoted(self.schema)}.fencepost_batches"

    def is_prepared(self) -> bool:
        """Whether both tables are there."""
        return all(self._oid(name) is not None for name in (self._tables, self._batches))

    def prepare(self) -> None:
        """Make both tables if they are missing."""
        for name, columns in ((self._tables, TABLES), (self._batches, BATCHES)):
            if self._oid(name) is None:
                self._run(f"CREATE TABLE IF NOT EXISTS {name} {columns}")

    def registered(self, *, lock: bool = False) -> Registered | None:
        """What the store knows of the table; `lock` keeps it so until the transaction ends. None if it knows nothing."""
        share = " FOR SHARE" if lock else ""
        found = self._run(f"SELECT identity, oid, pipeline FROM {self._tables} WHERE name = $1{share}", self.table)
        return Registered(*found[0]) if found else None

    def oid(self) -> int | None:
        """The table's present oid; None if it does not exist."""
        return self._oid(self.quoted)

    def _oid(self, name: str) -> int | None:
        found: int | None = self._run("SELECT to_regclass($1)::oid::bigint", name)[0][0]
        return found

    def register(self, pipeline: str) -> Registered:
        """The table as this pipeline's own.

        Raises:
            StoreRefused: it is another's, or has rows that nobody published.
        """
        known, oid = self.registered(), self.oid()
        if known is None or (known.oid != oid and known.pipeline == pipeline):
            self._run(
                f"INSERT INTO {self._tables} (name, pipeline, identity) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
                self.table,
                pipeline,
                str(uuid.uuid4()),
            )
            self._run(f"SELECT 1 FROM {self._tables} WHERE name = $1 FOR UPDATE", self.table)
            known, oid = self.registered(), self.oid()
        assert known is not None
        if why := self.why_not_of(pipeline, known, oid):
            raise StoreRefused(why)
        if known.oid == oid:
            return known
        # Its first appearance makes no other table of it: batches without rows may have been published before there was one.
        identity = known.identity if known.oid is None else str(uuid.uuid4())
        self._run(
            f"UPDATE {self._tables} SET oid = $1::bigint, identity = $2 WHERE name = $3", oid, identity, self.table
        )
        return Registered(identity, oid, pipeline)

    def why_not_of(self, pipeline: str, known: Registered | None, oid: int | None) -> str:
        """Why the table, known as that and with this oid, cannot be the pipeline's own; empty if it can, or is."""
        if known is not None and known.pipeline != pipeline:
            return (
                f"table {self.table} belongs to pipeline {known.pipeline}, and a table has one owner. Name another output.table; "
                f"or, if that pipeline is given up, delete its rows in {self._tables} and {self._batches}, and empty the table."
            )
        if oid is not None and (known is None or known.oid != oid) and self._has_rows():
            return (
                f"table {self.table} has rows that pipeline {pipeline} did not publish there. Name another output.table, or move "
                "them elsewhere and empty it. What was published of the pipeline comes back with `fencepost run --reprocess`."
            )
        return ""

    def _has_rows(self) -> bool:
        return bool(self._run(f"SELECT EXISTS (SELECT 1 FROM {self.quoted})")[0][0])

    def columns(self, oid: int) -> list[TableColumn]:
        """The table's columns, with the exact types of the catalogue."""
        rows = self._run(
            "SELECT attname::text, format_type(atttypid, atttypmod), NOT attnotnull OR atthasdef OR attidentity <> '', "
            "attgenerated <> '' OR attidentity = 'a' FROM pg_catalog.pg_attribute "
            "WHERE attrelid = $1::bigint::oid AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            oid,
        )
        return [TableColumn(*row) for row in rows]

    def is_partitioned(self, oid: int) -> bool:
        """Whether its rows are in partitions."""
        return bool(self._run("SELECT relkind = 'p' FROM pg_catalog.pg_class WHERE oid = $1::bigint::oid", oid)[0][0])

    def indexed(self, oid: int) -> bool:
        """Whether each table with its rows, which a partitioned table's partitions are, finds an interval by an index.

        That is a B-tree whose first key is the interval itself, over all rows, and which the server uses: not one that is still
        being made, or whose making failed.
        """
        return bool(self._run(INDEXED, oid, INTERVAL)[0][0])

    def invalid_index(self, oid: int) -> str:
        """An index of the table that would find an interval if its making had not failed, quoted; empty if there is none."""
        found = self._run(
            "SELECT x.oid::regclass::text FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS x ON x.oid = i.indexrelid "
            "JOIN pg_catalog.pg_am AS m ON m.oid = x.relam JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid "
            "AND a.attnum = i.indkey[0] WHERE i.indrelid = $1::bigint::oid AND x.relkind = 'i' AND a.attname = $2::name "
            "AND m.amname = 'btree' AND i.indpred IS NULL AND NOT i.indisvalid ORDER BY 1",
            oid,
            INTERVAL,
        )
        return str(found[0][0]) if found else ""

    def has_partition(self, oid: int, start: datetime) -> bool:
        """Whether some partition takes rows of the interval; True where that depends on other columns, and of a table without
        partitions."""
        if not self.is_partitioned(oid):
            return True
        tree = "pg_partition_tree($1::bigint::oid::regclass)"
        others = self._run(
            f"SELECT 1 FROM {tree} AS t JOIN pg_catalog.pg_partitioned_table AS p ON p.partrelid = t.relid "
            "CROSS JOIN unnest(p.partattrs::smallint[]) AS k (number) LEFT JOIN pg_catalog.pg_attribute AS a "
            "ON a.attrelid = p.partrelid AND a.attnum = k.number WHERE a.attname IS DISTINCT FROM $2::name",
            oid,
            INTERVAL,
        )
        if others:
            return True
        leaves = self._run(
            f"SELECT pg_get_partition_constraintdef(relid) FROM {tree} WHERE isleaf AND relid <> $1::bigint::oid", oid
        )
        row = f"(SELECT $1::timestamptz AS {INTERVAL}) AS r"
        return any(
            constraint is None or self._run(f"SELECT ({constraint}) IS NOT FALSE FROM {row}", start)[0][0]
            for (constraint,) in leaves
        )

    def create(self, columns: str) -> None:
        """Make the output table, with an index on its intervals. Its rows may be removed whatever publications of logical
        replication take it, now or later: it has a replica identity, all of its columns."""
        self._run(f"CREATE TABLE {self.quoted} ({columns})")
        self._run(f"ALTER TABLE {self.quoted} REPLICA IDENTITY FULL")
        self._run(f"CREATE INDEX ON {self.quoted} ({quoted(INTERVAL)})")

    def add_columns(self, columns: dict[str, str]) -> None:
        """Add columns to it."""
        added = ", ".join(f"ADD COLUMN {quoted(name)} {kind}" for name, kind in columns.items())
        if added:
            self._run(f"ALTER TABLE {self.quoted} {added}")

    def why_not_made(self) -> str:
        """Why the user cannot make tables in the schema; empty if it can."""
        found = self._run(
            "SELECT has_schema_privilege(oid, 'CREATE') FROM pg_catalog.pg_namespace WHERE nspname = $1::name",
            self.schema,
        )
        if not found:
            return f"there is no schema {self.schema}: CREATE SCHEMA {quoted(self.schema)}"
        if not found[0][0]:
            return f"the user may not make tables in schema {self.schema}: `fencepost acls` prints the rights that it needs"
        return ""

    def lock_table(self) -> None:
        """Keep it from being dropped, or made anew."""
        self._run(f"LOCK TABLE {self.quoted} IN ROW EXCLUSIVE MODE")

    def lock_row(self, start: datetime) -> Held:
        """The interval's row, locked; made if it is missing, which waits for whoever makes it at the same time."""
        self._run(
            f"INSERT INTO {self._batches} (table_name, interval_start) VALUES ($1, $2::timestamptz) ON CONFLICT DO NOTHING",
            self.table,
            start,
        )
        locked = (
            f"SELECT {HELD} FROM {self._batches} WHERE table_name = $1 AND interval_start = $2::timestamptz FOR UPDATE"
        )
        return _held(self._run(locked, self.table, start)[0])

    def row(self, start: datetime) -> Held:
        """The interval's row as it is committed."""
        found = self._run(
            f"SELECT {HELD} FROM {self._batches} WHERE table_name = $1 AND interval_start = $2::timestamptz",
            self.table,
            start,
        )
        return _held(found[0]) if found else Held(start)

    def rows(self) -> list[Held]:
        """The rows of all intervals, as they are committed."""
        found = self._run(
            f"SELECT {HELD} FROM {self._batches} WHERE table_name = $1 ORDER BY interval_start", self.table
        )
        return [_held(row) for row in found]

    def named(self, identity: str) -> Iterator[str]:
        """The batch that was committed last of each interval."""
        found = self._run(
            f"SELECT batch FROM {self._batches} WHERE table_name = $1 AND identity = $2 AND revisions <> '{{}}' AND batch <> ''",
            self.table,
            identity,
        )
        return (row[0] for row in found)

    def filled(self, *, indexed: bool) -> set[datetime]:
        """The intervals of which the table has a row, by start: by a step in the index for each, or by one read of the table."""
        column = quoted(INTERVAL)
        if not indexed:
            return {row[0] for row in self._run(f"SELECT DISTINCT {column} FROM {self.quoted}")}
        next_one = f"SELECT min({column}) FROM {self.quoted}"  # one step in the index, in whichever order that is
        found = self._run(
            f"WITH RECURSIVE starts (start) AS ({next_one} UNION ALL SELECT ({next_one} WHERE {column} > starts.start) "
            "FROM starts WHERE starts.start IS NOT NULL) SELECT start FROM starts WHERE start IS NOT NULL"
        )
        return {row[0] for row in found}

    def remove(self, batch: Batch) -> None:
        """Remove what the batch replaces: all rows of its interval, of an addition those of its own revision."""
        of_addition = f" AND {quoted(REVISION)} = {batch.revision}" if batch.adds_to is not None else ""
        self._run(
            f"DELETE FROM {self.quoted} WHERE {quoted(INTERVAL)} = $1::timestamptz{of_addition}", batch.interval.start
        )

    def count(self, start: datetime) -> dict[int, int]:
        """The rows of an interval, by revision."""
        found = self._run(
            f"SELECT {quoted(REVISION)}, count(*) FROM {self.quoted} WHERE {quoted(INTERVAL)} = $1::timestamptz GROUP BY 1",
            start,
        )
        return dict(found)

    def read(self, start: datetime, revision: int, columns: str) -> pa.Table:
        """The rows of a revision of the interval that starts then."""
        # The driver reads a statement without values as a copy, in batches.
        return self.session.table(
            f"SELECT {columns} FROM {self.quoted} WHERE {quoted(INTERVAL)} = '{start.isoformat()}'::timestamptz "
            f"AND {quoted(REVISION)} = {revision}"
        )

    def record(
        self, batch: Batch, publication: TablePublication, revisions: tuple[int, ...], rows: int, sources: str
    ) -> None:
        """Have the interval's row say that the publication is committed."""
        verdict = str(batch.verdict.outcome) if batch.verdict else ""
        self._run(
            f"UPDATE {self._batches} SET interval_end = $1::timestamptz, identity = $2, ledger = $3, lease = $4, "
            "closed = false, refused = '', batch = $5, revisions = $6::integer[], rows = $7, fingerprint = $8::numeric, "
            "sources = $9::jsonb, verdict = $10, changed_at = now() WHERE table_name = $11 AND interval_start = $12::timestamptz",
            batch.interval.end,
            publication.identity,
            publication.ledger,
            publication.known_lease,
            str(batch.id),
            "{" + ",".join(map(str, revisions)) + "}",
            rows,
            str(batch.known_written.fingerprint),
            sources,
            verdict,
            self.table,
            batch.interval.start,
        )

    def close(self, batch: Batch, publication: TablePublication, refused: str) -> None:
        """Have the interval's row say that the publication was given up. What it says of the table's rows stays as it is."""
        self._run(
            f"UPDATE {self._batches} SET ledger = $1, lease = $2, closed = true, refused = $3, changed_at = now() "
            "WHERE table_name = $4 AND interval_start = $5::timestamptz",
            publication.ledger,
            publication.known_lease,
            refused,
            self.table,
            batch.interval.start,
        )


def _held(row: tuple[Any, ...]) -> Held:
    start, end, identity, ledger, lease, closed, refused, revisions, rows = row
    numbers = tuple(int(n) for n in revisions.split(",") if n)
    return Held(start, end, identity, ledger, lease, closed, refused, numbers, rows)
