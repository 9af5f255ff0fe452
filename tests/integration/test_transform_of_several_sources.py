"""A transform gets each of several sources by its name: as an argument in Python, and as a view in SQL."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml

from conftest import at, day
from fencepost.config.loading import load_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.errors import SettingsError
from fencepost.rows.path import RowPath
from fencepost_stack.broker import Broker
from kafka_tools import create_topic, produce, read_all
from steps import plan_and_write

ORDERS = {"topic": "orders", "schema": {"n": "int"}}
SEVERAL = {"sources": {"orders": ORDERS, "payments": {"topic": "payments", "schema": {"n": "int"}}}}
ONE = {"source": ORDERS}
HEADERS = "CAST(array() AS array<struct<key: string, value: binary>>) AS headers"
PLACE = ("topic", "partition", "offset", "timestamp_millis(0) AS timestamp")


@pytest.fixture
def pipeline_of(tmp_path: Path) -> Any:
    """A pipeline with this transform, in SQL or in Python."""

    def make(transform: str, sources: dict[str, Any]) -> Pipeline:
        folder = tmp_path / "paid"
        folder.mkdir()
        rest = {
            "output": {"topic": "out", "layout": "output"},
            "schedule": {"start": "2026-01-01"},
            "kafka": {"bootstrap.servers": "k:9092"},
        }
        (folder / "pipeline.yaml").write_text(yaml.safe_dump({**sources, **rest}))
        (folder / ("transform.py" if "def transform" in transform else "transform.sql")).write_text(transform)
        (folder / "expectations.yaml").write_text("expectations: [{type: expect_column_to_exist, kwargs: {column: n}}]")
        return load_pipeline(folder)

    return make


def records(spark: Any, topic: str, *numbers: int) -> Any:
    """Records of a topic, with the connector's columns."""
    rows = [(None, f'{{"n": {n}}}'.encode(), topic, 0, offset) for offset, n in enumerate(numbers)]
    frame = spark.createDataFrame(rows, "key binary, value binary, topic string, partition int, offset long")
    return frame.selectExpr("key", "value", *PLACE, HEADERS)


def result(spark: Any, pipeline: Pipeline) -> list[int]:
    """The numbers in the transform's result for orders 1, 2, 3, and payments 2, 3, 3, 4."""
    numbers = {"orders": (1, 2, 3), "payments": (2, 3, 3, 4), "source": (1, 2, 3)}
    raw = {name: records(spark, one.topic, *numbers[name]) for name, one in pipeline.sources.items()}
    path = RowPath(pipeline)
    return sorted(row["n"] for row in path.transform(path.decode(raw)).collect())


JOINED, UNITED = [2, 3, 3], [1, 2, 2, 3, 3, 3, 4]


@pytest.mark.parametrize(
    ("transform", "numbers"),
    [
        ("SELECT o.n FROM orders o JOIN payments p ON o.n = p.n", JOINED),
        ("SELECT n FROM Orders UNION ALL SELECT n FROM `payments`", UNITED),
        ("WITH orders AS (SELECT n FROM orders) SELECT n FROM orders JOIN payments USING (n)", JOINED),
        ("SELECT n FROM payments WHERE n IN (SELECT n FROM orders)", JOINED),
        ("SELECT n FROM payments UNION ALL SELECT min(n) FROM orders", [1, 2, 3, 3, 4]),
        ("def transform(payments, orders):\n    return orders.join(payments, 'n').select('n')\n", JOINED),
        ("def transform(orders, *, payments=None):\n    return orders.join(payments, 'n').select('n')\n", JOINED),
        (
            "def transform(**them):\n    a, b = them['orders'], them['payments']\n    return a.union(b).select('n')\n",
            UNITED,
        ),
        (
            "def transform(orders, payments):\n    pairs = orders.alias('a').join(orders.alias('b'), 'n')\n"
            "    return pairs.join(payments, 'n').select('n')\n",
            JOINED,
        ),
    ],
    ids=["sql", "case", "with", "in", "scalar", "by name", "default", "kwargs", "self-join"],
)
def test_each_source_comes_under_its_name(spark: Any, pipeline_of: Any, transform: str, numbers: list[int]) -> None:
    assert result(spark, pipeline_of(transform, SEVERAL)) == numbers
    assert not spark.catalog.tableExists("orders"), "no view is left to the session"


UNUSED = "its result does not depend on sources.payments (topic payments), by Spark's plan, so nothing would read this source."


@pytest.mark.parametrize(
    ("transform", "why"),
    [
        ("def transform(orders, payments):\n    return orders.select('n')\n", UNUSED),
        ("def transform(**them):\n    return them['orders'].select('n')\n", UNUSED),
        ("SELECT n, 1 AS payments FROM orders", UNUSED),
        (
            "def transform(orders, payments):\n    known = [row.n for row in payments.collect()]\n"
            "    return orders.where(orders.n.isin(known)).select('n')\n",
            UNUSED,
        ),
        ("SELECT n FROM source JOIN orders USING (n) JOIN payments USING (n)", "failed: [TABLE_OR_VIEW_NOT_FOUND]"),
        (
            "SELECT n, o._headers FROM orders o JOIN payments USING (n)",
            "A source has the column _headers with sources.<name>.headers: true in ",
        ),
        (
            "SELECT n, o._record FROM orders o JOIN payments USING (n)",
            "No source has the column _record, because a row may come from several records.",
        ),
    ],
    ids=["ignored", "kwargs ignored", "a column of the name", "collected", "source", "no headers", "no record"],
)
def test_what_is_wrong_with_its_use_of_sources_is_said(spark: Any, pipeline_of: Any, transform: str, why: str) -> None:
    with pytest.raises(SettingsError) as raised:
        result(spark, pipeline_of(transform, SEVERAL))
    assert why in str(raised.value)


def test_an_only_source_may_be_collected(spark: Any, pipeline_of: Any) -> None:
    transform = "def transform(orders):\n    return orders.sparkSession.createDataFrame(orders.select('n').collect())\n"
    assert result(spark, pipeline_of(transform, ONE)) == [1, 2, 3]


NAMES = count(1)
UNITED_TWICE = "def transform(north, south):\n    return north.union(south).union(north).select('_key', 'n')\n"
BROADCAST = """
from pyspark.sql import functions as F

def transform(north, south):
    return north.join(F.broadcast(south.select("n")), "n").select("_key", "n")
"""


@pytest.mark.parametrize("transform", [UNITED_TWICE, BROADCAST], ids=["a source twice", "a join"])
def test_under_layout_source_each_source_is_united_once_and_none_is_joined(
    spark: Any, broker: Broker, make_pipeline: Callable[..., Pipeline], transform: str
) -> None:
    """No range would be read by exactly one task-partition. Nothing is written."""
    name = f"united{next(NAMES)}"
    sources = {one: {"topic": f"{name}-{one}", "schema": {"n": "int"}} for one in ("north", "south")}
    pipeline = make_pipeline(transform, name=name, sources=sources)
    for source in sources.values():
        create_topic(broker.bootstrap, source["topic"], 1)
        produce(broker.bootstrap, source["topic"], [(b"k", {"n": 1}, 0, at(1))])
    with pytest.raises(
        SettingsError, match=r"under output\.layout: source .* joins of two sources, a source used twice"
    ):
        plan_and_write(spark, pipeline, day(1))
    assert not read_all(broker.bootstrap, pipeline.staging_topic, committed=False)
