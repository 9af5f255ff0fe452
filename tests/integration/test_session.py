"""What a step's session has ready before the first job."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fencepost.config.pipeline import Pipeline

pytestmark = pytest.mark.deep

TESTS = Path(__file__).parent.parent
SCRIPT = """
import sys, psutil
from pyspark.accumulators import AccumulatorTCPServer
from fencepost.config.loading import find_pipeline
from fencepost.spark.session import build_session
from waiting import await_true
spark = build_session(find_pipeline(sys.argv[1]), "run")
def workers():
    below = {p.pid for p in psutil.Process().children(recursive=True)}
    found = [p.info for p in psutil.process_iter(["pid", "cmdline"]) if p.pid in below]
    return [p for p in found if "fencepost.rows.daemon" in (p["cmdline"] or [])]
await_true(lambda: len(workers()) > 1, "the daemon and a worker to be there without a job of ours", 60)
assert AccumulatorTCPServer.shutdown.__name__ == "_shut_down_aside"
spark.stop()
await_true(lambda: not workers(), "them to end with the session", 60)
"""
CALLER = """
import sys
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from fencepost.config.loading import find_pipeline
from fencepost.spark.session import build_session
spark = build_session(find_pipeline(sys.argv[1]), "validate")
try:
    spark.range(1).select(F.lit("x").cast("int")).collect()
except PySparkException as error:
    print("<string>:" in str(error))
spark.stop()
"""

READS = """
import sys
from fencepost.config.loading import find_pipeline
from fencepost.kafka.client_settings import client_settings
from fencepost.model import OffsetRange
from fencepost.spark.session import build_session
from fencepost.rows.source import read_ranges
from kafka_tools import create_topic, produce
from waiting import await_true
pipeline = find_pipeline(sys.argv[1])
settings = client_settings(pipeline)
bootstrap, topic = settings.values["bootstrap.servers"], pipeline.source.topic
create_topic(bootstrap, topic, 1)
produce(bootstrap, topic, [(None, {"n": n}, 0, 1) for n in range(2000)])
spark = build_session(pipeline, "validate")
for n in range(5):
    one = [OffsetRange(topic=topic, partition=0, start=n, end=n + 1)]
    assert read_ranges(spark, settings, one, headers=False).count() == 1
readers = spark._jvm.java.lang.Class.forName("org.apache.spark.sql.kafka010.consumer.KafkaDataConsumer$")
def kept(name):
    field = readers.getDeclaredField(name)
    field.setAccessible(True)
    return field.get(None)
assert kept("fetchedDataPool").numTotal() > 0, "what this test waits for was there"
await_true(lambda: kept("fetchedDataPool").numTotal() == 0, "what was fetched behind the ranges to be given up", 60)
await_true(lambda: kept("consumerPool").size() == 0, "the consumers to be closed", 60)
spark.stop()
"""


@pytest.fixture
def ran(make_pipeline: Callable[..., Pipeline]) -> Callable[..., str]:
    """Runs a script on a pipeline's name, with these environment variables; what it prints."""
    pipeline = make_pipeline()
    environment = {
        **os.environ,
        "FENCEPOST_PIPELINES": str(pipeline.folder.parent),
        "FENCEPOST_SPARK_MASTER": "local[1]",
        "PYTHONPATH": str(TESTS),
    }

    def run(script: str, **variables: str) -> str:
        command = [sys.executable, "-c", script, pipeline.name]
        done = subprocess.run(command, env=environment | variables, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    return run


def test_workers_of_python_start_with_the_session_and_end_with_it(ran: Callable[..., str]) -> None:
    assert ran(SCRIPT) == ""


@pytest.mark.parametrize(("level", "told"), [("WARNING", "False\n"), ("DEBUG", "True\n")])
def test_the_line_of_a_call_is_noted_only_where_the_whole_error_is_logged(
    level: str, told: str, ran: Callable[..., str]
) -> None:
    assert ran(CALLER, FENCEPOST_LOG=level) == told


def test_what_a_read_has_fetched_behind_its_ranges_is_given_up_within_seconds(ran: Callable[..., str]) -> None:
    """Spark's default are minutes: of a backlog in small intervals they would be hundreds of reads."""
    assert ran(READS) == ""
