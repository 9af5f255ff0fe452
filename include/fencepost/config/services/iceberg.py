"""Declares the service of an Iceberg catalog, with the settings of pyiceberg that a pipeline may give. To allow another
setting, add its name to `SETTINGS`.

pyiceberg takes a database's login in the catalog's `uri` only, and messages show the `uri`. So libpq's `user`,
`password`, `passfile`, `sslmode` and `sslrootcert` are settings too (`outputs/iceberg/catalog.py` joins them). So is the
catalog's `name`.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from urllib.parse import urlsplit

from fencepost.config.secret_names import NOT_BESIDE
from fencepost.config.services.connection import Connection, ConnectionSettings, Settings, extra_of, settings_without
from fencepost.config.services.service import Service, checked_by, declared

REST, SQL = "rest", "sql"
SCHEMES = {REST: ("http", "https"), SQL: ("postgresql",)}
EXAMPLES = {REST: "https://catalog.example.com", SQL: "postgresql://host:5432/database"}
LOGINS = {REST: "credential or token", SQL: "user and password or passfile"}
REQUIRED = {REST: ("uri",), SQL: ("uri", "user", "warehouse")}
DELEGATION = "header.X-Iceberg-Access-Delegation"
OF_REST = frozenset(
    f"prefix credential token scope audience resource oauth2-server-uri ssl.cabundle {DELEGATION}".split()
)
OF_SQL = frozenset("name user password passfile sslmode sslrootcert".split())
SETTINGS = declared(
    shown="type uri warehouse name prefix sslmode s3.endpoint s3.region".split(),
    private=f"""user scope audience resource oauth2-server-uri {DELEGATION} ssl.cabundle sslrootcert s3.anonymous
    s3.connect-timeout s3.force-virtual-addressing s3.request-timeout""".split(),
    login_files=("passfile",),
    secret="password credential token s3.access-key-id s3.secret-access-key s3.session-token".split(),
)
BESIDE_CONNECTION = frozenset(
    """user password credential token scope audience resource s3.access-key-id s3.secret-access-key s3.session-token
    s3.connect-timeout s3.request-timeout""".split()
)
# Settings of pyiceberg that a pipeline may not have, with the reason.
OWN_ICEBERG = {
    "py-catalog-impl": "it loads any class into each process that opens the pipeline",
    "py-io-impl": "it loads any class into each process that opens the pipeline; files are written by pyarrow",
    "auth": "the login to a REST catalog is credential or token",
    "init_catalog_tables": "the tables of a SQL catalog are created if they are missing",
    "schema_version": "the tables of a SQL catalog stay as they are",
    "echo": "it logs each statement with its values",
    "pool_pre_ping": "each attempt opens the catalog itself",
}
# Texts that messages show, or that decide where a secret is sent.
ADDRESSES = ("uri", "warehouse", "oauth2-server-uri", "s3.endpoint")
SERVERS = ("oauth2-server-uri", "s3.endpoint")
STORES = ("file", "s3")  # where a SQL catalog's tables may be
TIMES = ("s3.connect-timeout", "s3.request-timeout")
LONGEST_SECONDS = 600
CHOICES = {
    "type": (REST, SQL),
    "sslmode": ("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
    "s3.anonymous": ("true", "false"),
    "s3.force-virtual-addressing": ("true", "false"),
    DELEGATION: ("vended-credentials",),
}


def check_iceberg(settings: Mapping[str, str], *, whole: bool = True) -> None:
    """Checks names and values, and that the settings fit the catalog's type.

    `whole` is false if a connection has the other settings. In that case settings that decide where the connection's
    secret is sent are refused.

    Raises:
        ValueError: names the setting, and what is allowed. It quotes no value.
    """
    for name, value in settings.items():
        if name in OWN_ICEBERG:
            raise ValueError(f"{name}: not allowed: {OWN_ICEBERG[name]}")
        if name not in SETTINGS:
            close = get_close_matches(name, SETTINGS, 1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise ValueError(f"{name}: not a setting of pyiceberg that Fencepost passes on{hint}")
        if not whole and name not in BESIDE_CONNECTION:
            raise ValueError(f"{name} {NOT_BESIDE}")
        _check_value(name, value)
    given = {name: value for name, value in settings.items() if value}
    if whole and given:
        _check_catalog(given)


def _check_value(name: str, value: str) -> None:
    if any(ord(character) < 32 for character in value):
        raise ValueError(f"{name}: holds a character that no setting can have")
    if not value:
        return
    if name in CHOICES and value not in CHOICES[name]:
        raise ValueError(f"{name}: allowed is {' or '.join(CHOICES[name])}")
    if name in TIMES and not (value.isascii() and value.isdigit() and 0 < int(value[:9]) <= LONGEST_SECONDS):
        raise ValueError(f"{name}: allowed are whole seconds from 1 to {LONGEST_SECONDS}")
    if name in ADDRESSES and name != "uri":
        _check_address(name, value)


def _check_address(name: str, value: str) -> None:
    if "@" in value.partition("://")[2].partition("/")[0]:
        raise ValueError(f"{name}: contains a login, and messages show it; set the login in settings of its own")
    if "?" in value or "#" in value:
        raise ValueError(f"{name}: has a query or a fragment; leave it out")
    if name in SERVERS and not _names_a_host(value, SCHEMES[REST]):
        raise ValueError(f"{name}: not an address such as {EXAMPLES[REST]}")


def _names_a_host(address: str, schemes: tuple[str, ...]) -> bool:
    try:
        parts = urlsplit(address)
        return parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _check_catalog(settings: Mapping[str, str]) -> None:
    """Checks that the settings of a catalog are complete, and that all of them are of its type."""
    kind = settings.get("type")
    if kind is None:
        raise ValueError("type: required but missing")
    if missing := [name for name in REQUIRED[kind] if name not in settings]:
        raise ValueError(f"{', '.join(missing)}: required but missing for a catalog of type {kind}")
    if kind == SQL and len(settings.keys() & {"password", "passfile"}) != 1:
        # Without either, libpq would take a password from the process's own environment or files.
        raise ValueError("password, passfile: a catalog of type sql needs one of them, and not both")
    uri = settings["uri"]
    if "@" in uri:
        raise ValueError(f"uri: contains a login, and messages show the uri; set {LOGINS[kind]} instead")
    if "?" in uri or "#" in uri:
        raise ValueError("uri: has a query or a fragment; leave it out")
    if not _names_a_host(uri, SCHEMES[kind]) or (kind == SQL and not urlsplit(uri).path.strip("/")):
        raise ValueError(f"uri: not an address such as {EXAMPLES[kind]}, which a catalog of type {kind} needs")
    if foreign := sorted(settings.keys() & (OF_REST if kind == SQL else OF_SQL)):
        raise ValueError(f"{', '.join(foreign)}: not a setting of a catalog of type {kind}")
    if "credential" in settings and "token" in settings:
        raise ValueError("credential and token are two logins; set one of them")
    if kind == SQL:
        store, _, path = settings["warehouse"].partition("://")
        if store not in STORES or not path.strip("/"):
            raise ValueError("warehouse: not an address such as s3://bucket/folder or file:///folder")


# Entries of an extra that Airflow's provider or pyiceberg takes, and that Fencepost sets itself.
OF_PROVIDER = frozenset(OWN_ICEBERG)


def iceberg_of(connection: Connection) -> ConnectionSettings:
    """Returns the settings of a connection of type `iceberg`, as Airflow's provider understands it: host is the catalog's
    address, the extra has pyiceberg's properties, and host and login take precedence. Login and password are the client's
    id and secret, or for a SQL catalog the login to its database.

    Raises:
        SettingsError: the extra is not a JSON object of texts, numbers and booleans.
    """
    found = settings_without(extra_of(connection), OF_PROVIDER)
    given = {"type": REST, **found.settings}
    if connection.host:
        given["uri"] = connection.host.rstrip("/")
    login, password = connection.login or "", connection.password or ""
    if given["type"] == SQL:
        given |= {name: value for name, value in (("user", login), ("password", password)) if value}
    elif password:  # pyiceberg takes a secret without an id
        given["credential"] = f"{login}:{password}" if login else password
    return ConnectionSettings(given, found.left_out)


def _replaced_by(own: Settings) -> frozenset[str]:
    logins = frozenset({"credential", "token"})
    return logins if logins & own.keys() else frozenset()


# pyarrow would otherwise open any bucket with the credentials of the process that reads a DAG.
KEYS = frozenset({"s3.access-key-id", "s3.secret-access-key"})
ANONYMOUS = {"s3.anonymous": "true"}


def _without_keys(own: Settings) -> Settings:
    """Returns the settings of a catalog whose warehouse is a folder: a table that is in a bucket is opened by nobody's
    login. A REST catalog may itself send the settings of the store, so it needs the keys.
    """
    is_folder = own.get("type") == SQL and str(own.get("warehouse", "")).startswith("file:")
    return ANONYMOUS if is_folder and not own.keys() & {*KEYS, "s3.session-token"} else {}


def _needed_keys(own: Settings) -> frozenset[str]:
    return frozenset() if own.get("type") == SQL and ANONYMOUS.items() <= own.items() else KEYS


ICEBERG = Service(
    name="iceberg",
    library="pyiceberg",
    settings=SETTINGS,
    beside_connection=BESIDE_CONNECTION,
    placeholder={"type": REST, "uri": "http://127.0.0.1:1"},
    of_connection=iceberg_of,
    checked=checked_by(check_iceberg),
    replaced_by=_replaced_by,
    where_carried=_without_keys,
    needed_where_carried=_needed_keys,
)
