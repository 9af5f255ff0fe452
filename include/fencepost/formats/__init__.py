"""Reads, checks, writes and parses back the values of records, with one object for each format. A new format needs a
module, and a line in this file.

This package imports neither Spark nor Arrow, because every process that reads settings checks them with it.
"""

from __future__ import annotations

from fencepost.formats.avro import Avro
from fencepost.formats.bytes import Bytes
from fencepost.formats.declared import Declared
from fencepost.formats.format import (
    BadSchema,
    Encoded,
    Format,
    KeyFormat,
    ReadKeyFormat,
    RegistryFormat,
    RegistryKeyFormat,
    SchemaReference,
    Unfit,
)
from fencepost.formats.json import Json
from fencepost.formats.json_framed import JsonSchema
from fencepost.formats.json_key import JsonKey

AVRO, BYTES = Avro(), Bytes()
REGISTRY_FORMATS: dict[str, RegistryFormat] = {"avro": AVRO, "json_schema": JsonSchema()}
FORMATS: dict[str, Format] = {"json": Json(), "bytes": BYTES, **REGISTRY_FORMATS}
REGISTRY_KEY_FORMATS: dict[str, RegistryKeyFormat] = {"avro": AVRO}
KEY_FORMATS: dict[str, KeyFormat] = {"bytes": BYTES, **REGISTRY_KEY_FORMATS}
READ_KEY_FORMATS: dict[str, ReadKeyFormat] = {
    "json": JsonKey(framed=False),
    "json_schema": JsonKey(framed=True),
    **REGISTRY_KEY_FORMATS,
}

__all__ = [
    "FORMATS",
    "KEY_FORMATS",
    "READ_KEY_FORMATS",
    "REGISTRY_FORMATS",
    "REGISTRY_KEY_FORMATS",
    "BadSchema",
    "Declared",
    "Encoded",
    "Format",
    "ReadKeyFormat",
    "RegistryFormat",
    "SchemaReference",
    "Unfit",
]
