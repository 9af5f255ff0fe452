"""Topic ids are compared once more where `written` and `published` are decided; a topic created again records nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.config.source import Source
from fencepost.errors import TopicRecreated
from fencepost.kafka.cluster import Topic
from fencepost.ledger.ledger import Change, Recorded, recorded
from fencepost.model import Batch, Outcome, State
from fencepost.outputs.topic import output
from fencepost.outputs.topic.settings import TopicSettings
from fencepost.protocol.view import View
from fencepost.steps import advance, write
from fencepost.steps.obstacle import check_can_go_on
from fencepost.steps.write_job import WriteResult
from makers import a_publication, a_receipt, a_topic, a_verdict, planned, staged
from unit.quality.reports import batch, receipts

IDS = {"flights": "flights-1", "flight_delays": "flight_delays-1"}  # as the plan has them


class LedgerOf:
    """A ledger that holds one batch."""

    def __init__(self, held: Batch) -> None:
        self.held, self.recorded = held, list[Batch]()
        self.topic_id = ""

    def read(self) -> View:
        return View.of([self.held, *self.recorded])

    def decide(self, gather: Callable[[View], Any], decide: Callable[[View, Any], Change]) -> Recorded:
        return self.transact(lambda view: decide(view, gather(view)))

    def transact(self, decide: Callable[[View], Change]) -> Recorded:
        self.recorded += decide(View.of([self.held])).batches
        return recorded(View.of([self.held, *self.recorded]), Change(tuple(self.recorded)))


def deployment_of(held: Batch, ids: dict[str, str]) -> Any:
    """A pipeline whose ledger holds one batch, on a cluster whose topics have these ids."""
    source, output = Source(topic="flights", format="bytes"), TopicSettings(topic="flight_delays")
    cluster = SimpleNamespace(
        id="cluster-1",
        describe=lambda name: Topic(name, ids[name], 4),
        high_watermarks=lambda _: [9_300] * 4,
        earliest=lambda _: [0] * 4,
    )
    pipeline = SimpleNamespace(
        name=held.pipeline, source_topics={"flights": source}, sources={"source": source}, output=output
    )
    return SimpleNamespace(pipeline=pipeline, cluster=cluster, ledger=LedgerOf(held))


def of(state: State) -> Batch:
    """The batch planned, or written and passed."""
    made = batch()
    if state is State.PLANNED:
        return made.model_copy(update={"state": state, "written": None})
    return made.model_copy(update={"verdict": a_verdict(Outcome.PASSED)})


def record(deployment: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    write._record(deployment, deployment.ledger.held, WriteResult([*receipts()]), 0.0)


def publish(deployment: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advance, "_offsets_now", lambda *_: {})
    monkeypatch.setattr(advance, "_offsets_to_move", lambda *_: {})
    advance.advance_batch(deployment.pipeline, deployment.ledger.held.interval, deployment=deployment)


@pytest.mark.parametrize(
    ("step", "before", "after"), [(record, State.PLANNED, State.WRITTEN), (publish, State.WRITTEN, State.PUBLISHED)]
)
@pytest.mark.parametrize("again", [None, "flights", "flight_delays"])
def test_nothing_is_recorded_on_a_topic_that_was_made_anew_meanwhile(
    step: Callable[..., None], before: State, after: State, again: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = deployment_of(of(before), IDS if again is None else {**IDS, again: "another"})
    if again is None:
        step(deployment, monkeypatch)
        assert [b.state for b in deployment.ledger.recorded] == [after]
    else:
        with pytest.raises(TopicRecreated, match=f"topic {again} was deleted and created again"):
            step(deployment, monkeypatch)
        assert deployment.ledger.recorded == []


@pytest.mark.parametrize("state", [State.PLANNED, State.WRITTEN, State.REJECTED, State.PUBLISHING])
def test_a_quarantine_topic_made_anew_stops_a_batch_until_its_publication_begins(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From then on the write step makes no new revision for it, so an advance that refused would be stuck."""
    held = staged(planned(of(State.WRITTEN), quarantine=a_topic(0, topic="bad")), state=state)
    if state is State.PUBLISHING:
        held = held.model_copy(update={"publication": a_publication()})
    deployment = deployment_of(held, IDS | {"staging": "staging-1", "bad": "bad-1"})
    monkeypatch.setattr(
        output, "publication_writers", lambda *_: SimpleNamespace(found_marks=lambda: (a_receipt(0, 0),))
    )
    check_can_go_on(deployment, held)
    again = deployment_of(held, IDS | {"staging": "staging-1", "bad": "another"})
    if state is State.PUBLISHING:
        check_can_go_on(again, held)
    else:
        with pytest.raises(TopicRecreated, match="quarantine topic bad was deleted and created again"):
            check_can_go_on(again, held)


def test_each_topic_is_described_once() -> None:
    held = staged(planned(of(State.WRITTEN), quarantine=a_topic(0, topic="bad")), state=State.WRITTEN)
    deployment = deployment_of(held, IDS | {"staging": "staging-1", "bad": "bad-1"})
    asked, describe = Counter[str](), deployment.cluster.describe

    def counting(name: str) -> Topic:
        asked[name] += 1
        known: Topic = describe(name)
        return known

    deployment.cluster.describe = counting
    check_can_go_on(deployment, held)
    assert asked == dict.fromkeys(("flights", "flight_delays", "staging", "bad"), 1)
