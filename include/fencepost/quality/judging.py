"""Lets Great Expectations judge what Spark gathered. Only this module calls Great Expectations, and imports it inside
functions through `loading.py`.

`metrics_validate` decides whether an expectation holds, by a dictionary of metrics from `gathering.py`. Great
Expectations does not read records, drop unknown types, decide about a whole suite, apply severities or list unexpected
rows. There is no data context, so Great Expectations writes nothing to disk and sends nothing.
"""

from __future__ import annotations

import logging
import math
import operator
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

from fencepost.quality.gathering import LISTED, Answer
from fencepost.quality.loading import load
from fencepost.quality.prepare import Prepared
from fencepost.suite.catalogue import Scope
from fencepost.suite.figures import Figure, Root
from fencepost.suite.numbers import exact_number, number_of

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

LONGEST_ERROR = 2_000


class ExpectationAnswer(NamedTuple):
    """Great Expectations' answer for one expectation, before Fencepost's own rules.

    `success` is Great Expectations' True or False, or None for any other answer. If the expectation is errored, only
    `error` is set.
    """

    success: bool | None = None
    observed: Any = None
    element_count: int | None = None
    judged_count: int | None = None
    unexpected_count: int | None = None
    error: str = ""


def judge_records(prepared: Sequence[Prepared], answers: Mapping[int, Answer]) -> dict[int, ExpectationAnswer]:
    """Returns whether each expectation about records holds, by the answers gathered from them."""
    with _quiet():
        load()
        return {one.declared.index: _found(one, answers.get(one.declared.index)) for one in prepared}


def judge_schema(prepared: Sequence[Prepared], schema: StructType) -> dict[int, ExpectationAnswer]:
    """Returns whether each expectation about the columns' names and types holds."""
    known = {
        "table.columns": schema.fieldNames(),
        "table.column_count": len(schema.fields),
        "table.column_types": list(_types(schema)),
    }
    answer = Answer(elements=0, metrics=known)
    return judge_records(prepared, dict.fromkeys((one.declared.index for one in prepared), answer))


def _found(one: Prepared, answer: Answer | None) -> ExpectationAnswer:
    if answer is None:
        return ExpectationAnswer(error="the records gave no answer")
    nothing = one.entry.scope is Scope.COLUMN and not answer.judged
    if nothing and not one.entry.counts:
        return ExpectationAnswer(success=one.entry.holds_for_none, judged_count=0)
    try:
        return _judged(one, answer, judged_count=0 if nothing else None)
    except Exception as error:  # whatever it raises, the check was not evaluated
        return ExpectationAnswer(error=raised("Great Expectations", error))


def _judged(one: Prepared, answer: Answer, judged_count: int | None) -> ExpectationAnswer:
    from great_expectations.execution_engine.sparkdf_execution_engine import SparkDFExecutionEngine
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    # It only looks at the class of the engine, to know which system's types the expectation names.
    engine = SparkDFExecutionEngine.__new__(SparkDFExecutionEngine)
    by_record = one.entry.fails is not None or one.entry.unique
    judged, unexpected = answer.judged or 0, answer.unexpected or 0
    kwargs, metrics = _in_ranks(one, answer)
    holds = judged == 0 or judged - unexpected >= share_of(one) * judged
    if by_record and judged:
        kwargs["mostly"] = _as_double(share_of(one), (judged - unexpected) / judged, holds)
    expectation: Any = ExpectationConfiguration(type=one.asked_type, kwargs=kwargs).to_domain_obj()
    runtime = {"result_format": {"result_format": "BOOLEAN_ONLY" if by_record else "BASIC"}}
    dependencies = expectation.get_validation_dependencies(execution_engine=engine, runtime_configuration=runtime)
    given = (
        _of_records(answer, str(expectation.map_metric))
        if by_record
        else {"table.row_count": answer.elements} | metrics
    )
    metrics = {it.id: given[name] for name, it in dependencies.metric_configurations.items() if name in given}
    result = expectation.metrics_validate(metrics=metrics, execution_engine=engine, runtime_configuration=dict(runtime))
    success = boolean(result.success)
    if not by_record:
        within = _within(one, answer)
        if within is not None and within is not success:
            return ExpectationAnswer(
                error=f"Great Expectations answered {success}, but {within} follows from the figure and its exact bounds"
            )
        return ExpectationAnswer(success, _observed(one, answer, result.result), judged_count=judged_count)
    if holds is not success:
        return ExpectationAnswer(
            error=f"Great Expectations answered {success}, but {holds} follows from the counts ({unexpected} unexpected of "
            f"{judged} judged)"
        )
    return ExpectationAnswer(success, None, answer.elements, answer.judged, answer.unexpected)


def _within(one: Prepared, answer: Answer) -> bool | None:
    """Returns whether a figure lies within its bounds, by exact comparison. Returns None if the expectation compares no
    figure.
    """
    kwargs, figure = one.kwargs, one.entry.figure
    if "quantile_ranges" in kwargs:
        pairs = zip(answer.figure, kwargs["quantile_ranges"]["value_ranges"], strict=True)
        compared = [(_key(value, None), _key(low, None), _key(high, None)) for value, (low, high) in pairs]
    elif figure is not None:
        bounds = kwargs.get("min_value"), kwargs.get("max_value")
        compared = [(_key(answer.figure, figure), *(_key(bound, figure) for bound in bounds))]
    else:
        return None
    if any(value is None for value, _, _ in compared):
        return None
    above, below = (operator.gt if kwargs.get(f"strict_{end}") else operator.ge for end in ("min", "max"))
    return all(
        (low is None or above(value, low)) and (high is None or below(high, value)) for value, low, high in compared
    )


def _of_records(answer: Answer, metric: str) -> dict[str, Any]:
    """Returns the metrics of an expectation about single records."""
    return {
        "table.row_count": answer.elements,
        "column_values.nonnull.unexpected_count": answer.elements - (answer.judged or 0),
        f"{metric}.filtered_row_count": answer.judged,
        f"{metric}.unexpected_count": answer.unexpected,
    }


def share_of(one: Prepared) -> Fraction:
    """Returns the share `mostly`, exactly as written in the suite."""
    return Fraction(exact_number(one.kwargs.get("mostly", 1)))


def _as_double(share: Fraction, found: float, holds: bool) -> float:
    """Returns `share` as a double. When Great Expectations compares it with the double `found`, it gets `holds`, the
    result of the exact comparison.
    """
    near = float(share)
    return near if (found >= near) is holds else found if holds else math.nextafter(found, 2)


def _in_ranks(one: Prepared, answer: Answer) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the arguments and metrics that Great Expectations gets.

    Great Expectations compares doubles, and ignores the fraction of a bound of a count. So Great Expectations gets
    ranks in place of values. A figure and its bounds become their ranks in exact order, from 0. Members of a set become
    their positions in the set, and a value outside the set becomes a number below zero. The answer about the ranks is
    the answer about the values.
    """
    kwargs, metrics = dict(one.kwargs), dict(answer.metrics)
    figure = one.entry.figure
    if "quantile_ranges" in kwargs:
        ranges = kwargs["quantile_ranges"]
        found = [_ranked([value, *pair]) for value, pair in zip(answer.figure, ranges["value_ranges"], strict=True)]
        quantiles = [float(exact_number(q)) for q in ranges["quantiles"]]
        kwargs["quantile_ranges"] = {"quantiles": quantiles, "value_ranges": [pair for _, *pair in found]}
        metrics["column.quantile_values"] = [value for value, *_ in found]
    elif figure is not None:
        low, high = kwargs.get("min_value"), kwargs.get("max_value")
        ranks = _ranked([answer.figure, low, high], figure)
        metrics[figure.metric], *bounds = ranks
        named = zip(("min_value", "max_value"), bounds, strict=True)
        kwargs |= {name: rank for name, rank in named if rank is not None}
    elif one.entry.fails is not None:  # it gets counts of unexpected records, so the bounds' values do not matter
        kwargs |= {name: rank for rank, name in enumerate(("min_value", "max_value")) if name in kwargs}
        kwargs |= {"value": 0} if "value" in kwargs else {}
        kwargs |= {"sum_total": 0} if "sum_total" in kwargs else {}
    if "value_set" in kwargs:
        places = {value: place for place, value in enumerate(kwargs["value_set"])}
        kwargs["value_set"] = list(places.values())
        if (common := metrics.get("column.most_common_value")) is not None:
            metrics["column.most_common_value"] = [places.get(value, -1 - n) for n, value in enumerate(common)]
    return kwargs, metrics


def _ranked(numbers: Sequence[Any], figure: Figure | None = None) -> list[int | None]:
    """Returns the rank of each number in order, from 0. The rank of None, and of a value that is not a number, is None."""
    keys = [_key(number, figure) for number in numbers]
    order = sorted({key for key in keys if key is not None})
    return [None if key is None else order.index(key) for key in keys]


def _key(number: Any, figure: Figure | None) -> Any:
    """Returns a number in a form in which all numbers compare exactly."""
    if number is None or number != number:
        return None
    if not isinstance(number, float | Root | Fraction):
        exact = number_of(number)
        number = Fraction(exact) if exact is not None else number
    return number if figure is None else figure.key(number)


def _observed(one: Prepared, answer: Answer, result: Mapping[str, Any]) -> Any:
    """Returns what the check observed. The observed value is a figure, or the most common values as gathered, or what
    Great Expectations reports.
    """
    if "quantile_ranges" in one.kwargs:
        return {
            "quantiles": [float(exact_number(q)) for q in one.kwargs["quantile_ranges"]["quantiles"]],
            "values": answer.figure,
        }
    if one.entry.figure is not None:
        return answer.figure.nearest if isinstance(answer.figure, Root) else answer.figure
    return answer.metrics.get("column.most_common_value") or observed(result)


def _types(kind: DataType, within: str = "") -> Iterator[dict[str, Any]]:
    """Yields names and types of columns, and of fields in structs, in Great Expectations' form."""
    from pyspark.sql.types import StructType

    for field in kind.fields if isinstance(kind, StructType) else ():
        yield {"name": within + field.name, "type": field.dataType}
        yield from _types(field.dataType, f"{within}{field.name}.")


def observed(result: Mapping[str, Any]) -> Any:
    """Returns the metric. For two sets that should be equal, it returns their difference.

    Great Expectations lists up to 20 values of a difference, in no fixed choice. So a longer difference is given only
    as a number.
    """
    differences: dict[str, Any] = {}
    for name, shown_as in (("unexpected", "not in the set"), ("missing", "not in the column")):
        listed, count = result.get(f"partial_{name}_list"), result.get(f"{name}_count")
        if listed and count:
            differences[shown_as] = set(listed) if len(listed) == count < LISTED else f"{count} values"
    return differences or result.get("observed_value")


def boolean(success: Any) -> bool | None:
    """Returns True or False for a boolean of Python or NumPy, and None for any other value."""
    import numpy as np

    return bool(success) if isinstance(success, bool | np.bool_) else None


def raised(who: str, error: Exception) -> str:
    """Returns an error's text. The text's first line is fit for a log. The other lines may quote records, and belong
    only in the report.
    """
    return f"{who} raised {type(error).__name__}; the report has its message\n{error}"[:LONGEST_ERROR]


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences Great Expectations' warnings and logs in the block. The results have everything that matters."""
    logger = logging.getLogger("great_expectations")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
