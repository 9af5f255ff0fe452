"""Finds how a topic has drifted from what a pipeline declares. Fields that are not declared are drift, and so are types
that no longer fit.

A difference that no declaration can change is not drift. So fields that cannot be columns are not drift, and neither
are malformed records that the settings drop or quarantine. A declared field has drifted if producers now write its name
in another case, because its column is then null.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from fencepost.config.pipeline import Pipeline
from fencepost.config.sql_types import is_required, without_not_null
from fencepost.drafting.columns import SAME_TO_SPARK, why_no_column
from fencepost.drafting.registered import decoder_for, schemas_of
from fencepost.drafting.types import NAME, Inferred, arrow_of, infer
from fencepost.errors import SettingsError
from fencepost.formats.avro_schema import AvroField, AvroType, check_holdable, parse
from fencepost.formats.column_names import without_case
from fencepost.formats.format import BadSchema, taken_names
from fencepost.formats.framing import Malformed, schema_id_of
from fencepost.formats.json_decoder import JsonDecoder, parsed_record
from fencepost.formats.rows import Decoder
from fencepost.kafka.cluster import Cluster
from fencepost.kafka.sample import Sample, take_sample
from fencepost.model import ReadSchemas
from fencepost.quality.quarantine import Accounts, over_limit
from fencepost.schemas.freeze import NOT_LOOKED_UP, NOT_THERE

RECORD = "(the whole record)"
LISTED = 5  # fields that a sentence names


@dataclass(frozen=True)
class FieldDrift:
    """A field that has drifted, and the number of sampled records in which it did. A new field has its type, and a
    field that does not fit has the reason.
    """

    name: str
    records: int
    what: str


@dataclass(frozen=True)
class Drift:
    """The drift in a sample. The sample has `records` with a value, and `malformed` of these records do not fit.
    `absent` are declared fields that no record has.

    `undeclarable` are fields that cannot be columns, with the reason. `set_aside` says what happens to malformed
    records if a batch of such records is published.
    """

    records: int
    undeclared: tuple[FieldDrift, ...] = ()
    misfits: tuple[FieldDrift, ...] = ()
    absent: tuple[str, ...] = ()
    undeclarable: tuple[FieldDrift, ...] = ()
    malformed: int = 0
    set_aside: str = ""

    @property
    def fits(self) -> bool:
        """Returns whether a batch of such records would be published, as far as declared types decide."""
        return not self.misfits or bool(self.set_aside)


def look_for_drift(pipeline: Pipeline, cluster: Cluster, wanted: int, **limits: Any) -> tuple[Sample, Drift]:
    """Returns a sample of the pipeline's source, and the drift in it. It reads like any reader, and starts no Spark.

    Raises:
        TopicMissing, AccessDenied, KafkaUnavailable: the source cannot be read.
        SettingsError, RegistryUnavailable: the registry does not say how the source is read.
    """
    topic = cluster.describe(pipeline.source.topic)
    sample = take_sample(cluster, topic, pipeline.group, wanted, **limits)
    return sample, drift_of(pipeline, [one.value for one in sample.records])


def drift_of(pipeline: Pipeline, values: Sequence[bytes | None]) -> Drift:
    """Returns the drift of these values from the source's format and schema."""
    found = _drift_of(pipeline, values)
    return replace(found, set_aside=_set_aside(pipeline, found, len(values)))


def _set_aside(pipeline: Pipeline, drift: Drift, read: int) -> str:
    """Describes what happens to malformed records. The text is empty if they would fail a batch like the sample, or if
    a declared type no longer fits and no limit would report it.
    """
    policy, limit = pipeline.source.on_malformed, pipeline.quality.quarantine_limit
    if not drift.malformed or policy == "fail":
        return ""
    done = "go to quarantine" if policy == "quarantine" else "are dropped"
    if policy == "quarantine" and limit is not None:
        return "" if over_limit(limit, Accounts(read=read, malformed_kept=drift.malformed)) else done
    return "" if any(one.name != RECORD for one in drift.misfits) else done


def _drift_of(pipeline: Pipeline, values: Sequence[bytes | None]) -> Drift:
    known = [value for value in values if value is not None]
    source = pipeline.source
    declared = {name: arrow_of(without_not_null(sql)) for name, sql in source.columns.items()}
    required = [name for name, sql in source.columns.items() if is_required(sql)]
    if source.format == "json":
        return _of_json(known, declared, required, lambda value: value)
    if source.format == "bytes" or not known:
        return Drift(len(known))
    schemas = schemas_of(pipeline, known)
    decoder, _ = decoder_for(source.format, schemas, {n: Inferred("", kind) for n, kind in declared.items()})
    if source.format == "avro":
        return _of_avro(known, decoder, schemas)
    return _of_json_schema(known, decoder, declared, required, schemas)


def _place_of(schemas: ReadSchemas) -> Callable[[bytes], str]:
    """Returns a function that gives the label under which a malformed value is counted.

    The label is the id of the value's schema if the reader's schema cannot read that schema. Otherwise the label is
    `RECORD`.
    """
    unread = {number for number, why in schemas.refused.items() if why not in (NOT_LOOKED_UP, NOT_THERE)}

    def place(value: bytes) -> str:
        number = schema_id_of(value)
        return f"(schema id {number})" if number in unread else RECORD

    return place


def _of_json(
    values: Sequence[bytes],
    declared: Mapping[str, pa.DataType],
    required: Sequence[str],
    text_of: Callable[[bytes], bytes],
    place_of: Callable[[bytes], str] = lambda _: RECORD,
) -> Drift:
    whole, sound, objects, bad = Counter[tuple[str, str]](), list[bytes](), list[dict[str, Any]](), set[int]()
    for value in values:
        try:
            text = text_of(value)
            objects.append(parsed_record(text))
            sound.append(text)
        except Malformed as malformed:
            whole[place_of(value), _in_short(str(malformed))] += 1
    misfits = [FieldDrift(place, count, reason) for (place, reason), count in whole.most_common()]
    for name, kind in declared.items():
        _, why = JsonDecoder(pa.schema([(name, kind)]), [name] if name in required else []).decode_values(sound)
        bad.update(row for row, reason in enumerate(why) if reason is not None)
        found = Counter(reason for reason in why if reason is not None)
        for reason, count in found.most_common():
            misfits.append(FieldDrift(name, count, reason.removeprefix(f"{name}: ")))
    absent = tuple(name for name in declared if objects and not any(name in one for one in objects))
    renamed = set(map(without_case, absent))
    seen, new, never = Counter[Unknown](), list[FieldDrift](), list[FieldDrift]()
    seen.update(one for values_of in objects for one in dict.fromkeys(_unknown(values_of, declared, "")))
    for (path, no_column), count in seen.most_common():
        if no_column is None or (no_column == SAME_TO_SPARK and without_case(path) in renamed):
            new.append(FieldDrift(path, count, _type_at(objects, path)))
        else:
            never.append(FieldDrift(path, count, no_column))
    return Drift(len(values), tuple(new), tuple(misfits), absent, tuple(never), whole.total() + len(bad))


def _in_short(reason: str) -> str:
    """Returns the reason without its place in the text, so that similar reasons are counted together."""
    return reason.partition(" at line ")[0]


# A field's path, and the reason why it cannot be a column, or None.
Unknown = tuple[str, str | None]


def _unknown(value: Mapping[str, Any], fields: Mapping[str, pa.DataType], at: str) -> Iterator[Unknown]:
    """Yields an object's fields that are not among `fields`, at any depth."""
    taken = {without_case(name) for name in fields}
    for name, inner in value.items():
        if name in fields:
            yield from _within(inner, fields[name], f"{at}{name}")
        elif without_case(name) in taken:
            yield f"{at}{name}", SAME_TO_SPARK
        else:
            yield f"{at}{name}", _why_no_field(name) if at else why_no_column(name)


def _why_no_field(name: str) -> str | None:
    """Returns the reason why a struct's field cannot have this name, or None."""
    return None if NAME.fullmatch(name) else ("the name of a struct's field may have ASCII letters, digits and _ only")


def _within(value: Any, kind: pa.DataType, at: str) -> Iterator[Unknown]:
    if pa.types.is_struct(kind) and isinstance(value, dict):
        yield from _unknown(value, {field.name: field.type for field in kind}, f"{at}.")
    elif (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and isinstance(value, list):
        for item in value:
            yield from _within(item, kind.value_type, f"{at}[*]")
    elif pa.types.is_map(kind) and isinstance(value, dict):
        for item in value.values():
            yield from _within(item, kind.item_type, f"{at}.*")


def _type_at(objects: Sequence[Mapping[str, Any]], path: str) -> str:
    """Returns the type to declare for an undeclared outermost field. The type is empty for a nested field."""
    values = [one[path] for one in objects if path in one]
    return infer(values).sql if values else ""


def _of_avro(values: Sequence[bytes], decoder: Decoder, schemas: ReadSchemas) -> Drift:
    _, why = decoder.decode_values(values)
    place_of = _place_of(schemas)
    found = Counter((place_of(value), reason) for value, reason in zip(values, why, strict=True) if reason is not None)
    ids = Counter(map(schema_id_of, values))
    names_read = [{one.name, *one.aliases} for one in parse(schemas.reader.text).fields]
    read = set[str]().union(*names_read)
    seen, fields, written = Counter[str](), dict[str, AvroField](), set[str]()
    for writer in schemas.writers:
        for one in parse(writer.text).fields if ids[writer.id] else ():
            written.add(one.name)
            if one.name not in read:
                seen[one.name] += ids[writer.id]
                fields[one.name] = one
    kept = set[str]().union(*(names for names in names_read if names & written))
    lasting = {name: _why_not_read(one, kept) for name, one in fields.items()}
    new = [
        FieldDrift(name, count, fields[name].type.describe())
        for name, count in seen.most_common()
        if lasting[name] is None
    ]
    never = [FieldDrift(name, count, reason) for name, count in seen.most_common() if (reason := lasting[name])]
    misfits = tuple(FieldDrift(place, count, reason) for (place, reason), count in found.most_common())
    return Drift(len(values), tuple(new), misfits, (), tuple(never), found.total())


def _why_not_read(one: AvroField, read: Collection[str]) -> str | None:
    """Returns the reason why no reader's schema can have this Avro field beside those that are read and written, or
    None.
    """
    if without_case(one.name) in map(without_case, read):
        return SAME_TO_SPARK
    if taken_names([one.name]):
        return "the transform's source already has a column of that name"
    try:
        check_holdable(AvroType("record", fields=(one,)))
    except BadSchema as error:
        return str(error)
    return None


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
    return _of_json(values, kinds, [*needed, *required], lambda value: framing.split(value)[1], _place_of(schemas))


def describe_drift(drift: Drift) -> Iterator[str]:
    """Yields a sentence for each field that drifted, for the doctor."""
    for one in drift.misfits if not drift.fits else ():
        yield f"{one.name} does not fit in {_share(one.records, drift.records)}: {one.what}"
    for one in drift.undeclared:
        yield f"{one.name} is in {_share(one.records, drift.records)}, and is not declared"


def describe_notes(drift: Drift) -> Iterator[str]:
    """Yields a sentence for each difference from the declaration that is not drift."""
    if drift.set_aside:
        yield f"{_share(drift.malformed, drift.records)} are malformed, and {drift.set_aside} (source.on_malformed)"
    if drift.undeclarable:
        names = [one.name for one in drift.undeclarable]
        more = f" and {len(names) - LISTED:,} more" if len(names) > LISTED else ""
        yield f"cannot be columns: {', '.join(names[:LISTED])}{more}"


def _share(part: int, whole: int) -> str:
    return f"{part:,} of {whole:,} sampled records"


def check_size(wanted: int) -> None:
    """Checks the number of records that were requested for the sample."""
    if not 1 <= wanted <= 100_000:
        raise SettingsError(f"--sample {wanted}: allowed are 1 to 100,000.")
