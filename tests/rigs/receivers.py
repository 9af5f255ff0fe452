"""What programs send over the network, received on 127.0.0.1: by HTTP, or as UDP packets."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class HttpReceiver:
    """Keeps the bodies of all requests, and answers each with `status`; a request waits while `hangs` is set."""

    url: str = ""
    status: int = 200
    bodies: list[bytes] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    hangs: bool = False
    released: threading.Event = field(default_factory=threading.Event)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.url.rpartition(":")[2])


@contextmanager
def http_receiver() -> Iterator[HttpReceiver]:
    """A server with one thread for each request."""
    found = HttpReceiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if found.hangs:
                found.released.wait(60)
            found.paths.append(self.path)
            found.bodies.append(body)
            self.send_response(found.status)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_request(self, code: object = "-", size: object = "-") -> None:
            """It has nothing to say."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """A client that went away."""

    server = Server(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield found
    finally:
        found.released.set()
        server.shutdown()
        thread.join()
        server.server_close()


class UdpReceiver:
    """Keeps the lines of all packets that come."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._lines: list[str] = []
        self._came = threading.Condition()

    def add(self, packet: bytes) -> None:
        """Keep a packet's lines."""
        with self._came:
            self._lines += packet.decode().splitlines()
            self._came.notify_all()

    def lines(self, wanted: int, seconds: float = 20.0) -> list[str]:
        """What has come, once there are so many lines of it, or time is up; they are forgotten then."""
        with self._came:
            self._came.wait_for(lambda: len(self._lines) >= wanted, seconds)
            found, self._lines = self._lines, []
            return found


@contextmanager
def udp_receiver() -> Iterator[UdpReceiver]:
    """A socket with a thread that reads it, so that no packet is dropped for want of room."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        opened.bind(("127.0.0.1", 0))
        opened.settimeout(0.1)
        receiver = UdpReceiver(int(opened.getsockname()[1]))
        ended = threading.Event()

        def read() -> None:
            while not ended.is_set():
                with suppress(TimeoutError):
                    receiver.add(opened.recv(65_536))

        thread = threading.Thread(target=read)
        thread.start()
        try:
            yield receiver
        finally:
            ended.set()
            thread.join()
