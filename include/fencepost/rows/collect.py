"""Finds the rows that a write would withhold, for callers that write nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.types import BooleanType, StructField, StructType

from fencepost.errors import FencepostError
from fencepost.model import Layout
from fencepost.rows.whole_records import OFFSET, RECORD_PLACE, RULE, WITHHELD, whole_records
from fencepost.spark.diagnosis import carry


def withheld_by_executors(routed: DataFrame, nonce: str) -> DataFrame:
    """Returns the routed rows with the column `WITHHELD`. If a record may have several rows, the executors decide it as
    the writers do.

    A job that reads the result fails if the rows of one record do not follow each other. `carried_error` with the nonce
    then gives the error.
    """
    if OFFSET not in routed.columns:
        return routed

    def decide(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _decided(iter(batches), nonce)  # a nested function travels by value, the functions it calls by name

    kept = [field for field in routed.schema.fields if field.name not in (*RECORD_PLACE.values(), RULE)]
    return routed.mapInArrow(decide, StructType([*kept, StructField(WITHHELD, BooleanType())]))


def _decided(batches: Iterator[pa.RecordBatch], nonce: str) -> Iterator[pa.RecordBatch]:
    try:
        yield from whole_records(batches)
    except FencepostError as error:
        raise carry(error, nonce) from error


def withheld_here(flagged: pa.Table, layout: Layout) -> list[bool]:
    """Returns whether each of a batch's flagged rows is withheld. `flagged` has all rows of the batch.

    Raises:
        SettingsError: under layout `source` the rows of one record do not follow each other.
    """
    if OFFSET not in flagged.column_names:
        return [False] * len(flagged)
    places = list(RECORD_PLACE.values())
    rows, order = flagged.select([*places, RULE]), np.arange(len(flagged))
    if layout is Layout.OUTPUT:  # the rows of a record may be anywhere: sort them together
        order = pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in places]).to_numpy()
    withheld = np.zeros(len(flagged), dtype=bool)
    decided = whole_records(iter(rows.take(pa.array(order)).to_batches()))
    if len(flagged):
        withheld[order] = np.concatenate([batch.column(WITHHELD).to_numpy(zero_copy_only=False) for batch in decided])
    return [bool(one) for one in withheld]
