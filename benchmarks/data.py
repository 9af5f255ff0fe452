"""Records to measure with: like real ones, which a compressor halves, and the same in every run."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from io import BytesIO
from itertools import cycle, repeat

import fastavro
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import Producer

from fencepost.model import Interval, OffsetRange

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = Interval.of(START, START + timedelta(days=1))
BLOCK = 10_000  # rows made at a time, and rows of an Arrow batch: what Spark hands a Python worker
KEYS = 100_000  # different ones
NAMES = "customer_id order_status created_by warehouse shipping_to promotion reference carrier_code".split()
LETTERS = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-", np.uint8)

Block = tuple[list[bytes], list[bytes]]  # keys, values
log = logging.getLogger("benchmarks.librdkafka")
log.setLevel(logging.CRITICAL)  # what goes wrong is raised; a new broker's retries are no news


@dataclass(frozen=True)
class Source:
    """A filled topic: what it holds and where it lies."""

    topic: str
    rows: int
    ranges: tuple[OffsetRange, ...]


def texts(rows: int, size: int, seed: int = 1) -> Iterator[Block]:
    """Blocks of records with values of exactly `size` bytes: JSON of fixed names, and random letters for their values."""
    random = np.random.default_rng(seed)
    template, free = _template(size)
    for start in range(0, rows, BLOCK):
        count = min(BLOCK, rows - start)
        matrix: npt.NDArray[np.uint8] = np.broadcast_to(template, (count, size)).copy()
        matrix[:, free] = LETTERS[random.integers(0, len(LETTERS), (count, len(free)), dtype=np.uint8)]
        raw = matrix.tobytes()
        keys = [b"key-%08d" % key for key in random.integers(0, KEYS, count).tolist()]
        yield keys, [raw[at : at + size] for at in range(0, len(raw), size)]


def keyed(rows: int, size: int, seed: int) -> Iterator[Block]:
    """Blocks of `texts` with each of `rows` keys once, in an order that the seed gives."""
    keys, start = np.random.default_rng(seed).permutation(rows).tolist(), 0
    for _, values in texts(rows, size, seed):
        yield [b"key-%08d" % key for key in keys[start : start + len(values)]], values
        start += len(values)


def _template(size: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.intp]]:
    """A value, and the places in it that differ from record to record."""
    text = bytearray(b"{")
    free: list[int] = []
    for name in cycle(NAMES):
        text += f'"{name}":"'.encode()
        rest = size - len(text) - len('"}')
        last = rest < 12 + len('","customer_id":"') + 12
        width = rest if last else 12
        free += range(len(text), len(text) + width)
        text += b"." * width + (b'"}' if last else b'",')
        if last:
            break
    return np.frombuffer(bytes(text), np.uint8), np.array(free, dtype=np.intp)


def orders(rows: int, seed: int = 1) -> Iterator[Block]:
    """Blocks of orders as JSON, for a pipeline with a schema and expectations."""
    random = np.random.default_rng(seed)
    countries, states = ("AT", "BE", "DE", "ES", "FR", "IT", "NL", "PL"), ("new", "paid", "sent", "returned")
    for start in range(0, rows, BLOCK):
        count = min(BLOCK, rows - start)
        columns = zip(
            range(start, start + count),
            random.integers(0, KEYS, count).tolist(),
            random.integers(0, len(countries), count).tolist(),
            random.integers(0, len(states), count).tolist(),
            random.integers(100, 100_000, count).tolist(),
            random.integers(1, 20, count).tolist(),
            random.integers(0, 30, count).tolist(),
            random.integers(0, 86_400, count).tolist(),
            strict=True,
        )
        keys, values = [], []
        for order, customer, country, state, cents, quantity, discount, second in columns:
            at = f"2026-01-01T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}Z"
            keys.append(b"%d" % order)
            values.append(
                f'{{"order_id":{order},"customer_id":{customer},"country":"{countries[country]}","currency":"EUR",'
                f'"amount":{cents / 100},"quantity":{quantity},"discount":{discount / 100},"status":"{states[state]}",'
                f'"created_at":"{at}","email":"customer{customer}@example.org"}}'.encode()
            )
        yield keys, values


def dated_orders(rows: int, *, encoded: bool) -> Iterator[Block]:
    """The same orders with a second time: their times as texts and the amount as a number, or, `encoded`, the times as
    microseconds and milliseconds since 1970 and the amount in a text.
    """
    for keys, texts_ in orders(rows):
        values = []
        for text in texts_:
            order = json.loads(text)
            created = datetime.fromisoformat(order["created_at"]) + timedelta(microseconds=order["customer_id"])
            changed = START + timedelta(milliseconds=order["order_id"] * 37 % 86_400_000)
            if encoded:
                order["amount"] = f"{order['amount']:.2f}"
                order["created_at"] = (created - EPOCH) // timedelta(microseconds=1)
                order["changed_at"] = (changed - EPOCH) // timedelta(milliseconds=1)
            else:
                order["created_at"] = f"{created:%Y-%m-%dT%H:%M:%S.%fZ}"
                order["changed_at"] = f"{changed:%Y-%m-%dT%H:%M:%S}.{changed.microsecond // 1000:03}Z"
            values.append(json.dumps(order, separators=(",", ":")).encode())
        yield keys, values


ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "order_id", "type": "long"},
        {"name": "customer_id", "type": "int"},
        *(
            {"name": name, "type": ["null", kind], "default": None}
            for name, kind in {
                "country": "string",
                "currency": "string",
                "amount": "double",
                "quantity": "int",
                "discount": "double",
                "status": "string",
                "created_at": {"type": "long", "logicalType": "timestamp-micros"},
                "email": "string",
            }.items()
        ),
    ],
}


def avro_orders(rows: int, schema_id: int) -> Iterator[Block]:
    """The same orders as Avro, behind the five bytes that name their schema."""
    schema, head = fastavro.parse_schema(json.loads(json.dumps(ORDER))), b"\0" + schema_id.to_bytes(4, "big")
    for keys, texts_ in orders(rows):
        values = []
        for text in texts_:
            order = json.loads(text)
            order["created_at"] = datetime.fromisoformat(order["created_at"])
            out = BytesIO(head)
            out.seek(len(head))
            fastavro.schemaless_writer(out, schema, order)
            values.append(out.getvalue())
        yield keys, values


CONNECT_TYPES = {
    "order_id": "int64",
    "customer_id": "int32",
    "country": "string",
    "currency": "string",
    "amount": "double",
    "quantity": "int32",
    "discount": "double",
    "status": "string",
    "created_at": "string",
    "email": "string",
}


def connect_schema() -> str:
    """The schema of the orders' envelopes, as Kafka Connect's JSON converter writes it beside each of them."""

    def fields(types: dict[str, str]) -> list[dict[str, object]]:
        return [{"type": kind, "optional": name != "order_id", "field": name} for name, kind in types.items()]

    def struct(field: str, types: dict[str, str], name: str) -> dict[str, object]:
        return {"type": "struct", "fields": fields(types), "optional": True, "name": name, "field": field}

    texts_ = dict.fromkeys("version connector name snapshot db sequence schema table".split(), "string")
    numbers = dict.fromkeys("ts_ms ts_us ts_ns txId lsn xmin".split(), "int64")
    sides = [struct(side, CONNECT_TYPES, "shop.public.orders.Value") for side in ("before", "after")]
    source = struct("source", texts_ | numbers, "io.debezium.connector.postgresql.Source")
    others = fields({"op": "string", "ts_ms": "int64", "ts_us": "int64", "ts_ns": "int64"})
    return json.dumps(
        {"type": "struct", "fields": [*sides, source, *others], "name": "shop.public.orders.Envelope", "version": 2},
        separators=(",", ":"),
    )


def enveloped_orders(rows: int, *, schemas: bool) -> Iterator[Block]:
    """The same orders as creations that Debezium captured from PostgreSQL."""
    schema, lsn = connect_schema(), 24_023_128
    for keys, values in orders(rows):
        found = []
        for lsn, value in enumerate(values, lsn + 1):  # noqa: B020
            change = (
                f'{{"before":null,"after":{value.decode()},"source":{{"version":"3.3.1.Final","connector":"postgresql",'
                f'"name":"shop","ts_ms":1767225600123,"snapshot":"false","db":"shop","sequence":"[null,\\"{lsn}\\"]",'
                f'"ts_us":1767225600123456,"ts_ns":1767225600123456000,"schema":"public","table":"orders","txId":{lsn >> 4},'
                f'"lsn":{lsn},"xmin":null}},"transaction":null,"op":"c","ts_ms":1767225600124,"ts_us":1767225600124001,'
                '"ts_ns":1767225600124001000}'
            )
            found.append((f'{{"schema":{schema},"payload":{change}}}' if schemas else change).encode())
        yield keys, found


def load(bootstrap: str, topic: str, blocks: Iterator[Block], rows: int) -> None:
    """Fill a topic with records of the day, placed by key as Kafka's own clients do.

    Raises:
        RuntimeError: not all of them were taken.
    """
    failed: list[object] = []
    settings = {
        "bootstrap.servers": bootstrap,
        "compression.type": "lz4",
        "linger.ms": 50,
        "batch.size": 500_000,
        "queue.buffering.max.messages": 200_000,
        "enable.idempotence": True,
        "partitioner": "murmur2_random",
        "delivery.report.only.error": True,
        "on_delivery": lambda error, _: failed.append(error),
    }
    producer = Producer(settings, logger=log)
    first = round(START.timestamp() * 1000)
    produced = 0
    for keys, values in blocks:
        timestamp = first + produced * 86_000_000 // rows
        for key, value in zip(keys, values, strict=True):
            while True:
                try:
                    producer.produce(topic, value, key, timestamp=timestamp)
                    break
                except BufferError:
                    producer.poll(0.01)
        produced += len(keys)
    left = producer.flush(120)
    if left or failed:
        raise RuntimeError(f"loading topic {topic}: {left} records were not taken, {len(failed)} refused: {failed[:1]}")


def arrow_batches(rows: int, size: int) -> list[pa.RecordBatch]:
    """What Spark hands the writer: key, value and the record's 64-bit hash.

    A tenth of the rows is made and repeated, which saves memory and is too far apart for a compressor to see.
    """
    random = np.random.default_rng(2)
    made = [
        pa.RecordBatch.from_pydict(
            {
                "key": pa.array(keys, pa.binary()),
                "value": pa.array(values, pa.binary()),
                "hash": pa.array(random.integers(-(2**63), 2**63 - 1, len(keys))),
            }
        )
        for keys, values in texts(max(rows // 10, BLOCK), size)
    ]
    return _repeated(made, rows)


def _repeated(batches: Sequence[pa.RecordBatch], rows: int) -> list[pa.RecordBatch]:
    found: list[pa.RecordBatch] = []
    left = rows
    for batches_again in repeat(batches):
        for batch in batches_again:
            if left <= 0:
                return found
            found.append(batch.slice(0, min(left, batch.num_rows)))
            left -= batch.num_rows
    return found
