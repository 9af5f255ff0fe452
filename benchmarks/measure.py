"""Rounds: every side once, in changing order. Figures: one a round, kept as median and range. No Kafka, no Spark."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from statistics import median
from typing import Literal

# Entered before the clock starts (it makes topics and plans), left after it has stopped (it checks and deletes them);
# what is timed is the function it yields.
Side = Callable[[], AbstractContextManager[Callable[[], object]]]
Round = Mapping[str, float]  # seconds by side


def in_turn(sides: Sequence[str], number: int) -> list[str]:
    """The sides in the order of round `number`: A B, B A, B A, A B; of three, all six orders before one comes again."""
    turn = (number // 2) % max(len(sides), 1)
    turned = [*sides[turn:], *sides[:turn]]
    return turned[::-1] if number % 2 else turned


def unwatched(side: str) -> AbstractContextManager[None]:
    """Nobody watches this side."""
    return nullcontext()


def rounds_of(
    sides: Mapping[str, Side],
    rounds: int,
    *,
    before: Callable[[], None] = lambda: None,
    watched: Callable[[str], AbstractContextManager[None]] = unwatched,
    told: Callable[[str, str, float], None] = lambda turn, side, seconds: None,
    warm: Callable[[], bool] = lambda: True,
) -> Iterator[Round]:
    """Each round's seconds, after every side has run at least once without being counted, until it is `warm`.

    `before` runs ahead of every timed function, and `told` hears of every run as it ends. `watched` is entered, with the
    side's name, around each timed function, those of the warm-up too; `warm` is asked after each round of that.
    """
    number, is_warm = 0, False
    while number < rounds:
        turn = f"round {number + 1}/{rounds}" if is_warm else "warm-up"
        seconds: dict[str, float] = {}
        for side in in_turn(list(sides), number):
            with sides[side]() as timed:
                before()
                with watched(side):
                    began = time.perf_counter()
                    timed()
                    seconds[side] = time.perf_counter() - began
            told(turn, side, seconds[side])
        if is_warm:
            number += 1
            yield seconds
        else:
            is_warm = warm()


def ratios(rounds: Sequence[Round], above: str, below: str) -> list[float]:
    """Time of one side by time of the other, round by round."""
    return [seconds[above] / seconds[below] for seconds in rounds]


def fastest(rounds: Sequence[Round], of: int) -> list[Round]:
    """One round made of every `of` in a row: each side's shortest time among them. Rounds left over are dropped."""
    groups = [rounds[at : at + of] for at in range(0, len(rounds) - of + 1, of)]
    return [{side: min(one[side] for one in group) for side in group[0]} for group in groups]


@dataclass(frozen=True)
class Goal:
    """What a figure is to reach."""

    way: Literal["≥", "≤"]
    bound: float

    def __str__(self) -> str:
        return f"{self.way} {self.bound:g}"

    @classmethod
    def parse(cls, text: str) -> Goal:
        """From what `str` gave.

        Raises:
            ValueError: it is no goal.
        """
        way, _, bound = text.partition(" ")
        if way == "≥":
            return cls("≥", float(bound))
        if way == "≤":
            return cls("≤", float(bound))
        raise ValueError(f"not a goal: {text!r}; expected '≥ 1.25' or '≤ 0.5'")

    def reached_by(self, figure: float) -> bool:
        """Whether the figure, as it is printed, is good enough."""
        figure = round(figure, 3)
        return figure >= self.bound if self.way == "≥" else figure <= self.bound

    def score(self, figure: float) -> float:
        """1 at the goal, more when it is surpassed, whichever way that is."""
        if self.way == "≥":
            return figure / self.bound
        return self.bound / figure if figure else float("inf")


def at_least(bound: float) -> Goal:
    """Higher is better."""
    return Goal("≥", bound)


def at_most(bound: float) -> Goal:
    """Lower is better."""
    return Goal("≤", bound)


def spread_of(figures: Sequence[float]) -> tuple[float, float, float]:
    """Median, smallest and largest.

    Raises:
        ValueError: there is no figure.
    """
    if not figures:
        raise ValueError("no round was measured, so there is no figure")
    return median(figures), min(figures), max(figures)
