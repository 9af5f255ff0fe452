"""What can be known to be wrong with a pipeline before anything of it is planned: its transform and its suite.

Starts no Spark. A transform.py is executed, as the write step does; what a transform.sql says, only Spark can tell.
"""

from __future__ import annotations

from fencepost.config.pipeline import Pipeline
from fencepost.errors import SettingsError
from fencepost.quality.prepare import NotEvaluable, check_alone
from fencepost.quality.suite import HISTORY, load_suite


def check_pipeline(pipeline: Pipeline) -> None:
    """The transform can be loaded, and each expectation evaluated as far as no column is needed to tell.

    Raises:
        SettingsError: naming the file, and what is wrong in it.
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
    """A type beyond the proven ones, for a named engine. Great Expectations takes seconds to import, so for such alone."""
    from fencepost.quality.engines import knows
    from fencepost.quality.prepare import unknown_type

    if not knows(name):
        raise SettingsError(f"{where}: {name}: {unknown_type(name)}.")
