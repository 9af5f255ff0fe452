"""Keeps Airflow's connections for the pages between requests. Each connection is looked up once, however many pipelines
name it.

A connection belongs to a team, as its DAG does. A team never gets the connection of another team, although both may
have a connection of the same name.
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
    """The connections of this Airflow, in the form in which Airflow's own processes look them up."""

    def team_of(self, dag_id: str) -> str | None:
        """Returns the team that the DAG belongs to, or None without teams."""

    def look_up(self, name: str, team: str | None) -> Connection:
        """Returns the team's connection of that name, or the connection of all teams."""

    def mask(self, pipeline: Pipeline) -> None:
        """Masks the secrets of these settings in the logs."""


@dataclass
class _KnownConnection:
    """A connection as it was at a given time. The lock is held while the connection is looked up, because a secrets
    backend may be slow.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    connection: Connection | None = None
    at: float = 0.0


class Logins:
    """The connections of all pipelines. There is one object per process, and many threads may use it."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._lock = threading.Lock()
        self._kept: dict[tuple[str | None, str], _KnownConnection] = {}

    def with_connections(self, pipeline: Pipeline, since: float | None = None) -> Pipeline:
        """Returns the pipeline with the settings of its connections. The connections were looked up within the last
        minute. If `since` (a time of `time.monotonic`) is given, they were looked up after that time.

        Raises:
            FencepostError: Airflow has no such connection or does not give it, or the connection has no valid settings.
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
