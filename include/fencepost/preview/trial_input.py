"""The input of a trial: the newest records of each source, or the records of an interval's batch. The batch may be
planned or not.
"""

from __future__ import annotations

from dataclasses import dataclass

from fencepost.errors import SettingsError, SourcesChanged
from fencepost.kafka.sample import allot, take_newest
from fencepost.ledger.deployment import Deployment
from fencepost.model import Interval, OffsetRange
from fencepost.protocol.look_back import ranges_before
from fencepost.protocol.planning import Neighbours, SourceFacts, check_source_topics, starts_of
from fencepost.protocol.ranges import frozen_ranges, without_expired
from fencepost.protocol.view import View
from fencepost.steps.plan import source_facts, sources_of

MOST_RECORDS = 100_000  # of each source


@dataclass(frozen=True)
class TrialInput:
    """The ranges that a trial reads. `whole` says that they are the interval's whole batch. `frozen` says that they
    come from a plan. `refused` is why a run would plan no batch without a person's word. It is empty if a run would.

    A source of the pipeline without a range is one that the interval does not read. `looked_back` are the ranges of earlier
    intervals that the transform gets again.
    """

    ranges: tuple[OffsetRange, ...]
    looked_back: tuple[OffsetRange, ...] = ()
    interval: Interval | None = None
    whole: bool = False
    frozen: bool = False
    refused: str = ""


def newest(deployment: Deployment, records: int) -> TrialInput:
    """Returns the ranges of the newest records of each source. `records` is the number of records of one source, in all
    partitions together.
    """
    pipeline, ranges = deployment.pipeline, list[OffsetRange]()
    for name in pipeline.source_topics:
        topic = deployment.cluster.describe(name)
        sample = take_newest(deployment.cluster, topic, pipeline.group, min(records, MOST_RECORDS))
        begins = dict(enumerate(sample.ends))
        for one in reversed(sample.records):
            begins[one.partition] = one.offset
        ranges += [OffsetRange(topic=name, partition=p, start=begins[p], end=e) for p, e in enumerate(sample.ends)]
    return TrialInput(tuple(ranges))


def of_interval(deployment: Deployment, interval: Interval) -> TrialInput:
    """Returns the ranges of the interval's batch, limited to `MOST_RECORDS` offsets of each source. If the batch is not
    planned, these are the ranges that a plan would freeze now.

    Raises:
        SourcesChanged: no run can plan the interval's batch with the pipeline's sources.
    """
    pipeline, view = deployment.pipeline, deployment.ledger.peek()
    near = Neighbours.of(view, interval, pipeline.source_topics)
    refused = ""
    try:
        check_source_topics(
            view,
            interval,
            pipeline.name,
            near,
            tuple(pipeline.source_topics),
            confirmed=False,
        )
    except SourcesChanged as error:
        if near.own is not None or near.after is not None:
            raise
        refused = str(error)
    ranges, again, whole = list[OffsetRange](), list[OffsetRange](), True
    for source in sources_of(pipeline, near):
        facts = source_facts(deployment, near, interval, source)
        of_topic, is_whole = _of_source(near, facts, interval)
        looked_back, sees_all = _looked_back(view, near, facts, interval)
        ranges += of_topic
        again += looked_back
        whole = whole and is_whole and sees_all
    frozen = near.own is not None
    return TrialInput(tuple(ranges), tuple(again), interval, whole=whole, frozen=frozen, refused=refused)


def _looked_back(
    view: View, near: Neighbours, facts: SourceFacts, interval: Interval
) -> tuple[tuple[OffsetRange, ...], bool]:
    """Returns the ranges that the source looks back at in the trial, the newest ones, and whether they are all that the batch
    looks back at.
    """
    if facts.lookback is None:
        return (), True
    begins = interval.start
    if near.own is not None:
        begins = (near.own.plan.also_covers or interval).start
    elif near.before is not None:
        begins = near.before.interval.end
    covered = Interval(start=begins, end=interval.end)
    planned = ranges_before(view, covered, facts.topic, facts.lookback, facts.partitions)
    ranges, _ = without_expired(planned, facts.begins)
    share = allot(MOST_RECORDS, [one.length for one in ranges])
    cut = tuple(one.model_copy(update={"start": one.end - n}) for one, n in zip(ranges, share, strict=True))
    return cut, cut == planned


def _of_source(near: Neighbours, facts: SourceFacts, interval: Interval) -> tuple[tuple[OffsetRange, ...], bool]:
    """Returns the ranges of a source that the trial reads, and whether they are all that the batch reads of it."""
    if near.own is not None:
        ranges = near.own.plan.input_of(facts.topic).ranges
    else:
        starts = starts_of(near, facts)
        ranges = frozen_ranges(interval, facts.topic, starts, near.after, facts.stable, facts.by_end)
    ranges, expired = without_expired(ranges, facts.begins)
    share = allot(MOST_RECORDS, [one.length for one in ranges])
    cut = tuple(one.model_copy(update={"end": one.start + n}) for one, n in zip(ranges, share, strict=True))
    return cut, cut == ranges and not expired


def check_records(last: int) -> None:
    """Checks that the option --last is within its bounds."""
    if not 1 <= last <= MOST_RECORDS:
        raise SettingsError(f"--last {last}: allowed are 1 to {MOST_RECORDS:,}.")
