"""Asks a person in Airflow's UI what to do about a rejected batch, for pipelines with `quality.ask_operator_minutes`.

plan → write → validate → decide ──────────────────────────────→ advance
                                 └→ write_again → validate_again ──↗

`decide` runs whatever the result of validate, and asks only about a rejected batch. If the batch has passed or is
published, there is nothing to decide, and the task succeeds without a change. If validate failed for any other reason,
`decide` fails too, and so does the run. The decision is in the ledger before the task succeeds: who, when, why. An
answer is valid for the revision and the validation that the question was about. If either is outdated, the attempt
fails, and the next attempt asks again (Airflow keeps one question for each attempt).

An answer outlives its attempt. An answer is stored in the task's state store before it is carried out. So if the worker
is killed, the next attempt carries the answer out and asks nobody again. A question without an answer in time is not
asked again, and the task fails.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.sdk import Param
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException, TaskAwaitingInput
from airflow.sdk.execution_time.hitl import HITLUser
from pydantic import JsonValue

from fencepost.airflow.after_step import StepNotes, after_question
from fencepost.airflow.connections import with_connections
from fencepost.airflow.operators import airflow_errors, interval_of, report
from fencepost.airflow.question import PUBLISH, SKIP, WRITE_AGAIN, body_of, subject_of
from fencepost.airflow.spark_operator import FencepostSparkOperator
from fencepost.config.pipeline import Pipeline
from fencepost.errors import FencepostError
from fencepost.model import AskedBatch, Batch, Decision, State, StepResult, utc_now
from fencepost.protocol.awaiting import AwaitingReason
from fencepost.protocol.decisions import asked_about
from fencepost.protocol.snapshot import snapshot_of
from fencepost.protocol.view import DECIDED, has_passed
from fencepost.spark.diagnosis import describe

if TYPE_CHECKING:
    from airflow.sdk import Context

OPTIONS = [PUBLISH, WRITE_AGAIN, SKIP]
DECIDE = "decide"
LONGEST = 1000  # characters of a reason
ANSWER = "fencepost answer"  # key of the answer in the task's state store

log = logging.getLogger("fencepost.decide")


class DecideOperator(HITLOperator):
    """Asks what to do about a rejected batch, and carries out the answer."""

    def __init__(self, *, pipeline: Pipeline, **kwargs: Any) -> None:
        # Airflow validates a task's params, with their defaults, before it runs. So an empty reason has to be allowed
        # here.
        reason = Param("", type="string", maxLength=LONGEST, title="Reason", description="Stored in the ledger.")
        kwargs.pop("params", None)  # Airflow passes the DAG's params on; the form asks only for a reason
        super().__init__(
            subject=f"A batch of {pipeline.name} was rejected",
            options=OPTIONS,
            params={"reason": reason},
            response_timeout=timedelta(minutes=pipeline.quality.ask_operator_minutes),
            execution_timeout=None,  # it would count the person's time
            trigger_rule="all_done",
            assigned_users=[HITLUser(id=user.id, name=user.name) for user in pipeline.quality.ask.assigned_users]
            or None,
            **kwargs,
        )
        self.pipeline = pipeline
        self.step_notes = StepNotes()

    @property
    def serialized_params(self) -> dict[str, dict[str, Any]]:
        """Returns the form's fields, with the reason required."""
        form: dict[str, dict[str, Any]] = super().serialized_params
        form["reason"]["schema"]["minLength"] = 1
        return form

    def execute(self, context: Context) -> dict[str, JsonValue]:
        """Asks if there is something to decide. `execute_complete` gets the answer."""
        from fencepost.ledger.ledger import Ledger

        interval = interval_of(context)
        with airflow_errors(self.pipeline):
            view = Ledger(with_connections(self.pipeline)).read()
        batch = view.last(interval)
        if batch is not None and _needs_nobody(batch):
            return {"choice": None}
        if batch is not None and _is_to_be_written_again(batch):
            self.log.info(
                "batch %s was planned by the decision %r, so the run continues with it", batch.id, WRITE_AGAIN
            )
            return {"choice": WRITE_AGAIN}
        found = snapshot_of(view).by_key[str(interval)].awaiting() if batch is not None else None
        if batch is None or found is None or found.reason is not AwaitingReason.REJECTED or batch.verdict is None:
            self.step_notes = StepNotes(notified=True)  # the task that failed before has notified people
            state = f"batch {batch.id} is {batch.state}" if batch else "nothing was planned"
            raise AirflowFailException(
                f"{state}, so there is nothing to decide. Fix the cause of the failed task, and clear that task."
            )
        asked = asked_about(batch)
        if (kept := _kept_answer(context, asked)) is not None:
            self.log.info("carrying out the answer that %s gave at %s to an earlier attempt", kept.by, kept.decided_at)
            return self._carry_out(context, kept)
        self.subject, self.body = subject_of(batch), body_of(found)
        self.log.info("asking about batch %s for %s", batch.id, self.response_timeout)
        try:
            super().execute(context)
        except TaskAwaitingInput as waiting:
            waiting.kwargs = {"asked": asked.model_dump(mode="json", exclude_defaults=True)}
            until = utc_now() + timedelta(minutes=self.pipeline.quality.ask_operator_minutes)
            after_question(context, self.pipeline, batch, until)
            raise
        raise AssertionError("the operator waits for its answer in the triggerer")

    def execute_complete(
        self, context: Context, event: dict[str, Any], asked: dict[str, Any] | None = None
    ) -> dict[str, JsonValue]:
        """Carries out the choice, with the reason and the name of the person. The choice is carried out only if the
        batch has not changed since the question was `asked`.
        """
        if event.get("error_type") == "timeout":
            return self._without_answer(context, asked)
        answer = super().execute_complete(context, event)
        (choice,) = answer["chosen_options"]
        reason = str(answer["params_input"].get("reason", "")).strip()
        if not reason:
            raise AirflowException("a decision needs a reason, for later readers of the ledger. Nothing was done.")
        if asked is None:
            raise AirflowException(
                "an earlier version of Fencepost asked this question. Nothing was done; the next attempt asks again."
            )
        user = answer["responded_by_user"] or {}
        decision = Decision(
            action=choice,
            by=str(user.get("name") or user.get("id") or "unknown"),
            reason=reason,
            decided_at=answer["responded_at"],
            asked=AskedBatch.model_validate(asked),
        )
        _keep_answer(context, decision)
        return self._carry_out(context, decision)

    def _without_answer(self, context: Context, asked: dict[str, Any] | None) -> dict[str, JsonValue]:
        """Ends a question whose time is up. A command may have decided in the meantime, or the batch may have changed."""
        from fencepost.ledger.ledger import Ledger

        batch = None
        try:
            batch = Ledger(with_connections(self.pipeline)).read().last(interval_of(context))
        except Exception as error:  # a retry would ask the question again
            reason = error if isinstance(error, FencepostError) else describe(error)
            self.log.warning("the ledger cannot be read, so it is not known whether somebody has decided: %s", reason)
        if batch is not None and _needs_nobody(batch):
            return {"choice": None}
        if batch is not None and not (batch.state is State.REJECTED and _is_about(asked, batch)):
            raise AirflowException(f"batch {batch.id} is now {batch.state}. Nothing was decided.")
        raise AirflowFailException(
            f"nobody answered within {self.pipeline.quality.ask_operator_minutes:g} minutes, so nothing was decided. Clear this "
            "task to ask again, or decide by a command: `fencepost publish` or `fencepost skip`."
        )

    def _carry_out(self, context: Context, decision: Decision) -> dict[str, JsonValue]:
        try:
            with airflow_errors(self.pipeline):
                done = report(self.log, self._do(context, decision))
        except AirflowFailException:
            _forget_answer(context)  # it cannot be carried out; a cleared task asks again
            raise
        return {**done, "choice": decision.action}

    def _do(self, context: Context, decision: Decision) -> StepResult:
        from fencepost.steps.advance import begin_batch, skip_batch
        from fencepost.steps.plan import plan_batch
        from fencepost.steps.replay import plan_replay

        interval, pipeline = interval_of(context), with_connections(self.pipeline)
        if decision.action == PUBLISH:
            return begin_batch(pipeline, interval, decision)  # advance, the next task, copies a staged batch
        if decision.action == SKIP:
            return skip_batch(pipeline, interval, decision)
        if decision.asked is not None and decision.asked.addition:
            return plan_replay(pipeline, interval, decision)
        return plan_batch(pipeline, interval, reprocess=True, decision=decision)


def _needs_nobody(batch: Batch) -> bool:
    return batch.state in DECIDED or has_passed(batch)


def _is_to_be_written_again(batch: Batch) -> bool:
    """Returns whether a person's answer planned this revision, and the revision has not been judged since."""
    decided, states = batch.decision, {State.PLANNED, State.WRITTEN}
    return decided is not None and decided.action == WRITE_AGAIN and batch.state in states and batch.verdict is None


def _is_about(asked: dict[str, Any] | None, batch: Batch) -> bool:
    return asked is None or AskedBatch.model_validate(asked) == asked_about(batch)


def _keep_answer(context: Context, decision: Decision) -> None:
    """Stores an answer for the next attempt. Without a stored answer, the next attempt asks again."""
    asked = decision.asked.model_dump(mode="json") if decision.asked is not None else None
    kept = {"decision": decision.model_dump(mode="json"), "asked": asked}
    _in_store(context, lambda store: store.set(ANSWER, kept))


def _kept_answer(context: Context, asked: AskedBatch) -> Decision | None:
    """Returns the answer that an earlier attempt got to this question and could not carry out, or None."""
    kept = _in_store(context, lambda store: store.get(ANSWER))
    if not isinstance(kept, Mapping) or kept.get("asked") != asked.model_dump(mode="json"):
        return None
    return Decision.model_validate({**kept["decision"], "asked": asked})


def _forget_answer(context: Context) -> None:
    _in_store(context, lambda store: store.delete(ANSWER))


def _in_store(context: Context, act: Callable[[Any], Any]) -> Any:
    """Returns the result of `act` on the task's state store. Returns None if the store does not answer or does not
    exist.
    """
    store = context.get("task_state_store")
    try:
        return act(store) if store is not None else None
    except Exception as error:
        log.warning("the state store of the task decide did not answer: %s", describe(error))
        return None


class AgainOperator(FencepostSparkOperator):
    """Runs a step again if a person has decided so, and otherwise skips the task."""

    def __init__(self, *, step: Literal["write", "validate"], pipeline: Pipeline, **kwargs: Any) -> None:
        super().__init__(step=step, pipeline=pipeline, **kwargs)

    def execute(self, context: Context) -> dict[str, JsonValue]:  # type: ignore[override]
        """Runs the step for the revision that the decision planned."""
        decided: Any = context["ti"].xcom_pull(task_ids=DECIDE) or {}
        if decided.get("choice") != WRITE_AGAIN:
            raise AirflowSkipException("the decision was not to write the interval again")
        return super().execute(context)
