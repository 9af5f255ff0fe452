"""Which DAG run is for which interval, from Airflow's database. A run_id is never parsed: it does not say."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from airflow.models.dagrun import DagRun
from airflow.utils.session import create_session
from sqlalchemy import select

from fencepost.model import Interval


def runs_of(dag_id: str, intervals: Sequence[Interval]) -> dict[datetime, str]:
    """A run's id by the interval's start; one query for a whole page."""
    if not intervals:
        return {}
    # Unique by DAG, and so indexed, is the logical date: for the runs a pipeline's DAG allows, its interval's start.
    query = select(DagRun.logical_date, DagRun.run_id).where(
        DagRun.dag_id == dag_id, DagRun.logical_date.in_([i.start for i in intervals])
    )
    with create_session(scoped=False) as session:
        return {start: run_id for start, run_id in session.execute(query) if start is not None}


def interval_of_run(dag_id: str, run_id: str) -> Interval | None:
    """The data interval of a run; None where there is no such run, or it has none."""
    query = select(DagRun.data_interval_start, DagRun.data_interval_end).where(
        DagRun.dag_id == dag_id, DagRun.run_id == run_id
    )
    with create_session(scoped=False) as session:
        found = session.execute(query).first()
    if found is None or found[0] is None or found[1] is None or found[1] <= found[0]:
        return None
    return Interval.of(found[0], found[1])
