"""What a write ends before it writes: ids of its lane that earlier batches may have left open."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.errors import KafkaUnavailable
from fencepost.kafka import writers
from fencepost.steps import write
from makers import a_plan


class Fences:
    """As much of `Transaction` as a fence uses; each waits until so many are at it."""

    def __init__(self, at_once: int) -> None:
        self.ids: list[str] = []
        self._together = threading.Barrier(at_once)

    def transaction(self, settings: object, name: str, failpoint: str, task: int) -> SimpleNamespace:
        def init() -> None:
            self._together.wait(10)
            self.ids.append(name)

        return SimpleNamespace(init=init)


DEPLOYMENT: Any = SimpleNamespace(
    cluster=SimpleNamespace(settings=None),
    pipeline=SimpleNamespace(writer_id=lambda lane, topic, p: f"p.{lane}.{topic}.{p}"),
)


def test_ids_are_fenced_side_by_side_and_only_those_that_the_batch_does_not_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fences = Fences(writers.FENCES)
    monkeypatch.setattr(writers, "Transaction", fences.transaction)
    may_be_open = {"in": 2 + writers.FENCES, "another": writers.FENCES}
    write._fence(DEPLOYMENT, a_plan((0, 1), (0, 1), lane="3", unfinished_ids=may_be_open))
    wanted = [f"p.3.in.{p}" for p in range(2, 2 + writers.FENCES)]
    assert sorted(fences.ids) == sorted([*wanted, *(f"p.3.another.{p}" for p in range(writers.FENCES))])


def test_nothing_is_fenced_where_nothing_can_be_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "Transaction", None)
    write._fence(DEPLOYMENT, a_plan((0, 1), (0, 1), unfinished_ids={"in": 2}))
    write._fence(DEPLOYMENT, a_plan((0, 1)))


def test_a_fence_that_fails_fails_the_write(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> SimpleNamespace:
        raise KafkaUnavailable("away")

    monkeypatch.setattr(writers, "Transaction", failing)
    with pytest.raises(KafkaUnavailable):
        write._fence(DEPLOYMENT, a_plan((0, 1), unfinished_ids={"in": 100}))
