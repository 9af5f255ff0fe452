"""Marks are group offsets that writers commit inside their transactions. This module decides what an attempt may do
after it has read a mark.

A mark's partition is (source topic, t) under layout `source` and (output topic, t) under `output`. Its metadata is the
receipt as compact JSON, far below Kafka's limit of 4,096 bytes.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import ValidationError

from fencepost.errors import NeedsOperator
from fencepost.model import Receipt
from fencepost.protocol.advice import in_airflow


class MarkState(StrEnum):
    """What a writer may do once it has called init_transactions and then read its mark."""

    WRITE = "write"  # this lease has not committed: the mark is an older lease's or another ledger's, or there is none
    DONE = "done"  # this lease has committed: skip, and return the receipt
    LOST = "lost"  # its opening mark is gone, so what was committed is unknown
    SUPERSEDED = "superseded"  # a later lease has committed: this attempt is the zombie


def compare_mark(mark: Receipt | None, lease: int, ledger: str, *, opened: bool = False) -> MarkState:
    """Returns what a writer with this lease may do, by the mark. The result is valid only after init_transactions,
    because an older attempt may commit its mark until then.

    `opened` says that the task-partition had a mark before its first attempt. Every task-partition of a publication has
    one.

    Leases of two ledgers cannot be compared, so a mark of a lost ledger proves nothing and blocks nothing.
    """
    if mark is None and opened:
        return MarkState.LOST
    if mark is None or mark.ledger != ledger or mark.lease < lease:
        return MarkState.WRITE
    return MarkState.SUPERSEDED if mark.lease > lease else MarkState.DONE


def same_rows(mark: Receipt, seen: Receipt) -> bool:
    """Returns whether two attempts have the same rows: the same number and fingerprint in each topic."""
    one, other = (
        {topic: (tally.rows, tally.fingerprint) for topic, tally in receipt.topics.items() if tally.rows}
        for receipt in (mark, seen)
    )
    return one == other


def mark_metadata(receipt: Receipt) -> str:
    """Returns the receipt as text for a mark's metadata."""
    return receipt.model_dump_json()


def read_mark(text: str | None, where: str, *, opened: bool = False) -> Receipt:
    """Parses the receipt in a mark's metadata. `opened` has the meaning of `compare_mark`.

    Raises:
        NeedsOperator: the offset was not committed by Fencepost.
    """
    try:
        return Receipt.model_validate_json(text or "")
    except ValidationError:
        then = "then `fencepost skip` the interval and run it with --reprocess."
        if opened:
            then = f"then run the interval again {in_airflow('advance')}. It finds the copied records in the output."
        raise NeedsOperator(
            f"{where}: the offset committed there is not a mark of Fencepost's. Groups named <pipeline>.lane-<n> and "
            f"<pipeline>.publish-<n> are for marks only: delete the group with kafka-consumer-groups.sh, {then}"
        ) from None
