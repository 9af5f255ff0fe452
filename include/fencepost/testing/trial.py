"""Runs a transform on given rows, as a write does, and returns the results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from pyspark import SparkContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from fencepost.config.loading import folder_of, load_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.config.record_parts import with_registry
from fencepost.errors import RecordRefused, TombstonesRefused, TruncationsRefused
from fencepost.model import MALFORMED, Layout, Schemas
from fencepost.quality.rules import quarantine_rules
from fencepost.rows.collect import withheld_here
from fencepost.rows.decode import is_excluded, is_malformed, is_truncation, refused_tombstone
from fencepost.rows.encode import PLACES, written_columns
from fencepost.rows.flag import NO_RULES, unfit_reason
from fencepost.rows.path import RowPath
from fencepost.rows.row_by_row import check_row_by_row, partitions_read
from fencepost.rows.transform import analysis_errors, null_answers
from fencepost.rows.whole_records import RECORD_PLACE, RULE
from fencepost.spark.session import build_session, session_of_its_own
from fencepost.testing.given_tables import TableRows, given_tables
from fencepost.testing.input_rows import GivenRecords, Place, describe_row, given_records, rows_by_source
from fencepost.testing.schemas import File, GivenFile, GivenRows, Row, refusing_others, schemas_of

FEW = 1000  # rows that a session is prepared for
VALUES, TOMBSTONE = "_values", "_is_tombstone"  # columns beside a row's own
# One Spark partition, like one source partition. A pipeline may set another number.
ONE_PARTITION = {"spark.sql.leafNodeDefaultParallelism": "1", "spark.sql.shuffle.partitions": "1"}


@dataclass(frozen=True)
class Quarantined:
    """A row, or a malformed given record, that would go to quarantine.

    `rule` is the name of the first rule that the row fails, or `malformed`. `row` is the transform's row, or None for a
    malformed record. `given` is the position of the record among the rows of its source, or None if the row has no
    `_record`. `source` is then the name of the source. For an only source it has no name and is None.
    """

    rule: str
    reason: str
    row: dict[str, Any] | None = None
    given: int | None = None
    source: str | None = None


@dataclass(frozen=True)
class TransformResult:
    """The result of a transform on the given rows. The result has the order of the given rows if the transform keeps
    that order.

    `rows` would be in the output. These rows have the columns of the value as Python values, with times in UTC. None is
    a tombstone. `keys` has the key of each row. `quarantined` would be in the quarantine topic, whatever `on_malformed`
    says. `withheld` are other rows of a record that is in quarantine. `tombstones` are given records that
    `tombstones: drop` of a source leaves out. `excluded` is the number of given records that no source reads, by kind.
    """

    rows: list[dict[str, Any] | None] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    quarantined: list[Quarantined] = field(default_factory=list)
    withheld: int = 0
    tombstones: int = 0
    excluded: dict[str, int] = field(default_factory=dict)


class Trials:
    """Trials of transforms on one Spark session, which the first trial starts."""

    def __init__(self) -> None:
        self._session: SparkSession | None = None
        self._stops = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._session is not None and self._stops:
            with suppress(Exception):  # a JVM that died
                self._session.stop()

    def __call__(
        self,
        pipeline: str | Path,
        rows: GivenRows,
        *,
        tables: TableRows | None = None,
        schema: GivenFile | None = None,
        key_schema: GivenFile | None = None,
        output_schema: File | None = None,
        output_key_schema: File | None = None,
    ) -> TransformResult:
        """Runs the transform of a pipeline on rows. The pipeline is given by its name or its folder.

        A row is a dict of the source's fields, or the bytes of a value for the pipeline's decoder. A missing field is
        null, whatever the schema says. `given_records` says what else a dict may have. The schemas are files, for parts
        of the pipeline whose schemas are in a registry. The id in a record's first bytes is 1. Without `output_schema`
        rows are not compared with a schema. `${NAME}` in pipeline.yaml need not be set.

        For a pipeline with several sources, `rows` has a list of rows for each source, by its name: `{"orders": [{"n": 1}],
        "payments": []}`. `schema` and `key_schema` are then files by the name of the source too.

        `tables` has the rows of side tables, by name: `tables={"airlines": [{"carrier": "UA", "name": "United"}]}`. A
        column that is missing in a row is null. The columns have their declared types, or the types of the values if
        none are declared. A file that is not given is read from the pipeline's folder. A topic or a query has to be given.
        The rows are checked as in a run, but may be none: only a run checks `not_empty`.

        Raises:
            SettingsError: the pipeline, its transform or its rules would fail a run. Other causes are a row with an
                unknown field, and a value that does not have its type.
            SideTableRefused: a side table cannot have these rows. For example, two rows have the same key.
            RecordRefused: a row does not fit the output.
            TransformFailed: a row of the result has null in `_lookback`.
            TombstonesRefused: a given record is a tombstone, and `tombstones` of its source is `fail`.
            TruncationsRefused: a given record is a truncation, and `truncations` of its source is `fail`.
        """
        folder = pipeline if isinstance(pipeline, Path) else folder_of(pipeline)
        found = load_pipeline(folder.resolve(), offline=True)
        by_source = rows_by_source(found, rows)
        files: dict[str, GivenFile | None] = {"schema": schema, "key_schema": key_schema}
        files |= {"output_schema": output_schema, "output_key_schema": output_key_schema}
        schemas = schemas_of(found, files)
        session = self._own_session(found)
        return _outcome(session, found, by_source, schemas, given_tables(session, found, tables or {}))

    def _own_session(self, pipeline: Pipeline) -> SparkSession:
        if self._session is None:
            self._stops = SparkContext._active_spark_context is None  # otherwise the session belongs to somebody else
            self._session = build_session(pipeline.model_copy(update={"spark": {}}), "test", FEW)
        own = session_of_its_own(self._session, pipeline)
        for name, value in {**ONE_PARTITION, **pipeline.spark}.items():
            if name.startswith("spark.sql.") and own.conf.isModifiable(name):
                own.conf.set(name, value)
        return own


def _outcome(
    spark: SparkSession,
    pipeline: Pipeline,
    rows: Mapping[str, Sequence[Row]],
    schemas: Schemas,
    tables: Mapping[str, DataFrame],
) -> TransformResult:
    """Runs one trial.

    1. Make source records of the rows.
    2. Run the transform on the records that it gets.
    3. Apply the rules, and encode the rows for the output.
    4. Find where a write would send each row, and which values it would write.
    """
    rules = quarantine_rules(pipeline) or NO_RULES
    path = RowPath(pipeline, refusing_others(pipeline, schemas, rows), rules, tables)
    sources = {name: given_records(spark, path, name, of_source) for name, of_source in rows.items()}  # 1
    outcome = TransformResult()
    for given in sources.values():
        outcome = _with_left_out(outcome, pipeline, given)
    result = path.transform({name: given.decoded for name, given in sources.items()})  # 2
    flagged = path.flag(result, encoded=_can_be_encoded(pipeline, schemas), beside=_values(path, result))  # 3
    if pipeline.output.layout is Layout.SOURCE:
        read = [part for given in sources.values() for part in partitions_read(given.decoded.observed)]
        check_row_by_row(pipeline, flagged, read)
    positions = {place: (given.name, n) for given in sources.values() for place, n in given.positions.items()}
    with null_answers(pipeline):
        return _with_rows(outcome, path, flagged, positions)  # 4


def _with_left_out(outcome: TransformResult, pipeline: Pipeline, given: GivenRecords) -> TransformResult:
    """Returns the outcome with the records of a source that the transform does not get.

    Raises:
        TombstonesRefused, TruncationsRefused: a run would fail with these records.
    """
    frame, source = given.decoded.frame, given.source
    left_out = frame.where(is_malformed() | refused_tombstone(source)).select(*PLACES, "_malformed").collect()
    bad = [(given.positions[one["_topic"], one["_partition"], one["_offset"]], one["_malformed"]) for one in left_out]
    tombstones = [position for position, why in bad if why is None]
    if tombstones and source.tombstones == "fail":
        raise TombstonesRefused(
            f"{describe_row(pipeline, given.name, tombstones[0])}: a tombstone, and {source.setting}.tombstones is fail: a run "
            "would fail. Set it to drop or pass."
        )
    if why := pipeline.why_truncations_fail(source):
        _check_truncations(why, pipeline, given)
    named = given.name if pipeline.several else None
    malformed = [Quarantined(MALFORMED, why, None, position, named) for position, why in bad if why is not None]
    excluded = Counter(outcome.excluded)
    if source.excludes:
        excluded.update(dict(frame.where(is_excluded()).groupBy("_excluded").count().collect()))
    return replace(
        outcome,
        quarantined=[*outcome.quarantined, *malformed],
        tombstones=outcome.tombstones + len(tombstones),
        excluded=dict(excluded),
    )


def _check_truncations(why: str, pipeline: Pipeline, given: GivenRecords) -> None:
    """Raises TruncationsRefused if a given record is a truncation. `why` says which setting refuses it."""
    found = given.decoded.frame.where(is_truncation()).select(*PLACES).collect()
    if found:
        first = min(given.positions[one["_topic"], one["_partition"], one["_offset"]] for one in found)
        raise TruncationsRefused(
            f"{describe_row(pipeline, given.name, first)}: a truncation of the source table, and {why}: a run would fail. Set "
            "it to drop."
        )


def _values(path: RowPath, result: DataFrame) -> dict[str, Column]:
    """Returns two columns: the value of a row as a reader of the output gets it, and whether it is a tombstone."""
    with analysis_errors(path.pipeline):
        values = F.struct(*written_columns(result, path.pipeline).values())
    tombstone = F.col("_tombstone") if "_tombstone" in result.columns else F.lit(False)
    return {VALUES: values, TOMBSTONE: F.coalesce(tombstone, F.lit(False))}


def _can_be_encoded(pipeline: Pipeline, schemas: Schemas) -> bool:
    return all(schemas.written(is_key=part.is_key) is not None for part in with_registry(pipeline.output_parts))


def _with_rows(
    outcome: TransformResult, path: RowPath, flagged: DataFrame, positions: Mapping[Place, tuple[str, int]]
) -> TransformResult:
    """Returns the outcome with the rows of the transform's result. `positions` has the name of the source and the position
    of each given record.
    """
    names = [name for name in ("_out_key", *RECORD_PLACE.values()) if name in flagged.columns]
    place = [F.col(f"_record.{name.removeprefix('_')}").alias(name) for name in PLACES]
    unfit = unfit_reason(flagged).alias("_unfit")
    table = flagged.select(VALUES, TOMBSTONE, RULE, *names, *place, unfit).toArrow()
    withheld = withheld_here(table, path.pipeline.output.layout)
    assert path.rules is not None
    count = 0
    for row, is_withheld in zip(table.to_pylist(maps_as_pydicts="strict"), withheld, strict=True):
        if row["_unfit"] is not None:
            raise RecordRefused(f"a row of the transform's result does not fit the output: {row['_unfit']}")
        if is_withheld:
            count += 1
        elif row[RULE] is None:
            outcome.rows.append(None if row[TOMBSTONE] else row[VALUES])
            outcome.keys.append(row.get("_out_key"))
        else:
            name, reason = path.rules.named[row[RULE]]
            source, given = positions.get((row["_topic"], row["_partition"], row["_offset"]), (None, None))
            named = source if path.pipeline.several else None
            outcome.quarantined.append(Quarantined(name, reason, row[VALUES], given, named))
    return replace(outcome, withheld=count)
