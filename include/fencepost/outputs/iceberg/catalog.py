"""Connects to a pipeline's Iceberg catalog, and turns its errors into Fencepost's.

Each request has a time limit, because pyiceberg has none: an HTTP request by its own limit, a transaction in the database by a
timer that closes its socket. Messages show the catalog's address, which has no secret, and the name of an error's class. An
error's text may quote a token, an address with a login, or a row, so it is never shown.
"""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Timer
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    OAuthError,
    RESTError,
    UnauthorizedError,
)
from pyiceberg.table import Table
from requests import PreparedRequest, RequestException, Response
from requests.adapters import HTTPAdapter
from sqlalchemy import create_engine, event
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from fencepost.config.client_config import ClientConfig
from fencepost.config.services.iceberg import ICEBERG, OF_SQL, SQL
from fencepost.config.services.postgres import NO_LOGIN_OF_PROCESS
from fencepost.errors import AccessDenied, FencepostError, LoginRefused, TableUnavailable

log = logging.getLogger("fencepost.outputs.iceberg")

NAME = "lake"  # of a SQL catalog, unless it is set: the rows of its tables have it
SECONDS = 60.0  # for a request, and for a transaction in the database
CONNECT_SECONDS = 10.0
ARROW = {"py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"}
# A database that is gone without a word is noticed before the limit.
KEEPALIVES = {"keepalives_idle": "30", "keepalives_interval": "10", "keepalives_count": "3"}
# SQLSTATEs, and the texts of libpq and of S3's client, which have no code of their own.
NO_RIGHT, NO_LOGIN = "42501", "28"
LOGIN_IS_REFUSED = re.compile(
    r"authentication failed|no pg_hba\.conf entry|role \".*\" does not exist|not permitted to log in"
    r"|INVALID_ACCESS_KEY_ID|InvalidAccessKeyId|SIGNATURE_DOES_NOT_MATCH|SignatureDoesNotMatch"
)
RIGHT_IS_MISSING = re.compile(r"permission denied for|ACCESS_DENIED|AccessDenied")


DENIED = (UnauthorizedError, ForbiddenError, OAuthError, AuthorizationExpiredError)


class _Limited(HTTPAdapter):
    """Sends requests with a time limit, for the connection and for each wait for the server. `bundle` has the certificates
    of a private authority. requests would prefer those that the process's environment names.
    """

    def __init__(self, bundle: str | None) -> None:
        super().__init__()
        self._bundle = bundle

    def send(self, request: PreparedRequest, *args: Any, **options: Any) -> Response:
        limited = {**options, "timeout": options.get("timeout") or (CONNECT_SECONDS, SECONDS)}
        return super().send(request, *args, **limited | ({"verify": self._bundle} if self._bundle else {}))


class _LimitedRest(RestCatalog):
    def __init__(self, name: str, bundle: str | None, **properties: str) -> None:
        self._bundle = bundle
        super().__init__(name, **properties)

    def _create_legacy_oauth2_auth_manager(self, session: Any) -> Any:
        # Before the manager is made, because it asks for a token at once.
        for scheme in ("https://", "http://"):
            session.mount(scheme, _Limited(self._bundle))
        return super()._create_legacy_oauth2_auth_manager(session)


class _LimitedSql(SqlCatalog):
    """A SQL catalog whose login is in no property, because all files of its tables have the properties too."""

    def __init__(self, name: str, login: Mapping[str, str], **properties: str) -> None:
        self._login = dict(login)
        super().__init__(name, **properties)

    def _init_catalog(self) -> None:
        self.engine = create_engine(
            self.properties["uri"], poolclass=NullPool, hide_parameters=True, connect_args=self._login
        )
        # First of all, because SQLAlchemy asks the server for its version as soon as it is connected.
        event.listen(self.engine, "connect", _begin_limit, insert=True)
        event.listen(self.engine, "close", _end_limit)
        super()._init_catalog()


def _begin_limit(connection: Any, record: Any) -> None:
    """Ends the session's socket when its time is up. libpq itself waits without a limit. Each transaction has a session of
    its own.
    """
    # A descriptor of our own: the connection's may be another file's by then.
    own = socket.socket(fileno=os.dup(connection.fileno()))
    timer = Timer(SECONDS, _end, (own,))
    timer.daemon = True
    timer.start()
    record.record_info["limit"] = (timer, own)


def _end_limit(_: object, record: Any) -> None:
    timer, own = record.record_info.pop("limit", (None, None))
    if timer is not None:
        timer.cancel()
        own.close()


def _end(own: socket.socket) -> None:
    with suppress(OSError):
        own.shutdown(socket.SHUT_RDWR)


def catalog_of(config: ClientConfig) -> Catalog:
    """Connects to the catalog.

    Raises:
        TableUnavailable, AccessDenied: the catalog does not answer, or refuses the login.
    """
    settings = {name: value for name, value in config.plain(ICEBERG).items() if value}
    limits = {"s3.connect-timeout": f"{CONNECT_SECONDS:.0f}", "s3.request-timeout": f"{SECONDS:.0f}"}
    kind = settings.pop("type")
    with translated(config):
        if kind != SQL:
            bundle = settings.pop("ssl.cabundle", None)
            tokens = {"oauth2-server-uri": f"{settings['uri'].rstrip('/')}/v1/oauth/tokens"}
            return _LimitedRest(NAME, bundle, **{**limits, **tokens, **settings, **ARROW})
        rest = {name: value for name, value in settings.items() if name not in {*OF_SQL, "uri"}}
        return _LimitedSql(
            settings.get("name", NAME), _login(settings), uri=_database(settings["uri"]), **{**limits, **rest, **ARROW}
        )


def _login(settings: Mapping[str, str]) -> dict[str, str]:
    """Returns the login to the database, and how libpq connects. Nothing comes from the process's own login."""
    own = {name: value for name, value in settings.items() if name in OF_SQL and name != "name"}
    return {**NO_LOGIN_OF_PROCESS, **KEEPALIVES, "connect_timeout": f"{CONNECT_SECONDS:.0f}", **own}


def _database(uri: str) -> str:
    """Returns the database's address for SQLAlchemy. It has no login."""
    parts = urlsplit(uri)
    return f"postgresql+psycopg2://{parts.netloc}{parts.path}"


def describe_catalog(config: ClientConfig) -> str:
    """Returns the catalog with its address, for messages."""
    return f"Iceberg catalog {config.own(ICEBERG).get('uri', 'of its connection')}"


@contextmanager
def translated(config: ClientConfig) -> Iterator[None]:
    """Raises Fencepost's errors for those of the catalog and of its warehouse.

    Raises:
        TableUnavailable: no answer, an answer that is none of a catalog, or an error that another try may solve.
        LoginRefused: the login is refused.
        AccessDenied: the login lacks a right.
    """
    try:
        yield
    except (RESTError, RequestException, SQLAlchemyError, OSError, ValidationError) as error:
        raise _meaning(error, config) from None


def _meaning(error: Exception, config: ClientConfig) -> FencepostError:
    where, what = describe_catalog(config), type(error).__name__
    if isinstance(error, OSError) and error.errno:  # of the warehouse's disk; the text itself may name anything
        what = f"{what}: {os.strerror(error.errno)}"
    text = str(error)
    code = getattr(error.orig, "pgcode", None) or "" if isinstance(error, DBAPIError) else ""
    if (
        isinstance(error, UnauthorizedError | OAuthError | AuthorizationExpiredError)
        or code.startswith(NO_LOGIN)
        or LOGIN_IS_REFUSED.search(text)
    ):
        return LoginRefused(
            f"{where} or its warehouse refuses the login ({what}). Check the login in iceberg:, and run again."
        )
    if isinstance(error, ForbiddenError | PermissionError) or code == NO_RIGHT or RIGHT_IS_MISSING.search(text):
        return AccessDenied(
            f"{where} or its warehouse: the login lacks a right ({what}). `fencepost acls` prints what it needs. Grant "
            "that, and run again."
        )
    return TableUnavailable(f"{where} or its warehouse did not answer as it should ({what}). Run again once it does.")


def load(config: ClientConfig, catalog: Catalog, name: str) -> Table | None:
    """Returns the table as it is now, or None if there is none."""
    with translated(config):
        try:
            return catalog.load_table(name)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
