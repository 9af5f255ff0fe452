"""Reads the settings of pipelines whose folders are elsewhere, as in a DAG bundle. The DAGs carry these settings, and
Airflow's database has the DAGs.

The API server has no bundles. A serialized DAG is read again only when its hash has changed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

from airflow.models.dag import DagModel, DagTag
from airflow.models.dag_version import DagVersion
from airflow.models.serialized_dag import SerializedDagModel
from airflow.utils.session import create_session
from sqlalchemy import select
from sqlalchemy.orm import Session

Public = Mapping[str, Any]
TAG = "fencepost"  # the tag that `build_dags` gives to each DAG


class DagSettings:
    """The settings that DAGs carry. There is one object per process, and many threads may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, tuple[str, Public | None]] = {}

    def read(self) -> dict[str, tuple[str, Public]]:
        """Returns the settings of each DAG that carries settings, with the DAG's hash, by DAG id."""
        with self._lock, create_session(scoped=False) as session:
            hashes = _hashes(session)
            changed = [name for name, found in hashes.items() if self._known.get(name, ("", None))[0] != found]
            if changed:
                self._known |= _settings(session, changed)
            self._known = {name: self._known[name] for name in hashes if name in self._known}
            return {name: (found, public) for name, (found, public) in self._known.items() if public is not None}


def _hashes(session: Session) -> dict[str, str]:
    """Returns the newest hash of each Fencepost DAG that Airflow has not marked stale."""
    ours = select(DagTag.dag_id).join(DagModel, DagModel.dag_id == DagTag.dag_id)
    ours = ours.where(DagTag.name == TAG, DagModel.is_stale.is_(False))
    versions = (
        select(DagVersion.dag_id, SerializedDagModel.dag_hash)
        .join(DagVersion, SerializedDagModel.dag_version_id == DagVersion.id)
        .where(DagVersion.dag_id.in_(ours))
        .order_by(DagVersion.version_number)
    )
    return dict(session.execute(versions).tuples().all())  # the last version of each id wins


def _settings(session: Session, names: Iterable[str]) -> dict[str, tuple[str, Public | None]]:
    rows = SerializedDagModel.get_latest_serialized_dags(dag_ids=list(names), session=session)
    return {row.dag_id: (row.dag_hash, public_of(row.data)) for row in rows}


def public_of(data: Any) -> Public | None:
    """Returns the settings in a serialized DAG. Returns None if it carries none, or is not Fencepost's."""
    found = data
    for name in ("dag", "timetable", "__var", "pipeline"):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else None
