"""Checks a pipeline's folder: its transform, its suite, its schedule and the files of its side tables.

These checks do not start Spark. The checks execute a transform.py, as the write step does. Only Spark can check a
transform.sql.
"""

from __future__ import annotations

from fencepost.config.files import open_file
from fencepost.config.intervals import schedule_warnings
from fencepost.config.pipeline import Pipeline
from fencepost.config.side_tables import FileTable
from fencepost.errors import SettingsError
from fencepost.findings import Finding, ok, warning
from fencepost.model import utc_now
from fencepost.quality.prepare import NotEvaluable, known
from fencepost.suite.catalogue import HISTORY


def check_pipeline(pipeline: Pipeline) -> None:
    """Checks that the transform loads, that each expectation is valid, and that files of side tables can be opened.
    Columns are not known yet.

    Raises:
        SettingsError: names the file and the error in it.
    """
    check_transform(pipeline)
    check_suite(pipeline)
    _check_table_files(pipeline)


def check_transform(pipeline: Pipeline) -> Finding:
    """Checks that the transform loads."""
    from fencepost.rows.transform import load_transform

    load_transform(pipeline)
    name = pipeline.transform_file.name
    return ok(f"{name} exists; only Spark can check it" if name.endswith(".sql") else f"{name} loads")


def _check_table_files(pipeline: Pipeline) -> None:
    """Checks that the files of side tables can be opened.

    Raises:
        SettingsError: names the side table and its file.
    """
    for name, table in pipeline.tables.items():
        if isinstance(table, FileTable):
            try:
                open_file(table.path(pipeline.folder)).close()
            except SettingsError as error:
                raise SettingsError(
                    f"pipeline {pipeline.name}: side table {name}: {error} Put it there, or correct tables.{name}.file in "
                    "pipeline.yaml."
                ) from None


def check_suite(pipeline: Pipeline) -> Finding:
    """Checks that every expectation exists and has arguments of the right kind. Only a run shows whether the columns
    exist.
    """
    file = pipeline.expectations_file
    suite = pipeline.suite
    for declared in suite.expectations:
        if declared.type in HISTORY:
            continue
        try:
            known(declared.type)
        except NotEvaluable as raised:
            raise SettingsError(f"{file}: expectations.{declared.index}: {declared.title}: {raised}.") from None
    return ok(f"{len(suite.expectations)} expectations are known")


def check_schedule(pipeline: Pipeline) -> list[Finding]:
    """Checks that the first interval begins at `schedule.start`, and that all intervals begin and end at times of the
    cron. The latter may fail when clocks change.
    """
    schedule = pipeline.schedule
    found = [warning(one.text, one.advice) for one in schedule_warnings(schedule, utc_now())]
    return found or [
        ok(
            f"cron {schedule.cron!r} in {schedule.timezone}: intervals begin and end at its times, the first at schedule.start"
        )
    ]
