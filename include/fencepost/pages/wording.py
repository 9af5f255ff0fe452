"""Writes numbers, times and states as text for a person."""

from __future__ import annotations

from datetime import datetime

from fencepost.counts import count_of
from fencepost.model import Batch, Outcome, State
from fencepost.protocol.awaiting import sentence, what_stays
from fencepost.protocol.snapshot import Row


def number(value: float | None) -> str:
    """Returns a number such as `12,345`. The text is empty for None."""
    return "" if value is None else f"{value:,.0f}"


def short_number(value: float) -> str:
    """Returns a short number for charts, such as `12.3 k`."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e4)):
        if value >= size:
            return f"{value / (1e3 if unit == 'k' else size):.1f} {unit}"
    return f"{value:,.0f}"


def percent(value: float) -> str:
    """Returns a share such as `98.5 %`. A share below 1 is never shown as 100 %."""
    return "100 %" if value >= 100 else f"{min(value, 99.9):.1f} %"


def duration(seconds: float | None) -> str:
    """Returns a duration in two units at most: `3.5 s`, `2 m 5 s`, `3 h 2 m`, `12 d 3 h`."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds >= 10 or seconds == 0 else f"{seconds:.1f} s"
    for unit, size, smaller, part in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if seconds >= size:
            rest = int(seconds % size // part)
            return f"{int(seconds // size)} {unit}" + (f" {rest} {smaller}" if rest else "")
    raise AssertionError


def moment(value: datetime | None) -> str:
    """Returns a time such as `2013-01-01 05:00`, in UTC. It has seconds only if they are not zero."""
    if value is None:
        return ""
    return f"{value:%Y-%m-%d %H:%M:%S}" if value.second else f"{value:%Y-%m-%d %H:%M}"


def span(start: datetime, end: datetime) -> str:
    """Returns an interval such as `2013-01-01 05:00 → 01-02 05:00`. The end omits the part of the date that both share."""
    if start.date() == end.date():
        return f"{moment(start)} → {end:%H:%M}"
    return f"{moment(start)} → {end:%m-%d %H:%M}" if start.year == end.year else f"{moment(start)} → {moment(end)}"


def verdict_style(batch: Batch) -> str:
    """Returns the class of the style sheet for the verdict's colour."""
    if batch.state is State.SKIPPED:
        return "skipped"
    if batch.verdict is None:
        return "open"
    if batch.verdict.outcome is Outcome.PASSED:
        return "warned" if batch.verdict.failed_warning else "passed"
    return "rejected" if batch.verdict.outcome is Outcome.REJECTED else "undetermined"


def verdict_words(batch: Batch) -> str:
    """Returns the verdict in two or three words."""
    verdict = batch.verdict
    if verdict is None:
        return "not judged"
    if verdict.outcome is Outcome.PASSED and verdict.failed_warning:
        return f"passed, {count_of(len(verdict.failed_warning), 'warning')}"
    return str(verdict.outcome)


def tip(row: Row) -> str:
    """Returns one line about an interval, for a tool tip."""
    described = f"{span(row.interval.start, row.interval.end)} UTC: {row.batch.state}, {verdict_words(row.batch)}"
    if row.replayed is not None:
        described += f"; {count_of(row.replayed[0], 'record')} replayed, {count_of(row.replayed[1], 'row')} added"
    if row.newer is None:
        return described
    return f"{described}; revision {row.newest.revision} {row.newest.state}, {verdict_words(row.newest)}"


def standing(row: Row, batch: Batch) -> str:
    """Returns how a revision relates to the others of its interval. The text is empty if it is the newest revision and
    counts.
    """
    newest, counts = row.newest, row.batch
    described = []
    adds = "" if newest.adds_to is None else f", an addition to revision {newest.adds_to},"
    if newest.revision != batch.revision:
        described.append(
            f"revision {newest.revision}{adds} is {newest.state}"
            f"{' in its place' if counts.revision == newest.revision else ''}"
        )
    if row.in_force is not None:
        described.append(what_stays(newest, row.in_force))
    elif adds:
        described.append(f"it adds to revision {newest.adds_to}" if batch.revision == newest.revision else "")
    elif counts.revision != newest.revision:
        described.append(f"revision {counts.revision} stays {counts.state}")
    return sentence("; ".join(filter(None, described)))
