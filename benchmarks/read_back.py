"""What a `read_committed` consumer finds in a topic: how many records, and the sum of their hashes.

Each partition is read by a process of its own: in one process the reading takes longer than the jobs it checks.
"""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from zlib import crc32

from confluent_kafka import Consumer, KafkaError, TopicPartition

from benchmarks.data import log
from fencepost.garbage_collector import without_collector

PROCESSES = 2
TIMEOUT = 600.0  # seconds
Contents = tuple[int, int]  # number of records, and the sum of their hashes


def contents(
    bootstrap: str, topic: str, partitions: int, *, values: bool = True, header: tuple[str, bytes] | None = None
) -> Contents:
    """A topic's committed records, by their keys and, if asked for, values.

    Raises:
        RuntimeError: a record lacks the header, or the topic could not be read to its end.
    """
    read = partial(contents_of, bootstrap, topic, values=values, header=header)
    with ProcessPoolExecutor(PROCESSES, get_context("spawn")) as pool:
        found = list(pool.map(read, range(partitions)))
    return sum(rows for rows, _ in found), sum(total for _, total in found)


def contents_of(
    bootstrap: str, topic: str, partition: int, *, values: bool = True, header: tuple[str, bytes] | None = None
) -> Contents:
    """The same of one partition.

    Raises:
        RuntimeError: as of the topic.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "benchmark",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.queue.backoff.ms": 10,  # by default it waits a second whenever 100,000 records wait to be taken
        },
        logger=log,
    )
    rows = total = 0
    deadline = time.monotonic() + TIMEOUT
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        with without_collector():
            while True:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{topic}-{partition} could not be read to its end in {TIMEOUT:.0f} s")
                for message in consumer.consume(10_000, 1.0):
                    if (error := message.error()) is not None:
                        if error.code() == KafkaError._PARTITION_EOF:
                            return rows, total
                        continue  # librdkafka goes on after any other
                    if header is not None and message.headers() != [header]:
                        raise RuntimeError(f"{topic}: a record has the headers {message.headers()}, not {header}")
                    rows += 1
                    total += crc32(message.value() if values else b"", crc32(message.key()))
    finally:
        consumer.close()
