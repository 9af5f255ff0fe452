"""The protocol that each format of records implements."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType


class Unfit(ValueError):
    """A transform's result cannot be written in this format; the text names the column and the fix."""


class Format(Protocol):
    """Reads, checks, writes and parses back a record's value. Keys are bytes in every format."""

    def check_columns(self, columns: Collection[str]) -> None:
        """Refuse columns that the format does not use, or missing columns that it needs.

        Raises:
            ValueError: says what is wrong, for a person.
        """

    def read(self, raw: DataFrame, types: Mapping[str, str], required: Sequence[str], kept: Sequence[str]) -> DataFrame:
        """The connector's rows as the source's columns, the `kept` ones (with `_` in front), `_tombstone` and `_malformed`.

        The record's own value may be kept too, as `_value`.

        `types` are Spark SQL types by column. `required` columns must not be null. `_malformed` is the reason why a record
        does not fit, as text, or null; the columns of such a record are null. A null value is a tombstone, not malformed, and
        its columns are null.
        """

    def write(self, frame: DataFrame, fields: StructType) -> Column:
        """The value, binary, of these fields of a transform's result.

        Raises:
            Unfit: the format cannot express a column.
        """

    def said(self, frame: DataFrame, fields: StructType) -> dict[str, Column]:
        """The frame's columns that `parse` gets back from what `write` writes."""

    def parse(self, raw: DataFrame, fields: StructType, beside: Sequence[Column]) -> DataFrame:
        """Values from `write` as fields again, with the columns `beside` them. A value that does not parse fails the job."""
