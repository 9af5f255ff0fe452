"""A pipeline with a current table, on a real broker, real Spark and a real PostgreSQL: what a run, a reader and a person see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

import several_sources
from conftest import day
from fencepost.cli.app import app
from fencepost.config.pipeline import Pipeline
from fencepost.doctor.inspection import Inspection
from fencepost.doctor.run_check import run_check
from fencepost.errors import SettingsError, TableRefusedData
from fencepost.ledger.deployment import Deployment
from fencepost.model import State
from fencepost.outputs.output import missing_of
from fencepost.outputs.postgres.doctor import check_current_table, check_table_rights
from fencepost.reading.validated import read_validated
from fencepost_stack.broker import Broker
from several_sources import OFF
from steps import announced, kafka_of, latest, replay, run
from tables import ask, fill, store_of, with_suite

Make = Callable[..., Pipeline]
CHANGES = """
def transform(frame):
    return frame.selectExpr("n % 3 AS id", "n AS pos", "n % 5 = 4 AS gone", "name")
"""
SETS_ASIDE = """
expectations:
  - {type: expect_column_values_to_be_between, kwargs: {column: pos, max_value: 12}, severity: quarantine}
"""
CURRENT = {"table": "newest", "key": ["id"], "order_by": ["pos"], "deleted": "gone"}


def there(pipeline: Pipeline) -> list[tuple[int, int]]:
    """Key and position, which are checked against the history."""
    found = ask(pipeline, "select id, pos from newest order by 1")
    assert found == ask(
        pipeline,
        "select id, pos from (select distinct on (id) * from numbers order by id, pos desc) as n where not gone order by 1",
    )
    return found


def test_what_a_run_a_reader_and_a_person_see_of_it(
    spark: Any, broker: Broker, make_table: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers above 12 go to quarantine at first, and come back by a replay, behind a newer interval."""
    pipeline = make_table(CHANGES, SETS_ASIDE, output={"current": CURRENT}, quality={"quarantine_limit": "none"})
    fill(broker, pipeline, [10, 11, 12, 13, 14])
    fill(broker, pipeline, [1, 2, 6], number=2)
    result = run(spark, pipeline, day(1))
    assert result.message.endswith("current table public.newest: of 3 keys 0 deleted, 3 changed, 0 as before")
    assert there(pipeline) == [(0, 12), (1, 10), (2, 11)]
    assert announced(pipeline, day(1))["current_table"] == "public.newest"
    assert run(spark, pipeline, day(2)).details["current"] == {
        "table": "public.newest",
        "deleted": 0,
        "changed": 0,
        "same": 3,
    }
    pipeline = with_suite(pipeline, SETS_ASIDE.replace("12", "20"))
    assert replay(spark, pipeline, day(1)).state is State.PUBLISHED
    assert there(pipeline) == [(0, 12), (1, 13)], "14 says that key 2 is deleted"
    read = read_validated(
        spark, announced(pipeline, day(2)), kafka=kafka_of(pipeline), postgres=store_of(pipeline), current=True
    )
    assert read.columns == ["id", "pos", "name"]
    assert sorted(tuple(row) for row in read.collect()) == [(0, 12, "ü"), (1, 13, "ü")]
    assert ask(pipeline, "select keys->>'changed' from fencepost_batches order by interval_start") == [("1",), ("0",)]
    assert [one.level for one in run_check(check_current_table, Inspection(pipeline))] == ["ok"]
    assert [one.level for one in run_check(check_table_rights, Inspection(pipeline))] == ["ok"]

    ask(pipeline, "alter table newest rename to old; create table newest (like old including all)")
    result = run(spark, pipeline, day(2), reprocess=True)
    assert (result.state, "current" in result.details) == (State.PUBLISHED, False)
    assert "current table public.newest is stale, so publications do not change it: it was replaced" in result.message
    assert announced(pipeline, day(2))["current_table"] is None
    (stale,) = run_check(check_current_table, Inspection(pipeline))
    assert (stale.level, stale.command) == ("warning", f"fencepost current {pipeline.name} --rebuild")
    with pytest.raises(SettingsError, match="none of these events names a current table"):
        read_validated(
            spark, announced(pipeline, day(2)), kafka=kafka_of(pipeline), postgres=store_of(pipeline), current=True
        )
    monkeypatch.setenv("FENCEPOST_PIPELINES", str(pipeline.folder.parent))
    for command, said in (
        (["status", pipeline.name], "is stale"),
        (["current", pipeline.name], "is stale"),
        (["current", pipeline.name, "--rebuild"], "0 deleted, 2 changed, 0 as before"),
        (["current", pipeline.name], "the current table is up to date"),
    ):
        assert said in " ".join(CliRunner().invoke(app, command, catch_exceptions=False).output.split())
    assert there(pipeline) == [(0, 12), (1, 13)]
    assert missing_of(Deployment.of(pipeline)) == ""


def test_a_batch_whose_rows_have_no_order_is_rejected_and_names_no_value(
    spark: Any, broker: Broker, make_table: Make
) -> None:
    transform = CHANGES.replace('"n AS pos"', '"7 AS pos"')
    pipeline = make_table(transform, SETS_ASIDE, output={"current": CURRENT})
    fill(broker, pipeline, [1, 4], name="secret")
    with pytest.raises(
        TableRefusedData, match=r"current table public.newest refused its data: the batch has .* same pos as"
    ) as refused:
        run(spark, pipeline, day(1))
    assert "secret" not in str(refused.value)
    batch = latest(pipeline, day(1))
    assert batch.state is State.REJECTED
    assert ask(pipeline, "select count(*) from numbers") == [(0,)]


def test_a_union_has_a_current_table_and_its_records_are_replayed_by_source(
    spark: Any, broker: Broker, make_table: Make
) -> None:
    """The newest state of a key comes from either region, and a record that was set aside comes late and changes nothing."""
    name = "bothnewest"
    sources = {
        region: {"topic": f"{name}-{region}", "schema": {"id": "int", "pos": "int", "gone": "boolean"}}
        for region in ("north", "south")
    }
    suite = SETS_ASIDE.replace("12", "50")
    transform = (
        "SELECT id, pos, gone, _record FROM north UNION ALL SELECT id, pos, gone, _record FROM south WHERE pos > 0"
    )
    pipeline = make_table(transform, suite, name=name, sources=sources, output={"current": CURRENT}, quality=OFF)

    def states(*rows: tuple[int, int, bool]) -> list[dict[str, Any]]:
        return [{"id": id_, "pos": pos, "gone": gone} for id_, pos, gone in rows]

    several_sources.fill(broker, f"{name}-north", states((1, 10, False), (2, 20, False), (3, 60, False)))
    several_sources.fill(broker, f"{name}-south", states((1, 11, False), (2, 5, True), (4, 40, True), (4, 0, False)))
    several_sources.fill(broker, f"{name}-north", states((2, 21, True)), 2)
    several_sources.fill(broker, f"{name}-south", states((1, 9, True), (3, 61, False)), 2)
    assert run(spark, pipeline, day(1)).state is State.PUBLISHED
    newest = "select id, pos from newest order by 1"
    assert ask(pipeline, newest) == [(1, 11), (2, 20)]
    assert run(spark, pipeline, day(2)).state is State.PUBLISHED
    assert ask(pipeline, newest) == [(1, 11)]
    pipeline = with_suite(pipeline, suite.replace("50", "99"))
    replay(spark, pipeline, day(2))
    assert ask(pipeline, newest) == [(1, 11), (3, 61)]
    replay(spark, pipeline, day(1))
    assert ask(pipeline, newest) == [(1, 11), (3, 61)]
    history = ask(pipeline, "select id, pos from numbers order by 2")
    assert history == [(2, 5), (1, 9), (1, 10), (1, 11), (2, 20), (2, 21), (4, 40), (3, 60), (3, 61)]
