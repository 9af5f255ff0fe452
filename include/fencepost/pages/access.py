"""Who may see what: Airflow's own word, by the same dependencies that guard its API.

A plugin's FastAPI app has no authentication of its own, so every route names one of these. They answer 401 to the
anonymous and 403 to those without the right, for the UI's cookie and for tokens alike.
"""

from __future__ import annotations

from typing import Annotated

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from fastapi import Depends

# The DAG a path names as {dag_id}: who may read it sees its batches; its runs; what its tasks said of records.
MayReadDag = Depends(requires_access_dag("GET"))
MayReadRuns = Depends(requires_access_dag("GET", DagAccessEntity.RUN))
MayReadLogs = Depends(requires_access_dag("GET", DagAccessEntity.TASK_LOGS))


def _readable(user: GetUserDep) -> set[str]:
    return get_auth_manager().get_authorized_dag_ids(user=user, method="GET")


Readable = Annotated[set[str], Depends(_readable)]  # names of all DAGs the user may read
