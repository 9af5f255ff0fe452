"""The model of a look back: intervals that consume records of two topics, in any order, and whatever becomes of them.

Promises, for every order of plans, publications, rejections, skips, reprocesses, withdrawals and expiries:

- a batch looks back at exactly the offsets that standing earlier intervals consumed which end less than the look back before the
  time that the batch covers (`missed`, `too much`). Those that have expired are recorded as lost;
- it looks back at the same offsets in each revision, as long as the same earlier intervals stand (`changed`);
- no batch looks back at an offset that it consumes (`overlaps`);
- a pair of records whose intervals are within reach of each other is in the result of one interval, and of one alone (`no pair`,
  `pair twice`). A result has the pairs of all records that its batch reads, but for those of two looked-back ones.

The plans are the product's own (`decide_plan`). What is expected of them is computed here, with days and sets of offsets. A topic
has one partition, whose records are there from the beginning: one of each day. A plan may end its range at any of them, as if
some came late and others early. A state is given to a batch without the steps that lead to it, of which `coordinator.py` is the
model.

`moves` bounds how often a batch changes its state or an interval is withdrawn, and `expiry` how many records of a topic expire.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple
from unittest import mock

import makers
from fencepost.errors import FencepostError
from fencepost.model import Batch, Interval, Layout, OffsetRange, State
from fencepost.protocol import planning as planning_module
from fencepost.protocol.decisions import decide_skip, decide_withdraw, in_state
from fencepost.protocol.look_back import ranges_before
from fencepost.protocol.planning import (
    Neighbours,
    SourceFacts,
    check_nothing_looked_back,
    decide_plan,
    new_source_begins,
)
from fencepost.protocol.planning import look_back as look_back_of_a_batch
from fencepost.protocol.view import OVER, View
from model.search import Fault

TOPICS = ("a", "b")
Places = frozenset[tuple[str, int]]  # topic and offset


class Consumed(NamedTuple):
    """What an interval has consumed since it was planned last without a batch: all that the promises ask about it."""

    covers: int  # the day on which what it covers begins
    places: Places
    earlier: tuple[int, ...]  # the intervals before it that stood
    looks_back_at: Places


class World(NamedTuple):
    """A state. `consumed[n]` is of interval n, or None if it does not stand."""

    ledger: int
    consumed: tuple[Consumed | None, ...]
    earliest: tuple[int, ...]
    moves: int
    reads: tuple[str, ...]


@dataclass(frozen=True)
class Rules:
    """The rules of a look back; a mutation takes one out."""

    before: Callable[..., tuple[OffsetRange, ...]] = ranges_before
    of_batch: Callable[..., Any] = look_back_of_a_batch
    late: Callable[..., None] = check_nothing_looked_back


class KnownLedgers:
    """Ledgers as small numbers. Two have the same number if they agree in all that a look back depends on: lanes and leases are
    left out. `batches[n]` and `views[n]` are ledger n.
    """

    def __init__(self) -> None:
        self.batches: list[tuple[Batch, ...]] = []
        self.views: list[View] = []
        self._numbers: dict[Any, int] = {}

    def number(self, batches: tuple[Batch, ...]) -> int:
        """The number of the ledger with these batches, which are in order."""
        key = tuple(
            (b.interval.start, b.revision, b.state, b.plan.also_covers, *map(_spans, _ranges_of(b))) for b in batches
        )
        if key not in self._numbers:
            self._numbers[key] = len(self.batches)
            self.batches.append(batches)
            self.views.append(View.of(batches))
        return self._numbers[key]

    def after(self, ledger: int, records: tuple[Batch, ...]) -> int:
        """The ledger with these records at its end. A new plan gets its lease, as the ledger's reader would fill it in."""
        newest = {(b.interval.start, b.revision): b for b in self.batches[ledger]}
        for b in records:
            newest[b.interval.start, b.revision] = b.model_copy(update={"lease": len(newest)}) if b.lease is None else b
        return self.number(tuple(newest[key] for key in sorted(newest)))


class LookBack:
    """The model. `lookback` has by topic how many days are looked back, or None. With `added`, the last topic is not a source at
    first.
    """

    def __init__(
        self,
        rules: Rules | None = None,
        *,
        intervals: int = 3,
        records: tuple[int, int] = (2, 1),
        lookback: tuple[int | None, int | None] = (1, 2),
        moves: int = 1,
        expiry: int = 0,
        added: bool = False,
    ) -> None:
        self.rules = rules or Rules()
        self.intervals = [makers.a_day(n) for n in range(intervals)]
        self.records, self.expiry = dict(zip(TOPICS, records, strict=True)), expiry
        self.lookback = dict(zip(TOPICS, lookback, strict=True))
        self.ledgers = KnownLedgers()
        self._decided: dict[Any, int | None] = {}
        reads = TOPICS[:1] if added else TOPICS
        self.start = [World(self.ledgers.number(()), (None,) * intervals, (0, 0), moves, reads)]

    def view(self, world: World) -> View:
        return self.ledgers.views[world.ledger]

    # Steps.

    def steps(self, world: World) -> Iterator[tuple[str, World | Fault]]:
        for n, consumed in enumerate(world.consumed):
            if consumed is None:
                yield from self._plans(world, n)
            elif world.moves:
                yield from self._moves(world._replace(moves=world.moves - 1), n)
        for t, first in enumerate(world.earliest):
            if first < min(self.expiry, self.records[TOPICS[t]]):
                yield f"{TOPICS[t]}:{first} expires", world._replace(earliest=_with(world.earliest, t, first + 1))
        if world.reads != TOPICS:
            yield "source b is added", world._replace(reads=TOPICS)

    def _plans(self, world: World, n: int) -> Iterator[tuple[str, World | Fault]]:
        """Plan an interval; its ranges end anywhere before those of the next one."""
        bounded = any(world.consumed[n:])  # it ends where the next interval begins
        for ends in itertools.product(*(range(count if bounded else 0, count + 1) for count in self.records.values())):
            if (ledger := self._planned(world, n, ends)) is not None:
                yield f"plan {n} up to {ends}", self._after_plan(world, n, ledger)

    def _moves(self, world: World, n: int) -> Iterator[tuple[str, World | Fault]]:
        batch = self.view(world).last(self.intervals[n])
        assert batch is not None
        if batch.state is State.PLANNED:
            for state in (State.PUBLISHED, State.REJECTED):
                records = (in_state(batch, state, makers.NOW, ""),)
                yield f"{n} is {state}", world._replace(ledger=self.ledgers.after(world.ledger, records))
        skipped = self._ask(world, ("skip", n), lambda view, when: decide_skip(view, when, makers.a_decision("skip")))
        if skipped is not None:
            yield f"{n} is skipped", world._replace(ledger=skipped)
        gone = self._ask(
            world, ("withdraw", n), lambda view, when: decide_withdraw(view, when, makers.a_decision("withdraw"))
        )
        if gone is not None:
            yield f"{n} is withdrawn", world._replace(ledger=gone, consumed=_with(world.consumed, n, None))
        if (ledger := self._planned(world, n, tuple(self.records.values()))) is not None:
            yield f"{n} is reprocessed", self._after_plan(world, n, ledger)

    # Decisions, all of them the product's.

    def _planned(self, world: World, n: int, ends: tuple[int, ...]) -> int | None:
        """The ledger with the interval's next batch; None if it is refused, or nothing is planned."""

        def decide(view: View, when: Interval) -> tuple[Batch, ...]:
            near = Neighbours.of(view, when, world.reads)
            sources = tuple(self._source(world, near, when, topic, ends) for topic in near.topics(world.reads))
            facts = makers.the_facts(
                neighbours=near, reads=world.reads, sources=sources, sources_changed=True, layout=Layout.OUTPUT
            )
            return decide_plan(view, when, facts, reprocess=world.consumed[n] is not None)

        return self._ask(world, ("plan", n, ends, world.earliest, world.reads), decide)

    def _source(self, world: World, near: Neighbours, when: Interval, topic: str, ends: tuple[int, ...]) -> SourceFacts:
        t = TOPICS.index(topic)
        days, begins = self.lookback[topic], new_source_begins(when, near, topic)
        return SourceFacts(
            topic=topic,
            topic_id=f"{topic}-1",
            accept_loss=True,
            lookback=None if days is None else timedelta(days=days),
            accept_lookback_loss=True,
            earliest=(world.earliest[t],),
            stable=(self.records[topic],),
            by_start=None if begins is None else (min((begins - makers.NOW) // makers.DAY, self.records[topic]),),
            by_end=(ends[t],),
        )

    def _ask(self, world: World, key: Any, decide: Callable[[View, Interval], tuple[Batch, ...]]) -> int | None:
        """The ledger after what is decided about the interval `key[1]`; None where it is refused, or nothing changes."""
        if (world.ledger, key) not in self._decided:
            with (
                mock.patch.object(planning_module, "ranges_before", self.rules.before),
                mock.patch.object(planning_module, "look_back", self.rules.of_batch),
                mock.patch.object(planning_module, "check_nothing_looked_back", self.rules.late),
            ):
                try:
                    records = decide(self.view(world), self.intervals[key[1]])
                except FencepostError:
                    records = ()
            self._decided[world.ledger, key] = self.ledgers.after(world.ledger, records) if records else None
        return self._decided[world.ledger, key]

    # Promises. Nothing below asks the product.

    def _after_plan(self, world: World, n: int, ledger: int) -> World | Fault:
        batch = self.ledgers.views[ledger].last(self.intervals[n])
        assert batch is not None
        own = places(batch.plan.ranges)
        earlier = tuple(m for m in range(n) if world.consumed[m] is not None)
        known = world.consumed[n]
        covers = known.covers if known else earlier[-1] + 1 if earlier and own | places(batch.plan.lost) else n
        reached = self.reached(world, covers) if own else frozenset()  # a batch without offsets has no rows
        again, lost = places(batch.plan.looked_back_ranges), places(batch.plan.looked_back_lost)
        expired = frozenset((topic, o) for topic, o in reached if o < world.earliest[TOPICS.index(topic)])
        if missed := (reached - expired - again) | (expired - lost):
            return Fault("missed", f"{batch.id} does not look back at {sorted(missed)}")
        if again & own:
            return Fault("overlaps", f"{batch.id} consumes and looks back at {sorted(again & own)}")
        if more := again - reached:
            return Fault("too much", f"{batch.id} looks back at {sorted(more)}")
        if known and known.earlier == earlier and known.looks_back_at != again | lost:
            text = f"{batch.id} looks back at {sorted(again | lost)}, the revision before it at {sorted(known.looks_back_at)}"
            return Fault("changed", text)
        now = Consumed(covers, known.places if known else own, earlier, again | lost)
        return world._replace(ledger=ledger, consumed=_with(world.consumed, n, now))

    def reached(self, world: World, covers: int) -> Places:
        """What is looked back at on that day: what each interval consumed that ends on it, or less than so many days before."""
        return frozenset(
            (topic, offset)
            for m, consumed in enumerate(world.consumed[:covers])
            for topic, offset in (consumed.places if consumed else ())
            if (days := self.lookback[topic]) is not None and covers - (m + 1) < days
        )

    def fault(self, world: World) -> Fault | None:
        """Pairs of a record of one topic and one of the other, and of two of the first."""
        standing = {n: consumed for n, consumed in enumerate(world.consumed) if consumed}
        results = {n: self._result(world, n) for n in standing}
        for n, m in itertools.product(standing, standing):
            for one, two in itertools.product(standing[n].places, standing[m].places):
                if one >= two or one[0] != TOPICS[0]:
                    continue
                found = [k for k, result in results.items() if frozenset((one, two)) in result]
                if len(found) > 1:
                    return Fault("pair twice", f"{one} and {two} are in the results of intervals {found}")
                if not found and self._promised(world, n, one, m, two):
                    return Fault("no pair", f"{one} of interval {n} and {two} of interval {m} are in no result")
        return None

    def _promised(self, world: World, n: int, one: tuple[str, int], m: int, two: tuple[str, int]) -> bool:
        """Whether the later interval reaches the earlier one's record, and none of the two has expired."""
        early, later, sought = (n, m, one) if n < m else (m, n, two)
        consumed, days = world.consumed[later], self.lookback[sought[0]]
        assert consumed is not None
        near = early == later or (days is not None and consumed.covers - (early + 1) < days)
        return near and all(offset >= world.earliest[TOPICS.index(topic)] for topic, offset in (one, two))

    def _result(self, world: World, n: int) -> set[frozenset[tuple[str, int]]]:
        batch = self.view(world).in_force(self.intervals[n])
        assert batch is not None
        own, again = places(batch.plan.ranges), places(batch.plan.looked_back_ranges)
        return {frozenset((one, two)) for one in own for two in own | again}

    def show(self, world: World) -> str:
        shown = [
            f"{self.intervals.index(b.interval)}/{b.revision} {b.state} {_text(b.plan.ranges)} back "
            f"{_text(b.plan.looked_back_ranges)}"
            for b in self.ledgers.batches[world.ledger]
            if b.state not in OVER
        ]
        return f"{world.earliest} {'; '.join(shown)}"


def places(ranges: tuple[OffsetRange, ...]) -> Places:
    """Topic and offset of each record in the ranges."""
    return frozenset((part.topic, offset) for part in ranges for offset in range(part.start, part.end))


def _ranges_of(b: Batch) -> tuple[tuple[OffsetRange, ...], ...]:
    return b.plan.ranges, b.plan.lost, b.plan.looked_back_ranges, b.plan.looked_back_lost


def _spans(ranges: tuple[OffsetRange, ...]) -> tuple[tuple[str, int, int], ...]:
    return tuple((part.topic, part.start, part.end) for part in ranges)


def _text(ranges: tuple[OffsetRange, ...]) -> str:
    return " ".join(f"{part.topic}:{part.start}..{part.end}" for part in ranges if part.length) or "-"


def _with(values: tuple[Any, ...], n: int, value: object) -> tuple[Any, ...]:
    return (*values[:n], value, *values[n + 1 :])
