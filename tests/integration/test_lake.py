"""A pipeline whose output is an Iceberg table, on a real broker, real Spark and real catalogs: what each snapshot has.

Spark reads the tables here, and never pyiceberg, which writes them.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC
from typing import Any

import pytest

import several_sources
from conftest import day
from fencepost.config.pipeline import Pipeline
from fencepost.errors import TableRefused
from fencepost.ledger.deployment import Deployment
from fencepost.model import State
from fencepost.outputs.iceberg.values import IcebergPublication
from fencepost.outputs.output import missing_of
from fencepost.reading.validated import read_validated
from fencepost.steps.advance import advance_batch, skip_batch
from fencepost.steps.validate import validate_batch
from fencepost_stack.broker import Broker
from lakes import Lake, into
from makers import a_decision
from several_sources import OFF
from steps import announced, kafka_of, latest, plan_and_write, replay, run
from tables import POSITIVE, ROWS, fill, with_suite

Make = Callable[..., Pipeline]
Row = tuple[Any, ...]
COLUMNS = "n, doubled, name, fencepost_interval, fencepost_revision"
SETS_ASIDE = """
expectations:
  - {type: expect_column_values_to_be_between, kwargs: {column: n, max_value: 9}, severity: quarantine}
"""
CHEAP = """
expectations:
  - {type: expect_column_values_to_be_between, kwargs: {column: paid, max_value: 50}, severity: quarantine}
"""
PAIRS = """
SELECT o.n, p.paid, o._lookback AND p._lookback AS _lookback FROM orders AS o JOIN payments AS p ON o.n = p.n
"""


@pytest.fixture(params=["sql", "rest"])
def lake(request: pytest.FixtureRequest) -> Lake:
    """Each catalog."""
    found: Lake = request.getfixturevalue(f"{request.param}_lake")
    return found


@pytest.fixture
def make(make_pipeline: Make, lake: Lake) -> Make:
    """Make a pipeline whose output is the table `numbers` in a namespace of its own."""

    def made(transform: str = ROWS, expectations: str = POSITIVE, **changes: Any) -> Pipeline:
        own = into(lake)
        output = own.pop("output") | changes.pop("output", {})
        return make_pipeline(transform, expectations, output=output, **own, **changes)

    return made


def rows(numbers: range, revision: int = 1, number: int = 1) -> list[Row]:
    """What a table has of a day."""
    start = day(number).start.astimezone(UTC).replace(tzinfo=None)
    return [(n, 2 * n, "ü", start, revision) for n in numbers]


def in_table(lake: Lake, pipeline: Pipeline, snapshot: int | None = None) -> list[Row]:
    """The rows by Spark, at main or at a snapshot."""
    return sorted(lake.by_spark(pipeline.output.name, snapshot, COLUMNS))


def snapshot_of(pipeline: Pipeline, number: int) -> int:
    """The snapshot that the ledger has of a day's publication."""
    found = latest(pipeline, day(number)).publication_as(IcebergPublication).snapshot
    assert found is not None
    return found


def test_a_batch_is_one_snapshot_and_a_revision_takes_its_place(
    spark: Any, broker: Broker, make: Make, lake: Lake
) -> None:
    pipeline = make()
    fill(broker, pipeline)
    fill(broker, pipeline, range(10, 14), number=2)
    plan_and_write(spark, pipeline, day(1))
    validate_batch(spark, pipeline, day(1))
    result = advance_batch(pipeline, day(1))
    assert (result.state, result.changed) == (State.PUBLISHED, True)
    first = snapshot_of(pipeline, 1)
    assert result.message == f"published revision 1, as snapshot {first} of table {pipeline.output.name}"
    assert in_table(lake, pipeline) == rows(range(6))
    assert advance_batch(pipeline, day(1)).message == "already published, revision 1"
    assert run(spark, pipeline, day(2)).state is State.PUBLISHED
    assert run(spark, pipeline, day(1), reprocess=True).revision == 2
    assert in_table(lake, pipeline) == sorted([*rows(range(6), 2), *rows(range(10, 14), number=2)])
    made, *snapshots = lake.history(pipeline.output.name)
    assert in_table(lake, pipeline, made) == []
    assert [in_table(lake, pipeline, one) for one in snapshots] == [
        rows(range(6)),
        [*rows(range(6)), *rows(range(10, 14), number=2)],
        sorted([*rows(range(6), 2), *rows(range(10, 14), number=2)]),
    ]
    assert snapshots == [first, snapshot_of(pipeline, 2), snapshot_of(pipeline, 1)]
    assert sorted(lake.by_duckdb(pipeline.output.name, columns="n, fencepost_revision")) == [
        *((n, 2) for n in range(6)),
        *((n, 1) for n in range(10, 14)),
    ]
    event = announced(pipeline, day(1))
    assert (event["kind"], event["output"], event["snapshot"]) == ("iceberg", pipeline.output.name, snapshots[-1])
    read = read_validated(spark, event, kafka=kafka_of(pipeline), iceberg=lake.of.settings)
    assert sorted(tuple(row) for row in read.collect()) == [(n, 2 * n, "ü") for n in range(6)]


def test_a_replay_adds_rows_and_the_next_revision_removes_both(
    spark: Any, broker: Broker, make: Make, lake: Lake
) -> None:
    pipeline = make(expectations=SETS_ASIDE, quality={"quarantine_limit": {"share": 1.0}})
    fill(broker, pipeline, range(4, 14))
    assert run(spark, pipeline, day(1)).state is State.PUBLISHED
    assert in_table(lake, pipeline) == rows(range(4, 10))
    pipeline = with_suite(pipeline, POSITIVE)
    replay(spark, pipeline, day(1))
    assert in_table(lake, pipeline) == [*rows(range(4, 10)), *rows(range(10, 14), 2)]
    assert run(spark, pipeline, day(1), reprocess=True).revision == 3
    assert in_table(lake, pipeline) == rows(range(4, 14), 3)


def test_a_revision_without_rows_removes_the_rows_of_the_older_one(
    spark: Any, broker: Broker, make: Make, lake: Lake
) -> None:
    pipeline = make()
    fill(broker, pipeline)
    assert run(spark, pipeline, day(1)).state is State.PUBLISHED
    (pipeline.folder / "transform.py").write_text(ROWS.replace("n >= 0", "n > 100"))
    result = run(spark, pipeline, day(1), reprocess=True)
    assert (result.revision, result.state, result.details["rows"]) == (2, State.PUBLISHED, 0)
    assert in_table(lake, pipeline) == []
    assert missing_of(Deployment.of(pipeline)) == ""


def test_a_skipped_batch_leaves_nothing_in_the_table(spark: Any, broker: Broker, make: Make, lake: Lake) -> None:
    pipeline = make()
    fill(broker, pipeline)
    fill(broker, pipeline, range(10, 14), number=2)
    plan_and_write(spark, pipeline, day(1))
    validate_batch(spark, pipeline, day(1))
    skip_batch(pipeline, day(1), a_decision("skip"))
    assert run(spark, pipeline, day(2)).state is State.PUBLISHED
    assert in_table(lake, pipeline) == rows(range(10, 14), number=2)


def test_what_a_rollback_takes_is_missing_and_comes_back_by_a_reprocess(
    spark: Any, broker: Broker, make: Make, lake: Lake
) -> None:
    pipeline = make()
    fill(broker, pipeline)
    fill(broker, pipeline, range(10, 14), number=2)
    assert run(spark, pipeline, day(1)).state is State.PUBLISHED
    assert run(spark, pipeline, day(2)).state is State.PUBLISHED
    assert missing_of(Deployment.of(pipeline)) == ""
    lake.roll_back(pipeline.output.name, snapshot_of(pipeline, 1))
    missing = missing_of(Deployment.of(pipeline))
    assert "does not have what the ledger has published there in 1 interval" in missing
    assert "--start 2026-01-02" in missing
    assert run(spark, pipeline, day(2), reprocess=True).state is State.PUBLISHED
    assert missing_of(Deployment.of(pipeline)) == ""
    assert in_table(lake, pipeline) == sorted([*rows(range(6)), *rows(range(10, 14), 2, 2)])


def test_a_table_with_rows_of_somebody_is_refused_before_the_write(
    spark: Any, broker: Broker, make: Make, lake: Lake
) -> None:
    pipeline = make()
    fill(broker, pipeline)
    name = pipeline.output.name
    lake.sql(
        f"create table {name} (n int, doubled int, name string, fencepost_interval timestamp, fencepost_revision int) "
        "partitioned by (fencepost_interval, fencepost_revision)",
        f"insert into {name} values (1, 2, 'x', timestamp '2026-01-01', 1)",  # noqa: S608
    )
    with pytest.raises(TableRefused, match="it has no owner, and has rows already"):
        run(spark, pipeline, day(1))
    lake.sql(f"delete from {name} where n = 1")  # noqa: S608
    assert run(spark, pipeline, day(1)).state is State.PUBLISHED
    assert in_table(lake, pipeline) == rows(range(6))


def test_a_join_that_looks_back_is_published_interval_by_interval(
    spark: Any, broker: Broker, make_pipeline: Make, sql_lake: Lake
) -> None:
    """Payments come a day after their order. One pair breaks a rule and comes by a replay; then day 2 is made again."""
    name = "lakepairs"
    own = into(sql_lake)
    output = own.pop("output") | {"layout": "output"}
    sources = {
        "orders": {"topic": f"{name}-orders", "schema": {"n": "int"}, "lookback": "7 days"},
        "payments": {"topic": f"{name}-payments", "schema": {"n": "int", "paid": "int"}, "lookback": "7 days"},
    }
    pipeline = make_pipeline(PAIRS, CHEAP, name=name, sources=sources, output=output, quality=OFF, **own)

    def sell(number: int, ordered: list[int], paid: list[int]) -> None:
        several_sources.fill(broker, f"{name}-orders", [{"n": n} for n in ordered], number)
        several_sources.fill(broker, f"{name}-payments", [{"n": n, "paid": 10 * n} for n in paid], number)

    sell(1, [1, 2, 3, 6], [1])
    sell(2, [4], [2, 4, 6])

    def there() -> list[tuple[Any, ...]]:
        found = sql_lake.by_spark(pipeline.output.name, columns="n, paid, day(fencepost_interval), fencepost_revision")
        return sorted(found)

    assert [run(spark, pipeline, day(number)).state for number in (1, 2)] == [State.PUBLISHED] * 2
    assert there() == [(1, 10, 1, 1), (2, 20, 2, 1), (4, 40, 2, 1)]
    pipeline = with_suite(pipeline, CHEAP.replace("50", "60"))
    replay(spark, pipeline, day(2))
    assert there() == [(1, 10, 1, 1), (2, 20, 2, 1), (4, 40, 2, 1), (6, 60, 2, 2)]
    assert run(spark, pipeline, day(2), reprocess=True).revision == 3
    assert there() == [(1, 10, 1, 1), (2, 20, 2, 3), (4, 40, 2, 3), (6, 60, 2, 3)]
