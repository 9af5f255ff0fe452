"""A pipeline's Iceberg table: loads it, reads the base of a commit, and says whether an interval can be replaced there."""

from __future__ import annotations

from functools import cached_property

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform

from fencepost.ledger.deployment import Deployment
from fencepost.outputs.iceberg.catalog import catalog_of, describe_catalog, load
from fencepost.outputs.iceberg.properties import owner_in, rows_in
from fencepost.outputs.iceberg.table_base import TAG, Base
from fencepost.outputs.table.pipeline_table import PipelineTable
from fencepost.outputs.table.values import RESERVED_COLUMNS


class LakeTable:
    """The table of a pipeline in its catalog."""

    def __init__(self, deployment: Deployment, name: str) -> None:
        self.of = PipelineTable(deployment, name, "its properties that begin with fencepost.", "another catalog")
        self.pipeline, self.name = deployment.pipeline, name

    @cached_property
    def catalog(self) -> Catalog:
        """Returns the catalog. Raises TableUnavailable or AccessDenied."""
        return catalog_of(self.pipeline)

    @property
    def where(self) -> str:
        """Returns the catalog with its address, for messages."""
        return describe_catalog(self.pipeline)

    def load(self, name: str = "") -> Table | None:
        """Returns the table as it is now, or None if there is none. `name` is another table's.

        Raises:
            TableUnavailable, AccessDenied: the catalog does not answer, or refuses the request.
        """
        return load(self.pipeline, self.catalog, name or self.name)


def base_of(table: Table, name: str) -> Base:
    """Returns the base that a commit to the table as it was loaded has."""
    metadata = table.metadata
    refs = metadata.refs
    main = metadata.current_snapshot_id
    ancestors, at = set[int](), main
    while at is not None:
        snapshot = metadata.snapshot_by_id(at)
        ancestors.add(at)
        at = snapshot.parent_snapshot_id if snapshot is not None else None
    return Base(
        uuid=str(metadata.table_uuid),
        owner=owner_in(metadata.properties, name),
        main=main,
        tag=refs[TAG].snapshot_id if TAG in refs else None,
        ancestors=frozenset(ancestors),
        rows=rows_in(metadata.properties, name),
    )


def why_not_partitioned(name: str, metadata: TableMetadata) -> list[str]:
    """Returns why the table's format or partition spec does not allow to replace an interval. Each reason comes with what
    to do.
    """
    found = list[str]()
    if metadata.format_version < 2:
        found.append(
            f"it has format version {metadata.format_version}: ALTER TABLE {name} SET TBLPROPERTIES ('format-version' = '2')"
        )
    if metadata.format_version > 2:
        found.append(
            f"it has format version {metadata.format_version}, and Fencepost writes version 2: create another table"
        )
    columns = {one.field_id: one.name for one in metadata.schema().fields}
    fields = metadata.spec().fields
    there = [columns.get(one.source_id) for one in fields if isinstance(one.transform, IdentityTransform)]
    for column in RESERVED_COLUMNS:
        if column in columns.values() and column not in there:
            found.append(f"it is not partitioned by {column}: ALTER TABLE {name} ADD PARTITION FIELD {column}")
    found += [
        f"it is partitioned by {one.transform} of {columns.get(one.source_id)}, and Fencepost writes identities of columns "
        f"only: ALTER TABLE {name} DROP PARTITION FIELD {one.name}"
        for one in fields
        if not isinstance(one.transform, IdentityTransform)
    ]
    return found
