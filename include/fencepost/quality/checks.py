"""The results of a suite: one result for each expectation, and all results with the verdict."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field, JsonValue

from fencepost.model import Frozen, Outcome
from fencepost.suite.declared import DeclaredExpectation, Severity


class Status(StrEnum):
    """The status of a check. A check with status `errored` was not evaluated."""

    PASSED = "passed"
    FAILED = "failed"
    ERRORED = "errored"


class SampleRow(Frozen):
    """One unexpected record: its place in Kafka, its key, and the checked values.

    A key that is not valid UTF-8 is shown as hex, and `key_is_hex` is set. A long text is cut, and says how long it
    was.
    """

    topic: str
    partition: int
    offset: int
    key: str | None
    key_is_hex: bool = False
    values: dict[str, JsonValue] = Field(default_factory=dict)


class CheckResult(Frozen):
    """The result of one declared expectation.

    The counts are numbers of records, and None if the expectation is not about single records. `element_count` is the
    number of records that were evaluated. Of these, `missing_count` are null and were not judged, and
    `unexpected_count` failed. `unexpected_percent` is the share of the judged records that failed. `no_value` says that
    there was no value to judge, because all values were null or row_condition excluded all records. `sample` has the
    first unexpected records by partition and offset.
    """

    index: int = Field(ge=0)
    type: str
    severity: Severity
    description: str = ""
    kwargs: dict[str, JsonValue] = Field(default_factory=dict)
    status: Status
    observed: JsonValue = None
    element_count: int | None = Field(default=None, ge=0)
    missing_count: int | None = Field(default=None, ge=0)
    unexpected_count: int | None = Field(default=None, ge=0)
    unexpected_percent: float | None = None
    no_value: bool = False
    sample: tuple[SampleRow, ...] = ()
    error: str = ""

    @property
    def title(self) -> str:
        """Returns the type with its columns."""
        return DeclaredExpectation(index=self.index, type=self.type, kwargs=self.kwargs).title

    @property
    def not_judged(self) -> str:
        """Returns why the expectation was not judged. The text is empty if it was judged."""
        match self.observed:
            case {"not judged": str(why), **others} if not others:
                return why
        return ""

    @classmethod
    def judged(cls, declared: DeclaredExpectation, holds: bool, observed: JsonValue) -> CheckResult:
        """Returns the result of an expectation that is not about single records."""
        return cls(**declared.model_dump(), status=Status.PASSED if holds else Status.FAILED, observed=observed)

    @classmethod
    def idle(cls, declared: DeclaredExpectation, observed: JsonValue = None, **counts: int) -> CheckResult:
        """Returns the result of an expectation that has nothing to judge. The result is passed, and `no_value` is set."""
        return cls(**declared.model_dump(), status=Status.PASSED, observed=observed, no_value=True, **counts)

    @classmethod
    def errored(cls, declared: DeclaredExpectation, error: str) -> CheckResult:
        """Returns the result of an expectation that could not be evaluated."""
        return cls(**declared.model_dump(), status=Status.ERRORED, error=error)


class Evaluation(Frozen):
    """The verdict on a batch and its basis. `read` says whether the batch's records were read."""

    outcome: Outcome
    reason: str
    read: bool
    rows: int = Field(ge=0)
    checks: tuple[CheckResult, ...]
    suite_digest: str
    seconds: float = Field(ge=0)

    def failed(self, severity: Severity) -> tuple[CheckResult, ...]:
        """Returns the failed checks of one severity, in the order of the suite."""
        return tuple(c for c in self.checks if c.status is Status.FAILED and c.severity is severity)

    @property
    def failed_critical(self) -> tuple[str, ...]:
        """Returns the titles of the failed critical expectations, for `model.Verdict`."""
        return tuple(c.title for c in self.failed(Severity.CRITICAL))

    @property
    def failed_warning(self) -> tuple[str, ...]:
        """Returns the titles of the failed warnings, for `model.Verdict`."""
        return tuple(c.title for c in self.failed(Severity.WARNING))

    @property
    def unexpected_rows(self) -> int:
        """Returns the sum of unexpected records over the failed critical checks. A record that fails two checks counts
        twice.
        """
        return sum(c.unexpected_count or 0 for c in self.failed(Severity.CRITICAL))
