"""Describes a job's writers in Kafka's terms: transactional ids, the group of their marks, and the lease under which
they commit.

Invariant: a reader that fences a task-partition's id and then reads its mark knows for good what this lease has
committed for the task-partition. No earlier attempt can commit any more, and each later attempt reads the mark as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from confluent_kafka import TopicPartition

from fencepost.failpoints import reached
from fencepost.kafka.client_settings import ClientSettings
from fencepost.kafka.errors import translated
from fencepost.kafka.offsets import committed_offsets
from fencepost.kafka.transaction import Transaction
from fencepost.model import Receipt
from fencepost.protocol.marks import MarkState, compare_mark, mark_metadata, read_mark

FENCES = 16  # requests at once

Offsets = dict[str, list[TopicPartition]]  # offsets of groups, by name


@dataclass(frozen=True)
class Writers:
    """The transactional ids and marks of a batch's task-partitions, in this process or in executors. It holds secrets.

    `lease` is an offset of the ledger topic with the id `ledger`. For task-partition `first + t`,
    `transactional_ids[t]` is the id, and `marks[t]` is the mark's (topic, partition, offset) in `group`.
    """

    settings: ClientSettings
    batch: str
    ledger: str
    lease: int
    group: str
    transactional_ids: tuple[str, ...]
    marks: tuple[tuple[str, int, int], ...]
    first: int = 0  # the lowest task-partition
    opened: bool = False  # every task-partition had a mark before its first attempt, so a missing mark was lost
    failpoint: str = "write"
    shorter: str = (  # as a `Transaction` takes it
        ", or give the source topic (under output.layout: output, the output topic) more partitions, so that each holds less"
    )

    def init(self, task: int) -> tuple[Transaction, Receipt | None]:
        """Returns a transaction that has fenced every earlier attempt at a task-partition, and the mark that was read
        after that.
        """
        transaction = self.fence(task)
        mark = self._mark(task)
        reached(f"{self.failpoint}.mark-read", task)
        return transaction, mark

    def fence(self, task: int) -> Transaction:
        """Fences a task-partition, so that no earlier attempt can commit. Returns the transaction that fenced it,
        before its begin.
        """
        id_ = self.transactional_ids[task - self.first]
        transaction = Transaction(self.settings, id_, self.failpoint, task, self.shorter)
        transaction.init()
        return transaction

    def mark_state(self, mark: Receipt | None) -> MarkState:
        """Returns the state of a mark for a writer of this lease. The mark has to be read after `init`."""
        return compare_mark(mark, self.lease, self.ledger, opened=self.opened)

    def close(self, task: int) -> Receipt:
        """Closes a task-partition, so that no attempt writes any more. The rows that this lease has committed are kept.
        Returns the receipt.

        If nothing was committed, this writes the empty mark of an attempt without rows. Every later attempt finds the
        mark and writes nothing. A mark of a later lease has the same effect, and is not changed.
        """
        transaction, mark = self.init(task)
        standing = self.mark_state(mark)
        if mark is not None and standing is MarkState.DONE:
            return mark
        closed = self.nothing(task)
        if standing is not MarkState.SUPERSEDED:
            self._commit_mark(transaction, closed)
        return closed

    def restore(self, task: int, stood_for: Callable[[int], Receipt]) -> None:
        """Writes a task-partition's mark again if it is lost. While no other writer can commit, `stood_for` determines
        the receipt of the lost mark.
        """
        transaction, mark = self.init(task)
        if mark is None:
            self._commit_mark(transaction, stood_for(task))

    def found_marks(self) -> tuple[Receipt | None, ...]:
        """Returns the committed mark of every task-partition, whatever its lease, or None if it has none.

        A mark may not be visible right after its commit, so missing marks are awaited.
        """
        marks = self._all_marks(stable=False)
        return tuple(marks if None not in marks else self._all_marks(stable=True))

    def committed_receipts(self) -> list[Receipt] | None:
        """Returns the receipts of all task-partitions if this lease has committed every one of them, otherwise None.

        This is sound without init_transactions, because the mark of this lease is final. The mark's writer had fenced
        every attempt before it, and every later attempt reads the mark first. The method does not wait for open
        transactions. The next init_transactions ends the open transaction of a dead attempt, and a mark that is not
        committed yet does not count.
        """
        marks = self._all_marks(stable=False)
        done = [mark for mark in marks if mark is not None and self.mark_state(mark) is MarkState.DONE]
        return done if len(done) == len(self.marks) else None

    def nothing(self, task: int) -> Receipt:
        """Returns a task-partition's receipt without rows."""
        return Receipt(task=task, ledger=self.ledger, lease=self.lease, topics={})

    def add_mark(self, transaction: Transaction, receipt: Receipt) -> None:
        """Makes an open transaction commit the mark with this receipt."""
        topic, partition, offset = self.marks[receipt.task - self.first]
        mark = TopicPartition(topic, partition, offset, metadata=mark_metadata(receipt))
        transaction.add_offsets([mark], self.group)

    def describe_task(self, task: int) -> str:
        """Returns a task-partition's name in messages."""
        return f"batch {self.batch}, task-partition {task}"

    def _commit_mark(self, transaction: Transaction, receipt: Receipt) -> None:
        with translated(self.describe_task(receipt.task), self.settings), transaction:
            self.add_mark(transaction, receipt)

    def _mark(self, task: int) -> Receipt | None:
        return self._marks([task], f"{self.describe_task(task)}: reading its mark in group {self.group}", stable=True)[
            0
        ]

    def _all_marks(self, *, stable: bool) -> list[Receipt | None]:
        tasks = range(self.first, self.first + len(self.marks))
        return self._marks(tasks, f"batch {self.batch}: reading its marks in group {self.group}", stable=stable)

    def _marks(self, tasks: Sequence[int], doing: str, *, stable: bool) -> list[Receipt | None]:
        asked = [TopicPartition(*self.marks[task - self.first][:2]) for task in tasks]
        found = committed_offsets(self.settings, self.group, asked, doing, stable=stable)
        marks = [found.get((place.topic, place.partition)) for place in asked]
        return [read_mark(mark.metadata, doing, opened=self.opened) if mark else None for mark in marks]


def mark_offsets(group: str, topic: str, receipts: Sequence[Receipt]) -> Offsets:
    """Returns the marks with these receipts, by group, so that a transaction of another producer can commit them."""
    return {group: [TopicPartition(topic, r.task, 0, metadata=mark_metadata(r)) for r in receipts]}


def fence_unused(settings: ClientSettings, ids: Sequence[str]) -> None:
    """Ends transactions that may be open under transactional ids that nobody uses now.

    An open transaction hides later records from readers until it times out. A fence takes a second, and needs a
    separate producer.
    """

    def fence(number: int, id_: str) -> None:
        Transaction(settings, id_, "fence", number).init()

    with ThreadPoolExecutor(FENCES) as side_by_side:
        list(side_by_side.map(fence, range(len(ids)), ids))
