"""How far the source is dealt with, and how far the output is validated: ends of unbroken runs of batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fencepost.model import Batch, OffsetRange, State
from fencepost.protocol.view import PASSED, View, was_withdrawn

Place = tuple[str, int]  # a topic, and a partition of it


def of_topic(ends: Mapping[Place, int], topic: str) -> dict[int, int]:
    """Those of one topic, by partition."""
    return {partition: end for (name, partition), end in sorted(ends.items()) if name == topic}


def frontier(view: View) -> dict[Place, int]:
    """Per source partition, the end of the longest unbroken run of published (or skipped) batches.

    The run begins at the anchor, so planning an interval further back moves nothing; nor does withdrawing the interval
    that was the anchor once. A batch whose range of a partition is empty does not break that partition's run.
    """
    ends: dict[Place, int] = {}
    broken: set[Place] = set()
    for batch in _run(view):
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
    return ends


def accounted_for(view: View) -> dict[Place, int]:
    """Per source partition, how far the ledger accounts for committed offsets: they never lie behind this honestly.

    It is the frontier; and in a partition that no standing batch has, where the frontier may have stood before one that had it
    was withdrawn.
    """
    ends: dict[Place, int] = {}
    for batch in view.all():
        if was_withdrawn(batch):
            for place, part in _parts(batch):
                ends[place] = max(part.start, ends.get(place, 0))
    return ends | frontier(view)


def _parts(batch: Batch) -> Iterator[tuple[Place, OffsetRange]]:
    """What it reads of every partition of its sources."""
    for source in batch.plan.sources:
        for part in source.ranges:
            yield (source.topic, part.partition), part


def _former_anchors(view: View) -> list[Batch]:
    """What was withdrawn and was planned before the anchor was: the frontier may have been counted from there."""
    anchor = view.anchor
    if anchor is None:
        return []
    return [b for b in view.all() if was_withdrawn(b) and view.order(b) < view.planned_first(anchor)]


def holding_back(view: View) -> Batch | None:
    """The batch that keeps the frontier from going on: the first one of the run with records and without a publication.

    None where every batch after it is unfinished too and nothing published waits behind.
    """
    run = _run(view)
    for position, batch in enumerate(run):
        if batch.state not in PASSED and not batch.plan.is_empty:
            return (
                batch if any(b.state in PASSED for b in run[position + 1 :]) or batch.state is State.REJECTED else None
            )
    return None


def validated_ends(view: View) -> dict[Place, int]:
    """Per output partition, the end of the output of the unbroken run from the anchor on.

    Offsets in an output topic that was deleted since, or that the pipeline has left, mean nothing in the present one,
    which is that of the newest plan.
    """
    ends: dict[Place, int] = {}
    newest = max(view.all(), key=view.order, default=None)
    for batch in _run(view):
        if batch.state not in PASSED and not batch.plan.is_empty:
            break
        here = newest is not None and batch.plan.output.topic_id == newest.plan.output.topic_id
        output = batch.published
        # One without offsets may be withdrawn.
        if batch.state is State.PUBLISHED and output is not None and not batch.plan.is_empty and here:
            for partition, end in enumerate(output.ends):
                place = output.topic, partition
                ends[place] = max(end, ends.get(place, 0))
    return ends


def _run(view: View) -> list[Batch]:
    """The batch that counts of every interval from the anchor on."""
    anchor = view.anchor
    if anchor is None:
        return []
    effective = [view.effective(i) for i in view.standing if i.start >= anchor.start]
    return [b for b in effective if b is not None]
