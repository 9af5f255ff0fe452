"""The write step's Spark job reads, transforms and writes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from fencepost.config.pipeline import Pipeline
from fencepost.config.record_parts import parts_of_source
from fencepost.errors import WriteFailed
from fencepost.failpoints import reached
from fencepost.ledger.deployment import Deployment
from fencepost.model import Batch, Layout, OffsetRange, Plan, Receipt, TaskKind
from fencepost.outputs.output import output_of
from fencepost.quality.rules import quarantine_rules
from fencepost.rows.encode import PLACES, written_columns
from fencepost.rows.flag import NO_RULES
from fencepost.rows.observed import observed_values
from fencepost.rows.path import Decoded, RowPath
from fencepost.rows.placing import place_by_key, shuffled_again
from fencepost.rows.row_by_row import RowsMoved, not_row_by_row
from fencepost.rows.run_writers import Answers, run_writers
from fencepost.rows.transform import value_schema
from fencepost.rows.writer import WriteJob
from fencepost.schemas.resolve import UnknownSchemas, ids_in_source, look_up, resolve_output
from fencepost.spark.sql_settings import check_settings, pin_settings, set_shuffle_partitions
from fencepost.steps.batch_input import (
    read_input,
    read_quarantined,
    read_sources_with_ranges,
    records_by_source,
    settings_of,
)
from fencepost.steps.failures import refused_records, write_failure
from fencepost.steps.quarantine_job import write_malformed, write_replayed
from fencepost.steps.side_tables import SettledTables
from fencepost.steps.source_counts import (
    SourceCounts,
    count_columns,
    count_kept,
    count_taken,
    observed_counts,
    with_looked_back,
)
from fencepost.steps.writers import rows_job

log = logging.getLogger("fencepost.steps.write")


class ShuffledAgain(WriteFailed):
    """Spark computed a part of the job's shuffle again after some task-partitions may have committed. The next job
    compares them.
    """


@dataclass(frozen=True)
class WriteResult:
    """The result of a write: receipts, counts of the sources by topic, the value's schema, and the fields of
    `WriteSummary` about rules and about result rows.
    """

    receipts: list[Receipt]
    sources: Mapping[str, SourceCounts] = field(default_factory=dict)
    schema: str = ""
    rules: tuple[str, ...] = ()
    results: int | None = None
    result_rows: int = 0
    unreadable_results: int = 0
    rows_of_earlier: int | None = None

    @property
    def bypassed(self) -> int:
        """Returns the number of records that bypass the transform. A second job writes them."""
        return sum(one.summary.malformed for one in self.sources.values()) + self.result_rows


def run_write_job(spark: SparkSession, deployment: Deployment, batch: Batch, tables: SettledTables) -> WriteResult:
    """Writes the batch, whose transform gets these side tables. The receipts come from the jobs. If a retry finds all
    task-partitions committed, they come from the marks.

    After a shuffle (layout `output`) marks are not enough. If a transform gives different rows in a retry, they move
    between task-partitions, and the marks may come from several attempts. So the job always runs under this layout, and
    each committed task-partition compares its rows with its mark. Then all receipts hold for one job, whose shuffle was
    computed once.

    Malformed records never reach the transform. If they go to quarantine, a second job writes them. In a replay the second job
    also judges and writes the result rows, which need no transform.

    The source may have records with schema ids that the plan does not know. Then these ids are looked up and recorded,
    and the jobs run again. Task-partitions without such records may have committed already, and their rows do not
    change.
    """
    # In the given session, because a transform may use the active session, which has to be the job's.
    pin_settings(spark, deployment.pipeline)
    try:
        return _write_all(spark, deployment, batch, tables)
    except ShuffledAgain:
        log.warning(
            "batch %s: part of the shuffle was made again. The job runs again to compare the committed rows", batch.id
        )
        return _write_all(spark, deployment, batch, tables)
    except UnknownSchemas:
        sources = deployment.pipeline.sources
        records = [
            *read_input(spark, deployment, batch, lambda _: False).items(),
            *read_sources_with_ranges(spark, deployment, batch.plan.looked_back_ranges, lambda _: False).items(),
        ]
        ids = [one for name, raw in records for one in ids_in_source(raw, parts_of_source(sources[name]))]
        return _write_all(spark, deployment, look_up(deployment, batch, ids), tables)


def _write_all(spark: SparkSession, deployment: Deployment, batch: Batch, tables: SettledTables) -> WriteResult:
    result, batch = _write_rows(spark, deployment, batch, tables)
    if not (batch.plan.quarantines_malformed and result.bypassed):
        return result
    reached("write.results-answered")
    if batch.plan.replays is None:
        return replace(result, receipts=[*result.receipts, *write_malformed(spark, deployment, batch)])
    receipts, unread = write_replayed(spark, deployment, batch, result.schema)
    results = None if result.results is None else result.results + result.result_rows - unread
    every = [*result.receipts, *receipts]
    return replace(result, receipts=every, results=results, unreadable_results=unread)


def _write_rows(
    spark: SparkSession, deployment: Deployment, batch: Batch, tables: SettledTables
) -> tuple[WriteResult, Batch]:
    """Writes the transform's rows to the output and to quarantine. The returned batch has the schemas that the rows
    were written with.

    1. read the frozen ranges, without malformed records, and without tombstones unless the settings pass them on;
    2. transform, and encode the result's rows as records, each for the output or for quarantine;
    3. write, unless every task-partition is committed already. The marks are read while Spark analyses the query.
    """
    pipeline = settings_of(deployment.pipeline, batch.plan)
    rules = quarantine_rules(pipeline)
    job = rows_job(deployment, batch, rules.named if rules else ())
    set_shuffle_partitions(spark, pipeline, _shuffle_partitions(batch.plan))
    with ThreadPoolExecutor(1) as executor:
        asks = not job.compares and tables.committed is None
        asked = executor.submit(job.writers.committed_receipts) if asks else None
        path = RowPath(pipeline, batch.plan.schemas, rules, tables.frames)
        source_records, result_rows, kept = _read(spark, deployment, batch, path)  # 1
        again = read_sources_with_ranges(spark, deployment, batch.plan.looked_back_ranges, path.reads_headers)
        decoded = path.decode(source_records, lambda source: count_columns(source, batch), looked_back=again)
        every_row = Observation()
        result = path.transform(decoded, refuses=True, seen=every_row)  # 2
        fields = value_schema(pipeline, result)
        if (columns := output_of(deployment, batch).columns) is not None:
            columns.check_result(batch.interval, fields)
        schema = fields.json()
        batch = resolve_output(deployment, batch, result)
        committed = asked.result() if asked else tables.committed
    rows = _to_rows(replace(path, schemas=batch.plan.schemas), result, batch.plan)
    judged = partial(_judged_by_rules, result, pipeline)
    unfilled = _unfilled(spark, decoded)
    answers = _write(deployment, batch, pipeline, rows.placed, source_records, job, committed, judged)  # 3
    observed = unfilled if answers.computed else []
    counts = dict(kept)
    for name, source in pipeline.sources.items():
        if source.topic in counts or not (batch.plan.replays or source.topic in batch.plan.source_topics):
            continue
        raw, seen = source_records[name], decoded[name].counts if decoded[name].counts in observed else None
        found = observed_counts(answers.read_all, seen, raw, batch, pipeline, source)
        # A transform that stops early, for example at a LIMIT, may not have read a record that the settings refuse.
        if found.are_refused(pipeline, source):
            refused = refused_records(deployment.pipeline, batch, source_records)
            if refused is not None:
                raise refused
        if (before := decoded[name].earlier) is not None:
            seen = before.counts if before.counts in observed else None
            found = with_looked_back(found, seen, again[name], batch, source)
        counts[source.topic] = found
    names = tuple(name for name, _ in (rules or NO_RULES).named)
    results = rows.results(answers, tables_read=tables.committed is None)
    left_out = None
    if batch.plan.looked_back:
        left_out = _rows_of_earlier(spark, every_row, answers)
        left_out = path.count_earlier(decoded) if left_out is None else left_out
    return WriteResult(answers.receipts, counts, schema, names, results, result_rows, rows_of_earlier=left_out), batch


def _unfilled(spark: SparkSession, decoded: Mapping[str, Decoded]) -> list[Observation]:
    """Returns the observations of sources that the write will fill. A transform that runs a job itself, for example
    `frame.head()`, has filled some with what that job has read, and Spark keeps the first values.
    """
    each = [part.counts for one in decoded.values() for part in (one, one.earlier) if part is not None]
    return [seen for seen in each if observed_values(spark, seen) is None]


def _rows_of_earlier(spark: SparkSession, seen: Observation, answers: Answers) -> int | None:
    """Returns the number of rows that come from looked-back records alone, or None if Spark has not certainly observed all
    rows.
    """
    found = observed_values(spark, seen) if answers.read_all and answers.computed else None
    promised = sum(receipt.rows + receipt.withheld for receipt in answers.receipts)
    return int(found["earlier"]) if found is not None and found["rows"] - found["earlier"] == promised else None


def _read(
    spark: SparkSession, deployment: Deployment, batch: Batch, path: RowPath
) -> tuple[dict[str, DataFrame], int, dict[str, SourceCounts]]:
    """Returns the records for the transform by the name of their source, with the connector's columns. In a replay it also
    returns the number of result rows that bypass the transform, and the counts of source records that do, by topic.
    """
    if batch.plan.replays is None:
        return read_input(spark, deployment, batch, path.reads_headers), 0, {}
    quarantined = read_quarantined(spark, deployment, batch)
    taken = count_taken(quarantined, batch)
    kept = count_kept(quarantined) if path.pipeline.replays_results_only else {}
    return records_by_source(quarantined, path.pipeline), taken, kept


@dataclass(frozen=True)
class _Rows:
    """The result's rows as records, each in the Spark partition that writes it. `flagged` is None without quarantine
    rules.
    """

    placed: DataFrame
    flagged: DataFrame | None
    seen: Observation

    def results(self, answers: Answers, *, tables_read: bool) -> int | None:
        """Returns the number of rows of the transform's result. Spark's observed number is used if it is certainly
        complete. Otherwise the rows are counted again. If the side tables were not read, the result cannot be counted,
        and the receipts have the number.

        A task before a shuffle may run twice, and is then observed twice.
        """
        if self.flagged is None:
            return None
        promised = sum(receipt.rows + receipt.withheld for receipt in answers.receipts)
        if not tables_read:
            return promised
        if answers.read_all and answers.computed:
            found = observed_values(self.flagged.sparkSession, self.seen)
            if found is not None and found["results"] == promised:
                return promised
        return self.flagged.count()


def _to_rows(path: RowPath, result: DataFrame, plan: Plan) -> _Rows:
    seen, flagged = Observation(), path.flag(result)
    records = path.route(flagged, plan.layout)
    if path.rules is not None:
        records = records.observe(seen, F.count(F.lit(1)).alias("results"))
    by_key = plan.layout is Layout.OUTPUT
    placed = place_by_key(records, plan.row_task_count) if by_key else records.drop(*PLACES)
    return _Rows(placed, None if path.rules is None else flagged, seen)


def _judged_by_rules(result: DataFrame, pipeline: Pipeline) -> DataFrame:
    """Returns the rows that quarantine rules judge, with the source records' coordinates if the transform kept them."""
    places = [F.col(name) for name in PLACES if name in result.columns]
    return result.select(*written_columns(result, pipeline).values(), *places)


def _write(
    deployment: Deployment,
    batch: Batch,
    pipeline: Pipeline,
    rows: DataFrame,
    source_records: Mapping[str, DataFrame],
    job: WriteJob,
    committed: list[Receipt] | None,
    judged: Callable[[], DataFrame],
) -> Answers:
    """Runs the writers.

    Raises:
        SettingsError: under layout `source` the transform shuffles, or reads another input than its source.
        ShuffledAgain: task-partitions may have rows of two shuffles.
    """
    tasks: Mapping[OffsetRange, int] | None = None
    if batch.plan.layout is Layout.SOURCE:
        tasks = batch.plan.tasks_by_range(TaskKind.ROWS)
    failure = partial(
        write_failure, deployment=deployment, batch=batch, source_records=source_records, nonce=job.nonce, judged=judged
    )
    check_settings(rows.sparkSession, pipeline)  # again, right before Spark runs it
    try:
        answers = run_writers(rows, job, tasks, failure, committed)
    except RowsMoved:
        raise not_row_by_row(pipeline) from None
    if job.compares and shuffled_again(rows.sparkSession, job.nonce):
        raise ShuffledAgain(
            f"batch {batch.id}: Spark lost an executor and made a part of the shuffle again, twice. No offset moved. Run again: "
            "the next attempt compares the committed rows with the rows of a new shuffle."
        )
    return answers


SPARKS_DEFAULT = 200
ROWS_A_PARTITION = 50_000  # in a shuffle; a partition costs some ten milliseconds, however few rows it holds


def _shuffle_partitions(plan: Plan) -> int:
    """Returns the number of shuffle partitions for the size of the batch.

    The number follows from the frozen plan, so a retry has the same number. The order of rows depends on this number.
    """
    offsets = plan.offsets + plan.offsets_looked_back
    return min(SPARKS_DEFAULT, max(offsets // ROWS_A_PARTITION, plan.row_task_count, len(plan.ranges)))
