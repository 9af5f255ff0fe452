"""Errors of the local stack. Each message names the thing and the next step."""

from pathlib import Path

from fencepost.errors import FencepostError


class LocalStackError(FencepostError):
    """Root of the errors of the local stack. Nothing that was started is left running."""

    exit_code = 3


class JarsError(LocalStackError):
    """A jar could not be resolved, or a download is not complete."""


class PortTaken(LocalStackError):
    """Another process has a port that the user set explicitly."""


class ServiceFailed(LocalStackError):
    """A service ended, or did not become healthy in time. The message ends with its log's last lines."""


def log_tail(path: Path, lines: int = 25) -> str:
    """The last lines of a log, indented, for the end of an error message; it says so if there is no log."""
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return f"  (no log at {path})"
    tail = text.splitlines()[-lines:]
    return "\n".join(f"  {line}" for line in tail) or f"  ({path} is empty)"
