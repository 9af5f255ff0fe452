"""How a record's value is read, checked, written and parsed back: one object a format. A new one is a module and a line here.

Importing this imports neither Spark nor Arrow: settings are checked with it wherever they are read.
"""

from __future__ import annotations

from fencepost.formats.bytes import Bytes
from fencepost.formats.format import Format, Unfit
from fencepost.formats.json import Json

FORMATS: dict[str, Format] = {"json": Json(), "bytes": Bytes()}

__all__ = ["FORMATS", "Format", "Unfit"]
