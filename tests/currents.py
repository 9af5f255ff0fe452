"""An output table with a current table in a real PostgreSQL, published to by the product's own commit.

Kafka is left out: the staged records of a batch are those that the test gives, and the ledger allows each publication.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
import yaml
from pyspark.sql import types as t

from fencepost.config.loading import load_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.model import Batch, State
from fencepost.outputs.postgres import commit
from fencepost.outputs.postgres.commit import commit_batch
from fencepost.outputs.postgres.shape import TableShape
from fencepost.outputs.postgres.values import PostgresOutput, PostgresPublication
from fencepost.outputs.table.pipeline_table import PipelineTable
from fencepost.outputs.table.values import CurrentKeys
from fencepost.postgres.connection import session
from makers import NOW, a_batch, a_day, a_plan, a_receipt, a_topic, a_written
from rigs.postgres_server import PostgresServer, query

SCHEMA = {"id": t.IntegerType(), "pos": t.LongType(), "gone": t.BooleanType(), "name": t.StringType()}
CURRENT = {"table": "customers", "key": ["id"], "order_by": ["pos"], "deleted": "gone"}
COLUMNS = ("id", "pos", "name")  # of the current table that Fencepost makes
Row = tuple[Any, ...]


class Currents:
    """Table `changes` of rows (id, pos, gone, name), and its current table `customers`."""

    def __init__(self, server: PostgresServer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server, self.folder = server, folder
        # The pipeline has the folder's name.
        self.store, self.schema = server.database(), dict[str, t.DataType](SCHEMA)
        self.pipeline = self.configured(CURRENT)
        self._leases, self._staged = count(1), dict[str, list[dict[str, Any]]]()
        self._newest = dict[int, int]()
        staged = self._staged

        class Staged:
            """The records of a batch as its staging topic would give them."""

            failed = None

            def __init__(self, _: Any, batch: Batch) -> None:
                self._values, written = staged[str(batch.id)], batch.require_written
                self.rows, self.fingerprint = written.rows, written.fingerprint

            def batches(self, rows: Any) -> Iterator[pa.RecordBatch]:
                yield rows.of(pa.array([json.dumps(value).encode() for value in self._values], pa.binary()))

            def place(self, row: int) -> None:
                return None

        monkeypatch.setattr(commit, "StagedRows", Staged)
        monkeypatch.setattr(PipelineTable, "check_ledger", lambda *_: None)

    def configured(self, current: dict[str, Any] | None, **output: Any) -> Pipeline:
        """Set `output.current`, and other settings of the output."""
        self.folder.mkdir(exist_ok=True)
        settings = {"kind": "postgres", "table": "changes", **({"current": current} if current else {}), **output}
        sections = {
            "source": {"topic": "in", "schema": {"n": "int"}},
            "output": settings,
            "schedule": {"start": "2026-01-01"},
            "kafka": {"bootstrap.servers": "127.0.0.1:1"},
            "postgres": self.store,
        }
        (self.folder / "pipeline.yaml").write_text(yaml.safe_dump(sections))
        (self.folder / "transform.py").write_text("def transform(frame):\n    return frame\n")
        (self.folder / "expectations.yaml").write_text("expectations: []\n")
        self.pipeline = load_pipeline(self.folder)
        return self.pipeline

    @property
    def table(self) -> PipelineTable:
        """The output table, as a pipeline's on a cluster."""
        deployment: Any = SimpleNamespace(pipeline=self.pipeline, cluster=SimpleNamespace(id="cluster"))
        return PipelineTable(deployment, "public.changes")

    @property
    def shape(self) -> TableShape:
        """The checks of the table."""
        return TableShape(self.table)

    def named(self, name: str) -> TableShape:
        """The checks of another output table."""
        deployment: Any = SimpleNamespace(pipeline=self.pipeline, cluster=SimpleNamespace(id="cluster"))
        return TableShape(PipelineTable(deployment, name))

    @property
    def columns(self) -> t.StructType:
        """The columns of the transform's result."""
        return t.StructType([t.StructField(name, kind) for name, kind in self.schema.items()])

    def batch(self, day: int, rows: Sequence[Row], *, adds: bool = False) -> Batch:
        """A batch of the next revision of a day, about to be published: with these rows, or added to the day's newest."""
        names = self.columns.fieldNames()
        revision = self._newest.get(day, 0) + 1
        base, self._newest[day] = self._newest.get(day), revision
        written = a_written(
            a_receipt(rows=len(rows), topic="staging"),
            output=a_topic(len(rows)),
            value_schema=self.columns.json(),
        )
        batch = a_batch(
            State.PUBLISHING,
            pipeline=self.pipeline.name,
            interval=a_day(day),
            revision=revision,
            adds_to=base if adds else None,
            plan=a_plan(
                (0, 9), output=PostgresOutput(table="public.changes"), staging=a_topic(0), ledger_topic_id="ledger"
            ),
            written=written,
            publication=PostgresPublication(
                table="public.changes", ledger="ledger", lease=next(self._leases), begun_at=NOW
            ),
        )
        self._staged[str(batch.id)] = [dict(zip(names, row, strict=True)) for row in rows]
        return batch

    def publish(self, day: int, rows: Sequence[Row], *, adds: bool = False) -> CurrentKeys | None:
        """Publish a batch, as advance does."""
        return self.commit(self.batch(day, rows, adds=adds))

    def commit(self, batch: Batch) -> CurrentKeys | None:
        """Make what is missing, and commit."""
        self.shape.check_result(batch.interval, self.columns)
        return commit_batch(self.table, self.shape, batch)

    def session(self) -> Any:
        """A session of the product's."""
        return session(self.pipeline)

    def run(self, text: str, *values: Any) -> list[Row]:
        """The rows of a statement of the owner's."""
        return query(self.store, text, values)

    def there(self) -> list[Row]:
        """The current table, in order."""
        return self.run("select * from customers order by 1, 2, 3")

    def wanted(self) -> list[Row]:
        """What the current table has to have, by plain SQL over the history."""
        return self.run(
            "select id, pos, name from (select distinct on (id) * from changes order by id, pos desc) as newest "
            "where gone is not true order by 1, 2, 3"
        )

    def is_right(self) -> bool:
        """Whether the current table has what it has to, to the last bit."""
        return self.run("""
            with wanted as (select id, pos, name from (select distinct on (id) * from changes order by id, pos desc) as newest
                where gone is not true)
            select not exists (select 1 from wanted full join customers as c using (id)
                where row(wanted.pos, wanted.name)::record *<> row(c.pos, c.name)::record
                or wanted.id is null or c.id is null)
        """) == [(True,)]  # fmt: skip

    def stale(self) -> str:
        """Why the current table is stale, by the store."""
        ((found,),) = self.run(
            "select coalesce(current->>'stale', '') from fencepost_tables where name = 'public.customers'"
        )
        return str(found)
