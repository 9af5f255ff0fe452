"""Runs a real Apache Kafka broker in KRaft mode, as one node on one machine.

It listens on 127.0.0.1 only, and its data survive a stop. You can use it alone, with a folder of its own:

    with Broker(tmp_path / "kafka") as broker:
        Producer({"bootstrap.servers": broker.bootstrap})
"""

import base64
import os
import secrets
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from fencepost.errors import FencepostError
from fencepost.jars import java, log_tail
from fencepost.kafka.client_settings import ClientSettings
from fencepost.kafka.cluster import Cluster
from fencepost_stack.errors import ServiceFailed
from fencepost_stack.jars import class_path
from fencepost_stack.ports import LOOPBACK, answers, any_free_port, is_free
from fencepost_stack.processes import Process, Service, await_ready, spawn
from fencepost_stack.state_folder import StateFolder, write_private

HEAP = "512m"
COLLECTOR = "-XX:+UseSerialGC"  # a sixth less processor time than G1 for a heap of this size (measured)
READY = 120.0  # seconds: it starts in three, but not on a busy machine
STOP_GRACE = 30.0  # seconds for a controlled shutdown, which closes the logs and makes the next start quick

LOG4J = """<Configuration status="WARN">
  <Appenders><Console name="out"><PatternLayout pattern="[%d] %p %m (%c{1})%n"/></Console></Appenders>
  <Loggers>
    <Root level="WARN"><AppenderRef ref="out"/></Root>
    <Logger name="org.apache.kafka.common.utils.AppInfoParser" level="INFO"/>
    <Logger name="kafka.server.KafkaRaftServer" level="INFO"/>
  </Loggers>
</Configuration>
"""

PROPERTIES: dict[str, str] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "auto.create.topics.enable": "false",
    "num.partitions": "1",
    "default.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    # Old records keep their timestamps, so a retention by age would delete them at once.
    "log.retention.ms": "-1",
    "log.segment.bytes": str(128 * 1024 * 1024),
    "log.index.size.max.bytes": str(1024 * 1024),
    "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
}


class Broker(Service):
    """One broker on one folder. Two users must not use a folder at the same time."""

    ready_within, stop_grace = READY, STOP_GRACE
    log4j = LOG4J

    def __init__(
        self,
        folder: Path,
        port: int | None = None,
        properties: Mapping[str, str] | None = None,
        *,
        sasl_users: Mapping[str, str] | None = None,
        extra_listener: tuple[str, int, int] | None = None,
        log: Path | None = None,
        jars: Path | None = None,
        process: Process | None = None,
        java_options: Sequence[str] = (COLLECTOR,),
    ) -> None:
        """Creates the object. `properties` override Fencepost's. `sasl_users` (name to password) opens a second
        listener with SASL/PLAIN, at `sasl_bootstrap`. `extra_listener` (name, port, advertised port) opens a listener
        behind a proxy. `process` was started on this folder by an earlier command. `java_options` override Fencepost's,
        for example with a collector or a larger heap.
        """
        self.folder = folder
        self.port = port or any_free_port()
        self.properties = dict(properties or {})
        self.sasl_users = dict(sasl_users or {})
        self.sasl_port = any_free_port() if self.sasl_users else 0
        self.extra_listener = extra_listener
        self.log = log or folder / "kafka.log"
        super().__init__(process)
        self._jars = jars
        self._java_options = tuple(java_options)

    @property
    def bootstrap(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    @property
    def sasl_bootstrap(self) -> str:
        """Returns the address of the listener with name and password. It needs `sasl_users`."""
        return f"{LOOPBACK}:{self.sasl_port}"

    def launch(self) -> Process:
        """Starts the broker without waiting for it. A new folder is formatted first."""
        self.process = spawn(self.prepare(), env=os.environ, log=self.log, cwd=self.folder)
        return self.process

    def prepare(self) -> list[str]:
        """Writes the settings, formats a new folder, and returns the command that starts the broker."""
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "server.properties"
        properties = self._all_properties()
        write_private(config, "".join(f"{key}={value}\n" for key, value in properties.items()))
        (self.folder / "log4j2.xml").write_text(self.log4j)
        if not (self.folder / "data" / "meta.properties").exists():
            self._format(config)
        return [*self._java(HEAP, *self._java_options), "kafka.Kafka", str(config)]

    def await_ready(self, timeout: float | None = None) -> None:
        """Waits until the broker answers. Raises ServiceFailed with the log's tail if it does not."""
        if self.process is None:
            raise ServiceFailed(f"no Kafka broker was started on {self.folder}.")
        await_ready("Kafka", self.process, self.log, self.healthy, timeout or self.ready_within)

    def healthy(self) -> bool:
        """Returns whether the broker answers a request that needs a broker in full service."""
        if not answers(LOOPBACK, self.port):
            return False
        try:
            return bool(Cluster(ClientSettings({"bootstrap.servers": self.bootstrap})).broker_config("node.id", ""))
        except FencepostError:
            return False

    def kill(self) -> None:
        """Kills the process with SIGKILL, like the death of a machine. The data stay.

        The next start takes ten seconds longer, because the controller waits for the dead broker's
        `broker.session.timeout.ms`.
        """
        super().kill()

    def _java(self, heap: str, *more: str) -> list[str]:
        jars = self._jars or StateFolder.default().jars_kafka
        return [
            java(),
            *(f"-Xmx{heap}", "-XX:+ExitOnOutOfMemoryError", "-Djava.net.preferIPv4Stack=true"),
            *more,
            f"-Dlog4j2.configurationFile={self.folder / 'log4j2.xml'}",
            *("-cp", class_path(jars)),
        ]

    def _all_properties(self) -> dict[str, str]:
        listeners = [f"PLAINTEXT://{self.bootstrap}", f"CONTROLLER://{LOOPBACK}:{self._controller_port()}"]
        protocols = ["PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT"]
        advertised = [listeners[0]]
        sasl: dict[str, str] = {}
        if self.extra_listener is not None:
            name, port, told = self.extra_listener
            listeners.append(f"{name}://{LOOPBACK}:{port}")
            advertised.append(f"{name}://{LOOPBACK}:{told}")
            protocols.append(f"{name}:PLAINTEXT")
        if self.sasl_users:
            listeners.append(f"SASL://{self.sasl_bootstrap}")
            advertised.append(listeners[-1])
            protocols.append("SASL:SASL_PLAINTEXT")
            users = " ".join(f'user_{name}="{password}"' for name, password in self.sasl_users.items())
            module = "org.apache.kafka.common.security.plain.PlainLoginModule"
            sasl = {
                "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
                "listener.name.sasl.plain.sasl.jaas.config": f"{module} required {users};",
            }
        return {
            **PROPERTIES,
            "log.dirs": str(self.folder / "data"),
            "listeners": ",".join(listeners),
            "advertised.listeners": ",".join(advertised),
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": ",".join(protocols),
            "controller.quorum.bootstrap.servers": listeners[1].removeprefix("CONTROLLER://"),
            **sasl,
            **self.properties,
        }

    def _controller_port(self) -> int:
        """Returns the port that was used before, if it is free. The quorum has recorded that port."""
        memory = self.folder / "controller.port"
        port = int(memory.read_text()) if memory.exists() else any_free_port()
        if not is_free(port):
            port = any_free_port()
        memory.write_text(f"{port}\n")
        return port

    def _identity(self) -> list[str]:
        """Returns the options for formatting a new folder. The options have the cluster's id and the controllers."""
        return ["--standalone", "--cluster-id", new_cluster_id()]

    def _format(self, config: Path) -> None:
        log = self.folder / "format.log"
        tool = [*self._java("128m"), "kafka.tools.StorageTool", "format", *self._identity()]
        with log.open("w") as out:
            done = subprocess.run(
                [*tool, "--config", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                check=False,
            )
        if done.returncode != 0:
            raise ServiceFailed(f"formatting Kafka's folder {self.folder} failed. {log} says:\n{log_tail(log)}")


def new_cluster_id() -> str:
    """Returns a random cluster id, which is sixteen bytes in Kafka's form. It has no leading `-`, because Kafka's tools
    would take that for an option.
    """
    return "A" + base64.urlsafe_b64encode(secrets.token_bytes(16)).decode()[1:22]
