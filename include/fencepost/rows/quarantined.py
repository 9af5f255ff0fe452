"""Writes malformed records to quarantine, and restores quarantined records for a replay.

A record is kept byte for byte. The record's own headers come first and do not change. Fencepost's headers follow and
give the reason. So if two headers have the same name, the last one is Fencepost's. There is one change: U+FFFD replaces
a NUL character in the name of a header, because librdkafka would truncate the name there.

A replay sends a quarantined record through the transform again. A quarantined result row does not pass the transform
again, and only the rules judge it (`result_rows`).
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from fencepost.config.pipeline import Pipeline
from fencepost.formats.quoting import quoted
from fencepost.model import BATCH_HEADER, Schemas
from fencepost.rows.decode import RECORD, as_list, in_text
from fencepost.rows.encode import PLACES, parse_results
from fencepost.rows.fingerprint import fingerprint_hash
from fencepost.rows.flag import Rules
from fencepost.rows.quarantine_headers import KEPT_HEADER, QUARANTINED, REASON_HEADER, SOURCE_HEADER
from fencepost.rows.route import quarantine_text, source_place
from fencepost.rows.whole_records import RULE


def to_malformed(frame: DataFrame) -> DataFrame:
    """Turns malformed source records with `_record` into records for quarantine: key, value, hash and `QUARANTINED`."""
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
    """Moves the key, value and headers of result rows into separate columns (`SET_APART`), in the result of
    `as_in_source`.

    Result rows do not have the source's format.
    """
    result = F.col("result")
    columns = {name: F.col(name) for name in raw.columns}
    columns |= {name: F.when(~result, F.col(name)) for name in ("key", "value")}
    columns |= {f"result_{name}": F.when(result, F.col(name)) for name in ("key", "value")}
    columns |= {"result_headers": as_list(F.when(result, F.col("headers")))}
    return raw.select(*(column.alias(name) for name, column in columns.items()))


SET_APART = ("result", "result_key", "result_value", "result_headers")
BYPASSING = ("_record", "_malformed", *(f"_{name}" for name in SET_APART))  # the columns that `parsed_again` needs


def with_reason(apart: DataFrame) -> DataFrame:
    """Returns the records of `set_apart` that no source decodes, as `BYPASSING`: result rows, and source records with the
    reason for which they are in quarantine.
    """
    parts = [F.col(name) for name in RECORD.fieldNames() if name != "headers"]
    record = F.struct(*parts, in_text(F.col("headers")).alias("headers"))
    return apart.select(
        record.alias("_record"),
        F.col("reason").alias("_malformed"),
        *(F.col(name).alias(f"_{name}") for name in SET_APART),
    )


def parsed_again(frame: DataFrame, pipeline: Pipeline, schema: StructType, schemas: Schemas) -> DataFrame:
    """Parses the result rows in `SET_APART`, and keeps malformed records with `_record`.

    `schema` is the type of the present transform's result. `schemas` are the schemas of the plan.
    """
    known = frame.select("_record", F.col("_malformed").alias("_why"), *(f"_{name}" for name in SET_APART))
    return parse_results(known, "_result_value", pipeline, schema, schemas)


def judged_results(parsed: DataFrame, schema: StructType) -> DataFrame:
    """Returns the result rows in `parsed_again` in the form that rules judge, with the coordinates of their source
    records.
    """
    places = [F.col("_record")[name.removeprefix("_")].alias(name) for name in PLACES]
    results = parsed.where(F.col("_result") & F.col("_unparsed").isNull())
    return results.select(*(quoted(name) for name in schema.fieldNames()), *places)


def result_rows(parsed: DataFrame, schema: StructType, rules: Rules) -> DataFrame:
    """Judges the rows of `parsed_again`, and replaces their fields by `rule` and `reason`.

    `rule` is the first rule that a result row fails. `reason` is why a record or a result row cannot be read. `rule`
    and `reason` are null for a result row that passes.
    """
    failed = rules.first_failed(parsed.select(*(quoted(name) for name in schema.fieldNames())))
    reason = F.when(F.col("_result"), F.concat(F.lit("result: "), "_unparsed")).otherwise(F.col("_why"))
    judged = parsed.select(
        "_record", *(f"_{name}" for name in SET_APART), failed.alias("_failed"), reason.alias("reason")
    )
    rule = F.when(F.col("_result") & F.col("reason").isNull(), F.col("_failed"))
    return judged.select(*(name for name in judged.columns if name != "_failed"), rule.alias(RULE))


def to_routed_again(judged: DataFrame, pipeline: Pipeline) -> DataFrame:
    """Turns rows of `result_rows` into records as `to_routed` does, with the place of their source record if it is known. A
    result row that passes goes to the output byte for byte.
    """
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
    columns |= {name: record[name.removeprefix("_")] for name in PLACES}
    columns[QUARANTINED] = F.when(F.col(RULE).isNotNull() | F.col("reason").isNotNull(), said)
    records = judged.select(*(column.alias(name) for name, column in columns.items()))
    return records.select("*", F.expr(fingerprint_hash()).alias("hash"))


def is_quarantined_by(batch: str) -> Column:
    """Returns whether a record of a quarantine topic belongs to that batch. The record's last header names its batch."""
    last = F.struct(F.lit(BATCH_HEADER).alias("key"), F.lit(batch).cast("binary").alias("value"))
    return F.try_element_at("headers", F.lit(-1)) == last


def as_in_source(raw: DataFrame) -> DataFrame:
    """Restores quarantined records as they were in the source, with the connector's columns. The column `result` says
    whether a record is a result row, and `reason` why it is in quarantine.

    A result row was never in the source. A result row has the key, value and headers of the record for the output. It
    has the topic, partition and offset of the source record, if they are known.
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
        header_value(REASON_HEADER).alias("reason"),
    )


def without_results(raw: DataFrame) -> DataFrame:
    """Returns the records of `as_in_source` without result rows."""
    return raw.where(~F.col("result")).drop("result", "reason")


def _of_source() -> Column:
    """Returns the number of headers that a quarantined record has from its source. Fencepost's headers begin at the
    last header with the reason.
    """
    names = F.transform("headers", lambda header: header["key"])
    return F.size("headers") - F.array_position(F.reverse(names), REASON_HEADER).cast("int")


def header_value(name: str) -> Column:
    """Returns the text of the Fencepost header with that name in the column `headers`, or null if there is none."""
    ours = F.slice("headers", _of_source() + 1, F.size("headers"))
    own = F.filter(ours, lambda header: header["key"] == name)
    return F.try_element_at(own, F.lit(-1))["value"].cast("string")
