"""Reads the side tables of a pipeline, each by its kind."""

from __future__ import annotations

import logging
import time

from pyspark.sql import SparkSession

from fencepost.config.pipeline import Pipeline
from fencepost.config.side_tables import FileTable, QueryTable, TopicTable
from fencepost.counts import count_of
from fencepost.kafka.cluster import Cluster
from fencepost.side_tables.content import MIB, TableContent
from fencepost.side_tables.files import read_file_table
from fencepost.side_tables.queries import read_query_table
from fencepost.side_tables.topics import read_topic_table

log = logging.getLogger("fencepost.side_tables")


def read_tables(spark: SparkSession, pipeline: Pipeline, cluster: Cluster) -> dict[str, TableContent]:
    """Returns the content of each side table of the pipeline, by name. Each is read once. They are read one after
    another, so they are not of one moment.

    Raises:
        SideTableRefused: a table is empty, too large, has a key twice, or does not fit its declaration.
        SettingsError: a file does not exist or cannot be read.
        KafkaUnavailable, RegistryUnavailable, TableUnavailable, AccessDenied: the place of a table does not answer, or
            refuses the reader.
    """
    return {name: read_table(spark, pipeline, cluster, name) for name in pipeline.tables}


def read_table(spark: SparkSession, pipeline: Pipeline, cluster: Cluster, name: str) -> TableContent:
    """Returns the content of one side table. Raises the errors of `read_tables`."""
    began, table = time.monotonic(), pipeline.tables[name]
    if isinstance(table, TopicTable):
        found = read_topic_table(spark, pipeline, cluster, name, table)
    else:
        found = read_by_driver(pipeline, name)
    log.info(
        "pipeline %s: read side table %s from %s: %s, %.1f MB, in %.1f s",
        pipeline.name,
        name,
        table.description,
        count_of(found.state.rows, "row"),
        found.state.bytes / MIB,
        time.monotonic() - began,
    )
    return found


def read_by_driver(pipeline: Pipeline, name: str) -> TableContent:
    """Returns the content of a side table that is a file or a query. It needs no Spark. Raises the errors of
    `read_tables`.
    """
    table = pipeline.tables[name]
    if isinstance(table, FileTable):
        return read_file_table(pipeline, name, table)
    if isinstance(table, QueryTable):
        return read_query_table(pipeline, name, table)
    raise TypeError(f"no such kind of side table: {table!r}")
