"""What a pipeline's folder and this machine bring: transform, suite, the schema registry, and the folder of reports.

Does not start Spark. It executes a transform.py, as the write step does. Only Spark can check a transform.sql.
"""

from __future__ import annotations

import os
from pathlib import Path

from fencepost.config.pipeline import Pipeline
from fencepost.doctor.finding import Finding, error, ok
from fencepost.errors import SettingsError
from fencepost.formats import FORMATS
from fencepost.kafka.registry import NotRegistered, Registry
from fencepost.paths import reports_folder
from fencepost.quality.catalogue import HISTORY
from fencepost.quality.prepare import NotEvaluable, known
from fencepost.quality.suite import load_suite


def check_pipeline(pipeline: Pipeline) -> None:
    """Check that the transform loads, and that each expectation is right as far as that shows without a column.

    Raises:
        SettingsError: names the file and the error in it.
    """
    check_transform(pipeline)
    check_suite(pipeline)


def check_transform(pipeline: Pipeline) -> Finding:
    """The transform loads."""
    from fencepost.spark.transform import load_transform

    load_transform(pipeline)
    name = pipeline.transform_file.name
    return ok(f"{name} is there; only Spark can check it" if name.endswith(".sql") else f"{name} loads")


def check_suite(pipeline: Pipeline) -> Finding:
    """Every expectation exists, and its arguments are of the right kind. Whether a column exists, only a run can tell."""
    file = pipeline.expectations_file
    suite = load_suite(file)
    for declared in suite.expectations:
        if declared.type in HISTORY:
            continue
        try:
            entry = known(declared.type, pipeline.quality.engine)
        except NotEvaluable as raised:
            raise SettingsError(f"{file}: expectations.{declared.index}: {declared.title}: {raised}.") from None
        if entry is None:
            _check_known(declared.type, f"{file}: expectations.{declared.index}")
    return ok(f"{len(suite.expectations)} expectations are known")


def _check_known(name: str, where: str) -> None:
    """Check a type beyond the proven ones, for a named engine. Only these need Great Expectations, a slow import."""
    from fencepost.quality.engines import knows
    from fencepost.quality.prepare import unknown_type

    if not knows(name):
        raise SettingsError(f"{where}: {name}: {unknown_type(name)}.")


def check_schema_registry(pipeline: Pipeline) -> Finding:
    """The registry answers, if the pipeline uses one. `fencepost schema` says whether the records fit what it has."""
    if not pipeline.uses_registry or pipeline.schema_registry is None:
        return ok("the pipeline uses none")
    subject = pipeline.subject("source" if FORMATS[pipeline.source.format].has_registry else "output")
    try:
        Registry(pipeline, "AVRO").versions(subject)
    except NotRegistered:
        return ok(f"{pipeline.schema_registry.url} answers; it has no subject {subject}")
    return ok(f"{pipeline.schema_registry.url} answers, and has subject {subject}")


def check_reports() -> Finding:
    """Validate can write its report."""
    folder = reports_folder()
    there = _existing(folder)
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        return ok(f"{folder} is writable")
    why = "this user may not write to it" if there.is_dir() else "it is no folder"
    return error(
        f"The folder of reports is {folder}, and validate could not write there: {there}: {why}.",
        "Give the user of the tasks the right to write there, or set FENCEPOST_REPORTS to another folder.",
        kind=SettingsError,
    )


def _existing(path: Path) -> Path:
    """The path, or the nearest of its parents that exists: validate makes the rest."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path
