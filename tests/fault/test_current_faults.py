"""A publication with a current table is struck at every step; then it is run again. Both tables are as if it never was.

The history is compared row by row with what the source has, and the current table with `DISTINCT ON` over the history, after
the strike and at the end.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conftest import day
from fencepost.config.pipeline import Pipeline
from fencepost.doctor.observed_state import observed_state
from fencepost.ledger.deployment import Deployment
from fencepost.model import State
from fencepost.outputs.postgres import lock
from fencepost.postgres import connection
from fencepost.steps.advance import advance_batch
from fencepost.steps.obstacle import give_up
from fencepost.steps.validate import validate_batch
from rigs.postgres_server import PostgresServer
from steps import latest, plan_and_write, run
from tables import ask, fill

from .conftest import finished
from .test_table_faults import pid_of

Make = Callable[..., Pipeline]
Started = Callable[[Pipeline, str], tuple[subprocess.Popen[str], Path]]
Ready = Callable[..., Pipeline]

SLOW = pytest.mark.fault
PLACES = [
    "table.locked",
    "current.locked",
    "current.deleted",
    "current.changed",
    "table.copied",
    "table.committed",
    "advance.copied",
]
# Number n is position n of key n mod 3; 4, 9, 14, … say that their key is deleted.
CHANGES = """
def transform(frame):
    return frame.selectExpr("n % 3 AS id", "n AS pos", "n % 5 = 4 AS gone", "name")
"""
CURRENT = {"table": "newest", "key": ["id"], "order_by": ["pos"], "deleted": "gone"}
FIRST, SECOND = range(10, 16), range(4)
BEFORE, AFTER = (
    [(0, 15), (1, 13)],
    [(0, 3), (1, 1), (2, 2)],
)  # the newest position of each key; that of key 2, 14, is gone
NO_SUITE = "expectations: [{type: expect_column_values_to_not_be_null, kwargs: {column: pos}}]\n"


@pytest.fixture
def ready(spark: Any, broker: Any, make_table: Make) -> Ready:
    """A pipeline with a published day, and a revision of it that has other records and has passed."""

    def make(**changes: Any) -> Pipeline:
        pipeline = make_table(CHANGES, NO_SUITE, output={"current": CURRENT}, **changes)
        fill(broker, pipeline, SECOND)
        fill(broker, pipeline, FIRST, number=2)
        for number in (1, 2):
            assert run(spark, pipeline, day(number)).state is State.PUBLISHED
        (pipeline.folder / "transform.py").write_text(CHANGES.replace("return frame", "return frame.where('n < 0')"))
        plan_and_write(spark, pipeline, day(2), reprocess=True)
        validate_batch(spark, pipeline, day(2))
        assert newest(pipeline) == BEFORE
        return pipeline

    return make


@pytest.fixture
def started(start_step: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> Started:
    """Start the step advance of day 2 in a process of its own, with a failpoint armed; it, and where it says it is struck."""

    def start(pipeline: Pipeline, failpoint: str) -> tuple[subprocess.Popen[str], Path]:
        struck = tmp_path / "struck"
        struck.mkdir()
        return start_step(SimpleNamespace(pipeline=pipeline, struck=struck), "advance", failpoint, 2), struck

    return start


def newest(pipeline: Pipeline) -> list[tuple[int, int]]:
    """Key and position in the current table, which is checked against the history."""
    there = ask(pipeline, "select id, pos, name from newest order by 1, 2, 3")
    assert there == ask(
        pipeline,
        "select id, pos, name from (select distinct on (id) * from numbers order by id, pos desc) as n where not gone order by 1",
    )
    return [(key, position) for key, position, _ in there]


def positions(pipeline: Pipeline) -> list[int]:
    """The history."""
    return [n for (n,) in ask(pipeline, "select pos from numbers order by 1")]


@pytest.mark.parametrize(
    ("place", "action"),
    [
        ("current.deleted", "kill"),
        pytest.param("current.locked", "kill", marks=pytest.mark.deep),
        *(
            pytest.param(place, "kill", marks=SLOW)
            for place in PLACES
            if place not in {"current.deleted", "current.locked"}
        ),
        *(pytest.param(place, "raise", marks=SLOW) for place in PLACES),
    ],
)
def test_a_publication_struck_anywhere_has_changed_both_tables_or_neither(
    ready: Ready, started: Started, place: str, action: str
) -> None:
    pipeline = ready()
    process, _ = started(pipeline, f"{place}={action}")
    code, said = finished(process)
    assert code != 0, said
    committed = PLACES.index(place) >= PLACES.index("table.committed")
    assert (newest(pipeline), positions(pipeline)) == ((AFTER, [*SECOND]) if committed else (BEFORE, [*SECOND, *FIRST]))
    result = advance_batch(pipeline, day(2))
    assert result.state is State.PUBLISHED
    assert result.message.endswith("current table public.newest: of 3 keys 0 deleted, 3 changed, 0 as before")
    assert result.details["current"] == {"table": "public.newest", "deleted": 0, "changed": 3, "same": 0}
    assert (newest(pipeline), positions(pipeline)) == (AFTER, [*SECOND])


@pytest.mark.parametrize(
    "place", ["current.locked", *(pytest.param(p, marks=SLOW) for p in ("current.changed", "table.locked"))]
)
def test_a_stopped_publisher_that_holds_the_current_tables_lock_is_ended_and_finds_itself_overtaken(
    ready: Ready, started: Started, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    pipeline = ready()
    monkeypatch.setattr(lock, "session", partial(connection.session, wait=1.0))
    process, struck = started(pipeline, f"{place}=stop")
    pid = pid_of(struck, process)
    assert advance_batch(pipeline, day(2)).state is State.PUBLISHED
    os.kill(pid, signal.SIGCONT)
    code, said = finished(process)
    assert code in {0, 3}, said
    assert (newest(pipeline), positions(pipeline)) == (AFTER, [*SECOND])


def test_another_interval_ends_a_stopped_holder_and_the_stopped_one_commits_later(
    spark: Any, broker: Any, ready: Ready, started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = ready()
    (pipeline.folder / "transform.py").write_text(CHANGES)
    fill(broker, pipeline, [20], number=3)
    plan_and_write(spark, pipeline, day(3))
    validate_batch(spark, pipeline, day(3))
    monkeypatch.setattr(lock, "session", partial(connection.session, wait=1.0))
    process, struck = started(pipeline, "current.locked=stop")
    pid = pid_of(struck, process)
    assert advance_batch(pipeline, day(3)).state is State.PUBLISHED
    assert newest(pipeline) == [*BEFORE, (2, 20)]
    os.kill(pid, signal.SIGCONT)
    code, said = finished(process)
    assert code == 3, said
    assert advance_batch(pipeline, day(2)).state is State.PUBLISHED
    assert newest(pipeline) == [(0, 3), (1, 1), (2, 20)]


@pytest.mark.fault
def test_a_publication_that_was_given_up_never_touches_the_current_table(ready: Ready, started: Started) -> None:
    pipeline = ready()
    process, struck = started(pipeline, "advance.begun=stop")
    pid = pid_of(struck, process)
    deployment, held = Deployment.of(pipeline), latest(pipeline, day(2))
    deployment.ledger.read()
    assert give_up(deployment, held, observed_state(deployment, held)) is not None
    os.kill(pid, signal.SIGCONT)
    code, said = finished(process)
    assert code == 4, said
    assert (newest(pipeline), positions(pipeline)) == (BEFORE, [*SECOND, *FIRST])


@pytest.mark.fault
def test_a_server_that_is_killed_in_the_middle_has_changed_both_tables_or_neither(
    ready: Ready, started: Started, tmp_path: Path
) -> None:
    (tmp_path / "own").mkdir()
    with PostgresServer(tmp_path / "own" / "pg") as server:
        pipeline = ready(postgres=server.database())
        process, struck = started(pipeline, "current.changed=stop")
        pid = pid_of(struck, process)
        server.kill()
        os.kill(pid, signal.SIGCONT)
        code, said = finished(process)
        assert code == 3, said
        assert (newest(pipeline), positions(pipeline)) == (BEFORE, [*SECOND, *FIRST])
        assert advance_batch(pipeline, day(2)).state is State.PUBLISHED
        server.kill()
        assert (newest(pipeline), positions(pipeline)) == (AFTER, [*SECOND])
