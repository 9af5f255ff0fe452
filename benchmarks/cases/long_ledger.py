"""B9: a ledger's age: an empty interval by `fencepost run`, behind 10,000 batches and behind 10."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial

from confluent_kafka import Producer

from benchmarks import data
from benchmarks.bench import PARTITIONS, Bench
from benchmarks.cases.jobs import run_command
from benchmarks.measure import at_most
from benchmarks.results import Result, result
from fencepost.config.pipeline import Pipeline
from fencepost.ledger.codec import record_key
from fencepost.ledger.deployment import Deployment
from fencepost.ledger.ledger import Ledger
from fencepost.model import Batch, Interval
from fencepost.steps.advance import advance_batch
from fencepost.steps.plan import plan_batch
from fencepost.steps.validate import validate_without_spark
from fencepost.steps.write import write_without_spark

FEW, MANY = 10, 10_000  # batches
BEGIN, STEP = datetime(2024, 1, 1, tzinfo=UTC), timedelta(hours=1)  # so long ago that all intervals have ended


def run(bench: Bench) -> Iterator[Result]:
    """Seconds of a run with nothing to do, and how many more they are behind the longer ledger."""
    many = bench.rows(MANY)
    sides = {
        "few": partial(empty_run, bench, Numbered(with_ledger(bench, FEW), FEW)),
        "many": partial(empty_run, bench, Numbered(with_ledger(bench, many), many)),
    }
    rounds = bench.measure(f"B9 ledgers of {FEW} and {many:,} batches", sides)
    yield result("B9", f"an empty interval, ledger of {FEW} batches", [r["few"] for r in rounds], "wall time", unit="s")
    more = [r["many"] - r["few"] for r in rounds]
    compares = f"wall time: {many:,} batches − {FEW} batches"
    yield result("B9", f"a ledger of {many:,} batches", more, compares, goal=at_most(2), unit="s")


class Numbered:
    """A pipeline, and the number of its next interval."""

    def __init__(self, pipeline: Pipeline, number: int) -> None:
        self.pipeline, self.number = pipeline, number

    def next(self) -> Interval:
        """The interval that nobody has run yet."""
        self.number += 1
        return interval(self.number - 1)


def interval(number: int) -> Interval:
    """The interval of that number, of the hour, as a pipeline that runs for a year has 8,760 of them."""
    start = BEGIN + number * STEP
    return Interval(start=start, end=start + STEP)


@contextmanager
def empty_run(bench: Bench, of: Numbered) -> Iterator[Callable[[], None]]:
    """The command on the next interval."""
    given = of.next()
    yield lambda: run_command(of.pipeline, given)


def with_ledger(bench: Bench, batches: int) -> Pipeline:
    """A pipeline with an empty source and so many published batches: the first is run, the others are its records again."""
    source = f"empty-{batches}"
    bench.cluster.ensure_topic(source, PARTITIONS)
    pipeline = bench.pipeline(source)
    deployment = Deployment.of(pipeline)
    first = interval(0)
    states: list[Batch] = []
    for step in (plan_batch, write_without_spark, validate_without_spark, advance_batch):
        step(pipeline, first, deployment=deployment)
        batch = deployment.ledger.read().last(first)
        assert batch is not None
        states.append(batch)
    producer = Producer({"bootstrap.servers": bench.broker.bootstrap, "linger.ms": 50}, logger=data.log)
    lease = bench.offsets_in(pipeline.ledger_topic)
    for number in range(1, batches):
        for state in states:
            record = moved(state, interval(number), lease)
            while True:
                try:
                    producer.produce(pipeline.ledger_topic, value_of(record), record_key(record), partition=0)
                    break
                except BufferError:
                    producer.poll(0.01)
        lease += len(states)
    if producer.flush(120):
        raise RuntimeError(f"{pipeline.ledger_topic} could not be filled")
    if len(Ledger(pipeline).read().intervals) != batches:
        raise RuntimeError(f"{pipeline.ledger_topic} does not hold {batches} batches")
    return pipeline


def moved(batch: Batch, to: Interval, lease: int) -> Batch:
    """The batch as another interval's."""
    return batch.model_copy(update={"interval": to, "lease": lease})


def value_of(batch: Batch) -> bytes:
    """As the ledger stores it; a plan that stores its own lease is no different to a reader."""
    return batch.model_dump_json(exclude_none=True).encode()
