"""Prepares unexpected records for a report: coordinates in Kafka, the key, and the checked values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fencepost.quality.checks import SampleRow
from fencepost.quality.prepare import shown
from fencepost.suite.catalogue import Kind

LONGEST = 300  # characters that a report shows of a key or value


def sample_row(record: Mapping[str, Any], columns: tuple[str, ...], kinds: Mapping[str, Kind]) -> SampleRow:
    """Returns one record of the prepared frame as a sample row."""
    key, is_hex = text_of(record["_key"])
    return SampleRow(
        topic=record["_topic"],
        partition=record["_partition"],
        offset=record["_offset"],
        key=key,
        key_is_hex=is_hex,
        values={name: cut(shown(record[name], kinds[name])) for name in columns},
    )


def cut(value: Any) -> Any:
    """Returns the value. A long text is cut, and says how long it was."""
    if isinstance(value, str) and len(value) > LONGEST:
        return f"{value[:LONGEST]}… ({len(value):,} characters)"
    return value


def text_of(raw: bytes | bytearray | None) -> tuple[str | None, bool]:
    """Returns bytes as text, cut to the longest text that a report shows. The flag says that the text is hex, because
    the bytes are not valid UTF-8.
    """
    if raw is None:
        return None, False
    try:
        return cut(bytes(raw).decode("utf-8")), False
    except UnicodeDecodeError:
        return cut(bytes(raw).hex()), True
