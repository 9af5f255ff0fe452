"""What columns become before Great Expectations sees them, where the case table cannot show it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.errors import PySparkException

from fencepost.config.pipeline import Quality
from fencepost.model import Outcome
from fencepost.quality.catalogue import Kind
from fencepost.quality.columns import column_kinds
from fencepost.quality.evaluation import evaluate
from fencepost.quality.suite import Declared, Suite

COORDINATES = ("'out' AS _topic", "0 AS _partition", "id AS _offset", "CAST(NULL AS BINARY) AS _key")
BETWEEN = "expect_column_values_to_be_between"


def between(column: str, low: str, high: str) -> Suite:
    return Suite.of((Declared(index=0, type=BETWEEN, kwargs={"column": column, "min_value": low, "max_value": high}),))


@pytest.mark.parametrize("engine", ["pandas", "spark"])
@pytest.mark.parametrize("column", ["aware", "naive"])
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_moments_are_compared_in_utc_whatever_the_sessions_time_zone(
    spark: Any, engine: Any, column: str, zone: str
) -> None:
    """A timestamp without a zone is taken as UTC, as bounds without one are."""
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        batch = spark.range(1).selectExpr(
            "timestamp'2013-07-01T12:00:00Z' AS aware", "timestamp_ntz'2013-07-01 12:00:00' AS naive", *COORDINATES
        )
        noon = datetime(2013, 7, 1, 12, tzinfo=UTC).isoformat()
        quality = Quality(engine=engine)
        assert evaluate(batch, between(column, noon, "2013-07-01 12:00:00"), quality, 1).outcome is Outcome.PASSED
        late = evaluate(batch, between(column, "2013-07-01T12:00:00.000001", "2014-01-01"), quality, 1)
        assert late.checks[0].sample[0].values == {column: "2013-07-01T12:00:00Z"}
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_every_spark_type_has_a_kind(spark: Any) -> None:
    frame = spark.range(1).selectExpr(
        "CAST(1 AS TINYINT) AS a", "CAST(1 AS SMALLINT) AS b", "1F AS c", "1.5BD AS d", "CAST(1 AS DECIMAL(16,1)) AS e",
        "X'00' AS f", "map('k', 1) AS g", "named_struct('k', 1) AS h", "NULL AS i", "INTERVAL 1 DAY AS j", *COORDINATES,
    )  # fmt: skip
    integer, number, text = Kind.INTEGER, Kind.NUMBER, Kind.TEXT
    expected = dict(zip("abcdefghij", [integer, integer, number, number, *[text] * 6], strict=True))
    assert column_kinds(frame) == expected
    suite = Suite.of(
        tuple(
            Declared(index=i, type="expect_column_values_to_be_null", kwargs={"column": c})
            for i, c in enumerate(expected)
        )
    )
    pandas, on_spark = (evaluate(frame, suite, Quality(engine=e), 1) for e in ("pandas", "spark"))
    assert pandas.checks == on_spark.checks
    assert [c.sample[0].values[n] for n, c in zip(expected, pandas.checks, strict=True) if c.sample] == [
        1, 1, 1.0, 1.5, "1.0", "\x00", '{"k":1}', '{"k":1}', "INTERVAL '1' DAY"
    ]  # fmt: skip


@pytest.mark.parametrize("engine", ["pandas", "spark"])
def test_a_read_that_fails_is_raised_and_not_judged(spark: Any, engine: Any) -> None:
    """Swallowed by Great Expectations it would be an errored check, and final; raised, the step may be retried."""
    batch = spark.range(5).selectExpr("raise_error('executor lost') AS n", *COORDINATES)
    suite = Suite.of((Declared(index=0, type="expect_column_values_to_not_be_null", kwargs={"column": "n"}),))
    with pytest.raises(PySparkException, match="executor lost"):
        evaluate(batch, suite, Quality(engine=engine), 5)
