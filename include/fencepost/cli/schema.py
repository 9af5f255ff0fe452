"""`fencepost schema`: what the registry has for a pipeline, and whether its records can be read and written with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer
from rich.markup import escape
from rich.table import Table

from fencepost.cli.arguments import AsJson, PipelineName, pipeline_of
from fencepost.cli.console import out, print_json
from fencepost.errors import SettingsError

if TYPE_CHECKING:
    from fencepost.schemas.report import PartReport


def schema(pipeline: PipelineName, as_json: AsJson = False) -> None:
    """Show the registry's schemas: what a plan would read, what the transform would write, and whether they fit.

    Starts Spark to know the type of the transform's result. Reads no record, and registers nothing. Exit code 2: something does
    not fit.

    Example: fencepost schema nyc_weather
    """
    found = pipeline_of(pipeline)
    if not found.uses_registry:
        raise SettingsError(
            f"pipeline {pipeline}: no part of it has a schema registry; set format: avro or json_schema, or key_format: avro."
        )
    from fencepost.schemas.report import report_schemas
    from fencepost.spark.session import build_session

    spark = build_session(found, "schema")
    try:
        parts = report_schemas(spark, found)
    finally:
        spark.stop()
    if as_json:
        print_json({"pipeline": pipeline, "parts": [as_plain(part) for part in parts]})
    else:
        for part in parts:
            _print(part)
    if not all(part.is_compatible for part in parts):
        raise typer.Exit(2)


def as_plain(part: PartReport) -> dict[str, Any]:
    """A part for programs."""
    return {
        "part": part.part,
        "subject": part.subject,
        "takes": part.takes.model_dump(exclude={"text"}) if part.takes else None,
        "gives": part.gives,
        "versions": [{"id": k.id, "version": k.version, "problem": k.problem} for k in part.versions],
        "compatible": part.is_compatible,
    }


def _print(part: PartReport) -> None:
    takes = f"version {part.takes.version}, id {part.takes.id}" if part.takes else "none yet; the write registers one"
    does = "read" if part.part.startswith("source") else "written"
    title = f"{part.part.replace('_', ' ')}: subject {escape(part.subject)}, {does} with {takes}"
    table = Table(title=title, title_justify="left")
    for name in ("version", "id"):
        table.add_column(name, justify="right")
    table.add_column(f"can be {does}", overflow="fold")
    for known in part.versions:
        version = "" if known.version is None else str(known.version)
        table.add_row(
            version, str(known.id), "yes" if known.problem is None else f"[bold red]no[/]: {escape(known.problem)}"
        )
    out.print(table)
    if part.gives is not None:
        out.print(f"the transform gives {part.gives}", markup=False, soft_wrap=True)
