"""Connections of Airflow's for the pages, kept between requests: each is looked up once, however many pipelines name it.

A connection belongs to a team, as its DAG does. So one team's is never given to another, which may have one of the same name.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Protocol

from fencepost.config.connections import resolved
from fencepost.config.pipeline import Pipeline
from fencepost.config.services.connection import Connection

RENEWED = 60.0  # seconds after which a connection is looked up again


class Connections(Protocol):
    """Airflow's connections, as a process of Airflow's asks for them."""

    def team_of(self, dag_id: str) -> str | None:
        """The team that the DAG belongs to; None without teams."""

    def look_up(self, name: str, team: str | None) -> Connection:
        """The team's connection of that name, or everybody's."""

    def mask(self, pipeline: Pipeline) -> None:
        """Have logs show none of the secrets in these settings."""


@dataclass
class _KnownConnection:
    """A connection as it was at a time. The lock is for the question, which a secrets backend may answer slowly."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    connection: Connection | None = None
    at: float = 0.0


class Logins:
    """One per process. Safe to use from many threads."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._lock = threading.Lock()
        self._kept: dict[tuple[str | None, str], _KnownConnection] = {}

    def with_connections(self, pipeline: Pipeline, since: float | None = None) -> Pipeline:
        """The pipeline with the settings of its connections, as they were within the last minute, or `since` that moment of
        `time.monotonic`.

        Raises:
            FencepostError: Airflow has no such connection or does not give it, or what it holds is no settings.
        """
        oldest = time.monotonic() - RENEWED if since is None else since
        team = self._connections.team_of(pipeline.name)
        whole, _ = resolved(pipeline, lambda name: self._known(team, name, oldest))
        self._connections.mask(whole)
        return whole

    def _known(self, team: str | None, name: str, oldest: float) -> Connection:
        with self._lock:
            kept = self._kept.setdefault((team, name), _KnownConnection())
        with kept.lock:
            if kept.connection is None or kept.at <= oldest:
                at = time.monotonic()
                kept.connection = self._connections.look_up(name, team)
                kept.at = at
            return kept.connection
