"""No secret shows in what a run on a Spark cluster leaves behind: one that publishes, and one that crashes on an executor.

What is looked through: the driver's streams, the executors' streams, the logs of master and workers, Spark's event log, the
ledger, and the arguments of every process while executors work.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from conftest import EXPECTATIONS, at, day
from kafka_tools import create_topic, produce, read_all
from rigs.secured_broker import secured_broker
from rigs.spark_cluster import spark_cluster

pytestmark = pytest.mark.deep

MARKER = "MARKER-of-a-record"
SECRET = 'hunter2-of-the-cluster-"SECRET'  # a quote, which has to be escaped for Java
LEAK = "hunter2-of-the-cluster"
KEY = "PRIVATE KEY"
# Runs on executors, beside which all processes of this machine are seen.
TRANSFORM = """
import os
from pathlib import Path

from pyspark.sql import functions as F


def noted(text):
    with open(FILE, "ab") as out:
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                out.write(process.read_bytes().replace(b"\\0", b" ") + b"\\n")
            except OSError:  # it has ended
                pass
    if CRASHES:
        raise ValueError(text)
    return text


def transform(frame):
    return frame.select("_key", "n", F.udf(noted, "string")("name").alias("name"))
"""


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What was left behind, by place. `green` logs in by a password and `crashes` by a certificate whose key is given as text."""
    folder = tmp_path_factory.mktemp("cluster")
    with secured_broker(folder) as broker, spark_cluster(folder) as master:
        broker.set_password("etl", SECRET)
        for user in ("etl", "client"):
            broker.grant_all(user)
        certificate = {
            **{k: v for k, v in broker.mutual().items() if not k.endswith((".certificate.location", ".key.location"))},
            "ssl.certificate.pem": (folder / "client.pem").read_text(),
            "ssl.key.pem": "${CLIENT_KEY}",
        }
        logins = {"green": broker.scram("etl", "${KAFKA_PASSWORD}"), "crashes": certificate}
        for name, kafka in logins.items():
            make_pipeline(folder, name, kafka)
            create_topic(broker.bootstrap, f"{name}-in", 1)
            produce(broker.bootstrap, f"{name}-in", [(MARKER.encode(), {"n": 1, "name": MARKER}, 0, at(1))])
        done = run(folder, master, list(logins))
        ledgers = "".join(str(r.value) for n in logins for r in read_all(broker.bootstrap, f"fencepost.{n}.ledger"))
    assert done.returncode == 0, done.stderr
    executors = [f for f in folder.glob("127.0.0.*/app-*/*/std*") if f.name in {"stdout", "stderr"}]
    return {
        "the driver's stdout": done.stdout,
        "the driver's stderr": done.stderr,
        "executors": "".join(f.read_text(errors="replace") for f in executors),
        "master and workers": "".join(f.read_text(errors="replace") for f in folder.glob("*.log")),
        "event log": "".join(f.read_text(errors="replace") for f in (folder / "events").rglob("*") if f.is_file()),
        "arguments": (folder / "arguments").read_text(errors="replace"),
        "ledgers": ledgers,
    }


def make_pipeline(folder: Path, name: str, kafka: dict[str, str]) -> None:
    made = folder / "pipelines" / name
    settings = {
        "source": {"topic": f"{name}-in", "schema": {"n": "int", "name": "string"}},
        "output": {"topic": f"{name}-out", "key": "_key", "partitions": 1},
        "schedule": {"start": "2026-01-01"},
        "kafka": kafka,
        "spark": {
            "spark.eventLog.enabled": True,
            "spark.eventLog.compress": False,
            "spark.eventLog.dir": str(folder / "events"),
            "spark.driver.host": "127.0.0.1",
            "spark.cores.max": 2,
        },
    }
    made.mkdir(parents=True)
    (made / "pipeline.yaml").write_text(yaml.safe_dump(settings))
    script = TRANSFORM.replace("FILE", repr(str(folder / "arguments"))).replace("CRASHES", str(name == "crashes"))
    (made / "transform.py").write_text(script)
    (made / "expectations.yaml").write_text(EXPECTATIONS)


def run(folder: Path, master: str, names: list[str]) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "FENCEPOST_PIPELINES": str(folder / "pipelines"),
        "FENCEPOST_REPORTS": str(folder / "reports"),
        "FENCEPOST_SPARK_MASTER": master,
        "KAFKA_PASSWORD": SECRET,
        "CLIENT_KEY": (folder / "client.key").read_text(),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    (folder / "events").mkdir()
    script = Path(__file__).with_name("run_in_one_session.py")
    return subprocess.run(
        [sys.executable, str(script), day(1).start.isoformat(), day(1).end.isoformat(), *names],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )


def test_one_run_publishes_and_the_other_crashes_on_an_executor(left: dict[str, str]) -> None:
    """And each place was looked at while there was something to see."""
    green, crashed = (json.loads(line) for line in left["the driver's stdout"].splitlines())
    assert (green["exit_code"], crashed["exit_code"]) == (0, 4), left["the driver's stdout"]
    assert "TransformFailed" in crashed["stdout"]
    assert "CoarseGrainedExecutorBackend" in left["arguments"]
    assert "kafka" in left["event log"]
    assert "Registering worker" in left["master and workers"]
    assert "Executor" in left["executors"]


@pytest.mark.parametrize("secret", [LEAK, KEY])
def test_no_secret_shows_anywhere(secret: str, left: dict[str, str]) -> None:
    for place, text in left.items():
        assert secret not in text, place


def test_the_drivers_streams_quote_no_record(left: dict[str, str]) -> None:
    assert MARKER not in left["the driver's stdout"] + left["the driver's stderr"]
