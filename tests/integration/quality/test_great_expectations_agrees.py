"""Each type says of any small batch what Great Expectations' own Spark engine says of it, where both define it.

Left out is what only one defines: a null beside a value in `A > B` (there it is neither expected nor unexpected), a figure of no
value, a value listed twice (there a column that has it does not contain the set), and the types of Fencepost's own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.config.sections import Quality
from fencepost.quality.checks import CheckResult, Status
from fencepost.quality.evaluation import evaluate
from fencepost.suite.catalogue import EXPRESSION, KNOWN
from fencepost.suite.declared import DeclaredExpectation, Suite

pytestmark = pytest.mark.deep

Kwargs = dict[str, Any]
WHOLE = st.integers(-3, 3)
NUMBER = st.sampled_from([-1.5, -0.0, 0.0, 0.1, 2.0, 1e10])
TEXT = st.sampled_from(["", "a", "A", "ab", "b\n", "2020-01-05", '{"a": 1}', "ß"])
COLUMNS = "n bigint, m bigint, x double, s string"
ROWS = st.lists(
    st.tuples(st.none() | WHOLE, st.none() | WHOLE, st.none() | NUMBER, st.none() | TEXT), min_size=1, max_size=12
)
VALUES = {"n": WHOLE, "x": NUMBER, "s": TEXT}
PATTERN = st.sampled_from(["^a", "b$", r"\d{4}", "(?i)A", "^.?$", r"[^a-z]", "()"])
V, C = "expect_column_values_to_", "expect_column_"


@st.composite
def between(draw: st.DrawFn, value: st.SearchStrategy[Any], *, strict: bool = True) -> Kwargs:
    """Bounds of which one may be missing."""
    low, high = sorted([draw(value), draw(value)])
    which = draw(st.sampled_from(["both", "low", "high"]))
    found = ({"min_value": low} if which != "high" else {}) | ({"max_value": high} if which != "low" else {})
    if strict:
        found |= {f"strict_{name[:3]}": draw(st.booleans()) for name in found}
    return found


def of(column: str, more: st.SearchStrategy[Kwargs] | None = None) -> st.SearchStrategy[Kwargs]:
    return (st.just({}) if more is None else more).map(lambda kwargs: {"column": column, **kwargs})


@st.composite
def mostly(draw: st.DrawFn, kwargs: st.SearchStrategy[Kwargs]) -> Kwargs:
    share = draw(st.sampled_from([None, 0.3, 0.5, 0.9]))
    return draw(kwargs) | ({} if share is None else {"mostly": share})


def a_set(column: str) -> st.SearchStrategy[Kwargs]:
    return of(
        column, st.lists(VALUES[column], min_size=1, max_size=5, unique=True).map(lambda values: {"value_set": values})
    )


def listed(**more: st.SearchStrategy[Any]) -> st.SearchStrategy[Kwargs]:
    return st.fixed_dictionaries({"regex_list": st.lists(PATTERN, min_size=1, max_size=3), **more})


def ranges(value: float) -> Kwargs:
    return {"quantile_ranges": {"quantiles": [0.0, 0.3, 0.5, 1.0], "value_ranges": [[value - 2.05, value + 0.05]] * 4}}


EITHER = {"ignore_row_if": "either_value_is_missing"}
COUNT, SHARE = st.integers(0, 12), st.sampled_from([0.0, 0.25, 0.5, 1.0])
FLOAT = WHOLE.map(float)
ASKED: dict[str, st.SearchStrategy[Kwargs]] = {
    **{f"{V}{word}be_null": mostly(of("n") | of("s")) for word in ("", "not_")},
    **{f"{V}{word}be_in_set": mostly(a_set("n") | a_set("x") | a_set("s")) for word in ("", "not_")},
    f"{V}be_between": mostly(of("n", between(WHOLE)) | of("x", between(FLOAT))),
    f"{V}be_unique": mostly(of("n") | of("x") | of("s")),
    **{f"{V}{word}match_regex": mostly(of("s", PATTERN.map(lambda p: {"regex": p}))) for word in ("", "not_")},
    f"{V}match_regex_list": mostly(of("s", listed(match_on=st.sampled_from(["any", "all"])))),
    f"{V}not_match_regex_list": mostly(of("s", listed())),
    f"{V}match_strftime_format": mostly(of("s", st.just({"strftime_format": "%Y-%m-%d"}))),
    f"{V}be_json_parseable": mostly(of("s")),
    f"{C}value_lengths_to_be_between": mostly(of("s", between(st.integers(0, 4)))),
    f"{C}value_lengths_to_equal": mostly(of("s", st.integers(0, 3).map(lambda n: {"value": n}))),
    f"{C}pair_values_to_be_equal": mostly(
        st.sampled_from([{"column_A": "n", "column_B": "m"}, {"column_A": "n", "column_B": "m", **EITHER}])
    ),
    f"{C}pair_values_a_to_be_greater_than_b": mostly(
        st.booleans().map(lambda equal: {"column_A": "n", "column_B": "m", "or_equal": equal, **EITHER})
    ),
    "expect_compound_columns_to_be_unique": mostly(
        st.sampled_from(["all_values_are_missing", "any_value_is_missing", "never"]).map(
            lambda rule: {"column_list": ["n", "s"], "ignore_row_if": rule}
        )
    ),
    "expect_multicolumn_sum_to_equal": mostly(
        WHOLE.map(lambda n: {"column_list": ["n", "m"], "sum_total": n, "ignore_row_if": "any_value_is_missing"})
    ),
    **{f"{C}{word}_to_be_between": of("n", between(WHOLE)) | of("x", between(FLOAT)) for word in ("min", "max", "sum")},
    **{f"{C}{word}_to_be_between": of("n", between(FLOAT)) for word in ("mean", "median", "stdev")},
    f"{C}quantile_values_to_be_between": of("n", WHOLE.map(ranges)),
    **{f"{C}distinct_values_to_{word}_set": a_set("n") | a_set("s") for word in ("be_in", "equal", "contain")},
    f"{C}most_common_value_to_be_in_set": st.tuples(a_set("n") | a_set("s"), st.booleans()).map(
        lambda both: both[0] | {"ties_okay": both[1]}
    ),
    f"{C}unique_value_count_to_be_between": of("n", between(COUNT)) | of("s", between(COUNT)),
    **{f"{C}proportion_of_{word}_values_to_be_between": of("n", between(SHARE)) for word in ("unique", "non_null")},
    "expect_table_row_count_to_be_between": between(COUNT),
    "expect_table_row_count_to_equal": COUNT.map(lambda n: {"value": n}),
    f"{C}to_exist": st.sampled_from(["n", "y"]).map(lambda name: {"column": name}),
    f"{V}be_of_type": of("n", st.sampled_from(["LongType", "StringType"]).map(lambda name: {"type_": name})),
    f"{V}be_in_type_list": of(
        "s", st.sampled_from([["LongType"], ["StringType"]]).map(lambda names: {"type_list": names})
    ),
    "expect_table_columns_to_match_set": st.sampled_from([["n", "m"], ["s", "x", "m", "n"]]).map(
        lambda names: {"column_set": names}
    ),
    "expect_table_columns_to_match_ordered_list": st.permutations(["n", "m", "x", "s"]).map(
        lambda names: {"column_list": names}
    ),
    "expect_table_column_count_to_be_between": between(st.integers(3, 5), strict=False),
    "expect_table_column_count_to_equal": st.integers(3, 5).map(lambda n: {"value": n}),
}


class Theirs(NamedTuple):
    """Great Expectations' own answer: an error, or whether it holds, with the count or value that it found."""

    success: bool | None
    unexpected: int | None
    observed: Any
    error: str = ""


def theirs_of(frame: Any, declared: Sequence[DeclaredExpectation]) -> list[Theirs]:
    """Each expectation evaluated on the frame by Great Expectations' Spark engine alone."""
    from great_expectations.execution_engine.sparkdf_execution_engine import SparkDFExecutionEngine
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
    from great_expectations.validator.metrics_calculator import MetricsCalculator
    from great_expectations.validator.validation_graph import ValidationGraph

    engine = SparkDFExecutionEngine(persist=False, spark=frame.sparkSession)
    engine.load_batch_data("batch", frame)
    calculator = MetricsCalculator(engine, show_progress_bars=False)
    asked, edges = [], []
    for one in declared:
        made: Any = ExpectationConfiguration(type=one.type, kwargs={**one.kwargs, "batch_id": "batch"}).to_domain_obj()
        by_record = getattr(made, "map_metric", None) is not None and "type" not in one.type
        runtime = {"result_format": {"result_format": "BOOLEAN_ONLY" if by_record else "BASIC"}}
        needs = made.get_validation_dependencies(execution_engine=engine, runtime_configuration=runtime)
        graph = calculator.build_metric_dependency_graph(
            metric_configurations=needs.get_metric_configurations(), runtime_configuration=runtime
        )
        edges += graph.edges
        asked.append((made, needs, runtime))
    values, _ = ValidationGraph(execution_engine=engine, edges=edges).resolve(show_progress_bars=False)
    found = []
    for made, needs, runtime in asked:
        try:
            result = made.metrics_validate(values, execution_engine=engine, runtime_configuration=dict(runtime))
        except Exception as error:
            found.append(Theirs(None, None, None, f"{type(error).__name__}: {error}"))
            continue
        counted = needs.metric_configurations.get(f"{made.map_metric}.unexpected_count") if _maps(made) else None
        unexpected = None if counted is None else int(values[counted.id] or 0)
        found.append(Theirs(bool(result.success), unexpected, result.result.get("observed_value")))
    return found


def _maps(made: Any) -> bool:
    return getattr(made, "map_metric", None) is not None


def test_every_type_is_compared() -> None:
    assert set(ASKED) == set(KNOWN) - {EXPRESSION}


@settings(max_examples=3)
@given(rows=ROWS, data=st.data())
def test_each_type_says_what_great_expectations_own_engine_says(
    spark: Any, rows: list[Any], data: st.DataObject
) -> None:
    declared = [
        DeclaredExpectation(index=i, type=name, kwargs=data.draw(kwargs, label=name))
        for i, (name, kwargs) in enumerate(ASKED.items())
    ]
    values = spark.createDataFrame(rows, COLUMNS).cache()
    try:
        batch = values.selectExpr("*", "'t' AS _topic", "0 AS _partition", "0L AS _offset", "X'' AS _key")
        ours = evaluate(batch, Suite.of(tuple(declared)), Quality(), len(rows)).checks
        for check, theirs in zip(ours, theirs_of(values, declared), strict=True):
            note = f"{check.type} {check.kwargs}\nours   {check}\ntheirs {theirs}"
            if check.no_value and check.unexpected_count is None:
                continue
            assert check.status is not Status.ERRORED, note
            assert not theirs.error, note
            assert (check.status is Status.PASSED) is theirs.success, note
            if check.unexpected_count is not None:
                assert check.unexpected_count == theirs.unexpected, note
            elif theirs.observed is not None:
                assert _alike(check, theirs.observed), note
    finally:
        values.unpersist()


def _alike(check: CheckResult, observed: Any) -> bool:
    if isinstance(observed, float) and isinstance(check.observed, int | float):
        return math.isclose(check.observed, observed, rel_tol=1e-9, abs_tol=1e-9)
    if isinstance(observed, list) and isinstance(check.observed, list):
        return sorted(map(str, check.observed)) == sorted(map(str, observed))
    return bool(check.observed == observed)
