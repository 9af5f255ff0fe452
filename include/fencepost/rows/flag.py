"""Flag: turns a transform's result into the output's columns, and adds the first quarantine rule that each row fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from fencepost.config.pipeline import Pipeline
from fencepost.model import Schemas
from fencepost.rows.decode import RECORD
from fencepost.rows.encode import PLACES, output_columns, written_columns
from fencepost.rows.whole_records import RECORD_PLACE, RULE


@dataclass(frozen=True)
class Rules:
    """The quarantine rules of a batch. `first_failed` gives the number of the first rule that a row fails, or null.
    `named` has the name and the reason of each rule.
    """

    first_failed: Callable[[DataFrame], Column]
    named: tuple[tuple[str, str], ...]


NO_RULES = Rules(lambda frame: F.lit(None).cast("int"), ())


def keeps_record(frame: DataFrame) -> bool:
    """Returns whether a transform's result kept the source records of its rows."""
    return "_record" in frame.columns and frame.schema["_record"].dataType.simpleString() == RECORD.simpleString()


def to_flagged(
    frame: DataFrame,
    pipeline: Pipeline,
    rules: Rules | None,
    schemas: Schemas | None = None,
    *,
    several: bool = False,
    encoded: bool = True,
    beside: Mapping[str, Column] | None = None,
) -> DataFrame:
    """Returns the output's columns of a transform's result, with `_out_` before their names, and the column `rule`.

    `_topic`, `_partition` and `_offset` follow if the transform kept them. `_record` follows for rows that fail a rule.
    With `several`, a record may have several rows, so `RECORD_PLACE` follows too, with the place of each row's record.
    Without `rules` there is no `rule` and no `_record`. The columns `beside` come last. Without `encoded` the output's
    columns are left out.

    Raises:
        SettingsError: a column that the pipeline names is missing in the result, or has a wrong type.
    """
    columns = output_columns(frame, pipeline, schemas) if encoded else {}
    out = {f"_out_{name}": column for name, column in columns.items()}
    others = dict(beside or {})
    places = [name for name in PLACES if name in frame.columns]
    known = [column.alias(name) for name, column in out.items()]
    extra = [column.alias(name) for name, column in others.items()]
    if rules is None:
        return frame.select(*known, *places, *extra)
    knows = keeps_record(frame)
    said = written_columns(frame, pipeline)
    judged = frame.select(*known, *places, *(["_record"] if knows else []), *said.values(), *extra)
    rule = rules.first_failed(frame.select(*said.values()))
    record = F.when(rule.isNotNull(), F.col("_record")) if knows else F.lit(None).cast(RECORD)
    at = [F.col(f"_record.{part}").alias(name) for part, name in RECORD_PLACE.items()] if several else []
    return judged.select(*out, *places, record.alias("_record"), rule.alias(RULE), *at, *others)


def keeps_source_record() -> Column:
    """Returns whether quarantine gets the source record instead of the flagged row. It does if the row fails a rule and
    its record is known.
    """
    return F.col(RULE).isNotNull() & F.col("_record").isNotNull()


def unfit_reason(flagged: DataFrame) -> Column:
    """Returns why a flagged row would fail a write, because it does not fit the output's format or schema. The reason
    is null if the row fits, or if quarantine gets its source record instead.
    """
    if "_out_unfit" not in flagged.columns:
        return F.lit(None).cast("string")
    return F.when(~keeps_source_record(), F.col("_out_unfit"))
