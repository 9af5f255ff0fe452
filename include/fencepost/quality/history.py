"""Compares a batch with the batches that were published for earlier intervals. The two checks read the ledger, not the
records.

A batch is like the others if the distance of its figure from their median is at most `spreads` times their spread. The
spread is the median absolute deviation, which one odd batch does not change. `tolerance` is the smallest distance that
counts, because the spread is 0 after many batches of the same size. All of this is computed exactly, from the numbers
as they are written. With fewer than `at_least` published batches nothing is judged, and the check passes.

The freshness check compares each source with what the same topic had in earlier batches, and fails if one is older than
usual. A batch that did not read a topic says nothing about it. A topic that too few batches have read is not judged.

A source that gave no record, or only records that it excludes, has no newest record. Nothing arrived in the interval, so
the source's newest record is older than the interval's start. The check fails if even the interval's length is too old.
Otherwise there is nothing to judge about this source.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from fractions import Fraction
from statistics import median
from typing import Any

from pydantic import Field, JsonValue

from fencepost.model import Batch, Frozen, Interval, State, WriteSummary
from fencepost.quality.checks import CheckResult
from fencepost.suite.arguments import FreshnessLimits, Limits, VolumeLimits
from fencepost.suite.catalogue import FRESHNESS
from fencepost.suite.declared import DeclaredExpectation
from fencepost.suite.numbers import shown

NOT_JUDGED = "not judged"  # the reason in an observed value, as CheckResult.not_judged reads it
UNKNOWN = "no source record has a timestamp, or a retry found the rows already written and counted no input"


class NewestAge(Frozen):
    """The age of a source's newest record at the interval's end, or None if it is not known.

    If the source gave no record that is not excluded, `older_than` is the length of the interval instead.
    """

    age: timedelta | None = None
    older_than: timedelta | None = None

    @classmethod
    def of(cls, interval: Interval, newest: datetime | None, included: int | None) -> NewestAge:
        """Returns the age of the newest record among `included` records. The number is None if they were not counted."""
        return cls(
            age=None if newest is None else interval.end - newest,
            older_than=interval.end - interval.start if included == 0 else None,
        )


class PastBatch(Frozen):
    """A batch with the number of its rows, and the age of the newest record of each source that it read, by topic."""

    rows: int = Field(ge=0)
    sources: dict[str, NewestAge] = Field(default_factory=dict)


class History(Frozen):
    """The batch to judge, and the batches published for earlier intervals. The newest batch comes first."""

    batch: PastBatch = PastBatch(rows=0)
    before: tuple[PastBatch, ...] = ()


def history_of(batch: Batch, written: WriteSummary, batches: Sequence[Batch]) -> History:
    """Returns the history for these checks, from the ledger's `batches`."""
    return History(batch=_point(batch.interval, written), before=published_before(batch.interval, batches))


def published_before(interval: Interval, batches: Sequence[Batch]) -> tuple[PastBatch, ...]:
    """Returns the batches published for intervals before this one, the newest first."""
    earlier = [
        b for b in batches if b.state is State.PUBLISHED and b.adds_to is None and b.interval.end <= interval.start
    ]
    earlier.sort(key=lambda b: b.interval.start, reverse=True)
    return tuple(_point(b.interval, b.written) for b in earlier if b.written)


def _point(interval: Interval, written: WriteSummary) -> PastBatch:
    ages = {topic: NewestAge.of(interval, one.newest, one.included) for topic, one in written.sources.items()}
    return PastBatch(rows=written.rows, sources=ages)


def liken(declared: DeclaredExpectation, history: History) -> CheckResult:
    """Returns the result of one of the two checks on history."""
    if declared.type == FRESHNESS:
        return _freshness(declared, history)
    return _volume(declared, history)


def _volume(declared: DeclaredExpectation, history: History) -> CheckResult:
    """Checks that the number of rows is neither unusually small nor unusually large."""
    limits = VolumeLimits.model_validate(declared.kwargs)
    rows = history.batch.rows
    usual = _usual([Fraction(p.rows) for p in history.before], limits)
    if usual is None:
        return CheckResult.idle(declared, {"rows": rows, NOT_JUDGED: _too_few(history.before, limits)})
    middle, spread = usual
    distance = max(Fraction(limits.spreads) * spread, Fraction(limits.tolerance) * middle)
    observed: dict[str, JsonValue] = {"rows": rows, "usual": f"{shown(middle)} ± {shown(distance)}"}
    return CheckResult.judged(declared, abs(rows - middle) <= distance, observed)


def _freshness(declared: DeclaredExpectation, history: History) -> CheckResult:
    """Checks that the newest record of each source is as close to the interval's end as usual, or closer."""
    limits = FreshnessLimits.model_validate(declared.kwargs)
    judged = {topic: _fresh(now, _ages(topic, history), limits) for topic, now in history.batch.sources.items()}
    failed_first = sorted(judged.items(), key=lambda item: item[1][0] is not False)
    found: dict[str, JsonValue] = {topic: facts for topic, (_, facts) in failed_first}
    observed = found if len(found) != 1 else next(iter(found.values()))
    answers = {fresh for fresh, _ in judged.values()} - {None}
    if not answers:
        return CheckResult.idle(declared, observed)
    return CheckResult.judged(declared, answers == {True}, observed)


def _ages(topic: str, history: History) -> list[Fraction]:
    """Returns the ages that are known of the topic's newest record in earlier batches, in seconds."""
    read = (past.sources[topic] for past in history.before if topic in past.sources)
    return [_seconds(one.age) for one in read if one.age is not None]


def _fresh(
    now: NewestAge, ages: Sequence[Fraction], limits: FreshnessLimits
) -> tuple[bool | None, dict[str, JsonValue]]:
    """Returns whether a source's newest record is as new as usual, and what was found. The answer is None if nothing was
    judged.
    """
    if now.age is not None:
        found = _time(_seconds(now.age))
    elif now.older_than is not None:
        found = f"no record was read, so more than {_time(_seconds(now.older_than))}"
    else:
        return None, {NOT_JUDGED: UNKNOWN}
    observed: dict[str, JsonValue] = {"age of the newest record": found}
    usual = _usual(ages, limits)
    if usual is None:
        return None, observed | {NOT_JUDGED: _too_few(ages, limits)}
    middle, spread = usual
    latest = middle + max(Fraction(limits.spreads) * spread, Fraction(limits.tolerance_seconds))
    observed |= {"usual": _time(middle), "at most": _time(latest)}
    if now.age is not None:
        return _seconds(now.age) <= latest, observed
    if now.older_than is not None and _seconds(now.older_than) >= latest:
        return False, observed
    return None, observed | {NOT_JUDGED: "no record was read, and the last earlier record may be new enough"}


def _seconds(time: timedelta) -> Fraction:
    return Fraction(time // timedelta(microseconds=1), 1_000_000)


def _usual(figures: Sequence[Fraction], limits: Limits) -> tuple[Fraction, Fraction] | None:
    """Returns the median and the median absolute deviation of the newest figures, or None if there are too few."""
    newest = figures[: limits.batches]
    if len(newest) < limits.at_least:
        return None
    middle = median(newest)
    return middle, median(abs(figure - middle) for figure in newest)


def _time(seconds: Fraction) -> str:
    """Returns a time with all digits that matter. It has microseconds if it is not a whole number of seconds."""
    return f"{'-' if seconds < 0 else ''}{timedelta(microseconds=round(abs(seconds) * 1_000_000))}"


def _too_few(known: Sequence[Any], limits: Limits) -> str:
    return f"{len(known)} of {limits.at_least} published batches to compare with"
