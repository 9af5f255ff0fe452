"""What `make test` says last, how each of its processes ended; and how many of them run at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from side_by_side import AT_ONCE, CLUSTER, LAST, PARTS, ROOT

RUN = """
import sys, side_by_side
side_by_side.PYTEST = [sys.executable, "-c"]
side_by_side.ARCHIVE = [sys.executable, "-c", ""]
parts = {name: [code] for name, code in zip(sys.argv[2::2], sys.argv[3::2])}
side_by_side.PARTS = side_by_side.DEEP = parts
sys.exit(side_by_side.main(sys.argv[1].split()))
"""
CRASHES = """
import faulthandler, sys
faulthandler.enable()
print("before", flush=True)
print("..", end="", flush=True)
faulthandler._sigsegv()
"""
TALKS = f"[print('line', number) for number in range({2 * LAST})]"


def run(only: str = "", **parts: str) -> tuple[int, list[str]]:
    arguments = [argument for part in parts.items() for argument in part]
    ended = subprocess.run(
        [sys.executable, "-c", RUN, only, *arguments],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.returncode, [*ended.stdout.splitlines(), *ended.stderr.splitlines()]


def test_a_part_that_crashed_is_named_last_with_the_place_where_it_crashed() -> None:
    code, lines = run(bad=CRASHES, good=TALKS)
    assert code != 0
    told = lines.index("good  | ended with exit code 0")
    assert lines[told + 1] == "bad   | ..Fatal Python error: Segmentation fault"
    assert lines[-1] == "bad   | was killed by SIGSEGV"
    assert "bad   | before" in lines[:told]
    assert "bad   | before" not in lines[told:]


def test_a_part_that_failed_says_its_last_lines_once_more() -> None:
    code, lines = run(bad=f"{TALKS}; raise SystemExit(3)", good="")
    assert code == 3
    again = [f"bad   | line {number}" for number in range(LAST, 2 * LAST)]
    assert lines[-LAST - 2 :] == ["good  | ended with exit code 0", *again, "bad   | ended with exit code 3"]


def test_parts_of_the_rest_run_alone_and_one_that_does_not_exist_is_named() -> None:
    code, lines = run("--deep one two", one="print(1)", two="print(2)", three="print(3)")
    assert code == 0
    assert sorted(line for line in lines if line.endswith(("| 1", "| 2", "| 3"))) == ["one   | 1", "two   | 2"]
    code, lines = run("--deep one four", one="print(1)")
    assert (code, lines) == (1, ["no part four; the parts are one"])


WAITS = """
import pathlib, time
folder, number, at_once = pathlib.Path({folder!r}), {number}, {at_once}
(folder / f"{{number}}.runs").touch()
(folder / f"{{number}}.began").touch()
while number < at_once and len(list(folder.glob("*.began"))) < at_once:
    time.sleep(0.01)
end = time.monotonic() + 1
while len(list(folder.glob("*.runs"))) <= at_once and time.monotonic() < end:
    time.sleep(0.01)
print("beside", len(list(folder.glob("*.runs"))))
(folder / f"{{number}}.runs").unlink()
"""


def test_every_path_that_is_named_is_there() -> None:
    """One that is not would be left out by the parts that leave named ones to others, and run by none."""
    named = [path.removeprefix("--ignore=") for paths in PARTS.values() for path in paths]
    assert [path for path in (*named, CLUSTER) if not (ROOT / path).exists()] == []


def test_a_part_starts_only_once_another_has_ended_and_all_are_run(tmp_path: Path) -> None:
    """Each says how many run while it does. The first ones wait for each other, or they might end one by one,
    and all of them a second for one too many."""
    parts = range(AT_ONCE + 3)
    code, lines = run(
        **{f"p{number}": WAITS.format(folder=str(tmp_path), number=number, at_once=AT_ONCE) for number in parts}
    )
    assert code == 0
    beside = [int(line.split()[-1]) for line in lines if "beside" in line]
    assert len(beside) == len(parts)
    assert max(beside) == AT_ONCE
