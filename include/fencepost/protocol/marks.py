"""Marks: a group offset committed inside a writer's transaction, and what it tells the next attempt.

A mark's partition is (source topic, t) under layout `source` and (output topic, t) under `output`. Its metadata is the
receipt as compact JSON, far below Kafka's limit of 4,096 bytes. A mark with an incomplete receipt belongs to a chain of
transactions (`output.commit_every`): it says how many of the task-partition's rows, in order, have committed.

A lane is used for years, so its group still has marks of earlier versions. Those do not name the topic they count; the
reader does.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any

from pydantic import ValidationError

from fencepost.errors import NeedsOperator
from fencepost.model import Receipt


class Standing(StrEnum):
    """What a writer may do once it has called init_transactions and then read its mark."""

    WRITE = "write"  # this lease has not committed: the mark is an older lease's or another ledger's, or there is none
    RESUME = "resume"  # this lease has committed the first rows: continue after them
    DONE = "done"  # this lease has committed: skip, and return the receipt
    SUPERSEDED = "superseded"  # a later lease has committed: this attempt is the zombie


def compare_mark(mark: Receipt | None, lease: int, ledger: str) -> Standing:
    """Compare leases. Sound only after init_transactions: before it, an older attempt may still commit its mark.

    Leases of two ledgers cannot be compared: a mark under a lost ledger proves nothing and blocks nothing.
    """
    if mark is None or mark.ledger != ledger or mark.lease < lease:
        return Standing.WRITE
    if mark.lease > lease:
        return Standing.SUPERSEDED
    return Standing.DONE if mark.complete else Standing.RESUME


def mark_metadata(receipt: Receipt) -> str:
    """A receipt as a mark's metadata."""
    return receipt.model_dump_json()


def read_mark(text: str | None, topic: str, where: str) -> Receipt:
    """The receipt in a mark's metadata. An early receipt names no topic; it counts `topic`, the output.

    Raises:
        NeedsOperator: the offset was not committed by Fencepost.
    """
    try:
        return Receipt.model_validate_json(text or "")
    except ValidationError:
        pass
    try:
        return Receipt.model_validate(receipt_from_2(json.loads(text or ""), topic))
    except (ValueError, LookupError, TypeError, RecursionError):
        raise NeedsOperator(
            f"{where}: the offset committed there is not a mark of Fencepost's. Groups named <pipeline>.lane-<n> are for "
            "marks only: delete the group with kafka-consumer-groups.sh, then `fencepost skip` the interval and run it "
            "with --reprocess."
        ) from None


def receipt_from_2(receipt: dict[str, Any], topic: str) -> dict[str, Any]:
    """The JSON of a receipt of ledger version 1 or 2, in the form of version 3. It counts records of `topic`.

    Raises:
        LookupError, TypeError, ValueError: it is not such a receipt.
    """
    rest = dict(receipt)
    tally = {"rows": rest.pop("rows"), "fingerprint": rest.pop("fingerprint"), "bytes": rest.pop("bytes", 0)}
    return {"ledger": "", **rest, "topics": {topic: tally}}
