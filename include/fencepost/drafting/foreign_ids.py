"""Recognises schema ids that are not in Confluent's header of five bytes, so that no value can be read by them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fencepost.drafting.draft_request import DraftRequest
from fencepost.drafting.value_kinds import is_object
from fencepost.errors import SettingsError
from fencepost.formats import REGISTRY_FORMATS
from fencepost.formats.framing import has_eight_bytes, has_guid
from fencepost.kafka.sample import Sampled

Part = Literal["value", "key"]
HEADERS = (
    "__{part}_schema_id",
    *(f"apicurio.{{part}}.{of}" for of in ("globalId", "contentId", "contentHash", "artifactId")),
)
HANDLER = (
    "apicurio.registry.id-handler=io.apicurio.registry.serde.Default4ByteIdHandler, or before version 3 "
    "apicurio.registry.as-confluent=true, and apicurio.registry.use-id=contentId"
)
OF_APICURIO = f"Let the producer write Confluent's ids of 4 bytes: {HANDLER}."
IN_FRONT = f"Let the producer write the id in front of the data: apicurio.registry.headers.enabled=false, {HANDLER}."


@dataclass(frozen=True)
class ForeignIds:
    """How many records have a schema id that is not read, what their ids are, and what to do, in sentences."""

    records: int
    what: str
    cure: str


def foreign_ids(records: Sequence[Sampled], part: Part = "value", *, objects: bool = True) -> ForeignIds | None:
    """Returns the most frequent kind of foreign ids in the keys or the values of a sample, or None if there is none.

    An id in a header does not count for a JSON object, unless `objects` is set: the object can be read without its id.
    """
    found = Counter[tuple[str, str]]()
    for one in records:
        data = one.value if part == "value" else one.key
        if data is not None and (kind := _kind(data, one.headers, part, objects=objects)) is not None:
            found[kind] += 1
    if not found:
        return None
    ((what, cure), count) = found.most_common(1)[0]
    return ForeignIds(count, f"{count:,} of {len(records):,} sampled {part}s {what}", cure)


def check_ids(wanted: DraftRequest, records: Sequence[Sampled]) -> None:
    """Checks that most of a topic's values have no foreign ids, unless the draft takes values as they are.

    Raises:
        SettingsError: names what the ids are, and the next step.
    """
    if wanted.format == "bytes":
        return
    values = sum(one.value is not None for one in records)
    found = foreign_ids(records, objects=wanted.format in REGISTRY_FORMATS)
    if found is not None and 2 * found.records > values:
        raise SettingsError(
            f"topic {wanted.topic}: {found.what}. {found.cure} `--format bytes` takes values as they are."
        )


def _kind(data: bytes, headers: Sequence[str], part: Part, *, objects: bool) -> tuple[str, str] | None:
    """Returns what a record's id is, and what to do."""
    confluent = f"{part}.schema.id.serializer=io.confluent.kafka.serializers.schema.id.PrefixSchemaIdSerializer"
    if has_eight_bytes(data):
        return (
            "begin with a schema id of 8 bytes, as serializers of Apicurio Registry may write it, and only Confluent's ids of "
            "4 bytes are read",
            OF_APICURIO,
        )
    if has_guid(data):
        what = "begin with a schema's GUID of 16 bytes, and only ids of 4 bytes are read"
        return what, f"Let the producer write ids: {confluent}."
    first = next((name for name in HEADERS if name.format(part=part) in headers), None)
    if first is None or (not objects and is_object(data)):
        return None
    what = f"have their schema id in the header {first.format(part=part)}, where it is not read"
    in_front = f"Let the producer write the id in front of the data: {confluent}."
    return what, in_front if first.startswith("__") else IN_FRONT
