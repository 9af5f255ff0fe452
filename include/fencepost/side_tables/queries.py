"""Reads side tables that are queries in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from fencepost.config.pipeline import Pipeline
from fencepost.config.services.postgres import POSTGRES
from fencepost.config.side_tables import QueryTable
from fencepost.errors import AccessDenied, FencepostError, TableRefused, TableUnavailable
from fencepost.postgres.connection import LOCK_SECONDS, Session, StatementFailed, describe_server, session
from fencepost.postgres.sqlstates import CANCELLED, LOCK_TIMED_OUT, READ_ONLY, description, is_denied, is_unavailable
from fencepost.side_tables.content import TableContent, check_required, check_size, content_of, refused
from fencepost.side_tables.declared import declared_columns
from fencepost.side_tables.query_columns import QueryColumn, Unreadable, columns_of, converted, selection

QUERY_SECONDS = 600  # for the query until its last row
# Words for a query where those for a publication do not fit.
SAID = {
    "0A": "it has a statement or an expression that is not allowed within a SELECT",
    "22": "an expression gets a value that it does not accept",
    "22012": "a division by zero",
    "42601": "it has a syntax error, or is not one SELECT",
    "42P02": "it has a parameter such as $1, which gets no value",
    "P0": "a function raised an exception",
}


def read_query_table(pipeline: Pipeline, name: str, table: QueryTable) -> TableContent:
    """Returns the content of a side table that is a query in PostgreSQL. The query runs once, in a transaction that may
    only read.

    Raises:
        SideTableRefused: the server refuses the query, or the rows do not fit the settings.
        TableUnavailable, AccessDenied, TableRefused: the server does not answer, the query takes more than
            `QUERY_SECONDS`, or the user may not run it.
    """
    try:
        server = pipeline.server_of(name)
        with (
            _named(pipeline, name),
            session(server, wait=LOCK_SECONDS, limit=QUERY_SECONDS, read_only=True) as tx,
            _answers(pipeline, name),
        ):
            columns, rows = _read(tx, pipeline, name, table)
    except Unreadable as error:
        raise refused(pipeline, name, str(error)) from None
    check_required(rows, table.required, partial(refused, pipeline, name), "the rows, the query")
    return content_of(pipeline, name, rows, _schema(columns))


def _read(tx: Session, pipeline: Pipeline, name: str, table: QueryTable) -> tuple[list[QueryColumn], pa.Table]:
    columns = columns_of(tx.columns(table.query), declared_columns(table.types))
    names = [f"c{number}" for number in range(len(columns))]
    statement = (
        f"SELECT {', '.join(selection(columns, names))} FROM (\n{_without_semicolon(table.query)}\n) "  # noqa: S608
        f"AS fencepost ({', '.join(names)})"
    )
    batches, size, count = list[pa.RecordBatch](), 0, 0
    with closing(tx.batches(statement)) as found:
        for batch in found:
            size += batch.nbytes
            check_size(pipeline, name, size)
            batches.append(converted(batch, columns, count))
            count += batch.num_rows
    rows = pa.Table.from_batches(batches, None if batches else to_arrow_schema(_schema(columns), timestamp_utc=True))
    return columns, rows


def _schema(columns: list[QueryColumn]) -> StructType:
    return StructType([StructField(column.name, column.wanted) for column in columns])


def _without_semicolon(query: str) -> str:
    return query.rstrip().removesuffix(";")


@contextmanager
def _named(pipeline: Pipeline, name: str) -> Iterator[None]:
    """Names the pipeline and the side table in errors of the server."""
    try:
        yield
    except (AccessDenied, TableUnavailable, TableRefused) as error:
        raise type(error)(f"pipeline {pipeline.name}: side table {name}: {error}") from None


@contextmanager
def _answers(pipeline: Pipeline, name: str) -> Iterator[None]:
    """Raises the error that a failed query means."""
    try:
        yield
    except StatementFailed as failed:
        raise _meaning(failed.sqlstate, pipeline, name) from None


def _meaning(sqlstate: str, pipeline: Pipeline, name: str) -> FencepostError:
    server = pipeline.server_of(name)
    where, user = describe_server(server), server.plain(POSTGRES)["user"]
    if sqlstate == CANCELLED:
        return TableUnavailable(
            f"{where}: the query took more than {QUERY_SECONDS} s, or somebody has cancelled it. Run again, or make the query "
            "faster, for example by an index."
        )
    if sqlstate == LOCK_TIMED_OUT:
        return TableUnavailable(
            f"{where}: another session has locked a table that the query reads. Run again after its transaction."
        )
    if is_denied(sqlstate):
        return AccessDenied(
            f"{where}: user {user} may not read something that the query reads (SQLSTATE {sqlstate}). Grant it SELECT on the "
            "tables and USAGE on their schemas, and run again."
        )
    if sqlstate == READ_ONLY:
        return refused(
            pipeline, name, "the query writes, and a side table is only read. Give a SELECT that changes nothing."
        )
    if is_unavailable(sqlstate):
        return TableUnavailable(
            f"{where}: {description(sqlstate)} (SQLSTATE {sqlstate}). Run again once it takes the query."
        )
    said = SAID.get(sqlstate) or SAID.get(sqlstate[:2]) or description(sqlstate)
    return refused(
        pipeline,
        name,
        f"the server refuses the query: {said} (SQLSTATE {sqlstate}). Correct the query, or what it reads.",
    )
