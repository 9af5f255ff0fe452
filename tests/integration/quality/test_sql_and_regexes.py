"""SQL and regexes of a suite: what they may ask, and what becomes of a regex that overflows Java's stack."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fencepost.config.sections import Quality
from fencepost.errors import SettingsError
from fencepost.model import Outcome
from fencepost.quality.checks import Status
from fencepost.quality.evaluation import SAMPLE, evaluate
from fencepost.quality.overflow import overflowing_rule
from fencepost.quality.rules import first_failed
from fencepost.suite.catalogue import EXPRESSION
from fencepost.suite.declared import DeclaredExpectation, Suite

V, C = "expect_column_values_to_", "expect_column_"
COORDINATES = ("'out' AS _topic", "3 AS _partition", "id AS _offset", "CAST(NULL AS BINARY) AS _key")
COORDINATES_AGAIN = ("_topic", "_partition", "_offset", "_key")
NOT_NULL = (f"{V}not_be_null", {"column": "n"})
LONG = "^(a|b)*$"


def suite(*declared: tuple[str, dict[str, Any]]) -> Suite:
    return Suite.of(tuple(DeclaredExpectation(index=i, type=t, kwargs=k) for i, (t, k) in enumerate(declared)))


@pytest.fixture(scope="module")
def batch(spark: Any) -> Any:
    texts = "CASE WHEN id = 4 THEN repeat('ab', 20000) ELSE 'ab' END AS text"
    return spark.range(0, 6, 1, 2).selectExpr(
        "id AS n", "int(id) AS small", texts, "date'2020-01-01' AS day", *COORDINATES
    )


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("_offset >= 0", "is not valid Spark SQL here"),
        ("_partition = 3 OR n > 0", "is not valid Spark SQL here"),
        ("rand() < 2", "is not deterministic (rand)"),
        ("n > 0 OR uuid() <> text", "is not deterministic (uuid)"),
        ("monotonically_increasing_id() >= n", "is not deterministic"),
        ("input_file_name() <> text", "is not deterministic"),
        ("current_timestamp() > timestamp'2020-01-01'", "reads the clock"),
        ("now() > timestamp'2020-01-01' AND n > 0", "reads the clock"),
        ("day < current_date()", "reads the clock"),
        ("unix_timestamp() > n", "reads the clock"),
        ("day < date'today'", "reads the clock"),
        ("day < 'tomorrow'", "reads the clock"),
        ("text <> current_user()", "reads the clock or the session"),
        ("n IN (SELECT id FROM range(9))", "has a subquery"),
    ],
)
def test_sql_is_about_the_values_fields_alone_and_says_the_same_each_time(batch: Any, sql: str, says: str) -> None:
    """At the gate and in the write step, as an expression and as a condition."""
    asked = [(EXPRESSION, {"expression": sql}), (NOT_NULL[0], {"column": "n", "row_condition": sql})]
    found = evaluate(batch, suite(*asked, NOT_NULL), Quality(), 6)
    assert [check.status for check in found.checks] == [Status.ERRORED, Status.ERRORED, Status.PASSED]
    values = batch.select("n", "small", "text", "day", "_offset", "_partition").select("n", "small", "text", "day")
    for number, check in enumerate(found.checks[:2]):
        assert says in check.error
        with pytest.raises(SettingsError) as refused:
            first_failed(values, suite(*asked).expectations[number : number + 1], Path("e.yaml"))
        assert says in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "kwargs", "says"),
    [
        (EXPRESSION, {"expression": "1=1"}, "holds for every record"),
        (EXPRESSION, {"expression": "n > 0 OR true"}, "holds for every record"),
        (EXPRESSION, {"expression": "n > 2", "row_condition": "n > 2"}, "leaves only records that pass"),
        (*NOT_NULL[:1], {"column": "n", "row_condition": "n IS NOT NULL"}, "leaves only records that pass"),
        (f"{V}be_between", {"column": "small", "min_value": 3, "row_condition": "small >= 3"}, "leaves only records"),
        (f"{V}match_regex", {"column": "text", "regex": "^a", "row_condition": "text RLIKE '^a'"}, "leaves only records"),
        ("expect_table_row_count_to_equal", {"value": 0, "row_condition": "false"}, "holds for no record"),
        (f"{V}be_between", {"column": "small", "min_value": -(2**31), "max_value": 2**31}, "every value passes"),
        (f"{C}min_to_be_between", {"column": "n", "min_value": -(2**63), "max_value": 2**63 - 1}, "every value passes"),
        (f"{V}be_between", {"column": "day", "min_value": "0001-01-01", "max_value": "9999-12-31"}, "every value passes"),
        (f"{V}be_of_type", {"column": "nn", "type_": "LongType"}, "there is no column nn; did you mean n?"),
        (f"{V}be_in_set", {"column": "text", "value_set": ["\ud800"]}, "an unpaired surrogate"),
    ],
)  # fmt: skip
def test_a_check_that_no_record_fails_or_none_can_be_asked_is_errored_and_takes_no_other_with_it(
    batch: Any, kind: str, kwargs: dict[str, Any], says: str
) -> None:
    found = evaluate(batch, suite((kind, kwargs), NOT_NULL), Quality(), 6)
    assert [check.status for check in found.checks] == [Status.ERRORED, Status.PASSED]
    assert says in found.checks[0].error


@pytest.mark.parametrize(
    ("kind", "kwargs"),
    [
        (EXPRESSION, {"expression": "n IS NOT NULL"}),
        (*NOT_NULL[:1], {"column": "n", "row_condition": "text = 'ab'"}),
        (EXPRESSION, {"expression": "list[0] IS NOT NULL", "row_condition": "text = 'ab'"}),
        ("expect_table_row_count_to_equal", {"value": 0, "row_condition": "n IS NULL"}),
    ],
)
def test_a_check_may_ask_for_nulls_where_the_frame_says_that_there_are_none(
    batch: Any, kind: str, kwargs: dict[str, Any]
) -> None:
    """A transform's `coalesce` makes such a column, and what is read back does not: both ask the same."""
    values = batch.selectExpr("coalesce(n, 0) AS n", "text", "array(1L) AS list", *COORDINATES_AGAIN)
    assert not values.schema["n"].nullable
    found = evaluate(values, suite((kind, kwargs)), Quality(), 6)
    assert [(check.status, check.error) for check in found.checks] == [(Status.PASSED, "")]


@pytest.mark.parametrize(
    "asked",
    [
        (f"{V}match_regex", {"column": "text", "regex": LONG}),
        (f"{V}not_match_regex_list", {"column": "text", "regex_list": ["^x", LONG], "mostly": 0.1}),
        (EXPRESSION, {"expression": f"text RLIKE '{LONG}'"}),
    ],
)
def test_a_regex_that_overflows_javas_stack_is_errored_by_name_and_the_others_are_judged(
    batch: Any, asked: Any
) -> None:
    found = evaluate(
        batch, suite(asked, NOT_NULL, (f"{V}match_regex", {"column": "text", "regex": "^ab"})), Quality(), 6
    )
    assert found.outcome is Outcome.UNDETERMINED
    assert [check.status for check in found.checks] == [Status.ERRORED, Status.PASSED, Status.PASSED]
    assert LONG in found.reason
    assert "overflows Java's stack on a long text" in found.checks[0].error
    assert "abab" not in found.checks[0].error
    if asked[0] != EXPRESSION:
        assert "of record out:3:4" in found.checks[0].error


def test_the_rule_that_overflows_is_told_from_others_and_from_the_transform(batch: Any) -> None:
    rules = suite(
        (f"{V}match_regex", {"column": "text", "regex": "^ab"}), (f"{V}match_regex", {"column": "text", "regex": LONG})
    )
    rows = batch.select("text", "_partition", "_offset")
    found = overflowing_rule(rows, rules.expectations)
    assert found is not None
    assert found[0].index == 1
    assert found[1].startswith(f"regex {LONG!r} overflows Java's stack on a long text, of record 3:4. ")
    transformed = rows.selectExpr(f"text RLIKE '{LONG}' AS text", "_offset").selectExpr(
        "string(text) AS text", "_offset"
    )
    assert overflowing_rule(transformed, rules.expectations) is None


def test_of_a_sample_a_check_of_a_whole_batch_is_errored_if_it_does_not_fit_the_columns(batch: Any) -> None:
    total = f"{C}sum_to_be_between"
    found = evaluate(batch, suite((total, {"column": "text", "max_value": 1}), NOT_NULL), Quality(), 6, part=SAMPLE)
    assert (found.outcome, found.checks[0].status) == (Outcome.UNDETERMINED, Status.ERRORED)
    assert (
        evaluate(batch, suite((total, {"column": "n", "max_value": 1}), NOT_NULL), Quality(), 6, part=SAMPLE).outcome
        == "passed"
    )
