"""Step three, validate, judges what a read_committed reader sees of the batch, and records the verdict.

This step writes no output and moves no offsets. The advance step reads the verdict from the ledger. A verdict in a
worker's memory could be lost, or belong to another revision.
"""

from __future__ import annotations

import json
import logging
import math
import time

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from fencepost.config.digest import digest
from fencepost.config.pipeline import QUARANTINE, Pipeline
from fencepost.config.source import REJECT
from fencepost.doctor.rights import denials_named
from fencepost.errors import BatchRejected, FencepostError, ReceiptsDisagree, TransitionRefused, VerdictUndetermined
from fencepost.failpoints import reached
from fencepost.ledger.deployment import Deployment
from fencepost.ledger.ledger import Change
from fencepost.model import (
    Batch,
    Interval,
    Outcome,
    State,
    StepResult,
    Verdict,
    WriteSummary,
    utc_now,
)
from fencepost.outputs.batch_topic import RecordTopic
from fencepost.outputs.output import written_to
from fencepost.outputs.quarantine import QuarantineTopic
from fencepost.paths import reports_folder
from fencepost.protocol.advice import after_disagreement, what_next, write_again
from fencepost.protocol.decisions import batch_to_judge, record_verdict
from fencepost.protocol.view import DECIDED, View, has_passed
from fencepost.quality.checks import Evaluation
from fencepost.quality.empty_sources import judge_empty_sources
from fencepost.quality.evaluation import ADDITION, evaluate, evaluate_nothing
from fencepost.quality.gathering import NotAsPromised
from fencepost.quality.history import History, history_of
from fencepost.quality.quarantine import QuarantineCheck, judge_quarantine, promised, read_quarantine
from fencepost.quality.report import ReceiptCheck, Report
from fencepost.quality.report_files import write_report
from fencepost.quality.report_text import render_plain
from fencepost.rows.encode import parse_output
from fencepost.rows.fingerprint import fingerprint_hash, rows_and_fingerprint
from fencepost.spark.diagnosis import spark_reads, unexpected
from fencepost.spark.session import session_of_its_own
from fencepost.steps.obstacle import check_can_go_on
from fencepost.suite.declared import Suite

log = logging.getLogger("fencepost.steps.validate")
OWN_COMMITS = 10.0  # seconds until a reader sees transactions that have just been committed


def judge_what_was_written(spark: SparkSession, pipeline: Pipeline, interval: Interval, batch: str) -> None:
    """Judges this batch in the JVM that has written it, if it is not judged yet. The step validate then finds the
    verdict.

    It raises no error. A failure is logged, and the step validate judges the batch and reports the error.
    """
    try:
        deployment = Deployment.of(pipeline)
        written = deployment.ledger.read().last(interval)
        if written is None or str(written.id) != batch:
            return  # a new revision was planned meanwhile
        if validate_without_spark(pipeline, interval, deployment=deployment) is None:
            own = session_of_its_own(spark, pipeline)  # without settings that the transform may have changed
            validate_batch(own, pipeline, interval, deployment=deployment, patience=OWN_COMMITS)
    except BatchRejected as rejected:
        log.info("the step validate will report: %s", str(rejected))
    except Exception as error:
        known = error if isinstance(error, FencepostError) else unexpected(error, "validate")
        log.warning("not judged with the write; the step validate judges. %s: %s", type(error).__name__, str(known))


def validate_without_spark(
    pipeline: Pipeline, interval: Interval, *, deployment: Deployment | None = None, rejected: bool = False
) -> StepResult | None:
    """Returns the step's result if Spark has nothing to do, or None.

    A batch does not change if it is published, skipped or being published, or if it has passed the present suite under
    the present settings. A batch without offsets is judged, by checks that need no record.

    With `rejected`, a batch that the present suite has rejected is not judged again either.

    Raises:
        BatchRejected: the batch is rejected, now or by an earlier verdict.
    """
    began = time.monotonic()
    deployment = deployment or Deployment.of(pipeline)
    view = deployment.ledger.read()
    batch = batch_to_judge(view, interval)
    if batch.state in DECIDED:
        return _result(batch, changed=False)
    written = batch.require_written
    suite = pipeline.suite
    if batch.plan.is_empty:
        found = evaluate_nothing(suite, pipeline.quality, _history(view, batch, written, suite))
        return _conclude(deployment, batch, judge_empty_sources(found, written, pipeline.source_topics), None, began)
    present = digest_of_judging(suite.digest, pipeline)
    if rejected and batch.state is State.REJECTED and batch.verdict and batch.verdict.suite_digest == present:
        raise _rejected(batch)
    return _result(batch, changed=False) if has_passed(batch, present) else None


def validate_batch(
    spark: SparkSession,
    pipeline: Pipeline,
    interval: Interval,
    *,
    deployment: Deployment | None = None,
    patience: float = math.inf,
) -> StepResult:
    """Judges the interval's written batch and records the verdict.

    1. read the ledger: what was written, and between which output offsets;
    2. wait until a read_committed reader sees the whole batch, because part of a batch is never judged;
    3. read the batch, compare rows and fingerprint with the receipts, and evaluate the suite. The comparison shows
       lost, doubled and foreign records. Then read the batch's quarantined records, and check that all exist, that
       every row is accounted for, and that they are within the limit. Then check that each source gave records, if its
       settings ask for them;
    4. write the report and record the verdict.

    An addition is judged by the checks of single records only. It has no quarantine limit, and its sources may be empty.
    Step 2 waits up to `quality.open_transaction_wait_seconds`, and no longer than `patience` seconds.

    Raises:
        OpenTransaction: another producer's open transaction hides part of the batch for longer than the pipeline waits.
        ReceiptsDisagree, BatchRejected, VerdictUndetermined: the verdict is recorded, with a report. No offset moves.
    """
    began = time.monotonic()
    deployment = deployment or Deployment.of(pipeline)
    view = deployment.ledger.read()  # 1
    batch = batch_to_judge(view, interval)
    if batch.state in DECIDED:
        return _result(batch, changed=False)
    written = batch.require_written
    suite = pipeline.suite
    check_rules(pipeline, batch)
    check_can_go_on(deployment, batch)
    output = written_to(deployment, batch)
    limit = min(patience, pipeline.quality.open_transaction_wait_seconds)
    output.await_readable(batch, limit, f"batch {batch.id}, validate")  # 2
    raw = output.read_back(spark, batch)
    with denials_named(pipeline, deployment.cluster.settings), spark_reads(f"batch {batch.id}, validate"):
        check, evaluation = _evaluate(raw, pipeline, batch, written, suite, _history(view, batch, written, suite))  # 3
    if check.rows_read < check.rows_expected:
        check, evaluation = _explained(output, batch, check, evaluation)
    quarantined = None
    if batch.plan.quarantine is not None:
        quarantined = _quarantined(spark, deployment, batch, written, limit)
        if check.agrees:
            limit_of_batch = pipeline.quality.quarantine_limit if batch.adds_to is None else None
            evaluation = judge_quarantine(evaluation, quarantined, limit_of_batch)
    if check.agrees and batch.adds_to is None:
        evaluation = judge_empty_sources(evaluation, written, pipeline.source_topics)
    return _conclude(deployment, batch, evaluation, check, began, quarantined)  # 4


def digest_of_judging(suite: str, pipeline: Pipeline) -> str:
    """Returns a digest of everything besides the records that decides a verdict. The suite's digest and the settings of
    judging decide it.
    """
    limits = pipeline.quality.model_dump(mode="json", include={"empty", "quarantine_limit"})
    not_empty = sorted(topic for topic, source in pipeline.source_topics.items() if source.empty == REJECT)
    return digest([suite, limits, not_empty])


def _history(view: View, batch: Batch, written: WriteSummary, suite: Suite) -> History:
    """Returns the history for the suite. Earlier batches are read only if a check needs them, because reading ten
    thousand takes a while.
    """
    return history_of(batch, written, view.all() if suite.looks_back and batch.adds_to is None else ())


def _evaluate(
    raw: DataFrame, pipeline: Pipeline, batch: Batch, written: WriteSummary, suite: Suite, history: History
) -> tuple[ReceiptCheck, Evaluation]:
    """Returns the comparison with the receipts and, if they agree, the suite's evaluation. The batch is read once.

    Records are parsed before the comparison. If parsing fails, the records are read again to compare them with the
    receipts.
    """
    promised = written.fingerprint
    # The types come from the transform that wrote the batch, not from the present one.
    schema = StructType.fromJson(json.loads(written.value_schema))
    frame = parse_output(
        raw.withColumn("hash", F.expr(fingerprint_hash())), batch.plan.output_format, schema, batch.plan.schemas
    )
    try:
        part = None if batch.adds_to is None else ADDITION
        evaluation = evaluate(frame, suite, pipeline.quality, written.rows, history, promised, part=part)
        read = (written.rows, promised) if evaluation.read else rows_and_fingerprint(raw)
    except NotAsPromised as found:
        read = found.rows, found.fingerprint
    except (PySparkException, Py4JError):
        read = rows_and_fingerprint(raw)
        if read == (written.rows, promised):
            raise
    check = ReceiptCheck(
        rows_expected=written.rows, rows_read=read[0], fingerprint_expected=promised, fingerprint_read=read[1]
    )
    if not check.agrees:
        evaluation = Evaluation(
            outcome=Outcome.UNDETERMINED,
            reason=check.difference,
            read=False,
            rows=check.rows_read,
            checks=(),
            suite_digest=suite.digest,
            seconds=0,
        )
    return check, evaluation


def check_rules(pipeline: Pipeline, batch: Batch) -> None:
    """Checks that the suite's quarantine rules are still those that the batch was written with.

    Raises:
        TransitionRefused: the rules have changed, so the batch would have other rows.
    """
    if batch.plan.digests.get(QUARANTINE) != pipeline.digest_of_rules():
        raise TransitionRefused(
            f"batch {batch.id}: the rules of severity quarantine in {pipeline.expectations_file} have changed since it was "
            f"written. {write_again(batch)}."
        )


def _quarantined(
    spark: SparkSession, deployment: Deployment, batch: Batch, written: WriteSummary, limit: float
) -> QuarantineCheck:
    """Returns the batch's quarantined records by the receipts, and as a read_committed reader sees them. It waits at
    most `limit` seconds.
    """
    pipeline = deployment.pipeline
    found = promised(batch, written)
    if not any(part.length for part in batch.quarantine_ranges(written)):
        return found
    doing, topic = f"batch {batch.id}, validate", QuarantineTopic(deployment, batch)
    topic.await_readable(batch, limit, doing)
    with denials_named(pipeline, deployment.cluster.settings), spark_reads(doing):
        rules, fingerprint = read_quarantine(topic.read_back(spark, batch), written, pipeline.quality.sample_rows)
    rows = sum(rule.rows for rule in rules)
    deleted = topic.deleted(batch) if rows < found.rows_expected else ()
    return found.model_copy(
        update={"rows_read": rows, "fingerprint_read": fingerprint, "rules": rules, "deleted": deleted}
    )


def _explained(
    output: RecordTopic, batch: Batch, check: ReceiptCheck, evaluation: Evaluation
) -> tuple[ReceiptCheck, Evaluation]:
    """Returns the check with the reason for missing records, if the output shows one."""
    found = {"deleted": output.deleted(batch), "compacted": output.is_compacted()}
    check = check.model_copy(update=found)
    return check, evaluation.model_copy(update={"reason": check.difference})


def _conclude(
    deployment: Deployment,
    batch: Batch,
    evaluation: Evaluation,
    check: ReceiptCheck | None,
    began: float,
    quarantined: QuarantineCheck | None = None,
) -> StepResult:
    """Writes the report and then records the verdict. So a verdict never names a report that does not exist."""
    number = batch.verdict.number + 1 if batch.verdict else 1
    seconds = round(time.monotonic() - began, 3)
    durations = {"write": batch.written.seconds if batch.written else 0.0, "validate": seconds}
    report = Report(
        number=number,
        batch=batch,
        evaluation=evaluation,
        receipt_check=check,
        quarantined=quarantined,
        seconds=durations,
    )
    files = write_report(report, reports_folder())
    reached("validate.reported")
    log.info("%s", render_plain(report))
    verdict = Verdict(
        outcome=evaluation.outcome,
        reason=evaluation.reason,
        number=number,
        expectations=len(evaluation.checks),
        failed_critical=evaluation.failed_critical,
        failed_warning=evaluation.failed_warning,
        unexpected_rows=evaluation.unexpected_rows,
        suite_digest=digest_of_judging(evaluation.suite_digest, deployment.pipeline),
        report=str(files.html),
        seconds=seconds,
        judged_at=utc_now(),
    )

    def decide(view: View) -> Change:
        return Change(record_verdict(view, batch.interval, batch.revision, verdict))

    after = deployment.ledger.transact(decide).last(batch.interval)
    reached("validate.recorded")
    if after.state in DECIDED:
        return _result(after, changed=False)
    words = f"batch {batch.id}: {evaluation.reason} Report: {files.html}"
    if check is not None and not check.agrees:
        raise ReceiptsDisagree(
            f"{words}. No offset moved. {after_disagreement(batch, check.cure(batch.plan.write_topic.topic))}"
        )
    if quarantined is not None and not quarantined.agrees:
        raise ReceiptsDisagree(f"{words}. No offset moved. {after_disagreement(batch, quarantined.cure)}")
    if verdict.outcome is Outcome.REJECTED:
        raise _rejected(after)
    if verdict.outcome is Outcome.UNDETERMINED:
        raise VerdictUndetermined(f"{words}. No offset moved. {what_next(after)}")
    return _result(after, changed=True)


def _rejected(batch: Batch) -> BatchRejected:
    """Returns the error for a batch with the verdict `rejected`."""
    verdict = batch.require_verdict
    return BatchRejected(
        f"batch {batch.id}: {verdict.reason} Report: {verdict.report}. No offset moved. {what_next(batch)}"
    )


def _result(batch: Batch, *, changed: bool) -> StepResult:
    verdict = batch.verdict
    outcome = verdict.outcome if verdict else "not judged"
    already = f"already {batch.state}, revision {batch.revision}"
    if batch.state is State.WRITTEN and verdict:
        already = (
            f"already judged, {outcome} under the same suite: revision {batch.revision}, validation {verdict.number}"
        )
    return StepResult.of(
        "validate",
        batch,
        f"{outcome}: {verdict.reason}" if changed and verdict else already,
        changed=changed,
        verdict=str(outcome),
        validation=verdict.number if verdict else 0,
        rows=batch.written.rows if batch.written else 0,
        expectations=verdict.expectations if verdict else 0,
        warnings=len(verdict.failed_warning) if verdict else 0,
        report=verdict.report if verdict else "",
        quarantined=dict(batch.written.quarantined) if batch.written else {},
    )
