"""A broker that forbids what is not granted, with a listener for each way to log in.

Everybody on the PLAINTEXT listener is User:ANONYMOUS, which may do all: tests prepare and look through that one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,  # type: ignore[attr-defined]
    ScramMechanism,  # type: ignore[attr-defined]
    UserScramCredentialUpsertion,  # type: ignore[attr-defined]
)

from fencepost.kafka.errors import COORDINATOR_MOVED
from fencepost_stack.broker import Broker
from fencepost_stack.ports import LOOPBACK, any_free_port
from kafka_tools import QUIET_LOG, create_topic
from rigs.certificates import PASSWORD, make_certificates
from waiting import await_true

LOG4J = """<Configuration status="WARN">
  <Appenders><Console name="out"><PatternLayout pattern="[%d] %p %m (%c{1})%n"/></Console></Appenders>
  <Loggers>
    <Root level="WARN"><AppenderRef ref="out"/></Root>
    <Logger name="kafka.authorizer.logger" level="INFO"/>
  </Loggers>
</Configuration>
"""
LISTENERS = {"SCRAM": "SASL_SSL", "MUTUAL": "SSL", "TLS": "SSL", "EXPIRED": "SSL"}
SCRAM_PASSWORD = "hunter2-scram"


class SecuredBroker(Broker):
    """One node with Kafka's own authorizer. `files` has the certificates of `certificates.make_certificates`."""

    def __init__(self, folder: Path, files: Path) -> None:
        super().__init__(folder)
        self.files = files
        self.ports = {name: any_free_port() for name in LISTENERS}
        controller = any_free_port()
        named = {"PLAINTEXT": self.port, **self.ports}
        listeners = ",".join(f"{name}://{LOOPBACK}:{port}" for name, port in named.items())
        protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **LISTENERS}
        self.properties |= {
            "listeners": f"{listeners},CONTROLLER://{LOOPBACK}:{controller}",
            "advertised.listeners": listeners,
            "controller.quorum.bootstrap.servers": f"{LOOPBACK}:{controller}",
            "listener.security.protocol.map": ",".join(f"{name}:{value}" for name, value in protocols.items()),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.scram.scram-sha-512.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/,DEFAULT",
        }
        for name in LISTENERS:
            store = "expired-server.p12" if name == "EXPIRED" else "server.p12"
            self.properties |= {
                f"listener.name.{name.lower()}.ssl.keystore.type": "PKCS12",
                f"listener.name.{name.lower()}.ssl.keystore.location": str(files / store),
                f"listener.name.{name.lower()}.ssl.keystore.password": PASSWORD,
                f"listener.name.{name.lower()}.ssl.truststore.type": "PEM",
                f"listener.name.{name.lower()}.ssl.truststore.location": str(files / "ca.pem"),
            }

    def _java(self, heap: str, *more: str) -> list[str]:
        (self.folder / "authorizer.xml").write_text(LOG4J)
        wanted = f"-Dlog4j2.configurationFile={self.folder / 'authorizer.xml'}"
        return [
            wanted if part.startswith("-Dlog4j2.configurationFile") else part for part in super()._java(heap, *more)
        ]

    def at(self, listener: str) -> str:
        """The address of a listener."""
        return f"{LOOPBACK}:{self.ports[listener]}"

    @cached_property
    def admin(self) -> AdminClient:
        """A client that may do all. Keep it until it has answered."""
        return AdminClient({"bootstrap.servers": self.bootstrap}, logger=QUIET_LOG)

    def set_password(self, user: str, password: str = SCRAM_PASSWORD) -> None:
        """Make a SCRAM user, or give it another password. No process has it among its arguments."""
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        asked = UserScramCredentialUpsertion(user, credential, password.encode())
        self.admin.alter_user_scram_credentials([asked])[user].result(20)

    def grant_all(self, user: str) -> None:
        """Let a user do all that may be done with topics, groups and transactional ids."""
        for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID):
            any_name = AclBinding(
                kind, "*", ResourcePatternType.LITERAL, f"User:{user}", "*", AclOperation.ALL, AclPermissionType.ALLOW
            )
            self.admin.create_acls([any_name])[any_name].result(20)

    def scram(self, user: str, password: str = SCRAM_PASSWORD) -> dict[str, Any]:
        """A pipeline's settings to log in by name and password, over TLS."""
        return {
            "bootstrap.servers": self.at("SCRAM"),
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": password,
            "ssl.ca.location": str(self.files / "ca.pem"),
        }

    def mutual(self, user: str = "client") -> dict[str, Any]:
        """A pipeline's settings to log in by the certificate of that name."""
        return {
            "bootstrap.servers": self.at("MUTUAL"),
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.files / "ca.pem"),
            "ssl.certificate.location": str(self.files / f"{user}.pem"),
            "ssl.key.location": str(self.files / f"{user}.key"),
        }

    def tls(self, listener: str = "TLS") -> dict[str, Any]:
        """A pipeline's settings for TLS without a login."""
        return {
            "bootstrap.servers": self.at(listener),
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.files / "ca.pem"),
        }

    def make_offsets_topic(self) -> None:
        """Have the broker make its topic for offsets: asked for a group before, confluent-kafka crashes *(measured)*."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "tests"}, logger=QUIET_LOG)
        create_topic(self.bootstrap, "first", 1)
        await_true(lambda: _has_coordinator(consumer), "the broker to coordinate the group")
        consumer.close()

    def denials(self) -> list[str]:
        """What the authorizer has refused, a line each."""
        return [line for line in self.log.read_text().splitlines() if "is Denied operation" in line]


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
def secured_broker(folder: Path) -> Iterator[SecuredBroker]:
    """A running one, with certificates of its own in `folder`."""
    make_certificates(folder)
    with SecuredBroker(folder / "kafka", folder) as broker:
        broker.make_offsets_topic()
        try:
            yield broker
        finally:
            vars(broker).pop("admin", None)  # pytest may hold the broker for longer than a client may live
