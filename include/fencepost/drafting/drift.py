"""Finds how a topic has drifted from what a pipeline declares of it. Fields that are not declared are drift, and so are types
that no longer fit.

A difference that no declaration can change is not drift. So fields that no column can be read from are not drift, and
neither are malformed records that the settings drop or quarantine, and records that the source does not read. Fields
have the names that they have in the records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from fencepost.config.pipeline import Pipeline
from fencepost.config.source import JSON_KEYS, Source
from fencepost.drafting.debezium import row_in
from fencepost.drafting.decoders import arrow_schema, decoder_of_json, enveloped_schema
from fencepost.drafting.names import why_not_read
from fencepost.drafting.registered import decoder_for, json_schema_columns, schemas_of
from fencepost.drafting.types import infer, why_no_field
from fencepost.errors import SettingsError
from fencepost.formats.avro_envelope import row_of
from fencepost.formats.avro_schema import AvroField, AvroType, check_holdable, parse
from fencepost.formats.column_names import without_case
from fencepost.formats.declared import Envelope
from fencepost.formats.format import BadSchema, framing_of, taken_names
from fencepost.formats.framing import AnyId, ExcludedKind, Malformed, schema_id_of
from fencepost.formats.json import json_decoder
from fencepost.formats.json_decoder import parsed_record
from fencepost.formats.json_key_decoder import JsonKeyDecoder, null_key
from fencepost.formats.rows import Decoder
from fencepost.kafka.cluster import Cluster
from fencepost.kafka.sample import Sample, take_sample
from fencepost.model import ReadSchemas
from fencepost.quality.quarantine import Accounts, SourceAccounts, over_limit
from fencepost.schemas.freeze import NOT_LOOKED_UP, NOT_THERE

SAME_TO_SPARK = "to Spark it is the same as another name that differs only in case"
RECORD, KEY = "(the whole record)", "(the key)"
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
    """The drift in a sample. The sample has `records` with a value that the source reads, and `malformed` of these records
    do not fit. `excluded` is the number of records that the source does not read.
    `absent` are declared fields that no record has.

    `undeclarable` are fields that cannot be columns, with the reason. `set_aside` says what happens to malformed
    records if a batch of such records is published, and which setting decides it.
    """

    records: int
    undeclared: tuple[FieldDrift, ...] = ()
    misfits: tuple[FieldDrift, ...] = ()
    absent: tuple[str, ...] = ()
    undeclarable: tuple[FieldDrift, ...] = ()
    malformed: int = 0
    excluded: int = 0
    set_aside: str = ""

    @property
    def fits(self) -> bool:
        """Returns whether a batch of such records would be published, as far as declared types decide."""
        return not self.misfits or bool(self.set_aside)


def look_for_drift(
    pipeline: Pipeline, source: Source, cluster: Cluster, wanted: int, **limits: Any
) -> tuple[Sample, Drift]:
    """Returns a sample of a source of the pipeline, and the drift in it. It reads like any reader, and starts no Spark.

    Raises:
        TopicMissing, AccessDenied, KafkaUnavailable: the source cannot be read.
        SettingsError, RegistryUnavailable: the registry does not say how the source is read.
    """
    topic = cluster.describe(source.topic)
    sample = take_sample(cluster, topic, pipeline.group, wanted, **limits)
    values, keys = [one.value for one in sample.records], [one.key for one in sample.records]
    return sample, drift_of(pipeline, source, values, keys)


def drift_of(
    pipeline: Pipeline, source: Source, values: Sequence[bytes | None], keys: Sequence[bytes | None] = ()
) -> Drift:
    """Returns the drift of these values from the source's format and schema, and of JSON keys from its `key`."""
    found, of_keys = _drift_of(pipeline, source, values), tuple(_misfits_of_keys(source, values, keys))
    if of_keys:
        bad = min(found.malformed + sum(one.records for one in of_keys), found.records)
        found = replace(found, misfits=(*found.misfits, *of_keys), malformed=bad)
    return replace(found, set_aside=_set_aside(pipeline, source, found, len(values) - found.excluded))


def _set_aside(pipeline: Pipeline, source: Source, drift: Drift, read: int) -> str:
    """Describes what happens to malformed records. The text is empty if they would fail a batch like the sample, or if
    a declared type no longer fits and no limit would report it.
    """
    policy, limit = source.on_malformed, pipeline.quality.quarantine_limit
    if not drift.malformed or policy == "fail":
        return ""
    done = f"{'go to quarantine' if policy == 'quarantine' else 'are dropped'} ({source.setting}.on_malformed)"
    if policy == "quarantine" and limit is not None:
        of_sample = SourceAccounts(topic=source.topic, read=read, malformed=drift.malformed)
        return "" if over_limit(limit, Accounts(sources=(of_sample,), malformed_kept=of_sample.kept)) else done
    return "" if any(one.name != RECORD for one in drift.misfits) else done


def _drift_of(pipeline: Pipeline, source: Source, values: Sequence[bytes | None]) -> Drift:
    known = [value for value in values if value is not None]
    if source.format == "json":
        return _of_json(known, source, partial(decoder_of_json, source), arrow_schema(source.declared.types))
    if source.format == "bytes" or not known:
        return Drift(len(known))
    schemas = schemas_of(pipeline, source, known)
    if source.format == "avro":
        return _of_avro(known, decoder_for(source, schemas)[0], schemas, source.declared.envelope)
    return _of_json_schema(known, source, schemas)


def _misfits_of_keys(
    source: Source, values: Sequence[bytes | None], keys: Sequence[bytes | None]
) -> Iterator[FieldDrift]:
    declared = source.declared_key
    if source.key_format not in JSON_KEYS or not keys:
        return
    if source.format == "json" and source.excludes:
        _, reasons = decoder_of_json(source).decode_values(values)
        kept = [not isinstance(reason, ExcludedKind) for reason in reasons]
        keys = [key for key, is_read in zip(keys, kept, strict=True) if is_read]
    types = arrow_schema(declared.types)
    framing = AnyId(frozenset()) if source.key_format == "json_schema" else None
    _, why = JsonKeyDecoder(types, declared.required, framing, declared.fields).decode_values(keys)
    if declared.required:
        no_key = null_key(declared.field_of(declared.required[0]))
        why = [no_key if key is None else reason for key, reason in zip(keys, why, strict=True)]
    for reason, count in Counter(_in_short(one) for one in why if one is not None).most_common():
        yield FieldDrift(KEY, count, reason)


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
    source: Source,
    decoder: Callable[[Collection[str]], Decoder],
    columns: pa.Schema,
    text_of: Callable[[bytes], bytes] = bytes,
    place_of: Callable[[bytes], str] = lambda _: RECORD,
) -> Drift:
    """Returns the drift of JSON records from these columns. `decoder` returns the decoder of some of the columns, whose
    values are the texts that `text_of` returns.

    1. Find the records that no declaration of a column would make a row of. Leave out those that the source does not read.
    2. Find the records that do not fit a column, column by column.
    3. Find the fields that no column is read from.
    """
    whole, texts, labels = Counter[tuple[str, str]](), list[bytes](), list[str]()
    for value in values:  # 1
        try:
            texts.append(text_of(value))
            labels.append(place_of(value))
        except Malformed as error:
            whole[place_of(value), str(error)] += 1
    _, why = decoder(()).decode_values(texts)
    for place, reason in zip(labels, why, strict=True):
        if reason is not None and not isinstance(reason, ExcludedKind):
            whole[place, _in_short(reason)] += 1
    sound, bad = [text for text, reason in zip(texts, why, strict=True) if reason is None], set[int]()
    misfits = [FieldDrift(place, count, reason) for (place, reason), count in whole.most_common()]
    fields = {name: one.name for name, one in source.declared.fields.items()}
    for name in columns.names:  # 2
        _, why = decoder((name,)).decode_values(sound)
        bad.update(row for row, reason in enumerate(why) if reason is not None)
        field, found = fields.get(name, name), Counter(reason for reason in why if reason is not None)
        misfits += [
            FieldDrift(field, count, reason.removeprefix(f"{field}: ")) for reason, count in found.most_common()
        ]
    columns_of = {fields.get(column.name, column.name): column.type for column in columns}
    rows = [row_in(parsed_record(text), source) for text in sound]  # 3
    absent = tuple(name for name in columns_of if rows and not any(name in row for row in rows))
    seen, new, never = Counter[Unknown](), list[FieldDrift](), list[FieldDrift]()
    seen.update(one for row in rows for one in dict.fromkeys(_unknown(row, columns_of, "")))
    kind = None if source.only is None else source.only.field  # it is read, though no column is
    for (path, no_column), count in seen.most_common():
        if path == kind:
            continue
        if no_column is None:
            new.append(FieldDrift(path, count, _type_at(rows, path)))
        else:
            never.append(FieldDrift(path, count, no_column))
    read = len(sound) + whole.total()
    malformed, excluded = whole.total() + len(bad), len(values) - read
    return Drift(read, tuple(new), tuple(misfits), absent, tuple(never), malformed, excluded)


def _in_short(reason: str) -> str:
    """Returns the reason without its place in the text, so that similar reasons are counted together."""
    return reason.partition(" at line ")[0]


# A field's path, and the reason why it cannot be a column, or None.
Unknown = tuple[str, str | None]


def _unknown(value: Mapping[str, Any], fields: Mapping[str, pa.DataType], at: str) -> Iterator[Unknown]:
    """Yields an object's fields that are not among `fields`, at any depth."""
    taken = {without_case(name) for name in fields} if at else set[str]()
    for name, inner in value.items():
        if name in fields:
            yield from _within(inner, fields[name], f"{at}{name}")
        elif without_case(name) in taken:
            yield f"{at}{name}", SAME_TO_SPARK
        else:
            yield f"{at}{name}", why_no_field(name) if at else why_not_read(name)


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


def _of_avro(
    values: Sequence[bytes], decoder: Decoder, schemas: ReadSchemas, envelope: Envelope | None = None
) -> Drift:
    _, why = decoder.decode_values(values)
    sampled, read_ones = len(values), [at for at, reason in enumerate(why) if not isinstance(reason, ExcludedKind)]
    values, why = [values[at] for at in read_ones], [why[at] for at in read_ones]
    place_of = _place_of(schemas)
    found = Counter((place_of(value), reason) for value, reason in zip(values, why, strict=True) if reason is not None)
    ids = Counter(map(schema_id_of, values))
    names_read = [{one.name, *one.aliases} for one in _row_fields(schemas.reader.text, envelope)]
    read = set[str]().union(*names_read)
    seen, fields, written = Counter[str](), dict[str, AvroField](), set[str]()
    for writer in schemas.writers:
        for one in _row_fields(writer.text, envelope) if ids[writer.id] else ():
            written.add(one.name)
            if one.name not in read:
                seen[one.name] += ids[writer.id]
                fields[one.name] = one
    kept = set[str]().union(*(names for names in names_read if names & written))
    lasting = {name: _why_not_read(one, kept, envelope) for name, one in fields.items()}
    new = [
        FieldDrift(name, count, fields[name].type.describe())
        for name, count in seen.most_common()
        if lasting[name] is None
    ]
    never = [FieldDrift(name, count, reason) for name, count in seen.most_common() if (reason := lasting[name])]
    misfits = tuple(FieldDrift(place, count, reason) for (place, reason), count in found.most_common())
    return Drift(len(values), tuple(new), misfits, (), tuple(never), found.total(), sampled - len(values))


def _row_fields(schema: str, envelope: Envelope | None) -> Sequence[AvroField]:
    """Returns the fields of the row in a schema."""
    parsed = parse(schema)
    return (parsed if envelope is None else row_of(parsed)).fields


def _why_not_read(one: AvroField, read: Collection[str], envelope: Envelope | None) -> str | None:
    """Returns the reason why no reader's schema can have this Avro field beside those that are read and written, or
    None.
    """
    if without_case(one.name) in map(without_case, read):
        return SAME_TO_SPARK
    if taken_names([one.name], envelope):
        return "the transform's source already has a column of that name"
    try:
        check_holdable(AvroType("record", fields=(one,)))
    except BadSchema as error:
        return str(error)
    return None


def _of_json_schema(values: Sequence[bytes], source: Source, schemas: ReadSchemas) -> Drift:
    framing = framing_of(schemas)
    columns, required = json_schema_columns(source, schemas)

    def decoder(names: Collection[str]) -> Decoder:
        some = enveloped_schema(pa.schema([column for column in columns if column.name in names]), source.declared)
        return json_decoder(some, [name for name in required if name in names], source.declared)()

    return _of_json(values, source, decoder, columns, lambda value: framing.split(value)[1], _place_of(schemas))


def describe_drift(drift: Drift) -> Iterator[str]:
    """Yields a sentence for each field that drifted, for the doctor."""
    for one in drift.misfits if not drift.fits else ():
        yield f"{one.name} does not fit in {_share(one.records, drift.records)}: {one.what}"
    for one in drift.undeclared:
        yield f"{one.name} is in {_share(one.records, drift.records)}, and is not declared"


def describe_notes(drift: Drift) -> Iterator[str]:
    """Yields a sentence for each difference from the declaration that is not drift."""
    if drift.set_aside:
        yield f"{_share(drift.malformed, drift.records)} are malformed, and {drift.set_aside}"
    if drift.excluded:
        yield f"{drift.excluded:,} other sampled records are excluded"
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
