"""Records for quarantine: the source record byte for byte, and after its headers our own, which say why it is there.

A record's own headers come first and stay as they are, whatever their names: the last header of a name is ours. The one
exception is a name with a NUL character, where librdkafka would cut it: U+FFFD replaces the NUL.

If the source record of a row is not known, because the transform dropped `_record`, the result row is kept instead.

`as_in_source` gives quarantined records back as they were in the source, for a replay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from fencepost.config.pipeline import Pipeline
from fencepost.model import BATCH_HEADER, Schemas
from fencepost.spark.fingerprint import fingerprint_hash
from fencepost.spark.quarantine_headers import KEPT_HEADER, QUARANTINED, REASON_HEADER, RULE_HEADER, SOURCE_HEADER
from fencepost.spark.records import PLACES, RECORD, if_fit, in_text, output_columns, said_columns

RULE = "rule"  # the column with the number of the rule that a row fails, or null


@dataclass(frozen=True)
class Rules:
    """The quarantine rules of a batch: which one a row of values fails first, and the name and reason of each."""

    first_failed: Callable[[DataFrame], Column]
    names: Sequence[str]
    reasons: Sequence[str]


def to_flagged(frame: DataFrame, pipeline: Pipeline, rules: Rules, schemas: Schemas | None = None) -> DataFrame:
    """A transform's result as the output's columns, with `_out_` before their names, and `rule`.

    `_partition` and `_offset` follow if the transform kept them, and `_record` for rows that fail a rule.

    Raises:
        SettingsError: a column the pipeline names is not in the result, or cannot serve.
    """
    out = [(f"_out_{name}", column) for name, column in output_columns(frame, pipeline, schemas).items()]
    places = [name for name in PLACES if name in frame.columns]
    knows = "_record" in frame.columns and frame.schema["_record"].dataType.simpleString() == RECORD.simpleString()
    said = said_columns(frame, pipeline)
    judged = frame.select(
        *(column.alias(name) for name, column in out), *places, *(["_record"] if knows else []), *said.values()
    )
    rule = rules.first_failed(frame.select(*said.values()))
    record = F.when(rule.isNotNull(), F.col("_record")) if knows else F.lit(None).cast(RECORD)
    return judged.select(*(name for name, _ in out), *places, record.alias("_record"), rule.alias(RULE))


def to_routed(flagged: DataFrame) -> DataFrame:
    """Flagged rows as records, each for the output or for quarantine: `QUARANTINED` is null for the output's.

    The other columns are those of `to_records`. Key, value and hash are those of the record that is written.
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
    places = [name for name in ("_partition", "_offset") if name in flagged.columns]
    columns = [column.alias(name) for name, column in out.items()]
    routed = flagged.select(*columns, *places, F.when(failed, said).alias(QUARANTINED))
    return routed.select("*", F.expr(fingerprint_hash()).alias("hash"))


def to_malformed(frame: DataFrame) -> DataFrame:
    """Malformed records of a source, with `_record`, as records for quarantine: key, value, hash and `QUARANTINED`.

    In a replay, results of a transform come with them (`as_in_source`). These stay as they are but for the batch's name.
    """
    record = F.col("_record")
    malformed = ~is_result(record["topic"])
    said = _said(
        reason=F.when(malformed, F.col("_malformed")),
        timestamp=F.unix_millis(record["timestamp"]),
        source=F.when(malformed, _source(frame)),
        headers=record["headers"],
    )
    records = frame.select(record["key"].alias("key"), record["value"].alias("value"), said.alias(QUARANTINED))
    return records.select("*", F.expr(fingerprint_hash()).alias("hash"))


def is_quarantined_by(batch: str) -> Column:
    """Whether a record of a quarantine topic is of that batch: its last header says so."""
    last = F.struct(F.lit(BATCH_HEADER).alias("key"), F.lit(batch).cast("binary").alias("value"))
    return F.try_element_at("headers", F.lit(-1)) == last


def as_in_source(raw: DataFrame) -> DataFrame:
    """Quarantined records with the connector's columns as they were in the source, and `rule`, which they failed.

    Topic, partition, offset and headers are the source record's. A result of a transform never was in the source: its topic is
    null (`is_result`), as no other record's is, and it keeps all headers but the last, which names the batch that quarantined it.
    """
    theirs = F.when(
        _of_source() > 0, F.slice("headers", F.lit(1), _of_source())
    )  # null if there were none, as in the connector
    all_but_last = F.slice("headers", F.lit(1), F.size("headers") - 1)
    was_result = F.coalesce(header_value(KEPT_HEADER) == "result", F.lit(False))
    place = F.split(header_value(SOURCE_HEADER), ":")
    return raw.select(
        "key",
        "value",
        F.when(~was_result, place[0]).alias("topic"),
        place[1].cast("int").alias("partition"),
        place[2].cast("long").alias("offset"),
        "timestamp",
        F.when(was_result, all_but_last).otherwise(theirs).alias("headers"),
        header_value(RULE_HEADER).alias("rule"),
    )


def is_result(topic: Column) -> Column:
    """Whether a record of `as_in_source`, with that topic, is a result: it cannot go through a transform again."""
    return topic.isNull()


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
