"""What is left in an interval's quarantine, and when it may be replayed; pure.

    batch      published                      quarantines what failed
    addition   published, adds to the batch   takes all of that; publishes what passes now, quarantines what fails again
    addition   published, adds to the batch   takes all of that

So a batch and its published additions are a chain. What is left of the interval is what the newest link has quarantined, and each
link takes all that its predecessor has left. Therefore nothing passes twice: a record was withheld with all of its rows
(`rows/whole_records.py`), and a result is a row by itself. An addition replaces nothing and moves no source
offsets. A new revision of the batch, once published, supersedes the batch and its additions.
"""

from __future__ import annotations

from fencepost.errors import DEFECT, NotRecorded, TransitionRefused
from fencepost.model import Batch, Interval, Replayed, State
from fencepost.protocol.advice import go_on
from fencepost.protocol.view import PASSED, View

UNDER_WAY = {State.PLANNED, State.WRITTEN, State.PUBLISHING}


def is_under_way(batch: Batch) -> bool:
    """Whether it is an addition that a request for a replay finishes, so that a retried request makes one addition, not two."""
    return batch.adds_to is not None and batch.state in UNDER_WAY


def newest_link(view: View, interval: Interval) -> Batch | None:
    """The interval's link; None also if it was never planned."""
    planned = view.revisions.get(interval)
    return planned.link if planned else None


def known_link(view: View, interval: Interval) -> Batch:
    """The same of an interval that is published, as it is while an addition to it is under way.

    Raises:
        NotRecorded: it is not.
    """
    link = newest_link(view, interval)
    if link is None:
        raise NotRecorded(f"interval {interval} is not published, though there is an addition to it. {DEFECT}")
    return link


def left_to_replay(link: Batch) -> int:
    """How many records a link has quarantined: all of them can be replayed."""
    return 0 if link.written is None else link.written.quarantined_tally.rows


def can_be_replayed(view: View, interval: Interval) -> bool:
    """Whether a replay has something to do in the interval: records are left, or an addition is under way."""
    try:
        link = link_to_replay(view, interval, "")
    except TransitionRefused:
        return False
    return link is not None or is_under_way(view.known(interval).last)


def replayed(link: Batch) -> Replayed:
    """What the next addition takes from quarantine: all that this link sent there."""
    return Replayed(batch=str(link.id), tally=link.known_written.quarantined_tally, attempt=link.plan.attempt + 1)


def link_to_replay(view: View, interval: Interval, pipeline: str) -> Batch | None:
    """The link that a new addition takes its records from; None if none has to be planned: one is under way, or nothing is left.

    Raises:
        TransitionRefused: the interval is not published, or a new revision of its batch is under way.
    """
    planned = view.revisions.get(interval)
    if planned is None:
        raise TransitionRefused(
            f"pipeline {pipeline}: interval {interval} was never planned, so it has nothing in quarantine. "
            f"{interval.command('run', pipeline)} processes it; `fencepost quarantine {pipeline}` lists what can be replayed."
        )
    if is_under_way(planned.last):
        return None
    newest, link = planned.last_batch, newest_link(view, interval)
    if link is None:
        raise TransitionRefused(
            f"batch {newest.id} is {newest.state}: only the quarantined records of a published interval are replayed. "
            f"{_instead(newest)}"
        )
    if newest.state not in PASSED:
        raise TransitionRefused(
            f"batch {newest.id}, a new revision of the interval, is {newest.state}. Once it is published, it replaces what is "
            f"published now, with its quarantine. {go_on(newest)} finishes it; replay afterwards."
        )
    return link if left_to_replay(link) else None


def _instead(batch: Batch) -> str:
    if batch.state is State.SKIPPED:
        return f"{batch.command('run', '--reprocess')} writes it again, and publishes it if it passes."
    return f"{go_on(batch)} finishes it."
