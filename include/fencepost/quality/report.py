"""The report of one validation: what an operator reads first, as HTML, as JSON and as a few lines of text."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from pydantic import Field

from fencepost.model import Batch, Frozen
from fencepost.quality.checks import Evaluation

REPORT_VERSION = 1


class ReceiptCheck(Frozen):
    """What the receipts promise and what read_committed showed; equal, or the batch is not judged at all."""

    rows_expected: int = Field(ge=0)
    rows_read: int = Field(ge=0)
    fingerprint_expected: int = Field(ge=0, lt=2**64)
    fingerprint_read: int = Field(ge=0, lt=2**64)

    @property
    def agrees(self) -> bool:
        """Whether rows and fingerprint are the same."""
        return (self.rows_expected, self.fingerprint_expected) == (self.rows_read, self.fingerprint_read)


class Report(Frozen):
    """All a report shows. `number` counts the validations of this revision, from 1.

    `batch` is the ledger record with its plan and receipts. `seconds` are durations by step.
    """

    version: int = REPORT_VERSION
    number: int = Field(ge=1)
    batch: Batch
    evaluation: Evaluation
    receipt_check: ReceiptCheck | None = None
    seconds: dict[str, float] = Field(default_factory=dict)


class ReportFiles(NamedTuple):
    """Where a report was written."""

    html: Path
    json: Path


def write_report(report: Report, folder: Path) -> ReportFiles:
    """Write `<folder>/<pipeline>/<interval>/revision-<r>-validation-<n>.html` and `.json`, each atomically."""
    raise NotImplementedError


def render_plain(report: Report) -> str:
    """The verdict and what failed in 5 to 15 lines, for a terminal or a task log. Holds no record's values."""
    raise NotImplementedError
