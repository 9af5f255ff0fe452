"""Deletes the topics and groups of a pipeline that has published nothing. Each is deleted by its exact name.

The ledger is deleted last, so a repeated removal finds what an interrupted removal has not deleted. Topics that may
belong to others are kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fencepost.config.pipeline import Pipeline
from fencepost.counts import count_of
from fencepost.errors import GroupInUse, TransitionRefused
from fencepost.kafka.cluster import Topic, check_allowed
from fencepost.kafka.errors import RequiredRight, not_authorized
from fencepost.ledger.announcements import read_announcements
from fencepost.ledger.completeness import describe_offsets, explain_offsets, offsets_of, unexplained
from fencepost.ledger.deployment import Deployment
from fencepost.protocol.removal import why_not_removed
from fencepost.protocol.view import View

LATER = (
    "A pipeline that has published cannot be removed yet. Pause its DAG and delete its folder. Its topics stay, because readers "
    "may use them."
)


@dataclass(frozen=True)
class Removal:
    """The topics and groups to delete, in order, and the topics that are `kept`, each with the reason."""

    topics: tuple[str, ...]
    groups: tuple[str, ...]
    kept: Mapping[str, str]


def plan_removal(deployment: Deployment, named_by_others: Mapping[str, str]) -> Removal:
    """Finds what a removal deletes, and changes nothing. `named_by_others` maps topics that other pipelines name to the
    name of such a pipeline.

    Raises:
        TransitionRefused: something of the pipeline is published, or being published.
        GroupInUse: there is no ledger, and the pipeline's group has offsets.
    """
    pipeline, view = deployment.pipeline, deployment.ledger.peek()
    _check_nothing_published(deployment, view)
    topics, kept = list[str](), dict[str, str]()
    for name in _names(pipeline, view):
        topic = deployment.cluster.find(name)
        if topic is None:
            continue
        if why := _why_kept(deployment, topic, named_by_others):
            kept[name] = why
        else:
            topics.append(name)
    of_pipeline = re.compile(rf"{re.escape(pipeline.group)}(\.(validated|(lane|malformed|publish)-[\w-]+))?")
    groups = [group for group in deployment.cluster.groups() if of_pipeline.fullmatch(group)]
    return Removal(tuple(topics), tuple(groups), kept)


def remove(deployment: Deployment, removal: Removal) -> Iterator[str]:
    """Deletes the topics and groups, and yields each after it is deleted.

    1. check that this user may delete all topics and groups, so that none of them is kept;
    2. fence the pipeline's coordinator, and check again that nothing is published;
    3. delete topics, then groups, then the ledger.

    Raises:
        AccessDenied: this user may not delete some topics or groups. Nothing is deleted.
        TransitionRefused: a run has published in the meantime. Nothing is deleted.
    """
    _check_rights(deployment, removal)  # 1
    if deployment.ledger.exists():  # 2
        deployment.ledger.transact(lambda view: _check_nothing_published(deployment, view))
    for topic in removal.topics:  # 3
        if topic != deployment.pipeline.ledger_topic:
            deployment.cluster.delete_topic(topic)
            yield f"topic {topic}"
    for group in removal.groups:
        deployment.cluster.delete_group(group)
        yield f"group {group}"
    if deployment.pipeline.ledger_topic in removal.topics:
        deployment.cluster.delete_topic(deployment.pipeline.ledger_topic)
        yield f"topic {deployment.pipeline.ledger_topic}"


def _check_nothing_published(deployment: Deployment, view: View) -> None:
    pipeline, cluster = deployment.pipeline, deployment.cluster
    topic = cluster.find(pipeline.announcements_topic)
    announced = read_announcements(cluster, topic, pipeline.group) if topic is not None else ()
    if why := why_not_removed(view, (announcement for _, announcement in announced)):
        raise TransitionRefused(f"pipeline {pipeline.name}: {why}, so nothing is deleted. {LATER}")
    for name in pipeline.source_topics if not view.revisions else ():
        if (source := cluster.find(name)) is None:
            continue
        if ahead := unexplained(view, name, offsets_of(cluster, pipeline.group, source, stable=True)):
            found = describe_offsets(pipeline.group, name, ahead)
            raise GroupInUse(f"pipeline {pipeline.name}: {found}, so nothing is deleted. {explain_offsets(pipeline)}")


def _names(pipeline: Pipeline, view: View) -> list[str]:
    """Returns the topics that the pipeline writes to, by its settings and its plans. The source is left out, and the
    ledger is the last.
    """
    planned = [
        place.topic
        for batch in view.all()
        for place in (batch.plan.staging, batch.plan.quarantine)
        if place is not None
    ]
    names = [
        pipeline.staging_topic,
        pipeline.quarantine_topic,
        *planned,
        *pipeline.output.topics,
        pipeline.announcements_topic,
        pipeline.ledger_topic,
    ]
    return [name for name in dict.fromkeys(names) if name not in pipeline.source_topics]


def _why_kept(deployment: Deployment, topic: Topic, named_by_others: Mapping[str, str]) -> str:
    """Returns why a topic is kept. The text is empty if the topic is deleted. A topic whose name contains the
    pipeline's name was created by the pipeline.
    """
    if topic.name in named_by_others:
        return f"pipeline {named_by_others[topic.name]} names it too"
    if topic.name.startswith(deployment.pipeline.topic_prefix):
        return ""
    ends = sum(deployment.cluster.high_watermarks(topic))
    return f"it has had {count_of(ends, 'record')}, which may belong to others" if ends else ""


def _check_rights(deployment: Deployment, removal: Removal) -> None:
    doing = f"pipeline {deployment.pipeline.name}: deleting its topics and groups"
    check_allowed(deployment.cluster, [RequiredRight("Delete", "topic", name) for name in removal.topics], doing)
    lacking = []
    for group in removal.groups:
        rights = deployment.cluster.rights("group", group)
        if rights is not None and "Delete" not in rights:
            lacking.append(RequiredRight("Delete", "group", group))
    if lacking:
        raise not_authorized(f"{doing}: Kafka at {deployment.cluster.settings.bootstrap} refuses access.", lacking)
