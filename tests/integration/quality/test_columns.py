"""What columns become before an expectation sees them, where the case table cannot show it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.errors import PySparkException

from fencepost.config.sections import Quality
from fencepost.model import Outcome
from fencepost.quality.columns import column_kinds
from fencepost.quality.evaluation import evaluate
from fencepost.suite.catalogue import Kind
from fencepost.suite.declared import DeclaredExpectation, Suite

COORDINATES = ("'out' AS _topic", "0 AS _partition", "id AS _offset", "CAST(NULL AS BINARY) AS _key")
BETWEEN = "expect_column_values_to_be_between"


def between(column: str, low: str, high: str) -> Suite:
    return Suite.of(
        (DeclaredExpectation(index=0, type=BETWEEN, kwargs={"column": column, "min_value": low, "max_value": high}),)
    )


@pytest.mark.parametrize("column", ["aware", "naive"])
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_moments_are_compared_in_utc_whatever_the_sessions_time_zone(spark: Any, column: str, zone: str) -> None:
    """A timestamp without a zone is taken as UTC, as bounds without one are."""
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        batch = spark.range(1).selectExpr(
            "timestamp'2013-07-01T12:00:00Z' AS aware", "timestamp_ntz'2013-07-01 12:00:00' AS naive", *COORDINATES
        )
        noon = datetime(2013, 7, 1, 12, tzinfo=UTC).isoformat()
        quality = Quality()
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
    integer, decimal, text = Kind.INTEGER, Kind.DECIMAL, Kind.TEXT
    expected = dict(zip("abcdefghij", [integer, integer, Kind.NUMBER, decimal, decimal, *[text] * 5], strict=True))
    assert column_kinds(frame) == expected
    suite = Suite.of(
        tuple(
            DeclaredExpectation(index=i, type="expect_column_values_to_be_null", kwargs={"column": c})
            for i, c in enumerate(expected)
        )
    )
    found = evaluate(frame, suite, Quality(), 1)
    assert [c.sample[0].values[n] for n, c in zip(expected, found.checks, strict=True) if c.sample] == [
        1, 1, 1.0, 1.5, 1, "\x00", '{"k":1}', '{"k":1}', "INTERVAL '1' DAY"
    ]  # fmt: skip


def test_a_read_that_fails_is_raised_and_not_judged(spark: Any) -> None:
    """Swallowed, it would be an errored check, and final; raised, the step may be retried."""
    batch = spark.range(5).selectExpr("raise_error('executor lost') AS n", *COORDINATES)
    condition = {"column": "n", "row_condition": "true"}
    suite = Suite.of(
        tuple(
            DeclaredExpectation(index=i, type="expect_column_values_to_not_be_null", kwargs=kwargs)
            for i, kwargs in enumerate(({"column": "n"}, condition))
        )
    )
    with pytest.raises(PySparkException, match="executor lost"):
        evaluate(batch, suite, Quality(), 5)


def status(spark: Any, columns: str, rows: str, kind: str, **kwargs: Any) -> Any:
    """The result of one expectation on rows given as SQL."""
    batch = spark.sql(f"FROM VALUES {rows} AS t({columns})").selectExpr("monotonically_increasing_id() AS id", "*")
    batch = batch.selectExpr(*columns.split(", "), *COORDINATES)
    suite = Suite.of((DeclaredExpectation(index=0, type=kind, kwargs=kwargs),))
    return evaluate(batch, suite, Quality(), batch.count()).checks[0]


SUM, UNIQUE = "expect_column_sum_to_be_between", "expect_column_values_to_be_unique"


def test_a_sum_beyond_a_long_is_exact(spark: Any) -> None:
    """In a long, four times 2**62 are 0."""
    rows = ", ".join([f"({2**62}L)"] * 4)
    failed = status(spark, "n", rows, SUM, column="n", max_value=100)
    assert (failed.status, failed.observed) == ("failed", 2**64)
    mean = {"column": "n", "min_value": 2.0**62, "max_value": 2.0**62}
    assert status(spark, "n", rows, "expect_column_mean_to_be_between", **mean).status == "passed"
    total = {"column_list": ["n", "m", "o", "p"], "sum_total": 0, "ignore_row_if": "any_value_is_missing"}
    row = f"({2**62}L, {2**62}L, {2**62}L, {2**62}L)"
    assert status(spark, "n, m, o, p", row, "expect_multicolumn_sum_to_equal", **total).unexpected_count == 1


def test_a_sum_of_decimals_is_exact(spark: Any) -> None:
    """As doubles, ten times 0.1 are less than 1."""
    rows = ", ".join(["(0.1BD)"] * 10)
    assert status(spark, "n", rows, SUM, column="n", min_value=1, max_value=1).status == "passed"
    assert status(spark, "n", rows, SUM, column="n", min_value=1, strict_min=True).status == "failed"


def test_integers_beyond_a_double_are_compared_exactly(spark: Any) -> None:
    above = status(spark, "n", f"({2**53 + 1}L)", BETWEEN, column="n", max_value=2.0**53)
    assert above.unexpected_count == 1


@pytest.mark.parametrize(
    ("columns", "rows"),
    [
        ("b", "(X'FF'), (X'FE')"),
        ("a", "(array(timestamp'2020-01-01 00:00:00.000001')), (array(timestamp'2020-01-01 00:00:00.000002'))"),
        ("s", "(named_struct('x', 1, 'y', null)), (named_struct('x', 1, 'y', 2))"),
        ("m", "(map('x', null)), (map())"),
    ],
)
def test_values_that_differ_are_unique(spark: Any, columns: str, rows: str) -> None:
    """Bytes that are no UTF-8, times within a list, and a null within a struct or a map."""
    assert status(spark, columns, rows, UNIQUE, column=columns).status == "passed"
    (first, _) = rows.split("), (")
    assert status(spark, columns, f"{first}), {first})", UNIQUE, column=columns).unexpected_count == 2


@pytest.mark.parametrize(
    ("regex", "text"), [(r"a\Z", "a\n"), ("[a-z&&[^b]]", "b&"), (r"\p{L}+", "ß"), ("(?x)a b", "ab")]
)
def test_a_regex_means_what_it_means_to_java(spark: Any, regex: str, text: str) -> None:
    matches = regex != "[a-z&&[^b]]"
    found = status(spark, "s", f"('{text}')", "expect_column_values_to_match_regex", column="s", regex=regex)
    assert found.unexpected_count == (0 if matches else 1)
