"""The only writer of the ledger: a compacted, one-partition topic with a record per revision of a batch.

Invariant: a transition is decided on everything committed before it, and commits together with the group offsets it
moves, or not at all. The coordinator's transactional.id is what makes that a compare-and-set: whoever calls
init_transactions last is the only one that can commit, and it reads the ledger after that call.

Price: one coordinator at a time; a second one fences the first, which then decides again on what is committed by then. What
the first one hears does not say whether its own change is: so every decision finds what it wants done already, done.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from confluent_kafka import TopicPartition

from fencepost.config.pipeline import Pipeline
from fencepost.errors import CoordinatorFenced, NeedsOperator, TopicMissing, WriteFailed, WriterFenced
from fencepost.kafka.client_settings import TRANSACTION_TIMEOUT_MS, ClientSettings, client_settings
from fencepost.kafka.cluster import Cluster
from fencepost.kafka.transaction import Transaction
from fencepost.ledger.codec import record_key, write_record
from fencepost.ledger.reader import LedgerReader
from fencepost.model import Batch
from fencepost.protocol.view import View

log = logging.getLogger("fencepost.ledger.ledger")

# A coordinator's transaction takes milliseconds. One that died in it hides the ledger from plain readers for so long.
COORDINATOR_TIMEOUT_MS = 15_000
TURNS = 5  # times a fenced coordinator decides again before it leaves the field to the other


@dataclass(frozen=True)
class Change:
    """What a decision wants committed in one transaction: batch records, and offsets by group."""

    batches: tuple[Batch, ...] = ()
    offsets: dict[str, list[TopicPartition]] = field(default_factory=dict)


class Ledger:
    """The ledger of one pipeline.

    Keep one for all that a process does on a pipeline: it reads each record once. For one thread.
    """

    def __init__(self, pipeline: Pipeline, settings: ClientSettings | None = None) -> None:
        self.pipeline = pipeline
        self.settings = settings or client_settings(pipeline)
        self.cluster = Cluster(self.settings)
        self._reader = LedgerReader(pipeline, self.settings)
        self._coordinator: Transaction | None = None

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
        """All that is committed now. Waits for a transaction under way, never takes part of the ledger for all of it.

        Raises:
            LedgerLost: the topic is another one than at the last read.
        """
        return self._reader.read(self.cluster)

    @property
    def topic_id(self) -> str:
        """The id of the ledger topic, which leases are offsets of; known once it was read."""
        topic = self._reader.topic
        assert topic is not None, "read the ledger first"
        return topic.id

    def transact(self, decide: Callable[[View], Change | None]) -> View:
        """Commit what `decide` wants, decided on all that was committed before. Returns the view after it.

        1. init_transactions fences every other coordinator; one that committed last here, and was not fenced since, is still
           the only one that can commit;
        2. the ledger is read to its end;
        3. `decide` answers with a change, with None (nothing to do), or raises;
        4. the change is committed. Fenced meanwhile, or aborted: from 1 again, a few times, with a pause of random length.
           `decide` may then find its own change in the ledger: a commit that the broker took can be answered with "fenced".

        Raises:
            CoordinatorFenced: other runs of the pipeline kept taking over.
        """
        turn = 0
        while turn < TURNS:
            kept, self._coordinator = self._coordinator, None
            try:
                coordinator = kept or self._initialised()  # 1
                view = self.read()  # 2
                change = decide(view)  # 3
                if change is None or not (change.batches or change.offsets):
                    self._coordinator = coordinator
                    return view
                self._commit(coordinator, change)  # 4
            except (WriterFenced, WriteFailed) as error:  # being fenced can look like the other
                turn += kept is None
                log.info("%s: deciding again (%d): %s", self.pipeline.name, turn, error)
                if kept is None:
                    time.sleep(random.uniform(0.1, 1.0) * turn)  # noqa: S311
                continue
            self._coordinator = coordinator
            for batch in change.batches:
                log.info("batch=%s state=%s %s", batch.id, batch.state, batch.history[-1].note)
            if any(is_lease_unknown(batch) for batch in change.batches):
                return self.read()  # the lease of a new plan, or publication, is its record's offset
            self._reader.await_visible(self.cluster)
            return view.updated(change.batches)
        raise CoordinatorFenced(
            f"pipeline {self.pipeline.name}: other runs took the ledger over {TURNS} times in a row. What they did not record is "
            "not recorded; run again."
        )

    def _initialised(self) -> Transaction:
        coordinator = Transaction(coordinator_settings(self.settings), self.pipeline.coordinator_id, "coordinator")
        coordinator.init()
        return coordinator

    def _commit(self, coordinator: Transaction, change: Change) -> None:
        with coordinator:
            for batch in change.batches:
                value = write_record(batch)
                coordinator.produce(self.pipeline.ledger_topic, value, record_key(batch), partition=0)
            for group, offsets in change.offsets.items():
                coordinator.add_offsets(offsets, group)


def is_lease_unknown(batch: Batch) -> bool:
    """Whether the batch has a lease, of its plan or its publication, that only its record's offset tells."""
    return batch.lease is None or (batch.publication is not None and batch.publication.lease is None)


def coordinator_settings(settings: ClientSettings) -> ClientSettings:
    """A coordinator's: its transaction takes milliseconds, and no longer than the pipeline allows any."""
    allowed = int(settings.values.get("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS))
    return ClientSettings({**settings.values, "transaction.timeout.ms": str(min(allowed, COORDINATOR_TIMEOUT_MS))})
