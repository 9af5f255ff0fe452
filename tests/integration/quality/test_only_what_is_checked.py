"""Of a batch that is judged, only the columns that a check looks at are parsed; the answers are the same."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import pytest
from pyspark.sql import DataFrame

from conftest import at, day
from fencepost.config.pipeline import Pipeline, Quality
from fencepost.formats.json import Json
from fencepost.local.broker import Broker
from fencepost.quality.columns import COORDINATES
from fencepost.quality.evaluation import evaluate
from fencepost.quality.suite import Declared, Suite
from integration.quality.batches import ROWS, frame
from kafka_tools import create_topic, produce
from steps import plan_and_write, run

LOOKS = [
    ("expect_column_values_to_be_between", {"column": "half", "min_value": 0}, {"half"}),
    (
        "expect_column_pair_values_a_to_be_greater_than_b",
        {"column_A": "later", "column_B": "moment"},
        {"later", "moment"},
    ),
    ("expect_table_row_count_to_equal", {"value": ROWS}, set()),
    ("expect_expression_to_be_true", {"expression": "forall(TAGS, x -> x <> `code`)"}, {"tags", "code"}),
    ("expect_expression_to_be_true", {"expression": "struct(*).name IS NULL OR _offset > 0"}, None),
    (
        "expect_column_values_to_not_be_null",
        {"column": "name", "row_condition": "Flag AND _partition = 1"},
        {"name", "flag"},
    ),
]


@pytest.mark.parametrize("engine", ["pandas", "spark"])
@pytest.mark.parametrize("look", range(len(LOOKS)))
def test_a_check_gets_the_columns_that_it_names_wherever_it_names_them(spark: Any, look: int, engine: Any) -> None:
    kind, kwargs, columns = LOOKS[look]
    row_condition = kwargs.get("row_condition")
    whole = frame(spark)
    asked: list[set[str]] = []

    def narrow(names: Collection[str]) -> DataFrame:
        asked.append(set(names))
        return whole.select(*names, *COORDINATES)

    suite = Suite.of((Declared(index=0, type=kind, kwargs=kwargs),))
    said, narrowed = (evaluate(whole, suite, Quality(engine=engine), ROWS, narrow=n) for n in (None, narrow))
    assert asked == [set(whole.columns) - set(COORDINATES) if columns is None else columns]
    assert narrowed.checks == said.checks
    assert said.checks[0].status != "errored", (said.checks[0].error, row_condition)


def test_a_batch_is_parsed_without_what_no_check_looks_at(
    spark: Any, broker: Broker, make_pipeline: Callable[..., Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[list[str]] = []
    parse = Json.parse

    def watched(self: Json, raw: DataFrame, fields: Any, *more: Any) -> DataFrame:
        parsed.append(fields.names)
        return parse(self, raw, fields, *more)

    monkeypatch.setattr(Json, "parse", watched)
    pipeline = make_pipeline(
        expectations="expectations: [{type: expect_column_values_to_not_be_null, kwargs: {column: doubled}}]"
    )
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    produce(broker.bootstrap, pipeline.source.topic, [(b"k", {"n": 1}, 0, at(1))])
    plan_and_write(spark, pipeline, day(1))
    run(spark, pipeline, day(1))
    every, used = parsed
    assert {"n", "doubled", "name"} <= set(every)
    assert used == ["doubled"]
