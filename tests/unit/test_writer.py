"""A task-partition is one transaction: wherever an attempt ends, a retry makes it whole and doubles nothing."""

from __future__ import annotations

import json
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.errors import TransformNotDeterministic
from fencepost.kafka import writers
from fencepost.kafka.client_settings import ClientSettings
from fencepost.kafka.writers import Writers
from fencepost.model import Receipt, Tally
from fencepost.protocol.marks import mark_metadata, read_mark
from fencepost.rows.quarantine_headers import QUARANTINED, Quarantining
from fencepost.rows.whole_records import OFFSET, PARTITION, RULE, TOPIC
from fencepost.rows.writer import WriteJob, write_partition

LEASE, LEDGER = 7, "ledger-1"


class Broken(Exception):
    """The attempt dies."""


class FakeKafka:
    """Holds what has committed: values by transaction, and the mark. Commits fail while `fails`."""

    def __init__(self) -> None:
        self.committed: list[list[bytes]] = []
        self.staging_timestamp: dict[str, set[int | None]] = {}  # by topic: the timestamps that rows are staged with
        self.mark: str | None = None
        self.fails = False

    def transaction(self, *_: object) -> FakeTransaction:
        return FakeTransaction(self)

    def receipt(self, *_: object) -> Receipt | None:
        return read_mark(self.mark, "here") if self.mark else None


class FakeTransaction:
    """As much of `Transaction` as the writer uses."""

    def __init__(self, kafka: FakeKafka) -> None:
        self._kafka = kafka

    def init(self) -> None: ...

    def __enter__(self) -> None:
        self._values: list[bytes] = []

    def produce_rows(self, topic: str, rows: pa.RecordBatch, staging_timestamp: int | None = None, **_: Any) -> None:
        self._values += rows.column("value").to_pylist()
        self._kafka.staging_timestamp.setdefault(topic, set()).add(staging_timestamp)

    def add_offsets(self, offsets: list[Any], group: str) -> None:
        self._mark = offsets[0].metadata

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            if self._kafka.fails:
                raise Broken
            self._kafka.committed.append(self._values)
            self._kafka.mark = self._mark


@pytest.fixture(autouse=True)
def kafka(monkeypatch: pytest.MonkeyPatch) -> FakeKafka:
    made = FakeKafka()
    monkeypatch.setattr(writers, "Transaction", made.transaction)
    monkeypatch.setattr(Writers, "_mark", made.receipt)
    return made


def job() -> WriteJob:
    return WriteJob(
        writers=Writers(
            settings=ClientSettings({}),
            batch="b",
            ledger=LEDGER,
            lease=LEASE,
            group="g",
            transactional_ids=("id",),
            marks=(("s", 0, 9),),
        ),
        topic="t",
        to_own_partition=False,
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


@given(st.lists(st.integers(-5, 5), max_size=30), SIZES, SIZES, st.booleans())
def test_an_attempt_commits_all_rows_or_none_and_a_retry_skips_what_is_committed(
    values: list[int], size: int, size_then: int, fails: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        known = FakeKafka()
        patch.setattr(writers, "Transaction", known.transaction)
        patch.setattr(Writers, "_mark", known.receipt)
        known.fails = fails
        if fails:
            with pytest.raises(Broken):
                write_partition(job(), 0, batches(values, size))
            assert known.committed == []
            known.fails = False
        receipt, skipped = write_partition(job(), 0, batches(values, size_then))
        assert known.committed == [[b"%d" % n for n in values]]
        assert receipt == known.receipt()
        length = sum(len(b"%d" % n) * (1 + n % 2) for n in values)
        assert receipt.topics == {"t": Tally(rows=len(values), fingerprint=sum(values) % 2**64, bytes=length)}
        assert not skipped
        assert write_partition(job(), 0, batches(values, size)) == (receipt, True)
        assert len(known.committed) == 1


def routed(values: list[int], size: int) -> Iterator[pa.RecordBatch]:
    """Rows for two topics: a number below 0 fails the rule of its own number less one."""
    for batch, first in zip(batches(values, size), range(0, len(values), size), strict=True):
        some = values[first : first + size]
        headers = [json.dumps([{"key": "d2h5", "value": b64encode(b"%d" % n).decode()}]) for n in some]
        said = [{"rule": -n - 1, "timestamp": 7, "headers": text} for n, text in zip(some, headers, strict=True)]
        own = [json.dumps(one) if one["rule"] >= 0 else None for one in said]
        yield batch.append_column(QUARANTINED, pa.array(own, pa.string()))


@given(st.lists(st.integers(-3, 5), max_size=30), SIZES)
def test_rows_of_two_topics_are_one_transaction_and_one_receipt(values: list[int], size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        known = FakeKafka()
        patch.setattr(writers, "Transaction", known.transaction)
        patch.setattr(Writers, "_mark", known.receipt)
        two = replace(job(), quarantine="q")
        receipt, _ = write_partition(two, 0, routed(values, size))
        (committed,) = known.committed
        good, bad = [n for n in values if n >= 0], [n for n in values if n < 0]
        assert [v for v in committed if not v.startswith(b"-")] == [b"%d" % n for n in good]
        assert [v for v in committed if v.startswith(b"-")] == [b"%d" % n for n in bad]
        assert (receipt.tally("t").rows, receipt.tally("q").rows, receipt.rows) == (len(good), len(bad), len(values))
        assert receipt.tally("q").fingerprint == sum(bad) % 2**64
        assert receipt.rules == Counter(-n - 1 for n in bad)
        assert write_partition(two, 0, routed(values, size)) == (receipt, True)


@pytest.mark.parametrize("size", [1, 3, 9])
def test_rows_withheld_with_their_record_are_counted_and_not_written(kafka: FakeKafka, size: int) -> None:
    """Records 0 to 2 give three rows each; in record 1 the second row fails."""
    values = [1, 2, 3, 4, -2, 5, 6, 7, 8]

    def of_records() -> Iterator[pa.RecordBatch]:
        for batch, first in zip(routed(values, size), range(0, 9, size), strict=True):
            some = values[first : first + size]
            columns = {
                TOPIC: pa.array(["in"] * len(some)),
                PARTITION: pa.array([0] * len(some), pa.int32()),
                OFFSET: pa.array([(first + n) // 3 for n in range(len(some))], pa.int64()),
                RULE: pa.array([-n - 1 if n < 0 else None for n in some], pa.int32()),
            }
            for name, column in columns.items():
                batch = batch.append_column(name, column)
            yield batch

    receipt, _ = write_partition(replace(job(), quarantine="q"), 0, of_records())
    (committed,) = kafka.committed
    assert Counter(committed) == Counter(b"%d" % n for n in (1, 2, 3, -2, 6, 7, 8))
    assert (receipt.tally("t").rows, receipt.tally("q").rows, receipt.withheld) == (6, 1, 2)
    assert receipt.rules == {1: 1}
    assert kafka.receipt() == receipt, "the mark has it"


def test_what_is_malformed_beside_rows_for_the_output_fails_no_rule(kafka: FakeKafka) -> None:
    """As in a replay, where results are judged again."""
    (rows,) = batches([1, 2, 3], 3)
    said = [None, json.dumps({"reason": "broken"}), json.dumps({"rule": 1})]
    rows = rows.append_column(QUARANTINED, pa.array(said, pa.string()))
    receipt, _ = write_partition(replace(job(), quarantine="q"), 0, iter([rows]))
    assert (receipt.tally("t").rows, receipt.tally("q").rows, receipt.rules) == (1, 2, {1: 1})


def test_rows_for_quarantine_keep_their_timestamps_when_the_others_are_staged(kafka: FakeKafka) -> None:
    staged = replace(job(), topic="staging", quarantine="q", batch_header=False, staging_timestamp=1_700_000_000_123)
    receipt, _ = write_partition(staged, 0, routed([1, -1, 2], 3))
    assert kafka.staging_timestamp == {"staging": {1_700_000_000_123}, "q": {None}}
    assert (receipt.tally("staging").rows, receipt.tally("q").rows) == (2, 1)


def test_a_batch_without_rows_changes_nothing(kafka: FakeKafka) -> None:
    empty = next(batches([1], 1)).slice(1)
    receipt, _ = write_partition(job(), 0, iter([empty, *batches([1], 1), empty]))
    assert receipt.topics["t"].rows == 1


def test_what_an_older_lease_committed_is_not_ours(kafka: FakeKafka) -> None:
    older = Receipt(task=0, ledger=LEDGER, lease=LEASE - 1, topics={"t": Tally(rows=3, fingerprint=6)})
    kafka.mark = mark_metadata(older)
    receipt, skipped = write_partition(job(), 0, batches([1, 2, 3], 3))
    assert (kafka.committed, receipt.lease, skipped) == ([[b"1", b"2", b"3"]], LEASE, False)


def committed(kafka: FakeKafka, job: WriteJob, rows: Iterator[pa.RecordBatch]) -> WriteJob:
    """An earlier attempt has committed these rows; the job of a later one, behind a shuffle."""
    write_partition(job, 0, rows)
    return replace(job, compares=True)


def test_an_attempt_behind_a_shuffle_reads_its_rows_in_any_order_and_finds_them_committed(kafka: FakeKafka) -> None:
    later = committed(kafka, job(), batches([1, 2, 3], 3))
    receipt, skipped = write_partition(later, 0, batches([3, 1, 2], 2))
    assert (receipt.rows, skipped, len(kafka.committed)) == (3, False, 1)
    with pytest.raises(AssertionError):  # what is not compared is not read
        write_partition(replace(later, compares=True), 0, unreadable())
    assert write_partition(job(), 0, unreadable()) == (receipt, True)


def unreadable() -> Iterator[pa.RecordBatch]:
    raise AssertionError("read")
    yield


@pytest.mark.parametrize("rows", [[1, 2, 4], [1, 2], [1, 2, 3, 3], []], ids=["another", "fewer", "more", "none"])
def test_an_attempt_with_other_rows_than_are_committed_is_refused(kafka: FakeKafka, rows: list[int]) -> None:
    """Nobody would know where the rows are that differ; going on could lose some and double others."""
    later = committed(kafka, job(), batches([1, 2, 3], 3))
    with pytest.raises(
        TransformNotDeterministic, match=r"batch b, task-partition 0: .*committed 3 rows, and the rows of this attempt"
    ):
        write_partition(later, 0, batches(rows, 2))
    assert len(kafka.committed) == 1


def test_a_row_that_changed_sides_is_not_the_row_that_was_committed(kafka: FakeKafka) -> None:
    """Its bytes may be the same: a result that is kept. Which topic it is in is part of what was committed."""
    two = replace(job(), quarantine="q")
    later = committed(kafka, two, routed([1, -2], 2))
    assert write_partition(later, 0, routed([-2, 1], 1))[0].rows == 2
    sides = {"t": Tally(rows=1, fingerprint=-2 % 2**64), "q": Tally(rows=1, fingerprint=1)}
    kafka.mark = mark_metadata(Receipt(task=0, ledger=LEDGER, lease=LEASE, topics=sides))
    with pytest.raises(TransformNotDeterministic):
        write_partition(later, 0, routed([-2, 1], 1))
