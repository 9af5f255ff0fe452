"""Decides which records remain in an interval's quarantine, and when they may be replayed. Pure.

    batch      published                      quarantines the records that fail
    addition   published, adds to the batch   replays all of these: publishes those that pass now, quarantines those that fail
    addition   published, adds to the batch   replays all that the first addition has quarantined

So a batch and its published additions form a chain. The records that remain in quarantine are those of the newest link,
and each link replays all records of its predecessor. Therefore no record passes twice: a record is withheld with all of
its rows (`rows/whole_records.py`), and a result row is replayed by itself. An addition replaces nothing and moves no
source offsets. Once a new revision of the batch is published, it supersedes the batch and its additions.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from fencepost.errors import DEFECT, NotRecorded, SourcesChanged, TransitionRefused
from fencepost.model import MALFORMED, Batch, Interval, Replayed, State
from fencepost.protocol.advice import go_on
from fencepost.protocol.view import PASSED, View

UNDER_WAY = {State.PLANNED, State.WRITTEN, State.PUBLISHING}


def is_under_way(batch: Batch) -> bool:
    """Returns whether the batch is an unfinished addition. A request for a replay finishes such an addition, so a
    retried request makes no second addition.
    """
    return batch.adds_to is not None and batch.state in UNDER_WAY


def newest_link(view: View, interval: Interval) -> Batch | None:
    """Returns the last published batch or addition of the interval. Returns None if the interval is not published or
    was never planned.
    """
    planned = view.revisions.get(interval)
    return planned.link if planned else None


def require_link(view: View, interval: Interval) -> Batch:
    """Returns the link of an interval. The interval has to be published, because an addition to it is under way.

    Raises:
        NotRecorded: the interval is not published.
    """
    link = newest_link(view, interval)
    if link is None:
        raise NotRecorded(f"interval {interval} is not published, though there is an addition to it. {DEFECT}")
    return link


@dataclass(frozen=True)
class CurrentSources:
    """The sources that a pipeline has now, as far as a replay depends on them: their topics, and whether a row may come from
    several records (`Pipeline.replays_results_only`).
    """

    topics: frozenset[str]
    results_only: bool = False


def left_to_replay(link: Batch, *, results_only: bool = False) -> int:
    """Returns the number of quarantined records of a link that can be replayed. All of them can, or only result rows
    (`Pipeline.replays_results_only`). A source record alone would give such a transform nothing to join it with, and would
    count as replayed.
    """
    written = link.written
    if written is None:
        return 0
    kept = written.quarantined.get(MALFORMED, 0) - written.unreadable_results if results_only else 0
    return written.quarantined_tally.rows - kept


def can_be_replayed(view: View, interval: Interval, sources: CurrentSources) -> bool:
    """Returns whether a replay has something to do in the interval. It has if records remain, or if an addition is
    under way.
    """
    try:
        link = link_to_replay(view, interval, "", sources)
    except (TransitionRefused, SourcesChanged):
        return False
    return link is not None or is_under_way(view.known(interval).last)


def replayed(link: Batch) -> Replayed:
    """Returns the records that the next addition takes from quarantine. An addition takes all records that this link
    has quarantined.
    """
    return Replayed(batch=str(link.id), tally=link.require_written.quarantined_tally, attempt=link.plan.attempt + 1)


def link_to_replay(view: View, interval: Interval, pipeline: str, sources: CurrentSources) -> Batch | None:
    """Returns the link whose records a new addition replays. Returns None if an addition is under way or no records
    remain.

    Raises:
        TransitionRefused: the interval is not published, or a new revision of its batch is under way.
        SourcesChanged: see `check_reads`.
    """
    planned = view.revisions.get(interval)
    if planned is None:
        raise TransitionRefused(
            f"pipeline {pipeline}: interval {interval} was never planned, so it has nothing in quarantine. "
            f"{interval.command('run', pipeline)} processes it; `fencepost quarantine {pipeline}` lists intervals to replay."
        )
    if is_under_way(planned.last):
        return None
    newest, link = planned.last_batch, newest_link(view, interval)
    if link is None:
        raise TransitionRefused(
            f"batch {newest.id} is {newest.state}: only a published interval's records can be replayed. "
            f"{_instead(newest)}"
        )
    if newest.state not in PASSED:
        raise TransitionRefused(
            f"batch {newest.id}, a new revision of the interval, is {newest.state}. Once published, it replaces the published "
            f"revision and its quarantine. {go_on(newest)} finishes it; replay afterwards."
        )
    if not left_to_replay(link, results_only=sources.results_only):
        return None
    check_reads(view, interval, sources.topics)
    return link


def check_reads(view: View, interval: Interval, topics: Collection[str]) -> None:
    """Checks that a pipeline that reads these topics can replay the records of the interval's batch.

    Raises:
        SourcesChanged: the batch has a topic that the pipeline no longer reads.
    """
    batch = view.known(interval).in_force
    if gone := [one for one in batch.plan.source_topics if one not in topics]:
        raise SourcesChanged(
            f"batch {batch.id} was planned with topic {gone[0]}, which the pipeline no longer reads, so its quarantined records "
            "cannot be replayed. Add the source to pipeline.yaml to replay them."
        )


def _instead(batch: Batch) -> str:
    if batch.state is State.SKIPPED:
        return f"{batch.command('run', '--reprocess')} writes it again, and publishes it if it passes."
    return f"{go_on(batch)} finishes it."
