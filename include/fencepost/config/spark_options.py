"""Refuses the Spark settings that a pipeline may not set, because the protocol or values depend on them, or because
they are secrets.

A list names the SQL settings that a pipeline may set, because they are known to change no value. Any other SQL setting
is refused, for example a setting of a new Spark version. So no setting silently changes what is read or written.
"""

from __future__ import annotations

from collections.abc import Mapping

from fencepost.config.secret_names import OF_AIRFLOW, looks_secret

ARGUMENTS = (
    "looks like a secret, but spark settings are arguments of spark-submit, which everybody on the machine can read; read it "
    "from os.environ in transform.py, or set it in Spark's own spark-defaults.conf"
)
# SQL settings that every session has, whatever Spark's configuration or environment says.
PINNED_SQL = {
    "spark.sql.adaptive.enabled": ("false", "the plan fixes the number of task-partitions"),
    "spark.sql.execution.arrow.pyspark.enabled": ("true", "records go between Spark and Python as Arrow"),
    "spark.sql.session.timeZone": ("UTC", "all times are UTC"),
}
# How a transform's functions treat invalid values; these are Spark's defaults. A pipeline may change them, and the plan
# freezes the choice.
OF_TRANSFORM = {"spark.sql.ansi.enabled": "true", "spark.sql.mapKeyDedupPolicy": "EXCEPTION"}
FIXED_SPARK = {**PINNED_SQL, "spark.submit.deployMode": ("client", "in cluster mode a driver could outlive its task")}
OWN_SPARK = {
    "spark.master": "it does not belong to a pipeline: Airflow takes the host of its connection spark_default, and `fencepost "
    "run` takes the variable FENCEPOST_SPARK_MASTER (local[*] without it). Set it there",
    "spark.submit.pyFiles": "it brings the fencepost package to the executors",
    "spark.redaction.regex": "it keeps passwords out of Spark's plans",
}
# SQL settings that change no value, without `spark.sql.` in front. A name that ends with a dot stands for all names
# below it.
CHANGE_NO_VALUE = frozenset(
    """
    adaptive. artifact. autoBroadcastJoinThreshold broadcastExchange. broadcastTimeout bucketing. cartesianProductExec. cbo.
    codegen. debug.maxToStringFields defaultSizeInBytes exchange.reuse execution.reuseSubquery
    execution.useObjectHashAggregateExec execution.arrow.compression. execution.arrow.localRelationThreshold
    execution.arrow.maxBytesPerBatch execution.arrow.maxBytesPerOutputBatch execution.arrow.maxRecordsPerBatch
    execution.arrow.maxRecordsPerOutputBatch
    execution.pandas.udf.buffer.size execution.python.udf. execution.pyspark.udf. files.maxPartitionBytes files.maxPartitionNum
    files.minPartitionNum files.openCostInBytes inMemoryColumnarStorage. join.preferSortMergeJoin leafNodeDefaultParallelism
    maxBroadcastTableSize maxMetadataStringLength maxPlanStringLength maxSinglePartitionBytes objectHashAggregate.
    optimizer.dynamicPartitionPruning. optimizer.runtime. optimizer.runtimeFilter. orc.columnarReaderBatchSize
    parquet.columnarReaderBatchSize planChangeLog. planner.pythonExecution.memory queryExecutionListeners redaction.
    resultQueryStage. sessionWindow. shuffle.partitions shuffleDependency. shuffleExchange. shuffledHashJoinFactor
    sort.enableRadixSort sortMergeJoinExec. sources.bucketing. sources.parallelPartitionDiscovery. sources.v2.bucketing.
    statistics. subexpressionElimination. subquery.maxThreadThreshold ui. windowExec.
    """.split()
)
# Settings that say where the transform's other tables are.
OF_TABLES = frozenset(
    "catalog. catalogImplementation defaultCatalog extensions hive.metastore. iceberg. warehouse.dir".split()
)
SQL = "spark.sql."
DOCUMENTED = "docs/pipelines.md (Spark settings) says what may be set"


def check_spark(values: Mapping[str, str]) -> None:
    """Refuses secrets, settings that the protocol or values depend on, and settings that Spark would ignore.

    Raises:
        ValueError: names the setting, the value and what is allowed. It never has a value that could be a secret.
    """
    for name, value in values.items():
        if not name.startswith("spark."):
            raise ValueError(f"{name}: Spark's settings begin with 'spark.'; Spark would ignore this name")
        if name in OWN_SPARK:
            raise ValueError(f"{name} cannot be set: {OWN_SPARK[name]}")
        if OF_AIRFLOW.search(value):
            raise ValueError(
                f"{name} names a variable of Airflow's own (AIRFLOW__..., AIRFLOW_CONN_..., AIRFLOW_VAR_...)"
            )
        if looks_secret(name, value):
            raise ValueError(f"{name} {ARGUMENTS}")
        allowed, reason = FIXED_SPARK.get(name, (value, ""))
        if value != allowed:
            raise ValueError(f"{name} is {value!r}, allowed is {allowed!r}: {reason}")
        if name not in FIXED_SPARK and name not in OF_TRANSFORM and not is_harmless(name):
            raise ValueError(
                f"{name} cannot be set: it may change values that are read or written. {DOCUMENTED}. Use an option of the "
                "reader, or a function, in the transform"
            )


def is_harmless(name: str) -> bool:
    """Returns whether a setting of Spark changes no value. A setting in the list changes no value, and neither does a
    setting that is not an SQL setting.
    """
    if not name.startswith(SQL):
        return True
    parts = name.removeprefix(SQL).split(".")
    above = {".".join(parts[:n]) + "." for n in range(1, len(parts))}
    return not (above | {".".join(parts)}).isdisjoint(CHANGE_NO_VALUE | OF_TABLES)


def settings_of_values(own: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings that decide values. Every session of a pipeline has them. `own` are the pipeline's settings."""
    pinned = {name: value for name, (value, _) in PINNED_SQL.items()}
    return pinned | {name: own.get(name, value) for name, value in OF_TRANSFORM.items()}
