"""`make bench`: measure the cases, print a table, keep the figures and a chart."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from benchmarks import processor
from benchmarks.bench import MASTER, Bench, open_bench
from benchmarks.cases import CASES, ON_REQUEST
from benchmarks.chart import chart
from benchmarks.results import Line, Result, load, merged, save, table, without
from fencepost_stack.registry import ending_by_exception

RESULTS = Path(__file__).resolve().parent / "results"
TITLE = "Fencepost's speed, in ratios of one run"
PROCESSOR_TITLE = "Processor seconds for a million rows, by process"

console = Console(highlight=False, soft_wrap=True)


def _help() -> str:
    lines = "\n\n".join(f"{id_}: {_first_line(case.__module__)}" for id_, case in CASES.items())
    return (
        "Measure Fencepost beside what else one would use, side by side in one run, and keep the ratios.\n\n"
        f"{lines}\n\n"
        "It starts a broker of its own and leaves neither process nor data behind. All cases together take most of an hour "
        "on two cores; nothing else should run meanwhile. Kept are benchmarks/results/latest.json and latest.svg: "
        "a case that is run replaces its own figures and no others."
    )


def _first_line(module: str) -> str:
    doc = (sys.modules[module].__doc__ or "").splitlines()[0]
    return doc.partition(": ")[2] or doc


def main(
    cases: Annotated[
        list[str] | None, typer.Argument(help="cases to run: B1 B4; all but B13 when none is named")
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=1, help="rounds that count; a warm-up that does not comes before them")
    ] = 5,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="a fortieth of the rows: shows that it works, says nothing of speed; not kept"),
    ] = False,
) -> None:
    wanted = [name.upper() for name in cases or (name for name in CASES if name not in ON_REQUEST)]
    if unknown := [name for name in wanted if name not in CASES]:
        raise typer.BadParameter(f"no case {', '.join(unknown)}; there are: {', '.join(CASES)}.")
    file = RESULTS / ("quick.json" if quick else "latest.json")
    seconds_file = RESULTS / ("quick.processor.json" if quick else "processor.json")
    failed = []
    with ending_by_exception(), open_bench(console, rounds, quick=quick) as bench:
        for name in wanted:
            if not _run(bench, name, file, seconds_file):
                failed.append(name)
    results = load(file)
    (svg := file.with_suffix(".svg")).write_text(chart(results, TITLE), encoding="utf-8")
    wide = Console(width=None if console.is_terminal else 150)
    wide.print(table([r for r in results if r.id in wanted], TITLE))
    if spent := [line for line in processor.load(seconds_file) if line.id in wanted]:
        wide.print(processor.table(spent, PROCESSOR_TITLE))
    console.print(f"Kept in {_shown(file)} and {_shown(seconds_file)}; the chart is {_shown(svg)}.")
    if failed:
        console.print(f"[red]Failed: {', '.join(failed)}; see above.[/]")
        raise typer.Exit(1)


def _run(bench: Bench, name: str, file: Path, seconds_file: Path) -> bool:
    """One case with a fresh session; its figures are kept as they come. Whether it ended well."""
    began = time.monotonic()
    console.print(f"[bold]{name}[/] {escape(_first_line(CASES[name].__module__))}")
    found: list[Result] = []
    bench.spent = []
    try:
        for one in _stamped(CASES[name](bench)):
            found.append(one)
            save(merged(load(file), found), file)
            save(merged(processor.load(seconds_file), _stamped(bench.spent)), seconds_file)
            console.print(
                f"  [bold cyan]{one.middle}[/] ({one.range}) {escape(one.case)}"
                f"{f', goal {one.goal}' if one.goal else ''}"
            )
    except Exception:  # the other cases have their figures all the same
        console.print_exception(max_frames=6)
        return False
    finally:
        bench.end_session()
    # What the case measured under other names before is gone.
    save(merged(without(load(file), [name]), found), file)
    save(merged(without(processor.load(seconds_file), [name]), _stamped(bench.spent)), seconds_file)
    console.print(f"[dim]{name} took {time.monotonic() - began:.0f} s[/]")
    return True


def _stamped(results: Iterable[Line]) -> Iterable[Line]:
    """With the code and the kind of machine they were measured on."""
    commit = _git("rev-parse", "--short", "HEAD")
    if _git("status", "--porcelain", "--untracked-files=no", "--", ".", f":(exclude,top)benchmarks/{RESULTS.name}"):
        commit += "-dirty"
    machine = f"{os.cpu_count()} cores, {MASTER}, Spark {version('pyspark')}, one broker"
    for one in results:
        yield replace(one, commit=commit, machine=machine)


def _git(*arguments: str) -> str:
    asked = ["git", "-C", str(RESULTS.parents[1]), *arguments]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()


def _shown(file: Path) -> str:
    return str(file.relative_to(Path.cwd())) if file.is_relative_to(Path.cwd()) else str(file)


if __name__ == "__main__":
    app = typer.Typer(add_completion=False, rich_markup_mode="rich")
    app.command(help=_help())(main)
    app(prog_name="make bench ARGS=")
