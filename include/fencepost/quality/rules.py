"""Applies quarantine rules to each row. An expectation about single rows becomes a Spark expression of `conditions.py`.

The gate evaluates the same expression on the records written from these rows. The write step does not need Great
Expectations, which takes seconds to import. Great Expectations can only count rows, and the write step has to route
each row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fencepost.errors import SettingsError
from fencepost.quality.columns import column_kinds, fails
from fencepost.quality.prepare import NotEvaluable, prepare
from fencepost.quality.refusal import refusal
from fencepost.rows.flag import Rules
from fencepost.suite.declared import DeclaredExpectation, reason_of, rule_names

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import Column, DataFrame

    from fencepost.config.pipeline import Pipeline


def quarantine_rules(pipeline: Pipeline) -> Rules | None:
    """Returns the rules of the pipeline's suite that decide where a row goes, or None if it has none.

    Raises:
        SettingsError: the suite cannot be read, or is wrong.
    """
    if not (declared := pipeline.suite.rules):
        return None
    return Rules(
        first_failed=lambda frame: first_failed(frame, declared, pipeline.expectations_file),
        named=tuple(zip(rule_names(declared), map(reason_of, declared), strict=True)),
    )


def first_failed(frame: DataFrame, rules: Sequence[DeclaredExpectation], file: Path) -> Column:
    """Returns the position of the first rule that a row of the frame fails, or null if it fails none. `file` is the
    file of the suite.

    The frame has the columns of the output's value and no others.

    Raises:
        SettingsError: a rule cannot be evaluated on the frame's columns.
    """
    from pyspark.sql import functions as F

    kinds = column_kinds(frame)
    types = {f.name: f.dataType for f in frame.schema.fields}
    failed = []
    for number, rule in enumerate(rules):
        try:
            one = prepare(rule, kinds)
            if error := refusal(frame, one):
                raise NotEvaluable(error)
        except NotEvaluable as error:
            raise SettingsError(f"{file}: expectations.{rule.index}: {rule.title}: {error}.") from None
        failed.append(F.when(fails(one, types), F.lit(number)))
    return F.coalesce(*failed) if failed else F.lit(None).cast("int")
