"""Writers of one lane: attempts, zombies, speculative twins, restarted drivers, expiring transactions and marks.

Promises, for every interleaving and with a crash after every step:

- at most one transaction of a lease commits, per task-partition (`doubled`);
- of a batch that is recorded as written, each row is committed once between its recorded ends, and a reader with
  read_committed who waits for the last stable offset sees it (`doubled`, `lost`);
- the ledger never has to refuse receipts that honest writers bring (`refused`);
- once a batch is written, no transaction of it or of an earlier one is open and holds readers back (`held`). Looked at under
  `widths`: batches of the lane have different numbers of task-partitions. Left out: a zombie that begins under an id that a newer
  batch has fenced and does not use. Its transaction holds readers back until it times out.

What is modelled. The broker: per task-partition one output log of open, prepared and committed transactions (an aborted
one leaves no trace), epochs of transactional ids, the lane group's marks. A commit is decided first and its markers are
written later, as Kafka does; `init_transactions` settles both. The lane passes from lease to lease: the next batch is
planned when the one before is written, or is pushed aside at any moment (revised, skipped) while its writers go on. A
retry's driver looks for all marks at any moment, whatever transactions are under way.

Under `moves` the layout is `output` and the transform differs between attempts: the rows of half of the jobs lie in other
task-partitions. A place then stands for a job. An attempt that finds its lease's mark compares its rows with it, no driver goes
by marks alone, and a batch is recorded on the answers of one job.

Attempts are unbounded in number: an attempt that ended or crashed leaves its place to a new one, so `places` bounds only
how many of a lease are alive at a time. An attempt of any lease planned so far may start at any time: it is a retry, a
speculative twin, a second driver's, or a zombie of a driver long dead. A stalled attempt is one that takes no step.

Two reductions, both sound. Places of one lease are interchangeable, so they are kept sorted. A fenced attempt that has
read its mark and not yet committed is taken out at once: nothing it can still do is accepted by a broker
(`linger=True` keeps it, and a test shows that nothing else is found).

Left out: several output partitions per task-partition (one transaction covers them; it commits in all or none), and
record loss by Kafka itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from fencepost.protocol.marks import MarkState
from model import product
from model.product import Lease
from model.search import Fault

# Where an attempt stands; its code in a state is twice this, plus 1 when it is fenced.
IDLE, INITED, DECIDED, PRODUCED, SENT, COMMITTED, UNMARKED = range(7)
STANDS = ("-", "inited", "decided", "produced", "sent", "committed", "unmarked")
# A transaction in the log. SENT: its mark is in it.
OPEN, MARKED, PREPARED, DONE = range(4)
SHOWN = ("open", "open+mark", "prepared", "committed")

Answer = Callable[[Lease | None, Lease], MarkState]


@dataclass(frozen=True)
class Rules:
    """The protocol's rules; a mutation takes one out."""

    standing: Answer = product.standing_of
    mark_in_transaction: bool = True
    mark_first: bool = False  # only where it is not in the transaction: before the commit, not after
    init_first: bool = True  # ... and the mark is read after it
    stable_id: bool = True
    id_of: Callable[[tuple[int, ...], int], int] = lambda uses, t: (
        t
    )  # of a task-partition, among those that a batch uses
    end_is_high_watermark: bool = True
    wait_for_stable: bool = True
    check_receipts: bool = True
    compares: bool = True  # an attempt that finds its lease's mark compares its rows with what is committed
    marks_alone: bool = False  # all marks are taken for a job's answers where rows may move, too
    one_job: bool = True  # all answers are of one job
    fence_up_to: Callable[[tuple[tuple[int, bool, bool], ...]], int] = product.fence_up_to
    revise_old: bool = True
    malformed_receipts: bool = True  # the driver waits for the receipts of its second job
    gate: bool = False  # count as broken only what validate's own comparison with the receipts would let pass


class Planned(NamedTuple):
    """A planned batch: the output's ends then, those measured by its driver, those recorded; its age; ids still to be fenced."""

    start: tuple[int, ...]
    measured: tuple[int, ...] | None
    end: tuple[int, ...] | None
    age: int
    fence: int = 0


class Task(NamedTuple):
    """What concerns one task-partition.

    `log` holds (lease, rows, status, place or -1); `marks` the lease of each key's mark, or None; `places` the attempts;
    `answers` per lease the lease of the receipt its driver got, or -1; where rows move, plus the leases times the job.
    """

    log: tuple[tuple[int, int, int, int], ...]
    marks: tuple[int | None, ...]
    places: tuple[int, ...]
    answers: tuple[int, ...]


State = tuple[tuple[Planned, ...], tuple[Task, ...]]


class Writers:
    """The model. `keys[lease]` is the mark's key of each lease: a pipeline may change its layout between two batches.

    `ledger_lost` says that the last lease is of another ledger than those before: its offsets begin again, and so do the
    names of batches. `stopped`: and that nothing of the lost one's runs is alive by then. Leases in `empty` have no record to
    read: no attempt of theirs runs, no id is fenced, and the driver records them as written. The last `malformed` task-partitions
    are those of a second job, which writes malformed records to quarantine once the first job has answered, under the ids of the
    first job's task-partitions. `widths` gives the number of task-partitions of each lease, or `uses` says which ones: a source
    came or left.
    """

    def __init__(
        self,
        rules: Rules | None = None,
        *,
        tasks: int = 1,
        leases: int = 3,
        places: int = 2,
        expiry: bool = False,
        long_jobs: bool = False,
        keys: tuple[int, ...] = (),
        ledger_lost: bool = False,
        stopped: bool = False,
        linger: bool = False,
        empty: tuple[int, ...] = (),
        malformed: int = 0,
        moves: bool = False,
        widths: tuple[int, ...] = (),
        uses: tuple[tuple[int, ...], ...] = (),
    ) -> None:
        self.rules = rules or Rules()
        self.results, self.malformed = tasks - malformed, malformed
        self.stopped, self.moves = stopped, moves
        self.tasks, self.leases, self.per_lease = tasks, leases, places
        self.expiry, self.long_jobs, self.linger = expiry, long_jobs, linger
        self.empty = empty
        self.keys = keys or (0,) * leases
        self.fences, self.widths = bool(widths), widths or (tasks,) * leases
        self.uses = uses or tuple(tuple(range(width)) for width in self.widths)
        self.ids = tuple({t: self.rules.id_of(used, t) for t in used} for used in self.uses)
        self.numbers: tuple[Lease, ...] = tuple((0, n) for n in range(leases))
        self.names = tuple(range(leases))
        if ledger_lost:
            self.numbers = (*self.numbers[:-1], (1, 0))
            self.names = (*self.names[:-1], 0)
        self.sorted = self.rules.stable_id and not moves
        self.lease_of = tuple(n // places for n in range(leases * places))
        labels = [
            f"task {t}, lease {n // places}, attempt {n % places}: "
            for t in range(tasks)
            for n in range(leases * places)
        ]
        count = leases * places
        self.attempts = [labels[t * count : (t + 1) * count] for t in range(tasks)]
        self._orders: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._labels: dict[tuple[int, int, str], str] = {}

    @property
    def start(self) -> list[State]:
        nothing = Task((), (None,) * (max(self.keys) + 1), (0,) * len(self.lease_of), (-1,) * self.leases)
        return [((), (nothing,) * self.tasks)]

    # Steps.

    def steps(self, state: State) -> Iterator[tuple[str, State | Fault]]:
        plans, tasks = state
        yield from self._driver_steps(plans, tasks)
        for t, task in enumerate(tasks):
            before, behind = tasks[:t], tasks[t + 1 :]
            for label, changed, moved in self._broker_steps(t, task, plans):
                yield label, (moved, (*before, changed, *behind))
            for place in range(len(plans) * self.per_lease):
                if self._waits(t, place, tasks) or self._may_not_start(t, task, place, plans):
                    continue
                for word, changed, moved in self._attempt_steps(t, task, place, plans):
                    after = (moved, (*before, changed, *behind))
                    yield (
                        self._label(t, place, word),
                        self._of_one_id(t, after) if word == "init_transactions" else after,
                    )

    def _waits(self, t: int, place: int, tasks: tuple[Task, ...]) -> bool:
        """Whether it is an attempt of the second job that cannot start yet: the first one has not answered."""
        if t < self.results or tasks[t].places[place]:
            return False
        return any(task.answers[self.lease_of[place]] == -1 for task in tasks[: self.results])

    def _may_not_start(self, t: int, task: Task, place: int, plans: tuple[Planned, ...]) -> bool:
        """Whether no attempt begins there: its batch has no such task-partition, or has to fence first; or it would be a zombie
        under an id that a newer batch has fenced and does not use."""
        lease = self.lease_of[place]
        if task.places[place]:
            return False
        if t not in self.ids[lease] or plans[lease].fence:
            return True
        later = range(lease + 1, len(plans))
        return self.fences and any(t >= self.widths[n] and not plans[n].fence for n in later if n not in self.empty)

    def _of_one_id(self, t: int, state: State) -> State:
        """The state after an init under the id of this task-partition: another of the other job may have the same id."""
        plans, tasks = state
        for other in (t + self.results, t - self.results):
            if self.malformed and 0 <= other < self.tasks and other != t:
                plans, tasks = self._settle_all(other, plans, tasks)
        return plans, tasks

    def _settle_all(self, t: int, plans: tuple[Planned, ...], tasks: tuple[Task, ...]) -> State:
        """Whatever is open of that task-partition is settled, and all who hold its id are fenced."""
        task, plans = self._init(t, tasks[t], -1, plans)
        return plans, _with(tasks, t, task._replace(places=self._in_order(task.places)))

    def _label(self, t: int, place: int, word: str) -> str:
        key = (t, place, word)
        if key not in self._labels:
            self._labels[key] = self.attempts[t][place] + word
        return self._labels[key]

    def _driver_steps(self, plans: tuple[Planned, ...], tasks: tuple[Task, ...]) -> Iterator[tuple[str, State | Fault]]:
        """Plan the next batch, measure the output's ends once all receipts are in, record `written`; time passes."""
        if len(plans) < self.leases:
            how = "takes the lane" if not plans or plans[-1].end is not None else "pushes the one before aside"
            ends = tuple(len(task.log) for task in tasks)
            begun = tuple(self._stop(task) for task in tasks) if self._gone_by(len(plans), 0) else tasks
            made = Planned(ends, None, None, 0, self._to_fence(plans))
            yield f"plan: lease {len(plans)} {how}", ((*plans, made), begun)
        for lease, plan in enumerate(plans):
            if self.expiry and plan.age < 2 and (lease == 0 or plans[lease - 1].age > plan.age):
                yield f"time passes for lease {lease}", self._aged(plans, tasks, lease)
            if plan.end is not None or (plan.age == 2 and not self._outlive):
                continue
            if len(plans) > lease + 1:
                continue  # pushed aside: `written` is refused, or finds the batch gone
            if plan.fence:
                settled, moved = tasks, (*plans[:lease], plan._replace(fence=0))
                for t in range(self.widths[lease], plan.fence):
                    moved, settled = self._settle_all(t, moved, settled)
                yield f"driver of lease {lease}: fences ids of earlier, wider batches", (moved, settled)
                continue
            if lease in self.empty:
                moved = (*plans[:lease], plan._replace(end=tuple(self._end(task.log) for task in tasks)))
                yield f"driver of lease {lease}: record written, without a row", (moved, tasks)
                continue
            found = self._found(tasks, lease) if not self.moves or self.rules.marks_alone else tasks
            if found != tasks:
                yield f"driver of lease {lease}: finds the marks of all, runs no job", (plans, found)
            used = self.uses[lease]
            asked = used if self.rules.malformed_receipts else [t for t in used if t < self.results]
            receipts = tuple(tasks[t].answers[lease] for t in asked)
            jobs = {answer // self.leases for answer in receipts}
            if -1 not in receipts and (len(jobs) == 1 or not self.rules.one_job):
                named = tuple(self.numbers[answer % self.leases] for answer in receipts)
                refusal = None
                if self.rules.check_receipts:
                    refusal = product.recorded(self.numbers[lease], named, len(used) - self.malformed, self.malformed)
                if refusal is not None:
                    yield f"driver of lease {lease}: all receipts are in", Fault("refused", refusal)
                    continue
                ends = tuple(self._end(task.log) for task in tasks)
                if ends != plan.measured:
                    moved = (*plans[:lease], plan._replace(measured=ends), *plans[lease + 1 :])
                    yield f"driver of lease {lease}: measure the output's ends", (moved, tasks)
            if plan.measured is not None:
                moved = (*plans[:lease], plan._replace(measured=None, end=plan.measured), *plans[lease + 1 :])
                yield f"driver of lease {lease}: record written", (moved, tasks)

    def _found(self, tasks: tuple[Task, ...], lease: int) -> tuple[Task, ...]:
        """What a driver knows that has looked for its marks without init: all of a job's receipts, or none more than before.

        It looks for those of its second job once it has those of the first.
        """
        after = list(tasks)
        used, results = self.uses[lease], len(self.uses[lease]) - self.malformed
        for job in (used[:results], used[results:]):
            before = tuple(after)
            for t in job:
                mark = tasks[t].marks[self.keys[lease]]
                if mark is None or self.rules.standing(self.numbers[mark], self.numbers[lease]) is not MarkState.DONE:
                    return before
                after[t] = tasks[t]._replace(answers=_with(tasks[t].answers, lease, mark))
        return tuple(after)

    def _to_fence(self, plans: tuple[Planned, ...]) -> int:
        """How far the next batch's driver has to fence ids; 0 where it has none to fence."""
        lease = len(plans)
        if not self.fences or lease in self.empty:
            return 0
        before = tuple((self.widths[n], plan.end is not None, n in self.empty) for n, plan in enumerate(plans))
        found = self.rules.fence_up_to(before)
        return found if found > self.widths[lease] else 0

    def _gone_by(self, newest: int, lease: int) -> bool:
        """Whether the attempts of a lease are dead for good when the newest one is planned."""
        return self.stopped and self.numbers[lease][0] != self.numbers[newest][0]

    def _stop(self, task: Task) -> Task:
        """Every attempt dies, and its transaction is left to time out."""
        log = tuple((le, r, s, -1) for le, r, s, _ in task.log)
        return task._replace(log=log, places=(0,) * len(task.places))

    @property
    def _outlive(self) -> bool:
        """Whether attempts of a batch may still start when its marks may be gone."""
        return self.long_jobs or not self.rules.revise_old

    def _end(self, log: tuple[tuple[int, int, int, int], ...]) -> int:
        return len(log) if self.rules.end_is_high_watermark else _stable(log)

    def _aged(self, plans: tuple[Planned, ...], tasks: tuple[Task, ...], lease: int) -> State:
        plan = plans[lease]
        after = plan._replace(age=plan.age + 1)
        if after.age == 2 and not self._outlive:
            # A job lasts less than a tenth of the retention after its driver looked: by now all of it has ended.
            after = after._replace(measured=None)
            low, high = lease * self.per_lease, (lease + 1) * self.per_lease
            nobody = (0,) * self.per_lease
            tasks = tuple(
                task._replace(
                    places=task.places[:low] + nobody + task.places[high:],
                    log=tuple((le, r, s, -1 if le == lease else o) for le, r, s, o in task.log),
                    answers=(*task.answers[:lease], -1, *task.answers[lease + 1 :])
                    if plan.end is None
                    else task.answers,
                )
                for task in tasks
            )
        return (*plans[:lease], after, *plans[lease + 1 :]), tasks

    def _broker_steps(
        self, t: int, task: Task, plans: tuple[Planned, ...]
    ) -> Iterator[tuple[str, Task, tuple[Planned, ...]]]:
        """Markers of a decided commit, time-out of an open transaction, expiry of marks and ids."""
        for n, (lease, _, status, _) in enumerate(task.log):
            if status == PREPARED:
                yield f"broker: writes the markers of lease {lease}", self._settled(task, n), plans
            elif status < PREPARED:
                after, moved = self._aborted(task, n, plans, t)
                if self.rules.stable_id:
                    after = after._replace(places=self._in_order(self._fenced(t, after.places, -1, lease)))
                else:
                    place = task.log[n][3]
                    if place >= 0:
                        after = after._replace(places=_with(after.places, place, 0))
                yield f"broker: transaction of lease {lease} times out", after, moved
        if not self.expiry:
            return
        for key, mark in enumerate(task.marks):
            if mark is not None and plans[mark].age == 2:
                word = f"broker: mark of lease {mark} expires"
                yield word, task._replace(marks=_with(task.marks, key, None)), plans
        if plans and plans[0].age == 2 and all(status == DONE for _, _, status, _ in task.log):
            fenced = self._in_order(self._fenced(t, task.places, -1))
            if fenced != task.places:
                yield f"broker: transactional id of task {t} expires", task._replace(places=fenced), plans

    def _attempt_steps(
        self, t: int, task: Task, place: int, plans: tuple[Planned, ...]
    ) -> Iterator[tuple[str, Task, tuple[Planned, ...]]]:
        """One attempt's next step, or its crash."""
        stands, fenced = divmod(task.places[place], 2)
        lease, rules = self.lease_of[place], self.rules
        if stands == IDLE:
            if lease in self.empty or self._gone_by(len(plans) - 1, lease):
                return
            if self.sorted and place % self.per_lease and not task.places[place - 1]:
                return  # the place before is as good
            if plans[lease].age == 2 and not self._outlive:
                return
            if not rules.init_first:
                if not self._unstable(task, lease):
                    yield from self._read(t, task, place, plans, "reads its mark")
                return
            after, moved = self._init(t, task, place, plans)
            yield "init_transactions", self._at(after, place, INITED), moved
            return
        yield "crashes", self._gone(task, place), plans
        if stands == INITED:
            if not rules.init_first:
                after, moved = self._init(t, task, place, plans)
                yield "init_transactions", self._at(after, place, DECIDED), moved
            elif not self._unstable(task, lease):
                yield from self._read(t, task, place, plans, "reads its mark")
            return
        if stands == COMMITTED:
            yield "its receipt reaches the driver", self._answered(task, place, lease), plans
            return
        if stands == UNMARKED:
            marks = _with(task.marks, self.keys[lease], lease)
            yield "commits its mark on its own", self._at(task._replace(marks=marks), place, COMMITTED), plans
            return
        if fenced:
            yield "is refused: fenced", self._gone(task, place), plans
            return
        owner = -1 if rules.stable_id else place
        if stands == DECIDED:
            if rules.gate and sum(le == lease for le, *_ in task.log) > 1:
                return  # two copies are as many as it takes
            after = task._replace(log=(*task.log, (lease, self._rows(t, place), OPEN, owner)))
            yield "begins and produces", self._at(after, place, PRODUCED), plans
            return
        n = next(i for i, (le, _, s, o) in enumerate(task.log) if s < PREPARED and o == owner and le == lease)
        if stands == PRODUCED:
            if rules.mark_in_transaction:
                after = task._replace(log=_status(task.log, n, MARKED))
                yield "sends its mark into the transaction", self._at(after, place, SENT), plans
            elif rules.mark_first:
                marks = _with(task.marks, self.keys[lease], lease)
                yield "commits its mark on its own", self._at(task._replace(marks=marks), place, SENT), plans
            else:
                after = task._replace(log=_status(task.log, n, PREPARED))
                yield "commit_transaction", self._at(after, place, UNMARKED), plans
        else:
            after = task._replace(log=_status(task.log, n, PREPARED))
            yield "commit_transaction", self._at(after, place, COMMITTED), plans

    # What steps are made of.

    def _init(self, t: int, task: Task, place: int, plans: tuple[Planned, ...]) -> tuple[Task, tuple[Planned, ...]]:
        """Settle whatever the id has under way, and fence everybody else who holds it. Without a place: of all ids."""
        if not self.rules.stable_id:
            return task, plans
        lease = None if place < 0 else self.lease_of[place]
        for n in reversed(range(len(task.log))):
            if lease is not None and self.ids[task.log[n][0]][t] != self.ids[lease][t]:
                continue
            if task.log[n][2] < PREPARED:
                task, plans = self._aborted(task, n, plans, t)
            elif task.log[n][2] == PREPARED:
                task = self._settled(task, n)
        return task._replace(places=self._fenced(t, task.places, place, lease)), plans

    def _rows(self, t: int, place: int) -> int:
        """The rows of a task-partition as a job has them, as bits."""
        return 1 << (self.tasks - 1 - t if self.moves and place % self.per_lease % 2 else t)

    def _fenced(self, t: int, places: tuple[int, ...], but: int, lease: int | None = None) -> tuple[int, ...]:
        """The places after an init by `but`, each still where it was: the caller puts them in order. With a lease, of those
        that hold its id."""
        held, uses = [], None if lease is None else self.ids[lease][t]
        for n, code in enumerate(places):
            stands = code >> 1
            differs = uses is not None and stands != IDLE and self.ids[self.lease_of[n]][t] != uses
            if n == but or differs or stands in (IDLE, COMMITTED, UNMARKED):
                held.append(code)
            elif stands == INITED:
                # Before its init an attempt holds no epoch that could be fenced.
                held.append(code | 1 if self.rules.init_first else code)
            else:
                held.append(code | 1 if self.linger else 0)
        return tuple(held)

    def _read(
        self, t: int, task: Task, place: int, plans: tuple[Planned, ...], word: str
    ) -> Iterator[tuple[str, Task, tuple[Planned, ...]]]:
        lease = self.lease_of[place]
        mark = task.marks[self.keys[lease]]
        answer = self.rules.standing(None if mark is None else self.numbers[mark], self.numbers[lease])
        if answer is MarkState.WRITE:
            word = f"{word}: not written"
            fenced = task.places[place] & 1
            if not self.rules.init_first:
                yield word, self._at(task, place, INITED), plans
            elif fenced and not self.linger:
                yield f"{word}; is refused: fenced", self._gone(task, place), plans
            else:
                yield word, self._at(task, place, DECIDED, fenced), plans
        elif answer is MarkState.DONE:
            assert mark is not None
            if (
                self.moves
                and self.rules.compares
                and not product.are_the_same(_committed(task, mark), self._rows(t, place))
            ):
                yield f"{word}: done with other rows, stops for good", self._gone(task, place), plans
                return
            yield f"{word}: done already, answers", self._answered(task, place, mark), plans
        elif task.places[place]:
            yield f"{word}: superseded, stops", self._gone(task, place), plans

    def _unstable(self, task: Task, lease: int) -> bool:
        """Whether a transaction that carries this mark is under way: Kafka answers UNSTABLE_OFFSET_COMMIT."""
        if not self.rules.mark_in_transaction:
            return False
        key = self.keys[lease]
        return any(s in (MARKED, PREPARED) and self.keys[le] == key for le, _, s, _ in task.log)

    def _settled(self, task: Task, n: int) -> Task:
        lease, marks = task.log[n][0], task.marks
        if self.rules.mark_in_transaction:
            marks = _with(marks, self.keys[lease], lease)
        return task._replace(log=_status(task.log, n, DONE), marks=marks)

    @staticmethod
    def _aborted(task: Task, n: int, plans: tuple[Planned, ...], t: int) -> tuple[Task, tuple[Planned, ...]]:
        """Take a transaction out of the log; ends beyond it move down with what follows."""

        def lower(ends: tuple[int, ...] | None) -> tuple[int, ...] | None:
            return None if ends is None else _with(ends, t, ends[t] - (ends[t] > n))

        moved = tuple(Planned(lower(p.start) or (), lower(p.measured), lower(p.end), p.age, p.fence) for p in plans)
        return task._replace(log=task.log[:n] + task.log[n + 1 :]), moved

    def _at(self, task: Task, place: int, stands: int, fenced: int = 0) -> Task:
        return task._replace(places=self._in_order(_with(task.places, place, stands * 2 + fenced)))

    def _gone(self, task: Task, place: int) -> Task:
        log = task.log
        if not self.rules.stable_id:
            log = tuple((le, r, s, -1 if o == place else o) for le, r, s, o in log)
        return task._replace(log=log, places=self._in_order(_with(task.places, place, 0)))

    def _answered(self, task: Task, place: int, named: int) -> Task:
        lease, job = self.lease_of[place], place % self.per_lease if self.moves else 0
        return self._gone(task, place)._replace(answers=_with(task.answers, lease, named + job * self.leases))

    def _in_order(self, places: tuple[int, ...]) -> tuple[int, ...]:
        if not self.sorted or self.per_lease == 1:
            return places
        found = self._orders.get(places)
        if found is None:
            size = self.per_lease
            found = tuple(
                code for low in range(0, len(places), size) for code in sorted(places[low : low + size], reverse=True)
            )
            self._orders[places] = found
        return found

    # Promises.

    def fault(self, state: State) -> Fault | None:
        plans, tasks = state
        for lease, plan in enumerate(plans):
            for t, task in enumerate(tasks):
                copies = sum(1 for le, _, s, _ in task.log if le == lease and s >= PREPARED)
                if copies > 1 and not self.rules.gate:
                    return Fault("doubled", f"row {t} of lease {lease} is committed {copies} times")
            if plan.end is None:
                continue
            if (
                self.fences
                and lease not in self.empty
                and any(le <= lease and s < PREPARED for task in tasks for le, _, s, _ in task.log)
            ):
                return Fault("held", f"lease {lease} is written, and a transaction of it or of an earlier one is open")
            for row in range(self.tasks):
                fault = self._seen(tasks, plan, lease, row, 1 << row)
                if fault is not None:
                    return fault
        return None

    def _seen(self, tasks: tuple[Task, ...], plan: Planned, lease: int, row: int, bit: int) -> Fault | None:
        """What validate would read of a written batch, once it would read at all."""
        assert plan.end is not None
        count = 0
        for task, low, high in zip(tasks, plan.start, plan.end, strict=True):
            stable = _stable(task.log)
            if stable < high:
                if self.rules.wait_for_stable:
                    return None
                high = stable
            own = self.names[lease]
            count += sum(1 for le, r, s, _ in task.log[low:high] if self.names[le] == own and r & bit and s == DONE)
        if count == (lease not in self.empty and row in self.ids[lease]) or (
            self.rules.gate and not product.gate_agrees(1, count)
        ):
            return None
        where = f"between the ends recorded for lease {lease} a reader sees row {row} {count} times"
        return Fault("doubled" if count else "lost", where)

    # Liveness.

    def settled(self, state: State) -> bool:
        """The newest batch is written; or it is too old to go on with, and the model has no lease left to revise it."""
        plans, _ = state
        if not plans:
            return False
        return plans[-1].end is not None or (len(plans) == self.leases and not product.may_be_written(plans[-1].age))

    def ordinary(self, state: State, label: str) -> bool:
        """What goes on by itself: broker, driver, and the newest batch's attempts. Zombies and crashes may cease."""
        if label.startswith("broker: "):
            return "expires" not in label
        plans = state[0]
        if label.startswith("plan: "):
            return not plans or not product.may_be_written(plans[-1].age)
        return f"lease {len(plans) - 1}" in label and "crashes" not in label and "time passes" not in label

    def show(self, state: State) -> str:
        plans, tasks = state
        parts = []
        for t, task in enumerate(tasks):
            log = " ".join(
                f"{le}:{SHOWN[s]}" + (f"(row {r.bit_length() - 1})" if self.tasks > 1 else "")
                for le, r, s, _ in task.log
            )
            at = " ".join(
                f"{self.lease_of[n]}:{STANDS[code >> 1]}{'!' if code & 1 else ''}"
                for n, code in enumerate(task.places)
                if code
            )
            marks = ",".join("-" if m is None else str(m) for m in task.marks)
            parts.append(f"task {t}: log [{log}] mark {marks} attempts [{at}]")
        announced = " ".join(
            f"{n}:{'planned' if p.end is None else f'written{p.start}..{p.end}'}" for n, p in enumerate(plans)
        )
        return f"{announced} | {' | '.join(parts)}"


def _committed(task: Task, lease: int) -> int:
    """The rows that the lease has committed."""
    return next(rows for le, rows, status, _ in task.log if le == lease and status == DONE)


def _stable(log: tuple[tuple[int, int, int, int], ...]) -> int:
    """The last stable offset: where the first transaction that is not settled begins."""
    for n, entry in enumerate(log):
        if entry[2] != DONE:
            return n
    return len(log)


def _status(log: tuple[tuple[int, int, int, int], ...], n: int, status: int) -> tuple[tuple[int, int, int, int], ...]:
    lease, rows, _, owner = log[n]
    return (*log[:n], (lease, rows, status, owner if status < PREPARED else -1), *log[n + 1 :])


def _with(values: tuple, n: int, value: object) -> tuple:  # type: ignore[type-arg]
    return (*values[:n], value, *values[n + 1 :])
