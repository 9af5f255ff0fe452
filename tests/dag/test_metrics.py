"""What a step tells Airflow's metrics, as a receiver gets it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException
from airflow.sdk.observability import stats
from airflow.sdk.observability.metrics import stats_utils
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from fencepost.airflow import build_dag, metrics
from fencepost.config.pipeline import Pipeline
from fencepost.errors import BatchRejected, KafkaUnavailable
from fencepost.model import Batch, State, StepResult
from fencepost.protocol.view import View
from fencepost_stack.ports import any_free_port
from makers import a_verdict
from rigs.receivers import UdpReceiver, http_receiver, udp_receiver
from unit.quality.reports import batch as made

from .conftest import ContextOf

ROOT = Path(__file__).parents[2]
WROTE: dict[str, Any] = {"rows_in": 9, "rows": 7, "quarantined": {"malformed": 1, "rule": 1}}
ADVANCED: dict[str, Any] = {
    "frontier": {"in": {"0": 5, "1": 2}},
    "frontier_time": "2013-03-02T05:00:00+00:00",
    "published_at": "2013-03-02T06:00:00+00:00",
    "rows": 7,
    "output": {},
    "quarantined": {},
}


@pytest.fixture
def statsd(monkeypatch: pytest.MonkeyPatch) -> Iterator[UdpReceiver]:
    """Airflow sends to this receiver, as in a task."""
    with udp_receiver() as receiver:
        sends_to(monkeypatch, receiver.port)
        yield receiver
        monkeypatch.undo()
        stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=True)


def sends_to(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    monkeypatch.setenv("AIRFLOW__METRICS__STATSD_ON", "True")
    monkeypatch.setenv("AIRFLOW__METRICS__STATSD_HOST", "127.0.0.1")
    monkeypatch.setenv("AIRFLOW__METRICS__STATSD_PORT", str(port))
    stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=True)


Ends = list[int] | dict[str, list[int] | None] | None


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Callable[[Ends], None]:
    """Where the source ends, or each source that exists; None if Kafka does not say."""

    def set_to(found: Ends) -> None:
        class FakeCluster:
            def __init__(self, settings: object, timeout: float) -> None:
                assert timeout <= 5

            def find(self, topic: str) -> str | None:
                if isinstance(found, dict):
                    return topic if topic in found else None
                if found is None:
                    raise KafkaUnavailable("no answer")
                return topic

            def high_watermarks(self, topic: str) -> list[int]:
                assert found is not None
                said = found[topic] if isinstance(found, dict) else found
                if said is None:
                    raise KafkaUnavailable("no answer")
                return said

        monkeypatch.setattr("fencepost.kafka.cluster.Cluster", FakeCluster)

    set_to([9, 4, 3])
    return set_to


Runs = Callable[..., None]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, pipeline: Pipeline, context_of: ContextOf, result: StepResult) -> Runs:
    """Run a task whose step does that."""

    def of(step: str, details: dict[str, Any], state: State = State.WRITTEN, *, changed: bool = True) -> None:
        done = result.model_copy(update={"step": step, "state": state, "details": details, "changed": changed})
        monkeypatch.setattr(f"fencepost.steps.{step}.{step}_without_spark", lambda *_, **__: done)
        monkeypatch.setattr("fencepost.airflow.spark_operator.announce", lambda *_: False)
        context: Any = context_of()
        context["ti"].returned = {"write": {"changed": True}, "plan": {"state": "planned"}}
        build_dag(pipeline).get_task(step).execute(context)

    return of


def test_a_write_tells_what_it_read_wrote_and_quarantined_by_the_pipelines_name(statsd: UdpReceiver, run: Runs) -> None:
    run("write", WROTE)
    *counted, seconds = statsd.lines(4)
    (seconds, *counted) = sorted([*counted, seconds], key=lambda line: "seconds" not in line)
    assert sorted(counted) == [
        "airflow.fencepost.counted.rows_quarantined:2|c",
        "airflow.fencepost.counted.rows_read:9|c",
        "airflow.fencepost.counted.rows_written:7|c",
    ]
    name, _, value = seconds.partition(":")
    assert name == "airflow.fencepost.counted.step_seconds.write"
    assert 0 <= float(value.removesuffix("|g")) < 60


def test_a_retry_that_did_not_count_its_source_again_says_nothing_of_it(statsd: UdpReceiver, run: Runs) -> None:
    run("write", WROTE | {"rows_in": None})
    assert not [line for line in statsd.lines(4, 1) if "rows_read" in line]


def test_a_verdict_is_counted_by_its_outcome_also_where_the_job_of_write_gave_it(
    statsd: UdpReceiver, run: Runs
) -> None:
    run("validate", {"verdict": "passed", "quarantined": {"malformed": 3}, "validation": 1, "rows": 7}, changed=False)
    assert statsd.lines(3) == [
        "airflow.fencepost.counted.verdicts.passed:1|c",
        "airflow.fencepost.counted.verdict_passed:1|g",
        "airflow.fencepost.counted.batch_quarantined:3|g",
    ]


def test_a_verdict_that_stops_the_batch_is_counted_too(
    statsd: UdpReceiver, pipeline: Pipeline, context_of: ContextOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = rejected()

    def step(*_: Any, **__: Any) -> StepResult:
        raise BatchRejected("batch: no.")

    monkeypatch.setattr("fencepost.steps.validate.validate_without_spark", step)
    monkeypatch.setattr("fencepost.ledger.ledger.Ledger.__init__", lambda self, pipeline: None)
    monkeypatch.setattr("fencepost.ledger.ledger.Ledger.read", lambda self: View.of((batch,)))
    context = context_of() | {"data_interval_start": batch.interval.start, "data_interval_end": batch.interval.end}
    with pytest.raises(AirflowFailException):
        build_dag(pipeline).get_task("validate").execute(context)
    assert statsd.lines(4)[:3] == [
        "airflow.fencepost.counted.verdicts.rejected:1|c",
        "airflow.fencepost.counted.verdict_passed:0|g",
        "airflow.fencepost.counted.batch_quarantined:0|g",
    ]


def test_what_a_table_refused_is_no_verdict_that_passed() -> None:
    from fencepost.model import Outcome
    from fencepost.outputs.postgres.values import PostgresPublication

    verdict = rejected().verdict
    assert verdict is not None
    tried = PostgresPublication(table="t", ledger="", lease=3, begun_at=verdict.judged_at, refused="no")
    passed = verdict.model_copy(update={"outcome": Outcome.PASSED})
    batch = rejected().model_copy(update={"verdict": passed, "publication": tried})
    figures = {figure.name: figure.value for figure in metrics.of_verdict(batch, "advance", 1.0)}
    assert figures == {"verdicts": 1, "verdict_passed": 0, "batch_quarantined": 0, "step_seconds": 1.0}


def rejected() -> Batch:
    from fencepost.model import Outcome

    verdict = a_verdict(Outcome.REJECTED, judged_at=datetime(2013, 1, 2, tzinfo=UTC))
    return made().model_copy(update={"pipeline": "counted", "state": State.REJECTED, "verdict": verdict})


def test_an_advance_tells_where_the_frontier_is_and_how_far_behind(
    statsd: UdpReceiver, run: Runs, ends: Callable[[Ends], None]
) -> None:
    run("advance", ADVANCED, State.PUBLISHED)
    assert statsd.lines(3)[1:] == [
        f"airflow.fencepost.counted.frontier_timestamp_seconds:{datetime(2013, 3, 2, 5, tzinfo=UTC).timestamp()}|g",
        "airflow.fencepost.counted.lag_records:9|g",
    ]
    ends(None)
    run("advance", ADVANCED, State.PUBLISHED)
    assert not [line for line in statsd.lines(3, 1) if "lag_records" in line], "not known, so not told"


def test_a_write_that_found_its_work_done_tells_nothing(statsd: UdpReceiver, run: Runs) -> None:
    run("write", WROTE, State.PUBLISHED, changed=False)
    assert statsd.lines(1, 0.5) == []


@pytest.mark.parametrize("state", [State.PUBLISHED, State.SKIPPED])
def test_an_advance_that_found_a_persons_decision_tells_where_the_pipeline_stands_since(
    statsd: UdpReceiver, run: Runs, ends: Callable[[Ends], None], state: State
) -> None:
    run("advance", ADVANCED | {"verdict_final": True}, state, changed=False)
    assert statsd.lines(3) == [
        f"airflow.fencepost.counted.frontier_timestamp_seconds:{datetime(2013, 3, 2, 5, tzinfo=UTC).timestamp()}|g",
        "airflow.fencepost.counted.verdict_passed:1|g",
        "airflow.fencepost.counted.lag_records:9|g",
    ]
    run("advance", ADVANCED | {"verdict_final": False}, state, changed=False)
    assert "airflow.fencepost.counted.verdict_passed:0|g" in statsd.lines(3), "another batch is rejected since"


REGIONS = """
sources:
  north: {topic: in.north, format: bytes}
  south: {topic: in-south, format: bytes}
output: {topic: out, format: bytes}
schedule: {start: 2013-03-01}
kafka: {bootstrap.servers: "127.0.0.1:1"}
"""


@pytest.mark.parametrize(
    ("found", "frontier", "told"),
    [
        # Both topics have partitions 0 and 1. The second has a new one, which counts from offset 0.
        (
            {"in.north": [9, 4], "in-south": [7, 7, 3]},
            {"in.north": {"0": 5, "1": 2}, "in-south": {"0": 7, "1": 1}},
            {"lag_records": 15, "topic_lag_records.in_north": 6, "topic_lag_records.in-south": 9},
        ),
        # No batch has read the second yet: it was added.
        (
            {"in.north": [9, 4], "in-south": [7, 7, 3]},
            {"in.north": {"0": 5, "1": 2}},
            {"lag_records": 6, "topic_lag_records.in_north": 6},
        ),
        # The second does not exist, and one that left is not asked about.
        (
            {"in.north": [9, 4]},
            {"in.north": {"0": 5, "1": 2}, "in-south": {"0": 1}, "gone": {"0": 8}},
            {"topic_lag_records.in_north": 6},
        ),
        # Kafka does not answer about the second.
        (
            {"in.north": [9, 4], "in-south": None},
            {"in.north": {"0": 5, "1": 2}, "in-south": {"0": 1}},
            {"topic_lag_records.in_north": 6},
        ),
    ],
    ids=["both", "added", "missing", "no answer"],
)
def test_an_advance_tells_how_far_behind_each_source_is_and_in_total_if_all_are_known(
    make_pipeline: Callable[..., Pipeline],
    ends: Callable[[Ends], None],
    result: StepResult,
    found: Ends,
    frontier: dict[str, dict[str, int]],
    told: dict[str, int],
) -> None:
    pipeline = make_pipeline("regions", REGIONS)
    ends(found)
    details: dict[str, Any] = {"frontier": frontier}
    done = result.model_copy(update={"step": "advance", "details": details, "changed": False})
    sent: list[tuple[str, float]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metrics, "has_tags", lambda: False)
        patch.setattr(
            metrics, "stats", SimpleNamespace(gauge=lambda name, value, tags: sent.append((name, value)), incr=None)
        )
        metrics.emit("regions", metrics.of_step(pipeline, done, 1.0, judged=False))
    assert dict(sent) == {f"fencepost.regions.{name}": value for name, value in told.items()}


@pytest.mark.parametrize("kind", ["INFLUXDB", "DATADOG"])
def test_where_there_are_tags_the_pipeline_is_one(
    monkeypatch: pytest.MonkeyPatch, kind: str, pipeline: Pipeline
) -> None:
    told: list[tuple[str, dict[str, str]]] = []
    monkeypatch.setenv("AIRFLOW__METRICS__STATSD_ON", "True")
    monkeypatch.setenv(f"AIRFLOW__METRICS__STATSD_{kind}_ENABLED", "True")
    monkeypatch.setattr(metrics, "stats", SimpleNamespace(incr=lambda name, value, tags: told.append((name, tags))))
    metrics.emit("counted", iter([metrics.Metric("counter", "verdicts", 1, {"outcome": "passed"})]))
    assert told == [("fencepost.verdicts", {"pipeline": "counted", "outcome": "passed"})]


def test_without_metrics_nobody_asks_kafka(monkeypatch: pytest.MonkeyPatch, run: Runs, pipeline: Pipeline) -> None:
    monkeypatch.delenv("AIRFLOW__METRICS__STATSD_ON", raising=False)
    monkeypatch.setattr("fencepost.kafka.cluster.Cluster", None)
    run("advance", ADVANCED, State.PUBLISHED)


def test_a_receiver_of_packets_that_is_away_costs_nothing(
    statsd: UdpReceiver, run: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    sends_to(monkeypatch, any_free_port())
    began = time.monotonic()
    run("write", WROTE)
    assert time.monotonic() - began < 5


# As Airflow's task runner does: the first metric makes the exporter, and the end of the process sends what is left.
IN_A_TASK = """
import sys, time
from airflow.sdk.observability import stats
from airflow.sdk.observability.metrics import stats_utils
from fencepost.airflow import metrics

stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=True)
stats.incr("ti.start", tags={"dag_id": "counted", "task_id": "write"})
began = time.monotonic()
figures = [metrics.Metric("counter", "rows_written", 7), metrics.Metric("gauge", "lag_records", 9),
           metrics.Metric("counter", "verdicts", 1, {"outcome": "passed"})]
metrics.emit("counted", iter(figures))
print("told", time.monotonic() - began, time.time(), flush=True)
"""


def in_a_task(url: str) -> tuple[float, float]:
    """Seconds that telling took, and that the process then needed to end."""
    environment = {
        **os.environ,
        "AIRFLOW__METRICS__OTEL_ON": "True",
        "OTEL_EXPORTER_OTLP_ENDPOINT": url,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "3",  # seconds, as the documents advise
        "no_proxy": "127.0.0.1",
    }
    done = subprocess.run(
        [sys.executable, "-c", IN_A_TASK], env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    ended = time.time()
    (words,) = re.findall(r"^told (\S+) (\S+)$", done.stdout, re.MULTILINE)
    telling, at = map(float, words)
    return telling, ended - at


def test_otlp_gets_the_figures_with_the_pipeline_as_an_attribute() -> None:
    with http_receiver() as receiver:
        in_a_task(receiver.url)
    assert set(receiver.paths) == {"/v1/metrics"}
    found: dict[str, tuple[Any, dict[str, str]]] = {}
    for body in receiver.bodies:
        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    points = metric.sum.data_points or metric.gauge.data_points
                    for point in points:
                        value = point.as_int if point.HasField("as_int") else point.as_double
                        tags = {pair.key: pair.value.string_value for pair in point.attributes}
                        found[metric.name] = (value, tags)
    of_pipeline = {"pipeline": "counted"}
    assert found["airflow.fencepost.rows_written"] == (7, of_pipeline)
    assert found["airflow.fencepost.lag_records"] == (9, of_pipeline)
    assert found["airflow.fencepost.verdicts"] == (1, of_pipeline | {"outcome": "passed"})


@pytest.mark.deep
@pytest.mark.parametrize("hangs", [False, True])
def test_where_otlp_is_away_or_hangs_a_task_ends_and_is_not_kept_waiting(hangs: bool) -> None:
    """Beside a task whose receiver answers, since a process ends slowly on a machine that does much else."""
    with http_receiver() as receiver:
        _, answered = in_a_task(receiver.url)
        receiver.hangs = True
        telling, ending = in_a_task(receiver.url if hangs else f"http://127.0.0.1:{any_free_port()}")
    assert telling < 1
    assert ending < answered + 10


def test_the_page_has_a_row_and_a_rule_for_each_metric() -> None:
    page = (ROOT / "docs" / "metrics-and-lineage.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \|.*\| `([^`]+)` \|$", page, re.MULTILINE))
    told = re.findall(r'Metric\("\w+", "(\w+)"', Path(metrics.__file__).read_text())
    assert set(rows) == set(told)
    assert all(re.search(rf"\b{name}\b", rule) for name, rule in rows.items())
