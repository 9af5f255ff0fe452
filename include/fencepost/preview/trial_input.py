"""The input of a trial: the newest records of the source, or the records of an interval's batch. The batch may be
planned or not.
"""

from __future__ import annotations

from dataclasses import dataclass

from fencepost.errors import SettingsError
from fencepost.kafka.sample import allot, take_newest
from fencepost.ledger.deployment import Deployment
from fencepost.model import Interval, OffsetRange
from fencepost.protocol.planning import Neighbours, starts_of
from fencepost.protocol.ranges import frozen_ranges, without_expired
from fencepost.steps.plan import source_facts

MOST_RECORDS = 100_000


@dataclass(frozen=True)
class TrialInput:
    """The ranges that a trial reads. `whole` says that they are the interval's whole batch. `frozen` says that they
    come from a plan.
    """

    ranges: tuple[OffsetRange, ...]
    interval: Interval | None = None
    whole: bool = False
    frozen: bool = False


def newest(deployment: Deployment, records: int) -> TrialInput:
    """Returns the ranges of the source's newest records. `records` is the number of records in all ranges together."""
    topic = deployment.cluster.describe(deployment.pipeline.source.topic)
    sample = take_newest(deployment.cluster, topic, deployment.pipeline.group, min(records, MOST_RECORDS))
    begins = dict(enumerate(sample.ends))
    for one in reversed(sample.records):
        begins[one.partition] = one.offset
    ranges = tuple(
        OffsetRange(topic=topic.name, partition=p, start=begins[p], end=end) for p, end in enumerate(sample.ends)
    )
    return TrialInput(ranges)


def of_interval(deployment: Deployment, interval: Interval) -> TrialInput:
    """Returns the ranges of the interval's batch, limited to `MOST_RECORDS` offsets. If the batch is not planned, these
    are the ranges that a plan would freeze now.
    """
    view = deployment.ledger.peek()
    holder = view.range_owner(interval)
    near = Neighbours.of(view, interval)
    facts = source_facts(deployment, near, interval)
    if holder is not None:
        ranges = holder.plan.ranges
    else:
        starts = starts_of(near, facts)
        ranges = frozen_ranges(interval, facts.topic, starts, near.after, facts.stable, facts.by_end)
    ranges, expired = without_expired(ranges, facts.begins)
    share = allot(MOST_RECORDS, [one.length for one in ranges])
    cut = tuple(one.model_copy(update={"end": one.start + n}) for one, n in zip(ranges, share, strict=True))
    return TrialInput(cut, interval, whole=cut == ranges and not expired, frozen=holder is not None)


def check_records(last: int) -> None:
    """Checks that the option --last is within its bounds."""
    if not 1 <= last <= MOST_RECORDS:
        raise SettingsError(f"--last {last}: allowed are 1 to {MOST_RECORDS:,}.")
