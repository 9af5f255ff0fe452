"""What is kept of a benchmark: a list of figures in JSON, merged by id and case, and shown as a table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from rich.markup import escape
from rich.table import Table

from benchmarks.measure import Goal, spread_of
from benchmarks.processor import Spent


@dataclass(frozen=True)
class Result:
    """One line of the table.

    `ratio` is the median over `rounds` rounds, `spread` the smallest and the largest of them, `each` all in their order.
    `compares` says what is divided by what; with a `unit` the figure is no ratio, but in that unit.
    """

    id: str
    case: str
    ratio: float
    spread: tuple[float, float]
    rounds: int
    each: tuple[float, ...]
    compares: str
    goal: str | None = None
    unit: str = ""
    note: str = ""
    commit: str = ""
    machine: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        """What a newer one replaces."""
        return (self.id, self.case)

    @property
    def reached(self) -> bool | None:
        """Whether the goal is; None where there is none."""
        return Goal.parse(self.goal).reached_by(self.ratio) if self.goal else None

    def shown(self, figure: float) -> str:
        """A figure as table and chart print it, without its unit."""
        return f"{figure:,.1f}" if self.unit else f"{figure:.2f}" if figure >= 0.1 else f"{figure:.3f}"

    @property
    def middle(self) -> str:
        """The median with its unit."""
        return f"{self.shown(self.ratio)} {self.unit}".strip()

    @property
    def range(self) -> str:
        """The spread, in the same unit."""
        return f"{self.shown(self.spread[0])} .. {self.shown(self.spread[1])}"


def result(
    id_: str,
    case: str,
    each: Sequence[float],
    compares: str,
    *,
    goal: Goal | None = None,
    unit: str = "",
    note: str = "",
) -> Result:
    """The result of one figure a round.

    Raises:
        ValueError: there is no figure.
    """
    middle, low, high = (round(figure, 4) for figure in spread_of(each))
    rounded = tuple(round(figure, 4) for figure in each)
    return Result(id_, case, middle, (low, high), len(each), rounded, compares, str(goal) if goal else None, unit, note)


Line = TypeVar("Line", Result, Spent)  # what is kept


def merged(old: Iterable[Line], new: Iterable[Line]) -> list[Line]:
    """By the id's number, in the order the cases were first seen; the newer of two with the same key."""
    kept = {line.key: line for line in old}
    kept.update({line.key: line for line in new})
    return sorted(kept.values(), key=lambda line: int(line.id.removeprefix("B")))


def without(lines: Iterable[Line], ids: Iterable[str]) -> list[Line]:
    """The lines of other cases than these: what a case measured under names it has no more must not linger."""
    gone = set(ids)
    return [line for line in lines if line.id not in gone]


def load(file: Path) -> list[Result]:
    """What an earlier run kept; nothing when there was none."""
    if not file.exists():
        return []
    return [
        Result(**{**entry, "spread": tuple(entry["spread"]), "each": tuple(entry["each"])})
        for entry in json.loads(file.read_text(encoding="utf-8"))
    ]


def save(kept: Sequence[Line], file: Path) -> None:
    """Write the file whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".draft")
    lines = ",\n".join(f"  {json.dumps(asdict(line), ensure_ascii=False)}" for line in kept)
    draft.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    draft.replace(file)


def table(results: Sequence[Result], title: str) -> Table:
    """For the terminal."""
    shown = Table(title=title, title_justify="left")
    for heading in ("id", "case"):
        shown.add_column(heading)
    for heading in ("median", "range", "rounds", "goal", ""):
        shown.add_column(heading, justify="right", no_wrap=True)
    for r in results:
        word = {True: "[green]reached[/]", False: "[red]missed[/]", None: ""}[r.reached]
        case = f"{r.case} ({r.note})" if r.note else r.case
        shown.add_row(
            *(r.id, f"{escape(case)}\n[dim]{escape(r.compares)}[/]"),
            *(r.middle, r.range, str(r.rounds), r.goal or "", word),
        )
    return shown
