"""Records the stack's running processes and their ports in `services.json`.

A process is recorded as soon as it starts. Only one command at a time holds the lock.
"""

import fcntl
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

from fencepost_stack.processes import Process
from fencepost_stack.state_folder import StateFolder, read_json, write_private_json


class Registry:
    """The record of the services of one state folder."""

    def __init__(self, state: StateFolder) -> None:
        self._state = state

    def known(self, service: str) -> dict[str, Any]:
        """Returns everything that is recorded about a service. It is empty if the service never ran."""
        return dict(read_json(self._state.services_file).get(service, {}))

    def record(self, service: str, **values: Any) -> None:
        """Sets some values of a service. The other values of the service do not change."""
        known = read_json(self._state.services_file)
        known[service] = {**known.get(service, {}), **values}
        write_private_json(self._state.services_file, known)

    def record_processes(self, service: str, processes: Mapping[str, Process]) -> None:
        """Replaces a service's processes, by component."""
        self.record(service, processes={name: process.dump() for name, process in processes.items()})

    def processes(self, service: str) -> dict[str, Process]:
        """Returns the processes that were started last, by component. Some may have ended."""
        recorded = self.known(service).get("processes", {})
        return {name: Process.load(record) for name, record in recorded.items()}

    def alive(self, service: str) -> dict[str, Process]:
        """Returns the `processes` that still run."""
        return {name: process for name, process in self.processes(service).items() if process.alive()}

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the lock. Only one `up` or `down` of this state runs at a time, and a second command waits."""
        with self._state.lock_file.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


@contextmanager
def ending_by_exception() -> Iterator[None]:
    """Turns SIGTERM and SIGHUP into SystemExit, so that an interrupted command cleans up as for Ctrl-C.

    The sender may repeat the signal during the clean-up. After the first signal, further signals do nothing in this
    process.
    """
    numbers = (signal.SIGTERM, signal.SIGHUP)

    def leave(number: int, frame: FrameType | None) -> NoReturn:
        for one in numbers:
            signal.signal(one, _leaving_already)
        raise SystemExit(128 + number)

    try:
        before = {number: signal.signal(number, leave) for number in numbers}
    except ValueError:  # not the main thread: whoever owns that one decides
        yield
        return
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is not _leaving_already:
                signal.signal(number, handler)


def _leaving_already(number: int, frame: FrameType | None) -> None:
    """Does nothing, as a signal handler. SIG_IGN would be inherited by processes that are started afterwards."""
