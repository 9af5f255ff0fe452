"""Writes the ledger, a compacted topic with one partition and a record for each revision of a batch. No other module
writes it.

Invariant: a transition is decided on everything that was committed before it. A transition commits together with the
group offsets that it moves, or not at all. The coordinator's transactional.id makes this a compare-and-set: only the
last process to call init_transactions can commit, and it reads the ledger after that call.

Price: there is one coordinator at a time. A second coordinator fences the first, which then decides again by the
committed state. A fenced coordinator cannot know whether its own change was committed, so every decision recognizes a
change that is already made.
"""

from __future__ import annotations

import logging
import random
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from confluent_kafka import TopicPartition

from fencepost.config.pipeline import Pipeline
from fencepost.counts import count_of
from fencepost.errors import (
    DEFECT,
    CoordinatorFenced,
    FactsOutdated,
    NeedsOperator,
    NotRecorded,
    WriteFailed,
    WriterFenced,
)
from fencepost.kafka.client_settings import TRANSACTION_TIMEOUT_MS, ClientSettings, client_settings
from fencepost.kafka.cluster import Cluster, Topic
from fencepost.kafka.transaction import Transaction
from fencepost.ledger.announcements import AnnouncementTopic
from fencepost.ledger.codec import ANNOUNCED_IN_KEY, record_key, write_announced_in, write_record
from fencepost.ledger.reader import COMMIT_HEADER, LedgerReader
from fencepost.model import Batch, Interval
from fencepost.protocol.announcement import Announcement
from fencepost.protocol.announcing import announced_changes, announcement, complete_until
from fencepost.protocol.view import View

F = TypeVar("F")
log = logging.getLogger("fencepost.ledger.ledger")

# A coordinator's transaction takes milliseconds. If its process dies, the transaction hides the ledger for this long.
COORDINATOR_TIMEOUT_MS = 15_000
LARGEST_RECORD = 2**24  # bytes: some hundred thousand partitions
TURNS = 5  # how often a fenced coordinator decides again before it gives up


@dataclass(frozen=True)
class Recorded:
    """The result of a transaction. The result has the ledger afterwards, the batches that were `changed`, and the
    announcements that were made.

    A batch also counts as changed if the response to its commit was lost and the next attempt found it in the ledger.
    """

    view: View
    changed: tuple[Batch, ...] = ()
    announced: tuple[Announcement, ...] = ()

    def last(self, interval: Interval) -> Batch:
        """Returns the batch or addition that was planned last for the interval, which has to be in the ledger."""
        return self.view.known(interval).last


@dataclass(frozen=True)
class Change:
    """The change that a decision commits in one transaction. A change has batch records, and offsets by group.

    `after` is the view with these records, if the decision has computed it. The ledger adds the `announcements` of the
    records. Only a change that writes all past announcements again has its own announcements, and `announced_in` is
    their topic.
    """

    batches: tuple[Batch, ...] = ()
    offsets: dict[str, list[TopicPartition]] = field(default_factory=dict)
    after: View | None = None
    announcements: tuple[Announcement, ...] = ()
    announced_in: Topic | None = None

    @property
    def is_empty(self) -> bool:
        """Returns whether there is nothing to commit."""
        return not (self.batches or self.offsets or self.announced_in)


class Ledger:
    """The ledger of one pipeline.

    Keep one object for all of a process's work on a pipeline, because it reads each record once. Use it from one thread
    only.
    """

    def __init__(self, pipeline: Pipeline, cluster: Cluster | None = None) -> None:
        """`cluster` is the pipeline's cluster. The caller passes it if it has the clients already."""
        self._pipeline = pipeline
        self._cluster = cluster or Cluster(client_settings(pipeline))
        self._reader = LedgerReader(pipeline, self._cluster.settings, self._cluster.timeout)
        self._coordinator: Transaction | None = None

    def create(self) -> None:
        """Creates the topic if it is missing. It is idempotent.

        Raises:
            NeedsOperator: the topic exists but would lose or split the ledger.
        """
        name = self._pipeline.ledger_topic
        topic = self._cluster.ensure_topic(name, 1, {"cleanup.policy": "compact"})
        if refusal := unfit_for_ledger(topic, self._cluster.topic_config(name, "cleanup.policy")):
            raise NeedsOperator(f"{refusal} {KEEP_THE_TOPIC}")

    def exists(self) -> bool:
        """Returns whether the topic exists. If it does not, nothing was ever planned."""
        return self._cluster.find(self._pipeline.ledger_topic) is not None

    def peek(self) -> View:
        """Returns everything that a read_committed reader sees now. The view is empty if there is no ledger. Only
        callers that show it may use it.

        Raises:
            KafkaUnavailable, AccessDenied, LedgerUnreadable: see `LedgerReader.peek`.
        """
        return View.of(self._reader.peek(self._cluster)[1])

    def read(self) -> View:
        """Returns everything that is committed now. It waits for an open transaction, and never returns part of the
        ledger.

        Raises:
            TransitionRefused: there is no ledger.
            LedgerLost: the topic has another id than at the last read.
        """
        return self._reader.read(self._cluster)

    @property
    def topic_id(self) -> str:
        """Returns the id of the ledger topic, whose offsets are the leases. The id is known after the first read."""
        if self._reader.topic is None:
            raise NotRecorded(f"pipeline {self._pipeline.name}: its ledger was not read yet. {DEFECT}")
        return self._reader.topic.id

    @property
    def announcements(self) -> AnnouncementTopic:
        """Returns the topic of announcements, by the last read of the ledger."""
        return AnnouncementTopic(self._pipeline, self._cluster, self._reader.announced_in)

    def transact(self, decide: Callable[[View], Change | None]) -> Recorded:
        """Commits the change that `decide` computes from the committed ledger. Returns the view afterwards, and what
        changed.

        1. init_transactions fences every other coordinator. The coordinator of this object's last commit is used again.
           Unless it was fenced since, no other coordinator can commit;
        2. read the ledger to its end;
        3. `decide` returns a change or None (nothing to do), or raises;
        4. commit the change, with the announcements of what it publishes, skips or withdraws. If the coordinator was
           fenced or the commit aborted, start again at 1, a few times, after a random pause. `decide` may then find its
           own change in the ledger, because a broker can answer "fenced" to a commit that it accepted. A header of the
           records identifies the attempt that committed them.

        Raises:
            TransitionRefused: there is no ledger.
            CoordinatorFenced: other runs of the pipeline kept taking over.
        """
        turn, ours = 0, list[tuple[bytes, Change]]()
        while turn < TURNS:
            kept, self._coordinator = self._coordinator, None
            try:
                coordinator = kept or self._initialised()  # 1
                view = self.read()  # 2
                change = decide(view)  # 3
                before = next((c for attempt, c in ours if self._reader.has_read(attempt)), Change())
                if change is None or change.is_empty:
                    self._coordinator = coordinator
                    return recorded(view, before)
                change = self._announced(view, change)
                ours.append((secrets.token_bytes(8), change))
                self._commit(coordinator, *ours[-1])  # 4
            except (WriterFenced, WriteFailed) as error:  # a fenced coordinator can raise either
                turn += kept is None
                # As text: a kept log record would also keep the error, its frames and their Kafka clients.
                log.info("%s: deciding again (%d): %s", self._pipeline.name, turn, str(error))
                if kept is None:
                    time.sleep(random.uniform(0.1, 1.0) * turn)  # noqa: S311
                continue
            self._coordinator = coordinator
            for batch in change.batches:
                log.info("batch=%s state=%s %s", batch.id, batch.state, batch.history[-1].note)
            done = change if change.batches else before
            if any(is_lease_unknown(batch) for batch in change.batches):
                # The lease of a new plan, or publication, is its record's offset.
                return recorded(self.read(), done)
            self._reader.await_visible(self._cluster)
            return recorded(change.after or view.updated(change.batches), done)
        raise CoordinatorFenced(
            f"pipeline {self._pipeline.name}: other runs took over the ledger {TURNS} times in a row, so this run recorded "
            "nothing. Run again."
        )

    def decide(self, gather: Callable[[View], F], decide: Callable[[View, F], Change | None]) -> Recorded:
        """Gathers the facts that a decision needs besides the ledger. Then it decides and commits the change.

        1. read the ledger, and `gather` the facts for its present state. Gathering facts may take long or fail, and
           fences nothing;
        2. `transact`. The decision uses the facts and the view, which may be newer. If the facts do not hold for that
           view, it raises `FactsOutdated`: start again at 1, a few times.

        Raises:
            TransitionRefused, CoordinatorFenced: as in `transact`.
            FactsOutdated: the ledger changed each time.
        """
        for turn in range(1, TURNS + 1):
            try:
                facts = gather(self.read())  # 1
                return self.transact(partial(self._with, decide, facts))  # 2
            except FactsOutdated as outdated:
                log.info("%s: gathering again (%d): %s", self._pipeline.name, turn, str(outdated))
        raise FactsOutdated(
            f"pipeline {self._pipeline.name}: other runs changed the ledger {TURNS} times while this one prepared its change, so "
            "it recorded nothing. Run again."
        )

    @staticmethod
    def _with(decide: Callable[[View, F], Change | None], facts: F, view: View) -> Change | None:
        return decide(view, facts)

    def _initialised(self) -> Transaction:
        if self._reader.topic is None:
            self._reader.find(self._cluster)  # reports a missing broker or ledger at once; init would take a minute
        coordinator = Transaction(
            coordinator_settings(self._cluster.settings), self._pipeline.coordinator_id, "coordinator"
        )
        coordinator.init()
        return coordinator

    def _announced(self, view: View, change: Change) -> Change:
        """Returns the change with its announcements. Most changes have no announcements, and then the topic of
        announcements is not checked.

        Raises:
            AnnouncementsLost, NeedsOperator: the topic of announcements lacks earlier announcements, or would lose
                these.
        """
        found = announced_changes(view, change.batches)
        if not found:
            return change
        topic = self.announcements.prepare()
        after = change.after or view.updated(change.batches)
        announced = (announcement(after, one, self._cluster.id, complete_until(after)) for one in found)
        return replace(change, after=after, announcements=tuple(announced), announced_in=topic)

    def _commit(self, coordinator: Transaction, attempt: bytes, change: Change) -> None:
        ledger, header, topic = self._pipeline.ledger_topic, (COMMIT_HEADER, attempt), change.announced_in
        with coordinator:
            for one in change.announcements:
                coordinator.produce(self.announcements.name, one.record(), one.batch.encode(), partition=0)
            if topic is not None and topic.id != self._reader.announced_in:
                value = write_announced_in(topic.id)
                coordinator.produce(ledger, value, ANNOUNCED_IN_KEY, partition=0, header=header)
            for batch in change.batches:
                coordinator.produce(ledger, write_record(batch), record_key(batch), partition=0, header=header)
            for group, offsets in change.offsets.items():
                coordinator.add_offsets(offsets, group)


KEEP_THE_TOPIC = (
    "Set the policy with kafka-configs.sh, or give the pipeline a new name. Never delete and recreate the topic: leases are "
    "offsets of this topic, so old marks could count for new batches."
)


def recorded(view: View, change: Change) -> Recorded:
    """Returns the result of a change, with its batches as they are in the view, and its announcements."""
    changed = (
        now for batch in change.batches for now in view.known(batch.interval).all if now.revision == batch.revision
    )
    return Recorded(view, tuple(changed), change.announcements)


def unfit_for_ledger(topic: Topic, policy: str) -> str | None:
    """Returns why a topic would lose or split the ledger, or None if it would not. Pure."""
    if topic.partitions == 1 and policy == "compact":
        return None
    return (
        f"ledger topic {topic.name} has {count_of(topic.partitions, 'partition')} and cleanup.policy={policy}; it needs 1 "
        "partition and cleanup.policy=compact, or it would lose batches."
    )


def is_lease_unknown(batch: Batch) -> bool:
    """Returns whether the lease of the batch's plan or publication is not known yet. The lease will be the offset of
    the batch's record.
    """
    return batch.lease is None or (batch.publication is not None and batch.publication.lease is None)


def coordinator_settings(settings: ClientSettings) -> ClientSettings:
    """Returns the settings of a coordinator. A coordinator's transaction times out early, and never later than the
    pipeline's settings allow.

    A coordinator's records may be larger than the pipeline's records, because a plan has some 50 bytes for each source
    partition. A compressed plan has a few bytes for each, and the topic's max.message.bytes limits compressed records.
    """
    allowed = int(settings.values.get("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS))
    size = max(int(settings.values.get("message.max.bytes", 0)), LARGEST_RECORD)
    own = {"transaction.timeout.ms": str(min(allowed, COORDINATOR_TIMEOUT_MS)), "message.max.bytes": str(size)}
    return ClientSettings({**settings.values, **own})
