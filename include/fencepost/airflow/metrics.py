"""Sends a step's figures to Airflow's metrics, from the task's own process. Counters count what the step itself has
changed.

Gauges of `advance` come from the ledger, so they include what a person's decision or a command has changed.

Plain StatsD has no tags, so Airflow sends it none. So with StatsD the name has the pipeline and everything else that
distinguishes the figure. Other receivers get tags. A receiver that is down does not delay a task, because Airflow sends
packets, or exports from a separate thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from airflow.sdk.configuration import conf
from airflow.sdk.observability import stats

from fencepost.config.pipeline import Pipeline
from fencepost.errors import FencepostError
from fencepost.kafka.client_settings import client_settings
from fencepost.model import Batch, Outcome, StepResult

PREFIX = "fencepost"
ANSWER = 3.0  # seconds to wait for Kafka's answer about the source's end
REFUSED = "refused"  # the outcome of a batch that had passed and that its output refused


@dataclass(frozen=True)
class Metric:
    """One value. The values of a counter are added up. A gauge keeps its value until the next value."""

    kind: Literal["counter", "gauge"]
    name: str
    value: float
    tags: dict[str, str] = field(default_factory=dict)


def is_on() -> bool:
    """Returns whether Airflow sends metrics."""
    return any(conf.getboolean("metrics", name) for name in ("statsd_on", "statsd_datadog_enabled", "otel_on"))


def has_tags() -> bool:
    """Returns whether the receiver of Airflow's metrics takes tags."""
    if conf.getboolean("metrics", "statsd_datadog_enabled"):
        return True
    return not conf.getboolean("metrics", "statsd_on") or conf.getboolean("metrics", "statsd_influxdb_enabled")


def emit(pipeline: str, figures: Iterator[Metric]) -> None:
    tagged = has_tags()
    for one in figures:
        name = ".".join([PREFIX, one.name] if tagged else [PREFIX, pipeline, one.name, *one.tags.values()])
        tags = {"pipeline": pipeline, **one.tags} if tagged else None
        if one.kind == "counter":
            stats.incr(name, int(one.value), tags=tags)
        else:
            stats.gauge(name, one.value, tags=tags)


def of_step(pipeline: Pipeline, result: StepResult, seconds: float, *, judged: bool) -> Iterator[Metric]:
    """Yields the figures of a step that succeeded. If the step found its work done, there are figures only for
    `advance`, about the pipeline's progress.
    """
    details: dict[str, Any] = result.details
    if judged:
        yield from _of_verdict(str(details["verdict"]), _records(details))
    if result.changed:
        yield Metric("gauge", "step_seconds", round(seconds, 3), {"step": result.step})
    if result.changed and result.step == "write":
        if details.get("rows_in") is not None:
            yield Metric("counter", "rows_read", details["rows_in"])
        yield Metric("counter", "rows_written", details["rows"])
        yield Metric("counter", "rows_quarantined", _records(details))
    if result.step == "advance":
        if details.get("frontier_time"):
            moment = datetime.fromisoformat(str(details["frontier_time"]))
            yield Metric("gauge", "frontier_timestamp_seconds", moment.timestamp())
        if details.get("verdict_final") is not None:
            yield Metric("gauge", "verdict_passed", int(details["verdict_final"]))
        lag = _lag(pipeline, details["frontier"].get(pipeline.source.topic, {}))
        if lag is not None:
            yield Metric("gauge", "lag_records", lag)


def of_verdict(batch: Batch, step: str, seconds: float) -> Iterator[Metric]:
    """Yields the figures of a step that stopped the batch. Either the verdict stopped it, or it passed and the output
    refused it.
    """
    if batch.verdict is None:
        return
    quarantined = batch.written.quarantined if batch.written else {}
    outcome = REFUSED if batch.publication is not None and batch.publication.refused else str(batch.verdict.outcome)
    yield from _of_verdict(outcome, sum(quarantined.values()))
    yield Metric("gauge", "step_seconds", round(seconds, 3), {"step": step})


def _of_verdict(outcome: str, quarantined: int) -> Iterator[Metric]:
    yield Metric("counter", "verdicts", 1, {"outcome": outcome})
    yield Metric("gauge", "verdict_passed", int(outcome == Outcome.PASSED))
    yield Metric("gauge", "batch_quarantined", quarantined)


def _records(details: dict[str, Any]) -> int:
    return sum((details.get("quarantined") or {}).values())


def _lag(pipeline: Pipeline, frontier: dict[str, int]) -> int | None:
    """Returns the number of offsets from the source's frontier to its end. Returns None if Kafka does not answer in
    time. `frontier` is by partition.
    """
    from fencepost.kafka.cluster import Cluster  # not imported while DAGs are parsed: it loads confluent-kafka

    try:
        cluster = Cluster(client_settings(pipeline), ANSWER)
        ends = cluster.high_watermarks(cluster.describe(pipeline.source.topic))
    except FencepostError:
        return None
    return sum(max(end - frontier.get(str(partition), 0), 0) for partition, end in enumerate(ends))
