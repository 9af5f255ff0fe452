"""Names in PostgreSQL: those of Fencepost's own tables and columns, and how long a name may be."""

from __future__ import annotations

LONGEST_IDENTIFIER = 63  # bytes; PostgreSQL cuts a longer one off
STORE_TABLES = ("fencepost_tables", "fencepost_batches")  # in the schema of each output table
RESERVED_COLUMNS = ("fencepost_interval", "fencepost_revision")


def quoted(*names: str) -> str:
    """A name in a statement."""
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)
