"""Plans an addition, as step one of a replay. The addition reads an interval's quarantined records again.

The later steps are those of any batch. `protocol/replay.py` says what may be replayed, and why no record passes twice.
"""

from __future__ import annotations

from pydantic import JsonValue

from fencepost.config.pipeline import Pipeline
from fencepost.counts import count_of
from fencepost.doctor.folder import check_pipeline
from fencepost.failpoints import reached
from fencepost.ledger.completeness import check_complete
from fencepost.ledger.deployment import Deployment
from fencepost.ledger.ledger import Change, Recorded
from fencepost.model import Decision, Interval, StepResult
from fencepost.protocol.decisions import answer_to, is_carried_out, record_answer
from fencepost.protocol.planning import PlanFacts, decide_replay
from fencepost.protocol.replay import UNDER_WAY, CurrentSources, link_to_replay, require_link
from fencepost.protocol.view import View
from fencepost.steps.plan import facts_of_addition, planned_already, ready, with_answer


def plan_replay(
    pipeline: Pipeline,
    interval: Interval,
    decision: Decision | None = None,
    *,
    request: str | None = None,
    deployment: Deployment | None = None,
) -> StepResult:
    """Freezes an addition to a published interval. It does nothing if an addition is under way or there is nothing to
    replay.

    The addition replays the records that the interval's newest published revision (or addition) has quarantined. It
    uses the present transform, settings and suite. `decision` names the person who requested the addition, and the
    reason. The decision is stored with the addition. One addition answers a `request`, as in `plan_batch`.

    Raises:
        TransitionRefused: the interval is not published, or a new revision of it is under way.
        NeedsOperator: the quarantined records were deleted.
    """
    deployment = deployment or Deployment.of(pipeline)
    output = ready(deployment)
    answered, sources = answer_to(deployment.ledger.read(), interval, request), current_sources(pipeline)

    def gather(view: View) -> PlanFacts | None:
        if is_carried_out(view, interval, decision) or answer_to(view, interval, request) is not None:
            return None
        link = link_to_replay(view, interval, pipeline.name, sources)
        if link is None:
            return None
        check_complete(deployment, view, output.newest_batches)
        check_pipeline(pipeline)
        return facts_of_addition(deployment, link, interval, output)

    def decide(view: View, facts: PlanFacts | None) -> Change:
        return Change(decide_replay(view, interval, pipeline.name, sources, facts, decision, request))

    recorded = deployment.ledger.decide(gather, decide)
    reached("plan.frozen")
    if answered is not None:
        return with_answer(planned_already(recorded, interval), answered, request, "replay")
    if request is not None and recorded.last(interval).adds_to is not None:
        deployment.ledger.transact(lambda view: Change(record_answer(view, interval, request)))
    return _result(recorded, interval)


def current_sources(pipeline: Pipeline) -> CurrentSources:
    """Returns what a replay needs to know of the sources that the pipeline reads."""
    return CurrentSources(frozenset(pipeline.source_topics), pipeline.replays_results_only)


def _result(recorded: Recorded, interval: Interval) -> StepResult:
    batch, link, changed = recorded.last(interval), require_link(recorded.view, interval), bool(recorded.changed)
    replays = batch.plan.replays
    if replays is not None and batch.state in UNDER_WAY:
        done = "planned" if changed else f"already {batch.state},"
        message = (
            f"{done} revision {batch.revision}, an addition to revision {batch.adds_to}: "
            f"{count_of(replays.tally.rows, 'quarantined record')} of batch {replays.batch}"
        )
    else:
        batch = link
        message = f"nothing to replay: revision {link.revision}, the newest published one, has no records in quarantine"
        if kept := link.require_written.quarantined_tally.rows:
            message = (
                f"nothing to replay: revision {link.revision}, the newest published one, has {kept:,} malformed source records "
                "in quarantine, and a pipeline that joins sources can only read them with the rest of their interval. "
                f"{link.command('run', '--reprocess')} does"
            )
    plan = batch.plan
    details: dict[str, JsonValue] = {"offsets": plan.offsets, "lane": plan.lane, "lease": batch.lease}
    return StepResult.of("plan", batch, message, changed=changed, **details)
