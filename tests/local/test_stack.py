"""The whole stack: what listens, who may log in, what a second `up` does."""

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from fencepost.cli.airflow_api import AirflowRefused
from fencepost_stack.airflow_api import StackAirflow, await_value
from fencepost_stack.stack import Stack
from fencepost_stack.state_folder import read_json
from local.local_stack import DAG_ID, all_processes, recorded

pytestmark = [pytest.mark.deep, pytest.mark.stack]

LOOPBACK = {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


def listening(pids: set[int]) -> set[tuple[str, int]]:
    """Address and port of every TCP socket that these processes accept connections on."""
    found = psutil.net_connections(kind="tcp")
    return {(c.laddr.ip, c.laddr.port) for c in found if c.status == psutil.CONN_LISTEN and c.pid in pids}


def run(stack: Stack, *command: str) -> subprocess.CompletedProcess[str]:
    """The command line, on this stack's state."""
    env = {**os.environ, "FENCEPOST_STATE": str(stack.state.root)}
    done = [sys.executable, "-m", "fencepost_stack", *command]
    return subprocess.run(done, env=env, capture_output=True, text=True, check=False, timeout=60)


def test_everything_listens_on_loopback_only(stack: Stack) -> None:
    sockets = listening({process.pid for process in all_processes(stack)})
    # Kafka's clients and its controller, the schema registry, PostgreSQL, and Airflow's API.
    assert len(sockets) == 5
    assert {address for address, _ in sockets} <= LOOPBACK


def test_a_second_up_leaves_everything_as_it_is(stack: Stack) -> None:
    before = recorded(stack)
    events: list[tuple[str, str]] = []
    stack.up(report=lambda service, event, seconds: events.append((service, event)))
    services = ["kafka", "schema-registry", "postgres", "airflow"]
    assert events == [(service, "running") for service in services]
    assert recorded(stack) == before


def test_up_restarts_a_dead_component_and_no_other(stack: Stack) -> None:
    before = recorded(stack)
    victim = before["dag-processor"]
    os.kill(victim.pid, signal.SIGKILL)
    await_value(lambda: None if victim.alive() else True, "the victim to end", 10.0)
    assert not stack.services()["airflow"]["running"]
    stack.up()
    after = recorded(stack)
    assert {name for name in after if after[name] != before[name]} == {"dag-processor"}
    assert stack.services()["airflow"]["running"]


def test_services_tells_programs_where_everything_is(stack: Stack) -> None:
    done = run(stack, "services", "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert {service for service in found if found[service]["running"]} == found.keys()
    assert found["kafka"]["bootstrap"].startswith("127.0.0.1:")
    assert found["schema-registry"]["url"].startswith("http://127.0.0.1:")
    assert found["postgres"]["dsn"].startswith("postgresql://airflow:")
    assert found["airflow"]["url"].startswith("http://127.0.0.1:")
    assert {"username", "password"} <= found["airflow"].keys()
    assert all(Path(found[service]["log"]).exists() for service in found)


def test_services_tells_people_how_to_log_in(stack: Stack) -> None:
    done = run(stack, "services")
    airflow = stack.services()["airflow"]
    assert done.returncode == 0, done.stderr
    assert f"{airflow['url']}  (user admin, password {airflow['password']})" in done.stdout
    assert stack.services()["schema-registry"]["url"] in done.stdout


def test_services_of_a_stack_that_is_down_says_how_to_start_it(tmp_path: Path) -> None:
    env = {**os.environ, "FENCEPOST_STATE": str(tmp_path)}
    command = [sys.executable, "-m", "fencepost_stack", "services", "--json"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "make up" in done.stderr
    assert not json.loads(done.stdout)["kafka"]["running"]


def test_secrets_are_in_private_files_only(stack: Stack) -> None:
    """Not in any process's arguments, which everybody may read, and not in a log."""
    state = stack.state
    secrets = set(read_json(state.secrets_file).values())
    for path in (
        state.secrets_file,
        state.services_file,
        state.root / "pgpass",
        state.airflow / "airflow.cfg",
        state.airflow / "passwords.json",
    ):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    said = [Path(f"/proc/{process.pid}/cmdline").read_text() for process in all_processes(stack)]
    said += [log.read_text(errors="replace") for log in state.logs.iterdir()]
    assert len(secrets) == 10
    assert not [secret for secret in secrets for text in said if secret in text]


def test_the_anonymous_are_refused(stack: Stack) -> None:
    url = stack.services()["airflow"]["url"]
    for path in ("/api/v2/dags", "/api/v2/connections", f"/api/v2/dags/{DAG_ID}/dagRuns", "/ui/config"):
        assert httpx.get(url + path, trust_env=False).status_code == httpx.codes.UNAUTHORIZED, path
    with pytest.raises(AirflowRefused) as refused:
        StackAirflow(url, "admin", "admin")
    assert refused.value.status == httpx.codes.UNAUTHORIZED


def test_a_viewer_may_look_and_not_touch(stack: Stack) -> None:
    with StackAirflow.of_stack(stack.state, viewer=True) as viewer:
        assert viewer.await_dag(DAG_ID)["dag_id"] == DAG_ID
        for attempt in (lambda: viewer.unpause(DAG_ID), lambda: viewer.ensure_pool("mine", 1)):
            with pytest.raises(AirflowRefused) as refused:
                attempt()
            assert refused.value.status == httpx.codes.FORBIDDEN
