"""The brokers of `make cluster` as tests need them: each can be killed, cut off and looked into.

A client comes in by one of these listeners:

- CLIENTS, through a proxy: by SASL_SSL with SCRAM, and may do what an ACL allows. On an open cluster everybody may do all there,
  and brokers speak to each other through the proxies too.
- BROKERS by a certificate, TLS without a login, and EXPIRED, where the broker's certificate has expired.
- DIRECT, past everything: everybody may do all. Tests prepare and look through that one.

Broker 1 is the only controller and stays; 2 and 3 may die.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from fencepost.config.pipeline import Pipeline
from fencepost.kafka.errors import COORDINATOR_MOVED
from fencepost_stack.broker import LOG4J
from fencepost_stack.pipeline_users import bindings_of
from fencepost_stack.ports import any_free_port
from fencepost_stack.secured_kafka import ADMIN, BROKER, BROKERS, SecuredBroker, SecuredKafka
from kafka_tools import QUIET_LOG, create_topic
from rigs.certificates import PASSWORD, make_all_certificates
from rigs.tcp_proxy import Proxy
from waiting import await_true

READY = 180.0  # seconds, on a machine that does other work as well
LOGIN_PASSWORD = "hunter2-scram"
ALWAYS = {
    "listener.security.protocol.map": "CLIENTS:SASL_SSL,BROKERS:SSL,CONTROLLER:SSL,DIRECT:PLAINTEXT,TLS:SSL,EXPIRED:SSL",
    "super.users": f"User:{BROKER};User:{ADMIN};User:ANONYMOUS",
    "listener.name.expired.ssl.keystore.type": "PKCS12",
    "listener.name.expired.ssl.keystore.password": PASSWORD,
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "4000",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.min.isr": "1",
}
ALONE = {
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
}
OPEN = {
    "listener.security.protocol.map": ALWAYS["listener.security.protocol.map"].replace("SASL_SSL", "PLAINTEXT"),
    "inter.broker.listener.name": "CLIENTS",
    "authorizer.class.name": "",
}


class Node(SecuredBroker):
    """One broker. Clients reach it through `proxy`, and straight at `bootstrap`, its listener DIRECT."""

    log4j = LOG4J.replace("</Loggers>", '<Logger name="kafka.authorizer.logger" level="INFO"/>\n  </Loggers>')

    def __init__(self, cluster: KafkaCluster, name: str) -> None:
        super().__init__(cluster, name)
        self.port = cluster.ports[name]["direct"]
        self.proxy = Proxy(any_free_port(), cluster.ports[name]["clients"])

    def denials(self) -> list[str]:
        """What the authorizer has refused, a line each."""
        return [line for line in self.log.read_text().splitlines() if "is Denied operation" in line]


class KafkaCluster(SecuredKafka):
    """The nodes by number, and who leads what."""

    listeners = ("clients", "brokers", "controller", "direct", "tls", "expired")
    controllers = BROKERS[:1]

    def __init__(self, folder: Path, properties: Mapping[str, str], *, nodes: int, secured: bool) -> None:
        super().__init__(folder)
        self.names = BROKERS[:nodes]
        self.secured = secured
        self.properties = {**ALWAYS, **({} if nodes > 1 else ALONE), **({} if secured else OPEN), **properties}
        self.properties["listener.name.expired.ssl.keystore.location"] = str(self.certificates / "expired-server.p12")
        self.certificates.mkdir(parents=True)
        make_all_certificates(self.certificates)
        self.prepare()
        self.nodes = {number: Node(self, name) for number, name in enumerate(self.names, 1)}

    def broker(self, name: str) -> Node:
        """One of the brokers."""
        return self.nodes[BROKERS.index(name) + 1]

    def advertised(self, name: str, listener: str) -> str:
        """Where others find it."""
        return f"127.0.0.1:{self.broker(name).proxy.port}" if listener == "clients" else self.address(name, listener)

    @property
    def direct(self) -> str:
        """Past proxies and logins."""
        return ",".join(node.bootstrap for node in self.nodes.values())

    @cached_property
    def admin(self) -> AdminClient:
        """A client that may do all. Keep it until it has answered."""
        return AdminClient({"bootstrap.servers": self.nodes[1].bootstrap}, logger=QUIET_LOG)

    def let_in(self, pipeline: Pipeline) -> None:
        """A user of the pipeline's name, with the rights that it needs and no others."""
        self.set_password(pipeline.name)
        self.ensure_rights(list(bindings_of(pipeline)))

    def set_password(self, user: str, password: str = LOGIN_PASSWORD) -> None:
        """Make a user, or give it another password. No process has it among its arguments."""
        self.ensure_users({user: password})

    def grant_all(self, user: str) -> None:
        """Let a user do all that may be done with topics, groups and transactional ids."""
        for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID):
            self.allow(user, kind, "*", AclOperation.ALL)

    def allow(self, user: str, kind: ResourceType, name: str, *operations: AclOperation) -> None:
        """Let a user do this with the resource of that name."""
        literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
        self.ensure_rights([AclBinding(kind, name, literal, f"User:{user}", "*", each, allow) for each in operations])

    def scram(self, user: str, password: str = LOGIN_PASSWORD) -> dict[str, str]:
        """A pipeline's settings to log in by name and password; on an open cluster, to come in."""
        return self.login(user, password) if self.secured else {"bootstrap.servers": self.bootstrap}

    def mutual(self, user: str = "client") -> dict[str, str]:
        """A pipeline's settings to log in by the certificate of that name."""
        return {
            "bootstrap.servers": self._all("brokers"),
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.authority),
            "ssl.certificate.location": str(self.certificates / f"{user}.pem"),
            "ssl.key.location": str(self.certificates / f"{user}.key"),
        }

    def tls(self, listener: str = "tls") -> dict[str, str]:
        """A pipeline's settings for TLS without a login."""
        return {
            "bootstrap.servers": self._all(listener),
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.authority),
        }

    def denials(self) -> list[str]:
        """What the authorizers have refused, a line each."""
        return [line for node in self.nodes.values() for line in node.denials()]

    def leader(self, topic: str, partition: int) -> int:
        """The node that leads a partition now; -1 when none does."""
        return int(self.admin.list_topics(topic, timeout=20).topics[topic].partitions[partition].leader)

    def make_offsets_topic(self) -> None:
        """Have Kafka make its topic for offsets: asked for a group before, confluent-kafka crashes *(measured)*."""
        consumer = Consumer({"bootstrap.servers": self.direct, "group.id": "tests"}, logger=QUIET_LOG)
        create_topic(self.direct, "first", 1)
        await_true(lambda: _has_coordinator(consumer), "a broker to coordinate the group")
        consumer.close()


def _has_coordinator(consumer: Consumer) -> bool:
    """Whether the group's coordinator answers: a broker that has just made its topic for offsets is not ready at once."""
    try:
        consumer.committed([TopicPartition("first", 0)], timeout=30)
    except KafkaException as error:
        if error.args[0].code() not in COORDINATOR_MOVED:
            raise
        return False
    return True


@contextmanager
def kafka_cluster(
    folder: Path, properties: Mapping[str, str] | None = None, *, nodes: int = 3, secured: bool = False
) -> Iterator[KafkaCluster]:
    """A running cluster; whatever of it still runs is stopped at the end."""
    cluster = KafkaCluster(folder, properties or {}, nodes=nodes, secured=secured)
    with ExitStack() as stack:
        # pytest may hold the cluster for longer than a client may live
        stack.callback(lambda: vars(cluster).pop("admin", None))
        for node in cluster.nodes.values():
            stack.enter_context(node.proxy)
            stack.callback(node.kill)
        for name in cluster.names:
            cluster.launch(name)
        cluster.await_ready(READY)
        yield cluster


@contextmanager
def secured_broker(folder: Path) -> Iterator[KafkaCluster]:
    """A secured cluster of one broker."""
    with kafka_cluster(folder, nodes=1, secured=True) as cluster:
        cluster.make_offsets_topic()
        yield cluster


def coordinator_partition(name: str, partitions: int) -> int:
    """Which partition of __transaction_state (or __consumer_offsets) a name belongs to: Java's String.hashCode."""
    code = 0
    for character in name:
        code = (31 * code + ord(character)) & 0xFFFFFFFF
    signed = code - (1 << 32) if code >= 1 << 31 else code
    return (signed & 0x7FFFFFFF) % partitions
