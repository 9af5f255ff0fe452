"""Loads real weather into the demo's second source topic, as Avro with its schemas in a registry: exactly once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.serialization import MessageField, SerializationContext

from fencepost.errors import NeedsOperator
from fencepost.kafka.client_settings import ClientSettings
from fencepost.local.loader import Day, load_days
from fencepost.local.nycflights import YEAR, Record, days_between
from fencepost.local.nycweather import FIRST, SECOND, Observation, read_weather, schema_of

Progress = Callable[[date, int, bool], None]


@dataclass(frozen=True)
class WeatherSummary:
    """What a load did, in observations; `added` and `already_there` are together all of `days`."""

    topic: str
    days: tuple[date, ...]
    added: int
    already_there: int


def load_weather(
    bootstrap: str,
    registry: str,
    *,
    days: Sequence[date] | None = None,
    topic: str = "weather",
    partitions: int = 3,
    kafka: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> WeatherSummary:
    """Make sure that the topic has every observation of `days` (New York's; None: all of 2013) exactly once.

    Values are Avro, by the schema in force at their hour; both schemas are registered under the topic's name at the URL
    `registry`. The key is the airport, the timestamp the full hour. `kafka` adds librdkafka settings. `progress` is called at
    the end of each day, with the number of its observations and whether they were added.

    Raises:
        NeedsOperator: the registry refuses a schema; or see `load_days`.
        Retriable, ValueError: see `load_days` and `read_weather`.
    """
    wanted = tuple(sorted(set(days if days is not None else days_between(*YEAR))))
    serialize = _serializer(registry, topic)
    observations = read_weather(wanted)
    expected = {day: Day((list(_records(serialize, observations[day])),)) for day in wanted}
    settings = ClientSettings({**(kafka or {}), "bootstrap.servers": bootstrap})
    counts = {True: 0, False: 0}
    for day, loaded in load_days(settings, topic, partitions, expected, "observations").items():
        counts[loaded.added] += len(loaded.records)
        if progress is not None:
            progress(day, len(loaded.records), loaded.added)
    return WeatherSummary(topic, wanted, counts[True], counts[False])


def _serializer(registry: str, topic: str) -> Callable[[Observation], bytes]:
    """Registers both schemas, the first one first, and returns what turns an observation into a record's value."""
    client, subject = SchemaRegistryClient({"url": registry}), f"{topic}-value"
    context = SerializationContext(topic, MessageField.VALUE)
    by_version = {}
    for number, schema in enumerate((FIRST, SECOND)):
        registered = Schema(json.dumps(schema), "AVRO")
        try:
            client.register_schema(subject, registered)
        except SchemaRegistryError as error:
            raise NeedsOperator(
                f"subject {subject} does not take the weather's schemas: {error.error_message}. Load into another topic, or "
                "delete the subject and the topic, and load again."
            ) from error
        by_version[number] = AvroSerializer(client, registered, conf={"auto.register.schemas": False})

    def serialize(observation: Observation) -> bytes:
        return bytes(by_version[schema_of(observation) is SECOND](observation, context))

    return serialize


def _records(serialize: Callable[[Observation], bytes], observations: Iterable[Observation]) -> Iterable[Record]:
    for observation in observations:
        at = round(observation["time_hour"].timestamp() * 1000)
        yield Record(at, observation["origin"].encode(), serialize(observation))
