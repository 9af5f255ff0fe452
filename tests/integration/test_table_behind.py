"""A table behind another pipeline: what it gets of that one's intervals, revisions and additions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from conftest import day
from fencepost.config.pipeline import Pipeline
from fencepost.model import State
from fencepost_stack.broker import Broker
from steps import replay, run
from tables import POSITIVE, ask, fill, with_suite

Make = Callable[..., Pipeline]

DATED = """
def transform(frame):
    return frame.selectExpr("_key", "_record", "n", "n * {by} AS amount", "_timestamp AS at")
"""
SMALL = """
expectations:
  - {{type: expect_column_values_to_be_between, kwargs: {{column: n, max_value: {limit}}}, severity: quarantine}}
"""
# By day of the record, whatever interval it came with; the newest record of each number.
BY_DAY = """
from pyspark.sql import functions as F

def transform(frame):
    newest = frame.groupBy(F.to_date("at").alias("on_day"), "n").agg(F.max_by("amount", "_offset").alias("amount"))
    return newest.groupBy("on_day").agg(F.sum("amount").alias("total"))
"""
ROWS = "select extract(day from on_day)::int, total, extract(day from fencepost_interval)::int, fencepost_revision from numbers"


def newest(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The newest row of each day, as the view in the documents has it: by interval, then by revision."""
    return sorted({row[0]: row for row in sorted(rows, key=lambda row: row[2:])}.values())


@pytest.mark.deep
def test_a_revision_upstream_comes_with_the_next_interval_and_no_reprocess_here_reads_it(
    spark: Any, broker: Broker, make_pipeline: Make, make_table: Make
) -> None:
    above = make_pipeline(
        DATED.format(by=1), SMALL.format(limit=9), output={"timestamp": "at"}, quality={"quarantine_limit": "none"}
    )
    source = {"topic": above.output.topic, "schema": {"n": "int", "amount": "int", "at": "timestamp"}}
    below = make_table(
        BY_DAY, POSITIVE.replace("column: n", "column: total"), source=source, output={"layout": "output"}
    )

    fill(broker, above, range(6))
    fill(broker, above, range(4, 11), number=2)
    for number, total in ((1, 15), (2, 39)):
        assert run(spark, above, day(number)).state is State.PUBLISHED
        assert run(spark, below, day(number)).state is State.PUBLISHED
        assert ask(below, f"{ROWS} where extract(day from fencepost_interval) = {number}") == [
            (number, total, number, 1)
        ]

    (above.folder / "transform.py").write_text(DATED.format(by=10))
    assert run(spark, above, day(1), reprocess=True).revision == 2
    assert run(spark, below, day(1), reprocess=True).revision == 2
    assert ask(below, f"{ROWS} order by 1") == [(1, 15, 1, 2), (2, 39, 2, 1)], "the same offsets, so the same rows"

    above = with_suite(above, SMALL.format(limit=10))
    assert replay(spark, above, day(2)).state is State.PUBLISHED
    fill(broker, above, [1], number=3)
    run(spark, above, day(3))
    run(spark, below, day(3))
    came = f"{ROWS} where extract(day from fencepost_interval) = 3 order by 1"
    assert ask(below, came) == [(1, 150, 3, 1), (2, 100, 3, 1), (3, 10, 3, 1)], "of day 2 only what was added"
    assert newest(ask(below, ROWS)) == [(1, 150, 3, 1), (2, 100, 3, 1), (3, 10, 3, 1)]

    assert run(spark, above, day(2), reprocess=True).state is State.PUBLISHED
    fill(broker, above, [2], number=4)
    run(spark, above, day(4))
    run(spark, below, day(4))
    assert newest(ask(below, ROWS)) == [(1, 150, 3, 1), (2, 490, 4, 1), (3, 10, 3, 1), (4, 20, 4, 1)], (
        "the whole day again"
    )
