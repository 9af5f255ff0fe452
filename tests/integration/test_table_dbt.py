"""The dbt models of docs/tables.md, as dbt compiles them, on a real PostgreSQL beside real publications: they miss no batch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from jinja2 import Environment, StrictUndefined

from conftest import day
from fencepost.config.pipeline import Pipeline
from fencepost.doctor.observed_state import observed_state
from fencepost.ledger.deployment import Deployment
from fencepost.outputs.postgres import commit
from fencepost.steps.advance import advance_batch, begin_batch
from fencepost.steps.obstacle import give_up
from fencepost.steps.validate import validate_batch
from fencepost_stack.broker import Broker
from rigs.postgres_server import query
from steps import latest, plan_and_write, run
from tables import ROWS, ask, fill, store_of

DOCUMENT = Path(__file__).parents[2] / "docs" / "tables.md"
COLUMNS = "n, doubled, fencepost_interval, fencepost_revision"
BY_INTERVAL, WITH_ROWS = "delays_by_interval", "stg_delays"


def models() -> dict[str, str]:
    """The models of the document, by name."""
    found = re.findall(r"`models/(\w+)\.sql`:\n\n```sql\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert [name for name, _ in found] == [BY_INTERVAL, WITH_ROWS]
    return dict(found)


class Project:
    """The models in a schema of their own, as dbt runs them.

    The first run makes a table of what the model selects. Later ones put that into a temporary table, delete what has its unique
    key and insert it, in one transaction.
    """

    def __init__(self, settings: dict[str, str]) -> None:
        self.settings = settings
        self.between: Callable[[], object] = lambda: None  # what happens while dbt runs, before it deletes
        query(settings, "create schema marts")

    def run(self) -> None:
        """`dbt run`"""
        table = f"marts.{BY_INTERVAL}"
        is_there = query(self.settings, "select to_regclass(%s)", [table]) != [(None,)]
        text, config = self.compiled(BY_INTERVAL, is_incremental=is_there)
        key = config["unique_key"]
        assert (config["materialized"], config["incremental_strategy"]) == ("incremental", "delete+insert")
        with closing(psycopg2.connect(**self.settings)) as connection, connection.cursor() as cursor:
            if not is_there:
                cursor.execute(f"create table {table} as ({text})")
                self.between()
            else:
                cursor.execute(f"create temporary table source as ({text})")
                self.between()
                cursor.execute(f"delete from {table} where ({key}) in (select distinct {key} from source)")
                cursor.execute(f"select * from {table} limit 0")
                columns = ", ".join(f'"{column.name}"' for column in cursor.description or ())
                cursor.execute(f"insert into {table} ({columns}) (select {columns} from source)")
            connection.commit()
        if not is_there:
            query(self.settings, f"create view marts.{WITH_ROWS} as ({self.compiled(WITH_ROWS)[0]})")

    def compiled(self, name: str, *, is_incremental: bool = False) -> tuple[str, dict[str, str]]:
        """A model's statement, and its configuration."""
        config: dict[str, str] = {}
        values: dict[str, Any] = {
            "config": lambda **given: config.update(given) or "",
            "source": lambda source, table: f'"{source}"."{table}"',
            "ref": lambda model: f'"marts"."{model}"',
            "this": f'"marts"."{name}"',
            "is_incremental": lambda: is_incremental,
        }
        environment = Environment(undefined=StrictUndefined, autoescape=False)  # noqa: S701 - SQL, as dbt renders it
        return environment.from_string(models()[name]).render(values), config

    def rows(self) -> list[tuple[Any, ...]]:
        """What other models read."""
        return query(
            self.settings,
            f"select {COLUMNS} from marts.{WITH_ROWS} order by 3, 1",
        )


@pytest.fixture
def pipeline(make_table: Callable[..., Pipeline], broker: Broker) -> Pipeline:
    """One with records of two days."""
    made = make_table(output={"table": "reporting.delays"})
    ask(made, "create schema reporting")
    fill(broker, made)
    fill(broker, made, range(10, 14), number=2)
    return made


@pytest.fixture
def project(pipeline: Pipeline) -> Iterator[Project]:
    return Project(store_of(pipeline))


def in_table(pipeline: Pipeline) -> list[tuple[Any, ...]]:
    return ask(pipeline, f"select {COLUMNS} from reporting.delays order by 3, 1")


def numbers(rows: list[tuple[Any, ...]]) -> list[int]:
    return [row[0] for row in rows]


def test_the_documented_models_have_every_batch_whatever_began_and_committed_first(
    spark: Any, pipeline: Pipeline, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2):
        plan_and_write(spark, pipeline, day(number))
        validate_batch(spark, pipeline, day(number))

    def overtaken(name: str) -> None:
        """While the first day is copied and not committed, the second is published, and dbt runs."""
        if name == "table.copied":
            monkeypatch.undo()
            advance_batch(pipeline, day(2))
            project.run()
            assert numbers(project.rows()) == [10, 11, 12, 13]

    monkeypatch.setattr(commit, "reached", overtaken)
    advance_batch(pipeline, day(1))
    began = ask(pipeline, "select changed_at from reporting.fencepost_batches order by interval_start")
    assert began[0] < began[1], "the one that was committed last began first"
    project.run()
    assert numbers(project.rows()) == [*range(6), 10, 11, 12, 13]

    (pipeline.folder / "transform.py").write_text(ROWS.replace("n >= 0", "n > 100"))
    project.between = lambda: run(spark, pipeline, day(2), reprocess=True)
    project.run()  # while it runs, a revision leaves the second day empty
    assert numbers(in_table(pipeline)) == [*range(6)]
    project.between = lambda: None
    project.run()
    assert project.rows() == in_table(pipeline)
    project.run()
    assert project.rows() == in_table(pipeline), "an interval without rows is kept as such"


@pytest.mark.deep
def test_the_documented_models_keep_what_stays_and_follow_a_restore_and_a_ledger_made_anew(
    spark: Any, pipeline: Pipeline, project: Project
) -> None:
    for number in (1, 2):
        run(spark, pipeline, day(number))
    project.run()
    (pipeline.folder / "transform.py").write_text(ROWS.replace("n >= 0", "n > 2"))
    plan_and_write(spark, pipeline, day(1), reprocess=True)
    validate_batch(spark, pipeline, day(1))
    begin_batch(pipeline, day(1))
    deployment, batch = Deployment.of(pipeline), latest(pipeline, day(1))
    deployment.ledger.read()
    assert give_up(deployment, batch, observed_state(deployment, batch)) is not None
    assert ask(pipeline, "select closed from reporting.fencepost_batches order by interval_start") == [
        (True,),
        (False,),
    ]
    project.run()
    assert project.rows() == in_table(pipeline), "what was given up changes nothing"
    assert numbers(project.rows()) == [*range(6), 10, 11, 12, 13]

    first = day(1).start
    ask(pipeline, "update reporting.fencepost_batches set ledger = 'again', lease = 0 where interval_start = %s", first)
    ask(pipeline, "delete from reporting.delays where n < 3")
    project.run()
    assert numbers(project.rows()) == [3, 4, 5, 10, 11, 12, 13], "a smaller lease of another ledger"
    ask(pipeline, "delete from reporting.fencepost_batches where interval_start = %s", first)
    ask(pipeline, "delete from reporting.delays where fencepost_interval = %s", first)
    for _ in range(2):
        project.run()
        assert numbers(project.rows()) == [10, 11, 12, 13], "an older copy does not know the first day"
    run(spark, pipeline, day(1), reprocess=True)
    project.run()
    assert project.rows() == in_table(pipeline)
    assert numbers(project.rows()) == [3, 4, 5, 10, 11, 12, 13]
