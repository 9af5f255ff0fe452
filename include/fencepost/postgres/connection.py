"""Opens sessions with PostgreSQL, one transaction each, and translates their errors. Only this module imports the
driver.

Invariant: a transaction is committed only while the server says that it is under way. If an error in a transaction is
ignored, the server answers a commit with a rollback, and the driver reports success.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import pyarrow as pa

from fencepost.config.client_config import ClientConfig
from fencepost.config.services.postgres import POSTGRES
from fencepost.config.services.service import Visibility
from fencepost.errors import (
    AccessDenied,
    CommitStateUnknown,
    FencepostError,
    LoginRefused,
    TableRefused,
    TableUnavailable,
)
from fencepost.postgres.sqlstates import (
    CANCELLED,
    LOCK_TIMED_OUT,
    description,
    is_denied,
    is_of_rows,
    is_unavailable,
)

OLDEST = 14  # PostgreSQL's version; from 14 on the server shows the progress of a COPY
CONNECT_SECONDS = 10
LOCK_SECONDS = 30  # how long a statement waits for a lock
# For a session that only reads: it decides nothing, so it gives up early and can be repeated.
ASK_LOCK_SECONDS = 5
ASK_SECONDS = 30  # for one statement
# Set for the transaction only, because a pooler may give the session to another client afterwards. Settings that a server does
# not know are left out.
LOCAL = {
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0",  # the ledger is read while the row is locked
    "transaction_timeout": "0",
    "timezone": "UTC",
    "row_security": "off",  # makes it an error if a policy hides rows
}
NO_LOGIN = re.compile(
    r"authentication failed|no pg_hba\.conf entry|role \".*\" does not exist|no password supplied|not permitted to log in"
    r"|permission denied for database|certificate"
)
NO_DATABASE = re.compile(
    r"database \".*\" does not exist|invalid connection option|invalid sslmode|could not (read|open)"
)
# The texts of libpq itself for a session that has ended.
ENDED = re.compile(
    r"server closed the connection unexpectedly|no connection to the server|connection not open"
    r"|SSL connection has been closed unexpectedly|SSL SYSCALL error: [\w ]+"
    r"|could not (receive data from|send data to) server: [\w ]+"
)


class StatementFailed(Exception):
    """The server refused a statement.

    `column`, `constraint`, `schema` and `table` are the names in the error. A trigger may have written a row's values
    into them, so show only names that the catalogue has (`refusals.py`). `row` is the number of the row that a COPY
    failed on, from 1, or 0 if it is not known. No other text of the server is kept.
    """

    def __init__(
        self,
        sqlstate: str,
        *,
        column: str = "",
        constraint: str = "",
        schema: str = "",
        table: str = "",
        row: int = 0,
    ) -> None:
        super().__init__(sqlstate)
        self.sqlstate, self.row = sqlstate, row
        self.column, self.constraint, self.schema, self.table = column, constraint, schema, table

    @property
    def is_of_rows(self) -> bool:
        """Returns whether the error of a statement that copies or removes rows is about the rows."""
        return is_of_rows(self.sqlstate)


class Session:
    """A session with one transaction."""

    def __init__(self, connection: Any, where: str) -> None:
        self._connection, self._where = connection, where
        self.ended = False

    def run(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Runs a statement, in which `$1` and so on stand for the values. Returns its rows, or an empty list if it
        returns none.

        Raises:
            StatementFailed: the server refuses it.
            TableUnavailable: the session has ended.
        """
        with self._connection.cursor() as cursor, _errors(self._where):
            cursor.execute(statement, list(values) if values else None)
            return list(cursor.fetchall()) if cursor.description else []

    def arrow_table(self, statement: str) -> pa.Table:
        """Returns the rows of a statement as columns. Raises the errors of `run`."""
        with self._connection.cursor() as cursor, _errors(self._where):
            cursor.execute(statement)
            return cursor.fetch_arrow_table()

    def columns(self, statement: str) -> pa.Schema:
        """Returns the columns of a statement's rows without running it, with the server's types in the metadata of each.
        There are none if it returns no rows. Raises the errors of `run`.
        """
        with self._connection.cursor() as cursor, _errors(self._where):
            return cursor.adbc_execute_schema(statement)

    def batches(self, statement: str) -> Generator[pa.RecordBatch]:
        """Yields the rows of a statement while the server sends them. Raises the errors of `run`."""
        with self._connection.cursor() as cursor, _errors(self._where):
            cursor.execute(statement)
            # The reader of `fetch_record_batch` raises errors without a SQLSTATE, whose text has values of rows.
            yield from cursor._results.reader

    def copy(self, schema: str, table: str, batches: pa.RecordBatchReader) -> None:
        """Appends rows to a table. Columns are matched by name, and have to be of the table's own types."""
        with self._connection.cursor() as cursor, _errors(self._where):
            cursor.adbc_ingest(table, batches, mode="append", db_schema_name=schema)

    def commit(self) -> None:
        """Commits.

        Raises:
            StatementFailed: a deferred check fails. Nothing is committed.
            TableUnavailable: the server has ended the transaction. Nothing is committed.
            CommitStateUnknown: the commit was sent, and no response came.
        """
        status = self._connection.adbc_connection.get_option("adbc.postgresql.transaction_status")
        if status != "intrans":
            raise TableUnavailable(f"{self._where}: the transaction is {status}, so nothing was committed. Run again.")
        self.ended = True
        try:
            with _errors(self._where):
                self._connection.commit()
        except TableUnavailable as error:
            raise CommitStateUnknown(f"{error} The next attempt checks what was committed.") from None


@contextmanager
def asking(of: ClientConfig) -> Iterator[Session]:
    """Yields a read-only session. It locks no row, and no statement takes longer than `ASK_SECONDS`.

    Raises:
        TableUnavailable: see `session`. Other causes are a statement that took too long, and a lock of another session,
            which the message names.
    """
    with session(of, wait=ASK_LOCK_SECONDS, limit=ASK_SECONDS) as tx:
        try:
            tx.run("SET TRANSACTION READ ONLY")
            yield tx
        except StatementFailed as failed:
            if failed.sqlstate == LOCK_TIMED_OUT:
                raise TableUnavailable(f"{describe_server(of)}: {_locked_by(of)}") from None
            if failed.sqlstate == CANCELLED:
                took = f"{describe_server(of)}: a query took more than {ASK_SECONDS:g} s and was cancelled."
                raise TableUnavailable(f"{took} Run again once the server is less busy.") from None
            raise


def _locked_by(of: ClientConfig) -> str:
    """Returns the sessions that lock tables of the database against readers, with the next step."""
    with session(of, limit=ASK_SECONDS) as tx:  # after an error a transaction takes no statement any more
        found = tx.run(
            "SELECT DISTINCT l.pid, coalesce(a.usename::text, '') FROM pg_catalog.pg_locks AS l "
            "LEFT JOIN pg_catalog.pg_stat_activity AS a USING (pid) WHERE l.granted AND l.mode = 'AccessExclusiveLock' "
            "AND l.locktype = 'relation' AND l.pid <> pg_backend_pid() AND l.database = "
            "(SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()) ORDER BY l.pid"
        )
    if not found:
        return f"another session held a lock for more than {ASK_LOCK_SECONDS:g} s. Run again."
    sessions = ", ".join(f"{pid} of user {user}" if user else str(pid) for pid, user in found)
    return (
        f"another session held a lock for more than {ASK_LOCK_SECONDS:g} s. Sessions that lock a table against readers: "
        f"{sessions}. Wait for the end of their transactions, or end them: `SELECT pg_terminate_backend(PID)`. Then run again."
    )


@contextmanager
def session(
    of: ClientConfig,
    name: str = "fencepost",
    wait: float = LOCK_SECONDS,
    limit: float | None = None,
    *,
    read_only: bool = False,
) -> Iterator[Session]:
    """Yields a session in a transaction under READ COMMITTED. The transaction is rolled back unless the block commits
    it.

    `name` is the session's `application_name`. `wait` is how many seconds a statement waits for a lock. `limit` is how many
    seconds the connection, or one statement, may take. If the session is `read_only`, the server may be a replica, and
    policies decide which rows the user sees.

    Raises:
        TableUnavailable, AccessDenied, TableRefused: the server does not answer, refuses the login, is older than `OLDEST`, or
            has no such database.
    """
    from adbc_driver_postgresql import dbapi

    where = describe_server(of)
    try:
        connection = dbapi.connect(_conninfo(of, limit, "any" if read_only else "read-write"))
    except dbapi.Error as error:
        _not_connected(error, where, of)
    try:
        found = Session(connection, where)
        found.run(f"SET TRANSACTION ISOLATION LEVEL READ COMMITTED READ {'ONLY' if read_only else 'WRITE'}")
        local = (
            LOCAL
            | ({"row_security": "on"} if read_only else {})
            | {"application_name": name, "lock_timeout": f"{round(wait * 1000)}ms"}
        )
        if limit is not None:
            local["statement_timeout"] = f"{round(limit * 1000)}ms"
        ((durable, version),) = found.run(
            "SELECT current_setting('synchronous_commit'), current_setting('server_version_num')::integer"
        )
        if version < OLDEST * 10_000:
            raise TableRefused(
                f"{where}: the server is PostgreSQL {version // 10_000}, and a table needs version {OLDEST} or later. Upgrade "
                f"the server, or name another one in {of.place(POSTGRES)}:."
            )
        if durable != "remote_apply":  # stricter than `on`
            local["synchronous_commit"] = "on"
        rows = ", ".join(f"(${2 * n + 1}::text, ${2 * n + 2}::text)" for n in range(len(local)))
        found.run(
            f"SELECT set_config(v.name, v.value, true) FROM (VALUES {rows}) AS v (name, value) "  # noqa: S608
            "JOIN pg_catalog.pg_settings AS s ON s.name = v.name",
            *(text for pair in local.items() for text in pair),
        )
        yield found
    except StatementFailed as failed:
        raise meaning(failed, where) from None
    finally:
        with suppress(dbapi.Error):
            connection.close()  # which rolls back what is not committed


def describe_server(of: ClientConfig) -> str:
    """Returns the database's host, port and name, for messages."""
    given = of.plain(POSTGRES)
    return f"PostgreSQL at {given['host']}:{given.get('port', '5432')}, database {given['dbname']}"


def meaning(failed: StatementFailed, where: str) -> FencepostError:
    """Returns the error for a failed statement that is not about rows. The error contains no text of the server."""
    what = f"{where}: {description(failed.sqlstate)} (SQLSTATE {failed.sqlstate})."
    if failed.sqlstate == LOCK_TIMED_OUT:
        return TableUnavailable(f"{what} Another session holds a lock on the table or its rows. Run again.")
    if is_denied(failed.sqlstate):
        return AccessDenied(
            f"{what} `fencepost acls` prints the rights that the user needs, and `fencepost doctor` names the missing rights. "
            "Grant them, and run again."
        )
    if is_unavailable(failed.sqlstate):
        return TableUnavailable(f"{what} Nothing was committed. Run again once the server accepts the statement.")
    return TableRefused(f"{what} Nothing was committed. Read the cause in the server's log, remove it, and run again.")


def _conninfo(of: ClientConfig, limit: float | None = None, kind: str = "read-write") -> str:
    """Returns the settings in libpq's form, with at most `limit` seconds for the connection. `kind` is the kind of server,
    unless the settings say another. The text never leaves this process.
    """
    defaults = {"connect_timeout": str(CONNECT_SECONDS), "target_session_attrs": kind}
    keepalives = {"keepalives_idle": "30", "keepalives_interval": "10", "keepalives_count": "3"}
    given = {**defaults, **keepalives, "client_encoding": "UTF8", **of.plain(POSTGRES)}
    timeout = given["connect_timeout"]
    if limit is not None and not (timeout.isdigit() and 0 < int(timeout) <= limit):  # 0 means no limit
        given["connect_timeout"] = f"{limit:.0f}"
    escaped = {name: value.replace("\\", "\\\\").replace("'", "\\'") for name, value in given.items()}
    return " ".join(f"{name}='{value}'" for name, value in escaped.items())


def _not_connected(error: Any, where: str, of: ClientConfig) -> NoReturn:
    """Raises the error for a missing session, with libpq's text. libpq's text has no password, and secrets are masked
    nevertheless. The text of an error from a login trigger is left out.
    """
    said = _first_line(str(error))
    if "CONTEXT:" in str(error):
        said = "a trigger of the server refused the session."
    given = of.plain(POSTGRES)
    for name in POSTGRES.named(Visibility.SECRET):
        secret = given.get(name)
        said = said.replace(secret, "***") if secret else said
    if NO_LOGIN.search(said):
        raise LoginRefused(f"{where}: {said} Check {of.place(POSTGRES)}: in pipeline.yaml, and run again.") from None
    if NO_DATABASE.search(said):
        raise TableRefused(f"{where}: {said} Check {of.place(POSTGRES)}: in pipeline.yaml, and run again.") from None
    raise TableUnavailable(f"{where}: {said} Nothing was changed. Run again once it answers.") from None


def _first_line(text: str) -> str:
    line = next((line for line in text.splitlines() if line.strip()), "it gave no reason")
    return f"{line.removeprefix('IO: ').replace('[libpq] ', '').strip().rstrip('.')}."


@contextmanager
def _errors(where: str) -> Iterator[None]:
    """Raises Fencepost's errors in place of the driver's. Fencepost's errors have none of the driver's text."""
    from adbc_driver_postgresql import dbapi

    try:
        yield
    except dbapi.Error as error:
        details = {_text(name).removeprefix("PG_DIAG_"): _text(value) for name, value in error.details or ()}
        if not error.sqlstate:
            ended = ENDED.search(str(error))
            said = f" {ended[0]}." if ended is not None else ""
            raise TableUnavailable(f"{where}:{said} The session has ended. Run again.") from None
        context = details.get("CONTEXT", "")
        in_copy, of_row = COLUMN.match(context), ROW.search(context)
        raise StatementFailed(
            error.sqlstate,
            column=details.get("COLUMN_NAME") or (in_copy[1].strip() if in_copy else ""),
            row=int(of_row[1]) if of_row else 0,
            constraint=details.get("CONSTRAINT_NAME", ""),
            schema=details.get("SCHEMA_NAME", ""),
            table=details.get("TABLE_NAME", ""),
        ) from None


COLUMN = re.compile(r"^COPY .*, line \d+, column ([^:]+)")
# In the last line of the context, which is the outermost: statements of a trigger stand above it.
ROW = re.compile(r"^COPY .*, line (\d{1,15})(, column [^\n]*)?\n?\Z", re.MULTILINE)


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
