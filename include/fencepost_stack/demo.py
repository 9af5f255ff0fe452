"""`fencepost demo`: runs three days of real flights and weather through Airflow's own scheduler, and shows the results.

Three pipelines have tables as their outputs, and read what the others publish: delays by carrier and hour in PostgreSQL,
delays by airport and hour beside the weather of that hour, also there, and the weather in an Iceberg table. Their days run
after those of the pipelines that they read. A second run changes nothing, because the records exist already and published
intervals are no-ops.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fencepost.cli.airflow_api import Json
from fencepost.errors import Retriable
from fencepost_stack import reporting, weather_lake
from fencepost_stack.airflow_api import ENDED, StackAirflow, await_value
from fencepost_stack.commands import start_stack
from fencepost_stack.flights import LoadedFlights, load_flights
from fencepost_stack.nycflights import NEW_YORK, days_between, start_of
from fencepost_stack.postgres import binaries
from fencepost_stack.stack import Stack
from fencepost_stack.weather import LoadedWeather, load_weather

FLIGHTS, WEATHER = "nyc_flights", "nyc_weather"
DELAYS, HOURS, LAKE = "nyc_delays", "nyc_airport_hours", "nyc_weather_lake"
READER = "flight_delays_by_carrier"  # scheduled by what nyc_delays publishes
DAYS = days_between(date(2013, 1, 1), date(2013, 1, 3))
TIMEOUT = 1800.0  # seconds for the runs of all pipelines
POLL = 2.0  # seconds; each poll takes a part of the processor time that the runs want
ALL = "~"  # every run, for Airflow's API

Answer = tuple[list[str], list[tuple[Any, ...]]]  # columns and rows
Login = Mapping[str, str]  # the reader's, in libpq's names


@dataclass(frozen=True, slots=True)
class TableOutput:
    """A pipeline's output that is a table: what the pipeline reads, and what the demo asks the table."""

    behind: tuple[str, ...]  # the pipelines whose published days it reads
    question: str
    query: Callable[[Login, str], Answer]
    shell: Callable[[Login], str]  # the command for other questions


def _shell(reader: Login) -> str:
    return reporting.psql(reader, binaries())


TABLES = {
    DELAYS: TableOutput(
        (FLIGHTS,),
        """SELECT airline, sum(flights) AS flights, round(1.0 * sum(delay_minutes) / sum(departed), 1) AS minutes_late
FROM delays_by_hour GROUP BY airline ORDER BY minutes_late DESC LIMIT 5""",
        reporting.query,
        _shell,
    ),
    HOURS: TableOutput(
        (FLIGHTS, WEATHER),
        """SELECT 10 * floor(wind_kmh / 10) AS wind_kmh_from, sum(flights) AS flights,
  round(1.0 * sum(delay_minutes) / sum(departed), 1) AS minutes_late
FROM airport_hours GROUP BY wind_kmh_from ORDER BY wind_kmh_from""",
        reporting.query,
        _shell,
    ),
    LAKE: TableOutput(
        (WEATHER,),
        """SELECT origin AS airport, count(*) AS hours, round(avg(temp_c), 1) AS mean_celsius,
  round(max(wind_kmh)) AS strongest_wind_kmh
FROM observations GROUP BY origin ORDER BY origin""",
        weather_lake.query,
        weather_lake.shell,
    ),
}
PIPELINES = (FLIGHTS, WEATHER, *TABLES)

out = Console(highlight=False)

Watch = Callable[[Sequence[str]], None]
Loaded = tuple[LoadedFlights, LoadedWeather]


class DemoFailed(Retriable):
    """A run of the demo failed."""


def demo() -> None:
    """Starts all services, loads real flights and weather, runs three daily intervals of each in Airflow, and shows the
    results.
    """
    out.print("[bold]1[/] Services")
    with ThreadPoolExecutor(1) as pool:
        loads: list[Future[Loaded]] = []

        def load_meanwhile(service: str, event: str, seconds: float) -> None:
            """Loads the records as soon as Kafka and the registry are ready, while Airflow starts."""
            if service == "airflow" and not loads:
                found = Stack().services()
                kafka = {"bootstrap.servers": found["kafka"]["bootstrap"]}
                loads.append(pool.submit(load, kafka, found["schema-registry"]["url"]))

        services = start_stack(seen=load_meanwhile)
        play(services, loads[0].result)
    out.print("Services stay up; `make down` stops them.")


def load(kafka: Mapping[str, str], registry: str) -> Loaded:
    """Loads all days of flights and weather. `kafka` are librdkafka's settings."""
    return load_flights(kafka, DAYS), load_weather(kafka, registry, DAYS)


def play(
    services: Json,
    loaded: Callable[[], Loaded],
    watch: Watch = lambda running: None,
    days: Sequence[date] = DAYS,
) -> None:
    """Runs these days of the pipelines on the loaded records, and shows the results. Until all tasks have ended,
    `watch` is called repeatedly with the labels of the running tasks.

    Raises:
        DemoFailed: a run did not succeed.
    """
    out.print("[bold]2[/] Flights and weather of 1 to 3 January 2013")
    flights, weather = loaded()
    text = f"{flights.flights:,} flights and {flights.broken} broken records"
    out.print(f"  [green]✓[/] topic flights: {_if_added(text, flights.added)}")
    text = f"{weather.observations} hourly observations in Avro, of two schemas"
    out.print(f"  [green]✓[/] topic weather: {_if_added(text, weather.added)}")
    behind = ", ".join(f"{dag} behind {' and '.join(table.behind)}" for dag, table in TABLES.items())
    out.print(
        f"[bold]3[/] DAGs {FLIGHTS}, {WEATHER}, {behind}: one run for each day, by Airflow's scheduler", soft_wrap=True
    )
    with StackAirflow.of_services(services) as api:
        _show(api, _run_days(api, watch, days), services)
    for pipeline, table in TABLES.items():
        _show_answer(pipeline, table, services["postgres"]["reader"])


def _show_answer(pipeline: str, asked: TableOutput, reader: Login) -> None:
    """Shows a question to the table, its answer, and the command for other questions."""
    columns, rows = asked.query(reader, asked.question)
    out.print(f"The table of {pipeline}:\n{asked.question};", soft_wrap=True)
    table = Table()
    for name, values in zip(columns, zip(*rows, strict=True), strict=True):
        table.add_column(name, justify="left" if any(isinstance(value, str) for value in values) else "right")
    for row in rows:
        table.add_row(*map(str, row))
    out.print(table)
    out.print(f"ask it yourself: {escape(asked.shell(reader))}", soft_wrap=True)


def _show_reader(api: StackAirflow, published: set[str]) -> None:
    """Shows what the reading DAG has read of the batches published in this run. It reads each batch once."""
    found: list[Json] = []

    def read() -> list[Json] | None:
        runs = [r for r in api.dag_runs(READER) if r["state"] == "success"]
        found[:] = [api.xcom(READER, run["dag_run_id"], "summarise") for run in runs]
        return found if published <= {batch for one in found for batch in one["batches"]} else None

    with out.status(f"waiting for {READER}"):
        await_value(read, f"{READER} to read what was published", TIMEOUT)
    batches = sum(len(one["batches"]) for one in found)
    flights = sum(one["flights"] for one in found)
    out.print(f"{READER}: {flights:,} flights of {batches} published batch{'es' * (batches != 1)}, by asset events")


def _if_added(text: str, added: bool) -> str:
    return text if added else "it held records, and was left alone"


def _run_days(api: StackAirflow, watch: Watch, days: Sequence[date]) -> dict[str, list[Json]]:
    """Backfills the days, and returns the runs of each pipeline. The days of a pipeline in `TABLES` follow once
    those that it reads are published. Existing runs run again, and find their intervals published.
    """
    for dag in (*PIPELINES, READER):  # the reader first hears of events once it is switched on
        api.await_dag(dag)
        api.unpause(dag)
    starts = [start_of(day) for day in days]
    _finish_earlier(api)

    def begin(dag: str) -> None:
        api.backfill(dag, starts[0], starts[-1], reprocess="completed", max_active_runs=len(days))

    ran = _follow(api, begin, starts, watch)
    return {dag: api.await_intervals(dag, starts, timeout=TIMEOUT) for dag in ran}


def _may_begin(api: StackAirflow, dag: str, starts: list[datetime]) -> bool:
    """Returns whether what a pipeline reads of these days is published."""
    for behind in TABLES[dag].behind if dag in TABLES else ():
        runs = {datetime.fromisoformat(r["data_interval_start"]): r["state"] for r in api.dag_runs(behind)}
        if any(runs.get(start) != "success" for start in starts):
            return False
    return True


def _finish_earlier(api: StackAirflow) -> None:
    """Waits for the backfills of an earlier demo. Airflow runs only one backfill of a DAG at a time, and ends a
    backfill within 30 s of its last run.
    """
    for dag in PIPELINES:
        for earlier in api.call("GET", "/backfills", dag_id=dag)["backfills"]:
            if not earlier["completed_at"]:
                out.print(f"  an earlier backfill of {dag} has not ended; waiting for it")
                api.await_backfill(earlier["id"], timeout=TIMEOUT)


def _follow(api: StackAirflow, begin: Callable[[str], None], starts: list[datetime], watch: Watch) -> Sequence[str]:
    """Begins the backfills, and prints a line for every task that ends, until their runs have ended. Returns the DAGs
    that were run.
    """
    text: set[tuple[str, str, str]] = set()
    began = time.monotonic()
    begun: list[str] = []

    def begin_ready() -> bool:
        """Begins the pipelines that may begin by now. Returns whether there are any."""
        ready = [dag for dag in PIPELINES if dag not in begun and _may_begin(api, dag, starts)]
        for dag in ready:
            begin(dag)
        begun.extend(ready)
        return bool(ready)

    begin_ready()
    with out.status("waiting for Airflow's scheduler") as status:
        while True:
            running, completed = [], True
            for dag in begun:
                runs = {r["dag_run_id"]: r for r in api.dag_runs(dag)}
                days = {name: datetime.fromisoformat(run["data_interval_start"]) for name, run in runs.items()}
                completed = completed and all(
                    run["state"] in ENDED for name, run in runs.items() if days[name] in starts
                )
                for task in api.task_instances(dag, ALL):
                    start = days.get(task["dag_run_id"])
                    if start not in starts:
                        continue
                    label = f"{dag} {start.astimezone(NEW_YORK):%Y-%m-%d} {task['task_id']}"
                    ended = (f"{dag} {task['dag_run_id']}", task["task_id"], str(task["end_date"]))
                    if task["state"] == "running":
                        running.append(label)
                    elif task["state"] in {"success", "failed"} and ended not in text and _is_recent(task, began):
                        text.add(ended)
                        mark = "[green]✓[/]" if task["state"] == "success" else "[red]✗[/]"
                        out.print(f"  {mark} {label:<36} {task['duration'] or 0:6.1f} s")
            status.update(f"running: {', '.join(running) or 'nothing yet'}")
            watch(running)
            if not begin_ready() and completed:
                return [dag for dag in PIPELINES if dag in begun]
            if time.monotonic() - began > TIMEOUT:
                raise DemoFailed(
                    f"the runs did not end within {TIMEOUT:.0f} s; look at them in Airflow's UI, then run again."
                )
            time.sleep(POLL)


def _is_recent(task: Json, began: float) -> bool:
    """Returns whether a task ended after the demo began. A repeated run keeps its old tasks for a moment."""
    age = datetime.now(NEW_YORK) - datetime.fromisoformat(task["end_date"])
    return age < timedelta(seconds=time.monotonic() - began + 1)


def _show(api: StackAirflow, runs: dict[str, list[Json]], services: Json) -> None:
    """Shows a table for each pipeline, from the tasks' own results."""
    failed: list[str] = []
    published = {pipeline: _show_pipeline(api, pipeline, of_it, failed) for pipeline, of_it in runs.items()}
    if published.get(DELAYS):
        _show_reader(api, published[DELAYS])
    ui = services["airflow"]
    out.print(
        f"Airflow: {ui['url']}  (user {ui['username']}; .venv/bin/fencepost services shows the password)",
        soft_wrap=True,
    )
    if failed:
        raise DemoFailed(f"{', '.join(failed)} did not succeed; see the task's log in Airflow's UI.")


def _show_pipeline(api: StackAirflow, pipeline: str, runs: list[Json], failed: list[str]) -> set[str]:
    """Shows a pipeline's table and reports, and returns the batches that its runs published. Failed runs are added to
    `failed`.
    """
    table = Table(title=pipeline, title_justify="left")
    for name in ("day", "in", "out", "quarantined", "verdict", "result"):
        table.add_column(name, justify="left" if name in {"day", "verdict", "result"} else "right")
    reports, published, quarantined = [], set(), 0
    for run in runs:
        day = datetime.fromisoformat(run["data_interval_start"]).astimezone(NEW_YORK)
        if run["state"] != "success":
            failed.append(f"{pipeline} {run['dag_run_id']}")
            table.add_row(f"{day:%Y-%m-%d}", "", "", "", "", f"[red]{run['state']}[/]")
            continue
        write, validate, advance = (api.xcom(pipeline, run["dag_run_id"], t) for t in ("write", "validate", "advance"))
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
        out.print(f"what is quarantined, and why: .venv/bin/fencepost quarantine {pipeline}", soft_wrap=True)
    for report in reports:
        out.print(f"  report  {escape(_short(report))}", soft_wrap=True)
    return published


def _short(path: str) -> str:
    """Returns a path relative to the current folder if it is in that folder."""
    return os.path.relpath(path) if Path(path).is_relative_to(Path.cwd()) else path
