"""Finds what the registry says about a topic's values: their format, their subject and their columns."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fencepost.config.pipeline import Pipeline
from fencepost.config.sections import Source
from fencepost.drafting.columns import Fields, fields_of, undeclarable
from fencepost.drafting.types import Inferred, infer
from fencepost.drafting.value_kinds import ValueKinds
from fencepost.errors import FencepostError, SettingsError
from fencepost.formats import REGISTRY_FORMATS, BadSchema
from fencepost.formats.framing import HEADER, Malformed, schema_id_of
from fencepost.formats.json_decoder import parsed_record
from fencepost.model import ReadSchemas
from fencepost.schemas.freeze import look_up_ids, read_schemas, registry_for
from fencepost.schemas.registry import NotRegistered, Registry

BY_TYPE = {kind.schema_type: name for name, kind in REGISTRY_FORMATS.items()}
MOST_IDS = 100  # ids that are looked up


def read_by(pipeline: Pipeline, frames: ValueKinds, subject: str | None) -> tuple[str, str] | None:
    """Returns the format and the subject of values with a schema id, or of a topic without records. Returns None if the
    values have no id and the registry has no subject for the topic.

    Raises:
        SettingsError: the values are Protobuf, or have several subjects or types.
        RegistryUnavailable, AccessDenied: the registry does not answer, or refuses access.
    """
    registry, topic = Registry(pipeline, ""), pipeline.source.topic
    usual = f"{topic}-value"
    if not frames.ids:
        try:
            return _format(registry.of_subject(subject or usual), topic), subject or usual
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
    return found, subject or _subject(topic, [subjects for _, subjects in known.values()])


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
        "by only one subject. Name one with --subject."
    )


def registered_source(
    pipeline: Pipeline, name: str, subject: str, values: Sequence[bytes | None]
) -> tuple[Source, Fields]:
    """Returns the source of a format with a registry, and the fields of the subject's latest schema.

    In JSON Schema, the type of a field may not fit a column. The draft then declares the field with the type that the
    sample shows.

    Raises:
        SettingsError: Spark cannot hold the schema. The message names the field.
        RegistryUnavailable, AccessDenied: the registry does not answer, or refuses access.
    """
    own = None if subject == f"{pipeline.source.topic}-value" else subject
    source = Source(topic=pipeline.source.topic, format=name, subject=own, on_malformed="quarantine")
    declared = dict[str, Inferred]()
    if name == "json_schema":
        declared = _declared(pipeline.model_copy(update={"source": source}), values)
        columns = {field: kind.sql for field, kind in declared.items()}
        source = source.model_copy(update={"columns": columns})
    schemas = schemas_of(pipeline.model_copy(update={"source": source}), values)
    decoder, names = decoder_for(name, schemas, declared)
    types = {field: (declared[field].sql, declared[field].note) if field in declared else (None, "") for field in names}
    return source, fields_of(decoder, types, values, {})


def schemas_of(pipeline: Pipeline, values: Sequence[bytes | None]) -> ReadSchemas:
    """Returns all schemas of the values, as the write job looks them up."""
    found = read_schemas(pipeline, "source", strict=False)
    ids = {schema_id for v in values if v is not None and (schema_id := schema_id_of(v)) is not None}
    return look_up_ids(pipeline, "source", found, sorted(ids - found.ids))


def decoder_for(name: str, schemas: ReadSchemas, declared: Mapping[str, Inferred]) -> tuple[Any, list[str]]:
    """Returns a decoder of a registry format's values, and the names of its columns."""
    import pyarrow as pa
    from pyspark.sql import types as T
    from pyspark.sql.pandas.types import to_arrow_schema

    if name == "avro":
        from fencepost.formats import avro
        from fencepost.formats.avro_schema import parse

        fields = avro.to_spark(parse(schemas.reader.text))
        assert isinstance(fields, T.StructType), "`read_schemas` refuses others"
        return avro.decoder_of(fields, schemas, whole=False)(), fields.fieldNames()
    from fencepost.formats import json_framed, json_schema
    from fencepost.formats.format import framing_of
    from fencepost.formats.json_decoder import JsonDecoder

    reader = json_schema.parse(schemas.reader.text)
    own = to_arrow_schema(
        T.StructType([T.StructField(p.name, json_framed.to_spark(p.type)) for p in reader.properties])
    )
    whole = pa.schema([*own, *((field, kind.arrow) for field, kind in declared.items())])
    required = [p.name for p in reader.properties if p.required and not p.type.nullable]
    return JsonDecoder(whole, required, framing_of(schemas)), whole.names


def _declared(pipeline: Pipeline, values: Sequence[bytes | None]) -> dict[str, Inferred]:
    """Returns those outermost properties of the latest JSON Schema whose types cannot be a column's type, each with the
    type that the sample shows.
    """
    registry, subject = registry_for(pipeline, "source"), pipeline.subject("source")
    try:
        latest = registry.version(subject, registry.versions(subject)[-1])
    except NotRegistered:
        return {}
    raw = json.loads(latest.text)
    properties = list(raw.get("properties", {})) if isinstance(raw, dict) else []
    form = REGISTRY_FORMATS["json_schema"]
    typed, untyped = set(properties), list[str]()
    for name in properties:
        try:
            form.reader(latest.text, latest.references, typed - {name}, columns=True)
        except BadSchema:
            untyped.append(name)
    allowed = [name for name in untyped if name not in undeclarable(dict.fromkeys(untyped, 1))]
    objects = list[dict[str, Any]]()
    for value in values:
        try:
            objects.append(parsed_record((value or b"")[HEADER:]))
        except (Malformed, FencepostError):
            continue
    return {name: infer(one.get(name) for one in objects) for name in allowed}
