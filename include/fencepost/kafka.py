"""The door to Kafka: the one module that makes confluent-kafka clients. What their errors mean stands in `kafka_errors.py`.

Every client gets a logger (librdkafka writes to stderr otherwise) and an error callback, so that a time-out can say
what was really wrong: librdkafka reports refused credentials and absent brokers only there.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from fencepost.client_settings import CONSUMER_ONLY, PRODUCER_ONLY
from fencepost.errors import (
    AccessDenied,
    FencepostError,
    KafkaUnavailable,
    OpenTransaction,
    SettingsError,
    TopicMissing,
)
from fencepost.kafka_errors import COORDINATOR_MOVED, LEADER_MOVED, Complaints, translate, translated
from fencepost.librdkafka import Producer
from fencepost.settings import Pipeline

log = logging.getLogger("fencepost.kafka")
client_log = logging.getLogger("fencepost.librdkafka")
# librdkafka's own lines (a broken connection, several a second) tell nothing that an error would not. FENCEPOST_LOG=DEBUG
# shows them.
client_log.setLevel(logging.CRITICAL)

REQUEST_TIMEOUT = 30.0  # seconds for one answer of the cluster
FIRST_CONTACT = 10.0  # seconds for any broker to be reached at all; one that restarts takes less
TELL_AFTER = 1.0  # seconds
TRANSACTION_TIMEOUT_MS = 600_000  # below the broker's default limit of 900,000

PRODUCER_DEFAULTS: dict[str, Any] = {
    "compression.type": "lz4",
    "linger.ms": 20,
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": 200_000,
    "queue.buffering.max.kbytes": 131_072,
    "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
}
# The partitioner of Kafka's Java client; librdkafka's own default places most keys elsewhere.
PRODUCER_FIXED: dict[str, Any] = {
    "enable.idempotence": True,
    "acks": "all",
    "partitioner": "murmur2_random",
}
T = TypeVar("T")


@dataclass
class Settings:
    """Resolved librdkafka settings of a pipeline, secrets included: never printed, never logged."""

    values: dict[str, str]

    def __repr__(self) -> str:
        return f"Settings({', '.join(sorted(self.values))})"

    @property
    def bootstrap(self) -> str:
        """Where the cluster is, for messages."""
        return self.values.get("bootstrap.servers", "")

    def common(self) -> dict[str, str]:
        """What every kind of client understands."""
        return {k: v for k, v in self.values.items() if k not in PRODUCER_ONLY | CONSUMER_ONLY}

    def for_producer(self) -> dict[str, str]:
        """Without what only consumers understand."""
        return {k: v for k, v in self.values.items() if k not in CONSUMER_ONLY}

    def for_consumer(self) -> dict[str, str]:
        """Without what only producers understand."""
        return {k: v for k, v in self.values.items() if k not in PRODUCER_ONLY}


def settings_of(pipeline: Pipeline) -> Settings:
    """The pipeline's Kafka settings, in the clear, for clients only."""
    values = {name: secret.get_secret_value() for name, secret in pipeline.kafka.items()}
    if not values.get("bootstrap.servers"):
        raise SettingsError(
            f"{pipeline.folder / 'pipeline.yaml'}: kafka.bootstrap.servers: required, and missing; "
            "write ${KAFKA_BOOTSTRAP} to take it from the environment."
        )
    return Settings(values)


@contextmanager
def _settings_refused(doing: str) -> Iterator[None]:
    """Raises SettingsError where librdkafka refuses what a client is made of."""
    try:
        yield
    except (KafkaException, ValueError, TypeError, AttributeError, SystemError) as error:
        cause = error.args[0].str() if isinstance(error, KafkaException) else str(error)
        # librdkafka quotes a value it refuses, and a password may stand under the wrong name.
        cause = re.sub(r'(alue) ".*" (for configuration property)', r"\1 \2", cause, flags=re.DOTALL)
        raise SettingsError(f"{doing}: librdkafka refuses the pipeline's kafka settings: {cause}.") from None


def _client(make: Callable[..., T], config: dict[str, Any], complaints: Complaints, doing: str) -> T:
    with _settings_refused(doing):
        # log_level 3 is error: what librdkafka says before its log queue is set goes to stderr unasked.
        return make({"log_level": 3, **config, "error_cb": complaints}, logger=client_log)


def make_producer(settings: Settings, transactional_id: str | None) -> tuple[Producer, Complaints]:
    """A producer. One that saw an error is dropped, never used again."""
    complaints = Complaints()
    config: dict[str, Any] = {"log_level": 3, **PRODUCER_DEFAULTS, **settings.for_producer(), **PRODUCER_FIXED}
    if transactional_id is None:
        config.pop("transaction.timeout.ms", None)
    else:
        config["transactional.id"] = transactional_id
    doing = f"producer {transactional_id or 'without a transactional id'}"
    with _settings_refused(doing):
        return Producer(config, complaints, client_log), complaints


def make_consumer(settings: Settings, group: str, *, committed_only: bool = True) -> tuple[Consumer, Complaints]:
    """A consumer that is never subscribed: it reads assigned ranges, or a group's offsets."""
    complaints = Complaints()
    config = {
        "fetch.wait.max.ms": 20,  # reads here have an end; the default waits half a second for more at each
        **settings.for_consumer(),
        "group.id": group,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed" if committed_only else "read_uncommitted",
    }
    return _client(Consumer, config, complaints, f"consumer of group {group}"), complaints


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

    def __init__(self, settings: Settings, timeout: float = REQUEST_TIMEOUT) -> None:
        self.settings = settings
        self._timeout = timeout
        self._complaints = Complaints()
        self._reached = False
        self._admin: AdminClient = _client(AdminClient, dict(settings.common()), self._complaints, "admin client")

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


def read_until(
    consumer: Consumer,
    complaints: Complaints,
    settings: Settings,
    ends: Mapping[int, int],
    doing: str,
    timeout: float = REQUEST_TIMEOUT,
) -> Iterator[Message]:
    """Messages of the assigned partitions (of one topic) below `ends`, until every partition has reached its end.

    A partition whose last offsets are markers or aborted records ends with Kafka's end-of-partition event. A partition
    that is unassigned meanwhile counts as read.

    Raises:
        KafkaUnavailable: nothing came for `timeout` seconds.
    """
    waiting = dict(ends)
    deadline = time.monotonic() + timeout
    while waiting:
        first = consumer.poll(1.0)
        if first is not None:
            deadline = time.monotonic() + timeout
        elif time.monotonic() > deadline or complaints.denied is not None:
            raise translate(KafkaError(KafkaError._TIMED_OUT), doing, settings, complaints)
        for message in [] if first is None else [first, *consumer.consume(10_000, timeout=0)]:
            partition, offset, error = message.partition() or 0, message.offset() or 0, message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise translate(error, doing, settings, complaints)
            if partition not in waiting:
                continue
            if offset < waiting[partition] and error is None:
                yield message
            if offset + (error is None) >= waiting[partition]:
                del waiting[partition]
        assigned = {tp.partition for tp in consumer.assignment()}
        waiting = {p: end for p, end in waiting.items() if p in assigned}


def committed_offsets(
    settings: Settings, group: str, partitions: Sequence[TopicPartition], doing: str, *, settled: bool = True
) -> dict[tuple[str, int], TopicPartition]:
    """A group's committed offsets with their metadata; where `settled`, none that a transaction is about to change.

    Partitions are named one by one and read_committed asks for stable offsets: without both, an offset just committed
    in a transaction can be left out in silence. UNSTABLE_OFFSET_COMMIT is asked again, by librdkafka and here, until the
    request's time is up: as long as a dead producer's transaction is open. Not `settled`, nothing is waited for.
    """
    consumer, complaints = make_consumer(settings, group, committed_only=settled)
    try:
        deadline = time.monotonic() + REQUEST_TIMEOUT
        while True:
            try:
                answered = consumer.committed(list(partitions), timeout=REQUEST_TIMEOUT)
                unstable = [tp.error for tp in answered if tp.error is not None]
                if not unstable:
                    return {(tp.topic, tp.partition): tp for tp in answered if tp.offset >= 0}
                error = unstable[0]
            except KafkaException as raised:
                error = raised.args[0]
            again = error.code() in {KafkaError.UNSTABLE_OFFSET_COMMIT, *COORDINATOR_MOVED} or error.retriable()
            if not again or time.monotonic() > deadline:
                raise translate(error, doing, settings, complaints)
            time.sleep(0.05)
    finally:
        consumer.close()
