"""A temporary table, in which the server checks a batch's values before it converts them to the types of the table's
columns.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import types as t

from fencepost.counts import count_of
from fencepost.outputs.postgres.casts import Cast
from fencepost.outputs.postgres.columns import OWN, casts_of, copied_kinds
from fencepost.outputs.postgres.conversions import TableColumn
from fencepost.outputs.postgres.identifiers import quoted
from fencepost.postgres.connection import Session

SCHEMA, NAME = "pg_temp", "fencepost_staged"
STAGED = f"{SCHEMA}.{NAME}"
# Set for the transaction only, whatever the login has. They decide how the text of an array is read, what the condition of
# a domain says, and which functions a statement calls.
SETTINGS = {"datestyle": "ISO, MDY", "intervalstyle": "postgres", "array_nulls": "on"}
BUILT_IN_FIRST = (
    "set_config('search_path', concat_ws(', ', 'pg_catalog', nullif(current_setting('search_path'), '')), true)"
)


class Unconvertible(Exception):
    """Values of a column cannot be converted. The message names the column and has no value. `row` is the number of the
    first such row, from 1.
    """

    def __init__(self, why: str, row: int) -> None:
        super().__init__(why)
        self.row = row


class TemporaryTable:
    """The rows of a COPY, until the end of the transaction. `place` has the schema and the name of the table."""

    place = (SCHEMA, NAME)

    def __init__(self, session: Session, schema: t.StructType, columns: Sequence[TableColumn]) -> None:
        self._session, self._names = session, [*schema.fieldNames(), *OWN]
        self._casts = casts_of(schema, columns)
        self._kinds = copied_kinds(schema, columns)
        self.number = "row"
        while self.number in self._names:
            self.number += "_"

    def create(self) -> None:
        """Creates the table."""
        changed = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in SETTINGS.items())
        self._session.run(f"SELECT {changed}, {BUILT_IN_FIRST}")
        columns = [f"{quoted(name)} {self._kinds[name]}" for name in self._names]
        self._session.run(
            f"CREATE TEMPORARY TABLE {NAME} ({', '.join(columns)}, {quoted(self.number)} bigint) ON COMMIT DROP"
        )

    def check(self) -> None:
        """Checks that all values can be converted without a change.

        Raises:
            Unconvertible: values of a column cannot.
        """
        number = quoted(self.number)
        failing = [" OR ".join(f"({one.fails})" for one in cast.checks) or "false" for cast in self._casts]
        firsts = ", ".join(f"min({number}) FILTER (WHERE {fails})" for fails in failing)
        (found,) = self._session.run(f"SELECT {firsts} FROM {STAGED}")
        for cast, first in zip(self._casts, found, strict=True):
            if first is not None:
                raise self._why(cast)

    def insert_into(self, table: str) -> None:
        """Inserts the rows into the table with this quoted name."""
        values = {cast.name: cast.value for cast in self._casts}
        into, select = ", ".join(map(quoted, self._names)), ", ".join(values.get(n, quoted(n)) for n in self._names)
        self._session.run(f"INSERT INTO {table} ({into}) SELECT {select} FROM {STAGED}")

    def _why(self, cast: Cast) -> Unconvertible:
        """Counts the rows that fail the first check that any row fails."""
        for one in cast.checks:
            ((rows, first),) = self._session.run(
                f"SELECT count(*), min({quoted(self.number)}) FROM {STAGED} WHERE {one.fails}"
            )
            if rows:
                return Unconvertible(f"column {cast.name} has {one.what}, in {count_of(rows, 'row')}", first)
        raise AssertionError("a row has failed a check")
