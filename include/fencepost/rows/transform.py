"""Loads and applies the user's transform, and checks its result."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from pyspark import cloudpickle
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BooleanType, StructType

from fencepost.config.files import read_file
from fencepost.config.pipeline import Pipeline
from fencepost.config.source import SOURCE, Source
from fencepost.errors import NeedsOperator, SettingsError, TransformFailed
from fencepost.formats import REGISTRY_FORMATS
from fencepost.formats.column_names import twins, without_case
from fencepost.formats.written_names import with_written_names, written_name
from fencepost.model import RegisteredSchema
from fencepost.spark.diagnosis import HOW_TO_SEE, describe
from fencepost.spark.sql_settings import settings_kept


def load_transform(pipeline: Pipeline) -> ModuleType | None:
    """Returns the module of the pipeline's transform.py, or None for transform.sql. The module's functions travel to
    executors by value.

    Raises:
        SettingsError: the file cannot be read or imported, or has no function `transform`. Another cause is a side
            table that the transform does not use, or an argument for which there is none.
    """
    file = pipeline.transform_file
    if file.suffix == ".sql":
        text = read_sql(file)
        if not SQL_COMMENT.sub("", text).strip():
            tables = ", ".join(pipeline.several) or "the table {source}"
            raise SettingsError(f"{file}: empty; expected a SELECT from {tables}.")
        _check_views(pipeline, text)
        return None
    module = ModuleType(f"fencepost_transform_{pipeline.name}")
    module.__file__ = str(file)
    sys.modules[module.__name__] = module
    try:
        # Not imported: the import cache identifies a file by time in seconds and size, and would lie in the pipeline's folder.
        exec(compile(read_file(file), str(file), "exec", dont_inherit=True), module.__dict__)  # noqa: S102
    except (KeyboardInterrupt, SettingsError):
        raise
    except BaseException as error:  # sys.exit too
        raise SettingsError(f"{file}: cannot be imported: {type(error).__name__}: {error}.") from error
    if not callable(getattr(module, "transform", None)):
        raise SettingsError(f"{file}: expected a function transform(DataFrame) -> DataFrame, found none.")
    _check_arguments(pipeline, module.transform)
    cloudpickle.register_pickle_by_value(module)
    return module


def _check_arguments(pipeline: Pipeline, transform: Callable[..., object]) -> None:
    """Checks that the arguments of the function `transform` are the sources and the side tables.

    Raises:
        SettingsError: names the argument, the source or the side table.
    """
    file, tables, several = pipeline.transform_file, pipeline.tables, pipeline.several
    wanted = [*several, *tables]
    try:
        arguments = list(inspect.signature(transform).parameters.values())
    except (TypeError, ValueError):  # a callable that does not say what it takes
        return
    if any(one.kind is one.VAR_KEYWORD for one in arguments) or not (wanted or arguments):
        return
    named_ones = [one for one in arguments if one.kind is not one.VAR_POSITIONAL]
    by_name = named_ones if several else named_ones[1:]
    others = [one for one in by_name if one.kind is not one.POSITIONAL_ONLY]
    example = f"transform({', '.join(wanted if several else ['source', *tables])})"
    if not several and (source := next(iter(named_ones), None)) is not None and source.name in tables:
        raise SettingsError(
            f"{file}: the first argument of transform is the source, and {source.name} is the name of a side table. Write "
            f"{example}, or rename the table in pipeline.yaml."
        )
    if unused := [name for name in wanted if name not in {one.name for one in others}]:
        setting, what = (f"tables.{unused[0]}", "table") if unused[0] in tables else (f"sources.{unused[0]}", "source")
        raise SettingsError(
            f"{file}: transform has no argument {unused[0]}, and {setting} in pipeline.yaml is for the transform. Write "
            f"{example}, or remove the {what}."
        )
    for one in by_name:
        if one.name not in wanted and one.default is one.empty:
            has = f"The side tables are {', '.join(tables)}" if tables else "It has no side tables"
            if several:
                has = f"The sources are {', '.join(several)}. {has}"
            nothing = "neither a source nor a side table" if several else "no side table"
            add = f"sources.{one.name} or tables.{one.name}" if several else f"tables.{one.name}"
            raise SettingsError(
                f"{file}: transform has the argument {one.name}, for which pipeline.yaml has {nothing}. {has}. Add "
                f"{add}, or remove the argument."
            )


def _check_views(pipeline: Pipeline, text: str) -> None:
    """Checks that the SQL has the name of each of several sources and of every side table, outside of texts and comments.

    Raises:
        SettingsError: names the source or the side table.
    """
    file, sources = pipeline.transform_file, pipeline.several
    if sources and any(piece["source"] for piece in SQL_PIECE.finditer(text)):
        raise SettingsError(
            f"{file}: it selects from {{source}}, and pipeline.yaml has several sources. Select from their names: "
            f"{', '.join(sources)}."
        )
    words = {word.lower() for word in WORD.findall(SQL_PIECE.sub(_without_data, text))}
    if unused := [name for name in (*sources, *pipeline.tables) if name not in words]:
        setting, what = (f"sources.{unused[0]}", "source") if unused[0] in sources else (f"tables.{unused[0]}", "table")
        raise SettingsError(
            f"{file}: it does not read the view {unused[0]}, and {setting} in pipeline.yaml is for the transform. Select from "
            f"{unused[0]}, or remove the {what}."
        )


def not_used(pipeline: Pipeline, source: Source) -> SettingsError:
    """Returns the error about a source that is in no part of the transform's result. Spark would never read it."""
    return SettingsError(
        f"{pipeline.transform_file}: its result does not depend on {source.setting} (topic {source.topic}), by Spark's plan, so "
        "nothing would read this source. Use it, or remove it from pipeline.yaml. A plan ends where a transform collects rows "
        "itself: collect, toPandas, rdd, checkpoint."
    )


def _without_data(piece: re.Match[str]) -> str:
    return piece[0] if piece[0].startswith("`") else " "


def read_sql(file: Path) -> str:
    """Returns the text of transform.sql."""
    try:
        return read_file(file).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SettingsError(f"{file}: not UTF-8 at byte {error.start}. Save the file as UTF-8.") from None


def apply_transform(pipeline: Pipeline, records: Mapping[str, DataFrame], tables: Mapping[str, DataFrame]) -> DataFrame:
    """Returns the result of the user's transform for the records of the sources. `transform` gets the side tables, and each
    of several sources, as arguments with their names. An only source is its first argument. For a transform.sql they are
    views, and an only source is the table `{source}`, or plain `source`.
    """
    module = load_transform(pipeline)
    file, spark = pipeline.transform_file, next(iter(records.values())).sparkSession
    named = {**tables, **(records if pipeline.several else {})}
    first = [] if pipeline.several else [records[SOURCE]]
    try:
        with settings_kept(spark, pipeline):
            if module is None:
                views = {**named, **{view: frame for view in (SOURCE_VIEW, SOURCE) for frame in first}}
                result = select(spark, read_sql(file), views)
            else:
                result = module.transform(*first, **named)
    except SettingsError:
        raise
    except AnalysisException as error:
        raise SettingsError(f"{file}: failed: {analysis_reason(error)}{_missing_setting(error, pipeline)}") from error
    except (Exception, SystemExit) as error:  # the transform may have run a job: show only the kind of failure
        raise SettingsError(f"{file}: failed: {describe(error, pipeline.folder)}. {HOW_TO_SEE}.") from error
    if not isinstance(result, DataFrame):
        raise SettingsError(f"{file}: transform returned {type(result).__name__}, expected a DataFrame.")
    _check_tombstones(pipeline, result)
    return result


# Columns that a source has under one setting.
COLUMNS_OF_SETTINGS = {
    "_op": "envelope: debezium",
    "_source": "envelope: debezium",
    "_headers": "headers: true",
    "_lookback": "lookback",
}
SOURCE_RECORD = "_record"


def _missing_setting(error: AnalysisException, pipeline: Pipeline) -> str:
    """Returns the sentence about what gives the column that Spark did not find. The text is empty if no setting does."""
    if not (error.getCondition() or "").startswith("UNRESOLVED_COLUMN"):
        return ""
    parts = (error.getMessageParameters() or {}).get("objectName", "").lower().split(".")  # the first may be a table
    names = [one.strip("`") for one in parts]
    section, one = ("sources.<name>", "A source") if pipeline.several else ("source", "The source")
    if SOURCE_RECORD in names:
        if pipeline.replays_results_only:
            return (
                f" No source has the column {SOURCE_RECORD}, because a row may come from several records. Leave it out."
            )
        suite = pipeline.folder / "expectations.yaml"
        return f" {one} has the column {SOURCE_RECORD} if {suite} has an expectation of severity quarantine."
    column = next((name for name in names if name in COLUMNS_OF_SETTINGS), None)
    if column is None:
        return ""
    return f" {one} has the column {column} with {section}.{COLUMNS_OF_SETTINGS[column]} in {pipeline.folder / 'pipeline.yaml'}."


TOMBSTONE = "_tombstone"
LOOKBACK = "_lookback"


def check_lookback(pipeline: Pipeline, result: DataFrame) -> None:
    """Checks that the result says which of its rows come from looked-back records alone.

    Raises:
        SettingsError: it has no column `_lookback` of type boolean, or several columns of this name.
    """
    found = [field for field in result.schema.fields if without_case(field.name) == LOOKBACK]
    if len(found) == 1 and found[0].name == LOOKBACK and isinstance(found[0].dataType, BooleanType):
        return
    looking = next(source for source in pipeline.sources.values() if source.lookback is not None)
    has = f"has no column {LOOKBACK}"
    if len(found) > 1:
        has = f"has {len(found)} columns {LOOKBACK}"
    elif found:
        has = f"has a {found[0].dataType.simpleString()} in column {found[0].name}"
    raise SettingsError(
        f"{pipeline.transform_file}: its result {has}, and {looking.setting} looks back. Add one boolean column "
        f"{LOOKBACK}, which is true for a row if all of its records are looked-back ones (`a.{LOOKBACK} AND b.{LOOKBACK}` for a "
        "join): such a row belongs to an earlier interval and is left out."
    )


NO_ANSWER = "fencepost: null in _lookback"  # the error of a job for a row of which the transform does not say it


def no_answer(pipeline: Pipeline, about: str) -> TransformFailed:
    """Returns the error about a row whose `_lookback` is null. `about` names what has failed."""
    return TransformFailed(
        f"{about}: {pipeline.transform_file}: a row of its result has null in {LOOKBACK}, so nobody knows whether the row "
        "belongs to the batch. No offset moved. Make it true or false in every row: without a partner, the other side of an "
        f"outer join is null (`coalesce(p.{LOOKBACK}, true)`). Then run again."
    )


@contextmanager
def null_answers(pipeline: Pipeline) -> Iterator[None]:
    """Raises TransformFailed in place of Spark's error if a job in this block finds a null in `_lookback`."""
    try:
        yield
    except PySparkException as error:
        if NO_ANSWER in str(error):
            raise no_answer(pipeline, f"pipeline {pipeline.name}") from error
        raise


def _check_tombstones(pipeline: Pipeline, result: DataFrame) -> None:
    """Checks that a result which may have tombstones has the column `_tombstone`. Without it, tombstones would become
    rows of nulls.

    Raises:
        SettingsError: the column is missing, has another type, or is spelled with other capitals.
    """
    file = pipeline.transform_file
    found = [field for field in result.schema.fields if without_case(field.name) == TOMBSTONE]
    for field in found:
        if field.name != TOMBSTONE or not isinstance(field.dataType, BooleanType):
            raise SettingsError(
                f"{file}: its result has the column {field.name} of type {field.dataType.simpleString()}. The column that makes "
                f"a row a tombstone is {TOMBSTONE}, of type boolean. Rename or cast it."
            )
    passing = next((source for source in pipeline.sources.values() if source.passes_tombstones), None)
    if passing is not None and not found:
        raise SettingsError(
            f"{file}: its result has no column {TOMBSTONE}, and {passing.setting}.tombstones is pass: a record without a value "
            f"would become a row of nulls. Add {TOMBSTONE} to the result (`false AS {TOMBSTONE}` where each row has a value), or "
            f"set {passing.setting}.tombstones in pipeline.yaml to drop or fail."
        )


def check_fields(pipeline: Pipeline, source: Source, result: DataFrame, schema: RegisteredSchema) -> None:
    """Checks that every field of a source's registered schema that is in the result would be written.

    Raises:
        SettingsError: the name of a field begins with _, and the output does not use the field.
    """
    form, output, declared = REGISTRY_FORMATS[source.format], pipeline.output.records, source.declared
    columns = {column for column, _ in declared.with_registered_types(form.fields(schema, declared))}
    used = {output.key, output.timestamp, output.headers}
    if lost := [name for name in result.columns if name.startswith("_") and name in columns and name not in used]:
        raise SettingsError(
            f"{pipeline.transform_file}: its result has {', '.join(lost)} from the source's value. Columns whose names begin "
            "with _ are not written. Give them other names, or leave them out."
        )


SQL_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
# The pieces that Spark reads as one token, whose braces and names are data; and the name of the table.
SQL_PIECE = re.compile(
    r"""(?<!\w)[rR]'[^']*'|(?<!\w)[rR]"[^"]*"|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|"""
    + SQL_COMMENT.pattern
    + r"|(?P<source>\{source\})",
    re.DOTALL,
)
SOURCE_VIEW = "_fencepost_source"


WORD = re.compile(r"[^\W\d]\w*")


def select(spark: SparkSession, text: str, views: Mapping[str, DataFrame]) -> DataFrame:
    """Returns the result of a SELECT from these views. The table `{source}` is the view `SOURCE_VIEW`. Other braces keep
    their meaning in Spark.
    """
    for view, rows in views.items():
        rows.createOrReplaceTempView(view)
    try:
        return spark.sql(SQL_PIECE.sub(lambda m: SOURCE_VIEW if m["source"] else m[0], text))
    finally:
        for view in views:
            spark.catalog.dropTempView(view)


def analysis_reason(error: AnalysisException) -> str:
    """Returns Spark's message about columns, types and syntax, with the place in the SQL. It leaves out the plan that
    follows the message.
    """
    said = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return said.rstrip(";.") + "."


@contextmanager
def analysis_errors(pipeline: Pipeline) -> Iterator[None]:
    """Raises SettingsError in place of Spark's error if Spark cannot make records of a transform's result, for example
    with two columns of one name.
    """
    try:
        yield
    except AnalysisException as error:
        raise SettingsError(
            f"{pipeline.transform_file}: its result cannot be written: {analysis_reason(error)}"
        ) from error


def value_schema(pipeline: Pipeline, frame: DataFrame) -> StructType:
    """Returns the fields of the output's value. The fields are the columns of the transform's result whose names do not
    begin with `_`.

    Raises:
        NeedsOperator: there is no such column.
        SettingsError: two names differ only in case. Spark could write both columns but not read them back.
    """
    fields = [f for f in frame.schema.fields if not f.name.startswith("_")]
    if not fields:
        raise NeedsOperator(
            f"{pipeline.transform_file}: its result has no column for the output's value. Select a column whose name does not "
            "begin with _."
        )
    if both := twins(field.name for field in fields):
        raise SettingsError(
            f"{pipeline.transform_file}: its result has the columns {both[0]!r} and {both[1]!r}, which differ only in case, so "
            "Spark cannot distinguish them. Rename one."
        )
    names = pipeline.output.records.fields
    if unknown := sorted(names.keys() - {field.name for field in fields}):
        raise SettingsError(
            f"pipeline {pipeline.name}: output.fields names the column {unknown[0]!r}, which the result of "
            f"{pipeline.transform_file} does not have. It has {', '.join(field.name for field in fields)}."
        )
    found = with_written_names(StructType(fields), names)
    written = [written_name(field) for field in found.fields]
    if len(set(map(without_case, written))) < len(written):
        one = next(name for n, name in enumerate(written) if without_case(name) in map(without_case, written[:n]))
        raise SettingsError(
            f"pipeline {pipeline.name}: with output.fields two columns of the result of {pipeline.transform_file} would be field "
            f"{one!r}, or differ from it only in case. Give one of them another name."
        )
    return found
