"""Charts are well-formed, need nothing from outside, and show what there is."""

from __future__ import annotations

from xml.etree import ElementTree

from fencepost.model import State
from fencepost.pages import charts
from fencepost.pages.cards import charts_of
from fencepost.pages.charts import Series
from fencepost.pages.trend import trend

from .ledgers import EVIL, ledger, taken

FULL = charts.HEIGHT - charts.TOP - charts.BOTTOM


def parsed(svg: str) -> ElementTree.Element:
    """The drawing; raises where it is not well-formed."""
    return ElementTree.fromstring(svg)  # noqa: S314 - our own output


def test_every_chart_of_a_trend_is_well_formed_and_loads_nothing() -> None:
    points = trend(taken(ledger(40, {7: State.REJECTED, 9: State.PLANNED})), 30)
    for chart in charts_of(points):
        parsed(str(chart.svg))
        assert "http" not in chart.svg
        assert "style=" not in chart.svg, "the pages' Content-Security-Policy lets no inline style through"
        assert not chart.empty


def test_a_label_cannot_leave_its_tool_tip() -> None:
    chart = charts.bars(EVIL, [Series(EVIL, "in", [1.0]), Series("b", "out", [2.0])], [EVIL], str)
    assert EVIL not in chart.svg
    assert EVIL not in charts.strip([("passed", EVIL)])
    parsed(str(chart.svg))


def test_bars_of_one_batch_stand_on_each_other_and_fill_the_height_together() -> None:
    svg = parsed(str(charts.bars("t", [Series("a", "in", [3]), Series("b", "out", [1])], ["x"], str).svg))
    drawn = [r for r in svg.iter("rect") if r.get("class") != "hit"]
    assert [float(r.get("height", 0)) for r in drawn] == [0.75 * FULL, 0.25 * FULL]
    assert float(drawn[1].get("y", 0)) + 0.25 * FULL == float(drawn[0].get("y", 0))


def test_a_small_value_beside_a_large_one_is_still_seen() -> None:
    svg = parsed(str(charts.bars("t", [Series("a", "in", [1_000_000, 1, 0])], list("xyz"), str).svg))
    heights = [float(r.get("height", 0)) for r in svg.iter("rect") if r.get("class") != "hit"]
    assert heights == [FULL, 1.0, 0.0]


def test_a_line_is_broken_where_a_value_is_missing() -> None:
    chart = charts.line("t", [Series("a", "in", [1.0, 2.0, None, 3.0, 4.0])], list("vwxyz"), str)
    (path,) = [p.get("d", "") for p in parsed(str(chart.svg)).iter("path") if "line" in p.get("class", "")]
    assert (path.count("M"), path.count("L")) == (2, 2)


def test_without_any_value_there_is_nothing_to_draw() -> None:
    assert charts.line("t", [Series("a", "in", [None, None])], ["x", "y"], str).empty
    assert charts.bars("t", [Series("a", "in", [])], [], str).empty
