"""Compares outputs with their ledgers in the background.

Invariants: no request waits for a database, whether the database is locked, slow or down. A page shows the last result,
and since when a comparison has not been answered. Only one thread at a time compares an output, so a database that
never answers costs one thread. The threads are daemons, so they do not keep the server from ending.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from datetime import datetime

from fencepost.config.pipeline import Pipeline
from fencepost.config.services import SERVICES
from fencepost.errors import FencepostError, LedgerLost
from fencepost.model import utc_now

log = logging.getLogger("fencepost.pages.comparisons")
HOLDS = 60.0  # seconds for which a result is used
PAUSE = 5.0  # seconds until the next comparison after one that failed
PROMPT = 3.0  # seconds within which most comparisons end; a page reports a comparison as late only after them


@dataclass(frozen=True)
class Comparison:
    """The comparison of an output with its ledger, as far as the output's server has answered."""

    missing_batches: str = ""  # by the last result
    answered_at: datetime | None = None  # the time of the last result; None if there is none yet
    asked_at: datetime | None = (
        None  # the start of the first comparison that has had no result since; None if there is none
    )
    failure: str = ""  # why the last comparison failed

    @property
    def age(self) -> float:
        """Returns the seconds since the last result."""
        return (utc_now() - self.answered_at).total_seconds() if self.answered_at else 0.0

    @property
    def is_late(self) -> bool:
        """Returns whether the page should tell a person that the result is missing."""
        waited = (utc_now() - self.asked_at).total_seconds() if self.asked_at else 0.0
        return bool(self.failure) or waited > PROMPT


@dataclass
class _ComparedOutput:
    """One output's comparison, and the time of the next comparison."""

    comparison: Comparison = field(default_factory=Comparison)
    is_under_way: bool = False
    due: float = 0.0  # by the monotonic clock


class Comparisons:
    """The comparisons of all outputs. There is one object per process, and many threads may use it."""

    def __init__(self, compare: Callable[[Pipeline], str]) -> None:
        """`compare` returns what the pipeline's output lacks, and an empty text if nothing. `compare` may take as long
        as the server does.
        """
        self._compare = compare
        self._lock = threading.Lock()
        self._kept: dict[Hashable, _ComparedOutput] = {}

    def of(self, pipeline: Pipeline) -> Comparison | None:
        """Returns the pipeline's comparison without waiting, or None if the output is not compared. If a new comparison
        is due, it starts in the background.
        """
        if not pipeline.output.is_compared:
            return None
        with self._lock:
            kept = self._kept.setdefault(_output_of(pipeline), _ComparedOutput())
            if not kept.is_under_way and time.monotonic() >= kept.due:
                kept.is_under_way = True
                kept.comparison = replace(kept.comparison, asked_at=kept.comparison.asked_at or utc_now())
                name = f"fencepost comparison {pipeline.name}"
                threading.Thread(target=self._ask, args=(pipeline, kept), name=name, daemon=True).start()
            return kept.comparison

    def _ask(self, pipeline: Pipeline, kept: _ComparedOutput) -> None:
        missing = failure = ""
        try:
            missing = self._compare(pipeline)
        except LedgerLost as lost:
            missing = str(lost).rstrip(".")
        except FencepostError as error:
            failure = str(error)
        except Exception as error:  # whatever it is, the next comparison has to be possible
            log.exception("pipeline %s: its output could not be compared", pipeline.name)
            failure = f"{type(error).__name__}, see the API server's log."
        with self._lock:
            if failure:
                kept.comparison, kept.due = replace(kept.comparison, failure=failure), time.monotonic() + PAUSE
            else:
                kept.comparison, kept.due = Comparison(missing, utc_now()), time.monotonic() + HOLDS
            kept.is_under_way = False


def _output_of(pipeline: Pipeline) -> Hashable:
    """Returns the key of a pipeline's output on its server. Changed settings give another key, so the new server is
    asked even while the old server does not answer.
    """
    reached_by = (
        (name, frozenset(pipeline.own(SERVICES[name]).items()), pipeline.connections.get(name))
        for name in pipeline.output.services
    )
    return pipeline.name, pipeline.output.description, *reached_by
