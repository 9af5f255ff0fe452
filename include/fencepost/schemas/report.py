"""Reports a pipeline's schemas in the registry, the schemas that the next plan would freeze, and whether the
transform's result fits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType

from fencepost.config.pipeline import Pipeline
from fencepost.config.record_parts import RecordPart, with_registry
from fencepost.model import RegisteredSchema, Schemas
from fencepost.rows.decode import CONNECTOR
from fencepost.rows.path import RowPath
from fencepost.schemas.freeze import output_schema, read_schemas
from fencepost.schemas.resolve import misfit, written_types


@dataclass(frozen=True)
class VersionReport:
    """A version of a subject, and the reason why the part cannot be read or written with it, or None."""

    id: int
    version: int | None
    problem: str | None


@dataclass(frozen=True)
class PartReport:
    """A report about one part of a pipeline's records. `takes` is the schema that a plan would freeze. For the output,
    `gives` is the type of the transform's result.
    """

    part: RecordPart
    takes: RegisteredSchema | None
    versions: tuple[VersionReport, ...]
    gives: str | None = None

    @property
    def is_compatible(self) -> bool:
        """Returns whether every version can be read. For the output it returns whether the result fits."""
        return not any(known.problem for known in self.versions)


def report_schemas(
    spark: SparkSession, pipeline: Pipeline, tables: Mapping[str, DataFrame] | None = None
) -> list[PartReport]:
    """Returns a report for each part that has a registry. Reads no record, registers nothing. `tables` are the
    pipeline's side tables, by name.

    Raises:
        SettingsError, RegistryUnavailable, AccessDenied: as a plan would.
    """
    found = list[PartReport]()
    read = Schemas()
    for part in with_registry(pipeline.source_parts):
        schemas = read_schemas(pipeline, part, strict=False)
        read = read.with_read(part.topic, schemas, is_key=part.is_key)
        versions = [VersionReport(w.id, w.version, None) for w in schemas.writers]
        versions += [VersionReport(number, None, why) for number, why in schemas.refused.items()]
        found.append(PartReport(part, schemas.reader, tuple(sorted(versions, key=lambda known: known.id))))
    types = _types_of_result(spark, RowPath(pipeline, read, tables=tables or {}))
    for out in with_registry(pipeline.output_parts):
        takes, kind = output_schema(pipeline, out), types.get(out.name)
        known: tuple[VersionReport, ...] = ()
        if takes is not None:
            why = None if kind is None else misfit(out, kind, takes)
            known = (VersionReport(takes.id, takes.version, why),)
        found.append(PartReport(out, takes, known, None if kind is None else kind.simpleString()))
    return found


def _types_of_result(spark: SparkSession, path: RowPath) -> dict[str, DataType]:
    """Returns the types of the transform's result, by part. Spark analyses the transform on no records, and runs nothing."""
    result = path.transform(path.decode(dict.fromkeys(path.pipeline.sources, spark.createDataFrame([], CONNECTOR))))
    return {part.name: kind for part, kind in written_types(path.pipeline, result)}
