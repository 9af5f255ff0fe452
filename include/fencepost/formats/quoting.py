"""Quotes names for Spark. No other module does, because a name may contain a back-quote."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column


def quoted(name: str) -> str:
    """Returns a name as Spark SQL takes it, also within a DDL text. Spark would take a dot in a plain name as the way
    into a struct.
    """
    return f"`{name.replace('`', '``')}`"


def unquoted(text: str) -> str:
    """Returns the name that `quoted` gave this text for."""
    return text[1:-1].replace("``", "`")


def column_named(name: str) -> Column:
    """Returns the column of this name."""
    from pyspark.sql import functions as F

    return F.col(quoted(name))
