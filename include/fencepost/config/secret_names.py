"""The names that mark a setting or an environment variable as a secret."""

from __future__ import annotations

import re

SECRET_KEYS = re.compile(r"password|secret|\.key$|\.pem$|token|jaas|access.?key", re.IGNORECASE)
# For environment variables. Airflow's own hold its keys, and URLs with passwords.
SECRET_NAMES = re.compile(
    r"PASS|PWD|SECRET|TOKEN|KEY|CREDENTIAL|JAAS|(_|^)DSN(_|$)|_CONN(_|$)|^AIRFLOW__|^AIRFLOW_(CONN|VAR)_", re.IGNORECASE
)

URL_WITH_PASSWORD = re.compile(r"://[^/\s@]*:[^/\s]*@")
