"""Kafka Connect as one process, with Debezium's connectors in it. It can be killed, and goes on from where it was."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import httpx

from fencepost.jars import java
from fencepost_stack.broker import COLLECTOR, LOG4J
from fencepost_stack.jars import class_path, ensure
from fencepost_stack.ports import LOOPBACK, any_free_port
from fencepost_stack.processes import Process, Service, await_ready, spawn
from fencepost_stack.state_folder import StateFolder

from .jars import AVRO, CONNECT, DEBEZIUM, JAR_SETS

HEAP = "400m"
MAIN = "org.apache.kafka.connect.cli.ConnectStandalone"
# Apicurio's converter is found only if the worker looks at every class.
WORKER = {
    "plugin.discovery": "only_scan",
    "offset.flush.interval.ms": "500",
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
}


class ConnectWorker(Service):
    """A worker with connectors by name. Its offsets are in its folder and outlive it."""

    ready_within, stop_grace = 240.0, 30.0

    def __init__(self, folder: Path, bootstrap: str, connectors: Mapping[str, Mapping[str, str]]) -> None:
        super().__init__()
        self.folder = folder
        self.connectors = dict(connectors)
        self.log = folder / "connect.log"
        self._bootstrap = bootstrap
        self._port = any_free_port()

    def launch(self) -> Process:
        """Start the worker without waiting for it."""
        state = StateFolder.default()
        ensure(state, JAR_SETS)
        plugins = self.folder / "plugins"
        plugins.mkdir(parents=True, exist_ok=True)
        # Each folder here is a plugin with a class loader of its own.
        for name, jars in (
            ("debezium", state.jars / DEBEZIUM.name / "debezium-connector-postgres"),
            ("avro", state.jars / AVRO.name),
        ):
            link = plugins / name
            link.unlink(missing_ok=True)
            link.symlink_to(jars.resolve(), target_is_directory=True)
        (self.folder / "log4j2.xml").write_text(LOG4J)
        settings = {
            **WORKER,
            "bootstrap.servers": self._bootstrap,
            "listeners": f"http://{LOOPBACK}:{self._port}",
            "offset.storage.file.filename": str(self.folder / "offsets"),
            "plugin.path": str(plugins),
        }
        files = [self._write("worker", settings)]
        files += [self._write(name, {"name": name, **values}) for name, values in self.connectors.items()]
        command = [
            *(java(), f"-Xmx{HEAP}", COLLECTOR, "-XX:+ExitOnOutOfMemoryError", "-Djava.net.preferIPv4Stack=true"),
            f"-Dlog4j2.configurationFile={self.folder / 'log4j2.xml'}",
            *("-cp", class_path(state.jars / CONNECT.name)),
            *(MAIN, *map(str, files)),
        ]
        self.process = spawn(command, env=os.environ, log=self.log, cwd=self.folder)
        return self.process

    def await_ready(self, timeout: float | None = None) -> None:
        """Wait until each connector and its task run."""
        assert self.process is not None
        await_ready("Kafka Connect", self.process, self.log, self._all_run, timeout or self.ready_within)

    def states(self) -> dict[str, list[str]]:
        """The states of each connector and of its tasks, and why a task failed."""
        found = {}
        for name in self.connectors:
            try:
                answer = httpx.get(
                    f"http://{LOOPBACK}:{self._port}/connectors/{name}/status", timeout=10.0, trust_env=False
                ).json()
            except (httpx.HTTPError, ValueError):
                found[name] = []
                continue
            parts = [answer.get("connector", {}), *answer.get("tasks", [])]
            found[name] = [f"{part.get('state')} {part.get('trace', '')}".strip() for part in parts]
        return found

    def _all_run(self) -> bool:
        states = self.states()
        failed = {name: found for name, found in states.items() if any(each.startswith("FAILED") for each in found)}
        assert not failed, f"connectors that failed: {failed}"
        return all(found == ["RUNNING", "RUNNING"] for found in states.values())

    def _write(self, name: str, settings: Mapping[str, str]) -> Path:
        file = self.folder / f"{name}.properties"
        file.write_text("".join(f"{key}={value.replace(chr(92), chr(92) * 2)}\n" for key, value in settings.items()))
        return file


def debezium(database: Mapping[str, str], name: str, tables: str, **settings: str) -> dict[str, str]:
    """A connector of a database: its slot, its publication and its topics have its name. `settings` override."""
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "tasks.max": "1",
        "plugin.name": "pgoutput",
        "database.hostname": database["host"],
        "database.port": database["port"],
        "database.user": database["user"],
        "database.password": database["password"],
        "database.dbname": database["dbname"],
        "topic.prefix": name,
        "slot.name": name,
        "publication.name": name,
        "publication.autocreate.mode": "filtered",
        "table.include.list": tables,
        # The broker creates no topic by itself.
        "topic.creation.default.partitions": "1",
        "topic.creation.default.replication.factor": "1",
        # A batch that the broker's death cut short is sent again at once.
        "poll.interval.ms": "100",
        **settings,
    }


def json_values(*, schemas: bool) -> dict[str, str]:
    """Settings of a connector whose keys and values are JSON, each with its schema or without."""
    converter = "org.apache.kafka.connect.json.JsonConverter"
    return {
        f"{side}.converter{name}": value
        for side in ("key", "value")
        for name, value in (("", converter), (".schemas.enable", str(schemas).lower()))
    }


def avro_values(registry: str) -> dict[str, str]:
    """Settings of a connector whose keys and values are Avro, with Confluent's five bytes in front.

    `registry` is the address of the registry's server, without a path.
    """
    settings = {
        "": "io.apicurio.registry.utils.converter.AvroConverter",
        ".apicurio.registry.url": f"{registry}/apis/registry/v2",
        ".apicurio.registry.auto-register": "true",
        ".apicurio.registry.auto-register.if-exists": "RETURN_OR_UPDATE",
        ".apicurio.registry.headers.enabled": "false",
        ".apicurio.registry.id-handler": "io.apicurio.registry.serde.Legacy4ByteIdHandler",
        ".apicurio.registry.use-id": "contentId",
    }
    sides = {f"{side}.converter{name}": value for side in ("key", "value") for name, value in settings.items()}
    return {**sides, "schema.name.adjustment.mode": "avro", "field.name.adjustment.mode": "avro"}
