"""A stack of a test's own: own state, own free ports, so that a running demo is never disturbed."""

from pathlib import Path

from fencepost_stack.airflow import Folders
from fencepost_stack.ports import any_free_port
from fencepost_stack.processes import Process, family
from fencepost_stack.registry import Registry
from fencepost_stack.stack import SERVICES, Stack
from fencepost_stack.state_folder import StateFolder

# Of the session that runs the tests: what set-up resolved is not resolved again.
SHARED_JARS = StateFolder.default().jars

DAG_ID = "says_its_day"
DAG = """
from datetime import UTC, datetime
from airflow.sdk import dag, task
from airflow.timetables.interval import CronDataIntervalTimetable

@dag(
    schedule=CronDataIntervalTimetable("0 0 * * *", timezone="UTC"),
    start_date=datetime(2013, 1, 1, tzinfo=UTC),
    catchup=False,
    allowed_run_types=["scheduled", "backfill"],
)
def says_its_day():
    @task
    def say(data_interval_start=None):
        return str(data_interval_start.date())
    say()

says_its_day()
"""


def new_stack(root: Path) -> Stack:
    """A stack that is not started, with a DAG that says its day."""
    folders = Folders(root / "dags", root / "plugins", root / "pipelines")
    for folder in (folders.dags, folders.plugins, folders.pipelines):
        folder.mkdir(parents=True, exist_ok=True)
    (folders.dags / f"{DAG_ID}.py").write_text(DAG)
    return Stack(StateFolder(root / "state", SHARED_JARS), folders, {service: any_free_port() for service in SERVICES})


def add_pipeline(stack: Stack, url: str = "${SCHEMA_REGISTRY_URL}") -> None:
    """The settings of a pipeline that uses a schema registry."""
    folder = stack.folders.pipelines / "with_schemas"
    folder.mkdir()
    (folder / "pipeline.yaml").write_text(f"schema_registry: {{url: '{url}'}}\n")


def recorded(stack: Stack) -> dict[str, Process]:
    """Every process on record, by component."""
    registry = Registry(stack.state)
    return {name: process for service in SERVICES for name, process in registry.processes(service).items()}


def all_processes(stack: Stack) -> set[Process]:
    """Every living process of the stack, descendants included."""
    return family(recorded(stack).values())
