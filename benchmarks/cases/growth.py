"""B5: growth: time of a row, and memory, when a batch is ten times as large."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil

from benchmarks.bench import Bench
from benchmarks.cases.jobs import write_job
from benchmarks.data import Source
from benchmarks.measure import at_most
from benchmarks.results import Result, result

SMALL, LARGE = 1_000_000, 10_000_000
SIZE = 100  # bytes
Peaks = dict[str, list[float]]  # MB by kind of process, one a run


def run(bench: Bench) -> Iterator[Result]:
    """Time per row of the large batch by that of the small one, and the peak resident memory of each run."""
    small, large = bench.source(SMALL, SIZE), bench.source(LARGE, SIZE)
    peaks: dict[str, Peaks] = {"small": {}, "large": {}}
    sides = {
        "small": partial(watched, bench, small, peaks["small"]),
        "large": partial(watched, bench, large, peaks["large"]),
    }
    few, many = f"{small.rows:,}", f"{large.rows:,}"
    rounds = bench.measure(f"B5 {few} and {many} × {SIZE} B", sides)
    each = [(r["large"] / large.rows) / (r["small"] / small.rows) for r in rounds]
    compares = f"time per row: {many} rows ÷ {few} rows"
    yield result("B5", f"growth, {SIZE} B, layout source", each, compares, goal=at_most(1.1))
    for kind, held in peaks["large"].items():
        # Processes keep what they once held, so the small batch's peak is that of its first run, in fresh ones.
        before, after = peaks["small"][kind][0], held[1:]
        worker = kind == "Python worker"
        yield result(
            *("B5", f"peak memory of the {kind}, {many} rows", after, "resident memory"),
            goal=at_most(400) if worker else None,
            unit="MB",
            note=f"{before:.0f} MB with {few} rows",
        )
        if worker:
            each = [peak / before for peak in after]
            yield result(
                *("B5", f"peak memory of the {kind}", each, f"memory: {many} rows ÷ {few} rows"), goal=at_most(1.1)
            )


@contextmanager
def watched(bench: Bench, source: Source, peaks: Peaks) -> Iterator[Callable[[], None]]:
    """The write job, and what its processes held at most while it ran."""
    with write_job(bench, source, layout="source") as job:
        for pids in _processes(bench).values():
            for pid in pids:
                _forget_peak(pid)
        yield job
        for kind, pids in _processes(bench).items():
            peaks.setdefault(kind, []).append(max((_peak(pid) for pid in pids), default=0.0))


def _processes(bench: Bench) -> dict[str, list[int]]:
    """The driver's two processes, and the Python workers: what Spark forks off its daemon, not the daemon itself."""
    jvm = psutil.Process(bench.jvm_pid())
    daemons = [p for p in jvm.children() if p.name().startswith("python")]
    workers = [p.pid for daemon in daemons for p in daemon.children()]
    return {"Python worker": workers, "driver's JVM": [jvm.pid], "driver's Python": [os.getpid()]}


def _forget_peak(pid: int) -> None:
    """The kernel's peak of a process starts again from what it holds now; see proc(5), clear_refs."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def _peak(pid: int) -> float:
    """VmHWM in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0
