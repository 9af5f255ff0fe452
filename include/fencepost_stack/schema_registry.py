"""Runs a real schema registry, Apicurio Registry, with Confluent's REST interface. The registry is one node on one
machine.

It listens on 127.0.0.1 only, and its schemas survive a stop. You can use it alone, with a folder of its own:

    with SchemaRegistry(tmp_path / "schema-registry") as registry:
        SchemaRegistryClient({"url": registry.url})
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fencepost.config.strict_yaml import read_yaml
from fencepost.errors import SettingsError
from fencepost.jars import JarsError, java
from fencepost_stack.errors import ServiceFailed
from fencepost_stack.jars import SCHEMA_REGISTRY
from fencepost_stack.ports import LOOPBACK, answers, any_free_port, listeners
from fencepost_stack.processes import Process, Service, await_ready, family, spawn
from fencepost_stack.state_folder import StateFolder, write_private

HEAP = "192m"
STOP_GRACE = 15.0  # seconds
API = "/apis/ccompat/v7"  # where Apicurio has Confluent's REST
COMPATIBILITY = "BACKWARD"  # Confluent's default; Apicurio's is NONE

PROPERTIES: dict[str, str] = {
    "apicurio.storage.kind": "sql",
    "apicurio.storage.sql.kind": "h2",
    # Relative to the folder it starts in. A schema is on the disk before its id is told: records with that id may follow.
    "apicurio.datasource.url": "jdbc:h2:file:./data/schemas;WRITE_DELAY=0;DB_CLOSE_ON_EXIT=FALSE",
    "apicurio.datasource.jdbc.initial-size": "1",
    "apicurio.datasource.jdbc.min-size": "1",
    "apicurio.datasource.jdbc.max-size": "10",
    # By default it ends if its first connection takes five seconds, as on a busy machine.
    "quarkus.datasource.h2.jdbc.acquisition-timeout": "PT1M",
    "quarkus.banner.enabled": "false",
    "quarkus.http.access-log.enabled": "false",
    "quarkus.log.console.format": "[%d{yyyy-MM-dd HH:mm:ss,SSS}] %p %m (%c{1})%e%n",
    "quarkus.log.level": "WARN",
    'quarkus.log.category."io.apicurio".level': "WARN",
    'quarkus.log.category."io.quarkus".level': "INFO",
}


class SchemaRegistry(Service):
    """One registry on one folder. Two users must not use a folder at the same time."""

    ready_within, stop_grace = 180.0, STOP_GRACE

    def __init__(
        self,
        folder: Path,
        port: int | None = None,
        properties: Mapping[str, str] | None = None,
        *,
        users: Mapping[str, str] | None = None,
        log: Path | None = None,
        jars: Path | None = None,
        process: Process | None = None,
    ) -> None:
        """Creates the object. `properties` (Apicurio's and Quarkus's) override Fencepost's. `users` (name to password)
        have to log in with HTTP's basic authentication. `process` was started on this folder by an earlier command.
        """
        self.folder = folder
        self.port = port or any_free_port()
        self.properties = dict(properties or {})
        self.users = dict(users or {})
        self.log = log or folder / "schema-registry.log"
        super().__init__(process)
        self._jars = jars

    @property
    def url(self) -> str:
        """Returns the URL for a client of Confluent's registry."""
        return f"http://{LOOPBACK}:{self.port}{API}"

    def launch(self) -> Process:
        """Starts the registry without waiting for it."""
        config = self.folder / "config"  # a folder and a file name that Quarkus looks for where it starts
        config.mkdir(parents=True, exist_ok=True)
        write_private(
            config / "application.properties",
            "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in self._all_properties().items()),
        )
        self.process = spawn(
            [
                java(),
                *(f"-Xmx{HEAP}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+ExitOnOutOfMemoryError"),
                "-Djava.net.preferIPv4Stack=true",
                *("-jar", str(runner(self._jars or StateFolder.default().jars_schema_registry))),
            ],
            env=_environment(),
            log=self.log,
            cwd=self.folder,
        )
        return self.process

    def await_ready(self, timeout: float | None = None) -> None:
        """Waits until the registry answers. A new registry gets its compatibility level. Raises ServiceFailed with the
        log's tail.
        """
        if self.process is None:
            raise ServiceFailed(f"no schema registry was started on {self.folder}.")
        await_ready("The schema registry", self.process, self.log, self.healthy, timeout or self.ready_within)
        self._set_compatibility()

    def healthy(self) -> bool:
        """Returns whether the registry and its storage are ready. Another registry on its port does not count."""
        if self.process is None or not answers(LOOPBACK, self.port):
            return False
        ours = {process.pid for process in family([self.process])}
        return bool(ours & listeners(self.port)) and self._call("GET", "/health/ready").get("status") == "UP"

    def _all_properties(self) -> dict[str, str]:
        login: dict[str, str] = {}
        if self.users:
            login = {
                "quarkus.http.auth.basic": "true",
                "quarkus.http.auth.permission.all.paths": "/apis/*",
                "quarkus.http.auth.permission.all.policy": "authenticated",
                "quarkus.oidc.tenant-enabled": "false",
                "quarkus.security.users.embedded.plain-text": "true",
            }
        for name, password in self.users.items():
            login[f'quarkus.security.users.embedded.users."{name}"'] = password
            login[f'quarkus.security.users.embedded.roles."{name}"'] = "user"
        address = {"quarkus.http.host": LOOPBACK, "quarkus.http.port": str(self.port)}
        return {**PROPERTIES, **address, **login, **self.properties}

    def _set_compatibility(self) -> None:
        """Sets the compatibility level once for a folder, so that a level that a user sets later is kept."""
        done = self.folder / "compatibility"
        if done.exists():
            return
        answer = self._call("PUT", f"{API}/config", {"compatibility": COMPATIBILITY})
        if answer.get("compatibilityLevel") != COMPATIBILITY:
            raise ServiceFailed(f"the schema registry did not take {COMPATIBILITY} as its compatibility: {answer}")
        done.write_text(f"{COMPATIBILITY}\n")

    def _call(self, method: str, path: str, body: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Returns the JSON object in the registry's answer. It is empty if the answer has none."""
        import httpx  # every command would wait a tenth of a second for it

        try:
            url, login = f"http://{LOOPBACK}:{self.port}{path}", next(iter(self.users.items()), None)
            answer = httpx.request(method, url, json=body, auth=login, timeout=10.0, trust_env=False)
            found = answer.json()
        except (httpx.HTTPError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}


def runner(jars: Path) -> Path:
    """Returns the jar to run. Raises JarsError if set-up has not run."""
    (jar,) = (jars / name for name in SCHEMA_REGISTRY.jars() if name.endswith("-runner.jar"))
    if not jar.exists():
        raise JarsError(f"no {jar.name} in {jars}. Run `make setup`.")
    return jar


def used_by(pipelines: Path) -> list[str]:
    """Returns the pipelines of a folder that use a registry of this machine, by name. The other settings of these
    pipelines may be wrong.
    """
    return [file.parent.name for file in sorted(pipelines.glob("[!._]*/pipeline.yaml")) if _uses_local(file)]


def _uses_local(file: Path) -> bool:
    try:
        url = read_yaml(file)["schema_registry"]["url"]
    except (KeyError, TypeError, SettingsError):
        return False
    if "${SCHEMA_REGISTRY_URL" in str(url):
        return True
    try:
        return urlsplit(str(url)).hostname in {LOOPBACK, "localhost"}
    except ValueError:
        return False


def _escaped(text: str) -> str:
    """Returns a key or value of a properties file, escaped. Java gives the backslash, `=`, `:` and line ends a meaning."""
    for character, escaped in (("\\", "\\\\"), ("=", "\\="), (":", "\\:"), ("\n", "\\n"), ("\r", "\\r")):
        text = text.replace(character, escaped)
    return text


def _environment() -> Mapping[str, str]:
    """Returns this process's environment without variables of Apicurio and Quarkus, which would override the settings
    file.
    """
    return {key: value for key, value in os.environ.items() if not key.startswith(("APICURIO_", "QUARKUS_"))}
