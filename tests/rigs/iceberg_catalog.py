"""Iceberg's catalogs on 127.0.0.1, with PostgreSQL behind them and a folder as their warehouse.

Both keep their tables in the same rows of the database: what one has made, the other has too.
"""

from __future__ import annotations

import os
from pathlib import Path

import httpx

from fencepost.jars import java
from fencepost_stack.pins import pyspark_jars
from fencepost_stack.ports import LOOPBACK, any_free_port
from fencepost_stack.processes import Process, Service, await_ready, spawn

from .iceberg_jars import CATALOG, folder_of
from .postgres_server import PostgresServer

NAME = "lake"  # of the catalog: a row of a table has it
MAIN = Path(__file__).with_name("RestCatalog.java")
# As the JVM of a test: it lives for seconds.
JVM = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")


class SqlCatalog:
    """A catalog that is tables of a database, and no process."""

    def __init__(self, folder: Path, postgres: PostgresServer) -> None:
        self.warehouse = folder / "warehouse"
        self.warehouse.mkdir(parents=True)
        self.database = postgres.database()

    @property
    def properties(self) -> dict[str, str]:
        """What pyiceberg needs to come in."""
        return {
            "type": "sql",
            "uri": "postgresql+psycopg2://{user}:{password}@{host}:{port}/{dbname}".format(**self.database),
            "warehouse": self.warehouse.as_uri(),
        }

    @property
    def settings(self) -> dict[str, str]:
        """The same for a pipeline."""
        database = self.database
        return {
            "type": "sql",
            "uri": "postgresql://{host}:{port}/{dbname}".format(**database),
            "user": database["user"],
            "password": database["password"],
            "warehouse": self.warehouse.as_uri(),
        }

    @property
    def spark(self) -> dict[str, str]:
        """The same for Spark, whose catalog has this one's name."""
        return {
            "type": "jdbc",
            "uri": self.jdbc,
            "jdbc.user": self.database["user"],
            "jdbc.password": self.database["password"],
            "jdbc.schema-version": "V1",
            "warehouse": self.warehouse.as_uri(),
        }

    @property
    def jdbc(self) -> str:
        """The database's address in Java."""
        return "jdbc:postgresql://{host}:{port}/{dbname}".format(**self.database)


class RestCatalog(Service):
    """Iceberg's own REST catalog. It can be killed, and comes again at the same port."""

    ready_within, stop_grace = 60.0, 10.0

    def __init__(self, folder: Path, postgres: PostgresServer) -> None:
        super().__init__()
        self.tables = SqlCatalog(folder, postgres)
        self.log = folder / "catalog.log"
        self.port = any_free_port()

    @property
    def uri(self) -> str:
        """Where it answers."""
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def properties(self) -> dict[str, str]:
        """What pyiceberg needs to come in."""
        return {"type": "rest", "uri": self.uri}

    @property
    def settings(self) -> dict[str, str]:
        """The same for a pipeline."""
        return self.properties

    @property
    def spark(self) -> dict[str, str]:
        """The same for Spark."""
        return self.properties

    def launch(self) -> Process:
        """Start it without waiting for it."""
        hadoop = [str(jar) for jar in sorted(pyspark_jars().glob("hadoop-client-*.jar"))]
        class_path = os.pathsep.join([f"{folder_of(CATALOG)}/*", *hadoop])
        settings = {
            "CATALOG_NAME": NAME,
            "CATALOG_PORT": str(self.port),
            "CATALOG_URI": self.tables.jdbc,
            "CATALOG_USER": self.tables.database["user"],
            "CATALOG_PASSWORD": self.tables.database["password"],
            "CATALOG_WAREHOUSE": self.tables.warehouse.as_uri(),
        }
        command = [java(), *JVM, "-Djava.net.preferIPv4Stack=true", "-cp", class_path, str(MAIN)]
        self.process = spawn(command, env={**os.environ, **settings}, log=self.log, cwd=self.log.parent)
        return self.process

    def await_ready(self, timeout: float | None = None) -> None:
        """Wait until it answers."""
        assert self.process is not None
        await_ready("Iceberg's REST catalog", self.process, self.log, self._answers, timeout or self.ready_within)

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.uri}/v1/config", timeout=10.0, trust_env=False).is_success
        except httpx.HTTPError:
            return False
