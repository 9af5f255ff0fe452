"""Each check of the doctor on an Iceberg table: what makes it complain does, and what it advises helps."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile

from conftest import day
from fencepost.config.pipeline import Pipeline
from fencepost.doctor.inspection import Inspection
from fencepost.doctor.run_check import run_check
from fencepost.errors import LoginRefused, TableUnavailable
from fencepost.findings import Finding, Level
from fencepost.model import State
from fencepost.outputs.iceberg import doctor
from fencepost.outputs.iceberg.doctor import (
    CHECKS,
    check_catalog,
    check_lake_contents,
    check_lake_metadata,
    check_lake_snapshots,
    check_lake_table,
)
from fencepost_stack.broker import Broker
from fencepost_stack.ports import any_free_port
from lakes import Lake, into
from steps import run

from .test_lake_tables import FIELDS, OWN, Make, changed, make, two_days

__all__ = ["make"]


@pytest.fixture(params=["sql", "rest"])
def lake(request: pytest.FixtureRequest) -> Lake:
    """Each catalog."""
    found: Lake = request.getfixturevalue(f"{request.param}_lake")
    return found


def ask(check: Any, pipeline: Pipeline) -> Finding:
    """The first finding of a check."""
    return run_check(check, Inspection(pipeline))[0]


def of_files(pipeline: Pipeline) -> Finding:
    """The finding about small files, which the check of the contents has too."""
    _, found = run_check(check_lake_contents, Inspection(pipeline))
    return found


def levels(pipeline: Pipeline) -> list[str]:
    return [
        one.level.value for check in (CHECKS.first, *CHECKS.others) for one in run_check(check, Inspection(pipeline))
    ]


def test_a_table_that_is_well_is_said_to_be_well(spark: Any, broker: Broker, make: Make, lake: Lake) -> None:
    pipeline = make()
    assert levels(pipeline) == ["ok", "ok", "skipped", "skipped", "skipped"]
    two_days(spark, broker, pipeline)
    assert levels(pipeline) == ["ok"] * 6
    lake.sql(f"delete from {pipeline.output.name} where n = 3")  # noqa: S608
    gone = ask(check_lake_contents, pipeline)
    assert (gone.level, "in 1 interval" in gone.found, "--start 2026-01-01" in gone.found) == (Level.ERROR, True, True)
    assert run(spark, pipeline, day(1), reprocess=True).state is State.PUBLISHED
    assert ask(check_lake_contents, pipeline).level is Level.OK
    lake.sql(f"insert into {pipeline.output.name} values (1, 2, 'x', timestamp '2020-01-01', 7)")  # noqa: S608
    foreign = ask(check_lake_contents, pipeline)
    assert foreign.level is Level.WARNING
    assert "interval from 2020-01-01T00:00:00+00:00, revision 7" in foreign.found


def test_the_manifests_are_read_once(
    spark: Any, broker: Broker, make: Make, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table of years has thousands."""
    pipeline = make()
    two_days(spark, broker, pipeline)
    fetch, fetched = ManifestFile.fetch_manifest_entry, list[str]()

    def counting(self: ManifestFile, io: FileIO, discard_deleted: bool = True) -> Any:
        fetched.append(self.manifest_path)
        return fetch(self, io, discard_deleted)

    monkeypatch.setattr(ManifestFile, "fetch_manifest_entry", counting)
    assert levels(pipeline) == ["ok"] * 6
    snapshot = lake.table(pipeline.output.name).current_snapshot()
    assert snapshot is not None
    there = [one.manifest_path for one in snapshot.manifests(lake.table(pipeline.output.name).io)]
    assert len(there) == 2
    assert sorted(fetched) == sorted(there)


def test_a_catalog_that_is_down_or_refuses_the_login_is_told(make: Make, lake: Lake) -> None:
    scheme = "http" if lake.of.settings["type"] == "rest" else "postgresql"
    path = "/db" if scheme == "postgresql" else ""
    down = changed(make(), iceberg={"uri": f"{scheme}://127.0.0.1:{any_free_port()}{path}"})
    found = ask(check_catalog, down)
    assert (found.level, found.kind) == (Level.ERROR, TableUnavailable)


def test_a_login_that_postgres_refuses_is_told(make_pipeline: Make, sql_lake: Lake) -> None:
    own = into(sql_lake)
    wrong = make_pipeline(**{**own, "iceberg": own["iceberg"] | {"user": "nobody", "password": "wrong"}})
    found = ask(check_catalog, wrong)
    assert (found.level, found.kind) == (Level.ERROR, LoginRefused)
    assert "wrong" not in found.message


def test_a_renamed_table_is_found_by_its_owner(spark: Any, broker: Broker, make: Make, lake: Lake) -> None:
    pipeline = make()
    two_days(spark, broker, pipeline)
    name = pipeline.output.name
    lake.sql(f"alter table {name} rename to {name}_old")
    found = ask(check_lake_table, pipeline)
    assert found.level is Level.ERROR
    assert f"table {name}_old is registered for this pipeline: it was renamed" in found.found
    assert ask(check_lake_contents, pipeline).level is Level.ERROR
    lake.sql(f"alter table {name}_old rename to {name}")
    assert levels(pipeline) == ["ok"] * 6


def test_a_table_that_cannot_be_published_to_is_told(make: Make, lake: Lake) -> None:
    pipeline = make()
    lake.sql(f"create table {pipeline.output.name} (n int, {OWN})")
    found = ask(check_lake_table, pipeline)
    assert found.level is Level.ERROR
    assert "it is not partitioned by fencepost_interval" in found.found


def test_what_a_maintainer_has_to_do_is_told(
    spark: Any, broker: Broker, make: Make, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = make()
    name = pipeline.output.name
    lake.sql(
        f"create table {name} (n int, doubled int, name string, {OWN}) {FIELDS}) "
        "tblproperties ('write.target-file-size-bytes' = '1', 'write.parquet.row-group-limit' = '1')"
    )
    two_days(spark, broker, pipeline)
    monkeypatch.setattr(doctor, "MANY_SMALL", 5)
    monkeypatch.setattr(doctor, "MANY_SNAPSHOTS", 2)
    small = of_files(pipeline)
    assert small.level is Level.WARNING
    assert f"Table {name} has 1 partition with more than 5 data files below 16 MiB, up to 6" in small.found
    lake.sql(f"alter table {name} set tblproperties ('write.target-file-size-bytes' = '1000000')")
    lake.compact(name)
    assert of_files(pipeline).level is Level.OK
    many = ask(check_lake_snapshots, pipeline)
    assert many.level is Level.WARNING
    assert f"Table {name} has 4 snapshots, so nobody expires them" in many.found
    lake.expire(name)
    assert ask(check_lake_snapshots, pipeline).level is Level.OK
    lake.sql(f"alter table {name} set tblproperties ('history.expire.max-ref-age-ms' = '60000')")
    loses_its_tag = ask(check_lake_snapshots, pipeline)
    assert "by which the tag fencepost expires" in loses_its_tag.found
    lake.sql(loses_its_tag.command)
    assert ask(check_lake_snapshots, pipeline).level is Level.OK
    kept = ask(check_lake_metadata, pipeline)
    assert kept.level is Level.WARNING
    lake.sql(kept.command)
    assert ask(check_lake_metadata, pipeline).level is Level.OK
    assert ask(check_lake_contents, pipeline).level is Level.OK
