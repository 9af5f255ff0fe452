"""A real stack with the product's own plugin, and a browser logged in to its UI."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Error, Page, sync_playwright

from fencepost.local.airflow import Folders
from fencepost.local.airflow_api import AirflowApi
from fencepost.local.ports import any_free_port
from fencepost.local.stack import SERVICES, Stack
from fencepost.local.state import State
from kafka_tools import create_topic, produce

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = "/usr/bin/chromium"
EVIL = "<script>document.title = 'run'</script><img src=x onerror=\"document.title = 'run'\">"

SETTINGS = """
description: {description}
source: {{topic: {name}-in, format: bytes}}
output: {{topic: {name}-out, format: bytes, key: _key, partitions: 1}}
schedule: {{start: 2026-01-01, end: 2026-02-01, retries: 1, retry_delay_seconds: 1}}
spark: {{spark.driver.memory: 512m}}
kafka: {{bootstrap.servers: "{bootstrap}"}}
"""
# The second day's record is not in the set: that day is rejected, and its report shows the record.
EXPECTATIONS = f"""
expectations:
  - type: expect_column_values_to_be_in_set
    description: {json.dumps(EVIL)}
    kwargs: {{column: value, value_set: [good]}}
"""


def day(number: int) -> datetime:
    """Midnight that day `number` of January 2026 begins with."""
    return datetime(2026, 1, number, tzinfo=UTC)


def interval(number: int) -> str:
    """The interval of that day as it stands in a batch's id."""
    return f"{day(number):%Y%m%dT%H%M%SZ}-{day(number + 1):%Y%m%dT%H%M%SZ}"


@dataclass(frozen=True)
class Site:
    """The stack, and the runs of pipeline `judged`: published, rejected, published behind it."""

    url: str
    runs: list[dict[str, Any]]
    tokens: dict[str, str]

    def get(self, path: str, user: str | None = None) -> httpx.Response:
        """A request without a browser."""
        headers = {"Authorization": f"Bearer {self.tokens[user]}"} if user else {}
        return httpx.get(f"{self.url}{path}", headers=headers, trust_env=False, timeout=60.0)

    def ui_of_run(self, number: int) -> str:
        """The UI's address of the run for a day."""
        return f"{self.url}/dags/judged/runs/{self.runs[number - 1]['dag_run_id']}"


def _add(pipelines: Path, name: str, bootstrap: str, description: str) -> None:
    folder = pipelines / f".{name}"  # hidden until it is whole
    folder.mkdir()
    (folder / "pipeline.yaml").write_text(
        SETTINGS.format(name=name, bootstrap=bootstrap, description=json.dumps(description))
    )
    (folder / "transform.py").write_text("def transform(frame): return frame.selectExpr('_key', 'value')")
    (folder / "expectations.yaml").write_text(EXPECTATIONS)
    folder.rename(pipelines / name)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Kafka, PostgreSQL and Airflow, with three days through `judged`, and two pipelines that never ran."""
    root = tmp_path_factory.mktemp("browser")
    pipelines = root / "pipelines"
    pipelines.mkdir()
    folders = Folders(ROOT / "dags", ROOT / "plugins", pipelines)
    ports = {service: any_free_port() for service in SERVICES}
    with pytest.MonkeyPatch.context() as patch:
        for name in [n for n in os.environ if n.startswith(("AIRFLOW_", "KAFKA_", "FENCEPOST_"))]:
            if name not in {"FENCEPOST_CI_RUN", "FENCEPOST_JARS"}:
                patch.delenv(name)
        patch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[1]"}')
        patch.setenv("AIRFLOW__CORE__AUTH_MANAGER", "guarding.GuardingAuthManager")
        patch.setenv("PYTHONPATH", str(Path(__file__).parent))
        stack = Stack(State(root / "state", State.default().jars), folders, ports)
        services = stack.up()
        try:
            yield _prepared(stack, services, pipelines)
        finally:
            stack.down()


def _prepared(stack: Stack, services: dict[str, Any], pipelines: Path) -> Site:
    bootstrap = services["kafka"]["bootstrap"]
    for name in ("judged", "private"):
        create_topic(bootstrap, f"{name}-in", 1)
    noon = [int(day(n).timestamp() * 1000) + 12 * 3600 * 1000 for n in (1, 2, 3, 4)]
    values = [b"good", EVIL.encode(), b"good", b"good"]
    produce(bootstrap, "judged-in", [(b"k", v, 0, at) for v, at in zip(values, noon, strict=True)])
    _add(pipelines, "judged", bootstrap, EVIL)
    _add(pipelines, "private", bootstrap, "Not for everybody")
    _add(pipelines, "absent", f"127.0.0.1:{any_free_port()}", "Its Kafka is away")
    users = {"admin": services["airflow"], "viewer": services["airflow"]["viewer"]}
    with AirflowApi.of_stack(stack.state) as api:
        for name in ("judged", "private", "absent"):
            api.await_dag(name)
        api.unpause("judged")
        backfill = api.backfill("judged", day(1), day(3), max_active_runs=3)
        runs = api.await_intervals("judged", [day(1), day(2), day(3)])
        api.await_backfill(backfill["id"])
        return Site(api.url, runs, {who: _token(api.url, user) for who, user in users.items()})


def _token(url: str, user: dict[str, str]) -> str:
    login = {name: user[name] for name in ("username", "password")}
    answer = httpx.post(f"{url}/auth/token", json=login, trust_env=False, timeout=60.0)
    return str(answer.raise_for_status().json()["access_token"])


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium without a screen."""
    arguments = ["--no-proxy-server", "--disable-gpu"]  # everything is on 127.0.0.1
    with sync_playwright() as playwright:
        launch = playwright.chromium.launch
        try:
            chromium = launch(executable_path=CHROMIUM, args=arguments, timeout=60_000)
        except Error:  # it sometimes hangs while it starts on a busy machine
            chromium = launch(executable_path=CHROMIUM, args=arguments, timeout=180_000)
        yield chromium
        chromium.close()


Open = Callable[..., Page]


@contextmanager
def _context(browser: Browser, site: Site, theme: str, user: str | None) -> Iterator[BrowserContext]:
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    context.set_default_timeout(60_000)
    if user is not None:
        context.add_cookies([{"name": "_token", "value": site.tokens[user], "url": site.url}])
    context.add_init_script(f"try {{ localStorage.setItem('theme', '{theme}') }} catch (e) {{ }}")
    yield context
    context.close()


@pytest.fixture
def page(browser: Browser, site: Site, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A page of the admin's, light unless the test is parametrized with a theme."""
    theme = getattr(request, "param", "light")
    with _context(browser, site, theme, "admin") as context:
        yield context.new_page()
