"""No list that goes to Python is null: of an Arrow batch with null lists Spark takes the size in quadratic time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StructType

from fencepost.config.pipeline import Pipeline
from fencepost.formats import FORMATS
from fencepost.spark.quarantine import Rules, to_flagged, to_routed
from fencepost.spark.records import RECORD, read_source, to_records


@pytest.fixture
def without_headers(spark: Any) -> DataFrame:
    """A record without headers, with the connector's columns."""
    row = ("in", 0, 7, None, b"k", b'{"n": 1, "name": "x"}', None)
    return spark.createDataFrame([row], RECORD)


def nulls(frame: DataFrame, column: str) -> int:
    return frame.where(F.col(column).isNull()).count()


def test_the_format_reads_lists_and_the_transform_sees_what_the_connector_gave(
    without_headers: DataFrame, make_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline, seen = make_pipeline(source={"headers": True}), []
    format_read = FORMATS["json"].read

    def read(raw: DataFrame, *others: Any) -> DataFrame:
        seen.append(nulls(raw, "headers"))
        return format_read(raw, *others)

    monkeypatch.setattr(FORMATS["json"], "read", read)
    frame, _ = read_source(without_headers, pipeline.source, record=True)
    assert seen == [0]
    assert (nulls(frame, "_headers"), nulls(frame, "_record.headers")) == (1, 1)


def test_the_writer_gets_lists(without_headers: DataFrame, make_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = make_pipeline(source={"headers": True}, output={"headers": "_headers"})
    frame, _ = read_source(without_headers, pipeline.source, record=True)
    assert nulls(to_records(frame, pipeline), "headers") == 0
    for number in (None, 0):  # for the output, and for quarantine
        rules = Rules(lambda _, number=number: F.lit(number).cast("int"), ["rule"], ["reason"])
        routed = to_routed(to_flagged(frame, pipeline, rules), "p/i/1", rules)
        assert nulls(routed, "headers") == 0
        nested = {f.name for f in routed.schema.fields if isinstance(f.dataType, ArrayType | MapType | StructType)}
        assert nested == {"headers"}
