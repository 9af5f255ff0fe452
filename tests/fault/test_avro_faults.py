"""An Avro pipeline is struck wherever the registry, the ledger and the records could come apart; then the ordinary retry.

The source has records of two schemas, of which the plan knows one. The write registers the output's schema. A driver is
struck in the tests' own process: nothing of it counts but what is in Kafka and in the registry.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, Self

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from arming import at_failpoint
from avro_schemas import written
from conftest import at, day
from fencepost.config.pipeline import Pipeline
from fencepost.steps.plan import plan_batch
from fencepost.steps.write import write_batch
from fencepost_stack.broker import Broker
from fencepost_stack.schema_registry import SchemaRegistry
from kafka_tools import Record, read_all
from registry_tools import framed
from steps import latest, run

from .checker import PARTITIONS, PER_PARTITION, Attacked
from .strikes import Attempt, Crash, await_strike_and_retry, crash, strike_worker_and_retry
from .test_quarantine_faults import BAD, MALFORMED, SETTINGS, assert_all_is_accounted_for

pytestmark = pytest.mark.deep

KNOWN: Any = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "n", "type": "int"}, {"name": "name", "type": "string"}],
}
UNKNOWN: Any = KNOWN | {"fields": [{"name": "more", "type": {"type": "array", "items": "long"}}, *KNOWN["fields"]]}
UNREADABLE: Any = KNOWN | {"fields": [{"name": "n", "type": "string"}]}
SLOW = pytest.mark.fault


@dataclass
class AvroAttacked(Attacked):
    """In the middle of partition 0 its producer goes over to a schema that is registered under another subject."""

    url: str = ""
    ids: dict[str, int] = field(default_factory=dict)

    def __enter__(self) -> Self:
        self.client = SchemaRegistryClient({"url": self.url})
        topic = self.pipeline.source.topic
        for name, subject, schema in (("known", "value", KNOWN), ("unknown", "other", UNKNOWN)):
            self.ids[name] = self.client.register_schema(f"{topic}-{subject}", Schema(json.dumps(schema), "AVRO"))
        self.deserializer = AvroDeserializer(self.client)
        return super().__enter__()

    def encoded(self, value: dict[str, object], partition: int) -> object:
        if partition or int(str(value["n"])) % 1000 < PER_PARTITION // 2:
            return framed(self.ids["known"], written(KNOWN, value))
        return framed(self.ids["unknown"], written(UNKNOWN, value | {"more": [1, 2]}))

    def decoded(self, record: Record) -> dict[str, int]:
        context = SerializationContext(self.pipeline.output.topic, MessageField.VALUE)
        found = self.deserializer(record.value, context)
        assert isinstance(found, dict)
        return found

    def bad_source(self) -> list[tuple[bytes, bytes, int, int]]:
        """Some fail a rule; of others there is something behind the value."""
        return [
            (
                f"p{p}bad{n}".encode(),
                framed(self.ids["known"], written(KNOWN, {"n": -1, "name": f"{d} {p} {n}"})) + end,
                p,
                at(d, 1),
            )
            for d in self.days
            for p in range(PARTITIONS)
            for n in range(self.bad)
            for end in (b"", b"\0")
        ]

    def register(self, subject: str, schema: Any, compatibility: str = "BACKWARD") -> None:
        self.client.set_compatibility(level=compatibility)
        try:
            self.client.register_schema(subject, Schema(json.dumps(schema), "AVRO"))
        finally:
            self.client.set_compatibility(level="BACKWARD")

    def differences_of_schemas(self, versions: int = 1) -> list[str]:
        """All records have the schema that the ledger names, the latest of so many that are registered for the output."""
        subject = self.pipeline.output_parts[0].subject
        known = self.client.get_versions(subject)
        found = [] if known == list(range(1, versions + 1)) else [f"versions {known} of {subject}"]
        newest = self.client.get_version(subject, known[-1]).schema_id
        schemas = latest(self.pipeline, day(1)).plan.schemas
        assert schemas is not None
        assert schemas.output is not None
        value = schemas.of(self.pipeline.source.topic).value
        assert value is not None
        ids = {schemas.output.id} | {
            int.from_bytes((r.value or b"")[1:5]) for r in read_all(self.bootstrap, self.pipeline.output.topic)
        }
        found += [] if ids == {newest} else [f"schemas {ids} of the output, and {newest} is registered"]
        readable = sorted(writer.id for writer in value.writers)
        return found + ([] if readable == sorted(self.ids.values()) else [f"the plan decodes ids {readable}"])


@pytest.fixture
def attacked(
    broker: Broker, schema_registry: SchemaRegistry, make_pipeline: Callable[..., Pipeline], tmp_path: Path
) -> Iterator[Callable[..., AvroAttacked]]:
    """Make an attacked pipeline; its source is filled."""
    with ExitStack() as stack:

        def make(publish: str = "direct") -> AvroAttacked:
            changes = SETTINGS | {
                "source": {"on_malformed": "quarantine", "format": "avro", "schema": {}},
                "output": {"format": "avro", "publish": publish},
                "schema_registry": {"url": schema_registry.url, "auto_register": True},
                "spark": {"spark.sql.execution.arrow.maxRecordsPerBatch": 20},
            }
            pipeline = make_pipeline(**changes)
            case = AvroAttacked(broker.bootstrap, pipeline, tmp_path / "struck", bad=BAD, url=schema_registry.url)
            return stack.enter_context(case)

        yield make


def retry_with_another_registry(spark: Any, case: Attacked) -> None:
    """After a version came that cannot read what is in the topic: a new plan would call every record malformed."""
    assert isinstance(case, AvroAttacked)
    case.register(case.pipeline.source_parts[0].subject, UNREADABLE, "NONE")
    run(spark, case.pipeline, day(1))


@pytest.mark.parametrize(
    ("place", "publish"),
    [
        pytest.param("plan.frozen", "direct", marks=SLOW),
        # The output's schema is registered, and the ledger does not know it.
        pytest.param("write.schemas-recording", "direct", marks=SLOW),
        pytest.param("write.schemas-recorded", "direct", marks=SLOW),
        # The unknown id is looked up; the second time, since the ledger has the output's schema by then.
        pytest.param("write.schemas-recording@3", "direct", marks=SLOW),
        ("write.schemas-recorded@3", "direct"),
        pytest.param("write.results-answered", "direct", marks=SLOW),
        pytest.param("advance.copied", "staged", marks=SLOW),
    ],
)
def test_each_record_once_and_its_schema_registered_once_after_the_driver_ended(
    spark: Any, attacked: Callable[..., AvroAttacked], place: str, publish: str
) -> None:
    case = attacked(publish)
    with at_failpoint(place, crash), pytest.raises(Crash):
        run(spark, case.pipeline, day(1))
    retry_with_another_registry(spark, case)
    assert_all_is_accounted_for(case)
    assert case.differences_of_schemas() == []


@pytest.mark.parametrize(
    "failpoint",
    [
        "write.committed#0=kill",
        pytest.param("write.committing#0=kill", marks=SLOW),
        pytest.param("write.committing#0=stop", marks=SLOW),
        pytest.param(f"write.committed#{MALFORMED}=kill", marks=SLOW),
    ],
)
def test_each_record_once_and_its_schema_registered_once_after_a_worker_was_struck(
    spark: Any, attacked: Callable[..., AvroAttacked], failpoint: str
) -> None:
    """Task-partition 0 has the records whose id is looked up."""
    case = attacked()
    plan_batch(case.pipeline, day(1))
    write = partial(write_batch, spark, case.pipeline, day(1))
    strike_worker_and_retry(spark, case, failpoint, write, retry_with_another_registry)
    assert_all_is_accounted_for(case)
    assert case.differences_of_schemas() == []


@pytest.mark.parametrize("failpoint", [pytest.param("write.schemas-recorded@3=kill", marks=SLOW)])
def test_each_record_once_and_its_schema_registered_once_after_a_driver_was_killed(
    spark: Any,
    attacked: Callable[..., AvroAttacked],
    start_step: Callable[..., subprocess.Popen[str]],
    failpoint: str,
) -> None:
    case = attacked()
    plan_batch(case.pipeline, day(1))
    process = start_step(case, "write", failpoint)
    await_strike_and_retry(spark, case, process, failpoint, retry_with_another_registry)
    assert_all_is_accounted_for(case)
    assert case.differences_of_schemas() == []


def test_an_attempt_that_comes_late_with_its_schema_takes_the_recorded_one(
    spark: Any, attacked: Callable[..., AvroAttacked]
) -> None:
    """It has registered version 1 and stalls; the other attempt finds version 2, and publishes with it."""
    case = attacked()
    plan_batch(case.pipeline, day(1))
    stalled, go_on = Event(), Event()

    def stall() -> None:
        stalled.set()
        assert go_on.wait(300)

    zombie = Attempt(partial(write_batch, spark, case.pipeline, day(1)))
    with at_failpoint("write.schemas-recording", stall):
        zombie.start()
        assert stalled.wait(120)
        first = json.loads(str(case.client.get_latest_version(case.pipeline.output_parts[0].subject).schema.schema_str))
        added = {"name": "added", "type": ["null", "string"], "default": None}
        case.register(case.pipeline.output_parts[0].subject, first | {"fields": [*first["fields"], added]})
        run(spark, case.pipeline, day(1))
        go_on.set()
        zombie.join(120)
    assert not zombie.is_alive()
    assert zombie.error is None
    assert_all_is_accounted_for(case)
    assert case.differences_of_schemas(versions=2) == []
