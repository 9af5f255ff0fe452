"""A table that is restored, moved or swapped, or that a twin on another cluster meets: whose it is, and what is said of it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from conftest import day
from fencepost.config.loading import load_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.doctor.inspection import Inspection
from fencepost.doctor.run_check import run_check as ask_check
from fencepost.errors import AnotherCluster, TableRefused
from fencepost.findings import Level
from fencepost.kafka.cluster import Cluster
from fencepost.ledger.deployment import Deployment
from fencepost.model import State
from fencepost.outputs.output import missing_of
from fencepost.outputs.postgres.doctor import check_table_rows
from fencepost.outputs.table.staged_rows import schema_of
from fencepost.steps.advance import advance_batch, begin_batch
from fencepost.steps.plan import plan_batch
from fencepost.steps.validate import validate_batch
from fencepost_stack.broker import Broker
from fencepost_stack.postgres import binaries
from rigs.postgres_server import PostgresServer
from steps import latest, plan_and_write, run
from tables import ask, columns_of, fill, numbers_in, of_revision, store_of

Make = Callable[..., Pipeline]
BOTH = [*of_revision(1, range(6)), *of_revision(1, range(10, 14))]
SWAP = (
    "begin; create table other (like numbers including all); insert into other select * from numbers {where}; "
    "drop table numbers; alter table other rename to numbers; commit"
)


def lacks(pipeline: Pipeline) -> str:
    """What `status` says of the table."""
    return missing_of(Deployment.of(pipeline))


def with_output(pipeline: Pipeline, table: str, **store: str) -> Pipeline:
    """The pipeline with another name of its table, or another database."""
    file = pipeline.folder / "pipeline.yaml"
    settings = yaml.safe_load(file.read_text())
    settings["output"]["table"] = table
    settings["postgres"] |= store
    file.write_text(yaml.safe_dump(settings))
    return load_pipeline(pipeline.folder)


def two_days(spark: Any, broker: Broker, pipeline: Pipeline) -> None:
    """The first day is published, and the second is about to be."""
    fill(broker, pipeline)
    fill(broker, pipeline, range(10, 14), number=2)
    run(spark, pipeline, day(1))
    plan_and_write(spark, pipeline, day(2))
    validate_batch(spark, pipeline, day(2))


def dumped_into(postgres: PostgresServer, pipeline: Pipeline) -> dict[str, str]:
    """The settings of a new database, with what a dump of the pipeline's has."""
    old, new = store_of(pipeline), postgres.database()

    def program(name: str, settings: dict[str, str], *arguments: str) -> list[str]:
        login = ("-h", settings["host"], "-p", settings["port"], "-U", settings["user"])
        return [str(binaries() / name), *login, *arguments]

    dump = subprocess.run(
        [*program("pg_dump", old, "--no-owner"), old["dbname"]],
        env={"PGPASSWORD": old["password"]},
        check=True,
        capture_output=True,
    )
    restore = program("psql", new, "-v", "ON_ERROR_STOP=1", "-q", new["dbname"])
    subprocess.run(restore, env={"PGPASSWORD": new["password"]}, input=dump.stdout, check=True, capture_output=True)
    return new


def test_after_a_restore_a_swap_or_a_rename_the_pipeline_goes_on_with_its_table(
    spark: Any, broker: Broker, make_table: Make, postgres: PostgresServer
) -> None:
    """A dump, also with a publication under way; a swap; another name, with another schema; each has other oids."""
    pipeline = make_table()
    two_days(spark, broker, pipeline)
    begin_batch(pipeline, day(2))
    old = ask(pipeline, "select oid from fencepost_tables")
    pipeline = with_output(pipeline, "numbers", **dumped_into(postgres, pipeline))
    assert lacks(pipeline) == ""
    assert advance_batch(pipeline, day(2)).message == "published revision 1, in one commit to table public.numbers"
    assert numbers_in(pipeline) == BOTH
    assert ask(pipeline, "select oid from fencepost_tables") != old
    ask(pipeline, SWAP.format(where=""))
    assert plan_batch(pipeline, day(3)).state is State.PLANNED
    assert ask(pipeline, "select oid::bigint = 'numbers'::regclass::oid::bigint from fencepost_tables") == [(True,)]
    ask(
        pipeline,
        "create schema elsewhere; alter table numbers rename to figures; alter table figures set schema elsewhere; "
        "alter table fencepost_tables set schema elsewhere; alter table fencepost_batches set schema elsewhere",
    )
    pipeline = with_output(pipeline, "elsewhere.figures")
    written = latest(pipeline, day(1)).require_written
    assert columns_of(pipeline).would_take(None, schema_of(written.value_schema)) == ""
    plan_batch(pipeline, day(3))
    assert lacks(pipeline) == ""
    assert ask(pipeline, "select name from elsewhere.fencepost_tables") == [("elsewhere.figures",)]
    assert ask(pipeline, "select n, fencepost_revision from elsewhere.figures order by 1") == BOTH
    assert [one.level for one in ask_check(check_table_rows, Inspection(pipeline))] == [Level.OK]


@pytest.mark.deep
def test_a_copy_that_has_other_rows_is_refused_by_interval_and_nothing_else_has_to_go(
    spark: Any, broker: Broker, make_table: Make
) -> None:
    pipeline = make_table()
    two_days(spark, broker, pipeline)
    advance_batch(pipeline, day(2))
    ask(pipeline, SWAP.format(where="where n > 0"))
    says = rf"interval {day(1)}: it has 5 rows of revision 1, and 6 rows of revision 1 were published\."
    with pytest.raises(TableRefused, match=says) as raised:
        plan_batch(pipeline, day(3))
    assert str(day(2)) not in str(raised.value)
    assert numbers_in(pipeline) == BOTH[1:], "nothing is changed"
    statement = re.search(r"\((DELETE .*\))\), and run again", str(raised.value))
    assert statement is not None
    ask(pipeline, statement[1])
    assert plan_batch(pipeline, day(3)).state is State.PLANNED
    assert numbers_in(pipeline) == of_revision(1, range(10, 14))
    assert day(1).command("run", pipeline.name, "--reprocess") in lacks(pipeline)
    assert str(day(2)) not in lacks(pipeline)


@pytest.mark.deep
def test_the_doctor_counts_the_rows_and_names_the_intervals_that_have_others(
    spark: Any, broker: Broker, make_table: Make
) -> None:
    """As where the rows of an older copy were put back into the table, beside the newer `fencepost_batches`."""
    pipeline = make_table()
    two_days(spark, broker, pipeline)
    advance_batch(pipeline, day(2))
    ask(
        pipeline,
        "delete from numbers where n = 12; "
        "insert into numbers select n, doubled, name, '2020-01-01Z', 1 from numbers where n = 1",
    )
    assert lacks(pipeline) == "", "each interval has a row"
    (found,) = ask_check(check_table_rows, Inspection(pipeline))
    assert found.level is Level.ERROR
    assert f"interval {day(2)}: it has 3 rows of revision 1, and 4 rows of revision 1 were published" in found.found
    assert day(2).command("run", pipeline.name, "--reprocess") in found.found
    assert "interval 2020-01-01T00:00: it has 1 row of revision 1, and no rows were published" in found.found
    assert str(day(1)) not in found.found


@pytest.mark.deep
def test_a_twin_on_another_cluster_is_refused_until_somebody_says_that_the_pipeline_has_moved(
    spark: Any, broker: Broker, make_table: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for tests and in production: one name, one database, two clusters."""
    pipeline = make_table()
    two_days(spark, broker, pipeline)
    own = Cluster(Deployment.of(pipeline).cluster.settings).id
    with monkeypatch.context() as patch:
        patch.setattr(Cluster, "id", "elsewhere")
        for attempt in (lambda: plan_batch(pipeline, day(3)), lambda: advance_batch(pipeline, day(2))):
            with pytest.raises(
                AnotherCluster, match=rf"on Kafka cluster {own}, and this is cluster elsewhere.*--another-cluster"
            ):
                attempt()
        with pytest.raises(AnotherCluster):
            columns_of(pipeline).would_take(None, schema_of(latest(pipeline, day(2)).require_written.value_schema))
        assert lacks(pipeline).startswith(
            f"table public.numbers belongs to pipeline {pipeline.name} on Kafka cluster {own}"
        )
        assert numbers_in(pipeline) == of_revision(1, range(6))
        assert plan_batch(pipeline, day(3), another_cluster=True).state is State.PLANNED
        assert lacks(pipeline) == ""
    with pytest.raises(AnotherCluster, match=f"on Kafka cluster elsewhere, and this is cluster {own}"):
        advance_batch(pipeline, day(2))
    assert "on Kafka cluster elsewhere" in lacks(pipeline)
    assert numbers_in(pipeline) == of_revision(1, range(6))
