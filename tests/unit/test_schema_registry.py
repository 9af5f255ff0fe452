"""What a pipeline may say about a schema registry, and what its answers mean. The answers come from a server made on the spot."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

from fencepost.config.loading import load_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.doctor.run_check import run_check
from fencepost.doctor.settings import check_schema_registry
from fencepost.errors import AccessDenied, FencepostError, LoginRefused, RegistryUnavailable, SettingsError
from fencepost.findings import Level
from fencepost.schemas.freeze import freeze_schemas
from fencepost.schemas.registry import NotRegistered, OtherType, Registry

Load = Callable[..., Pipeline]
AVRO = {"format": "avro", "key_format": "avro"}
URL = {"url": "http://127.0.0.1:8081"}


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Load a pipeline whose source is in Avro, with this `schema_registry`; `changes` go over its sections."""

    def load(registry: dict[str, Any] | None = URL, **changes: dict[str, Any]) -> Pipeline:
        folder = tmp_path / "p"
        folder.mkdir(exist_ok=True)
        settings: dict[str, Any] = {
            "source": {"topic": "in", "format": "avro", **changes.get("source", {})},
            "output": {"topic": "out", **changes.get("output", {})},
            "schedule": {"start": "2026-01-01"},
            "kafka": {"bootstrap.servers": "127.0.0.1:9092"},
        }
        if registry is not None:
            settings["schema_registry"] = registry
        (folder / "pipeline.yaml").write_text(yaml.safe_dump(settings))
        (folder / "transform.sql").write_text("SELECT * FROM {source}")
        (folder / "expectations.yaml").write_text("expectations: [{type: expect_column_to_exist, kwargs: {column: n}}]")
        return load_pipeline(folder)

    return load


REFUSED: list[tuple[dict[str, Any] | None, dict[str, dict[str, Any]], str]] = [
    (None, {}, "source.format: avro needs schema_registry: with"),
    ({}, {}, "schema_registry.url: required"),
    ({"url": "127.0.0.1:8081"}, {}, "not a URL such as https://registry:8081"),
    ({"url": "http://etl:hunter2@r:8081"}, {}, "the URL contains a user, and messages show the URL"),
    (URL | {"username": "etl"}, {}, "username and password belong together"),
    (URL | {"username": "e:l", "password": "hunter2"}, {}, "username contains a colon"),
    (URL | {"username": "etl", "password": "hunter2", "token": "hunter2"}, {}, "or token, and not both"),
    (URL | {"token": "hunter2\n"}, {}, "token is empty, or holds a space, a line break"),
    (URL | {"key_location": "/k.pem"}, {}, "key_location needs certificate_location"),
    (URL | {"ca_location": "-----BEGIN hunter2"}, {}, "ca_location holds the text of a certificate"),
    (URL | {"passwort": "hunter2"}, {}, "unknown field; allowed here are connection, url, username, password"),
    (URL, {"source": {"schema": {"n": "int"}}}, "column 'n': with format avro its type comes from the schema registry"),
    (URL, {"output": {"subject": "s"}}, "subject needs format: avro or json_schema"),
    (None, {"output": {"format": "json_schema"}}, "source.format: avro and output.format: json_schema needs"),
    (None, {"output": {"format": "json_schema"}, "source": {"format": "bytes"}}, "): output.format: json_schema needs"),
    (URL, {"source": {"key_version": 1}}, "key_version needs key_format: avro"),
    (URL, {"output": {"key_format": "avro"}}, "key_format: avro needs key: a column"),
    (URL, {"source": {"version": 0}}, "source.version"),
]


@pytest.mark.parametrize(("registry", "changes", "words"), REFUSED, ids=[words for _, _, words in REFUSED])
def test_a_mistake_in_the_settings_is_refused_without_a_secret(
    load: Load, registry: dict[str, Any] | None, changes: dict[str, dict[str, Any]], words: str
) -> None:
    with pytest.raises(SettingsError) as found:
        load(registry, **changes)
    assert words in str(found.value)
    assert "hunter2" not in str(found.value)


def test_credentials_come_from_the_environment_and_the_url_may_not_hold_one(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_PASSWORD", "hunter2")
    monkeypatch.setenv("REGISTRY_URL", "https://etl:hunter2@registry:8081")
    pipeline = load(URL | {"username": "etl", "password": "${REGISTRY_PASSWORD}"})
    assert pipeline.schema_registry is not None
    assert pipeline.schema_registry.password is not None
    assert pipeline.schema_registry.password.get_secret_value() == "hunter2"
    assert "hunter2" not in repr(pipeline)
    for name, words in (("REGISTRY_URL", "holds a URL with a password"), ("REGISTRY_PASSWORD", "looks like a secret")):
        with pytest.raises(SettingsError, match=words) as found:
            load({"url": f"${{{name}}}"})
        assert "hunter2" not in str(found.value)


def test_subjects_go_by_the_topics_name_unless_another_is_set(load: Load) -> None:
    pipeline = load(source=AVRO | {"key_subject": "keys"}, output=AVRO | {"key": "_key", "subject": "values"})
    found = {part.name: part.subject for part in (*pipeline.source_parts, *pipeline.output_parts)}
    assert found == {"source": "in-value", "source_key": "keys", "output": "values", "output_key": "out-key"}


def test_another_registry_is_another_plan_and_other_credentials_are_not(load: Load) -> None:
    before = load().write_digests()
    assert load(URL | {"token": "t", "auto_register": True}).write_digests() == before
    assert load({"url": "http://127.0.0.1:8082"}).write_digests() != before
    assert load(source={"version": 2}).write_digests() != before
    assert "registry" not in load(URL, source={"format": "bytes"}).write_digests()


class Answers(BaseHTTPRequestHandler):
    """Answers each path with a status and a body."""

    table: dict[str, tuple[int, str]] = {}  # noqa: RUF012
    asked: list[str] = []  # noqa: RUF012

    def do_GET(self) -> None:
        self.asked.append(self.path.split("?")[0])
        status, body = self.table.get(self.path.split("?")[0], (404, '{"error_code": 40401, "message": "no"}'))
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: Any) -> None:
        """Not on stderr."""


@pytest.fixture
def answering(load: Load) -> Iterator[Callable[..., Pipeline]]:
    """A pipeline whose registry answers so, by path."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()

        def answering(table: dict[str, tuple[int, Any]], **changes: dict[str, Any]) -> Pipeline:
            Answers.asked.clear()
            Answers.table = {path: (s, b if isinstance(b, str) else json.dumps(b)) for path, (s, b) in table.items()}
            return load({"url": f"http://127.0.0.1:{server.server_port}"}, **changes)

        yield answering
        server.shutdown()
        thread.join()


VERSIONS = "/subjects/in-value/versions"
MEANT: list[tuple[int, str, type[Exception]]] = [
    (401, "hunter2", LoginRefused),
    (403, '{"error_code": 40301, "message": "hunter2"}', AccessDenied),
    (404, '{"error_code": 40401, "message": "no subject"}', NotRegistered),
    (404, '{"error_code": 40403, "message": "no schema"}', NotRegistered),
    (404, '{"error_code": 404, "message": "hunter2"}', RegistryUnavailable),  # what a registry says of a wrong path
    (404, '{"detail": "hunter2", "status": 404}', RegistryUnavailable),
    (404, "<html>hunter2", RegistryUnavailable),
    (404, "", RegistryUnavailable),
    (429, "", RegistryUnavailable),
    (500, '{"error_code": 50001, "message": "hunter2"}', RegistryUnavailable),
    (503, "", RegistryUnavailable),
    (422, '{"error_code": 42201, "message": "hunter2"}', SettingsError),
    (200, "<html>hunter2", RegistryUnavailable),
    (200, '{"hunter2": 1}', RegistryUnavailable),
]


@pytest.mark.parametrize(("status", "body", "error"), MEANT, ids=[f"{s} {b}" for s, b, _ in MEANT])
def test_an_answer_means_that_error_and_its_words_are_not_repeated(
    answering: Callable[..., Pipeline], status: int, body: str, error: type[Exception]
) -> None:
    registry = Registry(answering({VERSIONS: (status, body)}), "AVRO")
    with pytest.raises(error) as found:
        registry.versions("in-value")
    assert type(found.value) is error
    assert "hunter2" not in str(found.value)
    if isinstance(found.value, FencepostError):
        assert "pipeline p: schema registry http://127.0.0.1:" in str(found.value)


@pytest.mark.parametrize("status", [401, 403])
def test_the_doctor_finds_credentials_that_the_registry_refuses_to_the_plan(
    answering: Callable[..., Pipeline], status: int
) -> None:
    (found,) = run_check(check_schema_registry, answering({VERSIONS: (status, "{}")}))
    assert (found.level, f"(HTTP {status})" in found.found) == (Level.ERROR, True)


def test_a_registry_that_is_away_is_worth_another_try(load: Load) -> None:
    with pytest.raises(RegistryUnavailable, match=r"http://127.0.0.1:9 does not answer \(ConnectError\)"):
        Registry(load({"url": "http://127.0.0.1:9"}), "AVRO").versions("s")


def test_certificates_that_cannot_be_read_are_a_setting(load: Load, tmp_path: Path) -> None:
    for file in ("missing.pem", "p/pipeline.yaml"):
        pipeline = load(URL | {"ca_location": str(tmp_path / file)})
        with pytest.raises(SettingsError, match="its ca_location, certificate_location or key_location cannot be used"):
            Registry(pipeline, "AVRO").versions("s")


def test_a_schema_of_another_type_and_a_version_that_is_missing_are_refused(answering: Callable[..., Pipeline]) -> None:
    of_json = {"id": 3, "version": 1, "subject": "in-value", "schema": "{}", "schemaType": "JSON"}
    pipeline = answering({VERSIONS: (200, [1]), f"{VERSIONS}/1": (200, of_json)})
    with pytest.raises(OtherType, match="schema id 3 is of type JSON, and the pipeline's format needs AVRO"):
        freeze_schemas(pipeline)
    pipeline = answering({VERSIONS: (200, [1])}, source={"version": 7})
    with pytest.raises(SettingsError, match="subject in-value has no version 7"):
        freeze_schemas(pipeline)


def test_another_version_of_another_type_or_that_is_gone_does_not_stop_a_plan(
    answering: Callable[..., Pipeline],
) -> None:
    """A record of it would have its schema looked up."""
    own = json.dumps({"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]})
    of_json = {"id": 3, "version": 1, "subject": "in-value", "schema": "{}", "schemaType": "JSON"}
    of_avro = {"id": 5, "version": 3, "subject": "in-value", "schema": own}
    found = freeze_schemas(
        answering({VERSIONS: (200, [1, 2, 3]), f"{VERSIONS}/1": (200, of_json), f"{VERSIONS}/3": (200, of_avro)})
    )
    assert found is not None
    values = found.of("in").value
    assert values is not None
    assert values.ids == {5}
    assert values.refused == {}


def test_a_plan_asks_for_the_newest_versions_only(answering: Callable[..., Pipeline]) -> None:
    text = json.dumps({"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]})
    table: dict[str, tuple[int, Any]] = {VERSIONS: (200, list(range(1, 1001)))}
    for number in (*range(951, 1001), 7):
        table[f"{VERSIONS}/{number}"] = (200, {"id": number, "version": number, "subject": "in-value", "schema": text})
    for fixed in ({}, {"version": 7}):
        found = freeze_schemas(answering(table, source=fixed))
        assert found is not None
        values = found.of("in").value
        assert values is not None
        assert len(values.writers) == 50
        assert values.reader.id == fixed.get("version", 1000)
        assert {"7", *map(str, values.ids)} >= {path.rpartition("/")[2] for path in Answers.asked if path != VERSIONS}


def test_schemas_may_call_one_subject_by_two_names_and_two_by_one(answering: Callable[..., Pipeline]) -> None:
    def refers(*to: tuple[str, str]) -> list[dict[str, Any]]:
        return [{"name": name, "subject": subject, "version": 1} for name, subject in to]

    def of(**properties: str) -> str:
        return json.dumps({"type": "object", "properties": {name: {"$ref": to} for name, to in properties.items()}})

    answers: dict[str, tuple[str, list[dict[str, Any]]]] = {
        "in-value": (of(price="price.json", note="money.json", n="n.json"), []),
        "price": (of(cents="money.json"), refers(("money.json", "number"))),
        "number": ('{"type": "integer"}', []),
        "text": ('{"type": "string"}', []),
    }
    answers["in-value"][1].extend(refers(("price.json", "price"), ("money.json", "text"), ("n.json", "number")))
    table = {
        f"/subjects/{subject}/versions/1": (
            200,
            {"id": 1, "version": 1, "subject": subject, "schema": text, "references": to, "schemaType": "JSON"},
        )
        for subject, (text, to) in answers.items()
    }
    found = freeze_schemas(answering({VERSIONS: (200, [1]), **table}, source={"format": "json_schema"}))
    assert found is not None
    values = found.of("in").value
    assert values is not None
    assert json.loads(values.reader.text)["properties"] == {
        "price": {"type": "object", "properties": {"cents": {"type": "integer"}}},
        "note": {"type": "string"},
        "n": {"type": "integer"},
    }


def test_a_schema_that_refers_to_others_is_frozen_whole(answering: Callable[..., Pipeline]) -> None:
    outer = {"type": "record", "name": "R", "fields": [{"name": "one", "type": "a.Inner"}]}
    inner = {"type": "record", "name": "a.Inner", "fields": [{"name": "x", "type": "int"}]}
    reference = {"name": "a.Inner", "subject": "inner", "version": 2}
    of_outer = {"id": 3, "version": 1, "subject": "in-value", "schema": json.dumps(outer), "references": [reference]}
    of_inner = {"id": 4, "version": 2, "subject": "inner", "schema": json.dumps(inner)}
    found = freeze_schemas(
        answering(
            {
                VERSIONS: (200, [1]),
                f"{VERSIONS}/1": (200, of_outer),
                "/subjects/inner/versions/2": (200, of_inner),
            }
        )
    )
    assert found is not None
    values = found.of("in").value
    assert values is not None
    assert json.loads(values.reader.text)["fields"][0]["type"]["fields"] == [{"name": "x", "type": "int"}]
    assert found.descriptions == {"source": "subject in-value (version 1, id 3); records of ids 3"}


def test_a_json_schema_is_frozen_with_every_id_of_its_subject_and_without_what_is_declared(
    answering: Callable[..., Pipeline],
) -> None:
    """References are put in their places. What earlier versions say does not matter."""
    new = {"type": "object", "properties": {"one": {"$ref": "inner.json"}, "any": True, "n": {"type": "integer"}}}
    reference = {"name": "inner.json", "subject": "inner", "version": 2}
    answers = {
        f"{VERSIONS}/1": {"id": 3, "version": 1, "schema": "true"},
        f"{VERSIONS}/2": {"id": 4, "version": 2, "schema": json.dumps(new), "references": [reference]},
        "/subjects/inner/versions/2": {"id": 5, "version": 2, "schema": '{"type": "string"}'},
    }
    table = {path: (200, answer | {"schemaType": "JSON", "subject": "in-value"}) for path, answer in answers.items()}
    source = {"format": "json_schema", "schema": {"any": "string"}}
    found = freeze_schemas(answering({VERSIONS: (200, [1, 2]), **table}, source=source))
    assert found is not None
    values = found.of("in").value
    assert values is not None
    assert json.loads(values.reader.text) == {
        "type": "object",
        "properties": {"one": {"type": "string"}, "n": {"type": "integer"}},
    }
    assert {w.version: (w.id, w.text) for w in values.writers} == {1: (3, ""), 2: (4, "")}
    assert found.descriptions == {"source": "subject in-value (version 2, id 4); records of ids 3, 4"}


def test_old_versions_beyond_a_size_are_left_to_be_looked_up(answering: Callable[..., Pipeline]) -> None:
    """A plan is written to the ledger again and again."""
    table: dict[str, tuple[int, Any]] = {VERSIONS: (200, list(range(1, 31)))}
    for number in range(1, 31):
        fields = [{"name": f"{'f' * 500}{i}", "type": "int", "default": 0} for i in range(20 + number)]
        text = json.dumps({"type": "record", "name": "R", "fields": fields, "doc": "d" * 100_000})
        table[f"{VERSIONS}/{number}"] = (200, {"id": number, "version": number, "subject": "in-value", "schema": text})
    found = freeze_schemas(answering(table))
    assert found is not None
    values = found.of("in").value
    assert values is not None
    versions = [w.version for w in values.writers]
    assert versions == list(range(30, 30 - len(versions), -1))
    assert 3 < len(versions) < 30
    assert len(found.model_dump_json()) < 300_000
