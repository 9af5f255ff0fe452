"""The history that Fencepost publishes of a database's tables is the database's own, whatever is killed on the way.

PostgreSQL's tables have a column of every type and change by random transactions, some intervals long. Debezium's connectors tell
of them, in JSON with schemas, in JSON without, and in Avro, and Fencepost publishes what they tell into tables of the same
PostgreSQL. There a published history is compared with the one that triggers have kept.

`make cdc INTERVALS=n SEED=s` plays n intervals; `make test-all` plays one.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from arming import armed, environment
from fencepost.config.pipeline import Pipeline
from fencepost.errors import Retriable
from fencepost.model import Interval
from fencepost_stack.broker import Broker
from fencepost_stack.schema_registry import SchemaRegistry
from kafka_tools import read_all
from rigs.postgres_server import PostgresServer
from soak.faults import meanwhile
from steps import run
from waiting import await_true

from .changes import change, truncate
from .database import FULL, KEYED, Database
from .every_type import BY_NAME, COLUMNS
from .oracle import differences, unfit_changes
from .scene import AVRO, PLAIN, SCHEMAS, Scene, scene_of

pytestmark = pytest.mark.deep

INTERVALS, SEED = int(os.environ.get("CDC_INTERVALS", "1")), int(os.environ.get("CDC_SEED", "1"))
TRANSACTIONS = 40  # an interval
ATTEMPTS = 6
TELLERS = ((SCHEMAS, FULL), (PLAIN, KEYED), (AVRO, FULL), (AVRO, KEYED))

DATES = {"type": "date", "from": "epoch_days"}
LOCAL_MILLIS, LOCAL_MICROS = ({"type": "timestamp_ntz", "from": f"epoch_{unit}"} for unit in ("millis", "micros"))
STRUCT = "struct<x: double, y: double>"
# How each column is declared where the format takes a schema; `string` if it is not here.
DECLARED: dict[str, Any] = {
    "id": "bigint not null",
    "small": "smallint",
    "whole": "int",
    "big": "bigint",
    "cents": {"type": "decimal(12,2)", "from": "base64"},
    "exact": {"type": "decimal(38,10)", "from": "base64"},
    "loose": {"type": "decimal(38,10)", "from": "base64"},
    "tiny": "float",
    "wide": "double",
    "yes": "boolean",
    "raw": "binary",
    "day": DATES,
    "clock": "bigint",
    "second": LOCAL_MILLIS,
    "milli": LOCAL_MILLIS,
    "micro": LOCAL_MICROS,
    "instant": "timestamp",
    "span": "bigint",
    "price": {"type": "decimal(19,2)", "from": "base64"},
    "flag": "boolean",
    "mask": "binary",
    "any_bits": "binary",
    "names": "array<string>",
    "counts": "array<int>",
    "ids": "array<string>",
    "spot": STRUCT,
    "big_raw": "binary",
    "big_names": "array<string>",
    "big_counts": "array<int>",
    "big_ids": "array<string>",
    "must_count": "int not null",
    "must_cents": {"type": "decimal(12,2) not null", "from": "base64"},
    "must_words": "string not null",
    "must_raw": "binary not null",
    "must_instant": "timestamp not null",
    "must_ident": "string not null",
    "must_names": "array<string> not null",
}
KEYS = {"id": "bigint"}
INFINITE = ("tiny", "wide", "day", "second", "milli", "micro", "instant")
FLOATS = ("tiny", "wide")
NO_INFINITY = "CASE WHEN isnan({0}) OR abs({0}) = double('Infinity') THEN NULL ELSE {0} END AS {0}"
TRANSFORM = """
def transform(frame):
    return frame.selectExpr({columns}, "_op AS op", "_source.lsn AS lsn", "_offset AS place")
"""
EXPECTATIONS = """
expectations:
  - {type: expect_column_values_to_not_be_null, kwargs: {column: id}}
"""
# Where a worker of Spark is killed, and where the whole of `fencepost run` is.
WORKER_PLACES = ("write.rows#0", "write.offsets-sent#0", "write.committing#0", "write.committed#0")
PROCESS_PLACES = (
    "plan.frozen",
    "write.recorded",
    "validate.recorded",
    "advance.begun",
    "table.copied",
    "table.committed",
)


@dataclass
class Play:
    """What is played on: the connectors with their database, and a pipeline for each of TELLERS."""

    scene: Scene
    pipelines: dict[tuple[str, str], Pipeline]
    spark: Any
    strikes: Path
    chance: random.Random
    told: list[str] = field(default_factory=list)

    def disturb(self, number: int) -> None:
        """An interval's changes. Meanwhile a connector's worker, the broker or both are killed and come back."""
        scene, chance, kills = self.scene, self.chance, ("worker", "both", "broker")
        which = kills[number % len(kills)]
        self.told.append(f"interval {number}: {which} killed")
        change(scene.database, chance, TRANSACTIONS // 3)
        if which in ("worker", "both"):
            scene.worker.kill()
        if which in ("broker", "both"):
            scene.broker.kill()
        change(scene.database, chance, TRANSACTIONS // 3)
        if number % 2 == 1:
            truncate(scene.database)
        if which in ("broker", "both"):
            scene.broker.start()
        if which in ("worker", "both"):
            scene.worker.start()
        change(scene.database, chance, TRANSACTIONS // 3)
        scene.await_mark(number)

    def publish(self, interval: Interval) -> None:
        """Run the interval of each pipeline; of one a worker is killed, another as a whole, and the broker under a third."""
        struck = self.chance.sample(sorted(self.pipelines), 3)
        for teller, pipeline in self.pipelines.items():
            if teller == struck[0]:
                with self._worker_is_killed():
                    self._settle(pipeline, interval)
            elif teller == struck[1]:
                self._run_and_kill(pipeline, interval)
                self._settle(pipeline, interval)
            elif teller == struck[2]:
                with self._broker_is_killed():
                    self._settle(pipeline, interval)
            else:
                self._settle(pipeline, interval)

    def _settle(self, pipeline: Pipeline, interval: Interval) -> None:
        """Run the interval, again after errors that are worth it."""
        for _ in range(ATTEMPTS):
            try:
                run(self.spark, pipeline, interval)
                return
            except Retriable as error:
                self.told.append(f"  {pipeline.name}: {type(error).__name__}: {str(error)[:200]}")
        raise AssertionError(f"{pipeline.name} {interval} was not published in {ATTEMPTS} attempts: {self.told}")

    @contextmanager
    def _worker_is_killed(self) -> Iterator[None]:
        failpoint = f"{self.chance.choice(WORKER_PLACES)}=kill"
        self.told.append(f"  {failpoint}")
        (self.strikes / failpoint).unlink(missing_ok=True)
        with armed(self.spark, failpoint, self.strikes):
            yield
        assert (self.strikes / failpoint).exists(), f"{failpoint} has not struck"

    def _run_and_kill(self, pipeline: Pipeline, interval: Interval) -> None:
        failpoint = f"{self.chance.choice(PROCESS_PLACES)}=kill"
        self.told.append(f"  fencepost run: {failpoint}")
        (self.strikes / failpoint).unlink(missing_ok=True)
        command = [str(Path(sys.executable).with_name("fencepost")), "run", pipeline.name]
        command += ["--start", interval.start.isoformat(), "--end", interval.end.isoformat()]
        armed_environment = {
            **os.environ,
            **environment(failpoint, self.strikes),
            "FENCEPOST_PIPELINES": str(pipeline.folder.parent),
            "FENCEPOST_SPARK_MASTER": "local[2]",
        }
        done = subprocess.run(command, env=armed_environment, capture_output=True, text=True, timeout=300, check=False)
        assert (self.strikes / failpoint).exists(), f"{failpoint} has not struck: {done.stdout}{done.stderr}"

    @contextmanager
    def _broker_is_killed(self) -> Iterator[None]:
        wait = self.chance.uniform(0, 5)
        self.told.append(f"  broker killed after {wait:.1f} s")

        def strike(over: Any) -> None:
            over.wait(wait)
            self.scene.broker.kill()
            self.scene.broker.start()

        with meanwhile(strike):
            yield

    def differences(self) -> list[str]:
        """Everything in what was published and quarantined that the database does not say."""
        return [
            f"{kind} {table}: {what}"
            for (kind, table), pipeline in self.pipelines.items()
            for what in (
                *differences(self.scene.database, table, pipeline.output.table, nulls_of(kind, table)),
                *self._quarantine(kind, table, pipeline),
                *self._places(kind, table, pipeline),
            )
        ]

    def _quarantine(self, kind: str, table: str, pipeline: Pipeline) -> list[str]:
        """What is in quarantine is what cannot be read, and each reason names a column."""
        seen: set[tuple[int, str, int | None]] = set()
        for record in self._quarantined(pipeline):
            event = self.scene.event(kind, record)
            assert event is not None
            row, op = event["before" if event["op"] == "d" else "after"], event["op"]
            seen.add((row["id"], op, None if op == "r" else event["source"]["lsn"]))
        there = Counter((number, op) for number, op, _ in seen)
        wanted = unfit_changes(self.scene.database, table, nulls_of(kind, table))
        return [
            *(f"not in quarantine: {one}" for one in (wanted - there).elements()),
            *(f"too much in quarantine: {one}" for one in (there - wanted).elements()),
            *(f"reason {reason!r} names no column" for reason in self._reasons(pipeline) if not names_column(reason)),
        ]

    def _places(self, kind: str, table: str, pipeline: Pipeline) -> list[str]:
        """Each record of the source that has a row is published once or in quarantine once."""
        rows = self.scene.database.run(f"select place from {pipeline.output.table}")
        there = Counter(int(place) for (place,) in rows)
        there += Counter(int(source_of(record).rpartition(":")[2]) for record in self._quarantined(pipeline))
        wanted = Counter(
            record.offset
            for record in read_all(self.scene.broker.bootstrap, pipeline.source.topic)
            if (event := self.scene.event(kind, record)) is not None
            and event["op"] in "crud"
            and event["source"]["table"] == table
        )
        return [
            *(f"offset {one} is lost" for one in (wanted - there).elements()),
            *(f"offset {one} is there too often" for one in (there - wanted).elements()),
        ]

    def _quarantined(self, pipeline: Pipeline) -> list[Any]:
        return read_all(self.scene.broker.bootstrap, pipeline.quarantine_topic)

    def _reasons(self, pipeline: Pipeline) -> set[str]:
        return {dict(record.headers)["fencepost-reason"].decode() for record in self._quarantined(pipeline)}


def source_of(record: Any) -> str:
    return dict(record.headers)["fencepost-source"].decode()


def names_column(reason: str) -> bool:
    return any(name in reason for name in BY_NAME)


def nulls_of(kind: str, table: str) -> tuple[str, ...]:
    """The columns whose infinities, and NaN, are published as null: in Avro floats have them, and the transform does that."""
    told = () if table == KEYED else INFINITE
    return (*told, *FLOATS) if kind == AVRO else told


def declared(kind: str, table: str) -> dict[str, Any]:
    """The columns' declarations: all of them, or what the registry's schema does not say."""
    nulls = {} if table == KEYED else {name: {"infinity": None} for name in INFINITE}
    if kind == AVRO:
        return {"loose": "decimal(38,10)"} | {name: extra for name, extra in nulls.items() if name not in FLOATS}
    names = ["id", *(column.name for column in COLUMNS)]
    found = {name: DECLARED.get(name, "string") for name in names}
    for name, extra in nulls.items():
        found[name] = (found[name] if isinstance(found[name], dict) else {"type": found[name]}) | extra
    return found


def settings_of(kind: str, table: str, scene: Scene, registry: SchemaRegistry) -> dict[str, Any]:
    """A pipeline's settings: of PLAIN, whose topic has both tables, one table is taken."""
    names = ["id", *(column.name for column in COLUMNS)]
    columns = [NO_INFINITY.format(name) if kind == AVRO and name in FLOATS else name for name in names]
    source: dict[str, Any] = {
        "topic": scene.topic(kind, table),
        "format": "avro" if kind == AVRO else "json",
        "envelope": "debezium",
        "schema": declared(kind, table),
        "key_format": "avro" if kind == AVRO else "json",
        "key": KEYS,
        "on_malformed": "quarantine",
    }
    if kind == PLAIN:
        source["table"] = f"public.{table}"
    published = f"published_{kind}_{table}"
    return {
        "name": published,
        "transform": TRANSFORM.format(columns=", ".join(f'"{name}"' for name in columns)),
        "expectations": EXPECTATIONS,
        "source": source,
        "output": {"kind": "postgres", "table": published, "partitions": 2},
        "postgres": scene.database.owner,
        "quality": {"quarantine_limit": "none", "open_transaction_wait_seconds": 60},
        **({"schema_registry": {"url": registry.url}} if kind == AVRO else {}),
    }


def next_second() -> datetime:
    """The next whole second, which has come when this returns. Intervals are bounded by such."""
    moment = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=1)
    await_true(lambda: datetime.now(UTC) > moment, "the next second", 5)
    return moment


def test_the_published_history_is_the_databases_own(
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
        try:
            for number in range(1, INTERVALS + 1):
                play.disturb(number)
                end = next_second()
                play.publish(Interval.of(start, end))
                start = end
            assert play.differences() == []
        finally:
            print(f"seed {SEED}:\n" + "\n".join(play.told))  # noqa: T201
