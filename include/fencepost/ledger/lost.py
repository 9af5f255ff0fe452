"""Whether the ledger is all that was recorded, or was lost, in whole or its newest part: deleted, or restored from an old copy.

What knows better: the group that only publications move, in one transaction with the ledger, whose offsets expire in a week;
and the output's own records, whose header names their batch, as long as the topic keeps them. Where both are gone, nothing in
Kafka tells a lost ledger from a new pipeline's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NoReturn, cast

from confluent_kafka import TopicPartition

from fencepost.errors import LedgerLost, WriterFenced
from fencepost.kafka.clients import make_consumer
from fencepost.kafka.cluster import Topic
from fencepost.kafka.offsets import committed_offsets, read_until
from fencepost.ledger.ledger import Ledger
from fencepost.model import BATCH_HEADER
from fencepost.protocol.frontier import Place, accounted_for
from fencepost.protocol.view import View

LOOKED_AT = 1000  # of the newest offsets of each output partition; markers and other pipelines' records are among them

Committed = Mapping[Place, TopicPartition]

ADVICE = (
    "The ledger was lost, or its newest records were, and planning anew would write again what is published. Stop the pipeline's "
    "runs and restore the ledger from a copy that has them. Without one, give the pipeline a new name: rename its folder. Set "
    "schedule.start to where this one ended, to go on; or leave it and name another output.topic, to begin anew."
)


def check_not_lost(ledger: Ledger, view: View, source: Topic, written: Callable[[], Iterable[str]]) -> None:
    """Look for what the ledger does not know of; asked before it plans anything.

    `written` are the batches that the newest records of the output name. They are asked for where nothing was planned in this
    ledger topic yet: it is new, or a copy.

    Raises:
        LedgerLost: there is something.
        WriterFenced: another run recorded something since the ledger was read.
    """
    pipeline = ledger.pipeline
    asked = [TopicPartition(source.name, p) for p in range(source.partitions)]
    have = committed_offsets(ledger.settings, pipeline.group, asked, f"reading offsets of group {pipeline.group}")
    check_accounted_for(ledger, view, view, source.name, have)
    if any(batch.plan.ledger_topic_id == ledger.topic_id for batch in view.all()):
        return
    known = {str(batch.id) for batch in view.all()}
    newest = max((batch for batch in written() if batch not in known), default=None)
    if newest is not None:
        _lost(ledger, view, f"topic {pipeline.output.topic} has records of its batch {newest}")


def check_accounted_for(ledger: Ledger, read: View, after: View, topic: str, have: Committed) -> None:
    """The group's offsets do not lie ahead of the ledger: `after` it is changed, if it is about to be.

    Offsets that are missing or lie behind prove nothing: they expire, and somebody may set them back. `read` is the ledger as
    it was decided on, read before the offsets were.

    Raises:
        LedgerLost, WriterFenced: as above.
    """
    known = accounted_for(after)
    ahead = {p: tp.offset for (t, p), tp in sorted(have.items()) if t == topic and tp.offset > known.get((t, p), -1)}
    if not ahead:
        return
    group = ledger.pipeline.group
    told = ", ".join(f"partition {p}: {o}" for p, o in ahead.items())
    found = f"group {group} has offsets of topic {topic} ({told})"
    if not read.batches:
        _lost(ledger, read, found)
    back = ", ".join(f"{topic}:{p} to {known.get((topic, p), 0)}" for p in ahead)
    _lost(
        ledger,
        read,
        f"{found} that it does not account for",
        f" If somebody set these offsets by hand, and only then, set them back: {back} (kafka-consumer-groups.sh --group {group} "
        "--reset-offsets).",
    )


def _lost(ledger: Ledger, read: View, found: str, more: str = "") -> NoReturn:
    """Raise LedgerLost, or WriterFenced where another run has recorded something meanwhile."""
    pipeline = ledger.pipeline
    if ledger.read() != read:
        raise WriterFenced(f"pipeline {pipeline.name}: another run changed the ledger while this one decided.")
    is_empty = "is empty" if not read.batches else "is incomplete"
    raise LedgerLost(
        f"pipeline {pipeline.name}: its ledger {pipeline.ledger_topic} {is_empty}, and {found}. {ADVICE}{more}"
    )


def newest_batches(ledger: Ledger, output: Topic) -> Iterator[str]:
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
