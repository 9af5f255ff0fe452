"""Three real brokers for the tests that kill some: node 1 is the controller and stays, nodes 2 and 3 may die.

Secured ones have clients log in by SASL_SSL and forbid what no ACL allows; past the proxies everybody may do all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,  # type: ignore[attr-defined]
    ScramMechanism,  # type: ignore[attr-defined]
    UserScramCredentialUpsertion,  # type: ignore[attr-defined]
)

from fencepost.config.pipeline import Pipeline
from fencepost.errors import FencepostError
from fencepost.kafka.client_settings import ClientSettings
from fencepost.kafka.cluster import Cluster
from fencepost_stack.broker import Broker
from fencepost_stack.pipeline_users import bindings_of
from fencepost_stack.ports import any_free_port
from kafka_tools import QUIET_LOG
from rigs.certificates import PASSWORD
from rigs.tcp_proxy import Proxy
from waiting import await_true

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

    def __init__(
        self,
        folder: Path,
        number: int,
        controller: Node | None,
        properties: Mapping[str, str],
        certificates: Path | None = None,
    ) -> None:
        direct = any_free_port()
        super().__init__(folder, properties=properties, extra_listener=("DIRECT", direct, direct))
        self.number, self.controller, self.certificates = number, controller, certificates
        self.direct = f"127.0.0.1:{direct}"
        self.proxy = Proxy(any_free_port(), self.port)

    def _all_properties(self) -> dict[str, str]:
        ours = super()._all_properties() | {"node.id": str(self.number)}
        ours["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:{self.proxy.port},DIRECT://{self.direct}"
        if self.controller is not None:
            ours["process.roles"] = "broker"
            ours["listeners"] = f"PLAINTEXT://{self.bootstrap},DIRECT://{self.direct}"
            ours["controller.quorum.bootstrap.servers"] = f"127.0.0.1:{self.controller._controller_port()}"
        return ours | (secured(self.certificates) if self.certificates else {})

    def healthy(self) -> bool:
        try:
            return bool(Cluster(ClientSettings({"bootstrap.servers": self.direct})).broker_config("node.id", ""))
        except FencepostError:
            return False

    def _controller_port(self) -> int:
        """Other nodes ask for it while it is in use."""
        memory = self.folder / "controller.port"
        return int(memory.read_text()) if memory.exists() else super()._controller_port()

    def _identity(self) -> list[str]:
        role = "--standalone" if self.controller is None else "--no-initial-controllers"
        return [role, "--cluster-id", CLUSTER_ID]


def secured(certificates: Path) -> dict[str, str]:
    """The listener that the proxies serve asks for a login by SCRAM, over TLS."""
    store = "listener.name.plaintext.ssl.keystore"
    return {
        "listener.security.protocol.map": "PLAINTEXT:SASL_SSL,CONTROLLER:PLAINTEXT,DIRECT:PLAINTEXT",
        "inter.broker.listener.name": "DIRECT",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "listener.name.plaintext.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.plaintext.scram-sha-512.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
        f"{store}.type": "PKCS12",
        f"{store}.location": str(certificates / "server.p12"),
        f"{store}.password": PASSWORD,
    }


class KafkaCluster:
    """The nodes by number, and who leads what. With `certificates` it is secured."""

    def __init__(self, folder: Path, properties: Mapping[str, str], certificates: Path | None = None) -> None:
        first = Node(folder / "1", 1, None, {**REPLICATED, **properties}, certificates)
        self.certificates = certificates
        self.nodes = {1: first}
        for number in (2, 3):
            self.nodes[number] = Node(folder / str(number), number, first, {**REPLICATED, **properties}, certificates)

    @property
    def bootstrap(self) -> str:
        """Through the proxies."""
        return ",".join(f"127.0.0.1:{node.proxy.port}" for node in self.nodes.values())

    @property
    def direct(self) -> str:
        """Past the proxies."""
        return ",".join(node.direct for node in self.nodes.values())

    def is_known_to_all(self) -> bool:
        """Whether each node tells of all. A client that hears from one of a node, and from another that there is none, ends what
        it asked of that node (librdkafka's _DESTROY_BROKER)."""
        return all(self._told_by(node) == set(self.nodes) for node in self.nodes.values())

    def _told_by(self, node: Node) -> set[int]:
        """The nodes that this one tells of: a new client asks the one that it is given."""
        admin = AdminClient({"bootstrap.servers": node.direct}, logger=QUIET_LOG)
        return set(admin.list_topics(timeout=20).brokers)

    def let_in(self, pipeline: Pipeline) -> None:
        """A user of the pipeline's name, with the rights that it needs and no others."""
        admin = AdminClient({"bootstrap.servers": self.direct}, logger=QUIET_LOG)
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        user = UserScramCredentialUpsertion(pipeline.name, credential, PASSWORD.encode())
        asked = [*admin.alter_user_scram_credentials([user]).values()]
        for done in (*asked, *admin.create_acls(list(bindings_of(pipeline))).values()):
            done.result(60)

    def settings(self, user: str) -> dict[str, str]:
        """A client's settings, through the proxies."""
        if self.certificates is None:
            return {"bootstrap.servers": self.bootstrap}
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": PASSWORD,
            "ssl.ca.location": str(self.certificates / "ca.pem"),
        }

    def leader(self, topic: str, partition: int) -> int:
        """The node that leads a partition now; -1 when none does."""
        admin = AdminClient({"bootstrap.servers": self.nodes[1].direct}, logger=QUIET_LOG)
        return int(admin.list_topics(topic, timeout=20).topics[topic].partitions[partition].leader)


@contextmanager
def kafka_cluster(
    folder: Path, properties: Mapping[str, str] | None = None, certificates: Path | None = None
) -> Iterator[KafkaCluster]:
    """A running cluster; whatever of it still runs is stopped at the end."""
    cluster = KafkaCluster(folder, properties or {}, certificates)
    with ExitStack() as stack:
        for node in cluster.nodes.values():
            stack.enter_context(node.proxy)
            stack.callback(node.kill)
        for node in cluster.nodes.values():
            node.start()
        await_true(cluster.is_known_to_all, "every node to know of all", 60)
        yield cluster


def coordinator_partition(name: str, partitions: int) -> int:
    """Which partition of __transaction_state (or __consumer_offsets) a name belongs to: Java's String.hashCode."""
    code = 0
    for character in name:
        code = (31 * code + ord(character)) & 0xFFFFFFFF
    signed = code - (1 << 32) if code >= 1 << 31 else code
    return (signed & 0x7FFFFFFF) % partitions
