"""The source that reads a sample's values, and the fields of it; or why no source does."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.config.pipeline import Pipeline, Source
from fencepost.drafting.columns import Column, Fields, json_fields, named
from fencepost.drafting.connection import Connection
from fencepost.drafting.frames import Frames, look_at
from fencepost.drafting.registered import read_by, registered_source
from fencepost.drafting.wanted import Wanted
from fencepost.errors import RegistryUnavailable, SettingsError
from fencepost.formats import FORMATS

MOST_BAD = 0.5  # share of malformed records beyond which the sample is no sample of the format


def source_of(
    connected: Pipeline, wanted: Wanted, connection: Connection, values: Sequence[bytes | None]
) -> tuple[Source, Fields]:
    """The source that reads these values, and its fields.

    Raises:
        SettingsError: no source does; says what the values are.
        RegistryUnavailable, AccessDenied: the registry does not say.
    """
    topic, frames = wanted.topic, look_at(values)
    asked = wanted.format
    if asked is not None and asked not in FORMATS:
        raise SettingsError(f"--format {asked}: allowed are {', '.join(FORMATS)}.")
    if asked == "bytes":
        return Source(topic=topic, format="bytes", on_malformed="quarantine"), _bytes_fields(values)
    found = None
    if asked in (None, "avro", "json_schema") and (frames.framed > frames.objects or not frames.values):
        found = _by_registry(connected, wanted, connection, frames)
    if found is not None:
        source, fields = registered_source(connected, asked or found[0], found[1], values)
        _check_enough(wanted, fields, frames)
        return source, fields
    if asked in ("avro", "json_schema"):
        raise SettingsError(
            f"--format {asked}: topic {topic} has no record with a schema's id in front that the registry knows, nor does the "
            f"registry have the subject {wanted.subject or f'{topic}-value'}. Name the subject with --subject."
        )
    if not frames.values:
        what = "is empty" if not values else "has only records without a value in its sample"
        raise SettingsError(
            f"topic {topic} {what}, and no registry has the subject {wanted.subject or f'{topic}-value'}: nothing says what its "
            "records are. Run this again when it has records, or name a registry with --registry or --like."
        )
    if not frames.objects:
        raise SettingsError(_no_frame(wanted, connection, frames))
    fields = json_fields(values)
    _check_enough(wanted, fields, frames)
    if not fields.columns:
        names = f" (names that cannot be declared: {len(fields.left_out):,})" if fields.left_out else ""
        raise SettingsError(
            f"topic {topic}: its JSON objects have no field that a column can be{names}. `--format bytes` takes values as "
            "they are."
        )
    declared = {column.name: column.sql or "string" for column in fields.columns}
    return Source(topic=topic, format="json", columns=declared, on_malformed="quarantine"), fields


def _by_registry(connected: Pipeline, wanted: Wanted, connection: Connection, frames: Frames) -> tuple[str, str] | None:
    if connected.schema_registry is None:
        return None
    try:
        return read_by(connected, frames, wanted.subject)
    except RegistryUnavailable:
        if connection.given or frames.framed:
            raise
        return None  # the one on this machine does not run, and nobody asked for it


def _no_frame(wanted: Wanted, connection: Connection, frames: Frames) -> str:
    names = [f"{name} ({count:,})" for name, count in frames.others.most_common(3)]
    if frames.framed:
        names.insert(0, f"a 0 and four bytes in front, as a schema registry's serializers write ({frames.framed:,})")
    cure = "`--format bytes` takes values as they are."
    if frames.framed:
        known = "The registry knows none of these ids" if connection.registry else "No registry is named"
        cure = f"{known}: name theirs with --registry url=... or --like. {cure}"
    return f"topic {wanted.topic}: no sampled value is a JSON object: {'; '.join(names)}. {cure}"


def _bytes_fields(values: Sequence[bytes | None]) -> Fields:
    known = [value for value in values if value is not None]
    return Fields(named([Column("value", None, known)]), {}, len(values), len(values) - len(known), {})


def _check_enough(wanted: Wanted, fields: Fields, frames: Frames) -> None:
    known = fields.records - fields.tombstones
    if known and fields.bad > MOST_BAD * known:
        first = max(fields.malformed, key=lambda reason: fields.malformed[reason])
        raise SettingsError(
            f"topic {wanted.topic}: {fields.bad:,} of {known:,} sampled values cannot be read, most for this reason: {first}. "
            "Name the right format with --format, or --format bytes for values as they are."
        )
