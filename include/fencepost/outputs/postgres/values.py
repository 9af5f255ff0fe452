"""What the ledger keeps of an output that is a table of PostgreSQL."""

from __future__ import annotations

from typing import Literal

from fencepost.outputs.table.values import TableOutput, TablePublication


class PostgresOutput(TableOutput):
    """A table of PostgreSQL."""

    kind: Literal["postgres"] = "postgres"


class PostgresPublication(TablePublication):
    """A commit to a table of PostgreSQL."""

    kind: Literal["postgres"] = "postgres"


PLANNED, PUBLICATION = PostgresOutput, PostgresPublication
