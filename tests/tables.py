"""Pipelines whose output is a table, for tests: their source, and what is in the table; and a table without a pipeline."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import SecretStr

from conftest import at, day
from fencepost.config.client_config import ClientConfig
from fencepost.config.loading import load_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.ledger.deployment import Deployment
from fencepost.outputs.output import Columns, output_of
from fencepost.outputs.postgres.bookkeeping import Bookkeeping
from fencepost.outputs.postgres.table_checks import doubts, why_not_owned, why_not_published_to
from fencepost.outputs.table.pipeline_table import Owner
from fencepost.postgres.connection import session
from fencepost.steps.validate import validate_batch
from fencepost_stack.broker import Broker
from kafka_tools import create_topic, produce
from rigs.postgres_server import PostgresServer, query
from steps import plan_and_write

MINE = Owner("mine", "here")
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


def judged(spark: Any, broker: Broker, pipeline: Pipeline, numbers: Any = range(6), name: str = "ü") -> Pipeline:
    """The pipeline, with the first day's batch written and judged."""
    fill(broker, pipeline, numbers, name=name)
    plan_and_write(spark, pipeline, day(1))
    validate_batch(spark, pipeline, day(1))
    return pipeline


def columns_of(pipeline: Pipeline) -> Columns:
    """The check of a result's columns against its table."""
    columns = output_of(Deployment.of(pipeline)).columns
    assert columns is not None
    return columns


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


class Database:
    """A database of its own, as its owner sees it."""

    def __init__(self, server: PostgresServer) -> None:
        self.server, self.settings = server, server.database()
        secrets = {name: SecretStr(value) for name, value in self.settings.items()}
        self.config = ClientConfig(name="mine", resolved=True, postgres=secrets)

    def run(self, text: str) -> list[tuple[Any, ...]]:
        """The rows of a statement of the owner's."""
        return query(self.settings, text)

    def as_superuser(self, text: str) -> None:
        """Run a statement of the superuser's there."""
        self.server.run(text, dbname=self.settings["dbname"])

    def prepare(self, name: str = "public.orders", pipeline: str = "mine", cluster: str = "here") -> None:
        """Have a table registered as a pipeline's."""
        with session(self.config) as tx:
            store = Bookkeeping(tx, name)
            store.prepare()
            store.register(Owner(pipeline, cluster))
            tx.commit()

    def why_not(self, *, allow: bool = False, start: datetime | None = None) -> list[str]:
        """Asked in a transaction that cannot write, as `fencepost try` does."""
        with session(self.config, wait=2) as tx:
            tx.run("SET TRANSACTION READ ONLY")
            oid = Bookkeeping(tx, "public.orders").oid()
            assert oid is not None
            return why_not_published_to(tx, "public.orders", oid, MINE, start=start, allow_referential_actions=allow)

    def doubts(self) -> list[tuple[str, str]]:
        """As the doctor asks."""
        with session(self.config) as tx:
            oid = Bookkeeping(tx, "public.orders").oid()
            assert oid is not None
            return doubts(tx, oid)

    def owned(self) -> list[str]:
        """As a plan asks."""
        with session(self.config) as tx:
            oid = Bookkeeping(tx, "public.orders").oid()
            assert oid is not None
            return why_not_owned(tx, oid, MINE)
