"""Route: flagged rows as records, each for the output or for quarantine.

If the source record of a row is not known, because the transform dropped `_record`, quarantine keeps the result row instead.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from fencepost.model import Layout
from fencepost.rows.decode import in_text
from fencepost.rows.encode import PLACES, if_fit
from fencepost.rows.fingerprint import fingerprint_hash
from fencepost.rows.flag import RULE
from fencepost.rows.multiplying import withheld_rows
from fencepost.rows.quarantine_headers import QUARANTINED
from fencepost.rows.whole_records import RECORD_PLACE, WITHHELD
from fencepost.rows.whole_records import RULE as RECORD_RULE


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
    said = quarantine_text(
        rule=F.col(RULE),
        timestamp=timestamp,
        source=source_place(flagged),
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


def source_place(frame: DataFrame) -> Column:
    """The source record's coordinates as text, if they are known."""
    parts = [F.col(f"_record.{name}") for name in ("topic", "partition", "offset")]
    if {"_topic", "_partition", "_offset"} <= set(frame.columns):
        parts = [
            F.coalesce(part, F.col(f"_{n}")) for part, n in zip(parts, ("topic", "partition", "offset"), strict=True)
        ]
    return F.when(parts[2].isNotNull(), F.concat_ws(":", *parts))


def quarantine_text(*, timestamp: Column, **others: Column) -> Column:
    """The text in `QUARANTINED`. The timestamp is left out if Kafka has none, or if librdkafka would take it for now."""
    parts = {"timestamp": F.when(timestamp > 0, timestamp), **others}
    return F.to_json(F.struct(*(part.alias(name) for name, part in parts.items())), {"ignoreNullFields": "true"})
