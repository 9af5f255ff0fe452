"""The path of a pipeline's rows, in four steps. Every caller takes these steps, and then does something else with the
rows:

| caller | end |
|---|---|
| the write job | `run_writers.py`: executors commit the records to Kafka |
| `fencepost try`, the pytest fixture, `fencepost trace` | `collect.py`, or a plain `collect`: nothing is written |
| `fencepost schema` | the transform's result for no records: its types alone |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from fencepost.config.pipeline import Pipeline
from fencepost.config.source import Source
from fencepost.model import Layout, Schemas
from fencepost.rows.decode import (
    is_excluded,
    is_malformed,
    is_truncation,
    read_source,
    refused_tombstone,
    with_record,
)
from fencepost.rows.flag import Rules, keeps_record, to_flagged
from fencepost.rows.multiplying import may_multiply
from fencepost.rows.observed import is_observed
from fencepost.rows.route import to_routed
from fencepost.rows.transform import (
    LOOKBACK,
    NO_ANSWER,
    analysis_errors,
    apply_transform,
    check_fields,
    check_lookback,
    not_used,
)

OBSERVED = "fencepost_source_"  # begins the names in Spark's plans of the records that a transform gets
EARLIER = ".earlier"  # ends the names of the looked-back ones; no source has a dot in its name
REFUSED = "fencepost: refused source record"  # the error of a job for a record that the settings refuse


@dataclass(frozen=True)
class Decoded:
    """Decoded records. `observed` has the same rows as `frame`. A job that reads `observed` fills `counts`. `earlier` are the
    looked-back records of the source.
    """

    frame: DataFrame
    observed: DataFrame
    counts: Observation
    beside: tuple[str, ...] = ()
    earlier: Decoded | None = None

    @classmethod
    def of(cls, name: str, frame: DataFrame, *counts: Column, beside: Sequence[str] = ()) -> Self:
        """Observes the result of `read_source`. `name` is the name of the observation. `counts` are aggregates over all rows."""
        observation = Observation(name)
        observed = frame.observe(observation, *(counts or [F.count(F.lit(1)).alias("rows")]))
        return cls(frame, observed, observation, tuple(beside))


@dataclass(frozen=True)
class RowPath:
    """The path of a pipeline's rows, with the schemas that a plan froze.

    `rules` are the suite's quarantine rules. If `rules` is None, flagged rows have neither the column `rule` nor their
    source record. This saves work in a write that quarantines no row. `NO_RULES` flags no row either, but the rows have
    these columns. A caller that always reads the columns uses `NO_RULES`. `tables` are the pipeline's side tables, by name.
    """

    pipeline: Pipeline
    schemas: Schemas | None = None
    rules: Rules | None = None
    tables: Mapping[str, DataFrame] = field(default_factory=dict)

    @property
    def keeps_records(self) -> bool:
        """Returns whether a transform gets the source record itself, as `_record`. It does only if the suite has
        quarantine rules, and if a row comes from the records of one source.
        """
        return bool(self.pipeline.suite.rules) and not self.pipeline.replays_results_only

    def reads_headers(self, source: Source) -> bool:
        """Returns whether `decode` needs the headers of a source's records."""
        return source.headers or self.keeps_records

    def decode(
        self,
        raw: Mapping[str, DataFrame],
        counts: Callable[[Source], Sequence[Column]] | None = None,
        *,
        beside: Sequence[str] = (),
        looked_back: Mapping[str, DataFrame] | None = None,
    ) -> dict[str, Decoded]:
        """1. Decodes the connector's rows as records of their source, by the source's name. Malformed records and
           tombstones are included.

        `looked_back` are the connector's rows of earlier intervals, for sources that look back. `counts` gives aggregates
        over all records of a source. The columns `beside` stay in `frame` with `_` in front, and no transform gets them.
        """
        found = {}
        for name, rows in raw.items():
            source, again = self.pipeline.sources[name], (looked_back or {}).get(name)
            wanted = counts(source) if counts is not None else ()
            frame = read_source(rows, source, self.schemas, record=self.keeps_records, beside=beside)
            earlier = None
            if again is not None:
                before = read_source(again, source, self.schemas, record=self.keeps_records, beside=beside)
                earlier = Decoded.of(f"{OBSERVED}{name}{EARLIER}", before, *wanted, beside=beside)
            found[name] = replace(Decoded.of(f"{OBSERVED}{name}", frame, *wanted, beside=beside), earlier=earlier)
        return found

    def transform(
        self, decoded: Mapping[str, Decoded], *, refuses: bool = False, seen: Observation | None = None
    ) -> DataFrame:
        """2. Applies the transform to the records of the sources. The transform gets no malformed and no excluded records,
           and no tombstones that the settings exclude. Rows that come from looked-back records alone are left out.

        With `refuses`, a record that the settings do not allow fails the job, with `REFUSED`. The record fails its own
        task, so no task-partition with such a record commits. A null in `_lookback` fails the job, with `NO_ANSWER`.

        If a source looks back, a job that reads the rows fills `seen` with the number of all rows (`rows`) and of those left
        out (`earlier`).

        Raises:
            SettingsError: the transform cannot be loaded, fails, returns no DataFrame, or does not use one of several
                sources. Other causes are a field of its result that would not be written, and a missing column `_lookback`.
        """
        result = self._applied(decoded, refuses=refuses)
        if not self.pipeline.looks_back:
            return result
        if seen is not None:
            earlier = F.count(F.when(F.col(LOOKBACK), 1)).alias("earlier")
            result = result.observe(seen, F.count(F.lit(1)).alias("rows"), earlier)
        answer = F.when(F.isnull(LOOKBACK), F.raise_error(F.lit(NO_ANSWER)).cast("boolean")).otherwise(~F.col(LOOKBACK))
        return result.where(answer).drop(LOOKBACK)

    def count_earlier(self, decoded: Mapping[str, Decoded]) -> int:
        """Returns the number of rows of the transform's result that come from looked-back records alone. Runs a job."""
        return self._applied(decoded, refuses=False).where(LOOKBACK).count()

    def _applied(self, decoded: Mapping[str, Decoded], *, refuses: bool) -> DataFrame:
        records = {
            name: self._given(self.pipeline.sources[name], one, refuses=refuses) for name, one in decoded.items()
        }
        result = apply_transform(self.pipeline, records, self.tables)
        for name, source in self.pipeline.sources.items():
            if self.pipeline.several and not is_observed(result, f"{OBSERVED}{name}"):
                raise not_used(self.pipeline, source)
            read = self.schemas.of(source.topic).value if self.schemas is not None else None
            if read is not None:
                check_fields(self.pipeline, source, result, read.reader)
        if self.pipeline.looks_back:
            check_lookback(self.pipeline, result)
        return result

    def _given(self, source: Source, decoded: Decoded, *, refuses: bool) -> DataFrame:
        """Returns the records of a source that the transform gets. If a source of the pipeline looks back, the column
        `_lookback` says which of them are looked-back records.
        """
        own = self._good(source, decoded, refuses=refuses)
        if not self.pipeline.looks_back:
            return own
        own = own.withColumn(LOOKBACK, F.lit(False))
        if decoded.earlier is None:
            return own
        return own.unionByName(self._good(source, decoded.earlier, refuses=False).withColumn(LOOKBACK, F.lit(True)))

    def _good(self, source: Source, decoded: Decoded, *, refuses: bool) -> DataFrame:
        malformed, tombstone = is_malformed(), refused_tombstone(source)
        good = ~(malformed | tombstone | is_excluded())
        if refuses:
            refused = F.lit(False)
            refused = refused | malformed if source.on_malformed == "fail" else refused
            refused = refused | tombstone if source.tombstones == "fail" else refused
            refused = refused | is_truncation() if self.pipeline.why_truncations_fail(source) else refused
            good = F.when(refused, F.raise_error(F.lit(REFUSED)).cast("boolean")).otherwise(good)
        without = ("_malformed", "_excluded", *(f"_{name}" for name in decoded.beside))
        return with_record(decoded.observed.where(good), *without)

    def flag(self, result: DataFrame, *, encoded: bool = True, beside: Mapping[str, Column] | None = None) -> DataFrame:
        """3. Encodes the result as the output's columns, and adds the first rule that each row fails. The arguments are
           those of `to_flagged`.

        Raises:
            SettingsError: the result cannot be written, or a rule cannot be evaluated on its columns.
        """
        several = self.rules is not None and keeps_record(result) and may_multiply(result, OBSERVED)
        with analysis_errors(self.pipeline):
            return to_flagged(
                result,
                self.pipeline,
                self.rules,
                self.schemas,
                several=several,
                encoded=encoded,
                beside=beside,
            )

    def route(self, flagged: DataFrame, layout: Layout) -> DataFrame:
        """4. Turns flagged rows into records for the output or for quarantine. All rows of a source record go to the
        same place (`whole_records.py`).
        """
        with analysis_errors(self.pipeline):
            return to_routed(flagged, layout)
