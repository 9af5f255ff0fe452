"""Processor seconds by process: whose they are, medians for a million rows, and what is kept. No Kafka, no Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil
import pytest

from benchmarks.measure import Side, rounds_of
from benchmarks.processor import (
    ALL,
    BROKER,
    COMMAND,
    DRIVER,
    JVM,
    MOST_WARM_UP,
    WORKERS,
    Meter,
    Seen,
    Spent,
    adopting,
    by_kind,
    commands,
    descendants,
    load,
    look,
    spent,
    table,
)
from benchmarks.results import merged, save, without

# driver 10, JVM 11, its daemon 12 with a worker 13; broker 20, and a stranger
SEEN = {
    10: Seen(parent=1, own=3.0, waited=9.0),
    11: Seen(parent=10, own=5.0, waited=0.5),
    12: Seen(parent=11, own=0.1, waited=0.2),
    13: Seen(parent=12, own=2.0, waited=0.0),
    20: Seen(parent=1, own=4.0, waited=0.0),
    30: Seen(parent=1, own=99.0, waited=99.0),
}


def test_each_process_counts_for_its_kind_and_strangers_for_none() -> None:
    found = by_kind(SEEN, jvm=11, driver=10, broker=20)
    assert found == pytest.approx({JVM: 5.0, DRIVER: 3.0, WORKERS: 0.5 + 0.1 + 0.2 + 2.0, BROKER: 4.0})
    assert descendants(SEEN, 11) == {12, 13}


def test_a_worker_that_ends_keeps_its_seconds() -> None:
    ended = {**SEEN, 12: Seen(parent=11, own=0.1, waited=0.2 + 2.5)}
    del ended[13]
    before, after = (by_kind(seen, jvm=11, driver=10, broker=20)[WORKERS] for seen in (SEEN, ended))
    assert after - before == pytest.approx(0.5)


def test_the_line_of_a_side_has_medians_for_a_million_rows() -> None:
    each = [{JVM: 2.0, BROKER: 1.0}, {JVM: 4.0, BROKER: 0.0}, {JVM: 3.0, BROKER: 9.0}]
    line = spent("B1", "case", "side", each, 2_000_000)
    assert line.seconds == {JVM: 1.5, BROKER: 0.5, ALL: 2.0}  # the sums are 3, 4 and 12
    assert line.rounds == 3


def test_only_rounds_that_count_are_watched_and_each_side_by_its_own_sample() -> None:
    clock = {"a": 0.0, "b": 100.0}
    running: list[str] = []

    def side(name: str) -> Side:
        @contextmanager
        def prepared() -> Iterator[Callable[[], object]]:
            clock[name] += 1000  # preparing is not counted

            def job() -> None:
                running.append(name)
                clock[name] += 1 if name == "a" else 2

            yield job

        return prepared

    meter = Meter({name: lambda name=name: {JVM: clock[name]} for name in clock})  # type: ignore[misc]
    list(rounds_of({"a": side("a"), "b": side("b")}, 2, watched=meter.watch, warm=meter.warm))
    assert len(running) == 6
    assert meter.each == {"a": [{JVM: 1.0}] * 2, "b": [{JVM: 2.0}] * 2}
    assert [(line.side, line.rounds) for line in meter.spent("B1", "case", 10)] == [("a", 2), ("b", 2)]


@pytest.mark.parametrize(
    ("a", "b", "rounds"),
    [
        ([9.0, 5.0, 4.9], [3.0, 3.0, 3.0], 3),
        ([5.0, 5.0, 5.0, 5.0], [9.0, 7.0, 5.0, 4.8], 4),
        ([float(n) for n in range(1, 30)], [1.0] * 29, MOST_WARM_UP),
    ],
    ids=["the one is slower to settle", "the other is", "one never does"],
)
def test_at_volume_a_warm_up_lasts_until_two_rounds_in_a_row_agree_on_each_side(
    a: list[float], b: list[float], rounds: int
) -> None:
    meter = Meter({}, steady=0.05)
    seconds = zip(a, b, strict=True)
    for number in range(1, rounds + 1):
        one, other = next(seconds)
        meter.each.setdefault("a", []).append({JVM: one})
        meter.each.setdefault("b", []).append({JVM: other - 1, BROKER: 1.0})
        assert meter.warm() == (number == rounds)
    assert meter.each == {}


def test_where_wall_and_processor_time_disagree_the_report_says_who_left_the_processors_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    meter = Meter({}, each={"ours": [{JVM: 16.0, BROKER: 2.0}] * 3, "theirs": [{JVM: 10.0}] * 3})
    rounds = [{"ours": 10.0, "theirs": 10.0}] * 3
    assert meter.ratios("ours", "theirs") == [1.8] * 3
    told = "By processor time 1.80: the 2 cores were idle 10% of it in ours and 50% of it in theirs."
    assert meter.differs(rounds, "ours", "theirs") == told
    assert meter.differs([{"ours": 10.0, "theirs": 5.3}] * 3, "ours", "theirs") == ""


def test_a_side_that_ran_again_replaces_its_own_line_only(tmp_path: Path) -> None:
    file = tmp_path / "processor.json"
    assert load(file) == []
    save([Spent("B1", "small", side, 3, {JVM: 1.0, ALL: 1.0}) for side in ("ours", "theirs")], file)
    again = [Spent("B1", "small", "theirs", 5, {JVM: 2.0, ALL: 2.0}), Spent("B13", "small", "theirs", 5, {ALL: 3.0})]
    save(merged(load(file), again), file)
    kept = load(file)
    assert [(line.id, line.side, line.rounds) for line in kept] == [
        ("B1", "ours", 3),
        ("B1", "theirs", 5),
        ("B13", "theirs", 5),
    ]
    assert [line.id for line in without(kept, ["B1"])] == ["B13"]
    assert table(kept, "t").row_count == 3


@pytest.mark.parametrize("ignoring", [False, True])
def test_a_command_counts_with_descendants_that_outlive_it_or_that_nobody_waits_for(ignoring: bool) -> None:
    """A process of its own works on after it, as a JVM does whose driver has ended; Spark's daemon ignores SIGCHLD."""
    busy = "import time\nwhile time.process_time() < 0.5: pass"
    command = f"import signal, subprocess, sys; begin = lambda: subprocess.Popen([sys.executable, '-c', {busy!r}])\n"
    command += "signal.signal(signal.SIGCHLD, signal.SIG_IGN); begin().wait()" if ignoring else "begin()"
    own, before = os.getpid(), set(psutil.Process().children())
    meter = Meter({"side": partial(commands, broker=own)}, adopting)
    with meter.watch("side"):
        subprocess.run([sys.executable, "-c", command], check=True)
    assert meter.each["side"][0][COMMAND] >= 0.5
    assert set(psutil.Process().children()) <= before


def test_this_process_is_seen_with_its_parent() -> None:
    seen = look()
    assert seen[os.getpid()].parent == os.getppid()
    assert seen[os.getpid()].own > 0
