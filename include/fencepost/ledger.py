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
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from confluent_kafka import Consumer, Message, TopicPartition
from pydantic import ValidationError

from fencepost.errors import CoordinatorFenced, LedgerUnreadable, NeedsOperator, SettingsError, WriterFenced
from fencepost.kafka import Cluster, Settings, Topic, make_consumer, read_until, settings_of
from fencepost.model import LEDGER_VERSION, Batch
from fencepost.settings import Pipeline
from fencepost.transaction import Transaction
from fencepost.transitions import View

log = logging.getLogger("fencepost.ledger")

OPEN_TRANSACTION_LIMIT = 90.0  # seconds; a coordinator's own transaction takes milliseconds
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
                "or batches would be forgotten. Set it with kafka-configs.sh, or move the topic out of the way."
            )

    def exists(self) -> bool:
        """Whether anything was ever planned."""
        try:
            self.cluster.describe(self.pipeline.ledger_topic)
        except SettingsError:
            raise
        except NeedsOperator:
            return False
        return True

    def read(self) -> View:
        """All that is committed now. Waits for a transaction under way, never takes part of the ledger for all of it."""
        return View.of(self.history())

    def history(self) -> list[Batch]:
        """The ledger's records in their order; compaction leaves at least the newest one of every revision."""
        topic = self.cluster.describe(self.pipeline.ledger_topic)
        return _read_all(self.cluster, topic, self.settings, self.pipeline.group)

    def transact(self, decide: Callable[[View], Change | None]) -> View:
        """Commit what `decide` wants, decided on all that was committed before. Returns the view after it.

        1. init_transactions fences every other coordinator;
        2. the ledger is read to its end;
        3. `decide` answers with a change, with None (nothing to do), or raises;
        4. the change is committed. Fenced meanwhile: from 1 again, a few times, with a pause of random length.

        Raises:
            CoordinatorFenced: other runs of the pipeline kept taking over.
        """
        for turn in range(TURNS):
            coordinator = Transaction(self.settings, self.pipeline.coordinator_id, "coordinator")
            try:
                coordinator.init()  # 1
                view = self.read()  # 2
                change = decide(view)  # 3
                if change is None or not (change.batches or change.offsets):
                    return view
                self._commit(coordinator, change)  # 4
            except WriterFenced:
                log.info("%s: another run took the ledger over; deciding again (%d)", self.pipeline.name, turn + 1)
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
        consumers: list[Consumer] = []
        try:
            with coordinator:
                for batch in change.batches:
                    coordinator.produce(self.pipeline.ledger_topic, key=_key(batch), value=_value(batch), partition=0)
                for group, offsets in change.offsets.items():
                    # Kafka wants group metadata from a consumer; this one is never subscribed and fences nothing.
                    consumer, _ = make_consumer(self.settings, group)
                    consumers.append(consumer)
                    coordinator.add_offsets(offsets, consumer.consumer_group_metadata())
        finally:
            for consumer in consumers:
                consumer.close()


def _key(batch: Batch) -> bytes:
    return f"{batch.interval}/{batch.revision}".encode()


def _value(batch: Batch) -> bytes:
    return batch.model_dump_json(exclude_none=True).encode()


def _read_all(cluster: Cluster, topic: Topic, settings: Settings, group: str) -> list[Batch]:
    """Every record below the high watermark of now, read_committed."""
    end = cluster.high_watermarks(topic)[0]
    if end == 0:
        return []
    cluster.await_stable(topic, [end], OPEN_TRANSACTION_LIMIT, f"reading ledger {topic.name}")
    consumer, complaints = make_consumer(settings, group)
    try:
        consumer.assign([TopicPartition(topic.name, 0, cluster.earliest(topic)[0])])
        messages = read_until(consumer, complaints, settings, {0: end}, f"reading ledger {topic.name}")
        return [parse_record(message, topic.name) for message in messages]
    finally:
        consumer.close()


def parse_record(message: Message, topic: str) -> Batch:
    """A ledger record, or LedgerUnreadable naming the offset and not the content."""
    try:
        batch = Batch.model_validate_json(message.value() or b"")
    except ValidationError as error:
        raise _unreadable(message, topic, error) from None
    if batch.version > LEDGER_VERSION:
        raise LedgerUnreadable(_newer(message, topic, batch.version))
    offset = message.offset()
    return batch if batch.lease is not None or offset is None else batch.model_copy(update={"lease": offset})


def _unreadable(message: Message, topic: str, error: ValidationError) -> LedgerUnreadable:
    where = f"ledger {topic}, offset {message.offset()}"
    try:
        version = json.loads(message.value() or b"").get("version")
    except (ValueError, AttributeError, UnicodeDecodeError):
        return LedgerUnreadable(
            f"{where}: not a record of Fencepost's. Find out who writes to this topic; the ledger is for Fencepost alone."
        )
    if isinstance(version, int) and version > LEDGER_VERSION:
        return LedgerUnreadable(_newer(message, topic, version))
    fields = ", ".join(sorted({".".join(map(str, e["loc"])) for e in error.errors()}))
    return LedgerUnreadable(f"{where}: damaged in {fields}. Restore the ledger topic from a copy.")


def _newer(message: Message, topic: str, version: int) -> str:
    return (
        f"ledger {topic}, offset {message.offset()}: written by a newer Fencepost (record version {version}, this one reads "
        f"{LEDGER_VERSION}). Upgrade."
    )
