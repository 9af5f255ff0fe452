"""The ledger's values for an output that is a PostgreSQL table."""

from __future__ import annotations

from typing import Literal

from fencepost.outputs.table.values import TableOutput, TablePublication


class PostgresOutput(TableOutput):
    """A PostgreSQL table as a plan freezes it."""

    kind: Literal["postgres"] = "postgres"


class PostgresPublication(TablePublication):
    """The commit of a staged batch to a PostgreSQL table."""

    kind: Literal["postgres"] = "postgres"


PLANNED, PUBLICATION = PostgresOutput, PostgresPublication
