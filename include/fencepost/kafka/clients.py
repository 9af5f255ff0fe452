"""The only module that creates confluent-kafka clients. `errors.py` says what their errors mean.

Every client gets a logger, because librdkafka would write to stderr. Every client also gets an error callback, because
librdkafka reports refused credentials and unreachable brokers only to this callback. So the error of a time-out can
name its cause.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from confluent_kafka import (
    Consumer,
    KafkaException,
)

from fencepost.errors import (
    SettingsError,
)
from fencepost.kafka.client_settings import TRANSACTION_TIMEOUT_MS, ClientSettings
from fencepost.kafka.errors import Complaints, RequiredRight
from fencepost.kafka.librdkafka import Producer

client_log = logging.getLogger("fencepost.kafka.librdkafka")
# librdkafka's own lines (a broken connection, several a second) add nothing to the errors. FENCEPOST_LOG=DEBUG shows
# them.
client_log.setLevel(logging.CRITICAL)

T = TypeVar("T")
STATISTICS_MS = 1000
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


@contextmanager
def _settings_refused(doing: str) -> Iterator[None]:
    """Raises SettingsError if librdkafka refuses a client's settings."""
    try:
        yield
    except (KafkaException, ValueError, TypeError, AttributeError, SystemError) as error:
        cause = error.args[0].str() if isinstance(error, KafkaException) else str(error)
        # librdkafka quotes a value that it refuses, and it may be a password under the wrong name.
        cause = re.sub(r'(alue) ".*" (for configuration property)', r"\1 \2", cause, flags=re.DOTALL)
        raise SettingsError(f"{doing}: librdkafka refuses the pipeline's kafka settings: {cause}.") from None


def make_client(make: Callable[..., T], config: dict[str, Any], complaints: Complaints, doing: str) -> T:
    """Returns a client with Fencepost's logger and error callback. Raises SettingsError if librdkafka refuses the
    settings.
    """
    with _settings_refused(doing):
        # log_level 3 is error: librdkafka writes its first lines to stderr, until its log queue is set.
        return make({"log_level": 3, **config, "error_cb": complaints}, logger=client_log)


def make_producer(settings: ClientSettings, transactional_id: str | None) -> tuple[Producer, Complaints]:
    """Returns a producer. A producer must be dropped after an error."""
    complaints = Complaints(
        *([RequiredRight("Write", "transactional id", transactional_id)] if transactional_id else [])
    )
    config: dict[str, Any] = {"log_level": 3, **PRODUCER_DEFAULTS, **settings.for_producer(), **PRODUCER_FIXED}
    if transactional_id is None:
        config.pop("transaction.timeout.ms", None)
    else:
        config["transactional.id"] = transactional_id
    doing = f"producer {transactional_id or 'without a transactional id'}"
    with _settings_refused(doing):
        return Producer(config, complaints, client_log), complaints


class ConsumerReports(Complaints):
    """The reports of a consumer's callbacks: errors, and the consumer's progress once a second.

    `fetched` has the next offset to fetch by partition, as far as it is known. The offset also passes aborted records
    and transaction markers, which give no message. All partitions of a consumer belong to one topic.
    """

    def __init__(self, *needs: RequiredRight) -> None:
        super().__init__(*needs)
        self.fetched: dict[int, int] = {}

    def take_statistics(self, statistics: str) -> None:
        """Receives librdkafka's statistics as JSON. A number that is not known yet is negative."""
        topics = json.loads(statistics)["topics"].values()
        known = {int(p): figures["next_offset"] for topic in topics for p, figures in topic["partitions"].items()}
        self.fetched = {partition: offset for partition, offset in known.items() if offset >= 0}


def make_consumer(
    settings: ClientSettings, group: str, *, committed_only: bool = True
) -> tuple[Consumer, ConsumerReports]:
    """Returns a consumer for assigned ranges, or for a group's offsets. The consumer never subscribes."""
    reports = ConsumerReports(RequiredRight("Read", "group", group))
    config = {
        "fetch.wait.max.ms": 20,  # all reads have an end; by default the broker waits half a second for more at each end
        # By default the consumer stops fetching for a second once this many records wait here.
        "fetch.queue.backoff.ms": 5,
        **settings.for_consumer(),
        "group.id": group,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed" if committed_only else "read_uncommitted",
        "statistics.interval.ms": STATISTICS_MS,
        "stats_cb": reports.take_statistics,
    }
    return make_client(Consumer, config, reports, f"consumer of group {group}"), reports
