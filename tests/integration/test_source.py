"""How Spark's connector reads ranges."""

from __future__ import annotations

from typing import Any

from fencepost.kafka.client_settings import ClientSettings
from fencepost.model import OffsetRange
from fencepost.rows.source import FETCH_MAX_WAIT_MS, read_ranges
from fencepost_stack.broker import Broker
from kafka_tools import create_topic, produce


def test_no_fetch_behind_the_last_record_waits_for_more(spark: Any, broker: Broker) -> None:
    """By default a task whose range ends with its partition takes half a second more. A clock would tell it only on a machine
    that does nothing else, so this asks what the task's consumer is told."""
    create_topic(broker.bootstrap, "ends-here", 1)
    produce(broker.bootstrap, "ends-here", [(b"k", {"n": n}, 0, 1) for n in range(3)])
    settings = ClientSettings({"bootstrap.servers": broker.bootstrap})
    frame = read_ranges(spark, settings, [OffsetRange(topic="ends-here", partition=0, start=0, end=3)], headers=False)
    (partition,) = frame._jdf.queryExecution().toRdd().partitions()
    told = partition.inputPartitions().head().executorKafkaParams()
    assert int(told.get("fetch.max.wait.ms")) == FETCH_MAX_WAIT_MS <= 20
    assert frame.count() == 3
