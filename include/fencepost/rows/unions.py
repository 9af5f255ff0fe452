"""Checks the rows of several batches before their union."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.types import StructType

from fencepost.errors import SettingsError
from fencepost.formats.column_names import without_case


def check_types(schemas: Mapping[str, StructType]) -> None:
    """Checks that each column has one type. A union would silently use the wider of two types, or text.

    Raises:
        SettingsError: names the column and two batches that differ.
    """
    seen: dict[str, tuple[str, str]] = {}
    for batch, schema in schemas.items():
        for field in schema.fields:
            kind = field.dataType.simpleString()
            other, known = seen.setdefault(without_case(field.name), (batch, kind))
            if known != kind:
                raise SettingsError(
                    f"column {field.name} is {known} in batch {other} and {kind} in batch {batch}: the "
                    "transform changed between them. Read their events one by one, and cast the column."
                )
