"""Requests to the cluster about topics, offsets and settings, and the creation of topics."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from concurrent.futures import wait
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
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
    NeedsOperator,
    OpenTransaction,
    SettingsError,
    TopicMissing,
)
from fencepost.kafka.client_settings import ClientSettings
from fencepost.kafka.clients import make_client, make_consumer
from fencepost.kafka.errors import (
    COORDINATOR_MOVED,
    LEADER_MOVED,
    NOT_AUTHORIZED,
    Complaints,
    RequiredRight,
    not_authorized,
    translate,
    translated,
)
from fencepost.kafka.offsets import REQUEST_TIMEOUT, read_until
from fencepost.model import PartitionId, by_partition, describe_timestamp, time_of

log = logging.getLogger("fencepost.kafka.clients")
FIRST_CONTACT = 10.0  # seconds to reach any broker; a broker's restart takes less
TELL_AFTER = 1.0  # seconds
CLUSTER = "kafka-cluster"  # Kafka's name for the only resource of its kind
LEARNT = 5.0  # seconds after which every broker certainly knows a new topic
T = TypeVar("T")


@dataclass(frozen=True)
class Topic:
    """A topic as the cluster describes it. The id changes when the topic is deleted and created again."""

    name: str
    id: str
    partitions: int


@dataclass(frozen=True)
class Replicas:
    """The smallest number of replicas of any partition of a topic, and the smallest number of replicas in sync."""

    replicas: int
    in_sync: int


def offsets_by_partition(topics: Iterable[Topic], offsets: Callable[[Topic], Sequence[int]]) -> dict[PartitionId, int]:
    """Returns the offsets that the function gives for the partitions of each topic, such as `Cluster.earliest`."""
    return {place: offset for topic in topics for place, offset in by_partition(topic.name, offsets(topic)).items()}


class Cluster:
    """Sends requests to the cluster, and creates topics. Keeps one admin client as long as it lives.

    `timeout` is the longest wait for an answer, in seconds.
    """

    def __init__(self, settings: ClientSettings, timeout: float = REQUEST_TIMEOUT) -> None:
        self.settings = settings
        self.timeout = timeout
        self._complaints = Complaints()
        self._reached = False
        self._admin: AdminClient = make_client(AdminClient, dict(settings.common()), self._complaints, "admin client")

    def _ask(self, doing: str, future: Any, *needs: RequiredRight) -> Any:
        """Returns the answer of one request. A time-out in this class raises the same error as a time-out in
        librdkafka.

        The wait is short while no broker has been reached and no connection succeeds. The wait ends at once if the host
        name is unknown.
        """
        began = time.monotonic()
        warned = False
        while not wait([future], timeout=0.2).done:
            self._admin.poll(0)  # serves the error callback, which alone receives refused credentials
            waited = time.monotonic() - began
            absent = self._complaints.unreachable and not self._reached
            limit = min(self.timeout, FIRST_CONTACT) if absent else self.timeout
            if self._complaints.denied is not None or waited > limit or (absent and self._complaints.unresolved):
                raise translate(KafkaError(KafkaError._TIMED_OUT), doing, self.settings, self._complaints, needs)
            if absent and not warned and waited > TELL_AFTER:
                warned = True
                log.warning(
                    "waiting for Kafka at %s, %.0f s at most: no broker answers", self.settings.bootstrap, limit
                )
        with translated(doing, self.settings, self._complaints, *needs):
            answer = future.result()
        self._reached = True
        return answer

    def describe(self, topic: str) -> Topic:
        """Returns the id and the number of partitions of a topic.

        Raises:
            TopicMissing: the topic does not exist. A broker may learn of a new topic late, so the request is repeated
                for a few seconds.
            AccessDenied: the user may not see the topic, which may or may not exist.
        """
        return self._once_known(lambda: self._describe(topic), LEARNT)

    def find(self, topic: str) -> Topic | None:
        """Returns the topic, or None if the answering broker does not know it. Only callers that show the topic or
        create it may use this method.
        """
        try:
            return self._describe(topic)
        except TopicMissing:
            return None

    def _describe(self, topic: str) -> Topic:
        doing = f"describing topic {topic}"
        futures = self._admin.describe_topics(TopicCollection([topic]), request_timeout=self.timeout)
        found = self._ask(doing, futures[topic], RequiredRight("Describe", "topic", topic))
        return Topic(topic, str(found.topic_id), len(found.partitions))

    def topics(self) -> list[str]:
        """Returns the names of the topics that this user may see, in order. Kafka's own topics are left out."""
        with translated("listing topics", self.settings, self._complaints):
            listed = self._admin.list_topics(timeout=self.timeout).topics
        return sorted(name for name in listed if not name.startswith("__"))

    def allowed(self, topics: Iterable[str]) -> dict[str, frozenset[str]]:
        """Returns the operations that this user may do on each topic, by Kafka's names. The set is empty for a topic
        that the user may not see.

        Topics that do not exist are left out, and so are topics whose rights an old cluster does not report.
        """
        asked = self._admin.describe_topics(
            TopicCollection(list(topics)), include_authorized_operations=True, request_timeout=self.timeout
        )
        found: dict[str, frozenset[str]] = {}
        for topic, future in asked.items():
            try:
                operations = self._ask(f"asking what this user may do with topic {topic}", future).authorized_operations
            except TopicMissing:
                continue
            except AccessDenied as error:
                if not _is_about_topics(error):
                    raise
                found[topic] = frozenset()
            else:
                if operations:
                    found[topic] = frozenset(_plain(operation.name) for operation in operations)
        return found

    def copies(self, topic: str) -> Replicas:
        """Returns the replicas of a topic. Raises TopicMissing if the topic does not exist."""
        futures = self._admin.describe_topics(TopicCollection([topic]), request_timeout=self.timeout)
        parts = self._ask(f"describing topic {topic}", futures[topic]).partitions
        return Replicas(min(len(p.replicas) for p in parts), min(len(p.isr) for p in parts))

    @cached_property
    def id(self) -> str:
        """Returns the cluster's id."""
        answer = self._admin.describe_cluster(request_timeout=self.timeout)
        return str(self._ask("describing the cluster", answer).cluster_id)

    def brokers(self) -> int:
        """Returns the number of brokers in the cluster now. Every call sends a new request."""
        answer = self._admin.describe_cluster(request_timeout=self.timeout)
        return len(self._ask("describing the cluster", answer).nodes)

    def rights(self, resource: str, name: str) -> frozenset[str] | None:
        """Returns the operations that this user may do on a `topic`, a `group` or the `cluster`, by Kafka's names.
        Returns None if Kafka does not report them.

        Raises:
            AccessDenied: the user may do nothing.
            TopicMissing: there is no such topic, as far as the user may know.
        """
        options: dict[str, Any] = {"include_authorized_operations": True, "request_timeout": self.timeout}
        ask: dict[str, Callable[[], Any]] = {
            "topic": lambda: self._admin.describe_topics(TopicCollection([name]), **options)[name],
            "group": lambda: self._admin.describe_consumer_groups([name], **options)[name],
            "cluster": lambda: self._admin.describe_cluster(**options),
        }
        doing = f"asking for our rights on {resource} {name}".rstrip()
        operations = self._settled(lambda: self._ask(doing, ask[resource]()), COORDINATOR_MOVED).authorized_operations
        return (
            None
            if operations is None
            else frozenset(operation.name.title().replace("_", "") for operation in operations)
        )

    def _settled(self, ask: Callable[[], T], moving: Container[int]) -> T:
        """Returns the answer. A request that fails with one of the codes in `moving` is repeated, because a leader or a
        coordinator is being elected or has moved.
        """
        deadline = time.monotonic() + self.timeout
        while True:
            try:
                return ask()
            except KafkaUnavailable as error:
                cause = error.__cause__
                moved = isinstance(cause, KafkaException) and cause.args[0].code() in moving
                if not moved or time.monotonic() > deadline:
                    raise
            time.sleep(0.05)

    def ensure_topic(self, topic: str, partitions: int, config: Mapping[str, str] | None = None) -> Topic:
        """Returns the topic, and creates it if it is missing. A new topic has the cluster's default replication factor.

        Raises:
            AccessDenied: the topic is missing and this user may not create it, or this user may not see it.
        """
        if (known := self.find(topic)) is not None:
            return known
        self._create(NewTopic(topic, num_partitions=partitions, replication_factor=-1, config=dict(config or {})))
        return self._once_known(lambda: self._describe(topic))

    def check_may_create(self, topic: str) -> None:
        """Checks that this user may create a missing topic. The cluster judges the request, and creates nothing.

        Raises:
            AccessDenied: the user may not.
            NeedsOperator, SettingsError: the cluster would refuse it to anybody, for example by a policy.
        """
        self._create(NewTopic(topic, num_partitions=1, replication_factor=-1), validate_only=True)

    def _create(self, new: NewTopic, *, validate_only: bool = False) -> None:
        """Creates the topic, unless another run has created it."""
        name = new.topic
        futures = self._admin.create_topics([new], request_timeout=self.timeout, validate_only=validate_only)
        try:
            self._ask(f"creating topic {name}, which is missing", futures[name], RequiredRight("Create", "topic", name))
        except FencepostError as error:
            cause = error.__cause__
            if not isinstance(cause, KafkaException) or cause.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def delete_topic(self, topic: str) -> None:
        """Deletes a topic, and waits until it is gone. Does nothing if there is none.

        Raises:
            AccessDenied: this user may not.
            KafkaRefused: the cluster deletes no topics.
        """
        futures = self._admin.delete_topics([topic], request_timeout=self.timeout)
        try:
            self._ask(f"deleting topic {topic}", futures[topic], RequiredRight("Delete", "topic", topic))
        except TopicMissing:
            return
        deadline = time.monotonic() + self.timeout
        while self.find(topic) is not None and time.monotonic() < deadline:
            time.sleep(0.05)

    def groups(self) -> list[str]:
        """Returns the consumer groups that this user may see, in order.

        Raises:
            KafkaUnavailable: a broker does not answer, so some groups may be missing.
        """
        doing = "listing consumer groups"
        listed = self._ask(doing, self._admin.list_consumer_groups(request_timeout=self.timeout))
        for error in listed.errors:
            with translated(doing, self.settings, self._complaints):
                raise error
        return sorted(group.group_id for group in listed.valid)

    def delete_group(self, group: str) -> None:
        """Deletes a consumer group and its offsets. Does nothing if there is none.

        Raises:
            AccessDenied: this user may not.
            NeedsOperator: a consumer is in it.
        """
        need = RequiredRight("Delete", "group", group)

        def ask() -> None:
            futures = self._admin.delete_consumer_groups([group], request_timeout=self.timeout)
            self._ask(f"deleting group {group}", futures[group], need)

        try:
            self._settled(ask, COORDINATOR_MOVED)
        except FencepostError as error:
            cause = error.__cause__
            code = cause.args[0].code() if isinstance(cause, KafkaException) else None
            if code == KafkaError.NON_EMPTY_GROUP:
                raise NeedsOperator(f"group {group}: a consumer is in it. Stop it, then run again.") from None
            if code != KafkaError.GROUP_ID_NOT_FOUND:
                raise

    def grow_topic(self, topic: Topic, partitions: int) -> Topic:
        """Returns the topic after it was given this number of partitions, which is at least the present number. Once
        this function returns, the answering broker knows the new partitions.
        """
        doing = f"adding partitions to topic {topic.name}, which has {topic.partitions}, up to {partitions}"
        new = NewPartitions(topic.name, partitions)
        futures = self._admin.create_partitions([new], request_timeout=self.timeout)
        refused: SettingsError | None = None
        try:
            self._ask(doing, futures[topic.name], RequiredRight("Alter", "topic", topic.name))
        except (
            SettingsError
        ) as error:  # the controller has them already, because another run added them after `topic` was read
            refused = error
        deadline = time.monotonic() + self.timeout
        while (grown := self.describe(topic.name)).partitions < partitions:
            if time.monotonic() > deadline:
                unseen = translate(KafkaError(KafkaError._TIMED_OUT), doing, self.settings, self._complaints)
                raise refused or unseen
            time.sleep(0.05)
        return grown

    def topic_config(self, topic: str, name: str) -> str:
        """Returns one setting of an existing topic."""
        return self._once_known(lambda: self._config(ConfigResource(ResourceType.TOPIC, topic), name))

    def topic_configs(self, topic: str) -> dict[str, str]:
        """Returns all settings of an existing topic, by name. Raises AccessDenied without the right to read them."""
        return self._once_known(lambda: self._configs(ConfigResource(ResourceType.TOPIC, topic), "all"))

    def _once_known(self, ask: Callable[[], T], limit: float | None = None) -> T:
        """Returns the answer about a topic or a partition that may just have been created. The request is repeated for
        a moment, because a broker may learn of a new topic late.
        """
        deadline = time.monotonic() + (self.timeout if limit is None else limit)
        while True:
            try:
                return ask()
            except TopicMissing:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def broker_config(self, name: str, default: str) -> str:
        """Returns one setting of a broker, or the default without the right to read the setting."""
        doing = f"reading broker setting {name}"
        brokers = self._ask(doing, self._admin.describe_cluster(request_timeout=self.timeout)).nodes
        if not brokers:  # the cluster is starting
            raise translate(KafkaError(KafkaError.BROKER_NOT_AVAILABLE), doing, self.settings, self._complaints)
        try:
            return self._config(ConfigResource(ResourceType.BROKER, brokers[0].id_string), name) or default
        except AccessDenied:
            return default

    def marks_kept_for(self) -> timedelta:
        """Returns how long a mark is certainly kept. A mark depends on two retentions of the broker, and the result is
        the shorter one.
        """
        offsets = timedelta(minutes=int(self.broker_config("offsets.retention.minutes", "10080")))
        ids = timedelta(milliseconds=int(self.broker_config("transactional.id.expiration.ms", "604800000")))
        return min(offsets, ids)

    def _config(self, resource: ConfigResource, name: str) -> str:
        return self._configs(resource, name).get(name, "")

    def _configs(self, resource: ConfigResource, which: str) -> dict[str, str]:
        futures = self._admin.describe_configs([resource], request_timeout=self.timeout)
        kind = "topic" if resource.restype is ResourceType.TOPIC else "cluster"
        need = RequiredRight("DescribeConfigs", kind, resource.name if kind == "topic" else CLUSTER)
        entries = self._ask(f"reading settings of {kind} {need.name} ({which})", futures[resource], need)
        return {name: str(entry.value) for name, entry in entries.items() if entry.value is not None}

    def earliest(self, topic: Topic) -> list[int]:
        """Returns the first offset that each partition still has."""
        return self._offsets(topic, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)

    def high_watermarks(self, topic: Topic) -> list[int]:
        """Returns the end of each partition, open transactions included."""
        return self._offsets(topic, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)

    def last_stable(self, topic: Topic) -> list[int]:
        """Returns the end of each partition for a read_committed reader. No open transaction begins below it."""
        return self._offsets(topic, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)

    def first_at_or_after(
        self,
        topic: Topic,
        milliseconds: int,
        group: str,
        starts: Sequence[int] | None = None,
        until: int | None = None,
    ) -> list[int | None]:
        """Returns the offset of each partition's first committed record with at least this timestamp, or None if there
        is none. The search begins at `starts`.

        Records with a timestamp after `until` do not count. The first such record in each partition is logged.

        Kafka's own search by timestamp also finds aborted records and transaction markers, whose timestamps are times
        of the clock. So this method reads on from that offset until a record has the timestamp. If records are in order
        of time, the first record that is read has the timestamp. After a record that does not count, the method may
        read as many records as an interval has.
        """
        found = self._offsets(topic, OffsetSpec.for_timestamp(milliseconds), IsolationLevel.READ_COMMITTED)
        stable = self.last_stable(topic)
        result: list[int | None] = [None] * topic.partitions
        begin = {p: max(o, starts[p] if starts else 0) for p, o in enumerate(found) if o >= 0}
        begin = {p: o for p, o in begin.items() if o < stable[p]}
        ahead: dict[int, tuple[int, int]] = {}
        if not begin:
            return result
        consumer, complaints = make_consumer(self.settings, group)
        try:
            consumer.assign([TopicPartition(topic.name, p, o) for p, o in begin.items()])
            doing = f"searching topic {topic.name} by timestamp"
            ends = {p: stable[p] for p in begin}
            for message in read_until(consumer, complaints, self.settings, ends, doing, self.timeout):
                partition, at = message.partition() or 0, message.timestamp()[1]
                if result[partition] is None and until is not None and at > until:
                    ahead.setdefault(partition, (message.offset() or 0, at))
                elif result[partition] is None and at >= milliseconds:
                    result[partition] = message.offset()
                    consumer.incremental_unassign([TopicPartition(topic.name, partition)])
                    begin.pop(partition)
                    if not begin:
                        break
        finally:
            consumer.close()
        for p, (offset, at) in sorted(ahead.items()):
            log.warning(
                "%s, partition %d: offset %d is dated ahead of the clock (%s)", doing, p, offset, describe_timestamp(at)
            )
        return result

    def first_stamped(self, topic: Topic, moment: datetime) -> list[int]:
        """Returns the first offset of each partition with a timestamp at or after this time, or the stable end of the
        partition. The method uses only Kafka's search by timestamp.

        That search also finds aborted records and markers, so `first_at_or_after` may find a later offset.
        """
        milliseconds = max(0, round(moment.timestamp() * 1000))
        found = self._offsets(topic, OffsetSpec.for_timestamp(milliseconds), IsolationLevel.READ_COMMITTED)
        return [end if offset < 0 else offset for offset, end in zip(found, self.last_stable(topic), strict=True)]

    def record_times(self, topic: Topic, offsets: Mapping[int, int], group: str) -> dict[int, datetime]:
        """Returns the timestamp of the first record at or after the offset in each partition, committed or not.
        Partitions without such a record are left out.

        The consumer names a group that its user may read, and does not join the group.
        """
        ends = self.high_watermarks(topic)
        waiting = {p: ends[p] for p, offset in offsets.items() if offset < ends[p]}
        found: dict[int, datetime] = {}
        if not waiting:
            return found
        small = {
            **self.settings.values,
            "fetch.message.max.bytes": "1",
        }  # even then a broker sends one batch of records
        small.pop("max.partition.fetch.bytes", None)
        consumer, complaints = make_consumer(ClientSettings(small), group, committed_only=False)
        try:
            consumer.assign([TopicPartition(topic.name, p, offsets[p]) for p in waiting])
            doing = f"reading the timestamps of records of topic {topic.name}"
            for message in read_until(consumer, complaints, self.settings, waiting, doing, self.timeout):
                partition = message.partition() or 0
                if partition not in found:
                    found[partition] = time_of(message.timestamp()[1])
                    consumer.incremental_unassign([TopicPartition(topic.name, partition)])
                    if len(found) == len(waiting):
                        break
        finally:
            consumer.close()
        return found

    def largest_times(self, topic: Topic) -> dict[int, tuple[int, int]]:
        """Returns the offset and the timestamp (in milliseconds) of the record with the largest timestamp, for each
        partition that has records.
        """
        stamps = self._listed(topic, OffsetSpec.max_timestamp(), IsolationLevel.READ_UNCOMMITTED)
        return {p: (one.offset, one.timestamp) for p, one in enumerate(stamps) if one.offset >= 0}

    def _offsets(self, topic: Topic, spec: OffsetSpec, isolation: IsolationLevel) -> list[int]:
        return [one.offset for one in self._listed(topic, spec, isolation)]

    def _listed(self, topic: Topic, spec: OffsetSpec, isolation: IsolationLevel) -> list[Any]:
        """Returns the answer for each partition.

        The request is repeated if a leader is being elected, has moved, or does not know the topic yet. The request is
        also repeated if a partition has neither an answer nor an error, because librdkafka gives neither if the leader
        cannot be reached *(measured)*.
        """
        asked = {TopicPartition(topic.name, p): spec for p in range(topic.partitions)}
        doing, need = f"listing offsets of topic {topic.name}", RequiredRight("Describe", "topic", topic.name)

        def ask() -> list[Any]:
            futures = self._admin.list_offsets(asked, isolation_level=isolation, request_timeout=self.timeout)
            answers = {tp.partition: self._ask(doing, future, need) for tp, future in futures.items()}
            if any(answer.offset == OFFSET_INVALID for answer in answers.values()):
                with translated(doing, self.settings, self._complaints):
                    raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
            return [answers[p] for p in range(topic.partitions)]

        return self._once_known(lambda: self._settled(ask, LEADER_MOVED))

    def await_stable(self, topic: Topic, ends: Sequence[int], limit: float, doing: str) -> None:
        """Waits until a read_committed reader sees everything below `ends`.

        Raises:
            OpenTransaction: after `limit` seconds a transaction still hides records below `ends`.
        """
        deadline = time.monotonic() + limit
        warned = False
        while True:
            stable = self.last_stable(topic)
            behind = {p: (stable[p], end) for p, end in enumerate(ends) if stable[p] < end}
            if not behind:
                return
            where = "; ".join(f"partition {p}: stable up to {s}, wanted {e}" for p, (s, e) in sorted(behind.items()))
            if time.monotonic() >= deadline:
                raise OpenTransaction(
                    f"{doing}: an open transaction on topic {topic.name} hides records ({where}); waited {limit:.0f} "
                    "s. The transaction ends by itself after its transaction.timeout.ms; `kafka-transactions.sh "
                    "find-hanging` names a transaction that does not end. Then run again."
                )
            if not warned:
                log.info("%s: waiting for an open transaction on topic %s (%s)", doing, topic.name, where)
                warned = True
            time.sleep(0.05)


def check_allowed(cluster: Cluster, needs: Iterable[RequiredRight], doing: str) -> None:
    """Checks that the user has these rights on topics, as far as the cluster reports them. A missing topic needs no
    rights yet.

    Raises:
        AccessDenied: names all missing rights.
    """
    needs = list(needs)
    allowed = cluster.allowed(dict.fromkeys(need.name for need in needs))
    lacking = [n for n in needs if n.name in allowed and _plain(n.operation) not in allowed[n.name]]
    if lacking:
        raise not_authorized(f"{doing}: Kafka at {cluster.settings.bootstrap} refuses access.", lacking)


def _plain(operation: str) -> str:
    return operation.replace("_", "").lower()


def _is_about_topics(error: AccessDenied) -> bool:
    cause = error.__cause__
    return isinstance(cause, KafkaException) and NOT_AUTHORIZED.get(cause.args[0].code()) == "topic"
