"""A password that changes in Kafka, and then in Airflow's connection: steps, pages and a reader go on. The broker has logins."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.configuration import clear_secrets_backends_cache
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from conftest import at, day
from dag.conftest import FakeTaskInstance, context_in
from fencepost import read_validated
from fencepost.airflow import AdvanceOperator, FencepostSparkOperator, PlanOperator
from fencepost.airflow.connections import ServerConnections
from fencepost.config.pipeline import Pipeline
from fencepost.errors import AccessDenied, LoginRefused
from fencepost.model import State
from fencepost.pages.ledgers import Ledgers
from fencepost.pages.logins import Logins
from kafka_tools import create_topic, produce, read_all
from rigs.kafka_cluster import KafkaCluster, secured_broker
from vault import use_vault

pytestmark = [pytest.mark.deep, pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")]  # the provider's

LEAK = "hunter2"  # each password has it
ROTATED = "hunter2-rotated"


@pytest.fixture
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with secured_broker(tmp_path_factory.mktemp("broker")) as broker:
        broker.set_password("etl")
        broker.grant_all("etl")
        yield broker


@pytest.fixture
def vault(tmp_path: Path, secured: KafkaCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file of a secrets backend."""
    monkeypatch.setattr(
        "fencepost.airflow.operators.last_cluster", lambda _: None
    )  # of an asset event: no Airflow runs here
    monkeypatch.setattr("fencepost.airflow.spark_operator.announce", lambda *_: False)
    yield use_vault(monkeypatch, tmp_path / "vault.json", connections(secured.scram("etl")))
    clear_secrets_backends_cache()
    gc.collect()  # what the provider leaves open warns now, and not in another test


def connections(login: dict[str, Any]) -> dict[str, Any]:
    return {
        "kafka_prod": {"conn_type": "kafka", "extra": login},
        "spark_default": {"conn_type": "spark", "host": "local[1]"},
    }


def test_an_attempt_fails_and_the_next_one_takes_the_new_password(
    spark: Any,
    secured: KafkaCluster,
    vault: Path,
    make_pipeline: Callable[..., Pipeline],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pipeline = make_pipeline(kafka={"connection": "kafka_prod"})
    create_topic(secured.direct, pipeline.source.topic, 1)
    produce(secured.direct, pipeline.source.topic, [(b"k", {"n": n, "name": "x"}, 0, at(1) + n) for n in range(3)])
    plan = PlanOperator(task_id="plan", pipeline=pipeline)
    write = FencepostSparkOperator(task_id="write", step="write", pipeline=pipeline)
    advance = AdvanceOperator(task_id="advance", pipeline=pipeline)
    pages = Ledgers()
    pages.logins = Logins(ServerConnections())
    planned = plan.poke(context_in(day(1))).xcom_value  # type: ignore[union-attr]
    monkeypatch.setitem(FakeTaskInstance.returned, "plan", planned)

    secured.set_password("etl", ROTATED)
    for step in (write, advance):
        with pytest.raises(
            AirflowException, match=r"LoginRefused: .*kafka_prod; the next attempt looks it up"
        ) as raised:
            step.execute(context_in(day(1)))
        assert not isinstance(raised.value, AirflowFailException), "Airflow would not try it again"
        assert LEAK not in str(raised.value)
    with pytest.raises(LoginRefused):
        pages.snapshot(pipeline)

    vault.write_text(json.dumps(connections(secured.scram("etl", ROTATED))))
    written = write.execute(context_in(day(1)))
    assert written["state"] == State.WRITTEN
    monkeypatch.setitem(FakeTaskInstance.returned, "write", written)
    assert advance.execute(context_in(day(1)))["state"] == State.PUBLISHED
    assert [b.state for row in pages.snapshot(pipeline).rows for b in row.revisions.all] == [State.PUBLISHED]
    (told,) = read_all(secured.direct, pipeline.announcements_topic)
    rows = read_validated(spark, told.json, kafka={"connection": "kafka_prod"})
    assert sorted(row["n"] for row in rows.collect()) == [0, 1, 2]
    vault.write_text(json.dumps(connections(secured.scram("etl", "hunter2-wrong"))))
    with pytest.raises(AccessDenied, match="Authentication failed") as refused:
        read_validated(spark, told.json, kafka={"connection": "kafka_prod"})
    assert LEAK not in str(refused.value)
