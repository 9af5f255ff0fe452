"""The request of `read_validated` to a kind of output. A request asks for the rows of one announced batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from fencepost.config.reader import Reader
from fencepost.errors import SettingsError
from fencepost.kafka.cluster import Cluster
from fencepost.model import Schemas
from fencepost.output_kinds import OUTPUT_KINDS, part_of
from fencepost.protocol.announcement import Announcement


@dataclass(frozen=True)
class RowsRequest:
    """A request for the rows of an announced batch, or with `current` for all rows of the current table that the
    announcement names.

    `schemas` looks up the schemas that a topic's records were written with, in the reader's registry. A kind that needs
    the schemas calls it once it knows that the records exist.
    """

    spark: SparkSession
    reader: Reader
    cluster: Cluster
    announcement: Announcement
    columns: StructType
    schemas: Callable[[], Schemas | None]
    current: bool = False


def rows_of(request: RowsRequest) -> DataFrame:
    """Reads the rows with the reader of the output's kind.

    Raises:
        SettingsError: this release does not know the kind.
    """
    kind = request.announcement.kind
    if kind not in OUTPUT_KINDS:
        raise SettingsError(
            f"batch {request.announcement.batch} is in an output of kind {kind}, which this release of Fencepost does not know. "
            "Use the release that wrote it."
        )
    rows: DataFrame = part_of(kind, "reader", "read_rows")(request)
    return rows
