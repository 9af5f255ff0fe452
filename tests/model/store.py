"""The model of a publication to a table: an interval, its ledger, its row in the store, and attempts that crash or come late.

A ledger and a store are apart: each commits by itself, in any order with the other's. Every decision is the product's own
(`fencepost.protocol`). What is here: the lock of the row, what is in the table, processes, copies of ledger and store. A table
may keep what it is told to remove, or be another than it was. The store may lose its key, so that two hold the lock. A twin of
the pipeline is at work on another cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from fencepost.errors import FencepostError
from fencepost.model import Batch, HistoryEntry, Outcome, State
from fencepost.outputs.postgres.values import PostgresOutput, PostgresPublication
from fencepost.outputs.table.pipeline_table import CommitBeginning
from fencepost.outputs.table.revisions import (
    Committed,
    IntervalRow,
    TableStanding,
    differing,
    missing_for,
    published_in,
    record_stored,
    revisions_after,
    rows_of,
    standing_of,
    takes_over,
    unknown_to,
)
from fencepost.protocol.decisions import decide_skip, record_planned, standing_plan
from fencepost.protocol.obstacle import AbandonedPublication
from fencepost.protocol.publication import record_rejected
from fencepost.protocol.replay import is_under_way
from fencepost.protocol.view import View
from makers import NOW, a_batch, a_day, a_decision, a_plan, a_receipt, a_topic, a_verdict, a_written, publish_prepared
from model.search import Fault

DAY, TABLE = a_day(0), PostgresOutput(table="t")
READY, LOCKED, COMMITTED, REFUSED, CLOSED = range(5)
TWIN = 100  # the ledger of the pipeline's twin on another cluster


class Sent(NamedTuple):
    """A publication: its lease, and the ledger of that."""

    lease: int
    ledger: int


class Record(NamedTuple):
    """What the ledger says of a revision."""

    revision: int
    adds_to: int
    state: State
    sent: Sent | None
    rows: int
    refused: bool = False


class Row(NamedTuple):
    """The interval's row in the store; of each revision, how many rows it has, and its publication."""

    ledger: int = -1
    lease: int = -1
    closed: bool = False
    refused: bool = False
    revisions: tuple[tuple[int, int, Sent], ...] = ()


class Attempt(NamedTuple):
    """A process that publishes a revision, and how far it is; once it has the lock, what it removes."""

    phase: int
    revision: int
    sent: Sent
    adds_to: int = 0
    rows: int = 1
    removes: tuple[Rows, ...] = ()


class Rows(NamedTuple):
    """The rows of a revision in the table, and the publication that committed them."""

    revision: int
    sent: Sent
    adds_to: int


class World(NamedTuple):
    """A state."""

    ledger: tuple[Record, ...] = ()
    ledger_id: int = 0
    offset: int = 0
    row: Row = Row()
    table: frozenset[Rows] = frozenset()
    attempts: tuple[Attempt, ...] = ()
    asked: tuple[int, Sent] | None = None  # what an operator has seen in the ledger, and is about to close
    given_up: tuple[int, int] | None = None  # the revision and the lease of what an operator has closed
    saved_ledger: tuple[Record, ...] | None = None
    saved_store: tuple[Row, frozenset[Rows]] | None = None
    saved_table: frozenset[Rows] | None = None
    keeps: bool = False  # the table keeps what it is told to remove
    events: frozenset[str] = frozenset()  # what happens once


@dataclass(frozen=True)
class Rules:
    """The store's rules; a mutation takes one out."""

    standing: Callable[[IntervalRow, PostgresPublication], TableStanding] = standing_of
    takes_over: Callable[[TableStanding, PostgresPublication, str], bool] = takes_over
    missing: Callable[[View, Batch, IntervalRow, Mapping[int, int]], tuple[int, ...]] = missing_for
    after: Callable[[IntervalRow, Batch], Mapping[int, Committed]] = revisions_after
    closes: bool = True  # giving up writes into the row
    closes_open: bool = True  # who is refused and finds the publication committed by another attempt takes it so
    under_lock: bool = True  # who asks waits for a commit that is under way
    counts_all: bool = True  # before a commit all that the interval holds is counted
    needs_key: bool = True  # without its key the table of locks is not used
    one_cluster: bool = True  # a table belongs to a pipeline on one cluster
    recounts: bool = True  # the doctor counts the rows of the table
    reads_ledger: bool = True  # the ledger is read under the lock: is the publication still under way?
    removes_all: bool = True  # a revision removes all rows of its interval
    removes_own: bool = True  # an addition removes those of its own revision alone
    without_rows: bool = True  # a revision without rows is published like any other
    differs: Callable[..., tuple[Batch, ...]] = differing


@cache
def view_of(ledger: tuple[Record, ...]) -> View:
    """The records as the product reads them."""
    return View.of(batch_of(record) for record in ledger)


@cache
def batch_of(record: Record) -> Batch:
    """The batch of a record."""
    plan = a_plan((0, 9), output=TABLE, staging=a_topic(0, topic="staging"), ledger_topic_id="0")
    written = a_written(a_receipt(rows=record.rows, topic="staging"), output=a_topic(1, topic="staging"))
    sent = record.sent
    publication = None if sent is None else publication_of(sent, refused=record.refused)
    return a_batch(
        record.state,
        revision=record.revision,
        adds_to=record.adds_to or None,
        plan=plan,
        written=written,
        verdict=a_verdict(Outcome.PASSED),
        publication=publication,
        lease=record.revision,
        history=(HistoryEntry(state=record.state, at=NOW),),
    )


@cache
def publication_of(sent: Sent, *, refused: bool = False) -> PostgresPublication:
    """The publication as the ledger has it."""
    return PostgresPublication(
        table="t",
        ledger=str(sent.ledger),
        lease=sent.lease,
        begun_at=NOW,
        refused="it" if refused else "",
    )


def attempt_of(batch: Batch, sent: Sent) -> Attempt:
    """A process that begins to publish the batch."""
    return Attempt(READY, batch.revision, sent, batch.adds_to or 0, batch.require_written.rows)


def record_of(batch: Batch, lease: int) -> Record:
    """The record of a batch; a publication that begins gets this lease."""
    publication = batch.publication
    sent = None
    if isinstance(publication, PostgresPublication):
        own = lease if publication.lease is None else publication.lease
        sent = Sent(own, int(publication.ledger))
    refused = bool(publication and publication.refused)
    rows = batch.require_written.rows if batch.written is not None else 1
    return Record(batch.revision, batch.adds_to or 0, batch.state, sent, rows, refused)


def held_of(row: Row) -> IntervalRow:
    """The row as the product reads it."""
    return IntervalRow(
        DAY.start,
        DAY.end,
        "" if row.ledger < 0 else str(row.ledger),
        row.lease,
        row.closed,
        "it" if row.refused else "",
        {revision: Committed(rows, str(sent.ledger), sent.lease) for revision, rows, sent in row.revisions},
    )


def counted(table: Iterable[Rows]) -> dict[int, int]:
    """The rows of each revision, as the table counts them."""
    return dict(Counter(rows.revision for rows in table))


class Store:
    """The model. `rows` of each revision planned, in order; `events` are what may happen once; `places` for attempts."""

    def __init__(
        self, rules: Rules, rows: tuple[int, ...], events: frozenset[str], places: int, additions: bool
    ) -> None:
        self.rules, self.rows, self.events, self.places, self.additions = rules, rows, events, places, additions
        self.start = [World(ledger=(Record(1, 0, State.WRITTEN, None, rows[0]),), offset=1)]

    def steps(self, world: World) -> Iterator[tuple[str, World]]:
        yield from self._operators(world)
        yield from self._begin(world)
        for number, attempt in enumerate(world.attempts):
            rest = world.attempts[:number] + world.attempts[number + 1 :]
            yield f"attempt at {attempt.revision} dies", world._replace(attempts=rest)
            yield from self._attempt(world, attempt, rest)
        yield from self._accidents(world)

    def _attempt(self, world: World, attempt: Attempt, rest: tuple[Attempt, ...]) -> Iterator[tuple[str, World]]:
        name = f"attempt at {attempt.revision}, lease {attempt.sent.lease}"
        if attempt.phase == READY and self._is_free(world):
            phase = self._compared(world, attempt)
            removes = self._removed(world, attempt) if phase == LOCKED else ()
            if phase == LOCKED and self.rules.counts_all and not self._adds_up(world, attempt, removes):
                phase = None
            after = rest if phase is None else _sorted((*rest, attempt._replace(phase=phase, removes=removes)))
            yield f"{name}: locks, {'stops' if phase is None else phase}", world._replace(attempts=after)
        if attempt.phase == LOCKED:
            yield f"{name}: commits", self._commit(world, attempt, rest)
            if "refuses" in self.events - world.events:
                after = _sorted((*rest, attempt._replace(phase=REFUSED)))
                yield f"{name}: its data are refused", world._replace(attempts=after, events=world.events | {"refuses"})
        if attempt.phase == REFUSED and self._is_free(world):
            done = self.rules.standing(held_of(world.row), publication_of(attempt.sent)) is TableStanding.DONE
            closed = self._close(world, attempt.sent, refused=True)
            then = attempt._replace(phase=COMMITTED if done and self.rules.closes_open else CLOSED)
            yield f"{name}: closes", closed._replace(attempts=_sorted((*rest, then)))
        if attempt.phase == CLOSED:
            yield f"{name}: records that it is refused", self._record(world, rest, attempt, refused=True)
        if attempt.phase == COMMITTED:
            yield f"{name}: records", self._record(world, rest, attempt)

    def _compared(self, world: World, attempt: Attempt) -> int | None:
        """What an attempt does that has locked the row: its next phase, or nothing."""
        publication, held = publication_of(attempt.sent), held_of(world.row)
        standing = self.rules.standing(held, publication)
        if standing is TableStanding.DONE:
            return COMMITTED
        if standing is TableStanding.CLOSED and world.row.refused:
            return CLOSED
        if standing in {TableStanding.CLOSED, TableStanding.OVERTAKEN}:
            return None
        if self.rules.one_cluster and (attempt.sent.ledger == TWIN) != ("moved" in world.events):
            return None
        if attempt.sent.ledger == TWIN:
            return LOCKED if self.rules.takes_over(standing, publication, str(TWIN)) else None
        if standing is TableStanding.FOREIGN and not self.rules.takes_over(standing, publication, str(world.ledger_id)):
            return None
        if attempt.sent.ledger != world.ledger_id:
            # It reads the ledger, and finds another topic: that stops it, unless it read before the topic was created again.
            return LOCKED if "reads before" in self.events else None
        view = view_of(world.ledger)
        last = view.last(DAY)
        if last is None or last.revision != attempt.revision or last.publication_under(attempt.sent.lease) is None:
            return None if self.rules.reads_ledger else LOCKED
        if self.rules.missing(view, last, held, counted(world.table)):
            return None
        return None if unknown_to(view, "p", [held]) else LOCKED

    def _removed(self, world: World, attempt: Attempt) -> tuple[Rows, ...]:
        """What the table removes of what it is told to, as it is when the attempt has the lock."""
        own_only = self.rules.removes_own if attempt.adds_to else not self.rules.removes_all
        announced = (one for one in world.table if not own_only or one.revision == attempt.revision)
        return () if world.keeps else tuple(sorted(announced))

    def _adds_up(self, world: World, attempt: Attempt, removes: tuple[Rows, ...]) -> bool:
        """Whether the interval holds what it has to once the attempt has copied its rows in, which are not committed yet."""
        left = [one for one in world.table if one not in removes]
        own = [Rows(attempt.revision, attempt.sent, attempt.adds_to)] if attempt.rows else []
        return counted([*left, *own]) == rows_of(self._after(world, attempt))

    def _after(self, world: World, attempt: Attempt) -> Mapping[int, Committed]:
        record = Record(attempt.revision, attempt.adds_to, State.PUBLISHING, attempt.sent, attempt.rows)
        return self.rules.after(held_of(world.row), batch_of(record))

    def _commit(self, world: World, attempt: Attempt, rest: tuple[Attempt, ...]) -> World:
        kept = {one for one in world.table if one not in attempt.removes}
        written = {Rows(attempt.revision, attempt.sent, attempt.adds_to)} if attempt.rows else set()
        revisions = tuple(
            (revision, one.rows, Sent(one.lease, int(one.ledger)))
            for revision, one in self._after(world, attempt).items()
        )
        row = Row(attempt.sent.ledger, attempt.sent.lease, False, False, revisions)
        done = attempt._replace(phase=COMMITTED, removes=())
        return world._replace(table=frozenset(kept | written), row=row, attempts=_sorted((*rest, done)))

    def _record(self, world: World, rest: tuple[Attempt, ...], attempt: Attempt, *, refused: bool = False) -> World:
        after = world._replace(attempts=rest)
        if attempt.sent.ledger != world.ledger_id:
            return after
        view, lease = view_of(world.ledger), attempt.sent.lease
        try:
            if refused:
                records = record_rejected(view, DAY, attempt.revision, lease, "it", NOW)
            else:
                records = record_stored(view, DAY, attempt.revision, lease, 0, NOW)
        except FencepostError:
            return after
        return _written(after, records)

    def _close(self, world: World, sent: Sent, *, refused: bool = False) -> World:
        publication, held = publication_of(sent), held_of(world.row)
        standing = self.rules.standing(held, publication)
        if not self.rules.closes or not self.rules.takes_over(standing, publication, str(world.ledger_id)):
            return world
        row = world.row._replace(ledger=sent.ledger, lease=sent.lease, closed=True, refused=refused)
        return world._replace(row=row)

    def _begin(self, world: World) -> Iterator[tuple[str, World]]:
        view = view_of(world.ledger)
        last = view.last(DAY)
        if last is None or len(world.attempts) >= self.places or self._is_lost(world):
            return
        if last.state is State.PUBLISHING:
            sent = last.require_publication
            own = Sent(sent.require_lease, int(sent.ledger))
            done = self.rules.standing(held_of(world.row), sent) is TableStanding.DONE
            if own.ledger != world.ledger_id and done and self._is_free(world):
                yield (
                    "finds committed what its ledger's copy began",
                    _written(world, record_stored(view, DAY, last.revision, own.lease, 0, NOW)),
                )
            if own.ledger == world.ledger_id:
                attempt = attempt_of(last, own)
                yield f"an attempt at {last.revision}", world._replace(attempts=_sorted((*world.attempts, attempt)))
            return
        decision = a_decision("publish") if last.state is State.REJECTED else None
        beginning = CommitBeginning(PostgresPublication, TABLE.table, str(world.ledger_id))
        if not self.rules.without_rows and not last.require_written.rows:
            last_record = world.ledger[-1]._replace(state=State.PUBLISHED)
            older = tuple(r._replace(state=State.SUPERSEDED) for r in world.ledger[:-1])
            if last.state is State.WRITTEN:
                yield "is published without a look at the table", world._replace(ledger=(*older, last_record))
            return
        try:
            records = publish_prepared(view, DAY, NOW, decision, beginning)
        except FencepostError:
            return
        if records:
            begun = _written(world, records)
            sent_record = next(r for r in begun.ledger if r.revision == last.revision)
            assert sent_record.sent is not None
            attempt = attempt_of(last, sent_record.sent)
            yield f"begins to publish {last.revision}", begun._replace(attempts=_sorted((*begun.attempts, attempt)))

    def _operators(self, world: World) -> Iterator[tuple[str, World]]:
        view = view_of(world.ledger)
        last = view.last(DAY)
        if last is None:
            return
        if last.state is State.PUBLISHING and world.given_up is None and world.asked is None:
            sent = last.require_publication
            own = Sent(sent.require_lease, int(sent.ledger))
            yield f"an operator asks about {last.revision}", world._replace(asked=(last.revision, own))
        if world.asked is not None and (self._is_free(world) or not self.rules.under_lock):
            revision, own = world.asked
            if self.rules.standing(held_of(world.row), publication_of(own)) is TableStanding.DONE:
                yield f"{revision} is not given up", world._replace(asked=None)
            else:
                closed = self._close(world, own)
                yield f"{revision} is given up", closed._replace(asked=None, given_up=(revision, own.lease))
        given = AbandonedPublication(lease=world.given_up[1], seen=0) if world.given_up else None
        ended = world._replace(given_up=None)
        if not self._is_lost(world):
            for addition in (False, True) if self.additions else (False,):
                if (after := self._planned(ended, view, last, given, addition=addition)) is not None:
                    yield f"revision {last.revision + 1} is written{', an addition' if addition else ''}", after
        try:
            skipped = decide_skip(view, DAY, a_decision("skip"), given)
        except FencepostError:
            skipped = ()
        if skipped:
            yield f"{last.revision} is skipped", _written(ended, skipped)
        if given is not None:
            yield "the operator dies", ended

    def _planned(
        self, world: World, view: View, last: Batch, given: AbandonedPublication | None, *, addition: bool
    ) -> World | None:
        """The next revision, written and passed."""
        if last.revision >= len(self.rows):
            return None
        adds_to = None
        if addition:
            published = published_in(view.known(DAY))
            if not published or is_under_way(last) or last.state not in {State.PUBLISHED, State.SKIPPED}:
                return None
            adds_to = published[0]
        elif standing_plan(view, DAY, True, given) is not None:
            return None
        records = record_planned(view, DAY, "p", batch_of(world.ledger[0]).plan, "", None, given, adds_to)
        fresh, *others = records
        after = _written(world, tuple(others))
        number = fresh.revision
        new = Record(number, adds_to or 0, State.WRITTEN, None, 1 if addition else self.rows[number - 1])
        return after._replace(ledger=(*after.ledger, new), offset=after.offset + 1)

    def _accidents(self, world: World) -> Iterator[tuple[str, World]]:
        left = self.events - world.events
        if "ledger copy" in left and world.saved_ledger is None:
            yield "the ledger is copied", world._replace(saved_ledger=world.ledger)
        if "ledger copy" in left and world.saved_ledger is not None:
            yield (
                "the ledger is restored",
                world._replace(
                    ledger=world.saved_ledger,
                    ledger_id=world.ledger_id + 1,
                    offset=len(world.saved_ledger),
                    asked=None,
                    given_up=None,
                    events=world.events | {"ledger copy"},
                ),
            )
        if "twin" in left and len(world.attempts) < self.places:
            twin = Attempt(READY, 1, Sent(0, TWIN))
            after = world._replace(attempts=_sorted((*world.attempts, twin)), events=world.events | {"twin"})
            yield "the table is published to by a twin on another cluster", after
        if "moved" in left and self._is_free(world):
            yield "the table is moved to another cluster", world._replace(events=world.events | {"moved"})
        if "loses its key" in left:
            yield "the store is restored without its key", world._replace(events=world.events | {"loses its key"})
        if not self._is_free(world):
            return
        if "keeps" in left:
            yield (
                "the table is made to keep what is deleted",
                world._replace(keeps=True, events=world.events | {"keeps"}),
            )
        if world.keeps:
            yield "the table is fixed", world._replace(keeps=False)
        if "table copy" in left and world.saved_table is None:
            yield "the table is copied", world._replace(saved_table=world.table)
        if "table copy" in left and world.saved_table is not None:
            events = world.events | {"table copy"}
            yield "the table is restored alone", world._replace(table=world.saved_table, events=events)
        if "store copy" in left and world.saved_store is None:
            yield "the store is copied", world._replace(saved_store=(world.row, world.table))
        if "store copy" in left and world.saved_store is not None:
            row, table = world.saved_store
            after = world._replace(row=row, table=table, events=world.events | {"store copy"})
            yield "the store is restored", after  # no session holds a lock; whoever has none goes on
        if "created again" in left:
            events = world.events | {"created again"}
            yield "the table is created again", world._replace(table=frozenset(), events=events)

    def _is_free(self, world: World) -> bool:
        """Whether the row's lock is free: who finds no key stops, and without that rule two hold it."""
        if "loses its key" in world.events:
            return not self.rules.needs_key
        return not any(attempt.phase == LOCKED for attempt in world.attempts)

    def _is_lost(self, world: World) -> bool:
        """Whether every step finds that the ledger lacks what the table has."""
        return bool(unknown_to(view_of(world.ledger), "p", [held_of(world.row)]))

    def fault(self, world: World) -> Fault | None:
        there = {rows.revision for rows in world.table}
        bases = [rows.revision for rows in world.table if not rows.adds_to]
        if len(bases) > 1:
            return Fault("doubled", f"revisions {sorted(bases)} are both in the table")
        filled = {r.revision for r in world.ledger if r.rows}
        for addition in world.table:
            if addition.adds_to in filled - there:
                return Fault("orphaned", f"addition {addition.revision} is in the table without {addition.adds_to}")
        if any(rows.sent.ledger == TWIN for rows in world.table) and "moved" not in world.events:
            return Fault("taken over", "a twin on another cluster has published into the table")
        if any(attempt.phase == LOCKED for attempt in world.attempts):
            return None
        view = view_of(world.ledger)
        planned = view.known(DAY)
        rows = {r.revision: r.rows for r in world.ledger}
        wanted = {n for n in published_in(planned) if rows[n]}
        sent = {r.revision: r.sent for r in world.ledger}
        if planned.last.state is State.PUBLISHING:
            return None
        noticed, calm = self._is_noticed(world, view), not world.events - {"refuses"}
        others = there == wanted and any(sent[rows.revision] != rows.sent for rows in world.table)
        if others and not (noticed and ("moved" in world.events or {"ledger copy", "store copy"} <= world.events)):
            return Fault(
                "another's", f"the table has revisions {sorted(wanted)} of another publication than the ledger"
            )
        if there == wanted and noticed and calm:
            return Fault("false alarm", f"the table has {sorted(wanted)} as the ledger, and a difference is told")
        if there == wanted or (noticed and not calm):
            return None
        return Fault("unnoticed", f"the ledger has {sorted(wanted)} published, and the table has {sorted(there)}")

    def _is_noticed(self, world: World, view: View) -> bool:
        if self._is_lost(world):
            return True
        held = held_of(world.row)
        if self.rules.recounts and world.table and counted(world.table) != rows_of(held.revisions):
            return True
        return bool(self.rules.differs(view, "t", {DAY.start: held}, {DAY.start} if world.table else set()))

    def show(self, world: World) -> str:
        ledger = ", ".join(f"{r.revision} {r.state}{f' +{r.adds_to}' if r.adds_to else ''}" for r in world.ledger)
        there = sorted(rows.revision for rows in world.table)
        return f"ledger {world.ledger_id}: {ledger}; row {tuple(world.row)}; table {there}"

    def settled(self, world: World) -> bool:
        last = view_of(world.ledger).last(DAY)
        if world.events & {"moved", "loses its key"}:
            return True  # nothing goes on here, or until a person has fixed it
        return self._is_lost(world) or (last is not None and last.state in {State.PUBLISHED, State.SKIPPED})

    def ordinary(self, world: World, label: str) -> bool:
        return not label.startswith(("the ledger is", "the store is", "the table is")) and "refused" not in label


def _written(world: World, records: tuple[Batch, ...]) -> World:
    """The world with these records in its ledger, in one transaction."""
    if not records:
        return world
    known = {r.revision: r for r in world.ledger}
    offset = world.offset
    for batch in records:
        known[batch.revision] = record_of(batch, offset)
        offset += 1
    return world._replace(ledger=tuple(known[n] for n in sorted(known)), offset=offset)


def _sorted(attempts: tuple[Attempt, ...]) -> tuple[Attempt, ...]:
    return tuple(sorted(attempts))


def of(bounds: dict[str, Any], rules: Rules | None = None) -> Store:
    """The model with these bounds."""
    values = {"rows": (1, 1), "events": frozenset(), "places": 2, "additions": False, **bounds}
    return Store(rules or Rules(), **values)
