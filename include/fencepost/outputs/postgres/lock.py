"""Locks an interval in a table. A publication, or a command that gives a publication up, first locks the interval's
row.

A session that holds the lock while its client does nothing is ended, if this user may end it. The client may be a
stopped process, and no time-out ends the locks of a stopped process.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from fencepost.config.pipeline import Pipeline
from fencepost.config.services.postgres import POSTGRES
from fencepost.errors import TableRefused, TableUnavailable
from fencepost.model import Interval
from fencepost.outputs.postgres.bookkeeping import Bookkeeping
from fencepost.outputs.postgres.connection import Session, StatementFailed, asking, describe_server, session
from fencepost.outputs.postgres.identifiers import quoted
from fencepost.outputs.postgres.sqlstates import LOCK_TIMED_OUT
from fencepost.outputs.table.revisions import IntervalRow

log = logging.getLogger("fencepost.outputs.postgres")
PATIENCE = 3  # waits for a lock, of LOCK_SECONDS each


@dataclass(frozen=True)
class HoldingSession:
    """A session that holds an interval. `ended_as` is the role in which this user may end the session, and empty if the
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
    idle, others, where = dict[int, int](), list[HoldingSession](), describe_server(pipeline)
    for turn in range(PATIENCE):
        with session(pipeline, name_of(table, interval)) as tx:
            bookkeeping, interval_row = Bookkeeping(tx, table), None
            if not bookkeeping.is_prepared():
                raise TableRefused(f"{where}: Fencepost's bookkeeping of table {table} is gone. Run again.")
            if why := bookkeeping.why_not_kept():
                raise TableRefused(f"{where}: {why}")
            try:
                interval_row = bookkeeping.lock_row(interval.start)
            except StatementFailed as failed:
                if failed.sqlstate != LOCK_TIMED_OUT or (turn == PATIENCE - 1 and not others):
                    raise
            if interval_row is not None:
                yield tx, bookkeeping, interval_row
                return
        if turn < PATIENCE - 1:
            # In another session, because a transaction accepts no statement after an error.
            idle, others = _end_idle(pipeline, table, interval, idle)
    raise TableUnavailable(f"{where}: {_why_not_ended(pipeline, table, interval, others)}")


def publishers_of(pipeline: Pipeline, table: str, interval: Interval) -> list[str]:
    """Returns the sessions that publish into the interval, as text."""
    with asking(pipeline) as tx:
        return [f"session {one.pid} of user {one.user}" for one in _publishers(tx, table, interval)]


def name_of(table: str, interval: Interval) -> str:
    """Returns the `application_name` of sessions that publish into an interval."""
    return f"fencepost {hashlib.sha256(f'{table} {interval.start.isoformat()}'.encode()).hexdigest()[:16]}"


def _end_idle(
    pipeline: Pipeline, table: str, interval: Interval, seen: Mapping[int, int]
) -> tuple[dict[int, int], list[HoldingSession]]:
    """Ends the sessions of this interval that wait for their clients and have copied nothing since they were `seen`.

    `seen` has the bytes copied by session. Returns the sessions that wait for their clients, with the bytes that they have
    copied, and the sessions that this user may not end.
    """
    idle, others = dict[int, int](), list[HoldingSession]()
    with session(pipeline) as tx:
        for one in _publishers(tx, table, interval):
            if not one.may_end:
                others.append(one)
            elif one.waits:
                idle[one.pid] = one.copied
                if seen.get(one.pid) == one.copied:
                    log.warning(
                        "table %s: session %d holds the interval and does nothing; it is ended",
                        table,
                        one.pid,
                    )
                    _act_as(tx, one.ended_as)
                    tx.run("SELECT pg_terminate_backend($1::integer)", one.pid)
    return idle, others


def _why_not_ended(pipeline: Pipeline, table: str, interval: Interval, others: Sequence[HoldingSession]) -> str:
    """Returns the message about the sessions that hold the interval, which this user may not end. The message has the
    next step.
    """
    named = ", ".join(f"{one.pid} of user {one.user}" for one in others)
    user = pipeline.plain(POSTGRES)["user"]
    return (
        f"table {table}, interval {interval}: session {named} publishes it, and user {user} may not end that session. "
        f"Run again once it has ended. If it does nothing, end it: `SELECT pg_terminate_backend({others[0].pid})`. To let "
        f"Fencepost end it: `GRANT pg_signal_backend, pg_read_all_stats TO {quoted(user)}`, or use one user for all logins."
    )


def _publishers(tx: Session, table: str, interval: Interval) -> list[HoldingSession]:
    """Returns the other sessions that are in a transaction of the interval and do not wait for a lock.

    Whether this user may end a session depends on that session's login, and on the role that this session acts as. With
    `SET role` that role is a group, so the login itself is tried too.
    """
    found = dict[int, HoldingSession]()
    ((acting, login),) = tx.run("SELECT current_user::text, session_user::text")
    for role in dict.fromkeys((acting, login)):
        _act_as(tx, role)
        for pid, user, visible, waits, copied in tx.run(PUBLISHERS, name_of(table, interval)):
            if pid not in found or not found[pid].may_end:
                found[pid] = HoldingSession(pid, user, waits, copied, role if visible else "")
    return list(found.values())


def _act_as(tx: Session, role: str) -> None:
    """Acts as a role until the end of the transaction. The role is the login itself, or the role that the login is set
    to.
    """
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
