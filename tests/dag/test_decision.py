"""A person is asked about a rejected batch and nothing else, and the answer is in the ledger with who, when and why."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException, TaskAwaitingInput

from fencepost.airflow import build_dag
from fencepost.airflow.decision import AgainOperator, DecideOperator
from fencepost.config.pipeline import Pipeline
from fencepost.errors import AccessDenied, KafkaUnavailable
from fencepost.ledger.ledger import Change, Recorded, recorded
from fencepost.model import AskedBatch, Batch, Decision, Outcome, State, StepResult
from fencepost.protocol.decisions import record_planned
from fencepost.protocol.view import View
from makers import a_decision, a_verdict, publish_prepared
from unit.quality.reports import batch as made

from .conftest import PIPELINE_YAML, ContextOf

ASKS = PIPELINE_YAML + "quality: {ask_operator_minutes: 90}\n"
REASON = "# 1 of 4\n<script>"
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def judged(state: State, outcome: Outcome | None) -> Batch:
    verdict = outcome and a_verdict(outcome, reason="# 1 of 4\n<script>", expectations=4, judged_at=NOON)
    return made().model_copy(update={"state": state, "verdict": verdict})


@pytest.fixture
def asking(make_pipeline: Callable[..., Pipeline]) -> Pipeline:
    return make_pipeline(settings=ASKS)


@pytest.fixture
def ask(asking: Pipeline, context_of: ContextOf, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The task's first half, on a ledger with that batch."""
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr("airflow.providers.standard.operators.hitl.upsert_hitl_detail", lambda **k: asked.append(k))

    def run(batch: Batch | None, *older: Batch, store: Any = None) -> Any:
        monkeypatch.setattr("fencepost.ledger.ledger.Ledger.__init__", lambda self, pipeline: None)
        view = View.of((*older, batch) if batch else ())
        monkeypatch.setattr("fencepost.ledger.ledger.Ledger.read", lambda self: view)
        context = context_of()
        if batch is not None:
            context |= {"data_interval_start": batch.interval.start, "data_interval_end": batch.interval.end}
        context |= {"task_instance": type("TI", (), {"id": "x"}), "task_state_store": store}
        operator = DecideOperator(task_id="decide", pipeline=asking)
        try:
            return operator.execute(context)  # type: ignore[arg-type]
        except TaskAwaitingInput as waiting:
            return waiting, asked[0]

    return run


def test_nobody_is_asked_unless_the_pipeline_says_so(pipeline: Pipeline) -> None:
    assert "decide" not in build_dag(pipeline).task_ids


def test_with_the_setting_the_run_goes_on_through_the_decision(asking: Pipeline) -> None:
    dag = build_dag(asking)
    assert {t.task_id: t.downstream_task_ids for t in dag.tasks} == {
        "plan": {"write"},
        "write": {"validate"},
        "validate": {"decide"},
        "decide": {"write_again", "advance"},
        "write_again": {"validate_again"},
        "validate_again": {"advance"},
        "advance": set(),
    }
    assert dag.get_task("decide").trigger_rule == "all_done"
    assert dag.get_task("advance").trigger_rule == "none_failed_min_one_success"
    assert dag.get_task("decide").execution_timeout is None
    assert list(dag.get_task("decide").params) == ["reason"]
    dag.get_task("decide").params.validate()  # as Airflow does before it runs a task


def test_a_rejected_batch_is_asked_about_for_as_long_as_the_pipeline_says(ask: Callable[..., Any]) -> None:
    batch = judged(State.REJECTED, Outcome.REJECTED)
    waiting, asked = ask(batch)
    assert waiting.method_name == "execute_complete"
    assert waiting.kwargs == {"asked": {"batch": str(batch.id), "lease": batch.lease, "validation": 1}}
    assert waiting.timeout.total_seconds() == 90 * 60
    assert asked["options"] == ["publish anyway", "write again", "skip this interval"]
    assert "\n`# 1 of 4⏎<script>`\n" in asked["body"], "a text from data is code, not Markdown"
    assert asked["params"]["reason"]["schema"]["minLength"] == 1


@pytest.mark.parametrize(
    ("state", "outcome"), [(State.PUBLISHED, Outcome.PASSED), (State.SKIPPED, None), (State.WRITTEN, Outcome.PASSED)]
)
def test_a_batch_that_needs_nobody_asks_nobody(ask: Callable[..., Any], state: State, outcome: Outcome | None) -> None:
    assert ask(judged(state, outcome)) == {"choice": None}


@pytest.mark.parametrize(
    "batch",
    [None, judged(State.PLANNED, None), judged(State.WRITTEN, None), judged(State.WRITTEN, Outcome.UNDETERMINED)],
)
def test_after_any_other_failure_the_run_fails_instead_of_asking(ask: Callable[..., Any], batch: Batch | None) -> None:
    with pytest.raises(AirflowFailException, match="nothing to decide"):
        ask(batch)


def answered(choice: str, reason: str = "the source says so") -> dict[str, Any]:
    return {
        "chosen_options": [choice],
        "params_input": {"reason": reason},
        "responded_at": NOON,
        "responded_by_user": {"id": "7", "name": "ann"},
    }


ASKED = AskedBatch(batch="counted/x/1", lease=4, validation=1)


EACH_CHOICE = pytest.mark.parametrize(
    ("choice", "function"),
    [
        ("publish anyway", "fencepost.steps.advance.begin_batch"),
        ("skip this interval", "fencepost.steps.advance.skip_batch"),
        ("write again", "fencepost.steps.plan.plan_batch"),
    ],
)


@EACH_CHOICE
def test_an_answer_is_done_in_the_name_of_who_gave_it(
    asking: Pipeline,
    context_of: ContextOf,
    monkeypatch: pytest.MonkeyPatch,
    result: StepResult,
    choice: str,
    function: str,
) -> None:
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    monkeypatch.setattr(function, lambda *a, **k: calls.append((a, k)) or result)
    operator = DecideOperator(task_id="decide", pipeline=asking)
    done = operator.execute_complete(context_of(), answered(choice), ASKED.model_dump(mode="json"))  # type: ignore[arg-type]
    assert done["choice"] == choice
    ((positional, named),) = calls
    decision = named.get("decision") or positional[2]
    assert decision == Decision(action=choice, by="ann", reason="the source says so", decided_at=NOON, asked=ASKED)
    assert named.get("reprocess", True) is True


def test_a_rejected_addition_is_written_again_as_an_addition(
    asking: Pipeline, context_of: ContextOf, monkeypatch: pytest.MonkeyPatch, result: StepResult
) -> None:
    calls: list[tuple[Any, ...]] = []
    monkeypatch.setattr("fencepost.steps.replay.plan_replay", lambda *given: calls.append(given) or result)
    asked = ASKED.model_copy(update={"addition": True})
    operator = DecideOperator(task_id="decide", pipeline=asking)
    operator.execute_complete(context_of(), answered("write again"), asked.model_dump(mode="json"))  # type: ignore[arg-type]
    ((_, _, decision),) = calls
    assert (decision.action, decision.asked) == ("write again", asked)


def test_an_answer_without_a_reason_is_not_taken(asking: Pipeline, context_of: ContextOf) -> None:
    operator = DecideOperator(task_id="decide", pipeline=asking)
    with pytest.raises(AirflowException, match="needs a reason"):
        operator.execute_complete(context_of(), answered("publish anyway", " "))  # type: ignore[arg-type]


def test_a_decision_that_kafka_did_not_take_is_worth_another_try(
    asking: Pipeline, context_of: ContextOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any) -> None:
        raise KafkaUnavailable("away")

    monkeypatch.setattr("fencepost.steps.advance.skip_batch", away)
    with pytest.raises(AirflowException) as raised:
        DecideOperator(task_id="decide", pipeline=asking).execute_complete(
            context_of(),  # type: ignore[arg-type]
            answered("skip this interval"),
            ASKED.model_dump(mode="json"),
        )
    assert not isinstance(raised.value, AirflowFailException)


class OnView:
    """A ledger that decides on that view and keeps what would be committed."""

    topic_id = "L"

    def __init__(self, view: View) -> None:
        self.view, self.recorded = view, list[Batch]()

    def read(self) -> View:
        return self.view

    def decide(self, gather: Callable[[View], Any], decide: Callable[[View, Any], Any]) -> Recorded:
        return self.transact(lambda view: decide(view, gather(view)))

    def transact(self, decide: Callable[[View], Any]) -> Recorded:
        change = decide(self.view) or Change()
        self.recorded += change.batches
        return recorded(self.view.updated(change.batches), change)


REJECTED = judged(State.REJECTED, Outcome.REJECTED)


def revised(state: State, outcome: Outcome | None) -> tuple[Batch, ...]:
    """What was asked about pushed aside by a revision in that state."""
    newer = judged(state, outcome).model_copy(update={"revision": 2, "lease": 40})
    return (REJECTED.model_copy(update={"state": State.SUPERSEDED}), newer)


def result_rows(state: State, outcome: Outcome) -> tuple[Batch, ...]:
    """The same revision after a second validation."""
    batch = judged(state, outcome)
    assert batch.verdict is not None
    return (batch.model_copy(update={"verdict": batch.verdict.model_copy(update={"number": 2})}),)


@pytest.mark.parametrize("choice", ["publish anyway", "skip this interval", "write again"])
@pytest.mark.parametrize(
    ("now", "told"),
    [
        (revised(State.REJECTED, Outcome.REJECTED), "/2 is rejected, after validation 1"),
        (revised(State.WRITTEN, None), "/2 is written"),
        (revised(State.PUBLISHED, Outcome.PASSED), "/2 is published"),
        (result_rows(State.REJECTED, Outcome.REJECTED), "/1 is rejected, after validation 2"),
        (result_rows(State.WRITTEN, Outcome.PASSED), "/1 is written, after validation 2"),
        ((judged(State.PUBLISHED, Outcome.REJECTED),), "/1 is published, after validation 1"),
        ((judged(State.SKIPPED, Outcome.REJECTED),), "/1 is skipped, after validation 1"),
        ((REJECTED.model_copy(update={"lease": 3}),), "/1 is rejected"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_answer_about_what_is_no_longer_there_decides_nothing_and_is_asked_for_again(
    asking: Pipeline,
    ask: Callable[..., Any],
    context_of: ContextOf,
    monkeypatch: pytest.MonkeyPatch,
    now: tuple[Batch, ...],
    told: str,
    choice: str,
) -> None:
    waiting, _ = ask(REJECTED)
    ledger = OnView(View.of(now))
    done = carry_out(asking, context_of, monkeypatch, ledger, answered(choice), waiting.kwargs)
    assert isinstance(done, AirflowException)
    assert not isinstance(done, AirflowFailException), "the next attempt asks again"
    assert f"ann answered {choice!r} about batch {REJECTED.id}, rejected by validation 1, but now " in str(done)
    assert told in str(done)
    assert ledger.recorded == []


@pytest.mark.parametrize(
    ("choice", "state"), [("publish anyway", State.PUBLISHED), ("skip this interval", State.SKIPPED)]
)
def test_an_answer_about_what_still_stands_is_recorded_once_though_its_commit_was_not_heard(
    asking: Pipeline,
    ask: Callable[..., Any],
    context_of: ContextOf,
    monkeypatch: pytest.MonkeyPatch,
    choice: str,
    state: State,
) -> None:
    asked = ask(REJECTED)[0].kwargs
    ledger = OnView(View.of((REJECTED,)))
    carry_out(asking, context_of, monkeypatch, ledger, answered(choice), asked)
    (batch,) = ledger.recorded
    assert batch.state is state
    recorded = Batch.model_validate_json(batch.model_dump_json(exclude_none=True))
    assert recorded.decision is not None
    assert (recorded.decision.by, recorded.decision.asked) == ("ann", None), "the ledger's records are as they were"
    again = OnView(View.of((recorded,)))
    done = carry_out(asking, context_of, monkeypatch, again, answered(choice), asked)
    assert done["choice"] == choice
    assert again.recorded == []


class Kept(dict[str, Any]):
    """A task's state store, as Airflow keeps it from attempt to attempt: values are JSON."""

    def set(self, key: str, value: Any) -> None:
        self[key] = json.loads(json.dumps(value))

    def delete(self, key: str) -> None:
        self.pop(key, None)


class WorkerKilled(BaseException):
    """The process ends."""


@EACH_CHOICE
def test_an_answer_whose_worker_was_killed_is_carried_out_by_the_next_attempt_which_asks_nobody(
    asking: Pipeline,
    ask: Callable[..., Any],
    context_of: ContextOf,
    monkeypatch: pytest.MonkeyPatch,
    result: StepResult,
    choice: str,
    function: str,
) -> None:
    store, done = Kept(), list[Any]()

    def killed(*_: Any, **__: Any) -> None:
        raise WorkerKilled

    asked = ask(REJECTED)[0].kwargs
    monkeypatch.setattr(function, killed)
    operator, context = DecideOperator(task_id="decide", pipeline=asking), context_of() | {"task_state_store": store}
    with pytest.raises(WorkerKilled):
        operator.execute_complete(context, answered(choice), **asked)  # type: ignore[arg-type]
    monkeypatch.setattr(function, lambda *a, **k: done.append(k.get("decision") or a[2]) or result)
    assert ask(REJECTED, store=store)["choice"] == choice
    assert done == [
        Decision(
            action=choice, by="ann", reason="the source says so", decided_at=NOON, asked=AskedBatch(**asked["asked"])
        )
    ]


def test_an_answer_to_another_question_is_not_carried_out(ask: Callable[..., Any], context_of: ContextOf) -> None:
    """The batch was judged again since: the next attempt asks about what it is now."""
    store = Kept()
    store.set("fencepost answer", {"decision": {"action": "publish anyway"}, "asked": ask(REJECTED)[0].kwargs["asked"]})
    (again,) = result_rows(State.REJECTED, Outcome.REJECTED)
    waiting, _ = ask(again, store=store)
    assert waiting.kwargs["asked"]["validation"] == 2


def test_an_answer_that_cannot_be_carried_out_is_forgotten_so_that_a_person_is_asked_again(
    asking: Pipeline, ask: Callable[..., Any], context_of: ContextOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, asked = Kept(), ask(REJECTED)[0].kwargs

    def fails(error: Exception) -> Callable[..., None]:
        def fail(*_: Any) -> None:
            raise error

        return fail

    context = context_of() | {"task_state_store": store}
    for error, kept in ((KafkaUnavailable("away"), True), (AccessDenied("no"), False)):
        monkeypatch.setattr("fencepost.steps.advance.skip_batch", fails(error))
        with pytest.raises(AirflowException, match=type(error).__name__):
            DecideOperator(task_id="decide", pipeline=asking).execute_complete(
                context,  # type: ignore[arg-type]
                answered("skip this interval"),
                **asked,
            )
        assert bool(store) is kept


@pytest.mark.parametrize(("state", "goes_on"), [(State.PLANNED, True), (State.WRITTEN, True), (State.REJECTED, False)])
def test_a_revision_that_an_answer_planned_is_written_though_the_worker_died_before_it_said_so(
    ask: Callable[..., Any], state: State, goes_on: bool
) -> None:
    """Once it is judged, it is asked about like any other."""
    outcome = Outcome.REJECTED if state is State.REJECTED else None
    older, newer = revised(state, outcome)
    decision = a_decision("write again", by="ann", reason="fixed", decided_at=NOON)
    found = ask(newer.model_copy(update={"decision": decision}), older)
    assert (found == {"choice": "write again"}) is goes_on


TIME_IS_UP = {"error": "The Human-in-the-loop response timeout has passed without a response.", "error_type": "timeout"}


@pytest.mark.parametrize(
    ("now", "ends"),
    [
        ((REJECTED,), AirflowFailException),
        (KafkaUnavailable("away"), AirflowFailException),
        (RuntimeError("Airflow does not answer"), AirflowFailException),
        (result_rows(State.REJECTED, Outcome.REJECTED), AirflowException),
        (revised(State.PLANNED, None), AirflowException),
        ((judged(State.PUBLISHED, Outcome.REJECTED),), None),
        ((judged(State.SKIPPED, Outcome.REJECTED),), None),
    ],
)
def test_a_question_whose_time_is_up_is_not_asked_again_unless_there_is_another_one(
    asking: Pipeline,
    ask: Callable[..., Any],
    context_of: ContextOf,
    monkeypatch: pytest.MonkeyPatch,
    now: tuple[Batch, ...] | Exception,
    ends: type[Exception] | None,
) -> None:
    """A retry would ask again. A command may have decided meanwhile; without Kafka nothing else is known."""

    def read(_: Any) -> View:
        if isinstance(now, Exception):
            raise now
        return View.of(now)

    asked = ask(REJECTED)[0].kwargs
    monkeypatch.setattr("fencepost.ledger.ledger.Ledger.read", read)
    context = context_of() | {
        "data_interval_start": REJECTED.interval.start,
        "data_interval_end": REJECTED.interval.end,
    }
    operator = DecideOperator(task_id="decide", pipeline=asking)
    if ends is None:
        assert operator.execute_complete(context, TIME_IS_UP, **asked) == {"choice": None}  # type: ignore[arg-type]
        return
    with pytest.raises(AirflowException) as raised:
        operator.execute_complete(context, TIME_IS_UP, **asked)  # type: ignore[arg-type]
    assert type(raised.value) is ends


def carry_out(
    asking: Pipeline,
    context_of: ContextOf,
    monkeypatch: pytest.MonkeyPatch,
    ledger: OnView,
    event: dict[str, Any],
    kwargs: dict[str, Any],
) -> Any:
    """The task's second half on that ledger: its result, or the error that it ends with."""
    deployment = SimpleNamespace(pipeline=asking, cluster=SimpleNamespace(id="C"), ledger=ledger)
    for step in ("advance", "plan"):
        monkeypatch.setattr(f"fencepost.steps.{step}.Deployment", SimpleNamespace(of=lambda pipeline: deployment))
    monkeypatch.setattr("fencepost.steps.plan.Ledger", lambda pipeline: ledger)
    monkeypatch.setattr("fencepost.steps.advance.check_can_go_on", lambda *_: None)
    monkeypatch.setattr("fencepost.steps.advance._offsets_now", lambda *_: {})
    monkeypatch.setattr("fencepost.steps.advance._offsets_to_move", lambda *_: {})
    monkeypatch.setattr("fencepost.steps.plan.ready", lambda *_, **__: (None, None))
    context = context_of() | {
        "data_interval_start": REJECTED.interval.start,
        "data_interval_end": REJECTED.interval.end,
    }
    operator = DecideOperator(task_id="decide", pipeline=asking)
    try:
        return operator.execute_complete(context, event, **kwargs)  # type: ignore[arg-type]
    except AirflowException as error:
        return error


def test_an_answer_to_a_question_of_an_earlier_fencepost_is_asked_for_again(
    asking: Pipeline, context_of: ContextOf
) -> None:
    operator = DecideOperator(task_id="decide", pipeline=asking)
    with pytest.raises(AirflowException, match="Nothing was done; the next attempt asks again") as raised:
        operator.execute_complete(context_of(), answered("publish anyway"))  # type: ignore[arg-type]
    assert not isinstance(raised.value, AirflowFailException)


@pytest.mark.parametrize("choice", [None, "publish anyway", "skip this interval"])
def test_the_second_write_is_skipped_unless_it_was_chosen(
    asking: Pipeline, context_of: ContextOf, choice: str | None
) -> None:
    context = context_of()
    context["ti"].xcom_pull = lambda task_ids: {"choice": choice}
    with pytest.raises(AirflowSkipException):
        AgainOperator(task_id="write_again", step="write", pipeline=asking).execute(context)  # type: ignore[arg-type]


def test_who_asked_for_a_new_revision_stays_known_after_it_is_published() -> None:
    rejected = judged(State.REJECTED, Outcome.REJECTED)
    decision = a_decision("write again", by="ann", reason="fixed", decided_at=NOON)
    view = View.of((rejected,))
    fresh, old = record_planned(view, rejected.interval, "nyc_flights", rejected.plan, "", decision)
    assert (fresh.decision, old.state, fresh.history[-1].note) == (
        decision,
        State.SUPERSEDED,
        "write again by ann: fixed",
    )
    passed = fresh.model_copy(
        update={
            "state": State.WRITTEN,
            "lease": 41,
            "written": rejected.written,
            "verdict": judged(State.WRITTEN, Outcome.PASSED).verdict,
        }
    )
    (done,) = publish_prepared(View.of((passed,)), fresh.interval, NOON)
    assert done.decision == decision
