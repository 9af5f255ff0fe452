"""`fencepost doctor`: what would make a run fail or lose its guarantee, and what to do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from fencepost.cli.airflow import NO_AIRFLOW, known_airflow
from fencepost.cli.arguments import AsJson, names_like
from fencepost.cli.console import out, print_json, working
from fencepost.cli.extensions import use_environment
from fencepost.config.loading import folder_of, load_pipeline, load_pipelines
from fencepost.config.pipeline import Pipeline
from fencepost.config.sections import AirflowSettings
from fencepost.errors import FencepostError, SettingsError

if TYPE_CHECKING:
    from fencepost.cli.airflow_api import AirflowApi
    from fencepost.findings import Finding

SHARED = "this machine"
STYLE = {"error": "bold red", "warning": "yellow"}


def doctor(
    pipeline: Annotated[
        str | None,
        typer.Argument(
            help="The pipeline's name: its folder in include/pipelines. Without it, all of them.",
            autocompletion=names_like,
        ),
    ] = None,
    spark_job: Annotated[
        bool | None,
        typer.Option(
            help="Run a small Spark job, three minutes at most, that compares the executors' Python and packages with the "
            "driver's. Without this option: only if Spark's master is not local."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check what would make a run fail or lose its guarantee, and say what to do. Changes nothing.

    Checks settings, transform, suite, Kafka, rights, topics, the ledger and its groups, Spark, Airflow and the folder of reports.
    Executes each transform.py. A check takes at most a minute, and the small Spark job at most three.

    Exit code 0: all is well, or there are warnings only. 1: a run would fail or lose its guarantee. 2: usage.

    Example: fencepost doctor nyc_flights
    """
    use_environment()
    found = examine_all(*_pipelines(pipeline), spark_job=spark_job)
    failed = any(one.level == "error" for findings in found.values() for one in findings)
    if as_json:
        from fencepost.doctor.run_check import as_plain

        print_json({"findings": {about: [*map(as_plain, f)] for about, f in found.items()}, "exit_code": int(failed)})
    else:
        for about, findings in found.items():
            show(about, findings)
    if failed:
        raise typer.Exit(1)


def _pipelines(name: str | None) -> tuple[dict[str, Pipeline], dict[str, SettingsError]]:
    """Returns the pipeline of that name, or all pipelines, and the errors of pipelines that cannot be loaded.

    Raises:
        SettingsError: there is no pipeline of that name, or no pipeline.
    """
    if name is None:
        return load_pipelines()
    folder = folder_of(name)
    try:
        return {name: load_pipeline(folder)}, {}
    except SettingsError as error:
        return {}, {name: error}


def examine_all(
    good: Mapping[str, Pipeline], bad: Mapping[str, SettingsError], *, spark_job: bool | None
) -> dict[str, list[Finding]]:
    """Returns the findings about each pipeline by its name, and the findings about what all pipelines share."""
    from fencepost.doctor.airflow import check_airflow_dag
    from fencepost.doctor.examination import examine
    from fencepost.doctor.run_check import run_check
    from fencepost.findings import error

    found: dict[str, list[Finding]] = {}
    shared, airflow = _shared([*good.values()], spark_job)
    for name in sorted({*good, *bad}):
        with working(f"examining {name}"):
            if name in good:
                whole, found[name] = _looked_up(good[name])
                found[name] += examine(whole) if whole is not None else []
            else:
                found[name] = [replace(error(str(bad[name]), "", kind=SettingsError), check="settings")]
            if airflow is not None:
                found[name] += run_check(check_airflow_dag, airflow, name)
    return found | {SHARED: shared}


def _looked_up(pipeline: Pipeline) -> tuple[Pipeline | None, list[Finding]]:
    """Returns the pipeline with the settings of its connections, and the findings about the connections. The pipeline
    is None if they cannot be looked up.
    """
    from fencepost.doctor.run_check import run_check
    from fencepost.doctor.settings import check_connections
    from fencepost.findings import error

    if not pipeline.all_connections:
        return pipeline, []
    from fencepost.airflow.command_connections import resolve_for_command

    places: list[str] = []
    try:
        whole, given = resolve_for_command(pipeline, places.append)
    except FencepostError as failed:
        return None, [replace(error(str(failed), "", kind=type(failed)), check="connections")]
    return whole, run_check(check_connections, pipeline, given, places)


def _shared(pipelines: Sequence[Pipeline], spark_job: bool | None) -> tuple[list[Finding], AirflowApi | None]:
    """Returns the findings about reports, Airflow and Spark. It also returns the connection to Airflow, or None if
    there is none.
    """
    from fencepost.doctor import airflow as of_airflow
    from fencepost.doctor import spark as of_spark
    from fencepost.doctor.run_check import run_check
    from fencepost.doctor.settings import check_reports
    from fencepost.findings import ok, skipped
    from fencepost.spark.submit import spark_master

    connected: list[AirflowApi] = []
    pipeline = next(iter(pipelines), None)
    of_all = [one.airflow for one in pipelines] or [AirflowSettings()]

    def check_airflow() -> Finding:
        airflow = known_airflow()
        if airflow is None:
            return skipped(NO_AIRFLOW)
        connected.append(airflow)
        return ok(f"{airflow.url} answers")

    found = [*run_check(check_reports), *run_check(check_airflow)]
    masters = [spark_master()]
    for airflow in connected:
        for pool in dict.fromkeys(one.pool for one in of_all):
            found += run_check(of_airflow.check_airflow_pool, airflow, pool)
        for connection in dict.fromkeys(one.spark_connection for one in of_all):
            found += run_check(of_airflow.check_airflow_connection, airflow, connection)
            masters += of_airflow.masters(airflow, connection)
        late = [one.name for one in pipelines if one.schedule.deadline_minutes is not None]
        found += run_check(of_airflow.check_airflow_triggerer, airflow, late)
    found += run_check(of_spark.check_spark_driver)
    for master in dict.fromkeys(masters):
        reachable = run_check(of_spark.check_spark_master, master)
        found += reachable
        if pipeline is not None and reachable[0].level == "ok":
            with working(f"asking Spark's executors of {master}"):
                found += run_check(of_spark.check_spark_executors, pipeline, master, spark_job, limit=of_spark.JOB + 30)
    return found, connected[0] if connected else None


def show(about: str, findings: Sequence[Finding]) -> None:
    """Prints the problems in a table, the worst first. Below the table are their commands, each in one piece, and a
    line for each other level.
    """
    by_level: dict[str, list[Finding]] = defaultdict(list)
    for one in findings:
        by_level[one.level].append(one)
    problems = by_level["error"] + by_level["warning"]
    counts = ", ".join(f"{len(by_level[level])} {level}{'s' * (len(by_level[level]) != 1)}" for level in STYLE)
    title = f"{about}: {counts}" if problems else f"[green]✓[/] {about}: nothing to do"
    if problems:
        table = Table(title=title, title_justify="left", show_lines=True)
        table.add_column("level", no_wrap=True)
        table.add_column("check", overflow="fold", max_width=20)
        table.add_column("what was found, and what to do", overflow="fold")
        for one in problems:
            said = f"{escape(one.found)}\n[bold]{escape(one.do)}[/]" if one.do else escape(one.found)
            table.add_row(f"[{STYLE[one.level]}]{one.level}[/]", one.check, said)
        out.print(table)
    else:
        out.print(title)
    for one in problems:
        if one.command:  # a command is for copying, so its line is not broken
            out.print(f"  {one.check}: {one.command}", markup=False, soft_wrap=True)
    for reason, names in _by_reason(by_level["skipped"]).items():
        out.print(f"  [magenta]not checked:[/] {', '.join(names)}: {escape(reason)}")
    if by_level["ok"]:
        out.print(f"  [green]ok:[/] {', '.join(dict.fromkeys(one.check for one in by_level['ok']))}")
    out.print()


def _by_reason(skipped: Sequence[Finding]) -> dict[str, list[str]]:
    names: dict[str, list[str]] = defaultdict(list)
    for one in skipped:
        names[f"{one.found} {one.do}".rstrip()].append(one.check)
    return names
