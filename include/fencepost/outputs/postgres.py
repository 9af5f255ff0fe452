"""The output as a table of PostgreSQL: a staged batch gets there in one commit, with what says so.

One transaction, in one task (`_commit`): it locks the interval's row first, compares, removes what the batch replaces, copies the
staged records in, compares with the receipts, writes the row, and commits. Whoever gives a publication up locks the same row. So
one that was given up never commits late, and an older lease never wins. Who only asks reads what is committed, and locks nothing.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql import types as t

from fencepost.config.pipeline import TableSettings
from fencepost.config.table_rights import quoted
from fencepost.counts import count_of, first_of
from fencepost.errors import (
    AnotherCluster,
    CommitStateUnknown,
    FencepostError,
    LedgerLost,
    ReceiptsDisagree,
    RecordRefused,
    StoreRefused,
    StoreUnavailable,
    Superseded,
    TableRefusedData,
)
from fencepost.failpoints import reached
from fencepost.kafka.staged import offset_of_staged, read_staged
from fencepost.kafka.writers import Offsets
from fencepost.ledger.ledger import Ledger
from fencepost.ledger.lost import Named
from fencepost.model import Batch, Interval, PartitionId, TableOutput, Tally, utc_now
from fencepost.outputs.columns import (
    INTERVAL,
    Rows,
    Unread,
    definition,
    missing,
    schema_of,
    what_differs,
    what_is_no_column,
)
from fencepost.outputs.connection import ASK_SECONDS, Session, StatementFailed, asking, session, told
from fencepost.outputs.publication import Begin, Record
from fencepost.outputs.refusals import Refusal, refusal_of
from fencepost.outputs.sqlstates import CANCELLED, LOCK_TIMED_OUT
from fencepost.outputs.store import (
    MADE_MEANWHILE,
    MOST,
    SHOWN,
    Registered,
    Store,
    check_owner,
    listed,
    told_by_revision,
)
from fencepost.outputs.table_checks import Owner, doubts, why_not_owned, why_not_published_to
from fencepost.protocol.advice import after_table_refused, reprocess
from fencepost.protocol.obstacle import Found, GivenUp
from fencepost.protocol.publication import begin_commit, record_stored
from fencepost.protocol.store import (
    Held,
    Standing,
    StoreFound,
    differing,
    missing_for,
    revisions_after,
    rows_of,
    standing_of,
    takes_over,
    unknown_to,
)
from fencepost.protocol.view import View
from fencepost.spark.writer import added

log = logging.getLogger("fencepost.outputs.postgres")
PATIENCE = 3  # waits for a lock before a holder whose client does nothing is ended
LOST = "was renamed or moved, or what Fencepost keeps of it is gone"


@dataclass(frozen=True)
class TableComparison:
    """What a table lacks of what the ledger has published there, for a person; empty if nothing. `dropped` is of how many
    published intervals the table has no partition any more."""

    lacks: str
    dropped: int = 0


class PostgresTable:
    """An `Output` that is a table."""

    def __init__(self, ledger: Ledger, table: str) -> None:
        self._ledger, self._pipeline, self._table = ledger, ledger.pipeline, table
        if not self._pipeline.postgres:
            raise StoreRefused(
                f"pipeline {self._pipeline.name}: its output was table {table}, and pipeline.yaml has no postgres: any more. "
                "Put it back to finish what was planned for the table."
            )
        self._where = told(self._pipeline)

    @property
    def _owner(self) -> Owner:
        return Owner(self._pipeline.name, self._ledger.cluster.id)

    def prepare(self, *, moved: bool = False) -> None:
        """Make the store's own tables, and register the table as this pipeline's on this cluster, whether or not it exists."""
        for turn in (1, 2):
            try:
                with session(self._pipeline) as tx:
                    store = Store(tx, self._table)
                    try:
                        store.prepare()
                        if why := store.why_not_kept():
                            raise StoreRefused(why)
                        if (oid := store.oid()) is not None:
                            self._refuse_table(why_not_owned(tx, oid, self._owner))
                        store.register(self._owner, moved=moved)
                        tx.commit()
                        return
                    except StatementFailed as failed:
                        if turn > 1 or failed.sqlstate not in MADE_MEANWHILE:
                            raise
            except (StoreRefused, AnotherCluster) as error:
                raise type(error)(f"pipeline {self._pipeline.name}: {error} Nothing was planned.") from None

    def move_here(self, view: View) -> None:
        """The table was the pipeline's on another cluster; from now on attempts there are refused."""
        with session(self._pipeline) as tx:
            store = Store(tx, self._table)
            self._check_known(view, store.rows() if store.is_prepared() else [])
        self.prepare(moved=True)

    def planned(self) -> TableOutput:
        """Its name: a staged batch depends on no table."""
        return TableOutput(table=self._table)

    def newest_batches(self) -> Iterator[Named]:
        """The batch that was committed last of each interval."""
        with session(self._pipeline) as tx:
            store = Store(tx, self._table)
            names = list(store.named()) if store.is_prepared() else []
        own = f"{self._pipeline.name}/"
        return ((name, f"table {self._table}") for name in names if name.startswith(own))

    def check_keeps(self, interval: Interval) -> None:
        """Whether the table may be published to, if it is there. Types are known in the write job."""
        with session(self._pipeline) as tx:
            if (oid := Store(tx, self._table).oid()) is not None:
                self._refuse_table(self._why_not_published_to(tx, oid, interval))

    def check_result(self, interval: Interval, schema: t.StructType) -> None:
        """Make the table for these columns if it is missing; raise StoreRefused, with statements that would do, if it differs."""
        self._settle(interval, schema)

    def ready(self, batch: Batch) -> Begin:
        """The publication is to the table as it is now."""
        self._settle(batch.interval, schema_of(batch.known_written.value_schema))
        return lambda view, batch: begin_commit(self.planned(), self._ledger.topic_id, utc_now())

    def _settle(self, interval: Interval, schema: t.StructType) -> None:
        self._refuse(what_is_no_column(schema))
        self.prepare()
        with session(self._pipeline) as tx:
            store = Store(tx, self._table)
            oid = store.register(self._owner)
            if oid is None and schema.fields:
                try:
                    store.create(definition(schema))
                except StatementFailed as failed:
                    if failed.sqlstate in MADE_MEANWHILE:
                        raise StoreUnavailable(
                            f"{self._where}: table {self._table} was made meanwhile. Run again."
                        ) from None
                    raise
                oid = store.register(self._owner)
                log.info("table %s is made, with columns %s", self._table, ", ".join(schema.fieldNames()))
            if oid is not None:
                self._check_takes(store, oid, schema, interval)
            tx.commit()

    def _check_takes(self, store: Store, oid: int, schema: t.StructType, interval: Interval | None) -> None:
        """Raise StoreRefused unless rows with these columns may be published there; without an interval, it is asked for no
        partition."""
        self._refuse_table(self._why_not_published_to(store.session, oid, interval))
        if not schema.fields:
            return
        self._refuse(what_differs(store.altered(oid), schema, store.columns(oid), add=self._adds))
        if interval is not None and store.without_partition(oid, [interval.start]):
            self._refuse([f"it has no partition for {INTERVAL} {interval.start:%Y-%m-%d %H:%M} UTC. Make one"])

    def _why_not_published_to(self, tx: Session, oid: int, interval: Interval | None) -> list[str]:
        settings = self._pipeline.output
        acts = isinstance(settings, TableSettings) and settings.allow_referential_actions
        start = interval.start if interval is not None else None
        return why_not_published_to(tx, self._table, oid, self._owner, start=start, allow_referential_actions=acts)

    def would_take(self, interval: Interval | None, schema: t.StructType) -> str:
        """By a look at the catalogue, in a transaction that cannot write."""
        self._refuse(what_is_no_column(schema))
        with asking(self._pipeline) as tx:
            store = Store(tx, self._table)
            is_prepared, oid = store.is_prepared(), store.oid()
            known = store.registered() if is_prepared else None
            try:
                check_owner(self._table, self._owner, known.owner if known is not None else None)
                if why := self._why_not_here(store, known, oid, is_prepared=is_prepared):
                    raise StoreRefused(why)
            except (StoreRefused, AnotherCluster) as error:
                raise type(error)(f"pipeline {self._pipeline.name}: {error}") from None
            if oid is None:
                return f"{self.planned().told} does not exist yet: the first run with rows makes it for these columns."
            self._check_takes(store, oid, schema, interval)
            added = missing(schema, store.columns(oid)) if self._adds else {}
            said = [f"{self.planned().told} gets new columns: {', '.join(added)}."] if added else []
            said += [f"of {self.planned().told}, {doubt}: {cure}." for doubt, cure in doubts(tx, oid)]
        return " ".join(f"{text[:1].upper()}{text[1:]}" for text in said)

    def _why_not_here(self, store: Store, known: Registered | None, oid: int | None, *, is_prepared: bool) -> str:
        """Why the store cannot keep the table; empty if it can."""
        if is_prepared and (why := store.why_not_kept()):
            return why
        if is_prepared and known is None and store.former_name(self._owner, oid) is not None:
            return ""
        if why := store.why_another(known, oid):
            return why
        return "" if is_prepared and oid is not None else store.why_not_made()

    @property
    def _adds(self) -> bool:
        settings = self._pipeline.output
        return isinstance(settings, TableSettings) and settings.add_columns

    def _refuse(self, why: Sequence[str]) -> None:
        if why:
            raise StoreRefused(
                f"pipeline {self._pipeline.name}: table {self._table} does not take the transform's result: "
                f"{'; '.join(why)}. Nothing was published. Change the table, or the transform, and run again."
            )

    def _refuse_table(self, why: Sequence[str]) -> None:
        if why:
            raise StoreRefused(
                f"pipeline {self._pipeline.name}: table {self._table} cannot be published to: {'; '.join(why)}. Nothing was "
                "published. Change that, and run again."
            )

    def opening_offsets(self, view: View, batch: Batch) -> Offsets:
        """None: a commit to a table has no marks."""
        return {}

    def found(self, batch: Batch, *, publishing: bool) -> dict[str, Any]:
        """Where its publication stands, by what is committed: an attempt that is under way goes on."""
        if not publishing:
            return {}
        with asking(self._pipeline) as tx:
            store = Store(tx, self._table)
            if not store.is_prepared():
                return {"store": StoreFound(lost=LOST)}
            held, lost = store.row(batch.interval.start), self._lost(store.registered())
            return {"store": StoreFound(standing_of(held, batch.commit_to_table), held.refused, lost)}

    def _lost(self, known: Registered | None) -> str:
        """Why a table, which the store knows as that, is not this pipeline's any more; empty if it is."""
        if known is None:
            return LOST
        return f"belongs to {known.owner} by now" if known.owner != self._owner else ""

    def _is_prepared(self) -> bool:
        with session(self._pipeline) as tx:
            return Store(tx, self._table).is_prepared()

    def mend(self, batch: Batch, found: Found) -> bool:
        """There is nothing to mend: the row is committed with the rows."""
        return False

    def needs_spark(self, batch: Batch) -> bool:
        """Never: this process copies the staged records in."""
        return False

    def committed(self, batch: Batch, found: Found) -> Record | None:
        """By the row of its interval."""
        done = found.store is not None and found.store.standing is Standing.DONE
        return _record(batch) if done else None

    def publish(self, batch: Batch, spark: SparkSession | None) -> Record:
        """Commit the batch, or find it committed.

        After a lost answer the row says what happened. It is locked for that, which waits for a commit that is still under way.
        """
        try:
            try:
                self._commit(batch)
            except _AnotherTable:
                self._settle(batch.interval, schema_of(batch.known_written.value_schema))
                self._commit(batch)
        except _AnotherTable:
            raise StoreUnavailable(f"table {self._table} was dropped, or made anew, meanwhile. Run again.") from None
        except CommitStateUnknown:
            with self._locked(batch.interval) as (_, _, held):
                standing = standing_of(held, batch.commit_to_table)
            if standing is not Standing.DONE:
                raise StoreUnavailable(
                    f"batch {batch.id}: {self._where} did not answer the commit, and has not committed. Run again."
                ) from None
        except _Refused as refused:
            refusal = self._refusal(batch, refused)
            if not refusal.of_rows:
                raise StoreRefused(
                    f"batch {batch.id}: table {self._table}: {refusal.why}. Nothing was committed."
                ) from None
            why = refusal.why
            if self._close(batch, why) is Standing.DONE:
                return _record(batch)  # another attempt was faster, and the table took it from that
            message = f"batch {batch.id}: table {self._table} refused its data: {why}. {after_table_refused(batch)}"
            raise TableRefusedData(message, why) from None
        return _record(batch)

    def _commit(self, batch: Batch) -> None:
        """The publication:

        1. lock the interval's row, and the table against being dropped or swapped;
        2. compare: committed already, given up, overtaken, of another ledger, or of another owner;
        3. whether the table may be published to; and what the ledger says, read under the lock: is the publication still under
           way, and is all there that it adds to;
        4. remove what the batch replaces, and copy the staged records in, with the fingerprint of the bytes as read;
        5. run the checks and triggers that were put off, and count all that the interval holds then; and look again whether the
           table may be published to, since a part may have been attached meanwhile;
        6. write the row, and commit.
        """
        publication = batch.commit_to_table
        with self._locked(batch.interval) as (tx, store, held):  # 1
            reached("store.locked")
            exists = store.oid() is not None
            if exists:
                store.lock_table()
            if not self._may_commit(store, held, batch, exists=exists):  # 2
                return
            self._check_table(store, batch.interval)
            self._check_ledger(store, held, batch, exists=exists)  # 3
            revisions = revisions_after(held, batch)
            if exists:
                counts = self._counts(store, batch)
                # Triggers may go by policies of other tables. That this one hides none is known, and stays so while it is locked.
                tx.run("SET LOCAL row_security = on")
                self._replace(tx, store, batch)  # 4
                with _refusals():
                    tx.run("SET CONSTRAINTS ALL IMMEDIATE")
                tx.run("SET LOCAL row_security = off")
                self._check_counts(store, batch, counts, rows_of(revisions))  # 5
                self._check_table(store, batch.interval)
            store.record(batch, publication, revisions, _sources(batch))  # 6
            reached("store.copied")
            with _refusals():
                tx.commit()
            reached("store.committed")

    def _may_commit(self, store: Store, held: Held, batch: Batch, *, exists: bool) -> bool:
        """Whether the publication has still to be committed; False where it is."""
        publication = batch.commit_to_table
        standing = standing_of(held, publication)
        if standing is Standing.DONE:
            log.info("batch %s: an earlier attempt has committed it", batch.id)
            return False
        if standing in {Standing.CLOSED, Standing.OVERTAKEN}:
            raise Superseded(
                f"batch {batch.id}: table {self._table} has the row of its interval {standing}: this attempt's publication was "
                "given up, or a later one was committed. Nothing was changed."
            )
        known = store.registered(lock=True)
        if known is None:
            raise StoreRefused(f"table {self._table} {LOST}. Nothing was changed.")
        check_owner(self._table, self._owner, known.owner)
        if standing is Standing.FOREIGN:
            present = self._ledger.cluster.find(self._pipeline.ledger_topic)
            if not takes_over(standing, publication, present.id if present is not None else ""):
                raise Superseded(
                    f"batch {batch.id}: its interval in table {self._table} was published under another ledger topic, and this "
                    "attempt's is not the one that exists now. Nothing was changed."
                )
        if known.oid != store.oid() or (batch.known_written.rows and not exists):
            raise _AnotherTable
        return True

    def _check_table(self, store: Store, interval: Interval) -> None:
        if (oid := store.oid()) is not None:
            self._refuse_table(self._why_not_published_to(store.session, oid, interval))

    def _check_ledger(self, store: Store, held: Held, batch: Batch, *, exists: bool) -> None:
        publication = batch.commit_to_table
        view = self._ledger.read()
        last = view.last(batch.interval)
        if last is None or last.publication_under(publication.known_lease) is None or last.revision != batch.revision:
            raise Superseded(f"batch {batch.id}: its publication has ended meanwhile, so nothing of it is committed.")
        self._check_known(view, [held])
        counted = store.count(batch.interval.start) if exists and batch.adds_to is not None else {}
        if gone := missing_for(view, batch, held, counted):
            raise StoreRefused(
                f"batch {batch.id} adds to revision {batch.adds_to}, and table {self._table} lacks revisions "
                f"{', '.join(map(str, gone))} of its interval. {reprocess(batch)}, once this addition is skipped."
            )

    def _check_known(self, view: View, held: Sequence[Held]) -> None:
        unknown = unknown_to(view, self._pipeline.name, held)
        if unknown:
            raise LedgerLost(
                f"pipeline {self._pipeline.name}: table {self._table} has batch {unknown[-1]}, which the ledger "
                f"{self._pipeline.ledger_topic} does not know: it is an old copy, or was made anew. Stop the pipeline's runs and "
                "restore the ledger from a copy that has the batch."
            )

    def _replace(self, tx: Session, store: Store, batch: Batch) -> None:
        """Put the batch's rows in the place of those that it replaces."""
        written, start = batch.known_written, batch.interval.start
        oid, schema = store.oid(), schema_of(written.value_schema)
        assert oid is not None, "the table is locked"
        if written.rows and self._adds:
            # First: the server alters no table of which rows are removed whose references are checked at the end.
            store.add_columns(missing(schema, store.columns(oid)))
        with _refusals(removing=True):
            store.remove(batch)
        if not written.rows:
            return
        columns = store.columns(oid)
        self._refuse(what_differs(store.altered(oid), schema, columns, add=False))
        staged = _Staged(self._ledger, batch)
        rows = Rows(schema, columns, start, batch.revision)
        try:
            with _refusals():
                tx.copy(store.schema, store.name, pa.RecordBatchReader.from_batches(rows.schema, staged.batches(rows)))
        except _Refused as refused:
            refused.place = staged.place(refused.failed.row)
            raise
        except StoreUnavailable:
            if staged.failed is None:
                raise
        if isinstance(staged.failed, Unread):
            raise RecordRefused(f"batch {batch.id}: a staged record does not fit table {self._table}: {staged.failed}.")
        if staged.failed is not None:
            raise staged.failed
        if (staged.rows, staged.fingerprint) != (written.rows, written.fingerprint):
            raise ReceiptsDisagree(
                f"batch {batch.id}: its staging topic has {count_of(staged.rows, 'record')} with fingerprint "
                f"{staged.fingerprint:016x}, "
                f"and {written.rows:,} with {written.fingerprint:016x} were written."
            )

    def _counts(self, store: Store, batch: Batch) -> _Counts:
        """What is in the table before the batch is: of one that no trigger or rule acts upon, nothing has to be known."""
        if not (acts := store.what_acts()):
            return _Counts()
        return _Counts(acts, sum(store.count(batch.interval.start).values()), store.grown())

    def _check_counts(self, store: Store, batch: Batch, before: _Counts, wanted: Mapping[int, int]) -> None:
        """Check that the interval holds what it has to, by the table's own count, and that no other has more or fewer rows than
        before: a table may keep what it is told to remove, and a trigger may add rows, or move them.

        Raises:
            StoreRefused: it does not.
        """
        counted = store.count(batch.interval.start)
        now, at_first = store.grown() if before.acts else None, before.grown
        others = 0
        if now is not None and at_first is not None:
            others = now - at_first - (sum(counted.values()) - before.rows)
        if counted == wanted and not others:
            return
        told = f"{told_by_revision(counted)} of its interval, and has to hold {told_by_revision(wanted)}"
        if counted == wanted:
            more = "more" if others > 0 else "fewer"
            told = f"{count_of(abs(others), f'{more} row')} in other intervals than before"
        acts = before.acts
        what = (
            f"It has {acts}: what keeps, adds, moves or leaves out rows has to go"
            if acts
            else "Somebody else writes to it"
        )
        raise StoreRefused(
            f"batch {batch.id}: after it was copied in, table {self._table} would hold {told}. {what}. Nothing was changed. Mend "
            "the table, and run again."
        )

    @contextmanager
    def _locked(self, interval: Interval) -> Iterator[tuple[Session, Store, Held]]:
        """A transaction that has locked the interval's row. A holder whose client does nothing between two waits is ended.

        It is a session of this interval, and of a user whose sessions this one may end. One that was stopped holds its locks
        against every time-out.

        Raises:
            StoreUnavailable: somebody holds the row for longer than that, and works, or may not be ended.
        """
        idle, others = dict[int, int](), list[Publisher]()
        for turn in range(PATIENCE):
            with session(self._pipeline, _name_of(self._table, interval)) as tx:
                store, held = Store(tx, self._table), None
                if not store.is_prepared():
                    raise StoreRefused(
                        f"{self._where}: what Fencepost keeps of table {self._table} is gone. Run again."
                    )
                if why := store.why_not_kept():
                    raise StoreRefused(f"{self._where}: {why}")
                try:
                    held = store.lock_row(interval.start)
                except StatementFailed as failed:
                    if failed.sqlstate != LOCK_TIMED_OUT or (turn == PATIENCE - 1 and not others):
                        raise
                if held is not None:
                    yield tx, store, held
                    return
            if turn < PATIENCE - 1:
                # In another session: after an error a transaction takes no statement any more.
                idle, others = self._end_idle(interval, idle)
        raise StoreUnavailable(f"{self._where}: {self._why_not_ended(interval, others)}")

    def _end_idle(self, interval: Interval, seen: Mapping[int, int]) -> tuple[dict[int, int], list[Publisher]]:
        """End the sessions of this interval that wait for their clients and have copied no more than was `seen` of them.

        Returns those that wait for their clients, with the bytes that they have copied; and those that this user may not end.
        """
        idle, others = dict[int, int](), list[Publisher]()
        with session(self._pipeline) as tx:
            for one in _publishers(tx, self._table, interval):
                if not one.may_end:
                    others.append(one)
                elif one.waits:
                    idle[one.pid] = one.copied
                    if seen.get(one.pid) == one.copied:
                        log.warning(
                            "table %s: session %d holds the interval and does nothing; it is ended",
                            self._table,
                            one.pid,
                        )
                        _act_as(tx, one.ended_as)
                        tx.run("SELECT pg_terminate_backend($1::integer)", one.pid)
        return idle, others

    def _why_not_ended(self, interval: Interval, others: Sequence[Publisher]) -> str:
        """What a person does about sessions that hold the interval and that this user may not end."""
        named = ", ".join(f"{one.pid} of user {one.user}" for one in others)
        user = self._pipeline.postgres["user"].get_secret_value()
        return (
            f"table {self._table}, interval {interval}: session {named} publishes it, and user {user} may not end that. "
            f"Run again once it has ended. If it does nothing, end it: `SELECT pg_terminate_backend({others[0].pid})`. So that "
            f"Fencepost does so: `GRANT pg_signal_backend, pg_read_all_stats TO {quoted(user)}`, or log in as one user."
        )

    def publishers(self, interval: Interval) -> list[str]:
        """The sessions that publish into the interval, or wait to, for a person."""
        with asking(self._pipeline) as tx:
            return [f"session {one.pid} of user {one.user}" for one in _publishers(tx, self._table, interval)]

    def _refusal(self, batch: Batch, refused: _Refused) -> Refusal:
        record = self._record_of(batch, refused)
        with session(self._pipeline) as tx:
            oid = Store(tx, self._table).oid()
            if oid is None:
                raise StoreUnavailable(f"batch {batch.id}: table {self._table} was dropped meanwhile. Run again.")
            return refusal_of(tx, oid, refused.failed, removing=refused.removing, record=record)

    def _record_of(self, batch: Batch, refused: _Refused) -> str:
        """Which staged record the refused row is, for a person; empty where the server or Kafka does not tell."""
        if refused.place is None:
            return ""
        partition, number = refused.place
        topic, ledger = batch.known_staging.topic, self._ledger
        (part,) = [one for one in batch.output_ranges(batch.known_written) if one.partition == partition]
        try:
            offset = offset_of_staged(ledger.settings, self._pipeline.group, part, batch, number)
        except FencepostError as error:
            log.warning("batch %s: the refused row was not looked for in topic %s: %s", batch.id, topic, error)
            return ""
        return "" if offset is None else f"the record in topic {topic}, partition {partition}, offset {offset}"

    def _close(self, batch: Batch, refused: str = "") -> Standing:
        """Have the interval's row refuse every later attempt at the publication; where it stood before."""
        publication = batch.commit_to_table
        if not self._is_prepared():
            return Standing.OPEN  # an attempt that comes late finds no such table either
        with self._locked(batch.interval) as (tx, store, held):
            standing = standing_of(held, publication)
            # A table that is another's by now refuses each attempt, and its row says what that other has published.
            if not self._lost(store.registered()) and takes_over(standing, publication, self._ledger.topic_id):
                store.close(batch, publication, refused)
                tx.commit()
        return standing

    def give_up(self, batch: Batch, found: Found) -> GivenUp | None:
        """Close the publication under the lock, so that a commit that comes late is refused. Readers have seen nothing of it."""
        if self._close(batch) is Standing.DONE:
            return None
        log.info("batch %s: its publication to table %s is given up", batch.id, self._table)
        return GivenUp(lease=batch.commit_to_table.known_lease, seen=0)

    def lacks(self, read: Callable[[], View]) -> str:
        """By the rows of all intervals, and by the intervals of which the table has a row."""
        return self.compared(read).lacks

    def compared(self, read: Callable[[], View]) -> TableComparison:
        """What the table has, beside what the ledger has published there.

        The table is asked between two reads of the ledger: what both of them have published, it has to have. An interval without
        a partition is left out: somebody has dropped or detached that.
        """
        before = read()
        found, after = self._contents(before), read()
        if found.owner is not None and found.owner != self._owner:
            return TableComparison(f"table {self._table} belongs to {found.owner}, and this is {self._owner}")
        self._check_known(after, list(found.held.values()))
        two = differing(after, self._table, found.held, found.filled)
        both = {str(b.id): b for b in found.differs if b in two and b.interval.start not in found.without_partition}
        withdrawn = [batch for batch in both.values() if after.is_withdrawn(batch.interval)]
        others = [batch for batch in both.values() if batch not in withdrawn]
        told = list[str]()
        if others:
            told.append(
                f"table {self._table} does not have what the ledger has published there in "
                f"{count_of(len(others), 'interval')}: it was emptied or made anew, or it or the ledger was restored from an "
                f"older copy. These put that right: {_commands(others)}"
            )
        if withdrawn:
            starts = ", ".join(f"'{batch.interval.start.isoformat()}'" for batch in withdrawn[:MOST])
            these = f"FROM {quoted(*self._table.split('.', 1))} WHERE {quoted(INTERVAL)} IN ({starts})"
            told.append(
                f"table {self._table} has rows of "
                f"{count_of(len(withdrawn), 'interval that was withdrawn', 'intervals that were withdrawn')}, which nobody "
                f"publishes. This removes them: DELETE {these}"
            )
        return TableComparison(". ".join(told), len(found.without_partition))

    def counted(self, view: View) -> str | None:
        """Where rows of an interval are not those that were published there, by a count of all of the table, with the commands
        that bring them back; empty if nowhere, None if it took longer than `ASK_SECONDS`."""
        with asking(self._pipeline) as tx:
            store = Store(tx, self._table)
            if store.oid() is None or not store.is_prepared():
                return ""
            try:
                differs = [one for one in store.differences() if one.has]  # of one that has none, `lacks` tells
            except StatementFailed as failed:
                if failed.sqlstate == CANCELLED:
                    return None
                raise
        if not differs:
            return ""
        known = {interval.start: planned.in_force for interval, planned in view.in_order}
        batches = [known[one.start] for one in differs if one.start in known]
        told = (
            f"table {self._table} has other rows than were published there in {count_of(len(differs), 'interval')}: "
            f"{listed(differs)}. "
        )
        if batches:
            told += f"These put that right: {_commands(batches)}"
        if foreign := [one for one in differs if one.start not in known]:
            told += f"{'. ' if batches else ''}Rows of {count_of(len(foreign), 'interval')} are of nobody's batches: remove them"
        return told

    def _contents(self, view: View) -> _Contents:
        with asking(self._pipeline) as tx:
            store = Store(tx, self._table)
            if not store.is_prepared():
                return _Contents(differs=differing(view, self._table, {}, set()))
            oid, known = store.oid(), store.registered()
            filled = self._filled(store, oid) if oid is not None else set()
            owner, held = known.owner if known is not None else None, {held.start: held for held in store.rows()}
            differs = differing(view, self._table, held, filled)
            lacking = {batch.interval.start for batch in differs} - filled
            without = store.without_partition(oid, lacking) if oid is not None else set()
            return _Contents(owner, held, filled, differs, without)

    def _filled(self, store: Store, oid: int) -> set[datetime]:
        unindexed = store.unindexed(oid)
        try:
            return store.filled(oid)
        except StatementFailed as failed:
            if failed.sqlstate != CANCELLED or not unindexed:
                raise
            raise StoreUnavailable(
                f"{self._where}: table {self._table} was not read to its end in {ASK_SECONDS} s. No index of it finds an "
                f"interval: `fencepost doctor {self._pipeline.name}` prints the statement that makes one. Then ask again."
            ) from None

    def validated(self, view: View) -> tuple[str, Mapping[PartitionId, int]]:
        """A table has no offsets."""
        return self._pipeline.validated_group, {}

    def validated_places(self, view: View, batches: Sequence[Batch]) -> set[PartitionId]:
        """A table has no offsets."""
        return set()


@dataclass(frozen=True)
class _Counts:
    """What acts upon a table's rows; if something does, also how many the interval has, and by how many the table has grown."""

    acts: str = ""
    rows: int = 0
    grown: int | None = None


class _AnotherTable(Exception):
    """The table was dropped, or another one has its name: it has to be compared, or made, first."""


class _Refused(Exception):
    """The server refuses the batch's rows, or that the rows which they replace are removed (`removing`).

    `place` is the staged record of the refused row, where the server has told of it: a partition, and the number of the batch's
    record in it.
    """

    def __init__(self, failed: StatementFailed, *, removing: bool) -> None:
        super().__init__(failed.sqlstate)
        self.failed, self.removing = failed, removing
        self.place: tuple[int, int] | None = None


@contextmanager
def _refusals(*, removing: bool = False) -> Iterator[None]:
    """Tell what the table refuses of its rows from what the server refuses of anything."""
    try:
        yield
    except StatementFailed as failed:
        if failed.is_of_rows:
            raise _Refused(failed, removing=removing) from None
        raise


@dataclass(frozen=True)
class _Contents:
    owner: Owner | None = None
    held: dict[datetime, Held] = field(default_factory=dict)
    filled: set[datetime] = field(default_factory=set)
    differs: tuple[Batch, ...] = ()  # as `differing` has them
    without_partition: set[datetime] = field(default_factory=set)  # of those that it lacks


class _Staged:
    """The rows of a batch's staged records, counted as they are read."""

    def __init__(self, ledger: Ledger, batch: Batch) -> None:
        self._ledger, self._batch = ledger, batch
        self.rows = self.fingerprint = 0
        self._runs = list[tuple[int, int]]()  # of records of one partition behind each other: which, and how many
        self.failed: Exception | None = None  # what ended the reading, which the driver tells as text only

    def batches(self, rows: Rows) -> Iterator[pa.RecordBatch]:
        """In the types of the table."""
        ledger, batch = self._ledger, self._batch
        written = batch.known_written
        try:
            for staged in read_staged(ledger.settings, ledger.pipeline.group, batch.output_ranges(written), batch):
                tally = added(Tally(rows=self.rows, fingerprint=self.fingerprint), staged)
                self.rows, self.fingerprint = tally.rows, tally.fingerprint
                runs = pc.run_end_encode(staged.column("partition"))
                ends = [0, *runs.run_ends.to_pylist()]
                self._runs += zip(runs.values.to_pylist(), (end - begin for begin, end in pairwise(ends)), strict=True)
                yield rows.of(staged.column("value"))
        except Exception as error:
            self.failed = error
            raise

    def place(self, row: int) -> tuple[int, int] | None:
        """The partition of the row with that number, 1 being the first, and how many of the batch's records precede it there."""
        before, left = Counter[int](), row - 1
        for partition, count in self._runs:
            if 0 <= left < count:
                return partition, before[partition] + left
            before[partition] += count
            left -= count
        return None


def _record(batch: Batch) -> Record:
    known = (batch.interval, batch.revision, batch.commit_to_table.known_lease)
    return lambda view, seconds, now: record_stored(view, *known, seconds, now)


def _commands(batches: Collection[Batch]) -> str:
    """What brings the intervals of these batches back."""
    return first_of([batch.command("run", "--reprocess") for batch in batches], SHOWN)


def _name_of(table: str, interval: Interval) -> str:
    """What sessions that publish into an interval are named."""
    return f"fencepost {hashlib.sha256(f'{table} {interval.start.isoformat()}'.encode()).hexdigest()[:16]}"


@dataclass(frozen=True)
class Publisher:
    """A session that holds an interval. `ended_as` is the role in which this user may end it; empty where it may not."""

    pid: int
    user: str
    waits: bool = False  # for its client
    copied: int = 0  # bytes
    ended_as: str = ""

    @property
    def may_end(self) -> bool:
        """Whether this user sees what it does, and may end it."""
        return bool(self.ended_as)


def _publishers(tx: Session, table: str, interval: Interval) -> list[Publisher]:
    """The other sessions that are in a transaction of the interval, and wait for no lock.

    The server looks at the login of each, and at the role that this session acts as. That is a group where the login has
    `SET role`, so the login itself is tried as well.
    """
    found = dict[int, Publisher]()
    ((acting, login),) = tx.run("SELECT current_user::text, session_user::text")
    for role in dict.fromkeys((acting, login)):
        _act_as(tx, role)
        for pid, user, visible, waits, copied in tx.run(PUBLISHERS, _name_of(table, interval)):
            if pid not in found or not found[pid].may_end:
                found[pid] = Publisher(pid, user, waits, copied, role if visible else "")
    return list(found.values())


def _act_as(tx: Session, role: str) -> None:
    """Act as that role until the transaction ends: as the login itself, or as what the login is set to."""
    tx.run("SELECT set_config('role', CASE WHEN $1 = session_user THEN 'none' ELSE $1 END, true)", role)


PUBLISHERS = """SELECT a.pid, coalesce(a.usename::text, ''),
    a.xact_start IS NOT NULL AND (me.rolsuper OR NOT coalesce(r.rolsuper, true) AND (
        pg_has_role(current_user, a.usesysid, 'USAGE') OR pg_has_role(current_user, 'pg_signal_backend', 'USAGE'))),
    coalesce(a.wait_event = 'ClientRead', false), coalesce(p.bytes_processed, 0)
FROM pg_catalog.pg_stat_activity AS a
JOIN pg_catalog.pg_roles AS me ON me.rolname = current_user
LEFT JOIN pg_catalog.pg_roles AS r ON r.oid = a.usesysid
LEFT JOIN pg_catalog.pg_stat_progress_copy AS p ON p.pid = a.pid
WHERE a.datname = current_database() AND a.application_name = $1 AND a.pid <> pg_backend_pid()
AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_locks AS l WHERE l.pid = a.pid AND NOT l.granted)"""


def _sources(batch: Batch) -> str:
    return json.dumps([source.model_dump(mode="json") for source in batch.plan.inputs])
