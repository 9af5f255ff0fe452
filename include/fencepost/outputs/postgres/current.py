"""The current table of an output table: it is registered, and computed in the commit of each publication.

The order within a commit matters. New columns are added to both tables first. The keys of removed rows and of copied rows
are collected as the output table changes. Then the current table's row in `fencepost_tables` is locked, by a statement of
its own. Only after that the touched keys are computed, so that each publication sees what all earlier ones have committed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pyspark.sql import types as t

from fencepost.config.pipeline import Pipeline
from fencepost.counts import count_of
from fencepost.errors import TableRefused, TableUnavailable
from fencepost.failpoints import reached
from fencepost.model import Batch
from fencepost.outputs.postgres import current_sql
from fencepost.outputs.postgres.bookkeeping import Bookkeeping
from fencepost.outputs.postgres.columns import missing
from fencepost.outputs.postgres.current_checks import (
    has_index,
    has_rows,
    shape_of,
    types_of,
    why_not_between,
    why_not_columns,
    why_not_current,
    why_not_history,
)
from fencepost.outputs.postgres.current_rows import CurrentRow, check_reserved, record, reserve
from fencepost.outputs.postgres.current_sql import ADDED, CHANGED, DELETED, SAME, CurrentShape
from fencepost.outputs.postgres.identifiers import BOOKKEEPING_TABLES, quoted
from fencepost.outputs.postgres.lock import lock_current
from fencepost.outputs.postgres.settings import CurrentSettings, PostgresSettings
from fencepost.outputs.table.current import (
    NOT_COMPUTED,
    PUBLISHED_WITHOUT,
    CurrentBasis,
    RegisteredCurrent,
    digest_of,
    why_stale,
)
from fencepost.outputs.table.pipeline_table import Owner
from fencepost.outputs.table.revisions import IntervalRow
from fencepost.outputs.table.revisions import rows_of as rows_by_revision
from fencepost.outputs.table.values import RESERVED_COLUMNS, CurrentKeys
from fencepost.postgres.connection import StatementFailed

log = logging.getLogger("fencepost.outputs.postgres")
BATCHES = BOOKKEEPING_TABLES[1]


class KeysRefused(Exception):
    """The rows cannot have a current table. The message has no data of a row."""

    def __init__(self, table: str, why: str) -> None:
        super().__init__(why)
        self.table = table


class CurrentRefused(Exception):
    """The server refused a statement that changes the current table. With `removing`, it refused to delete keys."""

    def __init__(self, failed: StatementFailed, table: str, oid: int, *, removing: bool) -> None:
        super().__init__(failed.sqlstate)
        self.failed, self.table, self.oid, self.removing = failed, table, oid, removing


def current_settings(pipeline: Pipeline, table: str) -> CurrentSettings | None:
    """Returns the settings of the current table of this output table, or None if it has none. A batch may still go to an
    earlier output table of the pipeline, which has none.
    """
    output = pipeline.output
    return output.current if isinstance(output, PostgresSettings) and output.table == table else None


class CurrentTable:
    """The current table of an output table, in the transaction of its `history`."""

    def __init__(self, history: Bookkeeping, settings: CurrentSettings, owner: Owner) -> None:
        self.history, self.settings, self._owner = history, settings, owner
        self._tx = history.session
        self.table = Bookkeeping(history.session, settings.table)

    def reserve(self, *, moved: bool = False) -> None:
        """Registers the table for this owner, even before it exists. Raises the errors of `current_rows.reserve`."""
        reserve(self.table, self._owner, self.history.table, moved=moved)

    def check_reserved(self) -> None:
        """Checks that the table belongs to this owner, as far as the store knows it."""
        check_reserved(self.table.table, self._owner, self.table.registered())

    def why_not(self) -> list[str]:
        """Returns why the tables that exist cannot be a history and its current table."""
        found, oid, own = list[str](), self.history.oid(), self.table.oid()
        if oid is not None:
            found += why_not_history(self._tx, self.history, oid, self.settings)
        if own is not None:
            found += why_not_current(self._tx, self.table, own, self.settings)
        return found

    def why_not_rows(self, schema: t.StructType, *, adds: bool) -> list[str]:
        """Returns why rows with these columns cannot be in the current table. With `adds`, a publication adds columns."""
        found, oid, own = why_not_columns(self.settings, schema), self.history.oid(), self.table.oid()
        if not found and oid is not None and own is not None:
            new = [*missing(schema, self.table.columns(own))] if adds else []
            found = why_not_between(self.history, oid, self.table, own, self.settings, schema.fieldNames(), new)
        return found

    def settle(self, schema: t.StructType) -> None:
        """Creates the current table and the index of an empty history, if they are missing. Records what the table is
        computed from, the first time.

        A table is stale from the beginning unless both tables are empty. So it can be added to a history of years.
        """
        registered = self.table.registered()
        if (oid := self.history.oid()) is None or registered is None or registered.current is None:
            return
        if self.table.oid() is None:
            if why := self.table.why_not_made():
                raise TableRefused(f"current table {self.table.table} does not exist, and {why}.")
            self._create(schema)
        own = self.table.oid()
        assert own is not None, "the table was created"
        known = registered.current.basis
        if known.oid == own and known.history_oid == oid and has_index(self._tx, oid, self.settings):
            return
        # So that no publication commits between the look at the tables and the record of it.
        self._tx.run(f"LOCK TABLE ONLY {self.history.quoted} IN SHARE MODE")
        is_empty = not has_rows(self._tx, self.history)
        if is_empty and not has_index(self._tx, oid, self.settings):
            columns = ", ".join(map(quoted, (*self.settings.key, *self.settings.order_by)))
            self._tx.run(f"CREATE INDEX ON {self.history.quoted} ({columns})")
        is_empty = is_empty and not has_rows(self._tx, self.table)
        registered = self.table.registered()  # a rebuild may have ended meanwhile
        is_new = registered is None or registered.current is None or registered.current.basis.oid is None
        if is_new or is_empty:
            record(self.table, RegisteredCurrent(self.basis(), "" if is_empty else NOT_COMPUTED))

    def _create(self, schema: t.StructType) -> None:
        """Creates the table with the columns of the result, in the types of the history. `deleted` is left out, since it is
        true in no row.
        """
        named = {*self.settings.key, *self.settings.order_by}
        there = {column.name for column in self.history.columns(self.history.oid() or 0)}
        names = [field.name for field in schema.fields if field.name in there and field.name != self.settings.deleted]
        names += [name for name in RESERVED_COLUMNS if name in named]
        columns, key = (", ".join(map(quoted, some)) for some in (names, self.settings.key))
        self._tx.run(f"CREATE TABLE {self.table.quoted} AS SELECT {columns} FROM {self.history.quoted} WITH NO DATA")
        self._tx.run(f"ALTER TABLE {self.table.quoted} ADD PRIMARY KEY ({key})")
        log.info("current table %s was created with columns %s", self.table.table, columns)

    def check_keys(self, nulls: tuple[bool, ...], whose: str) -> None:
        """Raises KeysRefused if a column of key or order is null in a row. `whose` rows they are is for the message."""
        settings = self.settings
        columns = [name for name, found in zip((*settings.key, *settings.order_by), nulls, strict=True) if found]
        if columns:
            why = f"{whose} has a null in column {', '.join(columns)}, which is in key or order_by"
            raise KeysRefused(settings.table, why)

    def check_ties(self, ties: int, whose: str) -> None:
        """Raises KeysRefused if there are different rows of one key and one order."""
        settings = self.settings
        if ties:
            raise KeysRefused(
                settings.table,
                f"{whose} has {count_of(ties, 'row')} that a different row has the same {', '.join(settings.key)} and the same "
                f"{', '.join(settings.order_by)} as, so neither is the newest. Add a column that tells them apart to order_by",
            )

    def shape(self) -> CurrentShape:
        """Returns the shape of both tables, which exist."""
        return shape_of(self.history, self.table, self.settings)

    def basis(self) -> CurrentBasis:
        """Returns what the current table would be computed from now."""
        oid, own = self.history.oid(), self.table.oid()
        if oid is None or own is None:
            return CurrentBasis(self.history.table, own, oid)
        shape, settings = self.shape(), self.settings
        named = [*shape.columns, *settings.order_by, *([settings.deleted] if settings.deleted else [])]
        columns = [types_of(self.history, oid, named), types_of(self.table, own, shape.columns)]
        return CurrentBasis(
            self.history.table, own, oid, digest_of(columns, settings.key, settings.order_by, settings.deleted)
        )


@dataclass
class CurrentCommit:
    """The part of a publication that is about the current tables of its output table."""

    pipeline: Pipeline
    current: CurrentTable | None  # the one that `output.current` names
    history: Bookkeeping
    batch: Batch
    interval_row: IntervalRow
    same: tuple[str, ...] = ()  # digests that count as the present one
    is_whole: bool = True  # whether the interval had its published rows before this publication

    @classmethod
    def of(
        cls, pipeline: Pipeline, owner: Owner, history: Bookkeeping, batch: Batch, interval_row: IntervalRow
    ) -> CurrentCommit:
        """Returns the part of a publication of this batch, which has locked its interval's row."""
        settings = current_settings(pipeline, history.table)
        current = CurrentTable(history, settings, owner) if settings is not None else None
        return cls(pipeline, current, history, batch, interval_row)

    def lock_table(self) -> bool:
        """Locks the current table so that it is not dropped or swapped. Returns whether it is registered and exists, or is
        not needed.
        """
        if self.current is None:
            return True
        table = self.current.table
        if table.registered() is None or table.oid() is None:
            return False
        table.lock_table()
        return True

    def begin(self) -> None:
        """Looks whether the interval has the rows that were published, and makes the table of touched keys."""
        if self.current is None:
            return
        counted = self.history.count(self.batch.interval.start)
        self.is_whole = counted == rows_by_revision(self.interval_row.revisions)
        self.history.session.run(current_sql.make_keys(self.current.shape()))

    def add_columns(self, schema: t.StructType, added: Mapping[str, str]) -> None:
        """Adds new columns of the result to the current table. `added` are those that the output table is about to get.

        Columns that both tables get are null in all rows of both, so the digest without them counts as the present one.
        """
        if self.current is None:
            return
        table, left_out = self.current.table, self.current.settings.deleted
        lacking = missing(schema, table.columns(table.oid() or 0))
        new = {name: kind for name, kind in lacking.items() if name not in RESERVED_COLUMNS and name != left_out}
        if {name for name in added if name != left_out} == new.keys():
            self.same = (self.current.basis().digest,)
        table.add_columns(new)

    @property
    def keys(self) -> tuple[str, str] | None:
        """Returns the key's columns and the table that collects the keys of removed rows, or None if none are collected."""
        return (self.current.shape().key_columns, current_sql.KEYS) if self.current is not None else None

    def finish(self) -> CurrentKeys | None:
        """Locks the current tables of the output table, and brings the configured one up to date. Returns what it did
        there, or None if the table is not configured or is stale.

        Raises:
            KeysRefused: the batch has a null in key or order, or two different rows of one key and one order.
            CurrentRefused: the server refuses a change of the current table.
            TableRefused: the current table belongs to another owner, or does not keep what is written.
        """
        configured = self.current.table.table if self.current is not None else None
        rows = lock_current(self.pipeline, self.history, configured)
        if configured is not None and configured not in {row.name for row in rows}:
            raise TableUnavailable(
                f"current table {configured} is no longer registered in fencepost_tables. Run again."
            )
        reached("current.locked")
        done = None
        for row in rows:
            if self.current is not None and row.name == configured:
                done = self._brought_up_to_date(self.current, row)
            elif not row.registered.stale:
                self._mark(Bookkeeping(self.history.session, row.name), row.registered, PUBLISHED_WITHOUT)
        return done

    def _brought_up_to_date(self, current: CurrentTable, row: CurrentRow) -> CurrentKeys | None:
        current.check_reserved()
        basis = current.basis()
        if why := why_stale(row.registered, basis, self.same, self._lacking()):
            if not row.registered.stale:
                self._mark(current.table, row.registered, why)
            return None
        if row.registered.basis != basis:
            record(current.table, RegisteredCurrent(basis))
        run, shape = self.history.session.run, current.shape()
        start, revision = self.batch.interval.start, self.batch.revision
        run(current_sql.look_up_only())
        run(current_sql.add_brought(shape, revision), start)
        current.check_keys(run(current_sql.nulls(shape, revision), start)[0], "the batch")
        current.check_ties(run(current_sql.ties(shape, revision), start)[0][0], "the batch")
        run(current_sql.compare_touched(shape))
        return apply_changes(current, shape)

    def _lacking(self) -> int:
        """Returns the number of published intervals whose rows the history lacks, by the rows before this publication."""
        batches = quoted(self.history.schema, BATCHES)
        statement = current_sql.lacking(self.history.quoted, batches)
        ((others,),) = self.history.session.run(statement, self.history.table, self.batch.interval.start)
        return int(others) + (not self.is_whole)

    def _mark(self, table: Bookkeeping, registered: RegisteredCurrent, why: str) -> None:
        log.warning("current table %s is stale: %s", table.table, why)
        record(table, replace(registered, stale=why))


def apply_changes(current: CurrentTable, shape: CurrentShape) -> CurrentKeys:
    """Makes the changes in the table of changes: deletes, then updates, then inserts. Returns their numbers.

    Raises:
        CurrentRefused: the server refuses a change.
        TableRefused: a trigger or a rule keeps the table from having what it was told.
    """
    tx, oid = current.history.session, current.table.oid()
    assert oid is not None, "the table is locked"
    counts = dict(tx.run(current_sql.COUNT))
    acts = current.table.what_acts()
    with _refusals(current.table.table, oid, removing=True):
        tx.run(current_sql.delete(shape))
    reached("current.deleted")
    with _refusals(current.table.table, oid):
        tx.run(current_sql.update(shape))
        tx.run(current_sql.insert(shape))
    if acts and (wrong := tx.run(current_sql.differing(shape))[0][0]):
        raise TableRefused(
            f"current table {current.table.table} has {acts}, and with them {count_of(wrong, 'key')} would not be as the output "
            "table has them. Nothing was changed. Remove those that keep, change, add or leave out rows, and run again."
        )
    reached("current.changed")
    return CurrentKeys(
        table=current.table.table,
        deleted=counts.get(DELETED, 0),
        changed=counts.get(CHANGED, 0) + counts.get(ADDED, 0),
        same=counts.get(SAME, 0),
    )


@contextmanager
def _refusals(table: str, oid: int, *, removing: bool = False) -> Iterator[None]:
    try:
        yield
    except StatementFailed as failed:
        if failed.is_of_rows:
            raise CurrentRefused(failed, table, oid, removing=removing) from None
        raise
