"""Marks: what is written is read back whole, fits Kafka's limit, and leases compare as numbers that only grow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.errors import NeedsOperator
from fencepost.marks import Standing, from_metadata, standing, to_metadata
from fencepost.model import Receipt

LEASES = st.integers(0, 2**63 - 1)
RECEIPTS = st.builds(
    Receipt,
    task=st.integers(0, 2**31 - 1),
    lease=LEASES,
    rows=st.integers(0, 2**63 - 1),
    fingerprint=st.integers(0, 2**64 - 1),
    complete=st.booleans(),
)


@given(RECEIPTS)
def test_a_receipt_comes_back_from_its_mark(receipt: Receipt) -> None:
    assert from_metadata(to_metadata(receipt), "here") == receipt


@given(RECEIPTS)
def test_a_mark_is_far_below_kafkas_limit_on_metadata(receipt: Receipt) -> None:
    assert len(to_metadata(receipt).encode()) < 256


@given(st.text() | st.none())
def test_what_somebody_else_committed_is_no_mark_and_the_message_says_what_to_do(text: str | None) -> None:
    with pytest.raises(NeedsOperator, match="here: the offset committed there is not a mark") as refusal:
        from_metadata(text, "here")
    assert "kafka-consumer-groups.sh" in str(refusal.value)


@given(RECEIPTS, LEASES)
def test_exactly_one_of_two_leases_is_superseded(mark: Receipt, lease: int) -> None:
    there = standing(mark, lease)
    back = standing(mark.model_copy(update={"lease": lease}), mark.lease)
    ours = Standing.DONE if mark.complete else Standing.RESUME
    expected = {ours} if lease == mark.lease else {Standing.WRITE, Standing.SUPERSEDED}
    assert {there, back} == expected
    assert (there is Standing.SUPERSEDED) == (mark.lease > lease)


@given(LEASES)
def test_without_a_mark_nothing_was_written(lease: int) -> None:
    assert standing(None, lease) is Standing.WRITE
