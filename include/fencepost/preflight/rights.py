"""Checks the rights on topics that every batch needs, before a step changes anything, and after a job failed without one."""

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
    """Check in one request that the pipeline's user has the rights on existing topics that every batch needs.

    A missing right of another kind shows when it is used, before anything is written.

    Raises:
        AccessDenied: rights are missing; the message names all of them.
    """
    needs = [
        RequiredRight(right.operation, right.resource, right.name)
        for right in rights_of(pipeline)
        if right.resource is Resource.TOPIC and right.use is Use.NEEDED
    ]
    check_allowed(cluster, needs, f"pipeline {pipeline.name}")


@contextmanager
def denials_named(pipeline: Pipeline, settings: ClientSettings) -> Iterator[None]:
    """Raise AccessDenied instead of a failed job's error, if the user now lacks a right or may no longer log in.

    The errors of Spark's reader are text that may quote records, so a new client checks the rights.
    """
    try:
        yield
    except (JobFailed, WriteFailed):
        with suppress(Retriable):
            require_rights(pipeline, Cluster(settings))
        raise
