"""Declares the service PostgreSQL, with the settings of libpq that a pipeline may give. To allow another setting, add
its name to `SETTINGS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from fencepost.config.secret_names import NOT_BESIDE
from fencepost.config.services.connection import Connection, ConnectionSettings, extra_of, settings_without
from fencepost.config.services.service import Service, checked_by, declared
from fencepost.errors import SettingsError

REQUIRED = ("host", "dbname", "user")
SETTINGS = declared(
    shown="host port dbname user sslmode".split(),
    private="""channel_binding connect_timeout gssencmode hostaddr keepalives keepalives_count keepalives_idle
    keepalives_interval krbsrvname load_balance_hosts require_auth sslcertmode sslcrl sslcrldir sslnegotiation sslrootcert sslsni
    ssl_max_protocol_version ssl_min_protocol_version target_session_attrs tcp_user_timeout""".split(),
    login_files="passfile sslcert sslkey".split(),
    secret="password sslpassword".split(),
)
BESIDE_CONNECTION = frozenset(
    """connect_timeout keepalives keepalives_count keepalives_idle keepalives_interval load_balance_hosts password sslcert
    sslcertmode sslkey sslpassword target_session_attrs tcp_user_timeout user""".split()
)
# Settings that a pipeline may not have, with the reason.
OWN_POSTGRES = {
    "application_name": "Fencepost gives its sessions a name, and ends only sessions of that name",
    "client_encoding": "texts are UTF-8",
    "options": "a pooler accepts no options; Fencepost sets the options of a transaction within the transaction",
    "replication": "a session for replication takes no statements",
    "service": "a service file, which is not part of these settings, would decide where batches go; "
    "write the settings of that file here",
    "servicefile": "see service",
    "fallback_application_name": "Fencepost gives its sessions a name",
}
FIXED_POSTGRES = {"target_session_attrs": ("read-write", "primary")}  # unless nothing is written to the server
# Without these, libpq would send the certificate in ~/.postgresql or the Kerberos ticket of its process to any server.
NO_LOGIN_OF_PROCESS = {"gssencmode": "disable", "sslcertmode": "disable", "require_auth": "!gss,!sspi"}


def check_postgres(settings: Mapping[str, str], *, whole: bool = True, writes: bool = True) -> None:
    """Checks the names, and the values that the protocol depends on.

    `whole` is false if a connection has the other settings. In that case settings that decide where the connection's
    secret is sent are refused. `writes` is false for a server that is only read, which may be a replica.

    Raises:
        ValueError: names the setting, and what is allowed.
    """
    for name, value in settings.items():
        if name in OWN_POSTGRES:
            raise ValueError(f"{name}: not allowed: {OWN_POSTGRES[name]}")
        if name not in SETTINGS:
            close = get_close_matches(name, SETTINGS, 1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise ValueError(f"{name}: not a setting of libpq that Fencepost passes on{hint}")
        if not whole and name not in BESIDE_CONNECTION:
            raise ValueError(f"{name} {NOT_BESIDE}")
        if "\0" in value:
            raise ValueError(f"{name}: holds a character that no setting can have")
        if writes and name in FIXED_POSTGRES and value not in FIXED_POSTGRES[name]:
            raise ValueError(
                f"{name}: allowed is {' or '.join(FIXED_POSTGRES[name])}, because Fencepost writes to the server"
            )
    missing = [name for name in REQUIRED if whole and settings and not settings.get(name)]
    if missing:
        raise ValueError(f"{', '.join(missing)}: required but missing")


# Entries of an extra that are for the Postgres provider or Python's driver, and those that Fencepost sets in each
# session.
OF_PYTHON_DRIVERS = frozenset(
    """application_name autocommit aws_conn_id client_encoding cluster-identifier cursor cursor_factory fallback_application_name
    prepare_threshold row_factory sqlalchemy_query sqlalchemy_scheme workgroup-name""".split()
)
TEMPORARY_LOGINS = ("iam", "redshift", "redshift-serverless", "azure_conn_id")


def postgres_of(connection: Connection) -> ConnectionSettings:
    """Returns the settings of a connection of type `postgres`, in libpq's names.

    Raises:
        SettingsError: the extra is not a JSON object of texts, numbers and booleans, or asks for a login that is valid for
        minutes only.
    """
    extra = extra_of(connection)
    for name in TEMPORARY_LOGINS:
        if extra.pop(name, "false").lower() not in {"false", "0", ""}:
            raise SettingsError(
                f"postgres.connection {connection.id}: {name} asks for a login that is valid for minutes only, "
                "which Fencepost does not support. Use a connection with user and password, or with a client "
                "certificate."
            )
    given = {
        "host": connection.host,
        "user": connection.login,
        "password": connection.password,
        "dbname": connection.schema,
        "port": None if connection.port is None else str(connection.port),
    }
    found = settings_without(extra, OF_PYTHON_DRIVERS)
    return ConnectionSettings({**{k: v for k, v in given.items() if v}, **found.settings}, found.left_out)


POSTGRES = Service(
    name="postgres",
    library="libpq",
    settings=SETTINGS,
    beside_connection=BESIDE_CONNECTION,
    placeholder={"host": "127.0.0.1", "port": "1", "dbname": "not-set", "user": "not-set"},
    of_connection=postgres_of,
    checked=checked_by(check_postgres),
    where_carried=lambda own: NO_LOGIN_OF_PROCESS,
    needed_where_carried=lambda own: frozenset({"password"}),
)
