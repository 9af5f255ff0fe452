"""A transform may run Spark jobs of its own. The counts of its sources are those of the write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from conftest import at, day
from fencepost.config.pipeline import Pipeline
from fencepost.model import State
from fencepost_stack.broker import Broker
from kafka_tools import create_topic, produce, read_all
from steps import latest, run

Make = Callable[..., Pipeline]

ONE = """
def transform(frame):
    assert frame.head() is not None
    return frame.selectExpr("_key", "n")
"""
TWO = """
def transform(north, south):
    assert north.head() is not None and south.where("n < 0").isEmpty()
    return north.unionByName(south).selectExpr("_key", "n")
"""
ANY = "expectations: [{type: expect_table_row_count_to_be_between, kwargs: {max_value: 1000}}]"
KEEPS: dict[str, Any] = {"schema": {"n": "int"}, "on_malformed": "quarantine"}


@pytest.mark.parametrize("names", [("source",), ("north", "south")], ids=["one", "two"])
def test_a_job_of_the_transform_does_not_count_the_sources(
    spark: Any, broker: Broker, make_pipeline: Make, names: tuple[str, ...]
) -> None:
    """The job reads the first records alone. The malformed record behind them goes to quarantine, and is not lost."""
    of = f"jobs{len(names)}"
    sources = {name: {"topic": f"{of}-{name}", **KEEPS} for name in names}
    settings: dict[str, Any] = {"source": sources["source"]} if len(names) == 1 else {"sources": sources}
    pipeline = make_pipeline(
        ONE if len(names) == 1 else TWO, ANY, name=of, quality={"quarantine_limit": "none"}, **settings
    )
    for source in sources.values():
        create_topic(broker.bootstrap, source["topic"], 1)
        values = [*({"n": n} for n in range(9)), b"{"]
        produce(broker.bootstrap, source["topic"], [(b"k", value, 0, at(1)) for value in values])
    run(spark, pipeline, day(1))
    batch = latest(pipeline, day(1))
    found = batch.require_written.sources
    assert {topic: (one.rows_in, one.malformed) for topic, one in found.items()} == {
        source["topic"]: (10, 1) for source in sources.values()
    }
    assert batch.state is State.PUBLISHED
    assert batch.require_written.quarantined == {"malformed": len(names)}
    kept = read_all(broker.bootstrap, pipeline.quarantine_topic)
    assert [record.value for record in kept] == [b"{"] * len(names)
