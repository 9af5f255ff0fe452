"""The Spark tasks, with a spark-submit that only pretends."""

from __future__ import annotations

import gc
import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowTaskTimeout

from fencepost.airflow import AdvanceOperator, FencepostSparkOperator
from fencepost.config.pipeline import Pipeline
from fencepost.errors import BatchRejected, KafkaUnavailable
from fencepost.model import Interval, StepResult
from fencepost.steps.jobs import JobOutcome

ContextOf = Callable[..., Any]

# The provider leaves spark-submit's output open for the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")

FAKE = """#!/bin/bash
printf '%s\\n' "$@" >{folder}/arguments
env >{folder}/environment
while [ "$1" != --outcome ]; do shift; done
{action}
"""


class FakeSparkSubmit:
    """A script in spark-submit's place. `submitted` is what it was given, or None if it was not run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.script = folder / "fake-spark-submit"

    def does(self, action: str) -> None:
        self.script.write_text(FAKE.format(folder=self.folder, action=action))
        self.script.chmod(0o755)

    def answers(self, outcome: JobOutcome) -> None:
        (self.folder / "answer").write_text(outcome.model_dump_json())
        self.does(f'cp {self.folder}/answer "$2"\nexit {outcome.exit_code}')

    @property
    def submitted(self) -> list[str] | None:
        file = self.folder / "arguments"
        return file.read_text().splitlines() if file.exists() else None


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSparkSubmit]:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[1]"}))
    settings = {"spark.ui.enabled": "false"}
    monkeypatch.setattr("fencepost.spark.submit.submit_conf", lambda pipeline, master, records: settings)
    monkeypatch.setattr("fencepost.spark.submit.package_zip", lambda: tmp_path / "fencepost.zip")
    monkeypatch.setattr("fencepost.steps.write.write_without_spark", lambda *_, **__: None)
    monkeypatch.setattr("fencepost.steps.validate.validate_without_spark", lambda *_, **__: None)
    monkeypatch.setattr("fencepost.steps.advance.advance_without_spark", lambda *_, **__: None)
    yield FakeSparkSubmit(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def write(fake: FakeSparkSubmit, pipeline: Pipeline) -> FencepostSparkOperator:
    return FencepostSparkOperator(task_id="write", step="write", pipeline=pipeline, spark_binary=str(fake.script))


def test_the_steps_own_result_is_returned(
    fake: FakeSparkSubmit, write: FencepostSparkOperator, context_of: ContextOf, result: StepResult
) -> None:
    fake.answers(JobOutcome.of(result))
    assert write.execute(context_of()) == result.model_dump(mode="json")


def test_the_job_gets_folder_and_interval_and_no_secret(
    fake: FakeSparkSubmit,
    write: FencepostSparkOperator,
    pipeline: Pipeline,
    context_of: ContextOf,
    result: StepResult,
    interval: Interval,
) -> None:
    fake.answers(JobOutcome.of(result))
    write.execute(context_of())
    assert fake.submitted is not None
    at = fake.submitted.index("--folder")
    assert fake.submitted[at - 2].endswith("spark_jobs/run_step.py")
    assert fake.submitted[at - 1] == "write"
    assert fake.submitted[at : at + 6] == [
        *("--folder", str(pipeline.folder)),
        *("--start", interval.start.isoformat()),
        *("--end", interval.end.isoformat()),
    ]
    assert fake.submitted[:2] == ["--master", "local[1]"]
    assert "hunter2" not in " ".join(fake.submitted) + (fake.folder / "environment").read_text()


@pytest.mark.parametrize("records", [None, 7])
def test_the_jobs_settings_suit_as_many_records_as_were_planned(
    fake: FakeSparkSubmit,
    write: FencepostSparkOperator,
    context_of: ContextOf,
    result: StepResult,
    monkeypatch: pytest.MonkeyPatch,
    records: int | None,
) -> None:
    asked: list[int | None] = []
    monkeypatch.setattr("fencepost.spark.submit.submit_conf", lambda _, __, records: asked.append(records) or {})
    fake.answers(JobOutcome.of(result))
    context = context_of()
    if records is not None:
        planned = result.model_copy(update={"step": "plan", "details": {"offsets": records}})
        context["ti"].returned = {"plan": planned.model_dump(mode="json")}
    write.execute(context)
    assert asked == [records]


def test_every_attempt_has_an_outcome_file_of_its_own(
    fake: FakeSparkSubmit, write: FencepostSparkOperator, context_of: ContextOf, result: StepResult
) -> None:
    files = []
    for _ in range(2):
        fake.answers(JobOutcome.of(result))
        write.execute(context_of())
        assert fake.submitted is not None
        files.append(Path(fake.submitted[-1]))
    assert len(set(files)) == 2
    assert not any(file.parent.exists() for file in files)


def test_a_large_staged_batch_is_copied_by_a_job_of_its_own(
    fake: FakeSparkSubmit,
    pipeline: Pipeline,
    context_of: ContextOf,
    result: StepResult,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Airflow hears of it in the task, not in the job."""
    told: list[StepResult] = []
    monkeypatch.setattr("fencepost.airflow.spark_operator.announce", lambda *given: told.append(given[-1]))
    fake.answers(JobOutcome.of(result))
    operator = AdvanceOperator(task_id="advance", pipeline=pipeline, spark_binary=str(fake.script))
    assert operator.execute(context_of()) == result.model_dump(mode="json")
    assert fake.submitted is not None
    assert fake.submitted[fake.submitted.index("--folder") - 1] == "advance"
    assert told == [result]


@pytest.mark.parametrize("step", ["write", "validate", "advance"])
def test_spark_is_not_started_when_there_is_nothing_for_it(
    fake: FakeSparkSubmit,
    pipeline: Pipeline,
    context_of: ContextOf,
    result: StepResult,
    monkeypatch: pytest.MonkeyPatch,
    step: Any,
) -> None:
    monkeypatch.setattr(f"fencepost.steps.{step}.{step}_without_spark", lambda *args, **kwargs: result)
    fake.does("exit 1")
    operator = FencepostSparkOperator(task_id=step, step=step, pipeline=pipeline, spark_binary=str(fake.script))
    assert operator.execute(context_of()) == result.model_dump(mode="json")
    assert fake.submitted is None


@pytest.mark.parametrize(("attempt", "wrote", "reported"), [(1, True, True), (2, True, False), (1, False, False)])
def test_a_rejection_by_this_runs_write_is_reported_once_and_judged_again_when_the_task_is_cleared(
    fake: FakeSparkSubmit,
    pipeline: Pipeline,
    context_of: ContextOf,
    result: StepResult,
    monkeypatch: pytest.MonkeyPatch,
    attempt: int,
    wrote: bool,
    reported: bool,
) -> None:
    def find(pipeline: Pipeline, interval: Interval, *, rejected: bool, **_: Any) -> None:
        if rejected:
            raise BatchRejected("carriers are not known")

    monkeypatch.setattr("fencepost.steps.validate.validate_without_spark", find)
    fake.answers(JobOutcome.of(result))
    operator = FencepostSparkOperator(
        task_id="validate", step="validate", pipeline=pipeline, spark_binary=str(fake.script)
    )
    context = context_of()
    context["ti"].try_number = attempt
    context["ti"].returned = {"write": {"changed": wrote}}
    if reported:
        with pytest.raises(AirflowFailException, match=r"^BatchRejected: carriers are not known Report: http"):
            operator.execute(context)
    else:
        assert operator.execute(context) == result.model_dump(mode="json")
    assert (fake.submitted is None) is reported


def test_a_terminal_error_of_the_job_forgoes_retries(
    fake: FakeSparkSubmit, write: FencepostSparkOperator, context_of: ContextOf
) -> None:
    fake.answers(JobOutcome.of_error(BatchRejected("carriers are not known; see report.html"), "validate"))
    said = (
        r"^BatchRejected: carriers are not known; see report.html Report: "
        r"https://airflow\.example\.com/team/dags/counted/runs/run%201/plugin/run-report$"
    )
    with pytest.raises(AirflowFailException, match=said):
        write.execute(context_of())


@pytest.mark.parametrize("error", [KafkaUnavailable("no broker answered"), OSError("with a row in it")])
def test_retriable_and_unforeseen_errors_of_the_job_are_retried(
    fake: FakeSparkSubmit, write: FencepostSparkOperator, context_of: ContextOf, error: Exception
) -> None:
    fake.answers(JobOutcome.of_error(error, "write"))
    with pytest.raises(AirflowException, match=f"^{type(error).__name__}: ") as raised:
        write.execute(context_of())
    assert not isinstance(raised.value, AirflowFailException)
    assert "with a row" not in str(raised.value)


def test_a_killed_job_is_retried_and_its_last_lines_are_told(
    fake: FakeSparkSubmit, write: FencepostSparkOperator, context_of: ContextOf
) -> None:
    fake.does("echo java.lang.OutOfMemoryError: Java heap space; kill -9 $$")
    with pytest.raises(AirflowException, match=r"(?s)exit code -9.*a retry is safe.*OutOfMemoryError") as raised:
        write.execute(context_of())
    assert not isinstance(raised.value, AirflowFailException)
    assert "--outcome" not in str(raised.value)


def test_a_job_that_says_nothing_has_not_succeeded(
    fake: FakeSparkSubmit, write: FencepostSparkOperator, context_of: ContextOf
) -> None:
    fake.does("exit 0")
    with pytest.raises(AirflowException, match="exit code 0 but left no outcome"):
        write.execute(context_of())


def test_a_job_that_did_its_work_and_then_died_has_succeeded(
    fake: FakeSparkSubmit, write: FencepostSparkOperator, context_of: ContextOf, result: StepResult
) -> None:
    fake.answers(JobOutcome.of(result))
    fake.does(f'cp {fake.folder}/answer "$2"; kill -9 $$')
    assert write.execute(context_of()) == result.model_dump(mode="json")


def test_a_job_that_is_still_judging_when_its_time_is_up_has_succeeded(
    fake: FakeSparkSubmit,
    write: FencepostSparkOperator,
    context_of: ContextOf,
    result: StepResult,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    killed: list[bool] = []
    monkeypatch.setattr(FencepostSparkOperator, "on_kill", lambda self: killed.append(True))
    for outcome in (JobOutcome.of(result), None):

        def run_out_of_time(operator: FencepostSparkOperator, context: Any, outcome: Any = outcome) -> None:
            if outcome is not None:
                outcome.write(Path(operator.application_args[-1]))
            raise AirflowTaskTimeout("Timeout")

        monkeypatch.setattr(SparkSubmitOperator, "execute", run_out_of_time)
        if outcome is not None:
            assert write.execute(context_of()) == result.model_dump(mode="json")
            assert killed == [True]
        else:
            with pytest.raises(AirflowTaskTimeout):
                write.execute(context_of())


def test_a_missing_connection_is_named_instead_of_meaning_yarn(
    fake: FakeSparkSubmit, write: FencepostSparkOperator, context_of: ContextOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT")
    fake.does("exit 1")
    with pytest.raises(AirflowException, match=r"no Airflow connection 'spark_default'.*AIRFLOW_CONN_SPARK_DEFAULT"):
        write.execute(context_of())
    assert fake.submitted is None


def test_cluster_mode_is_refused(
    fake: FakeSparkSubmit, write: FencepostSparkOperator, context_of: ContextOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"conn_type": "spark", "host": "spark://host:7077", "extra": {"deploy-mode": "cluster"}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(asked))
    with pytest.raises(AirflowFailException, match="only client works"):
        write.execute(context_of())


@pytest.mark.parametrize(
    ("connection", "master"),
    [
        ("spark://localhost:7077", "spark://localhost:7077"),
        ("spark://localhost:7077?queue=q", "spark://localhost:7077"),
        ("spark://yarn", "yarn"),
        ("spark://local%5B2%5D", "local[2]"),
        ({"conn_type": "spark", "host": "spark://localhost", "port": 7077}, "spark://localhost:7077"),
        ({"conn_type": "spark", "host": "spark://a:7077,b:7077"}, "spark://a:7077,b:7077"),
        ({"conn_type": "spark", "host": "local"}, "local"),
        ({"conn_type": "spark", "host": "local[*,3]"}, "local[*,3]"),
    ],
)
def test_a_job_is_prepared_for_the_master_that_it_is_submitted_to(
    fake: FakeSparkSubmit,
    write: FencepostSparkOperator,
    context_of: ContextOf,
    monkeypatch: pytest.MonkeyPatch,
    result: StepResult,
    connection: str | dict[str, Any],
    master: str,
) -> None:
    prepared: list[str] = []
    monkeypatch.setattr(
        "fencepost.spark.submit.submit_conf", lambda pipeline, master, records: prepared.append(master) or {}
    )
    text = connection if isinstance(connection, str) else json.dumps(connection)
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", text)
    fake.answers(JobOutcome.of(result))
    write.execute(context_of())
    assert fake.submitted is not None
    assert (prepared, fake.submitted[:2]) == ([master], ["--master", master])


@pytest.mark.parametrize(
    "connection",
    ["spark://localhost", "local://", '{"conn_type": "spark", "host": "localhost"}', '{"conn_type": "spark"}'],
)
def test_a_master_that_spark_does_not_know_is_refused_before_anything_is_submitted(
    fake: FakeSparkSubmit,
    write: FencepostSparkOperator,
    context_of: ContextOf,
    monkeypatch: pytest.MonkeyPatch,
    connection: str,
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", connection)
    fake.does("exit 1")
    with pytest.raises(
        AirflowFailException, match=r"^SettingsError: Airflow's connection 'spark_default' gives the master"
    ):
        write.execute(context_of())
    assert fake.submitted is None


def test_a_worker_without_java_is_no_reason_to_retry(
    fake: FakeSparkSubmit,
    write: FencepostSparkOperator,
    context_of: ContextOf,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    fake.does("exit 1")
    with pytest.raises(AirflowFailException, match=r"^SettingsError: Spark needs Java.*JAVA_HOME"):
        write.execute(context_of())
    assert fake.submitted is None


def test_sparks_files_lie_where_the_settings_say_whatever_the_worker_has_set(
    fake: FakeSparkSubmit,
    write: FencepostSparkOperator,
    context_of: ContextOf,
    result: StepResult,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/tmp")
    monkeypatch.setattr("fencepost.spark.submit.submit_conf", lambda *_: {"spark.local.dir": "/private"})
    fake.answers(JobOutcome.of(result))
    write.execute(context_of())
    assert "SPARK_LOCAL_DIRS=/private" in (fake.folder / "environment").read_text().splitlines()


def test_killing_a_task_that_never_started_spark_is_no_error(write: FencepostSparkOperator) -> None:
    write.on_kill()
