"""Metrics of Great Expectations that we redefine, so that they mean the same on both engines."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any


@functools.cache
def settle_differences() -> None:
    """Give two metrics one meaning on both engines, and a quantile's bounds theirs. Defining a class registers it with Great
    Expectations.

    `A > B` with a null: on Spark it is neither expected nor unexpected and passes silently; pandas counts it as
    unexpected, and so do we. Quantiles: Spark takes the value at rank ceil(q * n), pandas the nearest one; we take Spark's. Great
    Expectations takes 100.01 for a quantile up to 100 (a tolerance of 1 in 10,000); we do not.
    """
    from great_expectations.execution_engine.pandas_execution_engine import PandasExecutionEngine
    from great_expectations.execution_engine.sparkdf_execution_engine import SparkDFExecutionEngine
    from great_expectations.expectations import core
    from great_expectations.expectations.metrics.column_aggregate_metric_provider import (
        ColumnAggregateMetricProvider,
        column_aggregate_value,
    )
    from great_expectations.expectations.metrics.column_pair_map_metrics.column_pair_values_greater import (
        ColumnPairValuesAGreaterThanB,
    )
    from great_expectations.expectations.metrics.map_metric_provider.column_pair_condition_partial import (
        column_pair_condition_partial,
    )
    from great_expectations.expectations.metrics.map_metric_provider.column_pair_map_metric_provider import (
        ColumnPairMapMetricProvider,
    )

    class NullIsNotGreater(ColumnPairMapMetricProvider):
        condition_metric_name = ColumnPairValuesAGreaterThanB.condition_metric_name
        condition_domain_keys = ColumnPairValuesAGreaterThanB.condition_domain_keys
        condition_value_keys = ColumnPairValuesAGreaterThanB.condition_value_keys

        @column_pair_condition_partial(engine=SparkDFExecutionEngine)  # type: ignore[untyped-decorator]
        def _spark(cls, column_A: Any, column_B: Any, **kwargs: Any) -> Any:  # noqa: N803, N805
            from pyspark.sql import functions as F

            greater = column_A >= column_B if kwargs.get("or_equal") else column_A > column_B
            return F.coalesce(greater, F.lit(False))

    class QuantileAtRank(ColumnAggregateMetricProvider):
        metric_name = "column.quantile_values"
        value_keys = ("quantiles", "allow_relative_error")

        @column_aggregate_value(engine=PandasExecutionEngine)
        def _pandas(cls, column: Any, quantiles: Sequence[float], **kwargs: Any) -> list[Any]:  # noqa: N805
            ordered = column.dropna().sort_values().to_list()
            return [ordered[max(math.ceil(q * len(ordered)) - 1, 0)] for q in quantiles]

    class ExpectColumnQuantileValuesToBeBetween(core.ExpectColumnQuantileValuesToBeBetween):  # type: ignore[name-defined,misc]
        def _validate(self, metrics: Any, *args: Any, **kwargs: Any) -> Any:
            ranges = self.configuration.kwargs["quantile_ranges"]["value_ranges"]
            pairs = zip(metrics["column.quantile_values"], ranges, strict=True)
            within = [(low is None or low <= v) and (high is None or v <= high) for v, (low, high) in pairs]
            return {**super()._validate(metrics, *args, **kwargs), "success": all(within)}
