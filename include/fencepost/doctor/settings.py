"""Checks a pipeline's connections, its schema registry, and the folder of reports."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fencepost.config.pipeline import Pipeline
from fencepost.config.services.connection import ConnectionSettings
from fencepost.errors import AccessDenied, SettingsError
from fencepost.findings import Finding, error, ok, warning
from fencepost.paths import reports_folder
from fencepost.schemas.registry import NotRegistered, Registry


def check_connections(
    pipeline: Pipeline, given: Mapping[str, ConnectionSettings], places: Sequence[str]
) -> Iterator[Finding]:
    """Yields the settings of Airflow's connections that Fencepost does not use. The caller has looked the connections
    up in `places`.
    """
    for section, one in given.items():
        if one.left_out:
            yield warning(
                f"{section} does not use {', '.join(one.left_out)} of connection {pipeline.all_connections[section]}: Fencepost "
                "sets its own values.",
                "You need do nothing. A separate connection for Fencepost would make clear that these settings are unused.",
            )
    yield ok("; ".join(places))


def check_schema_registry(pipeline: Pipeline) -> Finding:
    """Checks that the registry answers, if the pipeline uses a registry. `fencepost schema` shows whether the records
    fit its schemas.
    """
    if not pipeline.uses_registry or pipeline.schema_registry is None:
        return ok("the pipeline uses no schema registry")
    tables = [part for name in pipeline.topic_tables for part in pipeline.table_parts(name)]
    asked = next(part for part in (*pipeline.source_parts, *tables, *pipeline.output_parts) if part.in_registry)
    subject = asked.subject
    try:
        Registry(pipeline, "AVRO").versions(subject)
    except AccessDenied as denied:  # a plan would fail, and no other check covers rights in the registry
        return error(str(denied), "", kind=type(denied))
    except NotRegistered:
        return ok(f"{pipeline.schema_registry.url} answers; it has no subject {subject}")
    return ok(f"{pipeline.schema_registry.url} answers, and has subject {subject}")


def check_reports() -> Finding:
    """Checks that validate can write its report."""
    folder = reports_folder()
    there = _existing(folder)
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        return ok(f"{folder} is writable")
    why = "this user may not write to it" if there.is_dir() else "it is not a folder"
    return error(
        f"The folder of reports is {folder}, and validate could not write there: {there}: {why}.",
        "Give the user of the tasks the right to write there, or set FENCEPOST_REPORTS to another folder.",
        kind=SettingsError,
    )


def _existing(path: Path) -> Path:
    """Returns the path, or its nearest parent that exists. Validate creates the missing folders."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path
