"""What all stores have in common when they read a batch's staged records as rows of a table."""

from __future__ import annotations

import json

from pyspark.sql import types as t


class StagedMisfit(Exception):
    """A staged value cannot be read as the batch's columns. The message says why."""


def schema_of(text: str) -> t.StructType:
    """Parses the schema in `WriteSummary.value_schema`."""
    return t.StructType.fromJson(json.loads(text)) if text else t.StructType([])
