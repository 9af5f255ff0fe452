"""The finding of a check has a level, what to do about it, and the command to run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from fencepost.errors import FencepostError, NeedsOperator


class Level(StrEnum):
    """The level of a finding. Levels are in order, the worst first. Only an error makes a run fail, or lose its
    guarantee.
    """

    ERROR = "error"
    WARNING = "warning"
    SKIPPED = "skipped"
    OK = "ok"


@dataclass(frozen=True)
class Finding:
    """The finding of a check in a sentence or two, what to do about it, and the command to run, if there is one.

    `check` is the check's name, which the caller of the check adds. `kind` is the error that a step raises for the
    finding.
    """

    level: Level
    found: str
    do: str = ""
    command: str = ""
    check: str = ""
    kind: type[FencepostError] = NeedsOperator

    @property
    def message(self) -> str:
        """Returns the whole finding, for a log or an error."""
        command = f" `{self.command}`" if self.command else ""
        return f"{self.found}{f' {self.do}' if self.do else ''}{command}"


Answer = Finding | Iterable[Finding]


def ok(found: str) -> Finding:
    """Returns the finding that there is no problem."""
    return Finding(Level.OK, found)


def warning(found: str, do: str, command: str = "") -> Finding:
    """Returns the finding that a run works, but not for long, or not as well as it could."""
    return Finding(Level.WARNING, found, do, command)


def error(found: str, do: str, command: str = "", kind: type[FencepostError] = NeedsOperator) -> Finding:
    """Returns the finding that a run would fail or lose its guarantee."""
    return Finding(Level.ERROR, found, do, command, kind=kind)


def skipped(reason: str, do: str = "") -> Finding:
    """Returns the finding that the check was not made."""
    return Finding(Level.SKIPPED, reason, do)
