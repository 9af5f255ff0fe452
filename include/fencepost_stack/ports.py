"""Chooses ports on 127.0.0.1. A port is the user's own choice, the port used before, or the usual port."""

import os
import socket
from collections.abc import Sequence
from contextlib import closing, suppress

import psutil

from fencepost_stack.errors import LocalStackError, PortTaken

LOOPBACK = "127.0.0.1"


def is_free(port: int) -> bool:
    """Returns whether a server could listen on this port of 127.0.0.1 now."""
    with closing(socket.socket()) as probe:
        # Servers set this too: connections of an earlier server that linger must not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def answers(host: str, port: int | str) -> bool:
    """Returns whether a server accepts connections at this address, within a few seconds."""
    try:
        with socket.create_connection((host, int(port)), timeout=3.0):
            return True
    except (OSError, ValueError):
        return False


_given = set[int]()


def any_free_port() -> int:
    """Returns a free port that the kernel chose. Another process may take it afterwards. A process never gets the same port
    twice, because the server that the first one was for may not listen yet.
    """
    while True:
        with closing(socket.socket()) as probe:
            probe.bind((LOOPBACK, 0))
            port = int(probe.getsockname()[1])
        if port not in _given:
            _given.add(port)
            return port


def listeners(port: int) -> set[int]:
    """Returns the pids of the processes that accept connections on a port. It has only pids that the kernel shows."""
    found = psutil.net_connections(kind="tcp")
    return {c.pid for c in found if c.status == psutil.CONN_LISTEN and c.laddr.port == port and c.pid}


def choose_port(name: str, variable: str, liked: Sequence[int]) -> int:
    """Returns the port for a service that is about to start.

    1. the port in the environment variable; if it is taken, PortTaken names its owner;
    2. otherwise the first free port of those `liked`;
    3. otherwise any free port.
    """
    explicit = os.environ.get(variable)
    if not explicit:
        return next((port for port in liked if is_free(port)), 0) or any_free_port()
    if not explicit.isdecimal() or not 0 < int(explicit) < 65536:
        raise LocalStackError(f"{variable}={explicit}: not a port. Set a number from 1 to 65535, or unset it.")
    port = int(explicit)
    if not is_free(port):
        raise PortTaken(
            f"port {port} for {name} ({variable}) is taken{_owner(port)}. Free it, or set {variable} to another port, "
            "or unset it to get a free one."
        )
    return port


def _owner(port: int) -> str:
    """Returns ` by PID (command)` for the owner of a port, or an empty text if the kernel does not show it."""
    with suppress(psutil.Error, OSError):
        for pid in listeners(port):
            return f" by process {pid} ({psutil.Process(pid).name()})"
    return ""
