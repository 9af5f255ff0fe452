"""An auth manager for the stack of these tests: the simple one, where the viewer may not read DAG `private`.

The simple auth manager alone knows roles and no rights by DAG, so no user of it could ever be refused one.
"""

from __future__ import annotations

from typing import Any

from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

HIDDEN = "private"


class GuardingAuthManager(SimpleAuthManager):
    """Airflow asks this one through the same dependencies as any other."""

    def is_authorized_dag(self, *, method: Any, user: Any, access_entity: Any = None, details: Any = None) -> bool:
        if details is not None and details.id == HIDDEN and user.get_name() == "viewer":
            return False
        return super().is_authorized_dag(method=method, user=user, access_entity=access_entity, details=details)
