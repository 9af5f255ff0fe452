"""Step four, advance: the only step that moves offsets, in one transaction with the ledger.

Running it twice is a no-op. The ledger is the truth. Group offsets are for standard lag tools; they expire, and every advance
restores them from the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from confluent_kafka import TopicPartition
from pydantic import JsonValue

from fencepost.config.pipeline import Pipeline
from fencepost.errors import TransitionRefused
from fencepost.failpoints import reached
from fencepost.kafka.offsets import committed_offsets
from fencepost.ledger.ledger import Change, Ledger
from fencepost.ledger.lost import check_accounted_for
from fencepost.model import Batch, Decision, Interval, State, StepResult, utc_now
from fencepost.outputs.output import output_of
from fencepost.protocol.decisions import decide_publish, decide_skip
from fencepost.protocol.frontier import Place, frontier, of_topic
from fencepost.protocol.view import View
from fencepost.steps.topics import same_topics


def advance_batch(
    pipeline: Pipeline, interval: Interval, decision: Decision | None = None, *, ledger: Ledger | None = None
) -> StepResult:
    """Publish the interval's newest revision and move the frontier, or find both done.

    A `decision` publishes a rejected batch too.

    Raises:
        TransitionRefused: receipts do not cover the plan, or the batch has not passed.
        TopicRecreated: the source or the output was deleted and created again since the batch was planned.
    """
    ledger = ledger or Ledger(pipeline)

    def publish(view: View) -> tuple[Batch, ...]:
        batches = decide_publish(view, interval, utc_now(), decision)
        for batch in batches:
            if batch.state is State.PUBLISHED:
                same_topics(ledger, batch)  # the offsets about to be published have to be of the present topics
        return batches

    return _commit(ledger, interval, publish, "published")


def skip_batch(pipeline: Pipeline, interval: Interval, decision: Decision) -> StepResult:
    """Let the frontier pass an interval without its output, on an operator's decision."""
    return _commit(Ledger(pipeline), interval, lambda view: decide_skip(view, interval, decision), "skipped")


def _commit(
    ledger: Ledger, interval: Interval, transition: Callable[[View], tuple[Batch, ...]], word: str
) -> StepResult:
    name, changed = ledger.pipeline.name, False

    def decide(view: View) -> Change:
        nonlocal changed
        if view.latest(interval) is None:
            raise TransitionRefused(
                f"pipeline {name}: interval {interval} was never planned, so it holds nothing back and there is "
                f"nothing to decide. {interval.command('run', name)} processes it; `fencepost status {name}` "
                "lists the planned intervals."
            )
        batches = transition(view)
        changed = bool(batches)
        return Change(batches, _offsets_to_move(ledger, view, view.updated(batches)))

    reached("advance.deciding")
    view = ledger.transact(decide)
    reached("advance.answered")
    batch = view.latest(interval)
    assert batch is not None
    revision = f"revision {batch.revision}"
    return StepResult.of(
        "advance",
        batch,
        f"{word} {revision}" if changed else f"already {batch.state}, {revision}",
        changed=changed,
        frontier={str(p): o for p, o in of_topic(frontier(view), ledger.pipeline.source.topic).items()},
        rows=batch.written.rows if batch.written else 0,
        quarantined=dict(batch.written.quarantined) if batch.written else {},
        output=_output(batch),
        published_at=batch.changed_at.isoformat(),
    )


def _output(batch: Batch) -> dict[str, JsonValue]:
    """Validated output by partition: first offset and end. Partitions without output are left out."""
    ranges = batch.output_ranges(batch.written) if batch.written else ()
    return {str(r.partition): [r.start, r.end] for r in ranges if r.length}


def _offsets_to_move(ledger: Ledger, read: View, after: View) -> dict[str, list[TopicPartition]]:
    """The offsets of both groups that differ from what the changed ledger says.

    Raises:
        LedgerLost: source offsets are ahead, so the ledger lacks the batches that moved them. Moving them back would hide that.
    """
    pipeline = ledger.pipeline
    moves: dict[str, list[TopicPartition]] = {}
    wanted: tuple[tuple[str, Mapping[Place, int]], ...] = (
        (pipeline.group, frontier(after)),
        output_of(ledger).validated(after),
    )
    for group, ends in wanted:
        if not ends:
            continue
        asked = [TopicPartition(*place) for place in ends]
        have = committed_offsets(ledger.settings, group, asked, f"reading offsets of group {group}")
        if group == pipeline.group:
            check_accounted_for(ledger, read, after, pipeline.source.topic, have)
        behind = [TopicPartition(*place, end) for place, end in sorted(ends.items()) if not _is_at(have, place, end)]
        if behind:
            moves[group] = behind
    return moves


def _is_at(have: Mapping[Place, TopicPartition], place: Place, end: int) -> bool:
    found = have.get(place)
    return found is not None and found.offset == end
