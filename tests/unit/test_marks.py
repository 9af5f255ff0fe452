"""Marks: what is written is read back whole, fits Kafka's limit, and leases compare as numbers that only grow."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fencepost.errors import NeedsOperator
from fencepost.model import Receipt, Tally
from fencepost.protocol.marks import MarkState, compare_mark, mark_metadata, read_mark

LEASES = st.integers(0, 2**63 - 1)
IDS = st.uuids().map(lambda made: urlsafe_b64encode(made.bytes).decode().rstrip("="))  # as Kafka writes a topic's id
TALLIES = st.builds(
    Tally,
    rows=st.integers(0, 2**63 - 1),
    fingerprint=st.integers(0, 2**64 - 1),
    bytes=st.integers(0, 2**63 - 1),
)
TOPICS = st.text("abcdefghijklmnopqrstuvwxyz0123456789._-", min_size=1, max_size=249)  # as Kafka allows them
RECEIPTS = st.builds(
    Receipt,
    task=st.integers(0, 2**31 - 1),
    ledger=IDS,
    lease=LEASES,
    topics=st.dictionaries(TOPICS, TALLIES, max_size=2),
)


@given(RECEIPTS)
def test_a_receipt_comes_back_from_its_mark(receipt: Receipt) -> None:
    assert read_mark(mark_metadata(receipt), "here") == receipt


@given(RECEIPTS)
def test_a_mark_is_far_below_kafkas_limit_on_metadata(receipt: Receipt) -> None:
    assert len(mark_metadata(receipt).encode()) < 1000


@given(st.text() | st.none())
def test_what_somebody_else_committed_is_no_mark_and_the_message_says_what_to_do(text: str | None) -> None:
    with pytest.raises(NeedsOperator, match="here: the offset committed there is not a mark") as refusal:
        read_mark(text, "here")
    assert "kafka-consumer-groups.sh" in str(refusal.value)


@given(RECEIPTS, LEASES)
def test_exactly_one_of_two_leases_of_a_ledger_is_superseded(mark: Receipt, lease: int) -> None:
    there = compare_mark(mark, lease, mark.ledger)
    back = compare_mark(mark.model_copy(update={"lease": lease}), mark.lease, mark.ledger)
    expected = {MarkState.DONE} if lease == mark.lease else {MarkState.WRITE, MarkState.SUPERSEDED}
    assert {there, back} == expected
    assert (there is MarkState.SUPERSEDED) == (mark.lease > lease)


@given(RECEIPTS, LEASES, IDS)
def test_a_mark_of_another_ledger_proves_nothing_whatever_its_lease(mark: Receipt, lease: int, ledger: str) -> None:
    assume(ledger != mark.ledger)
    assert compare_mark(mark, lease, ledger) is MarkState.WRITE
    assert compare_mark(mark.model_copy(update={"lease": lease}), lease, ledger) is MarkState.WRITE


@given(RECEIPTS)
def test_a_mark_of_another_form_is_refused(mark: Receipt) -> None:
    whole = json.loads(mark_metadata(mark))
    halves = ({"rows": 1}, {"fingerprint": 1}, {"topics": None})
    for damaged in (
        whole | {"more": 1},
        *({k: v for k, v in whole.items() if k != "topics"} | half for half in halves),
    ):
        with pytest.raises(NeedsOperator, match="not a mark of Fencepost's"):
            read_mark(json.dumps(damaged), "here")


@given(LEASES, IDS)
def test_without_a_mark_nothing_was_written(lease: int, ledger: str) -> None:
    assert compare_mark(None, lease, ledger) is MarkState.WRITE
