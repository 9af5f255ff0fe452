"""Of every type in the catalogue: an argument that is missing, empty or of a wrong type is refused when the suite is loaded, and
so are arguments with which every batch passes."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import yaml

from fencepost.config.pipeline import load_suite
from fencepost.errors import SettingsError
from fencepost.suite.arguments import SPARK_TYPES, Unknown
from fencepost.suite.catalogue import EXPRESSION, FRESHNESS, HISTORY, KNOWN, ROW_BY_ROW, VOLUME, arguments_of
from fencepost.suite.conditions import _is_time

V, C = "expect_column_values_to_", "expect_column_"
PAIR: dict[str, Any] = {"column_A": "a", "column_B": "b"}
PAIR_FULL = {**PAIR, "ignore_row_if": "either_value_is_missing"}
BETWEEN: dict[str, Any] = {"min_value": 1, "max_value": 2, "strict_min": True, "strict_max": True}
WIDE = {**BETWEEN, "max_value": 4}
SHARE = {**BETWEEN, "min_value": 0.1, "max_value": 0.9}
COLUMN: dict[str, Any] = {"column": "a"}
EACH: dict[str, Any] = {"column": "a", "mostly": 0.9}
RANGES = {"quantiles": [0.1, 0.9], "value_ranges": [[1, 2], [None, 3]]}

# Every argument that a type takes, but row_condition.
FULL: dict[str, dict[str, Any]] = {
    EXPRESSION: {"expression": "a > b", "mostly": 0.9},
    **{f"{V}{name}": EACH for name in ("not_be_null", "be_null", "be_unique", "be_json_parseable")},
    **{f"{V}{name}": {**EACH, "value_set": ["x", 1, 1.5, True]} for name in ("be_in_set", "not_be_in_set")},
    f"{V}be_between": {**EACH, **WIDE},
    f"{V}match_regex": {**EACH, "regex": "^x"},
    f"{V}not_match_regex": {**EACH, "regex": "^x"},
    f"{V}match_regex_list": {**EACH, "regex_list": ["^x"], "match_on": "all"},
    f"{V}not_match_regex_list": {**EACH, "regex_list": ["^x"]},
    f"{V}match_strftime_format": {**EACH, "strftime_format": "%Y-%m-%d"},
    f"{C}value_lengths_to_be_between": {**EACH, **WIDE},
    f"{C}value_lengths_to_equal": {**EACH, "value": 3},
    f"{C}pair_values_to_be_equal": {**PAIR_FULL, "mostly": 0.9},
    f"{C}pair_values_a_to_be_greater_than_b": {**PAIR_FULL, "mostly": 0.9, "or_equal": True},
    "expect_compound_columns_to_be_unique": {"column_list": ["a", "b"], "ignore_row_if": "never", "mostly": 0.9},
    "expect_multicolumn_sum_to_equal": {
        "column_list": ["a", "b"], "ignore_row_if": "any_value_is_missing", "mostly": 0.9, "sum_total": 1.5
    },
    **{f"{C}{name}_to_be_between": {**COLUMN, **WIDE} for name in ("min", "max", "mean", "sum", "stdev", "median")},
    f"{C}quantile_values_to_be_between": {**COLUMN, "quantile_ranges": RANGES},
    **{f"{C}distinct_values_to_{name}_set": {**COLUMN, "value_set": ["x"]} for name in ("be_in", "equal", "contain")},
    f"{C}most_common_value_to_be_in_set": {**COLUMN, "value_set": ["x"], "ties_okay": True},
    f"{C}unique_value_count_to_be_between": {**COLUMN, **WIDE},
    f"{C}proportion_of_unique_values_to_be_between": {**COLUMN, **SHARE},
    f"{C}proportion_of_non_null_values_to_be_between": {**COLUMN, **SHARE},
    "expect_table_row_count_to_be_between": WIDE,
    "expect_table_row_count_to_equal": {"value": 3},
    f"{C}to_exist": {**COLUMN, "column_index": 0},
    f"{V}be_of_type": {**COLUMN, "type_": "StringType"},
    f"{V}be_in_type_list": {**COLUMN, "type_list": ["StringType", "LongType"]},
    "expect_table_columns_to_match_set": {"column_set": ["a", "b"], "exact_match": False},
    "expect_table_columns_to_match_ordered_list": {"column_list": ["a", "b"]},
    "expect_table_column_count_to_be_between": {"min_value": 1, "max_value": 2},
    "expect_table_column_count_to_equal": {"value": 3},
    VOLUME: {"batches": 9, "at_least": 3, "spreads": 3, "tolerance": 0.2},
    FRESHNESS: {"batches": 9, "at_least": 3, "spreads": 3, "tolerance_seconds": 5},
}  # fmt: skip

TEXT: list[Any] = [5, True, ["x"], {"$PARAMETER": "x"}, " "]
FLAG: list[Any] = ["no", "yes", 0, 1, [True]]
WHOLE: list[Any] = [0.5, 1.0, "3", True, -1, [1]]
NUMBER: list[Any] = ["3", True, [1], {"$PARAMETER": "x"}]
BOUND: list[Any] = ["many", True, [1], {"$PARAMETER": "x"}]
CHOICE: list[Any] = ["each", True, ["any"]]
NAMES: list[Any] = ["a", 5, [5], [" "], [None], ["a", "a"], {"a": 1}]
WRONG: dict[str, list[Any]] = {
    **dict.fromkeys(("column", "column_A", "column_B", "expression", "row_condition", "strftime_format"), TEXT),
    **dict.fromkeys(("strict_min", "strict_max", "or_equal", "ties_okay", "exact_match"), FLAG),
    **dict.fromkeys(("column_list", "column_set"), NAMES),
    **dict.fromkeys(("value", "column_index", "batches", "at_least"), WHOLE),
    **dict.fromkeys(("sum_total", "spreads", "tolerance", "tolerance_seconds"), NUMBER),
    **dict.fromkeys(("min_value", "max_value"), BOUND),
    **dict.fromkeys(("match_on", "ignore_row_if"), CHOICE),
    "mostly": [0, -0.5, 1.1, 95, True, "0.5", [0.5]],
    "regex": [5, True, ["x"], "(", "(?i)(", "(?P<a>x)"],
    "regex_list": ["x", 5, [5], [""], ["("], [None]],
    "value_set": ["x", 5, [None], [["x"]], {"a": 1}],
    "quantile_ranges": [
        [0.5], {"quantiles": [0.5]}, {"quantiles": [5], "value_ranges": [[1, 2]]},
        {"quantiles": [], "value_ranges": []}, {"quantiles": [0.5], "value_ranges": []},
        {"quantiles": [0.5], "value_ranges": [["1", 2]]}, {"quantiles": [0.5], "value_ranges": [[1]]},
        {"quantiles": [0.5], "value_ranges": [[1, 2], [1, 2]]}, {**RANGES, "tolerance": 1},
    ],
    "type_": ["stringtype", "int64", "DataType", 5, True, ["StringType"]],
    "type_list": ["StringType", [5], ["int64"], ["StringType", "AtomicType"], [None]],
}  # fmt: skip
FRACTIONS = {
    *(f"{C}{name}_to_be_between" for name in ("value_lengths", "unique_value_count")),
    *(f"expect_table_{name}_count_to_be_between" for name in ("row", "column")),
}
EMPTY: list[Any] = [None, "", [], {}]
ARGUMENTS = [(kind, name) for kind in FULL for name in arguments_of(kind).model_fields]


def load(folder: Path, kind: str, kwargs: dict[str, Any], severity: str = "critical") -> None:
    file = folder / "expectations.yaml"
    file.write_text(yaml.safe_dump({"expectations": [{"type": kind, "severity": severity, "kwargs": kwargs}]}))
    load_suite(file)


def refusal(folder: Path, kind: str, kwargs: dict[str, Any], severity: str = "critical") -> str:
    with pytest.raises(SettingsError) as refused:
        load(folder, kind, kwargs, severity)
    said = str(refused.value)
    assert said.startswith(f"{folder / 'expectations.yaml'}: expectations.0 ({kind}): kwargs"), said
    return said


def takes_conditions(kind: str) -> bool:
    return "row_condition" in arguments_of(kind).model_fields


def test_there_is_an_example_of_every_type_with_every_argument() -> None:
    assert FULL.keys() == KNOWN.keys() | HISTORY.keys()
    for kind, kwargs in FULL.items():
        assert kwargs.keys() == arguments_of(kind).model_fields.keys() - {"row_condition"}


@pytest.mark.parametrize("kind", FULL)
def test_every_argument_is_taken(tmp_path: Path, kind: str) -> None:
    load(tmp_path, kind, FULL[kind] | ({"row_condition": "a > 1"} if takes_conditions(kind) else {}))


@pytest.mark.parametrize("kind", ROW_BY_ROW)
def test_a_rule_takes_what_the_gate_takes_but_mostly(tmp_path: Path, kind: str) -> None:
    load(tmp_path, kind, {k: v for k, v in FULL[kind].items() if k != "mostly"}, "quarantine")


@pytest.mark.parametrize(
    ("kind", "name"), [(k, n) for k, n in ARGUMENTS if arguments_of(k).model_fields[n].is_required()]
)
def test_a_required_argument_cannot_be_left_out(tmp_path: Path, kind: str, name: str) -> None:
    """The write ended with a raw KeyError if it was a rule's; the gate passed if Great Expectations has a default."""
    kwargs = {k: v for k, v in FULL[kind].items() if k != name}
    for severity in ("critical", "quarantine") if kind in ROW_BY_ROW else ("critical",):
        assert f"kwargs.{name}: required but missing; the arguments are " in refusal(tmp_path, kind, kwargs, severity)


@pytest.mark.parametrize(("kind", "name"), ARGUMENTS)
def test_no_argument_may_be_empty(tmp_path: Path, kind: str, name: str) -> None:
    for value in EMPTY:
        assert f"kwargs.{name}" in refusal(tmp_path, kind, {**FULL[kind], name: value}), value


@pytest.mark.parametrize(("kind", "name"), ARGUMENTS)
def test_an_argument_of_a_wrong_type_is_refused(tmp_path: Path, kind: str, name: str) -> None:
    wrong = [*WRONG[name], 0.5, 1.0, -1] if name in BETWEEN and kind in FRACTIONS else WRONG[name]
    for value in wrong:
        assert f"kwargs.{name}" in refusal(tmp_path, kind, {**FULL[kind], name: value}), value


@pytest.mark.parametrize("kind", FULL)
def test_an_unknown_argument_is_refused_with_those_that_there_are(tmp_path: Path, kind: str) -> None:
    said = refusal(tmp_path, kind, {**FULL[kind], "minimum": 1})
    assert "kwargs.minimum: unknown argument; allowed are " in said
    assert all(name in said for name in FULL[kind])


@pytest.mark.parametrize("kind", FULL)
def test_a_condition_is_for_what_looks_at_records(tmp_path: Path, kind: str) -> None:
    if not takes_conditions(kind):
        assert "kwargs.row_condition: unknown argument" in refusal(
            tmp_path, kind, {**FULL[kind], "row_condition": "a > 1"}
        )


BETWEENS = [kind for kind in FULL if kind.endswith("_between") and "quantile" not in kind]
COUNTS = "every value passes: this figure is always 0 or more"
SHARES = "every value passes: this figure is always from 0 to 1"


@pytest.mark.parametrize("kind", BETWEENS)
def test_bounds_have_something_inside_and_something_outside(tmp_path: Path, kind: str) -> None:
    others = {k: v for k, v in FULL[kind].items() if k not in BETWEEN}
    assert "min_value or max_value is required" in refusal(tmp_path, kind, others)
    assert "no value lies between" in refusal(tmp_path, kind, {**others, "min_value": 1, "max_value": 0})
    if "strict_min" in arguments_of(kind).model_fields:
        assert "no value lies between" in refusal(
            tmp_path, kind, {**others, "min_value": 1, "max_value": 1, "strict_min": True}
        )
        assert "strict_min needs min_value" in refusal(tmp_path, kind, {**others, "max_value": 1, "strict_min": True})


@pytest.mark.parametrize(
    ("kind", "kwargs", "says"),
    [
        (f"{V}match_regex", {**COLUMN, "regex": ""}, "an empty one matches everything"),
        (f"{V}match_regex_list", {**COLUMN, "regex_list": ["^x", ""]}, "an empty one matches everything"),
        *((f"{V}{word}match_regex", {**COLUMN, "regex": regex}, "matches every text")
          for word in ("", "not_")
          for regex in ("()", ".*", "(?i)", "^", "$", "a|", "(?s)^.*$", r"^[\s\S]*$", "(a|b?)")),
        *((f"{V}{word}match_regex", {**COLUMN, "regex": regex}, "matches no text")
          for word in ("", "not_") for regex in ("(?!)", r"[^\s\S]", "a^", "$a", r"\b\B")),
        (f"{V}be_in_set", {**COLUMN, "value_set": [False, True]}, "both booleans"),
        (f"{C}distinct_values_to_be_in_set", {**COLUMN, "value_set": [True, False]}, "both booleans"),
        (f"{V}be_in_type_list", {**COLUMN, "type_list": list(SPARK_TYPES)}, "every type"),
        (f"{C}value_lengths_to_be_between", {**COLUMN, "max_value": 2**31}, COUNTS),
        ("expect_table_row_count_to_be_between", {"max_value": 2**63}, COUNTS),
        ("expect_compound_columns_to_be_unique", {"column_list": ["a"]}, "two columns or more"),
        (f"{V}match_strftime_format", {**COLUMN, "strftime_format": "%d %d"}, "cannot parse a time"),
        (FRESHNESS, {"tolerance_seconds": 1e300}, "less than or equal to"),
        (f"{V}be_between", {**COLUMN, "min_value": "2013-01-01T00:00:00.0000001Z"}, "expected a number, or a date"),
        (f"{V}be_between", {**COLUMN, "min_value": 1, "max_value": "2013-01-01"}, "give two of one kind"),
        (f"{V}be_between", {**COLUMN, "min_value": "2013-01-02", "max_value": "2013-01-01T12:00:00Z"}, "no value lies"),
        (f"{C}pair_values_to_be_equal", {"column_A": "a", "column_B": "a"}, "column_A and column_B are both a"),
        (f"{C}pair_values_to_be_equal", {**PAIR, "ignore_row_if": "neither"}, "Input should be 'both_values_are_missing'"),
        (f"{C}value_lengths_to_be_between", {**COLUMN, "min_value": 0}, COUNTS),
        (f"{C}unique_value_count_to_be_between", {**COLUMN, "min_value": 0}, COUNTS),
        (f"{C}stdev_to_be_between", {**COLUMN, "min_value": -1}, COUNTS),
        (f"{C}stdev_to_be_between", {**COLUMN, "max_value": -1}, "no value lies between 0 and -1.0"),
        ("expect_table_row_count_to_be_between", {"min_value": 0}, COUNTS),
        ("expect_table_row_count_to_be_between", {"max_value": 0, "strict_max": True}, "no value lies between 0 and 0"),
        ("expect_table_column_count_to_be_between", {"min_value": 0}, COUNTS),
        (f"{C}proportion_of_unique_values_to_be_between", {**COLUMN, "min_value": 0, "max_value": 1}, SHARES),
        (f"{C}proportion_of_non_null_values_to_be_between", {**COLUMN, "max_value": 1}, SHARES),
        (f"{C}proportion_of_non_null_values_to_be_between", {**COLUMN, "min_value": 95}, "less than or equal to 1"),
        (
            f"{C}quantile_values_to_be_between",
            {**COLUMN, "quantile_ranges": {"quantiles": [0.5], "value_ranges": [[None, None]]}},
            "a range has no bound, so every value passes",
        ),
        (f"{C}quantile_values_to_be_between", {**COLUMN, "quantile_ranges": RANGES, "allow_relative_error": True}, "unknown"),
        ("expect_x", {"mostly": 0}, "kwargs.mostly: Input should be greater than 0"),
        ("expect_x", {"things": []}, "things is empty"),
    ],
)  # fmt: skip
def test_a_check_that_any_batch_passes_or_none_is_refused(
    tmp_path: Path, kind: str, kwargs: dict[str, Any], says: str
) -> None:
    assert says in refusal(tmp_path, kind, kwargs)


def test_arguments_of_types_that_are_not_ours_are_their_own(tmp_path: Path) -> None:
    assert arguments_of("expect_x") is Unknown
    load(tmp_path, "expect_x", {"column": "a", "mostly": 0.5, "threshold": 3, "double_sided": False})


def test_spark_has_the_types_that_a_suite_may_name_and_no_others_that_a_column_can_be() -> None:
    from pyspark.sql import types as T

    found = {n: c for n, c in vars(T).items() if inspect.isclass(c) and issubclass(c, T.DataType)}
    bases = {base for kind in found.values() for base in kind.__mro__[1:]} - {T.StringType}
    no_columns = {"StructField", "UserDefinedType"}
    unwritten = {"GeographyType", "GeometryType", "TimeType"}  # no format of an output has them
    assert set(SPARK_TYPES) == {name for name, kind in found.items() if kind not in bases} - no_columns - unwritten


@pytest.mark.parametrize(
    "regex",
    [
        r"(?<=a|bc)d",
        r"\cA",
        "^*x",
        r"\b+x",
        "a{2}{3}",
        r"(a)\2",
        "(?-i)a",
        r"[\d-z]",
        "^(?!TEST)",
        "^((?!x).)*$",
        "^.*$",
        "^$",
    ],
)
def test_a_regex_that_java_takes_and_that_says_something_is_taken(tmp_path: Path, regex: str) -> None:
    load(tmp_path, f"{V}match_regex", {**COLUMN, "regex": regex})


@pytest.mark.parametrize("template", ["%m-%d", "%d %B", "%j", "%y-%j", "%H:%M", "%d.%m.%y", "%a %d %b"])
def test_a_format_is_tried_with_a_day_that_every_year_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, template: str
) -> None:
    """With today, `%m-%d` was refused on 29 February."""
    from datetime import datetime

    from fencepost.suite import arguments

    class LeapDay(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return cls(2028, 2, 29, 12, tzinfo=tz)

    monkeypatch.setattr(arguments, "datetime", LeapDay)
    load(tmp_path, f"{V}match_strftime_format", {**COLUMN, "strftime_format": template})


@pytest.mark.parametrize(
    ("template", "text", "holds"),
    [
        ("%m-%d", "02-29", True),
        ("%m-%d", "02-30", False),
        ("%m-%d", " 02-29", False),
        ("%m-%d", "02-29 ", False),
        ("%d %b %H:%M", "29 Feb 12:30", True),
        ("%%Y %m-%d", "%Y 02-29", True),
        ("%Y-%m-%d", "1900-02-29", False),
        ("%Y-%m-%d", "2000-02-29", True),
        ("%m/%d/%y", "02/29/01", False),
        ("%H:%M", "24:00", False),
        ("%m-%d", "2000/02-29", False),
        ("%j", "366", True),
        ("%j", "367", False),
    ],
)
def test_a_format_without_a_year_has_29_february_and_one_with_a_year_has_that_years_days(
    template: str, text: str, holds: bool
) -> None:
    assert _is_time(text, template) is holds


def test_a_number_keeps_all_its_digits_from_the_file_to_the_check(tmp_path: Path) -> None:
    file = tmp_path / "expectations.yaml"
    kwargs = "{column: a, min_value: 0.29, max_value: 12345678901234567890.1234567890}"
    file.write_text(f"expectations:\n- {{type: {V}be_between, kwargs: {kwargs}}}\n")
    read = load_suite(file).expectations[0].kwargs
    assert (read["min_value"], read["max_value"]) == (0.29, "12345678901234567890.1234567890")
