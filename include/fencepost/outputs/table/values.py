"""The ledger's values for an output that is a table of any store."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import AwareDatetime, JsonValue

from fencepost.counts import count_of
from fencepost.model import Batch, Frozen, PlannedOutput, Publication

INTERVAL, REVISION = RESERVED_COLUMNS = ("fencepost_interval", "fencepost_revision")  # in every table


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

    def announced(self, batch: Batch) -> dict[str, Any]:
        """Returns the current table that the publication has brought up to date, if there is one."""
        into = batch.publication
        keys = into.current if isinstance(into, TablePublication) else None
        return {"current_table": keys.table if keys is not None else None}


class CurrentKeys(Frozen):
    """What a commit did in a current table: the number of keys that it deleted, that it changed or added, and that it
    computed and left as they were.
    """

    table: str
    deleted: int = 0
    changed: int = 0
    same: int = 0

    def __str__(self) -> str:
        keys = count_of(self.deleted + self.changed + self.same, "key")
        what = f"{self.deleted:,} deleted, {self.changed:,} changed, {self.same:,} as before"
        return f"current table {self.table}: of {keys} {what}"


class TablePublication(Publication):
    """The commit of a staged batch to the table of this name. A commit to a table has no marks, so it does not expire."""

    table: str
    is_unseen: ClassVar[bool] = True
    ended_at: AwareDatetime | None = None
    current: CurrentKeys | None = None  # None if there is no current table, or a stale one

    @property
    def has_ended(self) -> bool:
        """Returns whether the ledger has recorded the commit."""
        return self.ended_at is not None

    @property
    def method(self) -> str:
        """Returns `in one commit to table NAME`, for the batch's history."""
        keys = f"; {self.current}" if self.current is not None else ""
        return f"in one commit to table {self.table}{keys}"

    @property
    def details(self) -> dict[str, JsonValue]:
        """Returns what the commit did in the current table, if there is one that is not stale."""
        return {"current": self.current.model_dump(mode="json")} if self.current is not None else {}

    @property
    def target(self) -> str:
        """Returns `table NAME`, the words for what accepts or refuses the batch."""
        return f"table {self.table}"
