"""Draws small charts as inline SVG, without a script and without network access. Classes give the colours, so one style
sheet is enough for both themes.

All drawings come from numbers. This module escapes texts (tool tips, labels).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

WIDTH, HEIGHT = 320, 84  # size of the drawing; CSS decides how large it is shown
TOP, BOTTOM = 3, 3
PLACES = 15  # least number of batches that the width is divided by, so that bars of few batches do not become slabs

Format = Callable[[float], str]


@dataclass(frozen=True)
class Series:
    """One measure, with a value or None for each batch. `style` is a class of the style sheet."""

    name: str
    style: str
    values: Sequence[float | None]


@dataclass(frozen=True)
class Chart:
    """A chart as SVG, with its title and latest value as text for readers who cannot see it."""

    title: str
    latest: str
    svg: Markup
    empty: bool
    top: str = ""  # the scale's upper end


def bars(title: str, series: Sequence[Series], labels: Sequence[str], show: Format, top: float | None = None) -> Chart:
    """Returns a chart with a bar for each batch. Several series are stacked."""
    highest = top or max((sum(v or 0 for v in column) for column in _columns(series)), default=0)
    scale = (HEIGHT - TOP - BOTTOM) / (highest or 1)
    step = WIDTH / max(len(labels), PLACES)
    width = max(step * 0.76, 0.6)
    parts = []
    for index, (label, column) in enumerate(zip(labels, _columns(series), strict=True)):
        if all(value is None for value in column):
            continue
        y, drawn = float(HEIGHT - BOTTOM), []
        for one, value in zip(series, column, strict=True):
            height = max((value or 0) * scale, 1.0 if value else 0.0)
            y -= height
            drawn.append(
                f'<rect class="{one.style}" x="{index * step:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}"/>'
            )
        parts.append(_spot(index * step, step, label, series, column, show, "".join(drawn)))
    return _chart(title, series, parts, show, highest)


def line(title: str, series: Sequence[Series], labels: Sequence[str], show: Format, top: float | None = None) -> Chart:
    """Returns a chart with a line through the batches, interrupted where a value is missing. Each batch has an area
    with its tool tip.
    """
    highest = top or max((v for s in series for v in s.values if v is not None), default=0)
    scale = (HEIGHT - TOP - BOTTOM) / (highest or 1)
    step = WIDTH / max(len(labels), PLACES)
    parts = []
    for one in series:
        path, pen_down = [], False
        for index, value in enumerate(one.values):
            if value is not None:
                x, y = (index + 0.5) * step, HEIGHT - BOTTOM - value * scale
                # A point without neighbours would be a line without length, so it is drawn as a dash.
                alone = not pen_down and (index + 1 == len(one.values) or one.values[index + 1] is None)
                path.append(
                    f"M{x - step * 0.3:.2f} {y:.2f}h{step * 0.6:.2f}"
                    if alone
                    else f"{'L' if pen_down else 'M'}{x:.2f} {y:.2f}"
                )
            pen_down = value is not None
        parts.append(f'<path class="line {one.style}" d="{"".join(path)}"/>')
    for index, (label, column) in enumerate(zip(labels, _columns(series), strict=True)):
        if any(value is not None for value in column):
            parts.append(_spot(index * step, step, label, series, column, show))
    return _chart(title, series, parts, show, highest)


def strip(verdicts: Sequence[tuple[str, str]]) -> Markup:
    """Returns a block for each batch, coloured by its class. `verdicts` are pairs of class and tool tip."""
    step = WIDTH / max(len(verdicts), PLACES)
    width = max(step * 0.82, 0.6)
    blocks = "".join(
        f'<rect class="v-{style}" x="{i * step:.2f}" y="0" width="{width:.2f}" height="14"><title>{escape(tip)}</title></rect>'
        for i, (style, tip) in enumerate(verdicts)
    )
    head = f'<svg class="strip" viewBox="0 0 {WIDTH} 14" preserveAspectRatio="none" role="img" aria-label="verdicts">'
    return Markup(f"{head}{blocks}</svg>")  # noqa: S704 - tips are escaped, classes are our own words


def _columns(series: Sequence[Series]) -> list[tuple[float | None, ...]]:
    return list(zip(*(s.values for s in series), strict=True))


def _spot(
    x: float,
    step: float,
    label: str,
    series: Sequence[Series],
    column: Sequence[float | None],
    show: Format,
    drawn: str = "",
) -> str:
    listed = ", ".join(
        f"{one.name} {show(v)}" if len(series) > 1 else show(v)
        for one, v in zip(series, column, strict=True)
        if v is not None
    )
    hit = f'<rect class="hit" x="{x:.2f}" y="0" width="{step:.2f}" height="{HEIGHT}"/>'
    return f"<g>{drawn}{hit}<title>{escape(f'{label}: {listed}')}</title></g>"


def _chart(title: str, series: Sequence[Series], parts: Sequence[str], show: Format, highest: float) -> Chart:
    last = [next((v for v in reversed(s.values) if v is not None), None) for s in series]
    latest = " / ".join(show(v) for v in last if v is not None)
    empty = all(v is None for s in series for v in s.values)
    grid = "".join(
        f'<path class="grid" d="M0 {y:.1f}H{WIDTH}"/>' for y in (TOP, (TOP + HEIGHT - BOTTOM) / 2, HEIGHT - BOTTOM)
    )
    svg = (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(title)}: {escape(latest)}">{grid}{"".join(parts)}</svg>'
    )
    # Every text that came from data was escaped above; the rest are fixed texts and numbers.
    return Chart(title, latest, Markup(svg), empty, show(highest) if highest else "")  # noqa: S704
