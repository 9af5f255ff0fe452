"""Finds what the registry says about a topic's values: their format, their subject and their columns."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from fencepost.config.pipeline import Pipeline
from fencepost.config.record_parts import parts_of_source
from fencepost.config.source import RecordTypes, Source, SourceColumn
from fencepost.drafting.columns import Fields, KnownField, fields_of
from fencepost.drafting.connect_properties import encoded_properties, row_properties
from fencepost.drafting.debezium import chosen_of, known_as, of_tables
from fencepost.drafting.decoders import arrow_schema, enveloped_schema, with_columns
from fencepost.drafting.names import column_names, is_column_name, why_not_read
from fencepost.drafting.types import Inferred, infer
from fencepost.drafting.value_kinds import ValueKinds
from fencepost.errors import FencepostError, SettingsError
from fencepost.formats import REGISTRY_FORMATS, BadSchema, Declared
from fencepost.formats.declared import Envelope
from fencepost.formats.envelope import COLUMNS
from fencepost.formats.format import framing_of
from fencepost.formats.framing import HEADER, Malformed, schema_id_of
from fencepost.formats.json import json_decoder
from fencepost.formats.json_decoder import parsed_record
from fencepost.formats.rows import Decoder
from fencepost.model import ReadSchemas
from fencepost.schemas.freeze import look_up_ids, read_schemas, registry_for
from fencepost.schemas.registry import NotRegistered, Registry, SchemaVersion

BY_TYPE = {kind.schema_type: name for name, kind in REGISTRY_FORMATS.items()}
MOST_IDS = 100  # ids that are looked up


@dataclass(frozen=True)
class ReadBy:
    """The format and the subject that values are read by. `is_mixed` says that the registry has some of the values' schemas
    under other subjects only.
    """

    format: str
    subject: str
    is_mixed: bool = False


def read_by(pipeline: Pipeline, topic: str, frames: ValueKinds, subject: str | None) -> ReadBy | None:
    """Returns what reads a topic's values with a schema id, or a topic without records. Returns None if the values have no id
    and the registry has no subject for the topic.

    Raises:
        SettingsError: the values are Protobuf, or have several subjects or types.
        RegistryUnavailable, AccessDenied: the registry does not answer, or refuses access.
    """
    registry, usual = Registry(pipeline, ""), f"{topic}-value"
    if not frames.ids:
        try:
            return ReadBy(_format(registry.of_subject(subject or usual), topic), subject or usual)
        except NotRegistered:
            return None
    known = dict[int, tuple[str, list[str]]]()
    for schema_id, _ in frames.ids.most_common(MOST_IDS):
        try:
            known[schema_id] = registry.of_id(schema_id)
        except NotRegistered:
            continue
    if not known:
        return None
    kinds = Counter(kind for kind, _ in known.values())
    formats = {_format(kind, topic) for kind in kinds}
    if len(formats) > 1:
        raise SettingsError(
            f"topic {topic}: its records have schemas of several types ({', '.join(sorted(kinds))}), and a pipeline "
            "reads only one. Name one type with --format. Records of the other types are then malformed."
        )
    (found,) = formats
    subjects = [those for _, those in known.values()]
    chosen = subject or _subject(topic, subjects)
    return ReadBy(found, chosen, any(chosen not in those for those in subjects))


def _format(kind: str, topic: str) -> str:
    if kind not in BY_TYPE:
        raise SettingsError(
            f"topic {topic}: its records are {kind.capitalize()} with a schema registry, which Fencepost does not "
            "read. `--format bytes` takes values as they are."
        )
    return BY_TYPE[kind]


def _subject(topic: str, subjects: Sequence[Sequence[str]]) -> str:
    usual = f"{topic}-value"
    if all(usual in those for those in subjects):
        return usual
    everywhere = set(subjects[0]).intersection(*subjects[1:])
    if len(everywhere) == 1:
        return everywhere.pop()
    names = sorted({name for those in subjects for name in those})
    raise SettingsError(
        f"topic {topic}: the schemas of its records have several subjects ({', '.join(names)}), and a pipeline reads "
        "by only one subject. Name one with --subject. The draft then takes the records of its type (source.only), and "
        "leaves the others out."
    )


def registered_source(
    pipeline: Pipeline, topic: str, by: ReadBy, values: Sequence[bytes | None]
) -> tuple[Source, Fields]:
    """Returns the source of a topic in a format with a registry, and the fields of the subject's latest schema.

    1. Find whether the schema is one of Debezium's envelopes, and which types of records the source takes.
    2. Declare the fields that need it. In JSON Schema, the type of a field may not fit a column. The draft then declares the
       field with the type that the sample shows.
    3. If the envelopes are of several tables, take one.

    Raises:
        SettingsError: Spark cannot hold the schema. The message names the field.
        RegistryUnavailable, AccessDenied: the registry does not answer, or refuses access.
    """
    own = None if by.subject == f"{topic}-value" else by.subject
    source = Source(topic=topic, format=by.format, subject=own, on_malformed="quarantine")
    latest, known = _latest(pipeline, source), dict[str, KnownField]()
    if latest is not None:
        if _is_envelope(by.format, latest):  # 1
            source = source.model_copy(update={"envelope": "debezium"})
        elif by.is_mixed:
            source = source.model_copy(update={"only": _types(by.format, latest)})
        known = _renamed(source, latest) if by.format == "avro" else _known(source, latest, values)  # 2
        source = with_columns(source, {column: one.declared for column, one in known.items()})
    schemas = schemas_of(pipeline, source, values)
    decoder, names = decoder_for(source, schemas)
    notes = tuple[str, ...]()
    if source.envelope is not None:  # 3
        tables = _tables(decoder, values)
        notes = tuple(of_tables(tables))
        source = source.model_copy(update={"captured_table": chosen_of(tables)})
        schemas = schemas_of(pipeline, source, values)
        decoder, names = decoder_for(source, schemas)
    declared = {
        column: (known[column].declared, known[column].note) if column in known else (None, "") for column in names
    }
    fields = fields_of(decoder, declared, values, {}, times=source.envelope is None)
    return source, replace(fields, notes=notes)


def _latest(pipeline: Pipeline, source: Source) -> SchemaVersion | None:
    """Returns the latest schema of the source's subject, or None if the registry has none."""
    value, _ = parts_of_source(source)
    registry, subject = registry_for(pipeline, value), value.subject
    try:
        return registry.version(subject, registry.versions(subject)[-1])
    except NotRegistered:
        return None


def _types(name: str, latest: SchemaVersion) -> RecordTypes | None:
    """Returns the types of records that a schema is for, or None if it does not say."""
    try:
        names = sorted(REGISTRY_FORMATS[name].record_types(latest.text))
    except BadSchema:
        return None
    return RecordTypes(values=tuple(names)) if names else None


def _is_envelope(name: str, latest: SchemaVersion) -> bool:
    """Returns whether a schema is one of Debezium's envelopes with a row."""
    raw = json.loads(latest.text)
    if not isinstance(raw, dict):
        return False
    fields = [one.get("name") for one in raw.get("fields", [])] if name == "avro" else raw.get("properties", {})
    if not {"op", "source", "after"}.issubset(fields):
        return False
    try:
        REGISTRY_FORMATS[name].reader(latest.text, latest.references, Declared(envelope=Envelope()), columns=True)
    except BadSchema:
        return False
    return True


def _tables(decoder: Decoder, values: Sequence[bytes | None]) -> dict[str, int]:
    """Returns the tables of the changes in these values, the most frequent one first."""
    columns, _ = decoder.decode_values(values)
    source = columns[COLUMNS.index("_source") - len(COLUMNS)]
    found = Counter(name for one in source.to_pylist() if one is not None and (name := one["table"]) is not None)
    return dict(found.most_common())


def schemas_of(pipeline: Pipeline, source: Source, values: Sequence[bytes | None]) -> ReadSchemas:
    """Returns all schemas of the values of a source, as the write job looks them up."""
    value, _ = parts_of_source(source)
    found = read_schemas(pipeline, value, strict=False)
    ids = {schema_id for v in values if v is not None and (schema_id := schema_id_of(v)) is not None}
    return look_up_ids(pipeline, value, found, ids)


def decoder_for(source: Source, schemas: ReadSchemas) -> tuple[Decoder, list[str]]:
    """Returns the decoder of a source of a registry's format, and the names of its columns. With an envelope the columns of
    the envelope follow, and are not among the names.
    """
    declared = source.declared
    if source.format != "avro":
        columns, required = json_schema_columns(source, schemas)
        whole = enveloped_schema(columns, declared)
        return json_decoder(whole, required, declared, framing_of(schemas))(), columns.names
    from fencepost.formats import avro

    fields = avro.columns_in_spark(declared.under(schemas))
    names = fields.fieldNames()
    return avro.decoder_of(fields, schemas, declared)(), [name for name in names if name not in COLUMNS]


def json_schema_columns(source: Source, schemas: ReadSchemas) -> tuple[pa.Schema, list[str]]:
    """Returns the columns of a source of JSON objects with a schema in the registry, and those that are not null."""
    from pyspark.sql import types as T
    from pyspark.sql.pandas.types import to_arrow_schema

    from fencepost.formats import json_framed, json_schema

    reader, declared = json_schema.parse(schemas.reader.text), source.declared
    properties = {one.name: one for one in reader.properties}
    columns = {column: properties[name] for column, name in declared.with_registered_types(properties)}
    own = to_arrow_schema(T.StructType([T.StructField(n, json_framed.to_spark(p.type)) for n, p in columns.items()]))
    required = [column for column, one in columns.items() if one.required and not one.type.nullable]
    return pa.schema([*own, *arrow_schema(declared.types)]), [*required, *declared.required]


def _known(source: Source, latest: SchemaVersion, values: Sequence[bytes | None]) -> dict[str, KnownField]:
    """Returns the columns of a JSON Schema's rows that have to be declared.

    A property has to be declared if its type or its name cannot be a column's, or if its numbers or texts mean something
    else. Without an envelope the sample says which type the first kind has.
    """
    schema = json.loads(latest.text)
    if not isinstance(schema, dict):
        return {}
    properties = row_properties(schema, envelope=source.envelope is not None)
    encoded = encoded_properties(schema, properties)
    columns = column_names({name: 1 for name in properties if why_not_read(name) is None})
    inferred = _inferred(latest, properties.keys() - encoded.keys(), values) if source.envelope is None else {}
    found = dict[str, KnownField]()
    for name, column in columns.items():
        if name in encoded:
            found[column] = known_as(encoded[name], None if column == name else name)
        elif name in inferred:
            declared = SourceColumn(type=inferred[name].sql, field=None if column == name else name)
            found[column] = KnownField(declared, inferred[name].note)
        elif column != name and (name.startswith("_") or is_column_name(name)):
            found[column] = KnownField(SourceColumn(field=name))  # other names are columns here
    return found


def _renamed(source: Source, latest: SchemaVersion) -> dict[str, KnownField]:
    """Returns the columns of those fields of an Avro record whose names a column cannot have."""
    from fencepost.formats.avro import texts_of
    from fencepost.formats.avro_envelope import envelope_of, row_of
    from fencepost.formats.avro_schema import parse

    try:
        parsed = parse(latest.text, texts_of(latest.references))
        row = parsed if source.envelope is None else row_of(envelope_of(parsed))
    except BadSchema:
        return {}  # it is refused where it is read
    columns = column_names({one.name: 1 for one in row.fields if why_not_read(one.name) is None})
    return {column: KnownField(SourceColumn(field=name)) for name, column in columns.items() if column != name}


def _inferred(latest: SchemaVersion, names: Collection[str], values: Sequence[bytes | None]) -> dict[str, Inferred]:
    """Returns the types that the sample shows of the properties that cannot be columns by the schema alone."""
    form, untyped = REGISTRY_FORMATS["json_schema"], list[str]()
    for name in names:
        try:
            form.reader(
                latest.text, latest.references, Declared(dict.fromkeys({*names} - {name}, "string")), columns=True
            )
        except BadSchema:
            untyped.append(name)
    objects = list[dict[str, Any]]()
    for value in values:
        try:
            objects.append(parsed_record((value or b"")[HEADER:]))
        except (Malformed, FencepostError):
            continue
    return {name: infer(one.get(name) for one in objects) for name in untyped}
