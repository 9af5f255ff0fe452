"""The passwords and keys of the local stack. The secrets are made once, and kept in a file that only its owner can
read.
"""

import base64
import secrets
from dataclasses import dataclass, fields

from fencepost_stack.reporting import REPORTING, WEATHER_LAKE, WRITERS
from fencepost_stack.state_folder import StateFolder, read_json, write_private_json


@dataclass(frozen=True, slots=True, repr=False)
class Credentials:
    """All secrets. It has no repr, so it cannot reach a log by accident."""

    postgres_superuser: str
    postgres: str
    reporting: str
    reporting_reader: str
    weather_lake: str
    airflow_admin: str
    airflow_viewer: str
    airflow_jwt_secret: str
    airflow_secret_key: str
    airflow_fernet_key: str

    @classmethod
    def ensure(cls, state: StateFolder) -> "Credentials":
        """Returns the credentials in the state folder. Missing credentials are made and kept first."""
        known = read_json(state.secrets_file)
        made = {field.name: known.get(field.name) or _make(field.name) for field in fields(cls)}
        if made != known:
            write_private_json(state.secrets_file, made)
        return cls(**made)

    @property
    def table_writers(self) -> dict[str, str]:
        """Returns the passwords of the roles that write the demo's tables, by role."""
        return {WRITERS[REPORTING]: self.reporting, WRITERS[WEATHER_LAKE]: self.weather_lake}


def _make(name: str) -> str:
    if name == "airflow_fernet_key":
        return base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()
    # People type passwords, machines read secrets.
    return secrets.token_urlsafe(48) if "secret" in name else secrets.token_hex(8)
