"""Schema ids that are not Confluent's are named for what they are, with the next step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from fencepost.config.source import Source
from fencepost.doctor.fields import check_source_fields
from fencepost.drafting.draft_request import DraftRequest
from fencepost.drafting.drift import Drift
from fencepost.drafting.foreign_ids import check_ids, foreign_ids
from fencepost.errors import SettingsError
from fencepost.findings import Level
from fencepost.formats.framing import EIGHT_BYTES, GUID, Framing, Malformed, UnknownId
from fencepost.kafka.sample import Sampled

OF_APICURIO = b"\0" + (5).to_bytes(8) + b"\2"
OF_GUID = b"\1" + UUID("0198a3b1-7c58-7d34-9a5e-6f3f7a1c2b4d").bytes + b"\2"
OF_CONFLUENT = b"\0\0\0\0\7\2"
FRAMING = Framing(frozenset([7]), {0: "the registry does not have it", 8: "gone"}, "unknown")
REASONS: list[tuple[bytes, str]] = [
    (OF_APICURIO, EIGHT_BYTES),
    (b"\0" + (2**31).to_bytes(8) + b"\2", EIGHT_BYTES),
    (OF_GUID, GUID),
    # Sixteen bytes that are no UUID, by its variant and by its version.
    (
        OF_GUID[:9] + b"\1" + OF_GUID[10:],
        "the first byte is 0x01, not 0: no schema id; an id in a header of the record is not read",
    ),
    (
        OF_GUID[:7] + b"\1" + OF_GUID[8:],
        "the first byte is 0x01, not 0: no schema id; an id in a header of the record is not read",
    ),
    (OF_GUID[:17][:-1], "the first byte is 0x01, not 0: no schema id; an id in a header of the record is not read"),
    (b"\2", "1 byte, and no schema id; an id in a header of the record is not read"),
    (b"\2hello", "the first byte is 0x02, not 0: no schema id; an id in a header of the record is not read"),
    (b'{"n": 1}', "the first byte is 0x7B, not 0: no schema id"),
    (b"\0\0\0\0\0\2", "schema id 0: the registry does not have it"),
    (b"\0\0\0\0\x08\2", "schema id 8: gone"),
]


@pytest.mark.parametrize(("value", "why"), REASONS)
def test_a_record_whose_id_is_not_confluents_is_malformed_by_what_it_is(value: bytes, why: str) -> None:
    with pytest.raises(Malformed) as found:
        FRAMING.split(value)
    assert str(found.value) == why


def test_a_registry_that_gives_the_id_0_is_believed() -> None:
    """The registry is asked first."""
    assert Framing(frozenset([0])).split(b"\0\0\0\0\0\0\0\0\0\2") == (0, b"\0\0\0\0\2")
    with pytest.raises(UnknownId):
        Framing(frozenset([7])).split(OF_APICURIO)


def sampled(*values: bytes | None, headers: tuple[str, ...] = (), key: bytes | None = None) -> list[Sampled]:
    return [Sampled(0, n, 1, key, value, headers=headers) for n, value in enumerate(values)]


FOREIGN: list[tuple[list[Sampled], str, str]] = [
    (
        sampled(OF_APICURIO, OF_APICURIO, OF_CONFLUENT, None),
        "2 of 4 sampled values begin with a schema id of 8 bytes, as serializers of Apicurio Registry may write it",
        "apicurio.registry.as-confluent=true, and apicurio.registry.use-id=contentId.",
    ),
    (
        sampled(OF_GUID),
        "1 of 1 sampled values begin with a schema's GUID of 16 bytes, and only ids of 4 bytes are read",
        "value.schema.id.serializer=io.confluent.kafka.serializers.schema.id.PrefixSchemaIdSerializer.",
    ),
    (
        sampled(b"\2", b"", headers=("trace", "__value_schema_id")),
        "2 of 2 sampled values have their schema id in the header __value_schema_id, where it is not read",
        "in front of the data: value.schema.id.serializer=io.confluent",
    ),
    (
        sampled(b"\2", headers=("apicurio.value.encoding", "apicurio.value.globalId")),
        "1 of 1 sampled values have their schema id in the header apicurio.value.globalId, where it is not read",
        "in front of the data: apicurio.registry.headers.enabled=false, apicurio.registry.id-handler=",
    ),
    (
        sampled(b"\2", headers=("apicurio.value.contentId",)),
        "in the header apicurio.value.contentId",
        "headers.enabled",
    ),
    (sampled(b'{"n": 1}', headers=("__value_schema_id",)), "in the header __value_schema_id", "serializer"),
]


@pytest.mark.parametrize(("records", "what", "cure"), FOREIGN)
def test_ids_are_named_with_what_the_producer_should_set(records: list[Sampled], what: str, cure: str) -> None:
    found = foreign_ids(records)
    assert found is not None
    assert what in found.what
    assert cure in found.cure


def test_a_keys_id_is_not_a_values() -> None:
    records = sampled(OF_CONFLUENT, headers=("__key_schema_id",), key=b"\2")
    assert foreign_ids(records) is None
    found = foreign_ids(records, "key")
    assert found is not None
    assert found.what == "1 of 1 sampled keys have their schema id in the header __key_schema_id, where it is not read"
    assert "key.schema.id.serializer=" in found.cure
    assert (
        foreign_ids(sampled(OF_CONFLUENT, headers=("apicurio.value.encoding", "id"), key=OF_CONFLUENT), "key") is None
    )


@pytest.mark.parametrize(
    ("records", "asked", "refused"),
    [
        (sampled(OF_APICURIO), None, True),
        (sampled(OF_APICURIO), "avro", True),
        (sampled(OF_APICURIO), "json", True),
        (sampled(OF_APICURIO), "bytes", False),
        (sampled(OF_APICURIO, OF_CONFLUENT, OF_CONFLUENT), None, False),
        (sampled(OF_APICURIO, None, None), None, True),
        (sampled(OF_CONFLUENT), None, False),
        (sampled(b"\2", headers=("__value_schema_id",)), None, True),
        # JSON can be read without its id.
        (sampled(b'{"n": 1}', headers=("__value_schema_id",)), None, False),
        (sampled(b'{"n": 1}', headers=("__value_schema_id",)), "json_schema", True),
    ],
)
def test_no_draft_is_made_of_values_whose_ids_are_not_read(
    records: list[Sampled], asked: str | None, refused: bool
) -> None:
    wanted = DraftRequest("p", "orders", format=asked)
    if not refused:
        check_ids(wanted, records)
        return
    with pytest.raises(SettingsError, match=r"^topic orders: 1 of .+ Let the producer write .+ `--format bytes` takes"):
        check_ids(wanted, records)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ({"format": "avro"}, ["in the header __value_schema_id"]),
        (
            {"format": "avro", "key_format": "avro"},
            ["in the header __value_schema_id", "begin with a schema id of 8 b"],
        ),
        ({"format": "bytes"}, []),
    ],
)
def test_the_doctor_warns_of_ids_that_are_not_read(
    source: dict[str, str], found: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = SimpleNamespace(records=sampled(OF_CONFLUENT, headers=("__value_schema_id",), key=OF_APICURIO))
    monkeypatch.setattr("fencepost.doctor.fields.look_for_drift", lambda *_, **__: (sample, Drift(1)))
    pipeline = SimpleNamespace(
        sources={"source": Source.model_validate({"topic": "t", **source})}, several={}, name="p"
    )
    look: Any = SimpleNamespace(has_groups=True, pipeline=pipeline, cluster=None)
    findings = list(check_source_fields(look))
    assert [finding.level for finding in findings] == ([Level.WARNING] * len(found) or [Level.OK])
    assert all(words in finding.found for words, finding in zip(found, findings, strict=False))
    assert len(findings) == max(len(found), 1)
