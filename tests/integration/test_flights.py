"""The demo's two ends: what the loader makes of the data set, and what the pipeline makes of the records."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime
from functools import cache
from typing import Any, cast

import pandas as pd
import pyarrow as pa
import pytest

from fencepost.config.loading import find_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.kafka.cluster import Cluster
from fencepost.model import Layout
from fencepost.quality.rules import quarantine_rules
from fencepost.rows.decode import is_malformed, with_record
from fencepost.rows.path import RowPath
from fencepost.rows.quarantine_headers import Quarantining
from fencepost.side_tables.frames import frames_of
from fencepost.side_tables.reading import read_tables
from fencepost.suite.declared import Severity
from fencepost_stack import nycflights
from fencepost_stack.broken_flights import BROKEN, broken_flights
from fencepost_stack.flights import load_flights
from fencepost_stack.loader import TOPIC_CONFIG
from fencepost_stack.nycflights import YEAR, Record, day_of, days_between, read_flights
from oracle.flights_truth import expected_records, flights_frame
from oracle.reader import ActualRecord, compare
from oracle.suite import holds

# New Year, the blizzard that cancelled half the flights, and the two days on which the clocks change.
DAYS = [date(2013, 1, 1), date(2013, 2, 9), date(2013, 3, 10), date(2013, 11, 3)]
ROW = {"year": "2013", "month": "7", "day": "27", "hour": "1", "minute": "6", "sched_dep_time": "106"}
ROW |= {"time_hour": "2013-07-27T05:00:00Z", "carrier": "US", "flight": "1632", "tailnum": "NA", "dep_delay": "NA"}


@cache
def whole_year() -> dict[date, list[Record]]:
    return read_flights(days_between(*YEAR))


def test_all_flights_of_the_year_are_read_in_order_of_scheduled_departure() -> None:
    assert sum(map(len, whole_year().values())) == 336_776
    for flights in whole_year().values():
        assert all(a.timestamp <= b.timestamp for a, b in itertools.pairwise(flights))


def test_a_flight_s_timestamp_lies_in_its_new_york_day_also_when_the_clocks_change() -> None:
    for day, flights in whole_year().items():
        assert {day_of(flight.timestamp) for flight in flights} == {day}


def test_timestamps_are_those_the_time_zone_s_rules_give() -> None:
    loaded = Counter(flight.timestamp for flights in whole_year().values() for flight in flights)
    assert loaded == Counter(flights_frame().scheduled_departure_ms.tolist())


def test_the_key_is_the_tail_number_or_carrier_and_number_where_there_is_none() -> None:
    keys = [flight.key for flights in whole_year().values() for flight in flights]
    assert sum(b"-" in key for key in keys) == 2_512
    assert nycflights._flight(ROW).key == b"US-1632"
    assert nycflights._flight({**ROW, "tailnum": "N14228"}).key == b"N14228"


def test_missing_values_are_null_and_numbers_stay_whole() -> None:
    value = json.loads(nycflights._flight(ROW).value)
    assert value["dep_delay"] is None
    assert value["tailnum"] is None
    assert (value["flight"], type(value["flight"])) == (1632, int)
    assert not any(b"NaN" in flight.value or b".0" in flight.value for flight in whole_year()[DAYS[1]])


@pytest.mark.parametrize(
    "change",
    [{"hour": "2"}, {"minute": "7"}, {"day": "28"}, {"sched_dep_time": "107"}, {"time_hour": "2013-07-27T06:00:00Z"}],
)
def test_a_row_whose_columns_contradict_each_other_is_refused(change: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="contradict"):
        nycflights._flight({**ROW, **change})


def test_a_day_outside_the_data_set_is_refused_before_kafka_is_asked() -> None:
    with pytest.raises(ValueError, match="2014-01-01"):
        load_flights({"bootstrap.servers": "127.0.0.1:1"}, [date(2014, 1, 1)])


def test_the_topic_keeps_flights_of_2013() -> None:
    assert TOPIC_CONFIG["retention.ms"] == "-1"


def test_every_interval_of_the_schedule_is_a_new_york_day() -> None:
    schedule = find_pipeline("nyc_flights").schedule
    assert schedule.timezone == "America/New_York"
    assert schedule.start.isoformat() == "2013-01-01T05:00:00+00:00"
    assert schedule.end is not None
    assert schedule.end.isoformat() == "2014-01-01T04:59:59+00:00"


def test_broken_records_lie_in_their_day_beside_its_flights_and_double_none() -> None:
    days = [date(2013, 1, 1), date(2013, 1, 2), date(2013, 1, 3)]
    assert [len(broken_flights(day)) for day in days] == [1, 1, 2]
    assert sum(len(broken_flights(day)) for day in whole_year()) == len(BROKEN) == 4
    number = re.compile(rb'"carrier":"(..)","flight":(\d+)')
    for day in days:
        of_day = [number.search(flight.value).groups() for flight in whole_year()[day]]  # type: ignore[union-attr]
        for broken in broken_flights(day):
            assert day_of(broken.timestamp) == day
            found = number.search(broken.value)
            assert found is not None
            assert found.groups() not in of_day


def source_rows(spark: Any, flights: Sequence[Record]) -> Any:
    """Flights as the Kafka connector gives them."""
    columns = "key binary, value binary, topic string, partition int, offset long, ms long"
    rows = [(bytearray(f.key), bytearray(f.value), "flights", 0, n, f.timestamp) for n, f in enumerate(flights)]
    frame = spark.createDataFrame(rows, columns)
    headers = "CAST(array() AS array<struct<key: string, value: binary>>) AS headers"
    return frame.selectExpr(
        "key", "value", "topic", "partition", "offset", "timestamp_millis(ms) AS timestamp", headers
    )


def routed(spark: Any, flights: Sequence[Record]) -> tuple[list[Any], list[Any]]:
    """What the pipeline makes of flights, as the write step does: all rows, by offset, and what was malformed."""
    pipeline = find_pipeline("nyc_flights")
    rules = quarantine_rules(pipeline)
    assert rules is not None
    path = RowPath(pipeline, rules=rules, tables=side_tables(spark, pipeline))
    decoded = path.decode({"source": source_rows(spark, flights)})
    rows = path.route(path.flag(path.transform(decoded)), Layout.SOURCE).collect()
    return rows, with_record(decoded["source"].frame).where(is_malformed()).select("_record", "_malformed").collect()


def side_tables(spark: Any, pipeline: Pipeline) -> dict[str, Any]:
    """The airlines and the aircraft, as the write step gives them to the transform. No cluster is asked for files."""
    return frames_of(spark, pipeline, read_tables(spark, pipeline, cast("Cluster", None)))


def in_utc(value: bytes) -> bytes:
    """The value with its moment as a session in UTC writes it, which is all that Fencepost's are."""
    found = json.loads(value)
    moment = datetime.fromisoformat(found["time_hour"]).astimezone(UTC)
    return json.dumps(found | {"time_hour": f"{moment:%Y-%m-%dT%H:%M:%S.%fZ}"}).encode()


@pytest.mark.deep  # a day through Airflow is compared with the CSV in any case
@pytest.mark.parametrize("zone", ["UTC", "America/Los_Angeles"])
def test_the_transform_gives_what_the_csv_says_in_any_session_time_zone(spark: Any, zone: str) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        flights = [flight for day in DAYS for flight in whole_year()[day]]
        records, malformed = routed(spark, flights)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert malformed == []
    assert [row.quarantined for row in records] == [None] * len(flights)
    expected = expected_records(DAYS)
    home = {record.key: record.partition for record in expected}
    actual = [
        ActualRecord(home[bytes(row.key)], offset, bytes(row.key), in_utc(bytes(row.value)))
        for offset, row in enumerate(records)
    ]
    assert compare(expected, actual) == []


def test_each_broken_record_is_quarantined_byte_for_byte_with_its_reason(spark: Any) -> None:
    flights = [broken for day in days_between(DAYS[0], date(2013, 1, 3)) for broken in broken_flights(day)]
    rows, malformed = routed(spark, flights)
    cut, origin, delay, text = flights
    assert [(bytes(r._record.key), bytes(r._record.value), r._malformed) for r in malformed] == [
        (cut.key, cut.value, f"not JSON: EOF while parsing a string at line 1 column {len(cut.value)}"),
        (text.key, text.value, "air_time: not an integer of 32 bits"),
    ]
    rules = quarantine_rules(find_pipeline("nyc_flights"))
    assert rules is not None
    columns = {name: [getattr(row, name) for row in rows] for name in ("key", "value", "hash", "quarantined")}
    shared = Quarantining("batch", rules.named)
    kept = [
        (
            row["key"],
            row["value"],
            row["timestamp"],
            rules.named[row["rule"]][0],
            {h["key"]: h["value"] for h in row["headers"]},
        )
        for row in shared.with_headers(pa.RecordBatch.from_pydict(columns)).to_pylist()
    ]
    assert [one[:4] for one in kept] == [
        (origin.key, origin.value, origin.timestamp, "expect_column_values_to_be_in_set(origin)"),
        (delay.key, delay.value, delay.timestamp, "expect_column_values_to_be_between(dep_delay)"),
    ]
    reasons = [headers[b"fencepost-reason"].decode() for *_, headers in kept]
    assert reasons == [
        "A flight leaves from Newark (EWR), Kennedy (JFK) or LaGuardia (LGA)",
        "Plausible departure delay in minutes (seen, -43 to 1,301)",
    ]
    assert [headers[b"fencepost-source"] for *_, headers in kept] == [b"flights:0:1", b"flights:0:2"]


def test_the_transform_does_not_shuffle(spark: Any) -> None:
    pipeline = find_pipeline("nyc_flights")
    path = RowPath(pipeline, tables=side_tables(spark, pipeline))
    result = path.transform(path.decode({"source": source_rows(spark, whole_year()[DAYS[0]])}))
    plan = result._jdf.queryExecution().executedPlan().toString()
    assert plan.count("BroadcastExchange") == 2
    assert "Exchange hash" not in plan
    assert "SortMergeJoin" not in plan


@pytest.mark.deep
def test_the_suite_passes_on_every_day_of_2013() -> None:
    suite = find_pipeline("nyc_flights").suite
    frame = flights_frame()
    for declared in suite.expectations:
        for day, of_day in frame.groupby(["month", "day"]):
            assert holds(declared.type, dict(declared.kwargs), of_day), f"{declared.title} on {day}"


@pytest.mark.parametrize(
    ("column", "value", "broken", "severity"),
    [
        ("carrier", "ZZ", "expect_column_values_to_be_in_set(carrier)", Severity.QUARANTINE),
        ("dep_delay_bucket", "unknown", "expect_column_values_to_be_in_set(dep_delay_bucket)", Severity.QUARANTINE),
        ("tailnum", None, "expect_column_values_to_not_be_null(tailnum)", Severity.QUARANTINE),
        ("sched_dep_time", 2400, "expect_column_values_to_be_between(sched_dep_time)", Severity.QUARANTINE),
        ("dep_delay", 5000, "expect_column_values_to_be_between(dep_delay)", Severity.QUARANTINE),
        ("arr_delay", -500, "expect_column_values_to_be_between(arr_delay)", Severity.QUARANTINE),
        ("origin", "HPN", "expect_column_values_to_be_in_set(origin)", Severity.QUARANTINE),
        ("airline", None, "expect_column_values_to_not_be_null(airline)", Severity.CRITICAL),
        (
            "flight",
            1,
            "expect_compound_columns_to_be_unique(year, month, day, carrier, flight, origin)",
            Severity.CRITICAL,
        ),
    ],
)
def test_the_suite_finds_a_broken_record(column: str, value: Any, broken: str, severity: Severity) -> None:
    suite = find_pipeline("nyc_flights").suite
    day = flights_frame().query("month == 1 and day == 1").copy()
    if column == "flight":
        day = pd.concat([day, day.iloc[:1]])
    else:
        day.iloc[7, day.columns.get_loc(column)] = value
    failed = [d for d in suite.expectations if not holds(d.type, dict(d.kwargs), day)]
    assert [(d.title, d.severity) for d in failed] == [(broken, severity)]


def test_the_suite_notices_that_an_airport_did_not_report() -> None:
    suite = find_pipeline("nyc_flights").suite
    day = flights_frame().query("month == 1 and day == 1 and origin != 'LGA'")
    failed = {
        d.description
        for d in suite.expectations
        if d.severity is Severity.CRITICAL and not holds(d.type, dict(d.kwargs), day)
    }
    assert failed == {"All three airports reported", "Flights from LaGuardia (seen, 171 to 346)"}
