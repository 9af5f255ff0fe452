"""`fencepost try` shows what a run would do with some records of the sources. It only reads.

The DataFrames are those of the write step, and the suite judges the records as the gate would read them back. No topic
is created, no schema registered, no ledger record written and no offset committed, because this module creates no
producer.
"""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StructField

from fencepost.config.pipeline import QUARANTINE, Pipeline
from fencepost.config.record_parts import parts_of_source
from fencepost.config.source import Source
from fencepost.counts import count_of
from fencepost.formats.framing import ExcludedKind
from fencepost.formats.quoting import column_named
from fencepost.ledger.deployment import Deployment
from fencepost.model import Interval, Layout, Outcome, Schemas, SideTableState, time_of
from fencepost.preview.trial_input import TrialInput
from fencepost.preview.trial_output import of_columns, of_names, of_sizes
from fencepost.preview.trial_rows import (
    SIZE,
    SourceSample,
    UnpublishedRows,
    counts_of_rows,
    source_sample,
    unfit_rows,
    with_size,
)
from fencepost.quality.checks import Evaluation
from fencepost.quality.columns import JSON
from fencepost.quality.evaluation import SAMPLE, evaluate
from fencepost.quality.history import History, NewestAge, PastBatch, published_before
from fencepost.quality.quarantine import Accounts, SourceAccounts, over_limit
from fencepost.quality.rules import quarantine_rules
from fencepost.rows.collect import withheld_by_executors
from fencepost.rows.encode import parse_output
from fencepost.rows.flag import NO_RULES, unfit_reason
from fencepost.rows.path import RowPath
from fencepost.rows.quarantine_headers import QUARANTINED
from fencepost.rows.row_by_row import check_row_by_row
from fencepost.rows.transform import null_answers, value_schema
from fencepost.rows.whole_records import WITHHELD
from fencepost.schemas.freeze import freeze_schemas
from fencepost.schemas.resolve import ids_in_source, with_ids, would_resolve
from fencepost.side_tables.frames import frames_of
from fencepost.side_tables.reading import read_tables
from fencepost.spark.diagnosis import carried_error, spark_reads
from fencepost.spark.session import session_of_its_own
from fencepost.spark.sql_settings import set_shuffle_partitions
from fencepost.steps.batch_input import read_sources, read_sources_with_ranges

SHOWN = 2  # rows of the result
FEW_PARTITIONS = 4  # in shuffles of the transform


@dataclass(frozen=True)
class Trial:
    """The result of a trial. `sources` has what was read of each source, by its topic. `stops` has the reasons why a run
    would fail before it publishes anything.
    """

    trial_input: TrialInput
    sources: Mapping[str, SourceSample]
    results: int
    written: int
    tombstones: int  # among the rows that would be written
    withheld: int
    unpublished: tuple[UnpublishedRows, ...]
    columns: tuple[tuple[str, str], ...]
    rows: tuple[dict[str, str | None], ...]
    evaluation: Evaluation
    stops: tuple[str, ...]
    remarks: tuple[str, ...]
    tables: tuple[SideTableState, ...] = ()  # the side tables that the transform got

    @property
    def read(self) -> int:
        """Returns the number of records of all sources."""
        return sum(one.read for one in self.sources.values())

    @property
    def malformed(self) -> int:
        """Returns the number of malformed records."""
        return sum(one.malformed for one in self.sources.values())

    @property
    def excluded(self) -> int:
        """Returns the number of records that no source reads."""
        return self.read - sum(one.included for one in self.sources.values())

    @property
    def verdict(self) -> str:
        """Returns how a run of these records would end, in a few words."""
        if self.stops:
            return "would fail"
        return {
            Outcome.PASSED: "would pass",
            Outcome.REJECTED: "would be rejected",
        }.get(self.evaluation.outcome, "could not be judged")

    @property
    def passes(self) -> bool:
        """Returns whether the records would be published."""
        return not self.stops and self.evaluation.outcome is Outcome.PASSED


def try_pipeline(spark: SparkSession, deployment: Deployment, trial_input: TrialInput) -> Trial:
    """Tries a run of these records.

    1. read the side tables and the records, and decode the records with the schemas that a plan would freeze;
    2. transform, and encode the rows as records, each for the output or for quarantine;
    3. read the records as the gate does, and judge them; for a sample, checks about a whole batch are left out;
    4. check that the output would accept them: its table's columns, its topics' names and largest records.

    Raises:
        SettingsError: transform, suite or settings would fail, or the result does not fit the output's schema.
        SideTableRefused: a side table would fail a run.
        FencepostError: Kafka, the registry or Spark does not answer.
    """
    pipeline = deployment.pipeline
    rules = quarantine_rules(pipeline) or NO_RULES
    own = session_of_its_own(spark, pipeline)
    set_shuffle_partitions(own, pipeline, FEW_PARTITIONS)
    nonce, doing = secrets.token_hex(16), f"pipeline {pipeline.name}, try"
    with spark_reads(doing):  # 1
        tables = read_tables(own, pipeline, deployment.cluster)
        path = RowPath(pipeline, rules=rules, tables=frames_of(own, pipeline, tables))
    read = read_sources(own, deployment, trial_input.ranges, path.reads_headers)
    again = read_sources_with_ranges(own, deployment, trial_input.looked_back, path.reads_headers)
    raw, before = ({name: with_size(records) for name, records in some.items()} for some in (read, again))
    with spark_reads(doing), carried_error(nonce), null_answers(pipeline):
        schemas = _schemas(pipeline, [*raw.items(), *before.items()])
        decoded = replace(path, schemas=schemas).decode(raw, beside=(SIZE,), looked_back=before)
        result = path.transform(decoded)  # 2
        schema = value_schema(pipeline, result)
        schemas, notes = would_resolve(pipeline, result, schemas)
        path = replace(path, schemas=schemas)
        flagged = path.flag(result)
        if pipeline.output.layout is Layout.SOURCE:
            check_row_by_row(pipeline, flagged, trial_input.ranges)
        made = flagged = flagged.persist()  # once: the transform may take long, or give different rows the next time
        try:
            sources = {
                source.topic: source_sample(decoded[name].frame, source, trial_input)
                for name, source in pipeline.sources.items()
            }
            unfit = unfit_rows(flagged)
            if unfit:
                flagged = flagged.where(unfit_reason(flagged).isNull())
            routed = withheld_by_executors(path.route(flagged, pipeline.output.layout), nonce)
            counts = counts_of_rows(routed)
            failed = {n: found for n, found in counts.items() if isinstance(n, int)}
            written, largest = counts.get("written", (0, 0))
            withheld = counts.get("withheld", (0, 0))[0]
            kept = _kept(routed)
            tombstones = kept.where(F.col("value").isNull()).count() if "_tombstone" in result.columns else 0
            evaluation, rows = _judged(  # 3
                deployment, trial_input, kept, schema, schemas, written, sources
            )
        finally:
            made.unpersist()
    unpublished = [
        *(rows for one in sources.values() for rows in (*one.bad, *one.tombstones, *one.excluded.values())),
        *(UnpublishedRows(*rules.named[n], rows=found[0]) for n, found in sorted(failed.items())),
    ]
    quarantining = [sources[topic] for topic, one in pipeline.source_topics.items() if one.on_malformed == QUARANTINE]
    results = written + withheld + sum(found[0] for found in failed.values()) + sum(one.rows for one in unfit)
    read_of_each = tuple(
        SourceAccounts(
            topic=topic,
            read=found.read,
            malformed=found.malformed,
            dropped=found.malformed if pipeline.source_topics[topic].on_malformed == "drop" else 0,
            tombstones=found.refused_tombstones,
            excluded=found.read - found.included,
        )
        for topic, found in sources.items()
    )
    accounts = Accounts(
        sources=read_of_each,
        malformed_kept=sum(one.malformed for one in quarantining),
        results=results if rules.named else None,
        failed=sum(found[0] for found in failed.values()),
        withheld=withheld,
    )
    evaluation = _within_limit(pipeline, evaluation, accounts)
    largest_kept = [*(found[1] for found in failed.values()), *(one.largest for one in quarantining)]
    refused, changed = of_columns(deployment, trial_input.interval, schema)  # 4
    too_large, large = of_sizes(deployment, largest, max(largest_kept, default=0))
    return Trial(
        trial_input=trial_input,
        sources=sources,
        results=results,
        written=written,
        tombstones=tombstones,
        withheld=withheld,
        unpublished=tuple(unpublished),
        columns=tuple((f.name, f.dataType.simpleString()) for f in schema.fields),
        rows=rows,
        evaluation=evaluation,
        stops=(*_stops(pipeline, trial_input, sources, unfit), *of_names(deployment), *refused, *too_large),
        remarks=(*_remarks(pipeline, trial_input, notes), *changed, *large),
        tables=tuple(content.state for content in tables.values()),
    )


def _schemas(pipeline: Pipeline, raw: Sequence[tuple[str, DataFrame]]) -> Schemas:
    """Returns the schemas that a plan would freeze, and the schemas that the write job would look up."""
    found = freeze_schemas(pipeline)
    if found is None:
        return Schemas()
    ids = [one for name, rows in raw for one in ids_in_source(rows, parts_of_source(pipeline.sources[name]))]
    return with_ids(pipeline, found, ids)


def _kept(routed: DataFrame) -> DataFrame:
    """Returns the rows that would be written to the output."""
    kept = routed.where(F.col(QUARANTINED).isNull())
    return kept.where(~F.coalesce(F.col(WITHHELD), F.lit(False))) if WITHHELD in routed.columns else kept


def _judged(
    deployment: Deployment,
    trial_input: TrialInput,
    kept: DataFrame,
    schema: Any,
    schemas: Schemas,
    written: int,
    sources: Mapping[str, SourceSample],
) -> tuple[Evaluation, tuple[dict[str, str | None], ...]]:
    """Returns the suite's evaluation of the records as they would be read back, and the first rows that have a value."""
    pipeline = deployment.pipeline
    topic = F.lit(pipeline.output.name).alias("topic")
    place = [F.lit(0).alias("partition"), F.monotonically_increasing_id().alias("offset")]
    records = kept.select("key", "value", topic, *place)
    frame, valued = (
        parse_output(some, pipeline.output.records.format, schema, schemas)
        for some in (records, records.where(F.col("value").isNotNull()))
    )
    whole = trial_input.interval if trial_input.whole else None
    history = History() if whole is None else _history(deployment, whole, written, sources)
    part = SAMPLE if whole is None else None
    quality = pipeline.quality.model_copy(update={"sample_rows": 0})
    evaluation = evaluate(frame, pipeline.suite, quality, written, history, part=part)
    columns = [F.to_json(F.struct(_shown(f).alias(f.name)), JSON).alias(f"c{n}") for n, f in enumerate(schema.fields)]
    first = valued.select(*columns).limit(SHOWN).collect() if written else []
    rows = tuple({name: _text(row[n], name) for n, name in enumerate(schema.fieldNames())} for row in first)
    return evaluation, rows


def _shown(field: StructField) -> Column:
    """Returns the column as a person should see it. Bytes become UTF-8 text, or hex if they are not valid UTF-8."""
    column = column_named(field.name)
    if not isinstance(field.dataType, BinaryType):
        return column
    text = column.cast("string")
    return F.when(F.is_valid_utf8(text), text).otherwise(F.hex(column))


def _text(packed: str, name: str) -> str | None:
    value = json.loads(packed)[name]
    if isinstance(value, float):
        value = json.loads(packed, parse_float=str)[name]  # a decimal may have more digits than a double
    return None if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _history(deployment: Deployment, interval: Interval, written: int, sources: Mapping[str, SourceSample]) -> History:
    ages = {
        topic: NewestAge.of(interval, None if one.newest_ms is None else time_of(one.newest_ms), one.included)
        for topic, one in sources.items()
    }
    batch = PastBatch(rows=written, sources=ages)
    before = published_before(interval, deployment.ledger.peek().all()) if deployment.pipeline.suite.looks_back else ()
    return History(batch=batch, before=before)


def _within_limit(pipeline: Pipeline, evaluation: Evaluation, accounts: Accounts) -> Evaluation:
    above = over_limit(pipeline.quality.quarantine_limit, accounts)
    if above is None or evaluation.outcome is Outcome.UNDETERMINED:
        return evaluation
    return evaluation.model_copy(
        update={"outcome": Outcome.REJECTED, "reason": f"{above[0].upper()}{above[1:]}. {evaluation.reason}"}
    )


def _stops(
    pipeline: Pipeline,
    trial_input: TrialInput,
    sources: Mapping[str, SourceSample],
    unfit: Sequence[UnpublishedRows],
) -> list[str]:
    found = [trial_input.refused.rstrip(".")] if trial_input.refused else []
    for topic, source in pipeline.source_topics.items():
        found += _refused(pipeline, source, sources[topic])
    found += [
        f"{count_of(one.rows, 'row does', 'rows do')} not fit the output's format or schema: {one.reason}"
        for one in unfit
    ]
    return found


def _refused(pipeline: Pipeline, source: Source, sample: SourceSample) -> Iterator[str]:
    """Yields why records of a source would fail a run."""
    of, bad = f" of topic {source.topic}" if pipeline.several else "", sample.bad

    def those(rows: int, one: str, many: str) -> str:
        return f"{count_of(rows, f'record{of} is {one}', f'records{of} are {many}')}"

    if bad and source.on_malformed == "fail":
        yield (
            f"{those(sample.malformed, 'malformed', 'malformed')}, and {source.setting}.on_malformed is fail: "
            f"{bad[0].reason} (first at {bad[0].first})"
        )
    if source.tombstones == "fail":
        for one in sample.tombstones:
            yield (
                f"{those(one.rows, 'a tombstone', 'tombstones')}, and {source.setting}.tombstones is fail (first at {one.first})"
            )
    why, truncations = pipeline.why_truncations_fail(source), sample.excluded.get(ExcludedKind.TRUNCATIONS)
    if why and truncations is not None:
        yield (
            f"{those(truncations.rows, 'a truncation', 'truncations')} of the source table, and {why} (first at "
            f"{truncations.first})"
        )


def _remarks(pipeline: Pipeline, trial_input: TrialInput, notes: Sequence[str]) -> list[str]:
    found = [f"{one[0].upper()}{one[1:]}." for one in notes]
    if not trial_input.whole and pipeline.output.layout is Layout.OUTPUT:
        what = "Aggregates and joins" if len(pipeline.sources) > 1 else "Aggregates"
        found.append(f"{what} are partial: they have only the sampled records.")
    if pipeline.looks_back and trial_input.interval is None:
        found.append("A sample looks back at nothing. With --start and --end of a later interval a trial looks back.")
    again = Counter[str]()
    for part in trial_input.looked_back:
        again[part.topic] += part.length
    parts = [f"{count_of(offsets, 'offset')} of topic {topic}" for topic, offsets in again.items() if offsets]
    if parts:
        found.append(f"The transform also gets {' and '.join(parts)}, which earlier intervals consumed.")
    return found
