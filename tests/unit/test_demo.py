"""What `fencepost demo` shows at its end: of each pipeline a row for each day, and how to look at what is quarantined."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost_stack import demo
from fencepost_stack.commands import Report

SERVICES = {"airflow": {"url": "http://127.0.0.1:8080", "username": "admin"}}


class Results:
    """The API of an Airflow whose runs quarantined so much, by rule."""

    def __init__(self, *quarantined: dict[str, int]) -> None:
        self.quarantined = quarantined
        self.runs = [
            {"dag_run_id": str(n), "data_interval_start": f"2013-01-0{n + 1}T05:00:00Z", "state": "success"}
            for n in range(len(quarantined))
        ]

    def xcom(self, dag: str, run: str, task: str) -> dict[str, Any]:
        """A task's result, of a batch that was published earlier."""
        aside = self.quarantined[int(run)]
        details = {
            "write": {"rows_in": 842 + sum(aside.values()), "rows": 842, "quarantined": aside},
            "validate": {"verdict": "passed", "report": str(Path.cwd() / "report.html")},
            "advance": {},
        }
        return {"details": details[task], "revision": 1, "changed": False}


def shown(results: Results, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(demo.out, "width", 100)
    with demo.out.capture() as captured:
        demo._show(results, dict.fromkeys(demo.PIPELINES, results.runs), SERVICES)  # type: ignore[arg-type]
    return captured.get()


def cells(text: str) -> list[list[str]]:
    """The table's rows."""
    return [
        [c.strip() for c in line.strip("│┃").replace("┃", "│").split("│")]
        for line in text.splitlines()
        if line[:1] in "│┃"
    ]


def test_each_table_has_what_was_quarantined_and_the_command_that_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(Results({"malformed": 1, "a rule": 1}, {}), monkeypatch)
    table = [
        ["day", "in", "out", "quarantined", "verdict", "result"],
        ["2013-01-01", "844", "842", "2", "passed", "already published, revision 1"],
        ["2013-01-02", "842", "842", "0", "passed", "already published, revision 1"],
    ]
    assert cells(text) == table * 5
    for pipeline in demo.PIPELINES:
        assert f".venv/bin/fencepost quarantine {pipeline}\n" in text


def test_nothing_is_said_of_quarantine_where_nothing_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "fencepost quarantine" not in shown(Results({}, {}), monkeypatch)


class Scheduler:
    """The API of an Airflow in which each look at the first DAG's tasks brings all to the next of these states.

    When there is none left, what runs has ended with success.
    """

    def __init__(self, before: dict[str, str], *looks: dict[str, str]) -> None:
        self.states, self.looks, self.begun = dict(before), list(looks), list[str]()

    def backfill(self, dag: str) -> None:
        self.begun.append(dag)
        self.states[dag] = "running"

    def dag_runs(self, dag: str) -> list[dict[str, Any]]:
        found = self.states.get(dag)
        return [{"dag_run_id": dag, "data_interval_start": DAY.isoformat(), "state": found}] if found else []

    def task_instances(self, dag: str, _: str) -> list[Any]:
        if dag == self.begun[0]:
            ended = {one: "success" for one, state in self.states.items() if state == "running"}
            self.states |= self.looks.pop(0) if self.looks else ended
        return []


DAY = datetime(2013, 1, 1, tzinfo=demo.NEW_YORK)
FLIGHTS, WEATHER, DELAYS, HOURS, LAKE = demo.PIPELINES
READ = {DELAYS: (FLIGHTS,), HOURS: (FLIGHTS, WEATHER), LAKE: (WEATHER,)}


@pytest.mark.parametrize(
    ("airflow", "begun"),
    [
        (Scheduler({}, {}, {FLIGHTS: "success"}), [FLIGHTS, WEATHER, DELAYS, HOURS, LAKE]),
        (Scheduler({}, {WEATHER: "success"}), [FLIGHTS, WEATHER, LAKE, DELAYS, HOURS]),
        (Scheduler({}, {}, {WEATHER: "success"}), [FLIGHTS, WEATHER, LAKE, DELAYS, HOURS]),
        (Scheduler({}, {FLIGHTS: "failed"}), [FLIGHTS, WEATHER, LAKE]),
        (Scheduler({}, {WEATHER: "failed"}), [FLIGHTS, WEATHER, DELAYS]),
        (Scheduler({FLIGHTS: "success"}), [FLIGHTS, WEATHER, DELAYS, HOURS, LAKE]),
        (Scheduler({WEATHER: "success"}), [FLIGHTS, WEATHER, LAKE, DELAYS, HOURS]),
    ],
)
def test_days_of_a_table_begin_once_those_that_it_reads_are_published(
    monkeypatch: pytest.MonkeyPatch, airflow: Scheduler, begun: list[str]
) -> None:
    seen, before = dict[str, list[str]](), dict(airflow.states)
    monkeypatch.setattr(demo, "POLL", 0)

    def begin(dag: str) -> None:
        if dag in READ:
            seen[dag] = [before.get(read, airflow.states[read]) for read in READ[dag]]
        airflow.backfill(dag)

    assert demo._follow(airflow, begin, [DAY], lambda _: None) == sorted(begun, key=demo.PIPELINES.index)  # type: ignore[arg-type]
    assert airflow.begun == begun
    assert seen == {dag: ["success"] * len(READ[dag]) for dag in begun if dag in READ}


def test_records_are_loaded_while_airflow_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    loading, played = Event(), list[Any]()

    def load(kafka: dict[str, str], registry: str) -> tuple[dict[str, str], str]:
        loading.set()
        return kafka, registry

    def start_stack(*, seen: Report) -> dict[str, Any]:
        for service, event in (("kafka", "starting"), ("kafka", "ready"), ("airflow", "starting")):
            assert not loading.is_set(), "Kafka was not ready yet"
            seen(service, event, 0.0)
        assert loading.wait(30), "Airflow is about to be ready, and nothing loads"
        seen("airflow", "ready", 0.0)
        return SERVICES

    found = {"kafka": {"bootstrap": "127.0.0.1:1"}, "schema-registry": {"url": "http://127.0.0.1:2"}}
    monkeypatch.setattr(demo, "Stack", lambda: SimpleNamespace(services=lambda: found))
    monkeypatch.setattr(demo, "load", load)
    monkeypatch.setattr(demo, "start_stack", start_stack)
    monkeypatch.setattr(demo, "play", lambda services, loaded: played.append((services, loaded())))
    demo.demo()
    assert played == [(SERVICES, ({"bootstrap.servers": "127.0.0.1:1"}, "http://127.0.0.1:2"))]
