"""The model of a current table: intervals that are published at the same time, their history, and the row of each key.

Whether a publication may touch the current table, and whether a publication may commit at all, are the product's own decisions.
What is here: locks, what each statement sees, processes that crash or stop, a person who gives a publication up or computes the
table as a whole, and accidents to the tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from fencepost.outputs.postgres.values import PostgresPublication
from fencepost.outputs.table.current import PUBLISHED_WITHOUT, CurrentBasis, RegisteredCurrent, why_stale
from fencepost.outputs.table.revisions import IntervalRow, TableStanding, standing_of
from makers import NOW, a_day
from model.search import Fault

READY, COPIED, SHARED, COMPUTED = range(4)
HISTORY = "public.changes"
REBUILD = -1  # in the place of a batch


class Row(NamedTuple):
    """A row of the history: its interval and revision, its key, its place in the order, and whether it says deleted."""

    interval: int
    revision: int
    key: int
    order: int
    gone: bool


class Held(NamedTuple):
    """An interval's row in the store: the last lease, whether that was closed, and the number of rows by revision."""

    lease: int = -1
    closed: bool = False
    rows: tuple[tuple[int, int], ...] = ()


class Planned(NamedTuple):
    """A batch: its interval, whether it adds to the one before it, and its rows as (key, order, gone)."""

    interval: int
    rows: tuple[tuple[int, int, bool], ...]
    adds: bool = False


class Attempt(NamedTuple):
    """A transaction that publishes a batch, or computes all keys. What it has changed is seen once it commits."""

    phase: int
    batch: int
    stopped: bool = False
    configured: bool = True
    removed: frozenset[Row] = frozenset()
    keys: frozenset[int] = frozenset()
    whole: bool = True
    seen: frozenset[Row] = frozenset()  # the history when it had copied its rows
    newest: frozenset[tuple[int, int]] = frozenset()  # of its keys, as (key, order)
    registered: RegisteredCurrent | None = None  # as it leaves it


class World(NamedTuple):
    """A state. `current` has (key, order); `table` and `history_table` are the numbers of the two tables."""

    history: frozenset[Row]
    held: tuple[Held, ...]
    current: frozenset[tuple[int, int]]
    registered: RegisteredCurrent
    settings: int = 0
    table: int = 1
    history_table: int = 1
    done: frozenset[int] = frozenset()  # batches that are committed or given up
    given_up: frozenset[int] = frozenset()
    attempts: tuple[Attempt, ...] = ()
    events: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Rules:
    """The rules of a current table; a mutation takes one out."""

    locks: bool = True  # one publication at a time computes and commits
    own_statement: bool = True  # what is computed sees all that was committed before the lock
    weaker_first: bool = False  # the lock is first taken in a weaker form
    ends_any: bool = True  # who waits ends a stopped holder of another interval too
    removed_keys: bool = True  # keys of removed rows are computed
    brought_keys: bool = True  # keys of the rows that a batch brings are computed
    by_order: bool = True  # the newest row is by order, not by revision
    heeds_stale: bool = True  # a stale table is left alone
    heeds_basis: bool = True  # another table or other settings make it stale
    looks_for_others: bool = True  # intervals that lack all rows make it stale
    looks_for_own: bool = True  # so do rows that the interval itself lacks
    marks_without: bool = True  # who publishes without the setting marks it
    rebuild_locks: bool = True  # a rebuild waits, and lets publications wait
    rebuild_refuses: bool = True  # it refuses while the history lacks rows
    heeds_row: bool = True  # an attempt compares the interval's row


class CurrentTable:
    """The model. `batches` are published in the order of each interval; `events` happen once."""

    def __init__(self, rules: Rules, batches: tuple[Planned, ...], events: frozenset[str], places: int) -> None:
        self.rules, self.batches, self.events, self.places = rules, batches, events, places
        intervals = 1 + max(batch.interval for batch in batches)
        registered = RegisteredCurrent(CurrentBasis(HISTORY, 1, 1, "0"))
        self.start = [World(frozenset(), (Held(),) * intervals, frozenset(), registered)]

    def steps(self, world: World) -> Iterator[tuple[str, World | Fault]]:
        yield from self._begins(world)
        for number, attempt in enumerate(world.attempts):
            rest = world.attempts[:number] + world.attempts[number + 1 :]
            name = "the rebuild" if attempt.batch == REBUILD else f"batch {attempt.batch}"
            yield f"{name} dies", world._replace(attempts=rest)
            if "stops" in self.events - world.events and attempt.phase != READY and not attempt.stopped:
                stopped = world._replace(
                    attempts=_sorted((*rest, attempt._replace(stopped=True))), events=world.events | {"stops"}
                )
                yield f"{name} is stopped", stopped
            if not attempt.stopped:
                for label, after in self._step(world, attempt, rest):
                    yield f"{name} {label}", after
        yield from self._gives_up(world)
        yield from self._accidents(world)

    def _begins(self, world: World) -> Iterator[tuple[str, World]]:
        if len(world.attempts) >= self.places:
            return
        for number, batch in enumerate(self.batches):
            before = [n for n, one in enumerate(self.batches[:number]) if one.interval == batch.interval]
            if number in world.done or not world.done.issuperset(before):
                continue
            ways = [True, False] if "without" in self.events - world.events else [True]
            for configured in ways:
                events = world.events if configured else world.events | {"without"}
                attempt = Attempt(READY, number, configured=configured)
                yield (
                    f"batch {number} begins{'' if configured else ' without the setting'}",
                    world._replace(attempts=_sorted((*world.attempts, attempt)), events=events),
                )
        if self._differs(world) and not any(one.batch == REBUILD and not one.stopped for one in world.attempts):
            yield "a rebuild begins", world._replace(attempts=_sorted((*world.attempts, Attempt(COPIED, REBUILD))))

    def _step(self, world: World, attempt: Attempt, rest: tuple[Attempt, ...]) -> Iterator[tuple[str, World | Fault]]:
        def become(new: Attempt) -> World:
            return world._replace(attempts=_sorted((*rest, new)))

        if attempt.phase == READY:
            yield from self._copies(world, attempt, rest)
        elif attempt.phase == COPIED and self.rules.weaker_first:
            if not any(one.phase == COMPUTED for one in rest):
                yield "takes the lock in a weaker form", become(attempt._replace(phase=SHARED))
        elif attempt.phase in {COPIED, SHARED}:
            holders = [
                one for one in rest if one.phase in ({COMPUTED} | ({SHARED} if self.rules.weaker_first else set()))
            ]
            needs = self.rules.locks and (attempt.batch != REBUILD or self.rules.rebuild_locks)
            if not holders or not needs:
                new = self._computed(world, attempt)
                yield ("is refused", world._replace(attempts=rest)) if new is None else ("computes", become(new))
            for holder in holders:
                if holder.stopped and (self.rules.ends_any or self._interval(holder) == self._interval(attempt)):
                    left = list(rest)
                    left.remove(holder)
                    yield "ends a stopped holder", world._replace(attempts=_sorted((*left, attempt)))
        else:
            after = self._committed(world, attempt, rest)
            yield "commits", self._touched(world, after, attempt) or after

    def _interval(self, attempt: Attempt) -> int:
        return REBUILD if attempt.batch == REBUILD else self.batches[attempt.batch].interval

    def _copies(self, world: World, attempt: Attempt, rest: tuple[Attempt, ...]) -> Iterator[tuple[str, World]]:
        """It locks the interval's row, compares it, removes rows and copies its own."""
        batch = self.batches[attempt.batch]
        holders = [one for one in rest if one.phase != READY and self._interval(one) == batch.interval]
        for holder in holders:
            if holder.stopped:
                left = list(rest)
                left.remove(holder)
                yield "ends a stopped session of its interval", world._replace(attempts=_sorted((*left, attempt)))
        if holders:
            return
        held = world.held[batch.interval]
        standing = standing_of(_row(held), _publication(attempt.batch))
        if self.rules.heeds_row and standing is not TableStanding.OPEN:
            yield "finds that it is over", world._replace(attempts=rest)
            return
        own = {row for row in world.history if row.interval == batch.interval}
        removed = frozenset(row for row in own if not batch.adds or row.revision == attempt.batch)
        keys = {row.key for row in removed} if self.rules.removed_keys else set()
        keys |= {key for key, _, _ in batch.rows} if self.rules.brought_keys else set()
        whole = _counted(own) == held.rows or not self.rules.looks_for_own
        new = attempt._replace(phase=COPIED, removed=removed, keys=frozenset(keys), whole=whole, seen=world.history)
        yield "copies", world._replace(attempts=_sorted((*rest, new)))

    def _brought(self, number: int) -> frozenset[Row]:
        batch = self.batches[number]
        return frozenset(Row(batch.interval, number, *row) for row in batch.rows)

    def _computed(self, world: World, attempt: Attempt) -> Attempt | None:
        """What it computes once it has the lock; None if it is refused."""
        settings, registered = world.settings, world.registered
        basis = CurrentBasis(HISTORY, world.table, world.history_table, str(settings))
        if attempt.batch == REBUILD:
            if self.rules.rebuild_refuses and _lacks(world):
                return None
            newest = _newest(world.history, settings, by_order=self.rules.by_order)
            return attempt._replace(phase=COMPUTED, newest=newest, registered=RegisteredCurrent(basis))
        new = attempt._replace(phase=COMPUTED, registered=registered)
        if not attempt.configured:
            marked = RegisteredCurrent(registered.basis, registered.stale or PUBLISHED_WITHOUT)
            return new._replace(keys=frozenset(), registered=marked if self.rules.marks_without else registered)
        lacking = self._lacking(world, attempt)
        known = registered if self.rules.heeds_stale else RegisteredCurrent(registered.basis)
        known = known if self.rules.heeds_basis else RegisteredCurrent(basis, known.stale)
        if why := why_stale(known, basis, (), lacking):
            return new._replace(keys=frozenset(), registered=RegisteredCurrent(registered.basis, why))
        seen = world.history if self.rules.own_statement else attempt.seen
        mine = (seen - attempt.removed) | self._brought(attempt.batch)
        newest = _newest(
            frozenset(row for row in mine if row.key in attempt.keys), settings, by_order=self.rules.by_order
        )
        return new._replace(newest=newest, registered=RegisteredCurrent(basis))

    def _lacking(self, world: World, attempt: Attempt) -> int:
        own = self.batches[attempt.batch].interval
        there = {row.interval for row in world.history}
        others = sum(bool(held.rows) and n != own and n not in there for n, held in enumerate(world.held))
        return (others if self.rules.looks_for_others else 0) + (not attempt.whole)

    def _touched(self, world: World, after: World, attempt: Attempt) -> Fault | None:
        """While the history lacks an interval, a publication of another one must leave the current table as it is."""
        there = {row.interval for row in world.history}
        gone = [n for n, held in enumerate(world.held) if held.rows and n not in there and n != self._interval(attempt)]
        if attempt.batch == REBUILD:
            return (
                Fault("rebuilt", "a rebuild has computed the table without rows that were published") if gone else None
            )
        if not gone or after.current == world.current:
            return None
        return Fault(
            "touched", f"interval {gone[0]} is gone from the history, and the current table was computed without it"
        )

    def _committed(self, world: World, attempt: Attempt, rest: tuple[Attempt, ...]) -> World:
        assert attempt.registered is not None, "it has computed"
        if attempt.batch == REBUILD:
            return world._replace(current=attempt.newest, registered=attempt.registered, attempts=rest)
        batch = self.batches[attempt.batch]
        history = (world.history - attempt.removed) | self._brought(attempt.batch)
        current = frozenset(one for one in world.current if one[0] not in attempt.keys) | attempt.newest
        held = world.held[batch.interval]
        kept = dict(held.rows) if batch.adds else {}
        rows = {**kept, attempt.batch: len(batch.rows)} if batch.rows else kept
        new = Held(attempt.batch, False, tuple(sorted(rows.items())))
        return world._replace(
            history=history,
            held=(*world.held[: batch.interval], new, *world.held[batch.interval + 1 :]),
            current=current,
            registered=attempt.registered,
            done=world.done | {attempt.batch},
            attempts=rest,
        )

    def _gives_up(self, world: World) -> Iterator[tuple[str, World]]:
        """A person closes a publication under the lock of its interval's row; an attempt may come late."""
        if "gives up" not in self.events - world.events:
            return
        for number in {one.batch for one in world.attempts if one.batch != REBUILD} - world.done:
            interval = self.batches[number].interval
            if any(one.phase != READY and self._interval(one) == interval for one in world.attempts):
                continue
            held = world.held[interval]._replace(lease=number, closed=True)
            yield (
                f"batch {number} is given up",
                world._replace(
                    held=(*world.held[:interval], held, *world.held[interval + 1 :]),
                    done=world.done | {number},
                    given_up=world.given_up | {number},
                    events=world.events | {"gives up"},
                ),
            )

    def _accidents(self, world: World) -> Iterator[tuple[str, World]]:
        left = self.events - world.events
        if any(one.phase != READY for one in world.attempts):
            return  # a transaction holds its tables against these
        for event, changed in (
            ("emptied", {"history": frozenset(row for row in world.history if row.interval)}),
            ("partly emptied", {"history": frozenset(row for row in world.history if row.interval or row.key)}),
            ("settings", {"settings": 1}),
            ("swapped", {"table": 2, "current": frozenset()}),
            (
                "history swapped",
                {"history_table": 2, "history": frozenset(row for row in world.history if not row.key)},
            ),
        ):
            if event in left:
                yield f"accident: {event}", world._replace(**changed, events=world.events | {event})  # type: ignore[arg-type]

    def _differs(self, world: World) -> str:
        """Why the next publication would leave the current table alone, by the product."""
        basis = CurrentBasis(HISTORY, world.table, world.history_table, str(world.settings))
        there = {row.interval for row in world.history}
        lacking = sum(bool(held.rows) and n not in there for n, held in enumerate(world.held))
        return why_stale(world.registered, basis, (), lacking)

    def fault(self, world: World) -> Fault | None:
        if late := [row for row in world.history if row.revision in world.given_up]:
            return Fault("late", f"batch {late[0].revision} was given up, and has rows")
        settings = int(world.registered.basis.digest)
        if world.current == _newest(world.history, settings):
            return None
        if self._differs(world) or _lacks(world):
            return None
        wanted = sorted(_newest(world.history, settings))
        return Fault(
            "wrong", f"the current table has {sorted(world.current)} and should have {wanted}, and is not stale"
        )

    def show(self, world: World) -> str:
        rows = sorted((row.interval, row.revision, row.key, row.order, row.gone) for row in world.history)
        return f"history {rows}; current {sorted(world.current)}; stale: {world.registered.stale or 'no'}"

    def settled(self, world: World) -> bool:
        is_over = len(world.done) == len(self.batches)
        return is_over and (
            _lacks(world) or (not self._differs(world) and world.current == _newest(world.history, world.settings))
        )

    def ordinary(self, world: World, label: str) -> bool:
        return not label.endswith(("dies", "stopped", "given up", "without the setting")) and "accident" not in label


def _row(held: Held) -> IntervalRow:
    day = a_day(0)
    return IntervalRow(day.start, day.end, "" if held.lease < 0 else "ledger", held.lease, held.closed)


def _publication(lease: int) -> PostgresPublication:
    return PostgresPublication(table="t", ledger="ledger", lease=lease, begun_at=NOW)


def _counted(rows: set[Row]) -> tuple[tuple[int, int], ...]:
    found: dict[int, int] = {}
    for row in rows:
        found[row.revision] = found.get(row.revision, 0) + 1
    return tuple(sorted(found.items()))


def _lacks(world: World) -> bool:
    """Whether the history has other rows than were published, which the doctor finds by counting."""
    return any(
        _counted({row for row in world.history if row.interval == n}) != held.rows for n, held in enumerate(world.held)
    )


def _newest(rows: frozenset[Row], settings: int, *, by_order: bool = True) -> frozenset[tuple[int, int]]:
    """The newest row of each key, as (key, order). The settings 1 have no column that says deleted."""
    found: dict[int, Row] = {}
    for row in sorted(rows, key=lambda row: row.order if by_order else (row.revision, row.order)):
        found[row.key] = row
    return frozenset((row.key, row.order) for row in found.values() if settings or not row.gone)


def _sorted(attempts: tuple[Attempt, ...]) -> tuple[Attempt, ...]:
    return tuple(sorted(attempts, key=repr))


def of(bounds: dict[str, Any], rules: Rules | None = None) -> CurrentTable:
    """The model with these bounds."""
    values = {"events": frozenset(), "places": 2, **bounds}
    return CurrentTable(rules or Rules(), **values)
