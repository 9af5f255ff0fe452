"""The model of side tables: one interval, tables that change at any time, drivers that read them at any time, and crashes.

Promises, for every interleaving and with a crash after every step:

- every task-partition of a batch that is recorded as written was written with one content of each table (`mixed`), which is the
  recorded one (`recorded otherwise`), and none with tables that have no rows (`empty`);
- a driver that begins when all task-partitions of a batch have committed finishes it, whatever the tables are then (`revised`);
- ordinary retries end with a published batch (`stuck`), and one driver after another makes no more revisions than there were
  changes (`endless`).

A driver takes the steps of `steps/write.py` and `steps/side_tables.py`. Whether a batch is revised, what is recorded, and which
contents differ are the product's own decisions (`fencepost.protocol`). What is here: the tables, the order of a driver's steps,
and what writers do with marks, of which `writers.py` is the model: a task-partition is committed once under each lease.

`changes` bounds how often a table changes, and `revisions` how many revisions there are: a driver that comes late with what it
has read may find another content recorded again and again, as long as new drivers are faster. Attempts, retries and crashes are
unbounded in number; `places` bounds how many drivers are alive at once.

Two reductions, both sound. Task-partitions are interchangeable, so those of a batch are kept sorted. Of a superseded batch
nothing counts any more, and its drivers can record nothing: both are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import makers
from fencepost.errors import FencepostError
from fencepost.model import Batch, Outcome, SideTableState, State
from fencepost.protocol.decisions import own_revision, record_tables, record_verdict, record_written
from fencepost.protocol.planning import Neighbours, SourceFacts, decide_plan, decide_replay, decide_revision
from fencepost.protocol.replay import CurrentSources, newest_link
from fencepost.protocol.revision import CurrentInputs, differing_tables, may_be_revised, revision_reason
from fencepost.protocol.view import PASSED, View
from model import product
from model.ledgers import Ledgers
from model.search import Fault

DAY = makers.a_day(0)
SOURCES = CurrentSources(frozenset({"in"}))
TASKS = 2
LOOKS, SETTLES, READS, RECORDS, WRITES = range(5)
PHASES = ("looks", "settles", "reads", "records", "writes")
DONE = {State.WRITTEN, State.PUBLISHED}

Contents = tuple[int, ...]  # of each table a number that stands for its rows
NO_ROWS = -1


class Attempt(NamedTuple):
    """A driver. `lease` is of the batch that it has at hand. It has read the contents `reads`, and writes with `uses`.

    All task-partitions of the batch `finishes` had committed when it began.
    """

    phase: int = LOOKS
    lease: int = -1
    reads: Contents = ()
    uses: Contents = ()
    finishes: int = -1


class World(NamedTuple):
    """A state. `committed` has by lease and task-partition the contents that it was written with."""

    ledger: int
    tables: Contents
    changes: int
    committed: tuple[tuple[Contents | None, ...], ...]
    attempts: tuple[Attempt, ...] = ()
    asked: frozenset[str] = frozenset()


Record = Callable[[View, Any, int, tuple[SideTableState, ...]], tuple[Batch, ...]]
Differing = Callable[[tuple[SideTableState, ...], tuple[SideTableState, ...]], tuple[str, ...]]


@dataclass(frozen=True)
class Rules:
    """The rules of side tables; a mutation takes one out."""

    record: Record = record_tables
    differing: Differing = differing_tables
    reason: Callable[[Batch, CurrentInputs], str | None] = revision_reason
    records_first: bool = True  # nothing is written before the contents are recorded
    all_marks: bool = True  # tables are not read only if every task-partition has committed
    finishes_unread: bool = True  # they are not read then
    read_anew: bool = True  # a new revision begins without recorded contents


class SideTables:
    """The model. `operations` are what a person asks for once the interval is published. If `compares`, each attempt compares the
    committed rows with its own, as under layout `output`. Without `checks_record`, a batch may have another content recorded than
    it was written with.
    """

    def __init__(
        self,
        rules: Rules,
        tables: int = 1,
        changes: int = 2,
        places: int = 2,
        operations: tuple[str, ...] = (),
        compares: bool = False,
        revisions: int = 3,
        checks_record: bool = True,
    ) -> None:
        self.rules, self.operations, self.compares, self.revisions = rules, operations, compares, revisions
        self.places, self.checks_record = places, checks_record
        self.ledgers = Ledgers()
        self._decided: dict[Any, tuple[Batch, ...] | None] = {}
        empty = self.ledgers.number(())
        planned = self.ledgers.after(empty, self._planned(View.of(()), "plan"))
        self.start = [World(planned, (0,) * tables, changes, ((None,) * TASKS,))]

    def view(self, world: World) -> View:
        return self.ledgers.views[world.ledger]

    def batch(self, world: World, lease: int) -> Batch:
        return self.ledgers.batches[world.ledger][lease]

    def steps(self, world: World) -> Iterator[tuple[str, World | Fault]]:
        for number, content in enumerate(world.tables if world.changes else ()):
            changed = (*world.tables[:number], 1 - content, *world.tables[number + 1 :])
            yield f"table {number} changes", world._replace(tables=changed, changes=world.changes - 1)
        for place, attempt in enumerate(world.attempts):
            rest = world.attempts[:place] + world.attempts[place + 1 :]
            name = f"a driver of revision {attempt.lease + 1}" if attempt.lease >= 0 else "a driver"
            yield f"{name} dies", world._replace(attempts=rest)
            for label, after in self._driver_steps(world, attempt, rest):
                yield f"{name} {label}", after
        if len(world.attempts) < self.places:
            yield "a driver begins", self._with(world, world.attempts, Attempt(finishes=self._complete(world)))
        yield from self._published(world)

    def _complete(self, world: World) -> int:
        """The lease of the newest revision, if all of it has committed and its contents are recorded."""
        lease = len(world.committed) - 1
        whole = None not in world.committed[lease] and self.batch(world, lease).plan.tables
        return lease if whole and not self.compares else -1

    @staticmethod
    def _with(world: World, rest: tuple[Attempt, ...], attempt: Attempt, **changes: Any) -> World:
        return world._replace(attempts=tuple(sorted((*rest, attempt))), **changes)

    # A driver.

    def _driver_steps(
        self, world: World, attempt: Attempt, rest: tuple[Attempt, ...]
    ) -> Iterator[tuple[str, World | Fault]]:
        if attempt.phase == LOOKS:
            yield self._look(world, attempt, rest)
        elif attempt.phase == SETTLES:
            yield self._settle(world, attempt, rest)
        elif attempt.phase == READS:
            number = len(attempt.reads)
            reads = (*attempt.reads, world.tables[number])
            whole = len(reads) == len(world.tables)
            phase = (RECORDS if self.rules.records_first else WRITES) if whole else READS
            after = attempt._replace(phase=phase, reads=reads, uses=reads if phase == WRITES else ())
            yield f"reads table {number}", self._with(world, rest, after)
        elif attempt.phase == RECORDS:
            yield self._record(world, attempt, rest)
        else:
            yield from self._write(world, attempt, rest)

    def _look(self, world: World, attempt: Attempt, rest: tuple[Attempt, ...]) -> tuple[str, World | Fault]:
        """Step 1 of a write: read the ledger, and revise the newest batch if it can no longer be written as it was planned."""
        latest = self._last(world)
        found = self._found(latest, attempt.reads)
        if not may_be_revised(latest) or self.rules.reason(latest, found) is None:
            return "reads the ledger", self._at_hand(world, attempt, rest, latest)
        if latest.lease == attempt.finishes:
            return "revises", Fault("revised", f"all task-partitions of revision {latest.revision} had committed")
        if len(world.committed) >= self.revisions:
            if self.places == 1:
                return "revises", Fault("endless", f"there are {self.revisions} revisions, more than changes")
            return "would revise, beyond the bounds", world._replace(attempts=rest)
        key = ("revise", world.ledger, attempt.reads)
        records = self._ask(key, lambda: self._revision(self.view(world), latest, found))
        assert records, "nobody was faster"
        after = self._recorded(world._replace(attempts=rest), records)
        return "revises", self._at_hand(after, attempt, after.attempts, self._last(after))

    def _at_hand(self, world: World, attempt: Attempt, rest: tuple[Attempt, ...], batch: Batch) -> World:
        if batch.state is not State.PLANNED:
            return world._replace(attempts=rest)
        return self._with(world, rest, attempt._replace(phase=SETTLES, lease=batch.require_lease))

    def _found(self, batch: Batch, reads: Contents) -> CurrentInputs:
        found = replace(product.current_inputs("0", 0, "out-1"), tables=states_of(reads))
        kept = batch.plan.quarantine
        return replace(found, quarantine_topic=kept.topic, quarantine_topic_id=kept.topic_id) if kept else found

    def _last(self, world: World) -> Batch:
        latest = self.view(world).last(DAY)
        assert latest is not None
        return latest

    def _revision(self, view: View, latest: Batch, found: CurrentInputs) -> tuple[Batch, ...]:
        records = decide_revision(view, latest, found, the_facts(view, latest.adds_to is not None))
        if not self.rules.read_anew:
            records = tuple(makers.planned(b, tables=latest.plan.tables) if not b.plan.tables else b for b in records)
        return records

    def _settle(self, world: World, attempt: Attempt, rest: tuple[Attempt, ...]) -> tuple[str, World]:
        """If all task-partitions have committed with recorded contents, the tables are not read."""
        there = [content is not None for content in world.committed[attempt.lease]]
        enough = all(there) if self.rules.all_marks else any(there)
        known = bool(self.batch(world, attempt.lease).plan.tables)
        if known and enough and self.rules.finishes_unread and not self.compares:
            after = attempt._replace(phase=WRITES, uses=(NO_ROWS,) * len(world.tables))
            return "finds marks, and reads nothing", self._with(world, rest, after)
        phase = RECORDS if attempt.reads else READS
        return "has to read", self._with(world, rest, attempt._replace(phase=phase))

    def _record(self, world: World, attempt: Attempt, rest: tuple[Attempt, ...]) -> tuple[str, World]:
        key = ("record", world.ledger, attempt.lease, attempt.reads)
        states = states_of(attempt.reads)
        records = self._ask(
            key, lambda: self.rules.record(self.view(world), DAY, self.batch(world, attempt.lease).revision, states)
        )
        if records is None:
            return "is overtaken", world._replace(attempts=rest)
        after = self._recorded(world, records)
        try:
            batch = own_revision(self.view(after), DAY, self.batch(after, attempt.lease).revision)
        except FencepostError:
            return "is overtaken", after._replace(attempts=rest)
        if self.rules.differing(batch.plan.tables, states_of(attempt.reads)):
            return "finds other contents recorded", self._with(after, rest, attempt._replace(phase=LOOKS))
        return "records", self._with(after, rest, attempt._replace(phase=WRITES, uses=attempt.reads))

    def _write(self, world: World, attempt: Attempt, rest: tuple[Attempt, ...]) -> Iterator[tuple[str, World]]:
        """The job: each task-partition commits once under this lease, and not behind a later one. Then `written`."""
        lease = attempt.lease
        for task, content in enumerate(world.committed[lease]):
            if content is not None:
                if self.compares and content != attempt.uses:
                    yield f"finds other rows in {task}", world._replace(attempts=rest)
            else:
                own = (*world.committed[lease][:task], attempt.uses, *world.committed[lease][task + 1 :])
                own = tuple(sorted(own, key=repr))
                committed = (*world.committed[:lease], own, *world.committed[lease + 1 :])
                yield f"commits {task}", world._replace(committed=committed)
                return  # the other task-partitions are as good
        if None in world.committed[lease]:
            return
        batch = self.batch(world, lease)
        if not batch.plan.tables:  # only where a mutation has it record late
            records = self._ask(
                ("late", world.ledger, lease, attempt.uses),
                lambda: self.rules.record(self.view(world), DAY, batch.revision, states_of(attempt.uses)),
            )
            after = world._replace(attempts=rest) if records is None else self._recorded(world, records)
            yield "records after its write", after
            return
        records = self._ask(("written", world.ledger, lease), lambda: self._written(self.view(world), batch))
        ended = world._replace(attempts=rest)
        yield "records written", ended if records is None else self._recorded(ended, records)

    @staticmethod
    def _written(view: View, batch: Batch) -> tuple[Batch, ...]:
        """The end of a write. Each task-partition of a pipeline that quarantines has sent a record there."""
        lease, kept = batch.require_lease, batch.plan.quarantine
        receipts = [product.a_receipt(task, lease) for task in range(TASKS)]
        if kept:
            receipts = [r.model_copy(update={"topics": {**r.topics, "quarantine": r.topics["out"]}}) for r in receipts]
        written = product.a_written(tuple(receipts), (TASKS * (lease + 1),))
        if kept:
            ends = tuple(end + 1 for end in kept.ends)
            written = written.model_copy(update={"quarantine": makers.a_topic(*ends, topic="quarantine")})
        return record_written(view, DAY, batch.revision, written, receipts)

    # What others do.

    def _published(self, world: World) -> Iterator[tuple[str, World]]:
        latest = self._last(world)
        if latest.state is State.WRITTEN:
            key = ("publish", world.ledger)
            records = self._ask(key, lambda: published(self.view(world), latest))
            assert records is not None, "nothing is in its way"
            yield "the batch is judged and published", self._recorded(world, records)
        for operation in self.operations:
            if latest.state in PASSED and operation not in world.asked:
                records = self._ask(
                    (operation, world.ledger), lambda word=operation: self._planned(self.view(world), word)
                )
                if records:
                    asked = world._replace(asked=world.asked | {operation})
                    yield f"a {operation} is asked for", self._recorded(asked, records)

    def _planned(self, view: View, word: str) -> tuple[Batch, ...]:
        if word == "replay":
            return decide_replay(view, DAY, "p", SOURCES, the_facts(view, True))
        facts = the_facts(view, False, quarantines="replay" in self.operations)
        return decide_plan(view, DAY, facts, reprocess=word == "reprocess")

    def _ask(self, key: Any, decide: Callable[[], tuple[Batch, ...]]) -> tuple[Batch, ...] | None:
        """What is decided on that ledger; None where it is refused."""
        if key not in self._decided:
            try:
                self._decided[key] = decide()
            except FencepostError:
                self._decided[key] = None
        return self._decided[key]

    def _recorded(self, world: World, records: tuple[Batch, ...] | None) -> World:
        if not records:
            return world
        ledger = self.ledgers.after(world.ledger, records)
        batches, nothing = self.ledgers.batches[ledger], (None,) * TASKS
        gone = {n for n, batch in enumerate(batches) if batch.state is State.SUPERSEDED}
        kept = [nothing if n in gone else committed for n, committed in enumerate(world.committed)]
        attempts = tuple(a for a in world.attempts if a.phase == LOOKS or a.lease not in gone)
        new = (nothing,) * (len(batches) - len(kept))
        return world._replace(ledger=ledger, committed=(*kept, *new), attempts=attempts)

    # Promises.

    def fault(self, world: World) -> Fault | None:
        for batch in self.ledgers.batches[world.ledger]:
            contents = set(world.committed[batch.require_lease])
            if batch.state not in DONE or batch.written is None:
                continue
            name = f"revision {batch.revision}"
            if any(content and NO_ROWS in content for content in contents):
                return Fault("empty", f"{name} is {batch.state}, and was written with tables that have no rows")
            if len(contents) > 1:
                return Fault("mixed", f"{name} is {batch.state}, and was written with {sorted(contents, key=repr)}")
            if self.checks_record and {recorded_in(batch)} != contents:
                return Fault("recorded otherwise", f"{name} was written with {contents}, and has {recorded_in(batch)}")
        return None

    def show(self, world: World) -> str:
        revisions = "; ".join(
            f"{b.revision} {b.state} {recorded_in(b) or 'nothing'} recorded, {list(world.committed[b.require_lease])}"
            for b in self.ledgers.batches[world.ledger]
        )
        drivers = [f"{PHASES[a.phase]} {a.lease + 1} {a.reads}" for a in world.attempts]
        return f"tables {world.tables}; {revisions}; drivers {drivers}"

    # Liveness.

    def settled(self, world: World) -> bool:
        """Published; or the model has no revision left for what changes."""
        return self._last(world).state is State.PUBLISHED or len(world.committed) >= self.revisions > 2

    def ordinary(self, world: World, label: str) -> bool:
        return not label.endswith(("dies", "changes", "asked for"))


@cache
def states_of(contents: Contents) -> tuple[SideTableState, ...]:
    """The states of tables with these contents."""
    return tuple(makers.a_table(f"table_{n}", f"content-{content}") for n, content in enumerate(contents))


def recorded_in(batch: Batch) -> Contents:
    """The contents that are recorded for the batch."""
    return tuple(int(state.fingerprint.removeprefix("content-")) for state in batch.plan.tables)


def published(view: View, batch: Batch) -> tuple[Batch, ...]:
    """The batch, judged and published at once."""
    judged = record_verdict(view, DAY, batch.revision, makers.a_verdict(Outcome.PASSED))
    return makers.publish_prepared(view.updated(judged), DAY, makers.NOW)


def the_facts(view: View, is_addition: bool, quarantines: bool = False) -> Any:
    """What a plan depends on: two partitions with a record each, and two of quarantine."""
    latest = view.last(DAY)
    before = latest.plan.quarantine if latest else None
    ends = tuple(end + (latest.state in DONE) for end in before.ends) if before and latest else (0,) * TASKS
    none, one = (0,) * TASKS, (1,) * TASKS
    source = SourceFacts(topic="in", topic_id="in-1", earliest=none, stable=one, by_start=none, by_end=one)
    return makers.the_facts(
        neighbours=Neighbours.of(view, DAY, ["in"]),
        source=None if is_addition else source,
        link=newest_link(view, DAY) if is_addition else None,
        quarantine=makers.a_topic(*ends, topic="quarantine") if quarantines or before else None,
    )


def of(bounds: Mapping[str, Any], rules: Rules | None = None) -> SideTables:
    """The model with these bounds."""
    return SideTables(rules or Rules(), **bounds)
