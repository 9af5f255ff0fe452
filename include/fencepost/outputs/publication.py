"""Who copies a staged batch to its output, and what readers see of the copy."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from fencepost.kafka.staged import read_published
from fencepost.kafka.writers import Writers
from fencepost.ledger.ledger import Ledger
from fencepost.model import AnyPublication, Batch, Tally, between
from fencepost.protocol.view import View
from fencepost.spark.writer import added

# How the publication of a batch begins, and the records of its end: the seconds that it took, and the present time.
Begin = Callable[[View, Batch], AnyPublication]
Record = Callable[[View, float, datetime], tuple[Batch, ...]]

# A publication goes on as it began: what the settings say now is for those that begin later.
SHORTER = ", and lower output.atomic_megabytes for batches whose publication begins later"


def publication_writers(ledger: Ledger, batch: Batch) -> Writers:
    """Who may copy a batch that is being published."""
    pipeline, publication = ledger.pipeline, batch.copy_to_topic
    tasks = range(publication.tasks)
    return Writers(
        settings=ledger.settings,
        batch=str(batch.id),
        ledger=publication.ledger,
        lease=publication.known_lease,
        group=pipeline.publisher_group(publication.lane),
        transactional_ids=tuple(pipeline.publisher_id(publication.lane, t) for t in tasks),
        marks=tuple((batch.plan.topic.topic, t, 0) for t in tasks),
        opened=True,
        failpoint="publish",
        shorter=SHORTER if publication.atomic else "",
    )


def seen_in_output(ledger: Ledger, batch: Batch, task: int) -> Tally:
    """What readers see in the output of a task-partition of the copy, all of it or nothing; waits for open transactions.

    Sound while nobody else can commit under the task-partition's id.

    Raises:
        OpenTransaction: another producer's open transaction hides part of the output.
    """
    publication, limit = batch.copy_to_topic, ledger.pipeline.quality.open_transaction_wait_seconds
    topic = ledger.cluster.describe(publication.begun.topic)
    ends = ledger.cluster.high_watermarks(topic)
    doing = f"batch {batch.id}: looking for what is copied"
    ledger.cluster.await_stable(topic, ends, limit, doing)
    ranges = between(publication.begun, publication.begun.model_copy(update={"ends": tuple(ends)}))
    own = ranges if publication.atomic else [r for r in ranges if r.partition == task]
    found = Tally()
    for rows in read_published(ledger.settings, ledger.pipeline.group, own, str(batch.id)):
        found = added(found, rows)
    return found
