"""A secrets backend of Airflow's that is a file: `AIRFLOW__SECRETS__BACKEND=vault.Vault`. Without its file it is down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from airflow.sdk.bases.secrets_backend import BaseSecretsBackend


class Vault(BaseSecretsBackend):
    """The file has connections by id, each in Airflow's JSON form, or as a URI."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.file = Path(file)

    def get_conn_value(self, conn_id: str, team_name: str | None = None) -> str | None:
        """The connection, or none."""
        found: dict[str, Any] = json.loads(self.file.read_text())
        value = found.get(conn_id)
        return value if value is None or isinstance(value, str) else json.dumps(value)


def use_vault(monkeypatch: Any, file: Path, connections: dict[str, Any]) -> Path:
    """Have Airflow look connections up in this file, which can be changed or moved away."""
    from airflow.sdk.configuration import clear_secrets_backends_cache

    file.write_text(json.dumps(connections))
    monkeypatch.setenv("AIRFLOW__SECRETS__BACKEND", "vault.Vault")
    monkeypatch.setenv("AIRFLOW__SECRETS__BACKEND_KWARGS", json.dumps({"file": str(file)}))
    clear_secrets_backends_cache()
    return file
