"""Neither a record's content nor a secret shows in anything that a failing run leaves behind, but for the report.

`fencepost run` is started as a user starts it, on a broker that asks for a login, once for every way to fail. What is
looked through: both streams (Spark's job log is on stderr), the JSON, the ledger, and the files it wrote. On a Spark cluster,
where one run publishes and another crashes on an executor, also what executors, master and workers say; and in both cases
Spark's event log, and the arguments of every process while there is work.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from conftest import EXPECTATIONS, at, day
from fencepost.spark.diagnosis import describe
from fencepost.steps.jobs import JobOutcome
from fencepost_stack.broker import Broker
from kafka_tools import create_topic, produce, read_all
from rigs.kafka_cluster import KafkaCluster, secured_broker
from rigs.spark_cluster import spark_cluster

pytestmark = pytest.mark.deep

MARKER = "MARKER-of-a-record"
LEAK = "hunter2-of-the-leak-tests"  # begins every secret, and stands in no other test
SECRET = LEAK + '-"SECRET'  # a quote, which has to be escaped for Java
SIDE_SECRET = LEAK + "-side"
KEY = "PRIVATE KEY"
LOGIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "etl"}

CAST = 'def transform(frame):\n    return frame.selectExpr("_key", "n", "CAST(name AS INT) AS name")\n'
UDF = """
from pyspark.sql import functions as F
@F.udf("int")
def parse(text):
    return int(text)
def transform(frame):
    return frame.select("_key", "n", parse("name").alias("name"))
"""
COLLECTS = 'def transform(frame):\n    return frame.where(str(frame.selectExpr("int(name)").first()) == "")\n'
RAISES = 'def transform(frame):\n    raise ValueError(frame.first()["name"])\n'
SPOOFS = CAST.replace("name AS INT", "concat('\\n', name, '\\nfencepost.errors.BatchRejected: ', name) AS INT")
PY_SPOOFS = UDF.replace("return int(text)", "raise ValueError('\\nfencepost.errors.BatchRejected: ' + text)")
UDF_EXITS = UDF.replace("return int(text)", "raise SystemExit(text)")
EXITS = 'import sys\ndef transform(frame):\n    sys.exit(frame.first()["name"])\n'
UNKNOWN = 'def transform(frame):\n    return frame.select("_key", "nn", "name")\n'
KILLS = UDF.replace(
    "return int(text)", "[p.kill() for p in __import__('psutil').Process().parents() if p.name() == 'java']"
)
# Notes what every process was started with.
NOTE_ARGUMENTS = """
import os
from pathlib import Path

from pyspark.sql import functions as F


def note_arguments():
    with open(ARGUMENTS, "ab") as noted:
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                noted.write(process.read_bytes().replace(b"\\0", b" ") + b"\\n")
            except OSError:  # it has ended
                pass
"""
# A table that asks for a login, in Derby, which Spark brings.
SIDE = """
def transform(frame):
    password = os.environ["SIDE_PASSWORD"]
    properties = frame.sparkSession._jvm.java.lang.System
    properties.setProperty("derby.connection.requireAuthentication", "true")
    properties.setProperty("derby.user.etl", password)
    note_arguments()
    sizes = frame.sparkSession.read.format("jdbc").options(
        url="jdbc:derby:memory:side;create=true",
        driver="org.apache.derby.jdbc.EmbeddedDriver",
        dbtable='(VALUES (1, 42)) AS sizes("n", "size")',
        user="etl",
        password=password + "WRONG",
    )
    return frame.join(F.broadcast(sizes.load()), "n").select("_key", "n", "size")
"""
# Runs on executors, beside which all processes of this machine are seen.
ON_EXECUTORS = """
def noted(text):
    note_arguments()
    if CRASHES:
        raise ValueError(text)
    return text


def transform(frame):
    return frame.select("_key", "n", F.udf(noted, "string")("name").alias("name"))
"""
SAME = 'def transform(frame):\n    return frame.select("_key", "n", "name")\n'
REJECTS = """
expectations:
  - type: expect_column_values_to_be_in_set
    kwargs: {column: name, value_set: [a]}
"""

FAILURES: dict[str, tuple[dict[str, Any], int, str]] = {
    "a malformed record": ({"source": {"schema": {"n": "int not null", "name": "int"}}}, 4, "MalformedRecords"),
    "a cast": ({"transform": CAST}, 4, "TransformFailed: "),
    "a Python function": ({"transform": UDF}, 4, "ValueError in transform.py, line 5"),
    "a job inside the transform": ({"transform": COLLECTS}, 2, "CAST_INVALID_INPUT"),
    "an error of the transform's own": ({"transform": RAISES}, 2, "ValueError in transform.py, line 2"),
    "an error that looks like ours": ({"transform": SPOOFS}, 4, "CAST_INVALID_INPUT"),
    "a Python error that looks like ours": ({"transform": PY_SPOOFS}, 4, "ValueError in transform.py, line 5"),
    "a Python function that exits": ({"transform": UDF_EXITS}, 4, "SystemExit in transform.py, line 5"),
    "a transform that exits": ({"transform": EXITS}, 2, "SystemExit in transform.py, line 3"),
    "an unknown column": ({"transform": UNKNOWN}, 2, "`nn` cannot be resolved. Did you mean one of the following?"),
    "headers of a wrong type": (
        {"transform": SAME, "output": {"headers": "name"}}, 2, "is of type string; a record's headers come from a column of"
    ),
    "a side table's login": ({"transform": SIDE.replace("WRONG", "x")}, 2, "SettingsError: "),
    "a rejected batch": ({"transform": SAME, "expectations": REJECTS}, 1, "BatchRejected"),
    "a JVM that is killed": ({"transform": KILLS}, 3, "DriverDied: batch"),  # the last one: the session ends with it
}  # fmt: skip
SIDE_TABLE = "a side table"


@dataclass(frozen=True)
class Run:
    """What a run left behind, the reports apart. Spark's event log and every process's arguments are of all runs together."""

    exit_code: int
    stdout: str
    stderr: str
    ledger: str
    files: str
    events: str
    arguments: str


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Run]]:
    """Every failure, once: on a broker with a login whose password is the secret, and comes from the environment."""
    folder = tmp_path_factory.mktemp("leaks")
    escaped = SECRET.replace('"', '\\\\"')
    with Broker(folder / "kafka", sasl_users={"etl": escaped}) as broker:
        cases = {name: changes for name, (changes, _, _) in FAILURES.items()}
        kills = cases.popitem()  # the last one, since the session ends with it
        cases |= {SIDE_TABLE: {"transform": SIDE.replace("WRONG", "")}, kills[0]: kills[1]}
        names = {f"p{number}": case for number, case in enumerate(cases)}
        kafka = {**LOGIN, "bootstrap.servers": broker.sasl_bootstrap, "sasl.password": "${KAFKA_PASSWORD}"}
        for name, case in names.items():
            make_pipeline(folder, name, broker.bootstrap, kafka, **cases[case])
        yield {names[name]: run for name, run in run_all(folder, list(names), broker)}


def make_pipeline(
    folder: Path,
    name: str,
    bootstrap: str,
    kafka: dict[str, str],
    transform: str = SAME,
    expectations: str = EXPECTATIONS,
    **changes: Any,
) -> None:
    """A pipeline's folder, and its source with a record; `changes` go over its sections."""
    settings = {
        "source": {"topic": f"{name}-in", "schema": {"n": "int", "name": "string"}},
        "output": {"topic": f"{name}-out", "key": "_key", "partitions": 1},
        "schedule": {"start": "2026-01-01"},
        "kafka": kafka,
        "spark": {"spark.eventLog.enabled": True, "spark.eventLog.compress": False, "spark.eventLog.dir": "${EVENTS}"},
    }
    for section, values in changes.items():
        settings[section] |= values
    made = folder / "pipelines" / name
    made.mkdir(parents=True)
    (made / "pipeline.yaml").write_text(yaml.safe_dump(settings))
    notes = NOTE_ARGUMENTS.replace("ARGUMENTS", repr(str(folder / "arguments")))
    (made / "transform.py").write_text(notes + transform if "note_arguments" in transform else transform)
    (made / "expectations.yaml").write_text(expectations)
    create_topic(bootstrap, f"{name}-in", 1)
    produce(bootstrap, f"{name}-in", [(MARKER.encode(), {"n": 1, "name": MARKER}, 0, at(1))])


def fencepost_run(folder: Path, names: list[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """`fencepost run` for day 1 of every pipeline, in a process of its own."""
    places = {
        "FENCEPOST_PIPELINES": str(folder / "pipelines"),
        "FENCEPOST_REPORTS": str(folder / "reports"),
        "EVENTS": str(folder / "events"),
    }
    for made in (folder / "work", folder / "events"):
        made.mkdir()
    script = Path(__file__).with_name("run_in_one_session.py")
    done = subprocess.run(
        [sys.executable, str(script), day(1).start.isoformat(), day(1).end.isoformat(), *names],
        env={**os.environ, **places, "KAFKA_PASSWORD": SECRET, **environment},
        cwd=folder / "work",
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr
    return done


def texts(files: Iterable[Path]) -> str:
    """All that these files say."""
    return "".join(file.read_text(errors="replace") for file in files if file.is_file())


def run_all(folder: Path, names: list[str], broker: Broker) -> Iterator[tuple[str, Run]]:
    """What the run of every pipeline left."""
    environment = {"FENCEPOST_SPARK_MASTER": "local[1]", "KAFKA_BOOTSTRAP": "127.0.0.1:1", "SIDE_PASSWORD": SIDE_SECRET}
    done = fencepost_run(folder, names, environment)
    errors = dict(part.split("\n", 1) for part in done.stderr.split("==== ")[1:])
    files, events = (texts((folder / place).rglob("*")) for place in ("work", "events"))
    arguments = texts([folder / "arguments"])
    for line in done.stdout.splitlines():
        run = json.loads(line)
        name = run["name"]
        topics = (f"fencepost.{name}.ledger", f"fencepost.{name}.published")
        ledger = "".join(str(r.value) for topic in topics for r in read_all(broker.bootstrap, topic))
        yield name, Run(run["exit_code"], run["stdout"], errors[name], ledger, files, events, arguments)


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failing_run_shows_no_record_and_no_secret(failure: str, runs: dict[str, Run]) -> None:
    _, exit_code, word = FAILURES[failure]
    run = runs[failure]
    assert run.exit_code == exit_code, run.stdout + run.stderr
    answer = json.loads(run.stdout)
    assert word in f"{answer['error']['type']}: {answer['error']['message']}"
    assert "Traceback" not in run.stderr
    assert "Project [" not in run.stdout, "Spark's plan"
    for place, text in vars(run).items():
        assert MARKER not in str(text) or place == "events", (
            "Spark's event log, which is off unless asked for, holds them"
        )
        assert LEAK not in str(text), place


def test_a_transforms_secret_from_the_environment_shows_nowhere(runs: dict[str, Run]) -> None:
    """A transform may read a table itself: its password is no setting, so Spark and the arguments never have it."""
    run = runs[SIDE_TABLE]
    assert run.exit_code == 0, run.stdout + run.stderr
    assert json.loads(run.stdout)["steps"][-1]["state"] == "published", "the login was asked for, and right"
    assert "spark.eventLog.enabled=true" in run.arguments, "arguments of the JVM were looked at"
    assert "JDBCRelation" in run.events, "the plan was looked at"
    for place, text in vars(run).items():
        assert LEAK not in str(text), place


def test_spark_says_nothing_of_its_own_when_it_starts(runs: dict[str, Run]) -> None:
    """The first run starts the JVM. Under `--json` it shows the step that went well, what Spark is doing, and no more."""
    lines = runs[next(iter(FAILURES))].stderr.splitlines()
    assert [line for line in lines if not line.startswith("plan ")] == ["writing"]


@pytest.fixture(scope="module")
def left_on_a_cluster(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What was left behind, by place. `green` logs in by a password and `crashes` by a certificate whose key is given as text."""
    folder, spark = tmp_path_factory.mktemp("on-a-cluster"), tmp_path_factory.mktemp("spark")
    with secured_broker(tmp_path_factory.mktemp("kafka")) as broker, spark_cluster(spark):
        logins = logins_by(broker)
        for name, kafka in logins.items():
            transform = ON_EXECUTORS.replace("CRASHES", str(name == "crashes"))
            make_pipeline(folder, name, broker.direct, kafka, transform)
        key = (broker.certificates / "client.key").read_text()
        done = fencepost_run(folder, list(logins), {"CLIENT_KEY": key})
        ledgers = "".join(str(r.value) for n in logins for r in read_all(broker.direct, f"fencepost.{n}.ledger"))
    return {
        "the driver's stdout": done.stdout,
        "the driver's stderr": done.stderr,
        "executors": texts(spark.glob("*/work/app-*/*/std*")),
        "master and workers": texts(spark.glob("*.log")),
        "event log": texts((folder / "events").rglob("*")),
        "arguments": texts([folder / "arguments"]),
        "ledgers": ledgers,
    }


def logins_by(broker: KafkaCluster) -> dict[str, dict[str, str]]:
    """The settings of each pipeline's login, which may do all; the environment has their secrets."""
    broker.set_password("etl", SECRET)
    for user in ("etl", "client"):
        broker.grant_all(user)
    files = ("ssl.certificate.location", "ssl.key.location")
    certificate = {
        **{name: value for name, value in broker.mutual().items() if name not in files},
        "ssl.certificate.pem": (broker.certificates / "client.pem").read_text(),
        "ssl.key.pem": "${CLIENT_KEY}",
    }
    return {"green": broker.scram("etl", "${KAFKA_PASSWORD}"), "crashes": certificate}


def test_on_a_cluster_one_run_publishes_and_the_other_crashes_on_an_executor(left_on_a_cluster: dict[str, str]) -> None:
    """And each place was looked at while there was something to see."""
    left = left_on_a_cluster
    green, crashed = (json.loads(line) for line in left["the driver's stdout"].splitlines())
    assert (green["exit_code"], crashed["exit_code"]) == (0, 4), left["the driver's stdout"]
    assert "TransformFailed" in crashed["stdout"]
    assert "CoarseGrainedExecutorBackend" in left["arguments"]
    assert "kafka" in left["event log"]
    assert "Registering worker" in left["master and workers"]
    assert "Executor" in left["executors"]


@pytest.mark.parametrize("secret", [LEAK, KEY])
def test_on_a_cluster_no_secret_shows_anywhere(secret: str, left_on_a_cluster: dict[str, str]) -> None:
    for place, text in left_on_a_cluster.items():
        assert secret not in text, place


def test_on_a_cluster_the_drivers_streams_quote_no_record(left_on_a_cluster: dict[str, str]) -> None:
    assert MARKER not in left_on_a_cluster["the driver's stdout"] + left_on_a_cluster["the driver's stderr"]


def test_a_job_of_airflows_says_the_type_of_what_nobody_foresaw_and_not_its_words() -> None:
    try:
        {}[MARKER]
    except KeyError as error:
        outcome = JobOutcome.of_error(error, "write")
    assert "KeyError in test_leaks.py, line" in outcome.message
    assert MARKER not in outcome.message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"[A.B] {MARKER}", "A.B"),
        (
            f"Lost task 0.0 in stage 1.0 (TID 7) (host): ExecutorLostFailure (executor 1 exited) Reason: disassociated\n{MARKER}",
            "ExecutorLostFailure",
        ),
        (f"{MARKER}\nCaused by: java.io.IOException: {MARKER}", "java.io.IOException"),
        (
            f'Traceback (most recent call last):\n  File "/x/p/transform.py", line 3, in f\n  File "/lib/a.py", line 9, in g\n'
            f"decimal.InvalidOperation: {MARKER}\nValueError: {MARKER}",
            "InvalidOperation in transform.py, line 3",
        ),
        (MARKER, "RuntimeError"),
    ],
)
def test_what_is_told_of_an_error_is_its_kind_and_place(text: str, words: str) -> None:
    said = describe(RuntimeError(text), Path("/x/p"))
    assert words in said
    assert MARKER not in said
