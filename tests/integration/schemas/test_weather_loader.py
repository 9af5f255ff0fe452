"""The loader of weather against a real broker and registry: every observation once, in the schema of its hour."""

from __future__ import annotations

import json
from datetime import date

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from fencepost.errors import NeedsOperator
from fencepost_stack.broker import Broker
from fencepost_stack.nycweather import FIRST, SECOND, read_weather, schema_of
from fencepost_stack.schema_registry import SchemaRegistry
from fencepost_stack.weather import LoadedWeather, load_weather
from oracle.reader import read_topic

pytestmark = pytest.mark.deep

DAYS = (date(2013, 1, 1), date(2013, 1, 2), date(2013, 1, 3))


def test_three_days_are_there_once_each_by_the_schema_of_its_hour(
    broker: Broker, schema_registry: SchemaRegistry
) -> None:
    topic, url = "weather-twice", schema_registry.url
    kafka = {"bootstrap.servers": broker.bootstrap}
    loaded = [load_weather(kafka, url, days, topic) for days in (DAYS, DAYS[:2])]
    assert loaded == [LoadedWeather(211, added=True), LoadedWeather(139, added=False)]

    client, records = SchemaRegistryClient({"url": url}), read_topic(broker.bootstrap, topic)
    assert [json.loads(str(client.get_version(f"{topic}-value", n).schema.schema_str)) for n in (1, 2)] == [
        FIRST,
        SECOND,
    ]
    ids = [client.get_version(f"{topic}-value", n).schema_id for n in (1, 2)]
    decode, context = AvroDeserializer(client), SerializationContext(topic, MessageField.VALUE)
    observations = [o for of_day in read_weather(DAYS).values() for o in of_day]
    found = [
        (r.key, r.timestamp, decode(r.value, context), int.from_bytes(r.value[1:5], "big")) for r in records if r.value
    ]
    assert sorted(found, key=lambda one: (one[1], one[0])) == [
        (o["origin"].encode(), round(o["time_hour"].timestamp() * 1000), o, ids[schema_of(o) is SECOND])
        for o in observations
    ]
    for key in {r.key for r in records}:
        of_airport = [(r.partition, r.timestamp) for r in records if r.key == key]
        assert len({partition for partition, _ in of_airport}) == 1
        assert of_airport == sorted(of_airport)


def test_a_registry_that_refuses_the_schema_leaves_the_topic_as_it_was(
    broker: Broker, schema_registry: SchemaRegistry
) -> None:
    topic = "weather-refused"
    other = Schema(json.dumps({**FIRST, "fields": [{"name": "origin", "type": "int"}]}), "AVRO")
    SchemaRegistryClient({"url": schema_registry.url}).register_schema(f"{topic}-value", other)
    with pytest.raises(NeedsOperator, match=rf"subject {topic}-value does not take .*ncompatible.*delete the subject"):
        load_weather({"bootstrap.servers": broker.bootstrap}, schema_registry.url, DAYS[:1], topic)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    assert topic not in admin.list_topics(timeout=20).topics
