"""Faults composed at random over several days. `make soak RUNS=n SEED=s` plays seeds s to s + n - 1; a failure names its own.

`make test-all` plays the first one. With SOAK_LOG set, a line of JSON for every seed is appended to that file. With CLUSTER set
(`make soak CLUSTER=1`) the brokers ask for a login and enforce ACLs, and Spark is a cluster of two workers, which die too.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from conftest import KEEPS_RECORDS, RULES, end_jvm
from fencepost.config.pipeline import Pipeline
from fencepost.spark.session import build_session
from kafka_tools import create_topic
from rigs.kafka_cluster import KafkaCluster, kafka_cluster
from rigs.spark_cluster import SparkCluster, spark_cluster

from .play import play
from .scene import Scene

pytestmark = pytest.mark.deep

MENDED = RULES.replace("min_value: 0", "min_value: -1000000")

CLUSTER = bool(os.environ.get("CLUSTER"))
FIRST, RUNS = int(os.environ.get("SEED", "1")), int(os.environ.get("RUNS", "1"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    folder, properties = tmp_path_factory.mktemp("cluster"), {"log.segment.bytes": str(8 * 1024 * 1024)}
    with kafka_cluster(folder, properties, secured=CLUSTER) as running:
        yield running


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster | None]:
    if not CLUSTER:
        yield None
        return
    with spark_cluster(tmp_path_factory.mktemp("spark")) as running:
        yield running


@pytest.fixture(scope="module")
def session(request: pytest.FixtureRequest, workers: SparkCluster | None) -> Iterator[Callable[[Pipeline], Any]]:
    """Gives the Spark session: that of all tests, or one on the cluster."""
    if workers is None:
        yield lambda pipeline: request.getfixturevalue("spark")
        return
    yield lambda pipeline: build_session(pipeline, "soak")
    if active := SparkSession.getActiveSession():
        active.stop()
        end_jvm()


@pytest.mark.parametrize("seed", range(FIRST, FIRST + RUNS))
def test_faults_composed_at_random_lose_nothing_and_double_nothing(
    session: Callable[[Pipeline], Any],
    cluster: KafkaCluster,
    workers: SparkCluster | None,
    make_pipeline: Callable[..., Pipeline],
    tmp_path: Path,
    seed: int,
) -> None:
    chance = random.Random(f"pipeline of {seed}")
    output: dict[str, Any] = chance.choice(
        [
            {"publish": "direct"},
            {"publish": "staged"},
            {"publish": "staged", "batch_header": False},
            {"publish": "staged", "atomic_megabytes": 0},
        ]
    )
    quarantines = chance.random() < 0.5
    settings: dict[str, Any] = dict(
        **({"transform": KEEPS_RECORDS, "expectations": RULES} if quarantines else {}),
        name=f"seed{seed}",
        source={"on_malformed": "quarantine" if quarantines else "fail"},
        output=output,
        kafka=cluster.scram(f"seed{seed}"),
        quality={"open_transaction_wait_seconds": 60, "quarantine_limit": "none"},
    )
    pipeline = make_pipeline(**settings)
    if CLUSTER:
        cluster.let_in(pipeline)
    create_topic(cluster.direct, pipeline.source.topic, 2, replicas=[[2, 3, 1], [3, 2, 1]])
    create_topic(cluster.direct, pipeline.output.topic, 3, replicas=[[2, 1, 3], [3, 1, 2], [1, 2, 3]])
    (tmp_path / "strikes").mkdir()
    scene = Scene(
        cluster,
        pipeline,
        lambda: make_pipeline(**settings | {"expectations": MENDED}),
        session(pipeline),
        tmp_path / "strikes",
        workers,
    )
    scene.tell(f"{output}{', quarantines' if quarantines else ''}")
    outcome = None
    try:
        outcome = play(scene, seed)
        assert outcome.differences == []
    finally:
        print(f"seed {seed}:\n" + "\n".join(scene.told))  # noqa: T201
        if outcome is not None and "SOAK_LOG" in os.environ:
            with Path(os.environ["SOAK_LOG"]).open("a") as log:
                log.write(json.dumps({**vars(outcome), "story": scene.told}) + "\n")
