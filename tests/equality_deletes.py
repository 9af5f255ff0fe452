"""Equality deletes, as Flink writes them into a table of Iceberg. pyiceberg has no writer for them, and Spark writes none."""

from __future__ import annotations

from pyiceberg.manifest import (
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.typedef import TableVersion
from pyiceberg.types import IntegerType, ListType, StructType


class DeletesWriter(ManifestWriterV2):
    """Writes a manifest of delete files, with ids of 32 bits: pyiceberg has 64 in its schema, and Spark refuses them."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}

    def _with_partition(self, format_version: TableVersion) -> Schema:
        file = super()._with_partition(format_version).find_field("data_file").field_type
        assert isinstance(file, StructType)
        ids = ListType(element_id=136, element_type=IntegerType(), element_required=True)
        fields = (one.model_copy(update={"field_type": ids}) if one.field_id == 135 else one for one in file.fields)
        return manifest_entry_schema_with_data_file(format_version, StructType(*fields))


def add_deletes(table: Table, deletes: DataFile) -> None:
    """Add a delete file to the table, as one snapshot."""
    with table.transaction() as update:
        producer = update.update_snapshot().fast_append()
        with DeletesWriter(
            table.metadata.spec(), table.schema(), producer.new_manifest_output(), producer.snapshot_id, "deflate"
        ) as writer:
            writer.add(
                ManifestEntry.from_args(
                    status=ManifestEntryStatus.ADDED, snapshot_id=producer.snapshot_id, data_file=deletes
                )
            )
        manifest = writer.to_manifest_file()
        existing = producer._existing_manifests
        producer._existing_manifests = lambda: [*existing(), manifest]  # type: ignore[method-assign]
        producer.commit()
    table.refresh()
