"""Finds errors in a pipeline's transform and suite before anything is planned.

Does not start Spark. It executes a transform.py, as the write step does. Only Spark can check a transform.sql.
"""

from __future__ import annotations

from fencepost.config.pipeline import Pipeline
from fencepost.errors import SettingsError
from fencepost.quality.prepare import NotEvaluable, check_alone
from fencepost.quality.suite import HISTORY, load_suite


def check_pipeline(pipeline: Pipeline) -> None:
    """Check that the transform loads, and that each expectation is right as far as that shows without a column.

    Raises:
        SettingsError: names the file and the error in it.
    """
    from fencepost.spark.transform import load_transform

    load_transform(pipeline)
    file = pipeline.expectations_file
    for declared in load_suite(file).expectations:
        if declared.type in HISTORY:
            continue
        try:
            entry, _ = check_alone(declared, pipeline.quality.engine)
        except NotEvaluable as error:
            raise SettingsError(f"{file}: expectations.{declared.index}: {declared.title}: {error}.") from None
        if entry is None:
            _check_known(declared.type, f"{file}: expectations.{declared.index}")


def _check_known(name: str, where: str) -> None:
    """Check a type beyond the proven ones, for a named engine. Only these need Great Expectations, a slow import."""
    from fencepost.quality.engines import knows
    from fencepost.quality.prepare import unknown_type

    if not knows(name):
        raise SettingsError(f"{where}: {name}: {unknown_type(name)}.")
