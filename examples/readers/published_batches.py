"""Copies each published batch of a pipeline into a SQLite table with pandas, and removes the rows of batches that count no more.

It knows nothing of Fencepost but the topic of announcements, and may be stopped and started at any time:

    python published_batches.py client.properties PIPELINE DATABASE

Rows and position are in one database, and change in one transaction. Values are JSON objects (`output.format: json`). The columns
that begin with an underscore are the reader's own: no column of an output does.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

PATIENCE = 60.0  # seconds without an answer
# Of each key the newest interval, then the newest revision. The last offset may be an old interval's that was reprocessed.
NEWEST = """
CREATE VIEW IF NOT EXISTS newest AS
SELECT * FROM (
    SELECT *, row_number() OVER (PARTITION BY _key ORDER BY _interval DESC, _revision DESC, rowid DESC) AS _place FROM rows
) WHERE _place = 1 AND NOT _is_tombstone
"""


def consumer(settings: dict[str, str]) -> Consumer:
    """A consumer that sees committed records only, and never passes over what is gone."""
    fixed = {"isolation.level": "read_committed", "auto.offset.reset": "error", "enable.auto.commit": "false"}
    own = {"enable.partition.eof": "true", "allow.auto.create.topics": "false"}
    return Consumer({"group.id": "fencepost-reader", **settings, **fixed, **own})


def records(reader: Consumer, ranges: dict[TopicPartition, int]) -> Iterator[Message]:
    """The committed records from each partition's offset to its end. The last offsets may be markers of transactions."""
    reader.assign([*ranges])
    left, deadline = {place.partition: end for place, end in ranges.items()}, time.monotonic() + PATIENCE
    while left and time.monotonic() < deadline:
        for message in reader.consume(10_000, timeout=1.0):
            error, partition = message.error(), message.partition()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise RuntimeError(str(error))
            if message.offset() >= left.get(partition, 0):
                left.pop(partition, None)
            elif error is None:
                deadline = time.monotonic() + PATIENCE
                yield message  # an end before that of the range: an open transaction hides what follows


def read_batch(reader: Consumer, told: dict[str, Any]) -> pd.DataFrame:
    """The batch's rows: of the records in its ranges those whose header names it. Other batches may have records there."""
    if told["header"] is None:
        raise RuntimeError(f"{told['batch']}: its records do not name it, so nobody can tell them apart")
    found: list[tuple[bytes | None, Any]] = []
    ranges = {TopicPartition(told["topic"], int(p), first): end for p, (first, end) in told["ranges"].items()}
    for message in records(reader, ranges):
        if dict(message.headers() or []).get(told["header"]) == told["batch"].encode():
            found.append((message.key(), json.loads(message.value() or b"null")))
        if len(found) == told["rows"]:
            break
    if len(found) != told["rows"]:
        raise RuntimeError(f"{told['batch']}: {len(found)} of its {told['rows']} records are there")
    rows = pd.DataFrame([value or {} for _, value in found], columns=[column["name"] for column in told["columns"]])
    own = {"_key": [key for key, _ in found], "_is_tombstone": [value is None for _, value in found]}
    return rows.assign(_interval=told["interval"]["start"], _revision=told["revision"], **own)


def take(database: sqlite3.Connection, reader: Consumer, offset: int, told: dict[str, Any]) -> None:
    """Bring the table to what an announcement says, and the position with it."""
    interval = told["interval"]["start"]
    rows = read_batch(reader, told) if told["state"] == "published" else None
    with database:  # one transaction
        replaces_all = told["state"] == "withdrawn" or (told["state"] == "published" and told["adds_to"] is None)
        if replaces_all and database.execute("SELECT 1 FROM sqlite_master WHERE name = 'rows'").fetchone():
            database.execute("DELETE FROM rows WHERE _interval = ?", (interval,))
        if rows is not None and len(rows):
            rows.to_sql("rows", database, if_exists="append", index=False)
            database.execute(NEWEST)
        database.execute("DELETE FROM position")
        database.execute("INSERT INTO position VALUES (?, ?)", (offset, json.dumps(told)))


def follow(settings: dict[str, str], pipeline: str, database: sqlite3.Connection) -> int:
    """Take all that is announced by now; how much that was."""
    database.execute("CREATE TABLE IF NOT EXISTS position (last INTEGER, announcement TEXT)")
    known = database.execute("SELECT last, announcement FROM position").fetchone()
    topic, taken = f"fencepost.{pipeline}.published", 0
    with closing(consumer(settings)) as announcements, closing(consumer(settings)) as reader:
        _, end = announcements.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
        place = TopicPartition(topic, 0, known[0] if known else 0)
        for message in records(announcements, {place: end} if place.offset < end else {}):
            told = json.loads(message.value())
            if told["version"] != 1:
                raise RuntimeError(f"an announcement of another version: {told['version']}")
            if known is None:
                take(database, reader, message.offset(), told)
                taken += 1
            elif (message.offset(), told) == (known[0], json.loads(known[1])):
                known = None  # the last one, read again: a topic that was made anew has another there
            else:
                break
    if known is not None:
        raise RuntimeError(f"{topic} was made anew: drop the table, and read it from its start")
    return taken


if __name__ == "__main__":
    properties = (line.split("=", 1) for line in Path(sys.argv[1]).read_text().splitlines() if "=" in line)
    with closing(sqlite3.connect(sys.argv[3])) as target:
        given = {name.strip(): value.strip() for name, value in properties}
        print(f"{follow(given, sys.argv[2], target)} announcements")  # noqa: T201
