"""The commit of a batch: the one request that it is, and what a turn does after a request whose outcome is unknown.

The catalog is pyiceberg's own on SQLite. It notes each request, and a test may have it fail before or after the commit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, ForbiddenError
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadataCommonFields
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.types import IntegerType

from fencepost.errors import (
    AccessDenied,
    FencepostError,
    LoginRefused,
    ReceiptsDisagree,
    Superseded,
    TableRefused,
    TableUnavailable,
)
from fencepost.model import Batch, Outcome, State
from fencepost.outputs.iceberg import commit as commits
from fencepost.outputs.iceberg.commit import AnotherLakeTable, claim, close, commit_batch, create
from fencepost.outputs.iceberg.lake_table import LakeTable, base_of
from fencepost.outputs.iceberg.properties import row_property
from fencepost.outputs.iceberg.settings import IcebergSettings
from fencepost.outputs.iceberg.shape import LakeShape
from fencepost.outputs.iceberg.table_base import SnapshotRow
from fencepost.outputs.iceberg.types import new_partition_spec, new_schema
from fencepost.outputs.iceberg.values import IcebergOutput, IcebergPublication
from fencepost.outputs.table.revisions import Committed, TableStanding
from fencepost.protocol.view import View
from makers import NOW, a_batch, a_day, a_plan, a_receipt, a_topic, a_verdict, a_written
from spark_types import columns

NAME, LEDGER = "db.t", "ledger-1"
RESULT = columns(n="int")
VALUES = [b'{"n": 1}', b'{"n": 2}', b'{"n": 3}']


class Noting(SqlCatalog):
    """Notes each request. `before` and `after` are called around the commit, and may raise."""

    def __init__(self, folder: Path) -> None:
        self.requests = list[dict[str, Any]]()
        self.before: Callable[[], None] = lambda: None
        self.after: Callable[[], None] = lambda: None
        super().__init__("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=folder.as_uri())
        self.create_namespace("db")

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        dumped = {
            "requirements": [json.loads(one.model_dump_json()) for one in requirements],
            "updates": [json.loads(one.model_dump_json()) for one in updates],
        }
        self.requests.append(dumped)
        self.before()
        done = super().commit_table(table, requirements, updates)
        self.after()
        return done


class Rig:
    """A pipeline's table in that catalog. `ledger` has the ledger's batches."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ledger, self.topic_id, self.asked = list[Batch](), LEDGER, list[str]()
        self.values, self.result = VALUES, RESULT
        output: Any = SimpleNamespace(kind="iceberg")
        self.pipeline: Any = SimpleNamespace(
            name="p", group="p", output=output, ledger_topic="p.ledger", own=lambda name: {"uri": "sqlite"}
        )
        rig = self

        class Deployed:
            pipeline = self.pipeline
            cluster = SimpleNamespace(id="here", settings=None, find=lambda topic: SimpleNamespace(id=rig.topic_id))

            @property
            def ledger(self) -> Any:
                def read() -> View:
                    rig.asked.append("ledger")
                    return View.of(rig.ledger)

                return SimpleNamespace(topic_id=rig.topic_id, read=read)

        deployed: Any = Deployed()
        self.catalog = Noting(folder)
        self.lake = LakeTable(deployed, NAME)
        self.lake.__dict__["catalog"] = self.catalog
        self.shape = LakeShape(self.lake)
        ids = iter(range(1, 100))
        monkeypatch.setattr(TableMetadataCommonFields, "new_snapshot_id", lambda metadata: next(ids))
        monkeypatch.setattr(commits, "read_staged", lambda *given: self.staged())
        monkeypatch.setattr("time.sleep", lambda seconds: None)
        monkeypatch.setattr(commits, "reached", lambda name: self.asked.append(name))

    def staged(self) -> Iterator[pa.RecordBatch]:
        count = len(self.values)
        arrays = [
            pa.array(np.zeros(count, np.int32)),
            pa.array([None] * count, pa.binary()),
            pa.array(self.values, pa.binary()),
            pa.array(np.full(count, 7919, np.int64)),
        ]
        yield pa.RecordBatch.from_arrays(arrays, names=["partition", "key", "value", "hash"])

    def make(self, **properties: str) -> None:
        """The table, claimed by its pipeline as snapshot 1."""
        schema = new_schema(RESULT)
        self.catalog.create_table(NAME, schema, partition_spec=new_partition_spec(schema), properties=properties)
        claim(self.lake, None)
        self.catalog.requests.clear()

    @property
    def table(self) -> Table:
        return self.catalog.load_table(NAME)

    def publishing(self, rows: int = 3, lease: int = 7, number: int = 0, **changes: Any) -> Batch:
        """A batch whose publication is under way, as the ledger has it too."""
        plan = a_plan(
            (0, 9), output=IcebergOutput(table=NAME), staging=a_topic(0, topic="staging"), ledger_topic_id=LEDGER
        )
        receipts = a_receipt(rows=rows, topic="staging")
        written = a_written(receipts, output=a_topic(rows, topic="staging"), value_schema=self.result.json())
        into = IcebergPublication(
            table=NAME,
            ledger=changes.pop("ledger", LEDGER),
            lease=lease,
            begun_at=NOW,
            uuid=str(self.table.metadata.table_uuid),
        )
        made = a_batch(
            State.PUBLISHING,
            interval=a_day(number),
            plan=plan,
            written=written,
            verdict=a_verdict(Outcome.PASSED),
            publication=into,
            lease=5,
            **changes,
        )
        self.values = VALUES[:rows]
        self.ledger.append(made)
        return made

    def publish(self, batch: Batch) -> int:
        return commit_batch(self.lake, self.shape, batch)

    def end(self, batch: Batch, state: State = State.PUBLISHED, snapshot: int | None = None) -> None:
        """The ledger has the end."""
        into = batch.publication_as(IcebergPublication).model_copy(update={"snapshot": snapshot, "ended_at": NOW})
        ended = batch.model_copy(update={"state": state, "publication": into if state is State.PUBLISHED else None})
        self.ledger[self.ledger.index(batch)] = ended

    def row(self, number: int = 0) -> SnapshotRow:
        return base_of(self.table, NAME).row(a_day(number).start)

    def rows_at_main(self) -> list[tuple[int, int]]:
        found = self.table.scan().to_arrow()
        return sorted(zip(found["n"].to_pylist(), found["fencepost_revision"].to_pylist(), strict=True))


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(tmp_path, monkeypatch)


def request_of(rig: Rig) -> dict[str, Any]:
    """The only request, without what differs from run to run."""
    (found,) = rig.catalog.requests
    rig.catalog.requests.clear()
    assert found["requirements"][0].pop("uuid") == str(rig.table.metadata.table_uuid)
    (added,) = [one["snapshot"] for one in found["updates"] if one["action"] == "add-snapshot"]
    assert added.pop("manifest-list").endswith(".avro")
    assert added.pop("timestamp-ms") > 0
    for name in ("added-files-size", "removed-files-size", "total-files-size"):
        added["summary"].pop(name, None)
    return found


def requirements(main: int | None, tag: int | None, columns: int = 3, schema: int = 0) -> list[dict[str, Any]]:
    return [
        {"type": "assert-table-uuid"},
        {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": main},
        *([{"type": "assert-ref-snapshot-id", "ref": "fencepost", "snapshot-id": tag}] if main else []),
        {"type": "assert-current-schema-id", "current-schema-id": schema},
        {"type": "assert-last-assigned-field-id", "last-assigned-field-id": columns},
        {"type": "assert-default-spec-id", "default-spec-id": 0},
    ]


def moved(
    snapshot: int, parent: int | None, number: int, summary: dict[str, str], schema: int = 0
) -> list[dict[str, Any]]:
    """The updates that add a snapshot, and move main and the tag to it."""
    of_parent = {"parent-snapshot-id": parent} if parent else {}
    main = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": snapshot}
    tag = {"action": "set-snapshot-ref", "ref-name": "fencepost", "type": "tag", "snapshot-id": snapshot}
    added = {"snapshot-id": snapshot, **of_parent, "sequence-number": number, "summary": summary, "schema-id": schema}
    return [{"action": "add-snapshot", "snapshot": added}, main, tag]


def said(batch: Batch, rows: int) -> dict[str, str]:
    return {
        "fencepost.batch": str(batch.id),
        "fencepost.ledger": LEDGER,
        "fencepost.lease": str(batch.require_publication.require_lease),
        "fencepost.rows": str(rows),
        "fencepost.fingerprint": f"{rows * 7919:016x}",
    }


def totals(records: int, files: int) -> dict[str, str]:
    return {
        "total-records": str(records),
        "total-data-files": str(files),
        "total-delete-files": "0",
        "total-position-deletes": "0",
        "total-equality-deletes": "0",
    }


def row_set(
    batch: Batch, snapshot: int, revisions: dict[int, Committed], name: str = "", **changes: Any
) -> dict[str, Any]:
    interval, into = batch.interval, batch.require_publication
    values = {"snapshot": snapshot, "revisions": revisions, "batch": name, **changes}
    row = SnapshotRow(interval.start, interval.end, into.ledger, into.require_lease, **values)
    return {"action": "set-properties", "updates": row_property(row)}


def test_the_request_of_a_claim(rig: Rig) -> None:
    schema = new_schema(RESULT)
    rig.catalog.create_table(NAME, schema, partition_spec=new_partition_spec(schema))
    claim(rig.lake, None)
    owner = {"fencepost.owner": '{"cluster":"here","pipeline":"p"}'}
    summary = {"operation": "append", "fencepost.owner": "pipeline p on Kafka cluster here", **totals(0, 0)}
    assert request_of(rig) == {
        "requirements": requirements(None, None),
        "updates": [*moved(1, None, 1, summary), {"action": "set-properties", "updates": owner}],
    }
    claim(rig.lake, None)
    assert rig.catalog.requests == [], "it is ours already"


def test_the_request_of_a_first_publication(rig: Rig) -> None:
    rig.make()
    batch = rig.publishing()
    assert rig.publish(batch) == 2
    summary = {
        "operation": "append",
        "added-data-files": "1",
        "added-records": "3",
        "changed-partition-count": "1",
        **said(batch, 3),
        **totals(3, 1),
    }
    assert request_of(rig) == {
        "requirements": requirements(1, 1),
        "updates": [
            *moved(2, 1, 2, summary),
            row_set(batch, 2, {1: Committed(3, LEDGER, 7)}, name=str(batch.id)),
        ],
    }
    assert rig.rows_at_main() == [(1, 1), (2, 1), (3, 1)]


def test_the_request_of_a_revision_removes_files_and_rows_that_have_ended(rig: Rig) -> None:
    rig.make()
    first, other = rig.publishing(), rig.publishing(number=1)
    rig.publish(first)
    rig.publish(other)
    rig.end(first, snapshot=2)
    rig.end(other, snapshot=3)
    rig.catalog.requests.clear()
    batch = rig.publishing(rows=2, lease=9, revision=2)
    assert rig.publish(batch) == 4
    summary = {
        "operation": "overwrite",
        "added-data-files": "1",
        "deleted-data-files": "1",
        "added-records": "2",
        "deleted-records": "3",
        "changed-partition-count": "2",
        **said(batch, 2),
        **totals(5, 2),
    }
    assert request_of(rig) == {
        "requirements": requirements(3, 3),
        "updates": [
            *moved(4, 3, 4, summary),
            row_set(batch, 4, {2: Committed(2, LEDGER, 9)}, name=str(batch.id)),
            {"action": "remove-properties", "removals": ["fencepost.interval.2026-01-02T00:00:00+00:00"]},
        ],
    }
    assert rig.rows_at_main() == [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1)]


def test_the_request_of_an_addition_keeps_what_it_adds_to(rig: Rig) -> None:
    rig.make()
    first = rig.publishing()
    rig.publish(first)
    rig.end(first, snapshot=2)
    rig.catalog.requests.clear()
    batch = rig.publishing(rows=2, lease=9, revision=2, adds_to=1)
    assert rig.publish(batch) == 3
    summary = {
        "operation": "append",
        "added-data-files": "1",
        "added-records": "2",
        "changed-partition-count": "1",
        **said(batch, 2),
        **totals(5, 2),
    }
    revisions = {1: Committed(3, LEDGER, 7), 2: Committed(2, LEDGER, 9)}
    assert request_of(rig) == {
        "requirements": requirements(2, 2),
        "updates": [*moved(3, 2, 3, summary), row_set(batch, 3, revisions, name=str(batch.id))],
    }
    assert rig.rows_at_main() == [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1)]


def test_an_addition_to_rows_that_are_gone_is_refused(rig: Rig) -> None:
    rig.make()
    first = rig.publishing()
    rig.publish(first)
    rig.end(first, snapshot=2)
    rig.table.delete("n = 1")
    with pytest.raises(TableRefused, match=r"adds to revision 1, and table db\.t lacks revisions 1 of its interval"):
        rig.publish(rig.publishing(rows=2, lease=9, revision=2, adds_to=1))


def test_the_request_of_a_close_moves_main_and_closes_the_row(rig: Rig) -> None:
    rig.make()
    batch = rig.publishing()
    assert close(rig.lake, batch, "column n is null") is TableStanding.OPEN
    summary = {"operation": "append", "fencepost.closed": str(batch.id), **totals(0, 0)}
    assert request_of(rig) == {
        "requirements": requirements(1, 1),
        "updates": [*moved(2, 1, 2, summary), row_set(batch, 2, {}, closed=True, refused="column n is null")],
    }
    assert close(rig.lake, batch) is TableStanding.CLOSED
    with pytest.raises(Superseded, match="is closed: it was given up"):
        rig.publish(batch)
    assert rig.catalog.requests == [], "neither sends anything"


def test_columns_are_added_by_the_commit_that_needs_them(rig: Rig) -> None:
    schema = new_schema(columns())
    rig.catalog.create_table(NAME, schema, partition_spec=new_partition_spec(schema))
    claim(rig.lake, None)
    rig.catalog.requests.clear()
    batch = rig.publishing()
    rig.publish(batch)
    request = request_of(rig)
    assert request["requirements"] == requirements(1, 1, columns=2), "what the table was before the commit"
    assert [one["action"] for one in request["updates"]] == [
        "add-schema",
        "set-current-schema",
        "add-snapshot",
        "set-snapshot-ref",
        "set-snapshot-ref",
        "set-properties",
    ]
    assert [field["name"] for field in request["updates"][0]["schema"]["fields"]][2] == "n"
    assert request["updates"][2]["snapshot"]["schema-id"] == 1
    assert rig.rows_at_main() == [(1, 1), (2, 1), (3, 1)]


def test_a_batch_without_rows_is_an_empty_snapshot_with_its_row(rig: Rig) -> None:
    rig.make()
    batch = rig.publishing(rows=0)
    assert rig.publish(batch) == 2
    assert request_of(rig)["updates"][-1] == row_set(batch, 2, {1: Committed(0, LEDGER, 7)}, name=str(batch.id))
    assert rig.publish(batch) == 2, "it is published, although it has no files"


def test_the_base_is_read_before_the_ledger_is_asked(rig: Rig) -> None:
    rig.make()
    batch = rig.publishing()
    rig.asked.clear()
    rig.publish(batch)
    assert rig.asked == ["lake.based", "ledger", "lake.asked", "lake.written", "lake.committing", "lake.committed"]
    rig.asked.clear()
    close(rig.lake, batch)
    assert rig.asked == ["lake.based", "ledger"]


def once(rig: Rig, where: str, do: Callable[[], None]) -> None:
    def called() -> None:
        setattr(rig.catalog, where, lambda: None)
        do()

    setattr(rig.catalog, where, called)


def fails_once(rig: Rig, where: str, error: Exception) -> None:
    def fail() -> None:
        setattr(rig.catalog, where, lambda: None)
        raise error

    setattr(rig.catalog, where, fail)


@pytest.mark.parametrize(
    "error", [ConnectionError("gone"), CommitFailedException("moved"), TimeoutError(), ValueError("?")]
)
def test_a_lost_answer_is_found_in_the_table_and_nothing_is_committed_twice(rig: Rig, error: Exception) -> None:
    """A refusal too: a proxy may have repeated a request that had landed."""
    rig.make()
    batch = rig.publishing()
    fails_once(rig, "after", error)
    assert rig.publish(batch) == 2
    assert len(rig.catalog.requests) == 1
    assert rig.rows_at_main() == [(1, 1), (2, 1), (3, 1)]


@pytest.mark.parametrize("error", [ConnectionError("gone"), CommitFailedException("moved")])
def test_a_request_that_did_not_land_is_made_anew_with_the_same_files(rig: Rig, error: Exception) -> None:
    rig.make()
    batch = rig.publishing()
    fails_once(rig, "before", error)
    assert rig.publish(batch) == 3
    assert [one["updates"][0]["snapshot"]["snapshot-id"] for one in rig.catalog.requests] == [2, 3]
    assert len([*Path(rig.table.location().removeprefix("file://")).rglob("*.parquet")]) == 1


def test_files_are_not_used_again_for_other_columns_of_the_same_numbers(rig: Rig) -> None:
    """Another writer adds the same columns in another order: the schema id and the last field id are those of this commit."""
    schema = new_schema(columns())
    rig.catalog.create_table(NAME, schema, partition_spec=new_partition_spec(schema))
    claim(rig.lake, None)
    rig.result = columns(n="int", m="int")
    batch = rig.publishing()
    rig.values = [b'{"n": 1, "m": 10}', b'{"n": 2, "m": 20}', b'{"n": 3, "m": 30}']

    def another() -> None:
        rig.catalog.before = lambda: None
        with rig.table.update_schema() as update:
            update.add_column("m", IntegerType())
            update.add_column("n", IntegerType())

    rig.pipeline.output = IcebergSettings(kind="iceberg", table=NAME, add_columns=True)
    rig.catalog.before = another
    rig.publish(batch)
    assert {one.name: one.field_id for one in rig.table.schema().fields if one.name in "nm"} == {"m": 3, "n": 4}
    assert rig.table.scan().to_arrow()["n"].to_pylist() == [1, 2, 3]
    assert rig.table.scan().to_arrow()["m"].to_pylist() == [10, 20, 30]


def test_old_files_are_not_used_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """An orphan clean-up may have deleted them."""
    rig.make()
    batch = rig.publishing()
    monkeypatch.setattr(commits, "FILES_LAST", -commits.FILES_LAST)
    fails_once(rig, "before", ConnectionError("gone"))
    rig.publish(batch)
    assert len([*Path(rig.table.location().removeprefix("file://")).rglob("*.parquet")]) == 2
    assert rig.rows_at_main() == [(1, 1), (2, 1), (3, 1)]


def test_a_refused_login_ends_at_once(rig: Rig) -> None:
    rig.make()
    batch = rig.publishing()
    fails_once(rig, "before", ForbiddenError("no"))
    with pytest.raises(AccessDenied, match="the login lacks a right"):
        rig.publish(batch)
    assert len(rig.catalog.requests) == 1


def test_a_refused_login_after_the_commit_has_landed_says_nothing_of_the_outcome(rig: Rig) -> None:
    """A repeated request may be denied. The files stay, and the next attempt finds the batch committed."""
    rig.make()
    batch = rig.publishing()
    fails_once(rig, "after", ForbiddenError("no"))
    with pytest.raises(AccessDenied):
        rig.publish(batch)
    assert rig.publish(batch) == 2
    assert len(rig.catalog.requests) == 1
    assert rig.rows_at_main() == [(1, 1), (2, 1), (3, 1)]


def test_twenty_turns_in_a_row_are_told(rig: Rig) -> None:
    rig.make()
    batch = rig.publishing()

    def fail() -> None:
        raise CommitFailedException("moved")

    rig.catalog.before = fail
    with pytest.raises(TableUnavailable, match="has refused or not answered 20 times in a row"):
        rig.publish(batch)
    assert len(rig.catalog.requests) == 20


def load_fails(rig: Rig, monkeypatch: pytest.MonkeyPatch, *errors: FencepostError) -> list[str]:
    """The next loads of the table raise these errors. Returns the list of all loads."""
    load, coming, asked = rig.lake.load, list(errors), list[str]()

    def failing(name: str = "") -> Table | None:
        asked.append(name)
        if coming:
            raise coming.pop(0)
        return load(name)

    monkeypatch.setattr(rig.lake, "load", failing)
    return asked


@pytest.mark.parametrize("before", [0, 1], ids=["the first turn", "after a lost answer"])
def test_a_catalog_that_does_not_give_the_table_costs_turns(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    rig.make()
    batch = rig.publishing()
    away = [TableUnavailable("away")] * 3
    if before:
        once(rig, "after", lambda: lost(rig, monkeypatch, away))
    else:
        load_fails(rig, monkeypatch, *away)
    assert rig.publish(batch) == 2
    assert len(rig.catalog.requests) == 1
    assert rig.rows_at_main() == [(1, 1), (2, 1), (3, 1)]


def lost(rig: Rig, monkeypatch: pytest.MonkeyPatch, errors: list[FencepostError]) -> None:
    load_fails(rig, monkeypatch, *errors)
    raise ConnectionError("gone")


def test_a_publication_is_closed_and_a_table_claimed_by_a_catalog_that_is_slow_to_answer(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = new_schema(RESULT)
    load_fails(rig, monkeypatch, TableUnavailable("away"))
    create(rig.lake, schema, new_partition_spec(schema), {})
    load_fails(rig, monkeypatch, TableUnavailable("away"))
    claim(rig.lake, None)
    batch = rig.publishing()
    load_fails(rig, monkeypatch, TableUnavailable("away"))
    assert close(rig.lake, batch) is TableStanding.OPEN
    assert rig.row().closed


def test_a_table_that_cannot_be_loaded_is_told_after_twenty_turns(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.make()
    batch = rig.publishing()
    asked = load_fails(rig, monkeypatch, *[TableUnavailable(f"away {n}") for n in range(1, 30)])
    with pytest.raises(
        TableUnavailable, match=r"has refused or not answered 20 times in a row.*The last time: away 20$"
    ):
        rig.publish(batch)
    assert (len(asked), rig.catalog.requests) == (20, [])


@pytest.mark.parametrize("refused", [AccessDenied("no right"), LoginRefused("no login")])
def test_a_refused_load_ends_at_once(rig: Rig, monkeypatch: pytest.MonkeyPatch, refused: FencepostError) -> None:
    rig.make()
    batch = rig.publishing()
    asked = load_fails(rig, monkeypatch, refused)
    with pytest.raises(type(refused), match=str(refused)):
        rig.publish(batch)
    assert len(asked) == 1


def test_a_twin_with_an_old_base_finds_that_the_ledger_has_the_end(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process publishes, and records it, between the twin's read of the table and of the ledger."""
    rig.make()
    batch = rig.publishing()
    load = rig.lake.load

    def overtaken(name: str = "") -> Table | None:
        monkeypatch.setattr(rig.lake, "load", load)
        table = load(name)
        rig.end(batch, snapshot=rig.publish(batch))
        return table

    monkeypatch.setattr(rig.lake, "load", overtaken)
    assert rig.publish(batch) == 2
    assert len(rig.catalog.requests) == 1
    assert rig.rows_at_main() == [(1, 1), (2, 1), (3, 1)]


def test_a_maintainer_who_moves_main_costs_a_turn(rig: Rig) -> None:
    rig.make()
    batch = rig.publishing()

    def maintain() -> None:
        rig.catalog.before = lambda: None
        rig.table.append(pa.Table.from_batches([], schema=rig.table.schema().as_arrow()))

    rig.catalog.before = maintain
    rig.publish(batch)
    assert rig.rows_at_main() == [(1, 1), (2, 1), (3, 1)]
    assert rig.row().snapshot == rig.table.metadata.current_snapshot_id


def test_a_zombie_is_refused_after_main_was_rolled_back_to_its_base(rig: Rig) -> None:
    """Main is what it was when the zombie read it, and the tag is not."""
    rig.make()
    zombie = rig.publishing()

    def given_up_and_rolled_back() -> None:
        rig.catalog.before = lambda: None
        close(rig.lake, zombie)
        rig.end(zombie, State.REJECTED)
        table = rig.table
        table.manage_snapshots().rollback_to_snapshot(1).commit()
        assert rig.table.metadata.refs[MAIN_BRANCH].snapshot_id == 1

    rig.catalog.before = given_up_and_rolled_back
    with pytest.raises(Superseded):
        rig.publish(zombie)
    assert rig.rows_at_main() == []


def test_a_publication_given_up_under_a_lost_ledger_cannot_land_either(rig: Rig) -> None:
    """The interval's row is another ledger topic's, so it is left as it is; main moves all the same."""
    rig.make()
    earlier = rig.publishing(lease=50, ledger="ledger-0")
    rig.ledger.clear()
    with rig.table.transaction() as update:
        update.set_properties(
            row_property(SnapshotRow(earlier.interval.start, earlier.interval.end, "ledger-0", 50, snapshot=1))
        )
    zombie = rig.publishing()

    def given_up_under_a_new_ledger() -> None:
        rig.catalog.before = lambda: None
        rig.topic_id = "ledger-2"
        assert close(rig.lake, zombie) is TableStanding.FOREIGN
        rig.end(zombie, State.REJECTED)

    rig.catalog.before = given_up_under_a_new_ledger
    with pytest.raises(Superseded, match="was published under another ledger topic"):
        rig.publish(zombie)
    assert (rig.row().ledger, rig.row().lease, rig.row().closed) == ("ledger-0", 50, False)
    assert rig.rows_at_main() == []


def test_who_gives_up_a_publication_that_has_landed_finds_it(rig: Rig) -> None:
    rig.make()
    batch = rig.publishing()
    rig.publish(batch)
    rig.catalog.requests.clear()
    assert close(rig.lake, batch) is TableStanding.DONE
    assert rig.catalog.requests == []


def test_a_publication_that_was_rolled_back_is_committed_anew(rig: Rig) -> None:
    rig.make()
    batch = rig.publishing()
    assert rig.publish(batch) == 2
    rig.table.manage_snapshots().rollback_to_snapshot(1).commit()
    assert rig.publish(batch) == 3
    assert rig.rows_at_main() == [(1, 1), (2, 1), (3, 1)]


def test_a_table_made_anew_is_another_table(rig: Rig) -> None:
    rig.make()
    batch = rig.publishing()

    def made_anew() -> None:
        rig.catalog.before = lambda: None
        rig.catalog.drop_table(NAME)
        rig.make()

    rig.catalog.before = made_anew
    with pytest.raises(AnotherLakeTable):
        rig.publish(batch)
    assert rig.rows_at_main() == []


def test_a_claim_finds_that_its_lost_answer_was_a_yes(rig: Rig) -> None:
    schema = new_schema(RESULT)
    rig.catalog.create_table(NAME, schema, partition_spec=new_partition_spec(schema))
    fails_once(rig, "after", ConnectionError("gone"))
    claim(rig.lake, None)
    assert len(rig.catalog.requests) == 1
    assert base_of(rig.table, NAME).owner == rig.lake.of.owner


def test_a_claim_that_comes_too_late_is_refused_by_the_owner(rig: Rig) -> None:
    schema = new_schema(RESULT)
    rig.catalog.create_table(NAME, schema, partition_spec=new_partition_spec(schema))

    def another() -> None:
        rig.catalog.before = lambda: None
        with rig.table.transaction() as update:
            update.set_properties({"fencepost.owner": '{"cluster":"here","pipeline":"other"}'})
            update.update_snapshot().fast_append().commit()

    rig.catalog.before = another
    with pytest.raises(TableRefused, match=r"belongs to pipeline other.*properties that begin with fencepost\."):
        claim(rig.lake, None)


def test_a_claim_removes_the_rows_of_an_owner_that_is_gone(rig: Rig) -> None:
    rig.make()
    batch = rig.publishing()
    rig.publish(batch)
    with rig.table.transaction() as update:
        update.remove_properties("fencepost.owner")
    claim(rig.lake, None)
    assert base_of(rig.table, NAME).rows == {}


def test_staged_records_that_differ_from_the_receipts_are_not_committed(rig: Rig) -> None:
    rig.make()
    batch = rig.publishing()
    rig.values = VALUES[:2]
    with pytest.raises(ReceiptsDisagree, match="2 records with fingerprint"):
        rig.publish(batch)
    assert rig.catalog.requests == []
    assert [*Path(rig.table.location().removeprefix("file://")).rglob("*.parquet")] == []


def test_properties_stay_few(rig: Rig) -> None:
    rig.make()
    for number in range(5):
        batch = rig.publishing(number=number, lease=10 + number)
        rig.end(batch, snapshot=rig.publish(batch))
    assert [*base_of(rig.table, NAME).rows] == [a_day(4).start]


def test_old_metadata_files_are_deleted_as_the_table_says(rig: Rig) -> None:
    rig.make(
        **{"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "3"},
    )
    for number in range(6):
        batch = rig.publishing(number=number, lease=10 + number)
        rig.end(batch, snapshot=rig.publish(batch))
    folder = Path(rig.table.location().removeprefix("file://")) / "metadata"
    assert len([*folder.glob("*.metadata.json")]) == 4


def test_files_of_a_commit_that_was_rolled_back_are_not_used_again(rig: Rig) -> None:
    """The answer was lost. A maintainer rolls back, and the expiry of the snapshot deletes its files."""
    rig.make()
    batch = rig.publishing()
    folder = Path(rig.table.location().removeprefix("file://"))

    def rolled_back_and_expired() -> None:
        rig.table.manage_snapshots().rollback_to_snapshot(1).commit()
        for path in folder.rglob("*.parquet"):
            path.unlink()
        raise ConnectionError("gone")

    once(rig, "after", rolled_back_and_expired)
    rig.publish(batch)
    assert rig.rows_at_main() == [(1, 1), (2, 1), (3, 1)]


def test_a_publication_given_up_while_nobody_owns_the_table_cannot_land(rig: Rig) -> None:
    rig.make()
    zombie = rig.publishing()

    def given_up() -> None:
        with rig.table.transaction() as update:
            update.remove_properties("fencepost.owner")
        close(rig.lake, zombie)
        rig.end(zombie, State.REJECTED)

    once(rig, "before", given_up)
    with pytest.raises((Superseded, TableRefused)):
        rig.publish(zombie)
    assert rig.rows_at_main() == []


def test_a_base_whose_manifests_have_expired_costs_a_turn(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.make()
    batch = rig.publishing()
    load, calls = rig.lake.load, list[int]()

    def expired_at_once(name: str = "") -> Any:
        table = load(name)
        if not calls:
            calls.append(1)
            with rig.table.transaction() as update:
                update.update_snapshot().fast_append().commit()
            Path(table.current_snapshot().manifest_list.removeprefix("file://")).unlink()
        return table

    monkeypatch.setattr(rig.lake, "load", expired_at_once)
    rig.publish(batch)
    assert rig.rows_at_main() == [(1, 1), (2, 1), (3, 1)]


def test_a_property_that_is_no_truth_value_does_not_hide_a_commit_that_has_landed(rig: Rig) -> None:
    rig.make(**{"write.metadata.delete-after-commit.enabled": "maybe"})
    batch = rig.publishing()
    assert rig.publish(batch) == rig.table.metadata.current_snapshot_id
