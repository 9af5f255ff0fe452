"""The four steps one after another, for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from arming import at_failpoint
from fencepost.config.pipeline import Pipeline
from fencepost.errors import WriterFenced
from fencepost.ledger.ledger import Ledger
from fencepost.model import Batch, Interval, Layout, StepResult
from fencepost.rows.path import RowPath
from fencepost.steps.advance import advance_batch
from fencepost.steps.plan import plan_batch
from fencepost.steps.replay import plan_replay
from fencepost.steps.run_interval import run_interval, run_step
from fencepost.steps.write import write_batch
from kafka_tools import read_all


def plan_and_write(spark: Any, pipeline: Pipeline, interval: Interval, *, reprocess: bool = False) -> StepResult:
    """Up to `written`."""
    plan_batch(pipeline, interval, reprocess=reprocess)
    return run_step("write", pipeline, interval, lambda: spark)


def run(spark: Any, pipeline: Pipeline, interval: Interval, *, reprocess: bool = False) -> StepResult:
    """All four, as the command line runs them."""
    planned = plan_batch(pipeline, interval, reprocess=reprocess)
    return [*run_interval(pipeline, interval, lambda: spark, planned=planned)][-1]


def replay(spark: Any, pipeline: Pipeline, interval: Interval) -> StepResult:
    """All four steps of an addition, as the command line runs them; the plan's result where nothing is left to replay."""
    planned = plan_replay(pipeline, interval)
    return [*run_interval(pipeline, interval, lambda: spark, planned=planned)][-1]


def latest(pipeline: Pipeline, interval: Interval) -> Batch:
    """The interval's newest revision in the ledger."""
    batch = Ledger(pipeline).read().last(interval)
    assert batch is not None
    return batch


def records_of(result: Any, pipeline: Pipeline) -> Any:
    """A frame with the records that a write makes of a transform's result, without rules."""
    path = RowPath(pipeline)
    return path.route(path.flag(result), Layout.SOURCE)


def announced(pipeline: Pipeline, interval: Interval, bootstrap: str = "") -> dict[str, Any]:
    """What was announced of the interval last: the `extra` of its asset event. `bootstrap`: another listener."""
    records = read_all(bootstrap or kafka_of(pipeline)["bootstrap.servers"], pipeline.announcements_topic)
    told: dict[str, Any] = next(r.json for r in reversed(records) if f"/{interval}/" in r.json["batch"])
    return told


def kafka_of(pipeline: Pipeline) -> dict[str, str]:
    """The settings of a reader who logs in as the pipeline does."""
    return {name: value.get_secret_value() for name, value in pipeline.kafka.items()}


class Died(BaseException):
    """The driver's end: nothing of the product handles it."""


def die() -> None:
    raise Died


def copied_and_not_recorded(spark: Any, pipeline: Pipeline, interval: Interval) -> None:
    """Advance copies all of the batch, and dies before the ledger says so."""
    with at_failpoint("advance.copied", die), pytest.raises(Died):
        advance_batch(pipeline, interval, spark=lambda: spark)


def answered_and_not_recorded(spark: Any, pipeline: Pipeline, interval: Interval) -> None:
    """A batch is planned, all its writers commit and answer, and the driver dies before the ledger says so."""
    plan_batch(pipeline, interval)
    with at_failpoint("write.answered", die), pytest.raises(Died):
        write_batch(spark, pipeline, interval)


def unheard_commits(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Have the ledger's next commit taken, and answered with "fenced"; what it sent. Emptied, it is the next one again."""
    commit, unheard = Ledger._commit, list[Any]()

    def taken_and_not_heard(self: Ledger, *sent: Any) -> None:
        commit(self, *sent)
        if not unheard:
            unheard.append(sent)
            raise WriterFenced("a newer producer took over")

    monkeypatch.setattr(Ledger, "_commit", taken_and_not_heard)
    return unheard


def on_session(monkeypatch: pytest.MonkeyPatch, spark: Any, pipeline: Pipeline) -> None:
    """Have commands about the pipeline run on this session, where they would start one."""

    @contextmanager
    def session(pipeline: Pipeline, records: int | None = None) -> Iterator[Callable[[], Any]]:
        yield lambda: spark

    monkeypatch.setenv("FENCEPOST_PIPELINES", str(pipeline.folder.parent))
    monkeypatch.setattr("fencepost.cli.steps.spark_session", session)
