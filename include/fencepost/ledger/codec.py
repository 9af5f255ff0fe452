"""Writes a batch as a ledger record, and reads it back. It refuses a foreign or damaged record and never skips one.

An older record is upcast to the present version step by step, as JSON, before it is validated: only the steps know the older
forms. To change the form, raise LEDGER_VERSION and add the step from the version before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from fencepost.config.pipeline import Pipeline
from fencepost.errors import LedgerUnreadable
from fencepost.model import LEDGER_VERSION, Batch, Event, State
from fencepost.protocol.marks import receipt_from_2

BATCH_KEY = re.compile(rb"\d{8}T\d{6}(\.\d{6})?Z-\d{8}T\d{6}(\.\d{6})?Z/\d+")
FOREIGN = (
    "Find out who writes to this topic; only Fencepost may write to a ledger. If the record's key is not a batch's "
    "(<interval>/<revision>), remove it with a record of that key and no value. Otherwise restore the topic from a copy."
)
RESTORE = "Restore the ledger topic from a copy."


HISTORY = b',"history":['  # a record's last field; inside a text the quotes would be escaped


def is_continued(before: bytes | None, after: bytes | None) -> bool:
    """Whether the later record's history begins with the earlier one's, byte by byte; False if only parsing can tell."""
    if not before or not after or not (before.endswith(b"]}") and after.endswith(b"]}")):
        return False
    first, second = before.rfind(HISTORY), after.rfind(HISTORY)
    return first >= 0 and second >= 0 and after.startswith(before[first:-2], second)


def record_key(batch: Batch) -> bytes:
    """The key of a batch's records."""
    return f"{batch.interval}/{batch.revision}".encode()


def write_record(batch: Batch) -> bytes:
    """A batch's record, in the present version."""
    return batch.model_dump_json(exclude_none=True).encode()


def read_record(key: bytes | None, value: bytes | None, offset: int, pipeline: Pipeline) -> Batch:
    """The batch in a record of this pipeline, with its lease.

    Raises:
        LedgerUnreadable: the record is damaged, or not this pipeline's.
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


class _Past(BaseModel):
    """The part of a record that still matters once its batch has a newer one."""

    model_config = ConfigDict(extra="ignore")

    history: tuple[Event, ...] = ()


def read_history(key: bytes | None, value: bytes | None, offset: int, pipeline: Pipeline) -> tuple[Event, ...]:
    """The history in a record that a newer one has replaced.

    Raises:
        LedgerUnreadable: as `read_record`.
    """
    try:
        return _Past.model_validate_json(value or b"").history
    except ValidationError:
        return read_record(key, value, offset, pipeline).history


def parse(value: bytes | None, where: str) -> Batch:
    """A ledger record's batch. LedgerUnreadable names the offset but not the content."""
    value = value or b""
    if not value.startswith(OLDER):  # an older one would fail, and thousands of failures take long
        with suppress(ValidationError):
            return Batch.model_validate_json(value)
    return _parse_older(value, where)


def _parse_older(value: bytes, where: str) -> Batch:
    """The batch in a record of an older version. For any other record that failed to parse, raise the reason."""
    try:
        raw = json.loads(value)
        version = raw.get("version")
    except (ValueError, AttributeError, RecursionError):
        raise LedgerUnreadable(f"{where}: not a Fencepost record. {FOREIGN}") from None
    if isinstance(version, int) and version > LEDGER_VERSION:
        raise LedgerUnreadable(
            f"{where}: a newer Fencepost wrote it (record version {version}; this one reads {LEDGER_VERSION}). Upgrade."
        )
    try:
        batch = Batch.model_validate(upcast(raw))
        if version in UPCASTS:
            return batch
        fields = "its encoding"
    except ValidationError as error:
        fields = ", ".join(sorted({_field(e["loc"]) for e in error.errors()}))
    except ValueError:  # raised by a step; steps change plans and writes only
        fields = "plan or written"
    raise LedgerUnreadable(f"{where}: damaged in {fields}. {RESTORE}") from None


def upcast(record: dict[str, Any]) -> dict[str, Any]:
    """A record's JSON in the form of the present version. Pure.

    Raises:
        ValueError: it does not have the form of its version.
    """
    while isinstance(version := record.get("version"), int) and (step := UPCASTS.get(version)):
        try:
            record = step(record)
        except (LookupError, TypeError) as error:
            raise ValueError(f"not a record of version {version}") from error
    return record


def _from_1(record: dict[str, Any]) -> dict[str, Any]:
    """In version 1 nothing names the ledger of a lease. Settings have one digest, which says nothing now."""
    return {**record, "version": 2, "plan": {"ledger_topic_id": "", "digests": {}, **record["plan"]}}


def _from_2(record: dict[str, Any]) -> dict[str, Any]:
    """In version 2 a plan has one source and one output, as separate fields, and receipts name no topic."""
    plan = dict(record["plan"])
    plan.pop("settings_digest", None)  # from a record of version 1
    source = {
        "topic": plan.pop("source_topic"),
        "topic_id": plan.pop("source_topic_id"),
        "ranges": plan.pop("ranges"),
        "lost": plan.pop("lost", []),
    }
    topic = plan.pop("output_topic")
    output = {
        "topic": topic,
        "topic_id": plan.pop("output_topic_id"),
        "batch_header": plan.pop("batch_header", True),
    }
    plan |= {"sources": [source], "output": {**output, "ends": plan.pop("output_ends")}}
    after = {**record, "version": 3, "plan": plan}
    if record.get("written") is not None:
        written = dict(record["written"])
        written["output"] = {**output, "ends": written.pop("output_ends")}
        written["receipts"] = [receipt_from_2(receipt, topic) for receipt in written["receipts"]]
        after["written"] = written
    return after


UPCASTS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: _from_1, 2: _from_2}
OLDER = tuple(f'{{"version":{version},'.encode() for version in UPCASTS)  # how their records begin


def _field(location: tuple[int | str, ...]) -> str:
    """The top-level field where a record is damaged: names below it could be any text."""
    return str(location[0]) if location and location[0] in Batch.model_fields else "fields it should not have"
