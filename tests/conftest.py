"""What tests of several folders share: one broker, one Spark session, and pipelines made on the spot."""

from __future__ import annotations

import gc
import logging
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, settings

from fencepost.config.loading import load_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.model import Interval
from fencepost_stack import processes
from fencepost_stack.broker import Broker
from fencepost_stack.schema_registry import SchemaRegistry
from rigs.postgres_server import PostgresServer

DAY = datetime(2026, 1, 1, tzinfo=UTC)
names = count(1)

# How long an example takes says how busy the machine is.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

# librdkafka and Java resolve "localhost" in their own ways; a test's environment must not name another broker or registry.
os.environ.pop("KAFKA_BOOTSTRAP", None)
os.environ.pop("SCHEMA_REGISTRY_URL", None)
# Every JVM here lives for seconds: the second compiler would take a quarter of the processors' time and never pay, and a
# concurrent collector some more.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# A shell without job control starts what ends in `&` with Ctrl-C ignored, and processes inherit that. Tests send Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def day(number: int) -> Interval:
    """The interval of day `number`, 1 being 1 January 2026."""
    start = DAY + timedelta(days=number - 1)
    return Interval.of(start, start + timedelta(days=1))


def at(number: int, hours: float = 12.0) -> int:
    """A timestamp within day `number`, in milliseconds."""
    return round((DAY + timedelta(days=number - 1, hours=hours)).timestamp() * 1000)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A real broker for the whole session; topics are the tests' own."""
    with Broker(tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture(scope="session")
def schema_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchemaRegistry]:
    """A real schema registry for the whole session; subjects are the tests' own."""
    running = SchemaRegistry(tmp_path_factory.mktemp("schema-registry"))
    running.start(timeout=300)  # on a machine that does other work as well
    yield running
    running.stop()


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """A real PostgreSQL for the whole session; databases are the tests' own."""
    with PostgresServer(tmp_path_factory.mktemp("postgres")) as running:
        yield running


@pytest.fixture(scope="session")
def spark_lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A Spark that reads Iceberg's tables, in a process of its own."""
    from rigs.spark_lake import SparkLake

    with SparkLake(tmp_path_factory.mktemp("spark-lake")) as running:
        yield running


@pytest.fixture(scope="session")
def sql_lake(tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer, spark_lake: Any) -> Any:
    """Iceberg's catalog of a database for the whole session; namespaces are the tests' own."""
    from lakes import Lake
    from rigs.iceberg_catalog import SqlCatalog

    return Lake(SqlCatalog(tmp_path_factory.mktemp("sql-lake"), postgres), spark_lake)


@pytest.fixture(scope="session")
def rest_lake(tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer, spark_lake: Any) -> Iterator[Any]:
    """Iceberg's own REST catalog for the whole session; namespaces are the tests' own."""
    from lakes import Lake
    from rigs.iceberg_catalog import RestCatalog

    with RestCatalog(tmp_path_factory.mktemp("rest-lake"), postgres) as running:
        yield Lake(running, spark_lake)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One session for all tests of a process, with the settings of a pipeline that has none of its own."""
    import sys

    from pyspark.sql import SparkSession

    from fencepost.spark.submit import submit_conf

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    ours = {"spark.sql.shuffle.partitions": "2", "spark.log.level": "OFF"}
    conf = submit_conf(Pipeline.model_construct(spark=ours), "local[2]")
    session = SparkSession.builder.master("local[2]").appName("fencepost tests").config(map=dict(conf)).getOrCreate()
    # It tells of sockets closed by the garbage collector, after pytest has closed its streams.
    logging.getLogger("py4j.clientserver").setLevel(logging.WARNING)
    yield session
    session.stop()
    end_jvm()


def end_jvm() -> None:
    """Spark's JVM would outlive its session, and this process by a moment."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(30)


@pytest.fixture(scope="session", autouse=True)
def _reaped() -> Iterator[None]:
    """What ended while nobody looked is waited for, so that the end of the session names only processes that still run."""
    yield
    for child in processes._children.values():
        child.poll()


@pytest.fixture(scope="session", autouse=True)
def _clients_ended(request: pytest.FixtureRequest) -> Iterator[None]:
    """No Kafka client outlives the tests: at the process's end OpenSSL would free what librdkafka's threads still use.

    After a failure or an interruption, tracebacks hold clients.
    """
    yield
    if request.session.testsfailed or request.session.exitstatus:
        return
    gc.collect()
    left = Counter(name for name in map(thread_name, Path("/proc/self/task").glob("*/comm")) if name.startswith("rdk:"))
    assert not left, f"librdkafka's threads that still run: {dict(left)}"


def thread_name(file: Path) -> str:
    """A thread's name; an empty one if it has just ended."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""


TRANSFORM = """
def transform(frame):
    return frame.selectExpr("_key", "n", "n * 2 AS doubled", "name")
"""
EXPECTATIONS = """
expectations:
  - type: expect_column_values_to_not_be_null
    kwargs: {column: n}
"""
KEEPS_RECORDS = """
def transform(frame):
    return frame.selectExpr("_key", "_record", "n", "n * 2 AS doubled", "name")
"""
# Of what KEEPS_RECORDS gives: negative numbers go to quarantine.
RULES = """
expectations:
  - type: expect_column_values_to_be_between
    severity: quarantine
    kwargs: {column: n, min_value: 0}
  - type: expect_column_values_to_not_be_null
    kwargs: {column: n}
"""


@pytest.fixture
def make_pipeline(tmp_path: Path, broker: Broker) -> Callable[..., Pipeline]:
    """Make a pipeline's folder with small defaults; `changes` go over pipeline.yaml section by section."""

    def make(
        transform: str = TRANSFORM, expectations: str = EXPECTATIONS, name: str | None = None, **changes: Any
    ) -> Pipeline:
        name = name or f"p{next(names)}"
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        settings: dict[str, Any] = {
            "source": {"topic": f"{name}-in", "schema": {"n": "int", "name": "string"}},
            "output": {"topic": f"{name}-out", "key": "_key", "partitions": 3},
            "schedule": {"start": "2026-01-01"},
            "kafka": {"bootstrap.servers": broker.bootstrap},
            "quality": {"open_transaction_wait_seconds": 20},
        }
        if "sources" in changes:
            del settings["source"]
        for section, values in changes.items():
            if isinstance(values, dict):
                replaces = "kind" in values or "connection" in values
                old = {} if replaces else settings.get(section, {})
                settings[section] = {**old, **values}
            else:
                settings[section] = values
        (folder / "pipeline.yaml").write_text(yaml.safe_dump(settings))
        is_sql = transform.lstrip().startswith(("SELECT", "WITH"))
        (folder / ("transform.sql" if is_sql else "transform.py")).write_text(transform)
        (folder / "expectations.yaml").write_text(expectations)
        return load_pipeline(folder)

    return make


@pytest.fixture
def make_table(make_pipeline: Callable[..., Pipeline], postgres: PostgresServer) -> Callable[..., Pipeline]:
    """Make a pipeline whose output is the table `numbers`, in a database of its own unless one is given."""
    from tables import POSITIVE, ROWS

    def make(transform: str = ROWS, expectations: str = POSITIVE, **changes: Any) -> Pipeline:
        output = {"kind": "postgres", "table": "numbers", "partitions": 2} | changes.pop("output", {})
        store = changes.pop("postgres", None) or postgres.database()
        return make_pipeline(transform, expectations, output=output, postgres=store, **changes)

    return make


@pytest.fixture(autouse=True)
def _own_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports of tests go into the test's own folder."""
    monkeypatch.setenv("FENCEPOST_REPORTS", str(tmp_path / "reports"))
