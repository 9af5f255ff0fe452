"""How a topic has drifted from what a pipeline declares: fields that nobody declared, and types that no longer fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from fencepost.config.pipeline import Pipeline
from fencepost.config.sql_types import is_required, without_not_null
from fencepost.drafting.declared import arrow_of
from fencepost.drafting.registered import decoder_for
from fencepost.drafting.types import Inferred, infer
from fencepost.errors import SettingsError
from fencepost.formats.format import HEADER
from fencepost.formats.framing import Malformed
from fencepost.formats.json_decoder import JsonDecoder, parsed_record
from fencepost.formats.rows import Decoder
from fencepost.kafka.cluster import Cluster
from fencepost.kafka.sample import Sample, take_sample
from fencepost.model import ReadSchemas
from fencepost.schemas.freeze import look_up_ids, read_schemas

RECORD = "(the whole record)"


@dataclass(frozen=True)
class FieldDrift:
    """A field, in how many sampled records it drifted, and what is there: a type for a new field, a reason for one that does not
    fit."""

    name: str
    records: int
    what: str


@dataclass(frozen=True)
class Drift:
    """What a sample says. `records` have a value; `absent` are declared fields that none of them has."""

    records: int
    undeclared: tuple[FieldDrift, ...] = ()
    misfits: tuple[FieldDrift, ...] = ()
    absent: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether every record fits what is declared."""
        return not self.misfits


def look_for_drift(pipeline: Pipeline, cluster: Cluster, wanted: int, **limits: Any) -> tuple[Sample, Drift]:
    """A sample of the pipeline's source, and how it drifted. Reads as any reader; starts no Spark.

    Raises:
        TopicMissing, AccessDenied, KafkaUnavailable: the source cannot be read.
        SettingsError, RegistryUnavailable: the registry does not say what the source is read with.
    """
    topic = cluster.describe(pipeline.source.topic)
    sample = take_sample(cluster, topic, pipeline.group, wanted, **limits)
    return sample, drift_of(pipeline, [one.value for one in sample.records])


def drift_of(pipeline: Pipeline, values: Sequence[bytes | None]) -> Drift:
    """How these values drifted from the source's format and schema."""
    known = [value for value in values if value is not None]
    source = pipeline.source
    declared = {name: arrow_of(without_not_null(sql)) for name, sql in source.columns.items()}
    required = [name for name, sql in source.columns.items() if is_required(sql)]
    if source.format == "json":
        return _of_json(known, declared, required, lambda value: value)
    if source.format == "bytes" or not known:
        return Drift(len(known))
    schemas = read_schemas(pipeline, "source", strict=False)
    ids = {int.from_bytes(value[1:HEADER]) for value in known if len(value) >= HEADER and not value[0]}
    schemas = look_up_ids(pipeline, "source", schemas, sorted(ids - schemas.ids))
    decoder, _ = decoder_for(source.format, schemas, {n: Inferred("", kind) for n, kind in declared.items()})
    if source.format == "avro":
        return _of_avro(known, decoder, schemas)
    return _of_json_schema(known, decoder, declared, required, schemas)


def _of_json(
    values: Sequence[bytes],
    declared: Mapping[str, pa.DataType],
    required: Sequence[str],
    text_of: Callable[[bytes], bytes],
) -> Drift:
    whole, sound, objects = Counter[str](), list[bytes](), list[dict[str, Any]]()
    for value in values:
        try:
            text = text_of(value)
            objects.append(parsed_record(text))
            sound.append(text)
        except Malformed as malformed:
            whole[_in_short(str(malformed))] += 1
    misfits = [FieldDrift(RECORD, count, reason) for reason, count in whole.most_common()]
    for name, kind in declared.items():
        _, why = JsonDecoder(pa.schema([(name, kind)]), [name] if name in required else []).decode_values(sound)
        found = Counter(reason for reason in why if reason is not None)
        for reason, count in found.most_common():
            misfits.append(FieldDrift(name, count, reason.removeprefix(f"{name}: ")))
    seen = Counter(path for one in objects for path in set(_unknown(one, declared, "")))
    new = [FieldDrift(path, count, _type_at(objects, path)) for path, count in seen.most_common()]
    absent = tuple(name for name in declared if objects and not any(name in one for one in objects))
    return Drift(len(values), tuple(new), tuple(misfits), absent)


def _in_short(reason: str) -> str:
    """Without the place in the text, so that like reasons are counted as one."""
    return reason.partition(" at line ")[0]


def _unknown(value: Mapping[str, Any], fields: Mapping[str, pa.DataType], at: str) -> Iterator[str]:
    """The paths of an object's fields that are not among these, and of those within it."""
    for name, inner in value.items():
        if name not in fields:
            yield f"{at}{name}"
        else:
            yield from _within(inner, fields[name], f"{at}{name}")


def _within(value: Any, kind: pa.DataType, at: str) -> Iterator[str]:
    if pa.types.is_struct(kind) and isinstance(value, dict):
        yield from _unknown(value, {field.name: field.type for field in kind}, f"{at}.")
    elif (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and isinstance(value, list):
        for item in value:
            yield from _within(item, kind.value_type, f"{at}[*]")
    elif pa.types.is_map(kind) and isinstance(value, dict):
        for item in value.values():
            yield from _within(item, kind.item_type, f"{at}.*")


def _type_at(objects: Sequence[Mapping[str, Any]], path: str) -> str:
    """The type that an undeclared outermost field would be declared with; nothing for one within another."""
    values = [one[path] for one in objects if path in one]
    return infer(values).sql if values else ""


def _of_avro(values: Sequence[bytes], decoder: Decoder, schemas: ReadSchemas) -> Drift:
    from fencepost.formats.avro_schema import parse

    _, why = decoder.decode_values(values)
    found = Counter(reason for reason in why if reason is not None)
    ids = Counter(int.from_bytes(value[1:HEADER]) for value in values if len(value) >= HEADER and not value[0])
    read = {name for one in parse(schemas.reader.text).fields for name in (one.name, *one.aliases)}
    seen, types = Counter[str](), dict[str, str]()
    for writer in schemas.writers:
        for one in parse(writer.text).fields if ids[writer.id] else ():
            if one.name not in read:
                seen[one.name] += ids[writer.id]
                types[one.name] = one.type.says()
    new = tuple(FieldDrift(name, count, types[name]) for name, count in seen.most_common())
    return Drift(len(values), new, tuple(FieldDrift(RECORD, n, reason) for reason, n in found.most_common()))


def _of_json_schema(
    values: Sequence[bytes],
    decoder: Any,
    declared: Mapping[str, pa.DataType],
    required: Sequence[str],
    schemas: ReadSchemas,
) -> Drift:
    from fencepost.formats import json_schema
    from fencepost.formats.format import framing_of

    reader = json_schema.parse(schemas.reader.text)
    kinds = {field.name: field.type for field in decoder._schema} | dict(declared)
    needed = [one.name for one in reader.properties if one.required and not one.type.nullable]
    framing = framing_of(schemas)
    return _of_json(values, kinds, [*needed, *required], lambda value: framing.split(value)[1])


def told(drift: Drift) -> Iterator[str]:
    """A sentence for each thing that drifted, for the doctor."""
    for one in drift.misfits:
        yield f"{one.name} does not fit in {_share(one.records, drift.records)}: {one.what}"
    for one in drift.undeclared:
        yield f"{one.name} is in {_share(one.records, drift.records)}, and is not declared"


def _share(part: int, whole: int) -> str:
    return f"{part:,} of {whole:,} sampled records"


def check_size(wanted: int) -> None:
    """Check how many records are asked for."""
    if not 1 <= wanted <= 100_000:
        raise SettingsError(f"--sample {wanted}: allowed are 1 to 100,000.")
