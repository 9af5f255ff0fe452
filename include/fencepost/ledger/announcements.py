"""The topic of a pipeline's announcements: `fencepost.<pipeline>.published`, one partition, kept for good.

The ledger's coordinator writes it, in the transaction that records what is announced. It is not the truth: where it was lost, the
ledger's history writes it again. But readers go by it alone, so nothing is published beside a topic that lacks announcements.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from confluent_kafka import TopicPartition

from fencepost.config.pipeline import Pipeline
from fencepost.counts import count_of
from fencepost.errors import AnnouncementsLost, NeedsOperator, SettingsError
from fencepost.kafka.client_settings import ClientSettings
from fencepost.kafka.clients import make_consumer
from fencepost.kafka.cluster import Cluster, Topic
from fencepost.kafka.offsets import read_until
from fencepost.protocol.announcement import Announcement

# Kept for good, and every record: a reader that comes late reads all of it.
KEPT = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
OPEN_TRANSACTION_LIMIT = 90.0  # seconds, as for the ledger: the same transactions


def unfit_for_announcements(topic: Topic, settings: Mapping[str, str]) -> str | None:
    """Why a topic with these settings would lose announcements or their order, or None. Pure."""
    differs = [f"{name}={settings[name]}" for name, value in KEPT.items() if settings.get(name, value) != value]
    if topic.partitions == 1 and not differs:
        return None
    wanted = ", ".join(f"{name}={value}" for name, value in KEPT.items())
    return (
        f"topic of announcements {topic.name} has {', '.join([count_of(topic.partitions, 'partition'), *differs])}; it needs one "
        f"partition, and {wanted}, or readers would miss publications or their order."
    )


def what_is_lost(announced_in: str | None, found: Topic | None, begin: int) -> str | None:
    """How the topic, as it is found, lost announcements of a ledger that made them in the topic with that id, or None. Pure."""
    if announced_in is None:
        return None
    if found is None:
        return "does not exist any more"
    if found.id != announced_in:
        return "was deleted and created again"
    return f"begins at offset {begin}: the records before that were deleted" if begin else None


class AnnouncementTopic:
    """A pipeline's announcements. `announced_in` is the id of the topic that has all of them, by the ledger; None before the
    first. The topic is looked up each time: it may have been deleted since."""

    def __init__(self, pipeline: Pipeline, cluster: Cluster, announced_in: str | None) -> None:
        self.name = pipeline.announcements_topic
        self._pipeline, self._cluster, self._announced_in = pipeline, cluster, announced_in

    def prepare(self) -> Topic:
        """The topic, made if it is missing and nothing was announced yet; idempotent. It has all that was announced.

        Raises:
            AnnouncementsLost: it lacks announcements.
            NeedsOperator: its settings would lose some.
        """
        found = self._cluster.find(self.name)
        if lost := self.lost(found):
            name = self._pipeline.name
            raise AnnouncementsLost(
                f"pipeline {name}: {lost} Readers go by it alone, so nothing is planned or published until it is whole. "
                f"`fencepost announce {name}` writes it again."
            )
        return self.create(found)

    def create(self, found: Topic | None) -> Topic:
        """The topic with the settings that it needs, made where it is missing.

        Raises:
            NeedsOperator: it has others.
        """
        topic = found or self._cluster.ensure_topic(self.name, 1, KEPT)
        if refusal := unfit_for_announcements(topic, self._cluster.topic_configs(self.name)):
            raise NeedsOperator(f"pipeline {self._pipeline.name}: {refusal} {how_to_mend(topic)}")
        return topic

    def is_whole(self, topic: Topic) -> bool:
        """Whether the ledger says of this very topic that it has all announcements."""
        return topic.id == self._announced_in

    def lost(self, found: Topic | None) -> str | None:
        """What the topic lost of this ledger's announcements, for a person; None where nothing."""
        lost = what_is_lost(self._announced_in, found, self._cluster.earliest(found)[0] if found else 0)
        return f"its topic of announcements, {self.name}, {lost}." if lost else None


def how_to_mend(topic: Topic) -> str:
    """What to do about a topic that is unfit."""
    if topic.partitions != 1:
        return f"Delete it (kafka-topics.sh --delete --topic {topic.name}), then `fencepost announce` writes it again."
    config = ",".join(f"{name}={value}" for name, value in KEPT.items())
    return f"Set them: kafka-configs.sh --alter --topic {topic.name} --add-config {config}."


def read_announcements(
    settings: ClientSettings, cluster: Cluster, topic: Topic, group: str, begin: int | None = None
) -> Iterator[tuple[int, Announcement]]:
    """All announcements that are committed now, with their offsets, in order; `begin` is the first offset to read.

    Raises:
        OpenTransaction: one hides announcements for longer than any may.
        NeedsOperator: a record is no announcement.
    """
    end = cluster.high_watermarks(topic)[0]
    begin = cluster.earliest(topic)[0] if begin is None else begin
    if begin >= end:
        return
    doing = f"reading announcements of topic {topic.name}"
    cluster.await_stable(topic, [end], OPEN_TRANSACTION_LIMIT, doing)
    consumer, complaints = make_consumer(settings, group)
    try:
        consumer.assign([TopicPartition(topic.name, 0, begin)])
        for message in read_until(consumer, complaints, settings, {0: end}, doing):
            yield message.offset() or 0, parse(message.value(), f"topic {topic.name}, offset {message.offset()}")
    finally:
        consumer.close()


def parse(value: bytes | None, where: str) -> Announcement:
    """The announcement in a record's value; NeedsOperator names the offset."""
    try:
        told = json.loads(value or b"")
        if isinstance(told, dict):
            return Announcement.of(told, where)
        why = "it is no JSON object"
    except ValueError:
        why = "it is no JSON"
    except SettingsError as error:
        why = str(error)
    raise NeedsOperator(
        f"{where}: {why}. Only Fencepost may write to this topic. Delete it, then `fencepost announce` writes it again."
    )


def lacking(told: Iterable[Announcement], wanted: Iterable[Announcement]) -> list[Announcement]:
    """Those of the ledger's announcements that a topic with these lacks. Pure."""
    have = {(*one.identity, one.state) for one in told}
    return [one for one in wanted if (*one.identity, one.state) not in have]
