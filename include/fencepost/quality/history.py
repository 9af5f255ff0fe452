"""Compares a batch with the batches that were published for earlier intervals. The two checks read the ledger, not the
records.

A batch is like the others if the distance of its figure from their median is at most `spreads` times their spread. The
spread is the median absolute deviation, which one odd batch does not change. `tolerance` is the smallest distance that
counts, because the spread is 0 after many batches of the same size. All of this is computed exactly, from the numbers
as they are written. With fewer than `at_least` published batches nothing is judged, and the check passes.

A batch that read no record, or only records that the source excludes, has no newest record. Nothing arrived in its
interval, so the source's newest record is older than the interval's start. The freshness check fails if even the
interval's length is too old. Otherwise the check has nothing to judge.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
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


class PastBatch(Frozen):
    """A batch with the number of its rows, and the age of its newest source record at the interval's end. The age is
    None if it is not known.

    If the batch read no record that is not excluded, `older_than` is the length of its interval instead.
    """

    rows: int = Field(ge=0)
    age: timedelta | None = None
    older_than: timedelta | None = None


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
    return PastBatch(
        rows=written.rows,
        age=interval.end - written.newest if written.newest else None,
        older_than=interval.end - interval.start if written.included == 0 else None,
    )


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
        return _not_judged(declared, {"rows": rows}, _too_few(history.before, limits))
    middle, spread = usual
    distance = max(Fraction(limits.spreads) * spread, Fraction(limits.tolerance) * middle)
    observed: dict[str, JsonValue] = {"rows": rows, "usual": f"{shown(middle)} ± {shown(distance)}"}
    return CheckResult.judged(declared, abs(rows - middle) <= distance, observed)


def _freshness(declared: DeclaredExpectation, history: History) -> CheckResult:
    """Checks that the newest source record is as close to the interval's end as usual, or closer."""
    limits = FreshnessLimits.model_validate(declared.kwargs)
    age, older_than = history.batch.age, history.batch.older_than
    ages = [_seconds(p.age) for p in history.before if p.age is not None]
    if age is not None:
        found = _time(_seconds(age))
    elif older_than is not None:
        found = f"no record was read, so more than {_time(_seconds(older_than))}"
    else:
        return _not_judged(
            declared,
            {},
            "no source record has a timestamp, or a retry found the rows already written and counted no input",
        )
    observed: dict[str, JsonValue] = {"age of the newest record": found}
    usual = _usual(ages, limits)
    if usual is None:
        return _not_judged(declared, observed, _too_few(ages, limits))
    middle, spread = usual
    latest = middle + max(Fraction(limits.spreads) * spread, Fraction(limits.tolerance_seconds))
    observed |= {"usual": _time(middle), "at most": _time(latest)}
    if age is not None:
        return CheckResult.judged(declared, _seconds(age) <= latest, observed)
    if older_than is not None and _seconds(older_than) >= latest:
        return CheckResult.judged(declared, False, observed)
    return _not_judged(declared, observed, "no record was read, and the last earlier record may be new enough")


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


def _not_judged(declared: DeclaredExpectation, observed: dict[str, JsonValue], why: str) -> CheckResult:
    observed = {**observed, "not judged": why}
    return CheckResult.idle(declared, observed)
