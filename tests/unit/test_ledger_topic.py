"""A ledger topic that is not there is the first thing that a step hears of, and never taken for a topic to be made."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fencepost.errors import (
    FactsOutdated,
    FencepostError,
    KafkaUnavailable,
    LedgerLost,
    TopicMissing,
    TransitionRefused,
)
from fencepost.kafka.client_settings import ClientSettings
from fencepost.kafka.cluster import Cluster, Topic
from fencepost.ledger.ledger import TURNS, Ledger, Recorded
from fencepost.ledger.reader import LARGE, LedgerReader
from fencepost.protocol.view import View

PIPELINE: Any = SimpleNamespace(
    name="orders", ledger_topic="fencepost.orders.ledger", coordinator_id="orders.coordinator"
)
NOWHERE = ClientSettings({"bootstrap.servers": "127.0.0.1:1"})


def cluster(*answers: Topic | FencepostError) -> Cluster:
    left = list(answers)

    def describe(name: str) -> Topic:
        answer = left.pop(0)
        if isinstance(answer, FencepostError):
            raise answer
        return answer

    fake = SimpleNamespace(settings=NOWHERE, timeout=1.0, describe=describe, high_watermarks=lambda topic: [0])
    return cast("Cluster", fake)


GONE = TopicMissing("Create the topic")


def test_where_there_is_no_ledger_nothing_was_planned_and_nobody_is_to_make_one() -> None:
    with pytest.raises(
        TransitionRefused, match=r"nothing was ever planned.*fencepost run orders.*do not create"
    ) as raised:
        LedgerReader(PIPELINE, NOWHERE).read(cluster(GONE))
    assert "Create the topic" not in str(raised.value)


def test_a_ledger_deleted_while_a_step_is_at_work_is_lost() -> None:
    there = cluster(Topic(PIPELINE.ledger_topic, "id", 1), GONE)
    reader = LedgerReader(PIPELINE, NOWHERE)
    reader.read(there)
    with pytest.raises(LedgerLost, match=r"was deleted.*Restore the ledger from a copy"):
        reader.read(there)


@pytest.mark.parametrize("answer", [GONE, KafkaUnavailable("no broker")])
def test_who_decides_asks_for_the_ledger_before_it_becomes_coordinator(
    answer: FencepostError, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinator's init waits for a minute, and does not say for what."""
    monkeypatch.setattr("fencepost.ledger.ledger.Transaction", None)
    with pytest.raises((TransitionRefused, KafkaUnavailable)):
        Ledger(PIPELINE, cluster(answer)).transact(lambda view: None)


@pytest.mark.parametrize("outdated", [0, 2, TURNS])
def test_facts_that_do_not_hold_for_the_ledger_are_gathered_again_a_few_times(
    outdated: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are gathered before the coordinator's init, against what the ledger says each time."""
    ledger = Ledger(PIPELINE, cluster())
    views, gathered = iter(View() for _ in range(TURNS)), list[View]()
    monkeypatch.setattr(ledger, "read", lambda: next(views))
    monkeypatch.setattr(ledger, "transact", lambda decide: Recorded(View(), decide(View()) or ()))

    def gather(view: View) -> int:
        gathered.append(view)
        return len(gathered)

    def decide(view: View, facts: int) -> None:
        if facts <= outdated:
            raise FactsOutdated("another run has planned")

    if outdated < TURNS:
        ledger.decide(gather, decide)
        assert len(gathered) == outdated + 1
    else:
        with pytest.raises(FactsOutdated, match=f"orders: other runs changed the ledger {TURNS} times"):
            ledger.decide(gather, decide)
        assert len(gathered) == TURNS


class Client:
    """Garbage that only the collector finds: it refers to itself."""

    def __init__(self) -> None:
        self.itself = self


@pytest.mark.parametrize("records", [LARGE, LARGE + 1])
def test_only_a_large_ledger_is_kept_from_the_collector_and_no_garbage_with_it(
    records: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    garbage = weakref.ref(Client())
    there = SimpleNamespace(
        describe=lambda name: Topic(name, "id", 1),
        high_watermarks=lambda topic: [records],
        await_stable=lambda *_: None,
    )
    alive: list[bool] = []
    monkeypatch.setattr(gc, "freeze", lambda: alive.append(garbage() is not None))
    monkeypatch.setattr(LedgerReader, "_read", lambda *_: None)
    LedgerReader(PIPELINE, NOWHERE).read(cast("Cluster", there))
    assert alive == ([False] if records > LARGE else [])
