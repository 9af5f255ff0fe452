"""The section `output` of a pipeline whose output is an Iceberg table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import field_validator

from fencepost.config.client_config import ClientConfig
from fencepost.config.output_settings import OutputSettings, RecordSettings
from fencepost.config.sections import Lineage, Mark
from fencepost.config.services.iceberg import ICEBERG, REST

PORT = 5432  # of PostgreSQL
NAME_PART = r"[^.\x00-\x1f/]+"


class StagedForLake(RecordSettings):
    """The staged records of a table. A table cannot store a tombstone."""

    takes_tombstones: ClassVar[bool] = False


STAGED = StagedForLake()


class IcebergSettings(OutputSettings):
    """An Iceberg table as the output. Records are staged as JSON without a key."""

    kind: Literal["iceberg"]
    table: Annotated[str, Mark.FROM_ENVIRONMENT]
    # whether a publication adds columns that the table lacks
    add_columns: Annotated[bool, Mark.DECIDES_NO_RECORD] = False

    services: ClassVar[Mapping[str, str]] = {"iceberg": "type and uri of the catalog"}
    is_compared = True

    @field_validator("table")
    @classmethod
    def _is_table(cls, table: str) -> str:
        if not re.fullmatch(rf"{NAME_PART}(\.{NAME_PART})+", table):
            raise ValueError("not a table with its namespace, such as weather.observations")
        return table

    @property
    def name(self) -> str:
        """Returns the table's name, with its namespace."""
        return self.table

    @property
    def description(self) -> str:
        """Returns `table NAME`, for messages."""
        return f"table {self.table}"

    @property
    def records(self) -> RecordSettings:
        """Returns the settings of staged records. Staged records are JSON whose values the table stores exactly."""
        return STAGED

    def lineage_name(self, config: ClientConfig, lineage: Lineage) -> tuple[str, str]:
        """Returns the catalog and the table. OpenLineage's specification has no name for a table of Iceberg, so this is how
        OpenLineage's Spark integration names a table in its catalog, beside the table's location. It names a SQL
        catalog as the database that it is.
        """
        settings = config.plain(ICEBERG)
        if settings["type"] == REST:
            return settings["uri"].rstrip("/"), self.table
        parts = urlsplit(settings["uri"])
        place = lineage.postgres or f"{parts.hostname}:{parts.port or PORT}"
        return f"postgres://{place}", f"{parts.path.strip('/')}.{self.table}"

    def grants(self, config: ClientConfig, *, reader: bool) -> list[tuple[str, list[str]]]:
        """Returns what the catalog and the store of its files have to grant the pipeline, or a reader."""
        from fencepost.outputs.iceberg.rights import grants

        return grants(self.table, config.plain(ICEBERG), reader=reader)


SETTINGS = IcebergSettings
