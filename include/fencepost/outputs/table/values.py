"""The ledger's values for an output that is a table of any store."""

from __future__ import annotations

from typing import ClassVar

from pydantic import AwareDatetime

from fencepost.model import PlannedOutput, Publication


class TableOutput(PlannedOutput):
    """An output table, `schema.name`. A plan freezes the name only, because a staged batch does not depend on the table.

    A batch without records is published too, because it removes the rows of older revisions.
    """

    table: str
    takes_empty: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """Returns the table's name, with its schema."""
        return self.table

    @property
    def description(self) -> str:
        """Returns `table NAME`, for messages."""
        return f"table {self.table}"


class TablePublication(Publication):
    """The commit of a staged batch to the table of this name. A commit to a table has no marks, so it does not expire."""

    table: str
    is_unseen: ClassVar[bool] = True
    ended_at: AwareDatetime | None = None

    @property
    def has_ended(self) -> bool:
        """Returns whether the ledger has recorded the commit."""
        return self.ended_at is not None

    @property
    def method(self) -> str:
        """Returns `in one commit to table NAME`, for the batch's history."""
        return f"in one commit to table {self.table}"

    @property
    def target(self) -> str:
        """Returns `table NAME`, the words for what accepts or refuses the batch."""
        return f"table {self.table}"
