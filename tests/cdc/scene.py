"""A database, and three connectors in one worker that tell of it: in JSON with schemas, in JSON without, and in Avro."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro

from fencepost_stack.broker import Broker
from fencepost_stack.schema_registry import API, SchemaRegistry
from kafka_tools import Record
from registry_tools import client

from .connect_worker import ConnectWorker, avro_values, debezium, json_values
from .database import FULL, KEYED, SENTINEL, Database
from .followed_topic import FollowedTopic

SCHEMAS, PLAIN, AVRO = "schemas", "plain", "avro"  # the connectors, by how they write
KINDS = (SCHEMAS, PLAIN, AVRO)


@dataclass
class Scene:
    """What runs. `plain` tells of both tables in one topic, and of truncations; the others have a topic for each table."""

    broker: Broker
    registry: SchemaRegistry
    database: Database
    worker: ConnectWorker
    prefix: str
    topics: dict[tuple[str, str], FollowedTopic] = field(default_factory=dict)  # by kind and table
    _schemas: dict[int, Any] = field(default_factory=dict)

    def topic(self, kind: str, table: str) -> str:
        """The topic in which a kind of connector tells of a table."""
        return f"{self.prefix}_{kind}.{'all' if kind == PLAIN else f'public.{table}'}"

    def follow(self, kind: str, table: str) -> list[Record]:
        """All records so far of the topic in which a kind of connector tells of a table."""
        return self.topics[kind, table].records

    def await_mark(self, number: int) -> None:
        """Set the sentinels to a number, and read each topic until it has that one: of both tables, where it tells of both."""
        self.database.mark(number)
        for (kind, table), topic in self.topics.items():

            def is_mark(record: Record, kind: str = kind, table: str = table) -> bool:
                event = self.event(kind, record)
                row = event and event["after"]
                return bool(row) and (row["id"], row["whole"], event["source"]["table"]) == (SENTINEL, number, table)

            try:
                topic.read_until(is_mark, f"mark {number} of {table}")
            except AssertionError as error:
                raise AssertionError(f"{error}; the connectors: {self.worker.states()}") from error

    def event(self, kind: str, record: Record) -> dict[str, Any] | None:
        """The envelope of a record, without a schema around it; None for a tombstone."""
        return None if record.value is None else self._parsed(kind, record.value)

    def key(self, kind: str, record: Record) -> Any:
        """A record's key, without a schema around it; None where it has none."""
        return None if record.key is None else self._parsed(kind, record.key)

    def _parsed(self, kind: str, raw: bytes) -> Any:
        if kind == AVRO:
            assert raw[:1] == b"\0"
            schema = self.schema_of(int.from_bytes(raw[1:5], "big"))
            return fastavro.schemaless_reader(BytesIO(raw[5:]), schema, None)
        parsed = json.loads(raw)
        return parsed["payload"] if kind == SCHEMAS else parsed

    def schema_of(self, number: int) -> Any:
        """The schema of an id, as Confluent's interface of the registry has it. Logical types are left out of it."""
        if number not in self._schemas:
            text = client(self.registry).get_schema(number).schema_str
            self._schemas[number] = fastavro.parse_schema(_without_logical_types(json.loads(text or "")))
        return self._schemas[number]


def _without_logical_types(schema: Any) -> Any:
    """A value is then what the bytes say, and not what a reader makes of it."""
    if isinstance(schema, list):
        return [_without_logical_types(one) for one in schema]
    if isinstance(schema, dict):
        return {key: _without_logical_types(value) for key, value in schema.items() if key != "logicalType"}
    return schema


@contextmanager
def scene_of(
    folder: Path, broker: Broker, registry: SchemaRegistry, database: Database, prefix: str
) -> Iterator[Scene]:
    """Connectors on the tables as they are now. Each has read them all when the block begins."""
    tables, login = f"public.{KEYED},public.{FULL}", database.login
    one_topic = {
        "transforms": "one",
        "transforms.one.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.one.regex": r"(.*)\.public\..*",
        "transforms.one.replacement": "$1.all",
    }
    settings = {
        SCHEMAS: json_values(schemas=True),
        PLAIN: {**json_values(schemas=False), **one_topic, "skipped.operations": "none"},
        AVRO: avro_values(registry.url.removesuffix(API)),
    }
    connectors = {
        f"{prefix}_{kind}": debezium(login, f"{prefix}_{kind}", tables, **values) for kind, values in settings.items()
    }
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        worker = stack.enter_context(ConnectWorker(folder, broker.bootstrap, connectors))
        scene = Scene(broker, registry, database, worker, prefix)
        for kind in KINDS:
            for table in (KEYED, FULL):
                topic = FollowedTopic(broker.bootstrap, scene.topic(kind, table))
                scene.topics[kind, table] = stack.enter_context(topic)
        scene.await_mark(0)
        yield scene
