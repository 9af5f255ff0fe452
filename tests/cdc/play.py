"""A play: intervals of changes with kills, published with kills, and what the database says of the outcome."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arming import armed, environment
from fencepost.config.pipeline import Pipeline
from fencepost.errors import Retriable
from fencepost.model import Interval
from fencepost.steps.run_interval import run_step
from fencepost.steps.validate import validate_batch
from kafka_tools import read_all
from soak.faults import meanwhile
from steps import run
from tables import with_suite

from .changes import change, mend, truncate
from .database import FULL
from .every_type import BY_NAME
from .oracle import current_differences, differences, newest_differences, unfit_changes, unread_keys
from .pipelines import INFINITE, nulls_of
from .scene import Scene

TRANSACTIONS = 40  # an interval
ATTEMPTS = 6

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
# Where it is killed of a pipeline with a current table: while it publishes, both tables have changed or neither.
CURRENT_PLACES = ("current.locked", "current.deleted", "current.changed")


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
                places = PROCESS_PLACES + (CURRENT_PLACES if teller in self.currents else ())
                self._run_and_kill(pipeline, interval, places)
                self._settle(pipeline, interval)
            elif teller == struck[2]:
                with self._broker_is_killed():
                    self._settle(pipeline, interval)
            else:
                self._settle(pipeline, interval)

    @property
    def currents(self) -> dict[tuple[str, str], Pipeline]:
        """The pipelines that have a current table."""
        return {(kind, table): pipeline for (kind, table), pipeline in self.pipelines.items() if table == FULL}

    def disturb_last(self, number: int) -> None:
        """Some more changes, until each row of FULL has a newest change that can be read."""
        database, chance = self.scene.database, self.chance
        change(database, chance, TRANSACTIONS // 4)
        while unread := unread_keys(database, FULL, INFINITE):
            self.told.append(f"{len(unread)} keys whose newest change cannot be read are changed once more")
            mend(database, chance, unread)
        self.scene.await_mark(number)

    def publish_last(self, interval: Interval) -> None:
        """Run the interval of each pipeline with a current table."""
        for pipeline in self.currents.values():
            self._settle(pipeline, interval)

    def publish_again(
        self, teller: tuple[str, str], interval: Interval, suite: str, plan: Callable[[Pipeline, Interval], Any]
    ) -> None:
        """Publish what `plan` plans of an interval that is published, judged by the suite; `fencepost run` is killed over it."""
        pipeline = with_suite(self.pipelines[teller], suite)
        plan(pipeline, interval)
        run_step("write", pipeline, interval, lambda: self.spark)
        validate_batch(self.spark, pipeline, interval)
        self._run_and_kill(pipeline, interval, (*CURRENT_PLACES, "table.copied", "table.committed"))
        self.check_newest()
        self._settle(pipeline, interval)
        self.check_newest()

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

    def _run_and_kill(self, pipeline: Pipeline, interval: Interval, places: Sequence[str]) -> None:
        failpoint = f"{self.chance.choice(places)}=kill"
        self.told.append(f"  {pipeline.name}: fencepost run: {failpoint}")
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
                *self.history_differences(kind, table),
                *self._quarantine(kind, table, pipeline),
                *self._lost_or_doubled(kind, table, pipeline),
            )
        ]

    def history_differences(self, kind: str, table: str) -> list[str]:
        """Where the published history is not the database's."""
        return differences(self.scene.database, table, self.pipelines[kind, table].output.table, nulls_of(kind, table))

    def current_differences(self) -> list[str]:
        """Where the current tables are not the database's table."""
        return [
            f"{kind} {table}: {what}"
            for (kind, table), pipeline in self.currents.items()
            for what in current_differences(
                self.scene.database, table, pipeline.output.current.table, nulls_of(kind, table)
            )
        ]

    def check_newest(self) -> None:
        """Each row of a current table is the newest one of the published history, and no key lacks one."""
        wrong = {
            pipeline.name: newest_differences(self.scene.database, pipeline.output.table, pipeline.output.current.table)
            for pipeline in self.currents.values()
        }
        assert not any(wrong.values()), f"ids whose rows are not the newest ones: {wrong}"

    def places(self, teller: tuple[str, str]) -> Counter[int]:
        """How often each offset of the source is in the published history."""
        rows = self.scene.database.run(f"select place from {self.pipelines[teller].output.table}")
        return Counter(int(place) for (place,) in rows)

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

    def _lost_or_doubled(self, kind: str, table: str, pipeline: Pipeline) -> list[str]:
        """Each record of the source that has a row is published once or in quarantine once."""
        there = self.places((kind, table))
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
