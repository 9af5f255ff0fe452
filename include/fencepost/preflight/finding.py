"""How a check is asked: alone, within a time, and so that its failure is a finding too."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from fencepost.errors import AccessDenied, FencepostError, LoginRefused
from fencepost.finding import Answer, Finding, Level, error, skipped, warning
from fencepost.spark.diagnosis import unexpected

log = logging.getLogger("fencepost.doctor")

LIMIT = 60.0  # seconds for one check; a transform is the user's code, and may never end


def name_of(check: Callable[..., Answer]) -> str:
    """A check's name, as in `check_source_retention`: source retention."""
    return check.__name__.removeprefix("check_").replace("_", " ")


def ask(check: Callable[..., Answer], *about: object, limit: float = LIMIT) -> list[Finding]:
    """What a check finds. Never raises, and takes `limit` seconds at most: a check that does not end is left behind.

    An error that a check raises is its finding. Without a right it could not be checked; the rights are a check of their own.
    """
    answered: list[Finding] = []

    def run() -> None:
        try:
            answered.extend(_listed(check(*about)))
        except LoginRefused as refused:  # a run would be refused at once
            answered.append(Finding(Level.ERROR, str(refused), kind=LoginRefused))
        except AccessDenied as denied:
            answered.append(skipped(f"these credentials may not look: {denied}"))
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
        answered = [error(late, "A run would stand still in the same place: look for what it waits for.")]
    return [replace(one, check=one.check or name_of(check)) for one in answered]


def _listed(answer: Answer) -> list[Finding]:
    return [answer] if isinstance(answer, Finding) else list(answer)


def tell(findings: Iterable[Finding], about: str) -> None:
    """Log what is wrong, for a step that goes on; `about` says which pipeline it is."""
    for one in findings:
        if one.level in {Level.WARNING, Level.ERROR}:
            log.warning("%s: %s", about, one.message)


def require(findings: Iterable[Finding], about: str) -> None:
    """Stop a step at an error, before anything moves.

    Raises:
        FencepostError: of the kind of the first error.
    """
    for one in findings:
        if one.level is Level.ERROR:
            raise one.kind(f"{about}: {one.message}")


def plain(finding: Finding) -> Mapping[str, str]:
    """A finding for programs."""
    return {
        "check": finding.check,
        "level": str(finding.level),
        "found": finding.found,
        "do": finding.do,
        "command": finding.command,
    }
