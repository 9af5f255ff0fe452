"""No setting of Spark changes a value in silence: whoever sets one is refused by name, and what others have set does not hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from conftest import at, day
from fencepost.config.pipeline import Pipeline
from fencepost.config.spark_options import PINNED_SQL, SQL, is_harmless
from fencepost.errors import SettingsError
from fencepost.model import State
from fencepost.spark.sql_settings import check_settings
from fencepost_stack.broker import Broker
from kafka_tools import create_topic, produce, read_all
from steps import latest, plan_and_write

Make = Callable[..., Pipeline]
SETS = """
def transform(frame):
    frame.sparkSession.conf.set({name!r}, {value!r})
    return frame.selectExpr("_key", "n", "timestamp'1500-01-01T00:00:00Z' AS t")
"""
WITH_SQL = """
def transform(frame):
    frame.sparkSession.sql("SET spark.sql.legacy.timeParserPolicy = LEGACY")
    return frame.selectExpr("_key", "n", "timestamp'1500-01-01T00:00:00Z' AS t")
"""
AT_IMPORT = """
from pyspark.sql import SparkSession
SparkSession.active().conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
def transform(frame):
    return frame.selectExpr("_key", "n", "timestamp'1500-01-01T00:00:00Z' AS t")
"""
OF_ANOTHER_SESSION = """
def transform(frame):
    own = frame.sparkSession.newSession()
    own.conf.set("spark.sql.jsonGenerator.ignoreNullFields", "false")
    own.conf.set("spark.sql.caseSensitive", "true")
    return own.createDataFrame([(1,)], "n int")
"""
RESTORES = """
def transform(frame):
    conf = frame.sparkSession.conf
    before = conf.get("spark.sql.caseSensitive")
    conf.set("spark.sql.caseSensitive", "true")
    conf.set("spark.sql.caseSensitive", before)
    conf.set("spark.sql.shuffle.partitions", "3")
    conf.set("spark.sql.autoBroadcastJoinThreshold", "1")
    return frame.selectExpr("_key", "n", "timestamp'1500-01-01T00:00:00Z' AS t")
"""


@pytest.fixture
def filled(broker: Broker, make_pipeline: Make) -> Make:
    def made(transform: str, **changes: Any) -> Pipeline:
        pipeline = make_pipeline(transform, **changes)
        create_topic(broker.bootstrap, pipeline.source.topic, 1)
        produce(broker.bootstrap, pipeline.source.topic, [(b"k", {"n": n}, 0, at(1, n)) for n in range(3)])
        return pipeline

    return made


@pytest.mark.parametrize(
    ("transform", "name"),
    [
        (
            SETS.format(name="spark.sql.avro.datetimeRebaseModeInWrite", value="LEGACY"),
            "spark.sql.avro.datetimeRebaseMode",
        ),
        (SETS.format(name="spark.sql.ansi.enabled", value="false"), "Set it under spark: in pipeline.yaml"),
        (SETS.format(name="spark.sql.session.timeZone", value="Asia/Tokyo"), "spark.sql.session.timeZone"),
        (WITH_SQL, "spark.sql.legacy.timeParserPolicy"),
        (AT_IMPORT, "spark.sql.timestampType"),
    ],
    ids=["avro", "ansi", "zone", "SET", "import"],
)
def test_a_transform_that_sets_one_is_refused_before_anything_is_written(
    spark: Any, broker: Broker, filled: Make, transform: str, name: str
) -> None:
    """The session has it as it was again."""
    pipeline = filled(transform)
    for _ in range(2):
        spark.createDataFrame([], "n int")  # makes it the active one, as a job's session is: others have made theirs so
        with pytest.raises(SettingsError, match=f"transform.py: it sets .*{name}"):
            plan_and_write(spark, pipeline, day(1))
        check_settings(spark, pipeline)
    assert latest(pipeline, day(1)).state is State.PLANNED
    assert read_all(broker.bootstrap, pipeline.staging_topic) == []


@pytest.mark.deep
def test_a_result_of_another_session_with_other_settings_is_refused(spark: Any, broker: Broker, filled: Make) -> None:
    pipeline = filled(OF_ANOTHER_SESSION, output={"layout": "output", "key": None})
    with pytest.raises(
        SettingsError, match=r"it sets spark\.sql\.caseSensitive, spark\.sql\.jsonGenerator\.ignoreNullFields"
    ):
        plan_and_write(spark, pipeline, day(1))
    assert read_all(broker.bootstrap, pipeline.staging_topic) == []


def test_what_was_set_before_does_not_hold_and_what_changes_no_value_may_be_set(
    spark: Any, broker: Broker, filled: Make
) -> None:
    """As a `spark-defaults.conf` sets it. The row is that of a session that nobody has touched."""
    pipeline = filled(RESTORES)
    foreign = {
        "spark.sql.session.timeZone": "Asia/Tokyo",
        "spark.sql.ansi.enabled": "false",
        "spark.sql.legacy.timeParserPolicy": "LEGACY",
        "spark.sql.timestampType": "TIMESTAMP_NTZ",
    }
    for name, value in foreign.items():
        spark.conf.set(name, value)
    plan_and_write(spark, pipeline, day(1))
    check_settings(spark, pipeline)
    rows = [r.json for r in read_all(broker.bootstrap, pipeline.staging_topic)]
    assert rows == [{"n": n, "t": "1500-01-01T00:00:00.000000Z"} for n in range(3)]
    assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    spark.conf.unset("spark.sql.autoBroadcastJoinThreshold")


# Those that change what is read, computed or written, by Spark 4.1's own words on each.
OF_VALUES = """
ansi.doubleQuotedIdentifiers avro.datetimeRebaseModeInRead avro.datetimeRebaseModeInWrite binaryOutputStyle caseSensitive
charAsVarchar chunkBase64String.enabled columnNameOfCorruptRecord crossJoin.enabled datetime.java8API.enabled
decimalOperations.allowPrecisionLoss execution.arrow.useLargeVarTypes execution.pandas.convertToArrowArraySafely
execution.pythonUDF.arrow.enabled execution.pyspark.binaryAsBytes files.ignoreCorruptFiles files.ignoreMissingFiles
function.concatBinaryAsString function.eltOutputAsString groupByOrdinal icu.caseMappings.enabled json.enableExactStringParsing
json.enablePartialResults jsonGenerator.ignoreNullFields legacy.allowNegativeScaleOfDecimal legacy.charVarcharAsString
legacy.castComplexTypesToString.enabled legacy.codingErrorAction legacy.javaCharsets legacy.sizeOfNull
legacy.statisticalAggregate legacy.timeParserPolicy legacy.typeCoercion.datetimeToString.enabled optimizer.excludedRules
orc.impl parquet.binaryAsString parquet.datetimeRebaseModeInRead parquet.int96RebaseModeInRead parquet.int96TimestampConversion
parser.escapedStringLiterals preserveCharVarcharTypeInfo readSideCharPadding sources.useV1SourceList storeAssignmentPolicy
timestampType timeType.enabled variant.allowDuplicateKeys
""".split()


def test_each_setting_of_this_spark_is_pinned_or_listed_or_keeps_its_default(spark: Any) -> None:
    """No name on the list is unknown to Spark, and none that changes values is on it."""
    entries = getattr(getattr(spark._jvm.org.apache.spark.sql.internal, "SQLConf$"), "MODULE$")
    known = {str(entry.key()) for entry in spark._jvm.java.util.ArrayList(entries.getConfigEntries())}
    assert known.issuperset(PINNED_SQL)
    assert {f"{SQL}{name}" for name in OF_VALUES} <= known
    assert [name for name in OF_VALUES if is_harmless(f"{SQL}{name}")] == []
    assert not any(is_harmless(name) for name in known if name.startswith(f"{SQL}legacy."))
