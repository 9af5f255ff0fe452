"""Marks: a group offset committed inside a writer's transaction, and what it tells the next attempt.

A mark's partition is (source topic, t) under layout `source` and (output topic, t) under `output`; its metadata is the
receipt as compact JSON, far below Kafka's limit of 4,096 bytes. A mark whose receipt is not complete belongs to a chain of
transactions (`output.commit_every`), and says how many of the task-partition's rows, in their order, have committed.

A group keeps the marks of earlier Fenceposts: a lane is used for years. Who reads one knows the topic that it counts.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any

from pydantic import ValidationError

from fencepost.errors import NeedsOperator
from fencepost.model import Receipt


class Standing(StrEnum):
    """What a writer that has called init_transactions may do, having read its mark afterwards."""

    WRITE = "write"  # this lease has not committed: an older lease's mark, another ledger's, or none
    RESUME = "resume"  # this lease has committed the first rows: go on behind them
    DONE = "done"  # this lease has committed: skip, and return the receipt
    SUPERSEDED = "superseded"  # a later lease has committed: this attempt is the zombie


def compare_mark(mark: Receipt | None, lease: int, ledger: str) -> Standing:
    """Compare leases. Sound only after init_transactions: before it, an older attempt may still commit its mark.

    Leases of two ledgers do not compare: the mark of a ledger that was lost stands in nobody's way, and proves nothing.
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
    """The receipt in a mark's metadata; one that names no topic is of `topic`, the output.

    Raises:
        NeedsOperator: somebody else committed an offset there.
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
    """A receipt of a ledger of version 1 or 2, as its JSON says it, in the form of version 3. What it counts is of `topic`.

    Raises:
        LookupError, TypeError, ValueError: it is none.
    """
    rest = dict(receipt)
    tally = {"rows": rest.pop("rows"), "fingerprint": rest.pop("fingerprint"), "bytes": rest.pop("bytes", 0)}
    return {"ledger": "", **rest, "topics": {topic: tally}}
