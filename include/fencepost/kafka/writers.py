"""A job's writers as Kafka knows them: transactional ids, the group of their marks, and the lease that they commit under.

Invariant: whoever fences a task-partition's id and reads its mark afterwards knows what this lease has committed of it, for
good: no earlier attempt can commit any more, and each later one reads the mark as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from confluent_kafka import TopicPartition

from fencepost.failpoints import reached
from fencepost.kafka.client_settings import ClientSettings
from fencepost.kafka.errors import translated
from fencepost.kafka.offsets import committed_offsets
from fencepost.kafka.transaction import Transaction
from fencepost.model import Receipt
from fencepost.protocol.marks import Standing, compare_mark, mark_metadata, read_mark

FENCES = 16  # at once

Offsets = dict[str, list[TopicPartition]]  # of groups, by name


@dataclass(frozen=True)
class Writers:
    """Who may write a batch's task-partitions, in this process or in executors. Holds secrets.

    `lease` is an offset of the ledger topic with the id `ledger`. Of task-partition `first + t`, `transactional_ids[t]` is the
    id and `marks[t]` the mark's (topic, partition, offset) in `group`.
    """

    settings: ClientSettings
    batch: str
    ledger: str
    lease: int
    group: str
    transactional_ids: tuple[str, ...]
    marks: tuple[tuple[str, int, int], ...]
    first: int = 0  # the lowest task-partition
    opened: bool = False  # every task-partition had a mark before its first attempt, so one that is missing was lost
    failpoint: str = "write"
    shorter: str = (  # as a `Transaction` takes it
        ", or give the source topic (under output.layout: output, the output topic) more partitions, so that each holds less"
    )

    def init(self, task: int) -> tuple[Transaction, Receipt | None]:
        """A transaction that has fenced every earlier attempt at a task-partition, and the mark that was read afterwards."""
        transaction = self.fence(task)
        mark = self._mark(task)
        reached(f"{self.failpoint}.mark-read", task)
        return transaction, mark

    def fence(self, task: int) -> Transaction:
        """Have no attempt at a task-partition commit what it has begun. The transaction that did so is not begun yet."""
        id_ = self.transactional_ids[task - self.first]
        transaction = Transaction(self.settings, id_, self.failpoint, task, self.shorter)
        transaction.init()
        return transaction

    def standing(self, mark: Receipt | None) -> Standing:
        """What a mark that was read after `init` tells a writer of this lease."""
        return compare_mark(mark, self.lease, self.ledger, opened=self.opened)

    def close(self, task: int) -> Receipt:
        """Have a task-partition end with what this lease has committed of it, so that no attempt writes any more; the receipt.

        It takes the place of an attempt that writes nothing: a mark stands in the way of all that come later. A later lease's
        mark does so too, and is left alone.
        """
        transaction, mark = self.init(task)
        standing = self.standing(mark)
        if mark is not None and standing is Standing.DONE:
            return mark
        closed = self.nothing(task)
        if standing is not Standing.SUPERSEDED:
            self._commit_mark(transaction, closed)
        return closed

    def restore(self, task: int, stood_for: Callable[[int], Receipt]) -> None:
        """Write a task-partition's mark anew if it is gone. `stood_for` finds out what it said, while nobody else can commit."""
        transaction, mark = self.init(task)
        if mark is None:
            self._commit_mark(transaction, stood_for(task))

    def found_marks(self) -> tuple[Receipt | None, ...]:
        """Every task-partition's mark as it is committed now, whatever its lease; None where there is none.

        A mark may still be on its way to who asks, right after its commit. So those that are missing are awaited.
        """
        marks = self._all_marks(settled=False)
        return tuple(marks if None not in marks else self._all_marks(settled=True))

    def committed_receipts(self) -> list[Receipt] | None:
        """The receipts of all task-partitions if this lease has committed every one of them, else None.

        Sound without init_transactions: such a mark is final. Its writer had fenced every attempt before it, and every
        attempt after it reads the mark first. This does not wait for open transactions: the next init_transactions ends that
        of a dead attempt, and a mark that is not committed yet does not count.
        """
        marks = self._all_marks(settled=False)
        done = [mark for mark in marks if mark is not None and self.standing(mark) is Standing.DONE]
        return done if len(done) == len(self.marks) else None

    def nothing(self, task: int) -> Receipt:
        """The receipt of no row."""
        return Receipt(task=task, ledger=self.ledger, lease=self.lease, topics={})

    def add_mark(self, transaction: Transaction, receipt: Receipt) -> None:
        """Have an open transaction commit the mark with this receipt."""
        topic, partition, offset = self.marks[receipt.task - self.first]
        mark = TopicPartition(topic, partition, offset, metadata=mark_metadata(receipt))
        transaction.add_offsets([mark], self.group)

    def told(self, task: int) -> str:
        """A task-partition's name in messages."""
        return f"batch {self.batch}, task-partition {task}"

    def _commit_mark(self, transaction: Transaction, receipt: Receipt) -> None:
        with translated(self.told(receipt.task), self.settings), transaction:
            self.add_mark(transaction, receipt)

    def _mark(self, task: int) -> Receipt | None:
        return self._marks([task], f"{self.told(task)}: reading its mark in group {self.group}", settled=True)[0]

    def _all_marks(self, *, settled: bool) -> list[Receipt | None]:
        tasks = range(self.first, self.first + len(self.marks))
        return self._marks(tasks, f"batch {self.batch}: reading its marks in group {self.group}", settled=settled)

    def _marks(self, tasks: Sequence[int], doing: str, *, settled: bool) -> list[Receipt | None]:
        asked = [TopicPartition(*self.marks[task - self.first][:2]) for task in tasks]
        found = committed_offsets(self.settings, self.group, asked, doing, settled=settled)
        marks = [found.get((place.topic, place.partition)) for place in asked]
        return [read_mark(mark.metadata, doing, opened=self.opened) if mark else None for mark in marks]


def mark_offsets(group: str, topic: str, receipts: Sequence[Receipt]) -> Offsets:
    """The marks of a topic's task-partitions that say these receipts, by group: for a transaction of somebody else's."""
    return {group: [TopicPartition(topic, r.task, 0, metadata=mark_metadata(r)) for r in receipts]}


def fence_unused(settings: ClientSettings, ids: Mapping[int, str]) -> None:
    """End what may be open under transactional ids, by task-partition, that nobody writes with now.

    Until it times out, an open transaction hides later records from readers. A fence takes a second, and a producer of its own.
    """

    def fence(task: int) -> None:
        Transaction(settings, ids[task], "fence", task).init()

    with ThreadPoolExecutor(FENCES) as side_by_side:
        list(side_by_side.map(fence, ids))
