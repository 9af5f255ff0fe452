"""Who is told of what: each event once, through a real provider's notifier, and never at a task's expense."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import shutil
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pendulum
import pytest
from airflow.sdk.configuration import ensure_secrets_loaded
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowTaskTimeout, TaskAwaitingInput
from airflow.sdk.execution_time import comms, task_runner
from airflow.sdk.execution_time.context import AssetStateStoreAccessors
from typer.testing import CliRunner

from fencepost.airflow import after_step, build_dag, deadline, notifications, output_asset
from fencepost.airflow.dag import Team
from fencepost.airflow.notified_event import BatchFacts
from fencepost.airflow.sample_event import example_of, send_test
from fencepost.cli.app import app
from fencepost.config.notify import EVENTS, Event, Notify
from fencepost.config.pipeline import Pipeline
from fencepost.errors import BatchRejected, SettingsError, VerdictUndetermined
from fencepost.model import Batch, Interval, State, StepResult, Tally
from fencepost.model import HistoryEntry as Entered
from fencepost.outputs.postgres.values import PostgresPublication
from fencepost.paths import reports_folder
from fencepost.protocol.view import View
from fencepost.quality.checks import Status
from makers import a_topic
from rigs.notifiers import FailsAtFirst
from rigs.receivers import HttpReceiver, http_receiver
from unit.quality import reports
from unit.quality.reports import NOON, REPORTS

from .conftest import PIPELINE_YAML, ContextOf

MakePipeline = Callable[..., Pipeline]
SLACK = "airflow.providers.slack.notifications.slack_webhook.SlackWebhookNotifier"
KWARGS = "{slack_webhook_conn_id: slack, text: '{{ fencepost.text }}', blocks: [{text: '{{ fencepost | tojson }}'}]}"
NOTIFY = """
quality: {{ask_operator_minutes: 90}}
notify:
  - {{on: [{on}], notifier: {notifier}, kwargs: {kwargs}{more}}}
"""
ENVIRONMENT = "airflow.secrets.environment_variables.EnvironmentVariablesBackend"
TOKEN = "T0/B0/a-token-that-nobody-sees"


def settings(on: str, more: str = "", notifier: str = SLACK, kwargs: str = KWARGS) -> str:
    late = PIPELINE_YAML.replace("retries: 2}", "retries: 2, deadline_minutes: 90}")
    return late + NOTIFY.format(on=on, notifier=notifier, kwargs=kwargs, more=more and f", {more}")


@pytest.fixture
def slack(monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpReceiver]:
    """A receiver in the place of Slack's webhook."""
    with http_receiver() as receiver:
        connection = {"conn_type": "slackwebhook", "host": receiver.url, "password": TOKEN}
        monkeypatch.setenv("AIRFLOW_CONN_SLACK", json.dumps(connection))
        yield receiver


def texts(slack: HttpReceiver) -> list[str]:
    return [json.loads(body)["text"] for body in slack.bodies]


def last(slack: HttpReceiver) -> dict[str, Any]:
    """What the template got as `fencepost`."""
    found: dict[str, Any] = json.loads(json.loads(slack.bodies[-1])["blocks"][0]["text"])
    return found


class Store:
    """Airflow's API with the state of assets, behind the supervisor."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, str], Any] = {}
        self.is_away = False
        self.asked = 0

    def send(self, msg: Any) -> Any:
        if isinstance(msg, comms.MaskSecret):
            return None
        self.asked += 1
        if self.is_away:
            raise OSError("no API server")
        key = (msg.name, msg.key)
        match msg:
            case comms.GetAssetStateStoreByName():
                if key in self.values:
                    return comms.AssetStateStoreResult(value=self.values[key])
            case comms.SetAssetStateStoreByName():
                self.values[key] = msg.value
            case comms.DeleteAssetStateStoreByName():
                self.values.pop(key, None)
            case _:
                raise AssertionError(msg)
        return None


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    found = Store()
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", found, raising=False)
    monkeypatch.setattr(
        "airflow.sdk.execution_time.supervisor.ensure_secrets_backend_loaded",
        lambda: ensure_secrets_loaded(default_backends=[ENVIRONMENT]),  # not the one that asks the supervisor
    )
    return found


InTask = Callable[..., dict[str, Any]]


@pytest.fixture
def in_task(context_of: ContextOf, store: Store) -> InTask:
    """The context of a task that has the output's asset as an inlet, with Airflow's own accessors."""

    def make(pipeline: Pipeline, returned: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
        context = context_of(**options)
        context["asset_state_store"] = AssetStateStoreAccessors([output_asset(pipeline.name, pipeline.output.name)])
        context["ti"].returned = returned or {}
        return context

    return make


def judged(name: str, number: int = 1) -> Batch:
    """A batch of pipeline `counted` that was judged as in that report, which lies in the folder of reports."""
    made = REPORTS[name]
    batch = made.batch.model_copy(update={"pipeline": "counted"})
    return reports.judged(made.model_copy(update={"batch": batch, "number": number}), reports_folder())


def refused(batch: Batch) -> Batch:
    """The batch, which its table has refused."""
    said = "SQLSTATE 23505, constraint one"
    tried = PostgresPublication(table="public.t", ledger="", lease=3, begun_at=NOON, refused=said)
    return batch.model_copy(update={"state": State.REJECTED, "publication": tried})


def with_quarantined(batch: Batch, rows: int) -> Batch:
    assert batch.written is not None
    quarantine = a_topic(9, topic="quarantine")
    topics = batch.written.topics | {"quarantine": Tally(rows=rows)}
    written = batch.written.model_copy(update={"quarantine": quarantine, "topics": topics})
    return batch.model_copy(update={"written": written})


def of_batch(context: dict[str, Any], batch: Batch) -> dict[str, Any]:
    start, end = (pendulum.instance(moment) for moment in (batch.interval.start, batch.interval.end))
    return context | {"data_interval_start": start, "data_interval_end": end}


Fails = Callable[..., None]


@pytest.fixture
def validate_fails(monkeypatch: pytest.MonkeyPatch, in_task: InTask) -> Fails:
    """Run the task validate on a ledger with that batch; the step raises the error, and the task fails with it."""

    def run(pipeline: Pipeline, batch: Batch, error: Exception, **options: Any) -> None:
        def step(pipeline: Pipeline, interval: Interval, rejected: bool, **_: Any) -> StepResult:
            raise error

        monkeypatch.setattr("fencepost.steps.validate.validate_without_spark", step)
        monkeypatch.setattr("fencepost.ledger.ledger.Ledger.__init__", lambda self, pipeline: None)
        monkeypatch.setattr("fencepost.ledger.ledger.Ledger.read", lambda self: View.of((batch,)))
        task = build_dag(pipeline).get_task("validate")
        context = of_batch(in_task(pipeline, **options), batch) | {"task": task}
        with pytest.raises(AirflowFailException) as failed:
            task.execute(context)
        context["exception"] = failed.value
        for callback in task.on_failure_callback:
            callback(context)

    return run


def test_a_verdict_is_sent_with_checks_and_counts_and_no_record(
    make_pipeline: MakePipeline, slack: HttpReceiver, validate_fails: Fails, caplog: pytest.LogCaptureFixture
) -> None:
    batch = judged("hostile")
    with caplog.at_level(logging.DEBUG, logger="fencepost"):
        validate_fails(make_pipeline(settings=settings("rejected, failed")), batch, BatchRejected("batch: no."))
    assert slack.paths == [f"/{TOKEN}"]
    (text,) = texts(slack)
    assert text.startswith("counted, 2013-01-01 00:00 to 2013-01-02 00:00 UTC, revision 1: rejected. ")
    assert text.endswith("/dags/counted/runs/run%201/plugin/run-report")
    told = last(slack)
    (hostile,) = [c for c in REPORTS["hostile"].evaluation.checks if c.status is not Status.PASSED]
    assert told["checks"] == [
        {
            "name": hostile.title,
            "severity": "critical",
            "status": "failed",
            "unexpected": hostile.unexpected_count,
            "records": hostile.element_count,
        }
    ]
    expected = {"event": "rejected", "batch": str(batch.id), "revision": 1, "validation": 1, "verdict": "rejected"}
    expected |= {"run": "run 1", "run_type": "scheduled", "rows": 50_000_000, "is_test": False, "pipeline": "counted"}
    expected |= {"interval": {"start": "2013-01-01T00:00:00+00:00", "end": "2013-01-02T00:00:00+00:00"}}
    assert {name: told[name] for name in expected} == expected
    assert hostile.sample[0].key
    assert hostile.sample[0].key not in slack.bodies[0].decode()
    for one in (hostile.observed, *(value for row in hostile.sample for value in row.values.values())):
        assert not one or not isinstance(one, str) or json.dumps(one)[1:-1] not in slack.bodies[0].decode()
    assert TOKEN not in caplog.text


def test_an_event_is_sent_once_for_each_validation_of_a_batch(
    make_pipeline: MakePipeline, slack: HttpReceiver, validate_fails: Fails
) -> None:
    pipeline = make_pipeline(settings=settings("rejected, quarantined"))
    for number in (1, 1, 2, 2, 1):
        validate_fails(pipeline, with_quarantined(judged("rejected", number), 7), BatchRejected("batch: no."))
    seen = [(one["event"], one["validation"]) for one in map(told_in, slack.bodies)]
    assert seen == [("rejected", 1), ("quarantined", 1), ("rejected", 2), ("quarantined", 2)]


def told_in(body: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.loads(body)["blocks"][0]["text"])
    return found


def test_each_entry_sends_for_itself(
    make_pipeline: MakePipeline, slack: HttpReceiver, validate_fails: Fails, caplog: pytest.LogCaptureFixture
) -> None:
    """One that fails is tried again with the next attempt; one that has sent is not."""
    both = settings("rejected") + "  - {on: [rejected], notifier: rigs.notifiers.FailsAtFirst, kwargs: {times: 1}}\n"
    pipeline = make_pipeline(settings=both)
    FailsAtFirst.calls = 0
    for _ in range(3):
        validate_fails(pipeline, judged("rejected"), BatchRejected("batch: no."))
    assert (len(slack.bodies), FailsAtFirst.calls) == (1, 2)
    assert "did not send rejected: OSError" in caplog.text
    assert "a-token" not in caplog.text


def test_what_a_notifier_fails_with_is_logged_by_its_kind_and_the_task_fails_with_its_own_error(
    make_pipeline: MakePipeline, slack: HttpReceiver, validate_fails: Fails, caplog: pytest.LogCaptureFixture
) -> None:
    slack.status = 500
    batch = judged("rejected")
    pipeline = make_pipeline(settings=settings("rejected"))
    validate_fails(pipeline, batch, BatchRejected("batch: no."))
    assert "did not send rejected" in caplog.text
    assert TOKEN not in caplog.text
    slack.status = 200
    validate_fails(pipeline, batch, BatchRejected("batch: no."))
    assert len(slack.bodies) == 2, "it was not noted as sent"


def test_a_notifier_that_hangs_delays_nothing_for_longer_than_the_limit(
    make_pipeline: MakePipeline,
    slack: HttpReceiver,
    validate_fails: Fails,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert notifications.LIMIT == 10
    monkeypatch.setattr(notifications, "LIMIT", 0.5)
    slack.hangs = True
    began = time.monotonic()
    validate_fails(make_pipeline(settings=settings("rejected")), judged("rejected"), BatchRejected("batch: no."))
    assert time.monotonic() - began < 5
    assert "did not end within 0.5 seconds" in caplog.text


def test_a_notifier_is_made_anew_for_each_event(
    make_pipeline: MakePipeline, slack: HttpReceiver, validate_fails: Fails
) -> None:
    """Rendering changes a notifier, and the lists in its arguments, in place."""
    pipeline = make_pipeline(settings=settings("rejected, quarantined"))
    validate_fails(pipeline, with_quarantined(judged("rejected"), 7), BatchRejected("batch: no."))
    first, second = texts(slack)
    assert "rejected" in first
    assert "7 records in quarantine (malformed 7)." in second
    assert told_in(slack.bodies[1])["event"] == "quarantined"


@pytest.mark.parametrize(("more", "sent"), [("", 0), ("backfills: true", 1)])
def test_a_backfill_tells_nobody_unless_asked_to(
    make_pipeline: MakePipeline, slack: HttpReceiver, validate_fails: Fails, more: str, sent: int
) -> None:
    pipeline = make_pipeline(settings=settings("rejected", more))
    validate_fails(pipeline, judged("rejected"), BatchRejected("batch: no."), run_type="backfill")
    assert len(slack.bodies) == sent


def test_a_batch_that_could_not_be_judged_has_failed(
    make_pipeline: MakePipeline, slack: HttpReceiver, validate_fails: Fails
) -> None:
    pipeline = make_pipeline(settings=settings("rejected, failed"))
    validate_fails(pipeline, judged("undetermined"), VerdictUndetermined("batch: cannot say."))
    (text,) = texts(slack)
    assert "revision 1: validate failed for good. " in text


@pytest.mark.parametrize(("above", "sent"), [(6, 1), (7, 0)])
def test_quarantined_counts_above_a_number(
    make_pipeline: MakePipeline,
    slack: HttpReceiver,
    in_task: InTask,
    monkeypatch: pytest.MonkeyPatch,
    result: StepResult,
    above: int,
    sent: int,
) -> None:
    pipeline = make_pipeline(settings=settings("quarantined", f"above: {above}"))
    details: dict[str, Any] = {
        "quarantined": {"malformed": 5, "rule": 2},
        "validation": 1,
        "verdict": "passed",
        "rows": 9,
    }
    passed = result.model_copy(update={"step": "validate", "details": details})
    monkeypatch.setattr("fencepost.steps.validate.validate_without_spark", lambda *_, **__: passed)
    for _ in range(2):
        build_dag(pipeline).get_task("validate").execute(in_task(pipeline))
    assert [text.partition(": ")[2].partition(" http")[0] for text in texts(slack)] == [
        "7 records in quarantine (malformed 5, rule 2)."
    ] * sent
    published = passed.model_copy(update={"state": State.PUBLISHED, "batch": "counted/x/2"})
    monkeypatch.setattr("fencepost.steps.validate.validate_without_spark", lambda *_, **__: published)
    build_dag(pipeline).get_task("validate").execute(in_task(pipeline))
    assert len(slack.bodies) == sent, "nothing is said of what was published before"


Advances = Callable[..., None]


@pytest.fixture
def advance(monkeypatch: pytest.MonkeyPatch, in_task: InTask, result: StepResult) -> Advances:
    """Run the task advance, which finds or makes this of the batch."""

    def run(
        pipeline: Pipeline,
        batch: Batch,
        state: State,
        *,
        changed: bool,
        settled: datetime,
        plan: str = "planned",
        **options: Any,
    ) -> None:
        details: dict[str, Any] = {"published_at": settled.isoformat(), "rows": 3, "output": {}, "quarantined": {}}
        done = StepResult.of("advance", batch, "done", changed=changed, **details).model_copy(update={"state": state})
        monkeypatch.setattr("fencepost.steps.advance.advance_without_spark", lambda *_, **__: done)
        monkeypatch.setattr("fencepost.airflow.spark_operator.announce", lambda *_: False)
        context = of_batch(in_task(pipeline, {"plan": {"state": plan}}, **options), batch)
        build_dag(pipeline).get_task("advance").execute(context)

    return run


IN_TIME = datetime(2013, 1, 2, 1, tzinfo=UTC)
NEXT = Interval.of(datetime(2013, 1, 2, tzinfo=UTC), datetime(2013, 1, 3, tzinfo=UTC))


@pytest.mark.parametrize(("state", "says"), [(State.PUBLISHED, "published with 3 records"), (State.SKIPPED, "skipped")])
def test_an_interval_that_had_gone_wrong_recovers_once(
    make_pipeline: MakePipeline,
    slack: HttpReceiver,
    validate_fails: Fails,
    advance: Advances,
    store: Store,
    state: State,
    says: str,
) -> None:
    pipeline, batch = make_pipeline(settings=settings("rejected, recovered")), judged("rejected")
    advance(pipeline, batch, state, changed=True, settled=IN_TIME)
    assert slack.bodies == [], "nothing bad was sent of it"
    validate_fails(pipeline, batch, BatchRejected("batch: no."))
    for changed in (True, False):
        advance(pipeline, batch, state, changed=changed, settled=IN_TIME)
    assert len(slack.bodies) == 2
    assert f"{says}, after an earlier problem." in texts(slack)[1]
    assert store.values == {}


def test_who_was_told_hears_of_the_end_that_a_backfill_brings(
    make_pipeline: MakePipeline,
    slack: HttpReceiver,
    validate_fails: Fails,
    advance: Advances,
) -> None:
    """Airflow makes a backfill of the scheduled run that it runs again."""
    pipeline, batch = make_pipeline(settings=settings("rejected, recovered")), judged("rejected")
    validate_fails(pipeline, batch, BatchRejected("batch: no."))
    validate_fails(pipeline, judged("rejected", number=2), BatchRejected("batch: no."), run_type="backfill")
    advance(pipeline, batch, State.PUBLISHED, changed=True, settled=IN_TIME, run_type="backfill")
    assert [told_in(body)["event"] for body in slack.bodies] == ["rejected", "recovered"]


def test_quarantined_records_are_nothing_to_recover_from(
    make_pipeline: MakePipeline, slack: HttpReceiver, validate_fails: Fails, advance: Advances
) -> None:
    pipeline = make_pipeline(settings=settings("quarantined, recovered"))
    batch = with_quarantined(judged("rejected"), 7)
    validate_fails(pipeline, batch, BatchRejected("batch: no."))
    advance(pipeline, batch, State.PUBLISHED, changed=True, settled=IN_TIME)
    assert [told_in(body)["event"] for body in slack.bodies] == ["quarantined"]


def test_notes_of_an_interval_go_once_it_is_published(
    make_pipeline: MakePipeline, slack: HttpReceiver, validate_fails: Fails, advance: Advances, store: Store
) -> None:
    """Without an entry for `recovered` too. Those of another interval stay."""
    pipeline = make_pipeline(settings=settings("rejected, quarantined"))
    batch = with_quarantined(judged("rejected"), 7)
    another = judged("rejected").model_copy(update={"interval": NEXT})
    for _ in range(2):
        validate_fails(pipeline, batch, BatchRejected("batch: no."))
        validate_fails(pipeline, another, BatchRejected("batch: no."))
    assert len(slack.bodies) == 3
    assert len(store.values) == 4, "of each interval what was sent, and that something was wrong"
    advance(pipeline, batch, State.SKIPPED, changed=False, settled=IN_TIME)
    assert sorted(key for _, key in store.values) == [f"fencepost sent {NEXT}", f"fencepost trouble {NEXT}"]


def test_notes_stay_until_every_entry_has_told_of_the_end(
    make_pipeline: MakePipeline,
    slack: HttpReceiver,
    validate_fails: Fails,
    advance: Advances,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pipeline, batch = make_pipeline(settings=settings("rejected, recovered")), judged("rejected")
    validate_fails(pipeline, batch, BatchRejected("batch: no."))
    with monkeypatch.context() as away:
        away.delenv("AIRFLOW_CONN_SLACK")
        advance(pipeline, batch, State.PUBLISHED, changed=True, settled=IN_TIME)
    assert len(store.values) == 2
    advance(pipeline, batch, State.PUBLISHED, changed=False, settled=IN_TIME)
    assert [told_in(body)["event"] for body in slack.bodies] == ["rejected", "recovered"]
    assert store.values == {}


def missed(batch: Batch) -> dict[str, Any]:
    """What Airflow gives the callback of a missed deadline, which is at half past one."""
    run = {"dag_id": "counted", "dag_run_id": "scheduled__2", "run_type": "scheduled"}
    run |= {f"data_interval_{side}": getattr(batch.interval, side).isoformat() for side in ("start", "end")}
    return {"dag_run": run, "deadline": {"id": "1", "deadline_time": datetime(2013, 1, 2, 1, 30, tzinfo=UTC)}}


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Batch]:
    """What the ledger has; of several, each read drops the first."""
    found: list[Batch] = []

    def read(_: Any) -> View:
        return View.of((found.pop(0) if len(found) > 1 else found[0],))

    monkeypatch.setattr("fencepost.ledger.ledger.Ledger.__init__", lambda self, pipeline: None)
    monkeypatch.setattr("fencepost.ledger.ledger.Ledger.read", read)
    return found


def entered(batch: Batch, state: State, at: datetime) -> Batch:
    return batch.model_copy(update={"state": state, "history": (Entered(state=state, at=at),)})


TOO_LATE = datetime(2013, 1, 2, 2, 0, tzinfo=UTC)


def test_an_interval_recovers_from_a_deadline_that_was_told_of_and_from_no_other(
    make_pipeline: MakePipeline, slack: HttpReceiver, advance: Advances, store: Store, recorded: list[Batch]
) -> None:
    """A run that only catches up is settled after its deadline too, and Airflow has called for none."""
    pipeline, batch = make_pipeline(settings=settings("late, recovered")), judged("passed")
    advance(pipeline, batch, State.PUBLISHED, changed=True, settled=TOO_LATE)
    assert slack.bodies == []
    recorded.append(batch)
    for _ in range(2):
        asyncio.run(deadline.say_so(missed(batch)))
    for _ in range(2):
        advance(pipeline, batch, State.PUBLISHED, changed=True, settled=TOO_LATE)
    assert [told_in(body)["event"] for body in slack.bodies] == ["late", "recovered"]
    assert store.values == {}


def test_an_interval_that_is_published_while_its_deadline_is_told_of_recovers(
    make_pipeline: MakePipeline, slack: HttpReceiver, store: Store, recorded: list[Batch]
) -> None:
    """Its run has looked for the note before there was one."""
    make_pipeline(settings=settings("late, recovered"))
    batch = judged("passed")
    recorded += [batch, entered(batch, State.PUBLISHED, TOO_LATE)]
    asyncio.run(deadline.say_so(missed(batch)))
    assert [told_in(body)["event"] for body in slack.bodies] == ["late", "recovered"]


def test_a_missed_deadline_is_sent(make_pipeline: MakePipeline, slack: HttpReceiver, recorded: list[Batch]) -> None:
    """Also where the state store does not answer."""
    make_pipeline(settings=settings("late"))
    recorded.append(judged("passed"))
    asyncio.run(deadline.say_so(missed(recorded[0])))
    (text,) = texts(slack)
    assert "revision 1: not published by 2013-01-02 01:30 UTC." in text


def break_file(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    (pipeline.folder / "pipeline.yaml").write_text("source: {topic: in, fromat: json}\n")


def take_folder(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(pipeline.folder)


def unset_variable(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    file = pipeline.folder / "pipeline.yaml"
    file.write_text(file.read_text().replace("hunter2", "${OF_THE_DAG_PROCESSOR_ALONE}"))


def refuse_to_be_read(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(deadline, "find_pipeline", refuse)


@pytest.mark.parametrize("in_bundle", [False, True])
@pytest.mark.parametrize("hinder", [break_file, take_folder, unset_variable, refuse_to_be_read])
def test_a_missed_deadline_is_sent_where_the_pipeline_cannot_be_read_which_may_be_why(
    make_pipeline: MakePipeline,
    slack: HttpReceiver,
    advance: Advances,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    hinder: Callable[..., None],
    in_bundle: bool,
) -> None:
    """The alert was made where it could be read. Once it can be again, the interval recovers."""
    pipeline = make_pipeline(settings=settings("late, recovered").replace("topic: in,", "topic: '${IN:-in}',"))
    (alert,) = build_dag(pipeline, Team(folder=pipeline.folder.parent) if in_bundle else None).deadline
    carried = json.loads(json.dumps(alert.callback.kwargs))
    assert "hunter2" not in json.dumps(carried)
    hinder(pipeline, monkeypatch)
    asyncio.run(deadline.say_so(missed(judged("passed")), **carried))
    (text,) = texts(slack)
    assert "counted, 2013-01-01 00:00 to 2013-01-02 00:00 UTC: not published by 2013-01-02 01:30 UTC." in text
    advance(pipeline, judged("passed"), State.PUBLISHED, changed=True, settled=TOO_LATE)
    assert [told_in(body)["event"] for body in slack.bodies] == ["late", "recovered"]


def test_an_alert_carries_nobody_who_is_not_told_of_deadlines(make_pipeline: MakePipeline) -> None:
    (alert,) = build_dag(make_pipeline(settings=settings("rejected"))).deadline
    assert not alert.callback.kwargs


def test_what_was_published_by_a_command_in_time_is_not_late(
    make_pipeline: MakePipeline, slack: HttpReceiver, recorded: list[Batch]
) -> None:
    """Airflow calls all the same: the run has not succeeded."""
    make_pipeline(settings=settings("late"))
    recorded.append(entered(judged("passed"), State.PUBLISHED, IN_TIME))
    asyncio.run(deadline.say_so(missed(recorded[0])))
    assert slack.bodies == []


def test_what_a_table_refused_is_told_with_its_reason_and_not_as_a_verdict() -> None:
    facts = BatchFacts.of_batch(refused(judged("passed")))
    assert facts.reason == "table public.t refused its data: SQLSTATE 23505, constraint one"


def test_the_output_of_a_job_that_was_killed_is_not_sent() -> None:
    error = AirflowException("write: the job was killed.\nits last lines\nsecret row")
    assert after_step._reason(error) == "write: the job was killed."


def test_a_question_that_has_nothing_to_ask_tells_nobody_a_second_time(
    make_pipeline: MakePipeline, in_task: InTask, slack: HttpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task that failed before it has told people."""
    pipeline = make_pipeline(settings=settings("failed"))
    monkeypatch.setattr("fencepost.ledger.ledger.Ledger.__init__", lambda self, pipeline: None)
    monkeypatch.setattr("fencepost.ledger.ledger.Ledger.read", lambda self: View())
    task = build_dag(pipeline).get_task("decide")
    context = of_batch(in_task(pipeline, {}), judged("undetermined"))
    with pytest.raises(AirflowFailException) as raised:
        task.execute(context)
    for callback in task.on_failure_callback:
        callback({**context, "task": task, "exception": raised.value})
    assert slack.bodies == []


def test_a_question_is_told_of_once_it_is_open_and_stays_open_when_that_fails(
    make_pipeline: MakePipeline, slack: HttpReceiver, in_task: InTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []
    monkeypatch.setattr(
        "airflow.providers.standard.operators.hitl.upsert_hitl_detail", lambda **_: opened.append(len(slack.bodies))
    )
    batch = judged("rejected")
    monkeypatch.setattr("fencepost.ledger.ledger.Ledger.__init__", lambda self, pipeline: None)
    monkeypatch.setattr("fencepost.ledger.ledger.Ledger.read", lambda self: View.of((batch,)))
    pipeline = make_pipeline(settings=settings("awaiting"))
    for status in (500, 200):
        slack.status = status
        context = of_batch(in_task(pipeline), batch) | {"task_instance": type("TI", (), {"id": "x"})}
        with pytest.raises(TaskAwaitingInput):
            build_dag(pipeline).get_task("decide").execute(context)
    assert opened == [0, 1]
    assert "rejected, and awaits a person's decision until " in texts(slack)[1]


def test_a_step_that_failed_for_good_is_sent_once_with_fencepost_s_own_reason(
    make_pipeline: MakePipeline, slack: HttpReceiver, in_task: InTask, result: StepResult
) -> None:
    pipeline = make_pipeline(settings=settings("failed"))
    (callback,) = build_dag(pipeline).get_task("write").on_failure_callback
    returned = {"plan": result.model_dump(mode="json")}
    for error in (AirflowException("WriteFailed: aborted."), AirflowTaskTimeout("secret"), AirflowException("again")):
        context = in_task(pipeline, returned) | {"task": SimpleNamespace(task_id="write"), "exception": error}
        callback(context)
    (text,) = texts(slack)
    assert "revision 1: write failed for good. WriteFailed: aborted. http" in text
    assert text.endswith("/dags/counted/runs/run%201")


def test_an_unforeseen_error_is_sent_by_its_kind_alone(
    make_pipeline: MakePipeline, slack: HttpReceiver, in_task: InTask
) -> None:
    """And before there is a plan, the interval names what failed."""
    pipeline = make_pipeline(settings=settings("failed"))
    (callback,) = build_dag(pipeline).get_task("plan").on_failure_callback
    callback(in_task(pipeline) | {"task": SimpleNamespace(task_id="plan"), "exception": ValueError("a record's value")})
    (text,) = texts(slack)
    assert "UTC: plan failed for good. ValueError" in text
    assert "record" not in text


def test_without_the_address_of_airflows_ui_no_link_leads_to_the_readers_own_machine(
    make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = make_pipeline(settings=settings("rejected, failed"))
    for address in (None, ""):
        if address is None:
            monkeypatch.delenv("AIRFLOW__API__BASE_URL")
        else:
            monkeypatch.setenv("AIRFLOW__API__BASE_URL", address)
        rejected, failed = (example_of(pipeline, event).for_templates() for event in ("rejected", "failed"))
        assert rejected["text"].endswith("See tab Report of run test of DAG counted in Airflow.")
        assert failed["text"].endswith("See run test of DAG counted in Airflow.")
        assert [rejected["run_url"], rejected["report"]] == ["", ""]
        assert "http" not in str(rejected) + str(failed)


def test_a_task_that_was_killed_is_told_of_by_the_dag_processor_which_has_no_notes(
    make_pipeline: MakePipeline, slack: HttpReceiver, in_task: InTask, store: Store
) -> None:
    pipeline = make_pipeline(settings=settings("failed"))
    (callback,) = build_dag(pipeline).get_task("write").on_failure_callback
    callback(in_task(pipeline) | {"task": SimpleNamespace(task_id="write")})
    (text,) = texts(slack)
    assert store.asked == 0
    assert "write failed for good. its process was killed." in text


def test_without_the_state_store_an_event_is_sent_all_the_same(
    make_pipeline: MakePipeline,
    slack: HttpReceiver,
    validate_fails: Fails,
    store: Store,
    caplog: pytest.LogCaptureFixture,
) -> None:
    store.is_away = True
    validate_fails(make_pipeline(settings=settings("rejected")), judged("rejected"), BatchRejected("batch: no."))
    assert len(slack.bodies) == 1
    assert "the state store of the output's asset could not be" in caplog.text


def test_the_asset_is_an_inlet_of_each_task_and_a_teams_callbacks_come_after_ours(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline(settings=settings("rejected"))
    asset = output_asset("counted", "out")
    for task in build_dag(pipeline).tasks:
        assert task.inlets == [asset]
        assert len(task.on_failure_callback) == 1
    for task in build_dag(pipeline, Team(default_args={"on_failure_callback": [print, repr]})).tasks:
        ours, *theirs = task.on_failure_callback
        assert (ours.func.__module__, theirs) == ("fencepost.airflow.after_step", [print, repr])


def test_a_pipeline_without_notify_has_neither(pipeline: Pipeline) -> None:
    for task in build_dag(pipeline).tasks:
        assert (list(task.inlets), list(task.on_failure_callback)) == ([], [])


@pytest.mark.parametrize(
    ("notify", "says"),
    [
        ("{on: [rejected, burnt], notifier: a.B}", "notify.0.on.1: Input should be 'rejected'"),
        ("{on: [], notifier: a.B}", "notify.0.on: "),
        ("{on: [failed, failed], notifier: a.B}", "notify.0.on: names an event twice"),
        ("{on: [failed], notifier: Slack}", "notify.0.notifier: not the import path of a notifier"),
        ("{on: [failed], notifier: a.B, above: 3}", "above works only with the event quarantined"),
        ("{on: [quarantined], notifier: a.B, above: -1}", "notify.0.above"),
        ("{on: [late], notifier: a.B}", "notify: late needs schedule.deadline_minutes"),
        ("{on: [awaiting], notifier: a.B}", "notify: awaiting needs quality.ask_operator_minutes above 0"),
        ("{on: [failed], notifier: a.B, to: me}", "notify.0.to: unknown field; allowed here are on, notifier, kwargs"),
        (
            "{on: [failed], notifier: a.B, kwargs: {token: hunter3}}",
            "token looks like a secret. Put it into an Airflow connection",
        ),
        ("{on: [failed], notifier: a.B, kwargs: {a: [{url: 'http://me:hunter3@x'}]}}", "url looks like a secret"),
        ("{on: [failed], notifier: a.B, kwargs: {text: '${HOME}'}}", "is not allowed here"),
    ],
)
def test_what_makes_no_sense_is_refused(make_pipeline: MakePipeline, notify: str, says: str) -> None:
    with pytest.raises(SettingsError, match=r"pipeline\.yaml") as refused:
        make_pipeline(settings=f"{PIPELINE_YAML}\nnotify: [{notify}]\n")
    assert says in str(refused.value)
    assert "hunter3" not in str(refused.value)


def test_only_the_named_users_may_answer(make_pipeline: MakePipeline) -> None:
    ask = "quality: {ask_operator_minutes: 9, ask: {assigned_users: [{id: '7', name: ada}]}}\n"
    task: Any = build_dag(make_pipeline(settings=PIPELINE_YAML + ask)).get_task("decide")
    assert task.assigned_users == [{"id": "7", "name": "ada"}]
    with pytest.raises(SettingsError, match=r"ask\.assigned_users needs ask_operator_minutes above 0"):
        make_pipeline("other", PIPELINE_YAML + ask.replace("ask_operator_minutes: 9, ", ""))


@pytest.mark.parametrize("event", EVENTS)
def test_a_test_of_each_event_is_sent_and_says_that_it_is_one(
    make_pipeline: MakePipeline, slack: HttpReceiver, event: Event
) -> None:
    pipeline = make_pipeline(settings=settings(", ".join(EVENTS)))
    (sent,) = send_test(pipeline, event)
    assert sent.error == ""
    assert texts(slack)[0].startswith("This is a test. counted, ")
    assert (last(slack)["event"], last(slack)["is_test"]) == (event, True)


def test_the_command_says_how_it_ended_for_each(
    make_pipeline: MakePipeline, slack: HttpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = "  - {on: [failed], notifier: nowhere.at.All}\n  - {on: [late], notifier: nowhere.else.AtAll}\n"
    entry = "  - {{on: [failed], notifier: {}, kwargs: {{text: '{}', slack_webhook_conn_id: {}}}}}\n".format
    wrong, unknown = entry(SLACK, "{{ fencepost.txt }}", "slack"), entry(SLACK, "x", "no_such")
    make_pipeline(settings=settings("failed") + away + wrong + unknown)
    done = CliRunner().invoke(app, ["notify", "counted", "--test", "failed", "--json"])
    assert done.exit_code == 2, done.output
    told = json.loads(done.stdout)["notifiers"]
    assert [one["sent"] for one in told] == [True, False, False, False]
    assert "Install the provider" in told[1]["error"]
    assert "'txt'" in told[2]["error"]
    assert "no_such" in told[3]["error"]
    assert len(slack.bodies) == 1
    for arguments, says in ((["rejected"], "no entry has rejected in `on`"), (["burnt"], "no such event; there are")):
        refused = CliRunner().invoke(app, ["notify", "counted", "--test", *arguments])
        assert isinstance(refused.exception, SettingsError)
        assert says in str(refused.exception)


def test_the_page_has_each_event_each_field_and_each_name_of_a_template(make_pipeline: MakePipeline) -> None:
    page = (Path(__file__).parents[2] / "docs" / "notifications.md").read_text()
    named = [
        name for cell in re.findall(r"^\| (`[^|]+) \|", page, re.MULTILINE) for name in re.findall(r"`([^`]+)`", cell)
    ]
    values = example_of(make_pipeline(settings=settings("failed")), "rejected").for_templates()
    assert {name.partition(".")[0] for name in named} == {*EVENTS, *Notify.model_fields, *values}
