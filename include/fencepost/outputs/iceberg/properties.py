"""The owner of a table, and the rows of its intervals, as properties of the table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from fencepost.errors import TableRefused
from fencepost.outputs.iceberg.table_base import SnapshotRow
from fencepost.outputs.table.pipeline_table import Owner
from fencepost.outputs.table.revisions import Committed

OWNER = "fencepost.owner"
INTERVAL_PREFIX = "fencepost.interval."


def name_of(start: datetime) -> str:
    """Returns the property with the row of the interval that starts then."""
    return f"{INTERVAL_PREFIX}{start.astimezone(UTC).isoformat()}"


def owner_property(owner: Owner) -> dict[str, str]:
    """Returns the property that registers the owner."""
    return {OWNER: _json(owner._asdict())}


def owner_in(properties: Mapping[str, str], table: str) -> Owner | None:
    """Returns the table's owner, or None if it has none.

    Raises:
        TableRefused: somebody has changed the property.
    """
    if OWNER not in properties:
        return None
    try:
        return Owner(**json.loads(properties[OWNER]))
    except (ValueError, TypeError):
        raise _changed(table, OWNER) from None


def row_property(row: SnapshotRow) -> dict[str, str]:
    """Returns the property that has the row."""
    value = {
        "end": row.end.isoformat() if row.end is not None else None,
        "ledger": row.ledger,
        "lease": row.lease,
        "closed": row.closed,
        "refused": row.refused,
        "revisions": {str(number): list(one) for number, one in row.revisions.items()},
        "snapshot": row.snapshot,
        "batch": row.batch,
    }
    return {name_of(row.start): _json(value)}


def rows_in(properties: Mapping[str, str], table: str) -> dict[datetime, SnapshotRow]:
    """Returns the rows by the starts of their intervals.

    Raises:
        TableRefused: somebody has changed a property.
    """
    found = dict[datetime, SnapshotRow]()
    for name, value in properties.items():
        if name.startswith(INTERVAL_PREFIX):
            try:
                start = datetime.fromisoformat(name.removeprefix(INTERVAL_PREFIX))
                row = _row(start, json.loads(value))
                is_same = row_property(row) == {name: value}
            except (ValueError, TypeError, KeyError, AttributeError):
                is_same = False
            if not is_same:
                raise _changed(table, name)
            found[start] = row
    return found


def _row(start: datetime, value: Mapping[str, Any]) -> SnapshotRow:
    return SnapshotRow(
        start=start,
        end=datetime.fromisoformat(value["end"]) if value["end"] is not None else None,
        ledger=str(value["ledger"]),
        lease=int(value["lease"]),
        closed=bool(value["closed"]),
        refused=str(value["refused"]),
        revisions={int(number): Committed(*one) for number, one in value["revisions"].items()},
        snapshot=int(value["snapshot"]),
        batch=str(value["batch"]),
    )


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def _changed(table: str, name: str) -> TableRefused:
    return TableRefused(
        f"table {table}: its property {name} was changed and cannot be read. Fencepost sets the properties that begin with "
        "fencepost. and nobody else may. Restore the property from the table's metadata log."
    )
