"""Reads the schemas of a registry from files instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fencepost.config.files import read_file
from fencepost.config.pipeline import Pipeline
from fencepost.config.record_parts import OutputPart, RecordPart, SourcePart, parts_of_source
from fencepost.errors import SettingsError
from fencepost.formats import BadSchema
from fencepost.formats.framing import HEADER
from fencepost.model import ReadSchemas, RegisteredSchema, Schemas
from fencepost.schemas.freeze import format_of, text_to_write

Row = Mapping[str, Any] | bytes | None
GivenRows = Sequence[Row] | Mapping[str, Sequence[Row]]  # of the only source, or by the name of the source
File = str | Path
GivenFile = File | Mapping[str, File]
VALUE, KEY = "_value", "_key"
ONLY_ID = 1  # the id of each schema from a file


def schemas_of(pipeline: Pipeline, given: Mapping[str, GivenFile | None]) -> Schemas:
    """Returns the schemas that a plan would freeze for the pipeline if the registry had only the schemas in these
    files. `given` has the files by argument of the fixture.

    Raises:
        SettingsError: a source's schema is missing, a file is for a part without a registry or for no source of the pipeline,
            or its schema is invalid in the format.
    """
    found = Schemas()
    for name, source in pipeline.sources.items():
        for part in parts_of_source(source):
            argument = "key_schema" if part.is_key else "schema"
            file = _file_of_source(pipeline, argument, given[argument], name)
            _check_registry(pipeline, argument, part, file)
            if file is not None:
                found = found.with_read(part.topic, _read(part, file), is_key=part.is_key)
            elif part.in_registry:
                example = f'{argument}={{"{name}": ...}}' if pipeline.several else f"{argument}="
                raise SettingsError(
                    f"pipeline {pipeline.name}: the {part.title}'s schema is in a registry; give a file that has it as "
                    f"{example}."
                )
    for written in pipeline.output_parts:
        argument = "output_key_schema" if written.is_key else "output_schema"
        of_output = given[argument]
        assert not isinstance(of_output, Mapping), "the output has no names"
        _check_registry(pipeline, argument, written, of_output)
        if of_output is not None:
            found = found.with_written(_written(written, Path(of_output)), is_key=written.is_key)
    return found


def _check_registry(pipeline: Pipeline, argument: str, part: RecordPart, file: File | None) -> None:
    if file is not None and not part.in_registry:
        raise SettingsError(f"pipeline {pipeline.name}: {argument}: the {part.title}'s schema is in no registry.")


def _file_of_source(pipeline: Pipeline, argument: str, given: GivenFile | None, name: str) -> Path | None:
    """Returns the file that an argument gives for the source with this name, or None if it gives none."""
    about = f"pipeline {pipeline.name}: {argument}"
    if given is None:
        return None
    if not pipeline.several:
        if isinstance(given, Mapping):
            raise SettingsError(f"{about}: give a file, because pipeline.yaml has one source, without a name.")
        return Path(given)
    if not isinstance(given, Mapping):
        raise SettingsError(f'{about}: give files by the name of their source: {{"{name}": ...}}.')
    if unknown := [one for one in given if one not in pipeline.several]:
        raise SettingsError(f"{about}: no source {unknown[0]!r}; the sources are {', '.join(pipeline.several)}.")
    return Path(given[name]) if name in given else None


def refusing_others(pipeline: Pipeline, schemas: Schemas, rows: Mapping[str, Sequence[Row]]) -> Schemas:
    """Returns the schemas. An id in these rows that no file has is refused. A run would look the id up in the registry.
    `rows` has the rows by the name of their source.
    """
    for name, source in pipeline.sources.items():
        topic = source.topic
        mappings = [row if isinstance(row, Mapping) else {VALUE: row} for row in rows[name]]
        for part, is_key in ((VALUE, False), (KEY, True)):
            if (read := schemas.read(topic, is_key=is_key)) is not None:
                ids = {found for row in mappings if (found := _id_of(row.get(part))) is not None} - {ONLY_ID}
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
