"""A schema registry for tests: schemas in, and values with a schema's id in front. Shares no code with what is tested."""

from __future__ import annotations

import json
from typing import Any

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from fencepost_stack.schema_registry import SchemaRegistry


def client(registry: SchemaRegistry) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry.url})


def register(registry: SchemaRegistry, subject: str, schema: Any, kind: str = "AVRO") -> int:
    """The schema's id; whatever the subject's compatibility says. Apicurio takes NONE of a subject for no level of its own."""
    everywhere, text = client(registry), schema if kind == "PROTOBUF" else json.dumps(schema)
    everywhere.set_compatibility(level="NONE")
    try:
        return everywhere.register_schema(subject, Schema(text, kind))
    finally:
        everywhere.set_compatibility(level="BACKWARD")


def framed(schema_id: int, payload: Any) -> bytes:
    """With Confluent's five bytes in front; a payload that is not bytes becomes JSON."""
    return (
        b"\0" + schema_id.to_bytes(4, "big") + (payload if isinstance(payload, bytes) else json.dumps(payload).encode())
    )
