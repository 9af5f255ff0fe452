"""Runs three real Kafka brokers as a team has them: with replicas, TLS, SCRAM and ACLs. Each is both broker and
controller, and all listen on 127.0.0.1.

Clients log in at the listener CLIENTS (SASL_SSL, SCRAM-SHA-512) and may do what an ACL allows. Brokers, controllers and
the administrator show a certificate, at BROKERS and CONTROLLER. Any one of the brokers may fail.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from fencepost.config.java_options import LOGIN_MODULES
from fencepost.errors import Retriable
from fencepost.kafka.clients import make_client
from fencepost.kafka.errors import Complaints
from fencepost_stack.broker import PROPERTIES, STOP_GRACE, Broker, new_cluster_id
from fencepost_stack.certificates import authority_file, ensure_certificates, pair_file, read_pair
from fencepost_stack.ports import LOOPBACK, any_free_port, is_free
from fencepost_stack.processes import Process, await_ready, stop
from fencepost_stack.state_folder import StateFolder, write_private

BROKERS = ("broker-1", "broker-2", "broker-3")
LISTENERS = ("clients", "brokers", "controller")
BROKER, ADMIN = "broker", "admin"  # the names in their certificates; super users both
MECHANISM = "SCRAM-SHA-512"
ITERATIONS = 8192
ANSWER = 30.0  # seconds

REPLICATED: dict[str, str] = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
}
_MAPPING = "RULE:^CN=([^,]+)$/$1/,DEFAULT"
SECURED: dict[str, str] = {
    "listener.security.protocol.map": "CLIENTS:SASL_SSL,HOST:SASL_SSL,BROKERS:SSL,CONTROLLER:SSL",
    "inter.broker.listener.name": "BROKERS",
    "sasl.enabled.mechanisms": MECHANISM,
    "listener.name.clients.scram-sha-512.sasl.jaas.config": f"{LOGIN_MODULES[MECHANISM]} required;",
    "listener.name.host.scram-sha-512.sasl.jaas.config": f"{LOGIN_MODULES[MECHANISM]} required;",
    "listener.name.brokers.ssl.client.auth": "required",
    "listener.name.controller.ssl.client.auth": "required",
    "listener.name.brokers.ssl.principal.mapping.rules": _MAPPING,
    "listener.name.controller.ssl.principal.mapping.rules": _MAPPING,
    "ssl.keystore.type": "PEM",
    "ssl.truststore.type": "PEM",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:{BROKER};User:{ADMIN}",
}

Ports = dict[str, dict[str, int]]  # by broker and listener


class SecuredBroker(Broker):
    """One of the three brokers."""

    def __init__(self, brokers: SecuredKafka, name: str) -> None:
        super().__init__(brokers.data / name, log=brokers.logs / f"{name}.log", jars=brokers.jars)
        self._brokers, self._name = brokers, name

    def _all_properties(self) -> dict[str, str]:
        of = self._brokers
        voters = (f"{_number(name)}@{of.address(name, 'controller')}" for name in of.controllers)
        advertised = {each: of.advertised(self._name, each) for each in of.listeners if each != "controller"}
        is_controller = self._name in of.controllers
        own = of.listeners if is_controller else advertised
        return {
            **PROPERTIES,
            **REPLICATED,
            **SECURED,
            "process.roles": "broker,controller" if is_controller else "broker",
            "node.id": str(_number(self._name)),
            "log.dirs": str(self.folder / "data"),
            "listeners": ",".join(f"{each.upper()}://{of.address(self._name, each)}" for each in own),
            "advertised.listeners": ",".join(f"{each.upper()}://{address}" for each, address in advertised.items()),
            "controller.quorum.voters": ",".join(voters),
            "ssl.keystore.location": str(pair_file(of.certificates, BROKER)),
            "ssl.truststore.location": str(of.authority),
            **of.properties,
        }

    def _identity(self) -> list[str]:
        return ["--cluster-id", self._brokers.cluster_id]


class SecuredKafka:
    """The three brokers on one folder. Two users must not use a folder at the same time."""

    names: Sequence[str] = BROKERS
    controllers: Sequence[str] = BROKERS
    listeners: Sequence[str] = LISTENERS

    def __init__(
        self,
        folder: Path,
        *,
        data: Path | None = None,
        properties: Mapping[str, str] | None = None,
        logs: Path | None = None,
        jars: Path | None = None,
        processes: Mapping[str, Process] | None = None,
    ) -> None:
        """Creates the object. `data` has the brokers' folders, and is `folder` by default. `properties` override the
        brokers' own. `processes` were started on this folder by an earlier command.
        """
        self.folder = folder
        self.data = data or folder
        self.properties = dict(properties or {})
        self.logs = logs or folder
        self.jars = jars or StateFolder.default().jars_kafka
        self.processes: dict[str, Process] = dict(processes or {})
        self.certificates = folder / "certificates"
        self.ports: Ports = _read(folder / "ports.json")

    @property
    def bootstrap(self) -> str:
        """Returns the addresses at which clients log in, by SASL_SSL."""
        return self._all("clients")

    @property
    def authority(self) -> Path:
        """Returns the certificate that clients trust."""
        return authority_file(self.certificates)

    @property
    def cluster_id(self) -> str:
        return (self.folder / "cluster.id").read_text().strip()

    def prepare(self) -> None:
        """Makes certificates, ports and the cluster's id, unless they exist."""
        self.folder.mkdir(parents=True, exist_ok=True)
        renewed = ensure_certificates(self.certificates, (BROKER, ADMIN))
        running = any(process.alive() for process in self.processes.values())
        if renewed and running:
            stop(list(self.processes.values()), grace=STOP_GRACE)
            running = False
        if not running:
            self.ports = {name: {each: self._port(name, each) for each in self.listeners} for name in self.names}
            write_private(self.folder / "ports.json", json.dumps(self.ports))
        self.make_identity()
        self.write_admin_file()

    def make_identity(self) -> None:
        """Makes the cluster's id, unless it exists."""
        file = self.folder / "cluster.id"
        if not file.exists():
            file.write_text(f"{new_cluster_id()}\n")

    def broker(self, name: str) -> SecuredBroker:
        """Returns one of the brokers."""
        return SecuredBroker(self, name)

    def launch(self, name: str) -> Process:
        """Starts one broker without waiting for it. A new broker's folder is formatted first."""
        self.processes[name] = self.broker(name).launch()
        return self.processes[name]

    def await_ready(self, timeout: float = 90.0) -> None:
        """Waits until all brokers serve. Raises ServiceFailed with the log's tail of a broker that ended."""

        def ready() -> bool:
            for name, process in self.processes.items():
                if not process.alive():
                    await_ready(f"Kafka's {name}", process, self.logs / f"{name}.log", lambda: False, 0.0)
            return self.healthy()

        first = self.names[0]
        await_ready("Kafka", self.processes[first], self.logs / f"{first}.log", ready, timeout)

    def healthy(self) -> bool:
        """Returns whether all brokers have joined the cluster and serve, and each broker knows it.

        If one broker reports another broker and a third broker does not, a client cancels its requests to that broker
        (librdkafka's _DESTROY_BROKER).
        """
        if not all(name in self.processes and self.processes[name].alive() for name in self.names):
            return False
        try:
            return all(
                len(self._admin(name).list_topics(timeout=5.0).brokers) == len(self.names) for name in self.names
            )
        except KafkaException:
            return False

    def admin_settings(self) -> dict[str, str]:
        """Returns librdkafka's settings of the administrator, who may do everything and logs in by certificate."""
        certificate, key = read_pair(self.certificates, ADMIN)
        return {
            "bootstrap.servers": self._all("brokers"),
            "security.protocol": "ssl",
            "ssl.ca.location": str(self.authority),
            "ssl.certificate.pem": certificate,
            "ssl.key.pem": key,
        }

    def write_admin_file(self) -> None:
        """Writes the administrator's settings for Kafka's own tools to `admin.properties`, as in `kafka-acls.sh
        --command-config`.
        """
        settings = {
            "bootstrap.servers": self._all("brokers"),
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(pair_file(self.certificates, ADMIN)),
        }
        lines = (f"{name}={value}\n" for name, value in settings.items())
        write_private(self.folder / "admin.properties", "".join(lines))

    def login(self, user: str, password: str) -> dict[str, str]:
        """Returns librdkafka's settings of a user."""
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": password,
            "ssl.ca.location": str(self.authority),
        }

    def ensure_users(self, passwords: Mapping[str, str]) -> None:
        """Makes users with these passwords, or gives existing users these passwords. Raises Retriable."""
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, ITERATIONS)
        wanted: list[UserScramCredentialAlteration] = [
            UserScramCredentialUpsertion(user, info, secret.encode()) for user, secret in passwords.items()
        ]
        if wanted:
            admin = self._admin()  # dropped, it would give up its requests
            self._await("users", admin.alter_user_scram_credentials(wanted).values())

    def ensure_rights(self, bindings: list[AclBinding]) -> None:
        """Adds these ACLs. Existing ACLs do not change. Raises Retriable."""
        if bindings:
            admin = self._admin()
            self._await("ACLs", admin.create_acls(bindings).values())

    def stop(self, grace: float = STOP_GRACE) -> None:
        """Shuts all brokers down, and kills them with SIGKILL after `grace` seconds."""
        stop(list(self.processes.values()), grace=grace)
        self.processes = {}

    def _await(self, what: str, futures: Iterable[Future[Any]]) -> None:
        try:
            for future in futures:
                future.result(ANSWER)
        except (KafkaException, TimeoutError) as error:
            raise Retriable(f"the cluster's {what} could not be set: {error}") from error

    def _admin(self, first: str | None = None) -> AdminClient:
        """Returns a new client of the administrator. If `first` names a broker, the client asks that broker before any
        other.
        """
        settings = self.admin_settings()
        if first is not None:
            settings["bootstrap.servers"] = self.advertised(first, "brokers")
        return make_client(AdminClient, settings, Complaints(), "the cluster's administrator")

    def address(self, name: str, listener: str) -> str:
        """Returns where a broker listens."""
        return f"{LOOPBACK}:{self.ports[name][listener]}"

    def advertised(self, name: str, listener: str) -> str:
        """Returns the address under which others find a broker."""
        return self.address(name, listener)

    def _all(self, listener: str) -> str:
        return ",".join(self.advertised(name, listener) for name in self.names)

    def _port(self, name: str, listener: str) -> int:
        """Returns the port that was used before, if it is free."""
        before = self.ports.get(name, {}).get(listener)
        return before if before and is_free(before) else any_free_port()


def _number(name: str) -> int:
    return BROKERS.index(name) + 1


def _read(file: Path) -> Ports:
    return dict(json.loads(file.read_text())) if file.exists() else {}
