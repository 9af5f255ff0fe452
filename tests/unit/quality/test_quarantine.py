"""What a batch's quarantine makes of its verdict: is it all there, does every row add up, is it too much."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.cli.quarantine import as_plain, quarantined_batches
from fencepost.config.sections import QuarantineLimit
from fencepost.errors import TransitionRefused
from fencepost.model import (
    MALFORMED,
    QUARANTINE_LIMIT,
    Batch,
    Outcome,
    Receipt,
    Replayed,
    SourceSummary,
    State,
    Tally,
    WriteSummary,
)
from fencepost.protocol.decisions import check_receipts
from fencepost.protocol.snapshot import snapshot_of
from fencepost.protocol.view import View
from fencepost.quality.checks import CheckResult, Evaluation, Status
from fencepost.quality.evaluation import ADDITION, _judged_part
from fencepost.quality.quarantine import (
    Accounts,
    QuarantineCheck,
    SourceAccounts,
    judge_quarantine,
    over_limit,
    promised,
)
from fencepost.suite.declared import DeclaredExpectation, Suite, reason_of, rule_names
from makers import (
    NOW,
    a_batch,
    a_day,
    a_plan,
    a_publication,
    a_receipt,
    a_source,
    a_topic,
    a_written,
    staged,
    task_blocks,
)

RULES = ("not_null(a)", "between(b)")


def receipt(task: int, out: int, aside: int = 0, **rules: int) -> Receipt:
    topics = {"out": Tally(rows=out, fingerprint=out * 3, bytes=out)}
    if aside:
        topics["bad"] = Tally(rows=aside, fingerprint=aside * 5, bytes=aside)
    return Receipt(task=task, ledger="", lease=0, topics=topics, rules={int(k[1:]): n for k, n in rules.items()})


def written(*receipts: Receipt, **changes: Any) -> WriteSummary:
    values = {"output": a_topic(9, topic="out"), "quarantine": a_topic(9, topic="bad"), "rules": RULES}
    return a_written(*receipts, **{**values, **changes})


PLAN = a_plan((0, 20), (0, 15), quarantine=a_topic(0, topic="bad"), malformed_tasks=2)
DROPPING = PLAN.model_copy(update={"tasks": PLAN.tasks[:1]})


def batch(result: WriteSummary, state: State = State.PUBLISHED, **changes: Any) -> Batch:
    return a_batch(state, plan=PLAN, written=result, **changes)


WRITTEN = written(
    receipt(0, 10, 3, r0=2, r1=1),
    receipt(1, 8),
    receipt(2, 0, 4),
    receipt(3, 0, 1),
    rows_in=30,
    malformed=5,
    results=21,
)


def test_quarantined_records_are_counted_by_rule_and_malformed_ones_first() -> None:
    assert list(WRITTEN.quarantined.items()) == [(MALFORMED, 5), ("not_null(a)", 2), ("between(b)", 1)]
    assert (WRITTEN.rows, WRITTEN.quarantined_tally) == (18, Tally(rows=8, fingerprint=40, bytes=8))
    assert a_written(receipt(0, 3)).quarantined == {}
    assert written(receipt(0, 3)).quarantined == {}


def test_every_row_is_accounted_for() -> None:
    accounts = Accounts.of(PLAN, WRITTEN)
    assert (accounts.read, accounts.written, accounts.quarantined, accounts.dropped) == (30, 18, 8, 0)
    assert (accounts.left_out, accounts.differences()) == (4, [])
    dropping = written(receipt(0, 10, 3, r0=3), rows_in=20, malformed=5, results=13)
    accounts = Accounts.of(DROPPING, dropping)
    assert (accounts.dropped, accounts.left_out, accounts.differences()) == (5, 2, [])
    without_rules = written(receipt(0, 10), receipt(2, 0, 4), rows_in=20, malformed=4, rules=())
    accounts = Accounts.of(PLAN, without_rules)
    assert (accounts.results, accounts.left_out, accounts.differences()) == (None, 6, [])


COUNTS = ("taken", "read", "malformed", "malformed_kept", "results", "failed", "withheld", "written")


def test_a_staged_batch_is_accounted_for_by_what_is_in_its_staging_topic() -> None:
    held = staged(batch(WRITTEN, State.WRITTEN))
    assert held.written is not None
    assert held.written.output.topic == "staging"
    assert Accounts.of(held.plan, held.written) == Accounts.of(PLAN, WRITTEN)
    assert promised(held, held.written) == promised(batch(WRITTEN), WRITTEN)
    receipts = [a_receipt(t, held.require_lease, ledger=held.plan.ledger_topic_id) for t in range(4)]
    check_receipts(held, receipts, held.written.bypassed)
    with pytest.raises(TransitionRefused, match=r"4 task-partitions, missing \[3\]"):
        check_receipts(held, receipts[:3], held.written.bypassed)


@given(*(st.integers(0, 50) for _ in range(5)), st.sampled_from(COUNTS), st.integers(1, 5))
def test_one_number_that_is_off_shows(
    kept: int, failed: int, withheld: int, out: int, left: int, off: str, by: int
) -> None:
    """Whichever of the numbers that are measured apart is another one, one check fails, and says so."""
    results = failed + withheld + out
    read = kept + results + left
    sound = Accounts(
        taken=read,
        read=read,
        malformed=kept,
        malformed_kept=kept,
        results=results,
        failed=failed,
        withheld=withheld,
        written=out,
    )
    assert sound.differences() == []
    assert sound.left_out == left
    (told,) = sound.model_copy(update={off: getattr(sound, off) + by}).differences()
    says = {"taken": "taken from quarantine", "read": "taken from quarantine"}
    says |= {"malformed": " malformed, but ", "malformed_kept": " malformed, but "}
    assert says.get(off, "the transform's result has") in told


def test_more_records_than_the_plan_has_offsets_show() -> None:
    """In a batch nothing else says how many records there were: an offset may have none."""

    def differences(*read: int) -> list[str]:
        sources = tuple(SourceAccounts(topic=f"t{n}", offsets=10, read=records) for n, records in enumerate(read))
        return Accounts(sources=sources, read=sum(read), written=sum(read)).differences()

    assert differences(10) == []
    assert differences(11) == ["11 records were read, but the plan has 10 offsets"]
    assert differences(11, 2) == ["11 records were read from topic t0, but the plan has 10 offsets"]


def test_a_replay_has_to_read_what_its_predecessor_quarantined() -> None:
    link = Replayed(batch="p/x/1", tally=Tally(rows=31), attempt=2)
    accounts = Accounts.of(PLAN.model_copy(update={"replays": link}), WRITTEN)
    assert accounts.differences() == ["30 records were taken from quarantine, but 31 were there"]


def test_what_nobody_counted_is_not_compared() -> None:
    accounts = Accounts.of(PLAN, written(receipt(0, 10), rows_in=None))
    assert (accounts.left_out, accounts.differences()) == (None, [])


@pytest.mark.parametrize(
    ("limit", "says"),
    [
        (None, None),
        ({"rows": 8}, None),
        ({"rows": 7}, r"8 records went to quarantine, above quality.quarantine_limit of 7 rows"),
        ({"share": 0.17}, None),
        ({"share": 0.16}, "5 of 30 records read are malformed (16.67%), above quality.quarantine_limit of 16.00%"),
        ({"rows": 9, "share": 0.0}, "5 of 30 records read are malformed (16.67%)"),
        ({"rows": 0, "share": 1.0}, "8 records went to quarantine"),
    ],
)
def test_a_limit_is_in_rows_in_shares_or_both(limit: dict[str, Any] | None, says: str | None) -> None:
    found = over_limit(QuarantineLimit(**limit) if limit else None, Accounts.of(PLAN, WRITTEN))
    assert found == says or (says is not None and found is not None and found.startswith(says))


def of_one(read: int, malformed: int = 0, **rows: int) -> Accounts:
    """The accounts of a batch with one source, whose malformed records are in quarantine."""
    source = SourceAccounts(topic="in", read=read, malformed=malformed)
    return Accounts(sources=(source,), read=read, malformed=malformed, malformed_kept=malformed, **rows)


def test_a_share_of_rows_that_fail_is_of_the_transforms_rows() -> None:
    """However many records the transform reads and leaves out, or makes one of."""
    accounts = of_one(10_000, results=20, failed=1, withheld=1, written=18)
    assert over_limit(QuarantineLimit(share=0.1), accounts) is None
    one = of_one(60, malformed=1, results=59, written=59)
    assert over_limit(QuarantineLimit(share=0.01), one) == (
        "1 of 60 records read is malformed (1.67%), above quality.quarantine_limit of 1.00%"
    )
    assert over_limit(QuarantineLimit(share=0.09), accounts) == (
        "2 of 20 rows of the transform fail a quarantine rule (10.00%), above quality.quarantine_limit of 9.00%"
    )


def test_excluded_records_are_accounted_for_and_share_no_limit() -> None:
    """Of 130 records 100 are of other kinds: the malformed 5 are 16.67% of the other 30, and not 3.85% of all."""
    found = written(
        *(receipt(0, 10, 3, r0=2, r1=1), receipt(1, 8), receipt(2, 0, 4), receipt(3, 0, 1)),
        rows_in=130,
        malformed=5,
        results=21,
        excluded={"other_types": 98, "truncations": 2},
    )
    accounts = Accounts.of(a_plan((0, 130), quarantine=a_topic(0, topic="bad"), malformed_tasks=1), found)
    assert (accounts.read, accounts.included, accounts.excluded) == (130, 30, 100)
    assert (accounts.left_out, accounts.differences()) == (4, [])
    assert over_limit(QuarantineLimit(share=0.17), accounts) is None
    assert over_limit(QuarantineLimit(share=0.16), accounts) == (
        "5 of 30 records read and not excluded are malformed (16.67%), above quality.quarantine_limit of 16.00%"
    )
    assert Accounts.of(PLAN, written(receipt(0, 0), rows_in=None)).included is None


TWO = a_plan(
    inputs=(a_source((0, 1_000_000), topic="orders"), a_source((0, 150), topic="payments")),
    quarantine=a_topic(0, topic="bad"),
    tasks=(
        *task_blocks(1, topic="orders"),
        *task_blocks(1, topic="payments"),
        *task_blocks(1, 1, source="payments")[1:],
    ),
)


def of_two(orders: SourceSummary, payments: SourceSummary, aside: int) -> WriteSummary:
    """A million orders and some payments; `aside` records are in quarantine."""
    return written(receipt(0, 9, aside)).model_copy(update={"sources": {"orders": orders, "payments": payments}})


def test_malformed_records_are_dropped_of_the_source_that_drops_them_and_kept_of_the_other() -> None:
    read = of_two(
        SourceSummary(rows_in=1_000_000, malformed=7, tombstones=2),
        SourceSummary(rows_in=150, malformed=5, excluded={"other_types": 40, "truncations": 1}, newest=NOW),
        aside=5,
    ).model_copy(update={"rules": {}})
    accounts = Accounts.of(TWO, read)
    assert accounts.sources == (
        SourceAccounts(
            topic="orders", offsets=1_000_000, read=1_000_000, malformed=7, dropped=7, tombstones=2, excluded=0
        ),
        SourceAccounts(topic="payments", offsets=150, read=150, malformed=5, excluded=41, newest=NOW),
    )
    assert (accounts.malformed, accounts.malformed_kept, accounts.dropped) == (12, 5, 7)
    assert (accounts.tombstones, accounts.excluded, accounts.differences()) == (2, 41, [])
    lost = read.model_copy(update={"topics": {"bad": Tally(rows=4)}})
    assert Accounts.of(TWO, lost).differences() == ["12 records were malformed, but 4 were quarantined and 7 dropped"]
    link = Replayed(batch="p/x/1", tally=Tally(rows=150), attempt=2)
    again = Accounts.of(TWO.model_copy(update={"replays": link}), read).sources
    assert [(one.offsets, one.dropped) for one in again] == [(None, 0), (None, 0)], "an addition keeps all of them"


def test_the_malformed_records_of_a_small_source_do_not_hide_behind_a_large_one() -> None:
    """100 of 1,000,150 are 0.01%, far below the limit. They are all but 10 of the 110 payments that are not excluded."""
    read = of_two(
        SourceSummary(rows_in=1_000_000),
        SourceSummary(rows_in=150, malformed=100, excluded={"other_types": 40}),
        aside=100,
    )
    limit = QuarantineLimit(share=0.01)  # type: ignore[arg-type]
    assert over_limit(limit, Accounts.of(TWO, read)) == (
        "100 of 110 records read from topic payments and not excluded are malformed (90.91%), above "
        "quality.quarantine_limit of 1.00%"
    )
    few = of_two(SourceSummary(rows_in=1_000_000), SourceSummary(rows_in=150, malformed=1), aside=1)
    assert over_limit(limit, Accounts.of(TWO, few)) is None
    dropped = of_two(SourceSummary(rows_in=100, malformed=50), SourceSummary(rows_in=150), aside=0)
    assert over_limit(limit, Accounts.of(TWO, dropped)) is None, "dropped records share no limit"
    whole = Accounts.of(TWO, of_two(SourceSummary(rows_in=90), SourceSummary(rows_in=150, malformed=7), aside=7))
    assert over_limit(QuarantineLimit(rows=7), whole) is None
    assert over_limit(QuarantineLimit(rows=6), whole) == (
        "7 records went to quarantine, above quality.quarantine_limit of 6 rows"
    )


def evaluation(outcome: Outcome = Outcome.PASSED) -> Evaluation:
    return Evaluation(outcome=outcome, reason="As it is.", read=True, rows=18, checks=(), suite_digest="", seconds=0)


def found(**changes: Any) -> QuarantineCheck:
    sound = promised(batch(WRITTEN), WRITTEN)
    rules = tuple({"rule": rule, "rows": rows} for rule, rows in WRITTEN.quarantined.items())
    values = {**sound.model_dump(), "rows_read": 8, "fingerprint_read": 40, "rules": rules, **changes}
    return QuarantineCheck.model_validate(values)


COUNTED = "As it is. In quarantine: malformed: 5, not_null(a): 2, between(b): 1."


def test_a_quarantine_within_its_limit_leaves_the_verdict_alone_and_is_counted_in_its_reason() -> None:
    told = evaluation().model_copy(update={"reason": COUNTED})
    assert judge_quarantine(evaluation(), found(), QuarantineLimit(rows=8)) == told
    nothing = found(rows_expected=0, rows_read=0, fingerprint_expected=0, fingerprint_read=0, expected={}, rules=())
    assert judge_quarantine(evaluation(), nothing, None) == evaluation()


def test_a_batch_above_the_limit_is_rejected_by_name_with_counts() -> None:
    judged = judge_quarantine(evaluation(), found(), QuarantineLimit(rows=7))
    assert (judged.outcome, judged.failed_critical) == (Outcome.REJECTED, (QUARANTINE_LIMIT,))
    assert judged.reason.endswith("malformed: 5, not_null(a): 2, between(b): 1.")
    (check,) = judged.checks
    assert (check.status, check.kwargs, check.observed) == (Status.FAILED, {"rows": 7}, WRITTEN.quarantined)
    rejected = judge_quarantine(evaluation(Outcome.REJECTED), found(), QuarantineLimit(rows=7))
    assert rejected.reason.endswith(". As it is.")


@pytest.mark.parametrize(
    "changes",
    [
        {"rows_read": 7},
        {"fingerprint_read": 41},
        {"rules": [{"rule": MALFORMED, "rows": 8}]},
        {"accounts": Accounts(read=30, malformed=5, malformed_kept=5, results=20, failed=3, written=18)},
    ],
)
def test_what_is_not_as_promised_or_does_not_add_up_is_undetermined(changes: dict[str, Any]) -> None:
    for outcome in Outcome:
        assert judge_quarantine(evaluation(outcome), found(**changes), None).outcome is Outcome.UNDETERMINED


def test_an_undetermined_verdict_stays_undetermined_above_the_limit() -> None:
    judged = judge_quarantine(evaluation(Outcome.UNDETERMINED), found(), QuarantineLimit(rows=0))
    assert (judged.outcome, judged.reason) == (Outcome.UNDETERMINED, COUNTED)


def test_rules_of_one_title_are_told_apart_and_described() -> None:
    rules = [
        DeclaredExpectation(index=n, type="expect_column_values_to_not_be_null", kwargs={"column": c}, description=d)
        for n, (c, d) in enumerate([("a", ""), ("b", "b is there"), ("a", "")])
    ]
    title = "expect_column_values_to_not_be_null"
    assert rule_names(rules) == (f"{title}(a)", f"{title}(b)", f"{title}(a) #2")
    assert [reason_of(rule) for rule in rules] == [f"{title}(a)", "b is there", f"{title}(a)"]


def test_the_command_lists_published_batches_that_touch_the_time_and_others_when_asked() -> None:
    view = View.of(
        [
            batch(WRITTEN, interval=a_day(0)),
            batch(WRITTEN, State.REJECTED, interval=a_day(1), lease=1),
            batch(written(receipt(0, 4)), interval=a_day(2), lease=2),
            batch(WRITTEN, State.SUPERSEDED, interval=a_day(3), lease=3),
            batch(WRITTEN, interval=a_day(3), revision=2, lease=4),
            staged(batch(WRITTEN, State.PUBLISHING, interval=a_day(4), lease=5), publication=a_publication()),
        ]
    )

    def listed(**changes: Any) -> list[tuple[int, int]]:
        asked = {"start": None, "end": None, "every": False, **changes}
        return [((b.interval.start - NOW).days, b.revision) for b in quarantined_batches(snapshot_of(view), **asked)]

    assert listed() == [(0, 1), (3, 2)]
    assert listed(every=True) == [(0, 1), (1, 1), (3, 1), (3, 2), (4, 1)]
    assert listed(start=a_day(1).start) == [(3, 2)]
    assert listed(end=a_day(3).start) == [(0, 1)]
    plain = as_plain(view.all()[0])
    assert (plain["topic"], plain["quarantined"], plain["ranges"]) == ("bad", WRITTEN.quarantined, {"0": [0, 9]})


def test_an_addition_is_judged_by_checks_of_single_records_and_lists_the_others() -> None:
    kinds = {
        "expect_column_values_to_not_be_null": False,
        "expect_expression_to_be_true": False,
        "expect_column_to_exist": False,
        "expect_column_values_to_be_unique": True,
        "expect_column_mean_to_be_between": True,
        "expect_table_row_count_to_be_between": True,
        "expect_batch_volume_like_history": True,
        "expect_something_of_another_library": False,
    }
    suite = Suite.of(tuple(DeclaredExpectation(index=i, type=kind) for i, kind in enumerate(kinds)))
    assert {one.type: one.needs_whole_batch for one in suite.expectations} == kinds
    judged = [one for one in suite.expectations if not one.needs_whole_batch]
    held = {one.index: CheckResult.judged(one, True, None) for one in judged}
    found = _judged_part(ADDITION, suite, held, 5, True, 0)
    assert found.outcome is Outcome.PASSED
    whole = len(kinds) - len(judged)
    assert (
        found.reason
        == f"All 4 expectations hold. Not judged for an addition: {whole} expectations about a whole batch."
    )
    assert found.suite_digest == suite.digest
    assert [c.type for c in found.checks] == list(kinds)
    assert {c.type for c in found.checks if c.not_judged} == {kind for kind, whole in kinds.items() if whole}
    failed = held | {1: CheckResult.judged(suite.expectations[1], False, None)}
    assert _judged_part(ADDITION, suite, failed, 5, True, 0).outcome is Outcome.REJECTED
    missing = {index: result for index, result in held.items() if index != 1}
    assert _judged_part(ADDITION, suite, missing, 5, True, 0).outcome is Outcome.UNDETERMINED, (
        "each is asked for its result"
    )
    empty = _judged_part(ADDITION, suite, held, 0, False, 0)
    assert (empty.outcome, empty.reason[:41]) == (Outcome.PASSED, "None of the replayed records passed. They")


@pytest.mark.parametrize("share", [0.29, 0.58, 0.07, 0.57])
def test_a_share_is_the_fraction_that_is_written(share: float) -> None:
    """As a double, 0.29 times 100 is below 29, and 29 of 100 were rejected: `29.00 % above 29.00 %`."""
    limit, part = QuarantineLimit(share=share), round(share * 100)  # type: ignore[arg-type]
    assert over_limit(limit, of_one(100, part)) is None
    assert over_limit(limit, of_one(100, part + 1)) is not None


def test_a_share_above_the_limit_is_told_with_the_digits_that_decide() -> None:
    found = over_limit(QuarantineLimit(share=0.29), of_one(10_000_000, 2_900_001))  # type: ignore[arg-type]
    assert found is not None
    assert "(29.00001%), above quality.quarantine_limit of 29.00%" in found
    fine = over_limit(QuarantineLimit(share=0.000001), of_one(100_000, 1))  # type: ignore[arg-type]
    assert fine is not None
    assert "(0.001%), above quality.quarantine_limit of 0.0001%" in fine
