"""Runs Kafka, PostgreSQL and Airflow together, for `up`, `down` and `services`."""

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from fencepost.errors import FencepostError
from fencepost.kafka.client_settings import ClientSettings
from fencepost.kafka.cluster import Cluster
from fencepost.local import airflow, broker, jars, postgres
from fencepost.local.airflow import Airflow, AirflowPlan, Folders
from fencepost.local.broker import Broker
from fencepost.local.credentials import Credentials
from fencepost.local.errors import LocalStackError
from fencepost.local.ports import LOOPBACK, answers, choose_port
from fencepost.local.postgres import Postgres
from fencepost.local.processes import Process, stop
from fencepost.local.registry import Registry, ending_by_exception
from fencepost.local.state_folder import StateFolder

SERVICES = ("kafka", "postgres", "airflow")
NEEDS: dict[str, tuple[str, ...]] = {"kafka": (), "postgres": (), "airflow": ("kafka", "postgres")}
PORT_VARIABLES = {service: f"FENCEPOST_{service.upper()}_PORT" for service in SERVICES}
USUAL_PORTS = {"kafka": 9092, "postgres": 5432, "airflow": 8080}

# Called with a service, an event ("starting", "ready", "running", "external", "stopped"), and seconds.
Report = Callable[[str, str, float], None]


def _silent(service: str, event: str, seconds: float) -> None:
    """A Report that does nothing."""


class Stack:
    """The services of one state folder."""

    def __init__(
        self,
        state: StateFolder | None = None,
        folders: Folders | None = None,
        usual_ports: Mapping[str, int] = USUAL_PORTS,
    ) -> None:
        """The defaults are the state and folders that the environment names, or the checkout's."""
        self.state = state or StateFolder.default()
        self.folders = folders or Folders.default()
        self._usual_ports = usual_ports
        self.state.make_folders()
        self._registry = Registry(self.state)

    def up(self, only: str | None = None, report: Report = _silent, timeout: float = 180.0) -> dict[str, Any]:
        """Start what does not run yet; return the same as `services`. `only` names one service (and what it needs).

        1. leave a healthy service with unchanged settings alone;
        2. start the dead parts of any other service again;
        3. if one fails, stop everything that this call started, and raise the error.
        """
        wanted = SERVICES if only is None else (*NEEDS[only], only)
        with self._registry.locked(), ending_by_exception():
            started: list[str] = []
            try:
                jars.ensure(self.state)
                if "kafka" in wanted:
                    self._up_kafka(report, timeout, started)
                if "postgres" in wanted:
                    self._up_postgres(report, timeout, started)
                if "airflow" in wanted:
                    self._up_airflow(report, timeout, started)
            except BaseException:
                for service in reversed(started):
                    self._stop(service)
                raise
            return self.services()

    def down(self, only: str | None = None, report: Report = _silent) -> None:
        """Stop what runs, in reverse order, and nothing that this stack did not start."""
        with self._registry.locked():
            for service in reversed(SERVICES):
                needed_by = [user for user, needs in NEEDS.items() if only in needs]
                if only is not None and service != only and service not in needed_by:
                    continue
                begin = time.monotonic()
                if self._stop(service):
                    report(service, "stopped", time.monotonic() - begin)
                if service == "kafka" and self._registry.known("kafka"):
                    self._registry.record("kafka", external=None)

    def _up_kafka(self, report: Report, timeout: float, started: list[str]) -> None:
        external = os.environ.get("KAFKA_BOOTSTRAP")
        begin = time.monotonic()
        if external:
            _check_external(external)
            self._registry.record("kafka", external=external)
            report("kafka", "external", time.monotonic() - begin)
            return
        if self._stays("kafka") and self._broker().healthy():
            self._registry.record("kafka", external=None)
            report("kafka", "running", time.monotonic() - begin)
            return
        report("kafka", "starting", 0.0)
        self._stop("kafka")
        self._registry.record("kafka", port=self._choose_port("kafka"), external=None)
        server = self._broker()
        started.append("kafka")
        self._registry.record_processes("kafka", {"kafka": server.launch()})
        server.await_ready(timeout)
        report("kafka", "ready", time.monotonic() - begin)

    def _up_postgres(self, report: Report, timeout: float, started: list[str]) -> None:
        begin = time.monotonic()
        server = self._postgres()
        if self._stays("postgres") and server.healthy():
            report("postgres", "running", time.monotonic() - begin)
            return
        report("postgres", "starting", 0.0)
        self._stop("postgres")
        self._registry.record("postgres", port=self._choose_port("postgres"))
        server = self._postgres()
        started.append("postgres")
        self._registry.record_processes("postgres", {"postgres": server.launch()})
        server.await_ready(timeout)
        report("postgres", "ready", time.monotonic() - begin)

    def _up_airflow(self, report: Report, timeout: float, started: list[str]) -> None:
        begin = time.monotonic()
        alive = self._stays("airflow")
        # Compare the running plan with the one wanted now: other folders or ports need a restart.
        changed = self._registry.known("airflow").get("fingerprint") != (
            self._airflow().plan.fingerprint() if alive else None
        )
        if alive and not changed and self._airflow().healthy():
            report("airflow", "running", time.monotonic() - begin)
            return
        report("airflow", "starting", 0.0)
        if changed or "api-server" not in alive:
            self._stop("airflow")
            alive = {}
            self._registry.record("airflow", port=self._choose_port("airflow"))
        components = self._airflow()
        self._registry.record("airflow", fingerprint=components.plan.fingerprint())
        components.prepare()
        started.append("airflow")
        for name in airflow.COMPONENTS:
            if name not in alive:
                # Processes left by a dead component would work beside its successor.
                dead = components.processes.get(name)
                if dead is not None:
                    stop([dead])
                components.launch(name)
                self._registry.record_processes("airflow", components.processes)
        components.await_ready(timeout)
        report("airflow", "ready", time.monotonic() - begin)

    def _broker(self) -> Broker:
        process = self._registry.processes("kafka").get("kafka")
        return Broker(
            self.state.kafka,
            self._port("kafka"),
            log=self.state.logs / "kafka.log",
            jars=self.state.jars_kafka,
            process=process,
        )

    def _postgres(self) -> Postgres:
        process = self._registry.processes("postgres").get("postgres")
        credentials = Credentials.ensure(self.state)
        log = self.state.logs / "postgres.log"
        return Postgres(self.state.postgres, self._port("postgres"), credentials, log, process)

    def _airflow(self) -> Airflow:
        credentials = Credentials.ensure(self.state)
        plan = AirflowPlan(
            self.state,
            self._port("airflow"),
            credentials,
            self._postgres().dsn,
            self._kafka_bootstrap(),
            self.folders,
        )
        return Airflow(plan, self._registry.processes("airflow"))

    def _stop(self, service: str) -> bool:
        """Stop one service's processes; return whether there were any. Its port and settings stay."""
        processes = self._registry.processes(service)
        if service == "airflow":
            for name in airflow.stop_order(list(processes)):
                stop([processes[name]], grace=airflow.STOP_GRACE[name])
        elif service == "postgres":
            stop(list(processes.values()), number=postgres.STOP_SIGNAL, grace=postgres.STOP_GRACE)
        else:
            stop(list(processes.values()), grace=broker.STOP_GRACE)
        if processes:
            self._registry.record_processes(service, {})
        return bool(processes)

    def services(self) -> dict[str, Any]:
        """The address and login of each service, and whether it runs. Has passwords."""
        logs = self.state.logs
        kafka_alive = bool(self._registry.alive("kafka"))
        external = self._registry.known("kafka").get("external")
        airflow_alive = self._registry.alive("airflow")
        found: dict[str, Any] = {
            "kafka": {
                "bootstrap": self._kafka_bootstrap(),
                "running": kafka_alive or bool(external),
                "external": bool(external),
                "log": str(logs / "kafka.log"),
            },
            "postgres": {"running": bool(self._registry.alive("postgres")), "log": str(logs / "postgres.log")},
            "airflow": {
                "running": set(airflow_alive) == set(airflow.COMPONENTS),
                "log": str(logs / "airflow-scheduler.log"),
                "home": str(self.state.airflow),
            },
        }
        if self.state.secrets_file.exists():
            credentials = Credentials.ensure(self.state)
            found["postgres"]["dsn"] = self._postgres().dsn
            found["airflow"] |= {
                "url": f"http://{LOOPBACK}:{self._port('airflow')}",
                "username": airflow.ADMIN,
                "password": credentials.airflow_admin,
                "viewer": {"username": airflow.VIEWER, "password": credentials.airflow_viewer},
            }
        return found

    def _stays(self, service: str) -> dict[str, Process]:
        """The service's living processes, unless the user names a port that they do not use."""
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


def _check_external(bootstrap: str) -> None:
    """Raise LocalStackError if no broker answers at the KAFKA_BOOTSTRAP that the user set."""
    advice = "Start it, or unset KAFKA_BOOTSTRAP to have a local broker."
    if not any(answers(*address.rpartition(":")[::2]) for address in bootstrap.split(",")):
        raise LocalStackError(f"KAFKA_BOOTSTRAP={bootstrap}: nothing accepts connections there. {advice}")
    try:
        Cluster(ClientSettings({"bootstrap.servers": bootstrap})).broker_config("node.id", "")
    except FencepostError as error:
        raise LocalStackError(f"KAFKA_BOOTSTRAP={bootstrap}: {error} {advice}") from error
