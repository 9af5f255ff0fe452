"""What a person asks of a run by its parameters, and which request that is.

Airflow keeps a run's parameters for ever: each clear of the run, for whatever reason, brings them again. Only a backfill gives
a run other parameters, or the same ones anew. So a request is named by its backfill, in the run's conf, and the revision that
answers it records that name.

A task cannot know its run's backfill, so this is a listener. Airflow calls it before the run's tasks begin, usually in the
scheduler, and commits its change.
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

ASKED = ("reprocess", "replay", "another_cluster")
REQUEST = "request"  # the parameter that has the name
LONGEST = 200  # characters of a name


@hookimpl
def on_dag_run_running(dag_run: DagRun, msg: str) -> None:
    """Airflow's name for it."""
    dag, conf = getattr(dag_run, "dag", None), dag_run.conf or {}
    if dag is None or not isinstance(dag.timetable, IntervalTimetable) or not any(map(conf.get, ASKED)):
        return
    backfill = dag_run.backfill
    # A later backfill without parameters leaves the run those that it has, and their name.
    if backfill is not None and backfill.dag_run_conf:
        dag_run.conf = {**conf, REQUEST: f"backfill {backfill.id} of {backfill.created_at.isoformat()}"}


@dataclass(frozen=True)
class Request:
    """What a run's parameters ask for. The run's id is the name of a request that no backfill made."""

    name: str
    reprocess: bool = False
    replay: bool = False
    another_cluster: bool = False

    @classmethod
    def of(cls, context: Context) -> Self:
        """That of a task's run."""
        params: Mapping[str, Any] = context["params"]
        name = str(params.get(REQUEST) or f"run {context['dag_run'].run_id}")[:LONGEST]
        return cls(name, *(bool(params.get(asked)) for asked in ASKED))

    @property
    def is_any(self) -> bool:
        """Whether they ask for something."""
        return self.reprocess or self.replay or self.another_cluster

    @property
    def moment(self) -> datetime | None:
        """When a backfill made it; None if none did."""
        try:
            found = datetime.fromisoformat(self.name.rpartition(" of ")[2])
        except ValueError:
            return None
        return found if found.tzinfo else None
