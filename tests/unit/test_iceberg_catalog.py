"""A catalog that does not answer, or answers with an error: the error comes in time, says what to do, and shows no secret."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    CommitStateUnknownException,
    ForbiddenError,
    OAuthError,
    ServerError,
    UnauthorizedError,
)
from pyiceberg.table.metadata import TableMetadataUtil
from requests import ConnectionError as NotConnected
from sqlalchemy.exc import OperationalError, ProgrammingError

from fencepost.config.reader import Reader
from fencepost.errors import AccessDenied, FencepostError, LoginRefused, TableUnavailable
from fencepost.outputs.iceberg import catalog as module
from fencepost.outputs.iceberg.catalog import catalog_of, translated

SECRET = "hunter2"
LIMIT = 0.5


def config(**iceberg: str) -> Reader:
    return Reader.model_validate({"name": "weather", "kafka": {"bootstrap.servers": "k:9092"}, "iceberg": iceberg})


def rest(port: int, **more: str) -> Reader:
    return config(type="rest", uri=f"http://127.0.0.1:{port}", **more)


def sql(port: int) -> Reader:
    uri = f"postgresql://127.0.0.1:{port}/lake"
    return config(type="sql", uri=uri, user="etl", password=SECRET, warehouse="file:///tmp/w")


@pytest.fixture(autouse=True)
def _small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS", LIMIT)
    monkeypatch.setattr(module, "CONNECT_SECONDS", 2.0)  # libpq has no smaller one


@contextmanager
def server(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server on a port of its own. Each connection is answered in a thread, and stays open."""
    accepted: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    accepted.append(listening.accept()[0])
                    threading.Thread(target=answer, args=(accepted[-1],), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
    for one in accepted:
        one.close()


def never(_: socket.socket) -> None:
    """No answer at all."""


def takes_the_login_only(connection: socket.socket) -> None:
    """PostgreSQL until the first statement, which is never answered."""
    with suppress(OSError):
        connection.recv(4096)  # asks for TLS
        connection.sendall(b"N")
        connection.recv(4096)  # user and database
        said = {"client_encoding": "UTF8", "DateStyle": "ISO, MDY", "server_version": "18.0"}
        texts = [name.encode() + b"\0" + value.encode() + b"\0" for name, value in said.items()]
        status = b"".join(b"S" + (len(text) + 4).to_bytes(4) + text for text in texts)
        connection.sendall(b"R" + (8).to_bytes(4) + (0).to_bytes(4) + status + b"Z" + (5).to_bytes(4) + b"I")


def failed(what: Callable[[], object]) -> tuple[FencepostError, float]:
    """The error of a call, and the seconds that it took. A call that is not limited ends the test, not the suite."""
    found: list[tuple[FencepostError, float]] = []

    def run() -> None:
        began = time.monotonic()
        try:
            what()
        except FencepostError as error:
            found.append((error, time.monotonic() - began))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(10)
    assert found, "no error came in time"
    return found[0]


@pytest.mark.parametrize(
    "login", [{}, {"credential": f"id:{SECRET}"}, {"token": SECRET}], ids=["none", "OAuth2", "token"]
)
def test_a_rest_catalog_that_never_answers_is_given_up_after_the_limit(login: dict[str, str]) -> None:
    with server(never) as port:
        error, took = failed(lambda: catalog_of(rest(port, **login)))
    assert isinstance(error, TableUnavailable)
    assert f"Iceberg catalog http://127.0.0.1:{port} or its warehouse did not answer" in str(error)
    assert LIMIT <= took < 10
    assert SECRET not in str(error)


@pytest.mark.parametrize(("answer", "least"), [(never, 1.5), (takes_the_login_only, LIMIT)], ids=["login", "statement"])
def test_a_database_that_never_answers_is_given_up_after_the_limit(
    answer: Callable[[socket.socket], None], least: float
) -> None:
    with server(answer) as port:
        error, took = failed(lambda: catalog_of(sql(port)))
    assert isinstance(error, TableUnavailable)
    assert f"Iceberg catalog postgresql://127.0.0.1:{port}/lake or its warehouse did not answer" in str(error)
    assert least <= took < 15
    assert SECRET not in str(error)


class Database(Exception):
    """An error of the driver, with an SQLSTATE if the server has sent one."""

    def __init__(self, text: str, pgcode: str | None = None) -> None:
        super().__init__(text)
        self.pgcode = pgcode


def not_of_a_table() -> Exception:
    """pydantic's error, whose text quotes the answer."""
    try:
        TableMetadataUtil.parse_obj({"format-version": 2, "location": SECRET})
    except ValueError as error:
        return error
    raise AssertionError("it was taken")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (UnauthorizedError(SECRET), LoginRefused),
        (AuthorizationExpiredError(SECRET), LoginRefused),
        (OAuthError(SECRET), LoginRefused),
        (OperationalError("x", SECRET, Database(f'password authentication failed for user "{SECRET}"')), LoginRefused),
        (OperationalError("x", SECRET, Database(SECRET, "28P01")), LoginRefused),
        (OSError(f"{SECRET}: AWS Error INVALID_ACCESS_KEY_ID during HeadObject operation"), LoginRefused),
        (ForbiddenError(SECRET), AccessDenied),
        (ProgrammingError("x", SECRET, Database(SECRET, "42501")), AccessDenied),
        (PermissionError(SECRET), AccessDenied),
        (OSError(f"{SECRET}: AWS Error ACCESS_DENIED during PutObject operation"), AccessDenied),
        (ServerError(SECRET), TableUnavailable),
        (CommitStateUnknownException(SECRET), TableUnavailable),
        (NotConnected(SECRET), TableUnavailable),
        (OperationalError("x", SECRET, Database(SECRET, "57P01")), TableUnavailable),
        (OSError(SECRET), TableUnavailable),
        (not_of_a_table(), TableUnavailable),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value.__name__,
)
def test_an_error_is_translated_without_its_text(error: Exception, kind: type[FencepostError]) -> None:
    with pytest.raises(FencepostError) as raised, translated(rest(1)):
        raise error
    assert type(raised.value) is kind
    assert SECRET not in str(raised.value)
    assert type(error).__name__ in str(raised.value)
    assert raised.value.__suppress_context__


class Answers(BaseHTTPRequestHandler):
    """Answers each request in the same way, and keeps what it was asked."""

    status: ClassVar[int]
    body: ClassVar[bytes]
    asked: ClassVar[list[tuple[str, dict[str, str], bytes]]]

    def do_GET(self) -> None:
        sent = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.asked.append((self.path, dict(self.headers), sent))
        self.send_response(self.status)
        self.send_header("content-length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    do_POST = do_GET  # noqa: N815  # the name that http.server looks for

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


@contextmanager
def answering(given_status: int, given_body: str) -> Iterator[tuple[int, list[tuple[str, dict[str, str], bytes]]]]:
    class Handler(Answers):
        status, body = given_status, given_body.encode()
        asked: ClassVar[list[tuple[str, dict[str, str], bytes]]] = []

    with HTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        yield http.server_address[1], Handler.asked
        http.shutdown()
        thread.join()


QUOTES_IT = f'{{"error": {{"message": "{SECRET}", "type": "{SECRET}", "code": 1}}, "error_description": "{SECRET}"}}'


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (401, QUOTES_IT, LoginRefused),
        (400, f'{{"error": "invalid_client", "error_description": "{SECRET}"}}', LoginRefused),
        (403, QUOTES_IT, AccessDenied),
        (500, QUOTES_IT, TableUnavailable),
        (200, f'{{"access_token": ["{SECRET}"]}}', TableUnavailable),
        (200, f"<html>{SECRET}</html>", TableUnavailable),
    ],
)
def test_a_refused_token_and_an_answer_that_is_none_show_no_secret(
    status: int, body: str, kind: type[FencepostError], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("DEBUG"), answering(status, body) as (port, asked):
        error, _ = failed(lambda: catalog_of(rest(port, credential=f"etl:{SECRET}")))
    assert type(error) is kind
    assert SECRET not in str(error) + repr(error) + caplog.text
    assert SECRET in str(asked[0]), "the token is asked for with the secret"


def test_a_rest_catalog_gets_the_settings_under_pyicebergs_names() -> None:
    more = {"header.X-Iceberg-Access-Delegation": "vended-credentials", "s3.request-timeout": "7", "warehouse": "w"}
    with answering(200, '{"defaults": {}, "overrides": {}}') as (port, asked):
        found = catalog_of(rest(port, token=SECRET, **more))
    path, headers, _ = asked[0]
    assert path == "/v1/config?warehouse=w"
    assert headers["Authorization"] == f"Bearer {SECRET}"
    assert headers["X-Iceberg-Access-Delegation"] == "vended-credentials"
    assert found.properties["s3.request-timeout"] == "7"
    assert found.properties["s3.connect-timeout"] == "2"


def test_the_certificate_of_an_authority_is_used(tmp_path: Any) -> None:
    with answering(200, "{}") as (port, _):
        missing = str(tmp_path / "missing.pem")
        settings = {"type": "rest", "uri": f"https://127.0.0.1:{port}", "ssl.cabundle": missing}
        error, _ = failed(lambda: catalog_of(config(**settings)))
    assert isinstance(error, TableUnavailable)
    assert "(OSError)" in str(error), "the file is looked for"


def test_the_login_to_a_database_is_in_no_property_and_nothing_comes_from_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SqlCatalog, "_init_catalog", lambda self: None)
    given = {"user": "etl", "password": f"{SECRET}@/%", "sslmode": "verify-full", "sslrootcert": "/ca.pem"}
    found: Any = catalog_of(
        config(type="sql", uri="postgresql://db:5432/lake", warehouse="s3://b/w", name="prod", **given)
    )
    assert found.name == "prod"
    assert SECRET not in str(found.properties) + repr(found) + str(found.engine.url)
    assert found.engine.url.render_as_string(hide_password=False) == "postgresql+psycopg2://db:5432/lake"
    assert given.items() <= found._login.items()
    assert {
        "gssencmode": "disable",
        "sslcertmode": "disable",
        "require_auth": "!gss,!sspi",
    }.items() <= found._login.items()
    assert found.properties["warehouse"] == "s3://b/w"


def test_the_text_form_of_the_settings_shows_no_value() -> None:
    assert SECRET not in repr(sql(1)) + repr(rest(1, credential=f"id:{SECRET}"))
