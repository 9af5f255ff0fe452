"""Records for quarantine: the source record byte for byte, and after its headers our own, which say why it is there.

A record's own headers come first and stay as they are, whatever their names: the last header of a name is ours. The one
exception is a name with a NUL character, where librdkafka would cut it: U+FFFD replaces the NUL.

If the source record of a row is not known, because the transform dropped `_record`, the result row is kept instead.

`as_in_source` gives quarantined records back as they were in the source, for a replay. Those go through the transform again; a
result needs none, and is judged as it is (`judged_again`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from fencepost.config.pipeline import Pipeline
from fencepost.model import BATCH_HEADER, Layout, Schemas
from fencepost.spark.fingerprint import fingerprint_hash
from fencepost.spark.multiplying import withheld_rows
from fencepost.spark.quarantine_headers import KEPT_HEADER, QUARANTINED, REASON_HEADER, SOURCE_HEADER
from fencepost.spark.records import (
    PLACES,
    RECORD,
    as_list,
    if_fit,
    in_text,
    output_columns,
    parse_results,
    said_columns,
)
from fencepost.spark.whole_records import RECORD_PLACE, WITHHELD
from fencepost.spark.whole_records import RULE as RECORD_RULE

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


def to_routed(flagged: DataFrame, layout: Layout = Layout.SOURCE) -> DataFrame:
    """Flagged rows as records, each for the output or for quarantine: `QUARANTINED` is null for the output's.

    The other columns are those of `to_records`. Key, value and hash are those of the record that is written. Where a record may
    have several rows, `WITHHELD` follows under layout `output`; under `source`, what `whole_records` makes it of.
    """
    failed, known = F.col(RULE).isNotNull(), F.col("_record").isNotNull()
    names = [name.removeprefix("_out_") for name in flagged.columns if name.startswith("_out_")]
    out = {name: F.col(f"_out_{name}") for name in names}
    if (unfit := out.pop("unfit", None)) is not None:
        out["value"] = if_fit(flagged, out["value"], unfit)
    for name in ("key", "value"):
        out[name] = F.when(failed & known, F.col(f"_record.{name}")).otherwise(out[name])
    timestamp = F.unix_millis("_record.timestamp")
    if "timestamp" in out:
        timestamp = F.when(known, timestamp).otherwise(out["timestamp"])
    headers = F.col("_record.headers")
    if "headers" in out:
        headers = F.when(known, headers).otherwise(in_text(out["headers"]))
    said = _said(
        rule=F.col(RULE),
        timestamp=timestamp,
        source=_source(flagged),
        kept=F.when(~known, F.lit("result")),
        headers=headers,
    )
    places = [name for name in PLACES if name in flagged.columns]
    columns = [column.alias(name) for name, column in out.items()]
    together = []
    place = [F.col(name) for name in RECORD_PLACE.values() if name in flagged.columns]
    if place:
        rule = F.col(RULE)
        together = [*place, rule.alias(RECORD_RULE)]
        if layout is Layout.OUTPUT:
            alone = F.xxhash64("_out_key", "_out_value")
            together = [withheld_rows(rule, place, alone).alias(WITHHELD)]
    routed = flagged.select(*columns, *places, F.when(failed, said).alias(QUARANTINED), *together)
    return routed.select("*", F.expr(fingerprint_hash()).alias("hash"))


def to_malformed(frame: DataFrame) -> DataFrame:
    """Malformed records of a source, with `_record`, as records for quarantine: key, value, hash and `QUARANTINED`."""
    record = F.col("_record")
    said = _said(
        reason=F.col("_malformed"),
        timestamp=F.unix_millis(record["timestamp"]),
        source=_source(frame),
        headers=record["headers"],
    )
    records = frame.select(record["key"].alias("key"), record["value"].alias("value"), said.alias(QUARANTINED))
    return records.select("*", F.expr(fingerprint_hash()).alias("hash"))


def set_apart(raw: DataFrame) -> DataFrame:
    """Records of `as_in_source` where the key and value of a result have columns of their own, `SET_APART`.

    The source's format is not for them.
    """
    result = F.col("result")
    columns = {name: F.col(name) for name in raw.columns}
    columns |= {name: F.when(~result, F.col(name)) for name in ("key", "value")}
    columns |= {f"result_{name}": F.when(result, F.col(name)) for name in ("key", "value")}
    columns |= {"result_headers": as_list(F.when(result, F.col("headers")))}
    return raw.select(*(column.alias(name) for name, column in columns.items()))


SET_APART = ("result", "result_key", "result_value", "result_headers")


def parsed_again(frame: DataFrame, pipeline: Pipeline, schema: StructType, schemas: Schemas) -> DataFrame:
    """Malformed records with `_record` and, of a replay, results, as `SET_APART` has them, with the fields of the latter.

    `schema` is the type of what the transform gives today, `schemas` are those of the plan.
    """
    known = frame.select("_record", F.col("_malformed").alias("_why"), *(f"_{name}" for name in SET_APART))
    return parse_results(known, "_result_value", pipeline, schema, schemas)


def judged_results(parsed: DataFrame, schema: StructType) -> DataFrame:
    """The results in rows of `parsed_again`, as rules look at them, with the coordinates of their records."""
    places = [F.col("_record")[name.removeprefix("_")].alias(name) for name in PLACES]
    results = parsed.where(F.col("_result") & F.col("_unparsed").isNull())
    return results.select(*(f"`{name}`" for name in schema.fieldNames()), *places)


def judged_again(parsed: DataFrame, schema: StructType, rules: Rules) -> DataFrame:
    """Rows of `parsed_again` with `rule` and `reason` instead of the fields.

    `rule` is the first that a result fails, `reason` why a record, or a result, cannot be read. Both are null in a result that
    passes.
    """
    failed = rules.first_failed(parsed.select(*(f"`{name}`" for name in schema.fieldNames())))
    reason = F.when(F.col("_result"), F.concat(F.lit("result: "), "_unparsed")).otherwise(F.col("_why"))
    judged = parsed.select(
        "_record", *(f"_{name}" for name in SET_APART), failed.alias("_failed"), reason.alias("reason")
    )
    rule = F.when(F.col("_result") & F.col("reason").isNull(), F.col("_failed"))
    return judged.select(*(name for name in judged.columns if name != "_failed"), rule.alias(RULE))


def to_routed_again(judged: DataFrame, pipeline: Pipeline) -> DataFrame:
    """Rows of `judged_again` as records, as `to_routed` gives them: a result that passes is for the output, byte for byte."""
    result, record = F.col("_result"), F.col("_record")
    timestamp = F.unix_millis(record["timestamp"])
    said = _said(
        rule=F.col(RULE),
        reason=F.col("reason"),
        timestamp=timestamp,
        source=_source(judged),
        kept=F.when(result, F.lit("result")),
        headers=record["headers"],
    )
    columns = {name: F.when(result, F.col(f"_result_{name}")).otherwise(record[name]) for name in ("key", "value")}
    if pipeline.output.records.timestamp:
        columns["timestamp"] = timestamp
    columns["headers"] = F.col("_result_headers")
    columns[QUARANTINED] = F.when(F.col(RULE).isNotNull() | F.col("reason").isNotNull(), said)
    records = judged.select(*(column.alias(name) for name, column in columns.items()))
    return records.select("*", F.expr(fingerprint_hash()).alias("hash"))


def is_quarantined_by(batch: str) -> Column:
    """Whether a record of a quarantine topic is of that batch: its last header says so."""
    last = F.struct(F.lit(BATCH_HEADER).alias("key"), F.lit(batch).cast("binary").alias("value"))
    return F.try_element_at("headers", F.lit(-1)) == last


def as_in_source(raw: DataFrame) -> DataFrame:
    """Quarantined records with the connector's columns as they were in the source, and `result`: whether it is a transform's.

    A result never was in the source. Key, value and headers are what the output would have got; topic, partition and offset are
    the source record's where they are known.
    """
    theirs = F.when(
        _of_source() > 0, F.slice("headers", F.lit(1), _of_source())
    )  # null if there were none, as in the connector
    place = F.split(header_value(SOURCE_HEADER), ":")
    return raw.select(
        "key",
        "value",
        place[0].alias("topic"),
        place[1].cast("int").alias("partition"),
        place[2].cast("long").alias("offset"),
        "timestamp",
        theirs.alias("headers"),
        F.coalesce(header_value(KEPT_HEADER) == "result", F.lit(False)).alias("result"),
    )


def of_source(raw: DataFrame) -> DataFrame:
    """Records of `as_in_source` without results."""
    return raw.where(~F.col("result")).drop("result")


def _of_source() -> Column:
    """How many of a quarantined record's headers are the source record's. Ours begin at the last one with the reason."""
    names = F.transform("headers", lambda header: header["key"])
    return F.size("headers") - F.array_position(F.reverse(names), REASON_HEADER).cast("int")


def header_value(name: str) -> Column:
    """The text of our header of that name in the column `headers`. Null if there is none."""
    ours = F.slice("headers", _of_source() + 1, F.size("headers"))
    own = F.filter(ours, lambda header: header["key"] == name)
    return F.try_element_at(own, F.lit(-1))["value"].cast("string")


def _source(frame: DataFrame) -> Column:
    """The source record's coordinates as text, if they are known."""
    parts = [F.col(f"_record.{name}") for name in ("topic", "partition", "offset")]
    if {"_topic", "_partition", "_offset"} <= set(frame.columns):
        parts = [
            F.coalesce(part, F.col(f"_{n}")) for part, n in zip(parts, ("topic", "partition", "offset"), strict=True)
        ]
    return F.when(parts[2].isNotNull(), F.concat_ws(":", *parts))


def _said(*, timestamp: Column, **others: Column) -> Column:
    """The text in `QUARANTINED`. The timestamp is left out if Kafka has none, or if librdkafka would take it for now."""
    parts = {"timestamp": F.when(timestamp > 0, timestamp), **others}
    return F.to_json(F.struct(*(part.alias(name) for name, part in parts.items())), {"ignoreNullFields": "true"})
