"""Computes a current table from all of its history, for `fencepost current --rebuild`."""

from __future__ import annotations

import logging
from collections.abc import Callable

from fencepost.errors import TableRefused, TruncationsRefused
from fencepost.outputs.postgres import current_sql
from fencepost.outputs.postgres.bookkeeping import Bookkeeping
from fencepost.outputs.postgres.current import (
    CurrentRefused,
    CurrentTable,
    KeysRefused,
    apply_changes,
)
from fencepost.outputs.postgres.current_rows import record
from fencepost.outputs.postgres.lock import lock_current
from fencepost.outputs.postgres.refusals import refusal_of
from fencepost.outputs.postgres.settings import CurrentSettings
from fencepost.outputs.postgres.shape import TableShape
from fencepost.outputs.table.comparison import TableComparison, listed
from fencepost.outputs.table.current import (
    RegisteredCurrent,
    describe_stale,
    describe_truncated,
    truncated_intervals,
)
from fencepost.outputs.table.pipeline_table import PipelineTable
from fencepost.outputs.table.staged_rows import newest_value_schema
from fencepost.outputs.table.values import CurrentKeys
from fencepost.postgres.connection import Session, asking, describe_server, session
from fencepost.protocol.view import View

log = logging.getLogger("fencepost.outputs.postgres")


class PostgresCurrent:
    """The `Current` of a PostgreSQL table. `compare` compares the output table with the ledger."""

    def __init__(
        self,
        of: PipelineTable,
        shape: TableShape,
        settings: CurrentSettings,
        compare: Callable[[Callable[[], View]], TableComparison],
    ) -> None:
        self._of, self._shape, self._settings, self._compare = of, shape, settings, compare

    def why_stale(self) -> str:
        """Returns why the current table is stale, with the next step. The text is empty if it is not stale."""
        with asking(self._of.pipeline) as tx:
            is_prepared = Bookkeeping(tx, self._of.name).is_prepared()
            known = Bookkeeping(tx, self._settings.table).registered() if is_prepared else None
        stale = known.current.stale if known is not None and known.current is not None else ""
        return describe_stale(self._of.pipeline.name, self._settings.table, stale)

    def describe_truncated(self, view: View) -> str:
        """Returns the sentence about published truncations, if the settings refuse such batches. Otherwise the text is
        empty.
        """
        pipeline = self._of.pipeline
        why = next(filter(None, map(pipeline.why_truncations_fail, pipeline.sources.values())), "")
        return describe_truncated(truncated_intervals(view, self._of.name), why)

    def rebuild(self, read: Callable[[], View]) -> str:
        """Computes the current table from all rows of the output table. Creates it if it is missing."""
        view = read()
        if truncated := self.describe_truncated(view):
            raise TruncationsRefused(
                f"{_of(self._of, self._settings)} cannot be computed: {truncated}. Set source.truncations to drop in "
                "pipeline.yaml to keep these rows until the topic has their deletions."
            )
        self._shape.prepare()
        self._shape.settle_current(newest_value_schema(view))
        if missing := self._compare(read).missing_batches:
            raise TableRefused(
                f"{_of(self._of, self._settings)} cannot be computed from table {self._of.name}: {missing}."
            )
        return str(rebuild(self._of, self._settings))


def rebuild(of: PipelineTable, settings: CurrentSettings) -> CurrentKeys:
    """Computes all keys from the history, and changes the rows that differ. The current table is not stale afterwards.

    1. lock both tables so that they are not dropped or swapped, then the current table's row. Publications wait from here;
    2. check that the history has exactly the published rows, and that its rows have an order;
    3. compare all keys, and delete, update and insert the rows that differ;
    4. record what the table was computed from, and commit.

    Raises:
        TableRefused: the history lacks rows, or the tables cannot be a history and its current table.
    """
    try:
        with session(of.pipeline) as tx:
            history = Bookkeeping(tx, of.name)
            current = CurrentTable(history, settings, of.owner)
            _lock(of, current)  # 1
            _check(of, current)  # 2
            shape = current.shape()
            tx.run(current_sql.compare_all(shape))  # 3
            done = apply_changes(current, shape)
            record(current.table, RegisteredCurrent(current.basis()))  # 4
            tx.commit()
    except KeysRefused as refused:
        raise TableRefused(f"{_of(of, settings)}: {refused}. Nothing was changed.") from None
    except CurrentRefused as refused:
        with session(of.pipeline) as tx:
            why = refusal_of(tx, refused.oid, refused.failed, removing=refused.removing, is_current=True).why
        raise TableRefused(f"{_of(of, settings)}: {why}. Nothing was changed.") from None
    log.info("current table %s was computed: %s", settings.table, done)
    return done


def _lock(of: PipelineTable, current: CurrentTable) -> None:
    history, table, tx = current.history, current.table, current.history.session
    for bookkeeping, mode in ((history, "ACCESS SHARE"), (table, "ROW EXCLUSIVE")):
        if bookkeeping.oid() is None:
            raise TableRefused(
                f"{describe_server(of.pipeline)}: table {bookkeeping.table} does not exist yet. Run an interval."
            )
        _lock_table(tx, bookkeeping, mode)
    lock_current(of.pipeline, history, table.table)
    current.check_reserved()


def _lock_table(tx: Session, table: Bookkeeping, mode: str) -> None:
    tx.run(f"LOCK TABLE ONLY {table.quoted} IN {mode} MODE")


def _check(of: PipelineTable, current: CurrentTable) -> None:
    history, tx = current.history, current.history.session
    where = _of(of, current.settings)
    if why := current.why_not():
        raise TableRefused(f"{where} cannot be kept: {'; '.join(why)}. Change the table, and run again.")
    if differs := history.differences():
        raise TableRefused(
            f"{where} cannot be computed, because table {of.name} does not have the rows that were published there: "
            f"{listed(differs)}. `fencepost doctor {of.pipeline.name}` names the commands that repair it."
        )
    shape = current.shape()
    current.check_keys(tx.run(current_sql.nulls(shape, None))[0], "the output table")
    current.check_ties(tx.run(current_sql.all_ties(shape))[0][0], "the output table")


def _of(of: PipelineTable, settings: CurrentSettings) -> str:
    return f"pipeline {of.pipeline.name}: current table {settings.table}"
