"""No list that goes to Python is null: of an Arrow batch with null lists Spark takes the size in quadratic time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StructField, StructType

from fencepost.config.pipeline import Pipeline
from fencepost.errors import RecordRefused
from fencepost.formats import FORMATS
from fencepost.kafka.produce_arguments import arguments_of
from fencepost.model import Layout
from fencepost.rows.decode import HEADERS, RECORD, read_source, with_record
from fencepost.rows.flag import Rules, to_flagged
from fencepost.rows.quarantine_headers import QUARANTINED, Quarantining
from fencepost.rows.route import to_routed
from steps import records_of

pytestmark = pytest.mark.deep


@pytest.fixture
def without_headers(spark: Any) -> DataFrame:
    """A record without headers, with the connector's columns."""
    row = ("in", 0, 7, None, b"k", b'{"n": 1, "name": "x"}', None)
    columns = [field for field in RECORD.fields if field.name != "headers"]
    return spark.createDataFrame([row], StructType([*columns, StructField("headers", HEADERS)]))


def nulls(frame: DataFrame, column: str) -> int:
    return frame.where(F.col(column).isNull()).count()


def nested(frame: DataFrame) -> set[str]:
    return {field.name for field in frame.schema.fields if isinstance(field.dataType, ArrayType | MapType | StructType)}


def test_the_format_reads_lists_and_the_transform_sees_what_the_connector_gave(
    without_headers: DataFrame, make_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline, seen = make_pipeline(source={"headers": True}), []
    format_read = FORMATS["json"].read

    def read(raw: DataFrame, *others: Any) -> DataFrame:
        seen.append(nulls(raw, "headers"))
        return format_read(raw, *others)

    monkeypatch.setattr(FORMATS["json"], "read", read)
    frame = with_record(read_source(without_headers, pipeline.source, record=True))
    assert seen == [0]
    assert (nulls(frame, "_headers"), nulls(frame, "_record.headers")) == (1, 1)


def test_what_quarantine_keeps_goes_to_python_flat(
    without_headers: DataFrame, make_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, format_read = [], FORMATS["json"].read

    def read(raw: DataFrame, declared: Any, kept: Any) -> DataFrame:
        seen.append(nested(raw.select(*kept)))
        return format_read(raw, declared, kept)

    monkeypatch.setattr(FORMATS["json"], "read", read)
    frame = with_record(read_source(without_headers, make_pipeline().source, record=True))
    assert seen == [set()]
    assert frame.schema["_record"].dataType == RECORD


def test_the_writer_gets_lists(without_headers: DataFrame, make_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = make_pipeline(source={"headers": True}, output={"headers": "_headers"})
    frame = with_record(read_source(without_headers, pipeline.source, record=True))
    assert nulls(records_of(frame, pipeline), "headers") == 0
    for number in (None, 0):  # for the output, and for quarantine
        rules = Rules(lambda _, number=number: F.lit(number).cast("int"), (("rule", "reason"),))
        routed = to_routed(to_flagged(frame, pipeline, rules), Layout.SOURCE)
        assert nulls(routed, "headers") == 0
        assert nested(routed) == {"headers"}


def test_headers_for_quarantine_reach_the_writer_as_they_are(
    spark: Any, make_pipeline: Callable[..., Pipeline]
) -> None:
    """They go through JSON: whatever a name or a value holds is there again, and what Kafka refuses is still refused."""
    kept = [(b"", b""), (b"twice", b"1"), (b"twice", None), ("é\n\x01\U0001f600".encode(), bytes(range(256)))]
    refused = [[(None, b"x")], [None], [(b"\xff\xfe", b"x")]]
    rows = [(kept,), ([],), (None,), *((headers,) for headers in refused)]
    schema = "headers array<struct<key: binary, value: binary>>"
    frame = spark.createDataFrame(
        [(n, *row) for n, row in enumerate(rows)], f"_offset long, {schema}"
    ).selectExpr(
        "_offset",
        "CAST(NULL AS binary) AS _key",
        "1 AS n",
        "CAST(headers AS array<struct<key: string, value: binary>>) AS _headers",  # no field of the value: JSON has no such text
    )
    pipeline = make_pipeline(output={"headers": "_headers"})
    rules = Rules(lambda _: F.lit(0), (("rule", "reason"),))
    routed = to_routed(to_flagged(frame, pipeline, rules), Layout.SOURCE).orderBy("_offset")
    (batch,) = routed.select("key", "value", "hash", QUARANTINED).toArrow().combine_chunks().to_batches()
    found = Quarantining("p/i/1", (("rule", "reason"),)).with_headers(batch)
    assert found.column("rule").to_pylist() == [0] * len(rows)
    assert found.column("timestamp").to_pylist() == [None] * len(rows)
    lists = found.column("headers")
    own = 5  # reason, rule, kept, attempt and batch come after a row's own
    theirs = [[(h["key"], h["value"]) for h in row][:-own] for row in lists.to_pylist()]
    assert theirs[0] == kept
    assert theirs[1:3] == [[], []]
    for number in range(3, len(rows)):
        one = pa.RecordBatch.from_pydict(
            {"key": pa.nulls(1, pa.binary()), "value": pa.nulls(1, pa.binary()), "headers": lists.slice(number, 1)}
        )
        with pytest.raises(RecordRefused, match=r"a header has no name|is not UTF-8"):
            arguments_of(one, 0)
