"""Checks that an Iceberg table belongs to the pipeline and accepts rows with given columns."""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.table import Table
from pyspark.sql import types as t

from fencepost.errors import AnotherCluster, TableRefused
from fencepost.model import Interval
from fencepost.outputs.iceberg.files_in_base import has_rows
from fencepost.outputs.iceberg.lake_table import LakeTable, base_of, why_not_partitioned
from fencepost.outputs.iceberg.settings import IcebergSettings
from fencepost.outputs.iceberg.types import OWN, column_differences, unsupported_columns


class LakeShape:
    """The `Columns` of a pipeline's table."""

    def __init__(self, lake: LakeTable) -> None:
        self._lake, self._pipeline = lake, lake.pipeline

    def adds(self, table: Table) -> bool:
        """Returns whether a publication adds columns that the table lacks. A table without any column takes all."""
        settings = self._pipeline.output
        has_none = {one.name for one in table.schema().fields} <= OWN.keys()
        return has_none or (isinstance(settings, IcebergSettings) and settings.add_columns)

    def check(self, table: Table) -> None:
        """Checks the table's owner, format and partition spec. A table without an owner must not have rows.

        Raises:
            TableRefused, AnotherCluster: the table may not be published to.
        """
        base = base_of(table, self._lake.name)
        try:
            self._lake.of.check_owner(base.owner)
        except (TableRefused, AnotherCluster) as error:
            raise type(error)(f"pipeline {self._pipeline.name}: {error}") from None
        why = why_not_partitioned(self._lake.name, table.metadata)
        if not why and base.owner is None and has_rows(table, base.main):
            why = ["it has no owner, and has rows already, which belong to no batch: name another table, or empty it"]
        self._refuse(why, "cannot be published to")

    def check_columns(self, table: Table, schema: t.StructType) -> None:
        """Checks the table, and that it takes these columns.

        Raises:
            TableRefused, AnotherCluster: it may not be published to, or does not take them.
        """
        self.check(table)
        if schema.fields:
            differences = column_differences(self._lake.name, schema, table.schema(), add=self.adds(table))
            self._refuse(differences, "does not accept the transform's result")

    def check_supported(self, schema: t.StructType) -> None:
        """Raises TableRefused unless these columns can be columns of an Iceberg table."""
        self._refuse(unsupported_columns(schema), "does not accept the transform's result")

    def check_result(self, interval: Interval, schema: t.StructType) -> None:
        """Checks that the table, if it exists, takes these columns. The publication creates a missing table."""
        self.would_take(interval, schema)

    def would_take(self, interval: Interval | None, schema: t.StructType) -> str:
        """Returns what a run would change in the table for these columns."""
        self.check_supported(schema)
        table, named = self._lake.load(), f"table {self._lake.name}"
        if table is None:
            return f"T{named[1:]} does not exist yet. The first publication creates it with these columns."
        self.check_columns(table, schema)
        lacking = [name for name in schema.fieldNames() if name not in {one.name for one in table.schema().fields}]
        return f"T{named[1:]} gets the new columns {', '.join(lacking)}." if lacking else ""

    def _refuse(self, why: Sequence[str], what: str) -> None:
        if why:
            raise TableRefused(
                f"pipeline {self._pipeline.name}: table {self._lake.name} {what}: {'; '.join(why)}. Nothing was published. "
                "Change the table or the transform, and run again."
            )
