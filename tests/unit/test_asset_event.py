"""Commands that publish tell Airflow, where they know one, what a DAG's task would tell; elsewhere they say that they did not."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from fencepost.cli.app import app
from fencepost.model import State, StepResult
from makers import an_announcement

BATCH = "p_1/20260101T000000Z-20260102T000000Z/1"
EXTRA = an_announcement(batch=BATCH).json_value
ASSETS = [
    {"id": 4, "name": "p_1: out", "uri": "fencepost://pX1/out"},  # `_` is a pattern of Airflow's
    {"id": 5, "name": "another", "uri": "fencepost://p_1/out"},
    {"id": 7, "name": "p_1: out", "uri": "fencepost://p_1/out"},
]
PASSWORD = "hunter2"


class FakeAirflow(ThreadingHTTPServer):
    """Airflow's API, as far as an event needs it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.assets, self.status, self.events = ASSETS, 200, list[Any]()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answer(BaseHTTPRequestHandler):
    server: FakeAirflow

    def do_GET(self) -> None:
        assert "only_active=false" in self.path, "an asset that only tasks emit is not active"
        self.answer(200, {"assets": self.server.assets})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/auth/token":
            known = asked == {"username": "ann", "password": PASSWORD}
            self.answer(201 if known else 422, {"access_token": "t"} if known else {"input": asked})
            return
        assert (self.path, self.headers["Authorization"]) == ("/api/v2/assets/events", "Bearer t")
        self.server.events.append(asked)
        self.answer(self.server.status, {"detail": "said no"})

    def answer(self, status: int, body: Any) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeAirflow]:
    """An Airflow that the environment names."""
    with FakeAirflow() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("FENCEPOST_AIRFLOW_URL", server.url)
        monkeypatch.setenv("FENCEPOST_AIRFLOW_USER", "ann")
        monkeypatch.setenv("FENCEPOST_AIRFLOW_PASSWORD", PASSWORD)
        yield server
        server.shutdown()


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StepResult:
    """What `fencepost publish` finds that it did."""
    folder = tmp_path / "p_1"
    folder.mkdir()
    (folder / "transform.sql").write_text("SELECT value FROM {source}")
    (folder / "expectations.yaml").write_text("expectations: []\n")
    (folder / "pipeline.yaml").write_text(
        "source: {topic: in, format: bytes}\noutput: {topic: out}\nschedule: {start: 2026-01-01}\n"
        'kafka: {bootstrap.servers: "127.0.0.1:1"}\n'
    )
    monkeypatch.setenv("FENCEPOST_PIPELINES", str(tmp_path))
    monkeypatch.setenv("FENCEPOST_STATE", str(tmp_path / ".state"))
    return StepResult(
        step="advance",
        batch=BATCH,
        revision=1,
        state=State.PUBLISHED,
        changed=True,
        message="published",
        details={"announcement": EXTRA},
    )


@pytest.fixture
def publish(published: StepResult, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the command, with what its step answers."""

    def run(*options: str, **changed: Any) -> Result:
        result = published.model_copy(update=changed)
        monkeypatch.setattr("fencepost.steps.advance.advance_batch", lambda *_, **__: result)
        times = ("--start", "2026-01-01", "--end", "2026-01-02", "--reason", "a storm")
        return CliRunner(env={"COLUMNS": "1000"}).invoke(app, ["publish", "p_1", *times, *options])

    return run


def last_line(done: Result) -> str:
    assert done.exit_code == 0, done.output
    return done.stderr.strip().splitlines()[-1]


def test_the_event_is_that_of_a_task_and_of_the_very_asset(publish: Any, airflow: FakeAirflow) -> None:
    assert last_line(publish()) == f"event     emitted the asset event to Airflow at {airflow.url}"
    assert airflow.events == [{"asset_id": 7, "extra": EXTRA}]


@pytest.mark.parametrize("changed", [{"changed": False}, {"state": State.SKIPPED}])
def test_what_this_command_did_not_publish_is_not_told(publish: Any, airflow: FakeAirflow, changed: Any) -> None:
    assert "event" not in publish(**changed).output
    assert airflow.events == []


def test_where_no_airflow_is_known_the_last_line_says_so(publish: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FENCEPOST_AIRFLOW_URL", raising=False)
    told = last_line(publish())
    assert told.startswith(
        "event     no asset event, so DAGs that read the asset 'p_1: out' do not start. No Airflow is known"
    )
    assert "FENCEPOST_AIRFLOW_URL" in told


def test_an_airflow_without_the_asset_has_no_reader(publish: Any, airflow: FakeAirflow) -> None:
    airflow.assets = ASSETS[:2]
    assert f"Airflow at {airflow.url} has no asset 'p_1: out'" in last_line(publish())
    assert airflow.events == []


@pytest.mark.parametrize("fault", ["refused", "wrong password", "away"])
def test_a_publication_stays_done_where_its_event_fails_and_the_next_step_is_said(
    publish: Any, airflow: FakeAirflow, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    if fault == "refused":
        airflow.status = 403
    elif fault == "wrong password":
        monkeypatch.setenv("FENCEPOST_AIRFLOW_PASSWORD", "swordfish")
    else:
        monkeypatch.setenv("FENCEPOST_AIRFLOW_URL", "http://127.0.0.1:1")
    told = last_line(publish())
    assert told.startswith("event     published, but without its asset event: ")
    assert told.endswith(f"create the event in its UI, on the asset's page, with this extra: {json.dumps(EXTRA)}")
    assert "swordfish" not in told
    shown = json.loads(publish("--json").stdout)
    assert (shown["exit_code"], [step["step"] for step in shown["steps"]]) == (0, ["advance", "event"])
    assert shown["steps"][1]["details"] == {"extra": EXTRA}
    assert shown["steps"][1]["changed"] is False
