"""The loader against a real broker: every flight is there once, in order, and a topic that holds records is left alone."""

from __future__ import annotations

import itertools
import json
from datetime import date

import pytest
from confluent_kafka import Producer

from fencepost_stack.broken_flights import BROKEN, broken_flights
from fencepost_stack.broker import Broker
from fencepost_stack.flights import LoadedFlights, load_flights
from kafka_tools import create_topic, produce
from oracle.flights_truth import ExpectedRecord, expected_records
from oracle.reader import ActualRecord, compare, read_topic

pytestmark = pytest.mark.deep

DAYS = [date(2013, 1, 1), date(2013, 1, 2)]
VALUES = {value for _, _, value in BROKEN}
LOADED = LoadedFlights(flights=842 + 943, broken=2, added=True)


def load(broker: Broker, topic: str) -> LoadedFlights:
    return load_flights({"bootstrap.servers": broker.bootstrap}, DAYS, topic)


def identity(value: dict[str, object]) -> dict[str, object]:
    return {name: value[name] for name in ("month", "day", "carrier", "flight", "origin", "dep_delay", "tailnum")}


def differences(broker: Broker, topic: str, days: list[date]) -> list[object]:
    """The topic against the CSV: keys, partitions, order under each key, and that each flight is there once."""
    expected = [ExpectedRecord(r.key, identity(r.value), r.partition) for r in expected_records(days)]
    actual = [
        ActualRecord(r.partition, r.offset, r.key, json.dumps(identity(json.loads(r.value or b"{}"))).encode())
        for r in read_topic(broker.bootstrap, topic)
        if r.value not in VALUES
    ]
    return list(compare(expected, actual))


def test_records_stand_in_order_of_scheduled_departure_and_carry_it(broker: Broker) -> None:
    topic = "flights-in-order"
    assert load(broker, topic) == LOADED
    assert differences(broker, topic, DAYS) == []
    by_partition: dict[int, list[int]] = {}
    for record in read_topic(broker.bootstrap, topic):
        by_partition.setdefault(record.partition, []).append(record.timestamp)
    assert sorted(by_partition) == [0, 1, 2, 3]
    assert all(timestamps == sorted(timestamps) for timestamps in by_partition.values())
    broken = [tuple(record) for day in DAYS for record in broken_flights(day)]
    expected = sorted(record.value["scheduled_departure_ms"] for record in expected_records(DAYS))
    expected = sorted([*expected, *(timestamp for timestamp, _, _ in broken)])
    assert sorted(itertools.chain(*by_partition.values())) == expected
    found = [(r.timestamp, r.key, r.value) for r in read_topic(broker.bootstrap, topic) if r.value in VALUES]
    assert sorted(found) == broken


def test_a_topic_that_holds_records_is_left_alone(broker: Broker) -> None:
    topic = "flights-twice"
    assert [load(broker, topic).added for _ in range(2)] == [True, False]
    assert differences(broker, topic, DAYS) == []
    create_topic(broker.bootstrap, "flights-foreign", 4, **{"retention.ms": "-1"})
    produce(broker.bootstrap, "flights-foreign", [(b"N1", {"flight": 1}, 0, 1_357_063_200_000)])
    assert not load(broker, "flights-foreign").added
    assert len(read_topic(broker.bootstrap, "flights-foreign")) == 1


def test_a_load_that_was_interrupted_leaves_no_record_and_the_next_loads_all(broker: Broker) -> None:
    topic = "flights-interrupted"
    create_topic(broker.bootstrap, topic, 4, **{"retention.ms": "-1"})
    interrupted = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"fencepost-load.{topic}"})
    interrupted.init_transactions(30)
    interrupted.begin_transaction()
    interrupted.produce(topic, b"{}", b"N1")
    assert interrupted.flush(30) == 0
    assert load(broker, topic) == LOADED
    assert differences(broker, topic, DAYS) == []
