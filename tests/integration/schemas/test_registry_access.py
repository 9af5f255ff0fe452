"""A registry that asks for a client certificate and for credentials: a gate with TLS in front of the real one.

Certificates are made on the spot.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import SHUT_WR, socket
from threading import Thread
from typing import Any

import httpx2
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from avro_schemas import written
from conftest import at, day
from fencepost.config.pipeline import Pipeline
from fencepost.errors import AccessDenied, FencepostError, Retriable, SettingsError
from fencepost.ledger.ledger import Ledger
from fencepost.model import State
from fencepost.steps.plan import plan_batch
from fencepost_stack.broker import Broker
from fencepost_stack.schema_registry import API, SchemaRegistry
from kafka_tools import create_topic, produce, read_all
from registry_tools import framed
from rigs.certificates import PASSWORD, make_all_certificates
from steps import latest, run

pytestmark = pytest.mark.deep

SCHEMA = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}
BASIC = {"username": "etl", "password": "hunter2"}
BEARER = {"token": "hunter3"}
MOST_TRIES = 3


class Gate(ThreadingHTTPServer):
    """Lets in who has a certificate of its authority and the password or the token, and hands their requests on."""

    daemon_threads = True
    allowed = ("Basic ZXRsOmh1bnRlcjI=", "Bearer hunter3")  # etl:hunter2

    def __init__(self, files: Path, target: int) -> None:
        super().__init__(("127.0.0.1", 0), Handing)
        self.target, self.connections = f"http://127.0.0.1:{target}", 0
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(files / "ca.pem"))
        self._tls.load_cert_chain(files / "server.pem", files / "server.key")
        self._tls.verify_mode = ssl.CERT_REQUIRED

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.server_port}{API}"

    def finish_request(self, request: Any, client_address: Any) -> None:
        self.connections += 1
        connection = self._tls.wrap_socket(request, server_side=True, do_handshake_on_connect=False)
        try:
            connection.settimeout(20)
            connection.do_handshake()
        except OSError:  # the client is told why, and reads it: a reset could overtake it
            with socket(fileno=connection.detach()) as plain, suppress(OSError):
                plain.settimeout(20)
                plain.shutdown(SHUT_WR)
                while plain.recv(4096):
                    pass
            return
        with connection, suppress(OSError):
            Handing(connection, client_address, self)


class Handing(BaseHTTPRequestHandler):
    """One request of one who has a certificate."""

    def do_GET(self) -> None:
        gate = self.server
        assert isinstance(gate, Gate)
        if self.headers["Authorization"] not in gate.allowed:
            self.send_response(401)
            self.end_headers()
            return
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        kind = {"Content-Type": self.headers["Content-Type"] or "application/json"}
        answer = httpx2.request(self.command, gate.target + self.path, content=body, headers=kind, trust_env=False)
        self.send_response(answer.status_code)
        self.end_headers()
        self.wfile.write(answer.content)

    do_POST = do_GET  # noqa: N815

    def log_message(self, *_: Any) -> None:
        """Not on stderr."""


@dataclass(frozen=True)
class Guarded:
    """Gates by the name of who made their certificates, with the files."""

    folder: Path
    gates: dict[str, Gate] = field(default_factory=dict)

    def file(self, name: str) -> str:
        return str(self.folder / name)

    def settings(self, gate: str, **changes: str | None) -> dict[str, Any]:
        """For one who gets in."""
        whole = {
            "url": self.gates[gate].url,
            "ca_location": self.file(f"{gate}/ca.pem"),
            "certificate_location": self.file("ours/client.pem"),
            "key_location": self.file("ours/client.encrypted.key"),
            "key_password": PASSWORD,
            **BASIC,
        }
        return {name: value for name, value in (whole | changes).items() if value is not None}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, schema_registry: SchemaRegistry) -> Iterator[Guarded]:
    """`ours` is for this host, `theirs` is another authority's and for another one."""
    found = Guarded(tmp_path_factory.mktemp("certificates"))
    for name, host in (("ours", "127.0.0.1"), ("theirs", "127.0.0.2")):
        (found.folder / name).mkdir()
        make_all_certificates(found.folder / name, host)
        found.gates[name] = Gate(found.folder / name, schema_registry.port)
    with serving(*found.gates.values()):
        yield found


@contextmanager
def serving(*gates: Gate) -> Iterator[None]:
    threads = [Thread(target=gate.serve_forever, kwargs={"poll_interval": 0.05}) for gate in gates]
    for thread in threads:
        thread.start()
    yield
    for gate, thread in zip(gates, threads, strict=True):
        gate.shutdown()
        thread.join()
        gate.server_close()


@pytest.fixture
def make(
    make_pipeline: Callable[..., Pipeline], broker: Broker, schema_registry: SchemaRegistry
) -> Callable[..., Pipeline]:
    """A pipeline with these settings of its registry, and one record to read."""
    client = SchemaRegistryClient({"url": schema_registry.url})

    def make(settings: dict[str, Any]) -> Pipeline:
        pipeline = make_pipeline(
            "def transform(frame):\n    return frame\n",
            source={"format": "avro", "schema": {}},
            output={"format": "avro"},
            schema_registry={**settings, "auto_register": True},
        )
        topic = pipeline.source.topic
        create_topic(broker.bootstrap, topic, 1)
        schema_id = client.register_schema(f"{topic}-value", Schema(json.dumps(SCHEMA), "AVRO"))
        produce(broker.bootstrap, topic, [(b"k", framed(schema_id, written(SCHEMA, {"n": 5})), 0, at(1))])
        return pipeline

    return make


def secrets(guarded: Guarded) -> list[str]:
    keys = [file.read_text().splitlines()[1] for file in guarded.folder.rglob("client*key")]
    return ["hunter", "ZXRsOmh1bnRlcjI", *keys]


def test_a_certificate_and_credentials_pass_through_all_steps_and_show_nowhere(
    spark: Any,
    make: Callable[..., Pipeline],
    guarded: Guarded,
    schema_registry: SchemaRegistry,
    broker: Broker,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With a password all four steps, of which write registers the output's schema; with a token the plan."""
    caplog.set_level("DEBUG")
    pipeline = make(guarded.settings("ours"))
    run(spark, pipeline, day(1))
    assert latest(pipeline, day(1)).state is State.PUBLISHED
    (record,) = read_all(broker.bootstrap, pipeline.output.topic)
    deserializer = AvroDeserializer(SchemaRegistryClient({"url": schema_registry.url}))
    context = SerializationContext(pipeline.output.topic, MessageField.VALUE)
    assert deserializer(record.value, context) == {"n": 5}
    with_token = make(guarded.settings("ours", username=None, password=None, **BEARER))
    plan_batch(with_token, day(1))
    reports = [file.read_text(errors="replace") for file in (tmp_path / "reports").rglob("*") if file.is_file()]
    ledgers = [latest(one, day(1)).model_dump_json() for one in (pipeline, with_token)]
    assert reports
    for secret in secrets(guarded):
        assert not [text for text in (caplog.text, *reports, *ledgers) if secret in text]


REFUSED: list[tuple[str, str, dict[str, str | None], type[FencepostError], str]] = [
    (
        "another authority's certificate",
        "ours",
        {"ca_location": "theirs/ca.pem"},
        SettingsError,
        r"its certificate is not trusted \(.*\). Check schema_registry.ca_location",
    ),
    ("no authority", "ours", {"ca_location": None}, SettingsError, "Check schema_registry.ca_location"),
    (
        "no client certificate",
        "ours",
        {"certificate_location": None, "key_location": None, "key_password": None},
        AccessDenied,
        r"refused the connection \(TLSV13_ALERT_CERTIFICATE_REQUIRED\). Check certificate_location and key_location",
    ),
    (
        "a client certificate of another authority",
        "ours",
        {"certificate_location": "theirs/client.pem", "key_location": "theirs/client.encrypted.key"},
        AccessDenied,
        r"refused the connection \(TLSV1_ALERT_\w+\). Check certificate_location and key_location",
    ),
    ("another host", "theirs", {}, SettingsError, "its certificate is for another host. Correct schema_registry.url"),
    (
        "no password of the key",
        "ours",
        {"key_password": None},
        SettingsError,
        "A key that is encrypted needs its key_password",
    ),
    ("a wrong one", "ours", {"key_password": "hunter-wrong"}, SettingsError, "key_location cannot be used"),
    (
        "another key",
        "ours",
        {"key_location": "ours/server.encrypted.key"},
        SettingsError,
        "key_location cannot be used",
    ),
    (
        "a wrong password",
        "ours",
        {"password": "hunter-wrong"},
        AccessDenied,
        r"to these credentials \(HTTP 401\). Check username and password, or token",
    ),
    (
        "a wrong token",
        "ours",
        {"username": None, "password": None, "token": "hunter-wrong"},
        AccessDenied,
        r"to these credentials \(HTTP 401\). Check username and password, or token",
    ),
]


def test_who_does_not_get_in_is_told_the_setting_and_no_retry_follows(
    make: Callable[..., Pipeline], guarded: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is planned, and no secret is in a message or a log."""
    caplog.set_level("DEBUG")
    for case, name, changes, error, words in REFUSED:
        gate = guarded.gates[name]
        files = {key: guarded.file(value) if value and "_location" in key else value for key, value in changes.items()}
        pipeline = make(guarded.settings(name, **files))
        before = gate.connections
        with pytest.raises(error, match=words) as found:
            plan_batch(pipeline, day(1))
        assert not isinstance(found.value, Retriable), case
        assert f"pipeline {pipeline.name}: schema registry {gate.url}" in str(found.value), case
        assert gate.connections - before <= MOST_TRIES, case
        assert Ledger(pipeline).read().last(day(1)) is None, case
        for secret in secrets(guarded):
            assert secret not in str(found.value) + caplog.text, case


def test_a_url_that_is_not_of_tls_is_told(
    make: Callable[..., Pipeline], guarded: Guarded, schema_registry: Any
) -> None:
    pipeline = make(guarded.settings("ours", url=schema_registry.url.replace("http:", "https:")))
    with pytest.raises(SettingsError, match=r"the server there does not use TLS \(.*\). Correct schema_registry.url"):
        plan_batch(pipeline, day(1))
