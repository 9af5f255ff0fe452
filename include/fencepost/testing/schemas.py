"""Reads the schemas of a registry from files instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fencepost.config.files import read_file
from fencepost.config.pipeline import Pipeline
from fencepost.errors import SettingsError
from fencepost.formats import BadSchema
from fencepost.formats.framing import HEADER
from fencepost.model import ReadSchemas, RegisteredSchema, Schemas
from fencepost.schemas.freeze import Part, declared_of, format_of, parts_with_registry, text_to_write

Row = Mapping[str, Any] | bytes | None
VALUE, KEY = "_value", "_key"
ONLY_ID = 1  # the id of each schema from a file
ARGUMENTS: dict[Part, str] = {
    "source": "schema",
    "source_key": "key_schema",
    "output": "output_schema",
    "output_key": "output_key_schema",
}


def schemas_of(pipeline: Pipeline, files: Mapping[str, Path]) -> Schemas:
    """Returns the schemas that a plan would freeze for the pipeline if the registry had only the schemas in these
    files.

    Raises:
        SettingsError: a source's schema is missing, a file is for a part without a registry, or its schema is invalid in the
        format.
    """
    parts = parts_with_registry(pipeline)
    for part, argument in ARGUMENTS.items():
        if part in files and part not in parts:
            raise SettingsError(
                f"pipeline {pipeline.name}: {argument}: the {part.replace('_', ' ')}'s schema is in no registry."
            )
        if part in parts and part.startswith("source") and part not in files:
            raise SettingsError(
                f"pipeline {pipeline.name}: the {part.replace('_', ' ')}'s schema is in a registry; give a file that has it as "
                f"{argument}=."
            )
    return Schemas.model_validate({part: _read(pipeline, part, files[part]) for part in parts if part in files})


def refusing_others(schemas: Schemas, rows: Sequence[Row]) -> Schemas:
    """Returns the schemas. An id in these rows that no file has is refused. A run would look the id up in the registry."""
    mappings = [row if isinstance(row, Mapping) else {VALUE: row} for row in rows]
    changes = {}
    for part, name in (("source", VALUE), ("source_key", KEY)):
        read = getattr(schemas, part)
        if read is not None:
            ids = {_id_of(row.get(name)) for row in mappings} - {None, ONLY_ID}
            refused = {
                number: f"schema id {number} is in no file; a file's schema has the id {ONLY_ID}" for number in ids
            }
            changes[part] = read.model_copy(update={"refused": refused})
    return schemas.model_copy(update=changes)


def _id_of(data: object) -> int | None:
    """Returns the schema id at the beginning of the bytes, or None if there is none."""
    framed = isinstance(data, bytes) and len(data) >= HEADER and data[0] == 0
    return int.from_bytes(data[1:HEADER], "big") if framed and isinstance(data, bytes) else None


def _read(pipeline: Pipeline, part: Part, file: Path) -> ReadSchemas | RegisteredSchema:
    kind, text = format_of(pipeline, part), read_file(file).decode("utf-8", "replace")
    try:
        if not part.startswith("source"):
            return _as_registered(file, text_to_write(pipeline, part, text))
        declared = declared_of(pipeline, "source" if part == "source" else "source_key")
        reader = kind.reader(text, (), declared, columns=part == "source")
        writer = kind.writer(text, (), reader, declared)
    except (BadSchema, ValueError) as error:
        raise SettingsError(f"{file}: {error}") from None
    return ReadSchemas(reader=_as_registered(file, reader), writers=(_as_registered(file, writer),))


def _as_registered(file: Path, text: str) -> RegisteredSchema:
    return RegisteredSchema(subject=file.name, id=ONLY_ID, version=1, text=text)
