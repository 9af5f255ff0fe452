"""Runs Kafka, a schema registry, PostgreSQL and Airflow together, for `up`, `down` and `services`.

The schema registry starts if a pipeline uses it or a person asks for it.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol
from urllib.parse import urlsplit

from fencepost.errors import FencepostError
from fencepost.jars import CONNECTOR
from fencepost.kafka.client_settings import ClientSettings
from fencepost.kafka.cluster import Cluster
from fencepost_stack import airflow, broker, jars, postgres, reporting, schema_registry
from fencepost_stack.airflow import Airflow, AirflowPlan, Folders
from fencepost_stack.broker import Broker
from fencepost_stack.credentials import Credentials
from fencepost_stack.errors import LocalStackError
from fencepost_stack.ports import LOOPBACK, answers, choose_port
from fencepost_stack.postgres import Postgres
from fencepost_stack.processes import Process, stop
from fencepost_stack.registry import Registry, ending_by_exception
from fencepost_stack.schema_registry import SchemaRegistry, used_by
from fencepost_stack.state_folder import StateFolder

SERVICES = ("kafka", "schema-registry", "postgres", "airflow")
NEEDS: dict[str, tuple[str, ...]] = {"airflow": ("kafka", "postgres")}
PORT_VARIABLES = {service: f"FENCEPOST_{service.upper().replace('-', '_')}_PORT" for service in SERVICES}
USUAL_PORTS = {"kafka": 9092, "schema-registry": 8081, "postgres": 5432, "airflow": 8080}
# A service of the user's own to use instead, by variable.
EXTERNAL = {"kafka": "KAFKA_BOOTSTRAP", "schema-registry": "SCHEMA_REGISTRY_URL"}
JARS = {"kafka": jars.BROKER, "schema-registry": jars.SCHEMA_REGISTRY, "airflow": CONNECTOR}
STOP_GRACE = {"kafka": broker.STOP_GRACE, "schema-registry": schema_registry.STOP_GRACE}

# Called with a service, an event ("starting", "ready", "running", "external", "stopped"), and seconds.
Report = Callable[[str, str, float], None]

# Waits until a service is ready, at most so many seconds.
Wait = Callable[[float], None]


class Server(Protocol):
    """The methods of a service that is one process."""

    def launch(self) -> Process: ...
    def await_ready(self, timeout: float) -> None: ...
    def healthy(self) -> bool: ...


class Members(Protocol):
    """The methods of a service of several processes."""

    processes: dict[str, Process]

    @property
    def names(self) -> Sequence[str]:
        """Returns the names in the order of their start."""

    def prepare(self) -> None: ...
    def launch(self, name: str) -> Process: ...
    def await_ready(self, timeout: float) -> None: ...
    def healthy(self) -> bool: ...


def _silent(service: str, event: str, seconds: float) -> None:
    """Does nothing, as a Report."""


def is_ready(timeout: float) -> None:
    """Does nothing, as the Wait for a service that runs already."""


def await_ready(service: str, started: Server | Members, report: Report, begin: float, timeout: float) -> None:
    """Waits for a service that was started at `begin`, and reports it."""
    started.await_ready(timeout)
    report(service, "ready", time.monotonic() - begin)


class Stack:
    """The services of one state folder."""

    order: tuple[str, ...] = SERVICES  # of their start
    grace: Mapping[str, float] = STOP_GRACE

    def __init__(
        self,
        state: StateFolder | None = None,
        folders: Folders | None = None,
        usual_ports: Mapping[str, int] = USUAL_PORTS,
    ) -> None:
        """Creates the object. The defaults are the state and folders that the environment names, or the checkout's."""
        self.state = state or StateFolder.default()
        self.folders = folders or Folders.default()
        self._usual_ports = usual_ports
        self.state.make_folders()
        self._registry = Registry(self.state)

    def up(self, only: str | None = None, report: Report = _silent, timeout: float = 180.0) -> dict[str, Any]:
        """Starts what does not run yet, and returns the result of `services`. `only` names one service. The services
        that it needs are started too.

        1. leave a healthy service with unchanged settings alone;
        2. start the dead parts of any other service again: services side by side, and Airflow once what it needs is ready;
        3. if one fails, stop everything that this call started, and raise the error.
        """
        wanted = self._wanted(only)
        with self._registry.locked(), ending_by_exception():
            started: list[str] = []
            try:
                jars.ensure(self.state, [JARS[service] for service in wanted if service in JARS])
                if "airflow" in wanted and "schema-registry" not in wanted:
                    self._registry.record("schema-registry", external=None)  # it may have been the user's own before
                starting: list[Wait] = []
                for service in wanted:
                    if service in NEEDS:
                        self._await(starting, timeout)
                    starting.append(self._up(service, report, started))
                self._await(starting, timeout)
            except BaseException:
                for service in reversed(started):
                    self._stop(service)
                raise
            return self.services()

    def down(self, only: str | None = None, report: Report = _silent) -> None:
        """Stops what runs, in reverse order. It stops nothing that this stack did not start."""
        with self._registry.locked():
            for service in reversed(self.order):
                needed_by = [user for user, needs in NEEDS.items() if only in needs]
                if only is not None and service != only and service not in needed_by:
                    continue
                begin = time.monotonic()
                if self._stop(service):
                    report(service, "stopped", time.monotonic() - begin)
                if service in EXTERNAL and self._registry.known(service):
                    self._registry.record(service, external=None)

    def _wanted(self, only: str | None) -> list[str]:
        """Returns the services to start, in order."""
        wanted = set(self.order if only is None else (*NEEDS.get(only, ()), only))
        if "airflow" in wanted and (os.environ.get(EXTERNAL["schema-registry"]) or used_by(self.folders.pipelines)):
            wanted.add("schema-registry")
        elif only is None:
            wanted.remove("schema-registry")
        return [service for service in self.order if service in wanted]

    def _await(self, starting: list[Wait], timeout: float) -> None:
        """Waits until these services are ready."""
        while starting:
            starting.pop(0)(timeout)

    def _up(self, service: str, report: Report, started: list[str]) -> Wait:
        """Starts a service unless it runs. The returned function waits until the service is ready."""
        up = self._up_airflow if service == "airflow" else partial(self._up_server, service)
        return up(report, started)

    def _up_server(self, service: str, report: Report, started: list[str]) -> Wait:
        begin = time.monotonic()
        external = os.environ.get(EXTERNAL.get(service, ""))
        if external:
            _CHECKS[service](external)
            self._registry.record(service, external=external)
            report(service, "external", time.monotonic() - begin)
            return is_ready
        if self._stays(service) and self._server(service).healthy():
            self._registry.record(service, external=None)
            report(service, "running", time.monotonic() - begin)
            return is_ready
        report(service, "starting", 0.0)
        self._stop(service)
        self._registry.record(service, port=self._choose_port(service), external=None)
        server = self._server(service)
        started.append(service)
        self._registry.record_processes(service, {service: server.launch()})
        return partial(await_ready, service, server, report, begin)

    def _up_airflow(self, report: Report, started: list[str]) -> Wait:
        begin = time.monotonic()
        alive = self._stays("airflow")
        # Compare the running plan with the one wanted now: other folders or ports need a restart.
        changed = self._registry.known("airflow").get("fingerprint") != (
            self._airflow().plan.fingerprint() if alive else None
        )
        if alive and not changed and self._airflow().healthy():
            report("airflow", "running", time.monotonic() - begin)
            return is_ready
        report("airflow", "starting", 0.0)
        if changed or "api-server" not in alive:
            self._stop("airflow")
            alive = {}
            self._registry.record("airflow", port=self._choose_port("airflow"))
        components = self._airflow()
        self._registry.record("airflow", fingerprint=components.plan.fingerprint())
        self._launch("airflow", components, alive, started)
        return partial(await_ready, "airflow", components, report, begin)

    def _launch(self, service: str, members: Members, alive: Mapping[str, Process], started: list[str]) -> None:
        """Starts the members that are not alive."""
        members.prepare()
        started.append(service)
        for name in members.names:
            if name not in alive:
                # Processes left by a dead member would work beside its successor.
                dead = members.processes.get(name)
                if dead is not None:
                    stop([dead])
                members.launch(name)
                self._registry.record_processes(service, members.processes)

    def _server(self, service: str) -> Server:
        process = self._registry.processes(service).get(service)
        port, log = self._port(service), self.state.logs / f"{service}.log"
        if service == "postgres":
            return self._postgres()
        if service == "kafka":
            return Broker(self.state.kafka, port, log=log, jars=self.state.jars_kafka, process=process)
        jars_folder = self.state.jars_schema_registry
        return SchemaRegistry(self.state.schema_registry, port, log=log, jars=jars_folder, process=process)

    def _postgres(self) -> Postgres:
        process = self._registry.processes("postgres").get("postgres")
        credentials = Credentials.ensure(self.state)
        log = self.state.logs / "postgres.log"
        return Postgres(self.state.postgres, self._port("postgres"), credentials, log, process)

    def make_database(self, name: str) -> dict[str, str]:
        """Makes a database and its owner in the running PostgreSQL, if they are missing. Returns the owner's login in
        libpq's names.
        """
        with self._registry.locked():
            return self._postgres().make_database(name)

    def _airflow(self) -> Airflow:
        credentials = Credentials.ensure(self.state)
        plan = AirflowPlan(
            self.state,
            self._port("airflow"),
            credentials,
            self._postgres().dsn,
            self._kafka_bootstrap(),
            self._schema_registry_url(),
            self.folders,
            self._reporting_environment(),
        )
        return Airflow(plan, self._registry.processes("airflow"))

    def _reporting_environment(self) -> dict[str, str]:
        """Returns the environment from which pipelines reach the databases of `reporting`, with the passwords."""
        writers = Credentials.ensure(self.state).table_writers
        return reporting.variables(LOOPBACK, self._port("postgres"), writers, self.state.warehouse)

    def _stop(self, service: str) -> bool:
        """Stops one service's processes. Returns whether there were any. The service's port and settings are kept."""
        processes = self._registry.processes(service)
        if service == "airflow":
            for name in airflow.stop_order(list(processes)):
                stop([processes[name]], grace=airflow.STOP_GRACE[name])
        elif service == "postgres":
            stop(list(processes.values()), number=postgres.STOP_SIGNAL, grace=postgres.STOP_GRACE)
        else:
            stop(list(processes.values()), grace=self.grace[service])
        if processes:
            self._registry.record_processes(service, {})
        return bool(processes)

    def services(self) -> dict[str, Any]:
        """Returns the address and login of each service, and whether it runs. The result has passwords."""
        logs = self.state.logs
        airflow_alive = self._registry.alive("airflow")
        found: dict[str, Any] = {
            "kafka": {"bootstrap": self._kafka_bootstrap(), **self._state_of("kafka")},
            "schema-registry": {"url": self._schema_registry_url(), **self._state_of("schema-registry")},
            "postgres": {"running": bool(self._registry.alive("postgres")), "log": str(logs / "postgres.log")},
            "airflow": {
                "running": set(airflow_alive) == set(airflow.COMPONENTS),
                "log": str(logs / "airflow-scheduler.log"),
                "home": str(self.state.airflow),
            },
        }
        if self.state.secrets_file.exists():
            credentials = Credentials.ensure(self.state)
            found["postgres"] |= {
                "dsn": self._postgres().dsn,
                "reporting": self._reporting_environment(),
                "reader": self._postgres().reader,
            }
            found["airflow"] |= {
                "url": f"http://{LOOPBACK}:{self._port('airflow')}",
                "username": airflow.ADMIN,
                "password": credentials.airflow_admin,
                "viewer": {"username": airflow.VIEWER, "password": credentials.airflow_viewer},
            }
        return found

    def _state_of(self, service: str) -> dict[str, Any]:
        """Returns the state of a service in the form of `services`. The user may have named another server for the
        service.
        """
        external = bool(self._registry.known(service).get("external"))
        running = external or bool(self._registry.alive(service))
        return {"running": running, "external": external, "log": str(self.state.logs / f"{service}.log")}

    def _stays(self, service: str) -> dict[str, Process]:
        """Returns the service's living processes. Returns none if the user names a port that they do not use."""
        explicit = os.environ.get(PORT_VARIABLES[service])
        return {} if explicit and explicit != str(self._port(service)) else self._registry.alive(service)

    def _choose_port(self, service: str) -> int:
        before = self._registry.known(service).get("port")
        return choose_port(
            service, PORT_VARIABLES[service], [*([before] if before else []), self._usual_ports[service]]
        )

    def _port(self, service: str) -> int:
        return int(self._registry.known(service).get("port") or self._usual_ports[service])

    def _kafka_bootstrap(self) -> str:
        return self._registry.known("kafka").get("external") or f"{LOOPBACK}:{self._port('kafka')}"

    def _schema_registry_url(self) -> str:
        own = f"http://{LOOPBACK}:{self._port('schema-registry')}{schema_registry.API}"
        return self._registry.known("schema-registry").get("external") or own


def _check_kafka(bootstrap: str) -> None:
    """Raises LocalStackError if no broker answers at the KAFKA_BOOTSTRAP that the user set."""
    advice = "Start it, or unset KAFKA_BOOTSTRAP to have a local broker."
    if not any(answers(*address.rpartition(":")[::2]) for address in bootstrap.split(",")):
        raise LocalStackError(f"KAFKA_BOOTSTRAP={bootstrap}: nothing accepts connections there. {advice}")
    try:
        Cluster(ClientSettings({"bootstrap.servers": bootstrap})).broker_config("node.id", "")
    except FencepostError as error:
        raise LocalStackError(f"KAFKA_BOOTSTRAP={bootstrap}: {error} {advice}") from error


def _check_schema_registry(url: str) -> None:
    """Raises LocalStackError if nothing answers at the SCHEMA_REGISTRY_URL that the user set. A pipeline has the
    credentials.
    """
    advice = "Start it, or unset SCHEMA_REGISTRY_URL to have a local registry."
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or {"http": 80, "https": 443}[parts.scheme]
    except (KeyError, ValueError):
        raise LocalStackError("SCHEMA_REGISTRY_URL: not a URL such as https://registry:8081.") from None
    if not answers(host, port):
        raise LocalStackError(f"SCHEMA_REGISTRY_URL: nothing accepts connections at {host}:{port}. {advice}")


_CHECKS: dict[str, Callable[[str], None]] = {"kafka": _check_kafka, "schema-registry": _check_schema_registry}
