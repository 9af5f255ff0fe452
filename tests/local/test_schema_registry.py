"""The schema registry is a real one: ids, compatibility as Confluent's, and schemas that survive."""

import json
from pathlib import Path

import psutil
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, SchemaRegistryError

from fencepost_stack.errors import ServiceFailed
from fencepost_stack.ports import LOOPBACK
from fencepost_stack.schema_registry import SchemaRegistry

pytestmark = [pytest.mark.deep, pytest.mark.stack]


def client(registry: SchemaRegistry, password: str | None = None) -> SchemaRegistryClient:
    """It asks the registry each time: a client keeps what it has seen."""
    config: dict[str, object] = {"url": registry.url, "max.retries": 0}
    if registry.users:
        config["basic.auth.user.info"] = f"ann:{password or registry.users['ann']}"
    return SchemaRegistryClient(config)


def record(**fields: str) -> Schema:
    named = [{"name": name, "type": kind} for name, kind in fields.items()]
    return Schema(json.dumps({"type": "record", "name": "Reading", "fields": named}), "AVRO")


def test_a_new_registry_refuses_what_is_not_backward_compatible(schema_registry: SchemaRegistry) -> None:
    number = client(schema_registry).register_schema("refused-value", record(n="int"))
    assert client(schema_registry).get_schema(number).schema_type == "AVRO"
    with pytest.raises(SchemaRegistryError, match=r"reader type: STRING.*/fields/0/type") as refused:
        client(schema_registry).register_schema("refused-value", record(n="string"))
    assert refused.value.http_status_code == 409
    assert client(schema_registry).get_compatibility() == "BACKWARD"


def test_the_registry_listens_on_loopback_only(schema_registry: SchemaRegistry) -> None:
    sockets = psutil.Process(schema_registry.pid).net_connections(kind="tcp")
    listening = {(s.laddr.ip, s.laddr.port) for s in sockets if s.status == psutil.CONN_LISTEN}
    assert listening == {(LOOPBACK, schema_registry.port)}


def test_schemas_and_the_level_survive_a_kill_and_a_login_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The person who runs the tests may have a registry of their own, with other settings.
    monkeypatch.setenv("QUARKUS_HTTP_HOST", "0.0.0.0")  # noqa: S104
    monkeypatch.setenv("APICURIO_DATASOURCE_URL", "jdbc:h2:mem:lost")
    with SchemaRegistry(tmp_path / "a folder = with: signs", users={"ann": "r=i:g\\ht"}) as registry:
        with pytest.raises(SchemaRegistryError) as refused:
            client(registry, "wrong").get_subjects()
        assert refused.value.http_status_code == 401
        number = client(registry).register_schema("kept-value", record(n="int"))
        client(registry).set_compatibility(level="NONE")
        registry.kill()
        assert registry.pid is None
        registry.start()
        assert json.loads(str(client(registry).get_schema(number).schema_str)) == json.loads(
            str(record(n="int").schema_str)
        )
        later = client(registry).register_schema("kept-value", record(n="string"))
        assert client(registry).get_versions("kept-value") == [1, 2]
        assert later > number
        assert client(registry).get_compatibility() == "NONE"  # what a user has set is not set back


def test_another_registry_on_the_port_is_not_taken_for_this_one(
    schema_registry: SchemaRegistry, tmp_path: Path
) -> None:
    with pytest.raises(ServiceFailed, match=rf"(?s)Port {schema_registry.port} seems to be in use"):
        SchemaRegistry(tmp_path, schema_registry.port).start()
