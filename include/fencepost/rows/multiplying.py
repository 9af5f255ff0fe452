"""Decides whether a transform may give several rows for a source record."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from fencepost.rows.observed import listed

# Nodes of Spark's analysed plans that give a row at most once for each row they get.
KEEPING = frozenset(
    (
        *("Project", "Filter", "Sort", "GlobalLimit", "LocalLimit", "Offset", "Tail", "Aggregate", "Distinct"),
        *("Deduplicate", "SubqueryAlias", "View", "WithCTE", "CTERelationDef", "CTERelationRef", "CollectMetrics"),
        *("UnresolvedHint", "ResolvedHint", "Repartition", "RepartitionByExpression", "RebalancePartitions"),
    )
)
ONE_SIDED = frozenset(("LeftSemi", "LeftAnti"))  # joins that add nothing to a row


def may_multiply(result: DataFrame, observed: str) -> bool:
    """Returns whether the result may have several rows for a source record, by Spark's analysed plan.

    `observed` begins the names of the observations on the sources. Nodes below an observation do not belong to the
    transform.
    A node counts as multiplying unless it is known to give at most one row for each row. So generators, joins, unions,
    and Python functions on whole partitions count.
    """
    plans = [result._jdf.queryExecution().analyzed()]
    while plans:
        plan = plans.pop()
        name = plan.nodeName()
        if name == "CollectMetrics" and plan.name().startswith(observed):
            continue
        children = [plan.left()] if name == "Join" else listed(plan.children())
        if not _keeps(plan, name) or not (children or name == "CTERelationRef"):
            return True
        plans += children
    return False


def _keeps(plan: Any, name: str) -> bool:
    if name == "Join":
        return plan.joinType().toString() in ONE_SIDED
    if name == "Sample":
        return not plan.withReplacement()
    if name == "Window":  # one that takes `_record` from another row may give it to many
        return "_record#" not in plan.windowExpressions().mkString(" ")
    return name in KEEPING
