"""A database whose tables have a column of every type, and which keeps its own history of them.

Triggers write the history: each change with the whole row as it was after it (before it, for a deletion), in PostgreSQL's own
types.
A transaction that is rolled back leaves no history. No code of the product or of the connector has a part in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg2

from rigs.postgres_server import PostgresServer, query

from .every_type import COLUMNS, MOODS, text

KEYED, FULL = "keyed", "complete"  # the tables, by what the log has of a row's old values
TABLES = (KEYED, FULL)
SENTINEL = -1  # the id of a row that says how far the changes have come

SETTINGS = {
    "timezone": "UTC",
    "datestyle": "ISO, YMD",
    "intervalstyle": "postgres",
    "bytea_output": "hex",
    "lc_monetary": "C",
}

HISTORY = """
create function keep_history() returns trigger language plpgsql as $$
declare unsent text[] := '{}';
begin
  if TG_OP = 'TRUNCATE' then
    insert into history (source, op) values (TG_TABLE_NAME, 't');
    return null;
  end if;
  if TG_OP = 'DELETE' then
    insert into history (source, op, id, was) values (TG_TABLE_NAME, 'd', OLD.id, row(OLD.*)::every_type);
    return null;
  end if;
  if TG_OP = 'UPDATE' then
    -- A value beside the row that is still the same one is not written to the log again.
    %(unsent)s
    if NEW.id <> OLD.id then
      insert into history (source, op, id, was) values (TG_TABLE_NAME, 'd', OLD.id, row(OLD.*)::every_type);
    end if;
  end if;
  insert into history (source, op, id, unsent, was) values (
    TG_TABLE_NAME, case when TG_OP = 'UPDATE' and NEW.id = OLD.id then 'u' else 'c' end, NEW.id, unsent, row(NEW.*)::every_type
  );
  return null;
end $$
"""
UNSENT = """
    if pg_column_toast_chunk_id(NEW.{0}) = pg_column_toast_chunk_id(OLD.{0}) then unsent := array_append(unsent, '{0}'); end if;
"""


@dataclass(frozen=True)
class Database:
    """The settings of the superuser of one database, who may do all in it."""

    login: dict[str, str]
    owner: dict[str, str]  # the settings of who may make tables, and no more

    @classmethod
    def make(cls, server: PostgresServer) -> Database:
        """A new database with the tables and their history. The server decodes logically."""
        owner = server.database()
        database = cls(server.superuser(owner["dbname"]), owner)
        database.run(*database._statements())
        return database

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """The rows of the last statement. Each is committed at once."""
        rows: list[tuple[Any, ...]] = []
        for statement in statements:
            rows = query(self.login, statement)
        return rows

    @contextmanager
    def session(self) -> Iterator[psycopg2.extensions.connection]:
        """A connection whose transactions the block ends itself."""
        with closing(psycopg2.connect(**self.login)) as connection:
            yield connection

    def begin_history(self) -> None:
        """Have the history begin with the rows that are there now: what a connector that starts now reads first.

        It reads days before the Gregorian calendar wrongly then, so none are left.
        """
        for column in COLUMNS:
            if column.type == "date" or column.type.startswith("timestamp"):
                instead = "'2000-01-01'" if column.required else "null"
                early = f"{column.name} < '1582-10-15' and isfinite({column.name})"
                self.run(*(f"update {table} set {column.name} = {instead} where {early}" for table in TABLES))
        self.run("truncate history")
        for table in TABLES:
            self.run(
                "insert into history (source, op, id, was)"
                f" select '{table}', 'r', id, row(t.*)::every_type from {table} t order by id"
            )

    def mark(self, number: int, tables: Sequence[str] = TABLES) -> None:
        """Set the sentinel of each table to a number: who has seen it in a topic has seen all changes before it."""
        for table in tables:
            required = {column.name: _something(column.type) for column in COLUMNS if column.required}
            values = {"id": str(SENTINEL), "whole": str(number), **required}
            self.run(
                f"insert into {table} ({', '.join(values)}) values ({', '.join(values.values())})"
                f" on conflict (id) do update set whole = {number}"
            )

    def _statements(self) -> Iterator[str]:
        (name,) = query(self.login, "select current_database()")[0]
        yield from (f"alter database {name} set {key} = {text(value)}" for key, value in SETTINGS.items())
        yield f"create type mood as enum ({', '.join(map(text, MOODS))})"
        columns = ", ".join(
            f"{column.name} {column.type}{' not null' if column.required else ''}" for column in COLUMNS
        )
        for table in TABLES:
            yield f"create table {table} (id bigint primary key, {columns})"
            for column in COLUMNS:
                if column.toasted:
                    yield f"alter table {table} alter column {column.name} set storage external"
        yield f"alter table {FULL} replica identity full"
        yield f"create type every_type as (id bigint, {', '.join(f'{column.name} {column.type}' for column in COLUMNS)})"
        yield (
            "create table history (seq bigint generated always as identity primary key, source text not null, op text not null,"
            " id bigint, unsent text[], was every_type)"
        )
        yield HISTORY % {"unsent": "".join(UNSENT.format(column.name) for column in COLUMNS if column.toasted)}
        for table in TABLES:
            yield (
                f"create trigger keep after insert or update or delete on {table} for each row execute function keep_history()"
            )
            yield f"create trigger keep_truncation after truncate on {table} for each statement execute function keep_history()"


def _something(kind: str) -> str:
    """A value for a column that the sentinel has to fill."""
    return {
        "integer": "0",
        "numeric(12,2)": "0",
        "text": "''",
        "bytea": "''::bytea",
        "timestamptz": "'2020-01-01'",
        "uuid": "gen_random_uuid()",
        "text[]": "'{}'",
    }[kind]
