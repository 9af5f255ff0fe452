"""B14: small runs: `fencepost run` of 1,000 rows, and fifty pipelines with such a run each, all at once through Airflow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import psutil
import yaml
from confluent_kafka import Producer

from benchmarks import data
from benchmarks.bench import Bench
from benchmarks.cases import daily_run
from benchmarks.cases.jobs import run_command
from benchmarks.measure import at_most
from benchmarks.results import Result, result
from fencepost.airflow.pools import SPARK_POOL_SLOTS
from fencepost.config.pipeline import Pipeline
from fencepost.model import Interval

PIPELINES = 50
DAY = Interval(start=daily_run.FIRST, end=daily_run.FIRST + timedelta(days=1))


def run(bench: Bench) -> Iterator[Result]:
    """Seconds of the command; and from the start of the first of fifty runs to the end of the last, once."""
    source = "orders-in"
    bench.cluster.ensure_topic(source, daily_run.PARTITIONS)
    producer = Producer({"bootstrap.servers": bench.broker.bootstrap}, logger=data.log)
    for days in (0, 1):  # one day more, so that the day does not end at the end of the topic
        daily_run.fill(producer, DAY.start + timedelta(days=days, hours=12))
    if producer.flush(60):
        raise RuntimeError("the source could not be filled")
    rounds = bench.measure("B14 fencepost run", {"run": partial(command, bench, source)})
    case = f"`fencepost run` of {daily_run.ROWS:,} rows"
    yield result("B14", case, [seconds["run"] for seconds in rounds], "wall time", goal=at_most(9), unit="s")

    pipelines = 4 if bench.quick else PIPELINES
    took, note = at_once([f"orders{number}" for number in range(pipelines)])
    case = f"{pipelines} pipelines with a run of {daily_run.ROWS:,} rows each, at once, {SPARK_POOL_SLOTS} Spark slots"
    yield result("B14", case, [took], "wall time", goal=at_most(480), unit="s", note=note)


@contextmanager
def command(bench: Bench, source: str) -> Iterator[Callable[[], None]]:
    """The command on a new pipeline, as somebody types it."""
    settings: dict[str, Any] = yaml.safe_load(daily_run.SETTINGS)
    pipeline: Pipeline = bench.pipeline(
        source,
        daily_run.TRANSFORM,
        daily_run.EXPECTATIONS,
        source={**settings["source"], "topic": source},
        output={**settings["output"], "publish": "staged"},
        schedule={"start": DAY.start},
    )
    yield lambda: run_command(pipeline, DAY)
    bench.drop_pipeline(pipeline)


def at_once(names: list[str]) -> tuple[float, str]:
    """Seconds from the start of the first run to the end of the last, and the machine's least free memory meanwhile."""
    free: list[int] = []
    with daily_run.running(1, {name: {} for name in names}, DAY.end) as api:
        for name in names:
            api.await_dag(name)
        for name in names:
            api.unpause(name)  # the schedule has this one day
        runs: list[Any] = []
        for name in names:
            runs += api.await_intervals(
                name, [DAY.start], timeout=1800, seen=lambda _: free.append(psutil.virtual_memory().available)
            )
    if failed := [run["dag_run_id"] for run in runs if run["state"] != "success"]:
        raise RuntimeError(f"{len(failed)} of {len(names)} runs failed")
    took = daily_run.seconds(min(run["start_date"] for run in runs), max(run["end_date"] for run in runs))
    return took, f"{min(free) / 1e9:.1f} GB free at least"
