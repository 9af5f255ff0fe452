"""A batch as a ledger record, and back. A record that is not ours, or is damaged, is refused and never passed over."""

from __future__ import annotations

import json
import re
from typing import NoReturn

from pydantic import BaseModel, ConfigDict, ValidationError

from fencepost.config.pipeline import Pipeline
from fencepost.errors import LedgerUnreadable
from fencepost.model import LEDGER_VERSION, Batch, Event, State

BATCH_KEY = re.compile(rb"\d{8}T\d{6}(\.\d{6})?Z-\d{8}T\d{6}(\.\d{6})?Z/\d+")
FOREIGN = (
    "Find out who writes to this topic; the ledger is for Fencepost alone. Where its key is no batch's (<interval>/<revision>), "
    "a record with that key and no value withdraws it; otherwise restore the topic from a copy."
)
RESTORE = "Restore the ledger topic from a copy."


HISTORY = b',"history":['  # a record's last field; in a text of it the quotes would be escaped


def is_continued(before: bytes | None, after: bytes | None) -> bool:
    """Whether one record's history plainly begins with the other's, byte by byte; False where only parsing tells."""
    if not before or not after or not (before.endswith(b"]}") and after.endswith(b"]}")):
        return False
    first, second = before.rfind(HISTORY), after.rfind(HISTORY)
    return first >= 0 and second >= 0 and after.startswith(before[first:-2], second)


def record_key(batch: Batch) -> bytes:
    """The key of a batch's records."""
    return f"{batch.interval}/{batch.revision}".encode()


def write_record(batch: Batch) -> bytes:
    """A batch's record. One that was read in an older version is written in the present one, whose fields it has."""
    return batch.model_copy(update={"version": LEDGER_VERSION}).model_dump_json(exclude_none=True).encode()


def read_record(key: bytes | None, value: bytes | None, offset: int, pipeline: Pipeline) -> Batch:
    """The batch of a record of this pipeline's, with its lease.

    Raises:
        LedgerUnreadable: the record is not this pipeline's, or is damaged.
    """
    where = f"ledger {pipeline.ledger_topic}, offset {offset}"
    batch = parse(value, where)
    if batch.pipeline != pipeline.name or key != record_key(batch):
        raise LedgerUnreadable(f"{where}: not a record of this pipeline's. {FOREIGN}")
    if batch.lease is not None:
        return batch
    if batch.state is not State.PLANNED:
        raise LedgerUnreadable(f"{where}: damaged in lease. {RESTORE}")
    return batch.model_copy(update={"lease": offset})


class _Past(BaseModel):
    """As much of a record as matters when a newer one of its batch is there."""

    model_config = ConfigDict(extra="ignore")

    history: tuple[Event, ...] = ()


def read_history(key: bytes | None, value: bytes | None, offset: int, pipeline: Pipeline) -> tuple[Event, ...]:
    """The history in a record that a newer one has replaced.

    Raises:
        LedgerUnreadable: as `own_batch`.
    """
    try:
        return _Past.model_validate_json(value or b"").history
    except ValidationError:
        return read_record(key, value, offset, pipeline).history


def parse(value: bytes | None, where: str) -> Batch:
    """A ledger record's batch, or LedgerUnreadable naming the offset and not the content."""
    try:
        return Batch.model_validate_json(value or b"")
    except ValidationError:
        _refuse(value, where)


def _refuse(value: bytes | None, where: str) -> NoReturn:
    try:
        raw = json.loads(value or b"")
        version = raw.get("version")
    except (ValueError, AttributeError, RecursionError):
        raise LedgerUnreadable(f"{where}: not a record of Fencepost's. {FOREIGN}") from None
    if isinstance(version, int) and version > LEDGER_VERSION:
        raise LedgerUnreadable(
            f"{where}: written by a newer Fencepost (record version {version}, this one reads {LEDGER_VERSION}). Upgrade."
        )
    try:
        Batch.model_validate(raw)
        fields = "its encoding"
    except ValidationError as error:
        fields = ", ".join(sorted({_field(e["loc"]) for e in error.errors()}))
    raise LedgerUnreadable(f"{where}: damaged in {fields}. {RESTORE}") from None


def _field(location: tuple[int | str, ...]) -> str:
    """The top field where a record is damaged: names below it may be anything."""
    return str(location[0]) if location and location[0] in Batch.model_fields else "fields it should not have"
