"""Compares two revisions of an interval, by a key or by whole rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from typing import Any

from pydantic import Field, JsonValue
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from fencepost.errors import NeedsOperator, SettingsError
from fencepost.formats.quoting import column_named
from fencepost.ledger.deployment import Deployment
from fencepost.model import Frozen
from fencepost.preview.past import NotReadable, PastRevision, check_receipts, read_past
from fencepost.protocol.table_states import TableChange, table_changes
from fencepost.quality.columns import JSON, prepared_column

SHOWN = 10  # sampled rows of each kind
KEY = "_key"  # the record's key, which may be named like a column


class ChangedRow(Frozen):
    """A changed row in the sample, as it was in the first revision and as it is in the second."""

    before: dict[str, JsonValue] | None = None
    after: dict[str, JsonValue] | None = None


class RevisionDifference(Frozen):
    """How the second revision differs from the first. Without a `key`, whole rows with the record's key are compared.

    `columns` has the number of changed rows that differ in each column. `only_before` and `only_after` are columns that
    only one revision has. `retyped` are columns whose types differ. Columns of different types are compared as text.
    `tables` are the side tables whose contents differ between the revisions, or between a revision and its additions.
    """

    revisions: tuple[str, str]
    rows: tuple[int, int]
    key: tuple[str, ...] = ()
    same: int = Field(default=0, ge=0)
    changed: int = Field(default=0, ge=0)
    removed: int = Field(default=0, ge=0)
    added: int = Field(default=0, ge=0)
    columns: dict[str, int] = Field(default_factory=dict)
    only_before: tuple[str, ...] = ()
    only_after: tuple[str, ...] = ()
    retyped: tuple[str, ...] = ()
    tables: tuple[TableChange, ...] = ()
    sample: tuple[ChangedRow, ...] = ()


def difference(
    spark: SparkSession, deployment: Deployment, before: PastRevision, after: PastRevision, key: Sequence[str]
) -> RevisionDifference:
    """Compares two revisions, each with its published additions. Each is first compared with its receipts.

    Raises:
        NeedsOperator: records of a revision were deleted. The message names the revision.
        SettingsError: a column of the key is missing, or several rows of a revision have the same key.
    """
    frames = {name: _read(spark, deployment, past) for name, past in (("before", before), ("after", after))}
    known: dict[str, Any] = {
        "revisions": (before.name, after.name),
        "rows": (before.promised.rows, after.promised.rows),
        "key": tuple(key),
        "tables": _table_changes(before, after),
    }
    there = [frame for frame in frames.values() if frame is not None]
    if not there:
        return RevisionDifference(**known)
    first, second = (there[0].limit(0) if frame is None else frame for frame in frames.values())
    types, others = _types(first), _types(second)
    if unknown := [name for name in key if name not in types or name not in others]:
        common = ", ".join(name for name in types if name in others)
        raise SettingsError(f"--key {', '.join(unknown)}: not a column of both revisions. Those are {common}.")
    retyped = [name for name in types if name in others and types[name] != others[name]]
    known |= {
        "only_before": tuple(name for name in types if name not in others),
        "only_after": tuple(name for name in others if name not in types),
        "retyped": tuple(retyped),
    }
    names = [*types, *(name for name in others if name not in types)]
    as_text = {*retyped, *known["only_before"], *known["only_after"]}
    sides = (_prepared(first, names, key, as_text), _prepared(second, names, key, as_text))
    found = _by_key(*sides, names, key, known["revisions"]) if key else _by_rows(*sides)
    return RevisionDifference(**known, **found)


def _table_changes(before: PastRevision, after: PastRevision) -> tuple[TableChange, ...]:
    """Returns the side tables that differ between the revisions, and between a revision and its additions."""
    pairs = [(before.batch, after.batch), *((past.batch, one) for past in (before, after) for one in past.additions)]
    return tuple(change for pair in pairs for change in table_changes(*pair))


def _read(spark: SparkSession, deployment: Deployment, past: PastRevision) -> DataFrame | None:
    """Returns the records of a revision, or None if it has none."""
    try:
        if past.batch.written is None:
            raise NotReadable(f"it is {past.batch.state}, and the ledger does not say that it was written")
        if not past.promised.rows:
            return None
        frame = read_past(spark, deployment, past)
        check_receipts(frame, past)
    except NotReadable as error:
        raise NeedsOperator(f"batch {past.batch.id} cannot be compared: {error}.") from None
    return frame


def _types(frame: DataFrame) -> dict[str, str]:
    """Returns the value's columns, and the record's key, with their types."""
    return {
        f.name: f.dataType.simpleString() for f in frame.schema.fields if not f.name.startswith("_") or f.name == KEY
    }


def _prepared(frame: DataFrame, names: Sequence[str], key: Sequence[str], as_text: Set[str]) -> DataFrame:
    """Returns the rows as `key` and `row`, which are structs of values that can be compared, and `shown`, the row as
    JSON.

    The fields of `row` are named by the position of the column, because Spark may take two column names as the same.
    """
    schema: StructType = frame.schema

    def compared(name: str) -> Column:
        if name not in frame.columns:
            value = F.lit(None).cast("string")
        else:
            value = prepared_column(name, schema[name].dataType)
            value = value.cast("string") if name in as_text else value
        return value.alias(_field(names, name))

    there = [name for name in names if name in frame.columns]
    shown = [(F.col(name).cast("string") if name == KEY else column_named(name)).alias(name) for name in there]
    return frame.select(
        F.struct(*(compared(name) for name in key)).alias("key") if key else F.lit(0).alias("key"),
        F.struct(*(compared(name) for name in names if name != KEY or not key)).alias("row"),
        F.to_json(F.struct(*shown), JSON).alias("shown"),
    )


def _field(names: Sequence[str], name: str) -> str:
    return f"c{names.index(name)}"


def _by_rows(before: DataFrame, after: DataFrame) -> dict[str, Any]:
    sides = [frame.select("row", "shown", F.lit(n).alias("side")) for n, frame in enumerate((before, after))]
    both = sides[0].unionByName(sides[1]).groupBy("row")
    counted = both.agg(
        F.count_if(F.col("side") == 0).alias("before"),
        F.count_if(F.col("side") == 1).alias("after"),
        F.min("shown").alias("shown"),
    )
    more = F.col("before") - F.col("after")
    row: Any = counted.agg(
        F.sum(F.least("before", "after")).alias("same"),
        F.sum(F.greatest(more, F.lit(0))).alias("removed"),
        F.sum(F.greatest(-more, F.lit(0))).alias("added"),
    ).head()
    sample: list[ChangedRow] = []
    for condition, name in ((more > 0, "before"), (more < 0, "after")):
        shown = counted.where(condition).orderBy("shown").limit(SHOWN).collect()
        sample += [ChangedRow(**{name: json.loads(one["shown"])}) for one in shown]
    return {**{name: int(row[name] or 0) for name in ("same", "removed", "added")}, "sample": tuple(sample)}


def _by_key(
    before: DataFrame, after: DataFrame, names: Sequence[str], key: Sequence[str], revisions: tuple[str, str]
) -> dict[str, Any]:
    for frame, revision in zip((before, after), revisions, strict=True):
        repeated = frame.groupBy("key").count().where("count > 1").agg(F.count("*").alias("keys")).head()
        if repeated is not None and repeated["keys"]:
            raise SettingsError(
                f"--key {', '.join(key)}: in revision {revision} {repeated['keys']:,} keys have several rows. Name more columns, "
                "or leave --key out to compare whole rows."
            )
    one, other = before.alias("one"), after.alias("other")
    joined = one.join(other, F.col("one.key").eqNullSafe(F.col("other.key")), "full")
    kind = (
        F.when(F.col("other.shown").isNull(), "removed")
        .when(F.col("one.shown").isNull(), "added")
        .when(F.col("one.row").eqNullSafe(F.col("other.row")), "same")
        .otherwise("changed")
    )
    shown = (F.col("one.shown").alias("shown"), F.col("other.shown").alias("then"))
    pairs = joined.select(kind.alias("kind"), F.col("one.row").alias("a"), F.col("other.row").alias("b"), *shown)
    compared = [name for name in names if name not in key and name != KEY]
    fields = [_field(names, name) for name in compared]
    differs = [
        F.count_if((F.col("kind") == "changed") & ~F.col(f"a.{field}").eqNullSafe(F.col(f"b.{field}"))).alias(field)
        for field in fields
    ]
    kinds = ("same", "changed", "removed", "added")
    row: Any = pairs.agg(*(F.count_if(F.col("kind") == name).alias(name) for name in kinds), *differs).head()
    columns = {name: int(row[field]) for name, field in zip(compared, fields, strict=True)}
    sample: list[ChangedRow] = []
    for name in ("changed", "removed", "added"):
        for found in pairs.where(F.col("kind") == name).orderBy("shown", "then").limit(SHOWN).collect():
            sample.append(ChangedRow(before=_loaded(found["shown"]), after=_loaded(found["then"])))
    return {
        **{name: int(row[name]) for name in kinds},
        "columns": {name: number for name, number in columns.items() if number},
        "sample": tuple(sample),
    }


def _loaded(shown: str | None) -> Mapping[str, JsonValue] | None:
    return None if shown is None else json.loads(shown)
