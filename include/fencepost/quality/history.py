"""Is a batch like those published before it? Two checks that look at no record, but at what the ledger knows.

A batch is like the others when its figure lies within `spreads` times their spread of their median; the spread is the median
absolute deviation, which one odd batch does not move. `tolerance` is the least distance that counts: after many batches of
the same size the spread is 0. With fewer than `at_least` published batches nothing is judged, and the check passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from statistics import median
from typing import Any

from pydantic import Field, JsonValue

from fencepost.model import Batch, Frozen, Interval, State, Written
from fencepost.quality.checks import CheckResult, Status
from fencepost.quality.suite import FRESHNESS, Declared, FreshnessLimits, Limits, VolumeLimits


class Point(Frozen):
    """One batch: records out, and how old its newest source record was at the interval's end (None: it had none)."""

    rows: int = Field(ge=0)
    age: timedelta | None = None


class History(Frozen):
    """The batch that is judged, and those published for earlier intervals, the newest first."""

    batch: Point = Point(rows=0)
    before: tuple[Point, ...] = ()


def history_of(batch: Batch, written: Written, batches: Sequence[Batch]) -> History:
    """What the checks compare, drawn from the ledger's `batches`."""
    earlier = [b for b in batches if b.state is State.PUBLISHED and b.interval.end <= batch.interval.start]
    earlier.sort(key=lambda b: b.interval.start, reverse=True)
    before = tuple(_point(b.interval, b.written) for b in earlier if b.written)
    return History(batch=_point(batch.interval, written), before=before)


def _point(interval: Interval, written: Written) -> Point:
    return Point(rows=written.rows, age=interval.end - written.newest if written.newest else None)


def liken(declared: Declared, history: History) -> CheckResult:
    """The result of one of the two checks."""
    if declared.type == FRESHNESS:
        return _freshness(declared, history)
    return _volume(declared, history)


def _volume(declared: Declared, history: History) -> CheckResult:
    """Records out, as many as usual: neither fewer nor more."""
    limits = VolumeLimits.model_validate(declared.kwargs)
    rows = history.batch.rows
    usual = _usual([float(p.rows) for p in history.before], limits)
    if usual is None:
        return _not_judged(declared, {"rows": rows}, _too_few(history.before, limits))
    middle, spread = usual
    distance = max(limits.spreads * spread, limits.tolerance * middle)
    observed: dict[str, JsonValue] = {"rows": rows, "usual": f"{middle:g} ± {distance:g}"}
    return _judged(declared, observed, abs(rows - middle) <= distance)


def _freshness(declared: Declared, history: History) -> CheckResult:
    """The newest source record, as near to the interval's end as usual, or nearer."""
    limits = FreshnessLimits.model_validate(declared.kwargs)
    age = history.batch.age
    ages = [p.age.total_seconds() for p in history.before if p.age is not None]
    if age is None:
        return _not_judged(
            declared, {}, "no source record has a timestamp, or none was counted: a retry found them written"
        )
    usual = _usual(ages, limits)
    if usual is None:
        known: dict[str, JsonValue] = {"age of the newest record": _time(age.total_seconds())}
        return _not_judged(declared, known, _too_few(ages, limits))
    middle, spread = usual
    latest = middle + max(limits.spreads * spread, limits.tolerance_seconds)
    observed: dict[str, JsonValue] = {
        "age of the newest record": _time(age.total_seconds()),
        "usual": _time(middle),
        "at most": _time(latest),
    }
    return _judged(declared, observed, age.total_seconds() <= latest)


def _usual(figures: Sequence[float], limits: Limits) -> tuple[float, float] | None:
    """Median and median absolute deviation of the newest figures; None where there are too few."""
    newest = figures[: limits.batches]
    if len(newest) < limits.at_least:
        return None
    middle = median(newest)
    return middle, median(abs(figure - middle) for figure in newest)


def _time(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds))) if seconds >= 0 else f"-{timedelta(seconds=round(-seconds))}"


def _too_few(known: Sequence[Any], limits: Limits) -> str:
    return f"{len(known)} of {limits.at_least} published batches to compare with"


def _not_judged(declared: Declared, observed: dict[str, JsonValue], why: str) -> CheckResult:
    observed = {**observed, "not judged": why}
    return CheckResult(**declared.model_dump(), status=Status.PASSED, observed=observed, no_value=True)


def _judged(declared: Declared, observed: JsonValue, holds: bool) -> CheckResult:
    return CheckResult(**declared.model_dump(), status=Status.PASSED if holds else Status.FAILED, observed=observed)
