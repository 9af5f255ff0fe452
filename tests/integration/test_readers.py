"""The readers in `examples/`, which know nothing of Fencepost, as a reader runs them: they end up with what counts."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from conftest import at, day
from fencepost.config.pipeline import Pipeline
from fencepost.jars import java
from fencepost.ledger.deployment import Deployment
from fencepost.ledger.ledger import Ledger
from fencepost.model import State
from fencepost.steps.advance import skip_batch
from fencepost.steps.announce import announce_again
from fencepost.steps.plan import plan_batch
from fencepost_stack.broker import Broker
from fencepost_stack.jars import class_path
from fencepost_stack.state_folder import StateFolder
from integration.test_announcements import ABSOLUTE, KEEPING, RULE, TOLERANT, announced, delete
from kafka_tools import create_topic, produce, read_all
from makers import a_decision
from steps import replay, run

pytestmark = pytest.mark.deep

EXAMPLES = Path(__file__).parents[2] / "examples" / "readers"
NAMED_SO = """
def transform(frame):
    return frame.selectExpr("_key", "n", "name AS key", "name AS interval", "10 AS revision", "true AS is_tombstone")
"""
Make = Callable[..., Pipeline]


class Java:
    """`PublishedBatches.java`, from its one source file."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.settings = folder / "batches", folder / "client.properties"

    def command(self, pipeline: str) -> list[str]:
        jars = class_path(StateFolder.default().jars_kafka)
        file = str(EXAMPLES / "PublishedBatches.java")
        return [java(), "-cp", jars, file, str(self.settings), pipeline, str(self.folder)]

    def rows(self) -> list[Any]:
        files = sorted(self.folder.glob("*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()[1:]]


class Pandas:
    """`published_batches.py`."""

    def __init__(self, folder: Path) -> None:
        self.database, self.settings = folder / "batches.sqlite", folder / "client.properties"

    def command(self, pipeline: str) -> list[str]:
        return [
            sys.executable,
            str(EXAMPLES / "published_batches.py"),
            str(self.settings),
            pipeline,
            str(self.database),
        ]

    def rows(self) -> list[Any]:
        with sqlite3.connect(self.database) as database:
            found = database.execute("SELECT n, doubled, name FROM rows")
            return [dict(zip(("n", "doubled", "name"), row, strict=True)) for row in found]


@pytest.fixture(params=[Java, Pandas])
def reader(request: pytest.FixtureRequest, tmp_path: Path, broker: Broker) -> Any:
    made = request.param(tmp_path)
    made.settings.write_text(f"bootstrap.servers={broker.bootstrap}\n")
    return made


def read(reader: Any, pipeline: Pipeline, *, fails: str = "") -> None:
    check_said(reader.command(pipeline.name), fails)


def check_said(command: list[str], fails: str) -> None:
    """A failure is one line for a person."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == (1 if fails else 0), done.stdout + done.stderr
    assert fails in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception in" not in done.stderr


def fill(broker: Broker, pipeline: Pipeline) -> None:
    """Six records of each of two days, of which the first is for quarantine."""
    create_topic(broker.bootstrap, pipeline.source.topic, 2)
    for number in (1, 2):
        source = [(f"k{n}".encode(), {"n": n - 1, "name": "x"}, n % 2, at(number) + n) for n in range(6)]
        produce(broker.bootstrap, pipeline.source.topic, source)


def counted(rows: list[Any]) -> Counter[tuple[int, int]]:
    return Counter((row["n"], row["doubled"]) for row in rows)


def in_force(pipeline: Pipeline) -> Counter[tuple[int, int]]:
    """What the ledger has in force, by plain reading: an oracle that knows no announcement."""
    batches = {str(b.id) for b in Ledger(pipeline).read().all() if b.state is State.PUBLISHED}
    bootstrap = Deployment.of(pipeline).cluster.settings.bootstrap
    return counted([r.json for r in read_all(bootstrap, pipeline.output.name) if r.batch in batches])


def test_a_reader_has_what_counts_after_each_decision_and_reads_nothing_twice(
    spark: Any, broker: Broker, make_pipeline: Make, reader: Any
) -> None:
    """Published, added to, reprocessed, skipped; an old interval that is reprocessed after a newer one; a lost topic."""
    made = make_pipeline(KEEPING, RULE, quality=TOLERANT)
    fill(broker, made)
    run(spark, made, day(1))
    read(reader, made)
    assert counted(reader.rows()) == in_force(made) == Counter({(n, 2 * n): 1 for n in range(5)})
    fixed = make_pipeline(ABSOLUTE, RULE, name=made.name, quality=TOLERANT)
    replay(spark, fixed, day(1))
    run(spark, fixed, day(2))
    read(reader, fixed)
    assert counted(reader.rows()) == in_force(fixed)
    assert sum(in_force(fixed).values()) == 12
    run(spark, fixed, day(1), reprocess=True)
    plan_batch(fixed, day(3))
    skip_batch(fixed, day(3), a_decision("skip"))
    for _ in range(2):
        read(reader, fixed)
        assert counted(reader.rows()) == in_force(fixed)
    delete(fixed)
    announce_again(fixed)
    assert len(announced(fixed)) == 5
    before = counted(reader.rows())
    read(reader, fixed, fails="was created again")
    assert counted(reader.rows()) == before, "and keeps what it has"


def test_a_reader_that_dies_in_the_middle_goes_on_where_its_result_is(
    spark: Any, broker: Broker, make_pipeline: Make, reader: Any, tmp_path: Path
) -> None:
    """A record of the second batch is gone, so the reader fails there; what it has read before stays, with its position."""
    made = make_pipeline(KEEPING, RULE, quality=TOLERANT, output={"partitions": 1})
    create_topic(broker.bootstrap, made.source.topic, 1)
    for number in (1, 2):
        produce(broker.bootstrap, made.source.topic, [(b"k", {"n": number, "name": "x"}, 0, at(number))])
        run(spark, made, day(number))
    told = [r.json for r in announced(made)]
    wrong = json.dumps({**told[1], "rows": 2}).encode()
    other = made.model_copy(update={"name": f"{made.name}x"})
    create_topic(broker.bootstrap, other.announcements_topic, 1)
    produce(broker.bootstrap, other.announcements_topic, [(b"k", told[0], 0, at(1)), (b"k", wrong, 0, at(1))])
    read(reader, other, fails="1 of its 2 records are there")
    assert counted(reader.rows()) == Counter({(1, 2): 1})
    read(reader, other, fails="1 of its 2 records are there")
    assert counted(reader.rows()) == Counter({(1, 2): 1}), "read once"


def test_what_a_reader_cannot_read_is_said_in_a_line(broker: Broker, make_pipeline: Make, reader: Any) -> None:
    """A mistyped name, no arguments, a file that is not there, settings of no use, and a batch of another format."""
    made = make_pipeline(KEEPING, RULE)
    command = reader.command(made.name)
    check_said(command, f"topic fencepost.{made.name}.published")
    check_said(command[: command.index(str(reader.settings))], "usage: ")
    check_said(
        [str(reader.settings) + "x" if one == str(reader.settings) else one for one in command], "client.propertiesx: "
    )
    batch = {
        "batch": "b",
        "format": "avro",
        "header": "h",
        "kind": "topic",
        "output": "t",
        "rows": 1,
        "ranges": {"0": [0, 1]},
    }
    one = {"version": 1, "state": "published", "interval": {"start": "s"}, "adds_to": None, "columns": [], **batch}
    create_topic(broker.bootstrap, made.announcements_topic, 1)
    produce(broker.bootstrap, made.announcements_topic, [(b"k", one, 0, at(1))])
    check_said(command, "b: its values are of format avro, and this reader takes json")
    reader.settings.write_text("security.protocol=SASL_PLAINTEXT\nbootstrap.servers=127.0.0.1:1\n")
    check_said(command, "client.properties: ")


def test_the_newest_value_of_a_key_is_that_of_the_newest_interval_whatever_was_written_last(
    spark: Any, broker: Broker, make_pipeline: Make, tmp_path: Path
) -> None:
    """An old interval is reprocessed after a newer one: its record lies behind the newer one's, as compaction would keep it.

    The output has columns called as what the reader keeps beside them."""
    reader = Pandas(tmp_path)
    reader.settings.write_text(f"bootstrap.servers={broker.bootstrap}\n")
    made = make_pipeline(NAMED_SO, output={"partitions": 1})
    create_topic(broker.bootstrap, made.source.topic, 1)
    for number in (1, 2):
        produce(broker.bootstrap, made.source.topic, [(b"k", {"n": number, "name": "x"}, 0, at(number))])
        run(spark, made, day(number))
    run(spark, made, day(1), reprocess=True)
    assert [r.json["n"] for r in read_all(broker.bootstrap, made.output.name)] == [1, 2, 1]
    read(reader, made)
    with closing(sqlite3.connect(reader.database)) as database:
        assert database.execute("SELECT _key, n, key, interval FROM newest").fetchall() == [(b"k", 2, "x", "x")]
        assert database.execute("SELECT n, _revision FROM rows ORDER BY n").fetchall() == [(1, 2), (2, 1)]
