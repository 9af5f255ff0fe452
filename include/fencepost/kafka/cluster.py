"""Questions to the cluster, and topics made in it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import wait
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import (
    OFFSET_INVALID,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic

from fencepost.errors import (
    AccessDenied,
    FencepostError,
    KafkaUnavailable,
    OpenTransaction,
    TopicMissing,
)
from fencepost.kafka.client_settings import ClientSettings
from fencepost.kafka.clients import make_client, make_consumer
from fencepost.kafka.errors import LEADER_MOVED, Complaints, translate, translated
from fencepost.kafka.offsets import REQUEST_TIMEOUT, read_until

log = logging.getLogger("fencepost.kafka.clients")
FIRST_CONTACT = 10.0  # seconds for any broker to be reached at all; one that restarts takes less
TELL_AFTER = 1.0  # seconds
T = TypeVar("T")


@dataclass(frozen=True)
class Topic:
    """A topic as the cluster describes it; the id changes when it is deleted and created again."""

    name: str
    id: str
    partitions: int


class Cluster:
    """Questions to the cluster and topics made in it. Holds one admin client, until it is dropped.

    `timeout` is for one answer, in seconds.
    """

    def __init__(self, settings: ClientSettings, timeout: float = REQUEST_TIMEOUT) -> None:
        self.settings = settings
        self._timeout = timeout
        self._complaints = Complaints()
        self._reached = False
        self._admin: AdminClient = make_client(AdminClient, dict(settings.common()), self._complaints, "admin client")

    def _ask(self, doing: str, future: Any) -> Any:
        """One answer. A time-out of ours is named like librdkafka's own.

        Where no broker has been reached yet, and none can be connected to, the wait is short; and none is worth while for
        a host name that nobody knows.
        """
        began = time.monotonic()
        told = False
        while not wait([future], timeout=0.2).done:
            self._admin.poll(0)  # serves the error callback, which alone hears of refused credentials
            waited = time.monotonic() - began
            absent = self._complaints.unreachable and not self._reached
            limit = min(self._timeout, FIRST_CONTACT) if absent else self._timeout
            if self._complaints.denied is not None or waited > limit or (absent and self._complaints.unresolved):
                raise translate(KafkaError(KafkaError._TIMED_OUT), doing, self.settings, self._complaints)
            if absent and not told and waited > TELL_AFTER:
                told = True
                log.warning(
                    "waiting for Kafka at %s, %.0f s at most: no broker answers", self.settings.bootstrap, limit
                )
        with translated(doing, self.settings, self._complaints):
            answer = future.result()
        self._reached = True
        return answer

    def describe(self, topic: str) -> Topic:
        """Id and partition count of a topic; TopicMissing when it does not exist."""
        doing = f"describing topic {topic}"
        futures = self._admin.describe_topics(TopicCollection([topic]), request_timeout=self._timeout)
        found = self._ask(doing, futures[topic])
        return Topic(topic, str(found.topic_id), len(found.partitions))

    def ensure_topic(self, topic: str, partitions: int, config: Mapping[str, str] | None = None) -> Topic:
        """The topic, created first where it is missing (replication factor: the cluster's default).

        Raises:
            AccessDenied: it is missing, as far as we may see, and we may not create it.
        """
        new = NewTopic(topic, num_partitions=partitions, replication_factor=-1, config=dict(config or {}))
        try:
            self._ask(f"creating topic {topic}", self._admin.create_topics([new], request_timeout=self._timeout)[topic])
        except FencepostError as error:
            cause = error.__cause__
            exists = isinstance(cause, KafkaException) and cause.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
            if isinstance(error, AccessDenied):
                return self._made_by_others(topic, error)
            if not exists:
                raise
        return self._once_known(lambda: self.describe(topic))

    def grow_topic(self, topic: Topic, partitions: int) -> Topic:
        """The topic with so many partitions, at least as many as it has; they are known to the broker that is asked then."""
        doing = f"adding partitions to topic {topic.name}, which has {topic.partitions}, up to {partitions}"
        new = NewPartitions(topic.name, partitions)
        self._ask(doing, self._admin.create_partitions([new], request_timeout=self._timeout)[topic.name])
        deadline = time.monotonic() + self._timeout
        while (grown := self.describe(topic.name)).partitions < partitions:
            if time.monotonic() > deadline:
                raise translate(KafkaError(KafkaError._TIMED_OUT), doing, self.settings, self._complaints)
            time.sleep(0.05)
        return grown

    def _made_by_others(self, topic: str, denied: AccessDenied) -> Topic:
        """The topic of who may not create it, and may use one that somebody made for them."""
        try:
            return self.describe(topic)
        except TopicMissing:
            raise AccessDenied(
                f"{denied} Topic {topic} is not there, or this user may not see it. Create it, or grant the user Create (and "
                "Describe) on it; then run again."
            ) from denied

    def topic_config(self, topic: str, name: str) -> str:
        """One setting of a topic that is there."""
        return self._once_known(lambda: self._config(ConfigResource(ResourceType.TOPIC, topic), name))

    def topic_configs(self, topic: str) -> dict[str, str]:
        """All settings of a topic that is there, by name; AccessDenied where we may not ask."""
        return self._once_known(
            lambda: self._configs(ConfigResource(ResourceType.TOPIC, topic), f"all of topic {topic}")
        )

    def _once_known(self, ask: Callable[[], T]) -> T:
        """The answer on a topic that was just created, of which the broker that is asked may hear a moment later."""
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                return ask()
            except TopicMissing:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def broker_config(self, name: str, default: str) -> str:
        """One setting of a broker; the default where we may not ask."""
        doing = f"reading broker setting {name}"
        brokers = self._ask(doing, self._admin.describe_cluster(request_timeout=self._timeout)).nodes
        if not brokers:  # a cluster that is starting
            raise translate(KafkaError(KafkaError.BROKER_NOT_AVAILABLE), doing, self.settings, self._complaints)
        try:
            return self._config(ConfigResource(ResourceType.BROKER, brokers[0].id_string), name) or default
        except AccessDenied:
            return default

    def _config(self, resource: ConfigResource, name: str) -> str:
        return self._configs(resource, name).get(name, "")

    def _configs(self, resource: ConfigResource, which: str) -> dict[str, str]:
        futures = self._admin.describe_configs([resource], request_timeout=self._timeout)
        entries = self._ask(f"reading settings ({which})", futures[resource])
        return {name: str(entry.value) for name, entry in entries.items() if entry.value is not None}

    def earliest(self, topic: Topic) -> list[int]:
        """First offset of each partition that is still there."""
        return self._offsets(topic, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)

    def high_watermarks(self, topic: Topic) -> list[int]:
        """End of each partition, open transactions included."""
        return self._offsets(topic, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)

    def last_stable(self, topic: Topic) -> list[int]:
        """End of each partition as far as read_committed can see: no open transaction lies below."""
        return self._offsets(topic, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)

    def first_at_or_after(
        self, topic: Topic, milliseconds: int, starts: Sequence[int] | None = None
    ) -> list[int | None]:
        """First committed record of each partition, from `starts` on, with a timestamp of at least that; None: not yet.

        Kafka's own search by timestamp also finds transaction markers, which carry the wall clock, and aborted records.
        So what it finds is looked at, and from there records are read until one has the timestamp: where records come in
        order of time that is the first one.
        """
        found = self._offsets(topic, OffsetSpec.for_timestamp(milliseconds), IsolationLevel.READ_COMMITTED)
        stable = self.last_stable(topic)
        result: list[int | None] = [None] * topic.partitions
        begin = {p: max(o, starts[p] if starts else 0) for p, o in enumerate(found) if o >= 0}
        begin = {p: o for p, o in begin.items() if o < stable[p]}
        if not begin:
            return result
        consumer, complaints = make_consumer(self.settings, "fencepost.search")
        try:
            consumer.assign([TopicPartition(topic.name, p, o) for p, o in begin.items()])
            doing = f"searching topic {topic.name} by timestamp"
            for message in read_until(consumer, complaints, self.settings, {p: stable[p] for p in begin}, doing):
                partition = message.partition() or 0
                if result[partition] is None and message.timestamp()[1] >= milliseconds:
                    result[partition] = message.offset()
                    consumer.incremental_unassign([TopicPartition(topic.name, partition)])
                    begin.pop(partition)
                    if not begin:
                        break
        finally:
            consumer.close()
        return result

    def _offsets(self, topic: Topic, spec: OffsetSpec, isolation: IsolationLevel) -> list[int]:
        """One offset per partition.

        Asked again where a leader is just being elected, or has moved; and where a partition has no answer and no error
        either, as librdkafka leaves one whose leader cannot be reached *(measured)*.
        """
        asked = {TopicPartition(topic.name, p): spec for p in range(topic.partitions)}
        doing = f"listing offsets of topic {topic.name}"
        deadline = time.monotonic() + self._timeout
        while True:
            futures = self._admin.list_offsets(asked, isolation_level=isolation, request_timeout=self._timeout)
            try:
                answers = {tp.partition: self._ask(doing, future).offset for tp, future in futures.items()}
                if OFFSET_INVALID not in answers.values():
                    return [answers[p] for p in range(topic.partitions)]
                if time.monotonic() > deadline:
                    unanswered = KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
                    raise translate(unanswered, doing, self.settings, self._complaints)
            except KafkaUnavailable as error:
                cause = error.__cause__
                moved = isinstance(cause, KafkaException) and cause.args[0].code() in LEADER_MOVED
                if not moved or time.monotonic() > deadline:
                    raise
            time.sleep(0.05)

    def await_stable(self, topic: Topic, ends: Sequence[int], limit: float, doing: str) -> None:
        """Wait until read_committed can see everything below `ends`.

        Raises:
            OpenTransaction: when a transaction still hides part of it after `limit` seconds.
        """
        deadline = time.monotonic() + limit
        told = False
        while True:
            stable = self.last_stable(topic)
            behind = {p: (stable[p], end) for p, end in enumerate(ends) if stable[p] < end}
            if not behind:
                return
            where = "; ".join(f"partition {p}: stable up to {s}, wanted {e}" for p, (s, e) in sorted(behind.items()))
            if time.monotonic() >= deadline:
                raise OpenTransaction(
                    f"{doing}: an open transaction on topic {topic.name} hides records ({where}); waited {limit:.0f} s. It "
                    "ends by itself at its transaction.timeout.ms; `kafka-transactions.sh find-hanging` names one that "
                    "does not. Then run again."
                )
            if not told:
                log.info("%s: waiting for an open transaction on topic %s (%s)", doing, topic.name, where)
                told = True
            time.sleep(0.05)
