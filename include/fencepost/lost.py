"""Whether an empty ledger is a new pipeline's, or was lost with everything in it.

What knows better: the group that only publications move, whose offsets expire in a week; and the output's own records, whose
header names their batch, as long as the topic keeps them. Where both are gone, nothing in Kafka tells the two apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from confluent_kafka import TopicPartition

from fencepost.errors import LedgerLost
from fencepost.kafka import Topic, committed_offsets, make_consumer, read_until
from fencepost.ledger import Ledger
from fencepost.model import BATCH_HEADER

LOOKED_AT = 1000  # of the newest offsets of each output partition; markers and other pipelines' records are among them

ADVICE = (
    "The ledger was lost, and planning anew would write again what is published. Stop the pipeline's runs and restore the "
    "ledger from a copy. Without one, give the pipeline a new name: rename its folder. Set schedule.start to where this one "
    "ended, to go on; or leave it and name another output.topic, to begin anew."
)


def check_not_lost(ledger: Ledger, source: Topic, output: Topic) -> None:
    """Look for what an earlier ledger of this pipeline's has left; asked only where the ledger is empty.

    Raises:
        LedgerLost: there is something.
    """
    pipeline = ledger.pipeline
    empty = f"pipeline {pipeline.name}: its ledger {pipeline.ledger_topic} is empty, and"
    asked = [TopicPartition(source.name, p) for p in range(source.partitions)]
    if committed_offsets(ledger.settings, pipeline.group, asked, f"reading offsets of group {pipeline.group}"):
        raise LedgerLost(f"{empty} group {pipeline.group} has offsets of topic {source.name}. {ADVICE}")
    newest = max(_own_batches(ledger, output), default=None)
    if newest is not None:
        raise LedgerLost(f"{empty} topic {output.name} has records of its batch {newest}. {ADVICE}")


def _own_batches(ledger: Ledger, output: Topic) -> Iterator[str]:
    """The batches of this pipeline's that the newest records of the output belong to. Their names are in order of time."""
    earliest, stable = ledger.cluster.earliest(output), ledger.cluster.last_stable(output)
    begin = {p: max(earliest[p], end - LOOKED_AT) for p, end in enumerate(stable) if end > earliest[p]}
    if not begin:
        return
    consumer, complaints = make_consumer(ledger.settings, ledger.pipeline.group)
    own = f"{ledger.pipeline.name}/".encode()
    try:
        consumer.assign([TopicPartition(output.name, p, offset) for p, offset in begin.items()])
        ends = {p: stable[p] for p in begin}
        doing = f"looking for records of pipeline {ledger.pipeline.name} in topic {output.name}"
        for message in read_until(consumer, complaints, ledger.settings, ends, doing):
            headers = dict(cast("list[tuple[str, bytes | None]]", message.headers() or []))
            batch = headers.get(BATCH_HEADER) or b""
            if batch.startswith(own):
                yield batch.decode("utf-8", "replace")
    finally:
        consumer.close()
