"""The doctor asks the running Airflow: what a DAG needs there is there, and is named if it is not."""

from __future__ import annotations

import pytest

from fencepost.cli.airflow import known_airflow
from fencepost.cli.airflow_api import AirflowApi
from fencepost.config.sections import DEFAULT_CONNECTION
from fencepost.doctor.airflow import (
    check_airflow_connection,
    check_airflow_dag,
    check_airflow_pool,
    check_airflow_triggerer,
    masters,
)
from fencepost.doctor.run_check import run_check
from fencepost.findings import Finding, Level
from fencepost_stack.ports import any_free_port

from .conftest import Running

pytestmark = [pytest.mark.stack, pytest.mark.timeout(400)]


@pytest.fixture
def api(running: Running, monkeypatch: pytest.MonkeyPatch) -> AirflowApi:
    """Airflow as the environment names it."""
    user = running.stack.services()["airflow"]
    monkeypatch.setenv("FENCEPOST_AIRFLOW_URL", user["url"])
    monkeypatch.setenv("FENCEPOST_AIRFLOW_USER", user["username"])
    monkeypatch.setenv("FENCEPOST_AIRFLOW_PASSWORD", user["password"])
    found = known_airflow()
    assert found is not None
    return found


def test_a_dag_that_is_paused_or_missing_is_named(running: Running, api: AirflowApi) -> None:
    running.add("doctored")
    running.api.await_dag("doctored")
    (paused,) = check_airflow_dag(api, "doctored")
    assert (paused.level, paused.command) == (Level.WARNING, "airflow dags unpause doctored")
    running.api.unpause("doctored")
    (on,) = check_airflow_dag(api, "doctored")
    assert on.level is Level.OK
    (missing,) = check_airflow_dag(api, "nobodys")
    assert (missing.level, "has no DAG nobodys" in missing.found) == (Level.ERROR, True)


def test_a_missing_pool_is_named(api: AirflowApi) -> None:
    assert check_airflow_pool(api).level is Level.OK
    assert "has no pool nobodys" in check_airflow_pool(api, "nobodys").found


def test_the_triggerer_that_tells_of_deadlines_is_seen(api: AirflowApi) -> None:
    assert check_airflow_triggerer(api, ["doctored"]).found == "a triggerer runs"


def test_a_connection_that_is_missing_or_of_no_use_is_named(api: AirflowApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT")
    assert check_airflow_connection(api).level is Level.WARNING, "the API does not see what is in the environment"
    extra = '{"deploy-mode": "cluster"}'
    made = {
        "connection_id": DEFAULT_CONNECTION,
        "conn_type": "spark",
        "host": "spark://a",
        "port": 7077,
        "extra": extra,
    }
    api.call("POST", "/connections", made)
    try:
        assert "deploy-mode cluster" in check_airflow_connection(api).found
        assert masters(api) == ["spark://a:7077"]
    finally:
        api.call("DELETE", f"/connections/{DEFAULT_CONNECTION}")


def test_an_airflow_that_is_away_is_a_finding_without_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FENCEPOST_AIRFLOW_URL", f"http://127.0.0.1:{any_free_port()}")
    monkeypatch.setenv("FENCEPOST_AIRFLOW_PASSWORD", "hush-hush")

    def check_airflow() -> list[Finding]:
        known_airflow()
        return []

    (away,) = run_check(check_airflow)
    assert (away.level, "no answer of Airflow's API" in away.found) == (Level.ERROR, True)
    assert "hush-hush" not in away.message
