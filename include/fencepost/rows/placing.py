"""Shuffles rows under layout `output`. Each row goes to the Spark partition of its output partition, and is sorted
there.

Kafka's Java client chooses a partition by `Utils.murmur2` of the key's bytes. Spark's Kafka connector includes that client, and
Spark's generated code calls the function, so no row leaves the JVM.
"""

from __future__ import annotations

from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from fencepost.rows.encode import PLACES
from fencepost.rows.observed import LISTENERS_WAIT_MS

CLIENT_UTILS = "org.apache.kafka.common.utils.Utils"


def place_by_key(records: DataFrame, partitions: int, *also: str) -> DataFrame:
    """Shuffles the rows into `partitions` Spark partitions. If the transform kept the source's order, each partition
    has it.

    A transform keeps the order if it keeps `_partition` and `_offset`, and `_topic` if its source has several topics.
    Otherwise rows are sorted by key and value, so that a retry writes the same sequence as the first attempt. A row
    without a key is placed by its value, for the same reason. Rows of the same place are sorted by the columns `also`.
    """
    place = kafka_partition(records.sparkSession, F.coalesce("key", "value", F.lit(b"")), partitions)
    kept = {"_partition", "_offset"} <= set(records.columns)
    order = [name for name in PLACES if name in records.columns] if kept else ["key", "value"]
    return records.repartitionById(partitions, place).sortWithinPartitions(*order, *also).drop(*PLACES)


def shuffled_again(spark: SparkSession, tag: str) -> bool:
    """Returns whether Spark computed a part of a shuffle again while a job with that tag read it. Spark computes it
    again when it loses an executor.

    Task-partitions that committed before then have rows of the first shuffle, and the others have rows of the second.
    The result is also True if Spark does not answer in time.
    """
    context = spark.sparkContext._jsc.sc()
    try:
        context.listenerBus().waitUntilEmpty(LISTENERS_WAIT_MS)
    except Py4JJavaError:
        return True
    tracker = spark.sparkContext.statusTracker()
    jobs = (tracker.getJobInfo(job) for job in context.statusTracker().getJobIdsForTag(tag))
    last = (tracker.getStageInfo(max(job.stageIds)) for job in jobs if job is not None)  # parents have lower numbers
    return any(stage is not None and stage.currentAttemptId > 0 for stage in last)


def kafka_partition(spark: SparkSession, key: Column, partitions: int) -> Column:
    """Returns the partition that Kafka's Java client chooses for a binary key. The number is murmur2 of the key, made
    positive, modulo `partitions`.
    """
    jvm = spark._jvm
    assert jvm is not None
    # The thread's class loader, which is Spark's, sees the connector's jars; py4j's does not.
    utils = jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(CLIENT_UTILS)
    catalyst = jvm.org.apache.spark.sql.classic.ExpressionUtils
    hashed = jvm.org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke(
        utils,
        jvm.org.apache.spark.sql.types.DataTypes.IntegerType,
        "murmur2",
        jvm.PythonUtils.toSeq([catalyst.expression(key._jc)]),
        jvm.PythonUtils.toSeq([]),  # no implicit casts: the key is binary
        True,  # null in, null out
        True,  # its result may be null
        True,  # deterministic
        getattr(jvm.scala, "None$").__getattr__("MODULE$"),
    )
    return Column(catalyst.column(hashed)).bitwiseAND(0x7FFFFFFF) % partitions
