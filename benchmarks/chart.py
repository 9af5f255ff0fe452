"""The results as one self-contained SVG: how far each figure is from its goal."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from benchmarks.measure import Goal, at_least
from benchmarks.results import Result

WIDTH, ROW, TOP, BOTTOM = 1180, 34, 84, 44
LEFT, RIGHT = 560, 900  # of the bars
LONGEST = 2.0  # goals; what is longer is cut, with an arrow
GREEN, RED, GREY, INK, FAINT = "#2e7d4f", "#c0392b", "#8a94a0", "#1f2933", "#d5dae0"
NO_GOAL = at_least(1.0)  # a ratio without a goal is drawn against 1


def chart(results: Sequence[Result], title: str) -> str:
    """The SVG's text. A bar that crosses the line has reached its goal, whichever way it is better."""
    height = TOP + ROW * len(results) + BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="Helvetica, Arial, sans-serif" font-size="13">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        _text(20, 30, title, size=18, weight="bold"),
        _text(20, 52, "Median of the rounds; the thin line spans all of them. Green: goal reached.", colour=GREY),
    ]
    for goals in (0.5, 1.0, 1.5, 2.0):
        x, is_goal = _x(goals), goals == 1.0
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 8}" y2="{height - BOTTOM + 6}" '
            f'stroke="{INK if is_goal else FAINT}" stroke-width="{2 if is_goal else 1}"/>'
        )
        parts.append(_text(x, TOP - 14, "goal" if is_goal else f"{goals:g} × goal", colour=GREY, anchor="middle"))
    for number, one in enumerate(results):
        parts.append(_row(one, TOP + ROW * number))
    machines = ", ".join(dict.fromkeys(r.machine for r in results if r.machine))
    parts.append(_text(20, height - 16, machines, colour=GREY, size=11))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _row(one: Result, y: int) -> str:
    goal = Goal.parse(one.goal) if one.goal else NO_GOAL
    colour = {True: GREEN, False: RED, None: GREY}[one.reached]
    end = _x(goal.score(one.ratio))
    low, high = sorted(_x(goal.score(figure)) for figure in one.spread)
    middle = y + ROW / 2
    bar = [
        f'<rect x="{LEFT}" y="{y + 8}" width="{max(end - LEFT, 1):.1f}" height="{ROW - 16}" fill="{colour}"/>',
        f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{middle}" y2="{middle}" stroke="{INK}" stroke-width="1.5"/>',
    ]
    if goal.score(one.ratio) > LONGEST:
        bar.append(_text(end + 3, middle + 5, "›", weight="bold", colour=colour))
    return "\n".join(
        [
            f"<g><title>{escape(f'{one.id}: {one.case}: {one.compares}. {one.note}'.strip())}</title>",
            _text(20, middle - 2, one.id, weight="bold"),
            _text(56, middle - 2, _short(one.case, 76)),
            _text(
                56,
                middle + 12,
                _short(f"{one.compares}; {one.note}" if one.note else one.compares, 90),
                colour=GREY,
                size=11,
            ),
            *(bar if one.goal or not one.unit else []),  # so many megabytes without a goal are neither long nor short
            _text(RIGHT + 18, middle + 5, f"{one.middle} ({one.range})"),
            _text(WIDTH - 20, middle + 5, one.goal or "no goal", colour=colour, anchor="end", weight="bold"),
            "</g>",
        ]
    )


def _x(score: float) -> float:
    return LEFT + (RIGHT - LEFT) * min(max(score, 0.0), LONGEST) / LONGEST


def _text(
    x: float, y: float, text: str, *, size: int = 13, weight: str = "normal", colour: str = INK, anchor: str = "start"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" fill="{colour}" '
        f'text-anchor="{anchor}">{escape(text)}</text>'
    )


def _short(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
