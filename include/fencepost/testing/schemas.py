"""Reads the schemas of a registry from files instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fencepost.config.files import read_file
from fencepost.config.pipeline import Pipeline
from fencepost.config.record_parts import OutputPart, SourcePart
from fencepost.errors import SettingsError
from fencepost.formats import BadSchema
from fencepost.formats.framing import HEADER
from fencepost.model import ReadSchemas, RegisteredSchema, Schemas
from fencepost.schemas.freeze import format_of, text_to_write

Row = Mapping[str, Any] | bytes | None
VALUE, KEY = "_value", "_key"
ONLY_ID = 1  # the id of each schema from a file
ARGUMENTS = {
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
    found = Schemas()
    parts: tuple[SourcePart | OutputPart, ...] = (*pipeline.source_parts, *pipeline.output_parts)
    for part in parts:
        argument, file = ARGUMENTS[part.name], files.get(part.name)
        if file is not None and not part.in_registry:
            raise SettingsError(f"pipeline {pipeline.name}: {argument}: the {part.title}'s schema is in no registry.")
        if file is None:
            if part.in_registry and isinstance(part, SourcePart):
                raise SettingsError(
                    f"pipeline {pipeline.name}: the {part.title}'s schema is in a registry; give a file that has it as "
                    f"{argument}=."
                )
        elif isinstance(part, SourcePart):
            found = found.with_read(part.topic, _read(part, file), is_key=part.is_key)
        else:
            found = found.with_written(_written(part, file), is_key=part.is_key)
    return found


def refusing_others(schemas: Schemas, rows: Sequence[Row]) -> Schemas:
    """Returns the schemas. An id in these rows that no file has is refused. A run would look the id up in the registry."""
    mappings = [row if isinstance(row, Mapping) else {VALUE: row} for row in rows]
    for topic in schemas.sources:
        for name, is_key in ((VALUE, False), (KEY, True)):
            if (read := schemas.read(topic, is_key=is_key)) is not None:
                ids = {found for row in mappings if (found := _id_of(row.get(name))) is not None} - {ONLY_ID}
                refused = {
                    number: f"schema id {number} is in no file; a file's schema has the id {ONLY_ID}" for number in ids
                }
                schemas = schemas.with_read(topic, read.model_copy(update={"refused": refused}), is_key=is_key)
    return schemas


def _id_of(data: object) -> int | None:
    """Returns the schema id at the beginning of the bytes, or None if there is none."""
    framed = isinstance(data, bytes) and len(data) >= HEADER and data[0] == 0
    return int.from_bytes(data[1:HEADER], "big") if framed and isinstance(data, bytes) else None


def _written(part: OutputPart, file: Path) -> RegisteredSchema:
    try:
        return _as_registered(file, text_to_write(part, _text(file)))
    except BadSchema as error:
        raise SettingsError(f"{file}: {error}") from None


def _read(part: SourcePart, file: Path) -> ReadSchemas:
    kind, text = format_of(part), _text(file)
    try:
        reader = kind.reader(text, (), part.declared, columns=not part.is_key)
        writer = kind.writer(text, (), reader, part.declared)
    except (BadSchema, ValueError) as error:
        raise SettingsError(f"{file}: {error}") from None
    return ReadSchemas(reader=_as_registered(file, reader), writers=(_as_registered(file, writer),))


def _text(file: Path) -> str:
    return read_file(file).decode("utf-8", "replace")


def _as_registered(file: Path, text: str) -> RegisteredSchema:
    return RegisteredSchema(subject=file.name, id=ONLY_ID, version=1, text=text)
