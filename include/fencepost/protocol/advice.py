"""Composes the next step for a person. The next step is a command that exists and that helps in the batch's state.

Every message takes its next step from this module. So each message names the command, and what to do in Airflow
instead.
"""

from __future__ import annotations

from collections.abc import Collection

from fencepost.model import EMPTY_SOURCE, QUARANTINE_LIMIT, Batch, Outcome, State
from fencepost.protocol.view import has_passed

REASON = '--reason "..."'


def next_task(batch: Batch) -> str:
    """Returns the DAG's task that has to run next for an interval's newest revision. A superseded revision needs a new
    plan.
    """
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


def in_airflow(task: str) -> str:
    """Returns what to do in Airflow instead of a command. The advice is to clear the first task that has to run again."""
    return f"(in Airflow: clear {task})"


def plan_first(command: str) -> str:
    """Returns how to begin an interval that is not in the ledger. `command` is the `fencepost run` that plans it."""
    return f"{command} plans it (in Airflow: the task plan)"


def run_from(batch: Batch, task: str) -> str:
    """Returns how to run the interval's steps from this task on."""
    return f"{batch.command('run')} {in_airflow(task)}"


def go_on(batch: Batch) -> str:
    """Returns how to run the remaining steps."""
    return run_from(batch, next_task(batch))


def write_again(batch: Batch) -> str:
    """Returns how to write a new revision of a batch that cannot go on, or whose settings or transform have changed."""
    return f"{run_from(batch, 'write')} writes and judges a new revision"


def _or_write_again() -> str:
    """Returns the advice of `write_again` in a form that follows a sentence with the command."""
    return f"the same command {in_airflow('write')} writes and judges a new revision"


def judge_again(batch: Batch) -> str:
    """Returns how to have a written batch judged again."""
    return f"{run_from(batch, 'validate')} judges the batch again"


def reprocess(batch: Batch) -> str:
    """Returns how to write a finished interval again from its source, even if nothing has changed."""
    return f"{batch.command('run', '--reprocess')} writes the interval again from its source"


def after_rejection(batch: Batch, rows: int, failed: Collection[str]) -> str:
    """Returns what to do about a batch of `rows` rows that was rejected. `failed` are the failed checks. There are none
    if the batch is only empty.
    """
    right, wrong = "If the suite is wrong, fix expectations.yaml", "If the data are wrong, fix the transform"
    empty = [name for name in failed if name.endswith(EMPTY_SOURCE)]
    if set(failed) == {QUARANTINE_LIMIT}:
        right = "If so many bad records are right, raise quality.quarantine_limit"
        wrong = "If not, fix the source, the schema or the rules"
    elif empty and set(failed) == set(empty):
        right = f"If such an interval is right, set {' and '.join(empty)} to pass; then {judge_again(batch)}"
        return (
            f"{right}. If not, find out why the topic got no record. Records that arrive now belong to a later batch."
        )
    elif not rows:
        change = "change expectations.yaml to allow it" if failed else "set quality.empty: pass"
        right, wrong = f"If an empty batch is right, {change}", "If not, fix the source or the transform"
    return f"{right}; then {judge_again(batch)}. {wrong}; then {_or_write_again()}."


def after_disagreement(batch: Batch, cure: str) -> str:
    """Returns what to do about a batch whose records differ from its receipts. The advice begins with `cure`, which
    removes the cause.
    """
    return f"{cure}. Then {batch.command('skip', REASON)}, and {batch.command('run', '--reprocess')}."


def why_not_passed(batch: Batch) -> str:
    """Returns why a written batch may not be published as it is. The text is the end of an error message."""
    if batch.publication is not None and batch.publication.refused:
        return f"{batch.publication.target} refused its data, so a person has to decide before it is published."
    if batch.verdict is None:
        return "it has not been judged, and only a passed batch advances."
    if batch.verdict.outcome is Outcome.REJECTED:
        return "its verdict is rejected, and only a passed batch advances."
    return f"it could not be judged (verdict {batch.verdict.outcome}), and only a passed or rejected batch can be published."


def after_refusal(batch: Batch) -> str:
    """Returns what to do about a publication that its output refused."""
    taker = batch.publication.target if batch.publication else "Kafka"
    return (
        f"Once {taker} accepts it, {run_from(batch, 'advance')} publishes the batch as it is. After a change of the transform "
        f"or of the output's settings, {_or_write_again()}; {batch.command('run', '--reprocess')} does so "
        f"without a change. {batch.command('skip', REASON)} drops the batch."
    )


def after_data_refused(batch: Batch, skip: str = "") -> str:
    """Returns what to do about a batch whose data its output refused."""
    skip = skip or f"{batch.command('skip', REASON)} drops it"
    return (
        f"None of its rows are in the output. Once the output accepts the data, {batch.command('publish', REASON)} publishes "
        f"the batch as it is. If the data are wrong, fix the transform; then {write_again(batch)}. "
        f"Otherwise {skip}."
    )


def after_truncation(current: str | None) -> str:
    """Returns what a truncation of the source table would leave in the current table of this name, if there is one, and
    what to do.
    """
    drop = "No offset moved. Set source.truncations in pipeline.yaml to drop, which leaves them out and counts them"
    if current is None:
        return f"{drop}."
    return (
        f"A truncation does not say which rows it removed, so current table {current} would keep them. {drop}. The current "
        "table then keeps these rows until the topic has their deletions."
    )


def or_give_up(batch: Batch) -> str:
    """Returns how an operator gives up a publication that never ends. Readers see nothing of this publication before
    its commit.
    """
    return (
        f"Readers see nothing of it before its commit, so {batch.command('skip', REASON)} and "
        f"{batch.command('run', '--reprocess')} can give it up."
    )


def what_next(batch: Batch, older: Batch | None = None) -> str:
    """Returns what a person can do about an unpublished batch, in a few sentences.

    `older` is the revision that counts until this one is published, if there is one. For an addition, `older` is the
    revision that the addition adds to.
    """
    run, publish = go_on(batch), batch.command("publish", REASON)
    instead = f"publishes it in place of revision {older.revision}" if older else "publishes it"
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
            return f"Read its report and fix what it names, most often the suite. Then {judge_again(batch)}. Or {skip}."
        case State.WRITTEN:
            return f"It has passed. {run} publishes it; {skip}."
        case State.REJECTED if batch.publication is not None and batch.publication.refused:
            return f"{batch.publication.target} refused its data: {batch.publication.refused}. {after_data_refused(batch, skip)}"
        case State.REJECTED:
            rows = batch.written.rows if batch.written else 0
            failed = batch.verdict.failed_critical if batch.verdict else ()
            return f"Read its report. {after_rejection(batch, rows, failed)} Otherwise {publish} {instead} as it is, or {skip}."
        case State.PUBLISHING if batch.publication is not None and batch.publication.refused:
            return f"{batch.publication.target} refused its copy: {batch.publication.refused} {after_refusal(batch)}"
        case State.PUBLISHING if batch.publication is not None and batch.publication.is_unseen:
            return f"{run} finishes its publication. {or_give_up(batch)}"
        case State.PUBLISHING:
            return f"{run} finishes its publication. If it cannot, the error says why, and {_or_write_again()}."
        case _:
            return f"{reprocess(batch)}."
