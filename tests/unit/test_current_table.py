"""The rules of a current table: its settings, when it is stale, and what is said of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from fencepost.config.loading import load_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.errors import SettingsError
from fencepost.model import State
from fencepost.outputs.postgres.settings import PostgresSettings
from fencepost.outputs.postgres.values import PostgresOutput
from fencepost.outputs.table.current import (
    CurrentBasis,
    RegisteredCurrent,
    describe_stale,
    describe_truncated,
    digest_of,
    truncated_intervals,
    why_stale,
)
from fencepost.outputs.table.values import CurrentKeys
from fencepost.protocol.view import View
from makers import a_batch, a_day, a_plan, a_receipt, a_topic, a_written

CURRENT: dict[str, Any] = {"table": "customers", "key": ["id"], "order_by": ["pos"], "deleted": "gone"}
BASIS = CurrentBasis("public.changes", 7, 8, "digest")


def pipeline_of(
    folder: Path, current: dict[str, Any] | None, table: str = "reporting.changes", **source: Any
) -> Pipeline:
    """A pipeline with this `output.current`."""
    output = {"kind": "postgres", "table": table, **({"current": current} if current is not None else {})}
    sections = {
        "source": {"topic": "in", "schema": {"n": "int"}, **source},
        "output": output,
        "schedule": {"start": "2026-01-01"},
        "kafka": {"bootstrap.servers": "127.0.0.1:1"},
        "postgres": {"host": "db", "dbname": "shop", "user": "etl"},
    }
    folder.mkdir(exist_ok=True)
    (folder / "pipeline.yaml").write_text(yaml.safe_dump(sections))
    (folder / "transform.sql").write_text("SELECT * FROM {source}")
    (folder / "expectations.yaml").write_text("expectations: [{type: expect_column_to_exist, kwargs: {column: n}}]\n")
    return load_pipeline(folder)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"table": "changes"}, "its table is the output table itself"),
        ({"table": "reporting.changes"}, "its table is the output table itself"),
        (
            {"table": "public.customers"},
            "its table is in another schema than the output table; name one in schema reporting",
        ),
        ({"table": "fencepost_batches"}, "one of Fencepost's own tables"),
        ({"table": "a.b.c"}, "not the name of a table"),
        ({"key": []}, "at least 1 item"),
        ({"order_by": []}, "at least 1 item"),
        ({"key": ["id", "id"]}, "names a column twice"),
        ({"key": ["id", "pos"]}, "column pos is in key and in order_by"),
        ({"deleted": "id"}, "column id cannot say deleted and be in key or order_by"),
        ({"order_by": ["fencepost_revision"]}, "fencepost_revision orders nothing"),
        ({"deleted": "fencepost_interval"}, "deleted cannot be fencepost_interval"),
        ({"newest": "pos"}, "output.current.newest"),
    ],
)
def test_settings_that_cannot_be_are_refused(tmp_path: Path, change: dict[str, Any], why: str) -> None:
    with pytest.raises(SettingsError, match="current") as refused:
        pipeline_of(tmp_path / "p", CURRENT | change)
    assert why in str(refused.value)


def test_the_table_has_the_schema_of_the_output_table_and_may_come_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CURRENT_TABLE", "people")
    output = pipeline_of(tmp_path / "p", CURRENT | {"table": "${CURRENT_TABLE}"}).output
    assert isinstance(output, PostgresSettings)
    assert output.current is not None
    assert output.current.table == "reporting.people"
    with pytest.raises(SettingsError, match="is not allowed here"):
        pipeline_of(tmp_path / "p", CURRENT | {"deleted": "${CURRENT_TABLE}"})


def test_it_is_in_no_digest_so_adding_it_makes_no_revision(tmp_path: Path) -> None:
    plain, with_current = (pipeline_of(tmp_path / "p", current).write_digests() for current in (None, CURRENT))
    assert plain == with_current


def test_rights_and_lineage_know_it(tmp_path: Path) -> None:
    pipeline = pipeline_of(tmp_path / "p", CURRENT)
    (_, needed), *_, (_, reader) = pipeline.output.grants(pipeline, reader=False)
    assert 'GRANT SELECT, INSERT, UPDATE, DELETE ON TABLE "reporting"."customers" TO "etl";' in needed
    assert 'GRANT TEMPORARY ON DATABASE "shop" TO "etl";' in needed
    assert reader[1].startswith('GRANT SELECT ON TABLE "reporting"."changes", "reporting"."customers", ')
    assert pipeline.output.grants(pipeline, reader=True) == [
        ("for a reader of the table, in the place of READER", reader)
    ]
    named = pipeline.output.current_lineage_name(pipeline, pipeline.lineage)
    assert named == ("postgres://db:5432", "shop.reporting.customers")
    plain = pipeline_of(tmp_path / "p", None)
    (_, needed), *others = plain.output.grants(plain, reader=False)
    assert not [statement for statement in needed if "TEMPORARY" in statement]
    assert "customers" not in " ".join(statement for _, some in others for statement in (*needed, *some))
    assert plain.output.current_lineage_name(plain, plain.lineage) is None


@pytest.mark.parametrize(
    ("registered", "same", "lacking", "why"),
    [
        (RegisteredCurrent(BASIS), (), 0, ""),
        (RegisteredCurrent(BASIS, "it was said before"), (), 0, "it was said before"),
        (RegisteredCurrent(CurrentBasis("public.old", 7, 8, "digest")), (), 0, "computed from table public.old"),
        (RegisteredCurrent(CurrentBasis("public.changes", 7, 9, "digest")), (), 0, "table public.changes was replaced"),
        (RegisteredCurrent(CurrentBasis("public.changes", 6, 8, "digest")), (), 0, "it was replaced"),
        (RegisteredCurrent(CurrentBasis("public.changes")), (), 0, "table public.changes was replaced"),
        (
            RegisteredCurrent(CurrentBasis("public.changes", 7, 8, "other")),
            (),
            0,
            "its columns, key, order_by or deleted",
        ),
        (RegisteredCurrent(CurrentBasis("public.changes", 7, 8, "other")), ("other",), 0, ""),
        (RegisteredCurrent(BASIS), (), 2, "table public.changes lacks rows of 2 published intervals"),
    ],
)
def test_it_is_stale_as_soon_as_it_may_differ(
    registered: RegisteredCurrent, same: tuple[str, ...], lacking: int, why: str
) -> None:
    found = why_stale(registered, BASIS, same, lacking)
    assert bool(found) is bool(why)
    assert why in found


def test_each_part_of_what_decides_rows_changes_the_digest() -> None:
    columns = [{"id": "integer", "name": "text"}, {"id": "integer"}]
    plain = digest_of(columns, ["id"], ["pos"], "gone")
    others = [
        digest_of([columns[0], {"id": "bigint"}], ["id"], ["pos"], "gone"),
        digest_of(columns, ["name"], ["pos"], "gone"),
        digest_of(columns, ["id"], ["pos", "name"], "gone"),
        digest_of(columns, ["id"], ["pos"], None),
    ]
    assert len({plain, *others}) == 5
    assert digest_of([dict(reversed(columns[0].items())), columns[1]], ["id"], ["pos"], "gone") == plain


def test_what_is_said() -> None:
    keys = CurrentKeys(table="public.customers", deleted=40, changed=9_300, same=660)
    assert str(keys) == "current table public.customers: of 10,000 keys 40 deleted, 9,300 changed, 660 as before"
    assert describe_stale("p", "public.customers", "") == ""
    assert describe_stale("p", "public.customers", "it was replaced") == (
        "current table public.customers is stale, so publications do not change it: it was replaced. `fencepost current p "
        "--rebuild` computes it from the output table"
    )


BY_DEFAULT = "source.truncations is fail, the default with output.current"


@pytest.mark.parametrize(
    ("current", "source", "why"),
    [
        (CURRENT, {"envelope": "debezium"}, BY_DEFAULT),
        (CURRENT, {"envelope": "debezium", "truncations": "fail"}, "source.truncations is fail"),
        (CURRENT, {"envelope": "debezium", "truncations": "drop"}, ""),
        (CURRENT, {}, ""),
        (None, {"envelope": "debezium"}, ""),
        (None, {"envelope": "debezium", "truncations": "fail"}, "source.truncations is fail"),
    ],
)
def test_truncations_fail_a_batch_beside_a_current_table_or_if_the_settings_say_so(
    tmp_path: Path, current: dict[str, Any] | None, source: dict[str, Any], why: str
) -> None:
    pipeline = pipeline_of(tmp_path / "customers", current, **source)
    assert pipeline.why_truncations_fail(pipeline.source) == why


def truncated(day: int, state: State = State.PUBLISHED, table: str = "public.changes", **changes: Any) -> Any:
    """A batch that left a truncation out, unless the test gives other counts."""
    excluded = changes.pop("excluded", {"truncations": 1, "messages": 2})
    written = a_written(a_receipt(), excluded=excluded)
    plan = a_plan((0, 9), output=PostgresOutput(table=table), staging=a_topic(0))
    return a_batch(state, interval=a_day(day), plan=plan, written=written, **changes)


def test_published_truncations_of_the_output_table_are_found_and_no_others() -> None:
    view = View.of(
        [
            truncated(0),
            truncated(0, revision=2, excluded={"messages": 1}),  # it replaced the first
            truncated(1, State.WRITTEN),
            truncated(2, table="public.another"),
            truncated(3),
            truncated(4, excluded={"messages": 1}),
            truncated(4, revision=2, adds_to=1),
            truncated(5, excluded={}),
        ]
    )
    found = truncated_intervals(view, "public.changes")
    assert found == [a_day(3), a_day(4)]
    assert describe_truncated(found, BY_DEFAULT) == (
        f"a truncation of the source table is in 2 published intervals, the last of them {a_day(4)}, and {BY_DEFAULT}: the "
        "output table has no deletions of the rows that it removed"
    )
    assert describe_truncated(found, "") == describe_truncated([], BY_DEFAULT) == ""
