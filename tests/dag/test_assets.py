"""An asset event is emitted for a batch that was published, once, and for nothing else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, AssetAccessControl
from airflow.serialization.serialized_objects import DagSerialization

from fencepost.airflow import AdvanceOperator, build_dag, output_asset
from fencepost.airflow.assets import is_published_since, last_cluster
from fencepost.config.pipeline import Pipeline
from fencepost.model import State, StepResult
from makers import an_announcement

from .conftest import ContextOf

ANNOUNCED = an_announcement().json_value
DETAILS: dict[str, Any] = {"announcement": ANNOUNCED, "published_at": "2013-03-02T06:00:00+00:00"}


class Events:
    """What one run tells Airflow, and what Airflow was told before, by a task or by a command."""

    def __init__(self, announced: tuple[str, ...] = ()) -> None:
        self.added: list[tuple[Any, dict[str, Any]]] = []
        self.announced = [SimpleNamespace(extra={"batch": batch}) for batch in announced]
        self.since = ""

    def add(self, asset: Any, extra: dict[str, Any]) -> None:
        self.added.append((asset, extra))

    def after(self, moment: str) -> Any:
        self.since = moment
        return self.announced


def run(
    monkeypatch: pytest.MonkeyPatch,
    pipeline: Pipeline,
    context: dict[str, Any],
    result: StepResult,
    events: Events,
    plan: str = "planned",
) -> list[dict[str, Any]]:
    monkeypatch.setattr("fencepost.steps.advance.advance_without_spark", lambda *_, **__: result)
    context["ti"].xcom_pull = lambda task_ids: {"state": plan}
    context |= {"outlet_events": defaultdict(lambda: events)}
    asset = output_asset("counted", "out")
    wanted = {"asset_name": asset.name, "asset_uri": asset.uri}
    monkeypatch.setattr(
        "fencepost.airflow.assets.InletEventsAccessor", lambda **asked: {str(wanted): events}[str(asked)]
    )
    AdvanceOperator(task_id="advance", pipeline=pipeline).execute(context)  # type: ignore[arg-type]
    assert all(asset == output_asset("counted", "out") for asset, _ in events.added)
    return [extra for _, extra in events.added]


@pytest.fixture
def published(result: StepResult) -> StepResult:
    return result.model_copy(update={"state": State.PUBLISHED, "details": DETAILS})


def test_publishing_tells_what_the_ledger_has_announced(
    monkeypatch: pytest.MonkeyPatch, pipeline: Pipeline, context_of: ContextOf, published: StepResult
) -> None:
    assert run(monkeypatch, pipeline, context_of(), published, Events()) == [ANNOUNCED]


def test_a_run_that_found_its_interval_published_tells_nothing(
    monkeypatch: pytest.MonkeyPatch, pipeline: Pipeline, context_of: ContextOf, published: StepResult
) -> None:
    unchanged = published.model_copy(update={"changed": False})
    assert run(monkeypatch, pipeline, context_of(), unchanged, Events(), plan="published") == []


def test_an_attempt_that_died_after_its_commit_is_told_of_by_the_next_and_only_once(
    monkeypatch: pytest.MonkeyPatch, pipeline: Pipeline, context_of: ContextOf, published: StepResult
) -> None:
    unchanged = published.model_copy(update={"changed": False})
    events = Events(announced=("counted/another/1",))
    assert len(run(monkeypatch, pipeline, context_of(), unchanged, events)) == 1
    assert events.since == "2013-03-02T05:50:00+00:00"
    assert run(monkeypatch, pipeline, context_of(), unchanged, Events(announced=(published.batch,))) == []


def test_what_is_not_published_is_not_told(
    monkeypatch: pytest.MonkeyPatch, pipeline: Pipeline, context_of: ContextOf, published: StepResult
) -> None:
    for state in set(State) - {State.PUBLISHED}:
        other = published.model_copy(update={"state": state})
        assert run(monkeypatch, pipeline, context_of(), other, Events()) == []


def test_no_task_names_the_asset_itself_as_its_outlet_or_every_green_run_would_emit_an_event(
    pipeline: Pipeline,
) -> None:
    outlets = {type(outlet).__name__ for task in build_dag(pipeline).tasks for outlet in task.outlets}
    assert outlets == {"AssetAlias"}


class Told:
    """What Airflow's accessor gives of an asset's events, the oldest first unless asked otherwise."""

    def __init__(self, extras: list[dict[str, Any]]) -> None:
        self.extras = extras

    def ascending(self, way: bool) -> Told:
        return self if way else Told(self.extras[::-1])

    def limit(self, most: int) -> Told:
        return Told(self.extras[:most])

    def after(self, after: str) -> Told:
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter([SimpleNamespace(extra=extra) for extra in self.extras])


@pytest.mark.parametrize(
    ("clusters", "found"),
    [
        ([], None),
        (["old"], "old"),
        (["old", "new"], "new"),
        ([None], None),
        (["old", "new", None], "new"),
        (["old", "new", *[None] * 3, ""], "new"),
        (["old", "new", *[None] * 150], "new"),
        ([None] * 150, None),
    ],
)
def test_the_newest_event_of_the_output_that_names_a_cluster_does(
    monkeypatch: pytest.MonkeyPatch, pipeline: Pipeline, clusters: list[str | None], found: str | None
) -> None:
    extras = [{**ANNOUNCED, "cluster_id": cluster} if cluster is not None else {} for cluster in clusters]
    monkeypatch.setattr("fencepost.airflow.assets.InletEventsAccessor", lambda **_: Told(extras))
    assert last_cluster(pipeline) == found
    assert is_published_since(pipeline, datetime(2026, 1, 1, tzinfo=UTC)) == (found is not None)


def test_a_reader_of_another_team_names_the_producers_team() -> None:
    asset = output_asset("counted", "out", access_control=AssetAccessControl(producer_teams=["sales"]))
    with DAG("reader", schedule=[asset]) as dag:
        pass
    assert "'producer_teams': ['sales']" in str(DagSerialization.to_dict(dag)["dag"]["timetable"])
    assert output_asset("counted", "out").access_control == AssetAccessControl()
    assert (asset.name, asset.uri) == ("counted: out", "fencepost://counted/out"), "it is the same asset"
