"""What the writer's producer sends is what another client reads, value by value."""

from __future__ import annotations

import time

import pyarrow as pa

from fencepost.kafka.client_settings import ClientSettings
from fencepost.kafka.transaction import Transaction
from fencepost_stack.broker import Broker
from kafka_tools import create_topic, read_all

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
OWN = ("fencepost-batch", b"p/2026/1")
LATEST = 32_503_679_999_999  # the last millisecond of the year 2999

# Key, value, timestamp in milliseconds, headers.
ROWS: list[tuple[bytes | None, bytes | None, int | None, list[tuple[str, bytes | None]] | None]] = [
    (b"k", b"v", 1, None),
    (b"", b"", 1_700_000_000_000, []),
    (None, None, LATEST, [("", b"")]),
    (b"\0k\0", b"\0", 2, [("a", None), ("a", b""), ("a", b"\0\xff"), ("", None)]),
    (b"\xff", b"\xff" * 70_000, 3, [("ünïcode \U0001f426", b"x" * 5000), (OWN[0], b"another's"), ("\n", b"v")]),
    (b"now", b"", None, [("last", b"1")]),
]


def test_keys_values_timestamps_and_headers_arrive_as_they_were(broker: Broker) -> None:
    """Nulls, empty and doubled ones too. A null timestamp is the time of writing."""
    create_topic(broker.bootstrap, "bytes-out", 1, **{"message.timestamp.after.max.ms": str(2**62)})
    headers = [None if row[3] is None else [{"key": k, "value": v} for k, v in row[3]] for row in ROWS]
    rows = pa.RecordBatch.from_pydict(
        {
            "key": pa.array([row[0] for row in ROWS], pa.binary()),
            "value": pa.array([row[1] for row in ROWS], pa.binary()),
            "timestamp": pa.array([row[2] for row in ROWS], pa.int64()),
            "headers": pa.array(headers, HEADERS),
        }
    )
    transaction = Transaction(ClientSettings({"bootstrap.servers": broker.bootstrap}), "bytes.0", "write")
    transaction.init()
    before = round(time.time() * 1000)
    with transaction:
        transaction.produce_rows("bytes-out", rows, partition=0, header=OWN)
    found = read_all(broker.bootstrap, "bytes-out")
    assert [(r.key, r.value) for r in found] == [row[:2] for row in ROWS]
    assert [r.timestamp for r in found[:-1]] == [row[2] for row in ROWS[:-1]]
    assert before <= found[-1].timestamp <= round(time.time() * 1000)
    assert [list(r.headers) for r in found] == [
        [*((k, v) for k, v in row[3] or [] if k != OWN[0]), OWN] for row in ROWS
    ]
