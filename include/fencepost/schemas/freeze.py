"""Freezes the registry's schemas for a plan. Source records are read with some of these schemas, and output records are
written with the others.

A plan starts no Spark, so it cannot compare the output's schema with the transform's result. `resolve.py` does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress

from fencepost.config.pipeline import Pipeline
from fencepost.config.record_parts import OutputPart, RecordPart, SourcePart, with_registry
from fencepost.errors import SettingsError
from fencepost.formats import (
    REGISTRY_FORMATS,
    BadSchema,
    RegistryFormat,
    SchemaReference,
)
from fencepost.model import ReadSchemas, RegisteredSchema, Schemas
from fencepost.schemas.registry import NotRegistered, OtherType, Registry, SchemaVersion

# Versions of a subject, and characters of their schemas, that a plan freezes. The schema of an older version is looked
# up when a record has it.
MOST_VERSIONS = 50
MOST_FROZEN = 200_000
MOST_LOOKED_UP = 100  # ids that a plan does not know, without those of other types
# Why the records of an id are malformed, if its schema is not the reason.
NOT_LOOKED_UP = f"not looked up, because the batch has more than {MOST_LOOKED_UP} unknown ids"
NOT_THERE = "the registry does not have it"


def format_of(part: RecordPart) -> RegistryFormat:
    """Returns the format of a part whose schema is in the registry."""
    return REGISTRY_FORMATS[part.format]


def registry_for(pipeline: Pipeline, part: RecordPart) -> Registry:
    """Returns the registry, for schemas of a part's format."""
    return Registry(pipeline, format_of(part).schema_type)


def freeze_schemas(pipeline: Pipeline) -> Schemas | None:
    """Returns the schemas for a plan, or None if no part of the pipeline has a registry.

    Raises:
        SettingsError: the registry has no such subject or version, Spark cannot hold the schema, or the reader's schema
            cannot read another version of the subject. The message names the field.
        RegistryUnavailable, AccessDenied: see `Registry`.
    """
    read, written = with_registry(pipeline.source_parts), with_registry(pipeline.output_parts)
    if not (read or written):
        return None
    found = Schemas()
    for part in read:
        found = found.with_read(part.topic, read_schemas(pipeline, part), is_key=part.is_key)
    for out in written:
        found = found.with_written(output_schema(pipeline, out), is_key=out.is_key)
    return found


def read_schemas(pipeline: Pipeline, part: SourcePart, *, strict: bool = True) -> ReadSchemas:
    """Returns the reader's schema of a source, and all versions of its subject. With `strict` it refuses a version that
    the reader's schema cannot read. A version of another type than those that the source reads is among the `others`.
    """
    kind, registry, declared = format_of(part), registry_for(pipeline, part), part.declared
    subject = part.subject
    versions = _versions(registry, pipeline, part)
    if versions is None:
        raise SettingsError(
            f"{_where(pipeline, part)}: the registry has no subject {subject}. Register its schema, or name the "
            f"subject that the producers use as {part.setting_of('subject')}."
        )
    own = _version(registry, pipeline, part, part.version or _newest(registry, kind, subject, versions, declared.names))
    try:
        reader = kind.reader(own.text, own.references, declared, columns=not part.is_key)
    except BadSchema as error:
        raise SettingsError(f"{_where(pipeline, part)}: {named(own)}: {error}. It cannot be read.") from None
    writers, refused, others, size = list[RegisteredSchema](), dict[int, str](), list[int](), 0
    for one in [own, *_others(registry, subject, versions, own)]:
        try:
            if declared.names and kind.record_types(one.text).isdisjoint(declared.names):
                others.append(one.id)
                continue
            text = kind.writer(one.text, one.references, reader, declared)
        except ValueError as error:
            refused[one.id] = str(error)
            continue
        if (size := size + len(text)) > MOST_FROZEN and one is not own:
            break
        writers.append(RegisteredSchema(subject=subject, id=one.id, version=one.version, text=text))
    if refused and strict and part.section.on_malformed == "fail":
        reasons = "; ".join(f"id {schema_id}: {why}" for schema_id, why in refused.items())
        raise SettingsError(
            f"{_where(pipeline, part)}: {named(own)} cannot read records of other versions of the subject ({reasons}). "
            f"Nothing was planned. Set {part.setting_of('version')} to a version that reads all of them. If the topic "
            "has no record of such a version any more, delete that version in the registry. Or set "
            f"{part.setting}.on_malformed to quarantine or drop, which makes such records malformed."
        )
    reader_schema = RegisteredSchema(subject=subject, id=own.id, version=own.version, text=reader)
    if part.is_key and (missing := sorted(part.section.key_fields.difference(kind.fields(reader_schema, declared)))):
        raise SettingsError(
            f"{_where(pipeline, part)}: {named(own)}: it has no field {', '.join(missing)}, which "
            f"{part.setting}.{part.key_setting} declares."
        )
    return ReadSchemas(reader=reader_schema, writers=tuple(writers), refused=refused, others=tuple(sorted(others)))


def _newest(
    registry: Registry, kind: RegistryFormat, subject: str, versions: Sequence[int], only: Collection[str]
) -> int:
    """Returns the newest version of a subject that has one of the types in `only`, or the newest of all."""
    for number in sorted(versions, reverse=True)[:MOST_VERSIONS] if only else ():
        with suppress(NotRegistered, OtherType, BadSchema):
            if not kind.record_types(registry.version(subject, number).text).isdisjoint(only):
                return number
    return versions[-1]


def _others(registry: Registry, subject: str, versions: Sequence[int], own: SchemaVersion) -> Iterator[SchemaVersion]:
    """Yields the newest other versions of a subject. It leaves out versions of another type, and versions that the
    registry no longer has. If a record has such a version, the version's schema is looked up later, and the record is
    malformed.
    """
    for number in [n for n in sorted(versions, reverse=True) if n != own.version][: MOST_VERSIONS - 1]:
        with suppress(NotRegistered, OtherType):
            yield registry.version(subject, number)


def look_up_ids(pipeline: Pipeline, part: SourcePart, known: ReadSchemas, ids: Collection[int]) -> ReadSchemas:
    """Returns `known` with those of the `ids` added that it lacks. An added id has its schema, or is of another type than
    those that the source reads, or has the reason why its records are malformed.
    """
    if not (unknown := sorted({*ids} - known.ids)):
        return known
    form, registry, declared = format_of(part), registry_for(pipeline, part), part.declared
    writers, refused, others = list(known.writers), dict(known.refused), set(known.others)
    added = 0
    for schema_id in unknown:
        if added >= MOST_LOOKED_UP:
            refused[schema_id] = NOT_LOOKED_UP
            continue
        added += 1
        try:
            if declared.names and form.record_types(registry.text_by_id(schema_id)).isdisjoint(declared.names):
                others.add(schema_id)
                added -= 1  # however many types a topic has
                continue
            one = registry.by_id(schema_id)
            text = form.writer(one.text, one.references, known.reader.text, declared)
        except NotRegistered:
            refused[schema_id] = NOT_THERE
        except OtherType:
            refused[schema_id] = f"its schema is not of type {form.schema_type}"
        except ValueError as error:
            refused[schema_id] = str(error)
        else:
            writers.append(RegisteredSchema(subject=one.subject, id=schema_id, text=text))
    return known.model_copy(update={"writers": tuple(writers), "refused": refused, "others": tuple(sorted(others))})


def output_schema(pipeline: Pipeline, part: OutputPart) -> RegisteredSchema | None:
    """Returns the schema that an output is written with. Returns None if there is none yet and the write may register a
    schema.
    """
    registry = registry_for(pipeline, part)
    versions = _versions(registry, pipeline, part)
    if versions is None:
        settings = pipeline.schema_registry
        if settings is not None and settings.auto_register:
            return None
        raise SettingsError(
            f"{_where(pipeline, part)}: the registry has no subject {part.subject}. Register the output's schema "
            f"there, name another subject as {part.setting_of('subject')}, or set schema_registry.auto_register: true, which "
            "registers the schema of the transform's result."
        )
    found = _version(registry, pipeline, part, part.version or versions[-1])
    try:
        return registered(found, text_to_write(part, found.text, found.references))
    except BadSchema as error:
        raise SettingsError(f"{_where(pipeline, part)}: {named(found)}: {error}. It cannot be written.") from None


def text_to_write(part: OutputPart, text: str, references: Sequence[SchemaReference] = ()) -> str:
    """Returns the schema that a part of the output is written with, as a plan freezes it.

    Raises:
        BadSchema: Spark cannot hold its values, or no row can be one.
    """
    mapped = () if part.is_key else part.section.fields.values()
    return format_of(part).written(text, references, columns=not part.is_key, mapped=mapped)


def _versions(registry: Registry, pipeline: Pipeline, part: RecordPart) -> list[int] | None:
    try:
        return registry.versions(part.subject) or None
    except NotRegistered:
        return None


def _version(registry: Registry, pipeline: Pipeline, part: RecordPart, number: int) -> SchemaVersion:
    try:
        return registry.version(part.subject, number)
    except NotRegistered:
        raise SettingsError(
            f"{_where(pipeline, part)}: subject {part.subject} has no version {number}, or the registry lacks a schema "
            "that it refers to."
        ) from None


def registered(found: SchemaVersion, text: str) -> RegisteredSchema:
    return RegisteredSchema(subject=found.subject, id=found.id, version=found.version, text=text)


def _where(pipeline: Pipeline, part: RecordPart) -> str:
    return f"pipeline {pipeline.name}, {part.title}"


def named(found: SchemaVersion) -> str:
    return f"subject {found.subject} (version {found.version}, id {found.id})"
