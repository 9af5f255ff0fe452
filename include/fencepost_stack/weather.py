"""Loads real weather into the demo's second source topic, as Avro with its schemas in a registry."""

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
from fencepost_stack.loader import load
from fencepost_stack.nycflights import Record
from fencepost_stack.nycweather import FIRST, SECOND, Observation, read_weather, schema_of


@dataclass(frozen=True)
class LoadedWeather:
    """The numbers of a load. `added` is False if nothing was loaded because the topic had records before."""

    observations: int
    added: bool


def load_weather(
    kafka: Mapping[str, str], registry: str, days: Sequence[date], topic: str = "weather"
) -> LoadedWeather:
    """Loads every observation of these days in New York into three partitions, if the topic has no records.

    Values are Avro, by the schema that was valid at their hour. Both schemas are registered under the topic's name at
    the URL `registry`. The key is the airport, and the timestamp is the full hour. `kafka` are librdkafka's settings.

    Raises:
        NeedsOperator: the registry refuses a schema.
        ValueError: see `read_weather`.
        Retriable: see `load`.
    """
    observations = [observation for of_day in read_weather(days).values() for observation in of_day]
    records = list(_records(_serializer(registry, topic), observations))
    return LoadedWeather(len(records), load(ClientSettings(dict(kafka)), topic, 3, records))


def _serializer(registry: str, topic: str) -> Callable[[Observation], bytes]:
    """Registers both schemas, the earlier schema first. Returns the function that encodes an observation as a record's
    value.
    """
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
