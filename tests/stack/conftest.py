"""One real stack for the folder: the product's own DAG files and plugin, pipelines made for the tests, and a browser."""

from __future__ import annotations

import json
import os
import subprocess
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

import chromium
from fencepost.airflow.pools import SPARK_POOL
from fencepost.cli.airflow_api import AirflowRefused
from fencepost.config.loading import load_pipeline
from fencepost.ledger.ledger import Ledger
from fencepost.model import Batch
from fencepost_stack.airflow import Folders
from fencepost_stack.airflow_api import ENDED, StackAirflow, await_value
from fencepost_stack.ports import any_free_port
from fencepost_stack.stack import SERVICES, Stack
from fencepost_stack.state_folder import StateFolder
from kafka_tools import create_topic, produce
from rigs.receivers import HttpReceiver, UdpReceiver, http_receiver, udp_receiver
from waiting import await_true

ROOT = Path(__file__).resolve().parents[2]

EVIL = "<script>document.title = 'run'</script><img src=x onerror=\"document.title = 'run'\">"

SETTINGS = """
source: {{topic: {name}-in, format: bytes}}
output: {{topic: {name}-out, format: bytes, key: _key, partitions: 1}}
schedule:
  start: {start}
  end: {end}
  catchup: false
  retries: {retries}
  retry_delay_seconds: 1
  timeout_minutes: {timeout_minutes}
  deadline_minutes: {deadline_minutes}
spark: {{spark.driver.memory: 512m}}
kafka: {{bootstrap.servers: "{bootstrap}"}}
"""
EXPECTATIONS = """
expectations:
  - type: expect_column_values_to_not_be_null
    kwargs: {column: value}
"""
# The first day's record is not in the set: that day is rejected, and its report shows the record.
ONLY_GOOD = f"""
expectations:
  - type: expect_column_values_to_be_in_set
    description: {json.dumps(EVIL)}
    kwargs: {{column: value, value_set: [good]}}
"""
STRICT = """
expectations:
  - type: expect_column_values_to_be_in_set
    description: The second record of each batch is not what it should be
    kwargs: {column: value, value_set: [v0, v2]}
"""
PLAIN = "def transform(frame): return frame.selectExpr('_key', 'value')"
# Attempts up to number {sleeps} sleep until somebody ends them: in a Python worker, or before there is one. Each notes
# its processes, and which of an earlier attempt's still live when it begins.
SLEEPY = """
import os, time
from pathlib import Path

folder = Path({folder!r})

def alive(pid):
    try:
        return Path("/proc", pid, "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False

def transform(frame):
    number = 1 + len(list(folder.glob("*.began")))
    left = [file.stem for file in folder.glob("*.pid") if alive(file.read_text())]
    (folder / f"{{number}}-driver.pid").write_text(str(os.getpid()))
    (folder / f"{{number}}-jvm.pid").write_text(str(os.getppid()))
    (folder / f"{{number}}.began").write_text(" ".join(left))
    if number > {sleeps}:
        return frame.selectExpr("_key", "value")
    if not {in_worker}:
        (folder / f"{{number}}.asleep").touch()
        time.sleep(600)

    def sleep(batches):
        for batch in batches:
            (folder / f"{{number}}-daemon.pid").write_text(str(os.getppid()))
            (folder / f"{{number}}-worker.pid").write_text(str(os.getpid()))
            (folder / f"{{number}}.asleep").touch()
            time.sleep(600)
            yield batch

    return frame.selectExpr("_key", "value").mapInArrow(sleep, "_key binary, value binary")
"""


def day(number: int) -> datetime:
    """Midnight that day `number` of January 2026 begins with."""
    return datetime(2026, 1, number, tzinfo=UTC)


DAG_FILE = "fencepost_dags.py"
OBSERVED = "observed"  # the only pipeline whose lineage is sent


@dataclass(frozen=True)
class Told:
    """What Airflow has told others: a channel, a receiver of metrics, and a file of lineage."""

    channel: HttpReceiver
    metrics: UdpReceiver
    lineage: Path

    def environment(self) -> dict[str, str]:
        """The settings by which Airflow tells them."""
        policy = [
            {"scope": {}, "controls": {"emit": False}},
            {"scope": {"dag_id": OBSERVED}, "controls": {"emit": True, "include_full_task_info": True}},
        ]
        connection = {"conn_type": "slackwebhook", "host": self.channel.url, "password": CHANNEL_TOKEN}
        return {
            "AIRFLOW_CONN_CHANNEL": json.dumps(connection),
            "AIRFLOW__METRICS__STATSD_ON": "True",
            "AIRFLOW__METRICS__STATSD_HOST": "127.0.0.1",
            "AIRFLOW__METRICS__STATSD_PORT": str(self.metrics.port),
            "AIRFLOW__METRICS__METRICS_ALLOW_LIST": "fencepost",
            "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(
                {"type": "file", "log_file_path": str(self.lineage), "append": True}
            ),
            "AIRFLOW__OPENLINEAGE__EMISSION_POLICY": json.dumps(policy),
        }


CHANNEL_TOKEN = "T0/B0/a-token-that-nobody-sees"


@dataclass(frozen=True)
class Running:
    """The stack, and where its pipelines lie."""

    api: StackAirflow
    bootstrap: str
    pipelines: Path
    tokens: dict[str, str]
    logs: Path
    stack: Stack
    repository: Path  # of the Git bundle: DAGs lie in its folder `dags`
    told: Told

    def start_registry(self) -> str:
        """Start the schema registry if it does not run; its URL, which tasks have in SCHEMA_REGISTRY_URL."""
        return str(self.stack.up(only="schema-registry")["schema-registry"]["url"])

    def add(
        self,
        name: str,
        transform: str = PLAIN,
        *,
        expectations: str = EXPECTATIONS,
        timeout_minutes: int = 5,
        retries: int = 1,
        records: int = 0,
        bootstrap: str = "${KAFKA_BOOTSTRAP}",
        start: datetime = datetime(2026, 1, 1, tzinfo=UTC),
        end: datetime | None = datetime(2026, 2, 1, tzinfo=UTC),
        deadline_minutes: float | None = None,
        more: str = "",
    ) -> None:
        """A pipeline with `more` settings, and records of 1 January in its source."""
        create_topic(self.bootstrap, f"{name}-in", 1)
        self.produce(name, 1, [b"v%d" % n for n in range(records)])
        folder = self.pipelines / f".{name}"  # hidden until it is whole
        folder.mkdir()
        settings = SETTINGS.format(
            name=name,
            timeout_minutes=timeout_minutes,
            retries=retries,
            bootstrap=bootstrap,
            start=start.isoformat(),
            end=end.isoformat() if end else "null",
            deadline_minutes=deadline_minutes or "null",
        )
        (folder / "pipeline.yaml").write_text(settings + more)
        (folder / "transform.py").write_text(textwrap.dedent(transform))
        (folder / "expectations.yaml").write_text(expectations)
        folder.rename(self.pipelines / name)
        self.parse()

    def parse(self) -> None:
        """Have the product's DAG file parsed again now, as by the button in Airflow's UI, which else takes half a minute."""
        dags = self.api.call("GET", "/dags", limit=100)["dags"]
        token = next((dag["file_token"] for dag in dags if dag["relative_fileloc"] == DAG_FILE), None)
        if token is not None:  # before any pipeline, Airflow knows no DAG of the file
            self.ask(f"/parseDagFile/{token}")

    def ask(self, path: str) -> None:
        """Have Airflow do what may be asked for, or done, already: a conflict says just that."""
        try:
            self.api.call("PUT", path)
        except AirflowRefused as refused:
            if refused.status != HTTPStatus.CONFLICT:
                raise

    def produce(self, name: str, number: int, values: Iterable[bytes]) -> None:
        """Records of a day of January into the pipeline's source."""
        noon = int(day(number).timestamp() * 1000) + 12 * 3600 * 1000
        produce(self.bootstrap, f"{name}-in", [(b"k", value, 0, noon) for value in values])

    def ledger(self, name: str) -> list[Batch]:
        """All revisions in a pipeline's ledger."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("KAFKA_BOOTSTRAP", self.bootstrap)
            return Ledger(load_pipeline(self.pipelines / name)).read().all()

    def add_sleepy(self, name: str, notes: Path, *, sleeps: int, in_worker: bool, **schedule: int) -> None:
        """A pipeline whose first attempts to write sleep until they are ended."""
        notes.mkdir()
        transform = SLEEPY.format(folder=str(notes), sleeps=sleeps, in_worker=in_worker)
        self.add(name, transform, records=3, **schedule)

    def whole_log(self, run: dict[str, Any], task_id: str, try_number: int = 1) -> str:
        """A try's log as Airflow's UI gets it, with what it shows of exceptions."""
        task = f"/dags/{run['dag_id']}/dagRuns/{run['dag_run_id']}/taskInstances/{task_id}"
        return str(self.api.call("GET", f"{task}/logs/{try_number}", full_content=True)["content"])

    def task(self, run: dict[str, Any], task_id: str) -> dict[str, Any]:
        """The latest try of a run's task."""
        tasks = self.api.task_instances(run["dag_id"], run["dag_run_id"])
        return next(task for task in tasks if task["task_id"] == task_id)

    def last_log(self, run: dict[str, Any], task_id: str) -> str:
        """The log of a task's latest try."""
        return self.whole_log(run, task_id, self.task(run, task_id)["try_number"])

    def end_backfill(self, name: str) -> None:
        """Wait for the end of the DAG's runs, and end its backfill: Airflow looks every 30 s whether it is at its end."""

        def at_rest() -> bool | None:
            return all(run["state"] in ENDED for run in self.api.dag_runs(name)) or None

        await_value(at_rest, f"the runs of {name} to end", 300)
        newest = self.api.call("GET", "/backfills", dag_id=name, order_by="-id", limit=1)["backfills"][0]
        if newest["completed_at"] is None:
            self.ask(f"/backfills/{newest['id']}/cancel")

    def deadlines(self, name: str) -> list[dict[str, Any]]:
        """The deadlines of a DAG's runs, as Airflow's UI gets them."""
        headers = {"Authorization": f"Bearer {self.tokens['admin']}"}
        path = f"{self.api.url}/ui/dags/{name}/dagRuns/~/deadlines"
        return list(httpx.get(path, headers=headers, trust_env=False).raise_for_status().json()["deadlines"])

    def said(self, component: str, words: str) -> bool | None:
        """Whether the log of a component of Airflow's holds these words."""
        return words in (self.logs.parent.parent / "logs" / f"airflow-{component}.log").read_text() or None

    def told_of(self, name: str) -> list[str]:
        """What the channel was told of a pipeline, in order."""
        texts = [str(json.loads(body)["text"]) for body in self.told.channel.bodies]
        return [text for text in texts if f" {name}, " in text]

    def backfill(self, name: str, first: int, last: int, **options: Any) -> int:
        """Start a backfill of some days of January, and wait for nothing; returns its id."""
        self.api.await_dag(name)
        self.api.unpause(name)
        body = {
            "dag_id": name,
            "from_date": day(first).isoformat(),
            "to_date": day(last).isoformat(),
            "reprocess_behavior": "none",
            "max_active_runs": 3,
            **options,
        }
        return int(self.api.call("POST", "/backfills", body)["id"])


def make_repository(folder: Path) -> Path:
    """A Git repository with an empty folder of DAGs."""
    (folder / "dags").mkdir(parents=True)
    (folder / "dags" / ".airflowignore").write_text("pipelines/\n")
    for arguments in (["init", "-b", "main"], ["add", "--all"], ["commit", "-m", "nothing yet"]):
        identity = ["-c", "user.name=etl", "-c", "user.email=etl@example.com"]
        subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)
    return folder


def bundles_of(repository: Path) -> list[dict[str, Any]]:
    """The stack's own folder of DAGs, and a Git bundle."""
    git = {"repo_url": str(repository), "tracking_ref": "main", "subdir": "dags", "refresh_interval": 5}
    return [
        {"name": "dags-folder", "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle", "kwargs": {}},
        {"name": "team", "classpath": "airflow.providers.git.bundles.git.GitDagBundle", "kwargs": git},
    ]


@pytest.fixture(scope="package")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Kafka, PostgreSQL and Airflow, started once."""
    root = tmp_path_factory.mktemp("airflow")
    pipelines = root / "pipelines"
    pipelines.mkdir()
    folders = Folders(ROOT / "dags", ROOT / "plugins", pipelines)
    repository = make_repository(root / "repository")
    ports = {service: any_free_port() for service in SERVICES}
    with pytest.MonkeyPatch.context() as patch, http_receiver() as channel, udp_receiver() as metrics:
        told = Told(channel, metrics, root / "lineage.jsonl")
        for name in [n for n in os.environ if n.startswith(("AIRFLOW_", "KAFKA_", "SCHEMA_REGISTRY_", "FENCEPOST_"))]:
            if name not in {"FENCEPOST_CI_RUN", "FENCEPOST_JARS"}:
                patch.delenv(name)
        patch.setenv("AIRFLOW__CORE__AUTH_MANAGER", "guarding.GuardingAuthManager")
        patch.setenv("PYTHONPATH", str(Path(__file__).parent / "auth"))
        patch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[1]"}')
        patch.setenv("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_STORAGE_PATH", str(root / "bundles"))
        patch.setenv("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST", json.dumps(bundles_of(repository)))
        for name, value in told.environment().items():
            patch.setenv(name, value)
        stack = Stack(StateFolder(root / "state", StateFolder.default().jars), folders, ports)
        services = stack.up()
        try:
            with StackAirflow.of_stack(stack.state) as api:
                api.ensure_pool(SPARK_POOL, 3)  # one is held by a task that a test makes an orphan
                users = {"admin": services["airflow"], "viewer": services["airflow"]["viewer"]}
                tokens = {
                    who: StackAirflow(api.url, user["username"], user["password"]).token for who, user in users.items()
                }
                logs = stack.state.airflow / "logs"
                yield Running(api, services["kafka"]["bootstrap"], pipelines, tokens, logs, stack, repository, told)
        finally:
            stack.down()


@pytest.fixture(scope="package")
def backfills(running: Running) -> int:
    """Three empty days of `ordered`, run together, the earliest first; and two of `backwards`. The first's id.

    Nobody waits here: they run while a test of the folder waits for a time-out.
    """
    running.add("ordered", PLAIN)
    running.add("backwards", PLAIN)
    forwards = running.backfill("ordered", 1, 3)
    running.backfill("backwards", 5, 6, run_backwards=True, max_active_runs=1)
    return forwards


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Chromium without a screen."""
    with sync_playwright() as playwright:
        opened = chromium.launch(playwright)
        expect.set_options(timeout=60_000)  # a page's own, too: it reads ledgers from Kafka
        yield opened
        opened.close()


@contextmanager
def open_page(browser: Browser, running: Running, theme: str = "light") -> Iterator[Page]:
    """A page of the admin's."""
    context = browser.new_context(viewport={"width": 1400, "height": 900}, timezone_id="UTC")
    context.set_default_timeout(60_000)
    context.add_cookies([{"name": "_token", "value": running.tokens["admin"], "url": running.api.url}])
    context.add_init_script(f"try {{ localStorage.setItem('theme', '{theme}') }} catch (e) {{ }}")
    yield context.new_page()
    context.close()


@pytest.fixture
def page(browser: Browser, running: Running, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A page of the admin's, light unless the test is parametrized with a theme."""
    with open_page(browser, running, getattr(request, "param", "light")) as opened:
        yield opened


def interval(number: int) -> str:
    """The interval of that day as it stands in a batch's id."""
    return f"{day(number):%Y%m%dT%H%M%SZ}-{day(number + 1):%Y%m%dT%H%M%SZ}"


@dataclass(frozen=True)
class Site:
    """What the pages' tests look at: the runs of pipeline `judged`: rejected, and published behind it."""

    running: Running
    runs: list[dict[str, Any]]

    @property
    def url(self) -> str:
        """Of Airflow."""
        return self.running.api.url

    def get(self, path: str, user: str | None = None) -> httpx.Response:
        """A request without a browser."""
        headers = {"Authorization": f"Bearer {self.running.tokens[user]}"} if user else {}
        return httpx.get(f"{self.url}{path}", headers=headers, trust_env=False, timeout=60.0)

    def overview(self, user: str) -> list[str]:
        """Data quality as that user gets it, page by page: tests that ran before have made pipelines too."""
        pages = [self.get("/fencepost/", user).text]
        while f'page={len(pages) + 1}"' in pages[-1]:
            pages.append(self.get(f"/fencepost/?page={len(pages) + 1}", user).text)
        return pages

    def page_with(self, name: str) -> str:
        """The address of the overview's page that has this pipeline, for the admin.

        While one page is read after the other, a pipeline that begins to await a person moves the others on.
        """
        found: list[int] = []

        def is_on_one() -> bool:
            found[:] = (n for n, text in enumerate(self.overview("admin"), start=1) if f'id="{name}"' in text)
            return len(found) == 1

        await_true(is_on_one, f"one page of the overview with {name}")
        return f"{self.url}/fencepost/?page={found[0]}"

    def ui_of_run(self, number: int) -> str:
        """The UI's address of the run for a day."""
        return f"{self.url}/dags/judged/runs/{self.runs[number - 1]['dag_run_id']}"


@pytest.fixture(scope="package")
def site(running: Running) -> Site:
    """Two days through `judged`; and two pipelines that never ran, of which one's Kafka is away."""
    running.add("judged", expectations=ONLY_GOOD, more=f"description: {json.dumps(EVIL)}")
    for number, value in ((1, EVIL.encode()), (2, b"good"), (3, b"good")):
        running.produce("judged", number, [value])
    running.add("private", more="description: Not for everybody")
    running.add("absent", bootstrap=f"127.0.0.1:{any_free_port()}", more="description: Its Kafka is away")
    for name in ("judged", "private", "absent"):
        running.api.await_dag(name)
    running.backfill("judged", 1, 2)
    return Site(running, running.api.await_intervals("judged", [day(1), day(2)]))
