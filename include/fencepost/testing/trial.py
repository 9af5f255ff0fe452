"""Runs a transform on given rows, as a write does, and says what became of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from pyspark import SparkContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from fencepost.config.loading import folder_of, load_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.errors import RecordRefused, SettingsError, TombstonesRefused
from fencepost.model import MALFORMED, Layout, Schemas
from fencepost.quality.rules import first_failed
from fencepost.rows.decode import refused_tombstone, with_record
from fencepost.rows.encode import output_columns, said_columns
from fencepost.rows.flag import keeps_record
from fencepost.rows.transform import analysis_errors, apply_transform
from fencepost.schemas.freeze import parts_with_registry
from fencepost.spark.session import build_session, session_of_its_own
from fencepost.suite.declared import reason_of, rule_names
from fencepost.testing.given import given_rows
from fencepost.testing.schemas import Row, refusing_others, schemas_of

FEW = 1000  # rows that a session gets ready for
OWN = "fencepost_"  # how the names of columns begin that this puts beside the transform's
SHUFFLES = re.compile(r"(?<!Broadcast)\bExchange\b")


@dataclass(frozen=True)
class Quarantined:
    """A row, or a given record that is malformed, that would not be published.

    `rule` is the name of the rule that the row fails first, or `malformed`. `row` is the transform's row; None of a malformed
    record. `given` is the position of the record among the given rows; None if the transform dropped `_record`.
    """

    rule: str
    reason: str
    row: dict[str, Any] | None = None
    given: int | None = None


@dataclass(frozen=True)
class Outcome:
    """What a transform made of the given rows, in their order where it keeps them in order.

    `rows` would be in the output: the columns of the value, as Python's values, with times in UTC; None is a tombstone. `keys`
    has the key of each. `quarantined` would be in the quarantine topic, whatever `on_malformed` says. Other rows of a record that
    is in quarantine are `withheld`. `tombstones` are given records that `source.tombstones: drop` leaves out.
    """

    rows: list[dict[str, Any] | None] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    quarantined: list[Quarantined] = field(default_factory=list)
    withheld: int = 0
    tombstones: int = 0


class Trials:
    """Trials of transforms on one Spark session, which the first one starts."""

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
        rows: Sequence[Row],
        *,
        schema: str | Path | None = None,
        key_schema: str | Path | None = None,
        output_schema: str | Path | None = None,
        output_key_schema: str | Path | None = None,
    ) -> Outcome:
        """Run the transform of a pipeline, given by its name or its folder, on rows.

        A row is a dict of the source's fields, or the bytes of a value for the pipeline's decoder. A field that is missing is
        null, whatever the schema says; `given_rows` says what else a dict may have. The schemas are files, for parts of the
        pipeline whose schemas are in a registry; the id in a record's first bytes is 1. Without `output_schema` rows are not
        compared with one. `${NAME}` in pipeline.yaml need not be set.

        Raises:
            SettingsError: the pipeline, its transform or its rules would fail a run; or a row has an unknown field or a value
                that is not of its type.
            RecordRefused: a row does not fit the output.
            TombstonesRefused: a given record is a tombstone, and `source.tombstones` is `fail`.
        """
        folder = pipeline if isinstance(pipeline, Path) else folder_of(pipeline)
        found = load_pipeline(folder.resolve(), offline=True)
        files = {"source": schema, "source_key": key_schema, "output": output_schema, "output_key": output_key_schema}
        schemas = schemas_of(found, {part: Path(file) for part, file in files.items() if file is not None})
        return _outcome(self._own_session(found), found, rows, schemas)

    def _own_session(self, pipeline: Pipeline) -> SparkSession:
        if self._session is None:
            self._stops = SparkContext._active_spark_context is None  # otherwise it is somebody else's
            self._session = build_session(pipeline.model_copy(update={"spark": {}}), "test", FEW)
        own = session_of_its_own(self._session, pipeline)
        own.conf.set("spark.sql.shuffle.partitions", "1")
        for name, value in pipeline.spark.items():
            if name.startswith("spark.sql.") and own.conf.isModifiable(name):
                own.conf.set(name, value)
        return own


def _outcome(spark: SparkSession, pipeline: Pipeline, rows: Sequence[Row], schemas: Schemas) -> Outcome:
    """1. the rows as the source's columns; 2. the transform, without what is malformed; 3. the rules on the columns of the value,
    and what would be written."""
    declared = pipeline.suite.rules
    source = given_rows(spark, pipeline, rows, refusing_others(schemas, rows))  # 1
    tombstone = refused_tombstone(pipeline.source)
    refused = source.where(F.col("_malformed").isNotNull() | tombstone)
    bad = refused.select("_offset", "_malformed").collect()
    tombstones = [one["_offset"] for one in bad if one["_malformed"] is None]
    if tombstones and pipeline.source.tombstones == "fail":
        raise TombstonesRefused(
            f"row {tombstones[0]}: a tombstone, and source.tombstones is fail: a run would fail. Set it to drop or pass."
        )
    good = source.where(F.col("_malformed").isNull() & ~tombstone)
    result = apply_transform(pipeline, with_record(good, "_malformed"))  # 2
    _check_layout(pipeline, result)
    with analysis_errors(pipeline):  # 3
        flat = _flat(result, pipeline, schemas, lambda said: first_failed(said, declared, pipeline.expectations_file))
    malformed = [Quarantined(MALFORMED, one["_malformed"], None, one["_offset"]) for one in bad if one["_malformed"]]
    found: list[Mapping[str, Any]] = flat.toArrow().to_pylist(maps_as_pydicts="strict")
    rules = list(zip(rule_names(declared), map(reason_of, declared), strict=True))
    return replace(_sorted_out(found, malformed, rules), tombstones=len(tombstones))


def _check_layout(pipeline: Pipeline, result: DataFrame) -> None:
    plan = result._jdf.queryExecution().executedPlan().toString()
    if pipeline.output.layout is Layout.SOURCE and SHUFFLES.search(plan):
        raise SettingsError(
            f"{pipeline.transform_file}: it shuffles, and under output.layout: source a transform works row by row: a run would "
            "fail. Set output.layout: output, or remove that from the transform."
        )


def _flat(result: DataFrame, pipeline: Pipeline, schemas: Schemas, failed: Callable[[DataFrame], Column]) -> DataFrame:
    """The value's columns of the result, and beside them the rule that a row fails, its source record, and what is written."""
    said = said_columns(result, pipeline)
    beside: dict[str, Column] = {}
    known = keeps_record(result)
    beside["record"] = F.col("_record.offset") if known else F.lit(None).cast("bigint")
    tombstone = F.coalesce(F.col("_tombstone"), F.lit(False)) if "_tombstone" in result.columns else F.lit(False)
    written = output_columns(result, pipeline, schemas) if _can_be_encoded(pipeline, schemas) else {}
    beside["key"] = written.get("key", F.lit(None).cast("binary"))
    beside["unfit"] = written.get("unfit", F.lit(None).cast("string"))
    beside["tombstone"] = tombstone
    columns = [column.alias(f"{OWN}{name}") for name, column in beside.items()]
    return result.select(*said.values(), failed(result.select(*said.values())).alias(f"{OWN}rule"), *columns)


def _can_be_encoded(pipeline: Pipeline, schemas: Schemas) -> bool:
    return all(
        getattr(schemas, part) is not None for part in parts_with_registry(pipeline) if part.startswith("output")
    )


def _sorted_out(
    found: Sequence[Mapping[str, Any]], malformed: list[Quarantined], rules: Sequence[tuple[str, str]]
) -> Outcome:
    """The rows, each where it goes: a record is published whole, or quarantined whole by the first rule that one fails."""
    failing: dict[int, int] = {}
    for row in found:
        record, rule = row[f"{OWN}record"], row[f"{OWN}rule"]
        if record is not None and rule is not None:
            failing[record] = min(rule, failing.get(record, rule))
    outcome, told, withheld = Outcome(quarantined=malformed), set[int](), 0
    for row in found:
        record, rule = row[f"{OWN}record"], row[f"{OWN}rule"]
        values = {name: value for name, value in row.items() if not name.startswith(OWN)}
        if rule is None and record not in failing:
            if row[f"{OWN}unfit"] is not None:
                raise RecordRefused(f"a row of the transform's result does not fit the output: {row[f'{OWN}unfit']}")
            outcome.rows.append(None if row[f"{OWN}tombstone"] else values)
            outcome.keys.append(row[f"{OWN}key"])
        elif record is not None and (record in told or rule != failing[record]):
            withheld += 1
        else:
            told |= set() if record is None else {record}
            name, reason = rules[rule]
            outcome.quarantined.append(Quarantined(name, reason, values, record))
    return Outcome(outcome.rows, outcome.keys, outcome.quarantined, withheld)
