"""Reads the records of a published batch from an output topic, for `read_validated`."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from fencepost.errors import NeedsOperator, TopicRecreated
from fencepost.kafka.client_settings import client_settings
from fencepost.kafka.cluster import Cluster
from fencepost.model import OffsetRange, by_partition, describe_ranges
from fencepost.outputs.batch_topic import read_named
from fencepost.outputs.rows_request import RowsRequest
from fencepost.protocol.announcement import Announcement
from fencepost.protocol.ranges import without_expired
from fencepost.rows.encode import parse_output

OPEN_TRANSACTION_LIMIT = 120.0  # seconds to wait for another producer's open transaction


def read_rows(request: RowsRequest) -> DataFrame:
    """Returns the rows of a batch.

    Raises:
        TopicRecreated, NeedsOperator: the records are gone, or cannot be distinguished from other records.
    """
    one = request.announcement
    raw = read_named(request.spark, client_settings(request.reader), _place(request.cluster, one), one.batch)
    return parse_output(raw, one.format or "", request.columns, request.schemas())


def _place(cluster: Cluster, one: Announcement) -> Sequence[OffsetRange]:
    """Returns the ranges of a batch, after it is certain that all records of the batch exist and are visible.

    Raises:
        TopicRecreated, NeedsOperator: the records are gone, or cannot be distinguished from other records.
    """
    if one.header is None and one.rows:
        raise NeedsOperator(
            f"batch {one.batch}: its records have no header (output.batch_header was false when it was planned), so a reader "
            "cannot distinguish them from others in their ranges. Ask the pipeline's owner to set output.batch_header: true and "
            "to reprocess the interval."
        )
    topic = cluster.describe(one.output)
    if topic.id != one.topic_id:
        raise TopicRecreated(
            f"batch {one.batch}: output topic {topic.name} was deleted and created again since its publication, so its records "
            "are gone. A reprocess of its interval writes them again."
        )
    earliest = cluster.earliest(topic)
    _, deleted = without_expired(one.offset_ranges, by_partition(topic.name, earliest))
    if deleted:
        raise NeedsOperator(
            f"batch {one.batch}: output topic {topic.name} no longer has {describe_ranges(deleted)}: retention or a person "
            "deleted them. Raise the topic's retention.ms; then a reprocess of the interval writes them again."
        )
    ends = {r.partition: r.end for r in one.offset_ranges}
    wanted = [ends.get(p, 0) for p in range(topic.partitions)]
    cluster.await_stable(topic, wanted, OPEN_TRANSACTION_LIMIT, f"batch {one.batch}, read_validated")
    return one.offset_ranges or (OffsetRange(topic=topic.name, partition=0, start=earliest[0], end=earliest[0]),)
