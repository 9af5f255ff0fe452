"""B11: a whole run, staged beside direct: a large batch, a plain read of its output, and a daily run through Airflow."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial

from confluent_kafka import Consumer, TopicPartition

from benchmarks.bench import Bench
from benchmarks.cases import daily_run
from benchmarks.cases.jobs import check_rows, size_words
from benchmarks.data import DAY, Source
from benchmarks.measure import at_least, at_most, ratios
from benchmarks.results import Result, result
from fencepost.config.pipeline import Pipeline
from fencepost.steps.advance import advance_batch
from fencepost.steps.plan import plan_batch
from fencepost.steps.validate import validate_batch
from fencepost.steps.write import write_batch

ROWS, SIZE = 600_000, 1000
DIRECT, STAGED = {"publish": "direct"}, {"publish": "staged"}
# As one transaction too, however large: what `output.atomic_megabytes` chooses between.
ATOMIC = {**STAGED, "atomic_megabytes": 4096}
NAMES = ("direct", "staged")


def run(bench: Bench) -> Iterator[Result]:
    """Time staged by time direct; for the read, throughput."""
    source = bench.source(ROWS, SIZE)
    words = size_words(source, SIZE)
    sides = {"direct": DIRECT, "staged": STAGED, "at once": ATOMIC}
    runs = {name: partial(whole, bench, source, how) for name, how in sides.items()}
    meter = bench.meter(runs)
    rounds = bench.measure(f"B11 {words}", runs, meter=meter)
    bench.spent += meter.spent("B11", f"whole run, {words}", source.rows)
    compares = "time: staged ÷ direct"
    yield result("B11", f"whole run, {words}", ratios(rounds, "staged", "direct"), compares, goal=at_most(1.25))
    case = f"whole run, {words}, published in one transaction"
    yield result("B11", case, ratios(rounds, "at once", "direct"), compares, goal=at_most(1.4))

    outputs = {name: bench.pipeline(source.topic, output=sides[name]) for name in NAMES}
    for pipeline in outputs.values():
        all_steps(bench, pipeline, source.rows)
    readers = {name: partial(read, bench, outputs[name], source) for name in NAMES}
    reads = bench.measure(f"B11 read, {words}", readers, best_of=3)  # a read takes seconds
    for pipeline in outputs.values():
        bench.drop_pipeline(pipeline)
    each, compares = ratios(reads, "direct", "staged"), "throughput: staged ÷ direct"
    yield result("B11", f"plain read of the output, {words}", each, compares, goal=at_least(0.97))

    bench.end_session()
    case = f"a daily run with {daily_run.ROWS:,} rows"
    yield result("B11", case, daily(bench.rounds), "time: staged ÷ direct", goal=at_most(1.05))


@contextmanager
def whole(bench: Bench, source: Source, output: dict[str, str | int]) -> Iterator[Callable[[], None]]:
    """All four steps of a batch."""
    pipeline = bench.pipeline(source.topic, output=output)
    yield lambda: all_steps(bench, pipeline, source.rows)
    bench.drop_pipeline(pipeline)


def all_steps(bench: Bench, pipeline: Pipeline, rows: int) -> None:
    """Plan, write, validate, and publish so many rows."""
    plan_batch(pipeline, DAY)
    write_batch(bench.spark, pipeline, DAY)
    validate_batch(bench.spark, pipeline, DAY)
    published = advance_batch(pipeline, DAY, spark=lambda: bench.spark)
    check_rows(int(str(published.details["rows"])), rows, "advance_batch")


@contextmanager
def read(bench: Bench, pipeline: Pipeline, source: Source) -> Iterator[Callable[[], None]]:
    """A read_committed consumer that takes all of the output, as one that knows nothing of batches does."""
    topic = bench.cluster.describe(pipeline.output.topic)
    ends = bench.cluster.last_stable(topic)

    def job() -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": bench.broker.bootstrap,
                "group.id": "reader",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "fetch.queue.backoff.ms": 5,  # by default it waits a second whenever 100,000 records wait to be taken
            }
        )
        try:
            consumer.assign([TopicPartition(topic.name, p, 0) for p in range(len(ends))])
            found, deadline = 0, time.monotonic() + 300
            while found < source.rows and time.monotonic() < deadline:
                found += sum(message.error() is None for message in consumer.consume(10_000, 1.0))
        finally:
            consumer.close()
        check_rows(found, source.rows, "the read of the output")

    job()  # the kernel may have dropped the log from memory, and a read from disk takes four times as long
    yield job


def daily(rounds: int) -> list[float]:
    """The seconds of a staged DAG run by those of a direct one, of two pipelines that take turns on the same records."""
    found: dict[str, list[float]] = {name: [] for name in NAMES}
    sides = {"direct": DIRECT, "staged": STAGED}
    with daily_run.running(rounds, {name: dict(sides[name]) for name in NAMES}) as api:
        for name in NAMES:
            api.await_dag(name)
            api.unpause(name)
        for number in range(rounds + 1):  # the first is not counted
            day = daily_run.FIRST + timedelta(days=2 * number)
            for name in NAMES if number % 2 else NAMES[::-1]:
                made = api.backfill(name, day, day, max_active_runs=1)
                (ended,) = api.await_intervals(name, [day])
                if ended["state"] != "success":
                    raise RuntimeError(f"a run that failed: {ended['dag_run_id']}")
                api.await_backfill(made["id"])  # Airflow takes up to 30 s to end it, and runs one of a DAG at a time
                took = daily_run.seconds(ended["start_date"], ended["end_date"])
                if number:
                    found[name].append(took)
    return [staged / direct for staged, direct in zip(found["staged"], found["direct"], strict=True)]
