"""A broker and a PostgreSQL of these tests' own: the one dies now and then, the other decodes logically."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fencepost_stack.broker import Broker
from rigs.postgres_server import PostgresServer


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that finds itself dead sooner, so that one that was killed is back sooner."""
    soon = {"broker.session.timeout.ms": "4000", "broker.heartbeat.interval.ms": "500"}
    with Broker(tmp_path_factory.mktemp("kafka"), properties=soon) as running:
        yield running


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    with PostgresServer(tmp_path_factory.mktemp("postgres")) as running:
        running.decode_logically()
        yield running
