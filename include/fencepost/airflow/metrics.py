"""Sends a step's figures to Airflow's metrics, from the task's own process. Counters count what the step itself has
changed.

Gauges of `advance` come from the ledger, so they include what a person's decision or a command has changed.

Plain StatsD has no tags, so Airflow sends it none. So with StatsD the name has the pipeline and everything else that
distinguishes the figure. A dot separates the parts of a name, so a topic's dots become underscores, as in Kafka's own
metrics. Other receivers get tags. A receiver that is down does not delay a task, because Airflow sends
packets, or exports from a separate thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from airflow.sdk.configuration import conf
from airflow.sdk.observability import stats

from fencepost.config.pipeline import Pipeline
from fencepost.errors import FencepostError
from fencepost.kafka.client_settings import client_settings
from fencepost.model import Batch, Outcome, PartitionId, StepResult, by_partition
from fencepost.protocol.frontier import offsets_behind, total_of_topic

PREFIX = "fencepost"
ANSWER = 3.0  # seconds to wait for Kafka's answer about the end of a source
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
        values = [value.replace(".", "_") for value in one.tags.values()]
        name = ".".join([PREFIX, one.name] if tagged else [PREFIX, pipeline, one.name, *values])
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
        yield from _lags(pipeline, details["frontier"])


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


def _lags(pipeline: Pipeline, frontier: dict[str, dict[str, int]]) -> Iterator[Metric]:
    """Yields the number of offsets from the frontier to the ends of the sources: in total if all ends are known, and by
    topic if the pipeline has several. `frontier` is by topic and partition.
    """
    ends = _ends(pipeline)
    reached = {(topic, int(p)): end for topic, each in frontier.items() for p, end in each.items()}
    lags = total_of_topic(offsets_behind(reached, ends))
    if lags and {topic for topic, _ in ends} == pipeline.source_topics.keys():
        yield Metric("gauge", "lag_records", sum(lags.values()))
    for topic, lag in lags.items() if len(pipeline.sources) > 1 else ():
        yield Metric("gauge", "topic_lag_records", lag, {"topic": topic})


def _ends(pipeline: Pipeline) -> dict[PartitionId, int]:
    """Returns the ends of the source topics that exist. Topics that Kafka does not answer about in time are left out."""
    from fencepost.kafka.cluster import Cluster  # not imported while DAGs are parsed: it loads confluent-kafka

    found: dict[PartitionId, int] = {}
    with suppress(FencepostError):
        cluster = Cluster(client_settings(pipeline), ANSWER)
        for name in pipeline.source_topics:
            if (topic := cluster.find(name)) is not None:
                found |= by_partition(name, cluster.high_watermarks(topic))
    return found
