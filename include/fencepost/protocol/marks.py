"""Marks: a group offset committed inside a writer's transaction, and what it tells the next attempt.

A mark's partition is (source topic, t) under layout `source` and (output topic, t) under `output`. Its metadata is the
receipt as compact JSON, far below Kafka's limit of 4,096 bytes.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import ValidationError

from fencepost.errors import NeedsOperator
from fencepost.model import Receipt


class Standing(StrEnum):
    """What a writer may do once it has called init_transactions and then read its mark."""

    WRITE = "write"  # this lease has not committed: the mark is an older lease's or another ledger's, or there is none
    DONE = "done"  # this lease has committed: skip, and return the receipt
    SUPERSEDED = "superseded"  # a later lease has committed: this attempt is the zombie


def compare_mark(mark: Receipt | None, lease: int, ledger: str) -> Standing:
    """Compare leases. Sound only after init_transactions: before it, an older attempt may still commit its mark.

    Leases of two ledgers cannot be compared: a mark under a lost ledger proves nothing and blocks nothing.
    """
    if mark is None or mark.ledger != ledger or mark.lease < lease:
        return Standing.WRITE
    return Standing.SUPERSEDED if mark.lease > lease else Standing.DONE


def mark_metadata(receipt: Receipt) -> str:
    """A receipt as a mark's metadata."""
    return receipt.model_dump_json()


def read_mark(text: str | None, where: str) -> Receipt:
    """The receipt in a mark's metadata.

    Raises:
        NeedsOperator: the offset was not committed by Fencepost.
    """
    try:
        return Receipt.model_validate_json(text or "")
    except ValidationError:
        raise NeedsOperator(
            f"{where}: the offset committed there is not a mark of Fencepost's. Groups named <pipeline>.lane-<n> are for "
            "marks only: delete the group with kafka-consumer-groups.sh, then `fencepost skip` the interval and run it "
            "with --reprocess."
        ) from None
