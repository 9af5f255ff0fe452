"""The second demo pipeline's two ends: what the loader makes of the data set, and what the pipeline makes of the records."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from datetime import UTC, date, datetime
from functools import cache
from typing import Any

import fastavro
import pandas as pd
import pytest

from fencepost.config.loading import find_pipeline
from fencepost.formats.avro_schema import parse, render
from fencepost.model import ReadSchemas, RegisteredSchema, Schemas
from fencepost.rows.decode import is_malformed
from fencepost.rows.path import RowPath
from fencepost.suite.declared import Severity
from fencepost_stack import nycweather
from fencepost_stack.nycflights import YEAR, day_of, days_between
from fencepost_stack.nycweather import CHANGE, FIRST, SECOND, Observation, read_weather, schema_of
from makers import of_source
from oracle.suite import holds
from oracle.weather_truth import expected_weather, weather_frame

# The day before the schema changes, the day on which it does, one with a gap in the data, and the two when the clocks change.
DAYS = [date(2013, 1, 1), date(2013, 1, 2), date(2013, 12, 30), date(2013, 3, 10), date(2013, 11, 3)]
ROW = {"origin": "EWR", "year": "2013", "month": "7", "day": "27", "hour": "1", "time_hour": "2013-07-27T05:00:00Z"}
ROW |= {"temp": "NA", "dewp": "70.5", "humid": "59.37", "wind_dir": "NA", "wind_speed": "0", "wind_gust": "NA"}
ROW |= {"precip": "0.1", "pressure": "NA", "visib": "10"}


@cache
def whole_year() -> dict[date, list[Observation]]:
    return read_weather(days_between(*YEAR))


def test_all_observations_of_the_year_are_read_at_the_hours_that_the_time_zone_s_rules_give() -> None:
    found = [(o["time_hour"], o["origin"]) for of_day in whole_year().values() for o in of_day]
    frame = weather_frame()
    assert len(found) == 26_115
    assert found == sorted(zip(frame.observed_at, frame.origin, strict=True))
    for day, of_day in whole_year().items():
        assert {day_of(round(o["time_hour"].timestamp() * 1000)) for o in of_day} <= {day}


def test_gusts_are_known_from_the_hour_of_the_change_on() -> None:
    changed = [schema_of(o) is SECOND for o in whole_year()[CHANGE.date()]]
    assert changed == [False] * 36 + [True] * 36
    assert ["wind_gust" in o for o in whole_year()[CHANGE.date()]] == changed


def test_missing_values_are_null_and_the_rest_is_typed() -> None:
    found = nycweather._observation(ROW)
    assert found["temp"] is found["wind_dir"] is found["pressure"] is found["wind_gust"] is None
    assert found["time_hour"] == datetime(2013, 7, 27, 5, tzinfo=UTC)
    assert str(found["precip"]) == "0.10"
    assert found["wind_speed"] == 0.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hour": "2"}, "contradict"),
        ({"day": "28"}, "contradict"),
        ({"time_hour": "2013-07-27T06:00:00Z"}, "contradict"),
        ({"precip": "0.005"}, "two decimals"),
    ],
)
def test_a_row_that_its_schema_does_not_hold_is_refused(change: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        nycweather._observation({**ROW, **change})


def test_a_day_outside_the_data_set_is_refused() -> None:
    with pytest.raises(ValueError, match="2014-01-01"):
        read_weather([date(2014, 1, 1)])


def test_every_interval_of_the_schedule_is_a_new_york_day_with_weather() -> None:
    schedule = find_pipeline("nyc_weather").schedule
    assert schedule.timezone == "America/New_York"
    assert schedule.start.isoformat() == "2013-01-01T05:00:00+00:00"
    assert schedule.end is not None
    assert schedule.end.isoformat() == "2013-12-31T04:59:59+00:00"
    assert [day for day, of_day in whole_year().items() if not of_day] == [date(2013, 12, 31)]


def registered() -> Schemas:
    """Both schemas as a plan has them: ids 1 and 2."""
    first, second = parse(json.dumps(FIRST)), parse(json.dumps(SECOND))
    reader = RegisteredSchema(subject="weather-value", id=2, version=2, text=render(second))
    older = RegisteredSchema(subject="weather-value", id=1, version=1, text=render(first))
    return Schemas(sources=of_source(ReadSchemas(reader=reader, writers=(reader, older)), topic="weather"))


def source_rows(spark: Any, observations: Sequence[Observation]) -> Any:
    """Observations as the Kafka connector gives them; fastavro writes the values."""
    rows = []
    for number, observation in enumerate(observations):
        schema, out = schema_of(observation), io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(schema), observation)
        value = b"\0" + (1 if schema is FIRST else 2).to_bytes(4, "big") + out.getvalue()
        at = round(observation["time_hour"].timestamp() * 1000)
        rows.append((bytearray(observation["origin"].encode()), bytearray(value), "weather", 0, number, at))
    frame = spark.createDataFrame(rows, "key binary, value binary, topic string, partition int, offset long, ms long")
    headers = "CAST(array() AS array<struct<key: string, value: binary>>) AS headers"
    return frame.selectExpr(
        "key", "value", "topic", "partition", "offset", "timestamp_millis(ms) AS timestamp", headers
    )


def test_the_transform_gives_what_the_csv_says_of_both_schemas(spark: Any) -> None:
    pipeline = find_pipeline("nyc_weather")
    days = sorted(DAYS)
    path = RowPath(pipeline, registered())
    decoded = path.decode({"source": source_rows(spark, [o for day in days for o in whole_year()[day]])})
    assert decoded["source"].frame.where(is_malformed()).count() == 0
    result = path.transform(decoded)
    found = [row.asDict() for row in result.drop("_key", "_record").collect()]
    for row in found:
        row["observed_at"] = row["observed_at"].astimezone(UTC)
    assert found == expected_weather(days)
    assert sum(row["gust_kmh"] is not None for row in found) > 10
    plan = result._jdf.queryExecution().executedPlan().toString()
    assert "Exchange" not in plan  # nothing is shuffled


OUTLIER = ("expect_column_values_to_be_between(wind_kmh)", (2, 12))


def test_the_suite_passes_on_every_day_of_2013_but_for_the_sensor_that_failed() -> None:
    suite = find_pipeline("nyc_weather").suite
    failed = [
        (declared.title, day)
        for day, of_day in weather_frame().groupby(["month", "day"])
        for declared in suite.expectations
        if not holds(declared.type, dict(declared.kwargs), of_day)
    ]
    assert failed == [OUTLIER]


@pytest.mark.parametrize(
    ("column", "value", "broken", "severity"),
    [
        ("origin", "HPN", "expect_column_distinct_values_to_equal_set(origin)", Severity.CRITICAL),
        ("observed_at", None, "expect_compound_columns_to_be_unique(origin, observed_at)", Severity.CRITICAL),
        ("visibility_km", 9_999.0, "expect_column_values_to_be_between(visibility_km)", Severity.CRITICAL),
        ("temp_c", 99.0, "expect_column_values_to_be_between(temp_c)", Severity.QUARANTINE),
        ("dewp_c", 40.0, "expect_column_pair_values_a_to_be_greater_than_b(temp_c, dewp_c)", Severity.QUARANTINE),
        ("humidity", 101.0, "expect_column_values_to_be_between(humidity)", Severity.QUARANTINE),
        ("wind_dir", 999, "expect_column_values_to_be_between(wind_dir)", Severity.QUARANTINE),
        ("gust_kmh", 400.0, "expect_column_values_to_be_between(gust_kmh)", Severity.QUARANTINE),
        ("precip_mm", 999, "expect_column_values_to_be_between(precip_mm)", Severity.QUARANTINE),
        ("pressure_hpa", 0.0, "expect_column_values_to_be_between(pressure_hpa)", Severity.QUARANTINE),
    ],
)
def test_the_suite_finds_a_broken_observation(column: str, value: Any, broken: str, severity: Severity) -> None:
    suite = find_pipeline("nyc_weather").suite
    day = weather_frame().query("month == 1 and day == 3").copy()
    if column == "observed_at":
        day = pd.concat([day, day.iloc[:1]])
    else:
        day.iloc[7, day.columns.get_loc(column)] = value
    failed = [d for d in suite.expectations if not holds(d.type, dict(d.kwargs), day)]
    assert [(d.title, d.severity) for d in failed] == [(broken, severity)]


def test_the_suite_notices_that_half_a_day_is_missing() -> None:
    suite = find_pipeline("nyc_weather").suite
    day = weather_frame().query("month == 1 and day == 3").iloc[::2]
    failed = {d.type for d in suite.expectations if not holds(d.type, dict(d.kwargs), day)}
    assert failed == {"expect_table_row_count_to_be_between"}
