"""Reads back and judges a batch's quarantined records, by rule and with sample rows. The module checks that all
quarantined records exist, and that there are not too many.

Every row is accounted for. The plan froze the records of each source. Malformed records are quarantined or dropped,
tombstones may be dropped, and records that the source excludes are left out. Rows of the transform's result are
written, quarantined, or withheld with their record. Each number is measured independently: the plan has the offsets,
Spark counts the records read, the malformed records, the tombstones, the excluded records and the transform's rows, and
the receipts say what was committed.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING

from pydantic import AwareDatetime, Field, JsonValue

from fencepost.config.sections import QuarantineLimit
from fencepost.counts import count_of
from fencepost.model import (
    MALFORMED,
    QUARANTINE_LIMIT,
    Batch,
    Frozen,
    OffsetRange,
    Outcome,
    Plan,
    SourceSummary,
    WriteSummary,
    describe_ranges,
)
from fencepost.quality.checks import CheckResult, Evaluation, Status
from fencepost.quality.samples import text_of
from fencepost.suite.declared import Severity

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class QuarantinedRow(Frozen):
    """A record in quarantine, with its coordinates, the coordinates of its source record (`topic:partition:offset`),
    and the reason.

    A key or value that is not valid UTF-8 is in hex, and `key_is_hex` or `value_is_hex` is set.
    """

    partition: int
    offset: int
    source: str | None
    reason: str
    key: str | None
    key_is_hex: bool = False
    value: str | None
    value_is_hex: bool = False


class OfRule(Frozen):
    """The quarantined records of one rule. `sample` has the first records by partition and offset."""

    rule: str
    reason: str = ""
    rows: int = Field(ge=0)
    sample: tuple[QuarantinedRow, ...] = ()


class SourceAccounts(Frozen):
    """The accounts of one source of a batch, by its topic: what happened to its records. `read` is None if they were not
    counted.
    """

    topic: str
    offsets: int | None = Field(default=None, ge=0)  # some may have no record; None in a replay
    read: int | None = Field(default=None, ge=0)
    malformed: int = Field(default=0, ge=0)  # as Spark counted them
    dropped: int = Field(default=0, ge=0)  # of the malformed records; the others go to quarantine
    tombstones: int = Field(default=0, ge=0)  # records without a value that were dropped
    excluded: int = Field(default=0, ge=0)  # records that the source does not read
    newest: AwareDatetime | None = None  # the latest timestamp of a record that is not excluded

    @classmethod
    def of(cls, plan: Plan, topic: str, found: SourceSummary) -> SourceAccounts:
        """Returns the accounts of a source of this plan."""
        return cls(
            topic=topic,
            offsets=None if plan.replays else sum(part.length for part in plan.input_of(topic).ranges),
            read=found.rows_in,
            malformed=found.malformed,
            dropped=0 if plan.keeps_malformed(topic) else found.malformed,
            tombstones=found.tombstones,
            excluded=sum(found.excluded.values()),
            newest=found.newest,
        )

    @property
    def kept(self) -> int:
        """Returns how many malformed records go to quarantine."""
        return self.malformed - self.dropped

    @property
    def included(self) -> int | None:
        """Returns how many of the records read are not excluded, or None if they were not counted."""
        return None if self.read is None else self.read - self.excluded


def source_accounts(plan: Plan, written: WriteSummary) -> tuple[SourceAccounts, ...]:
    """Returns the accounts of each source of a written batch."""
    return tuple(SourceAccounts.of(plan, topic, found) for topic, found in written.sources.items())


class Accounts(Frozen):
    """The accounts of a batch: what happened to every row, and `sources` of what it read. `read` and `results` are None if
    they were not counted.

    A rule quarantines a source record once, however many rows the record gave. One row counts as failed, and the others
    are withheld.
    """

    taken: int | None = Field(
        default=None, ge=0
    )  # in a replay: the records to replay, by the receipts of the batch that quarantined them
    sources: tuple[SourceAccounts, ...] = ()
    read: int | None = Field(default=None, ge=0)
    malformed: int = Field(default=0, ge=0)  # as Spark counted them
    malformed_kept: int = Field(default=0, ge=0)  # committed to quarantine
    dropped: int = Field(default=0, ge=0)
    tombstones: int = Field(default=0, ge=0)  # records without a value that were dropped
    excluded: int = Field(default=0, ge=0)  # records that the source does not read
    results: int | None = Field(default=None, ge=0)  # rows of the transform's result
    failed: int = Field(default=0, ge=0)  # rows of the result, committed to quarantine
    withheld: int = Field(
        default=0, ge=0
    )  # rows of the result that were not written, because another row of their record failed
    written: int = Field(default=0, ge=0)  # rows of the result, committed to the output

    @classmethod
    def of(cls, plan: Plan, written: WriteSummary) -> Accounts:
        """Returns the accounts of a written batch."""
        kept, sources = written.quarantined.get(MALFORMED, 0), source_accounts(plan, written)
        return cls(
            taken=plan.replays.tally.rows if plan.replays else None,
            sources=sources,
            read=written.rows_in,
            malformed=written.malformed,
            malformed_kept=kept,
            dropped=sum(one.dropped for one in sources),
            tombstones=sum(one.tombstones for one in sources),
            excluded=sum(one.excluded for one in sources),
            results=written.results,
            failed=written.quarantined_tally.rows - kept,
            withheld=written.withheld,
            written=written.rows,
        )

    @property
    def quarantined(self) -> int:
        """Returns the number of records that were committed to quarantine."""
        return self.malformed_kept + self.failed

    @property
    def included(self) -> int | None:
        """Returns how many of the records read are not excluded, or None if they were not counted."""
        return None if self.read is None else self.read - self.excluded

    @property
    def left_out(self) -> int | None:
        """Returns how many fewer rows the result has than its input. The number is negative if the result has more
        rows, and None if the input was not counted.

        Without quarantine rules the result is not counted separately, because all of it is written.

        For a transform that works row by row, this is the number of rows that were left out. For a transform that
        aggregates or explodes, the number is only a difference.
        """
        if self.included is None:
            return None
        reached = self.included - self.malformed - self.tombstones
        return reached - (self.written if self.results is None else self.results)

    def differences(self) -> list[str]:
        """Returns the numbers that do not add up, in sentences. The list is empty if all add up."""
        found = []
        if self.results is not None and self.results != self.written + self.failed + self.withheld:
            found.append(
                f"the transform's result has {count_of(self.results, 'row')}, but {self.written:,} were written, "
                f"{self.failed:,} quarantined "
                f"and {self.withheld:,} withheld with their record"
            )
        if self.malformed != self.malformed_kept + self.dropped:
            found.append(
                f"{count_of(self.malformed, 'record was', 'records were')} malformed, but {self.malformed_kept:,} were "
                "quarantined and "
                f"{self.dropped:,} dropped"
            )
        if self.read is not None and self.taken is not None and self.read != self.taken:
            found.append(
                f"{count_of(self.read, 'record was', 'records were')} taken from quarantine, but {self.taken:,} were there"
            )
        for one in self.sources:
            if one.read is not None and one.offsets is not None and one.read > one.offsets:
                found.append(
                    f"{count_of(one.read, 'record was', 'records were')} read{self.from_topic(one)}, but the plan has "
                    f"{count_of(one.offsets, 'offset')}"
                )
        return found

    def from_topic(self, source: SourceAccounts) -> str:
        """Returns the topic of a source in a message. The text is empty if the batch has no other source."""
        return f" from topic {source.topic}" if len(self.sources) > 1 else ""


class QuarantineCheck(Frozen):
    """A batch's quarantined records by its receipts, and by a read_committed reader, both by rule. It also has the
    accounts.
    """

    topic: str
    rows_expected: int = Field(ge=0)
    rows_read: int = Field(ge=0)
    fingerprint_expected: int = Field(ge=0, lt=2**64)
    fingerprint_read: int = Field(ge=0, lt=2**64)
    expected: dict[str, int] = Field(default_factory=dict)  # rows by rule, as the receipts have them
    rules: tuple[OfRule, ...] = ()
    deleted: tuple[OffsetRange, ...] = ()
    accounts: Accounts

    @property
    def agrees(self) -> bool:
        """Returns whether rows, fingerprint and rows by rule agree with the receipts."""
        promised = (self.rows_expected, self.fingerprint_expected, self.expected)
        return promised == (self.rows_read, self.fingerprint_read, {r.rule: r.rows for r in self.rules})

    @property
    def difference(self) -> str:
        """Returns the numbers of the receipts and the numbers that were read, with the reason for the difference if it
        is known.
        """
        found = (
            f"The receipts count {count_of(self.rows_expected, 'record')} in quarantine topic {self.topic} with "
            f"fingerprint {self.fingerprint_expected:016x} ({counted(self.expected)}); read_committed shows "
            f"{self.rows_read} with {self.fingerprint_read:016x} ({counted({r.rule: r.rows for r in self.rules})})."
        )
        if self.deleted:
            return (
                f"{found} The topic no longer has {describe_ranges(self.deleted)}: retention or a person deleted them."
            )
        return (
            f"{found} Records were lost, doubled or changed, or another program writes records with this batch's "
            "header."
        )

    @property
    def cure(self) -> str:
        """Returns the first step to correct a difference."""
        if self.deleted:
            return f"Set retention.ms=-1 and retention.bytes=-1 on topic {self.topic}"
        return f"Find out who else writes to topic {self.topic}, or why the transform gives different rows on a retry"


def malformed_words(source: SourceAccounts) -> str:
    """Returns how many records of a source are malformed and what became of them, such as `5 quarantined`, or `0`."""
    if not source.malformed:
        return "0"
    return f"{source.malformed:,} {'dropped' if source.dropped else 'quarantined'}"


def counted(rules: Mapping[str, int]) -> str:
    """Returns the counts as text, such as `malformed: 3, expect_...(n): 2`, or `none`."""
    return ", ".join(f"{rule}: {rows:,}" for rule, rows in rules.items()) or "none"


def read_quarantine(frame: DataFrame, written: WriteSummary, sample_rows: int) -> tuple[tuple[OfRule, ...], int]:
    """Returns the records in quarantine by rule, and their fingerprint. Malformed records come first, then the rules in
    the suite's order.

    `frame` has one batch's records with their headers.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    from fencepost.rows.fingerprint import counting, counts_of, fingerprint_hash
    from fencepost.rows.quarantine_headers import REASON_HEADER, RULE_HEADER, SOURCE_HEADER
    from fencepost.rows.quarantined import header_value

    known = frame.select(
        "key",
        "value",
        "partition",
        "offset",
        F.coalesce(header_value(RULE_HEADER), F.lit("")).alias("rule"),
        F.coalesce(header_value(REASON_HEADER), F.lit("")).alias("reason"),
        header_value(SOURCE_HEADER).alias("source"),
        F.expr(fingerprint_hash()).alias("hash"),
    )
    counts = known.groupBy("rule").agg(F.min("reason").alias("reason"), *counting("hash"))
    found = {row["rule"]: row for row in counts.collect()}
    samples: dict[str, list[QuarantinedRow]] = {rule: [] for rule in found}
    if sample_rows and found:
        place = Window.partitionBy("rule").orderBy("partition", "offset")
        first = known.withColumn("place", F.row_number().over(place)).where(F.col("place") <= sample_rows)
        for row in first.orderBy("rule", "partition", "offset").collect():
            key, key_is_hex = text_of(row["key"])
            value, value_is_hex = text_of(row["value"])
            samples[row["rule"]].append(
                QuarantinedRow(
                    partition=row["partition"],
                    offset=row["offset"],
                    source=row["source"],
                    reason=row["reason"],
                    key=key,
                    key_is_hex=key_is_hex,
                    value=value,
                    value_is_hex=value_is_hex,
                )
            )
    order = [MALFORMED, *written.rules, *sorted(found)]
    rules = tuple(
        OfRule(
            rule=rule,
            reason="" if rule == MALFORMED else found[rule]["reason"],
            rows=found[rule]["rows"],
            sample=tuple(samples[rule]),
        )
        for rule in dict.fromkeys(order)
        if rule in found
    )
    return rules, sum(counts_of(row)[1] for row in found.values()) % 2**64


def over_limit(limit: QuarantineLimit | None, accounts: Accounts) -> str | None:
    """Returns the number in the accounts that is above the limit, in a sentence, or None if no number is. Pure.

    The limit in rows is for the whole batch. The share of malformed records is judged for each source by itself, so the
    records of a large source do not hide those of a small one.
    """
    if limit is None:
        return None
    if limit.rows is not None and accounts.quarantined > limit.rows:
        return (
            f"{count_of(accounts.quarantined, 'record')} went to quarantine, above {QUARANTINE_LIMIT} of "
            f"{count_of(limit.rows, 'row')}"
        )
    if limit.share is None:
        return None
    of_sources = [
        (
            f"records read{accounts.from_topic(one)}{' and not excluded' if one.excluded else ''}",
            *("is malformed", "are malformed", one.kept, one.included),
        )
        for one in accounts.sources
    ]
    of_rows = ("rows of the transform", "fails a quarantine rule", "fail a quarantine rule")
    for what, one, more, part, whole in (
        *of_sources,
        (*of_rows, accounts.failed + accounts.withheld, accounts.results),
    ):
        if whole and part > Fraction(limit.share) * whole:
            most = percent(Fraction(limit.share))
            found = percent_above(Fraction(part, whole), most)
            does = one if part == 1 else more
            return f"{part:,} of {whole:,} {what} {does} ({found}), above {QUARANTINE_LIMIT} of {most}"
    return None


def percent(share: Fraction) -> str:
    """Returns a share in percent with at least two digits after the point. The text has all digits if they end."""
    return f"{_digits(share, next((n for n in range(2, 400) if (share * 10 ** (n + 2)).denominator == 1), 2))}%"


def percent_above(share: Fraction, most: str) -> str:
    """Returns a share in percent, with enough digits to show that it is above `most`."""
    least = Fraction(most.removesuffix("%"))
    return f"{next(text for n in range(2, 400) if Fraction(text := _digits(share, n)) > least)}%"


def _digits(share: Fraction, places: int) -> str:
    units = round(share * 10 ** (places + 2))
    return f"{units // 10**places}.{units % 10**places:0{places}}"


def judge_quarantine(evaluation: Evaluation, found: QuarantineCheck, limit: QuarantineLimit | None) -> Evaluation:
    """Returns the evaluation after judging the batch's quarantined records too. Pure.

    1. If they differ from the receipts, or rows are not accounted for, the verdict is undetermined.
    2. If there are more than the limit allows, the batch is rejected, and the reason says so. An undetermined verdict
       stays undetermined.
    3. Otherwise the verdict stays, and its reason counts the quarantined records.
    """
    if not found.agrees:  # 1
        return evaluation.model_copy(update={"outcome": Outcome.UNDETERMINED, "reason": found.difference})
    differences = found.accounts.differences()
    if differences:
        explained = "; ".join(differences)
        reason = f"The rows do not add up: {explained}. {evaluation.reason}"
        return evaluation.model_copy(update={"outcome": Outcome.UNDETERMINED, "reason": reason})
    above = over_limit(limit, found.accounts)  # 2
    if above is None or limit is None or evaluation.outcome is Outcome.UNDETERMINED:  # 3
        explained = f"{evaluation.reason} In quarantine: {counted(found.expected)}."
        return evaluation.model_copy(update={"reason": explained}) if found.expected else evaluation
    by_rule: dict[str, JsonValue] = dict(found.expected)
    check = CheckResult(
        index=len(evaluation.checks),
        type=QUARANTINE_LIMIT,
        severity=Severity.CRITICAL,
        kwargs=limit.model_dump(mode="json", exclude_none=True),
        status=Status.FAILED,
        observed=by_rule,
    )
    besides = f" {evaluation.reason}" if evaluation.outcome is Outcome.REJECTED else ""
    return evaluation.model_copy(
        update={
            "outcome": Outcome.REJECTED,
            "reason": f"{above}: {counted(found.expected)}.{besides}",
            "checks": (*evaluation.checks, check),
        }
    )


def promised(batch: Batch, written: WriteSummary) -> QuarantineCheck:
    """Returns a batch's quarantined records by its receipts, before any record is read."""
    tally = written.quarantined_tally
    return QuarantineCheck(
        topic=batch.require_quarantine.topic,
        rows_expected=tally.rows,
        rows_read=0,
        fingerprint_expected=tally.fingerprint,
        fingerprint_read=0,
        expected=written.quarantined,
        accounts=Accounts.of(batch.plan, written),
    )
