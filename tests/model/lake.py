"""The model of a publication to an Iceberg table: a ledger, a table without locks, and attempts whose commits come late.

A commit names its base, and its answer may be lost. So an attempt goes back to the table after each error. Every decision is
the product's own (`fencepost.outputs.iceberg.table_base`, `fencepost.protocol`). What is here: the catalog's compare-and-set,
snapshots with their files, processes, requests on the way, maintainers of the table. Ids of snapshots are names: the
smallest that nothing has is the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from typing import Any, NamedTuple

from fencepost.errors import FencepostError
from fencepost.model import Batch, HistoryEntry, Outcome, State
from fencepost.outputs.iceberg.table_base import Base, SnapshotRow, differing_in, ended_rows, lacking_for, standing_row
from fencepost.outputs.iceberg.values import IcebergOutput, IcebergPublication
from fencepost.outputs.table.pipeline_table import CommitBeginning, Owner
from fencepost.outputs.table.revisions import TableStanding, published_in, record_stored, standing_of, takes_over
from fencepost.protocol.decisions import decide_skip, record_planned, standing_plan
from fencepost.protocol.obstacle import AbandonedPublication
from fencepost.protocol.publication import record_rejected
from fencepost.protocol.replay import is_under_way
from fencepost.protocol.view import View
from makers import NOW, a_batch, a_day, a_decision, a_plan, a_receipt, a_topic, a_verdict, a_written, publish_prepared
from model.search import Fault

DAYS = tuple(a_day(number) for number in range(2))
TABLE, LEDGER, OWNER = IcebergOutput(table="n.t"), "ledger", Owner("p", "cluster")
READY, BASED, SENDING, COMMITTED, CLOSED = range(5)


class Record(NamedTuple):
    """What the ledger says of a revision of a day; `lease` is 0 without a publication."""

    day: int
    revision: int
    adds_to: int
    state: State
    rows: int
    lease: int = 0
    uuid: int = 0
    snapshot: int | None = None


class Row(NamedTuple):
    """An interval's row, a property of the table."""

    lease: int
    closed: bool
    refused: bool
    snapshot: int


Rows = tuple[tuple[int, Row], ...]  # by day


class File(NamedTuple):
    """A file with the rows of a revision, written by the commit of that snapshot."""

    day: int
    revision: int
    by: int


class Snapshot(NamedTuple):
    """A snapshot; `row` is in its summary, if rows are there."""

    id: int
    parent: int | None
    files: frozenset[File]
    row: tuple[int, Row] | None = None


class Table(NamedTuple):
    """The metadata of the table that has the name."""

    uuid: int = 0
    owned: bool = False
    main: int | None = None
    tag: int | None = None
    snapshots: tuple[Snapshot, ...] = ()
    rows: Rows = ()


class Loaded(NamedTuple):
    """What an attempt has read of the table in one request, and the files of that main."""

    uuid: int
    owned: bool
    main: int | None
    tag: int | None
    ancestors: frozenset[int]
    rows: Rows
    files: frozenset[File]


class Request(NamedTuple):
    """A commit: what it requires, and what it makes of its base."""

    uuid: int
    main: int | None
    tag: int | None
    id: int
    kept: frozenset[File]
    replaced: frozenset[File]
    own: File | None
    day: int
    revision: int
    row: Row
    removed: tuple[int, ...]


class Attempt(NamedTuple):
    """A process that commits a publication, or closes it: because the table refuses its data, or an operator gives it up."""

    day: int
    revision: int
    lease: int
    uuid: int
    closes: bool = False
    refused: bool = False
    phase: int = READY
    base: Loaded | None = None
    ledger: tuple[Record, ...] | None = None
    request: Request | None = None
    snapshot: int | None = None


class World(NamedTuple):
    """A state."""

    ledger: tuple[Record, ...]
    table: Table = Table()
    attempts: tuple[Attempt, ...] = ()
    late: tuple[Request, ...] = ()  # requests on the way, whose senders no longer wait
    lost: frozenset[File] = frozenset()  # files that were deleted
    events: tuple[str, ...] = ()  # what has happened


@dataclass(frozen=True)
class Rules:
    """The rules of a commit; a mutation takes one out."""

    standing_row: Callable[[Base, Batch, Callable[[], Mapping[int, int]]], SnapshotRow] = standing_row
    ended: Callable[[View, Base, str], tuple[datetime, ...]] = ended_rows
    lacking: Callable[[View, Batch, Mapping[int, int]], tuple[int, ...]] = lacking_for
    differs: Callable[[View, str, Base, Mapping[datetime, Mapping[int, int]]], tuple[Batch, ...]] = differing_in
    base_first: bool = True  # the ledger is read after the base
    reads_ledger: bool = True  # a commit asks whether the publication is under way
    rows_are_properties: bool = True  # and not in the summaries of snapshots
    claims_with_snapshot: bool = True  # main is never without a base
    refused_is_unknown: bool = True  # also a refused request may have landed
    compares_main: bool = True
    compares_tag: bool = True
    compares_uuid: bool = True  # at the commit
    knows_its_table: bool = True  # a publication is for one table
    asks_ancestors: bool = True  # of main, and not all snapshots
    closes: bool = True  # giving up writes the row
    closes_open: bool = True  # who is refused and finds the publication committed takes it so
    replaces: bool = True  # a revision replaces the files of its interval


@cache
def view_of(ledger: tuple[Record, ...]) -> View:
    """The records as the product reads them."""
    return View.of(batch_of(record) for record in ledger)


@cache
def batch_of(record: Record) -> Batch:
    """The batch of a record."""
    plan = a_plan((0, 9), output=TABLE, staging=a_topic(0, topic="staging"), ledger_topic_id="0")
    written = a_written(a_receipt(rows=record.rows, topic="staging"), output=a_topic(1, topic="staging"))
    publication = None
    if record.lease:
        ended = NOW if record.snapshot is not None else None
        publication = IcebergPublication(
            table=TABLE.table,
            ledger=LEDGER,
            lease=record.lease,
            begun_at=NOW,
            uuid=str(record.uuid),
            snapshot=record.snapshot,
            ended_at=ended,
        )
    return a_batch(
        record.state,
        interval=DAYS[record.day],
        revision=record.revision,
        adds_to=record.adds_to or None,
        plan=plan,
        written=written,
        verdict=a_verdict(Outcome.PASSED),
        publication=publication,
        lease=10 * record.day + record.revision,
        history=(HistoryEntry(state=record.state, at=NOW),),
    )


def record_of(day: int, batch: Batch, lease: int) -> Record:
    """The record of a batch; a publication that begins gets this lease."""
    into, found = batch.publication, (0, 0, None)
    if isinstance(into, IcebergPublication):
        found = (lease if into.lease is None else into.lease, int(into.uuid), into.snapshot)
    return Record(day, batch.revision, batch.adds_to or 0, batch.state, batch.require_written.rows, *found)


@cache
def base_of(loaded: Loaded) -> Base:
    """The base as the product reads it."""
    return Base(
        str(loaded.uuid),
        OWNER if loaded.owned else None,
        loaded.main,
        loaded.tag,
        loaded.ancestors,
        {DAYS[day].start: held_of(day, row) for day, row in loaded.rows},
    )


def held_of(day: int, row: Row) -> SnapshotRow:
    """The row as the product reads it."""
    return SnapshotRow(
        DAYS[day].start,
        DAYS[day].end,
        LEDGER,
        row.lease,
        row.closed,
        "it" if row.refused else "",
        snapshot=row.snapshot,
    )


class Lake:
    """The model. `rows` of each revision planned, in order, by day; `events` may happen so often; `places` for attempts,
    and `late` for requests on the way.
    """

    def __init__(
        self,
        rules: Rules,
        rows: tuple[tuple[int, ...], ...],
        events: tuple[str, ...],
        places: int,
        late: int,
        additions: bool,
    ) -> None:
        self.rules, self.rows, self.events, self.additions = rules, rows, events, additions
        self.places, self.late = places, late
        self.start = [World(tuple(Record(day, 1, 0, State.WRITTEN, one[0]) for day, one in enumerate(rows)))]

    def steps(self, world: World) -> Iterator[tuple[str, World | Fault]]:
        for day in range(len(self.rows)):
            yield from self._begin(world, day)
        for number, attempt in enumerate(world.attempts):
            if number and attempt == world.attempts[number - 1]:
                continue
            rest = world.attempts[:number] + world.attempts[number + 1 :]
            who = "operator at" if attempt.closes and not attempt.refused else "attempt at"
            name = f"{who} {attempt.day}/{attempt.revision}, lease {attempt.lease}"
            yield f"{name} dies", world._replace(attempts=rest)
            for what, after in self._attempt(world, attempt, rest):
                yield f"{name}: {what}", after
        for number, request in enumerate(world.late):
            before = world._replace(late=world.late[:number] + world.late[number + 1 :])
            yield f"a late request lands as {request.id}", self._landed(before, request)[1]
        yield from self._accidents(world)

    def _attempt(
        self, world: World, attempt: Attempt, rest: tuple[Attempt, ...]
    ) -> Iterator[tuple[str, World | Fault]]:
        def then(after: Attempt | None, before: World = world) -> World:
            return before._replace(attempts=rest if after is None else _sorted((*rest, after)))

        if attempt.phase == READY and self.rules.base_first:
            yield "loads the base", then(self._based(world, attempt))
        elif attempt.phase == READY:
            yield "reads the ledger", then(attempt._replace(phase=BASED, ledger=world.ledger))
        elif attempt.phase == BASED:
            known = attempt
            if not self.rules.base_first:
                based = self._based(world, attempt)
                if based is None or based.phase != BASED:
                    yield "loads the base, and ends", then(based)
                    return
                known = based
            ledger = attempt.ledger if attempt.ledger is not None else world.ledger
            decided = self._decided(world, known, ledger)
            yield "decides", decided if isinstance(decided, Fault) else then(decided)
        elif attempt.phase == SENDING:
            for what, after, before in self._sent(world, attempt):
                yield what, before if isinstance(before, Fault) else then(after, before)
            if not attempt.closes and "refuses" in self._left(world):
                refused = _again(attempt)._replace(closes=True, refused=True)
                yield "its data are refused", then(refused, _happened(world, "refuses"))
        elif attempt.phase == COMMITTED:
            yield "records that it is published", self._record(then(None), attempt)
        elif attempt.phase == CLOSED and attempt.refused:
            yield "records that it is refused", self._record(then(None), attempt)
        elif attempt.phase == CLOSED:
            yield from self._given_up(then(None), attempt)

    def _based(self, world: World, attempt: Attempt) -> Attempt | None:
        """The attempt once it has loaded the table."""
        table = world.table
        if (self.rules.knows_its_table and table.uuid != attempt.uuid) or not table.owned:
            return _again(attempt)._replace(phase=CLOSED) if attempt.closes else None
        return attempt._replace(phase=BASED, base=self._loaded(table))

    def _loaded(self, table: Table) -> Loaded:
        known = {one.id: one for one in table.snapshots}
        ancestors, at = set[int](), table.main
        while at is not None:
            ancestors.add(at)
            at = known[at].parent if at in known else None
        rows = table.rows
        if not self.rules.rows_are_properties:
            found = dict[int, Row]()
            at = table.main
            while at is not None and at in known:
                if (told := known[at].row) is not None:
                    found.setdefault(*told)
                at = known[at].parent
            rows = tuple(sorted(found.items()))
        if not self.rules.asks_ancestors:
            ancestors |= known.keys()
        files = known[table.main].files if table.main is not None else frozenset[File]()
        return Loaded(table.uuid, table.owned, table.main, table.tag, frozenset(ancestors), rows, frozenset(files))

    def _decided(self, world: World, attempt: Attempt, ledger: tuple[Record, ...]) -> Attempt | Fault | None:
        """The attempt once it has read the ledger and looked at the row, or None if it stops."""
        assert attempt.base is not None
        view, base, after = view_of(ledger), base_of(attempt.base), _again(attempt)
        mine = next(r for r in world.ledger if (r.day, r.revision) == (attempt.day, attempt.revision))
        sent = mine._replace(state=State.PUBLISHING, lease=attempt.lease, uuid=attempt.uuid, snapshot=None)
        batch = batch_of(sent)
        publication = batch.publication_as(IcebergPublication)
        counted = _counted(attempt.base.files, world.ledger).get(DAYS[attempt.day].start, {})
        row = self.rules.standing_row(base, batch, lambda: counted)
        standing = standing_of(row, publication)
        if standing is TableStanding.DONE:
            if _contents(attempt.base.files, attempt.day) != _with(world.ledger, sent):
                return Fault(
                    "believed", f"{attempt.day}/{attempt.revision} counts as committed, and the base has it not"
                )
            if attempt.refused and not self.rules.closes_open:
                return after._replace(phase=CLOSED)
            is_operator = attempt.closes and not attempt.refused
            return None if is_operator else after._replace(phase=COMMITTED, snapshot=row.snapshot)
        if attempt.closes:
            if not takes_over(standing, publication, LEDGER) or not self.rules.closes:
                return after._replace(phase=CLOSED)
        else:
            if standing is TableStanding.CLOSED and row.refused:
                return after._replace(phase=CLOSED, closes=True, refused=True)
            if standing in {TableStanding.CLOSED, TableStanding.OVERTAKEN}:
                return None
            last = view.last(DAYS[attempt.day])
            under_way = last is not None and last.publication_under(attempt.lease) is not None
            if self.rules.reads_ledger and not (under_way and last is not None and last.revision == attempt.revision):
                return None
            if self.rules.lacking(view, batch, counted):
                return None
        ended = self.rules.ended(view, base, LEDGER)
        request = self._request(world, attempt, sent, attempt.base, ended)
        return attempt._replace(phase=SENDING, base=None, ledger=None, request=request)

    def _request(
        self, world: World, attempt: Attempt, sent: Record, base: Loaded, ended: tuple[datetime, ...]
    ) -> Request:
        fresh = self._fresh(world)
        own, replaced = None, frozenset[File]()
        if not attempt.closes:
            own = File(attempt.day, attempt.revision, fresh) if sent.rows else None
            of_day = [one for one in base.files if one.day == attempt.day]
            all_of_day = not sent.adds_to and self.rules.replaces
            replaced = frozenset(one for one in of_day if all_of_day or one.revision == attempt.revision)
        removed = tuple(day for day, _ in base.rows if day != attempt.day and DAYS[day].start in ended)
        row = Row(attempt.lease, attempt.closes, attempt.refused, fresh)
        return Request(
            base.uuid,
            base.main,
            base.tag,
            fresh,
            base.files - replaced,
            replaced,
            own,
            attempt.day,
            attempt.revision,
            row,
            removed,
        )

    def _sent(self, world: World, attempt: Attempt) -> Iterator[tuple[str, Attempt | None, World | Fault]]:
        """What becomes of a request: whether the attempt is told, what it does then, and the world."""
        request, again = attempt.request, _again(attempt)
        assert request is not None
        landed, after = self._landed(world, request)
        if not landed:
            told = self._told(after, request)
            yield "its commit is refused", again, told
        else:
            done = again._replace(phase=CLOSED if attempt.closes else COMMITTED, snapshot=request.id)
            yield f"commits {request.id}", done, after
            yield f"commits {request.id}, and the repeated request is refused", again, self._told(after, request)
            if not isinstance(after, Fault) and len(world.late) < self.late:
                yield f"commits {request.id}, and a copy is late", done, _late(after, request)
        if len(world.late) < self.late:
            yield "its request is late", again, _late(world, request)

    def _told(self, world: World | Fault, request: Request) -> World | Fault:
        """The world after a sender has been told that its request is refused."""
        if isinstance(world, Fault) or self.rules.refused_is_unknown or request.own is None:
            return world
        return world._replace(lost=world.lost | {request.own})

    def _landed(self, world: World, request: Request) -> tuple[bool, World | Fault]:
        """Whether the catalog takes a request, and the world after it."""
        table, rules = world.table, self.rules
        if (
            (rules.compares_uuid and table.uuid != request.uuid)
            or (rules.compares_main and table.main != request.main)
            or (rules.compares_tag and table.snapshots and table.tag != request.tag)
            or any(one.id == request.id for one in table.snapshots)
        ):
            return False, world
        if (wrong := self._wrong(world, request)) is not None:
            return True, wrong
        files = request.kept | ({request.own} if request.own else set())
        told = None if rules.rows_are_properties else (request.day, request.row)
        snapshot = Snapshot(request.id, request.main, frozenset(files), told)
        kept = {day: row for day, row in table.rows if day not in request.removed}
        after = table._replace(
            main=request.id,
            tag=request.id,
            snapshots=tuple(sorted((*table.snapshots, snapshot), key=lambda one: one.id)),
            rows=tuple(sorted({**kept, request.day: request.row}.items())),
        )
        return True, world._replace(table=after)

    def _wrong(self, world: World, request: Request) -> Fault | None:
        """What is wrong with a commit that the catalog takes."""
        there = _files(world.table)
        name = f"{request.day}/{request.revision}, lease {request.row.lease}"
        if there - request.replaced != request.kept:
            return Fault("undone", f"the commit of {name} is not main with its own change")
        mine = next(r for r in world.ledger if (r.day, r.revision) == (request.day, request.revision))
        if request.row.closed:
            held = any((one.day, one.revision) == (request.day, request.revision) for one in there)
            if held and (mine.lease != request.row.lease or mine.state is not State.PUBLISHED):
                return Fault("given up", f"{name} is closed, and main has its rows")
            return None
        if mine.lease != request.row.lease or mine.state not in {State.PUBLISHING, State.PUBLISHED}:
            return Fault("zombie", f"{name} was given up, and commits")
        published = published_in(view_of(world.ledger).known(DAYS[request.day]))
        if mine.state is State.PUBLISHED and request.revision not in published:
            return Fault("zombie", f"{name} is no longer in force, and commits")
        return None

    def _record(self, world: World, attempt: Attempt) -> World:
        view, day = view_of(world.ledger), DAYS[attempt.day]
        try:
            if attempt.phase == CLOSED:
                records = record_rejected(view, day, attempt.revision, attempt.lease, "it", NOW)
            else:
                committed = {"snapshot": attempt.snapshot}
                records = record_stored(view, day, attempt.revision, attempt.lease, 0, NOW, committed)
        except FencepostError:
            return world
        return _written(world, attempt.day, records)

    def _given_up(self, world: World, attempt: Attempt) -> Iterator[tuple[str, World]]:
        """What an operator records who has closed a publication."""
        given = AbandonedPublication(lease=attempt.lease, seen=0)
        view, day = view_of(world.ledger), DAYS[attempt.day]
        last = view.last(day)
        assert last is not None
        for addition in (False, True) if self.additions else (False,):
            if (after := self._planned(world, attempt.day, view, last, given, addition=addition)) is not None:
                yield f"writes revision {last.revision + 1}{', an addition' if addition else ''}", after
        try:
            skipped = decide_skip(view, day, a_decision("skip"), given)
        except FencepostError:
            return
        if skipped and last.publication_under(attempt.lease) is not None:
            yield "skips", _written(world, attempt.day, skipped)

    def _planned(
        self,
        world: World,
        number: int,
        view: View,
        last: Batch,
        given: AbandonedPublication | None,
        *,
        addition: bool,
    ) -> World | None:
        """The next revision, written and passed."""
        day, rows = DAYS[number], self.rows[number]
        if last.revision >= len(rows):
            return None
        adds_to = None
        if addition:
            published = published_in(view.known(day))
            if not published or is_under_way(last) or last.state not in {State.PUBLISHED, State.SKIPPED}:
                return None
            adds_to = published[0]
        elif standing_plan(view, day, True, given) is not None:
            return None
        _, *others = record_planned(view, day, "p", last.plan, "", None, given, adds_to)
        new = Record(number, last.revision + 1, adds_to or 0, State.WRITTEN, rows[last.revision])
        after = _written(world, number, tuple(others))
        return after._replace(ledger=tuple(sorted((*after.ledger, new))))

    def _begin(self, world: World, number: int) -> Iterator[tuple[str, World]]:
        view, day = view_of(world.ledger), a_day(number)
        last = view.last(day)
        assert last is not None
        if last.state is not State.PUBLISHING:
            for addition in (False, True) if self.additions else (False,):
                if (after := self._planned(world, number, view, last, None, addition=addition)) is not None:
                    yield f"{number}/{last.revision + 1} is written{', an addition' if addition else ''}", after
        if last.adds_to is not None and last.state is State.WRITTEN:
            skipped = _written(world, number, decide_skip(view, day, a_decision("skip")))
            yield f"addition {number}/{last.revision} is skipped", skipped
        if len(world.attempts) >= self.places:
            return
        if last.state is State.PUBLISHING:
            into = last.publication_as(IcebergPublication)
            attempt = Attempt(number, last.revision, into.require_lease, int(into.uuid))
            yield f"an attempt at {number}/{last.revision}", _joined(world, attempt)
            if not any(one.closes and not one.refused for one in world.attempts):
                yield f"an operator at {number}/{last.revision}", _joined(world, attempt._replace(closes=True))
            return
        decision = a_decision("publish") if last.state is State.REJECTED else None
        claimed = self._claimed(world)
        made_for = partial(IcebergPublication, uuid=str(claimed.table.uuid))
        try:
            records = publish_prepared(view, day, NOW, decision, CommitBeginning(made_for, TABLE.table, LEDGER))
        except FencepostError:
            return
        if records:
            begun = _written(claimed, number, records)
            mine = next(r for r in begun.ledger if (r.day, r.revision) == (number, last.revision))
            yield (
                f"begins to publish {number}/{last.revision}",
                _joined(begun, Attempt(number, mine.revision, mine.lease, mine.uuid)),
            )

    def _claimed(self, world: World) -> World:
        """The world with its table claimed."""
        table = world.table
        if table.owned:
            return world
        if not self.rules.claims_with_snapshot:
            return world._replace(table=table._replace(owned=True))
        first = self._fresh(world)
        made = Snapshot(first, table.main, _files(table))
        snapshots = tuple(sorted((*table.snapshots, made), key=lambda one: one.id))
        return world._replace(table=table._replace(owned=True, main=first, tag=first, snapshots=snapshots))

    def _accidents(self, world: World) -> Iterator[tuple[str, World]]:
        left, table = self._left(world), world.table
        known = {one.id: one for one in table.snapshots}
        if "maintained" in left and table.main is not None:
            fresh = self._fresh(world)
            files = frozenset(one._replace(by=fresh) for one in known[table.main].files)
            made = Snapshot(fresh, table.main, files)
            snapshots = tuple(sorted((*table.snapshots, made), key=lambda one: one.id))
            after = table._replace(main=fresh, snapshots=snapshots)
            yield f"a maintainer writes the files again, as {fresh}", _happened(world, "maintained", after)
        if "expired" in left and table.main is not None:
            kept = tuple(one for one in table.snapshots if one.id in {table.main, table.tag})
            if kept != table.snapshots:
                yield "snapshots expire", _happened(world, "expired", table._replace(snapshots=kept))
        if "rolled back" in left and table.main is not None:
            at = known[table.main].parent
            while at is not None and at in known:
                yield f"main is rolled back to {at}", _happened(world, "rolled back", table._replace(main=at))
                at = known[at].parent
        if "set" in left and table.main is not None:
            for at in sorted(known.keys() - {table.main}):
                yield f"main is set to {at}", _happened(world, "set", table._replace(main=at))
        if "made anew" in left:
            yield "the table is made anew", _happened(world, "made anew", Table(table.uuid + 1))

    def _left(self, world: World) -> set[str]:
        return {one for one in self.events if world.events.count(one) < self.events.count(one)}

    def _fresh(self, world: World) -> int:
        """The smallest id that nothing has."""
        used = {one for s in world.table.snapshots for one in (s.id, s.parent)}
        used |= {row.snapshot for _, row in world.table.rows} | {r.snapshot for r in world.ledger}
        used |= {one.by for one in world.lost}
        requests = [*world.late, *(a.request for a in world.attempts if a.request is not None)]
        used |= {one for r in requests for one in (r.id, r.main, r.tag)}
        for attempt in world.attempts:
            used.add(attempt.snapshot)
            if attempt.base is not None:
                used |= {*attempt.base.ancestors, attempt.base.tag, *(r.snapshot for _, r in attempt.base.rows)}
        return next(n for n in range(1, len(used) + 2) if n not in used)

    def fault(self, world: World) -> Fault | None:
        table, is_calm = world.table, not {"rolled back", "set", "made anew"} & set(world.events)
        known = (
            _nothing(table) if self.rules.differs is differing_in else self._loaded(table)
        )  # it asks for the uuid alone
        return self._fault(world.ledger, _files(table), world.lost, is_calm, known)

    @cache  # noqa: B019  # as long as the model
    def _fault(
        self,
        ledger: tuple[Record, ...],
        files: frozenset[File],
        lost: frozenset[File],
        is_calm: bool,
        known: Loaded,
    ) -> Fault | None:
        if gone := files & lost:
            return Fault("lost", f"main has files that were deleted: {sorted(gone)}")
        view, counted = view_of(ledger), _counted(files, ledger)
        for day in range(len(self.rows)):
            there, planned = _contents(files, day), view.known(DAYS[day])
            adds_to = {r.revision: r.adds_to for r in ledger if r.day == day}
            bases = [revision for revision in there if not adds_to[revision]]
            if len(bases) > 1 or len(set(there)) < len(there):
                return Fault("doubled", f"main has revisions {there} of interval {day}")
            wanted = _wanted(ledger, day)
            if planned.last.state is State.PUBLISHING:
                mine = next(r for r in ledger if (r.day, r.revision) == (day, planned.last.revision))
                if is_calm and there not in (wanted, _with(ledger, mine)):
                    return Fault("another's", f"interval {day} has {there}, and no publication in force says so")
                continue
            differs = self.rules.differs(view, TABLE.table, base_of(known), counted)
            told = any(batch.interval.start == DAYS[day].start for batch in differs)
            if there != wanted and (is_calm or not told):
                return Fault("unnoticed", f"interval {day} is published as {wanted}, and main has {there}")
            if there == wanted and told:
                return Fault("false alarm", f"interval {day} has {there} as the ledger, and a difference is told")
        return None

    def show(self, world: World) -> str:
        ledger = ", ".join(f"{r.day}/{r.revision} {r.state} {r.lease or ''}" for r in world.ledger)
        table = world.table
        there = " ".join(f"{day}/{revision}" for day, revision, _ in sorted(_files(table)))
        rows = " ".join(f"{day}:{row.lease}{'x' if row.closed else ''}@{row.snapshot}" for day, row in table.rows)
        return f"{ledger}; table {table.uuid}, main {table.main}, tag {table.tag}: {there}; rows {rows}"

    def settled(self, world: World) -> bool:
        view = view_of(world.ledger)
        ended = {State.PUBLISHED, State.SKIPPED}
        return all(planned.last.state in ended for planned in view.revisions.values())

    def ordinary(self, world: World, label: str) -> bool:
        starts = ("a maintainer", "snapshots expire", "main is", "the table is", "a late request")
        return not label.startswith(starts) and " late" not in label and "refused" not in label


@cache
def _counted(files: frozenset[File], ledger: tuple[Record, ...]) -> dict[datetime, dict[int, int]]:
    """The rows at a snapshot, as the product counts them."""
    rows, found = {(r.day, r.revision): r.rows for r in ledger}, dict[datetime, dict[int, int]]()
    for one in files:
        of_day = found.setdefault(DAYS[one.day].start, {})
        of_day[one.revision] = of_day.get(one.revision, 0) + rows[one.day, one.revision]
    return found


def _contents(files: frozenset[File], day: int) -> list[int]:
    return sorted(one.revision for one in files if one.day == day)


@cache
def _wanted(ledger: tuple[Record, ...], day: int) -> list[int]:
    """The revisions with rows that the ledger has published."""
    published = published_in(view_of(ledger).known(DAYS[day]))
    return sorted(r.revision for r in ledger if r.day == day and r.revision in published and r.rows)


@cache
def _with(ledger: tuple[Record, ...], sent: Record) -> list[int]:
    """The revisions with rows once this publication is recorded as well."""
    older = set(_wanted(ledger, sent.day)) if sent.adds_to else set()
    return sorted(older | {sent.revision}) if sent.rows else sorted(older)


def _files(table: Table) -> frozenset[File]:
    return next((one.files for one in table.snapshots if one.id == table.main), frozenset())


def _nothing(table: Table) -> Loaded:
    return Loaded(table.uuid, True, None, None, frozenset(), (), frozenset())


def _again(attempt: Attempt) -> Attempt:
    """The attempt at the beginning of a turn."""
    return attempt._replace(phase=READY, base=None, ledger=None, request=None, snapshot=None)


def _late(world: World, request: Request) -> World:
    return world._replace(late=tuple(sorted((*world.late, request), key=hash)))


def _joined(world: World, attempt: Attempt) -> World:
    return world._replace(attempts=_sorted((*world.attempts, attempt)))


def _sorted(attempts: tuple[Attempt, ...]) -> tuple[Attempt, ...]:
    return tuple(sorted(attempts, key=lambda one: (one[:7], hash(one))))


def _happened(world: World, event: str, table: Table | None = None) -> World:
    events = tuple(sorted((*world.events, event)))
    return world._replace(table=world.table if table is None else table, events=events)


def _written(world: World, day: int, records: tuple[Batch, ...]) -> World:
    """The world with these records in its ledger, in one transaction."""
    known = {(r.day, r.revision): r for r in world.ledger}
    for batch in records:
        lease = 1 + max(r.lease for r in known.values())
        known[day, batch.revision] = record_of(day, batch, lease)
    return world._replace(ledger=tuple(sorted(known.values())))


def of(bounds: dict[str, Any], rules: Rules | None = None) -> Lake:
    """The model with these bounds."""
    values = {"rows": ((1, 1),), "events": (), "places": 2, "late": 0, "additions": False, **bounds}
    return Lake(rules or Rules(), **values)
