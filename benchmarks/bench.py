"""What cases work with: a broker of their own, a warm Spark session, pipelines and topics made on the spot."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka.admin import AdminClient
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from pyspark import SparkContext
from pyspark.sql import SparkSession
from rich.console import Console

from benchmarks import data
from benchmarks.data import DAY, Block, Source
from benchmarks.measure import Round, Side, fastest, rounds_of
from benchmarks.postgres import Store
from benchmarks.processor import Meter, Spent, by_kind, look
from fencepost.config.loading import load_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.kafka.client_settings import ClientSettings
from fencepost.kafka.cluster import Cluster
from fencepost.ledger.ledger import Ledger
from fencepost.model import Batch, OffsetRange
from fencepost.spark.session import build_session
from fencepost_stack.broker import Broker
from fencepost_stack.schema_registry import SchemaRegistry

MASTER = "local[2]"
PARTITIONS = 4  # of source and output
QUICK = 40  # a quick run has so many times fewer rows
BYTES = "SELECT _key, value, _partition, _offset FROM {source} WHERE length(value) > 0"
SUITE = "expectations: [{type: expect_column_values_to_not_be_null, kwargs: {column: value}}]"
# A deleted topic's files go at once: the next round writes as much again.
PROPERTIES = {"log.segment.delete.delay.ms": "200", "log.initial.task.delay.ms": "1000"}
# As operators run a broker: the heap of Kafka's own kafka-server-start.sh, the collector of its kafka-run-class.sh, the regions
# of its documents (operations, "Java version"). In regions of 1 MB, as so small a heap has them, each produce request is a
# humongous object, and the collector takes up to half of the broker's time *(measured)*.
BROKER_JAVA = (
    *("-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35"),
    *("-XX:+ExplicitGCInvokesConcurrent", "-XX:MaxInlineLevel=15", "-XX:G1HeapRegionSize=16m"),
)
STEADY = 0.05  # at volume: two rounds of the warm-up in a row agree so far in processor time
RECLAIM_TIMEOUT = 120.0  # seconds


class Bench:
    """The bench of one run. Use `open_bench`."""

    def __init__(self, folder: Path, broker: Broker, console: Console, rounds: int, *, quick: bool) -> None:
        self.folder = folder
        self.broker = broker
        self.console = console
        self.rounds = rounds
        self.quick = quick
        self.spent: list[Spent] = []  # what the case that runs has found besides its results
        self.settings = ClientSettings({"bootstrap.servers": broker.bootstrap})
        self.cluster = Cluster(self.settings)
        self._admin = AdminClient({"bootstrap.servers": broker.bootstrap}, logger=data.log)
        self._session: SparkSession | None = None
        self._registry: SchemaRegistry | None = None
        self._postgres: Store | None = None
        self.spark_settings: dict[
            str, str
        ] = {}  # of the next session, beside those that Fencepost submits its jobs with
        self._sources: dict[tuple[str, int, int], Source] = {}
        self._numbers = count(1)

    def rows(self, wanted: int) -> int:
        """So many, or in a quick run a part of it."""
        return max(wanted // QUICK, 1000) if self.quick else wanted

    @property
    def spark(self) -> SparkSession:
        """A session with the settings Fencepost submits its jobs with; both sides of a comparison run in it."""
        if self._session is None:
            self._session = build_session(self.pipeline("any-source", spark=self.spark_settings), "benchmark")
            signal.signal(signal.SIGINT, signal.default_int_handler)  # Spark's own asks a session that may be gone
        return self._session

    def end_session(self) -> None:
        """End the session with its JVM and its Python workers, so that the next case begins with fresh ones."""
        if self._session is None:
            return
        session, self._session = self._session, None
        gateway = SparkContext._gateway
        with suppress(Exception):  # a JVM that is gone already
            session.stop()
        if gateway is not None:
            gateway.shutdown()
            gateway.proc.stdin.close()  # spark-submit ends with its standard input
            try:
                gateway.proc.wait(30)
            except subprocess.TimeoutExpired:
                gateway.proc.kill()
        SparkContext._gateway = SparkContext._jvm = None

    def jvm_pid(self) -> int:
        """The driver's JVM."""
        assert self.spark is not None
        gateway = SparkContext._gateway
        assert gateway is not None
        return int(gateway.proc.pid)

    def source(self, rows: int, size: int) -> Source:
        """A topic of `rows` records with values of `size` bytes, filled when it is first asked for."""
        return self._source("texts", self.rows(rows), size, data.texts)

    def keyed(self, kind: str, rows: int, size: int, seed: int) -> Source:
        """A topic of `rows` records with values of `size` bytes, each key once, in an order that the seed gives."""
        return self._source(kind, self.rows(rows), size, lambda rows, size: data.keyed(rows, size, seed))

    def orders(self, rows: int) -> Source:
        """A topic of `rows` orders in JSON."""
        return self._source("orders", self.rows(rows), 0, lambda rows, _: data.orders(rows))

    def dated_orders(self, rows: int, *, encoded: bool) -> Source:
        """A topic of the same orders in JSON with two times each, in plain types or encoded."""
        name = "encoded" if encoded else "dated"
        return self._source(name, self.rows(rows), 0, lambda rows, _: data.dated_orders(rows, encoded=encoded))

    def avro_orders(self, rows: int) -> Source:
        """A topic of the same orders in Avro, and their schema in the registry."""
        topic = f"avro-{self.rows(rows)}-0"
        schema_id = self.register(f"{topic}-value", data.ORDER)
        return self._source("avro", self.rows(rows), 0, lambda rows, _: data.avro_orders(rows, schema_id))

    def enveloped_orders(self, rows: int, *, schemas: bool) -> Source:
        """A topic of the same orders as creations in Debezium's envelope, each with its schema beside it or not."""
        kind = "enveloped-with-schema" if schemas else "enveloped"
        return self._source(kind, self.rows(rows), 0, lambda rows, _: data.enveloped_orders(rows, schemas=schemas))

    @property
    def registry(self) -> SchemaRegistry:
        """A schema registry of this run, started when it is first asked for."""
        if self._registry is None:
            self._registry = SchemaRegistry(self.folder / "schema-registry")
            self._registry.start()
        return self._registry

    @property
    def postgres(self) -> Store:
        """A PostgreSQL of this run, started when it is first asked for."""
        if self._postgres is None:
            self._postgres = Store(self.folder / "postgres")
        return self._postgres

    def end_postgres(self) -> None:
        """Stop it, if there is one."""
        if self._postgres is not None:
            self._postgres.stop()
            self._postgres = None

    def register(self, subject: str, schema: Mapping[str, Any]) -> int:
        """The id of an Avro schema, registered under this subject."""
        client = SchemaRegistryClient({"url": self.registry.url})
        return client.register_schema(subject, Schema(json.dumps(schema), "AVRO"))

    def end_registry(self) -> None:
        """Stop the registry, if there is one."""
        if self._registry is not None:
            self._registry.stop()
            self._registry = None

    def _source(self, kind: str, rows: int, size: int, make: Callable[[int, int], Iterator[Block]]) -> Source:
        if (kind, rows, size) not in self._sources:
            topic = f"{kind}-{rows}-{size}"
            began = time.monotonic()
            described = self.cluster.ensure_topic(topic, PARTITIONS)
            data.load(self.broker.bootstrap, topic, make(rows, size), rows)
            ends = self.cluster.high_watermarks(described)
            ranges = tuple(OffsetRange(topic=topic, partition=p, start=0, end=end) for p, end in enumerate(ends))
            self._sources[kind, rows, size] = Source(topic, rows, ranges)
            self.console.print(f"[dim]filled {topic} in {time.monotonic() - began:.1f} s[/]")
        return self._sources[kind, rows, size]

    def pipeline(
        self, topic: str | None, /, transform: str = BYTES, expectations: str = SUITE, **sections: Mapping[str, Any]
    ) -> Pipeline:
        """A pipeline that reads the topic, with topics of its own, not planned yet; `sections` go over the usual ones. Without
        a topic they name the sources.
        """
        name = self.new_name()
        folder = self.folder / "pipelines" / name
        folder.mkdir(parents=True)
        settings: dict[str, dict[str, Any]] = {
            "source": {"topic": topic, "format": "bytes"},
            "output": {
                "topic": f"{name}-out",
                "format": "bytes",
                "key": "_key",
                "partitions": PARTITIONS,
                "publish": "direct",
            },
            "schedule": {"start": DAY.start},
            "kafka": {"bootstrap.servers": self.broker.bootstrap},
        }
        if topic is None:
            del settings["source"]
        for section, values in sections.items():
            usual = {} if "kind" in values else settings.get(section, {})
            settings[section] = {**usual, **values}
        (folder / "pipeline.yaml").write_text(yaml.safe_dump(settings))
        (folder / "transform.sql").write_text(transform)
        (folder / "expectations.yaml").write_text(expectations)
        return load_pipeline(folder)

    def new_name(self) -> str:
        """A pipeline's name."""
        return f"bench{next(self._numbers)}"

    def new_topic(self) -> str:
        """An output topic."""
        name = f"sink{next(self._numbers)}-out"
        self.cluster.ensure_topic(name, PARTITIONS)
        return name

    def offsets_in(self, topic: str) -> int:
        """Records of a topic, and the markers of its transactions."""
        return sum(self.cluster.high_watermarks(self.cluster.describe(topic)))

    def drop(self, *topics: str) -> None:
        """Delete topics and wait until the broker has given their space back."""
        for future in self._admin.delete_topics(list(topics)).values():
            future.result(30)
        deadline = time.monotonic() + RECLAIM_TIMEOUT
        data_folder = self.broker.folder / "data"
        # A directory that waits for its deletion is named <topic, cut to fit>-<partition>.<random>-delete.
        while any(f.name.endswith("-delete") or f.name.rpartition("-")[0] in topics for f in data_folder.iterdir()):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the broker has not deleted {', '.join(topics)} in {RECLAIM_TIMEOUT:.0f} s")
            time.sleep(0.1)

    def drop_pipeline(self, pipeline: Pipeline) -> None:
        """Delete all topics of its own."""
        staging = [pipeline.staging_topic] if pipeline.output.is_staged else []
        output = [*pipeline.output.topics]
        self.drop(*output, pipeline.ledger_topic, pipeline.announcements_topic, *staging)

    def meter(self, sides: Iterable[str], steady: float | None = None) -> Meter:
        """For sides that run in the session. At volume `steady` is how far two rounds of the warm-up have to agree."""
        return Meter(dict.fromkeys(sides, self._seconds), steady=steady)

    def _seconds(self) -> dict[str, float]:
        jvm = self.jvm_pid()  # the first call starts it
        return by_kind(look(), jvm=jvm, driver=os.getpid(), broker=self.broker_pid)

    @property
    def broker_pid(self) -> int:
        """The broker's process."""
        assert self.broker.pid is not None
        return self.broker.pid

    def measure(
        self, case: str, sides: Mapping[str, Side], best_of: int = 1, *, meter: Meter | None = None
    ) -> list[Round]:
        """The rounds of a case, each side's time in one being its best of so many; what is measured is told as it goes."""
        told = partial(self.told, case)
        watched: dict[str, Any] = {"watched": meter.watch, "warm": meter.warm} if meter else {}
        rounds = rounds_of(sides, best_of * self.rounds, before=self.settle, told=told, **watched)
        return fastest(list(rounds), best_of)

    def once(self, side: Side) -> float:
        """The seconds of a side that is measured once."""
        with side() as job:
            began = time.monotonic()
            job()
            return time.monotonic() - began

    def told(self, case: str, turn: str, side: str, seconds: float) -> None:
        """A line of progress."""
        self.console.print(f"  {case}, {turn}: {side} [bold]{seconds:.2f} s[/]")

    def settle(self) -> None:
        """What one side leaves behind, garbage and unwritten pages, must not slow the next one down."""
        if self._session is not None and (jvm := self._session._jvm) is not None:
            jvm.System.gc()
        os.sync()


@contextmanager
def open_bench(console: Console, rounds: int, *, quick: bool) -> Iterator[Bench]:
    """Broker and folders for one run; nothing of them is left afterwards."""
    os.environ["FENCEPOST_SPARK_MASTER"] = MASTER
    # Settings for short-lived JVMs, or of somebody's shell, are nobody's production settings.
    for name in ("JDK_JAVA_OPTIONS", "SPARK_ENV_LOADED"):
        os.environ.pop(name, None)
    # It tells of sockets that are closed when a session ends.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="fencepost-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        os.environ["FENCEPOST_REPORTS"] = str(folder / "reports")
        with Broker(folder / "kafka", properties=PROPERTIES, java_options=BROKER_JAVA) as broker:
            bench = Bench(folder, broker, console, rounds, quick=quick)
            try:
                yield bench
            finally:
                bench.end_session()
                bench.end_registry()
                bench.end_postgres()


def batch_of(pipeline: Pipeline) -> Batch:
    """The day's batch as the ledger has it."""
    batch = Ledger(pipeline).read().last(DAY)
    assert batch is not None
    return batch
