"""Tables of one's own, of somebody else, and under maintenance, as the output of a pipeline: what is refused, by which
words, and that the cure helps. On a real broker, real Spark and a REST catalog.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from conftest import day
from fencepost.config.loading import load_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.errors import (
    AnotherCluster,
    BatchRejected,
    FencepostError,
    TableRefused,
    TableRefusedData,
    TableUnavailable,
)
from fencepost.kafka.cluster import Cluster
from fencepost.ledger.deployment import Deployment
from fencepost.model import State
from fencepost.outputs.iceberg import retries
from fencepost.outputs.output import missing_of
from fencepost.steps.advance import advance_batch, begin_batch, skip_batch
from fencepost.steps.plan import plan_batch
from fencepost.steps.validate import validate_batch
from fencepost_stack.broker import Broker
from fencepost_stack.ports import any_free_port
from lakes import Lake, into
from makers import a_decision
from spark_types import columns
from steps import latest, plan_and_write, run
from tables import POSITIVE, ROWS, columns_of, fill, judged

Make = Callable[..., Pipeline]
RESULT = columns(n="int", doubled="int", name="string")
OWN = "fencepost_interval timestamp not null, fencepost_revision int not null"
FIELDS = "partitioned by (fencepost_interval, fencepost_revision"


@pytest.fixture
def lake(rest_lake: Lake) -> Lake:
    return rest_lake


@pytest.fixture
def make(make_pipeline: Make, lake: Lake) -> Make:
    """Make a pipeline whose output is the table `numbers` in a namespace of its own."""

    def made(transform: str = ROWS, expectations: str = POSITIVE, **changes: Any) -> Pipeline:
        own = into(lake)
        output = own.pop("output") | changes.pop("output", {})
        return make_pipeline(transform, expectations, output=output, **own, **changes)

    return made


def changed(pipeline: Pipeline, **sections: Any) -> Pipeline:
    """The pipeline with other settings, section by section."""
    file = pipeline.folder / "pipeline.yaml"
    settings = yaml.safe_load(file.read_text())
    for section, values in sections.items():
        settings[section] |= values
    file.write_text(yaml.safe_dump(settings))
    return load_pipeline(pipeline.folder)


def numbers(lake: Lake, pipeline: Pipeline) -> list[tuple[Any, ...]]:
    """The numbers in the table with their revisions, by Spark."""
    return sorted(lake.by_spark(pipeline.output.name, None, "n, fencepost_revision"))


def of(revision: int, numbers: range) -> list[tuple[int, int]]:
    return [(n, revision) for n in numbers]


def two_days(spark: Any, broker: Broker, pipeline: Pipeline) -> None:
    fill(broker, pipeline)
    fill(broker, pipeline, range(10, 14), number=2)
    assert run(spark, pipeline, day(1)).state is State.PUBLISHED
    assert run(spark, pipeline, day(2)).state is State.PUBLISHED


def refused(pipeline: Pipeline) -> str:
    """What is said of the table before the first row is written."""
    with pytest.raises(TableRefused) as raised:
        columns_of(pipeline).would_take(None, RESULT)
    return str(raised.value)


def test_a_table_that_cannot_be_published_to_is_told_with_statements_that_cure_it(make: Make, lake: Lake) -> None:
    pipeline = make()
    name = pipeline.output.name
    lake.sql(
        f"create table {name} (n int, doubled int, name string, ts timestamp, {OWN}) "
        "partitioned by (days(ts)) tblproperties ('format-version' = '1')",
    )
    said = refused(pipeline)
    assert "it has format version 1" in said
    assert "it is not partitioned by fencepost_interval" in said
    assert "it is partitioned by day of ts, and Fencepost writes identities of columns only" in said
    statements = re.findall(r"ALTER TABLE [^;.]*\.numbers (?:SET|ADD|DROP)[^;.]*", said)
    assert len(statements) == 4
    lake.sql(statements[0])
    lake.sql(*statements[1:])
    assert columns_of(pipeline).would_take(None, RESULT) == ""


def test_a_table_of_ones_own_may_have_columns_an_order_and_another_field(
    spark: Any, broker: Broker, make: Make, lake: Lake
) -> None:
    pipeline = make()
    name = pipeline.output.name
    lake.sql(
        f"create table {name} (note string, name string, doubled bigint, n bigint, {OWN}) {FIELDS}, name)",
        f"alter table {name} write ordered by n",
    )
    two_days(spark, broker, pipeline)
    assert run(spark, pipeline, day(1), reprocess=True).state is State.PUBLISHED
    found = sorted(lake.by_spark(name, None, "n, doubled, name, note, fencepost_revision"))
    assert found == [
        *((n, 2 * n, "ü", None, 2) for n in range(6)),
        *((n, 2 * n, "ü", None, 1) for n in range(10, 14)),
    ]
    assert missing_of(Deployment.of(pipeline)) == ""


def test_columns_are_added_by_the_publication_that_has_them(spark: Any, broker: Broker, make: Make, lake: Lake) -> None:
    pipeline = make(output={"add_columns": True})
    two_days(spark, broker, pipeline)
    wider = '"n * 2 AS doubled", "name", "named_struct(\'a\', n) AS more"'
    (pipeline.folder / "transform.py").write_text(ROWS.replace('"n * 2 AS doubled", "name"', wider))
    assert run(spark, pipeline, day(2), reprocess=True).state is State.PUBLISHED
    name = pipeline.output.name
    assert sorted(lake.by_spark(name, None, "n, more.a")) == [
        *((n, None) for n in range(6)),
        *((n, n) for n in range(10, 14)),
    ]
    assert len(lake.history(name)) == 4, "the claim and three publications: the columns came with the third"


def test_an_empty_first_batch_makes_the_table_and_the_next_one_its_columns(
    spark: Any, broker: Broker, make: Make, lake: Lake
) -> None:
    pipeline = make()
    fill(broker, pipeline, range(0))
    fill(broker, pipeline, range(10, 14), number=2)
    result = run(spark, pipeline, day(1))
    assert (result.state, result.details["rows"]) == (State.PUBLISHED, 0)
    assert run(spark, pipeline, day(2)).state is State.PUBLISHED
    assert numbers(lake, pipeline) == of(1, range(10, 14))
    assert missing_of(Deployment.of(pipeline)) == ""


def test_a_null_in_a_required_column_rejects_the_batch_and_an_operator_publishes_it_once_it_fits(
    spark: Any, broker: Broker, make: Make, lake: Lake
) -> None:
    pipeline = make(ROWS.replace('"name"', "\"nullif(name, 'ü') AS name\""))
    name = pipeline.output.name
    lake.sql(f"create table {name} (n int, doubled int, name string not null, {OWN}) {FIELDS})")
    judged(spark, broker, pipeline)
    with pytest.raises(TableRefusedData, match="column name is null, and the table requires a value"):
        advance_batch(pipeline, day(1))
    assert latest(pipeline, day(1)).state is State.REJECTED
    assert numbers(lake, pipeline) == []
    with pytest.raises(TableRefusedData, match="column name is null"):
        advance_batch(pipeline, day(1), a_decision("publish"))
    lake.sql(f"alter table {name} alter column name drop not null")
    assert advance_batch(pipeline, day(1), a_decision("publish")).state is State.PUBLISHED
    assert numbers(lake, pipeline) == of(1, range(6))


def test_what_the_suite_rejects_an_operator_may_publish(spark: Any, broker: Broker, make: Make, lake: Lake) -> None:
    pipeline = make(expectations=POSITIVE.replace("min_value: 0", "min_value: 3"))
    with pytest.raises(BatchRejected):
        judged(spark, broker, pipeline)
    assert latest(pipeline, day(1)).state is State.REJECTED
    assert advance_batch(pipeline, day(1), a_decision("publish")).state is State.PUBLISHED
    assert numbers(lake, pipeline) == of(1, range(6))


def test_a_table_of_another_pipeline_is_refused_and_its_cure_frees_it(
    spark: Any, broker: Broker, make: Make, lake: Lake
) -> None:
    first = make()
    two_days(spark, broker, first)
    second = changed(make(), output={"table": first.output.name})
    said = refused(second)
    assert f"table {first.output.name} belongs to pipeline {first.name}, and a table has one owner" in said
    assert "delete its properties that begin with fencepost., and empty the table" in said
    lake.sql(f"alter table {first.output.name} unset tblproperties ('fencepost.owner')")
    assert "it has no owner, and has rows already" in refused(second)
    lake.sql(f"delete from {first.output.name} where n >= 0")  # noqa: S608
    fill(broker, second, range(20, 23))
    assert run(spark, second, day(1)).state is State.PUBLISHED
    assert numbers(lake, second) == of(1, range(20, 23))
    with pytest.raises(TableRefused, match="belongs to pipeline"):
        plan_batch(first, day(3))


def test_a_pipeline_that_moved_takes_its_table_with_it_and_the_old_cluster_commits_nothing(
    spark: Any, broker: Broker, make: Make, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = make()
    fill(broker, pipeline)
    fill(broker, pipeline, range(10, 14), number=2)
    run(spark, pipeline, day(1))
    plan_and_write(spark, pipeline, day(2))
    validate_batch(spark, pipeline, day(2))
    begin_batch(pipeline, day(2))
    before = lake.history(pipeline.output.name)
    with monkeypatch.context() as patch:
        patch.setattr(Cluster, "id", "mirror")
        with pytest.raises(AnotherCluster, match="mirror"):
            plan_batch(pipeline, day(3))
        assert plan_batch(pipeline, day(3), another_cluster=True).state is State.PLANNED
    assert len(lake.history(pipeline.output.name)) == len(before) + 1, "main has moved, so an older base is refused"
    with pytest.raises(FencepostError, match="on Kafka cluster mirror"):
        advance_batch(pipeline, day(2))
    assert numbers(lake, pipeline) == of(1, range(6))


def test_a_compaction_into_another_spec_is_told_and_undone(spark: Any, broker: Broker, make: Make, lake: Lake) -> None:
    pipeline = make()
    two_days(spark, broker, pipeline)
    name = pipeline.output.name
    lake.sql(f"alter table {name} drop partition field fencepost_interval")
    assert "it is not partitioned by fencepost_interval" in refused(pipeline)
    lake.compact(name)
    lake.sql(f"alter table {name} add partition field fencepost_interval")
    with pytest.raises(TableRefused, match="rows may be of several intervals or revisions") as raised:
        run(spark, pipeline, day(1), reprocess=True)
    cure = re.search(r"CALL system\.(rewrite_data_files\(.*\))\.", str(raised.value))
    assert cure is not None
    lake.sql(f"CALL system.{cure[1]}")
    assert run(spark, pipeline, day(1)).state is State.PUBLISHED
    assert numbers(lake, pipeline) == sorted([*of(2, range(6)), *of(1, range(10, 14))])
    assert missing_of(Deployment.of(pipeline)) == ""


def test_rows_that_others_delete_by_position_stay_deleted_until_their_interval_is_reprocessed(
    spark: Any, broker: Broker, make: Make, lake: Lake
) -> None:
    pipeline = make()
    two_days(spark, broker, pipeline)
    lake.delete_by_position(pipeline.output.name, "n = 3")
    left = [(n, 1) for n in (0, 1, 2, 4, 5)]
    assert run(spark, pipeline, day(2), reprocess=True).state is State.PUBLISHED
    assert numbers(lake, pipeline) == sorted([*left, *of(2, range(10, 14))])
    assert run(spark, pipeline, day(1), reprocess=True).state is State.PUBLISHED
    assert numbers(lake, pipeline) == of(2, range(6)) + of(2, range(10, 14))


def test_a_table_that_is_made_anew_under_a_publication_is_another_table(
    spark: Any, broker: Broker, make: Make, lake: Lake
) -> None:
    pipeline = make()
    judged(spark, broker, pipeline)
    begin_batch(pipeline, day(1))
    lake.catalog.drop_table(pipeline.output.name)
    with pytest.raises(FencepostError, match="does not exist any more") as raised:
        advance_batch(pipeline, day(1))
    assert "fencepost" in str(raised.value)
    lake.sql(f"create table {pipeline.output.name} (n int, doubled int, name string, {OWN}) {FIELDS})")
    with pytest.raises(FencepostError, match="was dropped or created again, so it is another table") as raised:
        advance_batch(pipeline, day(1))
    assert "writes and judges a new revision" in str(raised.value)
    assert numbers(lake, pipeline) == []
    assert run(spark, pipeline, day(1), reprocess=True).revision == 2
    assert numbers(lake, pipeline) == of(2, range(6))


def test_a_publication_is_not_given_up_while_the_catalog_is_down(
    spark: Any, broker: Broker, make: Make, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "LONGEST_WAIT", 0.1)
    pipeline = make()
    judged(spark, broker, pipeline)
    begin_batch(pipeline, day(1))
    down = changed(pipeline, iceberg={"uri": f"http://127.0.0.1:{any_free_port()}"})
    with pytest.raises(TableUnavailable, match="Iceberg catalog http://127") as raised:
        skip_batch(down, day(1), a_decision("skip"))
    assert "cannot be given up without an answer of the table's catalog" in str(raised.value)
    assert latest(pipeline, day(1)).state is State.PUBLISHING
    pipeline = changed(down, iceberg=lake.of.settings)
    assert skip_batch(pipeline, day(1), a_decision("skip")).state is State.SKIPPED
    assert numbers(lake, pipeline) == []


def test_a_renamed_table_is_reprocessed_under_its_new_name(spark: Any, broker: Broker, make: Make, lake: Lake) -> None:
    pipeline = make()
    two_days(spark, broker, pipeline)
    name = pipeline.output.name
    lake.sql(f"alter table {name} rename to {name}_new")
    assert "does not have what the ledger has published there in 2 intervals" in missing_of(Deployment.of(pipeline))
    pipeline = changed(pipeline, output={"table": f"{name}_new"})
    assert missing_of(Deployment.of(pipeline)) == ""
    assert run(spark, pipeline, day(1), reprocess=True).state is State.PUBLISHED
    assert numbers(lake, pipeline) == sorted([*of(2, range(6)), *of(1, range(10, 14))])
    assert missing_of(Deployment.of(pipeline)) == ""


def test_what_a_rollback_took_is_missing_after_another_interval_was_published_too(
    spark: Any, broker: Broker, make: Make, lake: Lake
) -> None:
    """Main then has the snapshot that was recorded last. With expired snapshots the manifests are counted."""
    pipeline = make()
    two_days(spark, broker, pipeline)
    fill(broker, pipeline, range(20, 23), number=3)
    name = pipeline.output.name
    lake.roll_back(name, lake.history(name)[1])
    result = run(spark, pipeline, day(3))
    assert "--start 2026-01-02" in result.details["missing_batches"]
    lake.expire(name)
    assert "in 1 interval" in missing_of(Deployment.of(pipeline))
    assert run(spark, pipeline, day(2), reprocess=True).state is State.PUBLISHED
    assert missing_of(Deployment.of(pipeline)) == ""
