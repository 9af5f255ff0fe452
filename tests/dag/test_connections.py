"""A pipeline's connections in Airflow: looked up when a step starts, and never seen where others can look."""

from __future__ import annotations

import json
import os
import stat
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import BaseHook
from airflow.sdk._shared.secrets_masker import _secrets_masker, reset_secrets_masker
from airflow.sdk.configuration import clear_secrets_backends_cache
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from airflow.serialization.serialized_objects import DagSerialization

from fencepost.airflow import AdvanceOperator, FencepostSparkOperator, PlanOperator, build_dags, with_connections
from fencepost.airflow.dag import refuse_broken_pipelines
from fencepost.config.loading import load_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.errors import AccessDenied, DriverDied, LoginRefused, SettingsError
from fencepost.kafka.client_settings import client_settings
from fencepost.model import StepResult
from fencepost.steps.handover import handed_over, taken_over
from fencepost.steps.jobs import JobOutcome
from vault import use_vault

ContextOf = Callable[..., Any]
pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # the provider's

PIPELINE_YAML = """
source: {topic: in, format: bytes}
output: {topic: out, format: bytes}
schedule: {start: 2013-03-01}
kafka: {connection: kafka_prod, client.id: counted}
"""
KEY = "-----BEGIN PRIVATE KEY-----\nhunter2-of-the-key-one\nhunter2-of-the-key-two\n-----END PRIVATE KEY-----\n"
LOGIN = {
    "bootstrap.servers": "127.0.0.1:1",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "etl",
    "sasl.password": "hunter2-of-kafka",
    "ssl.certificate.pem": "hunter2-of-the-certificate",
    "ssl.key.pem": KEY,
}
CONNECTIONS = {"kafka_prod": {"conn_type": "kafka", "extra": LOGIN | {"group.id": "reports"}}}
LEAK = "hunter2"
# In spark-submit's place: it reads the pipe as a job would, and looks at what others could read.
FAKE = """#!/bin/bash
printf '%s\\n' "$@" >{folder}/arguments
env >{folder}/environment
while [ "$1" != --settings ] && [ "$1" != --outcome ]; do shift; done
if [ "$1" = --settings ]; then
    stat --format '%F %a' "$2" >{folder}/pipe; stat --format %a "$(dirname "$2")" >>{folder}/pipe
    read -r line <"$2"; printf '%s' "$line" >{folder}/handed
    shift 2
fi
cp {folder}/answer "$2"
"""


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    reset_secrets_masker()
    monkeypatch.setattr("fencepost.airflow.operators.last_cluster", lambda _: None)
    yield
    reset_secrets_masker()
    clear_secrets_backends_cache()


@pytest.fixture
def vault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a secrets backend, which has the connections."""
    connections = CONNECTIONS | {"spark_default": {"conn_type": "spark", "host": "local[1]"}}
    return use_vault(monkeypatch, tmp_path / "vault.json", connections)


@pytest.fixture
def pipeline(make_pipeline: Callable[..., Pipeline]) -> Pipeline:
    return make_pipeline(settings=PIPELINE_YAML)


def test_no_connection_is_looked_up_while_dags_are_parsed(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(conn_id: str) -> Any:
        raise AssertionError(f"{conn_id} is looked up")

    monkeypatch.setattr(BaseHook, "get_connection", look_up)
    monkeypatch.setattr("airflow.sdk.execution_time.context._get_connection", look_up)
    (dag,) = build_dags().values()
    refuse_broken_pipelines()
    assert DagSerialization.from_dict(DagSerialization.to_dict(dag)).task_ids
    with pytest.raises(AssertionError, match="kafka_prod is looked up"):
        with_connections(pipeline)


def test_a_step_begins_with_the_connection_as_it_is_then(
    vault: Path, pipeline: Pipeline, context_of: ContextOf, result: StepResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Pipeline] = []
    monkeypatch.setattr("fencepost.steps.plan.plan_batch", lambda p, *_, **__: seen.append(p) or result)
    monkeypatch.setattr("fencepost.steps.advance.advance_without_spark", lambda p, *_, **__: seen.append(p) or result)
    plan, advance = PlanOperator(task_id="plan", pipeline=pipeline), AdvanceOperator(task_id="a", pipeline=pipeline)
    monkeypatch.setattr("fencepost.airflow.spark_operator.announce", lambda *_: False)
    plan.poke(context_of())
    rotated = {"kafka_prod": {"conn_type": "kafka", "extra": LOGIN | {"sasl.password": "hunter2-rotated"}}}
    vault.write_text(json.dumps(rotated))
    advance.execute(context_of())
    passwords = [client_settings(one).values["sasl.password"] for one in seen]
    assert passwords == ["hunter2-of-kafka", "hunter2-rotated"]
    assert client_settings(seen[0]).values["client.id"] == "counted"
    assert "group.id" not in client_settings(seen[0]).values
    assert LEAK not in f"{vars(plan)} {vars(advance)} {seen[0]!r}"


@pytest.mark.parametrize("away", ["not there", "backend down"])
def test_a_connection_that_is_not_found_is_worth_a_retry_for_a_backend_that_is_down_reads_so(
    vault: Path, pipeline: Pipeline, context_of: ContextOf, away: str
) -> None:
    if away == "not there":
        vault.write_text("{}")
    else:
        vault.unlink()
    for run in (
        PlanOperator(task_id="plan", pipeline=pipeline).poke,
        AdvanceOperator(task_id="advance", pipeline=pipeline).execute,
    ):
        with pytest.raises(AirflowException, match=r"^ConnectionNotFound: .*'kafka_prod'.*does not answer") as raised:
            run(context_of())
        assert not isinstance(raised.value, AirflowFailException)


@pytest.mark.parametrize(("error", "final"), [(LoginRefused("Refused."), False), (AccessDenied("lacks Read"), True)])
def test_a_refused_login_is_worth_a_retry_and_a_right_that_is_lacking_is_not(
    vault: Path,
    pipeline: Pipeline,
    context_of: ContextOf,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    final: bool,
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("fencepost.steps.plan.plan_batch", fail)
    monkeypatch.setattr("fencepost.steps.advance.advance_without_spark", fail)
    for run in (
        PlanOperator(task_id="plan", pipeline=pipeline).poke,
        AdvanceOperator(task_id="advance", pipeline=pipeline).execute,
    ):
        with pytest.raises(AirflowException, match=f"^{type(error).__name__}: {error}") as raised:
            run(context_of())
        assert isinstance(raised.value, AirflowFailException) is final
        assert ("kafka_prod; the next attempt looks it up again" in str(raised.value)) is not final


def test_a_job_says_the_same_of_a_refused_login(vault: Path, pipeline: Pipeline) -> None:
    whole = with_connections(pipeline)
    refused = JobOutcome.of_error(LoginRefused("Refused."), "write", whole)
    assert (refused.retriable, refused.exit_code, refused.error) == (True, 3, "LoginRefused")
    assert not JobOutcome.of_error(AccessDenied("lacks Read"), "write", whole).retriable


def test_an_authoritative_no_of_airflows_is_no_reason_to_retry(
    pipeline: Pipeline, context_of: ContextOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deny(_: str) -> Any:
        raise PermissionError

    monkeypatch.setattr(BaseHook, "get_connection", deny)
    with pytest.raises(
        AirflowFailException, match=r"^AccessDenied: Airflow does not let this task have .*'kafka_prod'"
    ):
        PlanOperator(task_id="plan", pipeline=pipeline).poke(context_of())


@pytest.mark.parametrize("master", ["local[1]", "yarn", "k8s://https://127.0.0.1:1", "spark://127.0.0.1:7077"])
def test_a_job_gets_the_settings_through_a_pipe_that_only_its_user_can_open(
    vault: Path,
    pipeline: Pipeline,
    context_of: ContextOf,
    result: StepResult,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    master: str,
) -> None:
    """On YARN and Kubernetes the provider writes a job's variables into the arguments, which everybody here can read."""
    monkeypatch.setattr("airflow.providers.apache.spark.hooks.spark_submit.kube_client", object(), raising=False)
    vault.write_text(json.dumps(CONNECTIONS | {"spark_default": {"conn_type": "spark", "host": master}}))
    monkeypatch.setattr("fencepost.spark.submit.submit_conf", lambda *_: {"spark.ui.enabled": "false"})
    monkeypatch.setattr("fencepost.spark.submit.package_zip", lambda: tmp_path / "fencepost.zip")
    monkeypatch.setattr("fencepost.steps.write.write_without_spark", lambda *_, **__: None)
    script = tmp_path / "fake-spark-submit"
    script.write_text(FAKE.format(folder=tmp_path))
    script.chmod(0o755)
    (tmp_path / "answer").write_text(JobOutcome.of(result).model_dump_json())
    write = FencepostSparkOperator(task_id="write", step="write", pipeline=pipeline, spark_binary=str(script))
    write.execute(context_of())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        write._hook = None
    arguments = (tmp_path / "arguments").read_text().splitlines()
    assert arguments[:2] == ["--master", master]
    assert ("Env.FENCEPOST_PARENT=" in "".join(arguments)) is master.startswith(("yarn", "k8s"))
    assert LEAK not in "\n".join(arguments) + (tmp_path / "environment").read_text()
    assert LEAK not in str(vars(write))
    assert (tmp_path / "pipe").read_text().splitlines() == ["fifo 600", "700"]
    handed = json.loads((tmp_path / "handed").read_text())
    assert handed == {"kafka": LOGIN | {"client.id": "counted"}}
    assert not Path(arguments[arguments.index("--settings") + 1]).exists()


def test_what_is_handed_over_can_be_taken_once_and_is_gone_with_the_task(
    vault: Path, pipeline: Pipeline, tmp_path: Path
) -> None:
    whole, pipe = with_connections(pipeline), tmp_path / "settings"
    with handed_over(whole, pipe) as there:
        assert there
        assert stat.S_ISFIFO(pipe.stat().st_mode)
        assert taken_over(load_pipeline(pipeline.folder), pipe) == whole
        descriptor = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # as a job does that outlives its task
    assert not pipe.exists()
    try:
        assert os.read(descriptor, 1) == b""
    finally:
        os.close(descriptor)
    os.mkfifo(pipe)
    with pytest.raises(DriverDied, match="the task that started this job has ended"):
        taken_over(pipeline, pipe)


def test_settings_that_are_larger_than_a_pipe_usually_is_are_handed_over_whole(
    vault: Path, pipeline: Pipeline, tmp_path: Path
) -> None:
    certificate = "x" * 300_000
    large = {"kafka_prod": {"conn_type": "kafka", "extra": LOGIN | {"ssl.certificate.pem": certificate}}}
    vault.write_text(json.dumps(large))
    whole = with_connections(pipeline)
    with handed_over(whole, tmp_path / "settings"):
        assert taken_over(pipeline, tmp_path / "settings") == whole


def test_a_pipeline_without_connections_hands_nothing_over(
    make_pipeline: Callable[..., Pipeline], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = make_pipeline("own")
    with handed_over(own, tmp_path / "settings") as there:
        assert not there
        assert not (tmp_path / "settings").exists()
    assert with_connections(own) is own


def test_airflow_masks_each_secret_and_each_line_of_a_key_and_no_broker(vault: Path, pipeline: Pipeline) -> None:
    with_connections(pipeline)
    said = (
        f"{LOGIN['sasl.password']} {LOGIN['ssl.certificate.pem']} hunter2-of-the-key-two {LOGIN['bootstrap.servers']}"
    )
    assert _secrets_masker().redact(said) == "*** *** *** 127.0.0.1:1"


def test_a_connection_that_the_environment_has_as_a_url_is_taken(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its values are texts, and its dots and underscores are kept."""
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_PROD", "kafka://?bootstrap.servers=127.0.0.1%3A1&linger.ms=5")
    assert client_settings(with_connections(pipeline)).values == {
        "bootstrap.servers": "127.0.0.1:1",
        "linger.ms": "5",
        "client.id": "counted",
    }
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_PROD", "hunter2 is no connection")
    with pytest.raises(SettingsError, match=r"kafka\.bootstrap\.servers: required but missing") as raised:
        client_settings(with_connections(pipeline))
    assert LEAK not in str(raised.value)
