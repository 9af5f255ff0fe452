"""What the ledger keeps of an output that is a table, whatever its store."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import AwareDatetime

from fencepost.model import Batch, PlannedOutput, Publication


class TableOutput(PlannedOutput):
    """An output table of a store, `schema.name`. A plan freezes no more: a staged batch depends on no table.

    A batch without records is published too: a revision removes what older ones have there.
    """

    table: str
    takes_empty: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """The table's, with its schema."""
        return self.table

    @property
    def told(self) -> str:
        """For a person."""
        return f"table {self.table}"

    def announced(self, batch: Batch) -> dict[str, Any]:
        """Its name."""
        return {"table": self.table}


class TablePublication(Publication):
    """The commit of a staged batch to the table that has this name by then. It has no marks, and does not age."""

    table: str
    ended_at: AwareDatetime | None = None

    @property
    def has_ended(self) -> bool:
        """Whether the ledger has recorded the commit."""
        return self.ended_at is not None

    @property
    def way(self) -> str:
        """In one commit."""
        return f"in one commit to table {self.table}"

    @property
    def taker(self) -> str:
        """The table."""
        return f"table {self.table}"
