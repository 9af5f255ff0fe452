"""For those who read a pipeline's output: exactly the records of published batches, and nothing beside them."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from fencepost.errors import SettingsError, Superseded
from fencepost.ledger import Ledger
from fencepost.model import Batch, State
from fencepost.records import parse_output
from fencepost.settings import Pipeline, find_pipeline
from fencepost.spark import read_batch


def read_validated(spark: SparkSession, events: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> DataFrame:
    """The records of the batches that asset events tell of, as columns, with `_key`, `_topic`, `_partition`, `_offset`.

    `events` are the events' `extra`, one or several of one pipeline. Records of other batches in the same ranges are left
    out by their header, aborted ones by read_committed. Doing it twice gives the same records.

    Raises:
        Superseded: a batch was replaced by a newer revision, which has an event of its own.
    """
    told = [events] if isinstance(events, Mapping) else list(events)
    names = {str(event["pipeline"]) for event in told}
    if len(names) != 1:
        raise SettingsError(f"read_validated takes events of one pipeline; these are of {sorted(names) or 'none'}.")
    pipeline = find_pipeline(names.pop())
    ledger = Ledger(pipeline)
    known = {str(batch.id): batch for batch in ledger.read().all()}
    # An empty batch has no columns that one could put others below.
    told = [event for event in told if event["rows"]] or told[:1]
    frames = [_read(spark, ledger, pipeline, known.get(str(event["batch"])), event) for event in told]
    return functools.reduce(DataFrame.unionByName, frames)


def _read(
    spark: SparkSession, ledger: Ledger, pipeline: Pipeline, batch: Batch | None, event: Mapping[str, Any]
) -> DataFrame:
    if batch is None or batch.written is None or batch.state is not State.PUBLISHED:
        state = batch.state if batch else "not in the ledger"
        raise Superseded(
            f"batch {event['batch']} is {state}: it is not, or no longer, what the pipeline has published for its interval. "
            "If a newer revision was published, read that one's event."
        )
    schema = StructType.fromJson(json.loads(batch.written.value_schema or '{"type": "struct", "fields": []}'))
    return parse_output(read_batch(spark, ledger.settings, batch, batch.written), pipeline, schema)
