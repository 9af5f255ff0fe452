"""Deletes a table's old metadata files, as its property `write.metadata.delete-after-commit.enabled` says. A REST catalog
does it itself, and `commit_table` of a SQL catalog does not.
"""

from __future__ import annotations

from contextlib import suppress

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table, TableProperties
from pyiceberg.utils.properties import property_as_bool


def delete_old_metadata(table: Table) -> None:
    """Deletes the metadata files that the newest metadata has dropped from its log. `table` was loaded before the commit.

    An error is not reported: the next commit deletes what it drops, and nothing reads these files.
    """
    with suppress(Exception):
        _delete(table)


def _delete(table: Table) -> None:
    metadata = table.metadata
    wanted = property_as_bool(
        metadata.properties,
        TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED,
        TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED_DEFAULT,
    )
    if not wanted or not isinstance(table.catalog, SqlCatalog):
        return
    present = table.catalog.load_table(table.name())
    if present.metadata.table_uuid != metadata.table_uuid:
        return
    kept = {entry.metadata_file for entry in present.metadata.metadata_log} | {present.metadata_location}
    for entry in metadata.metadata_log:
        if entry.metadata_file not in kept:
            with suppress(Exception):
                table.io.delete(entry.metadata_file)
