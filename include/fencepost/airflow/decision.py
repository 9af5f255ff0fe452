"""Asks a person in Airflow's UI what to do about a rejected batch, for pipelines with `quality.ask_operator_minutes`.

    plan → write → validate → decide ──────────────────────────────→ advance
                                 └→ write_again → validate_again ──↗

`decide` runs whatever the result of validate. It asks only about a rejected batch. If the batch has passed or is published, there
is nothing to decide, and it is a green no-op; after any other failure it fails too, and so does the run. The decision is in the
ledger before the task is green: who, when, why. An answer holds for the revision and the validation that the question was about.
If there are newer ones, the attempt fails, and the next one asks again (Airflow keeps one question for each attempt).
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.sdk import Param
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException, TaskAwaitingInput
from airflow.sdk.execution_time.hitl import HITLUser
from pydantic import JsonValue

from fencepost.airflow.aftermath import Kept, after_question
from fencepost.airflow.connections import with_connections
from fencepost.airflow.operators import airflow_errors, interval_of, report
from fencepost.airflow.question import PUBLISH, SKIP, WRITE_AGAIN, body_of, subject_of
from fencepost.airflow.spark_operator import FencepostSparkOperator
from fencepost.config.pipeline import Pipeline
from fencepost.model import Asked, Decision, StepResult, utc_now
from fencepost.protocol.awaiting import Need
from fencepost.protocol.decisions import asked_about
from fencepost.protocol.snapshot import snapshot_of
from fencepost.protocol.view import DECIDED, has_passed

if TYPE_CHECKING:
    from airflow.sdk import Context

OPTIONS = [PUBLISH, WRITE_AGAIN, SKIP]
DECIDE = "decide"
LONGEST = 1000  # characters of a reason


class DecideOperator(HITLOperator):
    """Ask what to do about a rejected batch, and do it."""

    def __init__(self, *, pipeline: Pipeline, **kwargs: Any) -> None:
        # Airflow validates a task's params before it runs, and the default too, so an empty reason has to be allowed here.
        reason = Param("", type="string", maxLength=LONGEST, title="Reason", description="Stored in the ledger.")
        kwargs.pop("params", None)  # Airflow passes the DAG's on; the form asks only for a reason
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
        self.kept = Kept()

    @property
    def serialized_params(self) -> dict[str, dict[str, Any]]:
        """The form's fields, where the reason is required."""
        form: dict[str, dict[str, Any]] = super().serialized_params
        form["reason"]["schema"]["minLength"] = 1
        return form

    def execute(self, context: Context) -> dict[str, JsonValue]:
        """Ask if there is something to decide; `execute_complete` gets the answer."""
        from fencepost.ledger.ledger import Ledger

        interval = interval_of(context)
        with airflow_errors(self.pipeline):
            view = Ledger(with_connections(self.pipeline)).read()
        batch = view.last(interval)
        if batch is not None and (batch.state in DECIDED or has_passed(batch)):
            return {"choice": None}
        found = snapshot_of(view).by_key[str(interval)].awaiting() if batch is not None else None
        if batch is None or found is None or found.need is not Need.REJECTED or batch.verdict is None:
            self.kept = Kept(told=True)  # the task that failed before it has told people
            state = f"batch {batch.id} is {batch.state}" if batch else "nothing was planned"
            raise AirflowFailException(
                f"{state}, so there is nothing to decide. Fix the cause of the failed task, and clear that task."
            )
        asked = asked_about(batch)
        self.subject, self.body = subject_of(batch), body_of(found)
        self.log.info("asking about batch %s for %s", batch.id, self.response_timeout)
        try:
            super().execute(context)
        except TaskAwaitingInput as waiting:
            waiting.kwargs = {"asked": asked.model_dump(mode="json", exclude_defaults=True)}
            until = utc_now() + timedelta(minutes=self.pipeline.quality.ask_operator_minutes)
            after_question(context, self.pipeline, batch, until)
            raise
        raise AssertionError("the operator waits for its answer elsewhere")

    def execute_complete(
        self, context: Context, event: dict[str, Any], asked: dict[str, Any] | None = None
    ) -> dict[str, JsonValue]:
        """Carry out the choice, with the reason and the name of the person, if the batch is still as it was when `asked`."""
        answer = super().execute_complete(context, event)
        (choice,) = answer["chosen_options"]
        reason = str(answer["params_input"].get("reason", "")).strip()
        if not reason:
            raise AirflowException("a decision needs a reason, for later readers of the ledger. Nothing was done.")
        if asked is None:
            raise AirflowException(
                "an earlier Fencepost asked this question. Nothing was done; the next attempt asks again."
            )
        user = answer["responded_by_user"] or {}
        decision = Decision(
            action=choice,
            by=str(user.get("name") or user.get("id") or "unknown"),
            reason=reason,
            decided_at=answer["responded_at"],
            asked=Asked.model_validate(asked),
        )
        with airflow_errors(self.pipeline):
            done = report(self.log, self._do(context, choice, decision))
        return {**done, "choice": choice}

    def _do(self, context: Context, choice: str, decision: Decision) -> StepResult:
        from fencepost.steps.advance import begin_batch, skip_batch
        from fencepost.steps.plan import plan_batch
        from fencepost.steps.replay import plan_replay

        interval, pipeline = interval_of(context), with_connections(self.pipeline)
        if choice == PUBLISH:
            return begin_batch(pipeline, interval, decision)  # a staged batch is copied by advance, which comes next
        if choice == SKIP:
            return skip_batch(pipeline, interval, decision)
        if decision.asked is not None and decision.asked.addition:
            return plan_replay(pipeline, interval, decision)
        return plan_batch(pipeline, interval, reprocess=True, decision=decision)


class AgainOperator(FencepostSparkOperator):
    """Run a step again if that was decided; otherwise skip."""

    def __init__(self, *, step: Literal["write", "validate"], pipeline: Pipeline, **kwargs: Any) -> None:
        super().__init__(step=step, pipeline=pipeline, **kwargs)

    def execute(self, context: Context) -> dict[str, JsonValue]:  # type: ignore[override]
        """Run the step for the revision that the decision planned."""
        decided: Any = context["ti"].xcom_pull(task_ids=DECIDE) or {}
        if decided.get("choice") != WRITE_AGAIN:
            raise AirflowSkipException("the decision was not to write the interval again")
        return super().execute(context)
