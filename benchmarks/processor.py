"""Processor seconds by kind of process: what each side of a case spends on a million rows.

Wall time on a machine with neighbours says little; processor time is steadier. It is taken around the timed function alone.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import psutil
from rich.markup import escape
from rich.table import Table

JVM, DRIVER, WORKERS, COMMAND, BROKER = "driver's JVM", "driver's Python", "Python workers", "whole command", "broker"
KINDS = (JVM, DRIVER, WORKERS, COMMAND, BROKER)
ALL = "all"
PR_SET_CHILD_SUBREAPER = 36
ORPHANS_END = 30.0  # seconds
MOST_WARM_UP = 10  # rounds: with neighbours two may never agree
DISAGREE = 0.1  # of what wall time says

Seconds = Mapping[str, float]  # by kind of process
Sample = Callable[[], Seconds]  # spent since the processes began


@dataclass(frozen=True)
class Seen:
    """A process, the seconds it has spent, and those of the children that it has waited for."""

    parent: int
    own: float
    waited: float


def by_kind(seen: Mapping[int, Seen], jvm: int, driver: int, broker: int) -> dict[str, float]:
    """Seconds of a driver's two processes, of the broker, and of all that descend from the JVM: those are Python workers.

    A worker that has ended counts where its parent waited for it. Spark's daemon does not, and keeps its workers for a minute.
    """
    below = descendants(seen, jvm)
    return {
        JVM: seen[jvm].own,
        DRIVER: seen[driver].own,
        WORKERS: seen[jvm].waited + sum(seen[pid].own + seen[pid].waited for pid in below),
        BROKER: seen[broker].own,
    }


def descendants(seen: Mapping[int, Seen], ancestor: int) -> set[int]:
    """The children of a process, their children, and so on."""
    found: set[int] = set()
    latest = {ancestor}
    while latest := {pid for pid, process in seen.items() if process.parent in latest} - found:
        found |= latest
    return found


def look() -> dict[int, Seen]:
    """All processes of this machine."""
    found = {}
    for process in psutil.process_iter(["ppid", "cpu_times"]):
        times = process.info["cpu_times"]
        if times is not None:
            waited = times.children_user + times.children_system
            found[process.pid] = Seen(process.info["ppid"], times.user + times.system, waited)
    return found


def commands(broker: int) -> dict[str, float]:
    """Seconds of the broker, and of all else on the machine: of a command, with nothing else at work.

    A sum over its descendants lacks Python's workers: Spark's daemon ignores SIGCHLD, so the kernel drops their times.
    """
    times, own = psutil.cpu_times(), look()[broker].own
    return {COMMAND: times.user + times.nice + times.system + times.irq + times.softirq - own, BROKER: own}


@contextmanager
def adopting() -> Iterator[None]:
    """What outlives its parent meanwhile is waited for at the end, so that it counts; see prctl(2), PR_SET_CHILD_SUBREAPER.

    Spark's Python workers do, and a JVM whose driver ends first.

    Raises:
        RuntimeError: one of them did not end.
    """
    libc, own = ctypes.CDLL(None, use_errno=True), psutil.Process()
    before = set(own.children())
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        _, left = psutil.wait_procs(set(own.children()) - before, ORPHANS_END)
        for process in left:
            process.kill()
        libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    if left:
        raise RuntimeError(f"processes that did not end with their command: {', '.join(str(p.pid) for p in left)}")


@dataclass
class Meter:
    """What the sides of a case spent, run by run. `samples` has one of each side; `around` is entered around each run.

    With `steady` two rounds of the warm-up must agree within that part, for every side; without, one round is enough.
    """

    samples: dict[str, Sample]
    around: Callable[[], AbstractContextManager[None]] = nullcontext
    steady: float | None = None
    each: dict[str, list[Seconds]] = field(default_factory=dict)

    @contextmanager
    def watch(self, side: str) -> Iterator[None]:
        """Count what the block spends for this side."""
        before = self.samples[side]()
        with self.around():
            yield
        after = self.samples[side]()
        self.each.setdefault(side, []).append({kind: after[kind] - before[kind] for kind in after})

    def warm(self) -> bool:
        """Whether the rounds up to now were warm-up enough. Then they are forgotten."""
        rounds = max(map(len, self.each.values()), default=0)
        if self.steady is None or rounds >= MOST_WARM_UP or all(map(self._steady, self.each)):
            self.each.clear()
            return True
        return False

    def _steady(self, side: str) -> bool:
        last = self.totals(side)[-2:]
        return len(last) == 2 and max(last) - min(last) <= (self.steady or 0) * max(last)

    def totals(self, side: str) -> list[float]:
        """Seconds of all processes together, run by run."""
        return [sum(seconds.values()) for seconds in self.each[side]]

    def ratios(self, above: str, below: str) -> list[float]:
        """One side's seconds by the other's, run by run."""
        return [a / b for a, b in zip(self.totals(above), self.totals(below), strict=True)]

    def differs(self, rounds: Sequence[Mapping[str, float]], above: str, below: str) -> str:
        """Why wall time (of these rounds) and processor time say different things; an empty text where they do not.

        Of two processors, a side that waits leaves one idle, and its wall time is longer than its work.
        """
        wall = median(one[above] / one[below] for one in rounds)
        work = median(self.ratios(above, below))
        if abs(wall - work) <= DISAGREE * wall:
            return ""
        cores = os.cpu_count() or 1
        idle = {
            side: 1 - median(t / one[side] for t, one in zip(self.totals(side), rounds, strict=True)) / cores
            for side in (above, below)
        }
        told = " and ".join(f"{max(part, 0):.0%} of it in {side}" for side, part in idle.items())
        return f"By processor time {work:.2f}: the {cores} cores were idle {told}."

    def spent(self, id_: str, case: str, rows: int) -> list[Spent]:
        """One line for each side."""
        return [spent(id_, case, side, each, rows) for side, each in self.each.items()]


@dataclass(frozen=True)
class Spent:
    """One line of the table: `seconds` for a million rows by kind of process, each the median over so many rounds."""

    id: str
    case: str
    side: str
    rounds: int
    seconds: Seconds
    commit: str = ""
    machine: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        """What a newer line replaces."""
        return (self.id, self.case, self.side)


def spent(id_: str, case: str, side: str, each: Sequence[Seconds], rows: int) -> Spent:
    """The line of one side. `all` is the median of the rounds' sums, which need not be the sum of the medians."""
    whole = [{**seconds, ALL: sum(seconds.values())} for seconds in each]
    middle = {kind: median(seconds[kind] for seconds in whole) for kind in whole[0]}
    return Spent(id_, case, side, len(each), {kind: round(s * 1e6 / rows, 3) for kind, s in middle.items()})


def load(file: Path) -> list[Spent]:
    """What an earlier run kept; nothing when there was none."""
    return [Spent(**entry) for entry in json.loads(file.read_text(encoding="utf-8"))] if file.exists() else []


def table(lines: Sequence[Spent], title: str) -> Table:
    """For the terminal."""
    shown = Table(title=title, title_justify="left")
    for heading in ("id", "case", "side"):
        shown.add_column(heading)
    for heading in (*KINDS, ALL):
        shown.add_column(heading, justify="right")
    last = ""
    for one in lines:
        figures = (f"{one.seconds[kind]:.2f}" if kind in one.seconds else "" for kind in (*KINDS, ALL))
        shown.add_row(one.id, escape(one.case) if one.case != last else "", escape(one.side), *figures)
        last = one.case
    return shown
