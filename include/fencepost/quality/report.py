"""The report of one validation, which an operator reads first. The report exists as HTML, as JSON and as a few lines of
text.

HTML and JSON have the same data. HTML and JSON show values of up to a set number of unexpected records. So keep them
where only readers of the output topic have access. The lines of text show coordinates only.
"""

from __future__ import annotations

from pydantic import Field

from fencepost.counts import count_of
from fencepost.model import Batch, Frozen, Layout, OffsetRange, Outcome, describe_ranges
from fencepost.protocol.advice import after_disagreement, after_rejection, judge_again
from fencepost.protocol.unread import unread_at_plan
from fencepost.quality.checks import CheckResult, Evaluation, Status
from fencepost.quality.quarantine import QuarantineCheck, SourceAccounts, source_accounts
from fencepost.suite.declared import Severity


class ReceiptCheck(Frozen):
    """The number of rows and the fingerprint, both by the receipts and as a read_committed reader sees them. If they
    differ, the batch is not judged.

    If records are missing, `deleted` has the offsets of the batch's output that the topic no longer has, and `compacted` says
    whether the topic is compacted.
    """

    rows_expected: int = Field(ge=0)
    rows_read: int = Field(ge=0)
    fingerprint_expected: int = Field(ge=0, lt=2**64)
    fingerprint_read: int = Field(ge=0, lt=2**64)
    deleted: tuple[OffsetRange, ...] = ()
    compacted: bool = False

    @property
    def agrees(self) -> bool:
        """Returns whether rows and fingerprint are the same."""
        return (self.rows_expected, self.fingerprint_expected) == (self.rows_read, self.fingerprint_read)

    @property
    def difference(self) -> str:
        """Returns the numbers of the receipts and the numbers that were read, with the reason for the difference if it
        is known.
        """
        found = (
            f"The receipts count {count_of(self.rows_expected, 'record')} with fingerprint "
            f"{self.fingerprint_expected:016x}; read_committed shows {self.rows_read:,} with "
            f"{self.fingerprint_read:016x}."
        )
        if self.deleted:
            return (
                f"{found} The output topic no longer has {describe_ranges(self.deleted)}: its retention "
                "(retention.ms, retention.bytes) or a person deleted them before the batch was judged."
            )
        if self.compacted:
            return (
                f"{found} The output topic is compacted. Before the batch was judged, compaction removed records "
                "whose keys have newer records."
            )
        return (
            f"{found} Records were lost, doubled or changed, or another program writes records that look like "
            "this batch's."
        )

    def cure(self, topic: str) -> str:
        """Returns the first step to correct a difference."""
        if self.deleted:
            return f"Raise retention.ms and retention.bytes of topic {topic}; age counts from the records' timestamps"
        if self.compacted:
            return f"Raise min.compaction.lag.ms of topic {topic}, or remove `compact` from its cleanup.policy"
        return (
            f"Find out who else writes to topic {topic}, or why the transform gives different rows on a retry "
            "(rand(), uuid(), current_timestamp(), a table that changed)"
        )


class Report(Frozen):
    """Everything that a report shows. `number` counts the validations of this revision, from 1.

    `batch` is the ledger record with its plan and receipts. `seconds` are durations by step.
    """

    number: int = Field(ge=1)
    batch: Batch
    evaluation: Evaluation
    receipt_check: ReceiptCheck | None = None
    quarantined: QuarantineCheck | None = None
    seconds: dict[str, float] = Field(default_factory=dict)

    @property
    def unread(self) -> str:
        """Returns how many offsets no batch reads, and why, if this batch was planned as the first. Otherwise the text
        is empty.
        """
        return unread_at_plan(self.batch).description

    @property
    def sources(self) -> tuple[SourceAccounts, ...]:
        """Returns the accounts of each source if the batch has several. The totals are those of an only source."""
        found = () if self.batch.written is None else source_accounts(self.batch.plan, self.batch.written)
        return found if len(found) > 1 else ()

    @property
    def next_step(self) -> str:
        """Returns what the reader should do now, on one line."""
        if self.evaluation.outcome is Outcome.PASSED:
            return "Nothing to do: the advance step publishes this batch."
        if self.receipt_check is not None and not self.receipt_check.agrees:
            cure = self.receipt_check.cure(self.batch.plan.write_topic.topic)
            return f"The suite did not run. {after_disagreement(self.batch, cure)}"
        if self.quarantined is not None and not self.quarantined.agrees:
            return after_disagreement(self.batch, self.quarantined.cure)
        if self.evaluation.outcome is Outcome.UNDETERMINED:
            again = judge_again(self.batch)
            return f"Nothing advances until every check can be evaluated. Fix the checks that are marked below; then {again}."
        said = after_rejection(self.batch, self.evaluation.rows, self.evaluation.failed_critical)
        return f"{said} docs/operating.md says more."

    def in_order(self) -> tuple[CheckResult, ...]:
        """Returns all checks, the decisive ones first: errored, failed critical, failed warning, passed."""
        return tuple(sorted(self.evaluation.checks, key=lambda check: (rank(check), check.index)))


def rank(check: CheckResult) -> int:
    """Returns a number that sorts checks for a report: errored, failed critical, failed warning, passed."""
    if check.status is Status.FAILED:
        return 2 if check.severity is Severity.WARNING else 1
    return 0 if check.status is Status.ERRORED else 3


def addition_words(batch: Batch) -> str:
    """Returns in words the revision that an addition adds to. The words follow the addition's own revision. The text is
    empty for a batch.
    """
    return f" (an addition to revision {batch.adds_to})" if batch.adds_to is not None else ""


def left_out_label(rows: int, layout: Layout) -> str:
    """Returns what it means that the transform's result has so many fewer rows than its input, or that many more. Under layout
    `output` a row may be made of many records, so such a number says nothing about a single record.
    """
    if layout is Layout.SOURCE:
        return "left out by the transform" if rows >= 0 else "more made by the transform"
    return "fewer rows than records" if rows >= 0 else "more rows than records"


def left_out_words(rows: int, layout: Layout) -> str:
    """Returns how many fewer rows the transform's result has than its input, or how many more, in words."""
    return f"{abs(rows):,} {left_out_label(rows, layout)}"


def earlier_rows_words(rows: int) -> str:
    """Returns how many rows of a look back were left out because they belong to earlier intervals, in words."""
    return count_of(
        rows,
        "row of looked-back records alone belongs to earlier intervals and was left out",
        "rows of looked-back records alone belong to earlier intervals and were left out",
    )


def withheld_words(rows: int) -> str:
    """Returns how many rows were not written because another row of their record failed a rule, in words."""
    return f"{rows:,} withheld with their record"
