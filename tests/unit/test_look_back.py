"""Which ranges a batch looks back at, who looked back at a record, and which intervals were made without records of others."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.config.source import LookBack, Source
from fencepost.doctor.observed_state import source_state
from fencepost.errors import SourceDataExpired, TransitionRefused
from fencepost.kafka.cluster import Topic
from fencepost.model import Batch, Interval, Layout, SourceSummary, State, WriteSummary
from fencepost.protocol.look_back import looked_back_at, made_without, ranges_before
from fencepost.protocol.planning import Neighbours, PlanFacts, SourceFacts, next_plan
from fencepost.protocol.view import View
from makers import NOW, a_batch, a_day, a_plan, a_source, a_written, planned, the_facts

DAYS = timedelta(days=1)


def consumed(
    day: int, start: int, end: int, state: State = State.PUBLISHED, revision: int = 1, **changes: Any
) -> Batch:
    """A batch of a day that read these offsets of partition 0."""
    plan = a_plan((start, end), layout=Layout.OUTPUT, **changes)
    return a_batch(state, interval=a_day(day), revision=revision, lease=10 * day + revision, plan=plan)


def before(view: View, day: int, lookback: timedelta) -> list[tuple[int, int]]:
    return [(part.start, part.end) for part in ranges_before(view, a_day(day), "in", lookback, 1)]


def test_each_whole_interval_that_ends_less_than_that_before_is_looked_back_at() -> None:
    view = View.of([consumed(day, 10 * day, 10 * day + 10) for day in range(5)])
    assert before(view, 5, 1 * DAYS) == [(40, 50)]
    assert before(view, 5, 1 * DAYS + timedelta(seconds=1)) == [(30, 50)]
    assert before(view, 5, 30 * DAYS) == [(0, 50)]
    assert before(view, 2, 30 * DAYS) == [(0, 20)], "of the earlier ones alone"
    assert before(view, 0, 30 * DAYS) == [(0, 0)]


def test_states_decide_nothing_and_a_withdrawn_interval_has_no_ranges() -> None:
    states = (State.SKIPPED, State.REJECTED, State.PLANNED, State.WITHDRAWN)
    view = View.of([consumed(day, 10 * day, 10 * day + 10, state) for day, state in enumerate(states)])
    assert before(view, 5, 30 * DAYS) == [(0, 30)]


def test_what_expired_after_it_was_consumed_belongs_to_it_and_what_was_never_consumed_does_not() -> None:
    """The first revision began at 5, because 0 to 4 were lost then. The second one has lost 5 to 7 too."""
    lost = {"inputs": (a_source((8, 10), lost=a_source((0, 8)).ranges),)}
    first = consumed(0, 5, 10, State.SUPERSEDED)
    second = planned(consumed(0, 8, 10, revision=2), **lost)
    assert before(View.of([first, second]), 1, 30 * DAYS) == [(5, 10)]


def test_offsets_that_no_interval_consumed_are_not_looked_back_at() -> None:
    """Day 3 was planned first, and days 1 and 2 have no interval: 10 to 29 are in none."""
    view = View.of([consumed(0, 0, 10), consumed(3, 30, 40), consumed(4, 40, 50)])
    assert before(view, 5, 30 * DAYS) == [(30, 50)]


def test_no_interval_with_records_comes_between_planned_ones_of_a_pipeline_that_looks_back() -> None:
    """Without a look back it takes them, and so does one that finds none."""
    view = View.of([consumed(0, 0, 10), consumed(2, 30, 40)])
    assert next_plan(view, a_day(1), facts(view, 1, 0)).offsets == 20
    with pytest.raises(
        TransitionRefused, match=r"the later interval 20260103T.* was planned without the records of interval"
    ):
        next_plan(view, a_day(1), facts(view, 1, 0, lookback=DAYS))
    touching = View.of([consumed(0, 0, 30), consumed(2, 30, 40)])
    assert next_plan(touching, a_day(1), facts(touching, 1, 0, lookback=DAYS)).offsets == 0


def facts(view: View, day: int, earliest: int, **changes: Any) -> PlanFacts:
    source = SourceFacts(topic="in", topic_id="in-1", earliest=(earliest,), stable=(99,), by_end=(99,), **changes)
    return the_facts(neighbours=Neighbours.of(view, a_day(day), ["in"]), reads=("in",), sources=(source,))


def test_a_plan_looks_back_from_the_time_that_it_covers() -> None:
    """Days 3 and 4 have no interval, so the batch of day 5 covers them too, and two days back of that is day 2."""
    view = View.of([consumed(day, 10 * day, 10 * day + 10) for day in range(3)])
    plan = next_plan(view, a_day(5), facts(view, 5, 0, lookback=1 * DAYS))
    assert plan.also_covers == Interval(start=a_day(3).start, end=a_day(5).start)
    assert [(part.start, part.end) for one in plan.looked_back for part in one.ranges] == [(20, 30)]
    assert (plan.offsets, plan.offsets_looked_back) == (69, 10)


def test_expired_records_fail_the_plan_unless_the_loss_is_accepted() -> None:
    view = View.of([consumed(0, 0, 10)])
    with pytest.raises(
        SourceDataExpired, match=r"offsets 0 to 3, which the batch looks back at.*sources.a.lookback: \{for"
    ):
        next_plan(view, a_day(1), facts(view, 1, 4, lookback=DAYS, setting="sources.a", accept_loss=True))
    plan = next_plan(view, a_day(1), facts(view, 1, 4, lookback=DAYS, accept_lookback_loss=True))
    (found,) = plan.looked_back
    assert ([(p.start, p.end) for p in found.ranges], [(p.start, p.end) for p in found.lost]) == ([(4, 10)], [(0, 4)])


@pytest.mark.parametrize(
    ("lookback", "gone"),
    [(LookBack(time=DAYS), [(0, 4)]), (None, [])],
    ids=["looks back", "no longer looks back"],
)
def test_expired_records_stop_a_planned_batch_only_while_its_source_looks_back(
    lookback: LookBack | None, gone: list[tuple[int, int]]
) -> None:
    """Without a look back the next attempt makes a new revision, which needs none of them."""
    deployment: Any = SimpleNamespace(cluster=SimpleNamespace(earliest=lambda _: [4]))
    source = Source(topic="in", format="bytes", lookback=lookback)
    again = a_source((0, 10)).ranges
    found = source_state(deployment, a_source((10, 20)), Topic("in", "in-1", 1), source, again)
    assert [(p.start, p.end) for p in found.lookback_expired] == gone
    assert found.expired == ()


def test_a_batch_without_records_of_its_own_looks_back_at_nothing_and_no_expired_record_fails_it() -> None:
    view = View.of([consumed(0, 0, 99)])
    plan = next_plan(view, a_day(1), facts(view, 1, 4, lookback=DAYS))
    assert (plan.offsets, plan.looked_back) == (0, ())


def test_no_interval_with_records_comes_before_the_first_of_a_pipeline_that_looks_back() -> None:
    view = View.of([consumed(1, 30, 40)])
    known = facts(view, 0, 0, by_start=(5,))
    assert next_plan(view, a_day(0), known).offsets == 25
    with pytest.raises(
        TransitionRefused, match=r"the later interval 20260102T.* was planned without the records of interval"
    ):
        next_plan(view, a_day(0), facts(view, 0, 0, by_start=(5,), lookback=DAYS))


def test_who_looked_back_at_a_record() -> None:
    again = (a_source((0, 10)),)
    view = View.of([consumed(0, 0, 10), consumed(1, 10, 20, looked_back=again), consumed(2, 20, 30)])
    assert [batch.interval for batch in looked_back_at(view, ("in", 0), 9)] == [a_day(1)]
    assert looked_back_at(view, ("in", 0), 10) == looked_back_at(view, ("in", 1), 9) == ()


def summary(minutes: int, **counts: int) -> WriteSummary:
    written = a_written(written_at=NOW + timedelta(minutes=minutes))
    return written.model_copy(update={"sources": {"in": SourceSummary(**counts)}})


def with_summary(batch: Batch, written: WriteSummary) -> Batch:
    return batch.model_copy(update={"written": written})


@pytest.mark.parametrize(
    ("malformed_now", "looked_back_malformed", "made_at", "found"),
    [(0, 2, 1, True), (2, 2, 1, False), (0, 0, 1, False), (0, 2, 3, False)],
    ids=["made readable", "still malformed", "read with the new schema", "made later"],
)
def test_which_intervals_were_made_without_records_that_a_reprocess_made_readable(
    malformed_now: int, looked_back_malformed: int, made_at: int, found: bool
) -> None:
    first = with_summary(consumed(0, 0, 10, State.SUPERSEDED), summary(0, rows_in=10, malformed=2))
    again = with_summary(consumed(0, 0, 10, revision=2), summary(2, rows_in=10, malformed=malformed_now))
    later = consumed(1, 10, 20, looked_back=(a_source((0, 10)),))
    later = with_summary(later, summary(made_at, looked_back=10, looked_back_malformed=looked_back_malformed))
    all_of_them = made_without(View.of([first, again, later]))
    assert [(one.consumed, one.later) for one in all_of_them] == ([(a_day(0), (a_day(1),))] if found else [])
    if found:
        assert all_of_them[0].description == (
            "1 later interval was made without records of topic in that a new revision of 2026-01-01 00:00 to 2026-01-02 "
            "00:00 UTC made readable: 2026-01-02 00:00 to 2026-01-03 00:00 UTC"
        )
        assert "fencepost run p --start 2026-01-02T00:00:00Z" in all_of_them[0].advice("p")
