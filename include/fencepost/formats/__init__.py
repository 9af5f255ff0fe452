"""Reads, checks, writes and parses back a record's value: one object for each format. A new one is a module and a line here.

This imports neither Spark nor Arrow: every process that reads settings checks them with it.
"""

from __future__ import annotations

from fencepost.formats.avro import Avro
from fencepost.formats.bytes import Bytes
from fencepost.formats.format import Declared, Encoded, Format, Unfit
from fencepost.formats.json import Json

FORMATS: dict[str, Format] = {"json": Json(), "bytes": Bytes(), "avro": Avro()}

__all__ = ["FORMATS", "Declared", "Encoded", "Format", "Unfit"]
