"""A task-partition written as a chain of transactions: wherever it ends, a retry makes it whole and doubles nothing."""

from __future__ import annotations

import json
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.config.pipeline import CommitEvery
from fencepost.errors import TransformNotDeterministic
from fencepost.kafka.client_settings import ClientSettings
from fencepost.model import Receipt, Tally
from fencepost.protocol.marks import mark_metadata, read_mark
from fencepost.spark import writer
from fencepost.spark.quarantine_headers import QUARANTINED, Quarantining
from fencepost.spark.writer import WriterTask, write_partition

LEASE, LEDGER = 7, "ledger-1"


class Broken(Exception):
    """The attempt dies."""


class FakeKafka:
    """Holds what has committed: values and the mark. Its transactions fail at their number `fails_at`."""

    def __init__(self) -> None:
        self.committed: list[list[bytes]] = []
        self.stamped: dict[str, set[str | None]] = {}  # by topic: the header that rows carry their timestamp in
        self.mark: str | None = None
        self.fails_at = -1

    @property
    def values(self) -> list[bytes]:
        return [value for link in self.committed for value in link]

    def transaction(self, *_: object) -> FakeTransaction:
        return FakeTransaction(self)

    def receipt(self, *_: object) -> Receipt | None:
        return read_mark(self.mark, "t", "here") if self.mark else None


class FakeTransaction:
    """As much of `Transaction` as the writer uses."""

    def __init__(self, kafka: FakeKafka) -> None:
        self._kafka = kafka

    def init(self) -> None: ...

    def __enter__(self) -> None:
        self._values: list[bytes] = []

    def produce_rows(self, topic: str, rows: pa.RecordBatch, stamp: str | None = None, **_: Any) -> None:
        self._values += rows.column("value").to_pylist()
        self._kafka.stamped.setdefault(topic, set()).add(stamp)

    def add_offsets(self, offsets: list[Any], group: str) -> None:
        self._mark = offsets[0].metadata

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            if len(self._kafka.committed) == self._kafka.fails_at:
                raise Broken
            self._kafka.committed.append(self._values)
            self._kafka.mark = self._mark


@pytest.fixture(autouse=True)
def kafka(monkeypatch: pytest.MonkeyPatch) -> FakeKafka:
    made = FakeKafka()
    monkeypatch.setattr(writer, "Transaction", made.transaction)
    monkeypatch.setattr(writer, "_mark", made.receipt)
    return made


def job(every: CommitEvery | None) -> WriterTask:
    return WriterTask(
        settings=ClientSettings({}),
        batch="b",
        ledger=LEDGER,
        lease=LEASE,
        topic="t",
        group="g",
        transactional_ids=("id",),
        marks=(("s", 0, 9),),
        to_own_partition=False,
        commit_every=every,
        quarantining=Quarantining("b", (("rule", "reason"),) * 3),
    )


def batches(values: list[int], size: int) -> Iterator[pa.RecordBatch]:
    for first in range(0, len(values), size):
        some = values[first : first + size]
        columns = {
            "key": pa.array([b"%d" % n if n % 2 else None for n in some], pa.binary()),
            "value": pa.array([b"%d" % n for n in some], pa.binary()),
            "hash": pa.array(some, pa.int64()),
        }
        yield pa.RecordBatch.from_pydict(columns)


SIZES = st.integers(1, 9)


@settings(deadline=None)
@given(st.lists(st.integers(-5, 5), max_size=30), SIZES, SIZES, SIZES, st.integers(0, 12))
def test_a_retry_goes_on_behind_what_the_chain_has_committed(
    values: list[int], size: int, size_then: int, every: int, fails_at: int
) -> None:
    """Arrow batches of another size, as a retry may get them, change nothing: rows are counted, not batches."""
    with pytest.MonkeyPatch.context() as patch:
        known = FakeKafka()
        patch.setattr(writer, "Transaction", known.transaction)
        patch.setattr(writer, "_mark", known.receipt)
        known.fails_at = fails_at
        limit = CommitEvery(rows=every)
        try:
            receipt, skipped = write_partition(job(limit), 0, batches(values, size))
        except Broken:
            known.fails_at = -1
            before = len(known.committed)
            receipt, skipped = write_partition(job(limit), 0, batches(values, size_then))
            assert before == fails_at
        assert known.values == [b"%d" % n for n in values]
        assert all(len(link) <= every for link in known.committed)
        assert receipt == known.receipt()
        length = sum(len(b"%d" % n) * (1 + n % 2) for n in values)
        assert receipt.topics == {"t": Tally(rows=len(values), fingerprint=sum(values) % 2**64, bytes=length)}
        assert receipt.complete
        assert not skipped
        again, skipped = write_partition(job(limit), 0, batches(values, size))
        assert (again, skipped) == (receipt, True)


def routed(values: list[int], size: int) -> Iterator[pa.RecordBatch]:
    """Rows for two topics: a number below 0 fails the rule of its own number less one."""
    for batch, first in zip(batches(values, size), range(0, len(values), size), strict=True):
        some = values[first : first + size]
        headers = [json.dumps([{"key": "d2h5", "value": b64encode(b"%d" % n).decode()}]) for n in some]
        said = [{"rule": -n - 1, "timestamp": 7, "headers": text} for n, text in zip(some, headers, strict=True)]
        own = [json.dumps(one) if one["rule"] >= 0 else None for one in said]
        yield batch.append_column(QUARANTINED, pa.array(own, pa.string()))


@settings(deadline=None)
@given(st.lists(st.integers(-3, 5), max_size=30), SIZES, SIZES, SIZES, st.integers(0, 12))
def test_a_retry_goes_on_behind_what_a_chain_has_committed_to_two_topics(
    values: list[int], size: int, size_then: int, every: int, fails_at: int
) -> None:
    """A link holds rows of both, and its mark counts them in their one order."""
    with pytest.MonkeyPatch.context() as patch:
        known = FakeKafka()
        patch.setattr(writer, "Transaction", known.transaction)
        patch.setattr(writer, "_mark", known.receipt)
        known.fails_at = fails_at
        two = replace(job(CommitEvery(rows=every)), quarantine="q")
        try:
            receipt, _ = write_partition(two, 0, routed(values, size))
        except Broken:
            known.fails_at = -1
            receipt, _ = write_partition(two, 0, routed(values, size_then))
        good, bad = [n for n in values if n >= 0], [n for n in values if n < 0]
        assert [v for v in known.values if not v.startswith(b"-")] == [b"%d" % n for n in good]
        assert [v for v in known.values if v.startswith(b"-")] == [b"%d" % n for n in bad]
        assert all(len(link) <= every for link in known.committed)
        assert (receipt.tally("t").rows, receipt.tally("q").rows, receipt.rows) == (len(good), len(bad), len(values))
        assert receipt.tally("q").fingerprint == sum(bad) % 2**64
        assert receipt.rules == Counter(-n - 1 for n in bad)
        assert write_partition(two, 0, routed(values, size)) == (receipt, True)


def test_rows_for_quarantine_keep_their_timestamps_when_the_others_are_staged(kafka: FakeKafka) -> None:
    staged = replace(job(None), topic="staging", quarantine="q", stamp="fencepost-timestamp")
    receipt, _ = write_partition(staged, 0, routed([1, -1, 2], 3))
    assert kafka.stamped == {"staging": {"fencepost-timestamp"}, "q": {None}}
    assert (receipt.tally("staging").rows, receipt.tally("q").rows) == (2, 1)


def test_a_row_that_changed_sides_is_not_the_row_that_was_committed(kafka: FakeKafka) -> None:
    """Its bytes may be the same: a result that is kept. Which topic it is in is part of what the chain has done."""
    topics = {"t": Tally(rows=1, fingerprint=1), "q": Tally(rows=1, fingerprint=2)}
    done = Receipt(task=0, ledger=LEDGER, lease=LEASE, topics=topics, rules={0: 1}, complete=False)
    kafka.mark = mark_metadata(done)
    with pytest.raises(TransformNotDeterministic, match=r"committed 2 rows"):
        write_partition(replace(job(CommitEvery(rows=2)), quarantine="q"), 0, routed([1, 2, 3], 3))


def test_without_a_limit_all_rows_are_one_transaction(kafka: FakeKafka) -> None:
    receipt, _ = write_partition(job(None), 0, batches(list(range(25)), 10))
    assert len(kafka.committed) == 1
    assert (receipt.topics["t"].rows, receipt.complete) == (25, True)


def test_a_batch_without_rows_changes_nothing(kafka: FakeKafka) -> None:
    empty = next(batches([1], 1)).slice(1)
    for every in (None, CommitEvery(rows=2)):
        receipt, _ = write_partition(job(every), 0, iter([empty, *batches([1], 1), empty]))
        assert (receipt.topics["t"].rows, receipt.complete) == (1, True)
        kafka.mark = None


def test_seconds_end_a_link_with_the_piece_that_follows(kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(100))
    monkeypatch.setattr(writer.time, "monotonic", lambda: float(next(now)))
    write_partition(job(CommitEvery(seconds=2.5)), 0, batches(list(range(6)), 1))
    assert [len(link) for link in kafka.committed] == [2, 2, 2]


def three_rows(lease: int) -> str:
    """The mark of a chain's first link, under that lease."""
    topics = {"t": Tally(rows=3, fingerprint=6)}
    return mark_metadata(Receipt(task=0, ledger=LEDGER, lease=lease, topics=topics, complete=False))


@pytest.mark.parametrize("rows", [[1, 2, 4, 4, 5], [1, 2], []], ids=["other rows", "fewer rows", "none"])
def test_a_retry_with_other_rows_than_the_chain_committed_is_refused(kafka: FakeKafka, rows: list[int]) -> None:
    """Nobody would know which of its rows are committed; going on could lose some and double others."""
    kafka.mark = three_rows(LEASE)
    with pytest.raises(TransformNotDeterministic, match=r"batch b, task-partition 0: .*committed 3 rows"):
        write_partition(job(CommitEvery(rows=3)), 0, batches(rows, 2))
    assert kafka.committed == []


def test_a_chain_that_an_older_lease_left_is_not_gone_on_with(kafka: FakeKafka) -> None:
    kafka.mark = three_rows(LEASE - 1)
    receipt, _ = write_partition(job(CommitEvery(rows=2)), 0, batches([1, 2, 3], 3))
    assert kafka.values == [b"1", b"2", b"3"]
    assert receipt.topics["t"].rows == 3
