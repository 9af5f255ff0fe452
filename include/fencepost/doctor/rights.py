"""Compares the rights in Kafka that a pipeline needs with the rights that Kafka reports for its user."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby

from fencepost.config.pipeline import Pipeline
from fencepost.config.rights import Resource, Right, Use, acl_commands, rights_of
from fencepost.doctor.inspection import Inspection
from fencepost.errors import AccessDenied, JobFailed, NeedsOperator, Retriable, SettingsError, TopicMissing, WriteFailed
from fencepost.findings import Finding, error, ok, warning
from fencepost.kafka.client_settings import ClientSettings
from fencepost.kafka.cluster import Cluster, check_allowed
from fencepost.kafka.errors import RequiredRight


def check_rights(inspection: Inspection) -> Iterator[Finding]:
    """Checks that the pipeline's user has the rights that a run needs. Kafka reports no rights on transactional ids."""
    listed = sorted(rights_of(inspection.pipeline), key=_place)
    found = [one for _, rows in groupby(listed, key=_place) if (one := _lacking(inspection, list(rows))) is not None]
    yield from found or [
        ok("the user has all needed rights that Kafka reports. Kafka reports no rights on transactional ids")
    ]


def _place(right: Right) -> tuple[int, str]:
    return list(Resource).index(right.resource), right.name


def _lacking(inspection: Inspection, rows: Sequence[Right]) -> Finding | None:
    """Returns the missing rights on one resource, with the command that grants them. Returns None if none are missing."""
    first = rows[0]
    try:
        allowed = _allowed(inspection, first)
    except AccessDenied:
        allowed = frozenset()
    except TopicMissing:
        return _not_created(inspection, first.name, [right for right in rows if right.use is Use.CREATE])
    if allowed is None:
        return None
    lacking = [right for right in rows if right.use is not Use.CREATE and right.operation not in allowed]
    needed = [right for right in lacking if right.use is Use.NEEDED]
    if not lacking:
        return None
    listed, on = ", ".join(right.operation for right in needed or lacking), _name(first)
    if needed:
        return error(f"The pipeline's user lacks {listed} on {on}.", "Grant it.", _grant(inspection, needed))
    return warning(
        f"The pipeline's user lacks {listed} on {on}: {lacking[0].use}.", "Grant it.", _grant(inspection, lacking)
    )


def _not_created(inspection: Inspection, topic: str, create: Sequence[Right]) -> Finding | None:
    """Returns why a plan could not create a missing topic. Returns None if it could, or if plans do not create this
    topic.
    """
    if not create:
        return None
    missing = f"Topic {topic} does not exist, and"
    try:
        inspection.cluster.check_may_create(topic)
    except AccessDenied:
        grant = _grant(inspection, create)
        return warning(f"{missing} this user may not create it.", "Create the topic, or grant the right.", grant)
    except SettingsError as refused:
        return error(f"{missing} Kafka accepts no topic of that name: {refused}", "", kind=SettingsError)
    except NeedsOperator as refused:
        return warning(f"{missing} Kafka refuses to create it: {refused}", "Create the topic.")
    return None


def _allowed(inspection: Inspection, right: Right) -> frozenset[str] | None:
    """Returns the user's operations as Kafka reports them, or None if Kafka does not report them."""
    if right.resource is Resource.TRANSACTIONAL_ID or (right.resource is Resource.GROUP and not inspection.has_groups):
        return None
    if right.is_prefix:  # Kafka answers for names only, so ask about some with this prefix
        groups = [
            inspection.pipeline.validated_group,
            *map(inspection.pipeline.lane_group, map(str, range(inspection.pipeline.lanes))),
        ]
        allowed = [inspection.cluster.rights("group", group) for group in groups]
        return frozenset.intersection(*(one for one in allowed if one is not None)) if any(allowed) else None
    if right.resource is not Resource.CLUSTER:
        return inspection.cluster.rights(right.resource, right.name)
    # Kafka reports nothing to a user who may not describe the cluster. Then the cluster's settings show it.
    found = inspection.cluster.rights("cluster", "")
    return found if found is not None or inspection.cluster.broker_config("node.id", "") else frozenset()


def _name(right: Right) -> str:
    if right.resource is Resource.CLUSTER:
        return "the cluster"
    return f"groups beginning with {right.name}" if right.is_prefix else f"{right.resource} {right.name}"


def _grant(inspection: Inspection, rights: Sequence[Right]) -> str:
    """Returns the command that grants the rights. It has a placeholder for the user's name, because only the broker
    knows the name.
    """
    asks = inspection.cluster.settings.values.get("security.protocol", "plaintext").lower() != "plaintext"
    alike = [right._replace(use=Use.NEEDED) for right in rights]
    [(_, [command])] = acl_commands(alike, "User:NAME", inspection.bootstrap, "client.properties" if asks else None)
    return command


def require_rights(pipeline: Pipeline, cluster: Cluster) -> None:
    """Checks in one request that the pipeline's user has the rights on existing topics that every batch needs.

    Any other missing right is noticed at its use, before anything is written.

    Raises:
        AccessDenied: rights are missing. The message names all of them.
    """
    needs = [
        RequiredRight(right.operation, right.resource, right.name)
        for right in rights_of(pipeline)
        if right.resource is Resource.TOPIC and right.use is Use.NEEDED
    ]
    check_allowed(cluster, needs, f"pipeline {pipeline.name}")


@contextmanager
def denials_named(pipeline: Pipeline, settings: ClientSettings) -> Iterator[None]:
    """Raises AccessDenied in place of a failed job's error, if the user now lacks a right or may no longer log in.

    The errors of Spark's reader are texts that may quote records. So a new client checks the rights.
    """
    try:
        yield
    except (JobFailed, WriteFailed):
        with suppress(Retriable):
            require_rights(pipeline, Cluster(settings))
        raise
