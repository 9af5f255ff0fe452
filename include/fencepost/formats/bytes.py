"""Format `bytes`: the value is one column, `value`, of unknown content."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fencepost.formats.declared import Declared
from fencepost.formats.format import Encoded, Unfit
from fencepost.formats.quoting import column_named
from fencepost.model import RegisteredSchema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType


class Bytes:
    """Implements `Format` and `KeyFormat`. No record is malformed."""

    has_registry = False

    def check_columns(self, declared: Declared) -> None:
        if declared.types or declared.fields:
            raise ValueError("format bytes takes no schema: the record's value is one binary column, value")

    def read(self, raw: DataFrame, declared: Declared, kept: Sequence[str]) -> DataFrame:
        from pyspark.sql import functions as F

        others = [F.col(name).alias(f"_{name}") for name in kept]
        tombstone, never = F.col("value").isNull().alias("_tombstone"), F.lit(None).cast("string").alias("_malformed")
        excluded = F.lit(None).cast("string").alias("_excluded")
        return raw.select("value", *others, tombstone, never, excluded)

    def write(self, frame: DataFrame, fields: StructType, schema: RegisteredSchema | None) -> Encoded:
        if "value" not in fields.fieldNames():
            raise Unfit("output format bytes needs a column named value.")
        return self.write_key(frame, "value", schema)

    def write_key(self, frame: DataFrame, name: str, schema: RegisteredSchema | None) -> Encoded:
        return Encoded(as_bytes(frame, name))

    def written_columns(self, frame: DataFrame, fields: StructType) -> dict[str, Column]:
        return {"value": as_bytes(frame, "value")}

    def parse(
        self,
        raw: DataFrame,
        fields: StructType,
        beside: Sequence[Column],
        schema: RegisteredSchema | None,
        why: str | None = None,
    ) -> DataFrame:
        from pyspark.sql import functions as F

        return raw.select("value", *beside, *([F.lit(None).cast("string").alias(why)] if why else []))


def as_bytes(frame: DataFrame, name: str) -> Column:
    """Returns a column as bytes. A binary column stays as it is, and any other becomes its text in UTF-8.

    Raises:
        Unfit: the column's type has no single text form.
    """
    from pyspark.sql.types import BinaryType

    kind = frame.schema[name].dataType
    if isinstance(kind, BinaryType):
        return column_named(name)
    if kind.typeName() in {"array", "map", "struct", "variant", "void"}:
        raise Unfit(
            f"column {name!r} is of type {kind.simpleString()}, which cannot be written as bytes. Use a binary, string or simple "
            "column."
        )
    return column_named(name).cast("string").cast("binary")
