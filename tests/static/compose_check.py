"""What can be said of the compose files without a Docker engine: a list of all that is wrong with them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from fencepost_stack.jars import SCHEMA_REGISTRY
from static.image import Dockerignore, copied, instructions

OWN_IMAGE = "fencepost:local"
IN_IMAGE = "/opt/fencepost/"
# Made inside the image.
NOT_IN_THE_REPOSITORY = {".venv", "jars"}
TOP = {"name", "services", "volumes"}
SERVICE = """build command depends_on environment healthcheck image init ports restart stop_grace_period
volumes""".split()
HEALTHCHECK = {"test", "interval", "timeout", "retries", "start_period"}
# Logins and logs of Airflow; keys of the brokers and of their administrator.
PRIVATE = {"state": {"airflow"}, "cluster": {"kafka"}}
CONDITIONS = {"service_started", "service_healthy", "service_completed_successfully"}
DURATION = re.compile(r"(\d+(h|m|s|ms))+")
VARIABLE = re.compile(r"(?<!\$)\$\{([A-Za-z_]\w*)(:[-?][^}]*)?\}")
SECRET_NAME = re.compile(r"PASSWORD|SECRET|FERNET|TOKEN|PRIVATE", re.IGNORECASE)
NOT_SECRET = re.compile(r"_FILE$|_USERS$")
RANDOM_TEXT = re.compile(r"(?=[\w+/=-]*\d)(?=[\w+/=-]*[A-Z])(?=[\w+/=-]*[a-z])[\w+/=-]{20,}")
LOGIN_IN_URL = re.compile(r"://[^/\s:@]+:([^@\s]+)@")


@dataclass(frozen=True)
class Files:
    """The texts that belong together, and the repository they stand in."""

    compose: str
    dockerfile: str
    dockerignore: str
    env_example: str
    requirements: str
    root: Path

    @classmethod
    def of(cls, root: Path) -> Files:
        """As they are in the repository."""
        names = ("docker-compose.yaml", "Dockerfile", ".dockerignore", ".env.example", "requirements.txt")
        return cls(*((root / name).read_text(encoding="utf-8") for name in names), root=root)

    @property
    def model(self) -> dict[str, Any]:
        """compose's content, anchors and merges resolved, extension fields left out."""
        raw = yaml.safe_load(self.compose)
        return {name: value for name, value in raw.items() if not name.startswith("x-")}


def problems(files: Files) -> list[str]:
    """Everything that is wrong, one sentence each; empty when all is well."""
    model = files.model
    services: dict[str, dict[str, Any]] = model.get("services", {})
    found = [f"unknown top-level field {name}" for name in model.keys() - TOP]
    for name, service in services.items():
        found += [f"{name}: {problem}" for problem in _structure(service, model)]
        found += [f"{name}: {problem}" for problem in _ports(service)]
        found += [f"{name}: {problem}" for problem in _secrets(service)]
    found += _mounts(services, files.dockerfile)
    found += _paths(files)
    found += _variables(files)
    found += _versions(files, services)
    if "NOT RUN" not in files.compose.split("services:")[0]:
        found.append("the head does not say that the file has not been run")
    return found


def _structure(service: Mapping[str, Any], model: Mapping[str, Any]) -> Iterator[str]:
    services, volumes = model.get("services", {}), model.get("volumes") or {}
    for field in service.keys() - set(SERVICE):
        yield f"unknown field {field}"
    if not isinstance(service.get("image"), str) or ":" not in service["image"]:
        yield "an image with its version is required"
    once = service.get("restart") == "no"
    if service.get("restart") not in {"no", "always", "on-failure", "unless-stopped"}:
        yield f"restart policy {service.get('restart')!r}"
    for variable, value in service.get("environment", {}).items():
        if not isinstance(value, str):
            yield f"environment.{variable}: {value!r} is not a text; quote it"
    for other, how in (service.get("depends_on") or {}).items():
        condition = how.get("condition") if isinstance(how, dict) else None
        if other not in services:
            yield f"depends on {other}, which is no service"
        elif condition not in CONDITIONS:
            yield f"depends on {other} without a condition"
        elif condition == "service_healthy" and "healthcheck" not in services[other]:
            yield f"waits for {other} to be healthy, which has no health check"
        elif (condition == "service_completed_successfully") != (services[other].get("restart") == "no"):
            yield f"condition {condition} does not fit {other}, which is restarted or not"
    for mount in service.get("volumes", []):
        volume = str(mount).split(":")[0]
        if not volume.startswith((".", "/")) and volume not in volumes:
            yield f"volume {volume} is not declared"
    yield from _health(service.get("healthcheck"), once)


def _mounts(services: Mapping[str, Mapping[str, Any]], dockerfile: str) -> Iterator[str]:
    """What one kind of service writes, others do not write; and what holds secrets, only those see whose they are.

    A folder that the image lacks would be root's, and the image's user could not write to it.
    """
    (made,) = [rest for _, rest in instructions(dockerfile) if "install --directory" in rest]
    writers: dict[str, set[str]] = {}
    for name, service in services.items():
        for mount in service.get("volumes", []):
            volume, _, access = str(mount).partition(":")
            if volume in PRIVATE and kind_of(name) not in PRIVATE[volume]:
                yield f"{name}: volume {volume} has secrets of others"
            if service["image"] == OWN_IMAGE and access.removesuffix(":ro") not in made.split():
                yield f"{name}: {access} is not made in the Dockerfile"
            if not access.endswith(":ro"):
                writers.setdefault(volume, set()).add(kind_of(name))
    for volume, kinds in writers.items():
        if len(kinds) > 1:
            yield f"volume {volume} is written by {', '.join(sorted(kinds))}"


def kind_of(service: str) -> str:
    """Airflow's components are one; so are Kafka's brokers and what makes their certificates and users."""
    kind = service.partition("-")[0]
    return {"cluster": "kafka", "schema": service}.get(kind, kind)


def _health(check: Mapping[str, Any] | None, once: bool) -> Iterator[str]:
    if check is None:
        if not once:
            yield "runs for long and has no health check"
        return
    for field in check.keys() - HEALTHCHECK:
        yield f"healthcheck: unknown field {field}"
    test = check.get("test")
    if not isinstance(test, list) or len(test) < 2 or test[0] not in {"CMD", "CMD-SHELL"}:
        yield "healthcheck: test must be a list that begins with CMD or CMD-SHELL"
    for field in ("interval", "timeout", "start_period"):
        if field in check and not DURATION.fullmatch(str(check[field])):
            yield f"healthcheck: {field} {check[field]!r} is no duration"


def _ports(service: Mapping[str, Any]) -> Iterator[str]:
    for port in service.get("ports", []):
        if not re.fullmatch(r"127\.0\.0\.1:(\$\{\w+:-\d+\}|\d+):\d+", str(port)):
            yield f"port {port} is not published on 127.0.0.1 alone"


def _secrets(service: Mapping[str, Any]) -> Iterator[str]:
    for name, value in service.get("environment", {}).items():
        literal = VARIABLE.sub("", str(value))
        if SECRET_NAME.search(name) and not NOT_SECRET.search(name):
            if literal or not re.fullmatch(r"\$\{\w+:\?[^}]+\}", str(value)):
                yield f"environment.{name} must be a variable that is required, ${{NAME:?...}}"
        elif (login := LOGIN_IN_URL.search(str(value))) and not login.group(1).startswith("${"):
            yield f"environment.{name} holds a password"
        elif RANDOM_TEXT.search(re.sub(r"[\w.-]*[/:][\w./:-]*|\w+(?=_)", "", literal)):
            yield f"environment.{name} looks like a key"
    if str(service.get("environment", {}).get("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS", "")).lower() == "true":
        yield "everybody would be Airflow's admin"


def _paths(files: Files) -> Iterator[str]:
    """What compose and the Dockerfile name exists, and reaches the image."""
    named = set(re.findall(rf"{IN_IMAGE}([\w./-]+)", files.compose + files.dockerfile))
    sources = [s for name, rest in instructions(files.dockerfile) if name == "COPY" for s in copied(rest)[0]]
    ignored = Dockerignore(files.dockerignore)
    for path in sorted({*named, *(s for s in sources if s != ".")}):
        if path.split("/")[0] in NOT_IN_THE_REPOSITORY:
            continue
        if not (files.root / path).exists():
            yield f"{path} is not in the repository"
        elif ignored.ignores(PurePosixPath(path)):
            yield f"{path} is kept out of the image by .dockerignore"
    for secret in (".env", ".git", ".fencepost"):
        if not ignored.ignores(PurePosixPath(secret)):
            yield f".dockerignore lets {secret} into the image"
    for mount in (m for service in files.model.get("services", {}).values() for m in service.get("volumes", [])):
        source = str(mount).split(":")[0]
        if source.startswith(".") and not (files.root / source).exists():
            yield f"{source} is mounted, and is not in the repository"


def _variables(files: Files) -> Iterator[str]:
    """Every variable is documented, with the same default; what is documented is used."""
    text = "\n".join(line for line in files.compose.splitlines() if not line.strip().startswith("#"))
    used = {name: how or "" for name, how in VARIABLE.findall(text)}
    documented = dict(re.findall(r"^(\w+)=(.*)$", files.env_example, re.MULTILINE))
    for name in sorted(used.keys() - documented.keys()):
        yield f"variable {name} is not documented in .env.example"
    for name in sorted(documented.keys() - used.keys()):
        yield f".env.example documents {name}, which nothing uses"
    for name in sorted(used.keys() & documented.keys()):
        if not used[name]:
            yield f"variable {name} has neither a default nor :?, so it would be empty in silence"
        elif used[name].startswith(":-") and used[name][2:] != documented[name]:
            yield f"variable {name}: default {used[name][2:]!r}, documented as {documented[name]!r}"
        elif used[name].startswith(":?") and documented[name]:
            yield f".env.example holds a value for {name}, which must be everybody's own"


def _versions(files: Files, services: Mapping[str, Any]) -> Iterator[str]:
    """One place for each version: requirements.txt, the jars module, and python's in both files."""
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)", files.requirements, re.MULTILINE))
    if pins.get("pyspark") != pins.get("pyspark-client"):
        yield "requirements.txt pins pyspark and pyspark-client to two versions"
    base = re.findall(r"^FROM (\S+)", files.dockerfile, re.MULTILINE)
    if len(base) != 1 or not base[0].startswith("python:3.11-"):
        yield f"Dockerfile: base image {base}, wanted python:3.11-..."
    if not re.search(r"openjdk-17-jre", files.dockerfile):
        yield "Dockerfile: no Java 17"
    if not re.search(r"^RUN make setup PYTHON=python3\.11", files.dockerfile, re.MULTILINE):
        yield "Dockerfile: packages and jars must come from `make setup`, as everywhere"
    for package in re.findall(r"pip3? install (.+)", files.dockerfile):
        yield f"Dockerfile installs {package} beside requirements.txt"
    images = {name: str(service.get("image")) for name, service in services.items()}
    (runner,) = (name for name in SCHEMA_REGISTRY.jars() if name.endswith("-runner.jar"))
    if f"{IN_IMAGE}jars/{SCHEMA_REGISTRY.name}/{runner}" not in services.get("schema-registry", {}).get("command", []):
        yield f"schema-registry: does not run {runner}, the jar of the local stack"
    for name, image in images.items():
        if name != "postgres" and (image != OWN_IMAGE or services[name].get("build") != "."):
            yield f"{name}: image {image}, wanted {OWN_IMAGE}: driver, executors and brokers are those of the local stack"
        if image.endswith((":latest", ":")):
            yield f"{name}: image {image} names no version"
