"""Runs Airflow on one machine, each component by itself, with LocalExecutor on the stack's PostgreSQL. Everything
listens on 127.0.0.1.

Settings and secrets are in `airflow.cfg`, which only its owner can read, and never in process arguments. The user's
AIRFLOW__ variables take precedence, as always in Airflow. `airflow standalone` is no alternative, because it opens
ports on all interfaces and leaves its children behind.
"""

import configparser
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from fencepost.jars import log_tail
from fencepost.paths import dags_folder, pipelines_folder, plugins_folder
from fencepost_stack.credentials import Credentials
from fencepost_stack.errors import ServiceFailed
from fencepost_stack.ports import LOOPBACK
from fencepost_stack.processes import MARK, Process, await_ready, spawn
from fencepost_stack.state_folder import StateFolder, write_private, write_private_json

# In the order of their start. They stop in the reverse order, so tasks can still report while the scheduler ends.
COMPONENTS: dict[str, tuple[str, ...]] = {
    "api-server": ("api-server",),
    # Task logs are files on this machine already: a log server would only open a port on all interfaces.
    "scheduler": ("scheduler", "--skip-serve-logs"),
    "dag-processor": ("dag-processor",),
    "triggerer": ("triggerer", "--skip-serve-logs"),
}
ADMIN, VIEWER = "admin", "viewer"
# Prefixes of variables. Running components need a restart if such a variable changes.
OURS = ("AIRFLOW", "FENCEPOST_", "KAFKA_", "LAKE_", "REPORTING_", "SCHEMA_REGISTRY_", "SPARK_")
SPARK = json.dumps(
    {"conn_type": "spark", "host": "local[*]"}
)  # the connection of tasks, unless the environment has another
# Seconds. A triggerer waits ten for triggers that any other can take up again; nothing is lost by not waiting.
STOP_GRACE = {"api-server": 15.0, "scheduler": 20.0, "dag-processor": 5.0, "triggerer": 1.5}


@dataclass(frozen=True, slots=True)
class Folders:
    """The folders that Airflow uses."""

    dags: Path
    plugins: Path
    pipelines: Path

    @classmethod
    def default(cls) -> "Folders":
        """Returns the folders that the environment names, or the folders of the checkout or of Airflow's home."""
        return cls(dags_folder(), plugins_folder(), pipelines_folder())


@dataclass(frozen=True, slots=True)
class AirflowPlan:
    """The settings that the components start with."""

    state: StateFolder
    port: int
    credentials: Credentials
    database: str  # postgresql://...
    kafka_bootstrap: str
    schema_registry_url: str
    folders: Folders
    more: Mapping[str, str] = field(
        default_factory=dict, repr=False
    )  # variables for the components, and so for every task

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def settings(self) -> dict[str, dict[str, str]]:
        """Returns the sections of airflow.cfg."""
        home = self.state.airflow
        return {
            "core": {
                "executor": "LocalExecutor",
                "parallelism": "4",
                "load_examples": "False",
                "dags_folder": str(self.folders.dags),
                "plugins_folder": str(self.folders.plugins),
                "fernet_key": self.credentials.airflow_fernet_key,
                "execution_api_server_url": f"{self.url}/execution/",
                "simple_auth_manager_users": f"{ADMIN}:admin,{VIEWER}:viewer",
                "simple_auth_manager_passwords_file": str(home / "passwords.json"),
            },
            "database": {"sql_alchemy_conn": self.database.replace("postgresql:", "postgresql+psycopg2:", 1)},
            "logging": {"base_log_folder": str(home / "logs")},
            "api": {
                "host": LOOPBACK,
                "port": str(self.port),
                "base_url": self.url,
                "workers": "1",
                "secret_key": self.credentials.airflow_secret_key,
            },
            "api_auth": {"jwt_secret": self.credentials.airflow_jwt_secret},
            # By default a task is killed after three missed heartbeats: fifteen seconds of a busy API server.
            "workers": {"max_failed_heartbeats": "24", "execution_api_timeout": "30"},
            "dag_processor": {"refresh_interval": "10", "parsing_processes": "1"},
            "usage_data_collection": {"enabled": "False"},
        }

    def environment(self) -> dict[str, str]:
        """Returns the environment of the components, and so of every task."""
        env = {key: value for key, value in os.environ.items() if key != "AIRFLOW_CONFIG"}
        env |= {
            "AIRFLOW_HOME": str(self.state.airflow),
            "KAFKA_BOOTSTRAP": self.kafka_bootstrap,
            "SCHEMA_REGISTRY_URL": self.schema_registry_url,
            "FENCEPOST_STATE": str(self.state.root),
            "FENCEPOST_JARS": str(self.state.jars),
            "FENCEPOST_PIPELINES": str(self.folders.pipelines),
            # Tasks find the environment's spark-submit even if it is not activated.
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
            **self.more,
        }
        env.setdefault("AIRFLOW_CONN_SPARK_DEFAULT", SPARK)
        env.setdefault("PYSPARK_PYTHON", sys.executable)
        for variable in ("no_proxy", "NO_PROXY"):
            env[variable] = ",".join(filter(None, [env.get(variable), LOOPBACK, "localhost"]))
        return env

    def fingerprint(self) -> str:
        """Returns a value that changes if running components need a restart to use this plan."""
        env = self.environment()
        ours = {
            key: env[key]
            for key in env
            if key.startswith(OURS) and key != MARK and not (key.startswith("FENCEPOST_") and key.endswith("_PORT"))
        }
        return hashlib.sha256(json.dumps([self.settings(), ours], sort_keys=True).encode()).hexdigest()


class Airflow:
    """The components of one AIRFLOW_HOME."""

    names = tuple(COMPONENTS)

    def __init__(self, plan: AirflowPlan, processes: Mapping[str, Process] | None = None) -> None:
        """Creates the object. `processes` are components that an earlier command started."""
        self.plan = plan
        self.processes: dict[str, Process] = dict(processes or {})
        self._launched_at: datetime | None = None

    def log(self, component: str) -> Path:
        return self.plan.state.logs / f"airflow-{component}.log"

    def prepare(self) -> None:
        """Writes the settings and brings the database to this version. Raises ServiceFailed."""
        home = self.plan.state.airflow
        home.mkdir(parents=True, exist_ok=True)
        home.chmod(0o700)
        parser = configparser.RawConfigParser()
        parser.read_dict({name: _escaped(section) for name, section in self.plan.settings().items()})
        draft = home / "airflow.cfg"
        write_private(draft, "")
        with draft.open("w") as file:
            parser.write(file)
        credentials = self.plan.credentials
        write_private_json(
            home / "passwords.json", {ADMIN: credentials.airflow_admin, VIEWER: credentials.airflow_viewer}
        )
        self._make_database()

    def launch(self, component: str) -> Process:
        """Starts one component without waiting for it."""
        self._launched_at = self._launched_at or datetime.now(UTC)
        self.processes[component] = spawn(
            [_program(), *COMPONENTS[component]],
            env=self.plan.environment(),
            log=self.log(component),
            cwd=self.plan.state.airflow,
        )
        return self.processes[component]

    def await_ready(self, timeout: float = 180.0) -> None:
        """Waits until the API says that every component is healthy. Raises ServiceFailed with the name of a component
        that is not.
        """
        unhealthy: list[str] = list(COMPONENTS)

        def ready() -> bool:
            for name, process in self.processes.items():
                if not process.alive():
                    await_ready(f"Airflow's {name}", process, self.log(name), lambda: False, 0.0)
            unhealthy[:] = self.unhealthy()
            return not unhealthy

        first = self.processes["api-server"]
        try:
            await_ready("Airflow", first, self.log("api-server"), ready, timeout)
        except ServiceFailed:
            if first.alive() and unhealthy and all(process.alive() for process in self.processes.values()):
                name = unhealthy[0]
                raise ServiceFailed(
                    f"Airflow's {name} was not healthy within {timeout:.0f} s. {self.log(name)} ends with:\n"
                    f"{log_tail(self.log(name))}"
                ) from None
            raise

    def healthy(self) -> bool:
        """Returns whether every component runs and reports that it is healthy."""
        return not self.unhealthy()

    def unhealthy(self) -> list[str]:
        """Returns the components that do not run, or do not report. A report from before a component's last start does
        not count.
        """
        dead = [name for name in COMPONENTS if name not in self.processes or not self.processes[name].alive()]
        if dead:
            return dead
        import httpx  # every command would wait a tenth of a second for it

        try:
            answer = httpx.get(f"{self.plan.url}/api/v2/monitor/health", timeout=5.0, trust_env=False)
            health = answer.raise_for_status().json()
        except (httpx.HTTPError, ValueError):
            return ["api-server"]
        return [name for name in COMPONENTS if not self._is_well(name, health)]

    def _is_well(self, component: str, health: Mapping[str, Mapping[str, str | None] | None]) -> bool:
        if component == "api-server":
            return (health.get("metadatabase") or {}).get("status") == "healthy"
        key = component.replace("-", "_")
        report = health.get(key) or {}
        heartbeat = report.get(f"latest_{key}_heartbeat")
        if report.get("status") != "healthy" or heartbeat is None:
            return False
        # A component killed a moment ago counts as healthy for another half minute.
        return self._launched_at is None or datetime.fromisoformat(heartbeat) >= self._launched_at

    def _make_database(self) -> None:
        """Brings the database to this version, and makes the pool that Spark tasks need."""
        self._run("migrate", [_program(), "db", "migrate"])
        self._run("pools", [sys.executable, "-m", "fencepost.airflow"])

    def _run(self, name: str, command: Sequence[str]) -> None:
        log = self.log(name)
        with log.open("ab") as out:
            done = subprocess.run(
                command,
                env=self.plan.environment(),
                cwd=self.plan.state.airflow,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                check=False,
            )
        if done.returncode != 0:
            raise ServiceFailed(f"Airflow's {name} step failed. {log} ends with:\n{log_tail(log)}")


def _program() -> str:
    return str(Path(sys.executable).parent / "airflow")


def _escaped(section: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings with `%` escaped, because Airflow's settings file takes `%` for an interpolation."""
    return {key: value.replace("%", "%%") for key, value in section.items()}


def stop_order(names: Sequence[str]) -> list[str]:
    """Returns the components in the order in which to stop them."""
    return [name for name in reversed(COMPONENTS) if name in names]
