"""Route: turns flagged rows into records for the output or for quarantine.

If the transform dropped `_record`, the source record of a row is not known. Quarantine then gets the result row.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from fencepost.model import Layout
from fencepost.rows.decode import in_text
from fencepost.rows.encode import PLACES, if_fit
from fencepost.rows.fingerprint import fingerprint_hash
from fencepost.rows.flag import keeps_source_record
from fencepost.rows.quarantine_headers import QUARANTINED
from fencepost.rows.whole_records import OFFSET, RECORD_PLACE, RULE, WITHHELD, withheld_rows


def to_routed(flagged: DataFrame, layout: Layout) -> DataFrame:
    """Turns flagged rows into records with the columns of `output_columns`, and `hash` (long), the hash of the record.

    A row that does not fit the output's schema fails the job, with `UNFIT`.

    If rules have flagged the rows, the column `QUARANTINED` is null for the output's rows. If a record may have several rows,
    layout `output` adds `WITHHELD`, and layout `source` adds the columns from which `whole_records` makes it.
    """
    names = [name.removeprefix("_out_") for name in flagged.columns if name.startswith("_out_")]
    out = {name: F.col(f"_out_{name}") for name in names}
    if (unfit := out.pop("unfit", None)) is not None:
        out["value"] = if_fit(flagged, out["value"], unfit)
    more = [_quarantined(flagged, out), *_whole(flagged, layout)] if RULE in flagged.columns else []
    if more:
        for name in ("key", "value"):
            out[name] = F.when(keeps_source_record(), F.col(f"_record.{name}")).otherwise(out[name])
    places = [name for name in PLACES if name in flagged.columns]
    routed = flagged.select(*(column.alias(name) for name, column in out.items()), *places, *more)
    return routed.select("*", F.expr(fingerprint_hash()).alias("hash"))


def _quarantined(flagged: DataFrame, out: Mapping[str, Column]) -> Column:
    known = F.col("_record").isNotNull()
    timestamp = F.unix_millis("_record.timestamp")
    if "timestamp" in out:
        timestamp = F.when(known, timestamp).otherwise(out["timestamp"])
    headers = F.col("_record.headers")
    if "headers" in out:
        headers = F.when(known, headers).otherwise(in_text(out["headers"]))
    text = quarantine_text(
        rule=F.col(RULE),
        timestamp=timestamp,
        source=source_place(flagged),
        kept=F.when(~known, F.lit("result")),
        headers=headers,
    )
    return F.when(F.col(RULE).isNotNull(), text).alias(QUARANTINED)


def _whole(flagged: DataFrame, layout: Layout) -> list[Column]:
    if OFFSET not in flagged.columns:
        return []
    rule, place = F.col(RULE), [F.col(name) for name in RECORD_PLACE.values()]
    if layout is Layout.SOURCE:
        return [*place, rule]
    alone = F.xxhash64("_out_key", "_out_value")
    return [withheld_rows(rule, place, alone).alias(WITHHELD)]


def source_place(frame: DataFrame) -> Column:
    """Returns the source record's coordinates as text, or null if they are not known."""
    parts = [F.col(f"_record.{name.removeprefix('_')}") for name in PLACES]
    if {*PLACES} <= {*frame.columns}:
        parts = [F.coalesce(part, F.col(name)) for part, name in zip(parts, PLACES, strict=True)]
    return F.when(parts[2].isNotNull(), F.concat_ws(":", *parts))


def quarantine_text(*, timestamp: Column, **others: Column) -> Column:
    """Returns the text in `QUARANTINED`. The text has no timestamp if Kafka has none, or if librdkafka would replace
    the timestamp by the current time.
    """
    parts = {"timestamp": F.when(timestamp > 0, timestamp), **others}
    return F.to_json(F.struct(*(part.alias(name) for name, part in parts.items())), {"ignoreNullFields": "true"})
