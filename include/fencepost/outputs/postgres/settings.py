"""The section `output` of a pipeline whose output is a table of PostgreSQL."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import field_validator

from fencepost.config.client_config import ClientConfig
from fencepost.config.output_settings import OutputSettings, RecordSettings
from fencepost.config.sections import Lineage, Mark
from fencepost.config.services.postgres import POSTGRES
from fencepost.outputs.postgres.identifiers import BOOKKEEPING_TABLES, LONGEST_IDENTIFIER

TABLE_PART = r'[^."\x00-\x1f]+'
PORT = "5432"


class StagedForTable(RecordSettings):
    """The staged records of a table. A table cannot store a tombstone, and PostgreSQL's JSON cannot store -0."""

    takes_tombstones: ClassVar[bool] = False
    keeps_minus_zero: ClassVar[bool] = False


STAGED = StagedForTable()


class PostgresSettings(OutputSettings):
    """A PostgreSQL table as the output. Records are staged as JSON without a key."""

    kind: Literal["postgres"]
    table: Annotated[str, Mark.FROM_ENVIRONMENT]
    # whether a publication adds columns that the table lacks
    add_columns: Annotated[bool, Mark.DECIDES_NO_RECORD] = False
    # whether removing rows may change rows of other tables that refer to them (ON DELETE CASCADE, …)
    allow_referential_actions: Annotated[bool, Mark.DECIDES_NO_RECORD] = False

    services: ClassVar[Mapping[str, str]] = {"postgres": "host, dbname and user of the database"}
    is_compared = True

    @field_validator("table")
    @classmethod
    def _is_table(cls, table: str) -> str:
        if not re.fullmatch(rf"{TABLE_PART}(\.{TABLE_PART})?", table):
            raise ValueError("not the name of a table, such as delays or reporting.delays")
        parts = table.split(".")
        if any(len(part.encode()) > LONGEST_IDENTIFIER for part in parts):
            raise ValueError(f"longer than {LONGEST_IDENTIFIER} bytes, so PostgreSQL would truncate it")
        if parts[-1] in BOOKKEEPING_TABLES:
            raise ValueError("one of Fencepost's own tables; name another")
        return table if len(parts) > 1 else f"public.{table}"

    @property
    def name(self) -> str:
        """Returns the table's name, with its schema."""
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
        """Returns OpenLineage's namespace of the server, and the table's name with its database."""
        settings = config.plain(POSTGRES)
        host, port = (settings.get(name, "").partition(",")[0].strip() for name in ("host", "port"))
        place = lineage.postgres or f"{host or 'localhost'}:{port or PORT}"
        return f"postgres://{place}", f"{settings['dbname']}.{self.table}"

    def grants(self, config: ClientConfig, *, reader: bool) -> list[tuple[str, list[str]]]:
        """Returns the GRANT statements for the pipeline's role, or for a reader's."""
        from fencepost.outputs.postgres.rights import grants, grants_of_reader

        if reader:
            return [grants_of_reader(self.table)]
        return list(grants(self.table, config.plain(POSTGRES)["user"]))


SETTINGS = PostgresSettings
