"""Suggests checks that published batches pass. The bounds of a suggested check are the usual values, with some room.

Every suggestion holds for each batch that it was computed from. The room is four times the median absolute deviation
around the median, so that one odd batch does not set the bounds. Nothing is suggested for values that only grow, such
as ids and times.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from statistics import median
from typing import Any

from pydantic import JsonValue
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from fencepost.counts import count_of
from fencepost.errors import SettingsError
from fencepost.ledger.deployment import Deployment
from fencepost.model import Frozen
from fencepost.preview.past import NotReadable, PastRevision, as_promised, read_past
from fencepost.quality.columns import column_kinds, prepared_column
from fencepost.rows.fingerprint import counting, counts_of
from fencepost.suite.catalogue import Kind
from fencepost.suite.numbers import number_of

AT_LEAST = 7  # batches
MOST_VALUES = 20  # members of a suggested set
OFTEN = 5  # least number of times that each member was seen
SPREADS = 4
NUMBERS = (Kind.INTEGER, Kind.DECIMAL, Kind.NUMBER)


class Suggestion(Frozen):
    """An expectation to add, and a description of its basis. `seen` has the figure of each batch, in order of time."""

    type: str
    kwargs: dict[str, JsonValue]
    description: str
    seen: tuple[float, ...] = ()

    @property
    def arguments(self) -> str:
        """Returns the arguments as YAML on one line."""
        return "{" + ", ".join(f"{name}: {as_json(value)}" for name, value in self.kwargs.items()) + "}"

    @property
    def yaml(self) -> str:
        """Returns the suggestion as an entry of expectations.yaml."""
        said = f"  - type: {self.type}\n    severity: warning\n    description: {as_json(self.description)}\n"
        return f"{said}    kwargs: {self.arguments}\n"


def as_json(value: object) -> str:
    """Returns a value in JSON. The text is in ASCII if a character in it draws nothing or moves other characters."""
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(value)


@dataclass
class BatchFigures:
    """The figures of one batch. These are the rows of the batch, and for each column the nulls, the least, greatest and
    mean number, and the distinct texts.
    """

    rows: int
    nulls: dict[str, int] = field(default_factory=dict)
    least: dict[str, float] = field(default_factory=dict)
    greatest: dict[str, float] = field(default_factory=dict)
    mean: dict[str, float] = field(default_factory=dict)
    distinct: dict[str, int] = field(default_factory=dict)
    times: dict[str, dict[str, int]] = field(default_factory=dict)


def suggest(
    spark: SparkSession,
    deployment: Deployment,
    pasts: Sequence[PastRevision],
    unread: Callable[[PastRevision, str], None],
) -> tuple[list[Suggestion], int]:
    """Returns suggestions from these batches, and the number of batches used. `unread` is called for each batch that
    could not be read, with the reason.

    Raises:
        SettingsError: fewer than seven batches could be read.
    """
    found: list[tuple[PastRevision, DataFrame, BatchFigures, dict[str, Kind]]] = []
    for past in pasts:
        try:
            if not past.promised.rows:
                raise NotReadable("it has no records")
            frame = read_past(spark, deployment, past)
            kinds = column_kinds(frame)
            found.append((past, frame, _figures(frame, kinds, past), kinds))
        except NotReadable as error:
            unread(past, str(error))
    if len(found) < AT_LEAST:
        raise SettingsError(
            f"pipeline {deployment.pipeline.name}: bounds need {AT_LEAST} published batches whose records can be read, "
            f"and there are {len(found)}. Run more intervals, or ask again with a larger --over."
        )
    kinds = {name: kind for name, kind in found[-1][3].items() if all(other.get(name) is kind for *_, other in found)}
    figures = [one for _, _, one, _ in found]
    few = [
        n
        for n, kind in kinds.items()
        if kind is Kind.TEXT and all(one.distinct[n] <= 2 * MOST_VALUES for one in figures)
    ]
    for _, frame, one, _ in found:
        for name in few:
            one.times[name] = _times(frame, name)
    return list(drawn(figures, kinds)), len(found)


def drawn(figures: Sequence[BatchFigures], kinds: Mapping[str, Kind]) -> Iterator[Suggestion]:
    """Yields the suggestions that follow from the figures of batches, in order of time, and their columns. Pure."""
    rows = [float(one.rows) for one in figures]
    low, high = bounds(rows, whole=True, least=0)
    yield Suggestion(
        type="expect_table_row_count_to_be_between",
        kwargs={"min_value": low, "max_value": high},
        description=f"As many rows as usual ({_seen(rows, len(figures))})",
        seen=tuple(rows),
    )
    for name, kind in kinds.items():
        yield from _of_nulls(name, figures)
        if kind in NUMBERS and all(name in one.least for one in figures):
            yield from _of_numbers(name, kind, figures)
        if kind is Kind.TEXT and all(name in one.times for one in figures):
            yield from _of_texts(name, figures)


def bounds(seen: Sequence[float], *, whole: bool = False, least: float | None = None) -> tuple[float, float]:
    """Returns bounds that all figures keep, with some room. With `whole` the bounds are whole numbers. The bounds are
    never below `least`. Pure.
    """
    middle = median(seen)
    room = SPREADS * median(abs(one - middle) for one in seen)
    low, high = min(*seen, middle - room), max(*seen, middle + room)
    if low < 0 <= min(seen):
        low = 0.0
    if least is not None:
        low = max(low, least)
    if whole:
        return math.floor(low), math.ceil(high)
    return _rounded(low, math.floor), _rounded(high, math.ceil)


def _rounded(value: float, way: Callable[[float], int]) -> float:
    """Returns the value with three digits, rounded away from the figures."""
    if value == 0 or not math.isfinite(value):
        return value
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - 2)
    if unit < sys.float_info.min:  # three digits cannot express a number so near to zero
        return value
    rounded = float(f"{way(value / unit) * unit:.6g}")
    return rounded if math.isfinite(rounded) else value


def _of_nulls(name: str, figures: Sequence[BatchFigures]) -> Iterator[Suggestion]:
    shares = [one.nulls[name] / one.rows for one in figures]
    if max(shares) == 0:
        yield Suggestion(
            type="expect_column_values_to_not_be_null",
            kwargs={"column": name},
            description=f"No null ({count_of(len(figures), 'batch', 'batches')} had none)",
            seen=tuple(shares),
        )
        return
    mostly = math.floor(100 * (1 - min(1.0, bounds(shares)[1]))) / 100
    if mostly > 0:
        yield Suggestion(
            type="expect_column_values_to_not_be_null",
            kwargs={"column": name, "mostly": mostly},
            description=f"Not more nulls than usual ({_seen([round(100 * s, 2) for s in shares], len(figures), ' %')})",
            seen=tuple(shares),
        )


def _of_numbers(name: str, kind: Kind, figures: Sequence[BatchFigures]) -> Iterator[Suggestion]:
    lows, highs = [one.least[name] for one in figures], [one.greatest[name] for one in figures]
    if grows(lows, highs):
        return
    whole = kind is Kind.INTEGER
    low, high = bounds(lows, whole=whole)[0], bounds(highs, whole=whole)[1]
    yield Suggestion(
        type="expect_column_values_to_be_between",
        kwargs={"column": name, "min_value": low, "max_value": high},
        description=f"Within what is usual (seen in {count_of(len(figures), 'batch', 'batches')}: {min(lows):g} to "
        f"{max(highs):g})",
        seen=tuple(highs),
    )
    means = [one.mean[name] for one in figures]
    low, high = bounds(means)
    yield Suggestion(
        type="expect_column_mean_to_be_between",
        kwargs={"column": name, "min_value": low, "max_value": high},
        description=f"A mean as usual ({_seen([float(f'{m:.4g}') for m in means], len(figures))})",
        seen=tuple(means),
    )


def _of_texts(name: str, figures: Sequence[BatchFigures]) -> Iterator[Suggestion]:
    times: dict[str, int] = {}
    for one in figures:
        for value, number in one.times[name].items():
            times[value] = times.get(value, 0) + number
    if not 0 < len(times) <= MOST_VALUES or min(times.values()) < OFTEN:
        return
    yield Suggestion(
        type="expect_column_values_to_be_in_set",
        kwargs={"column": name, "value_set": sorted(times)},
        description=f"One of {count_of(len(times), 'known value')} ({count_of(len(figures), 'batch', 'batches')} had no other)",
    )


def grows(lows: Sequence[float], highs: Sequence[float]) -> bool:
    """Returns whether each batch begins above the previous batch, or each below it. Ids, times and counters grow in
    this way. Pure.
    """
    pairs = list(pairwise(zip(lows, highs, strict=True)))
    up = all(after[0] > before[1] for before, after in pairs)
    down = all(after[1] < before[0] for before, after in pairs)
    return up or down


def _seen(figures: Sequence[float], batches: int, unit: str = "") -> str:
    return f"{count_of(batches, 'batch', 'batches')} had {min(figures):g} to {max(figures):g}{unit}"


def _figures(frame: DataFrame, kinds: Mapping[str, Kind], past: PastRevision) -> BatchFigures:
    """Returns the figures of a batch. The read that computes the figures also compares the batch with its receipts."""
    types = {f.name: f.dataType for f in frame.schema.fields}
    wanted: list[Column] = []
    asked = [name for name, kind in kinds.items() if kind in (*NUMBERS, Kind.TEXT)]
    for number, name in enumerate(kinds):
        value = prepared_column(name, types[name])
        wanted.append(F.count_if(value.isNull()).alias(f"nulls_{number}"))
        if name in asked and kinds[name] in NUMBERS:
            wanted += [F.min(value).alias(f"least_{number}"), F.max(value).alias(f"greatest_{number}")]
            wanted.append(F.avg(value.cast("double")).alias(f"mean_{number}"))
        elif name in asked:
            wanted.append(F.approx_count_distinct(value).alias(f"distinct_{number}"))
    row: Any = frame.agg(*counting("_hash"), *wanted).head()
    as_promised(past, *counts_of(row))
    found = BatchFigures(rows=int(row["rows"]))
    for number, name in enumerate(kinds):
        found.nulls[name] = int(row[f"nulls_{number}"])
        if kinds[name] is Kind.TEXT:
            found.distinct[name] = int(row[f"distinct_{number}"])
        elif kinds[name] in NUMBERS and row[f"least_{number}"] is not None and math.isfinite(row[f"mean_{number}"]):
            least, greatest = row[f"least_{number}"], row[f"greatest_{number}"]
            whole = kinds[name] is Kind.INTEGER  # a double does not have all digits of a bigint
            found.least[name] = int(least) if whole else _beside(least, -math.inf)
            found.greatest[name] = int(greatest) if whole else _beside(greatest, math.inf)
            found.mean[name] = float(row[f"mean_{number}"])
    return found


def _beside(value: float | Decimal, way: float) -> float:
    """Returns the number as a double. If no double equals it, the result is the next double in the given direction."""
    near = float(value)
    exact, stands_for = Fraction(value) if math.isfinite(near) else None, number_of(near)
    if exact is None or stands_for is None or (exact - Fraction(stands_for)) * (1 if way > 0 else -1) <= 0:
        return near
    return math.nextafter(near, way)


def _times(frame: DataFrame, name: str) -> dict[str, int]:
    """Returns how often each text occurs in a column of few distinct texts."""
    value = prepared_column(name, frame.schema[name].dataType)
    rows = frame.where(value.isNotNull()).groupBy(value.alias("value")).count().limit(4 * MOST_VALUES).collect()
    return {row["value"]: row["count"] for row in rows}
