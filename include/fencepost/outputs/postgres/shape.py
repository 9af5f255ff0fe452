"""Checks that a table belongs to the pipeline and accepts rows with given columns. It creates the table if it is
missing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pyspark.sql import types as t

from fencepost.errors import AnotherCluster, TableRefused, TableUnavailable
from fencepost.model import Interval
from fencepost.outputs.postgres.bookkeeping import MADE_MEANWHILE, Bookkeeping, RegisteredTable
from fencepost.outputs.postgres.columns import INTERVAL, definition, missing, unsupported_columns
from fencepost.outputs.postgres.current import CurrentTable, current_settings
from fencepost.outputs.postgres.current_checks import why_not_columns
from fencepost.outputs.postgres.settings import PostgresSettings
from fencepost.outputs.postgres.table_checks import doubts, why_not_owned, why_not_published_to
from fencepost.outputs.table.pipeline_table import PipelineTable, check_owner
from fencepost.postgres.connection import Session, StatementFailed, asking, describe_server, session

log = logging.getLogger("fencepost.outputs.postgres")


class TableShape:
    """The `Columns` of a pipeline's table, and the reasons in the catalogue against a publication to the table."""

    def __init__(self, table: PipelineTable) -> None:
        self._of, self._pipeline, self._table = table, table.pipeline, table.name

    @property
    def adds(self) -> bool:
        """Returns whether a publication adds columns that the table lacks."""
        settings = self._pipeline.output
        return isinstance(settings, PostgresSettings) and settings.add_columns

    def prepare(self, *, moved: bool = False) -> None:
        """Creates the store's own tables, and registers the output table for this pipeline and cluster, even before it
        exists.

        `moved` says that the table was registered for the pipeline on another cluster, and that its owner may change.
        """
        for turn in (1, 2):
            try:
                with session(self._pipeline) as tx:
                    bookkeeping = Bookkeeping(tx, self._table)
                    try:
                        bookkeeping.prepare()
                        if why := bookkeeping.why_not_kept():
                            raise TableRefused(why)
                        if (oid := bookkeeping.oid()) is not None:
                            self._refuse_table(why_not_owned(tx, oid, self._of.owner))
                        bookkeeping.register(self._of.owner, moved=moved)
                        if (current := self._current(bookkeeping)) is not None:
                            current.reserve(moved=moved)
                            self._refuse_current(current, current.why_not())
                        tx.commit()
                        return
                    except StatementFailed as failed:
                        if turn > 1 or failed.sqlstate not in MADE_MEANWHILE:
                            raise
            except (TableRefused, AnotherCluster) as error:
                raise type(error)(f"pipeline {self._pipeline.name}: {error} Nothing was planned.") from None

    def check_result(self, interval: Interval, schema: t.StructType) -> None:
        """Creates the table for these columns if it is missing.

        Raises:
            TableRefused: the table does not accept the columns. The message has the statements to run.
        """
        self.refuse(unsupported_columns(schema))
        self.refuse(self._why_not_current_columns(schema))
        self.prepare()
        with session(self._pipeline) as tx:
            bookkeeping = Bookkeeping(tx, self._table)
            oid = bookkeeping.register(self._of.owner)
            if oid is None and schema.fields:
                try:
                    bookkeeping.create(definition(schema))
                except StatementFailed as failed:
                    if failed.sqlstate in MADE_MEANWHILE:
                        raise TableUnavailable(
                            f"{describe_server(self._pipeline)}: another session created table {self._table} at the "
                            "same time. Run again."
                        ) from None
                    raise
                oid = bookkeeping.register(self._of.owner)
                log.info("table %s was created with columns %s", self._table, ", ".join(schema.fieldNames()))
            if oid is not None:
                self._check_takes(bookkeeping, oid, schema, interval)
                if schema.fields and (current := self._current(bookkeeping)) is not None:
                    current.settle(schema)
                    self._refuse_current(current, current.why_not_rows(schema, adds=self.adds))
            tx.commit()

    def settle_current(self, schema: t.StructType) -> None:
        """Creates the current table if it is missing, and records what it is computed from."""
        with session(self._pipeline) as tx:
            if (current := self._current(Bookkeeping(tx, self._table))) is not None and schema.fields:
                current.settle(schema)
                self._refuse_current(current, current.why_not_rows(schema, adds=self.adds))
            tx.commit()

    def would_take(self, interval: Interval | None, schema: t.StructType) -> str:
        """Returns what a run would change in the table for these columns, by the catalogue, in a read-only transaction."""
        self.refuse(unsupported_columns(schema))
        self.refuse(self._why_not_current_columns(schema))
        named = f"table {self._table}"
        with asking(self._pipeline) as tx:
            bookkeeping = Bookkeeping(tx, self._table)
            is_prepared, oid = bookkeeping.is_prepared(), bookkeeping.oid()
            known = bookkeeping.registered() if is_prepared else None
            try:
                check_owner(self._table, self._of.owner, known.owner if known is not None else None)
                if why := self._why_not_here(bookkeeping, known, oid, is_prepared=is_prepared):
                    raise TableRefused(why)
                current = self._current(bookkeeping)
                if current is not None and is_prepared:
                    current.check_reserved()
            except (TableRefused, AnotherCluster) as error:
                raise type(error)(f"pipeline {self._pipeline.name}: {error}") from None
            if oid is None:
                return f"{named} does not exist yet: the first run with rows creates it with these columns."
            self._check_takes(bookkeeping, oid, schema, interval)
            if current is not None:
                self._refuse_current(current, current.why_not_rows(schema, adds=self.adds))
            added = missing(schema, bookkeeping.columns(oid)) if self.adds else {}
            said = [f"{named} gets new columns: {', '.join(added)}."] if added else []
            said += [f"of {named}, {doubt}: {cure}." for doubt, cure in doubts(tx, oid)]
        return " ".join(f"{text[:1].upper()}{text[1:]}" for text in said)

    def check(self, tx: Session, oid: int, interval: Interval | None) -> None:
        """Raises TableRefused unless the table with this oid may be published to. The check is for this interval, or
        for any interval if none is given.
        """
        settings = self._pipeline.output
        acts = isinstance(settings, PostgresSettings) and settings.allow_referential_actions
        start = interval.start if interval is not None else None
        self._refuse_table(
            why_not_published_to(tx, self._table, oid, self._of.owner, start=start, allow_referential_actions=acts)
        )
        if (current := self._current(Bookkeeping(tx, self._table))) is not None:
            self._refuse_current(current, current.why_not())

    def refuse(self, why: Sequence[str]) -> None:
        """Raises TableRefused if there are reasons against a result's columns."""
        if why:
            raise TableRefused(
                f"pipeline {self._pipeline.name}: table {self._table} does not accept the transform's result: "
                f"{'; '.join(why)}. Nothing was published. Change the table or the transform, and run again."
            )

    def _check_takes(self, bookkeeping: Bookkeeping, oid: int, schema: t.StructType, interval: Interval | None) -> None:
        """Raises TableRefused unless rows with these columns may be published to the table. Without an interval, no
        partition is checked.
        """
        self.check(bookkeeping.session, oid, interval)
        if not schema.fields:
            return
        self.refuse(bookkeeping.why_not_accepted(oid, schema, add=self.adds))
        if interval is not None and bookkeeping.without_partition(oid, [interval.start]):
            self.refuse([f"it has no partition for {INTERVAL} {interval.start:%Y-%m-%d %H:%M} UTC. Create one"])

    def _why_not_here(
        self, bookkeeping: Bookkeeping, known: RegisteredTable | None, oid: int | None, *, is_prepared: bool
    ) -> str:
        """Returns why the table cannot be registered in the store. The text is empty if it can."""
        if is_prepared and (why := bookkeeping.why_not_kept()):
            return why
        if is_prepared and known is None and bookkeeping.former_name(self._of.owner, oid) is not None:
            return ""
        if why := bookkeeping.why_another(known, oid):
            return why
        return "" if is_prepared and oid is not None else bookkeeping.why_not_made()

    def _current(self, bookkeeping: Bookkeeping) -> CurrentTable | None:
        settings = current_settings(self._pipeline, self._table)
        return CurrentTable(bookkeeping, settings, self._of.owner) if settings is not None else None

    def _why_not_current_columns(self, schema: t.StructType) -> list[str]:
        settings = current_settings(self._pipeline, self._table)
        return why_not_columns(settings, schema) if settings is not None else []

    def _refuse_current(self, current: CurrentTable, why: Sequence[str]) -> None:
        if why:
            raise TableRefused(
                f"pipeline {self._pipeline.name}: current table {current.table.table} cannot be kept: {'; '.join(why)}. "
                "Nothing was published. Change the table, and run again."
            )

    def _refuse_table(self, why: Sequence[str]) -> None:
        if why:
            raise TableRefused(
                f"pipeline {self._pipeline.name}: table {self._table} cannot be published to: {'; '.join(why)}. Nothing was "
                "published. Change the table, and run again."
            )
