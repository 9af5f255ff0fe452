"""The loader against a real broker: however often, however interrupted, every flight is there once."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

import pytest
from confluent_kafka import Producer

from fencepost.errors import NeedsOperator, OpenTransaction
from fencepost.local import loader
from fencepost.local.broken_flights import BROKEN, broken_flights
from fencepost.local.broker import Broker
from fencepost.local.flights import LoadSummary, load_flights
from kafka_tools import create_topic, produce
from oracle.flights_truth import ExpectedRecord, expected_records
from oracle.reader import ActualRecord, compare, read_topic

pytestmark = pytest.mark.deep

DAYS = [date(2013, 1, 1), date(2013, 1, 2)]
FLIGHTS = 842 + 943
VALUES = {value for _, _, value in BROKEN}
LOAD = """
import sys
from datetime import date
from fencepost.local.flights import load_flights
load_flights(sys.argv[1], days=[date(2013, 1, 1), date(2013, 1, 2)], topic=sys.argv[2], broken=True)
"""


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


def broken_there(broker: Broker, topic: str) -> list[tuple[int, bytes | None, bytes | None]]:
    """The broken records of the topic by time: timestamp, key, value."""
    read = [(r.timestamp, r.key, r.value) for r in read_topic(broker.bootstrap, topic)]
    return sorted(record for record in read if record[2] in VALUES)


def broken_of(days: list[date]) -> list[tuple[int, bytes, bytes]]:
    return [tuple(record) for day in days for record in broken_flights(day)]


def start_load(broker: Broker, topic: str, failpoint: str, folder: Path) -> subprocess.Popen[str]:
    """A load in a process of its own, in which something goes wrong."""
    environment = {**os.environ, "FENCEPOST_FAILPOINTS": failpoint, "FENCEPOST_FAILPOINT_DIR": str(folder)}
    command = [sys.executable, "-c", LOAD, broker.bootstrap, topic]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


def test_a_second_load_adds_nothing(broker: Broker) -> None:
    topic = "flights-twice"
    seen: list[tuple[date, int, int, bool]] = []
    for _ in range(2):
        load_flights(broker.bootstrap, days=DAYS, topic=topic, broken=True, progress=lambda *day: seen.append(day))
    assert seen == [
        (DAYS[0], 842, 1, True),
        (DAYS[1], 943, 1, True),
        (DAYS[0], 842, 1, False),
        (DAYS[1], 943, 1, False),
    ]
    assert differences(broker, topic, DAYS) == []
    assert broken_there(broker, topic) == broken_of(DAYS)


@pytest.mark.parametrize("broken", [True, False])
def test_a_day_stays_as_it_is_whether_it_was_loaded_with_broken_records_or_without(
    broker: Broker, broken: bool
) -> None:
    topic, day, next_day = f"flights-broken-{broken}", date(2013, 1, 3), date(2013, 1, 4)
    first = load_flights(broker.bootstrap, days=[day], topic=topic, broken=broken)
    again = load_flights(broker.bootstrap, days=[day, next_day], topic=topic, broken=not broken)
    there = 2 if broken else 0
    assert first == LoadSummary(topic, (day,), added=914, already_there=0, broken_added=there)
    assert again == LoadSummary(topic, (day, next_day), added=915, already_there=914, broken_already_there=there)
    assert differences(broker, topic, [day, next_day]) == []
    assert broken_there(broker, topic) == (broken_of([day]) if broken else [])


def test_days_are_added_to_those_that_are_there(broker: Broker) -> None:
    topic = "flights-growing"
    days = [*DAYS, date(2013, 1, 3)]
    load_flights(broker.bootstrap, days=DAYS[:1], topic=topic, broken=True)
    grown = load_flights(broker.bootstrap, days=days, topic=topic, broken=True)
    assert (grown.added, grown.already_there) == (943 + 914, 842)
    assert (grown.broken_added, grown.broken_already_there) == (1 + 2, 1)
    assert differences(broker, topic, days) == []
    assert broken_there(broker, topic) == broken_of(days)


def test_records_stand_in_order_of_scheduled_departure_and_carry_it(broker: Broker) -> None:
    topic = "flights-in-order"
    load_flights(broker.bootstrap, days=DAYS, topic=topic, broken=True)
    by_partition: dict[int, list[int]] = {}
    for record in read_topic(broker.bootstrap, topic):
        by_partition.setdefault(record.partition, []).append(record.timestamp)
    assert sorted(by_partition) == [0, 1, 2, 3]
    assert all(timestamps == sorted(timestamps) for timestamps in by_partition.values())
    expected = sorted(record.value["scheduled_departure_ms"] for record in expected_records(DAYS))
    expected = sorted([*expected, *(timestamp for timestamp, _, _ in broken_of(DAYS))])
    assert sorted(itertools.chain(*by_partition.values())) == expected


@pytest.mark.parametrize(
    ("place", "left"), [("load.begun", FLIGHTS), ("load.committing", FLIGHTS), ("load.committed", 0)]
)
def test_a_load_that_was_killed_is_finished_without_duplicates(
    broker: Broker, tmp_path: Path, place: str, left: int
) -> None:
    topic = f"flights-{place}"
    killed = start_load(broker, topic, f"{place}=kill", tmp_path)
    killed.communicate(timeout=60)
    assert killed.returncode == -signal.SIGKILL
    finished = load_flights(broker.bootstrap, days=DAYS, topic=topic, broken=True)
    assert (finished.added, finished.broken_added) == (left, 2 if left else 0)
    assert differences(broker, topic, DAYS) == []
    assert broken_there(broker, topic) == broken_of(DAYS)


def test_a_load_that_was_overtaken_while_it_stood_still_adds_nothing(broker: Broker, tmp_path: Path) -> None:
    topic = "flights-zombie"
    zombie = start_load(broker, topic, "load.committing=stop", tmp_path)
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / "load.committing=stop").exists():
            assert zombie.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert load_flights(broker.bootstrap, days=DAYS, topic=topic, broken=True).added == FLIGHTS
        zombie.send_signal(signal.SIGCONT)
        _, stderr = zombie.communicate(timeout=60)
    finally:
        zombie.kill()
        zombie.wait()
    assert zombie.returncode == 1
    assert "WriterFenced" in stderr
    assert differences(broker, topic, DAYS) == []
    assert broken_there(broker, topic) == broken_of(DAYS)


def test_an_earlier_day_is_refused_since_it_would_stand_behind_later_ones(broker: Broker) -> None:
    topic = "flights-backwards"
    load_flights(broker.bootstrap, days=DAYS[1:], topic=topic)
    with pytest.raises(NeedsOperator, match="out of order"):
        load_flights(broker.bootstrap, days=DAYS, topic=topic)
    assert differences(broker, topic, DAYS[1:]) == []


def test_a_day_that_something_else_has_written_is_refused(broker: Broker) -> None:
    topic = "flights-foreign"
    load_flights(broker.bootstrap, days=DAYS[:1], topic=topic)
    noon = 1_357_063_200_000  # of 1 January in New York
    produce(broker.bootstrap, topic, [(b"N1", {"flight": 1}, 0, noon)])
    for broken in (False, True):
        with pytest.raises(NeedsOperator, match="842 of the 842 flights of 2013-01-01 and 1 other"):
            load_flights(broker.bootstrap, days=DAYS[:1], topic=topic, broken=broken)


def test_a_day_with_only_some_of_its_broken_records_is_refused(broker: Broker) -> None:
    topic, day = "flights-half-broken", date(2013, 1, 3)
    load_flights(broker.bootstrap, days=[day], topic=topic)
    one = broken_flights(day)[0]
    produce(broker.bootstrap, topic, [(one.key, one.value, 0, one.timestamp)])
    with pytest.raises(NeedsOperator, match="914 of the 914 flights of 2013-01-03 and 1 other"):
        load_flights(broker.bootstrap, days=[day], topic=topic, broken=True)


@pytest.mark.parametrize(
    ("partitions", "config", "message"),
    [
        (3, {}, "3 partitions instead of 4"),
        (4, {"retention.ms": "604800000"}, "retention.ms is 604800000"),
        (4, {"cleanup.policy": "compact"}, "cleanup.policy is compact"),
    ],
)
def test_a_topic_that_would_not_keep_the_flights_is_refused(
    broker: Broker, partitions: int, config: dict[str, str], message: str
) -> None:
    topic = f"flights-refused-{partitions}-{len(config)}-{'-'.join(config)}"
    create_topic(broker.bootstrap, topic, partitions, **config)
    with pytest.raises(NeedsOperator, match=message):
        load_flights(broker.bootstrap, days=DAYS, topic=topic)
    assert read_topic(broker.bootstrap, topic) == []


def test_an_open_foreign_transaction_is_waited_for_and_then_named(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = "flights-hidden"
    monkeypatch.setattr(loader, "STABLE_LIMIT", 1.0)
    load_flights(broker.bootstrap, days=DAYS[:1], topic=topic)
    foreign = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "somebody"})
    foreign.init_transactions(30)
    foreign.begin_transaction()
    foreign.produce(topic, b"{}", b"N1")
    foreign.flush(30)
    with pytest.raises(OpenTransaction, match="hides records"):
        load_flights(broker.bootstrap, days=DAYS, topic=topic)
    foreign.abort_transaction(30)
    load_flights(broker.bootstrap, days=DAYS, topic=topic)
    assert differences(broker, topic, DAYS) == []
