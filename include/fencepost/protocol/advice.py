"""What a person can do next about a batch: commands that exist and that help in its state."""

from __future__ import annotations

from fencepost.model import Batch, Outcome, State
from fencepost.protocol.view import has_passed

REASON = '--reason "..."'


def next_task(batch: Batch) -> str:
    """The DAG's task that an interval's newest revision needs next. A superseded one needs a new plan."""
    match batch.state:
        case State.PLANNED:
            return "write"
        case State.WRITTEN if has_passed(batch):
            return "advance"
        case State.WRITTEN | State.REJECTED:
            return "validate"
        case State.PUBLISHING:
            return "advance"
        case _:
            return "plan"


def go_on(batch: Batch) -> str:
    """How to run the remaining steps."""
    return f"{batch.command('run')} (in Airflow: clear {next_task(batch)})"


def why_not_passed(batch: Batch) -> str:
    """Why a written batch may not be published as it is; the end of an error message."""
    if batch.verdict is None:
        return "it has not been judged, and only a passed batch advances."
    if batch.verdict.outcome is Outcome.REJECTED:
        return "its verdict is rejected, and only a passed batch advances."
    return f"it could not be judged (verdict {batch.verdict.outcome}), and only a passed or rejected batch can be published."


def after_refusal(batch: Batch) -> str:
    """How a publication gets on whose copy Kafka refused."""
    run, again, skip = batch.command("run"), batch.command("run", "--reprocess"), batch.command("skip", REASON)
    return (
        f"Once Kafka takes it, {run} (in Airflow: clear advance) publishes the batch as it is. Once the transform or the "
        f"output's settings are changed, the same command (in Airflow: clear write) writes a new revision; {again} does so "
        f"without a change. {skip} drops the batch."
    )


def what_next(batch: Batch, older: Batch | None = None) -> str:
    """What a person can do about an unpublished batch: commands that exist and that help in its state.

    `older` is the revision that counts until this one is published, if there is one; of an addition, the one it adds to.
    """
    run, publish = go_on(batch), batch.command("publish", REASON)
    instead = f"replaces revision {older.revision} by it" if older else "publishes it"
    without = f"leaves revision {older.revision} {older.state}" if older else "lets the frontier pass without it"
    if batch.adds_to is not None:
        instead = f"adds it to revision {batch.adds_to}"
        without = f"drops this addition and leaves revision {batch.adds_to} as it is: its records stay in quarantine"
    skip = f"{batch.command('skip', REASON)} {without}"
    undetermined = batch.verdict is not None and batch.verdict.outcome is Outcome.UNDETERMINED
    match batch.state:
        case State.PLANNED:
            return f"{run} writes, judges and publishes it; {skip}."
        case State.WRITTEN if batch.verdict is None:
            return f"{run} judges and publishes it; {skip}."
        case State.WRITTEN if undetermined:
            return (
                f"Read its report and fix what it names, most often the suite. Then {run} judges it again. Or {skip}."
            )
        case State.WRITTEN:
            return f"It has passed. {run} publishes it; {skip}."
        case State.REJECTED:
            return (
                f"Read its report. If the suite is wrong, fix it; then {run} judges the batch again. If "
                "the transform is wrong, fix it; then the same command (in Airflow: clear write) writes a new revision. "
                f"Otherwise {publish} {instead} as it is, or {skip}."
            )
        case State.PUBLISHING if batch.publication is not None and batch.publication.refused:
            return f"Kafka refused its copy: {batch.publication.refused} {after_refusal(batch)}"
        case State.PUBLISHING:
            return (
                f"{run} finishes its publication. Where it cannot go on, the error says why, and the same command (in Airflow: "
                "clear write) writes a new revision."
            )
        case _:
            return f"{batch.command('run', '--reprocess')} writes the same input as a new revision."
