"""Three real brokers for the tests that kill some: node 1 is the controller and stays, nodes 2 and 3 may die."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient

from fencepost.local.broker import Broker
from fencepost.local.ports import any_free_port
from kafka_tools import QUIET_LOG
from tcp_proxy import Proxy

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"
REPLICATED = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "1",
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "4000",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}


class Node(Broker):
    """One broker; the first is the controller too. Clients and other brokers reach it through `proxy` alone, a checker
    straight, by its listener DIRECT."""

    def __init__(self, folder: Path, number: int, controller: Node | None, properties: Mapping[str, str]) -> None:
        direct = any_free_port()
        super().__init__(folder, properties=properties, extra_listener=("DIRECT", direct, direct))
        self.number, self.controller = number, controller
        self.direct = f"127.0.0.1:{direct}"
        self.proxy = Proxy(any_free_port(), self.port)

    def _all_properties(self) -> dict[str, str]:
        ours = super()._all_properties() | {"node.id": str(self.number)}
        ours["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:{self.proxy.port},DIRECT://{self.direct}"
        if self.controller is not None:
            ours["process.roles"] = "broker"
            ours["listeners"] = f"PLAINTEXT://{self.bootstrap},DIRECT://{self.direct}"
            ours["controller.quorum.bootstrap.servers"] = f"127.0.0.1:{self.controller._controller_port()}"
        return ours

    def _controller_port(self) -> int:
        """Other nodes ask for it while it is in use."""
        memory = self.folder / "controller.port"
        return int(memory.read_text()) if memory.exists() else super()._controller_port()

    def _format(self, config: Path) -> None:
        role = "--standalone" if self.controller is None else "--no-initial-controllers"
        tool = [*self._java("128m"), "kafka.tools.StorageTool", "format", role, "--cluster-id", CLUSTER_ID]
        subprocess.run([*tool, "--config", str(config)], check=True, capture_output=True)


class KafkaCluster:
    """The nodes by number, and who leads what."""

    def __init__(self, folder: Path, properties: Mapping[str, str]) -> None:
        first = Node(folder / "1", 1, None, {**REPLICATED, **properties})
        self.nodes = {1: first} | {n: Node(folder / str(n), n, first, {**REPLICATED, **properties}) for n in (2, 3)}

    @property
    def bootstrap(self) -> str:
        """Through the proxies."""
        return ",".join(f"127.0.0.1:{node.proxy.port}" for node in self.nodes.values())

    @property
    def direct(self) -> str:
        """Past the proxies."""
        return ",".join(node.direct for node in self.nodes.values())

    def leader(self, topic: str, partition: int) -> int:
        """The node that leads a partition now; -1 when none does."""
        admin = AdminClient({"bootstrap.servers": self.nodes[1].direct}, logger=QUIET_LOG)
        return int(admin.list_topics(topic, timeout=20).topics[topic].partitions[partition].leader)


@contextmanager
def kafka_cluster(folder: Path, properties: Mapping[str, str] | None = None) -> Iterator[KafkaCluster]:
    """A running cluster; whatever of it still runs is stopped at the end."""
    cluster = KafkaCluster(folder, properties or {})
    with ExitStack() as stack:
        for node in cluster.nodes.values():
            stack.enter_context(node.proxy)
            stack.callback(node.kill)
        for node in cluster.nodes.values():
            node.start()
        yield cluster


def coordinator_partition(name: str, partitions: int) -> int:
    """Which partition of __transaction_state (or __consumer_offsets) a name belongs to: Java's String.hashCode."""
    code = 0
    for character in name:
        code = (31 * code + ord(character)) & 0xFFFFFFFF
    signed = code - (1 << 32) if code >= 1 << 31 else code
    return (signed & 0x7FFFFFFF) % partitions
