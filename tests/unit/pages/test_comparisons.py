"""A table is compared in the background: no request waits, one question is asked at a time, and the last answer stays."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest

from fencepost.config.loading import load_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.errors import LedgerLost, TableUnavailable
from fencepost.pages import comparisons as module
from fencepost.pages.comparisons import Comparison, Comparisons
from waiting import await_true

TABLE = "output: {kind: postgres, table: t}\npostgres: {host: HOST, dbname: d, user: u}"


NEVER_ANSWERED = """
import socket
from types import SimpleNamespace

from adbc_driver_postgresql import dbapi

from fencepost.pages.comparisons import Comparisons

silent = socket.create_server(("127.0.0.1", 0))


def compare(pipeline):
    dbapi.connect(f"host=127.0.0.1 port={silent.getsockname()[1]} dbname=d user=u")


output = SimpleNamespace(is_compared=True, description="table t", services={})
Comparisons(compare).of(SimpleNamespace(name="p", output=output, connections={}))
client, _ = silent.accept()
print("asked")
"""


class Store:
    """A store that answers each question once it is let go, with what is set then."""

    def __init__(self) -> None:
        self.asked = 0
        self.answers = Event()
        self.answer: str | Exception = ""

    def compare(self, pipeline: Pipeline) -> str:
        self.asked += 1
        assert self.answers.wait(30)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def of_table(folders: Path) -> Callable[[str], Pipeline]:
    """A pipeline whose output is a table at a host."""
    file = folders / "orders" / "pipeline.yaml"
    text = file.read_text()

    def make(host: str = "h") -> Pipeline:
        file.write_text(text.replace("output: {topic: orders-out, format: bytes}", TABLE.replace("HOST", host)))
        return load_pipeline(folders / "orders")

    return make


def settled(comparisons: Comparisons, pipeline: Pipeline) -> Comparison:
    """The comparison, once the question that is under way is over; what is due is asked first."""
    comparisons.of(pipeline)
    await_true(lambda: not any(kept.is_under_way for kept in comparisons._kept.values()), "the question to end")
    (kept,) = comparisons._kept.values()
    return kept.comparison


def test_a_topic_is_not_compared(folders: Path, store: Store) -> None:
    assert Comparisons(store.compare).of(load_pipeline(folders / "orders")) is None
    assert store.asked == 0


def test_a_question_without_an_answer_is_asked_once_and_keeps_nobody_waiting(
    of_table: Callable[..., Pipeline], store: Store
) -> None:
    pipeline, comparisons = of_table(), Comparisons(store.compare)
    found = [comparisons.of(pipeline) for _ in range(50)]
    asked_at = {one.asked_at for one in found if one}
    assert len(asked_at) == 1
    assert None not in asked_at, "since the first question"
    assert all(one is not None and one.answered_at is None for one in found)
    store.answers.set()
    assert settled(comparisons, pipeline).answered_at is not None
    assert store.asked == 1


def test_an_answer_holds_for_a_while(of_table: Callable[..., Pipeline], store: Store) -> None:
    pipeline, comparisons = of_table(), Comparisons(store.compare)
    store.answers.set()
    store.answer = "it lacks something"
    first = settled(comparisons, pipeline)
    assert (first.missing_batches, first.asked_at) == ("it lacks something", None)
    assert settled(comparisons, pipeline) is first
    assert store.asked == 1


def test_an_answer_is_shown_until_the_next_has_come(
    of_table: Callable[..., Pipeline], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HOLDS", 0.0)
    pipeline, comparisons = of_table(), Comparisons(store.compare)
    store.answers.set()
    store.answer = "it lacks something"
    settled(comparisons, pipeline)
    store.answers.clear()
    while_asked = comparisons.of(pipeline)
    assert while_asked is not None
    assert while_asked.missing_batches == "it lacks something"
    assert while_asked.asked_at is not None
    store.answer = ""
    store.answers.set()
    await_true(lambda: not any(kept.is_under_way for kept in comparisons._kept.values()), "the next answer")
    (kept,) = comparisons._kept.values()
    assert (kept.comparison.missing_batches, kept.comparison.asked_at) == ("", None)


def test_a_failure_is_no_answer_and_the_next_answer_ends_it(
    of_table: Callable[..., Pipeline], store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAUSE", 0.0)
    monkeypatch.setattr(module, "HOLDS", 0.0)
    pipeline, comparisons = of_table(), Comparisons(store.compare)
    store.answers.set()
    answered = settled(comparisons, pipeline)
    store.answer = TableUnavailable("the store is away.")
    failed = settled(comparisons, pipeline)
    assert (failed.failure, failed.is_late, failed.answered_at) == ("the store is away.", True, answered.answered_at)
    store.answer = RuntimeError("what a row says")
    again = settled(comparisons, pipeline)
    assert again.failure.startswith("RuntimeError")
    assert "row" not in again.failure
    assert again.asked_at == failed.asked_at, "since the first question without an answer"
    store.answer = ""
    assert settled(comparisons, pipeline).asked_at is None


def test_a_lost_ledger_is_an_answer(of_table: Callable[..., Pipeline], store: Store) -> None:
    store.answer = LedgerLost("it is an old copy.")
    store.answers.set()
    found = settled(Comparisons(store.compare), of_table())
    assert (found.missing_batches, found.failure) == ("it is an old copy", "")


def test_with_other_settings_another_server_is_asked_though_the_last_one_never_answers(
    of_table: Callable[..., Pipeline], store: Store
) -> None:
    comparisons = Comparisons(store.compare)
    comparisons.of(of_table("first"))
    comparisons.of(of_table("second"))
    await_true(lambda: store.asked == 2, "both to be asked")
    store.answers.set()


def test_a_process_ends_while_a_question_is_open() -> None:
    """It is in a thread that waits in the driver, for a server that accepts and says nothing."""
    ended = subprocess.run(
        [sys.executable, "-c", NEVER_ANSWERED], capture_output=True, text=True, timeout=60, env=dict(os.environ)
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "asked\n", "")
