"""Reads what Spark has observed while a job ran, and whether it will observe anything."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, Observation, SparkSession

LISTENERS_WAIT_MS = 60_000


def observed_values(spark: SparkSession, observation: Observation) -> dict[str, Any] | None:
    """Returns the values of an observation by the jobs that have ended. Returns None if none of them came past it: Spark
    leaves out a part of a plan that it knows to give no rows, and does not observe a subquery.

    Spark tells an observation its values after the job, by its listener bus.
    """
    jvm_observation = observation._jo
    assert jvm_observation is not None, "a DataFrame observes it"
    try:
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(LISTENERS_WAIT_MS)
    except Py4JJavaError:
        return None
    if not jvm_observation.future().isCompleted():  # `get` would wait for ever
        return None
    return None if jvm_observation.getRow().schema() is None else observation.get


def is_observed(frame: DataFrame, name: str) -> bool:
    """Returns whether the result of a DataFrame depends on the rows that this observation is on, by Spark's analysed plan."""
    plans, named = [frame._jdf.queryExecution().analyzed()], dict[int, Any]()
    while plans:
        plan = plans.pop()
        node = plan.nodeName()
        if node == "CollectMetrics" and plan.name() == name:
            return True
        if node == "CTERelationRef" and plan.cteId() in named:
            plans.append(named.pop(plan.cteId()))
        children = plan.children()
        if node == "WithCTE":  # a table of WITH counts where the query selects from it
            children = plan.children().takeRight(1)
            named |= {one.id(): one for one in listed(plan.cteDefs())}
        plans += [*listed(children), *listed(plan.subqueries())]
    return False


def listed(found: Any) -> list[Any]:
    """Returns the elements of a sequence of Scala's."""
    return [found.apply(n) for n in range(found.size())]
