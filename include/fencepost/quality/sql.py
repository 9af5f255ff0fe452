"""Decides which SQL a suite may have. A condition may use only the fields of one value, has to give the same answer
always, and has to be able to fail.

The SQL is analysed on the value's fields alone, in a session without anything that a transform registered. There are no
coordinates of records, no tables, and no functions of the user's own. So the write step and the gate cannot evaluate it
differently.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fencepost.quality.columns import COORDINATES, HASH, condition_error, fails
from fencepost.quality.prepare import Prepared

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Expressions that Spark calls deterministic, because they are the same within one query.
CLOCKS = re.compile(r"Current\w+|Now|LocalTimestamp|UnixTimestampNow")
SUBQUERIES = re.compile(r"\w*Subquery\w*|Exists|ListQuery")
SPECIAL = {"now", "today", "tomorrow", "yesterday"}
TYPED = re.compile(r"\b(?:date|timestamp(?:_[ln]tz)?)\s*r?(['\"])\s*(?:now|today|tomorrow|yesterday)\b", re.IGNORECASE)
SAME_EACH_TIME = "it has to give the same answer each time"


def sql_refusal(frame: DataFrame, one: Prepared) -> str | None:
    """Returns why an expectation's SQL cannot be evaluated on the frame's records, or None if it can. It starts no job."""
    if one.condition is None and one.expression is None:
        return None
    fields = _fields_alone(frame)
    for name, sql in (("row_condition", one.condition), ("expression", one.expression)):
        if sql and (error := condition_error(fields, sql, name) or _not_the_same(fields, sql, name)):
            return error
    return _says_nothing(fields, one)


def _fields_alone(frame: DataFrame) -> DataFrame:
    """Returns an empty frame with the value's fields. Spark does not know that it is empty.

    Each field may be null, whatever the transform's frame says. For example, a field from `coalesce` is not nullable in
    the transform's frame, but nullable in the records that are read back. The condition has to mean the same for both.
    """
    from pyspark.sql.types import StructType

    from fencepost.spark.session import session_of_its_own

    own = session_of_its_own(frame.sparkSession)
    fields = [field for field in frame.schema.fields if field.name not in (*COORDINATES, HASH)]
    return own.createDataFrame(own.sparkContext.emptyRDD(), StructType(fields).toNullable())


def _not_the_same(fields: DataFrame, sql: str, name: str) -> str | None:
    """Returns why a condition may give a different answer at another time, or None."""
    if TYPED.search(sql):
        return f"{name} {sql!r} reads the clock: {SAME_EACH_TIME}"
    plan: Any = fields.where(sql)._jdf.queryExecution().analyzed()
    for node in _nodes(plan.expressions().apply(0)):
        kind = str(node.getClass().getSimpleName())
        if SUBQUERIES.fullmatch(kind):
            return f"{name} {sql!r} has a subquery: it is a condition on the fields of one record"
        if CLOCKS.fullmatch(kind) or _is_special(node, kind):
            return f"{name} {sql!r} reads the clock or the session: {SAME_EACH_TIME}"
        if not node.deterministic() and all(child.deterministic() for child in _children(node)):
            return f"{name} {sql!r} is not deterministic ({node.prettyName()}): {SAME_EACH_TIME}"
    return None


def _is_special(node: Any, kind: str) -> bool:
    """Returns whether the node is a text that Spark replaces by the time of the clock, such as `now`."""
    if kind != "Cast" or not str(node.dataType().typeName()).startswith(("date", "timestamp")):
        return False
    child = node.child()
    return bool(child.foldable()) and str(child).strip().lower() in SPECIAL


def _nodes(node: Any) -> Iterator[Any]:
    yield node
    for child in _children(node):
        yield from _nodes(child)


def _children(node: Any) -> list[Any]:
    children = node.children()
    return [children.apply(n) for n in range(children.size())]


def _says_nothing(fields: DataFrame, one: Prepared) -> str | None:
    """Returns why no record can fail, if Spark's optimizer can prove it, otherwise None."""
    with suppress(Exception):  # the optimizer evaluates constants, which may raise an error; then the records decide
        if one.expression is not None and _root(fields.where(one.expression)) not in ("Filter", "LocalRelation"):
            return f"expression {one.expression!r} holds for every record"
        if one.condition is None:
            return None
        left = fields.where(one.condition)
        if _root(left) == "LocalRelation":
            return f"row_condition {one.condition!r} holds for no record, so nothing is judged"
        if one.entry.fails is not None:
            types = {field.name: field.dataType for field in fields.schema.fields}
            failing = fails(replace(one, condition=None), types)
            same = fields.where(~failing)
            if _root(left.where(failing)) == "LocalRelation" or _optimized(left).sameResult(_optimized(same)):
                return f"row_condition {one.condition!r} leaves only records that pass the check"
    return None


def _optimized(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().optimizedPlan()


def _root(frame: DataFrame) -> str:
    return str(_optimized(frame).getClass().getSimpleName())
