"""The rights in Kafka that a pipeline needs, compared with those that Kafka says its user has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fencepost.config.pipeline import Pipeline
from fencepost.doctor.finding import Finding, error, ok, warning
from fencepost.doctor.look import Look
from fencepost.errors import AccessDenied, TopicMissing

# Without these a run works, as long as what they are for is not needed.
OPTIONAL = {"Create", "Alter", "DescribeConfigs"}


class Right(NamedTuple):
    """What the pipeline's user has to be allowed: Kafka's operations on a `topic`, a `group` or the `cluster`."""

    resource: str
    name: str
    operations: frozenset[str]


def rights_of(pipeline: Pipeline, *, quarantines: bool) -> Iterator[Right]:
    """The list of `docs/security-and-deployment.md`, for one pipeline. Kafka tells nothing of transactional ids."""
    written = frozenset({"Read", "Write", "Describe", "DescribeConfigs", "Create"})
    yield Right("topic", pipeline.source.topic, frozenset({"Read", "Describe"}))
    yield Right("topic", pipeline.output.topic, written)
    if pipeline.output.publish == "staged":
        yield Right("topic", pipeline.staging_topic, written | {"Alter"})
    if quarantines:
        yield Right("topic", pipeline.quarantine_topic, written)
    yield Right("topic", pipeline.ledger_topic, written)
    lanes = range(pipeline.lanes)
    groups = [pipeline.group, pipeline.validated_group, *map(pipeline.lane_group, lanes)]
    if quarantines:
        groups += map(pipeline.malformed_group, lanes)
    if pipeline.output.publish == "staged":
        groups += map(pipeline.publisher_group, lanes)
    for group in [*groups, "fencepost.search"]:
        yield Right("group", group, frozenset({"Read", "Describe"}))
    yield Right("cluster", "", frozenset({"DescribeConfigs"}))


def check_rights(look: Look) -> Iterator[Finding]:
    """The pipeline's user may do all that a run does, as far as Kafka tells."""
    needed = list(rights_of(look.pipeline, quarantines=look.quarantines))
    yield from compare_rights(look, needed)


def compare_rights(look: Look, needed: Iterable[Right]) -> Iterator[Finding]:
    """A finding for each resource on which a right is missing, or one that says that none is."""
    found = [one for right in needed if (one := _missing(look, right)) is not None]
    yield from found or [ok("the user has the rights that Kafka tells of; it tells none on transactional ids")]


def _missing(look: Look, right: Right) -> Finding | None:
    """What is missing on one resource, and the command that grants it."""
    what = f"{right.resource} {right.name}".rstrip()
    if right.resource == "group" and not look.has_groups:
        return None
    try:
        told = look.cluster.rights(right.resource, right.name)
    except AccessDenied:
        told = frozenset()
    except TopicMissing:
        if "Create" not in right.operations or "Create" in (look.cluster.rights("cluster", "") or ()):
            return None
        return warning(
            f"Topic {right.name} does not exist, and as far as Kafka tells, this user may not create it.",
            "Create the topic, or grant the right.",
            _grant(look, right, {"Create"}),
        )
    if told is None:
        if right.resource != "cluster" or look.cluster.broker_config("node.id", ""):
            return None
        told = frozenset()
    missing = right.operations - told - {"Create"}
    if not missing:
        return None
    listed = ", ".join(sorted(missing))
    if missing <= OPTIONAL:
        return warning(
            f"The pipeline's user lacks {listed} on {what}: what depends on it is not checked, and Kafka's defaults are assumed.",
            "Grant it.",
            _grant(look, right, missing),
        )
    return error(f"The pipeline's user lacks {listed} on {what}.", "Grant it.", _grant(look, right, missing))


def _grant(look: Look, right: Right, operations: Iterable[str]) -> str:
    """The command, with a place for the user: who that is, only the broker knows."""
    granted = [part for operation in sorted(operations) for part in ("--operation", operation)]
    named = (f"--{right.resource}", right.name) if right.name else (f"--{right.resource}",)
    return look.command("kafka-acls", "--add", "--allow-principal", "User:NAME", *granted, *named)
