"""A table is compared for the pages while somebody locks it, and while its server accepts connections and says nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg2
import pytest

from conftest import day
from fencepost.config.pipeline import Pipeline
from fencepost.pages import comparisons as module
from fencepost.pages.comparisons import Comparison, Comparisons
from fencepost.pages.ledgers import Ledgers
from fencepost.postgres import connection
from fencepost_stack.broker import Broker
from fencepost_stack.ports import any_free_port
from rigs.postgres_server import PostgresServer
from rigs.tcp_proxy import Proxy
from steps import run
from tables import ask, fill, store_of
from waiting import await_true


def test_a_locked_or_silent_table_keeps_no_page_waiting_and_the_result_follows(
    spark: Any,
    broker: Broker,
    make_table: Callable[..., Pipeline],
    postgres: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "HOLDS", 0.0)
    monkeypatch.setattr(module, "PAUSE", 0.0)
    direct, comparisons = postgres.database(), Comparisons(Ledgers().missing_batches)

    def now(pipeline: Pipeline) -> Comparison:
        found = comparisons.of(pipeline)
        assert found is not None
        return found

    with Proxy(any_free_port(), postgres.port) as proxy:
        pipeline = make_table(postgres=direct | {"port": str(proxy.port)})
        fill(broker, pipeline)
        run(spark, pipeline, day(1))
        await_true(lambda: now(pipeline).answered_at, "the first answer")
        assert now(pipeline).missing_batches == ""
        ask(pipeline, "truncate numbers")
        await_true(lambda: now(pipeline).missing_batches, "what was emptied to be seen")

        with closing(psycopg2.connect(**store_of(pipeline))) as other, other.cursor() as cursor:
            cursor.execute("lock table numbers in access exclusive mode")
            answered_at = now(pipeline).answered_at
            monkeypatch.setattr(connection, "ASK_LOCK_SECONDS", 0.5)
            await_true(lambda: now(pipeline).failure, "the lock to be noticed")
            found = now(pipeline)
            assert f"{other.info.backend_pid} of user {direct['user']}" in found.failure
            assert found.is_late
            assert "does not have what the ledger has published" in found.missing_batches, "by the last answer"
            assert found.asked_at is not None
            assert answered_at is not None
            assert found.answered_at is not None
            assert found.answered_at <= found.asked_at
            other.rollback()
        run(spark, pipeline, day(1), reprocess=True)
        await_true(lambda: now(pipeline).missing_batches == "" and not now(pipeline).failure, "the new result")

        monkeypatch.setattr(module, "PROMPT", 0.0)
        monkeypatch.setattr(connection, "CONNECT_SECONDS", 2)
        proxy.swallowing = True
        await_true(lambda: "timeout expired" in now(pipeline).failure, "the silence to be noticed")
        assert now(pipeline).is_late
        proxy.swallowing = False
        await_true(lambda: not now(pipeline).failure, "the server to answer again")
        assert now(pipeline).missing_batches == ""
