"""An event about an interval in the form that a notification has. Templates get the event as `fencepost`.

An event quotes no record. Names of checks come from the suite, and a reason comes from the ledger or from an error of
Fencepost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from fencepost.airflow.addresses import report_address, report_place, run_address, run_place
from fencepost.airflow.question import report_of
from fencepost.config.notify import Event
from fencepost.counts import count_of, first_of
from fencepost.model import Batch, Interval, State, StepResult
from fencepost.quality.checks import CheckResult, Status
from fencepost.quality.report_html import visible

if TYPE_CHECKING:
    from airflow.sdk import Context

CHECKS = 50  # checks that a template gets
NAMED = 5  # checks that the text names
LONGEST = 400  # characters of a reason


@dataclass(frozen=True)
class Run:
    """The DAG run of the event."""

    dag_id: str
    id: str
    type: str

    @classmethod
    def of(cls, context: Context | Mapping[str, Any]) -> Self:
        """Returns the run in the context of a task or of a callback. The context of a callback is a mapping."""
        run: Any = context["dag_run"]
        if isinstance(run, Mapping):
            return cls(str(run["dag_id"]), str(run["dag_run_id"]), str(run["run_type"]))
        return cls(str(run.dag_id), str(run.run_id), str(getattr(run.run_type, "value", run.run_type)))


@dataclass(frozen=True)
class Check:
    """A check that did not hold, or could not be evaluated. `unexpected` of `records` records failed it."""

    name: str
    severity: str
    status: str
    unexpected: int | None = None
    records: int | None = None

    @classmethod
    def of(cls, check: CheckResult) -> Self:
        """Returns the check of a report."""
        counts = check.unexpected_count, check.element_count
        return cls(check.title, str(check.severity), str(check.status), *counts)

    def __str__(self) -> str:
        if self.unexpected is None or self.records is None:
            return visible(self.name, 160)
        return f"{visible(self.name, 160)} ({self.unexpected:,} of {count_of(self.records, 'record')})"


@dataclass(frozen=True)
class BatchFacts:
    """The facts about the event's batch. `number` counts the validations of its revision, and is 0 before the first."""

    batch: str = ""
    revision: int | None = None
    number: int = 0
    state: str = ""
    verdict: str | None = None
    reason: str = ""
    rows: int | None = None
    quarantined: Mapping[str, int] | None = None
    checks: tuple[Check, ...] = ()

    @classmethod
    def of_batch(cls, batch: Batch) -> Self:
        """Returns the facts in the ledger, with the checks of the batch's report. If this worker has no report, it has
        only the names of the checks.
        """
        verdict, written, publication = batch.verdict, batch.written, batch.publication
        reason = verdict.reason if verdict else ""
        if batch.state is State.REJECTED and publication is not None and publication.refused:
            reason = f"{publication.target} refused its data: {publication.refused}"
        return cls(
            batch=str(batch.id),
            revision=batch.revision,
            number=verdict.number if verdict else 0,
            state=str(batch.state),
            verdict=str(verdict.outcome) if verdict else None,
            reason=reason,
            rows=written.rows if written else None,
            quarantined=written.quarantined if written else None,
            checks=checks_of(batch),
        )

    @classmethod
    def of_result(cls, result: StepResult) -> Self:
        """Returns the facts that a step returned."""
        details: Mapping[str, Any] = result.details
        return cls(
            batch=result.batch,
            revision=result.revision,
            number=details.get("validation") or 0,
            state=str(result.state),
            verdict=details.get("verdict"),
            rows=details.get("rows"),
            quarantined=details.get("quarantined"),
        )

    @property
    def in_quarantine(self) -> int:
        """Returns the number of the batch's quarantined records."""
        return sum((self.quarantined or {}).values())


def checks_of(batch: Batch) -> tuple[Check, ...]:
    """Returns the checks that did not hold, the decisive ones first."""
    report, verdict = report_of(batch), batch.verdict
    if report is not None:
        return tuple(Check.of(c) for c in report.in_order() if c.status is not Status.PASSED)[:CHECKS]
    if verdict is None:
        return ()
    named = [*((n, "critical") for n in verdict.failed_critical), *((n, "warning") for n in verdict.failed_warning)]
    return tuple(Check(name, severity, str(Status.FAILED)) for name, severity in named)[:CHECKS]


@dataclass(frozen=True)
class NotifiedEvent:
    """One event. `step` is the step that failed. `until` is the end of a question, or the deadline. `is_test` says that
    nothing has happened.

    `ends_trouble` says that a problem of the interval was sent before, so the event is sent for backfills too.
    """

    event: Event
    pipeline: str
    interval: Interval
    run: Run
    facts: BatchFacts = BatchFacts()
    step: str = ""
    until: datetime | None = None
    is_test: bool = False
    ends_trouble: bool = False

    def about(self, event: Event) -> NotifiedEvent:
        """Returns the same facts as another kind of event."""
        return replace(self, event=event)

    @property
    def subject(self) -> str:
        """Returns the subject that an event is sent once about. The subject is the batch, or the interval if there is
        no batch yet, with the number of the validation.
        """
        return f"{self.facts.batch or f'{self.pipeline}/{self.interval}'} {self.facts.number}"

    def for_templates(self) -> dict[str, Any]:
        """Returns the plain values that a notifier's templates get as `fencepost`."""
        facts = asdict(self.facts)
        facts["validation"] = facts.pop("number")
        facts["quarantined"] = dict(facts["quarantined"] or {})
        return {
            "event": self.event,
            "is_test": self.is_test,
            "pipeline": self.pipeline,
            "interval": {"start": self.interval.start.isoformat(), "end": self.interval.end.isoformat()},
            **facts,
            "checks": [asdict(check) for check in self.facts.checks],
            "run": self.run.id,
            "run_type": self.run.type,
            "run_url": run_address(self.run.dag_id, self.run.id),
            "report": report_address(self.run.dag_id, self.run.id) if self.facts.number else "",
            "step": self.step,
            "until": self.until.isoformat() if self.until else None,
            "text": self.text,
        }

    @property
    def text(self) -> str:
        """Returns a complete sentence, with the place where more is found."""
        facts, run = self.facts, self.run
        page = report_place if facts.number and self.event != "failed" else run_place
        revision = f", revision {facts.revision}" if facts.revision is not None else ""
        test = "This is a test. " if self.is_test else ""
        return f"{test}{self.pipeline}, {self.interval.description}{revision}: {self._what().strip()} {page(run.dag_id, run.id)}"

    def _what(self) -> str:
        facts = self.facts
        reason = visible(facts.reason, LONGEST).rstrip(".")
        match self.event:
            case "rejected":
                return f"rejected. {_sentence(reason)}{_named(facts.checks)}"
            case "failed":
                return f"{self.step} failed for good. {_sentence(reason)}"
            case "late":
                return f"not published by {_describe_time(self.until)}."
            case "awaiting":
                asked = f" until {_describe_time(self.until)}" if self.until else ""
                return f"rejected, and awaits a person's decision{asked}. {_named(facts.checks)}"
            case "quarantined":
                rules = ", ".join(f"{visible(rule, 80)} {rows:,}" for rule, rows in (facts.quarantined or {}).items())
                return f"{count_of(facts.in_quarantine, 'record')} in quarantine ({rules})."
            case "recovered":
                rows = (
                    f" with {count_of(facts.rows, 'record')}"
                    if facts.rows is not None and facts.state != State.SKIPPED
                    else ""
                )
                return f"{facts.state}{rows}, after an earlier problem."


def _named(checks: tuple[Check, ...]) -> str:
    if not checks:
        return ""
    return f"Not as expected: {first_of(list(map(str, checks)), NAMED)}."


def _sentence(text: str) -> str:
    return f"{text}. " if text else ""


def _describe_time(moment: datetime | None) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC" if moment else "then"
