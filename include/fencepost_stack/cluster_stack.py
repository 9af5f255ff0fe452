"""Runs the local stack as a team has it: three secured Kafka brokers, a Spark cluster, and Airflow that uses them.

The cluster's state folder is separate from the local stack's, with its own topics, Airflow and logins. Every pipeline
logs in as a user of its name, with its own password and the rights of `fencepost acls`.
"""

from __future__ import annotations

import os
import secrets
import shlex
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from signal import SIGKILL
from typing import Any

from fencepost_stack import standalone_spark
from fencepost_stack.airflow import ADMIN, Airflow, AirflowPlan, Folders
from fencepost_stack.credentials import Credentials
from fencepost_stack.pipeline_users import let_in, names_of, password_variable
from fencepost_stack.ports import LOOPBACK
from fencepost_stack.processes import family
from fencepost_stack.secured_kafka import SecuredKafka
from fencepost_stack.stack import SERVICES, STOP_GRACE, USUAL_PORTS, Members, Report, Stack, Wait, await_ready, is_ready
from fencepost_stack.standalone_spark import StandaloneSpark
from fencepost_stack.state_folder import StateFolder, read_json, write_private, write_private_json


class ClusterStack(Stack):
    """The services of one cluster."""

    order = ("kafka", "spark", *(service for service in SERVICES if service != "kafka"))
    grace = {**STOP_GRACE, "spark": standalone_spark.STOP_GRACE}  # noqa: RUF012  # read only

    def __init__(
        self,
        local: StateFolder | None = None,
        folders: Folders | None = None,
        usual_ports: Mapping[str, int] = USUAL_PORTS,
    ) -> None:
        """Creates the object. The cluster's state is in a folder inside the local stack's state folder. The jars are
        the same.
        """
        local = local or StateFolder.default()
        super().__init__(state_of(local), folders, usual_ports)

    @cached_property
    def kafka(self) -> SecuredKafka:
        return SecuredKafka(
            self.state.kafka,
            logs=self.state.logs,
            jars=self.state.jars_kafka,
            processes=self._registry.processes("kafka"),
        )

    @cached_property
    def spark(self) -> StandaloneSpark:
        return StandaloneSpark(
            self.state.root / "spark",
            self._secret("spark"),
            logs=self.state.logs,
            processes=self._registry.processes("spark"),
        )

    @property
    def environment_file(self) -> Path:
        """Returns the file from which a shell gets the environment for `fencepost` on this cluster. It has passwords
        and mode 0600.
        """
        return self.state.root / "environment"

    def services(self) -> dict[str, Any]:
        """Returns the services of the local stack, and Spark's master."""
        found = super().services()
        logs = self.state.logs
        alive = {service: set(self._registry.alive(service)) for service in ("kafka", "spark")}
        found["kafka"] = {
            "bootstrap": self.kafka.bootstrap,
            "running": alive["kafka"] == set(self.kafka.names),
            "brokers": sorted(alive["kafka"]),
            "log": str(logs / f"{self.kafka.names[0]}.log"),
            "admin": str(self.kafka.folder / "admin.properties"),
        }
        found["spark"] = {
            "running": alive["spark"] == set(self.spark.names),
            "workers": sorted(alive["spark"] - {standalone_spark.MASTER}),
            "log": str(self.spark.log(standalone_spark.MASTER)),
        }
        if (self.spark.folder / "ports.json").exists():
            found["spark"] |= {"master": self.spark.master, "url": self.spark.url}
        return found | {"environment": str(self.environment_file)}

    def kill(self, service: str, name: str) -> None:
        """Kills a broker or a worker and all processes that it started, like the death of its machine."""
        for process in family([self._registry.processes(service)[name]]):
            process.send(SIGKILL)

    def pipelines(self) -> list[str]:
        """Returns the names of the pipelines in the folder that Airflow uses."""
        return names_of(self.folders.pipelines)

    def environment(self) -> dict[str, str]:
        """Returns the environment that pipelines read, with passwords, and what a step needs on this cluster."""
        return {
            **self._kafka_environment(),
            **self._reporting_environment(),
            "SCHEMA_REGISTRY_URL": self._schema_registry_url(),
            "FENCEPOST_JARS": str(self.state.jars),
            "FENCEPOST_PIPELINES": str(self.folders.pipelines),
            "FENCEPOST_REPORTS": str(self.state.reports),
            "FENCEPOST_SPARK_MASTER": self.spark.master,
            **self.spark.environment(),
        }

    def _kafka_environment(self) -> dict[str, str]:
        return {
            "KAFKA_BOOTSTRAP": self.kafka.bootstrap,
            "KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
            "KAFKA_CA_LOCATION": str(self.kafka.authority),
            **{password_variable(name): self._secret(f"kafka {name}") for name in self.pipelines()},
        }

    def _up(self, service: str, report: Report, started: list[str]) -> Wait:
        if service == "kafka":
            wait = self._up_members(service, self.kafka, report, started)

            def wait_and_let_in(timeout: float) -> None:
                wait(timeout)
                self._let_pipelines_in()

            return wait_and_let_in
        if service == "spark":
            return self._up_members(service, self.spark, report, started)
        return super()._up(service, report, started)

    def _up_members(self, service: str, members: Members, report: Report, started: list[str]) -> Wait:
        begin = time.monotonic()
        if members.healthy():
            report(service, "running", time.monotonic() - begin)
            return is_ready
        report(service, "starting", 0.0)
        self._launch(service, members, self._registry.alive(service), started)
        return partial(await_ready, service, members, report, begin)

    def _let_pipelines_in(self) -> None:
        passwords = {name: self._secret(f"kafka {name}") for name in self.pipelines()}
        with _set(self._kafka_environment()):  # a pipeline's settings are read from the environment
            let_in(self.kafka, self.folders.pipelines, passwords)

    def _airflow(self) -> Airflow:
        environment, credentials = self.environment(), Credentials.ensure(self.state)
        for_doctor = {
            "FENCEPOST_AIRFLOW_URL": f"http://{LOOPBACK}:{self._port('airflow')}",
            "FENCEPOST_AIRFLOW_USER": ADMIN,
            "FENCEPOST_AIRFLOW_PASSWORD": credentials.airflow_admin,
        }
        lines = (f"export {name}={shlex.quote(value)}\n" for name, value in (environment | for_doctor).items())
        write_private(self.environment_file, "".join(lines))
        connection = f'{{"conn_type": "spark", "host": "{self.spark.master}"}}'
        plan = AirflowPlan(
            self.state,
            self._port("airflow"),
            credentials,
            self._postgres().dsn,
            self.kafka.bootstrap,
            self._schema_registry_url(),
            self.folders,
            environment | {"AIRFLOW_CONN_SPARK_DEFAULT": connection},
        )
        return Airflow(plan, self._registry.processes("airflow"))

    def _kafka_bootstrap(self) -> str:
        return self.kafka.bootstrap

    def _secret(self, name: str) -> str:
        """Returns a password or secret of the cluster. The secret is created once, and kept in a file that only its
        owner can read.
        """
        file = self.state.root / "cluster-secrets.json"
        known = read_json(file)
        if name not in known:
            known[name] = secrets.token_hex(24)
            write_private_json(file, known)
        return str(known[name])


@contextmanager
def _set(values: Mapping[str, str]) -> Iterator[None]:
    """Sets these environment variables while the block runs."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def state_of(local: StateFolder) -> StateFolder:
    """Returns the state folder of a local stack's cluster."""
    return StateFolder(local.root / "cluster", local.jars)
