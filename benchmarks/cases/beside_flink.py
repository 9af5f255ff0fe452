"""B13: beside Flink: Fencepost's write job, and PyFlink's with Flink's own exactly-once Kafka sink, warm and as new processes.

Only on request: it installs Flink in an environment of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from benchmarks import data, processor
from benchmarks.bench import BYTES, PARTITIONS, SUITE, Bench, batch_of
from benchmarks.cases.gate import SCHEMA
from benchmarks.cases.jobs import SIZES, java_producer, new_process, run_command, size_words, write_all
from benchmarks.cases.sink import AS_IT_IS, ORDERS
from benchmarks.data import DAY, Source
from benchmarks.flink import Flink, Session, install
from benchmarks.flink_sql import statements
from benchmarks.measure import at_least, ratios
from benchmarks.processor import Meter
from benchmarks.results import Result, result
from fencepost.kafka.clients import PRODUCER_DEFAULTS
from fencepost.model import BATCH_HEADER, BatchId
from fencepost.steps.plan import plan_batch
from fencepost_stack.state_folder import StateFolder

PARALLELISM = 2  # of both
WRITE = """
import sys
from datetime import datetime
from fencepost.config.loading import find_pipeline
from fencepost.model import Interval
from fencepost.spark.session import build_session
from fencepost.steps.write import write_batch

pipeline = find_pipeline(sys.argv[1])
spark = build_session(pipeline, "write")
write_batch(spark, pipeline, Interval.of(*map(datetime.fromisoformat, sys.argv[2:])))
spark.stop()
"""
NO_NULL_ID = "expectations: [{type: expect_column_values_to_not_be_null, kwargs: {column: order_id}}]"
READ_BACK = 600.0  # seconds
Contents = tuple[int, int]  # number of records, and the sum of their hashes


@dataclass(frozen=True)
class Job:
    """What both do: the source, and how each is told of it."""

    source: Source
    words: str
    contents: Contents
    transform: str = BYTES
    suite: str = SUITE
    sections: Mapping[str, Mapping[str, Any]] | None = None
    columns: Mapping[str, str] | None = None  # of JSON


def run(bench: Bench) -> Iterator[Result]:
    """Time of Flink by time of Fencepost, which is Fencepost's throughput by Flink's."""
    began = time.monotonic()
    flink = Flink(install(StateFolder.default()), bench.folder / "flink", PARALLELISM)
    bench.console.print(f"[dim]Flink's environment: {time.monotonic() - began:.1f} s[/]")
    for job in jobs(bench):
        with flink.session() as session:
            sides = {
                "Fencepost": partial(fencepost_warm, bench, job),
                "PyFlink": partial(flink_warm, bench, job, session),
            }
            meter = bench.meter(["Fencepost"])
            meter.samples["PyFlink"] = partial(seconds_of, bench, session)
            rounds = bench.measure(f"B13 {job.words}, warm", sides, meter=meter)
        case = f"exactly-once write, {job.words}, warm, with header"
        bench.spent += meter.spent("B13", case, job.source.rows)
        compares = "throughput: Fencepost ÷ PyFlink's exactly-once sink"
        yield result("B13", case, ratios(rounds, "PyFlink", "Fencepost"), compares, goal=at_least(1.5))

        bench.end_session()
        sides = {
            "write_batch": partial(fencepost_write, bench, job),
            "fencepost run": partial(fencepost_run, bench, job),
            "PyFlink": partial(flink_cold, bench, job, flink),
        }
        meter = Meter(dict.fromkeys(sides, partial(processor.commands, bench.broker_pid)), processor.adopting)
        rounds = bench.measure(f"B13 {job.words}, cold", sides, meter=meter)
        case = f"exactly-once write, {job.words}, cold, with header"
        bench.spent += meter.spent("B13", case, job.source.rows)
        compares = "throughput of new processes: write_batch ÷ PyFlink's exactly-once sink"
        yield result("B13", case, ratios(rounds, "PyFlink", "write_batch"), compares, goal=at_least(3))
        compares = "throughput of new processes: fencepost run ÷ PyFlink's exactly-once sink"
        each = ratios(rounds, "PyFlink", "fencepost run")
        yield result("B13", f"{case}; all four steps", each, compares, goal=at_least(3))


def jobs(bench: Bench) -> Iterator[Job]:
    """Bytes of two sizes, and orders in JSON."""
    for rows, size in SIZES:
        source = bench.source(rows, size)
        yield Job(source, size_words(source, size), contents(bench, source.topic))
    source = bench.orders(ORDERS)
    json: dict[str, Any] = {"source": {"format": "json", "schema": SCHEMA}, "output": {"format": "json"}}
    keys = contents(bench, source.topic, values=False)
    yield Job(source, f"{source.rows:,} orders in JSON", keys, AS_IT_IS, NO_NULL_ID, json, SCHEMA)


def seconds_of(bench: Bench, session: Session) -> dict[str, float]:
    """Of Flink's processes and the broker."""
    return processor.by_kind(processor.look(), jvm=session.jvm_pid, driver=session.pid, broker=bench.broker_pid)


@contextmanager
def fencepost_warm(bench: Bench, job: Job) -> Iterator[Callable[[], None]]:
    """The write step of a batch just planned, in the warm session."""
    pipeline = bench.pipeline(job.source.topic, job.transform, job.suite, **(job.sections or {}))
    plan_batch(pipeline, DAY)
    yield lambda: write_all(bench, pipeline, job.source.rows)
    check_output(bench, job, pipeline.output.topic, str(batch_of(pipeline).id))
    bench.drop_pipeline(pipeline)


@contextmanager
def flink_warm(bench: Bench, job: Job, session: Session) -> Iterator[Callable[[], None]]:
    """The same job as a further one of a running mini cluster."""
    topic, batch = bench.new_topic(), batch_named(bench)
    session.run([])
    yield lambda: session.run(flink_job(bench, job, topic, batch))
    check_output(bench, job, topic, batch)
    bench.drop(topic)


@contextmanager
def fencepost_write(bench: Bench, job: Job) -> Iterator[Callable[[], None]]:
    """The write step of a batch just planned, in a new process."""
    pipeline = bench.pipeline(job.source.topic, job.transform, job.suite, **(job.sections or {}))
    plan_batch(pipeline, DAY)
    yield lambda: new_process(pipeline, ["-c", WRITE, pipeline.name, DAY.start.isoformat(), DAY.end.isoformat()])
    check_output(bench, job, pipeline.output.topic, str(batch_of(pipeline).id))
    bench.drop_pipeline(pipeline)


@contextmanager
def fencepost_run(bench: Bench, job: Job) -> Iterator[Callable[[], None]]:
    """The command as somebody types it: all four steps."""
    pipeline = bench.pipeline(job.source.topic, job.transform, job.suite, **(job.sections or {}))
    yield lambda: run_command(pipeline, DAY)
    check_output(bench, job, pipeline.output.topic, str(batch_of(pipeline).id))
    bench.drop_pipeline(pipeline)


@contextmanager
def flink_cold(bench: Bench, job: Job, flink: Flink) -> Iterator[Callable[[], None]]:
    """A Python process of Flink's environment, with its JVM and a mini cluster in that, for one job."""
    topic, batch = bench.new_topic(), batch_named(bench)
    yield lambda: flink.run_once(flink_job(bench, job, topic, batch))
    check_output(bench, job, topic, batch)
    bench.drop(topic)


def flink_job(bench: Bench, job: Job, topic: str, batch: str) -> list[str]:
    """In SQL, with the producer's settings that Fencepost has."""
    producer = {**java_producer(), "transaction.timeout.ms": PRODUCER_DEFAULTS["transaction.timeout.ms"]}
    return statements(bench.broker.bootstrap, job.source, topic, batch, producer, job.columns)


def batch_named(bench: Bench) -> str:
    """A header's value as long as Fencepost's own."""
    return str(BatchId(pipeline=bench.new_name(), interval=DAY, revision=1))


def check_output(bench: Bench, job: Job, topic: str, batch: str) -> None:
    """A `read_committed` consumer must find all rows, none twice, and the batch's header on each.

    Bytes are compared with the source's, in whatever order; of JSON, whose text may differ, only the keys.
    """
    wanted = job.contents
    found = contents(bench, topic, values=job.columns is None, header=(BATCH_HEADER, batch.encode()))
    if found != wanted:
        raise RuntimeError(
            f"{topic} has other records than its source: {found[0]:,} rows, not {wanted[0]:,}; or differing ones"
        )


def contents(bench: Bench, topic: str, *, values: bool = True, header: tuple[str, bytes] | None = None) -> Contents:
    """A topic's committed records, by their keys and, if asked for, values.

    Raises:
        RuntimeError: a record lacks the header, or the topic could not be read to its end.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bench.broker.bootstrap,
            "group.id": "benchmark",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        },
        logger=data.log,
    )
    rows = total = ends = 0
    deadline = time.monotonic() + READ_BACK
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        while ends < PARTITIONS:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{topic} could not be read to its end in {READ_BACK:.0f} s")
            for message in consumer.consume(10_000, 1.0):
                if (error := message.error()) is not None:
                    ends += error.code() == KafkaError._PARTITION_EOF  # librdkafka goes on after any other
                    continue
                if header is not None and message.headers() != [header]:
                    raise RuntimeError(f"{topic}: a record has the headers {message.headers()}, not {header}")
                rows += 1
                total += hash((message.key(), message.value() if values else b""))
    finally:
        consumer.close()
    return rows, total
