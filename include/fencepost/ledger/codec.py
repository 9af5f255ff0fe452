"""Writes a batch as a ledger record, and reads it back. A foreign or damaged record is refused and never skipped.

For a record of another version, the error names that version.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fencepost.config.pipeline import Pipeline
from fencepost.errors import LedgerUnreadable
from fencepost.model import LEDGER_VERSION, Batch, HistoryEntry, State

ANNOUNCED_IN_KEY = b"announced in"
BATCH_KEY = re.compile(rb"\d{8}T\d{6}(\.\d{6})?Z-\d{8}T\d{6}(\.\d{6})?Z/\d+")
FOREIGN = (
    "Find out who writes to this topic; only Fencepost may write to a ledger. If the record's key is not a batch's "
    "(<interval>/<revision>), remove it with a record of that key and no value. Otherwise restore the topic from a copy."
)
RESTORE = "Restore the ledger topic from a copy."


HISTORY = b',"history":['  # a record's last field; inside a text the quotes would be escaped


def is_continued(before: bytes | None, after: bytes | None) -> bool:
    """Returns whether the later record's history begins with the earlier record's history. The histories are compared
    byte by byte. Returns False if the records have to be parsed.
    """
    if not before or not after or not (before.endswith(b"]}") and after.endswith(b"]}")):
        return False
    first, second = before.rfind(HISTORY), after.rfind(HISTORY)
    return first >= 0 and second >= 0 and after.startswith(before[first:-2], second)


def record_key(batch: Batch) -> bytes:
    """Returns the key of a batch's records."""
    return f"{batch.interval}/{batch.revision}".encode()


def write_record(batch: Batch) -> bytes:
    """Returns the value of a batch's record, in the present version."""
    return batch.model_dump_json(exclude_none=True).encode()


def read_record(key: bytes | None, value: bytes | None, offset: int, pipeline: Pipeline) -> Batch:
    """Parses a record of this pipeline as a batch with its lease.

    Raises:
        LedgerUnreadable: the record is damaged, or belongs to another pipeline.
    """
    where = f"ledger {pipeline.ledger_topic}, offset {offset}"
    batch = parse(value, where)
    if batch.pipeline != pipeline.name or key != record_key(batch):
        raise LedgerUnreadable(f"{where}: not a record of this pipeline. {FOREIGN}")
    if batch.lease is None:
        if batch.state is not State.PLANNED:
            raise LedgerUnreadable(f"{where}: damaged in lease. {RESTORE}")
        return batch.model_copy(update={"lease": offset})
    if batch.publication is not None and batch.publication.lease is None:
        if batch.state is not State.PUBLISHING:
            raise LedgerUnreadable(f"{where}: damaged in publication. {RESTORE}")
        return batch.model_copy(update={"publication": batch.publication.model_copy(update={"lease": offset})})
    return batch


class AnnouncedIn(BaseModel):
    """The record with the id of the topic that has all announcements of the ledger. It has its own key.

    It shows whether the topic was deleted and created again. Only `fencepost announce` changes the id, in the transaction that
    writes all announcements to the new topic.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int = Field(default=LEDGER_VERSION, ge=LEDGER_VERSION, le=LEDGER_VERSION)
    announced_in: str


def write_announced_in(topic_id: str) -> bytes:
    """Returns the value of the record `AnnouncedIn`."""
    return AnnouncedIn(announced_in=topic_id).model_dump_json().encode()


def read_announced_in(value: bytes | None, offset: int, pipeline: Pipeline) -> str:
    """Returns the id of the topic of announcements from the record `AnnouncedIn`.

    Raises:
        LedgerUnreadable: the record is damaged.
    """
    with suppress(ValidationError):
        return AnnouncedIn.model_validate_json(value or b"").announced_in
    raise LedgerUnreadable(f"ledger {pipeline.ledger_topic}, offset {offset}: damaged in announced_in. {RESTORE}")


class _HistoryRecord(BaseModel):
    """The history in a record. Only the history is still needed after a newer record of the same batch."""

    model_config = ConfigDict(extra="ignore")

    history: tuple[HistoryEntry, ...] = ()


def read_history(key: bytes | None, value: bytes | None, offset: int, pipeline: Pipeline) -> tuple[HistoryEntry, ...]:
    """Returns the history in a record that a newer record has replaced.

    Raises:
        LedgerUnreadable: see `read_record`.
    """
    try:
        return _HistoryRecord.model_validate_json(value or b"").history
    except ValidationError:
        return read_record(key, value, offset, pipeline).history


def parse(value: bytes | None, where: str) -> Batch:
    """Parses a ledger record as a batch. Raises LedgerUnreadable, which names the offset and shows no content."""
    with suppress(ValidationError):
        return Batch.model_validate_json(value or b"")
    raise LedgerUnreadable(f"{where}: {_what_is_wrong(value or b'')}")


def _what_is_wrong(value: bytes) -> str:
    """Returns why the value is not a record of this version, with the next step."""
    try:
        raw = json.loads(value)
        version = raw.get("version")
    except (ValueError, AttributeError, RecursionError):
        return f"not a Fencepost record. {FOREIGN}"
    if isinstance(version, int) and version != LEDGER_VERSION:
        return (
            f"written in version {version} of the ledger's format; this Fencepost reads version {LEDGER_VERSION}. In "
            "every process, run the pipeline with the release of Fencepost that wrote this record."
        )
    try:
        Batch.model_validate(raw)
        fields = "its encoding"
    except ValidationError as error:
        fields = ", ".join(sorted({_field(e["loc"]) for e in error.errors()}))
    return f"damaged in {fields}. {RESTORE}"


def _field(location: tuple[int | str, ...]) -> str:
    """Returns the top-level field in which a record is damaged. Names below it are not shown, because they could be any
    text.
    """
    return str(location[0]) if location and location[0] in Batch.model_fields else "fields it should not have"
