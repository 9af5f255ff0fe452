"""What a pipeline becomes in Airflow."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pendulum
import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG
from airflow.sdk.definitions._internal.dag_parsing_context import _airflow_parsing_context_manager
from airflow.sdk.definitions.context import _AIRFLOW_PARSING_CONTEXT_DAG_ID, _AIRFLOW_PARSING_CONTEXT_TASK_ID
from airflow.serialization.serialized_objects import DagSerialization
from airflow.utils.types import DagRunType

from fencepost.airflow import SPARK_POOL, build_dag, build_dags, refuse_broken_pipelines
from fencepost.airflow.dag import Team, describe, empty_dag
from fencepost.config.loading import load_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.errors import SettingsError
from fencepost.paths import pipelines_folder

from .conftest import PIPELINE_YAML

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def dag(pipeline: Pipeline) -> DAG:
    return build_dag(pipeline)


def as_scheduled(dag: DAG) -> Any:
    """The DAG as the scheduler sees it, after its way through the database."""
    return DagSerialization.from_dict(DagSerialization.to_dict(dag))


SEVERAL = """
sources:
  orders: {topic: shop.orders, format: bytes}
  payments: {topic: payments, format: bytes}
  refunds: {topic: refunds, format: bytes}
output: {topic: out, format: bytes}
schedule: {start: 2013-03-01}
kafka: {bootstrap.servers: "127.0.0.1:1"}
"""


def test_the_documentation_of_a_dag_names_every_source_topic(
    make_pipeline: Callable[..., Pipeline], pipeline: Pipeline
) -> None:
    assert "From topics `shop.orders`, `payments` and `refunds` to topic `out`." in describe(
        make_pipeline("several", SEVERAL)
    )
    assert "From topic `in` to topic `out`." in describe(pipeline)


def test_a_backfill_can_say_that_the_sources_have_changed(dag: DAG) -> None:
    param = dag.params.get_param("sources_changed")
    assert (param.value, param.schema["type"]) == (False, "boolean")
    assert "confirms the present topics, once for each backfill" in str(param.description)


def test_tasks_run_in_the_order_of_the_protocol(dag: DAG) -> None:
    assert {task.task_id: task.downstream_task_ids for task in dag.tasks} == {
        "plan": {"write"},
        "write": {"validate"},
        "validate": {"advance"},
        "advance": set(),
    }


def test_spark_tasks_share_a_pool_because_backfills_ignore_max_active_runs(dag: DAG) -> None:
    assert {t.task_id: t.pool for t in dag.tasks if t.pool != "default_pool"} == {
        "write": SPARK_POOL,
        "validate": SPARK_POOL,
        "advance": SPARK_POOL,
    }


def test_manual_runs_are_refused_by_the_timetable_alone_because_airflow_else_hides_its_form(dag: DAG) -> None:
    scheduled = as_scheduled(dag)
    assert set(scheduled.allowed_run_types) == {"scheduled", "backfill", "manual"}
    noon = pendulum.datetime(2013, 3, 1, 12)
    with pytest.raises(ValueError, match=r"no manual runs.*Choose Backfill.*fencepost try.*dag\.test\(\)"):
        scheduled.timetable.generate_run_id(run_type=DagRunType.MANUAL, run_after=noon, data_interval=None)
    with pytest.raises(ValueError, match=r"no manual runs.*Choose Backfill"):
        scheduled.timetable.infer_manual_data_interval(run_after=noon)
    for kind in (DagRunType.SCHEDULED, DagRunType.BACKFILL_JOB):
        run_id = scheduled.timetable.generate_run_id(run_type=kind, run_after=noon, data_interval=None)
        assert run_id.startswith(f"{kind}__2013-03-01T12:00:00")


def test_no_task_depends_on_the_past_because_airflow_then_refuses_a_backfill_of_missing_runs(dag: DAG) -> None:
    assert not any(task.depends_on_past for task in dag.tasks)


def test_settings_decide_retries_and_timeouts(dag: DAG) -> None:
    for task in dag.tasks:
        assert task.retries == 2
        assert task.retry_delay == timedelta(seconds=30)
        assert task.execution_timeout == timedelta(minutes=60)


@pytest.mark.parametrize("name", ["reprocess", "replay"])
def test_reprocess_and_replay_are_off_and_say_what_they_do(dag: DAG, name: str) -> None:
    param = dag.params.get_param(name)
    assert param.value is False
    assert param.schema["type"] == "boolean"
    assert "Override parameters" in param.description


def test_intervals_touch_and_a_day_of_clock_change_has_23_hours(dag: DAG) -> None:
    first, last = datetime(2013, 3, 9, 5, tzinfo=UTC), datetime(2013, 3, 11, 4, tzinfo=UTC)
    runs = [r.data_interval for r in as_scheduled(dag).iter_dagrun_infos_between(first, last)]
    assert [r.end for r in runs[:-1]] == [r.start for r in runs[1:]]
    assert [(r.end - r.start).total_seconds() / 3600 for r in runs] == [24, 23, 24]


@pytest.mark.parametrize(("more", "catches_up"), [("", True), (", catchup: false", False)])
def test_what_passed_while_a_dag_was_paused_is_caught_up_with_one_by_one(
    make_pipeline: Callable[..., Pipeline], more: str, catches_up: bool
) -> None:
    settings = """
source: {topic: in, format: bytes}
output: {topic: out, format: bytes}
schedule: {start: 2013-01-01%s}
"""
    dag = build_dag(make_pipeline(settings=settings % more))
    assert (dag.catchup, dag.max_active_runs) == (catches_up, 1)
    first = as_scheduled(dag).next_dagrun_info(last_automated_run_info=None)
    assert first is not None
    assert (first.data_interval.start.year == 2013) is catches_up


def test_the_schedules_end_is_exclusive(make_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = make_pipeline(
        settings="""
source: {topic: in, format: bytes}
output: {topic: out, format: bytes}
schedule: {start: 2013-01-01, end: 2013-01-04}
"""
    )
    scheduled, last, starts = as_scheduled(build_dag(pipeline)), None, []
    while (last := scheduled.next_dagrun_info(last_automated_run_info=last)) is not None:
        starts.append(last.data_interval.start.day)
    assert starts == [1, 2, 3]


@pytest.mark.parametrize(("way", "pool"), [("staged", SPARK_POOL), ("direct", "default_pool")])
def test_a_copy_takes_a_place_of_the_pool_that_bounds_jobs(
    make_pipeline: Callable[..., Pipeline], way: str, pool: str
) -> None:
    pipeline = make_pipeline(
        settings=f"""
source: {{topic: in, format: bytes}}
output: {{topic: out, format: bytes, publish: {way}}}
schedule: {{start: 2013-01-01}}
"""
    )
    assert build_dag(pipeline).get_task("advance").pool == pool


def test_nothing_secret_goes_to_airflows_database(dag: DAG) -> None:
    assert "hunter2" not in str(DagSerialization.to_dict(dag))


def test_the_documentation_says_what_to_do_about_a_red_task(dag: DAG) -> None:
    assert dag.doc_md is not None
    assert "when it is red" in dag.doc_md


@pytest.mark.parametrize(
    ("publish", "told"), [("staged", "before it has passed"), ("direct", "names a published batch")]
)
def test_the_documentation_says_what_a_reader_of_the_output_sees(pipeline: Pipeline, publish: str, told: str) -> None:
    output = pipeline.output.model_copy(update={"publish": publish})
    said = describe(pipeline.model_copy(update={"output": output}))
    assert told in said
    assert ("nothing of a\nbatch" in said) == (publish == "staged")


def test_a_broken_pipeline_leaves_the_others_whole(pipeline: Pipeline, pipelines: Path) -> None:
    (pipelines / "broken").mkdir()
    (pipelines / "broken" / "pipeline.yaml").write_text("source: {topic: 'no spaces here'}")
    assert list(build_dags()) == ["counted"]
    with pytest.raises(SettingsError, match=r"1 of the pipelines.*\n- broken: .*broken/pipeline.yaml: source.topic"):
        refuse_broken_pipelines()


def test_each_dag_belongs_to_the_file_without_import_errors(pipeline: Pipeline) -> None:
    bag = DagBag(dag_folder=str(ROOT / "dags"))
    assert bag.import_errors == {}
    assert {dag_id: Path(dag.fileloc).name for dag_id, dag in bag.dags.items()} == {"counted": "fencepost_dags.py"}
    reports = DagBag(dag_folder=str(ROOT / "dags" / "fencepost_broken_pipelines.py"))
    assert reports.dags == {}


def test_a_pipeline_airflow_refuses_is_broken_too(
    pipeline: Pipeline, make_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_pipeline("refused")

    def refuse(pipeline: Pipeline, team: Team) -> DAG:
        if pipeline.name == "refused":
            raise ImportError("Airflow says no")
        return empty_dag(pipeline, team)

    monkeypatch.setattr("fencepost.airflow.dag.empty_dag", refuse)
    assert list(build_dags()) == ["counted"]
    with pytest.raises(SettingsError, match="refused: Airflow says no"):
        refuse_broken_pipelines()


def test_a_tasks_process_loads_its_own_pipeline_and_no_other(
    make_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow parses the DAG's file again for each task; with hundreds of pipelines that took seconds."""
    for name in ("first", "second", "third"):
        make_pipeline(name)
    for variable in (_AIRFLOW_PARSING_CONTEXT_DAG_ID, _AIRFLOW_PARSING_CONTEXT_TASK_ID):
        monkeypatch.setenv(variable, "")  # Airflow's own context manager leaves them behind
    loaded: list[str] = []

    def load(folder: Path) -> Pipeline:
        loaded.append(folder.name)
        return load_pipeline(folder)

    monkeypatch.setattr("fencepost.airflow.dag.load_pipeline", load)
    with _airflow_parsing_context_manager(dag_id="second", task_id="plan"):
        bag = DagBag(dag_folder=str(ROOT / "dags" / "fencepost_dags.py"))
        assert (list(bag.dags), loaded) == (["second"], ["second"])
        assert set(bag.dags["second"].task_ids) == {"plan", "write", "validate", "advance"}
    with _airflow_parsing_context_manager(dag_id="somebody_elses", task_id="x"):
        assert build_dags() == {}
    with _airflow_parsing_context_manager(dag_id="third", task_id="x"):
        (pipelines_folder() / "third" / "pipeline.yaml").write_text("source: 5")
        with pytest.raises(SettingsError, match=r"third/pipeline\.yaml: source"):
            build_dags()
    assert loaded == ["second", "third"]


def test_looking_for_broken_pipelines_makes_no_task_a_second_time(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tasks(dag: DAG, pipeline: Pipeline) -> DAG:
        raise AssertionError("tasks are made")

    monkeypatch.setattr("fencepost.airflow.dag._with_tasks", tasks)
    refuse_broken_pipelines()
    with pytest.raises(AssertionError, match="tasks are made"):
        build_dags()


def test_where_all_pipelines_are_good_nothing_is_refused(pipeline: Pipeline) -> None:
    refuse_broken_pipelines()


def test_parsing_imports_neither_spark_nor_great_expectations(pipeline: Pipeline) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'dags')!r})\n"
        "import fencepost_dags, fencepost_broken_pipelines\n"
        "assert fencepost_dags.counted.task_ids\n"
        "heavy = {'pyspark', 'great_expectations', 'pandas', 'confluent_kafka'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


LOGINS = """
kafka: {bootstrap.servers: "${BROKERS_OF_TASKS}", sasl.username: counted, sasl.password: "${KAFKA_PASSWORD_OF_TASKS}"}
schema_registry: {url: "http://127.0.0.1:1", username: counted, password: "${REGISTRY_PASSWORD_OF_TASKS}"}
postgres: {host: 127.0.0.1, port: "${PORT_OF_TASKS}", dbname: d, user: u, password: "${POSTGRES_PASSWORD_OF_TASKS}"}
spark: {spark.executor.memory: "${MEMORY_OF_TASKS}"}
"""
OF_TASKS = {
    "BROKERS_OF_TASKS": "127.0.0.1:1",
    "KAFKA_PASSWORD_OF_TASKS": "hunter2",
    "REGISTRY_PASSWORD_OF_TASKS": "hunter3",
    "PORT_OF_TASKS": "1",
    "POSTGRES_PASSWORD_OF_TASKS": "hunter4",
    "MEMORY_OF_TASKS": "1g",
}
WITHOUT_KAFKA = PIPELINE_YAML.partition("kafka:")[0]


def test_a_dag_is_built_without_the_logins_that_only_its_tasks_have(
    make_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as environment:
        for name, value in OF_TASKS.items():
            environment.setenv(name, value)
        whole = build_dag(make_pipeline(settings=WITHOUT_KAFKA + LOGINS))
    for variable in (_AIRFLOW_PARSING_CONTEXT_DAG_ID, _AIRFLOW_PARSING_CONTEXT_TASK_ID):
        monkeypatch.setenv(variable, "")  # Airflow's own context manager leaves them behind
        monkeypatch.delenv(variable)
    refuse_broken_pipelines()
    parsed = build_dags()["counted"]
    assert DagSerialization.to_dict(parsed) == DagSerialization.to_dict(whole), "logins are no part of it"
    with _airflow_parsing_context_manager(dag_id="counted", task_id="plan"):
        with pytest.raises(SettingsError, match=r"kafka.bootstrap.servers: \$\{BROKERS_OF_TASKS\} is not set"):
            build_dags()
        for name, value in OF_TASKS.items():
            monkeypatch.setenv(name, value)
        task: Any = build_dags()["counted"].get_task("plan")
    assert task.pipeline.kafka["sasl.password"].get_secret_value() == "hunter2"


def test_a_connection_by_name_from_the_environment_is_read_by_tasks(
    make_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONNECTION_OF_TASKS", "kafka_prod")
    make_pipeline(settings=WITHOUT_KAFKA + "kafka: {connection: '${CONNECTION_OF_TASKS}'}")
    monkeypatch.delenv("CONNECTION_OF_TASKS")
    assert set(build_dags()) == {"counted"}


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (
            WITHOUT_KAFKA.replace("topic: in", 'topic: "${TOPIC_OF_TASKS}"'),
            "source.topic: ${TOPIC_OF_TASKS} is not set",
        ),
        (WITHOUT_KAFKA + "kafka: {bootstrap.server: a}", "did you mean bootstrap.servers"),
        (WITHOUT_KAFKA + "kafka: {bootstrap.servers: '${X_PASSWORD}'}", "looks like a secret"),
        (WITHOUT_KAFKA + "kafka: 7", "kafka"),
    ],
)
def test_what_the_dag_needs_and_what_is_written_out_is_still_read(
    make_pipeline: Callable[..., Pipeline], settings: str, says: str
) -> None:
    with pytest.raises(SettingsError):
        make_pipeline(settings=settings)
    with pytest.raises(SettingsError, match=re.escape(says)):
        refuse_broken_pipelines()
    assert build_dags() == {}
