"""Locks an interval in a table, and the current table. A publication, or a command that gives a publication up, first
locks the interval's row.

A session that holds the lock while its client does nothing is ended, if this user may end it. The client may be a
stopped process, and no time-out ends the locks of a stopped process.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fencepost.config.pipeline import Pipeline
from fencepost.config.services.postgres import POSTGRES
from fencepost.errors import FencepostError, TableRefused, TableUnavailable
from fencepost.model import Interval
from fencepost.outputs.postgres.bookkeeping import Bookkeeping
from fencepost.outputs.postgres.current_rows import CurrentRow, lock_rows
from fencepost.outputs.postgres.identifiers import quoted
from fencepost.outputs.table.revisions import IntervalRow
from fencepost.postgres.connection import Session, StatementFailed, asking, describe_server, session
from fencepost.postgres.sqlstates import LOCK_TIMED_OUT

log = logging.getLogger("fencepost.outputs.postgres")
PATIENCE = 3  # waits for a lock, of LOCK_SECONDS each


@dataclass(frozen=True)
class HoldingSession:
    """A session that holds a lock. `ended_as` is the role in which this user may end the session, and empty if the
    user may not.
    """

    pid: int
    user: str
    waits: bool = False  # whether it waits for its client
    copied: int = 0  # bytes that it has copied
    ended_as: str = ""

    @property
    def may_end(self) -> bool:
        """Returns whether this user may see the session's state and end it."""
        return bool(self.ended_as)


@contextmanager
def locked(pipeline: Pipeline, table: str, interval: Interval) -> Iterator[tuple[Session, Bookkeeping, IntervalRow]]:
    """Yields a transaction that has locked the interval's row.

    Another session of this interval may hold the row. If that session's client does nothing between two waits, the
    session is ended, provided this user may end it.

    Raises:
        TableUnavailable: a session holds the row through all waits, because it works or this user may not end it.
    """
    where, holders = (
        describe_server(pipeline),
        Holders(pipeline, table, f"interval {interval}", name_of(table, interval)),
    )
    for turn in range(PATIENCE):
        with session(pipeline, application_name(holders.name)) as tx:
            bookkeeping, interval_row = Bookkeeping(tx, table), None
            if not bookkeeping.is_prepared():
                raise TableRefused(f"{where}: Fencepost's bookkeeping of table {table} is gone. Run again.")
            if why := bookkeeping.why_not_kept():
                raise TableRefused(f"{where}: {why}")
            try:
                interval_row = bookkeeping.lock_row(interval.start)
            except StatementFailed as failed:
                if failed.sqlstate != LOCK_TIMED_OUT or (turn == PATIENCE - 1 and not holders.others):
                    raise
            if interval_row is not None:
                yield tx, bookkeeping, interval_row
                return
        if turn < PATIENCE - 1:
            holders.end_idle()  # in another session, because a transaction accepts no statement after an error
    raise TableUnavailable(f"{where}: {holders.why_not_ended()}")


def lock_current(pipeline: Pipeline, bookkeeping: Bookkeeping, configured: str | None) -> list[CurrentRow]:
    """Locks the rows of all current tables of this output table, and of the one that is `configured`, and returns them.

    The lock is a statement of its own: a statement that also computed would see the history as it was before the wait.
    No transaction takes this lock in a weaker form first, because two that make it stronger would wait for each other.
    Whoever waits ends a holder that does nothing, whatever its interval.

    Raises:
        TableUnavailable: a session holds a row through all waits, because it works or this user may not end it.
    """
    tx, table = bookkeeping.session, bookkeeping.table
    holders = Holders(pipeline, table, "its current table", current_name_of(table))
    ((own, wait),) = tx.run(
        "SELECT current_setting('application_name'), extract(epoch FROM current_setting('lock_timeout')::interval)::float8"
    )
    _wait_for_locks(tx, PATIENCE * wait)
    try:
        with _watching(holders, wait):
            found = lock_rows(bookkeeping, configured, f"{own} {holders.name}")
    except StatementFailed as failed:
        if failed.sqlstate != LOCK_TIMED_OUT or not holders.others:
            raise
        raise TableUnavailable(f"{describe_server(pipeline)}: {holders.why_not_ended()}") from None
    _wait_for_locks(tx, wait)
    return found


def _wait_for_locks(tx: Session, seconds: float) -> None:
    tx.run("SELECT set_config('lock_timeout', $1, true)", f"{round(seconds * 1000)}ms")


@contextmanager
def _watching(holders: Holders, every: float) -> Iterator[None]:
    """Looks for idle holders while the block waits for a lock.

    A thread looks, because the block's transaction cannot: after a wait that was given up it accepts no statement.
    """
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(every):
            try:
                holders.end_idle()
            except FencepostError as error:
                log.warning("sessions that hold a lock could not be looked for: %s", error)

    watcher = threading.Thread(target=watch, name="fencepost-lock", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def publishers_of(pipeline: Pipeline, table: str, interval: Interval) -> list[str]:
    """Returns the sessions that publish into the interval, as text."""
    with asking(pipeline) as tx:
        return [f"session {one.pid} of user {one.user}" for one in _holding(tx, name_of(table, interval))]


def name_of(table: str, interval: Interval) -> str:
    """Returns the name of an interval's lock. The `application_name` of a session has the names of its locks."""
    return _name(f"{table} {interval.start.isoformat()}")


def current_name_of(table: str) -> str:
    """Returns the name of the lock on the current tables of an output table."""
    return _name(f"{table} current")


def application_name(*locks: str) -> str:
    """Returns the `application_name` of a session that holds, or is about to hold, these locks."""
    return " ".join(("fencepost", *locks))


def _name(of: str) -> str:
    return hashlib.sha256(of.encode()).hexdigest()[:16]


class Holders:
    """The sessions that hold a lock which this process waits for. `what` is what they hold, for messages, and `name` the
    lock's name.
    """

    def __init__(self, pipeline: Pipeline, table: str, what: str, name: str) -> None:
        self._pipeline, self._table, self._what, self.name = pipeline, table, what, name
        self._idle = dict[int, int]()  # bytes copied, of the sessions that waited for their clients at the last look
        self.others = list[HoldingSession]()  # sessions that this user may not end

    def end_idle(self) -> None:
        """Ends the sessions that wait for their clients and have copied nothing since the last look."""
        seen, self._idle, self.others = self._idle, {}, []
        with session(self._pipeline) as tx:
            for one in _holding(tx, self.name):
                if not one.may_end:
                    self.others.append(one)
                elif one.waits:
                    self._idle[one.pid] = one.copied
                    if seen.get(one.pid) == one.copied:
                        log.warning(
                            "table %s: session %d holds %s and does nothing; it is ended",
                            self._table,
                            one.pid,
                            self._what,
                        )
                        _act_as(tx, one.ended_as)
                        tx.run("SELECT pg_terminate_backend($1::integer)", one.pid)

    def why_not_ended(self) -> str:
        """Returns the message about the sessions that this user may not end. The message has the next step."""
        named = ", ".join(f"{one.pid} of user {one.user}" for one in self.others)
        user = self._pipeline.plain(POSTGRES)["user"]
        return (
            f"table {self._table}, {self._what}: session {named} publishes it, and user {user} may not end that session. "
            f"Run again once it has ended. If it does nothing, end it: `SELECT pg_terminate_backend({self.others[0].pid})`. To "
            f"let Fencepost end it: `GRANT pg_signal_backend, pg_read_all_stats TO {quoted(user)}`, or use one user for all "
            "logins."
        )


def _holding(tx: Session, name: str) -> list[HoldingSession]:
    """Returns the other sessions that are in a transaction, have that lock's name and do not wait for a lock.

    Whether this user may end a session depends on that session's login, and on the role that this session acts as. With
    `SET role` that role is a group, so the login itself is tried too.
    """
    found = dict[int, HoldingSession]()
    ((acting, login),) = tx.run("SELECT current_user::text, session_user::text")
    for role in dict.fromkeys((acting, login)):
        _act_as(tx, role)
        for pid, user, visible, waits, copied in tx.run(HOLDING, name):
            if pid not in found or not found[pid].may_end:
                found[pid] = HoldingSession(pid, user, waits, copied, role if visible else "")
    return list(found.values())


def _act_as(tx: Session, role: str) -> None:
    """Acts as a role until the end of the transaction. The role is the login itself, or the role that the login is set
    to.
    """
    tx.run("SELECT set_config('role', CASE WHEN $1 = session_user THEN 'none' ELSE $1 END, true)", role)


HOLDING = """SELECT a.pid, coalesce(a.usename::text, ''),
    a.xact_start IS NOT NULL AND (me.rolsuper OR NOT coalesce(r.rolsuper, true) AND (
        pg_has_role(current_user, a.usesysid, 'USAGE') OR pg_has_role(current_user, 'pg_signal_backend', 'USAGE'))),
    coalesce(a.wait_event = 'ClientRead', false), coalesce(p.bytes_processed, 0)
FROM pg_catalog.pg_stat_activity AS a
JOIN pg_catalog.pg_roles AS me ON me.rolname = current_user
LEFT JOIN pg_catalog.pg_roles AS r ON r.oid = a.usesysid
LEFT JOIN pg_catalog.pg_stat_progress_copy AS p ON p.pid = a.pid
WHERE a.datname = current_database() AND $1 = ANY (string_to_array(a.application_name, ' ')) AND a.pid <> pg_backend_pid()
AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_locks AS l WHERE l.pid = a.pid AND NOT l.granted)"""
