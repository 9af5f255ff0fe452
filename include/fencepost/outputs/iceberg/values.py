"""The ledger's values for an output that is an Iceberg table."""

from __future__ import annotations

from typing import Any, Literal

from fencepost.model import Batch
from fencepost.outputs.table.values import TableOutput, TablePublication


class IcebergOutput(TableOutput):
    """An Iceberg table as a plan freezes it."""

    kind: Literal["iceberg"] = "iceberg"

    def announced(self, batch: Batch) -> dict[str, Any]:
        """Returns the snapshot that has published the batch."""
        into = batch.publication
        return {"snapshot": into.snapshot if isinstance(into, IcebergPublication) else None}


class IcebergPublication(TablePublication):
    """The commit of a staged batch to the Iceberg table with this UUID. Once it has ended, it has the id of its snapshot."""

    kind: Literal["iceberg"] = "iceberg"
    uuid: str
    snapshot: int | None = None

    @property
    def method(self) -> str:
        """Returns `as snapshot ID of table NAME`, for the batch's history. The id is known once the publication has ended."""
        which = f"snapshot {self.snapshot}" if self.snapshot is not None else "one snapshot"
        return f"as {which} of table {self.table}"


PLANNED, PUBLICATION = IcebergOutput, IcebergPublication
