"""For readers of a pipeline's output: the records of published batches, and no others."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence, Set
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from fencepost.config.loading import find_pipeline
from fencepost.errors import SettingsError, Superseded
from fencepost.formats.names import without_case
from fencepost.ledger.ledger import Ledger
from fencepost.model import Batch, State
from fencepost.outputs.output import output_of
from fencepost.protocol.view import View


def read_validated(spark: SparkSession, events: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> DataFrame:
    """The rows of the batches in asset events, as columns; those of a topic with `_key`, `_topic`, `_partition` and `_offset`.

    `events` is the `extra` of one event, or of several events of one pipeline, in any order. An addition, which a replay has
    published, has an event of its own beside its batch's. A batch that several events name is read once. A batch is left out if
    the events also name its newer revision. The header keeps records of other batches in the same ranges out, and read_committed
    keeps aborted ones out. A second call gives the same records. A column that a batch does not have is null in its records.

    Raises:
        SettingsError: the events are of several pipelines or of none, or a column has different types in their batches.
        Superseded: a newer revision replaced a batch, and its event is not among these.
        TopicRecreated, NeedsOperator: the output no longer has the records.
    """
    told = [events] if isinstance(events, Mapping) else list(events)
    names = {str(event["pipeline"]) for event in told}
    if len(names) != 1:
        raise SettingsError(f"read_validated takes events of one pipeline; these are of {sorted(names) or 'none'}.")
    pipeline = find_pipeline(names.pop())
    ledger = Ledger(pipeline)
    view = ledger.read()
    batches = batches_told_of(view, {str(event["batch"]) for event in told})
    # A batch without records adds nothing. If none has records, the newest one gives the columns.
    read = [batch for batch in batches if batch.written and batch.written.rows] or batches[-1:]
    schemas = [schema_of(batch, view) for batch in read]
    check_types({str(batch.id): schema for batch, schema in zip(read, schemas, strict=True)})
    each = zip(read, schemas, strict=True)
    frames = [output_of(ledger, batch).read_published(spark, batch, schema) for batch, schema in each]
    return functools.reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)


def batches_told_of(view: View, names: Set[str]) -> list[Batch]:
    """The published batches with these names, each once, in order of time. Pure.

    Raises:
        Superseded: a named batch is not published, and no published batch of its interval is named.
    """
    known = {str(batch.id): batch for batch in view.all()}
    found = [known[name] for name in names if name in known and _is_read(known[name])]
    # An addition has a part of its interval only.
    covered = {batch.interval for batch in found if batch.adds_to is None}
    for name in sorted(names - {str(batch.id) for batch in found}):
        batch = known.get(name)
        if batch is not None and batch.interval in covered:
            continue
        state = batch.state if batch else "not in the ledger"
        raise Superseded(
            f"batch {name} is {state}: it is not the published batch of its interval. "
            "If a newer revision was published, add its event, or read that event instead."
        )
    return sorted(found, key=lambda batch: (batch.interval.start, batch.revision))


def _is_read(batch: Batch) -> bool:
    """Whether it is published, or was published without a record and then withdrawn."""
    had_none = batch.plan.is_empty and batch.written is not None
    return batch.state is State.PUBLISHED or (batch.state is State.WITHDRAWN and had_none)


def schema_of(batch: Batch, view: View) -> StructType:
    """The fields of its records' values. A batch whose transform did not run has those of the newest batch whose did."""
    written = [b.written for b in (*view.all(), batch) if b.written and b.written.value_schema]
    newest = written[-1].value_schema if written else StructType([]).json()
    return StructType.fromJson(json.loads(newest))


def check_types(schemas: Mapping[str, StructType]) -> None:
    """Check that each column has one type: a union would silently take the wider of two types, or text.

    Raises:
        SettingsError: names the column and two batches that differ.
    """
    seen: dict[str, tuple[str, str]] = {}
    for batch, schema in schemas.items():
        for field in schema.fields:
            kind = field.dataType.simpleString()
            other, known = seen.setdefault(without_case(field.name), (batch, kind))
            if known != kind:
                raise SettingsError(
                    f"read_validated: column {field.name} is {known} in batch {other} and {kind} in batch {batch}: the "
                    "transform changed between them. Read their events one by one, and cast the column."
                )
