"""A plan refuses a Kafka cluster that is not the one of the last publication, before it makes anything there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from conftest import at, day
from fencepost.config.pipeline import Pipeline
from fencepost.errors import AnotherCluster
from fencepost.kafka.client_settings import client_settings
from fencepost.kafka.cluster import Cluster
from fencepost.ledger.ledger import Ledger
from fencepost.model import State
from fencepost.steps.advance import skip_batch
from fencepost.steps.plan import plan_batch
from kafka_tools import create_topic, produce
from makers import a_decision
from steps import latest, run

Make = Callable[..., Pipeline]


def with_days(make_pipeline: Make) -> Pipeline:
    pipeline = make_pipeline()
    bootstrap = pipeline.kafka["bootstrap.servers"].get_secret_value()
    create_topic(bootstrap, pipeline.source.topic, 1)
    produce(bootstrap, pipeline.source.topic, [(b"k", {"n": n, "name": "x"}, 0, at(n)) for n in (1, 2, 3)])
    return pipeline


def test_a_cluster_that_the_pipeline_came_to_by_mistake_stays_as_it_is(make_pipeline: Make) -> None:
    """Its ledger is empty, so somebody else has to know the last publication: Airflow, by the asset's event."""
    pipeline = with_days(make_pipeline)
    cluster = Cluster(client_settings(pipeline))
    with pytest.raises(AnotherCluster, match=rf"this is Kafka cluster {cluster.id}, .* on cluster elsewhere\. Nothing"):
        plan_batch(pipeline, day(1), known_cluster="elsewhere")
    assert cluster.find(pipeline.ledger_topic) is None
    assert cluster.find(pipeline.output.name) is None
    assert plan_batch(pipeline, day(1), known_cluster=cluster.id).state is State.PLANNED
    assert latest(pipeline, day(1)).plan.cluster_id == cluster.id


def test_a_pipeline_that_has_moved_to_another_cluster_is_told(make_pipeline: Make) -> None:
    pipeline = with_days(make_pipeline)
    assert plan_batch(pipeline, day(1), known_cluster="elsewhere", another_cluster=True).state is State.PLANNED


@pytest.mark.deep
def test_a_copied_ledger_tells_by_itself_until_somebody_says_that_the_pipeline_moved(
    spark: Any, make_pipeline: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a mirrored cluster has it: the same topics and records, and another id."""
    pipeline = with_days(make_pipeline)
    run(spark, pipeline, day(1))
    monkeypatch.setattr(Cluster, "id", "mirror")
    before = Ledger(pipeline).read().all()
    with pytest.raises(AnotherCluster, match="this is Kafka cluster mirror"):
        plan_batch(pipeline, day(2))
    assert Ledger(pipeline).read().all() == before
    assert not plan_batch(pipeline, day(1)).changed, "what is published needs no plan"
    plan_batch(pipeline, day(2), another_cluster=True)
    skip_batch(pipeline, day(2), a_decision("skip"))
    assert plan_batch(pipeline, day(2), reprocess=True).revision == 2, "it was said of this interval before"
    run(spark, pipeline, day(2))
    assert plan_batch(pipeline, day(3)).state is State.PLANNED


@pytest.mark.deep
def test_a_request_that_says_that_the_pipeline_moved_means_the_cluster_that_it_planned_on(
    spark: Any, make_pipeline: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run keeps its parameters. It is cleared while its connection leads to a third cluster, with a copy of all topics."""
    pipeline = with_days(make_pipeline)
    run(spark, pipeline, day(1))
    monkeypatch.setattr(Cluster, "id", "new")
    plan_batch(pipeline, day(2), another_cluster=True, request="backfill 7")
    assert latest(pipeline, day(2)).requests == ("backfill 7",)
    skip_batch(pipeline, day(2), a_decision("skip"))
    assert not plan_batch(pipeline, day(2), another_cluster=True, request="backfill 7").changed
    monkeypatch.setattr(Cluster, "id", "third")
    with pytest.raises(AnotherCluster, match="this is Kafka cluster third"):
        plan_batch(pipeline, day(3), another_cluster=True, request="backfill 7")
    assert plan_batch(pipeline, day(3), another_cluster=True, request="backfill 8").state is State.PLANNED
