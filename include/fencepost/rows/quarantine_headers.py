"""Builds the columns that only quarantined rows have. On the way to a writer they are one text, and the writer turns it
into rule, timestamp and headers.

Spark takes time for every column of every row, and most rows are for the output. So one text has everything that
differs between rows, and only quarantined rows have it. The writer adds what all rows of a batch share.
"""

from __future__ import annotations

import json
from binascii import a2b_base64
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from fencepost.model import BATCH_HEADER, MALFORMED

REASON_HEADER, RULE_HEADER = "fencepost-reason", "fencepost-rule"
SOURCE_HEADER = "fencepost-source"  # topic:partition:offset of the source record
KEPT_HEADER = "fencepost-kept"  # `result`: the key and value are those of the transform's result
ATTEMPT_HEADER = "fencepost-attempt"
LONGEST_REASON = 1000  # characters

# The column with the text, null in rows for the output. The text is a JSON object; fields without a value are left out:
# `rule`, the number of the failed rule, or `reason`, why the record is malformed; `timestamp` in milliseconds, or the time of
# writing if it is left out; `source` and `kept`, as in the headers above; and `headers`, the record's own headers, as `in_text`
# of fencepost.rows.decode gives them.
QUARANTINED = "quarantined"
HEADERS = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))
Header = tuple[bytes | None, bytes | None]


@dataclass(frozen=True)
class Quarantining:
    """The values that all quarantined rows of a batch share: the batch's name, the rules' names and reasons, and the attempt."""

    batch: str
    rules: tuple[tuple[str, str], ...] = ()
    attempt: int = 1

    def with_headers(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Turns rows with `QUARANTINED` into records: key, value, hash, rule, timestamp (milliseconds) and headers."""
        said = [json.loads(text) for text in rows.column(QUARANTINED).to_pylist()]
        columns = {name: rows.column(name) for name in ("key", "value", "hash")}
        columns["rule"] = pa.array([one.get("rule") for one in said], pa.int32())
        columns["timestamp"] = pa.array([one.get("timestamp") for one in said], pa.int64())
        columns["headers"] = pa.array([self._headers(one) for one in said], HEADERS)
        return pa.RecordBatch.from_pydict(columns)

    def _headers(self, said: dict[str, Any]) -> list[Header]:
        """Returns a record's own headers, followed by Fencepost's."""
        headers = [_header(found) for found in json.loads(said["headers"])] if "headers" in said else []
        if "rule" in said:
            headers += self._of_rules[said["rule"]]
        else:
            headers += _why(MALFORMED, said["reason"])
        for name, key in (("source", SOURCE_HEADER), ("kept", KEPT_HEADER)):
            if name in said:
                headers.append((key.encode(), said[name].encode()))
        return [*headers, (ATTEMPT_HEADER.encode(), b"%d" % self.attempt), self._of_batch]

    @cached_property
    def _of_rules(self) -> list[list[Header]]:
        return [_why(name, reason) for name, reason in self.rules]

    @cached_property
    def _of_batch(self) -> Header:
        return BATCH_HEADER.encode(), self.batch.encode()


def _why(rule: str, reason: str) -> list[Header]:
    return [
        (REASON_HEADER.encode(), reason[:LONGEST_REASON].encode()),
        (RULE_HEADER.encode(), rule[:LONGEST_REASON].encode()),
    ]


def _header(found: dict[str, str] | None) -> Header:
    """Returns one of the record's own headers. U+FFFD replaces a NUL in the header's name, because librdkafka would
    truncate the name at a NUL.
    """
    name, value = (_bytes((found or {}).get(part)) for part in ("key", "value"))
    return None if name is None else name.replace(b"\0", "\ufffd".encode()), value


def _bytes(base64: str | None) -> bytes | None:
    return None if base64 is None else a2b_base64(base64)
