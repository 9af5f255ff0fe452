"""`fencepost up`, `down` and `services`: entry points, which the product's command line mounts."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from fencepost.errors import FencepostError

if TYPE_CHECKING:
    from fencepost_stack.cluster_stack import ClusterStack
    from fencepost_stack.stack import Stack

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)

TITLES = {
    "kafka": "Kafka",
    "spark": "Spark",
    "schema-registry": "schema registry",
    "postgres": "PostgreSQL",
    "airflow": "Airflow",
}


class Service(StrEnum):
    """The values of `--only`."""

    KAFKA = "kafka"
    SCHEMA_REGISTRY = "schema-registry"
    POSTGRES = "postgres"
    AIRFLOW = "airflow"


# Called with a service, an event and seconds, as by `Stack.up`.
Report = Callable[[str, str, float], None]

Only = Annotated[Service | None, typer.Option(help="Only this service and what it needs.")]


def _silent(service: str, event: str, seconds: float) -> None:
    """Does nothing, as a Report."""


class Progress:
    """Prints a line for each service, with its seconds. On a terminal it shows a spinner while a service starts."""

    def __init__(self) -> None:
        self._status = out.status("")

    def __call__(self, service: str, event: str, seconds: float) -> None:
        """Receives a report from Stack."""
        title = TITLES[service]
        if event == "starting":
            self._status.update(f"starting {title} ...")
            self._status.start()
            return
        self._status.stop()
        said = {
            "ready": f"up in {seconds:.1f} s",
            "running": "runs already",
            "external": f"yours ({'KAFKA_BOOTSTRAP' if service == 'kafka' else 'SCHEMA_REGISTRY_URL'})",
            "stopped": f"stopped in {seconds:.1f} s",
        }
        out.print(f"  [green]✓[/] {title:<15} {said[event]}")

    def end(self) -> None:
        """Removes the spinner."""
        self._status.stop()


def start_stack(only: str | None = None, seen: Report = _silent) -> dict[str, Any]:
    """Runs `Stack.up` with progress on the terminal. `seen` gets the progress too. Returns what `fencepost services
    --json` prints.
    """
    progress = Progress()

    def report(service: str, event: str, seconds: float) -> None:
        progress(service, event, seconds)
        seen(service, event, seconds)

    try:
        return _stack().up(only, report)
    finally:
        progress.end()


def up(
    only: Only = None,
    database: Annotated[
        str | None,
        typer.Option(
            help="Make a database of this name in PostgreSQL, with a user who owns it, for a pipeline's table."
        ),
    ] = None,
) -> None:
    """Start Kafka, PostgreSQL and Airflow on this machine, and a schema registry if a pipeline uses one.

    Running services stay as they are.

    Example: fencepost up --only kafka
    """
    with errors_shown():
        if database is not None:
            _check_database(database, only)
        services = start_stack(only)
        login = _stack().make_database(database) if database is not None else {}
    _print_services(services)
    if login:
        from fencepost_stack.own_database import catalog_settings, settings

        out.print(f"  {'its database':<15} {_psql(login)}", markup=False)
        warehouse = _stack().state.warehouse.absolute() / login["dbname"]
        for kind, section in (("postgres", settings(login)), ("iceberg", catalog_settings(login, warehouse))):
            out.print(f"\nin pipeline.yaml of a pipeline with output.kind: {kind}:\n\n{section}", markup=False, end="")


def _check_database(name: str, only: str | None) -> None:
    """Refuses a name that no database can have, before anything starts."""
    from fencepost_stack.errors import LocalStackError
    from fencepost_stack.own_database import check_name

    check_name(name)
    if only not in {None, Service.POSTGRES, Service.AIRFLOW}:
        raise LocalStackError(f"--only {only} starts no PostgreSQL, which --database needs. Give --only postgres.")


def down(only: Only = None) -> None:
    """Stop what `up` started, and only that. The data stay.

    Example: fencepost down
    """
    stopped: list[str] = []
    progress = Progress()

    def report(service: str, event: str, seconds: float) -> None:
        stopped.append(service)
        progress(service, event, seconds)

    with errors_shown():
        if only is None and (cluster := _cluster()) is not None:
            cluster.down(report=report)
        _stack().down(only, report)
    if not stopped:
        out.print("No service that `up` started is running.")


def services(
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Show where the local services are, and how to log in. Prints passwords. Exit code 1: none is running.

    Example: fencepost services --json
    """
    with errors_shown():
        found = _stack().services()
        cluster = _cluster()
        of_cluster = cluster.services() if cluster is not None else None
    running = any(_is_running(services) for services in (found, of_cluster or {}))
    if as_json:
        typer.echo(json.dumps(found if of_cluster is None else found | {"cluster": of_cluster}, indent=2))
    else:
        if _is_running(found):
            _print_services(found)
        if of_cluster is not None and _is_running(of_cluster):
            out.print("cluster:")
            _print_services(of_cluster)
    if not running:
        err.print("No service is running. `make up` starts them; `make demo` runs the whole demo.")
        raise typer.Exit(1)


def _stack() -> Stack:
    """Returns the stack of this machine."""
    from fencepost_stack.stack import Stack

    return Stack()


def _cluster() -> ClusterStack | None:
    """Returns the cluster of this machine, or None if it never ran."""
    from fencepost_stack.state_folder import StateFolder

    if not (StateFolder.default().root / "cluster" / "services.json").exists():
        return None
    from fencepost_stack.cluster_stack import ClusterStack

    return ClusterStack()


def _is_running(services: Mapping[str, Any]) -> bool:
    return any(service["running"] for service in services.values() if isinstance(service, dict))


@contextmanager
def errors_shown() -> Iterator[None]:
    """Prints an error of Fencepost in the block, and exits with the error's code."""
    try:
        yield
    except FencepostError as error:
        # Logs hold square brackets, which are no markup of ours.
        err.print(Text.assemble(("✗ ", "red"), str(error)))
        raise typer.Exit(error.exit_code) from error


def _psql(login: Mapping[str, str]) -> str:
    """Returns the command that opens PostgreSQL's own shell on the tables of pipelines."""
    from fencepost_stack.postgres import binaries
    from fencepost_stack.reporting import psql

    return psql(login, binaries())


def _print_services(found: dict[str, Any]) -> None:
    lines = []
    kafka, schemas, database, ui = (found[service] for service in ("kafka", "schema-registry", "postgres", "airflow"))
    if kafka["running"]:
        lines.append(("Kafka", kafka["bootstrap"]))
    if spark := found.get("spark"):
        lines.append(("Spark", f"{spark['master']}  ({spark['url']})"))
    if schemas["running"]:
        lines.append(("schema registry", schemas["url"]))
    if database["running"]:
        lines.append(("PostgreSQL", database["dsn"]))
        lines.append(("its tables", _psql(database["reader"])))
    if ui["running"]:
        lines.append(("Airflow", f"{ui['url']}  (user {ui['username']}, password {ui['password']})"))
    if shell := found.get("environment"):
        lines.append(("for a shell", f"source {os.path.relpath(shell)}"))
    for name, text in lines:
        out.print(f"  {name:<15} {text}", markup=False)
