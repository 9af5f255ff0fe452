"""B13: beside Flink: Fencepost's write job, and PyFlink's with Flink's own exactly-once Kafka sink, warm and as new processes.

Only on request: it installs Flink in an environment of its own. Its figures are those at volume. A warm job of Flink's ends with
some two seconds in which nothing happens, which is much of a short job and little of a long one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from benchmarks import processor
from benchmarks.bench import BYTES, PARTITIONS, STEADY, SUITE, Bench, batch_of
from benchmarks.cases.gate import SCHEMA
from benchmarks.cases.jobs import (
    AT_VOLUME,
    ORDERS_AT_VOLUME,
    SIZES,
    java_producer,
    new_process,
    run_command,
    size_words,
    write_all,
)
from benchmarks.cases.sink import AS_IT_IS, ORDERS
from benchmarks.data import DAY, Source
from benchmarks.flink import Flink, Session, install
from benchmarks.flink_sql import JSON, avro, statements
from benchmarks.measure import Goal, at_least, at_most, ratios
from benchmarks.processor import Meter
from benchmarks.read_back import Contents, contents
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


@dataclass(frozen=True)
class Job:
    """What both do: the source, and how each is told of it. `faster` is the goal of throughput, `cheaper` of processor time."""

    source: Source
    words: str
    contents: Contents
    faster: Goal | None = None
    cheaper: Goal | None = None
    transform: str = BYTES
    suite: str = SUITE
    sections: Mapping[str, Mapping[str, Any]] | None = None
    columns: Mapping[str, str] | None = None  # of JSON and Avro
    value: Mapping[str, str] = field(default_factory=lambda: JSON)  # Flink's options of these


def run(bench: Bench) -> Iterator[Result]:
    """Time of Flink by time of Fencepost, which is Fencepost's throughput by Flink's."""
    began = time.monotonic()
    flink = Flink(install(StateFolder.default()), bench.folder / "flink", PARALLELISM)
    bench.console.print(f"[dim]Flink's environment: {time.monotonic() - began:.1f} s[/]")
    for short in jobs(bench, SIZES, ORDERS):
        job = replace(short, faster=None, cheaper=None)
        yield from warm(bench, job, flink)
        yield from cold(bench, job, flink, {"write_batch": fencepost_write, "fencepost run": fencepost_run})
    for job in [*jobs(bench, AT_VOLUME, ORDERS_AT_VOLUME), avro_job(bench)]:
        at_volume = replace(job, words=f"{job.words}, at volume")
        yield from warm(bench, at_volume, flink, steady=STEADY)
        yield from cold(bench, at_volume, flink, {"fencepost run, its defaults": fencepost_run_staged})


def warm(bench: Bench, job: Job, flink: Flink, steady: float | None = None) -> Iterator[Result]:
    """In running sessions. With `steady` they are warm when two rounds agree so far in processor time."""
    with flink.session() as session:
        sides = {
            "Fencepost": partial(fencepost_warm, bench, job),
            "PyFlink": partial(flink_warm, bench, job, session),
        }
        meter = bench.meter(["Fencepost"], steady)
        meter.samples["PyFlink"] = partial(seconds_of, bench, session)
        rounds = bench.measure(f"B13 {job.words}, warm", sides, meter=meter)
    bench.end_session()
    case = f"exactly-once write, {job.words}, warm, with header"
    bench.spent += meter.spent("B13", case, job.source.rows)
    compares = "throughput: Fencepost ÷ PyFlink's exactly-once sink"
    note = meter.differs(rounds, "PyFlink", "Fencepost")
    yield result("B13", case, ratios(rounds, "PyFlink", "Fencepost"), compares, goal=job.faster, note=note)
    compares = "processor seconds: Fencepost ÷ PyFlink's exactly-once sink"
    yield result("B13", f"{case}; processor time", meter.ratios("Fencepost", "PyFlink"), compares, goal=job.cheaper)


def cold(bench: Bench, job: Job, flink: Flink, ours: Mapping[str, Callable[..., Any]]) -> Iterator[Result]:
    """In a new process each; `ours` is by what it runs."""
    sides = {name: partial(side, bench, job) for name, side in ours.items()}
    sides["PyFlink"] = partial(flink_cold, bench, job, flink)
    meter = Meter(dict.fromkeys(sides, partial(processor.commands, bench.broker_pid)), processor.adopting)
    rounds = bench.measure(f"B13 {job.words}, cold", sides, meter=meter)
    case = f"exactly-once write, {job.words}, cold, with header"
    bench.spent += meter.spent("B13", case, job.source.rows)
    for name in ours:
        compares = f"throughput of new processes: {name} ÷ PyFlink's exactly-once sink"
        goal, note = at_least(0.75) if "run" in name else None, meter.differs(rounds, "PyFlink", name)
        yield result("B13", f"{case}; {name}", ratios(rounds, "PyFlink", name), compares, goal=goal, note=note)


def jobs(bench: Bench, sizes: Iterable[tuple[int, int]], orders: int) -> Iterator[Job]:
    """Bytes of two sizes, and orders in JSON."""
    for rows, size in sizes:
        source = bench.source(rows, size)
        goals = (at_least(0.8), at_most(1.3)) if size == 1000 else (at_least(0.9), at_most(1.2))
        yield Job(source, size_words(source, size), found_in(bench, source.topic), *goals)
    source = bench.orders(orders)
    json: dict[str, Any] = {"source": {"format": "json", "schema": SCHEMA}, "output": {"format": "json"}}
    keys, words = found_in(bench, source.topic, values=False), f"{source.rows:,} orders in JSON"
    yield Job(source, words, keys, at_least(0.85), at_most(1.25), AS_IT_IS, NO_NULL_ID, json, SCHEMA)


def avro_job(bench: Bench) -> Job:
    """Orders in Avro. Flink takes their times as the whole numbers that they are written as: it knows milliseconds only."""
    source = bench.avro_orders(ORDERS_AT_VOLUME)
    sections: dict[str, Any] = {
        "source": {"format": "avro"},
        "output": {"format": "avro", "subject": "orders-by-fencepost"},
        "schema_registry": {"url": bench.registry.url, "auto_register": True},
    }
    keys, words = found_in(bench, source.topic, values=False), f"{source.rows:,} orders in Avro"
    columns = {name: "bigint" if kind == "timestamp" else kind for name, kind in SCHEMA.items()}
    value = avro(bench.registry.url, "orders-by-flink")
    return Job(source, words, keys, at_least(0.85), None, AS_IT_IS, NO_NULL_ID, sections, columns, value)


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
def fencepost_run_staged(bench: Bench, job: Job) -> Iterator[Callable[[], None]]:
    """The command as somebody types it, in its defaults: what is judged is staged first, and published as a copy."""
    sections = dict(job.sections or {})
    sections["output"] = {**sections.get("output", {}), "publish": "staged"}
    with fencepost_run(bench, replace(job, sections=sections)) as run:
        yield run


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
    return statements(bench.broker.bootstrap, job.source, topic, batch, producer, job.columns, job.value)


def batch_named(bench: Bench) -> str:
    """A header's value as long as Fencepost's own."""
    return str(BatchId(pipeline=bench.new_name(), interval=DAY, revision=1))


def check_output(bench: Bench, job: Job, topic: str, batch: str) -> None:
    """A `read_committed` consumer must find all rows, none twice, and the batch's header on each.

    Bytes are compared with the source's, in whatever order; of JSON, whose text may differ, only the keys.
    """
    wanted = job.contents
    found = found_in(bench, topic, values=job.columns is None, header=(BATCH_HEADER, batch.encode()))
    if found != wanted:
        raise RuntimeError(
            f"{topic} has other records than its source: {found[0]:,} rows, not {wanted[0]:,}; or differing ones"
        )


def found_in(bench: Bench, topic: str, *, values: bool = True, header: tuple[str, bytes] | None = None) -> Contents:
    """The committed records of a topic of this run."""
    return contents(bench.broker.bootstrap, topic, PARTITIONS, values=values, header=header)
