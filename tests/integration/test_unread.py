"""Records before the first range: plan, report, status, announcement and doctor say so, and an earlier interval reads them.

Timestamps in seconds, none at all, and microseconds: each leaves the first interval without a record of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from conftest import at, day
from fencepost.config.loading import load_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.doctor.inspection import Inspection
from fencepost.doctor.ledger import check_unread_records
from fencepost.drafting.connection import connection_of
from fencepost.drafting.draft import draft_pipeline
from fencepost.drafting.draft_request import DraftRequest
from fencepost.findings import Finding, Level
from fencepost.model import Interval
from fencepost.steps.advance import advance_batch
from fencepost.steps.plan import plan_batch
from fencepost.steps.validate import validate_without_spark
from fencepost.steps.write import write_without_spark
from fencepost_stack.broker import Broker
from kafka_tools import create_topic, produce
from steps import announced, latest

Make = Callable[..., Pipeline]
SECONDS = 1_767_225_600  # of 2026-01-01
EARLIER = Interval(start=datetime(1970, 1, 1, tzinfo=UTC), end=day(1).start)


def doctor(pipeline: Pipeline) -> Finding:
    found = check_unread_records(Inspection(pipeline))
    assert isinstance(found, Finding)
    return found


@pytest.mark.parametrize(
    ("timestamp", "said"),
    [
        (
            SECONDS,
            "partition 0: 100, the last record with timestamp 1767225600, 1970-01-21 10:53 UTC: seconds taken for milliseconds?",
        ),
        (-1, "partition 0: 100, the last record without a timestamp"),
        (
            at(1) * 1000,
            "partition 0: 100, the last record with timestamp 1767268800000000, in the year 57972: microseconds taken for",
        ),
    ],
    ids=["seconds", "none", "microseconds"],
)
def test_records_before_the_first_range_are_told_and_an_earlier_interval_reads_them(
    timestamp: int, said: str, broker: Broker, make_pipeline: Make
) -> None:
    """Two partitions: of one all records are stamped so, of the other none."""
    pipeline = make_pipeline(lanes=4, schedule={"start": "2026-01-01"})
    create_topic(broker.bootstrap, pipeline.source.topic, 2, **{"message.timestamp.after.max.ms": str(2**63 - 1)})
    produce(broker.bootstrap, pipeline.source.topic, [(b"k", {"n": n}, 0, timestamp) for n in range(100)])
    before = doctor(pipeline)
    if timestamp < at(1):
        assert (before.level, before.found[:13]) == (Level.WARNING, "100 offsets o"), "before anything is planned"
    planned = plan_batch(pipeline, day(1))
    assert planned.details["offsets"] == 0
    assert planned.details["unread"] == 100
    first = f"100 offsets of topic {pipeline.source.topic} lie before the first range, and no batch reads them. "
    assert planned.message.startswith(f"planned revision 1: 0 offsets of topic {pipeline.source.topic}. {first}")
    assert said in planned.message
    assert EARLIER.command("run", pipeline.name) in planned.message
    assert write_without_spark(pipeline, day(1))
    assert validate_without_spark(pipeline, day(1))
    advance_batch(pipeline, day(1))
    report = Path(latest(pipeline, day(1)).require_verdict.report)
    assert first in report.with_suffix(".html").read_text()
    told = announced(pipeline, day(1))["unread"]
    assert (told["offsets"], told["ranges"]) == (100, {pipeline.source.topic: {"0": [0, 100]}})
    assert said in told["reason"]
    after = doctor(pipeline)
    assert after.level is Level.WARNING
    assert said in after.found
    produce(broker.bootstrap, pipeline.source.topic, [(b"k", {"n": n}, 0, timestamp) for n in range(5)])
    second = plan_batch(pipeline, day(2))
    assert (second.details["offsets"], "unread" in second.details) == (5, False)
    assert plan_batch(pipeline, EARLIER).details["offsets"] == 100
    assert doctor(pipeline).level is Level.OK


def test_status_says_so_in_words_and_in_json(
    broker: Broker, make_pipeline: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    from fencepost.cli import status

    pipeline = make_pipeline(schedule={"start": "2026-01-01"})
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    produce(broker.bootstrap, pipeline.source.topic, [(b"k", {"n": n}, 0, at(-30)) for n in range(7)])
    plan_batch(pipeline, day(1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(status, "pipeline_of", lambda _: pipeline)
        status.status(pipeline.name)
        words = " ".join(capsys.readouterr().out.split())
        status.status(pipeline.name, as_json=True)
        told = json.loads(capsys.readouterr().out)["unread"]
    assert f"never read: 7 offsets of topic {pipeline.source.topic} lie before the first range" in words
    assert (told["offsets"], told["ranges"]) == (7, {pipeline.source.topic: {"0": [0, 7]}})


def test_a_draft_says_what_a_run_from_its_start_reads(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FENCEPOST_PIPELINES", str(tmp_path))
    monkeypatch.setenv("KAFKA_BOOTSTRAP", broker.bootstrap)

    def drafted(name: str, *timestamps: list[int], cron: str = "0 0 * * *") -> tuple[str, tuple[str, ...]]:
        create_topic(broker.bootstrap, f"unread-{name}", len(timestamps))
        records = [(None, {"n": 1}, p, stamp) for p, stamps in enumerate(timestamps) for stamp in stamps]
        produce(broker.bootstrap, f"unread-{name}", records)
        draft = draft_pipeline(
            DraftRequest(name, f"unread-{name}", cron=cron),
            connection_of(None, [f"bootstrap.servers={broker.bootstrap}"], ()),
        )
        text = (draft.folder / "pipeline.yaml").read_text()
        return next(line for line in text.splitlines() if line.startswith("  start:")), draft.warnings

    start, _ = drafted("equal", [at(3)] * 5)
    assert start.endswith("start: 2026-01-03T00:00+00:00  # the topic has no records before this time")
    start, _ = drafted("older", [at(1, 3)] * 4 + [at(3)] * 5)
    assert start.endswith(
        "# no run reads the 4 offsets before this time: start at 2026-01-01T00:00+00:00 to include them"
    )
    start, _ = drafted("six_hours", [at(1, 1), at(1, 1.5), at(2)], [at(3)] * 5, cron="0 */6 * * *")
    assert start.endswith(
        "# no run reads the 3 offsets before this time: start at 2026-01-01T00:00+00:00 to include them"
    )
    file = tmp_path / "six_hours" / "pipeline.yaml"
    file.write_text(file.read_text().replace("start: 2026-01-03T12:00+00:00", "start: 2026-01-01T00:00+00:00"))
    followed = load_pipeline(file.parent)
    assert (doctor(followed).level, doctor(followed).found) == (Level.OK, "no record lies before the first range")
    first = next(followed.schedule.boundaries.intervals_from(followed.schedule.start))
    assert "unread" not in plan_batch(followed, first).details
    start, warnings = drafted("seconds", [SECONDS] * 6, [at(3)] * 5)
    reads = "`fencepost run seconds --start 1970-01-01T00:00:00Z --end 2026-01-03T00:00:00Z`"
    assert start.endswith(f"# only this command reads the 6 offsets before this time: {reads}")
    assert any("6 of 11 sampled records have timestamps before 2005, the first in 1970." in one for one in warnings)
    unread = "reads the 6 offsets before the first record of this interval"
    assert any(one.startswith("No run from 2026-01-03 00:00") and unread in one for one in warnings)
    start, warnings = drafted("unstamped", [-1] * 3)
    assert (
        "# only this command reads the 3 offsets before this time: `fencepost run unstamped --start 1970-01-01" in start
    )
    assert any("3 of 3 sampled records have no timestamp" in one for one in warnings)


def test_what_retention_has_deleted_is_not_unread(broker: Broker, make_pipeline: Make) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    pipeline = make_pipeline(schedule={"start": "2026-01-01"})
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    older = round((day(1).start - timedelta(days=30)).timestamp() * 1000)
    produce(broker.bootstrap, pipeline.source.topic, [(b"k", {"n": n}, 0, older) for n in range(50)])
    plan_batch(pipeline, day(1))
    assert doctor(pipeline).found.startswith("50 offsets")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for end, found in ((20, "30 offsets"), (50, "no record lies before the first range")):
        for future in admin.delete_records([TopicPartition(pipeline.source.topic, 0, end)]).values():
            future.result(20)
        assert doctor(pipeline).found.startswith(found)
