"""Faults composed at random over several days. `make soak RUNS=n SEED=s` plays seeds s to s + n - 1; a failure names its own.

`make test` plays two fixed seeds. With SOAK_LOG set, a line of JSON for every seed is appended to that file.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.config.pipeline import Pipeline
from kafka_cluster import KafkaCluster, kafka_cluster
from kafka_tools import create_topic

from .play import play
from .scene import Scene

RULES = """
expectations:
  - {type: expect_column_values_to_be_between, severity: quarantine, kwargs: {column: n, min_value: 0}}
  - {type: expect_column_values_to_not_be_null, kwargs: {column: n}}
"""
MENDED = RULES.replace("min_value: 0", "min_value: -1000000")
KEEPS_RECORDS = (
    "def transform(frame):\n    return frame.selectExpr('_key', '_record', 'n', 'n * 2 AS doubled', 'name')\n"
)

FIRST, RUNS = int(os.environ.get("SEED", "1")), int(os.environ.get("RUNS", "2"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with kafka_cluster(tmp_path_factory.mktemp("cluster"), {"log.segment.bytes": str(8 * 1024 * 1024)}) as running:
        yield running


@pytest.mark.parametrize("seed", range(FIRST, FIRST + RUNS))
def test_faults_composed_at_random_lose_nothing_and_double_nothing(
    spark: Any, cluster: KafkaCluster, make_pipeline: Callable[..., Pipeline], tmp_path: Path, seed: int
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
        kafka={"bootstrap.servers": cluster.bootstrap},
        quality={"open_transaction_wait_seconds": 60, "quarantine_limit": "none"},
    )
    pipeline = make_pipeline(**settings)
    create_topic(cluster.direct, pipeline.source.topic, 2, replicas=[[2, 3, 1], [3, 2, 1]])
    create_topic(cluster.direct, pipeline.output.topic, 3, replicas=[[2, 1, 3], [3, 1, 2], [1, 2, 3]])
    (tmp_path / "strikes").mkdir()
    scene = Scene(
        cluster, pipeline, lambda: make_pipeline(**settings | {"expectations": MENDED}), spark, tmp_path / "strikes"
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
