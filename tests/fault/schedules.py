"""Days of a pipeline of several sources, as a seed says: what is written when, who dies where, and which sources are read."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from arming import armed, at_failpoint
from conftest import at, day
from fencepost.config.pipeline import Pipeline
from fencepost.errors import FencepostError
from fencepost.steps.plan import plan_batch
from kafka_tools import create_topic, group_offsets, produce, read_all, widen_topic
from oracle.several_truth import Topics, Written, fields_of, malformed, pairs, readable
from steps import latest, run
from waiting import await_true

from .several_sources import Row, differences, differences_in_quarantine, joined, settings_of
from .strikes import Attempt, Crash, alone, crash

# Where each attempt comes by that finds work to do.
OF_A_WORKER = ("init", "initialised", "mark-read", "begun", "offsets-sent", "committing", "committed", "receipt")
OF_A_DRIVER = (
    *(
        "write.answered",
        "write.recorded",
        "validate.reported",
        "validate.recorded",
        "advance.begun",
        "advance.deciding",
    ),
    "advance.answered",
)
NAMES: dict[str, tuple[str, ...]] = {"union": ("north", "south", "west"), "join": ("orders", "payments")}
REGIONS = [("north", "south"), ("south",), ("north", "south", "west"), ("south", "west"), ("north", "south")]
AMOUNT = 24  # of orders a day, and of a region's records


def _has_struck(strikes: Path) -> bool:
    return any(file.read_text() for file in strikes.iterdir())


def transform_of(regions: Iterable[str]) -> str:
    """A union of these regions."""
    first, *others = regions
    return f"""
def transform({", ".join([first, *others])}):
    both = {first}
    for other in ({"".join(f"{name}, " for name in others)}):
        both = both.unionByName(other)
    return both.selectExpr("_key", "_record", "n", "n * 2 AS doubled", "name", "_topic AS region")
"""


@dataclass
class Schedule:
    """A pipeline of one shape and the oracle beside it. `play` runs its days, and `differences` compares them."""

    spark: Any
    bootstrap: str
    make_pipeline: Callable[..., Pipeline]
    folder: Path
    shape: str
    seed: int
    topics: Topics = field(default_factory=Topics)
    told: list[str] = field(default_factory=list)  # what was done, for a failed test

    def __post_init__(self) -> None:
        self.random, self.name = Random(f"{self.shape}{self.seed}"), f"{self.shape}{self.seed}"
        self.publish = "direct" if self.seed % 2 else "staged"
        self.sources = NAMES[self.shape][:2]
        self._orders, self._numbers = count(1), count(1)
        self._deferred: list[tuple[str, int]] = []  # partners that come a day later: their source and number
        self._zombie: tuple[int, Attempt] | None = None
        for partitions, source in enumerate(NAMES[self.shape], start=2):
            create_topic(self.bootstrap, self.topic(source), partitions)
            self.topics.widen(self.topic(source), partitions)

    def topic(self, source: str) -> str:
        return f"{self.name}-{source}"

    def pipeline(self) -> Pipeline:
        """The pipeline that reads today's sources."""
        settings = settings_of(self.name, self.shape, self.publish)
        if self.shape == "union":
            columns = {key: v for key, v in settings["sources"]["north"].items() if key != "topic"}
            settings["sources"] = {name: {"topic": self.topic(name), **columns} for name in self.sources}
            settings["transform"] = transform_of(self.sources)
        return self.make_pipeline(**settings)

    def play(self, days: int) -> None:
        """Each day: records; a plan; records that belong to the next day; deaths; and at last a run that nothing ends."""
        coming = self._traffic(1)
        for number in range(1, days + 1):
            if self.shape == "union" and number > 1 and self.random.random() < 0.6:
                self.sources = self.random.choice(REGIONS)
            pipeline = self.pipeline()
            self._tell(f"day {number} of {', '.join(self.sources)}")
            self._write(coming)
            self._plan(pipeline, number)
            coming = self._traffic(number + 1)
            self._write(coming[: AMOUNT // 3])
            coming = coming[AMOUNT // 3 :]
            if self.random.random() < 0.4:
                self._widen(self.topic(self.random.choice(self.sources)))
            self._run(pipeline, number)
            if number > 1 and self.random.random() < 0.5:
                self._run_again(pipeline, self.random.randrange(1, number))
        self._awake()

    def _traffic(self, number: int) -> list[tuple[str, Written]]:
        """Records with their topics, for that day, in no order: some of them have a timestamp of the day before or after."""
        wanted = [*self._deferred]
        self._deferred = []
        for _ in range(AMOUNT):
            n = next(self._orders)
            if self.shape == "union":
                wanted += [(name, n) for name in NAMES["union"]]
                continue
            order, payment = ("orders", n), ("payments", n)
            now, later = self.random.choice(
                [
                    ([order, payment], []),
                    ([order, payment], []),
                    ([order], [payment]),  # a partner that comes late
                    ([payment], [order]),  # one that comes early
                    ([order, payment, payment], []),
                    ([order, payment], [payment]),
                    ([order, order, payment], []),
                    ([order], []),
                    ([payment], []),
                ]
            )
            wanted += now
            self._deferred += later
        self.random.shuffle(wanted)
        return [(self.topic(source), self._record(number, source, n)) for source, n in wanted]

    def _record(self, number: int, source: str, n: int) -> Written:
        n = -n if n % 10 == 0 else n
        value: Any = {"n": n, "name": f"{source} {next(self._numbers)}"}  # no two records are equal
        if self.random.random() < 0.07:
            value["n"] = "no number"
        moment = number + self.random.choices([0, -1, 1], [90, 7, 3])[0]
        partition = self.random.randrange(len(self.topics.records[self.topic(source)]))
        time = at(moment, self.random.randrange(24))
        return Written(f"{source[0]}{n}".encode(), json.dumps(value).encode(), partition, time)

    def _write(self, records: Iterable[tuple[str, Written]]) -> None:
        for topic in self.topics.records:
            own = [record for name, record in records if name == topic]
            produce(self.bootstrap, topic, own)
            self.topics.write(topic, own)

    def _widen(self, topic: str) -> None:
        partitions = len(self.topics.records[topic]) + 1
        widen_topic(self.bootstrap, topic, partitions)
        self.topics.widen(topic, partitions)
        self._tell(f"{topic} has {partitions} partitions")

    def _plan(self, pipeline: Pipeline, number: int) -> None:
        start, end = (round(moment.timestamp() * 1000) for moment in (day(number).start, day(number).end))
        self.topics.plan(number, [self.topic(name) for name in self.sources], start, end)
        plan = partial(plan_batch, pipeline, day(number), sources_changed=True)
        if self.random.random() < 0.3:
            self._die("plan.frozen", plan)
        plan()

    def _run(self, pipeline: Pipeline, number: int) -> None:
        go = partial(run, self.spark, pipeline, day(number))
        stalled = None
        if self.random.random() < 0.7:
            stalled = self._strike(go, latest(pipeline, day(number)).plan.row_task_count)
        if self.random.random() < 0.5:
            self._die(self.random.choice(OF_A_DRIVER), go)
        go()
        self._awake()  # the zombie of the day before
        self._zombie = stalled
        if self.random.random() < 0.5:
            self._awake()

    def _run_again(self, pipeline: Pipeline, number: int) -> None:
        """A finished day is asked for once more; or it is reprocessed, if its sources are still read."""
        reprocess = {*self.topics.taken[number]} <= {*pipeline.source_topics}
        self._tell(f"day {number} again{', reprocessed' if reprocess else ''}")
        go = partial(run, self.spark, pipeline, day(number), reprocess=reprocess)
        if reprocess and self.random.random() < 0.5:
            self._die(self.random.choice(OF_A_DRIVER[:4]), go)
        go()

    def _strike(self, go: Callable[[], object], tasks: int) -> tuple[int, Attempt] | None:
        """A worker dies in a run, or stands still: then it is returned, with its run. Only one stands still at a time."""
        action = self.random.choice(["kill", "raise"] if self._zombie else ["kill", "raise", "stop", "stop"])
        failpoint = f"write.{self.random.choice(OF_A_WORKER)}#{self.random.randrange(tasks)}={action}"
        self._tell(failpoint)
        strikes, attempt = self.folder / f"strike{next(self._numbers)}", Attempt(go)
        strikes.mkdir()
        with armed(self.spark, failpoint, strikes):
            attempt.start()
            await_true(lambda: _has_struck(strikes) or not attempt.is_alive(), f"{failpoint} to strike")
            assert _has_struck(strikes), f"{failpoint} did not strike"
            if action == "stop":
                await_true(lambda: alone(self.spark), f"the other tasks than {failpoint}'s to end")
                return int((strikes / failpoint).read_text()), attempt
            attempt.join(120)
        assert isinstance(attempt.error, FencepostError), attempt.error
        return None

    def _die(self, place: str, go: Callable[[], object]) -> None:
        """The driver ends there. A crash in the judgement that the write's job makes is not the write's."""
        self._tell(f"the driver dies at {place}")
        with at_failpoint(place, crash), suppress(Crash):
            go()

    def _awake(self) -> None:
        """The zombie goes on, and is refused or finds its work done."""
        if self._zombie is None:
            return
        (pid, attempt), self._zombie = self._zombie, None
        self._tell("the zombie goes on")
        os.kill(pid, signal.SIGCONT)
        attempt.join(120)
        assert not attempt.is_alive()
        assert attempt.error is None or isinstance(attempt.error, FencepostError), attempt.error

    def _tell(self, what: str) -> None:
        self.told.append(what)

    def differences(self) -> list[str]:
        """Everything in which output and quarantine differ from the oracle, day by day; nothing is the good answer."""
        pipeline = self.pipeline()
        out, aside = (read_all(self.bootstrap, topic) for topic in (pipeline.output.topic, pipeline.quarantine_topic))
        found = []
        for number, taken in self.topics.taken.items():
            batch, wanted, failing = self._announced(number), *self._results(taken)
            rows = [(r.key, r.json) for r in out if r.batch == batch]
            kept = [record for records in taken.values() for record in malformed(records)]
            kept += [] if self.shape == "join" else failing
            results = failing if self.shape == "join" else []
            found += differences(rows, wanted, f"{batch}: ")
            found += differences_in_quarantine([r for r in aside if r.batch == batch], kept, results)
        for topic in pipeline.source_topics:
            ends = self.topics.ends[topic]
            group = group_offsets(self.bootstrap, pipeline.group, topic, range(len(self.topics.records[topic])))
            found += [f"group offsets {group} in {topic}, and not {ends}"] if group != ends else []
        return found

    def _announced(self, number: int) -> str:
        """The batch of that day that was announced last."""
        told = [r.json for r in read_all(self.bootstrap, f"fencepost.{self.name}.published")]
        batch: str = [one["batch"] for one in told if f"/{day(number)}/" in one["batch"]][-1]
        return batch

    def _results(self, taken: dict[str, list[Written]]) -> tuple[list[Row], list[Any]]:
        """The rows of an interval that took these records, and what fails the rule: results of a join, records of a union."""
        if self.shape == "join":
            rows = [joined(*pair) for pair in pairs(*(taken[self.topic(name)] for name in self.sources))]
            return [row for row in rows if row[1]["n"] >= 0], [row for row in rows if row[1]["n"] < 0]
        good, failing = list[Row](), list[Written]()
        for topic, records in taken.items():
            for record in readable(records):
                value = fields_of(record)
                if value["n"] < 0:
                    failing.append(record)
                else:
                    good.append((record.key, {**value, "doubled": 2 * value["n"], "region": topic}))
        return good, failing
