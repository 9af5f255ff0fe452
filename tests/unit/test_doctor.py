"""What the doctor makes of what it sees: the pure parts of its checks, and how a check is asked."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from fencepost.cli.app import app
from fencepost.config.source import Source
from fencepost.doctor import airflow, ledger, settings
from fencepost.doctor.examination import examine
from fencepost.doctor.inspection import Inspection, Role, duration
from fencepost.doctor.kafka import unfinished
from fencepost.doctor.limits import check_look_back, longest_write, retention_left, to_be_written
from fencepost.doctor.run_check import raise_first_error, run_check
from fencepost.doctor.spark import check_spark_driver, check_spark_executors, check_spark_master, compare
from fencepost.doctor.topics import replication
from fencepost.errors import AccessDenied, KafkaRefused, LoginRefused, NeedsOperator, SettingsError, TopicMissing
from fencepost.findings import Finding, Level, error, ok, warning
from fencepost.kafka.cluster import Replicas
from fencepost.model import State
from fencepost.protocol.view import View
from makers import NOW, a_batch, a_day, a_plan, a_publication, a_receipt, a_written
from unit.pages.ledgers import taken

MINUTE = timedelta(minutes=1)
LOOK: Any = SimpleNamespace(
    now=NOW,
    pipeline=SimpleNamespace(source=SimpleNamespace(topic="in")),
    set_topic=lambda topic, **values: f"set {topic} {values}",
)


def test_a_check_that_raises_is_a_finding_and_the_next_one_is_asked() -> None:
    def check_the_moon(what: str) -> Finding:
        raise {
            "settings": SettingsError("wrong"),
            "access": AccessDenied("no"),
            "login": LoginRefused("no"),
            "defect": KeyError("secret record"),
        }[what]

    (wrong,), (denied,), (refused,), (defect,) = (
        run_check(check_the_moon, what) for what in ("settings", "access", "login", "defect")
    )
    assert (refused.level, refused.kind) == (Level.ERROR, LoginRefused), "a run would be refused at once"
    assert (wrong.check, wrong.level, wrong.kind) == ("the moon", Level.ERROR, SettingsError)
    assert denied.level is Level.SKIPPED
    assert (defect.level, "KeyError" in defect.found, "secret" in defect.found) == (Level.WARNING, True, False)


def test_a_check_that_exits_ends_nothing() -> None:
    def check_exit() -> Iterator[Finding]:
        yield ok("so far")
        raise SystemExit(3)

    assert run_check(check_exit)[-1].level is Level.WARNING


def test_a_step_stops_at_the_first_error_with_its_kind_and_the_next_step() -> None:
    bad = error("It is broken.", "Fix it:", "fix --now", kind=SettingsError)
    with pytest.raises(SettingsError, match=r"pipeline p: It is broken\. Fix it: `fix --now`"):
        raise_first_error([warning("hm", ""), bad, error("more", "", kind=NeedsOperator)], "pipeline p")
    raise_first_error([warning("hm", ""), ok("fine")], "pipeline p")


def test_the_longest_transaction_of_the_ledger_against_its_timeout() -> None:
    slow = a_batch(State.WRITTEN, written=a_written(a_receipt(), seconds=301))
    quick = a_batch(State.WRITTEN, interval=a_day(1), written=a_written(a_receipt(), seconds=299))
    limits = (10 * MINUTE, 15 * MINUTE)
    assert longest_write([quick], *limits).level is Level.OK
    found = longest_write([slow, quick], *limits)
    assert (found.level, "took 5 minutes (batch p/20260101T000000Z" in found.found) == (Level.WARNING, True)
    assert "transaction.timeout.ms to 602000 or more (the broker allows 900000" in found.do
    assert "more partitions" in found.do
    copied = quick.model_copy(update={"publication": a_publication(seconds=400)})
    assert "output.atomic_megabytes" in longest_write([copied], *limits).do


@pytest.mark.parametrize(
    ("batch", "minutes", "level", "words"),
    [
        (a_batch(), 40, Level.OK, "1 batch is under way"),
        (a_batch(), 60, Level.WARNING, "Its marks may be gone in 30 minutes"),
        (a_batch(), 95, Level.WARNING, "Its marks may have expired"),
        (
            a_batch(State.PUBLISHING, publication=a_publication()),
            60,
            Level.WARNING,
            "Its marks may be gone in 30 minutes",
        ),
        (
            a_batch(State.PUBLISHING, publication=a_publication()),
            95,
            Level.WARNING,
            "Its marks may be gone now. Without its marks, the",
        ),
        (
            a_batch(State.PUBLISHING, publication=a_publication(refused="too large.")),
            1,
            Level.ERROR,
            "p/20260101T000000Z",
        ),
        (a_batch(State.REJECTED), 95, Level.OK, "no batch is under way"),
    ],
)
def test_batches_under_way_against_the_life_of_their_marks(batch: Any, minutes: int, level: Level, words: str) -> None:
    (found,) = unfinished(taken([batch]), 100 * MINUTE, NOW + minutes * MINUTE)
    assert found.level is level
    assert words in found.found


@pytest.mark.parametrize(
    ("replicas", "in_sync", "least", "level", "words"),
    [
        (3, 3, 2, None, ""),
        (3, 2, 2, None, ""),
        (3, 1, 2, Level.ERROR, "accepts no writes"),
        (1, 1, 2, Level.ERROR, "no write is ever acknowledged"),
        (1, 1, 1, Level.WARNING, "one replica"),
        (1, 1, None, Level.WARNING, "one replica"),
        (3, 3, 1, Level.WARNING, "only the leader has"),
        (2, 2, 2, Level.WARNING, "while any broker is down"),
        (3, 3, None, None, ""),
    ],
)
def test_replicas_and_how_many_have_to_be_in_sync(
    replicas: int, in_sync: int, least: int | None, level: Level | None, words: str
) -> None:
    found = list(replication(LOOK, "ledger topic l", "l", Replicas(replicas, in_sync), least))
    assert [one.level for one in found] == ([level] if level else [])
    assert all(words in one.found for one in found)


@pytest.mark.parametrize(
    ("settings", "hours", "level", "words"),
    [
        ({"retention.ms": "-1"}, 100, Level.OK, "no retention time"),
        ({"retention.ms": "3600000", "cleanup.policy": "compact"}, 100, Level.OK, "no retention time"),
        ({"retention.ms": str(48 * 3_600_000)}, 2, Level.OK, "stays for 46 hours"),
        ({"retention.ms": str(48 * 3_600_000)}, 47, Level.WARNING, "In 1 hour "),
        ({"retention.ms": str(48 * 3_600_000)}, 49, Level.WARNING, "at any moment"),
        ({"retention.ms": str(2**63 - 1)}, 49, Level.OK, "stays for"),
        ({"retention.ms": "-1", "retention.bytes": "5"}, 1, Level.OK, "retention.bytes=5 may delete them earlier"),
    ],
)
def test_how_long_the_source_keeps_its_oldest_unread_record(
    settings: dict[str, str], hours: int, level: Level, words: str
) -> None:
    source = Role("source", "in", None, settings)
    found = retention_left(LOOK, source, settings, {0: NOW, 1: NOW - timedelta(hours=hours)}, {0: 7, 1: 8})
    assert found.level is level
    assert words in found.found


def test_what_is_to_be_written_begins_at_a_planned_batch_or_behind_the_newest() -> None:
    done = a_batch(State.REJECTED, plan=a_plan((0, 5), (0, 6)))
    assert to_be_written(View.of([done]), "in") == {0: 5, 1: 6}
    planned = a_batch(interval=a_day(1), plan=a_plan((5, 9), (6, 6)))
    assert to_be_written(View.of([done, planned]), "in") == {0: 5, 1: 6}
    assert to_be_written(View(), "in") == {}


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(40, "40 seconds"), (90, "2 minutes"), (3600, "1 hour"), (9000, "2.5 hours"), (864_000, "10 days")],
)
def test_a_duration_is_told_in_its_unit(seconds: int, words: str) -> None:
    assert duration(timedelta(seconds=seconds)) == words


def test_executors_that_differ_from_the_driver_are_named() -> None:
    driver = {"Python": "3.11", "pyarrow": "26.0.1"}
    assert list(compare(driver, {"a": driver})) == []
    (found,) = compare(driver, {"a": driver, "b": {"Python": "3.11", "pyarrow": "25.0.0"}, "c": driver})
    assert "on b have other software than the driver: pyarrow 25.0.0, driver 26.0.1" in found.found


@pytest.mark.parametrize(
    "master",
    ["spark://127.0.0.1:1", "spark://127.0.0.1:1,127.0.0.1:2", "k8s://https://127.0.0.1:1", "k8s://127.0.0.1:1"],
)
def test_a_master_that_nobody_listens_at_is_named(master: str) -> None:
    found = check_spark_master(master)
    assert (found.level, "127.0.0.1:1: " in found.found) == (Level.ERROR, True)
    assert check_spark_master("local[*]").level is Level.OK
    assert check_spark_master("yarn").level is Level.OK


def test_no_job_runs_on_this_machine_or_where_it_is_not_wanted() -> None:
    nobody: Any = None
    assert check_spark_executors(nobody, "local[*]")[0].level is Level.OK
    assert check_spark_executors(nobody, "spark://a:7077", False)[0].level is Level.SKIPPED
    for elsewhere in ("spark://localhost:7077", "local-cluster[2,1,1024]"):
        assert check_spark_executors(nobody, elsewhere, False)[0].level is Level.SKIPPED


def test_a_master_that_spark_does_not_know_is_named() -> None:
    for master in ("localhost", "localhost:7077", "local[2]:7077", "Local[2]"):
        (found,) = run_check(check_spark_master, master)
        assert (found.level, f"gives the master {master!r}" in found.found) == (Level.ERROR, True)


def test_a_missing_java_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/no/such/folder")
    (found,) = run_check(check_spark_driver)
    assert (found.level, "JAVA_HOME" in found.found) == (Level.ERROR, True)


class AirflowOf:
    """An Airflow with these answers."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers

    def pool(self, name: str) -> Any:
        return self.answers.get("pool")

    def connection(self, name: str) -> Any:
        return self.answers.get("connection")

    def dag(self, dag_id: str) -> Any:
        return self.answers.get("dag")

    def import_errors(self) -> list[dict[str, Any]]:
        return self.answers.get("errors", [])

    def health(self) -> dict[str, Any]:
        return {"triggerer": self.answers.get("triggerer")}


def test_what_airflow_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT", raising=False)
    bare = AirflowOf(errors=[{"filename": "dags/broken.py"}])
    assert airflow.check_airflow_pool(bare).command == "python -m fencepost.airflow"
    assert airflow.check_airflow_pool(AirflowOf(pool={"slots": 0})).level is Level.ERROR
    assert airflow.check_airflow_pool(AirflowOf(pool={"slots": 2})).level is Level.OK
    assert airflow.check_airflow_connection(bare).level is Level.WARNING
    cluster = AirflowOf(
        connection={"conn_type": "spark", "host": "spark://a", "port": 7077, "extra": '{"deploy-mode": "cluster"}'}
    )
    assert "deploy-mode cluster" in airflow.check_airflow_connection(cluster).found
    assert "no host" in airflow.check_airflow_connection(AirflowOf(connection={"host": None})).found
    assert airflow.masters(cluster) == ["spark://a:7077"]
    (missing,) = airflow.check_airflow_dag(bare, "p")
    assert (missing.level, "dags/broken.py" in missing.found) == (Level.ERROR, True)
    (paused,) = airflow.check_airflow_dag(AirflowOf(dag={"is_paused": True}), "p")
    assert paused.command == "airflow dags unpause p"
    (on,) = airflow.check_airflow_dag(AirflowOf(dag={"is_paused": False}), "p")
    assert on.level is Level.OK
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", "{}")
    assert airflow.check_airflow_connection(bare).level is Level.OK


@pytest.mark.parametrize("triggerer", [None, {"status": None}, {"status": "unhealthy"}])
def test_a_deadline_without_a_triggerer_is_named(triggerer: Any) -> None:
    found = airflow.check_airflow_triggerer(AirflowOf(triggerer=triggerer), ["p", "q"])
    assert (found.level, found.command) == (Level.WARNING, "airflow triggerer")
    assert "missed deadlines of p, q" in found.found
    assert airflow.check_airflow_triggerer(AirflowOf(triggerer=triggerer), []).level is Level.OK
    assert airflow.check_airflow_triggerer(AirflowOf(triggerer={"status": "healthy"}), ["p"]).level is Level.OK


def test_a_folder_of_reports_that_cannot_be_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FENCEPOST_REPORTS", str(tmp_path / "file" / "reports"))
    found = settings.check_reports()
    assert (found.level, "it is not a folder" in found.found) == (Level.ERROR, True)
    monkeypatch.setenv("FENCEPOST_REPORTS", str(tmp_path / "new" / "reports"))
    assert settings.check_reports().level is Level.OK
    assert not (tmp_path / "new").exists()


@pytest.fixture
def pipelines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one pipeline, on a Kafka that is not there."""
    monkeypatch.setenv("FENCEPOST_PIPELINES", str(tmp_path))
    monkeypatch.setenv("FENCEPOST_STATE", str(tmp_path / ".state"))
    monkeypatch.setattr("fencepost.kafka.cluster.FIRST_CONTACT", 0.5)
    folder = tmp_path / "p"
    folder.mkdir()
    (folder / "transform.py").write_text("def transform(frame):\n    return frame\n")
    (folder / "expectations.yaml").write_text(
        "expectations:\n  - {type: expect_column_to_exist, kwargs: {column: n}}\n"
    )
    (folder / "pipeline.yaml").write_text(
        "source: {topic: in, schema: {n: int}}\noutput: {topic: out}\nschedule: {start: 2026-01-01}\n"
        'kafka: {bootstrap.servers: "127.0.0.1:1"}\n'
    )
    return folder


def test_the_command_shows_problems_first_and_ends_with_1(pipelines: Path) -> None:
    shown = CliRunner(env={"COLUMNS": "100"}).invoke(app, ["doctor", "p"])
    assert shown.exit_code == 1
    assert "p: 1 error, 0 warnings" in shown.stdout
    assert "no answer from Kafka" in shown.stdout
    assert "ok: transform, suite, schedule, schema registry" in shown.stdout
    assert "not checked: rights, transaction timeout" in shown.stdout
    assert "Traceback" not in shown.output


def test_an_error_that_several_checks_meet_is_told_once(pipelines: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fencepost.config.loading import load_pipeline
    from fencepost.doctor import examination

    def check_kafka(look: Inspection) -> Finding:
        return ok("it answers")

    monkeypatch.setattr(examination, "check_kafka", check_kafka)
    (pipelines / "expectations.yaml").write_text("expectations: []\n")
    found = examine(load_pipeline(pipelines))
    assert [one.check for one in found if "expectations: empty" in one.found] == ["suite"]
    assert [one.found for one in found if one.check == "rights"] == ["the error of suite"]


def test_a_pipeline_that_cannot_be_read_is_an_error_and_an_unknown_one_is_usage(pipelines: Path) -> None:
    (pipelines / "pipeline.yaml").write_text("source: 5\n")
    shown = CliRunner().invoke(app, ["doctor", "--json"])
    assert shown.exit_code == 1
    assert '"check": "settings"' in shown.stdout
    unknown = CliRunner().invoke(app, ["doctor", "q"])
    assert isinstance(unknown.exception, SettingsError)
    assert unknown.exception.exit_code == 2


def test_every_check_has_a_name_of_its_own(pipelines: Path) -> None:
    from fencepost.config.loading import load_pipeline

    names = [one.check for one in examine(load_pipeline(pipelines))]
    assert len(names) == len(set(names)) >= 18
    assert (
        Inspection(load_pipeline(pipelines)).command("kafka-configs")
        == "kafka-configs.sh --bootstrap-server 127.0.0.1:1"
    )


def test_a_missing_topic_that_kafka_would_refuse_to_anybody_is_named_with_its_reason(pipelines: Path) -> None:
    from fencepost.config.loading import load_pipeline
    from fencepost.doctor.rights import check_rights

    class Strict:
        """A cluster without topics, whose policy takes none."""

        def rights(self, resource: str, name: str) -> frozenset[str]:
            if resource == "topic":
                raise TopicMissing(name)
            return frozenset({"DescribeConfigs"})

        def check_may_create(self, topic: str) -> None:
            raise KafkaRefused(f"creating topic {topic}: three replicas are required.")

    deployment: Any = SimpleNamespace(cluster=Strict())
    look = Inspection(load_pipeline(pipelines), deployment)
    look.has_groups = False
    found = {one.found: one.level for one in check_rights(look)}
    assert found == {
        f"Topic {topic} does not exist, and Kafka refuses to create it: creating topic {topic}: three replicas are required.": (
            Level.WARNING
        )
        for topic in ("out", "fencepost.p.staging", "fencepost.p.ledger", "fencepost.p.published")
    }


@pytest.mark.parametrize(
    ("states", "have", "level"),
    [
        ([State.PLANNED], {}, Level.OK),
        ([State.WRITTEN], {}, Level.OK),
        ([State.PLANNED, State.WRITTEN], {}, Level.OK),
        ([State.PUBLISHED], {}, Level.WARNING),
        ([State.SKIPPED], {}, Level.WARNING),
        ([State.PUBLISHED], {0: 9}, Level.OK),
        ([State.PUBLISHED, State.PLANNED], {0: 9}, Level.OK),  # a partition that came behind what is published
        ([State.PUBLISHED, State.PLANNED], {}, Level.WARNING),
    ],
)
def test_offsets_of_the_group_are_missed_only_where_a_publication_or_a_skip_has_moved_them(
    monkeypatch: pytest.MonkeyPatch, states: list[State], have: dict[int, int], level: Level
) -> None:
    """A plan alone moves none: of a pipeline that never published, nothing has expired."""
    ranges = [[(0, 9)], [(9, 12), (0, 4)]]
    batches = [a_batch(state, interval=a_day(n), plan=a_plan(*ranges[n]), lease=n) for n, state in enumerate(states)]
    offsets = {("in", p): SimpleNamespace(offset=offset) for p, offset in have.items()}
    monkeypatch.setattr(ledger, "offsets_of", lambda *_: offsets)
    look: Any = SimpleNamespace(
        has_groups=True,
        sources=[SimpleNamespace(name="in", there=None)],
        role=lambda _: None,
        pipeline=SimpleNamespace(group="p"),
        cluster=None,
        view=View.of(batches),
        read_again=lambda: False,
    )
    (found,) = ledger.check_group_offsets(look)
    assert found.level is level
    assert ("expired" in found.found) is (level is Level.WARNING)


@pytest.mark.parametrize(
    ("retention", "settings", "level", "words"),
    [
        (6 * 24, {}, Level.ERROR, "sources.a looks back 7 days, and topic in keeps records for 6 days (retention.ms)."),
        (6 * 24, {"on_expired": "skip"}, Level.WARNING, "a batch needs records of the last 8 days."),
        (7 * 24, {}, Level.WARNING, "a batch needs records of the last 8 days."),
        (8 * 24, {}, Level.OK, "topic in keeps records for 8 days, longer than a batch looks back"),
    ],
)
def test_a_look_back_is_compared_with_what_the_topic_keeps(
    retention: int, settings: dict[str, str], level: Level, words: str
) -> None:
    source = Source.model_validate({"topic": "in", "format": "bytes", "lookback": {"for": "7 days", **settings}})
    kept = {"retention.ms": str(retention * 3_600_000), "cleanup.policy": "delete"}
    look: Any = SimpleNamespace(
        view=View(),
        now=NOW,
        longest_pause=timedelta(days=1),
        sources=[Role("source", "in", None, kept)],
        pipeline=SimpleNamespace(source_topics={"in": source.under("sources.a")}),
        set_topic=lambda *_, **values: f"kafka-configs.sh {values}",
    )
    (found,) = check_look_back(look)
    assert found.level is level
    assert words in found.found
