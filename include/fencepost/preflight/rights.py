"""The rights on topics that every batch needs, asked for before anything moves, and after a job failed for want of one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from fencepost.config.pipeline import Pipeline
from fencepost.config.rights import Resource, Use, rights_of
from fencepost.errors import JobFailed, Retriable, WriteFailed
from fencepost.kafka.client_settings import ClientSettings
from fencepost.kafka.cluster import Cluster, check_allowed
from fencepost.kafka.errors import RequiredRight


def require_rights(pipeline: Pipeline, cluster: Cluster) -> None:
    """Check that the pipeline's user has the rights on topics that every batch needs; those on missing topics come later.

    One request. Other rights show when they are used, before anything is written.

    Raises:
        AccessDenied: names all that are lacking.
    """
    needs = [
        RequiredRight(right.operation, right.resource, right.name)
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
            require_rights(pipeline, Cluster(settings))
        raise
