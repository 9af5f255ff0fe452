"""What is shown of a publication to an Iceberg table whose publisher was killed: by `fencepost status`, and on the pages."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from conftest import day
from fencepost.cli.app import app as commands
from fencepost.doctor.examination import examine
from fencepost.findings import Level

from .conftest import finished
from .test_lake_faults import Case, case, make_case, started, truth

__all__ = ["case", "make_case", "started"]

Get = Callable[[str], str]
Started = Callable[[Case, str], tuple[subprocess.Popen[str], Callable[[], int]]]


class Guard:
    """An auth manager that knows one user, who may read everything."""

    async def get_user_from_token(self, token: str) -> Any:
        return SimpleNamespace(name="ann")

    def is_authorized_dag(self, **_: Any) -> bool:
        return True


@pytest.fixture
def get(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Get:
    """A page's text, as Airflow passes it on: without tags and with single blanks."""
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "airflow"))
    from airflow.api_fastapi.core_api import security

    from fencepost.pages import access, app
    from fencepost.pages.ledgers import Ledgers
    from fencepost.pages.pipelines import Pipelines

    monkeypatch.setattr(app, "ledgers", Ledgers())  # whose client ends with the test
    monkeypatch.setattr(app, "pipelines", Pipelines())
    monkeypatch.setattr(app, "runs_of", lambda dag_id, intervals: {})
    monkeypatch.setattr(app, "stopped_runs", lambda dag_id, rows: set())
    monkeypatch.setattr(security, "get_auth_manager", Guard)
    monkeypatch.setattr(access, "get_auth_manager", Guard)
    monkeypatch.setattr(security.DagModel, "get_team_name", lambda dag_id: None)
    transport = httpx.ASGITransport(app.app, root_path="/fencepost")

    async def ask(path: str) -> str:
        headers = {"Authorization": "Bearer token"}
        async with httpx.AsyncClient(transport=transport, base_url="http://test/fencepost", headers=headers) as client:
            answer = await client.get(path)
            assert answer.status_code == 200, answer.text
            return " ".join(re.sub(r"<[^>]*>", " ", answer.text).split())

    return lambda path: asyncio.run(ask(path))


@pytest.mark.parametrize("place", ["lake.committed", pytest.param("lake.written", marks=pytest.mark.deep)])
def test_a_killed_publication_is_shown_as_under_way_until_it_is_finished(
    case: Case, started: Started, get: Get, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Before the commit and after it: the ledger has no end yet, and the table is not said to lack anything."""
    monkeypatch.setenv("FENCEPOST_PIPELINES", str(case.pipeline.folder.parent))
    process, _ = started(case, f"{place}=kill")
    code, said = finished(process)
    assert code == -9, said
    assert case.contents() == ([[]] if place == "lake.written" else [[], truth()])
    page = f"pipelines/{case.pipeline.name}/{day(1)}"
    assert status(case) == ("publishing", None, {"0": 0, "1": 0}, None)
    shown = get(page)
    assert "Revision 1 publishing" in shown
    assert f"Published as one snapshot of table {case.table}, not finished" in shown
    said_of = [(one.check, one.level, one.found) for one in examine(case.pipeline)]
    assert ("unfinished batches", Level.OK, "1 batch is under way") in said_of
    assert ("lake contents", Level.OK, "the table has every published interval, and no other rows") in said_of

    case.publish()
    case.check()
    snapshot = case.lake.history(case.table)[-1]
    assert status(case) == ("published", f"as snapshot {snapshot} of table {case.table}", {"0": 3, "1": 3}, None)
    shown = get(page)
    assert "Revision 1 published" in shown
    assert f"Published as snapshot {snapshot} of table {case.table}" in shown


def status(case: Case) -> tuple[str, str | None, dict[str, int], str | None]:
    """By the command: the batch's state and how it was published, the frontier, and what the table lacks."""
    done = CliRunner().invoke(commands, ["status", case.pipeline.name, "--json"], catch_exceptions=False)
    found = json.loads(done.stdout)
    (batch,) = found["batches"]
    return batch["state"], batch["published"], found["frontier"][case.pipeline.source.topic], found["output_lacks"]
