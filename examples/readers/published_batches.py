"""Copies each published batch of a pipeline into a SQLite table with pandas, and removes the rows of superseded batches.

It needs the topic of announcements and the output. You may stop and start it at any time:

    python published_batches.py client.properties PIPELINE DATABASE

Rows and position are in one database, and change in one transaction. It reads JSON objects (`output.format: json`) of an output
topic. Texts, doubles, booleans and whole numbers of 64 bits get SQLite's types. A decimal is a text with its digits, and an array
or an object is its JSON text. Columns that begin with an underscore are the reader's own, because no output has such a column.
"""

from __future__ import annotations

import json
import re
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

USAGE = "usage: python published_batches.py client.properties PIPELINE DATABASE"
PATIENCE = 60.0  # seconds without an answer
NOTHING = (None, "null")
OWN = ("_key", "_is_tombstone", "_interval", "_revision")
NAME = re.compile(r'[\s,]*("(?:[^"\\]|\\.)*")\s*:\s*')  # of a field in an object, up to its value
# For each key: the newest interval, then its newest revision. The last offset may belong to an old interval that was reprocessed.
NEWEST = """
CREATE VIEW IF NOT EXISTS newest AS
SELECT * FROM (
    SELECT *, row_number() OVER (PARTITION BY _key ORDER BY _interval DESC, _revision DESC, _rowid_ DESC) AS _place FROM rows
) WHERE _place = 1 AND NOT _is_tombstone
"""


class Unreadable(Exception):
    """The reader cannot continue. The text says why, and what to do."""


def consumer(settings: dict[str, str]) -> Consumer:
    """A consumer that sees committed records only, and raises an error if an offset is gone."""
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
                raise Unreadable(f"{message.topic()}: {error.str()}")
            if message.offset() >= left.get(partition, 0):
                left.pop(partition, None)
            elif error is None:
                deadline = time.monotonic() + PATIENCE
                yield message  # the partition ends before the range: an open transaction hides later records


def fields(text: str) -> dict[str, tuple[Any, str]]:
    """The fields of a JSON object, each with the text of its value. Only the text has all digits of a decimal."""
    found, at = dict[str, tuple[Any, str]](), 1
    while name := NAME.match(text, at):
        value, at = json.JSONDecoder().raw_decode(text, name.end())
        found[json.loads(name[1])] = (value, text[name.end() : at])
    return found


def sqlite_value(value: Any, text: str, kind: str) -> Any:
    """The value that SQLite stores for this JSON text, which is of one of Spark's types."""
    is_long = type(value) is int and not -(2**63) <= value < 2**63
    is_decimal = value is not None and kind.startswith("decimal")
    return text if is_long or is_decimal or isinstance(value, dict | list) else value


def check_readable(announced: dict[str, Any]) -> None:
    """Check that an announced batch is in a topic, as JSON values whose header names the batch."""
    if announced["kind"] != "topic":
        raise Unreadable(
            f"{announced['batch']}: its rows are not in a topic, but in {announced['output']}. Read them there."
        )
    if announced["format"] != "json":
        raise Unreadable(
            f"{announced['batch']}: its values are of format {announced['format']}, and this reader takes json. Decode them in "
            "read_batch(), or read the batch with Spark: read_validated takes every format."
        )
    if announced["header"] is None:
        raise Unreadable(f"{announced['batch']}: its records do not name it, so nobody can tell them apart")


def read_batch(reader: Consumer, announced: dict[str, Any]) -> pd.DataFrame:
    """The batch's rows: the records in its ranges whose header names it. Other batches may have records in the same ranges."""
    check_readable(announced)
    found: list[tuple[bytes | None, dict[str, tuple[Any, str]] | None]] = []
    ranges = {
        TopicPartition(announced["output"], int(p), first): end for p, (first, end) in announced["ranges"].items()
    }
    for message in records(reader, ranges):
        if dict(message.headers() or []).get(announced["header"]) == announced["batch"].encode():
            found.append((message.key(), None if message.value() is None else fields(message.value().decode())))
        if len(found) == announced["rows"]:
            break
    if len(found) != announced["rows"]:
        raise Unreadable(
            f"{announced['batch']}: {len(found)} of its {announced['rows']} records are there. If an open transaction hides the "
            "others, a later run reads them; else they are gone."
        )
    columns = {
        column["name"]: [
            sqlite_value(*(value or {}).get(column["name"], NOTHING), column["type"]) for _, value in found
        ]
        for column in announced["columns"]
    }
    # Of type object: pandas would make doubles of whole numbers where one is null.
    rows = pd.DataFrame(columns, index=range(len(found)), dtype=object)
    own = {"_key": [key for key, _ in found], "_is_tombstone": [value is None for _, value in found]}
    return rows.assign(_interval=announced["interval"]["start"], _revision=announced["revision"], **own)


def append(database: sqlite3.Connection, rows: pd.DataFrame) -> None:
    """Append rows to the table, with the columns that it lacks. New columns have no type, because SQLite would round by it."""
    database.execute(f"CREATE TABLE IF NOT EXISTS rows ({', '.join(OWN)})")
    known = {name.lower() for _, name, *_ in database.execute("PRAGMA table_info(rows)")}
    names = [quoted(name) for name in rows.columns]
    for name in [one for one in rows.columns if one.lower() not in known]:
        database.execute(f"ALTER TABLE rows ADD COLUMN {quoted(name)}")
    marks = ", ".join("?" * len(names))
    database.executemany(
        f"INSERT INTO rows ({', '.join(names)}) VALUES ({marks})",  # noqa: S608
        rows.itertuples(index=False, name=None),
    )
    database.execute(NEWEST)


def quoted(name: str) -> str:
    """A column's name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def take(database: sqlite3.Connection, reader: Consumer, offset: int, announced: dict[str, Any]) -> None:
    """Apply an announcement to the table, and store its position in the same transaction."""
    interval = announced["interval"]["start"]
    rows = read_batch(reader, announced) if announced["state"] == "published" and announced["rows"] else None
    with database:
        database.execute("BEGIN")  # one transaction, which includes new columns
        replaces_all = announced["state"] == "withdrawn" or (
            announced["state"] == "published" and announced["adds_to"] is None
        )
        if replaces_all and database.execute("SELECT 1 FROM sqlite_master WHERE name = 'rows'").fetchone():
            database.execute("DELETE FROM rows WHERE _interval = ?", (interval,))
        if rows is not None:
            append(database, rows)
        database.execute("DELETE FROM position")
        database.execute("INSERT INTO position VALUES (?, ?)", (offset, json.dumps(announced)))


def end_of(announcements: Consumer, topic: str) -> int:
    """The end offset of the announcements."""
    known = announcements.list_topics(topic, timeout=30).topics[topic]
    if known.error is not None:
        raise Unreadable(
            f"topic {topic}: {known.error.str()}. Check the pipeline's name and the cluster. The topic is there once the "
            "pipeline has planned, and a reader needs Read on it, on the output and on its group."
        )
    _, end = announcements.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    return int(end)


def follow(settings: dict[str, str], pipeline: str, database: sqlite3.Connection) -> int:
    """Apply all announcements up to now. Returns their number."""
    database.execute("CREATE TABLE IF NOT EXISTS position (last INTEGER, announcement TEXT)")
    known = database.execute("SELECT last, announcement FROM position").fetchone()
    topic, taken = f"fencepost.{pipeline}.published", 0
    with closing(consumer(settings)) as announcements, closing(consumer(settings)) as reader:
        end = end_of(announcements, topic)
        place = TopicPartition(topic, 0, known[0] if known else 0)
        for message in records(announcements, {place: end} if place.offset < end else {}):
            announced = json.loads(message.value())
            if announced["version"] != 1:
                raise Unreadable(f"an announcement of another version: {announced['version']}")
            if known is None:
                take(database, reader, message.offset(), announced)
                taken += 1
            elif (message.offset(), announced) == (known[0], json.loads(known[1])):
                known = None  # the last one, read again: a topic that was created again differs there
            else:
                break
    if known is not None:
        raise Unreadable(f"{topic} was created again: drop the table, and read it from its start")
    return taken


def main(arguments: list[str]) -> str | None:
    """Run the command. Returns a message for a person if it failed."""
    if len(arguments) != 3:
        return USAGE
    file, pipeline, place = arguments
    try:
        lines = (line.strip() for line in Path(file).read_text().splitlines())
        given = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith(("#", "!")))
        with closing(sqlite3.connect(place)) as database:
            settings = {name.strip(): value.strip() for name, value in given.items()}
            print(f"{follow(settings, pipeline, database)} announcements")  # noqa: T201
    except Unreadable as error:
        return str(error)
    except OSError as error:
        return f"{file}: {error.strerror}"
    except sqlite3.Error as error:
        return f"{place}: {error}"
    except KafkaException as error:
        return f"{file}: {error.args[0].str().rstrip('.')}. Check the settings there, in librdkafka's names."
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
