"""Sides that several cases have: Fencepost's write job, and the same job with Spark's own sink at its end; new processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame

from benchmarks.bench import BYTES, Bench
from benchmarks.data import DAY, Source
from fencepost.config.pipeline import Pipeline
from fencepost.kafka.clients import PRODUCER_DEFAULTS
from fencepost.model import Interval
from fencepost.rows.source import read_ranges
from fencepost.steps.plan import plan_batch
from fencepost.steps.write import write_batch

SIZES = ((600_000, 1000), (2_000_000, 100))  # records, and bytes of each value
# Each side takes ten seconds and more, so that what a job costs beside its rows does not show.
AT_VOLUME, ORDERS_AT_VOLUME = ((3_000_000, 1000), (10_000_000, 100)), 2_000_000


def size_words(source: Source, size: int) -> str:
    """How a case names what it reads."""
    return f"{source.rows:,} × {'1 KB' if size == 1000 else f'{size} B'}"


@contextmanager
def write_job(
    bench: Bench,
    source: Source,
    transform: str = BYTES,
    sections: Mapping[str, Mapping[str, Any]] | None = None,
    **output: Any,
) -> Iterator[Callable[[], None]]:
    """Fencepost's write step of a batch just planned, all of it: ledger, topics' checks, Spark job, ledger.

    `sections` are those of pipeline.yaml; `output` goes over the section of that name.

    Raises:
        RuntimeError: it wrote another number of rows than there are.
    """
    given = dict(sections or {})
    given["output"] = {**given.get("output", {}), **output}
    pipeline = bench.pipeline(source.topic, transform, **given)
    plan_batch(pipeline, DAY)
    yield lambda: write_all(bench, pipeline, source.rows)
    bench.drop_pipeline(pipeline)


def write_all(bench: Bench, pipeline: Pipeline, rows: int) -> None:
    """`write_batch`, which must write so many rows."""
    check_rows(int(str(write_batch(bench.spark, pipeline, DAY).details["rows"])), rows, "write_batch")


def check_rows(found: int, expected: int, who: str) -> None:
    """A side that did not do the work is no side."""
    if found != expected:
        raise RuntimeError(f"{who} wrote {found:,} rows, not {expected:,}: nothing is compared")


@contextmanager
def sink_job(
    bench: Bench,
    source: Source,
    options: Mapping[str, str],
    arrange: Callable[[DataFrame], DataFrame] = lambda frame: frame,
) -> Iterator[Callable[[], None]]:
    """The same exact read and transform as a Spark user would write them, ending in `df.write.format("kafka")`."""
    topic = bench.new_topic()

    def run() -> None:
        raw = read_ranges(bench.spark, bench.settings, source.ranges, headers=False)
        frame = arrange(raw.where("length(value) > 0")).select("key", "value")
        writer = frame.write.format("kafka").option("kafka.bootstrap.servers", bench.broker.bootstrap)
        writer.options(**options).option("topic", topic).save()

    yield run
    check_rows(bench.offsets_in(topic), source.rows, "Spark's sink")
    bench.drop(topic)


def sink_options() -> dict[str, str]:
    """Fencepost's producer settings as options of Spark's sink."""
    return {f"kafka.{name}": value for name, value in java_producer().items()}


def java_producer() -> dict[str, str]:
    """Fencepost's producer settings in Java's names. Idempotence and acks=all are Java's own defaults."""
    ours = {"compression.type": "none", "batch.size": 16_384, "linger.ms": 0, **PRODUCER_DEFAULTS}
    return {
        "compression.type": str(ours["compression.type"]),
        "batch.size": str(ours["batch.size"]),
        "linger.ms": str(ours["linger.ms"]),
        "buffer.memory": str(128 * 1024 * 1024),
        # A batch may be as large as that, and a request holds one of each partition.
        "max.request.size": str(max(int(ours["batch.size"]) + 100_000, 1_048_576)),
    }


def run_command(pipeline: Pipeline, interval: Interval) -> None:
    """`fencepost run` of an interval, in a process of its own, as somebody types it."""
    at = ["--start", interval.start.isoformat(), "--end", interval.end.isoformat()]
    new_process(pipeline, ["-c", "from fencepost.cli.app import main; main()", "run", pipeline.name, *at])


def new_process(pipeline: Pipeline, arguments: Sequence[str]) -> None:
    """Run Python with these arguments.

    Raises:
        RuntimeError: it failed; the message ends with what it said.
    """
    environment = {**os.environ, "FENCEPOST_PIPELINES": str(pipeline.folder.parent)}
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{pipeline.name} in a new process: exit code {done.returncode}: {done.stderr[-2000:]}")
