"""What a team says about all of its DAGs, and what a DAG carries of a pipeline whose folder is in a bundle."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.serialization.serialized_objects import DagSerialization
from pydantic import JsonValue

from fencepost.airflow import FencepostSparkOperator, build_dags, refuse_broken_pipelines
from fencepost.airflow.arguments import DECIDING_SETTINGS, merged
from fencepost.airflow.dag import Team, build_dag
from fencepost.config.loading import load_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.config.public_settings import pipeline_of_public, public_settings
from fencepost.config.sections import Schedule
from fencepost.errors import SettingsError
from fencepost.pages.dag_settings import public_of
from fencepost.pages.pipelines import Pipelines

from .conftest import PIPELINE_YAML

MakePipeline = Callable[..., Pipeline]
SUITE = "expectations: [{type: expect_column_to_exist, kwargs: {column: value}}]"
OWN = (
    PIPELINE_YAML + "airflow: {pool: large, queue: spark, owner: orders, tags: [gold], spark_connection: spark_prod}\n"
)


def page(context: Any) -> None:
    """A team's callback."""


def tell(context: Any) -> None:
    """Another one."""


def test_a_pipeline_says_who_owns_its_dag_and_where_its_tasks_run(make_pipeline: MakePipeline) -> None:
    dag = build_dag(make_pipeline(settings=OWN.replace("retries: 2", "retries: 2, deadline_minutes: 5")))
    assert dag.tags == {"fencepost", "gold"}
    assert {(task.owner, task.queue) for task in dag.tasks} == {("orders", "spark")}
    assert {task.task_id: task.pool for task in dag.tasks} == {
        "plan": "default_pool",
        **dict.fromkeys(("write", "validate", "advance"), "large"),
    }
    jobs = [task for task in dag.tasks if isinstance(task, FencepostSparkOperator)]
    assert {task._conn_id for task in jobs} == {"spark_prod"}


def test_a_dags_place_in_airflow_makes_no_new_revision(make_pipeline: MakePipeline) -> None:
    one, two = make_pipeline("one"), make_pipeline("two", OWN)
    for made in (one, two):
        made.expectations_file.write_text(SUITE)
    assert one.write_digests() == two.write_digests()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "airflow: {pools: x}",
            "airflow.pools: unknown field; allowed here are spark_connection, pool, queue, owner, tags",
        ),
        ("airflow: {pool: ''}", "airflow.pool"),
        ("airflow: {queue: ''}", "airflow.queue"),
        ("airflow: {owner: 5}", "airflow.owner"),
        ("airflow: {spark_connection: 'a b'}", "airflow.spark_connection"),
        (f"airflow: {{tags: [{'x' * 101}]}}", "airflow.tags.0"),
    ],
)
def test_what_airflow_would_refuse_of_it_is_refused_in_the_file(
    make_pipeline: MakePipeline, text: str, says: str
) -> None:
    with pytest.raises(SettingsError) as raised:
        make_pipeline(settings=f"{PIPELINE_YAML}{text}\n")
    assert says in str(raised.value)


def test_a_teams_arguments_reach_each_dag_and_task_and_the_pipelines_own_win(
    make_pipeline: MakePipeline, pipelines: Path
) -> None:
    make_pipeline("plain")
    make_pipeline("orders", OWN)
    dags = build_dags(
        dag_args={"tags": ["team"], "max_active_tasks": 3, "on_failure_callback": page},
        default_args={"owner": "team", "queue": "small", "priority_weight": 7, "on_failure_callback": [tell]},
    )
    assert dags["orders"].tags == {"fencepost", "gold", "team"}
    assert {dag.max_active_tasks for dag in dags.values()} == {3}
    assert {name: {(t.owner, t.queue) for t in dag.tasks} for name, dag in dags.items()} == {
        "plain": {("team", "small")},
        "orders": {("orders", "spark")},
    }
    for dag in dags.values():
        assert page in as_list(dag.on_failure_callback)
        assert all(tell in as_list(task.on_failure_callback) for task in dag.tasks)
        assert {task.priority_weight for task in dag.tasks} == {7}
        assert {task.retries for task in dag.tasks} <= {2}


def as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def test_callbacks_are_appended_and_replace_none_of_ours() -> None:
    own = {"on_failure_callback": [page], "retries": 2, "tags": ["fencepost"]}
    both = merged(own, {"on_failure_callback": tell, "on_retry_callback": tell, "retries": 9, "tags": {"team"}})
    assert both == {
        "on_failure_callback": [page, tell],
        "on_retry_callback": tell,
        "retries": 2,
        "tags": ["fencepost", "team"],
    }
    assert merged({"on_failure_callback": page}, {"on_failure_callback": None}) == {"on_failure_callback": [page]}
    assert merged({"on_failure_callback": page}, {"on_failure_callback": (page, tell)})["on_failure_callback"] == [
        page,
        tell,
    ]


@pytest.mark.parametrize(
    ("dag_args", "default_args", "says"),
    [
        ({"catchup": False}, {}, r"dag_args has catchup, which is schedule\.catchup in each pipeline\.yaml"),
        ({"dag_id": "x"}, {}, "dag_args has dag_id, which is not accepted"),
        ({"disable_bundle_versioning": False}, {}, "dag_args has disable_bundle_versioning, which is not accepted"),
        ({}, {"retries": 9}, r"default_args has retries, which is schedule\.retries"),
        ({}, {"depends_on_past": True}, "default_args has depends_on_past, which is not accepted"),
        ({}, {"outlets": []}, "default_args has outlets, which is not accepted"),
    ],
)
def test_what_decides_about_batches_is_refused_with_the_setting_that_does(
    pipeline: Pipeline, dag_args: dict[str, Any], default_args: dict[str, Any], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        build_dags(dag_args=dag_args, default_args=default_args)


def test_each_refused_argument_names_a_setting_that_pipeline_yaml_has() -> None:
    for setting in DECIDING_SETTINGS.values():
        section, _, name = setting.rpartition(".")
        assert name in (Schedule if section == "schedule" else Pipeline).model_fields, setting


def test_a_run_is_not_pinned_to_a_version_of_its_bundle(pipeline: Pipeline, tmp_path: Path) -> None:
    for dag in (build_dag(pipeline), *build_dags(folder=pipeline.folder.parent).values()):
        assert dag.disable_bundle_versioning
        assert DagSerialization.from_dict(DagSerialization.to_dict(dag)).disable_bundle_versioning


def test_a_folder_of_ones_own_has_the_pipelines_and_their_errors(
    make_pipeline: MakePipeline, pipelines: Path, tmp_path: Path
) -> None:
    make_pipeline("here")
    bundle = tmp_path / "bundle"
    pipelines.rename(bundle)
    pipelines.mkdir()
    assert build_dags() == {}
    assert list(build_dags(folder=str(bundle))) == ["here"]
    (bundle / "broken").mkdir()
    (bundle / "broken" / "pipeline.yaml").write_text("source: 5")
    refuse_broken_pipelines()
    with pytest.raises(SettingsError, match=r"1 of the pipelines.*\n- broken: "):
        refuse_broken_pipelines(folder=bundle)


LOGIN = """
source: {topic: orders-in, schema: {n: int}}
output: {topic: "${OUT:-orders}"}
schedule: {start: 2013-03-01T00:00:00-05:00, end: 2014-01-01, deadline_minutes: 5}
kafka:
  bootstrap.servers: ${BROKERS:-127.0.0.1:1}
  security.protocol: SASL_SSL
  sasl.mechanism: PLAIN
  sasl.username: etl
  sasl.password: PASSWORD
  ssl.ca.location: /etc/ca.pem
  linger.ms: 5
"""


def serialized(dag: DAG) -> dict[str, JsonValue]:
    text = json.dumps(DagSerialization.to_dict(dag))
    assert "hunter2" not in text
    found: dict[str, JsonValue] = json.loads(text)
    return found


def test_a_dag_carries_what_pages_need_and_no_secret(
    make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter2-of-this-process")
    pipeline = make_pipeline(settings=LOGIN.replace("PASSWORD", "${KAFKA_PASSWORD}"))
    data = serialized(build_dags(folder=pipeline.folder.parent)["counted"])
    public = public_of(data)
    assert public is not None
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter2-of-the-api-server")
    monkeypatch.setenv("FENCEPOST_PAGES_ENVIRONMENT", "OUT, BROKERS,KAFKA_PASSWORD")
    there = pipeline_of_public(public, "counted")
    assert there.kafka["sasl.password"].get_secret_value() == "hunter2-of-the-api-server"
    assert (there.source, there.output, there.schedule) == (pipeline.source, pipeline.output, pipeline.schedule)
    assert there.ledger_topic == pipeline.ledger_topic
    monkeypatch.delenv("KAFKA_PASSWORD")
    with pytest.raises(SettingsError, match=r"^counted/pipeline\.yaml: kafka\.sasl\.password: .*is not set"):
        pipeline_of_public(public, "counted")


@pytest.mark.parametrize("secret", ["hunter2", "${KAFKA_PASSWORD:-hunter2}", "hunter2${X:-}"])
def test_a_secret_that_is_written_out_is_left_out_by_name(
    make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    pipeline = make_pipeline(settings=LOGIN.replace("PASSWORD", secret))
    serialized(build_dags(folder=pipeline.folder.parent)["counted"])
    public = public_settings(pipeline)
    assert public["left_out"] == ["kafka.sasl.password"]
    said = r"needs sasl\.password.*, so these settings are missing here: kafka\.sasl\.password\. Take them from a"
    monkeypatch.setenv("FENCEPOST_PAGES_ENVIRONMENT", "OUT,BROKERS")
    with pytest.raises(SettingsError, match=said):
        pipeline_of_public(public, "counted")


def test_a_dag_of_the_usual_folder_carries_nothing(pipeline: Pipeline) -> None:
    assert public_of(serialized(build_dag(pipeline))) is None
    assert public_of({"dag": {"timetable": {"__type": "another", "__var": {"expression": "@daily"}}}}) is None
    assert public_of(None) is None


AIRFLOWS = [
    "AIRFLOW__API_AUTH__JWT_SECRET",
    "AIRFLOW_CONN_KAFKA_PROD",
    "AIRFLOW_VAR_TOKEN",
    "airflow__core__fernet_key",
]


@pytest.mark.parametrize("name", AIRFLOWS)
@pytest.mark.parametrize("reference", ["${%s}", "${%s:-x}", "a${%s}b"])
def test_no_pipeline_gets_airflows_own_settings_whatever_the_operator_lists(
    make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch, name: str, reference: str
) -> None:
    monkeypatch.setenv(name, "hunter2")
    monkeypatch.setenv("FENCEPOST_PAGES_ENVIRONMENT", f"OUT,BROKERS,{name}")
    public = public_settings(make_pipeline(settings=LOGIN.replace("PASSWORD", "${KAFKA_PASSWORD:-}x")))
    text = reference % name
    for section, field in (
        ("kafka", "sasl.password"),
        ("kafka", "client.id"),
        ("source", "topic"),
        ("output", "topic"),
    ):
        settings = json.loads(json.dumps(public["settings"]))
        settings[section][field] = text
        with pytest.raises(
            SettingsError, match=rf"{section}\.{field}: .*(Airflow's own settings|looks like a secret)"
        ) as raised:
            pipeline_of_public(public | {"settings": settings}, "counted")
        assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("listed", ["", "BROKERS", "KAFKA_PASSWORDS,OUT,BROKERS", "*", "kafka_password,OUT,BROKERS"])
def test_what_a_dag_carries_gets_no_variable_that_the_operator_does_not_list(
    make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch, listed: str
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter2")
    public = public_settings(make_pipeline(settings=LOGIN.replace("PASSWORD", "${KAFKA_PASSWORD}")))
    monkeypatch.setenv("FENCEPOST_PAGES_ENVIRONMENT", listed)
    missing = "KAFKA_PASSWORD" if "BROKERS" in listed and "OUT" in listed else "OUT"
    with pytest.raises(
        SettingsError, match=rf"\$\{{{missing}\}} is not read here, because FENCEPOST_PAGES_ENVIRONMENT"
    ):
        pipeline_of_public(public, "counted")


def test_a_pipeline_that_a_dag_carries_is_called_as_the_dag(make_pipeline: MakePipeline) -> None:
    public = public_settings(make_pipeline("victim")) | {"name": "victim"}
    good, _ = Pipelines(lambda: {"evil": ("hash", public)}).load()
    assert (good["evil"].name, good["evil"].ledger_topic) == ("evil", "fencepost.evil.ledger")
    for dag_id in ("..", "../victim", "Victim", "a.b"):
        assert dag_id in Pipelines(lambda name=dag_id: {name: ("hash", public)}).load()[1]


CATALOG = {
    "type": "sql",
    "uri": "postgresql://evil/lake",
    "user": "etl",
    "password": "x",
    "warehouse": "s3://bucket/w",
}


@pytest.mark.parametrize(
    ("section", "values", "says"),
    [
        (
            "kafka",
            {"bootstrap.servers": "evil:1", "ssl.keystore.location": "/etc/k"},
            "kafka.ssl.keystore.location: a file",
        ),
        (
            "kafka",
            {"bootstrap.servers": "evil:1", "ssl.key.location": "/k", "ssl.certificate.location": "/c"},
            "kafka.ssl.certificate.location: a file",
        ),
        ("kafka", {"connection": "prod", "ssl.key.location": "/etc/k"}, "kafka.ssl.key.location: a file"),
        ("schema_registry", {"url": "http://evil", "certificate_location": "/c"}, "certificate_location: a file"),
        ("postgres", {"passfile": "/home/airflow/.pgpass", "password": "x"}, "postgres.passfile: a file"),
        ("postgres", {"sslkey": "/etc/key", "password": "x"}, "postgres.sslkey: a file"),
        ("postgres", {}, "postgres.password: required here"),
        ("postgres", {"password": "${NOTHING:-}"}, "postgres.password: required here"),
        ("iceberg", {}, "iceberg.s3.access-key-id: required here"),
        ("iceberg", {"s3.anonymous": "false"}, "iceberg.s3.access-key-id: required here"),
        ("iceberg", {"s3.access-key-id": "k"}, "iceberg.s3.secret-access-key: required here"),
        (
            "iceberg",
            {"warehouse": "file:///w", "s3.access-key-id": "k"},
            "iceberg.s3.secret-access-key: required here",
        ),
        (
            "iceberg",
            {"warehouse": "file:///w", "s3.access-key-id": "${NOTHING:-}"},
            "iceberg.s3.access-key-id: required here",
        ),
        ("kafka", {"connection": "prod", "bootstrap.servers": "evil:1"}, "cannot be set beside connection"),
    ],
)
def test_what_a_dag_carries_logs_in_with_nothing_that_is_the_api_servers_own(
    make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch, section: str, values: dict[str, str], says: str
) -> None:
    """libpq would send what a passfile, PGPASSWORD or ~/.pgpass has to the host that the author names."""
    monkeypatch.setenv("FENCEPOST_PAGES_ENVIRONMENT", "NOTHING")
    public = public_settings(make_pipeline())
    if section == "postgres":
        values = {"host": "evil", "dbname": "shop", "user": "etl"} | values
    if section == "iceberg":
        values = CATALOG | values
    settings = public["settings"] | {"kafka": {"bootstrap.servers": "evil:1"}, section: values}
    with pytest.raises(SettingsError, match=re.escape(says)):
        pipeline_of_public({"settings": settings, "left_out": []}, "counted")


@pytest.mark.parametrize(
    "values",
    [
        {"warehouse": "file:///w"},
        {"warehouse": "file:///w", "s3.anonymous": "false"},
        {"s3.anonymous": "true"},
    ],
)
def test_a_warehouse_that_is_a_folder_needs_no_keys_of_s3_and_pyarrow_looks_for_none(
    make_pipeline: MakePipeline, values: dict[str, str]
) -> None:
    """A table of the catalog may be in a bucket all the same. The API server's own login does not open it."""
    settings = public_settings(make_pipeline())["settings"] | {"iceberg": CATALOG | values}
    pipeline = pipeline_of_public({"settings": settings, "left_out": []}, "counted")
    assert pipeline.iceberg["s3.anonymous"].get_secret_value() == "true"


def test_libpq_offers_no_server_a_certificate_or_a_ticket_of_the_api_servers(make_pipeline: MakePipeline) -> None:
    given = {"host": "evil", "dbname": "shop", "user": "etl", "password": "x", "gssencmode": "require"}
    settings = public_settings(make_pipeline())["settings"] | {
        "postgres": given | {"sslcertmode": "require", "require_auth": "gss"}
    }
    pipeline = pipeline_of_public({"settings": settings, "left_out": []}, "counted")
    found = {name: value.get_secret_value() for name, value in pipeline.postgres.items()}
    assert found["password"] == "x"
    assert (found["gssencmode"], found["sslcertmode"], found["require_auth"]) == ("disable", "disable", "!gss,!sspi")


@pytest.mark.parametrize(
    "public",
    [
        {},
        {"settings": 5, "left_out": []},
        {"settings": {"name": "victim"}, "left_out": []},
        {"settings": {"resolved": True}, "left_out": []},
        {"settings": {"connections": {"kafka": "prod"}}, "left_out": []},
        {"settings": {"kafka": [1]}, "left_out": None},
    ],
)
def test_what_is_no_pipelines_settings_is_an_error_of_that_dag_alone(
    make_pipeline: MakePipeline, public: dict[str, Any]
) -> None:
    carried = {"bad": ("hash", public), "good": ("hash", public_settings(make_pipeline("good")))}
    good, bad = Pipelines(lambda: carried).load()
    assert (set(good), set(bad)) == ({"good"}, {"bad"})


def test_every_section_comes_through_as_it_is(make_pipeline: MakePipeline) -> None:
    settings = """
description: Orders, by the hour.
source: {topic: in, format: avro, on_malformed: quarantine}
output: {kind: postgres, table: reporting.orders}
schedule: {cron: "0 * * * *", timezone: Europe/Vienna, start: 2026-01-01}
quality: {ask_operator_minutes: 5, quarantine_limit: {rows: 3}}
lanes: 2
kafka: {connection: kafka_prod}
schema_registry: {connection: registry, auto_register: true}
postgres: {connection: reports, connect_timeout: 5}
spark: {spark.executor.cores: 2}
"""
    pipeline = make_pipeline(settings=settings)
    there = pipeline_of_public(json.loads(json.dumps(public_settings(pipeline))), pipeline.name)
    assert there.model_copy(update={"folder": pipeline.folder, "spark": pipeline.spark}) == pipeline


def test_the_pages_know_the_pipelines_here_and_those_that_dags_carry(
    make_pipeline: MakePipeline, pipelines: Path, tmp_path: Path
) -> None:
    bundled = make_pipeline("bundled")
    public = public_settings(bundled)
    bundled.folder.rename(tmp_path / "bundled")
    make_pipeline("here")
    carried = {"bundled": ("hash 1", public), "here": ("hash 1", public)}
    known = Pipelines(lambda: carried)
    good, bad = known.load()
    assert (set(good), bad) == ({"bundled", "here"}, {})
    assert good["here"] == load_pipeline(pipelines / "here"), "the folder counts before what a DAG carries"
    assert known.load()[0]["bundled"] is good["bundled"]
    changed = json.loads(json.dumps(public).replace('"in"', '"elsewhere"'))
    carried["bundled"] = ("hash 2", changed)
    assert known.load()[0]["bundled"].source.topic == "elsewhere"
    carried["bundled"] = ("hash 3", public | {"settings": {}})
    assert "bundled" in known.load()[1]


def test_pages_need_no_folder_where_dags_carry_the_settings(
    make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    public = public_settings(make_pipeline("bundled"))
    monkeypatch.setenv("FENCEPOST_PIPELINES", str(tmp_path / "nowhere"))
    assert set(Pipelines(lambda: {"bundled": ("hash", public)}).load()[0]) == {"bundled"}
    with pytest.raises(SettingsError, match="nowhere: cannot be read"):
        Pipelines().load()


def test_the_alert_of_a_missed_deadline_has_the_settings_where_the_folder_is_not(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(settings=LOGIN.replace("PASSWORD", "hunter2"))
    (alert,) = build_dag(pipeline, Team(folder=pipeline.folder.parent)).deadline
    assert alert.callback.kwargs == {"public": public_settings(pipeline)}
