"""Flag: a transform's result as the output's columns, each row with the quarantine rule that it fails first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from fencepost.config.pipeline import Pipeline
from fencepost.model import Schemas
from fencepost.rows.decode import RECORD
from fencepost.rows.encode import PLACES, output_columns, said_columns
from fencepost.rows.whole_records import RECORD_PLACE

RULE = "rule"  # the column with the number of the rule that a row fails, or null


@dataclass(frozen=True)
class Rules:
    """The quarantine rules of a batch: which one a row of values fails first, and each with its name and reason."""

    first_failed: Callable[[DataFrame], Column]
    named: tuple[tuple[str, str], ...]


NO_RULES = Rules(lambda frame: F.lit(None).cast("int"), ())


def keeps_record(frame: DataFrame) -> bool:
    """Whether a transform's result tells of which source record its rows are."""
    return "_record" in frame.columns and frame.schema["_record"].dataType.simpleString() == RECORD.simpleString()


def to_flagged(
    frame: DataFrame, pipeline: Pipeline, rules: Rules, schemas: Schemas | None = None, *, several: bool = False
) -> DataFrame:
    """A transform's result as the output's columns, with `_out_` before their names, and `rule`.

    `_topic`, `_partition` and `_offset` follow if the transform kept them, and `_record` for rows that fail a rule. With
    `several`, rows of one record may be several: the place of each row's record follows too, as `RECORD_PLACE`.

    Raises:
        SettingsError: a column the pipeline names is not in the result, or cannot serve.
    """
    out = [(f"_out_{name}", column) for name, column in output_columns(frame, pipeline, schemas).items()]
    places = [name for name in PLACES if name in frame.columns]
    knows = keeps_record(frame)
    said = said_columns(frame, pipeline)
    judged = frame.select(
        *(column.alias(name) for name, column in out), *places, *(["_record"] if knows else []), *said.values()
    )
    rule = rules.first_failed(frame.select(*said.values()))
    record = F.when(rule.isNotNull(), F.col("_record")) if knows else F.lit(None).cast(RECORD)
    at = [F.col(f"_record.{part}").alias(name) for part, name in RECORD_PLACE.items()] if several else []
    return judged.select(*(name for name, _ in out), *places, record.alias("_record"), rule.alias(RULE), *at)
