"""The Dockerfile, step by step in an empty folder; then what compose starts in the image, as far as it needs no network."""

from __future__ import annotations

import json
import re
import shutil
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path, PurePosixPath

import httpx
import pytest
from confluent_kafka.admin import AdminClient

from fencepost_stack.compose import PORTS
from fencepost_stack.ports import answers, any_free_port
from fencepost_stack.processes import await_ready, spawn, stop
from fencepost_stack.schema_registry import API
from kafka_tools import QUIET_LOG
from static.compose_check import OWN_IMAGE, VARIABLE, Files
from static.image import BuildFailed, Dockerignore, Image, build, copied, instructions

pytestmark = pytest.mark.deep

ROOT = Path(__file__).resolve().parents[2]
FILES = Files.of(ROOT)
SERVICES = {name: service for name, service in FILES.model["services"].items() if service["image"] == OWN_IMAGE}
AIRFLOW = {
    **{name: service["command"] for name, service in SERVICES.items() if service["command"][0] == "airflow"},
    **{
        f"{name}'s health": service["healthcheck"]["test"][1:]
        for name, service in SERVICES.items()
        if "airflow" in service.get("healthcheck", {}).get("test", [])
    },
}
INIT: str = SERVICES["airflow-init"]["command"][-1].replace("$$", "$")


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    """The steps' outcome."""
    folder = tmp_path_factory.mktemp("image")
    yield build(ROOT, folder, FILES.dockerfile)
    shutil.rmtree(folder)  # forty thousand links


def environment(service: str) -> dict[str, str]:
    """A service's variables, with a value for each that the user has to give."""
    return {
        name: VARIABLE.sub(
            lambda found: (found.group(2) or "").removeprefix(":-").replace(":?see .env.example", "x"), value
        )
        for name, value in SERVICES[service].get("environment", {}).items()
    }


def test_the_image_runs_as_a_user_who_can_read_all_of_it_and_owns_its_state(image: Image) -> None:
    assert image.user == "fencepost"
    assert image.unreadable() == []
    assert list(Path(image.inside("/var/lib/fencepost")).iterdir()) == []  # nothing of root's, whom the steps ran as


def test_the_image_holds_what_the_checkout_lets_through_and_nothing_else(image: Image) -> None:
    names = {path.name for path in Path(image.inside(image.workdir)).iterdir()}
    made, sent = (
        {".venv", "jars"},
        {"Makefile", "pyproject.toml", "requirements.txt", "include", "dags", "plugins"},
    )
    assert names == made | sent


PROBE = """
import importlib, json, pkgutil, sys
import fencepost
from airflow.cli.cli_parser import get_parser
from airflow.dag_processing.dagbag import DagBag

for command in json.loads(sys.argv[1]):
    get_parser().parse_args(command)
modules = [module.name for module in pkgutil.walk_packages(fencepost.__path__, "fencepost.")]
for name in modules:
    if not name.endswith("__main__"):
        importlib.import_module(name)
bag = DagBag()
print(json.dumps({"file": fencepost.__file__, "modules": modules, "dags": sorted(bag.dags), "errors": bag.import_errors}))
"""


def test_what_airflows_components_run_is_in_the_image(image: Image) -> None:
    """Their commands are ones of this Airflow; every module of the package is there and imports; the DAGs load."""
    assert len(AIRFLOW) == 7
    assert re.findall(r"^(airflow|python -m) (.*)$", INIT, re.MULTILINE) == [
        ("airflow", "db migrate"),
        ("python -m", "fencepost.airflow"),
    ]
    commands = [*(command[1:] for command in AIRFLOW.values()), ["db", "migrate"]]
    # AIRFLOW_HOME is in a folder of its own: what Airflow writes there belongs to the volume, not to the image.
    home = {"AIRFLOW_HOME": str(image.root / "airflow")}
    done = image.run(["python", "-c", PROBE, json.dumps(commands)], {**environment("airflow-scheduler"), **home})
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["file"] == image.inside("/opt/fencepost/include/fencepost/__init__.py")
    assert "fencepost.airflow.__main__" in found["modules"]
    assert found["errors"] == {}
    assert "nyc_flights" in found["dags"]


def test_the_passwords_of_compose_are_written_for_their_owner_alone(image: Image) -> None:
    script = INIT[INIT.index("umask") :]
    given = environment("airflow-init") | {"ADMIN_PASSWORD": "a", "VIEWER_PASSWORD": 'b"\\'}
    file = image.root / "passwords.json"
    given["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"] = str(file)
    done = image.run(["bash", "-euc", script], given)
    assert done.returncode == 0, done.stderr
    assert json.loads(file.read_text()) == {"admin": "a", "viewer": 'b"\\'}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("service", ["spark-master", "spark-worker-1"])
def test_spark_takes_the_arguments_that_compose_gives_it(image: Image, service: str) -> None:
    command = SERVICES[service]["command"]
    assert command[0] == "spark-class"
    done = image.run([*command, "--help"], environment(service))  # it ends with 1 at an argument that it does not know
    assert done.returncode == 0, done.stderr
    assert "Usage: " in done.stdout + done.stderr


def test_the_command_line_finds_the_pipelines_in_the_image(image: Image) -> None:
    done = image.run(["fencepost", "pipelines"], environment("airflow-scheduler"))
    assert done.returncode == 0, done.stderr
    assert "nyc_flights" in done.stdout


def test_the_schema_registry_starts_by_the_command_that_compose_gives_it(image: Image, tmp_path: Path) -> None:
    """Its settings are variables there, a file in the local stack; so they are seen to reach it."""
    port, given = any_free_port(), environment("schema-registry")
    given |= {
        "QUARKUS_HTTP_HOST": "127.0.0.1",
        "QUARKUS_HTTP_PORT": str(port),
        "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1",
    }
    command = [image.inside(word) for word in SERVICES["schema-registry"]["command"]]
    url, log = f"http://127.0.0.1:{port}", tmp_path / "log"
    process = spawn(command, env=image.variables(given), log=log, cwd=tmp_path)
    try:
        await_ready("The schema registry", process, log, lambda: answers("127.0.0.1", port), 120)
        assert httpx.get(f"{url}/health/ready", trust_env=False).json()["status"] == "UP"
        codes = [
            httpx.post(
                f"{url}{API}/subjects/x/versions", json={"schema": json.dumps(kind)}, trust_env=False
            ).status_code
            for kind in ("int", "string")
        ]
        assert codes == [200, 409]  # BACKWARD
        assert list(Path(image.inside("/var/lib/fencepost-schema-registry/data")).iterdir())
    finally:
        stop([process])
        shutil.rmtree(image.inside("/var/lib/fencepost-schema-registry"), ignore_errors=True)


HOSTS = {"kafka-1": "127.0.0.1", "kafka-2": "127.0.0.2", "kafka-3": "127.0.0.3"}
MOUNTS = ("authority", "broker", "cluster", "spark")


def test_kafka_starts_by_the_commands_that_compose_gives_it_and_lets_the_pipelines_in(
    image: Image, tmp_path: Path
) -> None:
    """Each broker has a loopback address of its own here, where it has a container there."""
    volumes = [Path(image.inside(f"/var/lib/fencepost-{name}")) for name in MOUNTS]
    for folder in volumes:
        folder.mkdir(exist_ok=True)

    def given(service: str) -> dict[str, str]:
        return environment(service) | {"FENCEPOST_KAFKA_HOSTS": ",".join(HOSTS.values())}

    def run(service: str) -> None:
        done = image.run(SERVICES[service]["command"], given(service))
        assert done.returncode == 0, done.stdout + done.stderr

    assert all(answers(host, port) is False for host in HOSTS.values() for port in PORTS.values())
    run("cluster-init")
    run("cluster-init")  # what is there stays
    brokers = {
        service: spawn(
            SERVICES[service]["command"],
            env=image.variables(given(service)),
            log=tmp_path / f"{service}.log",
            cwd=tmp_path,
        )
        for service in HOSTS
    }
    try:
        for service, process in brokers.items():
            check = partial(answers, HOSTS[service], PORTS["clients"])
            await_ready(service, process, tmp_path / f"{service}.log", check, 120)
        run("kafka-users")
        login = {
            "security.protocol": "sasl_ssl",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "nyc_weather",
            "sasl.password": given("kafka-users")["KAFKA_PASSWORD_NYC_WEATHER"],
            "ssl.ca.location": image.inside("/var/lib/fencepost-authority/ca.pem"),
        }
        inside = AdminClient({**login, "bootstrap.servers": f"{HOSTS['kafka-2']}:{PORTS['clients']}"}, logger=QUIET_LOG)
        assert {broker.host for broker in inside.list_topics(timeout=30).brokers.values()} == set(HOSTS.values())
        outside = AdminClient({**login, "bootstrap.servers": f"{HOSTS['kafka-2']}:{PORTS['host']}"}, logger=QUIET_LOG)
        published = {(broker.host, broker.port) for broker in outside.list_topics(timeout=30).brokers.values()}
        assert published == {("127.0.0.1", 9092), ("127.0.0.1", 9093), ("127.0.0.1", 9094)}
    finally:
        stop(list(brokers.values()))
        for folder in volumes:
            shutil.rmtree(folder)


def test_all_services_of_the_image_are_covered() -> None:
    first = {service["command"][0] for service in SERVICES.values()}
    assert first == {"airflow", "bash", "java", "python", "spark-class"}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("include/fencepost/errors.py ", "", "No module named 'fencepost.errors'"),
        ("COPY Makefile", "COPY README.md Makefile", "README.md is not there, or .dockerignore leaves it out"),
        ("requirements.txt ./", "requirements.txt .", "has to end with /"),
        ("RUN make packages", "ADD x y\nRUN make packages", "ADD x y: not understood here"),
        ("RUN make packages", "RUN useradd x && make packages", "to be steps of their own"),
    ],
)
def test_a_step_that_would_fail_does(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in FILES.dockerfile
    with pytest.raises(BuildFailed, match=re.escape(message)):
        build(ROOT, tmp_path, FILES.dockerfile.replace(old, new, 1))
    shutil.rmtree(tmp_path)


def test_a_dockerfile_is_read_line_by_line() -> None:
    text = "# a\nFROM x\nRUN a \\\n  # b\n  && b\n\ncopy a b ./\n"
    assert list(instructions(text)) == [("FROM", "x"), ("RUN", "a    && b"), ("COPY", "a b ./")]
    assert copied("a b ./") == (["a", "b"], "./")
    for rest in ("--chown=x a b", "a* b/"):
        with pytest.raises(BuildFailed, match="are understood here"):
            copied(rest)


@pytest.mark.parametrize(
    ("rules", "kept"),
    [
        ("", {".env", "include/a.py", "include/b/__pycache__/c.pyc", "include/b/c.py"}),
        ("*\n!include", {"include/a.py", "include/b/__pycache__/c.pyc", "include/b/c.py"}),
        ("*\n!include\n**/__pycache__", {"include/a.py", "include/b/c.py"}),
        ("include/b\n!include/b/c.py", {".env", "include/a.py", "include/b/c.py"}),
        ("!include\n*", set()),
        ("# .env\n/include/*.py", {".env", "include/b/__pycache__/c.pyc", "include/b/c.py"}),
        ("**/*.py\n.en?", {"include/b/__pycache__/c.pyc"}),
    ],
)
def test_dockerignore_leaves_out_what_docker_would(tmp_path: Path, rules: str, kept: set[str]) -> None:
    for name in (".env", "include/a.py", "include/b/__pycache__/c.pyc", "include/b/c.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert set(map(str, Dockerignore(rules).context(tmp_path))) == kept
    assert all(not Dockerignore(rules).ignores(PurePosixPath(name)) for name in kept)
