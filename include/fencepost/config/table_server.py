"""The PostgreSQL server of a side table, if the table names one of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import ClassVar, Self

from pydantic_core import PydanticCustomError

from fencepost.config.client_config import ClientConfig
from fencepost.config.services.connection import Settings
from fencepost.config.services.postgres import POSTGRES, check_postgres
from fencepost.config.services.service import Service, checked_by

check_server = partial(check_postgres, writes=False)


class TableServer(ClientConfig):
    """The settings of a server that a side table is read from. It is only read, so a replica will do.

    `name`, `side_table` and `file` are known once the pipeline is (`of`).
    """

    name: str = ""  # the pipeline's
    side_table: str = ""
    file: str = ""  # of the settings

    checks: ClassVar[Mapping[str, Callable[..., None]]] = {POSTGRES.name: check_server}

    def of(self, pipeline: ClientConfig, table: str) -> Self:
        """Returns the settings as those of this side table of the pipeline."""
        return self.model_copy(update={"name": pipeline.name, "side_table": table, "file": pipeline.written_in})

    @property
    def label(self) -> str:
        return f"pipeline {self.name}, tables.{self.side_table}"

    @property
    def written_in(self) -> str:
        return self.file

    def checked(self, service: Service, settings: Settings) -> object:
        return checked_by(check_server)(settings)

    def place(self, service: Service) -> str:
        return f"tables.{self.side_table}.{service.name}"


def server_of(value: object) -> object:
    """Returns the settings that the section `postgres` of a side table has."""
    if value is None or isinstance(value, TableServer):
        return value
    if not isinstance(value, Mapping):
        raise PydanticCustomError("dict_type", "not a section of names and values")
    if not value:
        raise ValueError("it is empty; name a server, or leave it out for the pipeline's own")
    return TableServer.model_validate({POSTGRES.name: value})
