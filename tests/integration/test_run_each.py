"""`fencepost run --each`: the same as as many single runs, in one session, killed anywhere and repeated."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import yaml
from typer.testing import CliRunner

import steps
from arming import environment
from fencepost.cli.app import app
from fencepost.config.loading import load_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.ledger.ledger import Ledger
from fencepost.model import Batch, Interval, State
from fencepost.steps.advance import skip_batch
from fencepost_stack.broker import Broker
from kafka_tools import create_topic, group_offsets, produce, read_all
from makers import a_decision

VIENNA = ZoneInfo("Europe/Vienna")
FIRST = datetime(2026, 3, 28, tzinfo=VIENNA)  # the second day has 23 hours
DAYS = 4
SPAN = ("--start", "2026-03-28T00:00+01:00", "--end", "2026-04-01T00:00+02:00")
FEW = "expectations: [{type: expect_table_row_count_to_be_between, kwargs: {max_value: %d}}]"

Make = Callable[..., Pipeline]
Run = Callable[..., Any]


def days() -> list[Interval]:
    bounds = [FIRST + timedelta(days=n) for n in range(DAYS + 1)]  # by the clock on the wall
    return [Interval.of(start, end) for start, end in pairwise(bounds)]


@pytest.fixture
def pipeline(broker: Broker, make_pipeline: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Pipeline:
    """Days in Vienna; each has as many records as its number, at its first and its last moment, and the third has none."""
    monkeypatch.setenv("FENCEPOST_PIPELINES", str(tmp_path))
    made = make_pipeline(schedule={"timezone": "Europe/Vienna", "start": "2026-03-01"})
    create_topic(broker.bootstrap, made.source.topic, 2)
    for number, interval in enumerate(days(), 1):
        ends = [round(moment.timestamp() * 1000) for moment in (interval.start, interval.end)]
        moments = [ends[0], *([ends[1] - 1] * (number - 1))] if number != 3 else []
        rows = [(str(n).encode(), {"n": 10 * number + n}, n % 2, moment) for n, moment in enumerate(moments)]
        produce(broker.bootstrap, made.source.topic, rows)
    late = round((days()[-1].end + timedelta(days=1)).timestamp() * 1000)
    produce(broker.bootstrap, made.source.topic, [(b"0", {"n": 0}, p, late) for p in (0, 1)])
    return made


@pytest.fixture
def run(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command, in this process and on its session."""

    @contextmanager
    def session(pipeline: Pipeline, records: int | None = None) -> Iterator[Callable[[], Any]]:
        yield lambda: spark

    monkeypatch.setattr("fencepost.cli.run_each.spark_session", session)

    def command(pipeline: Pipeline, *options: str) -> Any:
        return CliRunner().invoke(app, ["run", pipeline.name, *SPAN, "--each", *options])

    return command


def batches(pipeline: Pipeline) -> list[Batch]:
    return Ledger(pipeline).read().all()


def found(broker: Broker, pipeline: Pipeline) -> list[Any]:
    """What the command left: each batch's state, ranges and rows, the frontier, and what a reader sees of the output."""
    in_ledger = [
        (
            b.interval,
            b.revision,
            b.state,
            b.plan.ranges,
            b.written and b.written.rows,
            b.written and b.written.rows_in,
        )
        for b in batches(pipeline)
    ]
    rows = [
        (r.partition, r.key, r.value, r.batch.removeprefix(pipeline.name))
        for r in read_all(broker.bootstrap, pipeline.output.topic)
    ]
    return [
        in_ledger,
        group_offsets(broker.bootstrap, pipeline.group, pipeline.source.topic, [0, 1]),
        sorted(rows, key=str),
    ]


def twin(pipeline: Pipeline, make_pipeline: Make) -> Pipeline:
    """Another pipeline on the same source."""
    return make_pipeline(
        source={"topic": pipeline.source.topic}, schedule={"timezone": "Europe/Vienna", "start": "2026-03-01"}
    )


def test_every_interval_ends_as_by_a_run_of_its_own(
    spark: Any, broker: Broker, pipeline: Pipeline, make_pipeline: Make, run: Run
) -> None:
    done = run(pipeline)
    assert done.exit_code == 0, done.output
    told = done.stderr.splitlines()
    assert told[0] == "4 intervals of the schedule, from 2026-03-27 23:00 to 2026-03-31 22:00 UTC"
    (second,) = (line for line in told if line.startswith("2/4"))
    assert second.startswith("2/4  2026-03-28 23:00 → 03-29 22:00  published, revision 1: 2 out"), "a day of 23 hours"
    assert sum("no asset event" in line for line in told) == 1, "what holds for each is said once"

    single = twin(pipeline, make_pipeline)
    for interval in days():
        steps.run(spark, single, interval)
    left = found(broker, pipeline)
    assert left == found(broker, single)
    assert [len([r for r in left[2] if r[3].startswith(f"/{i}/")]) for i in days()] == [1, 2, 0, 4]

    again = run(pipeline, "--json")
    assert again.exit_code == 0
    answer = json.loads(again.stdout)
    assert (answer["left"], answer["error"], len(answer["intervals"])) == (0, None, DAYS)
    assert all([step["changed"] for step in one["steps"]] == [False] for one in answer["intervals"])
    assert found(broker, pipeline) == left, "repeated, it changes nothing"


@pytest.mark.deep
def test_it_stops_at_the_first_that_is_not_published_and_goes_on_there(pipeline: Pipeline, run: Run) -> None:
    pipeline.expectations_file.write_text(FEW % 1)
    stopped = run(pipeline)
    assert type(stopped.exception).__name__ == "BatchRejected"
    assert [b.state for b in batches(pipeline)] == [State.PUBLISHED, State.REJECTED]
    said = "stopped at 2026-03-28 23:00 to 2026-03-29 22:00 UTC. 1 of 4 intervals is done. Resolve the error"
    assert said in stopped.stderr
    assert "again" not in stopped.stderr, "the same command would stop there again"
    as_json = run(pipeline, "--json")
    answer = json.loads(as_json.stdout)
    assert (as_json.exit_code, answer["exit_code"], answer["error"]["type"]) == (1, 1, "BatchRejected")
    assert (answer["left"], len(answer["intervals"])) == (3, 2)

    skip_batch(pipeline, days()[1], a_decision("skip"))
    pipeline.expectations_file.write_text(FEW % 100)
    assert run(pipeline).exit_code == 0
    passed = [State.PUBLISHED, State.SKIPPED, State.PUBLISHED, State.PUBLISHED]
    assert [b.state for b in batches(pipeline)] == passed, "what somebody skipped holds nothing up"


def test_the_newest_intervals_of_the_schedule_are_those_before_its_end_and_after_its_start(
    pipeline: Pipeline, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = pipeline.folder / "pipeline.yaml"
    settings = yaml.safe_load(file.read_text())
    settings["schedule"] |= {"start": "2026-03-29T12:00+02:00", "end": "2026-03-31T12:00+02:00"}
    file.write_text(yaml.safe_dump(settings))
    for number, ended in (("1", days()[3:]), ("9", days()[2:])):
        done = CliRunner().invoke(app, ["run", pipeline.name, "--last", number])
        assert done.exit_code == 0, done.output
        assert [b.interval for b in batches(pipeline) if b.state is State.PUBLISHED] == ended
    monkeypatch.setattr("fencepost.cli.run_each.utc_now", lambda: days()[2].end - timedelta(seconds=1))
    none = CliRunner().invoke(app, ["run", pipeline.name, "--last", "1"])
    assert "(cron '0 0 * * *' in Europe/Vienna, from 2026-03-29T12:00+02:00) has ended yet" in str(none.exception)


def test_a_time_that_no_whole_interval_covers_is_named_with_what_runs_it(pipeline: Pipeline, run: Run) -> None:
    """At both ends, in words and as JSON; nothing is said of a time that intervals cover."""
    done = run(pipeline, "--start", "2026-03-28T01:00+01:00", "--end", "2026-03-30T12:00+02:00")
    assert done.exit_code == 0, done.output
    left_out = [line for line in done.stderr.splitlines() if line.startswith("Not run")]
    assert left_out == [
        "Not run: 2026-03-28 00:00 to 2026-03-28 23:00 UTC, part of the interval 2026-03-27 23:00 to 2026-03-28 23:00 UTC. "
        "--start 2026-03-27T23:00:00Z runs all of it.",
        "Not run: 2026-03-29 22:00 to 2026-03-30 10:00 UTC, part of the interval 2026-03-29 22:00 to 2026-03-30 22:00 UTC. "
        "--end 2026-03-30T22:00:00Z runs all of it.",
    ]
    assert [b.interval for b in batches(pipeline)] == [days()[1]]
    as_json = json.loads(
        run(pipeline, "--start", "2026-03-28T01:00+01:00", "--end", "2026-03-30T00:00+02:00", "--json").stdout
    )
    assert as_json["left_out"] == [{"start": "2026-03-28T00:00:00Z", "end": "2026-03-28T23:00:00Z"}]
    whole = run(pipeline, "--start", "2026-03-29T00:00+01:00", "--end", "2026-03-30T00:00+02:00", "--json")
    assert (json.loads(whole.stdout)["left_out"], "Not run" in whole.stderr) == ([], False)


SETS = """
def transform(frame):
    spark = frame.sparkSession
    assert spark.conf.get("my.setting", "") == "" and not spark.catalog.tableExists("mine")
    spark.conf.set("my.setting", "1")
    frame.createOrReplaceTempView("mine")
    return frame.selectExpr("_key", "n")
"""


@pytest.mark.deep
def test_a_transform_meets_nothing_of_what_it_set_in_the_interval_before(pipeline: Pipeline, run: Run) -> None:
    pipeline.transform_file.write_text(SETS)
    done = run(pipeline, "--end", "2026-03-30T00:00+02:00")
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--start", "2026-03-28T01:00+01:00", "--end", "2026-03-29T23:59+02:00"), "no whole interval of its schedule"),
        (
            ("--start", "2026-03-27", "--end", "2999-01-01"),
            r"has not ended, so nothing was run. --end \d{4}-\d\d-\d\dT2",
        ),
        (("--start", "2998-12-31", "--end", "2999-01-09"), "has not ended, so nothing was run.$"),
        (("--start", "0001-01-01", "--end", "2026-03-28"), "a cron schedule cannot compute the times"),
        ((*SPAN, "--reprocess"), "--reprocess works for one interval only"),
        ((*SPAN, "--last", "1"), "--last takes the newest intervals of the schedule: give it, or --start and --end"),
        (("--last", "1", "--reprocess"), "--reprocess works for one interval only"),
        (("--last", "1", "--allow-future"), "--allow-future works with --start and --end"),
        (("--end", "2026-04-01"), "Give --start and --end, or --last"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is(
    pipeline: Pipeline, options: tuple[str, ...], words: str
) -> None:
    refused = CliRunner().invoke(app, ["run", pipeline.name, "--each", *options])
    assert type(refused.exception).__name__ == "SettingsError"
    with pytest.raises(Exception, match=words):
        raise refused.exception
    assert not Ledger(pipeline).exists()


KILLS = (
    *("plan.frozen", "coordinator.committing@2", "write.rows", "write.committed", "write.answered", "write.recorded"),
    *("validate.reported", "validate.recorded", "advance.begun", "publish.committed", "advance.copied"),
    *("advance.deciding@2", "advance.answered@2", "coordinator.committed@5"),
)
IN_SHORT = ("write.committed", "validate.recorded", "publish.committed", "advance.answered@2")


@pytest.mark.deep
@pytest.mark.parametrize(
    "kills",
    [pytest.param(IN_SHORT, id="in short"), pytest.param(KILLS, marks=pytest.mark.fault, id="all")],
)
def test_killed_between_two_steps_and_repeated_it_ends_like_single_runs(
    kills: Sequence[str], spark: Any, broker: Broker, pipeline: Pipeline, make_pipeline: Make, tmp_path: Path
) -> None:
    """Each failpoint kills one process; a worker's death is retried by Spark or fails the command, which is repeated too."""
    strikes = tmp_path / "strikes"
    strikes.mkdir()
    points = ",".join(f"{name}=kill" for name in kills)
    place = {"FENCEPOST_PIPELINES": str(tmp_path), "FENCEPOST_SPARK_MASTER": "local[2]", **environment(points, strikes)}
    command = [str(Path(sys.executable).with_name("fencepost")), "run", pipeline.name, *SPAN, "--each"]
    codes = []
    while not codes or codes[-1] != 0:
        assert len(codes) <= len(kills)
        done = subprocess.run(command, env={**os.environ, **place}, capture_output=True, text=True, check=False)
        codes.append(done.returncode)
        assert done.returncode in {0, -9, 3}, done.stderr
    assert {file.name for file in strikes.iterdir()} == {f"{name}=kill" for name in kills}
    single = twin(load_pipeline(pipeline.folder), make_pipeline)
    for interval in days():
        steps.run(spark, single, interval)
    ours, theirs = found(broker, pipeline), found(broker, single)
    counted = [(*one[:5],) for one in ours[0]], [(*one[:5],) for one in theirs[0]]
    assert counted[0] == counted[1]  # but for `rows_in`, which a retry need not count again
    assert ours[1:] == theirs[1:]
