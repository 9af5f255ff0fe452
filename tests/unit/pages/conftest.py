"""The pages' application with ledgers made by hand, and Airflow's guards with a fake auth manager behind them."""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

if "AIRFLOW_HOME" not in os.environ:  # Airflow makes it when it is first imported; never in the user's home
    os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="fencepost-airflow-")
    atexit.register(shutil.rmtree, os.environ["AIRFLOW_HOME"], ignore_errors=True)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of Airflow's and Starlette's own, while they are imported
    from airflow.api_fastapi.core_api import security

    from fencepost.pages import access, app

from fencepost.config.pipeline import Pipeline
from fencepost.errors import FencepostError
from fencepost.model import Batch, PartitionId, State, by_partition
from fencepost.pages.comparisons import Comparison
from fencepost.pages.pipelines import Pipelines
from fencepost.protocol.snapshot import Snapshot

from .ledgers import EVIL, ledger, taken

SETTINGS = """
description: "{description}"
source: {{topic: orders-in, format: bytes}}
output: {{topic: orders-out, format: bytes}}
schedule: {{cron: "0 * * * *", start: 2026-01-01}}
kafka: {{bootstrap.servers: "127.0.0.1:1"}}
"""


class FakeLedgers:
    """Ledgers by pipeline; one that is an error is raised."""

    def __init__(self) -> None:
        self.content: dict[str, list[Batch] | FencepostError] = {
            "orders": ledger(120, {100: State.REJECTED}),
            "secret": [],
        }

    def deadline(self) -> float:
        return 0

    def snapshot(self, pipeline: Pipeline, until: float | None = None) -> Snapshot:
        found = self.content[pipeline.name]
        if isinstance(found, FencepostError):
            raise found
        return taken(found)

    def source_begins(self, pipeline: Pipeline) -> dict[PartitionId, int]:
        return by_partition("orders-in", [50, 0, 0, 0])

    def source_ends(self, pipeline: Pipeline) -> dict[PartitionId, int]:
        return by_partition("orders-in", [20_000] * 4)


class Guard:
    """An auth manager that knows one user, who may read everything but `secret`."""

    async def get_user_from_token(self, token: str) -> Any:
        return SimpleNamespace(name="ann")

    def is_authorized_dag(self, *, details: Any, **_: Any) -> bool:
        return bool(details.id != "secret")

    def get_authorized_dag_ids(self, **_: Any) -> set[str]:
        return set(FakeLedgers().content) - {"secret"}


class FakeComparisons:
    """What a table's comparison says."""

    comparison: Comparison | None = None

    def of(self, pipeline: Pipeline) -> Comparison | None:
        return self.comparison


Get = Callable[..., httpx.Response]


@pytest.fixture
def ledgers(monkeypatch: pytest.MonkeyPatch) -> FakeLedgers:
    fake = FakeLedgers()
    monkeypatch.setattr(app, "ledgers", fake)
    return fake


@pytest.fixture
def comparisons(monkeypatch: pytest.MonkeyPatch) -> FakeComparisons:
    fake = FakeComparisons()
    monkeypatch.setattr(app, "comparisons", fake)
    return fake


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Pipelines `orders` and `secret`."""
    root = tmp_path / "pipelines"
    for name in ("orders", "secret"):
        (root / name).mkdir(parents=True)
        (root / name / "pipeline.yaml").write_text(SETTINGS.format(description=EVIL))
        (root / name / "transform.sql").write_text("SELECT value FROM {source}")
        (root / name / "expectations.yaml").write_text("expectations: []\n")
    monkeypatch.setenv("FENCEPOST_PIPELINES", str(root))
    monkeypatch.setattr(app, "pipelines", Pipelines())
    return root


@pytest.fixture
def get(folders: Path, ledgers: FakeLedgers, monkeypatch: pytest.MonkeyPatch) -> Get:
    """A GET as Airflow would pass it on: mounted at /fencepost, by ann or by nobody."""
    monkeypatch.setattr(app, "runs_of", lambda dag_id, intervals: {i.start: f"run {i}" for i in intervals})
    monkeypatch.setattr(app, "run_of", lambda dag_id, run_id: None)
    monkeypatch.setattr(app, "stopped_runs", lambda dag_id, rows: set())
    monkeypatch.setattr(security, "get_auth_manager", Guard)
    monkeypatch.setattr(access, "get_auth_manager", Guard)
    monkeypatch.setattr(security.DagModel, "get_team_name", lambda dag_id: None)
    transport = httpx.ASGITransport(app.app, root_path="/fencepost")

    async def ask(path: str, anonymous: bool) -> httpx.Response:
        headers = {} if anonymous else {"Authorization": "Bearer token"}
        async with httpx.AsyncClient(transport=transport, base_url="http://test/fencepost", headers=headers) as client:
            return await client.get(path)

    return lambda path, anonymous=False: asyncio.run(ask(path, anonymous))
