"""Guards the pages with the dependencies that also guard Airflow's API.

A plugin's FastAPI app has no authentication of its own, so every route declares one of these dependencies. The
dependencies answer 401 without a login and 403 without the permission, for the UI's cookie and for tokens alike.
"""

from __future__ import annotations

from typing import Annotated

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from fastapi import Depends

# The permission is for the DAG in the path ({dag_id}): its batches, its runs, and what its tasks logged about records.
MayReadDag = Depends(requires_access_dag("GET"))
MayReadRuns = Depends(requires_access_dag("GET", DagAccessEntity.RUN))
MayReadLogs = Depends(requires_access_dag("GET", DagAccessEntity.TASK_LOGS))


def _readable(user: GetUserDep) -> set[str]:
    return get_auth_manager().get_authorized_dag_ids(user=user, method="GET")


Readable = Annotated[set[str], Depends(_readable)]  # ids of all DAGs that the user may read
