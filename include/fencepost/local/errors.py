"""What can go wrong with the local stack: each message names the thing and the next step."""

from pathlib import Path

from fencepost.errors import FencepostError


class LocalStackError(FencepostError):
    """Root of the errors of the local stack; nothing that was started is left running."""

    exit_code = 3


class JarsError(LocalStackError):
    """A jar could not be resolved, or what was downloaded is not whole."""


class PortTaken(LocalStackError):
    """A port that the user set explicitly belongs to someone else."""


class ServiceFailed(LocalStackError):
    """A service ended, or did not become healthy in time. The message ends with its log's last lines."""


def log_tail(path: Path, lines: int = 25) -> str:
    """The last lines of a log, indented, for the end of an error message; says so when there is none."""
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return f"  (no log at {path})"
    tail = text.splitlines()[-lines:]
    return "\n".join(f"  {line}" for line in tail) or f"  ({path} is empty)"
