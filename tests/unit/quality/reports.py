"""Reports made by hand for tests: one for every verdict, one with many partitions, one with hostile data."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fencepost.config.sections import QuarantineLimit
from fencepost.config.source import Source
from fencepost.model import (
    MALFORMED,
    Batch,
    HistoryEntry,
    Interval,
    Outcome,
    Receipt,
    Replayed,
    SourceSummary,
    State,
    Tally,
    WriteSummary,
)
from fencepost.quality.checks import CheckResult, Evaluation, SampleRow, Status
from fencepost.quality.empty import on_no_records
from fencepost.quality.empty_sources import judge_empty_sources
from fencepost.quality.gate import judge
from fencepost.quality.quarantine import (
    Accounts,
    OfRule,
    QuarantineCheck,
    QuarantinedRow,
    judge_quarantine,
    source_accounts,
)
from fencepost.quality.report import ReceiptCheck, Report
from fencepost.quality.report_files import write_report
from fencepost.suite.declared import DeclaredExpectation, Severity, Suite
from makers import a_batch, a_plan, a_receipt, a_source, a_topic, a_verdict, an_output, counted, task_blocks

NOON = datetime(2013, 1, 2, 12, tzinfo=UTC)
DAY = Interval.of(datetime(2013, 1, 1, tzinfo=UTC), datetime(2013, 1, 2, tzinfo=UTC))


def sample(offset: int, key: str | None = "N14228", is_hex: bool = False, **values: Any) -> SampleRow:
    return SampleRow(
        topic="flight_delays", partition=offset % 4, offset=offset, key=key, key_is_hex=is_hex, values=values
    )


def check(index: int, type_: str, status: Status = Status.PASSED, **fields: Any) -> CheckResult:
    return CheckResult(**{"index": index, "type": type_, "severity": Severity.CRITICAL, "status": status, **fields})


PASSING = (
    check(
        0,
        "expect_column_values_to_not_be_null",
        kwargs={"column": "carrier"},
        element_count=842,
        missing_count=0,
        unexpected_count=0,
        unexpected_percent=0.0,
    ),
    check(
        1,
        "expect_column_mean_to_be_between",
        kwargs={"column": "dep_delay", "min_value": -5, "max_value": 60},
        description="Delays are of the usual size",
        observed=11.5489,
    ),
    check(2, "expect_table_row_count_to_be_between", kwargs={"min_value": 500, "max_value": 1500}, observed=842),
    check(
        3,
        "expect_column_values_to_be_in_set",
        kwargs={"column": "tail_colour", "value_set": ["red", "blue"]},
        element_count=842,
        missing_count=842,
        unexpected_count=0,
        no_value=True,
    ),
)
ON_NONE = tuple(
    on_no_records(
        DeclaredExpectation(
            **{**c.model_dump(include={"index", "type", "severity", "description"}), "kwargs": {**c.kwargs, **change}}
        ),
    )
    for c, change in zip(PASSING, ({}, {}, {"min_value": 0}, {}), strict=True)
)
FAILED_ON_NONE = on_no_records(
    DeclaredExpectation(
        index=4,
        type="expect_column_distinct_values_to_contain_set",
        description="New York's airports",
        kwargs={"column": "origin", "value_set": ["EWR", "JFK", "LGA"]},
    ),
)
FAILED_SET = check(
    4,
    "expect_column_values_to_be_in_set",
    Status.FAILED,
    description="Only carriers we know",
    kwargs={"column": "carrier", "value_set": ["9E", "AA", "AS", "B6", "DL", "EV", "F9", "FL", "HA", "MQ", "OO", "UA"]},
    element_count=842,
    missing_count=0,
    unexpected_count=27,
    unexpected_percent=3.2067,
    sample=tuple(sample(i, carrier=c) for i, c in zip(range(1040, 1060), "WNVXYVZZ" * 3, strict=False)),
)
FAILED_WARNING = check(
    5,
    "expect_column_values_to_be_between",
    Status.FAILED,
    severity=Severity.WARNING,
    description="Plausible delays",
    kwargs={"column": "dep_delay", "min_value": -60, "max_value": 600, "mostly": 0.999},
    element_count=842,
    missing_count=4,
    unexpected_count=2,
    unexpected_percent=0.2387,
    sample=(sample(17, dep_delay=853), sample(911, key=None, dep_delay=1301)),
)
FAILED_MEDIAN = check(
    6,
    "expect_column_median_to_be_between",
    Status.FAILED,
    kwargs={"column": "arr_delay", "min_value": 0, "max_value": 30},
    observed=-4.5,
)
ERRORED = check(
    7,
    "expect_column_values_to_be_in_sett",
    Status.ERRORED,
    severity=Severity.WARNING,
    kwargs={"column": "origin", "value_set": ["EWR", "JFK", "LGA"]},
    error="expect_column_values_to_be_in_sett is unknown; did you mean expect_column_values_to_be_in_set?",
)
EVIL = "<script>alert('x')</script>\u202egnp.exe\u202c\x00\x1b[31m\u2028line\nnext"
HOSTILE = check(
    4,
    "expect_column_values_to_match_regex",
    Status.FAILED,
    description=f'"><img src=x onerror=alert(1)> {EVIL}',
    kwargs={"column": "name", "regex": f"^{EVIL}$"},
    element_count=50_000_000,
    missing_count=12,
    unexpected_count=1,
    unexpected_percent=0.000002,
    sample=(
        sample(7, key="fffe00c3", is_hex=True, name=EVIL, **{"<b>&column": "{{ 7 * 7 }}"}),
        sample(2**62, key="'\"--></td><h1>", name="x" * 300 + "… (1,000,000 characters)", **{"<b>&column": None}),
        sample(9, key="עברית العربية", name="nobreak" * 40, **{"<b>&column": ""}),
    ),
)


def receipts(tasks: int = 4, rows: int = 842) -> tuple[Receipt, ...]:
    def share(task: int) -> Tally:
        return Tally(rows=rows // tasks + (task < rows % tasks), fingerprint=(task + 1) * 0x9E3779B97F4A7)

    return tuple(a_receipt(t, lease=41, topics={"flight_delays": share(t)}) for t in range(tasks))


def written(tasks: int, rows: int, malformed: int = 0) -> WriteSummary:
    return WriteSummary.of(
        receipts(tasks, rows),
        output=a_topic(*(9_000 + 31 * p + rows // tasks for p in range(tasks)), topic="flight_delays"),
        sources={
            "flights": SourceSummary(
                rows_in=rows + malformed,
                malformed=malformed,
                malformed_at=tuple(("flights", 1, 5_100 + i) for i in range(min(malformed, 3))),
            )
        },
        seconds=7.25,
        written_at=NOON,
    )


def batch(tasks: int = 4, rows: int = 842, malformed: int = 0, revision: int = 1) -> Batch:
    plan = a_plan(
        inputs=(a_source(*((5_000 * p, 5_000 * p + rows // tasks) for p in range(tasks)), topic="flights"),),
        output=an_output(*(9_000 + 31 * p for p in range(tasks)), topic="flight_delays"),
        lane="2",
        software="fencepost 0.1.0, Spark 4.1.1",
        planned_at=NOON,
    )
    return a_batch(
        State.WRITTEN,
        pipeline="nyc_flights",
        interval=DAY,
        revision=revision,
        lease=41,
        plan=plan,
        written=written(tasks, rows, malformed),
        history=(HistoryEntry(state=State.WRITTEN, at=NOON),),
    )


def judged(made: Report, reports: Path | None) -> Batch:
    """The batch that the report is about, with its verdict; the report lies in that folder, where one is named."""
    found = made.evaluation
    verdict = a_verdict(
        found.outcome,
        made.number,
        reason=found.reason,
        expectations=len(found.checks),
        failed_critical=found.failed_critical,
        failed_warning=found.failed_warning,
        unexpected_rows=found.unexpected_rows,
        suite_digest=found.suite_digest,
        report=str(write_report(made, reports).html) if reports else "/nowhere/revision-1-validation-1.html",
        seconds=1,
        judged_at=NOON,
    )
    state = State.REJECTED if found.outcome is Outcome.REJECTED else State.WRITTEN
    return made.batch.model_copy(update={"state": state, "verdict": verdict})


def report(*checks: CheckResult, rows: int = 842, tasks: int = 4, malformed: int = 0, **fields: Any) -> Report:
    """A report whose verdict is the gate's own."""
    suite = Suite.of(
        tuple(
            DeclaredExpectation(**c.model_dump(include={"index", "type", "severity", "description", "kwargs"}))
            for c in checks
        )
    )
    outcome, reason = judge(suite, checks, rows, fields.pop("empty", "pass"))
    evaluation = Evaluation(
        outcome=outcome,
        reason=reason,
        read=bool(rows),
        rows=rows,
        checks=checks,
        suite_digest=suite.digest,
        seconds=1.3,
    )
    values = {
        "number": 1,
        "batch": batch(tasks, rows, malformed),
        "evaluation": evaluation,
        "receipt_check": ReceiptCheck(rows_expected=rows, rows_read=rows, fingerprint_expected=7, fingerprint_read=7),
        "seconds": {"validate": 9.1},
    }
    return Report(**{**values, **fields})


def disagreeing() -> Report:
    """The receipts promise other records than were read, so no check was run."""
    return differing(
        ReceiptCheck(rows_expected=842, rows_read=843, fingerprint_expected=2**63 + 5, fingerprint_read=17)
    )


def differing(check: ReceiptCheck) -> Report:
    """A batch that is not what its receipts promise."""
    evaluation = Evaluation(
        outcome=Outcome.UNDETERMINED,
        reason=check.difference,
        read=False,
        rows=check.rows_read,
        checks=(),
        suite_digest="0" * 64,
        seconds=0,
    )
    return report(*PASSING, evaluation=evaluation, receipt_check=check)


RULE = "expect_column_values_to_be_between(arr_delay)"


def quarantined(limit: int | None = None) -> Report:
    """Seven records went to quarantine; above the limit that makes a rejected batch."""

    def row(offset: int, reason: str, **fields: Any) -> QuarantinedRow:
        values = {
            "partition": 1,
            "offset": offset,
            "source": f"flights:2:{offset}",
            "reason": reason,
            "key": "N1",
            **fields,
        }
        return QuarantinedRow(**{"value": '{"arr_delay": 99999}', **values})

    broken = (row(7, f"not JSON {EVIL}", value="fffe", value_is_hex=True, key=None), row(8, "not UTF-8", value=EVIL))
    rules = (
        OfRule(rule=MALFORMED, rows=5, sample=broken),
        OfRule(
            rule=RULE,
            reason=f"A delay of days is a mistake {EVIL}",
            rows=2,
            sample=(row(9, "", source=None, key=EVIL),),
        ),
    )
    accounts = Accounts(read=900, malformed=5, malformed_kept=5, results=844, failed=2, written=842)
    found = QuarantineCheck(
        topic="fencepost.nyc_flights.quarantine",
        rows_expected=7,
        rows_read=7,
        fingerprint_expected=7,
        fingerprint_read=7,
        expected={MALFORMED: 5, RULE: 2},
        rules=rules,
        accounts=accounts,
    )
    made = report(*PASSING, quarantined=found)
    judged = judge_quarantine(made.evaluation, found, QuarantineLimit(rows=limit) if limit is not None else None)
    return made.model_copy(update={"evaluation": judged})


def replayed() -> Report:
    """Twenty quarantined records were replayed: 12 passed, 8 are in quarantine again, and another row lies behind one of them."""
    made = quarantined()
    assert made.quarantined is not None
    accounts = Accounts(read=20, malformed=3, malformed_kept=3, results=18, failed=5, withheld=1, written=12)
    found = made.quarantined.model_copy(update={"accounts": accounts})
    link = Replayed(batch=str(made.batch.id), tally=Tally(rows=20), attempt=2)
    plan = made.batch.plan.model_copy(update={"replays": link})
    assert made.batch.written is not None
    written = counted(made.batch.written, rows_in=20)
    batch = made.batch.model_copy(update={"revision": 2, "adds_to": 1, "plan": plan, "written": written})
    return made.model_copy(update={"batch": batch, "quarantined": found})


def two_sources(newest: datetime = NOON) -> Report:
    """A dead region beside a live one, whose malformed records are in quarantine."""
    live = SourceSummary(
        rows_in=900, malformed=5, tombstones=2, excluded={"other_types": 40, "truncations": 1}, newest=newest
    )
    made = quarantined()
    found = batch()
    inputs = (a_source((0, 500), (100, 500), topic="flights-jfk"), a_source((7, 7), topic="flights-ewr"))
    sources = {"flights-jfk": live, "flights-ewr": SourceSummary(rows_in=0)}
    summary = found.require_written.model_copy(update={"sources": sources})
    assert made.quarantined is not None
    blocks = (
        *task_blocks(2, topic="flights-jfk"),
        *task_blocks(1, topic="flights-ewr"),
        *task_blocks(1, 2, source="flights-jfk")[1:],
    )
    plan = found.plan.model_copy(update={"inputs": inputs, "tasks": blocks})
    accounts = made.quarantined.accounts.model_copy(
        update={"sources": source_accounts(plan, summary), "tombstones": 2, "excluded": 41}
    )
    jfk, ewr = (Source(topic=f"flights-{name}", format="bytes", empty="reject") for name in ("jfk", "ewr"))
    settings = {"flights-jfk": jfk.under("sources.jfk"), "flights-ewr": ewr.under("sources.ewr")}
    return made.model_copy(
        update={
            "batch": found.model_copy(update={"plan": plan, "written": summary}),
            "quarantined": made.quarantined.model_copy(update={"accounts": accounts}),
            "evaluation": judge_empty_sources(made.evaluation, summary, settings),
        }
    )


def looked_back() -> Report:
    """The same sources, one of which looks back at a week of which two offsets have expired."""
    made = two_sources()
    found = made.batch.require_written
    again = {"looked_back": 4_997, "looked_back_malformed": 3}
    sources = {**found.sources, "flights-jfk": found.sources["flights-jfk"].model_copy(update=again)}
    summary = found.model_copy(update={"sources": sources, "rows_of_earlier": 4_000})
    lost = a_source((0, 2), topic="flights-jfk").ranges
    before = a_source((2, 3_002), (0, 2_000), topic="flights-jfk", lost=lost)
    plan = made.batch.plan.model_copy(update={"looked_back": (before,)})
    return made.model_copy(update={"batch": made.batch.model_copy(update={"plan": plan, "written": summary})})


REPORTS: dict[str, Report] = {
    "passed": report(*PASSING),
    "passed_with_warning": report(*PASSING, FAILED_WARNING, malformed=5),
    "rejected": report(*PASSING, FAILED_SET, FAILED_WARNING, FAILED_MEDIAN),
    "undetermined": report(*PASSING, FAILED_SET, ERRORED),
    "empty": report(*ON_NONE, rows=0),
    "empty_rejected": report(*ON_NONE, rows=0, empty="reject"),
    "empty_failed": report(*ON_NONE, FAILED_ON_NONE, rows=0),
    "many_partitions": report(*PASSING, FAILED_WARNING, tasks=50, rows=1_234_567),
    "hostile": report(*PASSING, HOSTILE, rows=50_000_000),
    "disagreeing": disagreeing(),
    "quarantined": quarantined(),
    "too_much_quarantined": quarantined(limit=6),
    "replayed": replayed(),
    "two_sources": two_sources(),
    "looked_back": looked_back(),
}
