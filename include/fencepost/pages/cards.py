"""Computes the content of each page from snapshots. Templates only lay it out. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from fencepost.config.pipeline import Pipeline
from fencepost.errors import FencepostError
from fencepost.model import Batch
from fencepost.pages import charts
from fencepost.pages.charts import Chart, Series
from fencepost.pages.trend import Lag, TrendPoint, trend
from fencepost.pages.wording import duration, percent, short_number, tip, verdict_style
from fencepost.protocol.awaiting import Awaiting
from fencepost.protocol.snapshot import Snapshot
from fencepost.protocol.unread import Unread


@dataclass(frozen=True)
class Card:
    """One pipeline on the overview. Either `snapshot` or `failure` is set. `lag` is None if a source topic does not exist;
    `missing` has these topics. `topic_lags` has the present lag of each topic that a batch has read.
    """

    pipeline: Pipeline
    snapshot: Snapshot | None
    failure: FencepostError | None = None
    lag: Lag | None = None
    missing: tuple[str, ...] = ()
    topic_lags: Mapping[str, int] = field(default_factory=dict)
    last: Batch | None = None  # the revision that was judged last
    awaiting: tuple[Awaiting, ...] = ()  # in order of time
    unread: Unread = field(default_factory=Unread)  # offsets that the source still has before the first range
    verdicts: Markup | None = None
    charts: tuple[Chart, ...] = ()
    shown: int = 0  # batches in the trend
    good: int = 0  # how many of them passed
    judged: int = 0  # how many of them were judged


def card_of(
    pipeline: Pipeline, snapshot: Snapshot, lag: Lag | None, length: int, awaiting: tuple[Awaiting, ...] = ()
) -> Card:
    """Returns a pipeline's last verdict and its trend over `length` batches."""
    points = trend(snapshot, length)
    outcomes = [p.row.telling.verdict.outcome for p in points if p.row.telling.verdict is not None]
    return Card(
        pipeline=pipeline,
        snapshot=snapshot,
        lag=lag,
        last=snapshot.last_judged,
        awaiting=awaiting,
        verdicts=charts.strip([(verdict_style(p.row.telling), tip(p.row)) for p in points]),
        charts=charts_of(points),
        shown=len(points),
        good=sum(o == "passed" for o in outcomes),
        judged=len(outcomes),
    )


def charts_of(points: Sequence[TrendPoint]) -> tuple[Chart, ...]:
    """Returns the measures of a trend as charts: quality, volume and time."""
    labels = [f"{p.row.interval.start:%Y-%m-%d %H:%M}" for p in points]
    rows = [p.row for p in points]
    written = [r.telling.written for r in rows]
    verdicts = [r.telling.verdict for r in rows]
    lags = [p.lag for p in points]
    quarantined = charts.bars(
        "Quarantined rows",
        [Series("quarantined", "bad", [w.quarantined_tally.rows if w else None for w in written])],
        labels,
        short_number,
    )
    replayed = [r.replayed for r in rows]
    replays = charts.bars(
        "Replayed: added / left",
        [
            Series("rows added", "out", [r[1] if r else None for r in replayed]),
            Series(
                "left in quarantine",
                "bad",
                [sum(row.left_in_quarantine.values()) if row.replayed else None for row in rows],
            ),
        ],
        labels,
        short_number,
    )
    return (
        charts.line(
            "Expectations that held", [Series("held", "good", [r.pass_rate for r in rows])], labels, percent, 100
        ),
        charts.bars(
            "Unexpected rows",
            [Series("unexpected", "bad", [v.unexpected_rows if v else None for v in verdicts])],
            labels,
            short_number,
        ),
        charts.line(
            "Rows in / out",
            [
                Series("in", "in", [w.rows_in if w else None for w in written]),
                Series("out", "out", [w.rows if w else None for w in written]),
            ],
            labels,
            short_number,
        ),
        *((quarantined,) if any(w and w.quarantine for w in written) else ()),
        *((replays,) if any(replayed) else ()),
        charts.bars(
            "Write / validate",
            [
                Series("write", "in", [w.seconds if w else None for w in written]),
                Series("validate", "out", [v.seconds if v else None for v in verdicts]),
            ],
            labels,
            duration,
        ),
        charts.bars(
            "Frontier lag in records",
            [Series("records", "lag", [lag.records if lag else None for lag in lags])],
            labels,
            short_number,
        ),
        charts.bars(
            "Frontier lag in time",
            [Series("time", "lag", [lag.seconds if lag else None for lag in lags])],
            labels,
            duration,
        ),
    )
