"""Whether a batch can go on, and the end of a publication that cannot.

`preflight/found.py` gathers the facts, `protocol/obstacle.py` decides what they mean, and here it is acted on.
"""

from __future__ import annotations

from fencepost.ledger.ledger import Ledger
from fencepost.model import Batch, Decision, Interval, State
from fencepost.outputs.output import output_of
from fencepost.preflight.found import found_of
from fencepost.protocol.decisions import is_carried_out
from fencepost.protocol.obstacle import Found, GivenUp, obstacle


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
    if batch.state is State.PUBLISHING and output_of(ledger, batch).mend(batch, found):
        return found_of(ledger, batch)
    return found


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
    """End a publication that cannot go on, so that no attempt publishes any more of it; None where all of it is there."""
    return output_of(ledger, batch).give_up(batch, found)
