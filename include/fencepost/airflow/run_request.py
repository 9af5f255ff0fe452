"""Reads a person's request from a run's parameters, and gives the request a name.

Airflow keeps a run's parameters for ever, so each clear of the run brings them again. Only a backfill can give a run
other parameters, or the same parameters a second time. So a request has the name of its backfill, which is in the run's
conf. The revision that answers the request records the name.

A task cannot know its run's backfill, so this is a listener. Airflow calls it before the run's tasks start, usually in
the scheduler, and commits its change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from airflow.listeners import hookimpl

from fencepost.airflow.timetable import IntervalTimetable

if TYPE_CHECKING:
    from airflow.models import DagRun
    from airflow.sdk import Context

ASKED = ("reprocess", "replay", "another_cluster", "sources_changed")
REQUEST = "request"  # the parameter with the request's name
LONGEST = 200  # characters of a name


@hookimpl
def on_dag_run_running(dag_run: DagRun, msg: str) -> None:
    """Records the name of the request. Airflow requires the function's name."""
    dag, conf = getattr(dag_run, "dag", None), dag_run.conf or {}
    if dag is None or not isinstance(dag.timetable, IntervalTimetable) or not any(map(conf.get, ASKED)):
        return
    backfill = dag_run.backfill
    # After a later backfill without parameters, the run keeps its parameters, and so their name.
    if backfill is not None and backfill.dag_run_conf:
        dag_run.conf = {**conf, REQUEST: f"backfill {backfill.id} of {backfill.created_at.isoformat()}"}


@dataclass(frozen=True)
class Request:
    """The request in a run's parameters. A request that no backfill made has the run's id as its name."""

    name: str
    reprocess: bool = False
    replay: bool = False
    another_cluster: bool = False
    sources_changed: bool = False

    @classmethod
    def of(cls, context: Context) -> Self:
        """Returns the request of a task's run."""
        params: Mapping[str, Any] = context["params"]
        name = str(params.get(REQUEST) or f"run {context['dag_run'].run_id}")[:LONGEST]
        return cls(name, *(bool(params.get(asked)) for asked in ASKED))

    @property
    def is_any(self) -> bool:
        """Returns whether anything is requested."""
        return self.reprocess or self.replay or self.another_cluster or self.sources_changed

    @property
    def moment(self) -> datetime | None:
        """Returns the time of the backfill that made the request, or None if no backfill did."""
        try:
            found = datetime.fromisoformat(self.name.rpartition(" of ")[2])
        except ValueError:
            return None
        return found if found.tzinfo else None
