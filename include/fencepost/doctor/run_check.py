"""Runs a check with a time limit. A failure of the check becomes a finding too."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from fencepost.errors import AccessDenied, FencepostError, LoginRefused
from fencepost.findings import Answer, Finding, Level, error, skipped, warning
from fencepost.spark.diagnosis import unexpected

log = logging.getLogger("fencepost.doctor")

LIMIT = 60.0  # seconds for one check; a transform is the user's code and may never end


def name_of(check: Callable[..., Answer]) -> str:
    """Returns a check's name, such as `source retention` for `check_source_retention`."""
    return check.__name__.removeprefix("check_").replace("_", " ")


def run_check(check: Callable[..., Answer], *about: object, limit: float = LIMIT) -> list[Finding]:
    """Returns the findings of a check. It never raises an error, and takes at most `limit` seconds. A check that does
    not end is abandoned.

    An error that a check raises becomes a finding. If a right is missing, the check is skipped, and another check
    reports that right.
    """
    answered: list[Finding] = []

    def run() -> None:
        try:
            answered.extend(_listed(check(*about)))
        except LoginRefused as refused:  # a run would be refused at once
            answered.append(Finding(Level.ERROR, str(refused), kind=LoginRefused))
        except AccessDenied as denied:
            answered.append(skipped(f"these credentials do not allow the check: {denied}"))
        except FencepostError as raised:
            answered.append(Finding(Level.ERROR, str(raised), kind=type(raised)))
        except BaseException as raised:
            if not isinstance(raised, Exception):  # a transform may raise anything
                log.debug("check %s", name_of(check), exc_info=True)
            known = unexpected(
                raised if isinstance(raised, Exception) else RuntimeError(type(raised).__name__), "doctor"
            )
            answered.append(warning(f"The check itself failed. {known}", "The other checks are not affected."))

    worker = threading.Thread(target=run, name=f"doctor: {name_of(check)}", daemon=True)
    worker.start()
    worker.join(limit)
    if worker.is_alive():
        late = f"The check did not end within {limit:.0f} s and was given up."
        answered = [error(late, "A run would wait at the same place. Find out what it waits for.")]
    return [replace(one, check=one.check or name_of(check)) for one in answered]


def _listed(answer: Answer) -> list[Finding]:
    return [answer] if isinstance(answer, Finding) else list(answer)


def log_findings(findings: Iterable[Finding], about: str) -> None:
    """Logs warnings and errors for a step that continues. `about` names the pipeline."""
    for one in findings:
        if one.level in {Level.WARNING, Level.ERROR}:
            log.warning("%s: %s", about, one.message)


def raise_first_error(findings: Iterable[Finding], about: str) -> None:
    """Raises the first error among the findings, before a step changes anything.

    Raises:
        FencepostError: the finding's kind of error.
    """
    for one in findings:
        if one.level is Level.ERROR:
            raise one.kind(f"{about}: {one.message}")


def as_plain(finding: Finding) -> Mapping[str, str]:
    """Returns a finding as JSON values."""
    return {
        "check": finding.check,
        "level": str(finding.level),
        "found": finding.found,
        "do": finding.do,
        "command": finding.command,
    }
