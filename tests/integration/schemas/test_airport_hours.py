"""The demo's pipeline of two sources: delays by airport and hour beside the weather of that airport and hour."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from fencepost.config.loading import find_pipeline, load_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.model import Interval, State
from fencepost_stack.broker import Broker
from fencepost_stack.nycflights import days_between, start_of
from fencepost_stack.schema_registry import SchemaRegistry
from kafka_tools import create_topic, produce
from oracle.airport_hours_truth import TABLE, by_day, expected_hours
from oracle.flights_truth import expected_records
from oracle.suite import holds
from oracle.weather_truth import expected_weather
from rigs.postgres_server import PASSWORD, PostgresServer, query
from steps import latest, run

NAME = "nyc_airport_hours"
# The clocks change on the first and the third. The second has hours without weather, and ends where the third begins.
DAYS = [date(2013, 3, 10), date(2013, 11, 2), date(2013, 11, 3)]
COLUMNS = ("hour", "origin", "flights", "departed", "late", "delay_minutes", "sky", "precip_mm", "wind_kmh")
DOUBLES = ("temp_c", "dewp_c", "humidity", "wind_kmh", "gust_kmh", "pressure_hpa", "visibility_km")
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 7, "scale": 3}
TYPES: dict[str, Any] = {
    "origin": "string",
    "observed_at": {"type": "long", "logicalType": "timestamp-micros"},
    **dict.fromkeys(DOUBLES, "double"),
    "wind_dir": "int",
    "precip_mm": DECIMAL,
    "sky": "string",
}
METRIC = {
    "type": "record",
    "name": "Observation",
    "fields": [{"name": name, "type": ["null", kind], "default": None} for name, kind in TYPES.items()],
}


def interval_of(day: date) -> Interval:
    return Interval.of(start_of(day), start_of(day + timedelta(days=1)))


def load_flights(broker: Broker, days: Iterable[date]) -> None:
    """What `nyc_flights` publishes of these days, in its four partitions."""
    records = [(r.key, r.value, r.partition, millis(r.value["time_hour"])) for r in expected_records(days)]
    produce(broker.bootstrap, "flight_delays", sorted(records, key=lambda record: record[3]))


def load_weather(broker: Broker, registry: SchemaRegistry, days: Iterable[date]) -> None:
    """What `nyc_weather` publishes of these days, an airport in each of its three partitions."""
    client, subject = SchemaRegistryClient({"url": registry.url}), "weather_metric-value"
    schema = Schema(json.dumps(METRIC), "AVRO")
    client.register_schema(subject, schema)
    encode = AvroSerializer(client, schema, conf={"auto.register.schemas": False})
    context, partitions = SerializationContext("weather_metric", MessageField.VALUE), {"EWR": 0, "JFK": 1, "LGA": 2}
    records = [
        (one["origin"].encode(), encode(one, context), partitions[one["origin"]], millis(one["observed_at"]))
        for one in expected_weather(days)
    ]
    produce(broker.bootstrap, "weather_metric", records)


def millis(at: str | datetime) -> int:
    moment = datetime.fromisoformat(at) if isinstance(at, str) else at
    return round(moment.timestamp() * 1000)


@pytest.fixture
def pipeline(
    broker: Broker,
    schema_registry: SchemaRegistry,
    postgres: PostgresServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Pipeline]:
    """The pipeline of the demo, with the tests' services, and topics that are there."""
    monkeypatch.setenv("KAFKA_BOOTSTRAP", broker.bootstrap)
    monkeypatch.setenv("SCHEMA_REGISTRY_URL", schema_registry.url)
    monkeypatch.setenv("REPORTING_PORT", str(postgres.port))
    monkeypatch.setenv("REPORTING_PASSWORD", PASSWORD)
    create_topic(broker.bootstrap, "flight_delays", 4)
    create_topic(broker.bootstrap, "weather_metric", 3)
    shutil.copytree(find_pipeline(NAME).folder, tmp_path / NAME)
    return load_pipeline(tmp_path / NAME)


def test_each_airport_and_hour_is_in_the_table_once_with_its_weather(
    spark: Any, pipeline: Pipeline, broker: Broker, schema_registry: SchemaRegistry, postgres: PostgresServer
) -> None:
    """The hours at the border of two days belong to one of them, on both sides of the join."""
    load_flights(broker, DAYS)
    load_weather(broker, schema_registry, DAYS)
    for day in DAYS:
        assert run(spark, pipeline, interval_of(day)).changed
        found = latest(pipeline, interval_of(day))
        assert found.state is State.PUBLISHED
        read = {topic: one.rows_in for topic, one in found.require_written.sources.items()}
        assert read == {"flight_delays": len(expected_records([day])), "weather_metric": len(expected_weather([day]))}
    rows = query({**postgres.reader, "password": PASSWORD}, TABLE)
    assert rows == expected_hours(DAYS)
    assert len({row[1:3] for row in rows}) == len(rows) == 158
    assert Counter(row[0] for row in rows if row[7] is None) == {start_of(DAYS[1]): 7}


def frame_of(day: date) -> pd.DataFrame:
    """A day's rows as the suite sees them."""
    return pd.DataFrame([row[1:] for row in by_day()[day]], columns=COLUMNS)


def fails(frame: pd.DataFrame) -> list[str]:
    """The critical expectations that a day's rows fail."""
    return [one.title for one in find_pipeline(NAME).suite.expectations if not as_expected(one, frame)]


def as_expected(declared: Any, frame: pd.DataFrame) -> bool:
    kwargs = dict(declared.kwargs)
    if declared.type == "expect_column_sum_to_be_between":
        return bool(kwargs["min_value"] <= frame[kwargs["column"]].sum() <= kwargs["max_value"])
    if declared.type == "expect_expression_to_be_true":
        counts = (frame.flights > 0) & (frame.departed <= frame.flights) & (frame.late <= frame.departed)
        return bool(counts.all())
    return holds(declared.type, kwargs, frame)


def test_the_suite_passes_on_every_day_with_weather() -> None:
    days = days_between(date(2013, 1, 1), date(2013, 12, 31))
    assert {day: found for day in days if (found := fails(frame_of(day)))} == {
        date(2013, 12, 31): ["expect_column_values_to_not_be_null(sky)"]
    }
    assert find_pipeline(NAME).schedule.end == start_of(date(2013, 12, 31)) - timedelta(seconds=1)


def test_the_suite_finds_a_join_that_doubles_or_loses_airport_hours() -> None:
    day = frame_of(date(2013, 1, 3))
    doubled = pd.concat([day, day.iloc[:1]])
    assert fails(doubled) == ["expect_compound_columns_to_be_unique(origin, hour)"]
    assert fails(day[day.origin != "LGA"]) == ["expect_column_distinct_values_to_equal_set(origin)"]
    assert fails(day.assign(sky=None)) == ["expect_column_values_to_not_be_null(sky)"]
    assert fails(day.sort_values(["origin", "hour"]).iloc[::3]) == ["expect_column_sum_to_be_between(flights)"]
