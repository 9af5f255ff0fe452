"""`examples/readers/woken_by_kafka.py` in a real Airflow that does not know the pipeline, whose Kafka is another one."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from conftest import at
from conftest import day as interval_of
from fencepost.config.pipeline import Pipeline
from fencepost.ledger.deployment import Deployment
from fencepost.model import State
from fencepost_stack.airflow_api import ENDED, await_value
from fencepost_stack.broker import Broker
from kafka_tools import create_topic, produce, read_all
from steps import run

from .conftest import ROOT, Running
from .test_bundle import commit

pytestmark = [pytest.mark.deep, pytest.mark.stack]

EXAMPLES = ROOT / "examples" / "readers"
GROUP = "reports"


def example(pipeline: str, database: Path) -> str:
    """The DAG's file with a reader's own values; its hour does not come while the test runs."""
    text = (EXAMPLES / "woken_by_kafka.py").read_text()
    own = {"PIPELINE": pipeline, "DATABASE": str(database), "AT_THE_LATEST": "0 0 1 1 *"}
    for name, value in own.items():
        (line,) = (line for line in text.splitlines() if line.startswith(f"{name} = "))
        text = text.replace(line, f"{name} = {json.dumps(value)}")
    return text


def rows(database: Path) -> Counter[int]:
    with closing(sqlite3.connect(database)) as opened:
        if not opened.execute("SELECT 1 FROM sqlite_master WHERE name = 'rows'").fetchone():
            return Counter()
        return Counter(n for (n,) in opened.execute("SELECT n FROM rows"))


def in_force(pipeline: Pipeline) -> Counter[int]:
    """What the ledger has in force, by plain reading."""
    deployment = Deployment.of(pipeline)
    batches = {str(b.id) for b in deployment.ledger.read().all() if b.state is State.PUBLISHED}
    return Counter(
        r.json["n"] for r in read_all(deployment.cluster.settings.bootstrap, pipeline.output.name) if r.batch in batches
    )


def commit_as_a_trigger_that_died(broker: Broker, topic: str) -> int:
    """The group is at the topic's end, and nobody was told. Returns the end."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": GROUP})
    with closing(consumer):
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
        consumer.commit(offsets=[TopicPartition(topic, 0, end)], asynchronous=False)
    return int(end)


def test_a_dag_in_another_airflow_wakes_on_what_a_command_published_and_loses_and_doubles_nothing(
    running: Running, spark: Any, broker: Broker, make_pipeline: Callable[..., Pipeline], tmp_path: Path
) -> None:
    """No task of the pipeline's runs in that Airflow, and no asset event of the pipeline's comes to it."""
    made, database = make_pipeline(name="woken", output={"partitions": 1}), tmp_path / "batches.sqlite"
    create_topic(broker.bootstrap, made.source.topic, 1)
    for number in (1, 2, 3, 4):
        produce(broker.bootstrap, made.source.topic, [(b"k", {"n": number, "name": "x"}, 0, at(number))])
    for number in (1, 2):
        run(spark, made, interval_of(number))
    lost = commit_as_a_trigger_that_died(broker, made.announcements_topic)

    extra = {"bootstrap.servers": broker.bootstrap, "group.id": GROUP, "auto.offset.reset": "earliest"}
    body = {"connection_id": "kafka_reader", "conn_type": "kafka", "extra": json.dumps(extra)}
    running.api.call("POST", "/connections", body)
    files = {
        "woken_by_kafka_py": example(made.name, database),
        "published_batches_py": (EXAMPLES / "published_batches.py").read_text(),
    }
    commit(running.repository, "a reader", **files)
    dag = f"copy_{made.name}"
    running.api.await_dag(dag)
    running.api.unpause(dag)

    def copied() -> list[dict[str, Any]] | None:
        """The runs, once all have ended and the reader has what counts."""
        runs = running.api.dag_runs(dag)
        at_rest = runs and all(one["state"] in ENDED for one in runs)
        return runs if at_rest and rows(database) == in_force(made) else None

    def events() -> list[Any]:
        told = running.api.call("GET", "/assets/events", limit=100, order_by="-timestamp")["asset_events"]
        return [event["extra"] for event in told if event["name"] == f"announced-{made.name}"]

    run(spark, made, interval_of(3))
    (first,) = await_value(copied, "the batches of three days", 240)
    assert (first["state"], first["run_type"]) == ("success", "asset_triggered")
    assert rows(database) == Counter((1, 2, 3))
    assert running.api.xcom(dag, first["dag_run_id"], "copy") == 3, "the two whose events were lost, too"
    told = [(r.offset, r.json) for r in read_all(broker.bootstrap, made.announcements_topic)]
    (event,) = events()
    assert event["from_trigger"] is True
    assert [json.loads(event["payload"])] == [one for offset, one in told if offset >= lost]

    again = running.api.call("POST", f"/dags/{dag}/dagRuns", {"logical_date": None})
    assert running.api.await_run(dag, again["dag_run_id"])["state"] == "success"
    assert running.api.xcom(dag, again["dag_run_id"], "copy") == 0, "woken twice, it reads nothing twice"
    assert rows(database) == Counter((1, 2, 3))

    run(spark, made, interval_of(1), reprocess=True)
    run(spark, made, interval_of(4))
    await_value(copied, "a new revision and a new day", 240)
    assert rows(database) == Counter((1, 2, 3, 4))
    with closing(sqlite3.connect(database)) as opened:
        assert opened.execute("SELECT n, _revision FROM rows ORDER BY n").fetchall() == [(1, 2), (2, 1), (3, 1), (4, 1)]
