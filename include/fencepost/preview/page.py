"""Renders the result of a review as one HTML file that needs no network. The page loads nothing and runs nothing, and
all data are escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fencepost.config.pipeline import Pipeline
from fencepost.counts import count_of
from fencepost.model import Interval, Outcome, utc_now
from fencepost.paths import reports_folder
from fencepost.preview.judge import JudgedRevision
from fencepost.preview.suggest import Suggestion
from fencepost.quality.checks import Status
from fencepost.quality.report_files import write_page
from fencepost.quality.report_html import template_of

WIDE, HIGH = 160, 28  # size of a line of figures, in pixels


def write_judged(
    pipeline: Pipeline, suite: Path, published: Sequence[JudgedRevision], rejected: Sequence[JudgedRevision]
) -> Path:
    """Writes the page of `fencepost judge`, and returns its path."""
    html = template_of("fencepost.preview", "review.html.j2").render(
        title=f"The verdicts of {suite.name} on past batches",
        pipeline=pipeline.name,
        made=utc_now(),
        judged={"Published": list(published), "Rejected": list(rejected)},
        checks=checks_of(published),
        suggestions=(),
        unread=(),
        Outcome=Outcome,
        line=line,
    )
    return _write(pipeline, "judge", html)


def write_suggested(
    pipeline: Pipeline, suggestions: Sequence[Suggestion], unread: Mapping[Interval, str], batches: int
) -> Path:
    """Writes the page of `fencepost suggest`, and returns its path."""
    html = template_of("fencepost.preview", "review.html.j2").render(
        title=f"Suggested from {count_of(batches, 'batch', 'batches')}",
        pipeline=pipeline.name,
        made=utc_now(),
        judged={},
        checks=(),
        suggestions=list(suggestions),
        unread=list(unread.items()),
        Outcome=Outcome,
        line=line,
    )
    return _write(pipeline, "suggest", html)


def checks_of(judged: Sequence[JudgedRevision]) -> list[tuple[str, str, int, list[tuple[Interval, str]]]]:
    """Returns each check with its title and description, the number of batches that it judged, and the batches that it
    did not pass. Each batch that did not pass comes with a word for its result.
    """
    found: dict[int, tuple[str, str, int, list[tuple[Interval, str]]]] = {}
    for one in judged:
        for check in one.checks:
            title, description, number, bad = found.get(check.index, (check.title, check.description, 0, []))
            if check.status is not Status.PASSED:
                records = f": {count_of(check.unexpected_count, 'record')}" if check.unexpected_count else ""
                bad.append((one.interval, f"{check.status}{records}"))
            found[check.index] = (title, description, number + (not check.not_judged), bad)
    return [found[index] for index in sorted(found)]


def line(figures: Sequence[float]) -> str:
    """Returns the points of a line through the figures, in a drawing of size `WIDE` and `HIGH`."""
    low, high = min(figures), max(figures)
    span = (high - low) or 1.0
    step = (WIDE - 4) / max(1, len(figures) - 1)
    return " ".join(
        f"{2 + n * step:.1f},{HIGH - 2 - (one - low) / span * (HIGH - 4):.1f}" for n, one in enumerate(figures)
    )


def _write(pipeline: Pipeline, kind: str, html: str) -> Path:
    return write_page(html, reports_folder(), pipeline.name, f"{kind}-{utc_now():%Y%m%dT%H%M%SZ}")
