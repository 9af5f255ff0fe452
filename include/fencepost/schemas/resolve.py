"""Asks the registry for the write job: about the schema of the transform's result, and about ids that the plan did not
know.

The answers are written to the ledger before any record is decoded or encoded with them. So every attempt uses the same
answers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from fencepost.config.pipeline import Pipeline
from fencepost.errors import NeedsOperator, SettingsError
from fencepost.failpoints import reached
from fencepost.formats import Unfit
from fencepost.formats.framing import HEADER
from fencepost.ledger.deployment import Deployment
from fencepost.ledger.ledger import Change, Ledger
from fencepost.model import Batch, ReadSchemas, RegisteredSchema, Schemas
from fencepost.protocol.decisions import own_revision, record_schemas
from fencepost.protocol.view import View
from fencepost.rows.transform import value_schema
from fencepost.schemas.freeze import (
    MOST_LOOKED_UP,
    OutputPart,
    SourcePart,
    fixed_version,
    format_of,
    look_up_ids,
    named,
    output_schema,
    parts_with_registry,
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
        changed: dict[str, RegisteredSchema] = {}
        for part, kind in written_types(pipeline, result).items():
            frozen = getattr(known, part)
            fit = _settled(pipeline, part, kind, frozen, _register)
            if fit != frozen:
                changed[part] = fit
        if not changed:
            return batch
        batch = _record(deployment.ledger, batch, known.model_copy(update=changed))


def would_resolve(pipeline: Pipeline, result: DataFrame, known: Schemas) -> tuple[Schemas, list[str]]:
    """Returns the schemas that `resolve_output` would use, and what it would register, in sentences. It registers and
    records nothing.

    A schema that is not registered yet has the id 0.

    Raises:
        SettingsError: see `resolve_output`.
    """
    changed, notes = dict[str, RegisteredSchema](), list[str]()

    def only_derive(
        pipeline: Pipeline, part: OutputPart, kind: DataType, latest: RegisteredSchema | None
    ) -> RegisteredSchema:
        subject = pipeline.subject(part)
        text = _derived(pipeline, part, kind, latest)
        notes.append(f"a run would register a {'new version' if latest else 'first schema'} of subject {subject}")
        written = text_to_write(pipeline, part, text)
        return RegisteredSchema(subject=subject, id=0, text=written)

    for part, kind in written_types(pipeline, result).items():
        changed[part] = _settled(pipeline, part, kind, getattr(known, part), only_derive)
    return known.model_copy(update=changed), notes


def written_types(pipeline: Pipeline, result: DataFrame) -> dict[OutputPart, DataType]:
    """Returns the types of a transform's result, for the parts of the output that have a registry."""
    parts, found = parts_with_registry(pipeline), dict[OutputPart, DataType]()
    if "output" in parts:
        found["output"] = value_schema(pipeline, result)
    if "output_key" in parts and pipeline.output.records.key in result.columns:
        found["output_key"] = result.schema[pipeline.output.records.key].dataType
    return found


Register = Callable[[Pipeline, OutputPart, "DataType", "RegisteredSchema | None"], RegisteredSchema]


def _settled(
    pipeline: Pipeline, part: OutputPart, kind: DataType, frozen: RegisteredSchema | None, register: Register
) -> RegisteredSchema:
    if frozen is not None and misfit(pipeline, part, kind, frozen) is None:
        return frozen
    latest = output_schema(pipeline, part)
    why = None if latest is None else misfit(pipeline, part, kind, latest)
    if latest is not None and why is None:
        return latest
    settings = pipeline.schema_registry
    if why is not None and (settings is None or not settings.auto_register or fixed_version(pipeline, part)):
        raise SettingsError(
            f"{pipeline.transform_file}: its result does not fit {latest}: {why} Nothing was written. {_way_on(pipeline, part)}"
        )
    return register(pipeline, part, kind, latest)


def _way_on(pipeline: Pipeline, part: OutputPart) -> str:
    if fixed_version(pipeline, part):
        setting = "output.key_version" if part == "output_key" else "output.version"
        return f"{setting} fixes this version; leave it out for the latest."
    return "(Once a version that fits is registered, the next attempt takes it.)"


def misfit(pipeline: Pipeline, part: OutputPart, kind: DataType, schema: RegisteredSchema) -> str | None:
    """Returns the reason why columns of this type cannot be written with a schema, whatever the row, or None."""
    try:
        format_of(pipeline, part).check_fits(kind, schema)
    except Unfit as error:
        return str(error)
    return None


def _register(
    pipeline: Pipeline, part: OutputPart, kind: DataType, latest: RegisteredSchema | None
) -> RegisteredSchema:
    """Registers the schema of the transform's result, if the registry accepts it as compatible."""
    text = _derived(pipeline, part, kind, latest)
    found = registry_for(pipeline, part).register(pipeline.subject(part), text)
    log.info("pipeline %s: %s is registered", pipeline.name, named(found))
    return registered(found, text_to_write(pipeline, part, text))


def _derived(pipeline: Pipeline, part: OutputPart, kind: DataType, latest: RegisteredSchema | None) -> str:
    """Returns the text of a schema for the transform's result that the registry accepts as compatible with the latest."""
    subject, like = pipeline.subject(part), latest.text if latest else None
    registry, form = registry_for(pipeline, part), format_of(pipeline, part)
    try:
        text = form.derive(kind, pipeline.output.name, like)
    except Unfit as error:
        raise SettingsError(f"{pipeline.transform_file}: no schema can be registered for its result: {error}") from None
    if latest is not None and not registry.is_compatible(subject, text):
        difference = form.difference(text, latest.text)
        raise SettingsError(
            f"{pipeline.transform_file}: the schema of its result is not compatible with {latest}, as the registry judges"
            f"{': ' if difference else ''}{difference}. Nothing was registered or written. Change the transform, or register "
            "the schema yourself."
        )
    return text


def ids_in_source(raw: DataFrame, pipeline: Pipeline) -> dict[SourcePart, set[int]]:
    """Returns the schema ids of the records that a batch reads, from the connector's columns."""
    columns: dict[SourcePart, str] = {"source": "value", "source_key": "key"}
    found: dict[SourcePart, set[int]] = {}
    for part in parts_with_registry(pipeline):
        if part == "source" or part == "source_key":
            column = F.col(columns[part])
            framed = raw.where((F.length(column) >= HEADER) & (F.substring(column, 1, 1) == F.lit(bytearray(1))))
            ids = framed.select(F.conv(F.hex(F.substring(column, 2, 4)), 16, 10).alias("id")).distinct().collect()
            found[part] = {int(row["id"]) for row in ids}
    return found


def look_up(deployment: Deployment, batch: Batch, ids: dict[SourcePart, set[int]]) -> Batch:
    """Returns the batch with the schema of each of these ids, or the reason why its records are malformed.

    Schemas that the ledger has by then are kept. This attempt may have recorded the output's schema, and another
    attempt some of the ids.
    """
    while True:
        schemas = batch.plan.schemas or Schemas()
        changed: dict[str, ReadSchemas] = {}
        for part, in_source in ids.items():
            known: ReadSchemas = getattr(schemas, part)
            if unknown := sorted(in_source - known.ids):
                changed[part] = look_up_ids(deployment.pipeline, part, known, unknown)
                log.info("batch %s: looked up schema ids %s", batch.id, unknown[:MOST_LOOKED_UP])
        if not changed:
            return batch
        batch = _record(deployment.ledger, batch, schemas.model_copy(update=changed))


def _record(ledger: Ledger, batch: Batch, schemas: Schemas) -> Batch:
    """Returns the batch with these schemas, or with those that another attempt has recorded meanwhile."""

    def decide(view: View) -> Change:
        return Change(record_schemas(view, batch.interval, batch.revision, batch.plan.schemas, schemas))

    reached("write.schemas-recording")
    recorded = ledger.transact(decide)
    reached("write.schemas-recorded")
    return own_revision(recorded.view, batch.interval, batch.revision)
