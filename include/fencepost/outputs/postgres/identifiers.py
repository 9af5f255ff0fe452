"""Names in PostgreSQL: Fencepost's own tables and columns, quotation, and the longest name."""

from __future__ import annotations

LONGEST_IDENTIFIER = 63  # bytes; PostgreSQL truncates a longer name
BOOKKEEPING_TABLES = ("fencepost_tables", "fencepost_batches")  # in the schema of each output table


def quoted(*names: str) -> str:
    """Returns a name quoted for a statement. Several names are joined by dots."""
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)
