"""The local stack is a package of its own: it adds commands and settings, and is no part of the software that a plan freezes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fencepost.cli.extensions import use_environment
from fencepost_stack.stack import Stack

INCLUDE = Path(__file__).parents[2] / "include"
ADDRESSES = ("KAFKA_BOOTSTRAP", "SCHEMA_REGISTRY_URL")
REPORTING = tuple(f"REPORTING_{name}" for name in ("HOST", "PORT", "PASSWORD"))
AIRFLOW = tuple(f"FENCEPOST_AIRFLOW_{name}" for name in ("URL", "USER", "PASSWORD"))


@pytest.mark.parametrize(("file", "counts"), [("fencepost_stack/demo.py", False), ("fencepost/model.py", True)])
def test_a_change_of_the_demo_is_none_of_the_software_that_a_plan_freezes(
    tmp_path: Path, file: str, counts: bool
) -> None:
    shutil.copytree(INCLUDE, tmp_path / "include", ignore=shutil.ignore_patterns("__pycache__"))

    def software() -> str:
        print_it = "from fencepost.config.software import software; print(software())"
        environment = {**os.environ, "PYTHONPATH": str(tmp_path / "include")}
        return subprocess.check_output([sys.executable, "-c", print_it], env=environment, text=True)

    before = software()
    with (tmp_path / "include" / file).open("a") as module:
        module.write("# a change\n")
    assert (software() != before) is counts


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The services of a stack that has run; none of them is running."""
    services: dict[str, Any] = {
        "kafka": {"running": False, "bootstrap": "127.0.0.1:1"},
        "schema-registry": {"running": False, "url": "http://127.0.0.1:2/v7"},
        "postgres": {"running": False, "reporting": dict(zip(REPORTING, ("127.0.0.1", "4", "swordfish"), strict=True))},
        "airflow": {"running": False, "url": "http://127.0.0.1:3", "username": "admin", "password": "hunter2"},
    }
    (tmp_path / "services.json").touch()
    monkeypatch.setenv("FENCEPOST_STATE", str(tmp_path))
    monkeypatch.setattr(Stack, "services", lambda self: services)
    for name in (*ADDRESSES, *REPORTING, *AIRFLOW, "AIRFLOW_CONN_SPARK_DEFAULT"):
        monkeypatch.setenv(name, "")  # so that it is put back at the end
        monkeypatch.delenv(name)
    return services


def found() -> list[str | None]:
    use_environment()
    return [os.environ.get(name) for name in (*ADDRESSES, *REPORTING, *AIRFLOW)]


def test_commands_find_the_services_that_run_here_and_no_others(stack: dict[str, Any]) -> None:
    assert found() == [None] * 8
    stack["kafka"]["running"] = True
    assert found() == ["127.0.0.1:1", *[None] * 7]
    for service in stack.values():
        service["running"] = True
    store = ("127.0.0.1", "4", "swordfish")
    assert found() == ["127.0.0.1:1", "http://127.0.0.1:2/v7", *store, "http://127.0.0.1:3", "admin", "hunter2"]


def test_what_is_set_stays_and_another_server_is_not_told_this_one_s_password(
    stack: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for service in stack.values():
        service["running"] = True
    monkeypatch.setenv("KAFKA_BOOTSTRAP", "kafka:9092")
    monkeypatch.setenv("FENCEPOST_AIRFLOW_URL", "https://airflow.example")
    monkeypatch.setenv("REPORTING_HOST", "db.example")
    others = ("db.example", None, None, "https://airflow.example", None, None)
    assert found() == ["kafka:9092", "http://127.0.0.1:2/v7", *others]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"REPORTING_PASSWORD": "mine"}, ("127.0.0.1", "4", "mine", "http://127.0.0.1:3", "admin", "hunter2")),
        ({"REPORTING_PORT": "5433"}, (None, "5433", None, "http://127.0.0.1:3", "admin", "hunter2")),
        (
            {"FENCEPOST_AIRFLOW_USER": "ann", "FENCEPOST_AIRFLOW_PASSWORD": "hers"},
            ("127.0.0.1", "4", "swordfish", "http://127.0.0.1:3", "ann", "hers"),
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_a_login_that_is_given_alone_is_used_at_the_local_service(
    stack: dict[str, Any], monkeypatch: pytest.MonkeyPatch, given: dict[str, str], expected: tuple[str | None, ...]
) -> None:
    for service in stack.values():
        service["running"] = True
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert tuple(found()[2:]) == expected
