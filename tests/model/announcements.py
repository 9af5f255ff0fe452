"""The model of announcements: an interval, its ledger, the topic that announces, coordinators that crash, and readers.

A coordinator calls init_transactions, reads the ledger, decides and commits. Ledger and topic change together, as rules say.
Between init and commit anybody else's init fences it, and its answer may be lost. The ledger may be deleted and created again
once, while a coordinator of the old one is at work. Every decision, every announcement and what a reader makes of them is the
product's own (`fencepost.protocol`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any, NamedTuple

from fencepost.errors import FencepostError
from fencepost.model import Batch, HistoryEntry, Outcome, State
from fencepost.protocol.announcement import Announcement, counting
from fencepost.protocol.announcing import AnnouncedChange, all_announced, announced_changes, announcement
from fencepost.protocol.decisions import decide_skip, decide_withdraw, record_planned, standing_plan
from fencepost.protocol.view import PASSED, View
from makers import NOW, a_batch, a_day, a_decision, a_plan, a_receipt, a_verdict, a_written, publish_prepared
from model.search import Fault

DAY, SECOND = a_day(0), timedelta(seconds=1)


class Record(NamedTuple):
    """What the ledger says of a revision: its states so far with the number of the change, and the ledger that planned it."""

    revision: int
    adds_to: int
    states: tuple[tuple[State, int], ...]
    planned_in: int


class Said(NamedTuple):
    """An announcement: of which ledger's revision, what became of it, and what it replaces."""

    ledger: int
    revision: int
    adds_to: int
    state: str
    replaces: tuple[int, ...]


class Process(NamedTuple):
    """A coordinator that has decided, on which ledger, and what it is about to announce or to record; one that is to do one of
    both alone, where a rule takes them apart."""

    operation: str
    records: tuple[Record, ...]
    says: tuple[Said, ...]
    left: str = "both"


class World(NamedTuple):
    """A state. `since` is where in the topic the present ledger's announcements begin."""

    ledger: tuple[Record, ...] = ()
    ledger_id: int = 0
    topic: tuple[Said, ...] = ()
    since: int = 0
    processes: tuple[Process, ...] = ()


def as_news(view: View, records: Sequence[Batch], operation: str) -> tuple[AnnouncedChange, ...]:
    """What a change announces, whoever made it."""
    return announced_changes(view, records)


def by_identity(said: Announcement, counts: Iterable[Announcement]) -> bool:
    """Whether a reader takes an event's batch for one that counts."""
    return said.identity in {one.identity for one in counts}


@dataclass(frozen=True)
class Rules:
    """The rules of announcing; a mutation takes one out."""

    announced_changes: Callable[[View, Sequence[Batch], str], tuple[AnnouncedChange, ...]] = as_news
    together: str = "both"  # what commits first: both in one transaction, or one of them alone
    fenced_by_init: bool = True
    finds: Callable[[View, str], tuple[AnnouncedChange, ...]] = (
        lambda *_: ()
    )  # what is said of a change that is found made
    counts: Callable[[Announcement, Iterable[Announcement]], bool] = by_identity
    counting: Callable[[Iterable[Announcement]], list[Announcement]] = counting


@cache
def batch_of(record: Record, offsets: int) -> Batch:
    """The batch of a record."""
    plan = a_plan((0, offsets), ledger_topic_id=str(record.planned_in))
    return a_batch(
        record.states[-1][0],
        revision=record.revision,
        adds_to=record.adds_to or None,
        plan=plan,
        written=a_written(a_receipt(rows=offsets)),
        verdict=a_verdict(Outcome.PASSED),
        history=tuple(HistoryEntry(state=state, at=NOW + number * SECOND) for state, number in record.states),
    )


def said_of(one: Announcement) -> Said:
    return Said(int(one.ledger_id), one.revision, one.adds_to or 0, one.state, one.replaces)


@cache
def told_as(said: Said) -> Announcement:
    """The announcement that a reader gets."""
    return Announcement(
        state=said.state,  # type: ignore[arg-type]
        ledger_id=str(said.ledger),
        cluster_id="c",
        batch=f"p/{DAY}/{said.revision}",
        interval=DAY,
        revision=said.revision,
        kind="topic",
        output="out",
        adds_to=said.adds_to or None,
        replaces=said.replaces,
        rows=0,
        decided_by_person=False,
        time=NOW,
    )


class Announcing:
    """The model. `operations` are what a coordinator may do; `offsets` those of the interval; `revisions` at most."""

    def __init__(
        self, rules: Rules, operations: tuple[str, ...], revisions: int, offsets: int, places: int, renewal: bool
    ) -> None:
        self.rules, self.operations, self.revisions = rules, operations, revisions
        self.offsets, self.places, self.renewal = offsets, places, renewal
        self.start = [World()]

    def view(self, world: World) -> View:
        return View.of(batch_of(record, self.offsets) for record in world.ledger)

    def steps(self, world: World) -> Iterator[tuple[str, World]]:
        if self.renewal and not world.ledger_id and world.ledger:
            yield (
                "the ledger is deleted and created again",
                world._replace(ledger=(), ledger_id=1, since=len(world.topic)),
            )
        for n, process in enumerate(world.processes):
            rest = world.processes[:n] + world.processes[n + 1 :]
            yield f"{process.operation} crashes", world._replace(processes=rest)
            yield from self._commit(world, process, rest)
        if len(world.processes) < self.places:
            for operation in self.operations:
                yield from self._decide(world, operation)

    def _decide(self, world: World, operation: str) -> Iterator[tuple[str, World]]:
        """init, which fences everybody else; read; decide. What changes nothing is over."""
        view = self.view(world)
        processes = () if self.rules.fenced_by_init else world.processes
        try:
            batches = self._records(view, world, operation)
        except FencepostError:
            return
        if not batches:
            found = self.rules.finds(view, operation)
            if found:
                says = tuple(said_of(announcement(view, one, "c", None)) for one in found)
                yield f"{operation} finds it done", world._replace(topic=(*world.topic, *says), processes=processes)
            return
        after = view.updated(batches)
        says = tuple(
            said_of(announcement(after, one, "c", None))
            for one in self.rules.announced_changes(view, batches, operation)
        )
        known = {record.revision: record for record in world.ledger}
        number = 1 + max((n for record in world.ledger for _, n in record.states), default=0)
        records = tuple(self._record(b, known.get(b.revision), world.ledger_id, number) for b in batches)
        decided = Process(operation, records, says)
        yield f"{operation}: init, read, decide", world._replace(processes=_sorted((*processes, decided)))

    def _records(self, view: View, world: World, operation: str) -> Sequence[Batch]:
        last = view.last(DAY)
        if operation in ("plan", "reprocess", "replay"):
            return self._planned(view, world, last, operation)
        if operation == "advance":
            return publish_prepared(view, DAY, NOW)
        if operation == "skip":
            return decide_skip(view, DAY, a_decision("skip"))
        return decide_withdraw(view, DAY, a_decision("withdraw"))

    def _planned(self, view: View, world: World, last: Batch | None, operation: str) -> Sequence[Batch]:
        if last is not None and last.revision >= self.revisions:
            return ()
        adds_to = None
        if operation == "replay":
            base = view.in_force(DAY)
            if last is None or base is None or base.state is not State.PUBLISHED or last.state not in PASSED:
                return ()
            adds_to = base.revision
        else:
            is_first = last is None or view.is_withdrawn(DAY)
            if (operation == "plan") != is_first or standing_plan(view, DAY, not is_first) is not None:
                return ()
        plan = a_plan((0, self.offsets), ledger_topic_id=str(world.ledger_id))
        return record_planned(view, DAY, "p", plan, "", adds_to=adds_to)

    @staticmethod
    def _record(batch: Batch, known: Record | None, ledger_id: int, number: int) -> Record:
        """The record that follows a known one, by the change of that number. A plan is written and has passed at once."""
        if known is None:
            states = (State.PLANNED, number), (State.WRITTEN, number)
            return Record(batch.revision, batch.adds_to or 0, states, ledger_id)
        return known._replace(states=(*known.states, (batch.state, number)))

    def _commit(self, world: World, process: Process, rest: tuple[Process, ...]) -> Iterator[tuple[str, World]]:
        first = self.rules.together if process.left == "both" else process.left
        after = world
        if first in ("both", "records"):
            known = {record.revision: record for record in world.ledger} | {r.revision: r for r in process.records}
            after = after._replace(ledger=tuple(known[n] for n in sorted(known)))
        if first in ("both", "says"):
            after = after._replace(topic=(*world.topic, *process.says))
        if process.left == first or first == "both":
            done = after._replace(processes=rest)
        else:
            left = process._replace(left="says" if first == "records" else "records")
            done = after._replace(processes=_sorted((*rest, left)))
        yield f"{process.operation} commits {first}", done

    def fault(self, world: World) -> Fault | None:
        if any(process.left != "both" for process in world.processes):
            return None  # in the middle
        view = self.view(world)
        wanted = [said_of(announcement(view, one, "c", until)) for one, until in all_announced(view)]
        said = list(world.topic)
        for one in said:
            if said.count(one) > 1:
                return Fault("announced twice", f"{one}")
        for one in said[world.since :]:
            if one not in wanted:
                return Fault("not recorded", f"{one} is announced, and the ledger has announced {wanted}")
        for one in wanted:
            if one not in said:
                return Fault("not announced", f"{one} is recorded, and announced is {said}")
        if [one for one in said if one in wanted] != wanted:
            return Fault("out of order", f"{said}, and by the ledger {wanted}")
        return self._read_wrongly(world, view) if said[world.since :] else None

    def _read_wrongly(self, world: World, view: View) -> Fault | None:
        """A reader who reads the topic to its end takes what the ledger has in force, by events and by `replaces`."""
        base = view.in_force(DAY)
        counts = (
            () if base is None or base.state is not State.PUBLISHED else (base, *view.known(DAY).additions_in_force)
        )
        wanted = {(b.plan.ledger_topic_id, str(b.id)) for b in counts}
        read = self.rules.counting([told_as(one) for one in world.topic])
        # Of an interval of which the present ledger has published nothing, the old one's batch is what there is.
        left = {one.identity for one in read if one.ledger_id != str(world.ledger_id)} if not wanted else set()
        wanted |= left
        if {one.identity for one in read} != wanted:
            return Fault("read wrongly", f"a reader has {[one.identity for one in read]} for {wanted}")
        for one in (told_as(said) for said in world.topic if said.state == "published"):
            if self.rules.counts(one, read) != (one.identity in wanted):
                return Fault("read wrongly", f"the event of {one.identity} stands for {wanted}")
        kept: set[int] = set()
        for one in world.topic[world.since :]:
            gone = {*one.replaces, *([one.revision] if one.state == "withdrawn" else [])}
            kept = (kept - gone) | ({one.revision} if one.state == "published" else set())
        if kept != {b.revision for b in counts}:
            return Fault("replaced wrongly", f"by `replaces` a reader has revisions {sorted(kept)} for {wanted}")
        return None

    def show(self, world: World) -> str:
        ledger = ", ".join(
            f"{r.revision} {r.states[-1][0]}{f' +{r.adds_to}' if r.adds_to else ''}" for r in world.ledger
        )
        topic = ", ".join(f"{s.ledger}/{s.revision} {s.state}" for s in world.topic)
        return f"ledger {world.ledger_id}: {ledger}; topic {topic}; {[p.operation for p in world.processes]}"


def _sorted(processes: Iterable[Process]) -> tuple[Process, ...]:
    return tuple(sorted(processes))


def of(bounds: dict[str, Any], rules: Rules | None = None) -> Announcing:
    """The model with these bounds."""
    values = {"revisions": 2, "offsets": 3, "places": 2, "renewal": False, **bounds}
    return Announcing(rules or Rules(), **values)
