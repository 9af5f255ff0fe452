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
from fencepost.model import BATCH_HEADER, MALFORMED, Schemas
from fencepost.spark.fingerprint import fingerprint_hash
from fencepost.spark.records import PLACES, RECORD, if_fit, in_text, no_headers, output_columns, said_columns
from fencepost.spark.writer import QUARANTINED

REASON_HEADER, RULE_HEADER = "fencepost-reason", "fencepost-rule"
SOURCE_HEADER = "fencepost-source"  # topic:partition:offset of the source record
KEPT_HEADER = "fencepost-kept"  # `result`: the key and value are those of the transform's result
ATTEMPT_HEADER = "fencepost-attempt"
LONGEST_REASON = 1000  # characters

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


def count_flagged() -> list[Column]:
    """The aggregates over flagged rows: all of them, and those that fail a rule."""
    return [F.count(F.lit(1)).alias("results"), F.count(RULE).alias("failed")]


def to_routed(flagged: DataFrame, batch: str, rules: Rules, attempt: int = 1) -> DataFrame:
    """Flagged rows as records, each for the output or for quarantine: `QUARANTINED` is null for the output's.

    The other columns are those of `to_records`. Key, value and hash are those of the record that is written. `attempt` is how
    often a record that fails has failed then.
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
    own = F.concat(
        _why(_of_rule(rules.names), _of_rule(rules.reasons)),
        _source(flagged),
        F.when(known, no_headers()).otherwise(F.array(_header(KEPT_HEADER, F.lit("result")))),
        _tail(batch, attempt),
    )
    quarantined = F.when(failed, _lines(F.col(RULE), timestamp, headers, own)).alias(QUARANTINED)
    places = [name for name in ("_partition", "_offset") if name in flagged.columns]
    columns = [column.alias(name) for name, column in out.items()]
    routed = flagged.select(*columns, *places, quarantined)
    return routed.select("*", F.expr(fingerprint_hash()).alias("hash"))


def to_malformed(frame: DataFrame, batch: str, attempt: int = 1) -> DataFrame:
    """Malformed records of a source that was read with `_record`: key, value, hash and `QUARANTINED`.

    In a replay, results of a transform come with them (`as_in_source`). These stay as they are but for the batch's name.
    """
    reason = F.substring("_malformed", 1, LONGEST_REASON)
    own = F.concat(_why(F.lit(MALFORMED), reason), _source(frame), _tail(batch, attempt))
    own = F.when(is_result(F.col("_record.topic")), F.array(own_header(batch))).otherwise(own)
    records = frame.select(
        F.col("_record.key").alias("key"),
        F.col("_record.value").alias("value"),
        _lines(F.lit(None), F.unix_millis("_record.timestamp"), F.col("_record.headers"), own).alias(QUARANTINED),
    )
    return records.select("*", F.expr(fingerprint_hash()).alias("hash"))


def is_quarantined_by(batch: str) -> Column:
    """Whether a record of a quarantine topic is of that batch: its last header says so."""
    return F.try_element_at("headers", F.lit(-1)) == own_header(batch)


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


def own_header(batch: str) -> Column:
    """The last header of each record that a batch quarantines."""
    return _header(BATCH_HEADER, F.lit(batch))


def header_value(name: str) -> Column:
    """The text of our header of that name in the column `headers`. Null if there is none."""
    ours = F.slice("headers", _of_source() + 1, F.size("headers"))
    own = F.filter(ours, lambda header: header["key"] == name)
    return F.try_element_at(own, F.lit(-1))["value"].cast("string")


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value"))


def _of_rule(texts: Sequence[str]) -> Column:
    return F.element_at(F.array(*(F.lit(text[:LONGEST_REASON]) for text in texts)), F.col(RULE) + 1)


def _why(rule: Column, reason: Column) -> Column:
    return F.array(_header(REASON_HEADER, reason), _header(RULE_HEADER, rule))


def _source(frame: DataFrame) -> Column:
    """The header with the source's coordinates, if they are known."""
    parts = [F.col(f"_record.{name}") for name in ("topic", "partition", "offset")]
    if {"_topic", "_partition", "_offset"} <= set(frame.columns):
        parts = [
            F.coalesce(part, F.col(f"_{n}")) for part, n in zip(parts, ("topic", "partition", "offset"), strict=True)
        ]
    place = F.concat_ws(":", *(part.cast("string") for part in parts))
    return F.when(parts[2].isNotNull(), F.array(_header(SOURCE_HEADER, place))).otherwise(no_headers())


def _tail(batch: str, attempt: int) -> Column:
    return F.array(_header(ATTEMPT_HEADER, F.lit(str(attempt))), own_header(batch))


def _lines(rule: Column, timestamp: Column, theirs: Column, own: Column) -> Column:
    """What `QUARANTINED` holds of a record: rule and timestamp, its own headers if it has any, and ours.

    The timestamp is left out, which means the time of writing, if Kafka has none or librdkafka would take it for now.
    """
    known = F.when(timestamp > 0, timestamp)
    first = F.concat_ws(",", *(F.coalesce(number.cast("string"), F.lit("")) for number in (rule, known)))
    return F.concat_ws("\n", first, theirs, in_text(own))
