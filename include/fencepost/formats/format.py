"""What a format of records can do."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType


class Unfit(ValueError):
    """A transform's result cannot be written in this format; the text names the column and the cure."""


class Format(Protocol):
    """Reads, checks, writes and parses back the value of a record. Keys are bytes in every format."""

    def check_columns(self, columns: Collection[str]) -> None:
        """Refuse declared columns that the format has no use for, or the want of them.

        Raises:
            ValueError: what is wrong, for a person.
        """

    def read(self, raw: DataFrame, types: Mapping[str, str], required: Sequence[str], kept: Sequence[str]) -> DataFrame:
        """The connector's rows as the source's columns, those that are `kept` (with `_` in front), `_tombstone`, `_malformed`.

        The record's own value may be kept too, as `_value`.

        `types` are Spark SQL types by column, and the `required` ones must not be null. `_malformed` is the reason why a
        record does not fit, in text, or null; its columns are null then. A null value is a tombstone: not malformed, and
        its columns are null.
        """

    def write(self, frame: DataFrame, fields: StructType) -> Column:
        """The value, binary, of these fields of a transform's result.

        Raises:
            Unfit: the format cannot say what is in a column.
        """

    def said(self, frame: DataFrame, fields: StructType) -> dict[str, Column]:
        """The columns that `parse` gives back of what `write` writes of this frame, as the frame has them."""

    def parse(self, raw: DataFrame, fields: StructType, beside: Sequence[Column]) -> DataFrame:
        """Values that `write` made, as its fields again, with more columns beside them. One that is none fails the job."""
