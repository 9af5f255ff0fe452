"""Checks whether a batch can go on, and ends a publication that cannot.

`doctor/observed_state.py` gathers the facts, `protocol/obstacle.py` decides, and this module acts.
"""

from __future__ import annotations

from fencepost.doctor.observed_state import observed_state
from fencepost.ledger.deployment import Deployment
from fencepost.model import Batch, Decision, Interval, State
from fencepost.outputs.output import output_of
from fencepost.protocol.decisions import is_carried_out
from fencepost.protocol.obstacle import AbandonedPublication, ObservedState, is_unseen, obstacle


def check_can_go_on(deployment: Deployment, batch: Batch) -> ObservedState:
    """Checks that the batch can go on, and restores lost marks of its publication. Returns the observed state.

    A refusal by Kafka is not an obstacle for this check, because the publication is tried again.

    Raises:
        TopicRecreated, SourceDataExpired, NeedsOperator, KafkaUnavailable, WriteFailed: the batch cannot go on.
    """
    found = observed_state(deployment, batch)
    stopped = obstacle(batch, found)
    if stopped is not None and (stopped.lasting or stopped.cure):
        raise stopped.error(batch)
    offsets = output_of(deployment, batch).offsets
    if batch.state is State.PUBLISHING and offsets is not None and offsets.restore_marks(batch, found):
        return observed_state(deployment, batch)
    return found


def give_up_if_stopped(
    deployment: Deployment, interval: Interval, decision: Decision | None
) -> AbandonedPublication | None:
    """Gives up the interval's publication for an operator's request. Returns None if the publication can go on or is
    committed, or if there is none.

    A publication of which readers see nothing is given up in any case. Any other publication goes on if it can, because
    readers may see its records.

    Raises:
        Overtaken: the decision answers a question about an earlier state of the batch.
        TableUnavailable, TableRefused, AccessDenied: the output does not answer, although giving up needs its answer.
    """
    view = deployment.ledger.read()
    batch = view.last(interval)
    if is_carried_out(view, interval, decision) or batch is None or batch.state is not State.PUBLISHING:
        return None
    if not is_unseen(batch):
        found = observed_state(deployment, batch)
        return give_up(deployment, batch, found) if obstacle(batch, found) is not None else None
    return give_up(deployment, batch, ObservedState())


def give_up(deployment: Deployment, batch: Batch, found: ObservedState) -> AbandonedPublication | None:
    """Ends a publication so that no attempt publishes more of the batch. Returns None if the whole publication is
    committed.
    """
    return output_of(deployment, batch).give_up(batch, found)
