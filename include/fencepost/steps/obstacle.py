"""Whether a batch can go on, and the end of a publication that cannot.

`preflight/found.py` gathers the facts, `protocol/obstacle.py` decides what they mean, and here it is acted on.
"""

from __future__ import annotations

import logging

from fencepost.errors import Superseded
from fencepost.ledger.ledger import Ledger
from fencepost.model import Batch, Decision, Interval, Receipt, State
from fencepost.outputs.publication import publication_writers, seen_in_output
from fencepost.preflight.found import found_of
from fencepost.protocol.decisions import is_carried_out
from fencepost.protocol.obstacle import Found, GivenUp, is_whole, obstacle
from fencepost.protocol.publication import opening_marks

log = logging.getLogger("fencepost.steps.obstacle")


def check_can_go_on(ledger: Ledger, batch: Batch) -> Found:
    """Check that nothing keeps the batch from going on; return what it finds, with all marks of its publication.

    What Kafka has refused to take is tried again.

    Raises:
        TopicRecreated, SourceDataExpired, NeedsOperator, KafkaUnavailable, WriteFailed: something does.
    """
    found = found_of(ledger, batch)
    stopped = obstacle(batch, found)
    if stopped is not None and (stopped.lasting or stopped.cure):
        raise stopped.error(batch)
    if None not in found.marks:
        return found
    _restore_marks(ledger, batch, found)
    return found_of(ledger, batch)


def give_up_if_stopped(ledger: Ledger, interval: Interval, decision: Decision | None) -> GivenUp | None:
    """Give the interval's publication up if it cannot go on, for what an operator asked for; None where it can, or there is none.

    Raises:
        Overtaken: the decision answers a question about the batch as it was.
    """
    view = ledger.read()
    batch = view.last(interval)
    if is_carried_out(view, interval, decision) or batch is None or batch.state is not State.PUBLISHING:
        return None
    found = found_of(ledger, batch)
    return give_up(ledger, batch, found) if obstacle(batch, found) is not None else None


def give_up(ledger: Ledger, batch: Batch, found: Found) -> GivenUp | None:
    """End a publication that cannot go on, so that no attempt copies any more of it; None where all of it is copied after all.

    1. marks that are gone are written anew, from what readers see;
    2. every task-partition gets a mark of the publication, an empty one where none of it has committed;
    3. what had committed is counted: readers may have seen it.

    Where the output topic is gone, its marks went with it. An attempt that comes late misses them, and stops.
    """
    publication, writers, written = batch.known_publication, publication_writers(ledger, batch), batch.known_written
    tasks = range(publication.tasks)
    known = publication.ledger == found.ledger_topic_id and publication.begun.topic_id == found.output_topic_id
    if not found.output_topic_id:
        for task in tasks:
            writers.fence(task)
        receipts: list[Receipt] = []
    else:
        if known and None in found.marks:
            known = not found.untold
            if known:
                _restore_marks(ledger, batch, found)  # 1
        receipts = [writers.close(task) for task in tasks]  # 2
    if known and is_whole(batch, receipts):
        return None
    seen = sum(r.tally(batch.plan.output.topic).rows for r in receipts) if known else written.rows  # 3
    log.info("batch %s: its publication is given up after %d of %d records", batch.id, seen, written.rows)
    return GivenUp(lease=publication.known_lease, seen=seen)


def _restore_marks(ledger: Ledger, batch: Batch, found: Found) -> None:
    """Write the marks anew that are gone: an expired or deleted group had them. What they said, the output tells."""
    publication, topic = batch.known_publication, batch.plan.output.topic
    writers = publication_writers(ledger, batch)

    def stood_for(task: int) -> Receipt:
        view = ledger.read()
        now = view.last(batch.interval)
        if now is None or now.publication_under(publication.known_lease) is None:
            raise Superseded(
                f"batch {batch.id}: its publication has ended meanwhile, so nothing of it is copied any more."
            )
        seen = seen_in_output(ledger, batch, task)
        log.warning("batch %s: mark %d is gone; its output has %d records of it", batch.id, task, seen.rows)
        if not seen.rows:
            return opening_marks(view, publication)[task]
        return Receipt(task=task, ledger=publication.ledger, lease=publication.known_lease, topics={topic: seen})

    for task in (task for task, mark in enumerate(found.marks) if mark is None):
        writers.restore(task, stood_for)
