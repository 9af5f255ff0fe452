"""A proxy on 127.0.0.1 between a client and an HTTP server, which plays tricks on single requests.

A trick is armed for the next request of its kind, unless told otherwise the commit of a table of Iceberg's REST catalog.
All else is passed on as it is.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Self

COMMIT = r"/v1/namespaces/[^/]+/tables/[^/]+"  # of a POST
CREATE = r"/v1/namespaces/[^/]+/tables"
LIMIT = 60.0  # seconds
HOP = {"connection", "keep-alive", "transfer-encoding", "host", "content-length", "date", "server"}


@dataclass(frozen=True)
class Answer:
    """What the server, or the proxy in its place, answers."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


Forward = Callable[[], Answer]
Trick = Callable[[Forward], Answer | None]  # without an answer the connection is cut


def lost_request(forward: Forward) -> None:
    """The request does not arrive."""


def lost_answer(forward: Forward) -> None:
    """The request arrives, and its answer does not."""
    forward()


def repeated(forward: Forward) -> Answer:
    """The request arrives twice, and the second answer comes back."""
    forward()
    return forward()


def answering(status: int, *, landed: bool) -> Trick:
    """An error comes back, though the request has arrived, or because it has not."""

    def strike(forward: Forward) -> Answer:
        if landed:
            forward()
        error = {"message": f"the proxy answers {status}", "type": "ProxyException", "code": status}
        return Answer(status, (("Content-Type", "application/json"),), json.dumps({"error": error}).encode())

    return strike


def doing(action: Callable[[], object], *, landed: bool) -> Trick:
    """Something happens before the request arrives; or after, and then its answer does not arrive."""

    def strike(forward: Forward) -> Answer | None:
        if not landed:
            action()
        answer = forward()
        if not landed:
            return answer
        action()
        return None

    return strike


@dataclass
class Armed:
    """A trick that waits for its request."""

    trick: Trick
    method: str
    path: re.Pattern[str]
    answers: list[int] = field(default_factory=list)  # the statuses that the server gave
    _struck: Event = field(default_factory=Event)

    def struck(self) -> bool:
        """Whether it has been played to its end."""
        return self._struck.is_set()

    def await_struck(self) -> None:
        """Wait until it has been played."""
        assert self._struck.wait(LIMIT), f"no {self.method} of {self.path.pattern} within {LIMIT:.0f} s"


class Hold:
    """A trick: the request, or its answer, is held until it is released."""

    def __init__(self, *, landed: bool) -> None:
        self._landed = landed
        self._held, self._released = Event(), Event()

    def __call__(self, forward: Forward) -> Answer:
        answer = forward() if self._landed else None
        self._held.set()
        assert self._released.wait(LIMIT), "nobody released the request"
        return answer or forward()

    def await_held(self) -> None:
        """Wait until it holds the request."""
        assert self._held.wait(LIMIT), "no request to hold"

    def release(self) -> None:
        """Let it go on."""
        self._released.set()


class HttpProxy:
    """Passes on what comes to `port` to `target`. `requests` are those that the server answered, in order."""

    def __init__(self, port: int, target: int) -> None:
        self.port, self.target = port, target
        self.requests: list[tuple[str, str, int]] = []
        self._armed: list[Armed] = []
        self._lock = Lock()
        self._open: set[socket.socket] = set()

    def arm(self, trick: Trick, *, method: str = "POST", path: str = COMMIT) -> Armed:
        """Play a trick on the next request whose method and whole path match."""
        armed = Armed(trick, method, re.compile(path))
        with self._lock:
            self._armed.append(armed)
        return armed

    def __enter__(self) -> Self:
        proxy = self

        class Handler(_Handler):
            owner = proxy

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._server.daemon_threads = False  # they are waited for at the end
        self._thread = Thread(target=self._server.serve_forever, args=(0.05,), name="http-proxy")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        with self._lock:
            idle = list(self._open)
        for connection in idle:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._server.server_close()

    def _take(self, method: str, path: str) -> Armed | None:
        with self._lock:
            for armed in self._armed:
                if armed.method == method and armed.path.fullmatch(path.partition("?")[0]):
                    self._armed.remove(armed)
                    return armed
        return None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: HttpProxy

    def setup(self) -> None:
        super().setup()
        with self.owner._lock:
            self.owner._open.add(self.connection)

    def finish(self) -> None:
        with self.owner._lock:
            self.owner._open.discard(self.connection)
        with suppress(OSError):
            super().finish()

    def log_message(self, *_: object) -> None:
        """It is silent."""

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        armed = self.owner._take(self.command, self.path)

        def forward() -> Answer:
            answer = self._ask(body)
            self.owner.requests.append((self.command, self.path, answer.status))
            if armed is not None:
                armed.answers.append(answer.status)
            return answer

        try:
            answer = armed.trick(forward) if armed is not None else forward()
        except (OSError, http.client.HTTPException):  # the server is down
            answer = None
        finally:
            if armed is not None:
                armed._struck.set()
        try:
            self._answer(answer)
        except OSError:  # the client has not waited
            self.close_connection = True

    do_GET = do_HEAD = do_POST = do_DELETE = _pass_on  # noqa: N815

    def _ask(self, body: bytes) -> Answer:
        server = http.client.HTTPConnection("127.0.0.1", self.owner.target, timeout=LIMIT)
        try:
            headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP}
            server.request(self.command, self.path, body or None, headers)
            answer = server.getresponse()
            kept = tuple((name, value) for name, value in answer.getheaders() if name.lower() not in HOP)
            return Answer(answer.status, kept, answer.read())
        finally:
            server.close()

    def _answer(self, answer: Answer | None) -> None:
        if answer is None:
            self.close_connection = True
            return
        self.send_response(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        if answer.status != http.client.NO_CONTENT:
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)
