"""The oracle itself: it finds every kind of difference, and knows where Kafka puts a key."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date

import pytest

from oracle.flights_truth import ExpectedRecord, expected_records, flights_frame
from oracle.murmur2 import murmur2, partition_of
from oracle.reader import ActualRecord, compare

KEY = b"N14228"
HOME = partition_of(KEY, 4)
EXPECTED = [ExpectedRecord(KEY, {"n": n, "delay": None}, HOME) for n in (1, 2, 3)]


def record(n: object, offset: int, partition: int = HOME, key: bytes | None = KEY) -> ActualRecord:
    return ActualRecord(partition, offset, key, json.dumps({"n": n, "delay": None}).encode())


GOOD = [record(1, 10), record(2, 11), record(3, 15)]


def kinds(actual: list[ActualRecord]) -> list[str]:
    return [difference.kind for difference in compare(EXPECTED, actual)]


def test_equal_records_have_no_difference_whatever_order_partitions_were_read_in() -> None:
    assert compare(EXPECTED, GOOD[::-1]) == []


def test_a_lost_record_is_found() -> None:
    assert kinds(GOOD[:2]) == ["lost"]


def test_nothing_at_all_is_all_lost() -> None:
    assert kinds([]) == ["lost"] * 3


def test_a_duplicate_is_found_and_named_by_its_place() -> None:
    (difference,) = compare(EXPECTED, [*GOOD, record(2, 16)])
    assert difference.kind == "duplicate"
    assert f"{HOME}@16" in repr(difference)


def test_a_wrong_partition_is_found() -> None:
    assert kinds([*GOOD[:2], replace(GOOD[2], partition=HOME + 1)]) == ["partition"]


def test_a_wrong_order_under_one_key_is_found() -> None:
    assert kinds([record(2, 10), record(1, 11), record(3, 15)]) == ["order"]


def test_a_lost_record_does_not_look_like_a_wrong_order() -> None:
    assert kinds([GOOD[0], GOOD[2]]) == ["lost"]


def test_a_wrong_value_is_found_with_its_field() -> None:
    (difference,) = compare(EXPECTED, [*GOOD[:2], record(4, 15)])
    assert difference.kind == "value"
    assert "n is 4, not 3" in repr(difference)


@pytest.mark.parametrize("wrong", [3.0, "3", None])
def test_a_value_of_another_type_is_wrong(wrong: object) -> None:
    assert kinds([*GOOD[:2], record(wrong, 15)]) == ["value"]


def test_true_is_not_one() -> None:
    assert kinds([record(True, 10), *GOOD[1:]]) == ["value"]


def test_a_missing_field_is_not_null() -> None:
    assert kinds([*GOOD[:2], replace(GOOD[2], value=b'{"n": 3}')]) == ["value"]


@pytest.mark.parametrize("raw", [b"not json", b"", None, b"\xff", b"[3]"])
def test_a_value_that_is_no_record_is_wrong(raw: bytes | None) -> None:
    assert kinds([*GOOD[:2], replace(GOOD[2], value=raw)]) == ["value"]


@pytest.mark.parametrize("key", [b"N99999", None])
def test_a_record_under_another_key_is_foreign_and_lost_under_its_own(key: bytes | None) -> None:
    assert sorted(kinds([*GOOD[:2], replace(GOOD[2], key=key)])) == ["foreign", "lost"]


def test_one_record_too_many_is_foreign() -> None:
    assert kinds([*GOOD, record(9, 16)]) == ["foreign"]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_equals_the_vectors_of_kafka_s_own_tests(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected


def test_the_truth_holds_every_flight_of_the_days_asked_for() -> None:
    days = [date(2013, 1, 1), date(2013, 1, 2), date(2013, 1, 3)]
    records = expected_records(days)
    assert len(records) == 842 + 943 + 914
    assert {(r.value["month"], r.value["day"]) for r in records} == {(1, 1), (1, 2), (1, 3)}
    assert {r.partition for r in records} == {0, 1, 2, 3}


def test_the_truth_joins_and_derives() -> None:
    frame = flights_frame()
    assert len(frame) == 336_776
    assert frame.airline.notna().all()
    assert int(frame.manufacturer.notna().sum()) == 284_170
    first = frame.iloc[0]
    assert (first.airline, first.model, first.aircraft_age) == ("United Air Lines Inc.", "737-824", 14)
    assert (first.made_up_minutes, first.dep_delay_bucket, first.is_cancelled) == (-9, "on_time", False)
    assert first.scheduled_departure_ms == 1_357_035_300_000  # 2013-01-01 05:15 in New York
