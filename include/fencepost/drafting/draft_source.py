"""Drafts one source of a pipeline from a sample of its topic."""

from __future__ import annotations

from dataclasses import dataclass

from fencepost.config.pipeline import Pipeline
from fencepost.config.source import Source
from fencepost.drafting.columns import Fields
from fencepost.drafting.connection import DraftConnection
from fencepost.drafting.draft_request import DraftRequest
from fencepost.drafting.foreign_ids import check_ids
from fencepost.drafting.source import near_topics, source_of, with_tombstones
from fencepost.errors import AccessDenied, SettingsError, TopicMissing
from fencepost.kafka.cluster import Cluster, Topic
from fencepost.kafka.sample import Sample, take_sample


@dataclass(frozen=True)
class DraftSource:
    """A drafted source: its name, the sample of its topic, its settings and its fields. `policy` is the topic's
    `cleanup.policy`, or empty if it is not known.
    """

    name: str
    sample: Sample
    source: Source
    fields: Fields
    policy: str = ""


def draft_source(
    cluster: Cluster, connected: Pipeline, wanted: DraftRequest, connection: DraftConnection, name: str
) -> DraftSource:
    """Takes the sample of the topic, and determines its format and its fields.

    Raises:
        TopicMissing: Kafka does not have the topic. The message names similar ones.
        SettingsError: the topic's records cannot be read. The message says why.
        FencepostError: Kafka or the registry does not answer, or denies access.
    """
    sample = take_sample(cluster, _described(cluster, wanted.topic), wanted.reading_group, wanted.sample)
    if sample.cut and not sample.records:
        raise SettingsError(
            f"topic {wanted.topic}: the sample has no record: {sample.cut}. The offsets that were read are of "
            "transaction markers and aborted records. Run this again when there are newer records."
        )
    check_ids(wanted, sample.records)
    values = [one.value for one in sample.records]
    keys = [one.key for one in sample.records]
    source, fields = source_of(connected, wanted, connection, values, keys)
    policy = _cleanup_policy(cluster, wanted.topic)
    if source.envelope is None and (fields.tombstones or "compact" in policy):
        source = with_tombstones(source, fields, keys)
    return DraftSource(name, sample, source, fields, policy)


def _described(cluster: Cluster, name: str) -> Topic:
    try:
        return cluster.describe(name)
    except TopicMissing:
        near = near_topics(name, cluster.topics())
        hint = f"Did you mean {' or '.join(near)}? " if near else ""
        raise TopicMissing(
            f"--from-topic {name}: Kafka at {cluster.settings.bootstrap} has no such topic, or does not show it to this user. "
            f"{hint}Correct the name, or create the topic."
        ) from None


def _cleanup_policy(cluster: Cluster, topic: str) -> str:
    """Returns the topic's `cleanup.policy`. It is empty without the right to read it."""
    try:
        return cluster.topic_configs(topic).get("cleanup.policy", "")
    except AccessDenied:
        return ""
