"""A join of two sources that look back two days, over days of partners made up by chance, with a death in most of them.

Partners come late, early, doubled or never; some records are dated a day earlier or later than they are produced. A day is
skipped, one is written again, and one may not be planned at all, so that the next batch covers it too. An oracle in plain Python
says which pairs each interval has, from what the test produced alone.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import count, product
from pathlib import Path
from typing import Any, NamedTuple, Self

import pytest

from arming import at_failpoint
from conftest import at, day
from fencepost.config.pipeline import Pipeline
from fencepost.steps.advance import skip_batch
from fencepost.steps.plan import plan_batch
from fencepost.steps.write import write_batch
from fencepost_stack.broker import Broker
from kafka_tools import create_topic, produce, read_all
from makers import a_decision
from steps import latest, plan_and_write, run

from .checker import Attacked, Follower
from .strikes import Crash, crash, strike_worker_and_retry

REACH = 2  # days
PARTITIONS = 2
TRANSFORM = """
SELECT o._key, o.n, o.number AS ordered, p.number AS paid, o._lookback AND p._lookback AS _lookback
FROM orders AS o JOIN payments AS p ON o.n = p.n
"""
ANY = "expectations: [{type: expect_table_row_count_to_be_between, kwargs: {max_value: 1000}}]"
DRIVER = ("plan.frozen", "write.answered", "write.recorded", "advance.deciding", "advance.answered")
OF_A_COPY = ("advance.begun", "advance.copied")
WORKER = ("write.begun#0=kill", "write.committed#1=kill", "write.begun#1=stop")
pipelines = count(1)
Row = tuple[int, int, int]  # what is joined by, and the numbers of the order and of the payment


class Sent(NamedTuple):
    """A record as it was produced. `day` is that of its timestamp."""

    source: str
    n: int
    number: int
    day: int


@dataclass
class Joined(Attacked):
    """The pipeline, what was produced for it, and what each interval has to give."""

    chance: random.Random = field(default_factory=random.Random)
    logs: dict[tuple[str, int], list[Sent]] = field(default_factory=dict)  # by source and partition
    taken: dict[tuple[str, int], int] = field(default_factory=dict)  # how many of them earlier intervals consumed
    consumed: dict[int, list[Sent]] = field(default_factory=dict)  # by day
    covers: dict[int, int] = field(default_factory=dict)  # by day, the first day of what it covers
    to_come: list[tuple[int, str, int]] = field(default_factory=list)  # partners: when, of which source, of what
    skipped: set[str] = field(default_factory=set)  # batches
    numbers: Iterator[int] = field(default_factory=count)

    def __enter__(self) -> Self:
        for source in self.pipeline.sources.values():
            create_topic(self.bootstrap, source.topic, PARTITIONS)
        self.logs = {place: [] for place in product(self.pipeline.sources, range(PARTITIONS))}
        self.taken = dict.fromkeys(self.logs, 0)
        output = self.pipeline.output
        create_topic(self.bootstrap, output.topic, output.partitions)
        self.follower = Follower(self.bootstrap, output.topic, output.partitions)
        self.follower.start()
        return self

    # What comes.

    def fill(self, today: int) -> None:
        """Produce a day's records: six pairs of the day, and orders and payments whose partners come some other day, or never."""
        sure = [(source, 100 * today + number) for number in range(6) for source in ("orders", "payments")]
        due = [(source, n) for when, source, n in self.to_come if when <= today]
        self.to_come = [one for one in self.to_come if one[0] > today]
        for number in range(10, 20):
            one, other = self.chance.choice((("orders", "payments"), ("payments", "orders")))
            due.append((one, 100 * today + number))
            for _ in range(self.chance.choice((0, 1, 1, 1, 2))):  # missing, or doubled
                self.to_come.append((today + self.chance.randint(1, REACH + 1), other, 100 * today + number))
        due += self.chance.choices([*sure, *due], k=3)
        self.chance.shuffle(due)
        records: dict[str, list[Any]] = {source: [] for source in self.pipeline.sources}
        for position, (source, n) in enumerate([*sure, *due]):
            partition = self.chance.randrange(PARTITIONS)
            dated = 0 if position < len(sure) else self.chance.choice((0, 0, 0, 0, 0, -1, 1))
            sent = Sent(source, n, next(self.numbers), max(1, today + dated))
            self.logs[source, partition].append(sent)
            when = at(sent.day, self.chance.uniform(1, 23))
            records[source].append((f"k{n}".encode(), {"n": sent.n, "number": sent.number}, partition, when))
        for source, each in records.items():
            produce(self.bootstrap, self.pipeline.sources[source].topic, each)

    # What is expected.

    def plan(self, today: int) -> None:
        """Take what the day's interval consumes: of each partition up to the first record that is dated a later day."""
        own: list[Sent] = []
        for place, log in self.logs.items():
            while self.taken[place] < len(log) and log[self.taken[place]].day <= today:
                own.append(log[self.taken[place]])
                self.taken[place] += 1
        self.covers[today] = max(self.consumed, default=today - 1) + 1
        self.consumed[today] = own

    def results(self, today: int) -> tuple[Counter[Row], int]:
        """The rows of a day's interval, and how many there are of looked-back records alone."""
        days = [d for d in self.consumed if d < today and self.covers[today] - (d + 1) < REACH]
        records = [(sent, True) for d in days for sent in self.consumed[d]]
        records += [(sent, False) for sent in self.consumed[today]]
        orders = [one for one in records if one[0].source == "orders"]
        payments = [one for one in records if one[0].source == "payments"]
        pairs = [
            ((o.n, o.number, p.number), early and also_early)
            for (o, early), (p, also_early) in product(orders, payments)
            if o.n == p.n
        ]
        return Counter(row for row, earlier in pairs if not earlier), sum(earlier for _, earlier in pairs)

    def differences_of_days(self) -> list[str]:
        """Everything that is not as promised; nothing is the good answer."""
        seen: dict[str, Counter[Row]] = {}
        for record in read_all(self.bootstrap, self.pipeline.output.topic):
            seen.setdefault(record.batch, Counter())[tuple(record.json[f] for f in ("n", "ordered", "paid"))] += 1
        published = {
            f"{self.pipeline.name}/{(key or b'').decode()}"
            for key, batch in self._ledger().items()
            if "published" in {event["state"] for event in batch["history"]}
        }
        found = [f"{batch} is published, and not seen" for batch in published - {*seen}]
        found += [f"{batch} is seen, and not published" for batch in {*seen} - published - self.skipped]
        found += [f"{batch} is seen, and was skipped" for batch in {*seen} & self.skipped if self._is_staged]
        for today in self.consumed:
            wanted, earlier = self.results(today)
            for batch in (one for one in seen if f"/{day(today)}/" in one):
                found += [f"{batch} lacks {row}" for row in (wanted - seen[batch]).elements()]
                found += [f"{batch} has too many {row}" for row in (seen[batch] - wanted).elements()]
            written = latest(self.pipeline, day(today)).require_written
            if written.rows_of_earlier != earlier:
                found.append(f"day {today} left out {written.rows_of_earlier} rows of earlier records, not {earlier}")
        found += [f"{row} twice" for row, n in self._once(seen).items() if n > 1]
        return [
            *found,
            *self.differences_of_followers(),
            *self._differences_of_the_announcements(),
            *self.open_transactions(),
        ]

    def _once(self, seen: dict[str, Counter[Row]]) -> Counter[Row]:
        """The rows of each interval's last batch that is seen."""
        last = {batch.rpartition("/")[0]: batch for batch in sorted(seen)}
        return sum((seen[batch] for batch in last.values()), Counter())

    @property
    def _is_staged(self) -> bool:
        return self.pipeline.output.publish == "staged"


@pytest.fixture
def make(
    spark: Any, broker: Broker, make_pipeline: Callable[..., Pipeline], tmp_path: Path
) -> Iterator[Callable[..., Joined]]:
    """Make the pipeline; nothing is produced yet."""
    with ExitStack() as stack:

        def made(publish: str, seed: int) -> Joined:
            name = f"paired{next(pipelines)}"
            settings = {"schema": {"n": "int", "number": "int"}, "lookback": f"{REACH} days"}
            pipeline = make_pipeline(
                TRANSFORM,
                ANY,
                name=name,
                sources={source: {"topic": f"{name}-{source}", **settings} for source in ("orders", "payments")},
                output={"layout": "output", "publish": publish, "partitions": 2},
            )
            case = Joined(broker.bootstrap, pipeline, tmp_path / "struck", chance=random.Random(seed))
            return stack.enter_context(case)

        yield made


def run_with_death(spark: Any, case: Joined, today: int, death: str, *, reprocess: bool = False) -> None:
    """Run the day's interval; the step that comes by that place dies there, and the ordinary retry follows."""
    case.struck = case.struck.with_name(f"struck-{today}-{reprocess}")
    case.struck.mkdir()
    plan = partial(plan_batch, case.pipeline, day(today), reprocess=reprocess)
    if death in WORKER:
        plan()
        write = partial(write_batch, spark, case.pipeline, day(today))
        strike_worker_and_retry(spark, case, death, write, lambda *_: run(spark, case.pipeline, day(today)))
    elif death:
        with at_failpoint(death, crash), pytest.raises(Crash):
            run(spark, case.pipeline, day(today), reprocess=reprocess)
        run(spark, case.pipeline, day(today))
    else:
        run(spark, case.pipeline, day(today), reprocess=reprocess)


@pytest.mark.parametrize(
    ("publish", "seed", "days"),
    [
        ("staged", 1, 4),
        *(
            pytest.param(publish, seed, 5, marks=pytest.mark.fault)
            for publish, seed in product(("staged", "direct"), range(2, 10))
        ),
    ],
)
def test_each_pair_is_in_the_result_of_one_interval_whoever_dies(
    spark: Any, make: Callable[..., Joined], publish: str, seed: int, days: int
) -> None:
    case = make(publish, seed)
    chance = case.chance
    deaths = [*DRIVER, *WORKER, "", *(OF_A_COPY if publish == "staged" else ())]
    skipped, *others = chance.sample(range(1, days), 2)
    unplanned = chance.choice((0, *(one for one in others if one > 1)))
    for today in range(1, days + 1):
        if today == days:
            run_with_death(spark, case, chance.choice([*case.consumed]), chance.choice(deaths), reprocess=True)
        case.fill(today)
        if today == unplanned:
            continue
        case.plan(today)
        if today == skipped:
            plan_and_write(spark, case.pipeline, day(today))
            case.skipped.add(str(latest(case.pipeline, day(today)).id))
            skip_batch(case.pipeline, day(today), a_decision(action="skip"))
        else:
            run_with_death(spark, case, today, chance.choice(deaths))
    assert case.differences_of_days() == []
