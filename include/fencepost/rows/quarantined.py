"""Records for quarantine that never reach a transform, and quarantined records as they were in the source, for a replay.

A record is kept byte for byte. Its own headers come first and stay as they are, whatever their names; ours follow, and say why it
is there. Of two headers of a name the last one is ours. The one exception is a name with a NUL character, where librdkafka would
cut it: U+FFFD replaces the NUL.

A quarantined record goes through the transform again. A quarantined result needs none, and is judged as it is (`judged_again`).
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from fencepost.config.pipeline import Pipeline
from fencepost.model import BATCH_HEADER, Schemas
from fencepost.rows.decode import as_list
from fencepost.rows.encode import PLACES, parse_results
from fencepost.rows.fingerprint import fingerprint_hash
from fencepost.rows.flag import Rules
from fencepost.rows.quarantine_headers import KEPT_HEADER, QUARANTINED, REASON_HEADER, SOURCE_HEADER
from fencepost.rows.route import quarantine_text, source_place
from fencepost.rows.whole_records import RULE


def to_malformed(frame: DataFrame) -> DataFrame:
    """Malformed records of a source, with `_record`, as records for quarantine: key, value, hash and `QUARANTINED`."""
    record = F.col("_record")
    said = quarantine_text(
        reason=F.col("_malformed"),
        timestamp=F.unix_millis(record["timestamp"]),
        source=source_place(frame),
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
    said = quarantine_text(
        rule=F.col(RULE),
        reason=F.col("reason"),
        timestamp=timestamp,
        source=source_place(judged),
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
