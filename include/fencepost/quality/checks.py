"""What evaluating a suite found: one result per expectation, and all of them with the verdict."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field, JsonValue

from fencepost.model import Frozen, Outcome
from fencepost.quality.suite import Declared, Severity

Engine = Literal["pandas", "spark", "none"]


class Status(StrEnum):
    """An errored check was not evaluated: neither passed nor failed."""

    PASSED = "passed"
    FAILED = "failed"
    ERRORED = "errored"


class SampleRow(Frozen):
    """One unexpected record: where it lies in Kafka, its key, and the values the check looked at.

    A key that is not valid UTF-8 is given as hex with `key_is_hex`. Long texts are cut and say so.
    """

    topic: str
    partition: int
    offset: int
    key: str | None
    key_is_hex: bool = False
    values: dict[str, JsonValue] = Field(default_factory=dict)


class CheckResult(Frozen):
    """What became of one declared expectation.

    Counts are of records: `element_count` looked at, `missing_count` of them null and so not judged, and
    `unexpected_count` that do not hold; all three are None where an expectation is not about single records.
    `unexpected_percent` is of the records judged. `no_value` says that it found nothing to judge (all null,
    or none left by its row_condition). `sample` holds the first unexpected records by partition and offset.
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
        """The type with its columns."""
        return Declared(index=self.index, type=self.type, kwargs=self.kwargs).title

    @classmethod
    def judged(cls, declared: Declared, holds: bool, observed: JsonValue) -> CheckResult:
        """The result of an expectation that looks at no single record."""
        return cls(**declared.model_dump(), status=Status.PASSED if holds else Status.FAILED, observed=observed)

    @classmethod
    def idle(cls, declared: Declared, observed: JsonValue = None, **counts: int) -> CheckResult:
        """The result of an expectation that finds nothing to judge: it passes, and says so."""
        return cls(**declared.model_dump(), status=Status.PASSED, observed=observed, no_value=True, **counts)

    @classmethod
    def errored(cls, declared: Declared, error: str) -> CheckResult:
        """The result of an expectation that could not be evaluated."""
        return cls(**declared.model_dump(), status=Status.ERRORED, error=error)


class Evaluation(Frozen):
    """The verdict on a batch and what it rests on. `engine` is `none` where no record was looked at."""

    outcome: Outcome
    reason: str
    engine: Engine
    rows: int = Field(ge=0)
    checks: tuple[CheckResult, ...]
    suite_digest: str
    seconds: float = Field(ge=0)

    def failed(self, severity: Severity) -> tuple[CheckResult, ...]:
        """Failed checks of one severity, in the order of the suite."""
        return tuple(c for c in self.checks if c.status is Status.FAILED and c.severity is severity)

    @property
    def failed_critical(self) -> tuple[str, ...]:
        """Titles of the failed critical expectations, as `model.Verdict` wants them."""
        return tuple(c.title for c in self.failed(Severity.CRITICAL))

    @property
    def failed_warning(self) -> tuple[str, ...]:
        """Titles of the failed warnings, as `model.Verdict` wants them."""
        return tuple(c.title for c in self.failed(Severity.WARNING))

    @property
    def unexpected_rows(self) -> int:
        """Unexpected records, added over the failed critical checks: one that fails two counts twice."""
        return sum(c.unexpected_count or 0 for c in self.failed(Severity.CRITICAL))
