"""The settings of a connection to PostgreSQL that a pipeline may give, by libpq's names."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from fencepost.config.secret_names import NOT_BESIDE

REQUIRED = ("host", "dbname", "user")
ALLOWED_POSTGRES = frozenset(
    """channel_binding connect_timeout dbname gssencmode host hostaddr keepalives keepalives_count keepalives_idle
    keepalives_interval krbsrvname load_balance_hosts passfile password port require_auth sslcert sslcertmode sslcrl sslcrldir
    sslkey sslmode sslnegotiation sslpassword sslrootcert sslsni ssl_max_protocol_version ssl_min_protocol_version
    target_session_attrs tcp_user_timeout user""".split()
)
# What may stand beside a connection: who logs in, and tuning, as in `kafka_options.py`.
BESIDE_CONNECTION = frozenset(
    """connect_timeout keepalives keepalives_count keepalives_idle keepalives_interval load_balance_hosts password sslcert
    sslcertmode sslkey sslpassword target_session_attrs tcp_user_timeout user""".split()
)
# Settings that the protocol keeps for itself, with the reason.
OWN_POSTGRES = {
    "application_name": "Fencepost names its sessions, and ends only those",
    "client_encoding": "texts are UTF-8",
    "options": "a pooler takes none; what a transaction needs is set in it",
    "replication": "a session for replication takes no statements",
    "service": "a file beside the settings would decide where batches go; write its settings here",
    "servicefile": "see service",
    "fallback_application_name": "Fencepost names its sessions",
}
FIXED_POSTGRES = {"target_session_attrs": ("read-write", "primary")}
SHOWN_POSTGRES = ("host", "port", "dbname", "user", "sslmode")  # messages show the values of these


def check_postgres(settings: Mapping[str, str], *, whole: bool = True) -> None:
    """Check the names, and the values that the protocol depends on. They are `whole` unless a connection has the rest:
    then those that decide where its secret goes are refused.

    Raises:
        ValueError: names the setting, and what is allowed.
    """
    for name, value in settings.items():
        if name in OWN_POSTGRES:
            raise ValueError(f"{name}: not allowed: {OWN_POSTGRES[name]}")
        if name not in ALLOWED_POSTGRES:
            close = get_close_matches(name, ALLOWED_POSTGRES, 1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise ValueError(f"{name}: not a setting of libpq that Fencepost passes on{hint}")
        if not whole and name not in BESIDE_CONNECTION:
            raise ValueError(f"{name} {NOT_BESIDE}")
        if "\0" in value:
            raise ValueError(f"{name}: holds a character that no setting can have")
        if name in FIXED_POSTGRES and value not in FIXED_POSTGRES[name]:
            raise ValueError(f"{name}: allowed is {' or '.join(FIXED_POSTGRES[name])}: batches are written")
    missing = [name for name in REQUIRED if whole and settings and not settings.get(name)]
    if missing:
        raise ValueError(f"{', '.join(missing)}: required but missing")
