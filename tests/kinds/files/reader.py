"""The rows of a published revision, from its interval's file."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fencepost.outputs.rows_request import RowsRequest
from kinds.files.store import Files


def read_rows(request: RowsRequest) -> DataFrame:
    """The rows of a batch, with its columns."""
    one = request.announcement
    values = Files(one.output).read(one.interval.start).values.get(one.revision, [])
    frame = request.spark.createDataFrame([(value,) for value in values], "value string")
    return frame.select(F.from_json("value", request.columns).alias("row")).select("row.*")
