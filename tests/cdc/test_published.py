"""What Fencepost publishes of a database's tables is what the database has, whatever is killed on the way.

PostgreSQL's tables have a column of every type and change by random transactions, some intervals long. Debezium's connectors tell
of them, in JSON with schemas, in JSON without, and in Avro, and Fencepost publishes what they tell into tables of the same
PostgreSQL. There a published history is compared with the one that triggers have kept, and a current table with the database's
table.

`make cdc INTERVALS=n SEED=s` plays n intervals; `make test-all` plays one.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fencepost.config.pipeline import Pipeline
from fencepost.model import Interval
from fencepost.steps.plan import plan_batch
from fencepost.steps.replay import plan_replay
from fencepost_stack.broker import Broker
from fencepost_stack.schema_registry import SchemaRegistry
from rigs.postgres_server import PostgresServer
from waiting import await_true

from .changes import change
from .database import Database
from .pipelines import EXPECTATIONS, SETS_ASIDE, TELLERS, settings_of
from .play import TRANSACTIONS, Play
from .scene import scene_of

pytestmark = pytest.mark.deep

INTERVALS, SEED = int(os.environ.get("CDC_INTERVALS", "1")), int(os.environ.get("CDC_SEED", "1"))


def next_second() -> datetime:
    """The next whole second, which has come when this returns. Intervals are bounded by such."""
    moment = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=1)
    await_true(lambda: datetime.now(UTC) > moment, "the next second", 5)
    return moment


def test_history_and_current_table_are_the_databases_own(
    postgres: PostgresServer,
    broker: Broker,
    schema_registry: SchemaRegistry,
    spark: Any,
    make_pipeline: Callable[..., Pipeline],
    tmp_path: Path,
) -> None:
    chance = random.Random(SEED)
    database = Database.make(postgres)
    change(database, chance, TRANSACTIONS // 2)
    database.begin_history()
    start = next_second()
    (tmp_path / "strikes").mkdir()
    with scene_of(tmp_path / "connect", broker, schema_registry, database, f"seed{SEED}") as scene:
        pipelines = {teller: make_pipeline(**settings_of(*teller, scene, schema_registry)) for teller in TELLERS}
        play = Play(scene, pipelines, spark, tmp_path / "strikes", chance)
        intervals = []
        try:
            for number in range(1, INTERVALS + 1):
                play.disturb(number)
                end = next_second()
                intervals.append(Interval.of(start, end))
                start = end
                play.publish(intervals[-1])
                play.check_newest()
            assert play.differences() == []

            play.disturb_last(INTERVALS + 1)
            play.publish_last(Interval.of(start, next_second()))
            assert play.current_differences() == []

            for teller in play.currents:
                old, places = chance.choice(intervals), play.places(teller)
                play.publish_again(teller, old, SETS_ASIDE, partial(plan_batch, reprocess=True))
                assert play.current_differences() != [], "the rule sets no row aside"
                play.publish_again(teller, old, EXPECTATIONS, plan_replay)
                assert play.current_differences() == []
                assert play.history_differences(*teller) == []
                assert play.places(teller) == places
        finally:
            print(f"seed {SEED}:\n" + "\n".join(play.told))  # noqa: T201
