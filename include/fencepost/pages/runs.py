"""Finds the DAG run of each interval, and the revision that a run is about, in Airflow's database.

A run_id is never parsed, because it does not name the interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from airflow.models.dagrun import DagRun
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState
from sqlalchemy import select

from fencepost.model import Batch, Interval
from fencepost.protocol.snapshot import Row

CLOCKS = timedelta(minutes=1)  # how far the clocks of a worker and of Airflow's database may differ


@dataclass(frozen=True)
class DagRunFacts:
    """The facts about a DAG run that the pages need. `told` is the newest revision in its steps' results."""

    interval: Interval
    returned: int | None = None
    succeeded: bool = False
    began: datetime | None = None
    ended: datetime | None = None


def runs_of(dag_id: str, intervals: Sequence[Interval]) -> dict[datetime, str]:
    """Returns the ids of runs by the interval's start. It sends one query for a whole page."""
    if not intervals:
        return {}
    # The logical date is unique by DAG, and so indexed. It is the interval's start for the runs that a pipeline's DAG
    # allows.
    query = select(DagRun.logical_date, DagRun.run_id).where(
        DagRun.dag_id == dag_id, DagRun.logical_date.in_([i.start for i in intervals])
    )
    with create_session(scoped=False) as session:
        return {start: run_id for start, run_id in session.execute(query) if start is not None}


def stopped_runs(dag_id: str, rows: Sequence[Row]) -> set[Interval]:
    """Returns the intervals whose run has failed, if they have not changed since then. No run continues such an
    interval.
    """
    if not rows:
        return set()
    query = select(DagRun.logical_date, DagRun.end_date).where(
        DagRun.dag_id == dag_id,
        DagRun.logical_date.in_([row.interval.start for row in rows]),
        DagRun.state == DagRunState.FAILED,
    )
    with create_session(scoped=False) as session:
        ended = {start: end for start, end in session.execute(query) if end is not None}
    last = {row.interval: row.newest.changed_at for row in rows}
    return {i for i, at in last.items() if i.start in ended and at <= ended[i.start] + CLOCKS}


def run_of(dag_id: str, run_id: str) -> DagRunFacts | None:
    """Returns the run, with the newest revision in its steps' results. Returns None if there is no such run, or if it
    has no data interval.
    """
    query = select(DagRun).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id)
    results = XComModel.get_many(run_id=run_id, dag_ids=dag_id, key="return_value")
    with create_session(scoped=False) as session:
        run = session.scalar(query)
        if run is None or run.data_interval_start is None or run.data_interval_end is None:
            return None
        if run.data_interval_end <= run.data_interval_start:
            return None
        returned = [_revision(XComModel.deserialize_value(found)) for found in session.scalars(results)]
        return DagRunFacts(
            interval=Interval.of(run.data_interval_start, run.data_interval_end),
            returned=max((revision for revision in returned if revision is not None), default=None),
            succeeded=run.state == DagRunState.SUCCESS,
            began=run.start_date,
            ended=run.end_date,
        )


def about(run: DagRunFacts, row: Row) -> Batch:
    """Returns the revision that a run is about.

    Usually this is the newest revision in the results of the run's steps. A step that planned a revision and then
    failed has no result. So a run that did not succeed also owns the revisions that were planned while it ran. A run
    also owns these revisions if its results are not in Airflow's database, because an XCom backend keeps them
    elsewhere. If there is no such revision, the result is the revision that matters most now.
    """
    named = next((b for b in row.revisions.all if b.revision == run.returned), None)
    is_unknown = run.returned is None or not run.succeeded
    own = [b for b in row.revisions.all if is_unknown and _planned_within(b, run)]
    known = [b for b in (named, *own) if b is not None]
    return max(known, key=lambda b: b.revision) if known else row.telling


def _planned_within(batch: Batch, run: DagRunFacts) -> bool:
    planned = batch.plan.planned_at
    if run.began is None or planned < run.began - CLOCKS:
        return False
    return run.ended is None or run.ended < run.began or planned <= run.ended + CLOCKS


def _revision(result: Any) -> int | None:
    revision = result.get("revision") if isinstance(result, dict) and "batch" in result else None
    return revision if isinstance(revision, int) else None
