"""Asks the registry for the write job: about the schema of the transform's result, and about ids that the plan did not
know.

The answers are written to the ledger before any record is decoded or encoded with them. So every attempt uses the same
answers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from fencepost.config.pipeline import Pipeline
from fencepost.config.record_parts import OutputPart, SourcePart, with_registry
from fencepost.errors import NeedsOperator, SettingsError
from fencepost.failpoints import reached
from fencepost.formats import Unfit
from fencepost.formats.framing import HEADER
from fencepost.ledger.deployment import Deployment
from fencepost.ledger.ledger import Change, Ledger
from fencepost.model import Batch, RegisteredSchema, Schemas
from fencepost.protocol.decisions import own_revision, record_schemas
from fencepost.protocol.view import View
from fencepost.rows.transform import value_schema
from fencepost.schemas.freeze import (
    format_of,
    look_up_ids,
    named,
    output_schema,
    read_schemas,
    registered,
    registry_for,
    text_to_write,
)

log = logging.getLogger("fencepost.schemas")


class UnknownSchemas(NeedsOperator):
    """The source has records with schema ids that the plan does not know. The write job then looks them up."""


def resolve_output(deployment: Deployment, batch: Batch, result: DataFrame) -> Batch:
    """Returns the batch with output schemas. As far as types show, every row of the transform's result fits them.

    If the result fits the frozen schema, that schema is used without a request. Otherwise nothing was written with it
    yet, and the subject's latest schema is tried, or `auto_register` registers the result's schema. The ledger records
    the schema before it is used.

    Raises:
        SettingsError: the result does not fit. The message names the field and the fix.
    """
    pipeline = deployment.pipeline
    while True:
        known = batch.plan.schemas or Schemas()
        found = known
        for part, kind in written_types(pipeline, result):
            fit = _settled(pipeline, part, kind, known.written(is_key=part.is_key), _register)
            found = found.with_written(fit, is_key=part.is_key)
        if found == known:
            return batch
        batch = _record(deployment.ledger, batch, found)


def would_resolve(pipeline: Pipeline, result: DataFrame, known: Schemas) -> tuple[Schemas, list[str]]:
    """Returns the schemas that `resolve_output` would use, and what it would register, in sentences. It registers and
    records nothing.

    A schema that is not registered yet has the id 0.

    Raises:
        SettingsError: see `resolve_output`.
    """
    found, notes = known, list[str]()

    def only_derive(
        pipeline: Pipeline, part: OutputPart, kind: DataType, latest: RegisteredSchema | None
    ) -> RegisteredSchema:
        text = _derived(pipeline, part, kind, latest)
        notes.append(f"a run would register a {'new version' if latest else 'first schema'} of subject {part.subject}")
        return RegisteredSchema(subject=part.subject, id=0, text=text_to_write(part, text))

    for part, kind in written_types(pipeline, result):
        fit = _settled(pipeline, part, kind, known.written(is_key=part.is_key), only_derive)
        found = found.with_written(fit, is_key=part.is_key)
    return found, notes


def written_types(pipeline: Pipeline, result: DataFrame) -> list[tuple[OutputPart, DataType]]:
    """Returns the types of a transform's result, for the parts of the output that have a registry."""
    key, found = pipeline.output.records.key, list[tuple[OutputPart, DataType]]()
    for part in with_registry(pipeline.output_parts):
        if not part.is_key:
            found.append((part, value_schema(pipeline, result)))
        elif key in result.columns:
            found.append((part, result.schema[key].dataType))
    return found


Register = Callable[[Pipeline, OutputPart, "DataType", "RegisteredSchema | None"], RegisteredSchema]


def _settled(
    pipeline: Pipeline, part: OutputPart, kind: DataType, frozen: RegisteredSchema | None, register: Register
) -> RegisteredSchema:
    if frozen is not None and misfit(part, kind, frozen) is None:
        return frozen
    latest = output_schema(pipeline, part)
    why = None if latest is None else misfit(part, kind, latest)
    if latest is not None and why is None:
        return latest
    settings = pipeline.schema_registry
    if why is not None and (settings is None or not settings.auto_register or part.version):
        raise SettingsError(
            f"{pipeline.transform_file}: its result does not fit {latest}: {why} Nothing was written. {_way_on(part)}"
        )
    return register(pipeline, part, kind, latest)


def _way_on(part: OutputPart) -> str:
    if part.version:
        return f"{part.setting_of('version')} fixes this version; leave it out for the latest."
    return "(Once a version that fits is registered, the next attempt takes it.)"


def misfit(part: OutputPart, kind: DataType, schema: RegisteredSchema) -> str | None:
    """Returns the reason why columns of this type cannot be written with a schema, whatever the row, or None."""
    try:
        format_of(part).check_fits(kind, schema)
    except Unfit as error:
        return str(error)
    return None


def _register(
    pipeline: Pipeline, part: OutputPart, kind: DataType, latest: RegisteredSchema | None
) -> RegisteredSchema:
    """Registers the schema of the transform's result, if the registry accepts it as compatible."""
    text = _derived(pipeline, part, kind, latest)
    found = registry_for(pipeline, part).register(part.subject, text)
    log.info("pipeline %s: %s is registered", pipeline.name, named(found))
    return registered(found, text_to_write(part, text))


def _derived(pipeline: Pipeline, part: OutputPart, kind: DataType, latest: RegisteredSchema | None) -> str:
    """Returns the text of a schema for the transform's result that the registry accepts as compatible with the latest."""
    like = latest.text if latest else None
    registry, form = registry_for(pipeline, part), format_of(part)
    try:
        text = form.derive(kind, pipeline.output.name, like)
    except Unfit as error:
        raise SettingsError(f"{pipeline.transform_file}: no schema can be registered for its result: {error}") from None
    if latest is not None and not registry.is_compatible(part.subject, text):
        difference = form.difference(text, latest.text)
        raise SettingsError(
            f"{pipeline.transform_file}: the schema of its result is not compatible with {latest}, as the registry judges"
            f"{': ' if difference else ''}{difference}. Nothing was registered or written. Change the transform, or register "
            "the schema yourself."
        )
    return text


IdsOfPart = tuple[SourcePart, set[int]]  # the schema ids in the records of a source


def ids_in_source(raw: DataFrame, parts: Iterable[SourcePart]) -> list[IdsOfPart]:
    """Returns the schema ids of records, from the connector's columns. `parts` are those of their source."""
    found = list[IdsOfPart]()
    for part in with_registry(parts):
        column = F.col("key" if part.is_key else "value")
        framed = raw.where((F.length(column) >= HEADER) & (F.substring(column, 1, 1) == F.lit(bytearray(1))))
        ids = framed.select(F.conv(F.hex(F.substring(column, 2, 4)), 16, 10).alias("id")).distinct().collect()
        found.append((part, {int(row["id"]) for row in ids}))
    return found


def with_ids(pipeline: Pipeline, known: Schemas, ids: Iterable[IdsOfPart]) -> Schemas:
    """Returns these schemas with the schema of each of the ids, or the reason why its records are malformed."""
    for part, in_source in ids:
        read = known.read(part.topic, is_key=part.is_key) or read_schemas(pipeline, part, strict=False)
        known = known.with_read(part.topic, look_up_ids(pipeline, part, read, in_source), is_key=part.is_key)
    return known


def look_up(deployment: Deployment, batch: Batch, ids: Sequence[IdsOfPart]) -> Batch:
    """Returns the batch with the schema of each of these ids, or the reason why its records are malformed.

    Schemas that the ledger has by then are kept. This attempt may have recorded the output's schema, and another
    attempt some of the ids.
    """
    while True:
        schemas = batch.plan.schemas or Schemas()
        if (found := with_ids(deployment.pipeline, schemas, ids)) == schemas:
            return batch
        log.info("batch %s: looked up the schemas of its records", batch.id)
        batch = _record(deployment.ledger, batch, found)


def _record(ledger: Ledger, batch: Batch, schemas: Schemas) -> Batch:
    """Returns the batch with these schemas, or with those that another attempt has recorded meanwhile."""

    def decide(view: View) -> Change:
        return Change(record_schemas(view, batch.interval, batch.revision, batch.plan.schemas, schemas))

    reached("write.schemas-recording")
    recorded = ledger.transact(decide)
    reached("write.schemas-recorded")
    return own_revision(recorded.view, batch.interval, batch.revision)
