"""Step one of a replay: plan an addition, which takes up an interval's quarantined records again.

The steps after it are those of any batch. What may be replayed, and why no record passes twice, is in `protocol/replay.py`.
"""

from __future__ import annotations

from pydantic import JsonValue

from fencepost.config.pipeline import Pipeline
from fencepost.failpoints import reached
from fencepost.ledger.ledger import Change, Ledger, Recorded
from fencepost.ledger.lost import check_not_lost
from fencepost.model import Decision, Interval, StepResult
from fencepost.outputs.output import Destination
from fencepost.preflight.folder import check_pipeline
from fencepost.protocol.decisions import is_carried_out, record_planned
from fencepost.protocol.replay import UNDER_WAY, known_link, link_to_replay
from fencepost.protocol.view import View
from fencepost.steps.plan import freeze_addition, kept_until_judged, ready


def plan_replay(
    pipeline: Pipeline, interval: Interval, decision: Decision | None = None, *, ledger: Ledger | None = None
) -> StepResult:
    """Freeze an addition to a published interval, or find one under way, or find that nothing is left to replay.

    It takes from quarantine what the interval's newest published revision sent there, additions included. It uses the transform,
    the settings and the suite of now. A `decision` says who asked for it and why; it is stored with the addition.

    Raises:
        TransitionRefused: the interval is not published, or a new revision of it is under way.
        NeedsOperator: the quarantined records were deleted.
    """
    ledger = ledger or Ledger(pipeline)
    output = ready(ledger)
    checked = False

    def decide(view: View) -> Change | None:
        nonlocal checked
        if is_carried_out(view, interval, decision) or link_to_replay(view, interval, pipeline.name) is None:
            return None
        check_not_lost(ledger, view, output.newest_batches)
        if not checked:
            check_pipeline(pipeline)
            checked = True
        change = decide_replay(ledger, view, interval, output, decision)
        return kept_until_judged(output, change)

    recorded = ledger.transact(decide)
    reached("plan.frozen")
    return _result(recorded, interval)


def decide_replay(
    ledger: Ledger,
    view: View,
    interval: Interval,
    output: Destination,
    decision: Decision | None = None,
) -> Change | None:
    """A new addition to the interval's published batch; None if one is under way, or nothing is left to replay."""
    name = ledger.pipeline.name
    link = link_to_replay(view, interval, name)
    if link is None:
        return None
    plan = freeze_addition(ledger, view, interval, link, output)
    note = f"replay of what batch {link.id} quarantined"
    return Change(record_planned(view, interval, name, plan, note, decision, adds_to=link.adds_to or link.revision))


def _result(recorded: Recorded, interval: Interval) -> StepResult:
    batch, link, changed = recorded.last(interval), known_link(recorded.view, interval), bool(recorded.changed)
    replays = batch.plan.replays
    if replays is not None and batch.state in UNDER_WAY:
        done = "planned" if changed else f"already {batch.state},"
        message = (
            f"{done} revision {batch.revision}, an addition to revision {batch.adds_to}: {replays.tally.rows} records that "
            f"batch {replays.batch} quarantined"
        )
    else:
        batch = link
        message = (
            f"nothing to replay: revision {link.revision}, the newest that is published, has nothing in quarantine"
        )
    plan = batch.plan
    details: dict[str, JsonValue] = {"offsets": plan.offsets, "lane": plan.lane, "lease": batch.lease}
    return StepResult.of("plan", batch, message, changed=changed, **details)
