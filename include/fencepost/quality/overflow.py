"""Finds the regex that overflows Java's stack on a long text, and the record that has the text.

Java's regexes recurse for each repetition of a group. So a text of some thousand characters may end in a
StackOverflowError under an ordinary pattern. No message shows the text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fencepost.formats.quoting import column_named, quoted
from fencepost.quality.columns import column_kinds, fails, holds
from fencepost.quality.prepare import Prepared, prepare
from fencepost.spark.diagnosis import overflowed
from fencepost.suite.declared import DeclaredExpectation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LONGEST = 20  # how many texts are tried, the longest first, because a regex overflows on these
REMEDY = (
    "Rewrite it without a repeated group, such as [ab]* for (a|b)*, or make its quantifiers possessive (*+), or limit the text's "
    "length first"
)
TASK = re.compile(r"Job aborted due to stage failure: Task (\d+) in stage ")


def explain(frame: DataFrame, one: Prepared) -> str:
    """Returns the message for an expectation that overflows. It has the argument, and the record's coordinates if the
    frame has them.
    """
    named = " and ".join(f"regex {regex!r}" for regex in one.regexes) or f"expression {one.expression!r}"
    if not one.regexes and one.expression is None:
        named = f"row_condition {one.condition!r}"
    place = _place(frame, one)
    return f"{named} overflows Java's stack on a long text{f', of record {place}' if place else ''}. {REMEDY}"


def overflowing_rule(frame: DataFrame, rules: Sequence[DeclaredExpectation]) -> tuple[DeclaredExpectation, str] | None:
    """Returns the first rule that overflows on the frame's rows, with the explanation. Returns None if no single rule
    overflows.
    """
    from pyspark.sql import functions as F

    from fencepost.rows.encode import PLACES

    types = {field.name: field.dataType for field in frame.schema.fields}
    kinds = column_kinds(frame.drop(*PLACES))
    for rule in rules:
        one = prepare(rule, kinds)
        if _overflows(frame.agg(F.bit_xor(F.xxhash64(*(quoted(name) for name in one.columns or kinds))))):
            return None
        if _overflows(frame.agg(F.count_if(fails(one, types)))):
            return rule, explain(frame, one)
    return None


def _overflows(frame: DataFrame) -> bool:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        frame.collect()
    except (PySparkException, Py4JError) as error:
        if overflowed(str(error)):
            return True
        raise
    return False


def _place(frame: DataFrame, one: Prepared) -> str:
    """Returns the coordinates of a record whose text overflows the expectation. The text is empty if none of the
    longest texts does.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    from fencepost.rows.encode import PLACES

    places = [name for name in PLACES if name in frame.columns]
    if not one.regexes or "_offset" not in places:
        return ""
    (name,) = one.columns
    text = column_named(name).cast("string")
    try:
        asked = frame if one.condition is None else frame.where(holds(one.condition))
        longest = asked.select(*places, text.alias("_text")).orderBy(F.desc(F.length("_text"))).limit(LONGEST)
        rows = longest.collect()
        # Each text is in its own partition, so the number of the failed task is that of the text.
        texts = frame.sparkSession.sparkContext.parallelize([(row["_text"],) for row in rows], max(1, len(rows)))
        alone = frame.sparkSession.createDataFrame(texts, f"{quoted(name)} string")
        failing = fails(replace(one, condition=None), {name: alone.schema[name].dataType})
        alone.agg(F.count_if(failing)).collect()
    except (PySparkException, Py4JError) as error:
        found = TASK.search(str(error)) if overflowed(str(error)) else None
        if found is not None and int(found.group(1)) < len(rows):
            return ":".join(str(rows[int(found.group(1))][place]) for place in places)
    return ""
