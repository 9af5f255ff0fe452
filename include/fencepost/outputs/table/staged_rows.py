"""What all stores have in common when they read a batch's staged records as rows of a table."""

from __future__ import annotations

import json

from pyspark.sql import types as t

from fencepost.counts import count_of
from fencepost.errors import ReceiptsDisagree
from fencepost.model import Batch
from fencepost.protocol.view import View


class StagedMisfit(Exception):
    """A staged value cannot be read as the batch's columns. The message says why."""


def schema_of(text: str) -> t.StructType:
    """Parses the schema in `WriteSummary.value_schema`."""
    return t.StructType.fromJson(json.loads(text)) if text else t.StructType([])


def newest_value_schema(view: View) -> t.StructType:
    """Returns the schema of the batch that was written last. Without one it has no columns."""
    written = [b.written.value_schema for b in view.all() if b.written is not None and b.written.value_schema]
    return schema_of(written[-1] if written else "")


def check_staged(batch: Batch, rows: int, fingerprint: int) -> None:
    """Raises ReceiptsDisagree unless the staged records that were read are those that were written."""
    written = batch.require_written
    if (rows, fingerprint) != (written.rows, written.fingerprint):
        raise ReceiptsDisagree(
            f"batch {batch.id}: its staging topic has {count_of(rows, 'record')} with fingerprint {fingerprint:016x}, but "
            f"{written.rows:,} with {written.fingerprint:016x} were written."
        )
