"""How far the source is processed and how far the output is validated: the ends of unbroken runs of batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from fencepost.model import Batch, OffsetRange, PlannedOutput, State, TopicOutput
from fencepost.protocol.view import PASSED, View

Place = tuple[str, int]  # a topic, and a partition of it


def of_topic(ends: Mapping[Place, int], topic: str) -> dict[int, int]:
    """The ends in one topic, by partition."""
    return {partition: end for (name, partition), end in sorted(ends.items()) if name == topic}


def frontier(view: View) -> Mapping[Place, int]:
    """Per source partition, the end of the longest unbroken run of published or skipped batches.

    The run begins at the anchor, so planning an earlier interval moves nothing. Withdrawing a former anchor moves nothing
    either. A batch with an empty range in a partition does not break that partition's run.
    """
    return view.once(_frontier)


def _frontier(view: View) -> Mapping[Place, int]:
    ends: dict[Place, int] = {}
    broken: set[Place] = set()
    for batch in view.run:
        for place, part in _parts(batch):
            if place in broken:
                continue
            if batch.state in PASSED:
                ends[place] = part.end
            elif part.length:
                broken.add(place)
                ends.setdefault(place, part.start)
    for batch in _former_anchors(view):
        for place, part in _parts(batch):
            if place in ends:
                ends[place] = max(part.start, ends[place])
    return MappingProxyType(ends)


def accounted_for(view: View) -> dict[Place, int]:
    """Per source partition, the furthest committed offset that the ledger can explain.

    That is the frontier. In a partition that only withdrawn batches have, it is where the frontier may have stood before
    the withdrawal.
    """
    ends: dict[Place, int] = {}
    for batch in view.all():
        if batch.state is State.WITHDRAWN:
            for place, part in _parts(batch):
                ends[place] = max(part.start, ends.get(place, 0))
    return {**ends, **frontier(view)}


def _parts(batch: Batch) -> Iterator[tuple[Place, OffsetRange]]:
    """The range it reads in each partition of its sources."""
    for source in batch.plan.sources:
        for part in source.ranges:
            yield (source.topic, part.partition), part


def _former_anchors(view: View) -> list[Batch]:
    """The withdrawn batches that were planned before the anchor: the frontier may have started there."""
    anchor = view.anchor
    if anchor is None:
        return []
    return [b for b in view.all() if b.state is State.WITHDRAWN and view.order(b) < view.planned_first(anchor)]


def holding_back(view: View) -> Batch | None:
    """The batch that holds the frontier back: the first one of the run that has offsets and is not published or skipped.

    None if no finished batch waits behind it, unless it is rejected.
    """
    run = view.run
    for position, batch in enumerate(run):
        if batch.state not in PASSED and not batch.plan.is_empty:
            return (
                batch if any(b.state in PASSED for b in run[position + 1 :]) or batch.state is State.REJECTED else None
            )
    return None


def validated_ends(view: View) -> dict[Place, int]:
    """Per output partition, the end of the output of the unbroken run from the anchor on.

    Only offsets in the present output topic count, which is the newest plan's. Offsets in a topic that was deleted, or that
    the pipeline no longer writes to, mean nothing there.
    """
    ends: dict[Place, int] = {}
    newest = max(view.all(), key=view.order, default=None)
    for batch in view.run:
        if batch.state not in PASSED and not batch.plan.is_empty:
            break
        here = newest is not None and _same_topic(batch.plan.output, newest.plan.output)
        output = batch.published
        # An empty batch may still be withdrawn.
        if batch.state is State.PUBLISHED and output is not None and not batch.plan.is_empty and here:
            for partition, end in enumerate(output.ends):
                place = output.topic, partition
                ends[place] = max(end, ends.get(place, 0))
    return ends


def _same_topic(one: PlannedOutput, other: PlannedOutput) -> bool:
    return isinstance(one, TopicOutput) and isinstance(other, TopicOutput) and one.topic_id == other.topic_id
