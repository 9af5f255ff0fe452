"""A table behind PgBouncer in transaction mode: its sessions are lent for a transaction, and go back as they were.

PgBouncer is no Python package: where it is not installed, nothing here is tested.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import day
from fencepost.config.pipeline import Pipeline
from fencepost.ledger.ledger import Ledger
from fencepost.model import State
from fencepost.outputs.output import output_of
from fencepost.outputs.reading import read_validated
from fencepost_stack.broker import Broker
from fencepost_stack.ports import LOOPBACK, answers, any_free_port
from rigs.postgres_server import PASSWORD, PostgresServer, query
from steps import latest, run
from tables import ask, fill, numbers_in, of_revision, store_of
from waiting import await_true

Make = Callable[..., Pipeline]

PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
pytestmark = [pytest.mark.deep, pytest.mark.skipif(PROGRAM is None, reason="PgBouncer is not installed")]
# One server session for all: whoever needs two at once would wait for ever, and what one leaves in it the next one gets.
SETTINGS = """
[databases]
* = host={host} port={server}
[pgbouncer]
listen_addr = {host}
listen_port = {port}
unix_socket_dir =
pool_mode = transaction
default_pool_size = 1
auth_type = scram-sha-256
auth_file = {folder}/users
query_wait_timeout = 20
"""
# What a session has that a transaction could have left behind.
LEFT = """select name, setting from pg_settings where name in ('application_name', 'lock_timeout', 'synchronous_commit',
'TimeZone', 'statement_timeout', 'idle_in_transaction_session_timeout') order by name"""


@pytest.fixture
def pooled(postgres: PostgresServer, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The settings of a new database's owner, through the pooler."""
    assert PROGRAM is not None
    direct, port = postgres.database(), any_free_port()
    (tmp_path / "users").write_text(f'"{direct["user"]}" "{PASSWORD}"\n')
    settings = tmp_path / "pgbouncer.ini"
    settings.write_text(SETTINGS.format(host=LOOPBACK, server=postgres.port, port=port, folder=tmp_path))
    for path in (tmp_path, *tmp_path.parents[:2]):
        path.chmod(path.stat().st_mode | 0o055)  # it does not run as root
    as_nobody = ["-u", "nobody"] if os.geteuid() == 0 else []
    with subprocess.Popen([PROGRAM, *as_nobody, str(settings)], stderr=subprocess.DEVNULL) as pooler:
        try:
            await_true(lambda: answers(LOOPBACK, port), "PgBouncer to answer", 10)
            yield direct | {"port": str(port)}
        finally:
            pooler.terminate()


def test_batches_are_published_and_the_sessions_go_back_as_they_were(
    spark: Any, broker: Broker, make_table: Make, pooled: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = query(pooled, LEFT)
    pipeline = make_table(postgres=pooled)
    fill(broker, pipeline)
    fill(broker, pipeline, range(10, 14), number=2)
    assert run(spark, pipeline, day(1)).state is State.PUBLISHED
    assert run(spark, pipeline, day(2)).state is State.PUBLISHED
    assert run(spark, pipeline, day(1), reprocess=True).revision == 2
    assert numbers_in(pipeline) == [*of_revision(2, range(6)), *of_revision(1, range(10, 14))]
    assert output_of(Ledger(pipeline)).lacks(Ledger(pipeline).read) == ""
    monkeypatch.setenv("FENCEPOST_PIPELINES", str(pipeline.folder.parent))
    read = read_validated(spark, {"pipeline": pipeline.name, "batch": str(latest(pipeline, day(1)).id)})
    assert sorted(row.n for row in read.collect()) == list(range(6))
    assert query(pooled, LEFT) == before
    assert store_of(pipeline) == pooled
    ((sessions,),) = ask(pipeline, "select count(*) from pg_stat_activity where usename = current_user")
    assert sessions == 1, "the pooler's, which everything above went through"
