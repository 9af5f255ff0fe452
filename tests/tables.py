"""Pipelines whose output is a table, for tests: their source, and what is in the table."""

from __future__ import annotations

from typing import Any

from conftest import at, day
from fencepost.config.loading import load_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost_stack.broker import Broker
from kafka_tools import create_topic, produce
from rigs.postgres_server import query

ROWS = """
def transform(frame):
    return frame.where("n >= 0").selectExpr("n", "n * 2 AS doubled", "name")
"""
POSITIVE = """
expectations:
  - {type: expect_column_values_to_be_between, kwargs: {column: n, min_value: 0}}
"""


def fill(broker: Broker, pipeline: Pipeline, numbers: Any = range(6), number: int = 1, name: str = "ü") -> None:
    """Numbers of a day, in both partitions of the source."""
    if number == 1:
        create_topic(broker.bootstrap, pipeline.source.topic, 2)
    records = [(f"k{n}".encode(), {"n": n, "name": name}, i % 2, at(number) + i) for i, n in enumerate(numbers)]
    produce(broker.bootstrap, pipeline.source.topic, records)


def store_of(pipeline: Pipeline) -> dict[str, str]:
    """The settings of its connection."""
    return {name: value.get_secret_value() for name, value in pipeline.postgres.items()}


def ask(pipeline: Pipeline, text: str, *values: Any) -> list[tuple[Any, ...]]:
    """The rows of a statement in its database."""
    return query(store_of(pipeline), text, values)


def numbers_in(pipeline: Pipeline, number: int | None = None) -> list[tuple[int, int]]:
    """The numbers in the table with their revisions, of one day or of all."""
    start = day(number).start if number else None
    text = "select n, fencepost_revision from numbers where fencepost_interval = coalesce(%s, fencepost_interval) order by 1, 2"
    return ask(pipeline, text, start)


def of_revision(revision: int, numbers: Any) -> list[tuple[int, int]]:
    """Those numbers, of that revision."""
    return [(n, revision) for n in numbers]


def with_suite(pipeline: Pipeline, text: str) -> Pipeline:
    """The pipeline with another suite: a suite is read once."""
    (pipeline.folder / "expectations.yaml").write_text(text)
    return load_pipeline(pipeline.folder)
