"""The topic of a pipeline's announcements: `fencepost.<pipeline>.published`, with one partition and without retention.

The ledger's coordinator writes the topic, in the transaction that records what is announced. If the topic is lost, it
is written again from the ledger's history. Readers rely on this topic alone, so nothing is published while it lacks
announcements.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from confluent_kafka import TopicPartition

from fencepost.config.pipeline import Pipeline
from fencepost.counts import count_of
from fencepost.errors import AnnouncementsLost, NeedsOperator, SettingsError
from fencepost.kafka.clients import make_consumer
from fencepost.kafka.cluster import Cluster, Topic
from fencepost.kafka.offsets import read_until
from fencepost.protocol.announcement import Announcement

# Every record is kept, so that a late reader can read all announcements.
KEPT = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
OPEN_TRANSACTION_LIMIT = 90.0  # seconds, as for the ledger: the same transactions


def unfit_for_announcements(topic: Topic, settings: Mapping[str, str]) -> str | None:
    """Returns why a topic with these settings would lose announcements or their order, or None if it would not. Pure."""
    differs = [f"{name}={settings[name]}" for name, value in KEPT.items() if settings.get(name, value) != value]
    if topic.partitions == 1 and not differs:
        return None
    wanted = ", ".join(f"{name}={value}" for name, value in KEPT.items())
    return (
        f"topic of announcements {topic.name} has {', '.join([count_of(topic.partitions, 'partition'), *differs])}; it needs one "
        f"partition, and {wanted}. Otherwise readers would miss publications, or see them in another order."
    )


def loss_reason(announced_in: str | None, found: Topic | None, begin: int) -> str | None:
    """Returns how the topic lost announcements, or None if it has all. Pure. `announced_in` is the id of the topic that
    has all announcements, by the ledger.

    `found` is the present topic, or None if it does not exist. `begin` is its first offset.
    """
    if announced_in is None:
        return None
    if found is None:
        return "no longer exists"
    if found.id != announced_in:
        return "was deleted and created again"
    return f"begins at offset {begin}: earlier records were deleted" if begin else None


class AnnouncementTopic:
    """The topic of a pipeline's announcements. `announced_in` is the id of the topic that has all announcements, by the
    ledger, and None before the first announcement. The topic is looked up each time, because it may have been deleted.
    """

    def __init__(self, pipeline: Pipeline, cluster: Cluster, announced_in: str | None) -> None:
        self.name = pipeline.announcements_topic
        self._pipeline, self._cluster, self._announced_in = pipeline, cluster, announced_in

    def prepare(self) -> Topic:
        """Returns the topic with all announcements. It creates the topic if it is missing and nothing was announced
        yet. It is idempotent.

        Raises:
            AnnouncementsLost: the topic lacks announcements.
            NeedsOperator: the topic has settings with which it would lose announcements.
        """
        found = self._cluster.find(self.name)
        if lost := self.loss(found):
            name = self._pipeline.name
            raise AnnouncementsLost(
                f"pipeline {name}: {lost} Readers rely on this topic alone, so nothing is planned or published until "
                f"it is complete. `fencepost announce {name}` writes it again."
            )
        return self.create(found)

    def create(self, found: Topic | None) -> Topic:
        """Returns the topic with the settings that it needs. It creates a missing topic.

        Raises:
            NeedsOperator: the topic has other settings.
        """
        topic = found or self._cluster.ensure_topic(self.name, 1, KEPT)
        if refusal := unfit_for_announcements(topic, self._cluster.topic_configs(self.name)):
            raise NeedsOperator(f"pipeline {self._pipeline.name}: {refusal} {repair_advice(topic)}")
        return topic

    def is_whole(self, topic: Topic) -> bool:
        """Returns whether this topic has all announcements, by the ledger."""
        return topic.id == self._announced_in

    def loss(self, found: Topic | None) -> str | None:
        """Returns how the topic lost announcements of this ledger, in a sentence. Returns None if it has all."""
        lost = loss_reason(self._announced_in, found, self._cluster.earliest(found)[0] if found else 0)
        return f"its topic of announcements, {self.name}, {lost}." if lost else None


def repair_advice(topic: Topic) -> str:
    """Returns the next step for a topic with the wrong number of partitions or wrong settings."""
    if topic.partitions != 1:
        return f"Delete it (kafka-topics.sh --delete --topic {topic.name}), then `fencepost announce` writes it again."
    config = ",".join(f"{name}={value}" for name, value in KEPT.items())
    return f"Set them: kafka-configs.sh --alter --topic {topic.name} --add-config {config}."


def read_announcements(
    cluster: Cluster, topic: Topic, group: str, begin: int | None = None
) -> Iterator[tuple[int, Announcement]]:
    """Yields all announcements that are committed now, with their offsets, in order. `begin` is the first offset to
    read.

    Raises:
        OpenTransaction: an open transaction hides announcements for longer than `OPEN_TRANSACTION_LIMIT`.
        NeedsOperator: a record is not an announcement.
    """
    end = cluster.high_watermarks(topic)[0]
    begin = cluster.earliest(topic)[0] if begin is None else begin
    if begin >= end:
        return
    doing = f"reading announcements of topic {topic.name}"
    cluster.await_stable(topic, [end], OPEN_TRANSACTION_LIMIT, doing)
    consumer, complaints = make_consumer(cluster.settings, group)
    try:
        consumer.assign([TopicPartition(topic.name, 0, begin)])
        for message in read_until(consumer, complaints, cluster.settings, {0: end}, doing):
            yield message.offset() or 0, parse(message.value(), f"topic {topic.name}, offset {message.offset()}")
    finally:
        consumer.close()


def parse(value: bytes | None, where: str) -> Announcement:
    """Parses a record's value as an announcement. Raises NeedsOperator, with `where`, if it is no announcement."""
    try:
        content = json.loads(value or b"")
        if isinstance(content, dict):
            return Announcement.of(content, where)
        why = "it is not a JSON object"
    except ValueError:
        why = "it is not JSON"
    except SettingsError as error:
        why = str(error)
    raise NeedsOperator(
        f"{where}: {why}. Only Fencepost may write to this topic. Delete it, then `fencepost announce` writes it again."
    )


def missing_announcements(announced: Iterable[Announcement], wanted: Iterable[Announcement]) -> list[Announcement]:
    """Returns the announcements in `wanted`, the ledger's, that are not in `announced`, the topic's. Pure."""
    have = {(*one.identity, one.state) for one in announced}
    return [one for one in wanted if (*one.identity, one.state) not in have]
