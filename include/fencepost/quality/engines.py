"""Great Expectations on pandas and on Spark: the only door to it (with `engine_metrics.py`), imported inside functions.

We let it compute an expectation's metrics and answer True or False. We do not let it drop unknown types, decide about a whole
suite, apply severities or list unexpected rows. There is no data context, so it writes nothing to disk and sends nothing.

All expectations of one frame share one metric graph (Spark computes their aggregates in one job) at BOOLEAN_ONLY, which counts
and collects no value. The condition of a failed check, the very one that was counted, then fetches the first few records.
`unexpected_index_column_names` would build every unexpected row instead: 16 s and 20 MB for 445 thousand of them.
"""

from __future__ import annotations

import atexit
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from fencepost.collector import collect_for_the_last_time, without_collector
from fencepost.quality.catalogue import Entry, Scope
from fencepost.quality.engine_metrics import settle_differences
from fencepost.quality.prepare import NotEvaluable, Prepared, unknown_type

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame

LONGEST_ERROR = 2_000
_LOADING = Lock()
LISTED = 20  # values of a set that Great Expectations lists


class Found(NamedTuple):
    """Great Expectations' answer for one expectation, before any rule of ours.

    `success` is True, False, or None for anything else. If the expectation is errored, only `error` is set. `unexpected` is
    the condition that marks unexpected records, with its frame, or None.
    """

    success: bool | None = None
    observed: Any = None
    element_count: int | None = None
    judged_count: int | None = None
    unexpected_count: int | None = None
    unexpected: tuple[Any, Any] | None = None
    error: str = ""


def find_on_pandas(prepared: Sequence[Prepared], frames: Mapping[str, pd.DataFrame]) -> dict[int, Found]:
    """Evaluate on pandas. `frames` maps a row_condition (`""` for none) to the records that it selects."""
    with _quiet():
        load()
        from great_expectations.execution_engine.pandas_execution_engine import PandasExecutionEngine

        settle_differences()
        return _find_all(PandasExecutionEngine(), prepared, frames, "pandas")


def find_on_spark(prepared: Sequence[Prepared], frames: Mapping[str, DataFrame]) -> dict[int, Found]:
    """Evaluate on Spark, on persisted frames. `frames` maps a row_condition to the records that it selects."""
    with _quiet():
        load()
        from great_expectations.execution_engine.sparkdf_execution_engine import SparkDFExecutionEngine

        settle_differences()
        session = next(iter(frames.values())).sparkSession
        return _find_all(SparkDFExecutionEngine(persist=False, spark=session), prepared, frames, "spark")


def load() -> None:
    """Import Great Expectations, which takes seconds, or wait until another thread has.

    Its modules import each other in circles. If two threads import them at once, each sees the other's half-made modules
    and gets an ImportError. So nothing here imports any of it before this function has returned.
    """
    with _LOADING:
        with without_collector():
            import great_expectations.execution_engine.pandas_execution_engine
            import great_expectations.execution_engine.sparkdf_execution_engine  # noqa: F401
        atexit.unregister(collect_for_the_last_time)
        atexit.register(collect_for_the_last_time)  # of 300,000 objects: half a second less


def load_ahead() -> None:
    """Start `load` in a thread. Ignore its failure: the next caller of `load` gets it."""

    def begin() -> None:
        with suppress(Exception):  # not `_quiet`: warning filters are the whole process's
            load()

    Thread(target=begin, name="load Great Expectations", daemon=True).start()


def knows(name: str) -> bool:
    """Whether Great Expectations has an expectation of that type."""
    with _quiet():
        load()
        from great_expectations.exceptions.exceptions import ExpectationNotFoundError
        from great_expectations.expectations.registry import get_expectation_impl

        try:
            get_expectation_impl(name)
        except ExpectationNotFoundError:
            return False
    return True


def unexpected_positions(found: Found) -> Any:
    """Index labels of the unexpected records of a failed check, evaluated on pandas."""
    mask, _ = _marked(found)
    return mask.index[mask == True]  # noqa: E712 - object columns hold Python's own True


def unexpected_records(found: Found) -> DataFrame:
    """The unexpected records of a failed check, evaluated on Spark; reads nothing yet."""
    from pyspark.sql import functions as F

    condition, frame = _marked(found)
    # A column first: a filter cannot contain conditions over windows (unique).
    marked: DataFrame = frame.withColumn("_unexpected", condition).where(F.col("_unexpected"))
    return marked


def _marked(found: Found) -> tuple[Any, Any]:
    if found.unexpected is None:
        raise ValueError("no check that failed on single records")
    return found.unexpected


class _Asked(NamedTuple):
    """One expectation as Great Expectations holds it."""

    prepared: Prepared
    expectation: Any
    dependencies: Any
    graph: Any
    runtime: dict[str, Any]


def _find_all(
    engine: Any, prepared: Sequence[Prepared], frames: Mapping[str, Any], flavour: Literal["pandas", "spark"]
) -> dict[int, Found]:
    for name, frame in frames.items():
        engine.load_batch_data(f"batch:{name}", frame)
    answers: dict[int, Found] = {}
    asked: list[_Asked] = []
    for one in prepared:
        try:
            asked.append(_ask(engine, one, flavour))
        except Exception as error:  # whatever it raises, the check was not evaluated
            answers[one.declared.index] = Found(error=_explain(error))
    return answers | _resolve(engine, asked)


def _ask(engine: Any, prepared: Prepared, flavour: Literal["pandas", "spark"]) -> _Asked:
    from great_expectations.exceptions.exceptions import ExpectationNotFoundError
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
    from great_expectations.validator.metric_configuration import MetricConfiguration
    from great_expectations.validator.metrics_calculator import MetricsCalculator

    kwargs = dict(prepared.for_pandas if flavour == "pandas" else prepared.for_spark)
    kwargs["batch_id"] = f"batch:{prepared.condition or ''}"
    try:
        expectation = ExpectationConfiguration(type=prepared.asked_type, kwargs=kwargs).to_domain_obj()
    except ExpectationNotFoundError:
        raise NotEvaluable(unknown_type(prepared.declared.type)) from None
    by_record = getattr(expectation, "map_metric", None) is not None and prepared.scope is not Scope.SCHEMA
    runtime = {"result_format": {"result_format": "BOOLEAN_ONLY" if by_record else "BASIC"}}
    dependencies = expectation.get_validation_dependencies(execution_engine=engine, runtime_configuration=runtime)
    if prepared.scope is Scope.COLUMN:
        dependencies.set_metric_configuration(
            "column_values.nonnull.count",
            MetricConfiguration(
                "column_values.nonnull.count", {"column": prepared.columns[0], "batch_id": kwargs["batch_id"]}
            ),
        )
    graph = MetricsCalculator(engine, show_progress_bars=False).build_metric_dependency_graph(
        metric_configurations=dependencies.get_metric_configurations(), runtime_configuration=runtime
    )
    return _Asked(prepared, expectation, dependencies, graph, runtime)


def _resolve(engine: Any, asked: Sequence[_Asked]) -> dict[int, Found]:
    from great_expectations.validator.validation_graph import ValidationGraph

    edges = [edge for one in asked for edge in one.graph.edges]
    values, aborted = ValidationGraph(execution_engine=engine, edges=edges).resolve(show_progress_bars=False)
    answers: dict[int, Found] = {}
    for one in asked:
        try:
            answers[one.prepared.declared.index] = _answer(engine, one, values, aborted)
        except Exception as error:  # whatever it raises, the check was not evaluated
            answers[one.prepared.declared.index] = Found(error=_explain(error))
    return answers


def _answer(engine: Any, one: _Asked, values: Mapping[Any, Any], aborted: Mapping[Any, Any]) -> Found:
    metrics = {
        name: values.get(configuration.id)
        for name, configuration in one.dependencies.metric_configurations.items()
        if configuration.id in values
    }
    entry = one.prepared.entry
    # Of no record at all, Spark's count is null.
    nothing = "column_values.nonnull.count" in metrics and not metrics["column_values.nonnull.count"]
    if nothing and entry and not entry.counts:
        return _drawn_from_nothing(entry)
    missing = [n for n in one.dependencies.metric_configurations if n not in metrics]
    if missing:
        ours = {edge.left.id for edge in one.graph.edges}
        reasons = [str(info["exception_info"].exception_message) for i, info in aborted.items() if i in ours]
        return Found(error=_raised("MetricResolutionError", reasons[0] if reasons else f"no value for {missing[0]}"))
    result = one.expectation.metrics_validate(
        metrics=values, execution_engine=engine, runtime_configuration=dict(one.runtime)
    )
    success = _boolean(result.success)
    map_metric = getattr(one.expectation, "map_metric", None)
    if map_metric is None or f"{map_metric}.unexpected_count" not in metrics:
        return Found(success=success, observed=_observed(result.result), judged_count=0 if nothing else None)
    return _by_record(engine, one, metrics, values, success, map_metric)


def _drawn_from_nothing(entry: Entry) -> Found:
    """One answer for both engines on no values: pandas would sum them to 0, and Spark to null."""
    return Found(success=entry.holds_for_none, judged_count=0)


def _observed(result: Mapping[str, Any]) -> Any:
    """The metric itself; for two sets that should be equal, their difference.

    Great Expectations lists up to 20 such values, on Spark in no fixed choice. So a longer list is given by its number only.
    """
    differences: dict[str, Any] = {}
    for name, shown_as in (("unexpected", "not in the set"), ("missing", "not in the column")):
        listed, count = result.get(f"partial_{name}_list"), result.get(f"{name}_count")
        if listed and count:
            differences[shown_as] = set(listed) if len(listed) == count < LISTED else f"{count} values"
    return differences or result.get("observed_value")


def _by_record(
    engine: Any, one: _Asked, metrics: Mapping[str, Any], values: Mapping[Any, Any], success: bool | None, metric: str
) -> Found:
    """The counts of a check that judges each record, and its condition if it failed."""
    elements = int(metrics["table.row_count"])
    # A sum over no record is null on Spark.
    unexpected = int(metrics[f"{metric}.unexpected_count"] or 0)
    judged = elements
    if f"{metric}.filtered_row_count" in metrics:
        judged = int(metrics[f"{metric}.filtered_row_count"])
    elif not (one.prepared.entry and one.prepared.entry.nulls):
        judged = elements - int(metrics["column_values.nonnull.unexpected_count"] or 0)
    mostly = float(one.expectation.configuration.kwargs.get("mostly", 1))
    holds = judged == 0 or (judged - unexpected) / judged >= mostly
    if holds is not success:
        return Found(error=f"Great Expectations says {success}, its counts {unexpected} of {judged} say {holds}")
    found = Found(success, None, elements, judged, unexpected)
    return found if not unexpected else found._replace(unexpected=_condition(engine, one, values, metric))


def _condition(engine: Any, one: _Asked, values: Mapping[Any, Any], metric: str) -> tuple[Any, Any] | None:
    for edge in one.graph.edges:
        if edge.left.metric_name == f"{metric}.condition" and edge.left.id in values:
            condition, compute, accessor = values[edge.left.id]
            return condition, engine.get_domain_records(domain_kwargs={**compute, **accessor})
    return None


def _boolean(success: Any) -> bool | None:
    """True or False (also NumPy's); anything else is no answer."""
    import numpy as np

    return bool(success) if isinstance(success, bool | np.bool_) else None


def _explain(error: Exception) -> str:
    if isinstance(error, NotEvaluable):
        return str(error)
    return _raised(type(error).__name__, str(error))


def _raised(name: str, message: str) -> str:
    """The first line is fit for a log. The lines after it may quote records and are for the report only."""
    return f"Great Expectations raised {name}; the report has its message\n{message}"[:LONGEST_ERROR]


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Great Expectations, pandas and tqdm, which warn and log for each metric. The results have what matters."""
    logger = logging.getLogger("great_expectations")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
