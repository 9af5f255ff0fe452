"""Reads side tables that are topics."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from fencepost.config.pipeline import Pipeline
from fencepost.config.side_tables import TopicTable
from fencepost.counts import count_of
from fencepost.errors import FencepostError
from fencepost.formats import envelope
from fencepost.formats.quoting import column_named
from fencepost.kafka.cluster import Cluster
from fencepost.model import NO_SCHEMAS
from fencepost.rows.decode import CONNECTOR, read_source
from fencepost.schemas.resolve import ids_in_source, with_ids
from fencepost.side_tables.content import TableContent, content_of, refused
from fencepost.side_tables.newest import NewestByKey, read_newest
from fencepost.spark.diagnosis import spark_reads

CONNECTED = StructType([CONNECTOR[name] for name in ("key", "value", "topic", "partition", "offset", "timestamp")])
# Columns of a source's records that a table does not have: they say where a record was, and not what is in it.
OF_RECORDS = frozenset("_topic _partition _offset _timestamp _tombstone _malformed _excluded".split())
FLAGS = ("_partition", "_offset", "_malformed", "_excluded")


def read_topic_table(
    spark: SparkSession, pipeline: Pipeline, cluster: Cluster, name: str, table: TopicTable
) -> TableContent:
    """Returns the content of the side table: the newest record of each Kafka key of its topic. The columns are the fields
    of the value, `_key`, and the fields of the key. A deletion in Debezium's envelope removes its row as a tombstone does.

    Raises:
        SideTableRefused: a record is malformed or has no key, or a key is in two partitions. Other causes are those of
            `content_of`.
        SettingsError: the registry does not have the schemas, or they do not fit the declaration.
        TopicMissing, AccessDenied, KafkaUnavailable, RegistryUnavailable: the topic or the registry cannot be read.
    """
    with _named(pipeline, name):
        newest = read_newest(pipeline, cluster, name, table)
        raw = _frame(spark, newest)
        with spark_reads("decoding its records"):
            # A record with a schema that cannot be read is malformed.
            schemas = with_ids(pipeline, NO_SCHEMAS, ids_in_source(raw, pipeline.table_parts(name)))
            rows, schema = _rows(pipeline, name, table, newest, read_source(raw, table.source, schemas))
    return content_of(pipeline, name, rows, schema, newest.offsets)


@contextmanager
def _named(pipeline: Pipeline, name: str) -> Iterator[None]:
    """Names the side table in errors about a topic alone. Those about its schemas name it already."""
    try:
        yield
    except FencepostError as error:
        if str(error).startswith(f"pipeline {pipeline.name}"):
            raise
        raise type(error)(f"pipeline {pipeline.name}: side table {name}: {error}") from error


def _frame(spark: SparkSession, newest: NewestByKey) -> DataFrame:
    """Returns the records as rows of Spark's connector, without timestamps and headers."""
    records = newest.records
    columns = [
        pa.array((key for _, key in records), pa.binary()),
        pa.array((value for _, value in records.values()), pa.binary()),
        pa.repeat(newest.topic.name, len(records)),
        pa.array((partition for partition, _ in records), pa.int32()),
        pa.array((offset for offset, _ in records.values()), pa.int64()),
        pa.nulls(len(records), pa.timestamp("us", "UTC")),
    ]
    return spark.createDataFrame(pa.Table.from_arrays(columns, names=CONNECTED.fieldNames()), CONNECTED)


def _rows(
    pipeline: Pipeline, name: str, table: TopicTable, newest: NewestByKey, decoded: DataFrame
) -> tuple[pa.Table, StructType]:
    """Returns the rows of decoded records, with the columns of the table."""
    without = not_in_table(table)
    deleted = F.col("_op") == envelope.DELETE if table.envelope is not None else F.lit(False)
    columns = [column_named(one) for one in decoded.columns if one not in without]
    found = decoded.select(*FLAGS, F.coalesce(deleted, F.lit(False)), *columns)
    rows = found.toArrow()
    first = len(FLAGS) + 1
    _check_malformed(pipeline, name, rows)
    rows = rows.filter(pc.and_(pc.is_null(rows["_excluded"]), pc.invert(rows.column(first - 1))))
    _check_partitions(pipeline, name, newest, rows)
    return rows.select(list(range(first, rows.num_columns))), StructType(found.schema.fields[first:])


def not_in_table(table: TopicTable) -> frozenset[str]:
    """Returns the columns of decoded records that the side table does not have."""
    return OF_RECORDS if table.envelope is None else OF_RECORDS | frozenset(envelope.COLUMNS)


def _check_malformed(pipeline: Pipeline, name: str, rows: pa.Table) -> None:
    bad = rows.select(list(range(len(FLAGS)))).filter(pc.is_valid(rows["_malformed"])).to_pylist()
    if bad:
        first = min(bad, key=lambda one: (one["_partition"], one["_offset"]))
        raise refused(
            pipeline,
            name,
            f"{count_of(len(bad), 'of its records is', 'of its records are')} malformed. The first is at partition "
            f"{first['_partition']}, offset {first['_offset']}: {first['_malformed']}. Write a correct record or a tombstone "
            f"with the same key, or correct tables.{name} in pipeline.yaml.",
        )


def _check_partitions(pipeline: Pipeline, name: str, newest: NewestByKey, rows: pa.Table) -> None:
    """Checks that no key has rows in two partitions. Records of two partitions have no order, so neither is the newest.

    A tombstone counts in its own partition alone, because compaction removes it there, and the answer may not depend on
    that. So a tombstone in the partition that a key has left removes what is left of it.
    """
    if not (several := newest.in_several_partitions()):
        return
    kept = set(zip(rows["_partition"].to_pylist(), rows["_offset"].to_pylist(), strict=True))
    doubled = sorted(there for places in several if len(there := [one for one in places if one in kept]) > 1)
    if doubled:
        where = " and ".join(f"partition {partition}, offset {offset}" for partition, offset in doubled[0])
        raise refused(
            pipeline,
            name,
            f"{count_of(len(doubled), 'key has', 'keys have')} records in several partitions, one of them at {where}. Records "
            "of two partitions have no order, so neither is the newest. The topic got more partitions, or its producers place "
            "keys differently. Write a tombstone with the key to the partition that does not count any more, or fill a new "
            "topic.",
        )
