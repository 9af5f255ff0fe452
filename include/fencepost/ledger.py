"""The only reader and writer of the ledger: a compacted, one-partition topic with a record per revision of a batch.

Invariant: a transition is decided on everything committed before it, and commits together with the group offsets it
moves, or not at all. The coordinator's transactional.id is what makes that a compare-and-set: whoever calls
init_transactions last is the only one that can commit, and it reads the ledger after that call.

Price: one coordinator at a time; a second one fences the first, which then decides again from a fresh read.
"""

from __future__ import annotations

import json
import logging
import random
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from confluent_kafka import TopicPartition
from pydantic import ValidationError

from fencepost.errors import (
    CoordinatorFenced,
    LedgerUnreadable,
    NeedsOperator,
    TopicMissing,
    WriteFailed,
    WriterFenced,
)
from fencepost.kafka import Cluster, Settings, Topic, make_consumer, read_until, settings_of
from fencepost.model import LEDGER_VERSION, Batch, Event, State
from fencepost.settings import Pipeline
from fencepost.transaction import Transaction
from fencepost.transitions import View

log = logging.getLogger("fencepost.ledger")

# A coordinator's transaction takes milliseconds. One that died in it hides the ledger from plain readers until the
# broker aborts it: after its time-out, and the broker looks every ten seconds.
COORDINATOR_TIMEOUT_MS = 15_000
OPEN_TRANSACTION_LIMIT = 90.0  # seconds
TURNS = 5  # times a fenced coordinator decides again before it leaves the field to the other


@dataclass(frozen=True)
class Change:
    """What a decision wants committed in one transaction: batch records, and offsets by group."""

    batches: tuple[Batch, ...] = ()
    offsets: dict[str, list[TopicPartition]] = field(default_factory=dict)


class Ledger:
    """The ledger of one pipeline."""

    def __init__(self, pipeline: Pipeline, settings: Settings | None = None) -> None:
        self.pipeline = pipeline
        self.settings = settings or settings_of(pipeline)
        self.cluster = Cluster(self.settings)
        self._coordinator = Settings({**self.settings.values, "transaction.timeout.ms": str(COORDINATOR_TIMEOUT_MS)})

    def create(self) -> None:
        """Make the topic where it is missing; idempotent.

        Raises:
            NeedsOperator: the topic exists but would lose or split the ledger.
        """
        name = self.pipeline.ledger_topic
        topic = self.cluster.ensure_topic(name, 1, {"cleanup.policy": "compact"})
        policy = self.cluster.topic_config(name, "cleanup.policy")
        if topic.partitions != 1 or policy != "compact":
            raise NeedsOperator(
                f"ledger topic {name} has {topic.partitions} partitions and cleanup.policy={policy}; it needs 1 and compact, "
                "or batches would be forgotten. Never make it anew: leases are its offsets, and old marks would be taken for new "
                "batches'. Set it with kafka-configs.sh, or give the pipeline a new name."
            )

    def exists(self) -> bool:
        """Whether anything was ever planned."""
        try:
            self.cluster.describe(self.pipeline.ledger_topic)
        except TopicMissing:
            return False
        return True

    def read(self) -> View:
        """All that is committed now. Waits for a transaction under way, never takes part of the ledger for all of it."""
        return View.of(self.history())

    def history(self) -> list[Batch]:
        """The ledger's records in their order; compaction leaves at least the newest one of every revision."""
        topic = self.cluster.describe(self.pipeline.ledger_topic)
        return _read_all(self.cluster, topic, self.settings, self.pipeline)

    def transact(self, decide: Callable[[View], Change | None]) -> View:
        """Commit what `decide` wants, decided on all that was committed before. Returns the view after it.

        1. init_transactions fences every other coordinator;
        2. the ledger is read to its end;
        3. `decide` answers with a change, with None (nothing to do), or raises;
        4. the change is committed. Fenced meanwhile, or aborted: from 1 again, a few times, with a pause of random length.

        Raises:
            CoordinatorFenced: other runs of the pipeline kept taking over.
        """
        for turn in range(TURNS):
            coordinator = Transaction(self._coordinator, self.pipeline.coordinator_id, "coordinator")
            try:
                coordinator.init()  # 1
                view = self.read()  # 2
                change = decide(view)  # 3
                if change is None or not (change.batches or change.offsets):
                    return view
                self._commit(coordinator, change)  # 4
            except (WriterFenced, WriteFailed) as error:  # neither commits; and being fenced can look like the other
                log.info("%s: deciding again (%d): %s", self.pipeline.name, turn + 1, error)
                time.sleep(random.uniform(0.1, 1.0) * (turn + 1))  # noqa: S311
                continue
            for batch in change.batches:
                log.info("batch=%s state=%s %s", batch.id, batch.state, batch.history[-1].note)
            return self.read()
        raise CoordinatorFenced(
            f"pipeline {self.pipeline.name}: other runs took the ledger over {TURNS} times in a row. Nothing was changed; run "
            "again."
        )

    def _commit(self, coordinator: Transaction, change: Change) -> None:
        with coordinator:
            for batch in change.batches:
                coordinator.produce(self.pipeline.ledger_topic, _value(batch), _key(batch), partition=0)
            for group, offsets in change.offsets.items():
                coordinator.add_offsets(offsets, group)


def _key(batch: Batch) -> bytes:
    return f"{batch.interval}/{batch.revision}".encode()


def _value(batch: Batch) -> bytes:
    return batch.model_dump_json(exclude_none=True).encode()


def _read_all(cluster: Cluster, topic: Topic, settings: Settings, pipeline: Pipeline) -> list[Batch]:
    """Every record below the high watermark of now, read_committed."""
    end = cluster.high_watermarks(topic)[0]
    if end == 0:
        return []
    cluster.await_stable(topic, [end], OPEN_TRANSACTION_LIMIT, f"reading ledger {topic.name}")
    consumer, complaints = make_consumer(settings, pipeline.group)
    try:
        consumer.assign([TopicPartition(topic.name, 0, cluster.earliest(topic)[0])])
        messages = read_until(consumer, complaints, settings, {0: end}, f"reading ledger {topic.name}")
        return in_order(((m.offset() or 0, m.key(), m.value()) for m in messages), pipeline)
    finally:
        consumer.close()


def in_order(records: Iterable[tuple[int, bytes | None, bytes | None]], pipeline: Pipeline) -> list[Batch]:
    """The batches of (offset, key, value). A revision's later record goes on where the one before it stopped.

    A record under a key that no batch has is withdrawn by a later one with that key and no value; compaction removes both.

    Raises:
        LedgerUnreadable: a record is not this pipeline's, is damaged, or is an older one copied behind newer ones.
    """
    records = list(records)
    withdrawn = {key: offset for offset, key, value in records if value is None and not BATCH_KEY.fullmatch(key or b"")}
    batches: list[Batch] = []
    histories: dict[bytes | None, tuple[Event, ...]] = {}
    for offset, key, value in records:
        if offset <= withdrawn.get(key, -1):
            continue
        where = f"ledger {pipeline.ledger_topic}, offset {offset}"
        batch = own_batch(key, value, offset, pipeline)
        before = histories.get(key, ())
        if batch.history[: len(before)] != before:
            raise LedgerUnreadable(f"{where}: an older record of {batch.id} stands behind a newer one. {FOREIGN}")
        histories[key] = batch.history
        batches.append(batch)
    return batches


def own_batch(key: bytes | None, value: bytes | None, offset: int, pipeline: Pipeline) -> Batch:
    """The batch of a record of this pipeline's, with its lease.

    Raises:
        LedgerUnreadable: the record is not this pipeline's, or is damaged.
    """
    where = f"ledger {pipeline.ledger_topic}, offset {offset}"
    batch = parse(value, where)
    if batch.pipeline != pipeline.name or key != _key(batch):
        raise LedgerUnreadable(f"{where}: not a record of this pipeline's. {FOREIGN}")
    if batch.lease is not None:
        return batch
    if batch.state is not State.PLANNED:
        raise LedgerUnreadable(f"{where}: damaged in lease. {RESTORE}")
    return batch.model_copy(update={"lease": offset})


BATCH_KEY = re.compile(rb"\d{8}T\d{6}(\.\d{6})?Z-\d{8}T\d{6}(\.\d{6})?Z/\d+")
FOREIGN = (
    "Find out who writes to this topic; the ledger is for Fencepost alone. Where its key is no batch's (<interval>/<revision>), "
    "a record with that key and no value withdraws it; otherwise restore the topic from a copy."
)
RESTORE = "Restore the ledger topic from a copy."


def parse(value: bytes | None, where: str) -> Batch:
    """A ledger record's batch, or LedgerUnreadable naming the offset and not the content."""
    try:
        raw = json.loads(value or b"")
        version = raw.get("version")
    except (ValueError, AttributeError, RecursionError):
        raise LedgerUnreadable(f"{where}: not a record of Fencepost's. {FOREIGN}") from None
    if isinstance(version, int) and version > LEDGER_VERSION:
        raise LedgerUnreadable(
            f"{where}: written by a newer Fencepost (record version {version}, this one reads {LEDGER_VERSION}). Upgrade."
        )
    try:
        return Batch.model_validate(raw)
    except ValidationError as error:
        fields = ", ".join(sorted({_field(e["loc"]) for e in error.errors()}))
        raise LedgerUnreadable(f"{where}: damaged in {fields}. {RESTORE}") from None


def _field(location: tuple[int | str, ...]) -> str:
    """The top field where a record is damaged: names below it may be anything."""
    return str(location[0]) if location and location[0] in Batch.model_fields else "fields it should not have"
