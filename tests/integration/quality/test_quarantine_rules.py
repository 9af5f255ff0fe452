"""A quarantine rule says the same of each row on the way to the output and at the gate: every rule on every column."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from fencepost.config.sections import Quality
from fencepost.errors import SettingsError
from fencepost.formats import FORMATS
from fencepost.quality.checks import CheckResult, Status
from fencepost.quality.columns import COORDINATES, column_kinds
from fencepost.quality.evaluation import evaluate
from fencepost.quality.prepare import NotEvaluable, prepare
from fencepost.quality.rules import first_failed
from fencepost.suite.catalogue import EXPRESSION, ROW_BY_ROW
from fencepost.suite.declared import DeclaredExpectation, Severity, Suite
from integration.quality.batches import SCHEMA, rows
from integration.quality.cases import CASES, plain

pytestmark = pytest.mark.deep

# Values that trap an engine, beside those that the suite's own cases are made of. JSON has no infinity and no NaN.
TRAPS = """
    big bigint, wide_open double, tiny float, exact decimal(15,5), text string, bytes binary, yes boolean, then timestamp_ntz,
    day date, long bigint
"""
TRAP_ROWS: list[tuple[Any, ...]] = [
    (2**53, 1.7976931348623157e308, 0.1, None, "", b"", True, None, None),
    (2**53 + 1, -1.7976931348623157e308, 3.4e38, None, " ", b"\xff", False, None, None),
    (-(2**53) - 1, 2.5, -0.0, None, "\U0001f600\U0001f600", b"\xed\xa0\x80", None, None, None),
    (2**63 - 1, -0.0, 16777217.0, None, "a\nb", b"a\nb", True, None, None),
    (-(2**63), 5e-324, 16777216.0, None, "a\r", b"A", True, None, None),
    (None, None, None, None, None, None, None, None, None),
    (0, 0.1, 1e-45, None, "\u0131", "ß".encode(), False, None, None),
]
KWARGS: list[tuple[str, dict[str, Any]]] = [
    *((f"expect_column_values_to_{word}be_null", {"column": "*"}) for word in ("not_", "")),
    *((f"expect_column_values_to_{word}be_in_set", {"column": "*", "value_set": [0, 1.5, 2**53]}) for word in ("not_", "")),
    ("expect_column_values_to_be_in_set", {"column": "*", "value_set": [2**53 + 1, -0.0]}),
    ("expect_column_values_to_be_in_set", {"column": "*", "value_set": ["", "a\nb", "A"]}),
    ("expect_column_values_to_be_in_set", {"column": "*", "value_set": [True]}),
    ("expect_column_values_to_be_in_set", {"column": "*", "value_set": ["\ufffd", "A"]}),
    ("expect_column_values_to_be_between", {"column": "*", "min_value": 2**53}),
    ("expect_column_values_to_be_between", {"column": "*", "max_value": 2**53, "strict_max": True}),
    ("expect_column_values_to_be_between", {"column": "*", "min_value": 0.1, "max_value": 3.5, "strict_min": True}),
    ("expect_column_values_to_match_regex", {"column": "*", "regex": "^.$"}),
    ("expect_column_values_to_not_match_regex", {"column": "*", "regex": "(?i)^a"}),
    ("expect_column_values_to_match_regex_list", {"column": "*", "regex_list": ["^a$", r"\s"], "match_on": "all"}),
    ("expect_column_values_to_match_regex_list", {"column": "*", "regex_list": ["^$", r"\s"]}),
    ("expect_column_values_to_not_match_regex_list", {"column": "*", "regex_list": ["^$", "b"]}),
    ("expect_column_value_lengths_to_be_between", {"column": "*", "min_value": 1, "max_value": 2}),
    ("expect_column_value_lengths_to_equal", {"column": "*", "value": 2}),
    *((EXPRESSION, {"expression": sql}) for sql in ("big > 0", "text = ''", "wide_open > 0 AND yes", "isnan(tiny)")),
    (EXPRESSION, {"expression": "boolean(NULL)"}),
    (EXPRESSION, {"expression": "big > 0", "row_condition": "yes"}),
    ("expect_column_pair_values_to_be_equal", {"column_A": "big", "column_B": "long"}),
    ("expect_column_pair_values_to_be_equal", {"column_A": "wide_open", "column_B": "tiny"}),
    ("expect_column_pair_values_to_be_equal", {"column_A": "text", "column_B": "bytes"}),
    ("expect_column_pair_values_a_to_be_greater_than_b", {"column_A": "wide_open", "column_B": "tiny", "or_equal": True}),
    (
        "expect_column_pair_values_a_to_be_greater_than_b",
        {"column_A": "wide_open", "column_B": "tiny", "ignore_row_if": "either_value_is_missing"},
    ),
]  # fmt: skip


def rules_for(frame: DataFrame, asked: list[tuple[str, dict[str, Any]]]) -> list[DeclaredExpectation]:
    """Each on each column that it can be asked about."""
    kinds = column_kinds(frame)
    made: list[DeclaredExpectation] = []
    for kind, kwargs in asked:
        for column in kinds if kwargs.get("column") == "*" else [None]:
            given = {**kwargs, **({"column": column} if column else {})}
            rule = DeclaredExpectation(index=len(made), type=kind, severity=Severity.QUARANTINE, kwargs=given)
            try:
                prepare(rule, kinds)
            except NotEvaluable:
                continue
            made.append(rule)
    return made


def failing(batch: DataFrame, rules: list[DeclaredExpectation]) -> list[list[tuple[int, int]]]:
    """For each rule the coordinates of the rows that fail it on their way to the output."""
    values = batch.drop(*COORDINATES)
    flags = [first_failed(values, [rule], Path("expectations.yaml")).isNotNull() for rule in rules]
    seen = batch.select("_partition", "_offset", *(flag.alias(f"f{n}") for n, flag in enumerate(flags))).collect()
    return [sorted((row["_partition"], row["_offset"]) for row in seen if row[f"f{n}"]) for n in range(len(rules))]


def test_each_row_fails_a_rule_on_its_way_to_the_output_as_it_does_at_the_gate(spark: Any) -> None:
    """The gate judges what is read back from the record's JSON; the write path the row that becomes it."""
    columns = TRAPS + ", _topic string, _partition int, _offset bigint, _key binary"
    batch = spark.createDataFrame(
        [(*row, row[0] if n < 4 else 7, "t", 0, n, None) for n, row in enumerate(TRAP_ROWS)], columns
    )
    rules = rules_for(batch, KWARGS)
    assert {rule.type for rule in rules} == set(ROW_BY_ROW), "every type is asked of some column"
    values = batch.drop(*COORDINATES).schema
    raw = batch.withColumn("value", FORMATS["json"].write(batch, values, None).data)
    read_back = FORMATS["json"].parse(raw, values, [F.col(name) for name in COORDINATES], None)
    suite = Suite.of(tuple(rules))
    checks = evaluate(read_back, suite, Quality(sample_rows=1000), len(TRAP_ROWS)).checks
    for number, fails in enumerate(failing(batch, rules)):
        told = f"{rules[number].title} {json.dumps(rules[number].kwargs)}: {checks[number]}"
        assert failed_rows(checks[number]) == fails, told


def test_each_row_fails_a_rule_as_plain_python_says(spark: Any) -> None:
    """The cases of the gate; `test_answers.py` holds it to the same."""
    cases = [c for c in CASES if c.type in ROW_BY_ROW and c.status != "errored" and "mostly" not in c.kwargs]
    rules = [DeclaredExpectation(index=n, type=c.type, kwargs=plain(c.kwargs)) for n, c in enumerate(cases)]
    for case, fails in zip(cases, failing(spark.createDataFrame(rows(), SCHEMA), rules), strict=True):
        assert fails == case.unexpected, case


def failed_rows(check: CheckResult) -> list[tuple[int, int]]:
    assert check.status is not Status.ERRORED, check.error
    return [(row.partition, row.offset) for row in check.sample]


def test_the_first_rule_that_a_row_fails_is_the_one_it_is_told_by(spark: Any) -> None:
    frame = spark.createDataFrame([(1, "a"), (None, "a"), (5, ""), (None, "")], "n int, s string")
    rules = (
        DeclaredExpectation(index=0, type="expect_column_values_to_not_be_null", kwargs={"column": "n"}),
        DeclaredExpectation(
            index=3, type="expect_column_value_lengths_to_be_between", kwargs={"column": "s", "min_value": 1}
        ),
    )
    failed = frame.select(first_failed(frame, rules, Path("e.yaml")).alias("rule")).collect()
    assert [row["rule"] for row in failed] == [None, 0, 1, 0]


@pytest.mark.parametrize(
    ("kind", "kwargs", "says"),
    [
        ("expect_column_values_to_not_be_null", {"column": "nn"}, "there is no column nn; did you mean n?"),
        (
            "expect_column_values_to_match_regex",
            {"column": "n", "regex": "a"},
            "it takes columns of text; n is integer",
        ),
        (EXPRESSION, {"expression": "n >"}, "is not valid Spark SQL here"),
        (EXPRESSION, {"expression": "nn > 1"}, "is not valid Spark SQL here"),
        (EXPRESSION, {"expression": "sum(n) > 1"}, "is not valid Spark SQL here"),
        (EXPRESSION, {"expression": "n > 0", "row_condition": "m"}, "row_condition 'm' is not valid Spark SQL here"),
    ],
)
def test_a_rule_that_cannot_be_evaluated_is_refused_by_name(
    spark: Any, kind: str, kwargs: dict[str, Any], says: str
) -> None:
    frame = spark.createDataFrame([(1,)], "n int")
    with pytest.raises(SettingsError, match=r"^e\.yaml: expectations\.4: ") as raised:
        first_failed(frame, [DeclaredExpectation(index=4, type=kind, kwargs=kwargs)], Path("e.yaml"))
    assert says in str(raised.value)
