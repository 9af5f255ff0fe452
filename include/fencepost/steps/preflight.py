"""Finds errors in a pipeline's transform and suite, and rights that its user lacks, before anything is planned.

Does not start Spark. It executes a transform.py, as the write step does. Only Spark can check a transform.sql.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from fencepost.config.pipeline import Pipeline
from fencepost.config.rights import Resource, Use, rights_of
from fencepost.errors import JobFailed, Retriable, SettingsError, WriteFailed
from fencepost.kafka.client_settings import ClientSettings
from fencepost.kafka.cluster import Cluster, check_allowed
from fencepost.kafka.errors import Need
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


def check_rights(pipeline: Pipeline, cluster: Cluster) -> None:
    """Check that the pipeline's user has the rights on topics that every batch needs; those on missing topics come later.

    Kafka tells what a user may do with a topic. Other rights show when they are used, before anything is written.

    Raises:
        AccessDenied: names all that are lacking.
    """
    needs = [
        Need(right.operation, right.resource, right.name)
        for right in rights_of(pipeline)
        if right.resource is Resource.TOPIC and right.use is Use.NEEDED
    ]
    check_allowed(cluster, needs, f"pipeline {pipeline.name}")


@contextmanager
def denials_named(pipeline: Pipeline, settings: ClientSettings) -> Iterator[None]:
    """Raise AccessDenied instead of a failed job's error, if the user lacks a right by now, or may no longer log in.

    Spark's reader tells its errors as text, which may quote records. So a new client asks.
    """
    try:
        yield
    except (JobFailed, WriteFailed):
        with suppress(Retriable):
            check_rights(pipeline, Cluster(settings))
        raise
