"""A pipeline under attack whose transform looks something up in a side table that changes; and what its output has to be.

Content k of the table gives each row the label `k-...`, so every row says which content it was made with.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Self

from conftest import at
from fencepost.ledger.deployment import Deployment
from fencepost.side_tables.reading import read_tables
from kafka_tools import Record, create_topic, produce, read_all
from rigs.postgres_server import query
from waiting import await_true

from .checker import Attacked

LABELS = 5
TRANSFORM = """
def transform(source, labels):
    id = "_key_id" if "_key_id" in labels.columns else "id"
    found = labels.selectExpr(f"{id} AS id", "label")
    return source.join(found, source.n % 5 == found.id, "left").selectExpr("_key", "n", "n * 2 AS doubled", "label")
"""
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0",
    "delete.retention.ms": "0",
}
KINDS: dict[str, dict[str, Any]] = {
    "file": {"file": "labels.csv", "key": "id", "schema": {"id": "int", "label": "string"}},
    "topic": {
        "format": "json",
        "schema": {"label": "string"},
        "key_format": "json",
        "key_schema": {"id": "int"},
        "key": "_key_id",
    },
    "query": {"query": "SELECT id, label FROM labels", "key": "id"},
}


def labels(content: int) -> dict[int, str]:
    """The rows of that content."""
    return {number: f"{content}-{number}" for number in range(LABELS)}


@dataclass
class LookedUp(Attacked):
    """`table` is the kind of the side table; `store` the database of one that is a query."""

    table: str = "file"
    store: dict[str, str] = field(default_factory=dict)
    fingerprints: dict[str, int] = field(default_factory=dict)  # the content of each fingerprint

    def __enter__(self) -> Self:
        if self.table == "topic":
            create_topic(self.bootstrap, self.topic, 1, **COMPACTED)
        if self.table == "query":
            query(self.store, "CREATE TABLE labels (id int PRIMARY KEY, label text)")
            query(self.store, "INSERT INTO labels SELECT n, '' FROM generate_series(0, %s) n", (LABELS - 1,))
        self.change(0)
        return super().__enter__()

    @property
    def topic(self) -> str:
        return self.pipeline.topic_tables["labels"].topic

    def change(self, content: int) -> None:
        """Put that content in place of the one that is there. Of a topic, all older records but the last are compacted away."""
        getattr(self, f"_change_{self.table}")(content)

    def _change_file(self, content: int) -> None:
        lines = ["id,label", *(f"{number},{label}" for number, label in labels(content).items())]
        made = self.pipeline.folder / ".labels.csv"
        made.write_text("\n".join(lines) + "\n")
        made.replace(self.pipeline.folder / "labels.csv")

    def _change_query(self, content: int) -> None:
        query(self.store, "UPDATE labels SET label = %s || '-' || id", (str(content),))

    def _change_topic(self, content: int) -> None:
        for number, label in labels(content).items():  # each begins a new segment
            when = at(1 + content, number)
            produce(self.bootstrap, self.topic, [(b'{"id":%d}' % number, {"label": label}, 0, when)])
        there = LABELS if content == 0 else LABELS + 1
        await_true(lambda: len(read_all(self.bootstrap, self.topic)) <= there, "Kafka to compact the side table")

    def learn(self, spark: Any, content: int) -> None:
        """Remember the fingerprint of the content, which is there and does not change."""
        (read,) = read_tables(spark, self.pipeline, Deployment.of(self.pipeline).cluster).values()
        assert self.fingerprints.setdefault(read.state.fingerprint, content) == content, "another content has it too"

    def differences_of_contents(self, content: int, revision: int) -> list[str]:
        """Everything that is not as promised once that revision is published with that content; nothing is the good answer."""
        ledger = {int(str(key).rpartition("/")[2].strip("'")): batch for key, batch in self._ledger().items()}
        published = [number for number, batch in ledger.items() if batch["state"] == "published"]
        found = (
            []
            if published == [max(ledger)] == [revision]
            else [f"revisions {published} of {max(ledger)} are published"]
        )
        recorded = {number: self._recorded(batch) for number, batch in ledger.items()}
        found += [] if recorded.get(revision) == content else [f"recorded contents {recorded}"]
        seen = read_all(self.bootstrap, self.pipeline.output.topic)
        own = [r for r in seen if r.batch.endswith(f"/{revision}")]
        for record in seen:
            number = int(record.batch.rpartition("/")[2])
            found += self._differences_of_a_row(record, recorded[number], ledger[number])
        found += [f"{r.batch} is seen, of a staged batch" for r in seen if r not in own and self._is_staged]
        found += [f"revision {n}: a row twice" for n in ledger if self._doubled(seen, n)]
        return [
            *found,
            *self._differences_of_records([(r.partition, r.key, self.decoded(r)) for r in own]),
            *self.differences_of_followers(),
            *self.differences_of_frontier(len(self.days)),
            *self._differences_of_validated(),
            *self._differences_of_the_announcements(),
            *self.open_transactions(),
        ]

    @property
    def _is_staged(self) -> bool:
        return bool(self.pipeline.output.publish == "staged")

    def _recorded(self, batch: dict[str, Any]) -> int | None:
        """The content that is recorded for the batch."""
        (state,) = batch["plan"]["tables"] or [None]
        if state is None:
            return None
        assert (state["name"], state["rows"]) == ("labels", LABELS)
        return self.fingerprints[state["fingerprint"]]

    def _differences_of_a_row(self, record: Record, content: int | None, batch: dict[str, Any]) -> list[str]:
        value = json.loads(record.value or b"")
        wanted = None if content is None else labels(content)[value["n"] % LABELS]
        return [] if value["label"] == wanted else [f"{record.batch}: {value}, and content {content} is recorded"]

    def _doubled(self, seen: list[Record], revision: int) -> bool:
        rows = [(r.key, r.value) for r in seen if r.batch.endswith(f"/{revision}")]
        return len(rows) != len(set(rows))
