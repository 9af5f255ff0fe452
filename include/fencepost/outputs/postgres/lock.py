"""The lock of an interval in a table: the row that whoever publishes or gives up locks first.

A holder whose client does nothing is ended, where this user may do that: one that was stopped holds its locks against every
time-out.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from fencepost.config.pipeline import Pipeline
from fencepost.config.services.postgres import POSTGRES
from fencepost.errors import StoreRefused, StoreUnavailable
from fencepost.model import Interval
from fencepost.outputs.postgres.connection import Session, StatementFailed, asking, session, told
from fencepost.outputs.postgres.names import quoted
from fencepost.outputs.postgres.sqlstates import LOCK_TIMED_OUT
from fencepost.outputs.postgres.store import Store
from fencepost.outputs.table.revisions import Held

log = logging.getLogger("fencepost.outputs.postgres")
PATIENCE = 3  # waits for a lock before a holder whose client does nothing is ended


@dataclass(frozen=True)
class HoldingSession:
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


@contextmanager
def locked(pipeline: Pipeline, table: str, interval: Interval) -> Iterator[tuple[Session, Store, Held]]:
    """A transaction that has locked the interval's row. A holder whose client does nothing between two waits is ended.

    It is a session of this interval, and of a user whose sessions this one may end.

    Raises:
        StoreUnavailable: somebody holds the row for longer than that, and works, or may not be ended.
    """
    idle, others, where = dict[int, int](), list[HoldingSession](), told(pipeline)
    for turn in range(PATIENCE):
        with session(pipeline, name_of(table, interval)) as tx:
            store, held = Store(tx, table), None
            if not store.is_prepared():
                raise StoreRefused(f"{where}: what Fencepost keeps of table {table} is gone. Run again.")
            if why := store.why_not_kept():
                raise StoreRefused(f"{where}: {why}")
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
            idle, others = _end_idle(pipeline, table, interval, idle)
    raise StoreUnavailable(f"{where}: {_why_not_ended(pipeline, table, interval, others)}")


def publishers_of(pipeline: Pipeline, table: str, interval: Interval) -> list[str]:
    """The sessions that publish into the interval, or wait to, for a person."""
    with asking(pipeline) as tx:
        return [f"session {one.pid} of user {one.user}" for one in _publishers(tx, table, interval)]


def name_of(table: str, interval: Interval) -> str:
    """What sessions that publish into an interval are named."""
    return f"fencepost {hashlib.sha256(f'{table} {interval.start.isoformat()}'.encode()).hexdigest()[:16]}"


def _end_idle(
    pipeline: Pipeline, table: str, interval: Interval, seen: Mapping[int, int]
) -> tuple[dict[int, int], list[HoldingSession]]:
    """End the sessions of this interval that wait for their clients and have copied no more than was `seen` of them.

    Returns those that wait for their clients, with the bytes that they have copied; and those that this user may not end.
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
    """What a person does about sessions that hold the interval and that this user may not end."""
    named = ", ".join(f"{one.pid} of user {one.user}" for one in others)
    user = pipeline.plain(POSTGRES)["user"]
    return (
        f"table {table}, interval {interval}: session {named} publishes it, and user {user} may not end that. "
        f"Run again once it has ended. If it does nothing, end it: `SELECT pg_terminate_backend({others[0].pid})`. So that "
        f"Fencepost does so: `GRANT pg_signal_backend, pg_read_all_stats TO {quoted(user)}`, or log in as one user."
    )


def _publishers(tx: Session, table: str, interval: Interval) -> list[HoldingSession]:
    """The other sessions that are in a transaction of the interval, and wait for no lock.

    The server looks at the login of each, and at the role that this session acts as. That is a group where the login has
    `SET role`, so the login itself is tried as well.
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
