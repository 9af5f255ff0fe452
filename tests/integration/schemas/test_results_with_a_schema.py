"""Results in quarantine have the output's schema and key, not the source's: a replay reads them by it, or keeps them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from avro_schemas import written
from conftest import at, day
from fencepost.config.pipeline import Pipeline
from fencepost.model import State
from fencepost_stack.broker import Broker
from fencepost_stack.schema_registry import SchemaRegistry
from kafka_tools import Record, create_topic, produce, read_all
from registry_tools import framed, register
from steps import latest, replay, run

Make = Callable[..., Pipeline]


def avro(*names: str) -> dict[str, Any]:
    fields = [{"name": name, "type": ["null", "int"], "default": None} for name in names]
    return {"type": "record", "name": "R", "fields": fields}


def json_schema(*names: str) -> dict[str, Any]:
    properties = {name: {"type": ["integer", "null"]} for name in names}
    return {"title": "T", "type": "object", "properties": properties, "additionalProperties": False}


DROPPING = "def transform(frame):\n    return frame.selectExpr('_key', 'n')\n"
RULES = """
expectations:
  - type: expect_column_values_to_be_between
    severity: quarantine
    kwargs: {column: n, min_value: LOWEST}
"""
VALUES = [1, -2, -30]


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["avro", "json_schema"])
def test_a_result_with_the_outputs_schema_is_published_and_one_with_another_stays(
    kind: str, spark: Any, broker: Broker, make_pipeline: Make, schema_registry: SchemaRegistry
) -> None:
    schema_of = avro if kind == "avro" else json_schema
    name: str | None = None

    def registered(subject: str, *names: str) -> int:
        return register(schema_registry, subject, schema_of(*names), "AVRO" if kind == "avro" else "JSON")

    def pipeline_with(lowest: int) -> Pipeline:
        return make_pipeline(
            DROPPING,
            RULES.replace("LOWEST", str(lowest)),
            name=name,
            source={"format": kind, "schema": {}, "on_malformed": "quarantine"},
            output={"format": kind, "publish": "staged"},
            schema_registry={"url": schema_registry.url},
            quality={"quarantine_limit": "none"},
        )

    pipeline = pipeline_with(0)
    name, source, out = pipeline.name, pipeline.source.topic, pipeline.output.topic
    create_topic(broker.bootstrap, source, 1)
    incoming = registered(f"{source}-value", "n", "more")
    outgoing = registered(f"{out}-value", "n")
    assert incoming != outgoing

    def encoded(n: int) -> bytes:
        if kind == "avro":
            return framed(incoming, written(avro("n", "more"), {"n": n, "more": 0}))
        return framed(incoming, json.dumps({"n": n, "more": 0}).encode())

    records: list[Any] = [(b"k%d" % n, encoded(n), 0, at(1)) for n in VALUES]
    produce(broker.bootstrap, source, [*records, (b"broken", b"{", 0, at(1))])
    run(spark, pipeline, day(1))
    first = {r.key: r for r in left(broker, pipeline)}
    assert set(first) == {b"k-2", b"k-30", b"broken"}

    replay(spark, pipeline_with(-10), day(1))
    assert latest(pipeline, day(1)).state is State.PUBLISHED
    assert [r.key for r in read_all(broker.bootstrap, out)] == [b"k1", b"k-2"]
    (added,) = (r for r in read_all(broker.bootstrap, out) if r.key == b"k-2")
    assert added.value == first[b"k-2"].value
    assert {r.key for r in left(broker, pipeline)} == {b"k-30", b"broken"}

    newer = registered(f"{out}-value", "n", "note")
    replay(spark, pipeline_with(-100), day(1))
    kept = {r.key: r for r in left(broker, pipeline)}
    assert set(kept) == {b"k-30", b"broken"}
    assert kept[b"k-30"].value == first[b"k-30"].value
    said = {header: (value or b"").decode() for header, value in kept[b"k-30"].headers}
    assert said["fencepost-reason"] == f"result: not written with schema id {newer}, as the output is"
    assert (said["fencepost-rule"], said["fencepost-kept"], said["fencepost-attempt"]) == ("malformed", "result", "3")


def left(broker: Broker, pipeline: Pipeline) -> list[Record]:
    """What the newest batch has in quarantine."""
    batch = str(latest(pipeline, day(1)).id).encode()
    return [r for r in read_all(broker.bootstrap, pipeline.quarantine_topic) if r.headers[-1][1] == batch]
