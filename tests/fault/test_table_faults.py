"""A publication to a table is struck at every step, and its server too; then it is run again. The table has each row once.

What is in the table afterwards is compared row by row with what the source has. Most cases are of the crash matrix; one of each
kind is in `make test`.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg2
import pytest

from conftest import day
from fencepost.config.pipeline import Pipeline
from fencepost.doctor.inspection import Inspection
from fencepost.doctor.kafka import check_unfinished_batches
from fencepost.doctor.observed_state import observed_state
from fencepost.doctor.run_check import run_check
from fencepost.doctor.topics import check_topics_of_batches
from fencepost.errors import FencepostError, Superseded, TableUnavailable
from fencepost.ledger.deployment import Deployment
from fencepost.model import State
from fencepost.outputs.output import missing_of, output_of
from fencepost.outputs.postgres import lock
from fencepost.outputs.postgres.doctor import check_table_contents, check_table_publications
from fencepost.postgres import connection
from fencepost.steps.advance import advance_batch, begin_batch
from fencepost.steps.obstacle import give_up
from rigs.postgres_server import PostgresServer, query
from steps import latest, run
from tables import ask, judged, numbers_in, of_revision, store_of
from waiting import await_true

from .conftest import finished

Make = Callable[..., Pipeline]
Start = Callable[..., subprocess.Popen[str]]
Started = Callable[[Pipeline, str], tuple[subprocess.Popen[str], Path]]

SLOW = pytest.mark.fault
PLACES = ["advance.begun", "table.locked", "table.copied", "table.committed", "advance.copied", "advance.answered@2"]


@pytest.fixture
def ready(spark: Any, broker: Any, make_table: Make) -> Pipeline:
    """A pipeline with a batch that has passed."""
    return judged(spark, broker, make_table())


@pytest.fixture
def started(start_step: Start, tmp_path: Path) -> Started:
    """Start the step advance in a process of its own, with a failpoint armed; it, and where it says that it is struck."""

    def start(pipeline: Pipeline, failpoint: str) -> tuple[subprocess.Popen[str], Path]:
        struck = tmp_path / "struck"
        struck.mkdir()
        return start_step(SimpleNamespace(pipeline=pipeline, struck=struck), "advance", failpoint), struck

    return start


def pid_of(struck: Path, process: subprocess.Popen[str]) -> int:
    """The struck process, once it is struck."""

    def found() -> bool:
        assert process.poll() is None or list(struck.iterdir()), process.communicate()
        return any(file.read_text() for file in struck.iterdir())

    await_true(found, "the failpoint to strike", 120)
    return int(next(struck.iterdir()).read_text())


@pytest.mark.parametrize(
    ("place", "action"),
    [
        pytest.param("table.copied", "kill", marks=pytest.mark.deep),
        ("table.committed", "kill"),
        *(pytest.param(place, "kill", marks=SLOW) for place in PLACES if place not in {"table.copied", "table.committed"}),
        *(pytest.param(place, "raise", marks=SLOW) for place in PLACES),
    ],
)  # fmt: skip
def test_a_publication_struck_anywhere_is_in_the_table_once(
    ready: Pipeline, started: Started, place: str, action: str
) -> None:
    process, _ = started(ready, f"{place}={action}")
    code, said = finished(process)
    assert code != 0, said
    committed = PLACES.index(place) >= PLACES.index("table.committed")
    assert numbers_in(ready) == (of_revision(1, range(6)) if committed else [])
    assert advance_batch(ready, day(1)).state is State.PUBLISHED
    assert numbers_in(ready) == of_revision(1, range(6))


@pytest.mark.parametrize(
    "place",
    [
        pytest.param("table.staged", marks=pytest.mark.deep),
        *(pytest.param(place, marks=SLOW) for place in ("table.copied", "table.committed")),
    ],
)
def test_a_publication_through_a_temporary_table_is_in_the_table_once_wherever_it_is_killed(
    spark: Any, broker: Any, make_table: Make, started: Started, place: str
) -> None:
    pipeline = make_table()
    own = "fencepost_interval timestamptz, fencepost_revision integer"
    ask(pipeline, f"create table numbers (n integer, doubled integer, name varchar(9), {own})")
    ready = judged(spark, broker, pipeline)
    process, _ = started(ready, f"{place}=kill")
    code, said = finished(process)
    assert code != 0, said
    assert numbers_in(ready) == (of_revision(1, range(6)) if place == "table.committed" else [])
    left = "select count(*) from pg_class where relname = 'fencepost_staged'"
    await_true(lambda: ask(ready, left) == [(0,)], "the killed session to leave no table", 120)
    assert advance_batch(ready, day(1)).state is State.PUBLISHED
    assert numbers_in(ready) == of_revision(1, range(6))


@pytest.mark.parametrize(
    "place",
    [
        pytest.param("table.copied", marks=pytest.mark.deep),
        *(pytest.param(p, marks=SLOW) for p in ("table.locked", "advance.begun")),
    ],
)
def test_a_stopped_publisher_that_holds_the_lock_is_ended_and_finds_itself_overtaken(
    ready: Pipeline, started: Started, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """It holds its locks against every time-out; whoever waits ends its session, and publishes."""
    monkeypatch.setattr(connection, "LOCK_SECONDS", 1.0)
    monkeypatch.setattr(lock, "session", partial(connection.session, wait=1.0))
    process, struck = started(ready, f"{place}=stop")
    pid = pid_of(struck, process)
    assert advance_batch(ready, day(1)).state is State.PUBLISHED
    os.kill(pid, signal.SIGCONT)
    code, said = finished(process)
    assert code in {0, 3}, said
    assert numbers_in(ready) == of_revision(1, range(6))


def test_who_only_asks_leaves_a_publication_that_holds_the_lock_alone(
    ready: Pipeline, started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The doctor, `status` and a page ask beside it, however often; it goes on and commits."""
    monkeypatch.setattr(lock, "session", partial(connection.session, wait=0.1))
    process, struck = started(ready, "table.locked=stop")
    pid = pid_of(struck, process)
    for _ in range(lock.PATIENCE + 1):
        look = Inspection(ready)
        (unfinished,), (topics,) = run_check(check_unfinished_batches, look), run_check(check_topics_of_batches, look)
        assert (unfinished.found, topics.level) == ("1 batch is under way", "ok")
        (under_way,) = run_check(check_table_publications, look)
        assert f"a publication of batch {latest(ready, day(1)).id} is under way, in session" in under_way.found
        (contents,) = run_check(check_table_contents, look)
        assert contents.level == "ok"
        assert missing_of(Deployment.of(ready)) == ""
    os.kill(pid, signal.SIGCONT)
    code, said = finished(process)
    assert code == 0, said
    assert numbers_in(ready) == of_revision(1, range(6))
    (none,) = run_check(check_table_publications, Inspection(ready))
    assert none.found == "no publication is under way"


@pytest.mark.parametrize("place", ["table.copied", pytest.param("table.locked", marks=SLOW)])
def test_a_server_that_is_killed_in_the_middle_and_starts_again_has_all_or_nothing(
    spark: Any, broker: Any, make_table: Make, started: Started, tmp_path: Path, place: str
) -> None:
    (tmp_path / "own").mkdir()
    with PostgresServer(tmp_path / "own" / "pg") as server:
        pipeline = judged(spark, broker, make_table(postgres=server.database()))
        process, struck = started(pipeline, f"{place}=stop")
        pid = pid_of(struck, process)
        server.kill()
        os.kill(pid, signal.SIGCONT)
        code, said = finished(process)
        assert code == 3, said
        assert numbers_in(pipeline) == []
        assert advance_batch(pipeline, day(1)).state is State.PUBLISHED
        server.kill()
        assert numbers_in(pipeline) == of_revision(1, range(6)), "what was committed stays"


def test_two_publishers_at_once_commit_once(ready: Pipeline) -> None:
    begin_batch(ready, day(1))

    def publish(_: int) -> str:
        try:
            return str(advance_batch(ready, day(1)).state)
        except FencepostError as error:
            return type(error).__name__

    with ThreadPoolExecutor(2) as both:
        assert set(both.map(publish, range(2))) == {"published"}
    assert numbers_in(ready) == of_revision(1, range(6))


def test_a_commit_that_was_under_way_when_the_publication_was_given_up_is_refused(
    ready: Pipeline, started: Started
) -> None:
    """It is stopped before it locks the row; then the publication is given up, and it goes on."""
    process, struck = started(ready, "advance.begun=stop")
    pid = pid_of(struck, process)
    deployment, held = Deployment.of(ready), latest(ready, day(1))
    deployment.ledger.read()
    assert give_up(deployment, held, observed_state(deployment, held)) is not None
    os.kill(pid, signal.SIGCONT)
    code, said = finished(process)
    assert code == 4, said
    assert numbers_in(ready) == []


@pytest.mark.fault
def test_a_zombie_of_an_older_lease_never_takes_a_newer_revisions_place(
    spark: Any, ready: Pipeline, started: Started
) -> None:
    process, struck = started(ready, "advance.begun=stop")
    pid = pid_of(struck, process)
    zombie = latest(ready, day(1))
    assert advance_batch(ready, day(1)).state is State.PUBLISHED
    assert run(spark, ready, day(1), reprocess=True).revision == 2
    os.kill(pid, signal.SIGCONT)
    finished(process)
    with pytest.raises(Superseded):
        output_of(Deployment.of(ready), zombie).publish(zombie, None)
    assert numbers_in(ready) == of_revision(2, range(6))


@pytest.mark.fault
def test_beside_a_vacuum_full_a_publication_waits_or_is_tried_again(
    ready: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "session", partial(connection.session, wait=1.0))
    with closing(psycopg2.connect(**store_of(ready))) as other, other.cursor() as cursor:
        cursor.execute("lock table numbers in access exclusive mode")  # what VACUUM FULL holds
        with pytest.raises(TableUnavailable, match="Another session holds a lock"):
            advance_batch(ready, day(1))
    query(store_of(ready), "vacuum full numbers")
    assert advance_batch(ready, day(1)).state is State.PUBLISHED
    assert numbers_in(ready) == of_revision(1, range(6))
