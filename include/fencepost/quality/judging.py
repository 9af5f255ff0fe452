"""Great Expectations' verdicts on what Spark gathered: the only door to it, imported inside functions, by `loading.py`.

It is asked whether an expectation holds, by `metrics_validate` on a dictionary of metrics that `gathering.py` fills. We do not
let it read records, drop unknown types, decide about a whole suite, apply severities or list unexpected rows. There is no data
context, so it writes nothing to disk and sends nothing.
"""

from __future__ import annotations

import functools
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from fencepost.quality.gathering import LISTED, Answer
from fencepost.quality.loading import load
from fencepost.quality.prepare import Prepared
from fencepost.suite.catalogue import Scope

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

LONGEST_ERROR = 2_000


class Found(NamedTuple):
    """The answer for one expectation, before any rule of ours.

    `success` is Great Expectations' True or False, or None for anything else. If the expectation is errored, only `error` is set.
    """

    success: bool | None = None
    observed: Any = None
    element_count: int | None = None
    judged_count: int | None = None
    unexpected_count: int | None = None
    error: str = ""


def judge_records(prepared: Sequence[Prepared], answers: Mapping[int, Answer]) -> dict[int, Found]:
    """Whether each expectation holds, by what the records say to it."""
    with _quiet():
        load()
        return {one.declared.index: _found(one, answers.get(one.declared.index)) for one in prepared}


def judge_schema(prepared: Sequence[Prepared], schema: StructType) -> dict[int, Found]:
    """Whether each expectation about the columns' names and types holds."""
    known = {
        "table.columns": schema.fieldNames(),
        "table.column_count": len(schema.fields),
        "table.column_types": list(_types(schema)),
    }
    answer = Answer(elements=0, metrics=known)
    return judge_records(prepared, dict.fromkeys((one.declared.index for one in prepared), answer))


@functools.cache
def _settle_bounds_of_quantiles() -> None:
    """Give a quantile's bounds their meaning: Great Expectations takes 100.01 for a quantile up to 100 (a tolerance of 1 in
    10,000). Defining a class registers it there."""
    from great_expectations.expectations import core

    class ExpectColumnQuantileValuesToBeBetween(core.ExpectColumnQuantileValuesToBeBetween):  # type: ignore[name-defined,misc]
        def _validate(self, metrics: Any, *args: Any, **kwargs: Any) -> Any:
            ranges = self.configuration.kwargs["quantile_ranges"]["value_ranges"]
            pairs = zip(metrics["column.quantile_values"], ranges, strict=True)
            within = [(low is None or low <= v) and (high is None or v <= high) for v, (low, high) in pairs]
            return {**super()._validate(metrics, *args, **kwargs), "success": all(within)}


def _found(one: Prepared, answer: Answer | None) -> Found:
    if answer is None:
        return Found(error="the records gave no answer")
    nothing = one.entry.scope is Scope.COLUMN and not answer.judged
    if nothing and not one.entry.counts:
        return Found(success=one.entry.holds_for_none, judged_count=0)
    try:
        return _judged(one, answer, judged_count=0 if nothing else None)
    except Exception as error:  # whatever it raises, the check was not evaluated
        return Found(error=raised("Great Expectations", error))


def _judged(one: Prepared, answer: Answer, judged_count: int | None) -> Found:
    from great_expectations.execution_engine.sparkdf_execution_engine import SparkDFExecutionEngine
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    _settle_bounds_of_quantiles()
    # It only looks at the engine's class, to know whose types are asked about.
    engine = SparkDFExecutionEngine.__new__(SparkDFExecutionEngine)
    expectation: Any = ExpectationConfiguration(type=one.asked_type, kwargs=dict(one.kwargs)).to_domain_obj()
    by_record = one.entry.fails is not None or one.entry.unique
    runtime = {"result_format": {"result_format": "BOOLEAN_ONLY" if by_record else "BASIC"}}
    dependencies = expectation.get_validation_dependencies(execution_engine=engine, runtime_configuration=runtime)
    given = _of_records(answer, str(expectation.map_metric)) if by_record else _of_figures(answer)
    metrics = {it.id: given[name] for name, it in dependencies.metric_configurations.items() if name in given}
    result = expectation.metrics_validate(metrics=metrics, execution_engine=engine, runtime_configuration=dict(runtime))
    success = boolean(result.success)
    if not by_record:
        return Found(success, observed(result.result), judged_count=judged_count)
    judged, unexpected = answer.judged or 0, answer.unexpected or 0
    holds = judged == 0 or (judged - unexpected) / judged >= float(one.kwargs.get("mostly", 1))
    if holds is not success:
        return Found(error=f"Great Expectations says {success}, the counts {unexpected} of {judged} say {holds}")
    return Found(success, None, answer.elements, answer.judged, answer.unexpected)


def _of_records(answer: Answer, metric: str) -> dict[str, Any]:
    """The metrics of an expectation about single records."""
    return {
        "table.row_count": answer.elements,
        "column_values.nonnull.unexpected_count": answer.elements - (answer.judged or 0),
        f"{metric}.filtered_row_count": answer.judged,
        f"{metric}.unexpected_count": answer.unexpected,
    }


def _of_figures(answer: Answer) -> dict[str, Any]:
    return {"table.row_count": answer.elements, **answer.metrics}


def _types(kind: DataType, within: str = "") -> Iterator[dict[str, Any]]:
    """Names and types of columns, and of fields in structs, as Great Expectations lists them."""
    from pyspark.sql.types import StructType

    for field in kind.fields if isinstance(kind, StructType) else ():
        yield {"name": within + field.name, "type": field.dataType}
        yield from _types(field.dataType, f"{within}{field.name}.")


def observed(result: Mapping[str, Any]) -> Any:
    """The metric itself; for two sets that should be equal, their difference.

    Up to 20 such values are listed, in no fixed choice. So a longer list is given by its number only.
    """
    differences: dict[str, Any] = {}
    for name, shown_as in (("unexpected", "not in the set"), ("missing", "not in the column")):
        listed, count = result.get(f"partial_{name}_list"), result.get(f"{name}_count")
        if listed and count:
            differences[shown_as] = set(listed) if len(listed) == count < LISTED else f"{count} values"
    return differences or result.get("observed_value")


def boolean(success: Any) -> bool | None:
    """True or False (also NumPy's); anything else is no answer."""
    import numpy as np

    return bool(success) if isinstance(success, bool | np.bool_) else None


def raised(who: str, error: Exception) -> str:
    """The first line is fit for a log. The lines after it may quote records and are for the report only."""
    return f"{who} raised {type(error).__name__}; the report has its message\n{error}"[:LONGEST_ERROR]


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Great Expectations, which warns and logs. The results have what matters."""
    logger = logging.getLogger("great_expectations")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
