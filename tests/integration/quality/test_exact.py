"""Money and other numbers are judged exactly: row by row and as figures, whatever doubles would say."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from fencepost.config.sections import Quality
from fencepost.quality import gathering
from fencepost.quality.checks import CheckResult
from fencepost.quality.evaluation import evaluate
from fencepost.suite.declared import DeclaredExpectation, Suite

V, C = "expect_column_values_to_", "expect_column_"
BETWEEN, SET = f"{V}be_between", f"{V}be_in_set"
COORDINATES = ("'out' AS _topic", "0 AS _partition", "CAST(NULL AS BINARY) AS _key")
BIG = 2**53
Asked = tuple[str, dict[str, Any], str]


def judged(spark: Any, columns: str, rows: list[tuple[Any, ...]], asked: list[Asked]) -> list[CheckResult]:
    frame = spark.createDataFrame(rows, columns).selectExpr(
        "*", "monotonically_increasing_id() AS _offset", *COORDINATES
    )
    suite = Suite.of(
        tuple(DeclaredExpectation(index=i, type=kind, kwargs=kwargs) for i, (kind, kwargs, _) in enumerate(asked))
    )
    return list(evaluate(frame, suite, Quality(), len(rows)).checks)


def assert_each(found: list[CheckResult], asked: list[Asked]) -> None:
    said = [(a[0], a[1], f.status.value, f.error) for a, f in zip(asked, found, strict=True)]
    assert [one[2] for one in said] == [a[2] for a in asked], "\n".join(map(str, said))


def bounds(kind: str, column: str, exact: Any, above: Any, below: Any) -> list[Asked]:
    """A figure, or the only value, is `exact`; the other two lie beside it, nearer than a double can say."""
    return [
        (kind, {"column": column, "min_value": exact, "max_value": exact}, "passed"),
        (kind, {"column": column, "max_value": exact, "strict_max": True}, "failed"),
        (kind, {"column": column, "min_value": exact, "strict_min": True}, "failed"),
        (kind, {"column": column, "min_value": above}, "failed"),
        (kind, {"column": column, "max_value": below}, "failed"),
        (kind, {"column": column, "max_value": above}, "passed"),
        (kind, {"column": column, "min_value": below}, "passed"),
    ]


def test_integers_are_compared_exactly_by_every_check_that_takes_numbers(spark: Any) -> None:
    rows = [(BIG + 1, BIG + 1)] * 3
    asked = [
        one
        for kind in (BETWEEN, *(f"{C}{x}_to_be_between" for x in ("min", "max", "mean", "median")))
        for one in bounds(kind, "n", BIG + 1, BIG + 2, BIG)
    ]
    asked += bounds(f"{C}sum_to_be_between", "n", 3 * BIG + 3, 3 * BIG + 4, 3 * BIG + 2)
    quantiles = {"quantiles": [0.5]}
    for low, high, status in ((BIG + 1, BIG + 1, "passed"), (None, BIG, "failed"), (BIG + 2, None, "failed")):
        ranges = {"quantile_ranges": {**quantiles, "value_ranges": [[low, high]]}, "column": "n"}
        asked.append((f"{C}quantile_values_to_be_between", ranges, status))
    asked += [
        (SET, {"column": "n", "value_set": [BIG]}, "failed"),
        (SET, {"column": "n", "value_set": [BIG + 1, 2**70]}, "passed"),
        (SET, {"column": "n", "value_set": [2**70]}, "failed"),
        (f"{V}not_be_in_set", {"column": "n", "value_set": [BIG, -(2**90)]}, "passed"),
        (f"{C}distinct_values_to_equal_set", {"column": "n", "value_set": [BIG + 1]}, "passed"),
        (f"{C}distinct_values_to_contain_set", {"column": "n", "value_set": [BIG + 1, 2**70]}, "failed"),
        (f"{C}distinct_values_to_be_in_set", {"column": "n", "value_set": [BIG]}, "failed"),
        (f"{C}most_common_value_to_be_in_set", {"column": "n", "value_set": [BIG]}, "failed"),
        (f"{C}most_common_value_to_be_in_set", {"column": "n", "value_set": [BIG + 1]}, "passed"),
        (BETWEEN, {"column": "n", "max_value": 2**63}, "passed"),
        (BETWEEN, {"column": "n", "min_value": 2**63}, "failed"),
        (BETWEEN, {"column": "n", "min_value": -(10**30)}, "passed"),
        (BETWEEN, {"column": "n", "min_value": "9007199254740993.5"}, "failed"),
        (BETWEEN, {"column": "n", "max_value": "9007199254740993.5"}, "passed"),
    ]
    found = judged(spark, "n bigint, m bigint", rows, asked)
    assert_each(found, asked)
    means = [f.observed for a, f in zip(asked, found, strict=True) if a[0] == f"{C}mean_to_be_between"]
    assert set(means) == {BIG + 1}


def test_decimals_of_any_precision_are_compared_exactly_by_every_check_that_takes_numbers(spark: Any) -> None:
    """38 digits, of which a double has the first 16; and an eighth, which is exact in both."""
    exact, above, below = (f"12345678901234567890.1234567890123456{n}" for n in ("78", "79", "77"))
    rows = [(Decimal(exact), Decimal("0.125"))] * 4
    asked = [
        one
        for kind in (BETWEEN, *(f"{C}{x}_to_be_between" for x in ("min", "max", "mean", "median")))
        for one in bounds(kind, "d", exact, above, below)
    ]
    four = [str(4 * int(text.replace(".", ""))) for text in (exact, above, below)]
    asked += bounds(f"{C}sum_to_be_between", "d", *(f"{text[:-18]}.{text[-18:]}" for text in four))
    asked += bounds(f"{C}sum_to_be_between", "s", 0.5, 0.5001, 0.4999)
    ranges = [([exact, exact], "passed"), ([None, below], "failed"), ([above, None], "failed")]
    asked += [
        (f"{C}quantile_values_to_be_between", {"column": "d", "quantile_ranges": {"quantiles": [0.3], "value_ranges": [r]}}, s)
        for r, s in ranges
    ]  # fmt: skip
    asked += [
        (SET, {"column": "d", "value_set": [exact]}, "passed"),
        (SET, {"column": "d", "value_set": [above]}, "failed"),
        (SET, {"column": "d", "value_set": [exact + "1"]}, "failed"),
        (SET, {"column": "s", "value_set": [0.125]}, "passed"),
        (SET, {"column": "s", "value_set": [0.1251, "9" * 60]}, "failed"),
        (f"{C}distinct_values_to_equal_set", {"column": "d", "value_set": [exact]}, "passed"),
        (f"{C}distinct_values_to_be_in_set", {"column": "d", "value_set": [above]}, "failed"),
        (f"{C}most_common_value_to_be_in_set", {"column": "d", "value_set": [exact]}, "passed"),
        (f"{C}stdev_to_be_between", {"column": "d", "max_value": 0}, "passed"),
        (f"{V}match_regex", {"column": "d", "regex": r"\.123456789012345678$"}, "passed"),
        (f"{C}value_lengths_to_equal", {"column": "d", "value": 39}, "passed"),
    ]
    found = judged(spark, "d decimal(38,18), s decimal(9,4)", rows, asked)
    assert_each(found, asked)
    shown = {f.observed for a, f in zip(asked, found, strict=True) if a[0] == f"{C}mean_to_be_between"}
    assert shown == {exact}


def test_sums_and_deviations_are_exact_where_a_decimal_of_spark_would_overflow(spark: Any) -> None:
    top = 10**38 - 1
    rows = [(Decimal(top), Decimal("0." + "9" * 38), 2**62 + n, Decimal(-n) / 10) for n in (0, 2, 4)]
    asked: list[Asked] = [
        *bounds(f"{C}sum_to_be_between", "top", 3 * top, 3 * top + 1, 3 * top - 1),
        *bounds(f"{C}stdev_to_be_between", "n", 2, 2.0000001, 1.9999999),
        *bounds(f"{C}stdev_to_be_between", "tenths", 0.2, 0.20000000001, 0.19999999999),
        *bounds(f"{C}mean_to_be_between", "tenths", -0.2, -0.19999999999, -0.20000000001),
        (f"{C}stdev_to_be_between", {"column": "tiny", "max_value": 0}, "passed"),
        (f"{C}mean_to_be_between", {"column": "tiny", "max_value": "0." + "9" * 38}, "passed"),
        (f"{C}mean_to_be_between", {"column": "tiny", "max_value": "0." + "9" * 37 + "8"}, "failed"),
    ]
    columns = "top decimal(38,0), tiny decimal(38,38), n bigint, tenths decimal(4,1)"
    assert_each(judged(spark, columns, rows, asked), asked)


def test_decimals_with_all_digits_behind_the_point_are_added_as_they_are(spark: Any) -> None:
    """Spark writes a zero before the point, which is one digit more than the type has."""
    rows = [(Decimal(f"0.{n}"), Decimal(f"-0.{n}")) for n in (9, 1, 5)]
    asked = [
        *bounds(f"{C}sum_to_be_between", "t", 1.5, 1.5000001, 1.4999999),
        *bounds(f"{C}mean_to_be_between", "m", -0.5, -0.4999999, -0.5000001),
        *bounds(f"{C}stdev_to_be_between", "t", 0.4, 0.4000001, 0.3999999),
        *bounds(f"{C}stdev_to_be_between", "m", 0.4, 0.4000001, 0.3999999),
    ]
    for digits in (20, 30):
        columns = f"t decimal({digits},{digits}), m decimal({digits},{digits})"
        assert_each(judged(spark, columns, rows, asked), asked)


@pytest.mark.parametrize("in_memory", [100, 99])
def test_a_quantile_is_the_value_at_its_rank_by_the_share_as_it_is_written(
    spark: Any, monkeypatch: pytest.MonkeyPatch, in_memory: int
) -> None:
    """As a double, 0.07 times 100 is above 7."""
    monkeypatch.setattr(gathering, "ORDERED_IN_MEMORY", in_memory)
    rows = [(n, float(n)) for n in range(100, 0, -1)]
    at = {0.07: 7, 0.29: 29, 0: 1, 1: 100, 0.071: 8, 0.070000000000001: 8}

    def ranges(value: Any) -> dict[str, Any]:
        return {"quantiles": list(at), "value_ranges": [[v, v] for v in value]}

    asked: list[Asked] = [
        (f"{C}quantile_values_to_be_between", {"column": c, "quantile_ranges": ranges(at.values())}, "passed")
        for c in ("n", "x")
    ]
    beyond = {"quantiles": [0.07], "value_ranges": [[7.0001, None]]}
    asked.append((f"{C}quantile_values_to_be_between", {"column": "n", "quantile_ranges": beyond}, "failed"))
    asked += bounds(f"{C}median_to_be_between", "n", 50.5, 50.50001, 50.49999)
    asked += bounds(f"{C}median_to_be_between", "x", 50.5, 50.50001, 50.49999)
    found = judged(spark, "n bigint, x double", rows, asked)
    assert_each(found, asked)
    assert found[0].observed["values"] == list(at.values())  # type: ignore[index,call-overload]


def test_times_are_compared_to_the_microsecond(spark: Any) -> None:
    last, before = "9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999998Z"
    frame_rows = [(last,)]
    asked: list[Asked] = [
        (kind, {"column": "at", "max_value": bound}, status)
        for kind in (BETWEEN, f"{C}max_to_be_between", f"{C}min_to_be_between")
        for bound, status in ((last, "passed"), (before, "failed"))
    ]
    frame = spark.createDataFrame(frame_rows, "text string").selectExpr("CAST(text AS timestamp) AS at")
    frame = frame.selectExpr("*", "0L AS _offset", *COORDINATES)
    suite = Suite.of(tuple(DeclaredExpectation(index=i, type=k, kwargs=kw) for i, (k, kw, _) in enumerate(asked)))
    found = list(evaluate(frame, suite, Quality(), 1).checks)
    assert_each(found, asked)
    assert {f.observed for f in found[2:]} == {last}


def test_a_double_is_the_double_that_it_is_and_a_number_beside_it_the_nearest_double(spark: Any) -> None:
    rows = [(float(BIG), 0.1)]
    asked: list[Asked] = [
        (kind, {"column": "x", "value_set": [member, *more]}, "passed")
        for kind in (SET, f"{C}distinct_values_to_be_in_set", f"{C}most_common_value_to_be_in_set")
        for member in (BIG, float(BIG), BIG + 1)
        for more in ([], [0.5], [10**400])
    ]
    asked += [
        (f"{C}distinct_values_to_contain_set", {"column": "x", "value_set": [BIG + 1]}, "passed"),
        (f"{C}distinct_values_to_equal_set", {"column": "x", "value_set": [float(BIG)]}, "passed"),
        *bounds(BETWEEN, "y", 0.1, 0.10000000000000002, 0.09999999999999999),
        *bounds(f"{C}max_to_be_between", "y", 0.1, 0.10000000000000002, 0.09999999999999999),
    ]
    assert_each(judged(spark, "x double, y double", rows, asked), asked)


def test_columns_are_compared_and_added_exactly_whatever_their_types(spark: Any) -> None:
    wide = Decimal("1." + "0" * 36 + "1")
    rows = [(1, wide, Decimal(10**37), Decimal("0.1"), 0.1)]
    pair = f"{C}pair_values_to_be_equal"
    greater = f"{C}pair_values_a_to_be_greater_than_b"

    def of(*names: str, total: Any) -> dict[str, Any]:
        return {"column_list": list(names), "sum_total": total, "ignore_row_if": "any_value_is_missing"}

    asked: list[Asked] = [
        (pair, {"column_A": "n", "column_B": "wide"}, "failed"),
        (greater, {"column_A": "wide", "column_B": "n"}, "passed"),
        (greater, {"column_A": "n", "column_B": "wide", "or_equal": True}, "failed"),
        (greater, {"column_A": "large", "column_B": "wide"}, "passed"),
        (pair, {"column_A": "large", "column_B": "wide"}, "failed"),
        (pair, {"column_A": "tenth", "column_B": "x"}, "passed"),
        (pair, {"column_A": "n", "column_B": "x"}, "errored"),
        (pair, {"column_A": "wide", "column_B": "x"}, "errored"),
        ("expect_multicolumn_sum_to_equal", of("n", "tenth", total=1.1), "passed"),
        ("expect_multicolumn_sum_to_equal", of("n", "tenth", total=1.11), "failed"),
        ("expect_multicolumn_sum_to_equal", of("wide", "large", total=f"{10**37 + 1}.{'0' * 36}1"), "passed"),
        ("expect_multicolumn_sum_to_equal", of("wide", "large", total=10**37 + 1), "failed"),
    ]
    columns = "n bigint, wide decimal(38,37), large decimal(38,0), tenth decimal(5,2), x double"
    assert_each(judged(spark, columns, rows, asked), asked)


def test_a_share_is_the_fraction_that_is_written(spark: Any) -> None:
    rows = [(n if n < 29 else None, n % 29, n < 29) for n in range(100)]
    third = "0.33333333333333334"
    asked: list[Asked] = [
        (f"{V}not_be_null", {"column": "n", "mostly": 0.29}, "passed"),
        (f"{V}not_be_null", {"column": "n", "mostly": "0.29000000000000000001"}, "failed"),
        (f"{C}proportion_of_non_null_values_to_be_between", {"column": "n", "min_value": 0.29, "max_value": 0.29}, "passed"),
        (f"{C}proportion_of_unique_values_to_be_between", {"column": "m", "min_value": 0.29, "max_value": 0.29}, "passed"),
        (f"{C}proportion_of_non_null_values_to_be_between", {"column": "n", "min_value": "0.29000000000000000001"}, "failed"),
        ("expect_expression_to_be_true", {"expression": "n > 0", "row_condition": "n < 3", "mostly": third}, "passed"),
        ("expect_expression_to_be_true", {"expression": "n > 1", "row_condition": "n < 3", "mostly": third}, "failed"),
    ]  # fmt: skip
    assert_each(judged(spark, "n bigint, m bigint, yes boolean", rows, asked), asked)
