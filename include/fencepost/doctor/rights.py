"""Compares the rights in Kafka that a pipeline needs with those that Kafka reports for its user."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from fencepost.config.rights import Resource, Right, Use, acl_commands, rights_of
from fencepost.errors import AccessDenied, NeedsOperator, SettingsError, TopicMissing
from fencepost.finding import Finding, error, ok, warning
from fencepost.preflight.look import Look


def check_rights(look: Look) -> Iterator[Finding]:
    """The pipeline's user has the rights that a run needs. Kafka reports none on transactional ids."""
    listed = sorted(rights_of(look.pipeline), key=_place)
    found = [one for _, rows in groupby(listed, key=_place) if (one := _lacking(look, list(rows))) is not None]
    yield from found or [
        ok("the user has all needed rights that Kafka reports. Kafka reports none on transactional ids")
    ]


def _place(right: Right) -> tuple[int, str]:
    return list(Resource).index(right.resource), right.name


def _lacking(look: Look, rows: Sequence[Right]) -> Finding | None:
    """The missing rights on one resource, and the command that grants them; None if none are missing."""
    first = rows[0]
    try:
        told = _told(look, first)
    except AccessDenied:
        told = frozenset()
    except TopicMissing:
        return _not_created(look, first.name, [right for right in rows if right.use is Use.CREATE])
    if told is None:
        return None
    lacking = [right for right in rows if right.use is not Use.CREATE and right.operation not in told]
    needed = [right for right in lacking if right.use is Use.NEEDED]
    if not lacking:
        return None
    listed, on = ", ".join(right.operation for right in needed or lacking), _name(first)
    if needed:
        return error(f"The pipeline's user lacks {listed} on {on}.", "Grant it.", _grant(look, needed))
    return warning(f"The pipeline's user lacks {listed} on {on}: {lacking[0].use}.", "Grant it.", _grant(look, lacking))


def _not_created(look: Look, topic: str, create: Sequence[Right]) -> Finding | None:
    """Why a plan could not create a missing topic; None if it could, or if plans do not create this topic."""
    if not create:
        return None
    missing = f"Topic {topic} does not exist, and"
    try:
        look.cluster.check_may_create(topic)
    except AccessDenied:
        grant = _grant(look, create)
        return warning(f"{missing} this user may not create it.", "Create the topic, or grant the right.", grant)
    except SettingsError as refused:
        return error(f"{missing} Kafka accepts no topic of that name: {refused}", "", kind=SettingsError)
    except NeedsOperator as refused:
        return warning(f"{missing} Kafka refuses to create it: {refused}", "Create the topic.")
    return None


def _told(look: Look, right: Right) -> frozenset[str] | None:
    """The user's operations as Kafka reports them; None if Kafka does not report them."""
    if right.resource is Resource.TRANSACTIONAL_ID or (right.resource is Resource.GROUP and not look.has_groups):
        return None
    if right.is_prefix:  # Kafka answers for names only, so ask about some with this prefix
        groups = [look.pipeline.validated_group, *map(look.pipeline.lane_group, map(str, range(look.pipeline.lanes)))]
        told = [look.cluster.rights("group", group) for group in groups]
        return frozenset.intersection(*(one for one in told if one is not None)) if any(told) else None
    if right.resource is not Resource.CLUSTER:
        return look.cluster.rights(right.resource, right.name)
    # Kafka reports nothing to a user who may not describe the cluster. Then the cluster's settings show it.
    found = look.cluster.rights("cluster", "")
    return found if found is not None or look.cluster.broker_config("node.id", "") else frozenset()


def _name(right: Right) -> str:
    if right.resource is Resource.CLUSTER:
        return "the cluster"
    return f"groups beginning with {right.name}" if right.is_prefix else f"{right.resource} {right.name}"


def _grant(look: Look, rights: Sequence[Right]) -> str:
    """The command that grants the rights, with a placeholder for the user, whom only the broker knows."""
    asks = look.ledger.settings.values.get("security.protocol", "plaintext").lower() != "plaintext"
    alike = [right._replace(use=Use.NEEDED) for right in rights]
    [(_, [command])] = acl_commands(alike, "User:NAME", look.bootstrap, "client.properties" if asks else None)
    return command
