"""Beside Flink: the job's SQL, and a connector that is not the pinned one. No Kafka, no Flink."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from confluent_kafka import KafkaError

import benchmarks.flink
from benchmarks import read_back
from benchmarks.cases import CASES, ON_REQUEST, beside_flink
from benchmarks.cases.beside_flink import Job, check_output, found_in
from benchmarks.cases.gate import SCHEMA
from benchmarks.cases.jobs import java_producer, sink_options
from benchmarks.data import Source
from benchmarks.flink import REQUIREMENTS, Flink
from benchmarks.flink_sql import flink_type, options, statements
from benchmarks.read_back import contents_of
from fencepost.model import OffsetRange

SOURCE = Source(
    "in",
    12,
    (OffsetRange(topic="in", partition=0, start=3, end=10), OffsetRange(topic="in", partition=1, start=0, end=5)),
)
JAR = b"a jar"


def sql(columns: dict[str, str] | None = None) -> tuple[str, str, str]:
    """The two tables and the insert."""
    *_, source, output, insert = statements("here:9092", SOURCE, "out", "p/day/1", java_producer(), columns)
    return source, output, insert


def test_flink_reads_exactly_the_ranges_of_the_plan() -> None:
    source = sql()[0]
    assert "'scan.startup.specific-offsets' = 'partition:0,offset:3;partition:1,offset:0'" in source
    assert "'scan.bounded.specific-offsets' = 'partition:0,offset:10;partition:1,offset:5'" in source
    assert "'properties.isolation.level' = 'read_committed'" in source


def test_flink_writes_exactly_once_with_the_producer_settings_of_fencepost() -> None:
    output = sql()[1]
    assert "'sink.delivery-guarantee' = 'exactly-once'" in output
    assert "'sink.transactional-id-prefix' = 'out'" in output
    assert "'properties.compression.type' = 'lz4'" in output
    for name, value in sink_options().items():
        assert f"'properties.{name.removeprefix('kafka.')}' = '{value}'" in output


def test_every_record_of_flink_has_a_header_and_empty_values_are_left_out() -> None:
    assert sql()[2] == (
        "INSERT INTO output SELECT `_key`, `value`, MAP['fencepost-batch', CAST('p/day/1' AS BYTES)] "
        "FROM source WHERE `value` <> X''"
    )


def test_json_has_the_columns_of_the_pipeline_in_flinks_types() -> None:
    source, output, insert = sql(SCHEMA)
    for table in (source, output):
        assert "'value.format' = 'json'" in table
        assert re.findall(r"`(\w+)`", table)[: len(SCHEMA) + 1] == ["_key", *SCHEMA]
    assert "WHERE" not in insert
    assert flink_type("bigint not null") == "BIGINT NOT NULL"
    assert flink_type("timestamp") == "TIMESTAMP_LTZ(3)"


def test_a_quote_in_an_option_stays_inside_it() -> None:
    assert options({"a": "it's"}) == "'a' = 'it''s'"


def test_flink_is_installed_on_request_only() -> None:
    assert set(CASES) >= ON_REQUEST == {"B13"}


def test_every_package_of_flinks_environment_is_pinned_with_a_digest() -> None:
    entries = re.split(r"\n(?=[a-z])", re.sub(r"(?m)^#.*\n", "", REQUIREMENTS.read_text()))
    assert any(entry.startswith("apache-flink==") for entry in entries)
    for entry in entries:
        assert re.match(r"[\w.-]+==\S+ \\\n    --hash=sha256:[0-9a-f]{64}", entry), entry[:80]


HEADER = ("fencepost-batch", b"p/day/1")


class FakeMessage:
    """A record of the output, or the end of a partition."""

    def __init__(self, key: bytes = b"", value: bytes = b"", *headers: tuple[str, bytes], end: bool = False) -> None:
        self._parts, self._end = (key, value, list(headers)), end

    def key(self) -> bytes:
        return self._parts[0]

    def value(self) -> bytes:
        return self._parts[1]

    def headers(self) -> list[tuple[str, bytes]]:
        return self._parts[2]

    def error(self) -> KafkaError | None:
        return KafkaError(KafkaError._PARTITION_EOF) if self._end else None


def with_records(monkeypatch: pytest.MonkeyPatch, *records: FakeMessage) -> Any:
    """A bench whose topics have these committed records in one partition, which is read in this process."""
    messages = [*records, FakeMessage(end=True)]
    consumer = SimpleNamespace(assign=lambda _: None, consume=lambda *_: messages, close=lambda: None)
    monkeypatch.setattr(read_back, "Consumer", lambda *_, **__: consumer)
    monkeypatch.setattr(
        beside_flink, "contents", lambda server, topic, _, **what: contents_of(server, topic, 0, **what)
    )
    return SimpleNamespace(broker=SimpleNamespace(bootstrap="here:9092"))


def test_an_output_must_have_all_records_once_with_the_batchs_header(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two, twice = (FakeMessage(key, b"v", HEADER) for key in (b"1", b"2", b"2"))
    source = found_in(with_records(monkeypatch, FakeMessage(b"2", b"v"), FakeMessage(b"1", b"v")), "in")
    job = Job(SOURCE, "some", source)
    check_output(with_records(monkeypatch, one, two), job, "out", "p/day/1")
    for wrong in ([one], [one, two, twice], [two, twice], [one, FakeMessage(b"2", b"w", HEADER)]):
        with pytest.raises(RuntimeError, match="other records than its source"):
            check_output(with_records(monkeypatch, *wrong), job, "out", "p/day/1")
    for headers in ([], [("fencepost-batch", b"p/day/2")], [HEADER, HEADER]):
        with pytest.raises(RuntimeError, match="a record has the headers"):
            check_output(with_records(monkeypatch, one, FakeMessage(b"2", b"v", *headers)), job, "out", "p/day/1")


FAKE_JOB = """
import json, subprocess, sys
sys.stdin.readline()
for line in sys.stdin:
    for statement in json.loads(line):
        if statement == "FAIL":
            sys.exit("no such table")
        if statement == "LEAVE":  # a process that does not end with this one
            subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], stdout=subprocess.DEVNULL)
    print("done", flush=True)
"""


@pytest.fixture
def flink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Flink:
    """Flink with a script that answers as the real one does."""
    script = tmp_path / "job.py"
    script.write_text(FAKE_JOB)
    monkeypatch.setattr(benchmarks.flink, "SCRIPT", script)
    monkeypatch.setattr(benchmarks.flink, "ENDS", 0.1)
    return Flink(Path(sys.executable), tmp_path / "flink", 2)


def test_a_session_runs_many_jobs_and_leaves_no_process(flink: Flink) -> None:
    with flink.session() as session:
        session.run([])
        session.run(["SELECT 1", "LEAVE"])
        family = [psutil.Process(session.pid), *psutil.Process(session.pid).children()]
        assert len(family) == 2
    assert psutil.wait_procs(family, 10)[1] == []


def test_a_job_that_fails_is_an_error_with_the_log(flink: Flink) -> None:
    with flink.session() as session, pytest.raises(RuntimeError, match="no such table"):
        session.run(["FAIL"])
    with pytest.raises(RuntimeError, match="no such table"):
        flink.run_once(["FAIL"])
    flink.run_once(["SELECT 1"])
