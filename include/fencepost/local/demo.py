"""`fencepost demo`: runs three days of real flights through Airflow's own scheduler, and shows a table of the results.

A second run changes nothing: the flights exist already, and published intervals are no-ops.
"""

from __future__ import annotations

import os
import time
from datetime import date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fencepost.errors import Retriable
from fencepost.local.airflow_api import AirflowApi, Json, await_value
from fencepost.local.commands import start_stack
from fencepost.local.flights import load_flights
from fencepost.local.nycflights import days_between

PIPELINE = "nyc_flights"
READER = "flight_delays_by_carrier"  # scheduled by what the pipeline publishes
DAYS = days_between(date(2013, 1, 1), date(2013, 1, 3))
NEW_YORK = ZoneInfo("America/New_York")
TIMEOUT = 1200.0  # seconds for the three runs

out = Console(highlight=False)


class DemoFailed(Retriable):
    """A run of the demo failed."""


def demo() -> None:
    """Start all services, load real flights, run three daily intervals in Airflow, show the result."""
    out.print("[bold]1[/] Services")
    services = start_stack()
    out.print("[bold]2[/] Flights of 1 to 3 January 2013, and some broken records, into topic flights")
    bootstrap = services["kafka"]["bootstrap"]
    os.environ["KAFKA_BOOTSTRAP"] = bootstrap
    load_flights(bootstrap, days=DAYS, broken=True, progress=_loaded)
    out.print(f"[bold]3[/] DAG {PIPELINE}: one run for each day, by Airflow's scheduler")
    with AirflowApi.of_stack() as api:
        runs = _run_days(api)
        _show(api, runs, services)


def _show_reader(api: AirflowApi, published: set[str]) -> None:
    """Show what the second pipeline read from the batches published now; it reads each of them once."""
    found: list[Json] = []

    def read() -> list[Json] | None:
        runs = [r for r in api.dag_runs(READER) if r["state"] == "success"]
        found[:] = [api.xcom(READER, run["dag_run_id"], "summarise") for run in runs]
        return found if published <= {batch for one in found for batch in one["batches"]} else None

    with out.status(f"waiting for {READER}"):
        await_value(read, f"{READER} to read what was published", TIMEOUT)
    batches = sum(len(one["batches"]) for one in found)
    flights = sum(one["flights"] for one in found)
    out.print(f"{READER}: {flights:,} flights of {batches} published batches, by asset events")


def _loaded(day: date, flights: int, broken: int, added: bool) -> None:
    told = f"{flights} flights, {broken} broken record{'s' * (broken != 1)}"
    out.print(f"  [green]✓[/] {day}  {told}{'' if added else ', there already'}")


def _run_days(api: AirflowApi) -> list[Json]:
    """Backfill the three days. Existing runs run again and find their intervals published."""
    for dag in (PIPELINE, READER):  # the reader first hears of events once it is switched on
        api.await_dag(dag)
        api.unpause(dag)
    starts = [datetime(day.year, day.month, day.day, tzinfo=NEW_YORK) for day in DAYS]
    _finish_earlier(api)
    backfill = api.backfill(PIPELINE, starts[0], starts[-1], reprocess="completed", max_active_runs=len(DAYS))
    _follow(api, backfill["id"], starts)
    api.await_backfill(backfill["id"])
    return api.await_intervals(PIPELINE, starts, timeout=TIMEOUT)


def _finish_earlier(api: AirflowApi) -> None:
    """Wait for the backfill of an interrupted demo: Airflow runs only one backfill of a DAG at a time."""
    for earlier in api.call("GET", "/backfills", dag_id=PIPELINE)["backfills"]:
        if not earlier["completed_at"]:
            out.print("  an earlier backfill is still running; waiting for it")
            api.await_backfill(earlier["id"], timeout=TIMEOUT)


def _follow(api: AirflowApi, backfill: int, starts: list[datetime]) -> None:
    """Print a line for every task that ends, until the backfill has completed."""
    told: set[tuple[str, str, str]] = set()
    began = time.monotonic()
    with out.status("waiting for Airflow's scheduler") as status:
        while True:
            completed = api.call("GET", f"/backfills/{backfill}")["completed_at"]
            running = []
            for run in api.dag_runs(PIPELINE):
                start = datetime.fromisoformat(run["data_interval_start"])
                if start not in starts or run["state"] == "queued":
                    continue
                for task in api.task_instances(PIPELINE, run["dag_run_id"]):
                    label = f"{start.astimezone(NEW_YORK):%Y-%m-%d} {task['task_id']}"
                    ended = (run["dag_run_id"], task["task_id"], str(task["end_date"]))
                    if task["state"] == "running":
                        running.append(label)
                    elif task["state"] in {"success", "failed"} and ended not in told and _is_recent(task, began):
                        told.add(ended)
                        mark = "[green]✓[/]" if task["state"] == "success" else "[red]✗[/]"
                        out.print(f"  {mark} {label:<21} {task['duration'] or 0:6.1f} s")
            status.update(f"running: {', '.join(running) or 'nothing yet'}")
            if completed:
                return
            if time.monotonic() - began > TIMEOUT:
                raise DemoFailed(
                    f"the runs did not end within {TIMEOUT:.0f} s; look at them in Airflow's UI, then run again."
                )
            time.sleep(1)


def _is_recent(task: Json, began: float) -> bool:
    """Whether a task ended after the demo began: a repeated run keeps its old tasks for a moment."""
    age = datetime.now(NEW_YORK) - datetime.fromisoformat(task["end_date"])
    return age < timedelta(seconds=time.monotonic() - began + 1)


def _show(api: AirflowApi, runs: list[Json], services: Json) -> None:
    """Show the table, from the tasks' own results."""
    table = Table(title="nyc_flights", title_justify="left")
    for name in ("day", "in", "out", "quarantined", "verdict", "result"):
        table.add_column(name, justify="left" if name in {"day", "verdict", "result"} else "right")
    failed, reports, published, quarantined = [], [], set(), 0
    for run in runs:
        day = datetime.fromisoformat(run["data_interval_start"]).astimezone(NEW_YORK)
        if run["state"] != "success":
            failed.append(run["dag_run_id"])
            table.add_row(f"{day:%Y-%m-%d}", "", "", "", "", f"[red]{run['state']}[/]")
            continue
        write, validate, advance = (api.xcom(PIPELINE, run["dag_run_id"], t) for t in ("write", "validate", "advance"))
        of_day = sum(write["details"]["quarantined"].values())
        quarantined += of_day
        style = "green" if validate["details"]["verdict"] == "passed" else "red"
        table.add_row(
            f"{day:%Y-%m-%d}",
            "not counted" if write["details"]["rows_in"] is None else str(write["details"]["rows_in"]),
            str(write["details"]["rows"]),
            str(of_day),
            f"[{style}]{validate['details']['verdict']}[/]",
            f"{'published' if advance['changed'] else 'already published'}, revision {advance['revision']}",
        )
        reports.append(validate["details"]["report"])
        if advance["changed"]:
            published.add(advance["batch"])
    out.print(table)
    if quarantined:
        out.print(f"what is quarantined, and why: .venv/bin/fencepost quarantine {PIPELINE}", soft_wrap=True)
    for report in reports:
        out.print(f"  report  {escape(_short(report))}", soft_wrap=True)
    if published:
        _show_reader(api, published)
    ui = services["airflow"]
    out.print(
        f"Airflow: {ui['url']}  (user {ui['username']}; .venv/bin/fencepost services shows the password)",
        soft_wrap=True,
    )
    out.print("Services stay up; `make down` stops them.")
    if failed:
        raise DemoFailed(f"{', '.join(failed)} did not succeed; see the task's log in Airflow's UI.")


def _short(path: str) -> str:
    """A path relative to the current folder, if it lies there."""
    return os.path.relpath(path) if Path(path).is_relative_to(Path.cwd()) else path
