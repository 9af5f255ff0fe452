"""Volume and freshness against the batches published before."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fencepost.config.pipeline import load_suite
from fencepost.errors import SettingsError
from fencepost.model import Batch, SourceSummary, State
from fencepost.quality.checks import Status
from fencepost.quality.gate import judge
from fencepost.quality.history import History, NewestAge, PastBatch, history_of, liken
from fencepost.suite.catalogue import FRESHNESS, VOLUME
from fencepost.suite.declared import DeclaredExpectation, Severity, Suite
from makers import NOW, a_batch, a_day, a_plan, a_receipt, a_written, counted


def volume(rows: int, before: Sequence[int], **kwargs: Any) -> Status | None:
    """What the volume check says; None when it judged nothing."""
    declared = DeclaredExpectation(index=0, type=VOLUME, kwargs=kwargs)
    found = liken(declared, History(batch=PastBatch(rows=rows), before=tuple(PastBatch(rows=n) for n in before)))
    return None if found.no_value else found.status


def aged(*seconds: float | None) -> PastBatch:
    """A batch that read topics `t0`, `t1` and so on, with the age of the newest record of each."""
    ages = {f"t{n}": NewestAge(age=None if s is None else timedelta(seconds=s)) for n, s in enumerate(seconds)}
    return PastBatch(rows=1, sources=ages)


def freshness(age: float | None, before: Sequence[float | None], **kwargs: Any) -> Status | None:
    """The same of freshness, ages in seconds."""

    declared = DeclaredExpectation(index=0, type=FRESHNESS, kwargs=kwargs)
    found = liken(declared, History(batch=aged(age), before=tuple(map(aged, before))))
    return None if found.no_value else found.status


def test_fewer_batches_than_asked_for_judge_nothing() -> None:
    assert volume(5, [100] * 6) is None
    assert volume(5, [100] * 7) is Status.FAILED
    assert volume(5, [100] * 2, at_least=2) is Status.FAILED
    assert freshness(7200, [60] * 6) is None
    assert freshness(7200, [60] * 7) is Status.FAILED
    assert freshness(None, [60] * 7) is None, "no record has a timestamp"
    assert freshness(7200, [60] * 6 + [None]) is None


@pytest.mark.parametrize(
    ("rows", "holds"), [(100, True), (150, True), (151, False), (50, True), (49, False), (0, False)]
)
def test_volume_may_lie_five_spreads_from_the_median_on_either_side(rows: int, holds: bool) -> None:
    before = [80, 90, 90, 100, 110, 110, 120]  # median 100, median deviation 10
    assert volume(rows, before) is (Status.PASSED if holds else Status.FAILED)


def test_one_odd_batch_widens_nothing() -> None:
    assert volume(300, [80, 90, 90, 100, 110, 110, 100_000]) is Status.FAILED


def test_batches_that_were_all_alike_leave_a_tolerance() -> None:
    assert volume(1010, [1000] * 10) is Status.PASSED
    assert volume(1101, [1000] * 10) is Status.FAILED
    assert volume(1010, [1000] * 10, tolerance=0) is Status.FAILED
    assert freshness(360, [60] * 10) is Status.PASSED
    assert freshness(361, [60] * 10) is Status.FAILED


def test_a_batch_fresher_than_usual_is_welcome() -> None:
    assert freshness(0, [3600, 3700, 3500] * 3) is Status.PASSED


@pytest.mark.parametrize(("length", "status"), [(361, Status.FAILED), (360, Status.FAILED), (359, None)])
def test_a_batch_that_read_no_record_is_as_old_as_its_interval_is_long(length: float, status: Status | None) -> None:
    """The newest record lies before the interval: that may be all one has to know."""
    before = (aged(60),) * 7  # usual 60 s, at most 360
    now = PastBatch(rows=0, sources={"t0": NewestAge(older_than=timedelta(seconds=length))})
    found = liken(DeclaredExpectation(index=0, type=FRESHNESS), History(batch=now, before=before))
    assert (None if found.no_value else found.status) is status
    assert isinstance(found.observed, dict)
    assert (
        found.observed["age of the newest record"]
        == f"no record was read, so more than 0:0{length // 60}:{length % 60:02}"
    )


def test_only_the_newest_batches_count() -> None:
    newest_first = [1000] * 7 + [10] * 100
    assert volume(1000, newest_first, batches=7) is Status.PASSED
    assert volume(10, newest_first, batches=7) is Status.FAILED


def test_what_was_found_is_told() -> None:
    declared = DeclaredExpectation(index=0, type=FRESHNESS, kwargs={"at_least": 2})
    found = liken(declared, History(batch=aged(9 * 3600), before=(aged(60),) * 2))
    assert found.observed == {"age of the newest record": "9:00:00", "usual": "0:01:00", "at most": "0:06:00"}
    declared = DeclaredExpectation(index=0, type=VOLUME)
    assert liken(declared, History(batch=PastBatch(rows=3), before=(PastBatch(rows=3),))).observed == {
        "rows": 3,
        "not judged": "1 of 7 published batches to compare with",
    }


def test_the_gate_knows_them_like_any_other() -> None:
    declared = DeclaredExpectation(index=0, type=VOLUME, severity=Severity.CRITICAL)
    history = History(batch=PastBatch(rows=1), before=(PastBatch(rows=100),) * 7)
    outcome, reason = judge(Suite.of((declared,)), [liken(declared, history)], 1, "pass")
    assert outcome == "rejected"
    assert VOLUME in reason
    warned = declared.model_copy(update={"severity": Severity.WARNING})
    assert judge(Suite.of((warned,)), [liken(warned, history)], 1, "pass")[0] == "passed"
    young = liken(declared, History(batch=PastBatch(rows=1)))
    assert "Found no value to judge" in judge(Suite.of((declared,)), [young], 1, "pass")[1]


def batch(number: int, state: State, rows: int, newest: datetime | None = None) -> Batch:
    written = a_written(a_receipt(rows=rows), newest=newest)
    return a_batch(state, interval=a_day(number), plan=a_plan((0, 1)), written=written)


def test_each_source_is_compared_with_its_own_topic_and_one_that_is_late_fails() -> None:
    """Topic t1 is always an hour old. Neither hides the other: with one age of all, 1 minute would be the batch's."""
    declared = DeclaredExpectation(index=0, type=FRESHNESS)
    before = (aged(60, 3600),) * 7
    fine = liken(declared, History(batch=aged(60, 3900), before=before))
    assert (fine.status, fine.no_value) == (Status.PASSED, False)
    assert fine.observed == {
        "t0": {"age of the newest record": "0:01:00", "usual": "0:01:00", "at most": "0:06:00"},
        "t1": {"age of the newest record": "1:05:00", "usual": "1:00:00", "at most": "1:05:00"},
    }
    late = liken(declared, History(batch=aged(60, 3901), before=before))
    assert (late.status, late.no_value) == (Status.FAILED, False)
    assert isinstance(late.observed, dict)
    assert list(late.observed) == ["t1", "t0"], "what failed comes first"
    assert liken(declared, History(batch=aged(361, 60), before=before)).status is Status.FAILED
    silent = PastBatch(rows=1, sources={**aged(60).sources, "t1": NewestAge(older_than=timedelta(days=1))})
    assert liken(declared, History(batch=silent, before=before)).status is Status.FAILED


def test_a_topic_that_too_few_batches_have_read_is_not_judged_and_a_batch_without_it_says_nothing_about_it() -> None:
    declared = DeclaredExpectation(index=0, type=FRESHNESS)
    before = (*(aged(60, 60),) * 6, *(aged(60),) * 20)
    found = liken(declared, History(batch=aged(60, 7200), before=before))
    assert (found.status, found.no_value) == (Status.PASSED, False)
    assert isinstance(found.observed, dict)
    assert found.observed["t1"] == {
        "age of the newest record": "2:00:00",
        "not judged": "6 of 7 published batches to compare with",
    }
    assert liken(declared, History(batch=aged(7200, 7200), before=before)).status is Status.FAILED
    none = liken(declared, History(batch=aged(60, 7200), before=before[:6]))
    assert (none.status, none.no_value) == (Status.PASSED, True)
    alone = liken(declared, History(batch=aged(60), before=before))
    assert alone.observed == {"age of the newest record": "0:01:00", "usual": "0:01:00", "at most": "0:06:00"}


def of_topic(rows: int, **age: timedelta) -> PastBatch:
    return PastBatch(rows=rows, sources={"in": NewestAge(**age)})


def test_history_is_what_was_published_for_earlier_intervals_the_newest_first() -> None:
    now = batch(3, State.WRITTEN, 7, NOW + timedelta(days=3, hours=23))
    others = [
        batch(0, State.PUBLISHED, 10),
        batch(1, State.SKIPPED, 11),
        batch(2, State.PUBLISHED, 12, NOW + timedelta(days=2, hours=20)),
        batch(4, State.PUBLISHED, 14),
    ]
    assert now.written is not None
    assert history_of(now, now.written, [*others, now]) == History(
        batch=of_topic(7, age=timedelta(hours=1)),
        before=(of_topic(12, age=timedelta(hours=4)), of_topic(10)),
    )


def test_a_batch_that_read_nothing_knows_how_long_it_looked_and_one_that_did_not_count_does_not() -> None:
    now = batch(3, State.WRITTEN, 0)
    assert now.written is not None
    assert history_of(now, now.written, [now]).batch == of_topic(0, older_than=timedelta(days=1))
    uncounted = counted(now.written, rows_in=None)
    assert history_of(now, uncounted, [now]).batch == of_topic(0)
    all_of_another_kind = counted(now.written, rows_in=50, excluded={"other_types": 50})
    assert history_of(now, all_of_another_kind, [now]).batch == of_topic(0, older_than=timedelta(days=1))
    some = counted(now.written, rows_in=51, excluded={"other_types": 50})
    assert history_of(now, some, [now]).batch == of_topic(0)


def test_the_ages_of_a_batch_are_by_the_topics_that_it_read() -> None:
    now = batch(3, State.WRITTEN, 7)
    two = {
        "north": SourceSummary(rows_in=5, newest=NOW + timedelta(days=3, hours=23)),
        "south": SourceSummary(rows_in=2, excluded={"other_types": 2}),
    }
    written = now.require_written.model_copy(update={"sources": two})
    assert history_of(now, written, [now]).batch.sources == {
        "north": NewestAge(age=timedelta(hours=1)),
        "south": NewestAge(older_than=timedelta(days=1)),
    }


@pytest.mark.parametrize(
    ("kwargs", "says"),
    [
        ("{bathces: 3}", "kwargs.bathces: unknown argument; allowed are batches, at_least, spreads, tolerance"),
        ("{batches: many}", "kwargs.batches: Input should be a valid integer"),
        ("{spreads: 0}", "kwargs.spreads: Input should be greater than 0"),
        ("{spreads: 1e308}", "kwargs.spreads: Input should be less than or equal to 100"),
        ("{tolerance: 1}", "kwargs.tolerance: Input should be less than 1"),
        ("{batches: 3}", "at_least (7) is above batches (3): nothing would be judged"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused_with_file_and_field(tmp_path: Path, kwargs: str, says: str) -> None:
    file = tmp_path / "expectations.yaml"
    file.write_text(f"expectations:\n  - {{type: {VOLUME}, kwargs: {kwargs}}}\n")
    with pytest.raises(SettingsError) as refused:
        load_suite(file)
    assert str(file) in str(refused.value)
    assert says in str(refused.value)


def test_a_share_and_a_tolerance_are_the_fractions_that_are_written() -> None:
    """As doubles, 0.29 times 100 is below 29."""
    for tolerance in (0.29, 0.07, 0.57):
        distance = round(tolerance * 100)
        assert volume(100 - distance, [100] * 10, tolerance=tolerance) is Status.PASSED
        assert volume(100 - distance - 1, [100] * 10, tolerance=tolerance) is Status.FAILED
    assert volume(71, [100] * 10, tolerance="0.28999999999999999999") is Status.FAILED


def test_what_is_usual_is_told_with_the_digits_that_decide() -> None:
    declared = DeclaredExpectation(index=0, type=VOLUME, kwargs={"tolerance": 0})
    found = liken(declared, History(batch=PastBatch(rows=10_000_001), before=(PastBatch(rows=10_000_000),) * 7))
    assert (found.status, found.observed) == (Status.FAILED, {"rows": 10_000_001, "usual": "10000000 ± 0"})
    declared = DeclaredExpectation(index=0, type=FRESHNESS, kwargs={"tolerance_seconds": 0})
    late = PastBatch(rows=1, sources={"t0": NewestAge(age=timedelta(seconds=60, microseconds=1))})
    assert liken(declared, History(batch=late, before=(aged(60),) * 7)).observed == {
        "age of the newest record": "0:01:00.000001", "usual": "0:01:00", "at most": "0:01:00"
    }  # fmt: skip
