"""Finds the source that reads a sample's values, and its fields, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches

from fencepost.config.pipeline import Pipeline
from fencepost.config.source import Source, SourceColumn
from fencepost.drafting.columns import DELETED, DraftColumn, Fields, json_fields, named, object_in
from fencepost.drafting.connection import DraftConnection
from fencepost.drafting.debezium import (
    Changes,
    changes_in,
    draft_key,
    envelope_fields,
    is_mongodb,
    payload_of,
    with_key,
)
from fencepost.drafting.draft_request import DraftRequest
from fencepost.drafting.registered import ReadBy, read_by, registered_source
from fencepost.drafting.value_kinds import ValueKinds, value_kinds
from fencepost.errors import RegistryUnavailable, SettingsError
from fencepost.formats import FORMATS, REGISTRY_FORMATS

OF_MONGODB = (
    "The records are changes of MongoDB, whose documents are texts, so source.envelope does not read them. The transform takes a "
    "document apart: docs/change-data-types.md."
)
MOST_BAD = 0.5  # above this share of malformed records the format is probably wrong


def source_of(
    connected: Pipeline,
    wanted: DraftRequest,
    connection: DraftConnection,
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] = (),
) -> tuple[Source, Fields]:
    """Returns the source that reads these values, and its fields. `keys` are the keys of the records.

    Raises:
        SettingsError: no source reads them. The message says what the values are.
        RegistryUnavailable, AccessDenied: the registry does not answer.
    """
    topic, frames = wanted.topic, value_kinds(values)
    asked = wanted.format
    if asked is not None and asked not in FORMATS:
        raise SettingsError(f"--format {asked}: allowed are {', '.join(FORMATS)}.")
    if asked is not None and wanted.subject is not None and not FORMATS[asked].has_registry:
        raise SettingsError(
            f"--subject {wanted.subject}: format {asked} uses no subject of a registry. Leave out --subject, or "
            "--format."
        )
    if asked == "bytes":
        return Source(topic=topic, format="bytes", on_malformed="quarantine"), _bytes_fields(values)
    found = None
    if (asked is None or asked in REGISTRY_FORMATS) and (frames.framed > frames.objects or not frames.values):
        found = _by_registry(connected, wanted, connection, frames)
    if found is not None:
        source, fields = registered_source(connected, topic, replace(found, format=asked or found.format), values)
        _check_enough(wanted, fields, frames)
        return source, fields
    if asked in REGISTRY_FORMATS:
        raise SettingsError(f"--format {asked}: {_why_not_registered(connected, wanted, frames)}")
    if not frames.values:
        what = "is empty" if not values else "has only records without a value in its sample"
        raise SettingsError(
            f"topic {topic} {what}, and no registry has the subject {wanted.subject or f'{topic}-value'}, so the "
            "format of its records is unknown. Run this again when it has records, or name a registry with "
            "--registry or --like."
        )
    if not frames.objects:
        raise SettingsError(_no_frame(connected, wanted, frames))
    if wanted.subject is not None:
        raise SettingsError(
            f"--subject {wanted.subject}: the values of topic {topic} are JSON objects without a schema id, so they "
            "have no subject in a registry. Leave out --subject."
        )
    if (changes := changes_in(values)) is not None:
        return _of_changes(topic, values, keys, changes)
    fields = json_fields(values)
    if any(one is not None and is_mongodb(one) for one in map(object_in, values)):
        fields = replace(fields, notes=(*fields.notes, OF_MONGODB))
    _check_enough(wanted, fields, frames)
    if not fields.columns:
        names = f" (fields that cannot be read: {len(fields.left_out):,})" if fields.left_out else ""
        raise SettingsError(
            f"topic {topic}: its JSON objects have no field that can be a column{names}. `--format bytes` takes "
            "values as they are."
        )
    return Source(topic=topic, format="json", columns=_declared(fields), on_malformed="quarantine"), fields


def _of_changes(
    topic: str, values: Sequence[bytes | None], keys: Sequence[bytes | None], changes: Changes
) -> tuple[Source, Fields]:
    source = Source.model_construct(topic=topic, format="json", envelope="debezium", captured_table=changes.chosen)
    fields = envelope_fields(values, keys, changes, source)
    if not fields.columns:
        raise SettingsError(
            f"topic {topic}: no sampled change has a row with a field, so there is no column to draft. Run this again when "
            "it has newer records, or take values as they are by --format bytes."
        )
    # A message or another table has another key.
    key = draft_key([key for key, row in zip(keys, changes.rows, strict=True) if row is not None], fields)
    fields = with_key(fields, key)
    drafted = Source(
        topic=topic,
        format="json",
        envelope="debezium",
        captured_table=changes.chosen,
        key_format="json" if key else "bytes",
        key=key,
        columns=_declared(fields),
        on_malformed="quarantine",
    )
    return drafted, fields


def with_tombstones(source: Source, fields: Fields, keys: Sequence[bytes | None]) -> Source:
    """Returns the source of a topic that has tombstones, or may have them, and no envelopes.

    In a flattened topic with `__deleted` a tombstone repeats the deletion before it, and is dropped. Otherwise it is the
    deletion. It is passed, and its key has columns if all sampled keys are objects with the same fields.
    """
    if any(column.field == DELETED for column in fields.columns):
        return source.model_copy(update={"tombstones": "drop"})
    passing = source.model_copy(update={"tombstones": "pass"})
    objects = [None if key is None else object_in(key) for key in keys]
    names = {None if one is None else frozenset(payload_of(one)[0]) for one in objects}
    if source.format != "json" or None in names or len(names) != 1:
        return passing
    key = draft_key(keys, fields)
    return passing.model_copy(update={"key_format": "json", "key": key}) if key else passing


def _declared(fields: Fields) -> dict[str, SourceColumn]:
    return {column.name: column.declared for column in fields.columns if column.declared is not None}


def compaction(topic: str, policy: str) -> tuple[str, str]:
    """Returns what a compacted source topic loses, and what to do about it. Both texts are empty for a topic that is
    not compacted.
    """
    if "compact" not in policy:
        return "", ""
    return (
        f"Source topic {topic} is compacted (cleanup.policy={policy}). If a record's key gets a newer record before "
        "the pipeline reads it, the record is lost to the pipeline, and a retry may read fewer records than the "
        "attempt before it.",
        "Read a topic with cleanup.policy=delete, or raise min.compaction.lag.ms above the time until a batch is published.",
    )


def near_topics(name: str, topics: Sequence[str]) -> list[str]:
    """Returns the topics that a person may have meant by a name, the nearest first. There are at most three, and none
    of Fencepost's own topics.
    """
    by_lower = {topic.lower(): topic for topic in topics if not topic.startswith("fencepost.")}
    wanted = name.lower()
    within = [lower for lower in by_lower if wanted in lower or (len(lower) > 2 and lower in wanted)]
    near = [*get_close_matches(wanted, by_lower, n=3, cutoff=0.7), *sorted(within, key=len)]
    return [by_lower[lower] for lower in dict.fromkeys(near)][:3]


def _by_registry(
    connected: Pipeline, wanted: DraftRequest, connection: DraftConnection, frames: ValueKinds
) -> ReadBy | None:
    if connected.schema_registry is None:
        return None
    try:
        return read_by(connected, wanted.topic, frames, wanted.subject)
    except RegistryUnavailable:
        if connection.given or frames.framed:
            raise
        return None  # the registry on this machine does not run, and nobody has named it


def _why_not_registered(connected: Pipeline, wanted: DraftRequest, frames: ValueKinds) -> str:
    """Returns the reason why no schema of a registry reads these values, and what to do."""
    name_registry = "name the registry of these records with --registry url=... or --like"
    if frames.values and not frames.framed:
        return (
            f"none of the sampled values of topic {wanted.topic} begins with a schema id, as a schema registry's "
            "serializers write it. Leave out --format, or take values as they are by --format bytes."
        )
    if connected.schema_registry is None:
        return f"no registry is named: {name_registry}."
    url = connected.schema_registry.url
    if not frames.values:
        subject = wanted.subject or f"{wanted.topic}-value"
        return (
            f"topic {wanted.topic} has no value in its sample, and the registry at {url} has no subject {subject}. "
            "Name it with --subject."
        )
    if frames.framed <= frames.objects:
        return (
            f"of {frames.values:,} sampled values of topic {wanted.topic} only {frames.framed:,} begin with a "
            f"schema id, and {frames.objects:,} are plain JSON objects. Leave out --format to read the JSON objects, or take "
            "values as they are by --format bytes."
        )
    return f"the registry at {url} knows none of the ids in topic {wanted.topic}: {name_registry}."


def _no_frame(connected: Pipeline, wanted: DraftRequest, frames: ValueKinds) -> str:
    names = [f"{name} ({count:,})" for name, count in frames.others.most_common(3)]
    cure = "`--format bytes` takes values as they are."
    if frames.framed:
        names.insert(0, f"a 0 and four bytes in front, as a schema registry's serializers write ({frames.framed:,})")
        if wanted.format == "json":
            why = "Leave out --format, because the registry says which format the values have"
        else:
            why = _why_not_registered(connected, wanted, frames).rstrip(".")
        cure = f"{why[:1].upper()}{why[1:]}. {cure}"
    return f"topic {wanted.topic}: no sampled value is a JSON object: {'; '.join(names)}. {cure}"


def _bytes_fields(values: Sequence[bytes | None]) -> Fields:
    known = [value for value in values if value is not None]
    return Fields(named([DraftColumn("value", None, "binary", known)]), {}, len(values), len(values) - len(known), {})


def _check_enough(wanted: DraftRequest, fields: Fields, frames: ValueKinds) -> None:
    known = fields.records - fields.tombstones
    if known and fields.bad > MOST_BAD * known:
        first = max(fields.malformed, key=lambda reason: fields.malformed[reason])
        raise SettingsError(
            f"topic {wanted.topic}: {fields.bad:,} of {known:,} sampled values cannot be read, most for this reason: {first}. "
            "Name the right format with --format, or --format bytes for values as they are."
        )
