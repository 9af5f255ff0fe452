"""What output tables lack, compared with their ledgers in the background.

Invariants: no request waits for a store, whether it is locked, slow or away: a page shows the last answer, and since when there
has been none. A table is compared by one thread at a time, so a store that never answers costs one thread. The threads are
daemons: none keeps the server from ending.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from datetime import datetime

from fencepost.config.pipeline import Pipeline
from fencepost.errors import FencepostError, LedgerLost
from fencepost.model import utc_now

log = logging.getLogger("fencepost.pages.comparisons")
HOLDS = 60.0  # seconds for which an answer holds
PAUSE = 5.0  # seconds after which a store that gave no answer is asked again
PROMPT = 3.0  # seconds within which most answers come: before that, a page calls none late


@dataclass(frozen=True)
class Comparison:
    """How a table compares with its ledger, as far as its store has answered."""

    lacks: str = ""  # by the last answer
    answered_at: datetime | None = None  # when that came; None if none has come yet
    asked_at: datetime | None = None  # when the first question was asked that has no answer yet; None if each has one
    failure: str = ""  # why the last question has none

    @property
    def age(self) -> float:
        """The seconds since the last answer."""
        return (utc_now() - self.answered_at).total_seconds() if self.answered_at else 0.0

    @property
    def is_late(self) -> bool:
        """Whether a person has to look why no answer comes."""
        waited = (utc_now() - self.asked_at).total_seconds() if self.asked_at else 0.0
        return bool(self.failure) or waited > PROMPT


@dataclass
class _ComparedTable:
    """One table's comparison."""

    comparison: Comparison = field(default_factory=Comparison)
    is_under_way: bool = False
    due: float = 0.0  # by the monotonic clock


class Comparisons:
    """One per process. Safe to use from many threads."""

    def __init__(self, compare: Callable[[Pipeline], str]) -> None:
        """`compare` says what the pipeline's table lacks, empty if nothing; it may take as long as the store does."""
        self._compare = compare
        self._lock = threading.Lock()
        self._kept: dict[Hashable, _ComparedTable] = {}

    def of(self, pipeline: Pipeline) -> Comparison | None:
        """How the pipeline's table compares, at once; None where the output is not compared. What is due is asked in the
        background."""
        if not pipeline.output.is_compared:
            return None
        with self._lock:
            kept = self._kept.setdefault(_table_of(pipeline), _ComparedTable())
            if not kept.is_under_way and time.monotonic() >= kept.due:
                kept.is_under_way = True
                kept.comparison = replace(kept.comparison, asked_at=kept.comparison.asked_at or utc_now())
                name = f"fencepost comparison {pipeline.name}"
                threading.Thread(target=self._ask, args=(pipeline, kept), name=name, daemon=True).start()
            return kept.comparison

    def _ask(self, pipeline: Pipeline, kept: _ComparedTable) -> None:
        lacks = failure = ""
        try:
            lacks = self._compare(pipeline)
        except LedgerLost as lost:
            lacks = str(lost).rstrip(".")
        except FencepostError as error:
            failure = str(error)
        except Exception as error:  # whatever it is, the next question has to be possible
            log.exception("pipeline %s: its table could not be compared", pipeline.name)
            failure = f"{type(error).__name__}, which is in the API server's log."
        with self._lock:
            if failure:
                kept.comparison, kept.due = replace(kept.comparison, failure=failure), time.monotonic() + PAUSE
            else:
                kept.comparison, kept.due = Comparison(lacks, utc_now()), time.monotonic() + HOLDS
            kept.is_under_way = False


def _table_of(pipeline: Pipeline) -> Hashable:
    """A pipeline's table at its server: with other settings, another server is asked, whatever the last one does."""
    reached_by = frozenset(pipeline.postgres.items()), pipeline.connections.get("postgres")
    return pipeline.name, pipeline.output.told, reached_by
