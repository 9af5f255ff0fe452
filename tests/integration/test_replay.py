"""Quarantined records go through a fixed transform: what passes is added to the output once, what fails stays in quarantine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from conftest import at, day
from fencepost.cli.quarantine import quarantined_batches
from fencepost.config.pipeline import Pipeline
from fencepost.errors import NeedsOperator, SettingsError, TransformFailed
from fencepost.ledger.ledger import Ledger
from fencepost.model import Batch, State
from fencepost.protocol.snapshot import snapshot_of
from fencepost.quality.report import Report
from fencepost.reading.validated import read_validated
from fencepost.steps.plan import plan_batch
from fencepost.steps.replay import plan_replay
from fencepost_stack.broker import Broker
from kafka_tools import QUIET_LOG, Record, create_topic, group_offsets, produce, read_all
from oracle.murmur2 import partition_of
from steps import kafka_of, latest, replay, run

Make = Callable[..., Pipeline]

TRANSFORM = """
def transform(frame):
    origin = "concat_ws(':', _topic, string(_partition), string(_offset)) AS origin"
    return frame.selectExpr("_key", "_timestamp", "_headers", "_partition", "_offset", "_record", "n", "name", origin)
"""
RULES = """
expectations:
  - type: expect_column_values_to_be_between
    severity: quarantine
    kwargs: {column: n, min_value: 0}
  - type: expect_expression_to_be_true
    severity: quarantine
    kwargs: {expression: name <> 'nobody'}
  - type: expect_column_values_to_not_be_null
    kwargs: {column: n}
  - type: expect_table_row_count_to_be_between
    kwargs: {min_value: 10}
"""
OUTPUT: dict[str, Any] = {"publish": "staged", "timestamp": "_timestamp", "headers": "_headers"}
SOURCE: dict[str, Any] = {"on_malformed": "quarantine", "headers": True}
OFF: dict[str, Any] = {"quarantine_limit": "none"}
HEADERS = [("h", b"1"), ("fencepost-reason", b"theirs"), ("fencepost-kept", b"result"), ("fencepost-batch", b"p/x/1")]
GOOD = [(b"k%d" % i, {"n": i, "name": "x"}) for i in range(10)]
BAD: list[tuple[bytes, Any]] = [
    (b"wide", {"n": 3_000_000_000, "name": "x"}),  # too large for an int
    (b"broken", b"{"),
    (b"low", {"n": -1, "name": "x"}),
    (b"nobody", {"n": 3, "name": "nobody"}),
]


def fill(broker: Broker, pipeline: Pipeline) -> dict[bytes, Record]:
    """Good and bad records on two partitions; the bad ones by key, as they lie in the source."""
    create_topic(broker.bootstrap, pipeline.source.topic, 2)
    records = [(key, value, number % 2, at(1, number)) for number, (key, value) in enumerate([*GOOD, *BAD])]
    produce(broker.bootstrap, pipeline.source.topic, records, HEADERS)
    bad = {key for key, _ in BAD}
    return {r.key: r for r in read_all(broker.bootstrap, pipeline.source.topic) if r.key in bad}


def ours(record: Record) -> dict[str, str]:
    """The headers that Fencepost added: all behind the source's."""
    assert list(record.headers[: len(HEADERS)]) == HEADERS
    return {name: (value or b"").decode() for name, value in record.headers[len(HEADERS) :]}


def quarantined(broker: Broker, batch: Batch) -> dict[bytes | None, Record]:
    """What a batch has in quarantine, by key."""
    assert batch.plan.quarantine is not None
    found = read_all(broker.bootstrap, batch.plan.quarantine.topic)
    return {r.key: r for r in found if r.headers[-1][1] == str(batch.id).encode()}


def report_of(batch: Batch) -> Report:
    assert batch.verdict is not None
    return Report.model_validate_json(Path(batch.verdict.report).with_suffix(".json").read_text())


def test_what_a_mended_transform_lets_pass_is_added_once_and_the_rest_stays_in_quarantine(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    shared: dict[str, Any] = {"output": OUTPUT, "quality": OFF}
    pipeline = make_pipeline(TRANSFORM, RULES, source=SOURCE, **shared)
    origin = fill(broker, pipeline)
    run(spark, pipeline, day(1))
    base = latest(pipeline, day(1))
    assert base.written is not None
    assert (base.state, base.written.rows) == (State.PUBLISHED, len(GOOD))
    before = read_all(broker.bootstrap, pipeline.output.topic)
    offsets = group_offsets(broker.bootstrap, pipeline.group, pipeline.source.topic, [0, 1])

    fixed = make_pipeline(
        TRANSFORM,
        RULES.replace("min_value: 0}", "min_value: -5}"),
        name=pipeline.name,
        source=SOURCE | {"schema": {"n": "bigint", "name": "string"}},
        **shared,
    )
    replay(spark, fixed, day(1))
    view = Ledger(fixed).read()
    first = view.last(day(1))
    assert first is not None
    assert (first.revision, first.adds_to, first.state) == (2, 1, State.PUBLISHED)
    assert view.in_force(day(1)) == base
    assert group_offsets(broker.bootstrap, pipeline.group, pipeline.source.topic, [0, 1]) == offsets, (
        "source offsets do not move"
    )
    out = read_all(broker.bootstrap, pipeline.output.topic)
    added = {r.key: r for r in out if r not in before}
    assert len(out) == len(before) + len(added)
    assert set(added) == {b"wide", b"low"}
    others = [header for header in HEADERS if header[0] != "fencepost-batch"]
    for key, record in added.items():
        lay = origin[key or b""]
        assert record.timestamp == lay.timestamp
        assert record.json["origin"] == f"{pipeline.source.topic}:{lay.partition}:{lay.offset}"
        assert list(record.headers) == [*others, ("fencepost-batch", str(first.id).encode())]
    kept = quarantined(broker, first)
    assert set(kept) == {b"broken", b"nobody"}
    for key, record in kept.items():
        lay = origin[key or b""]
        assert (record.value, record.timestamp) == (lay.value, lay.timestamp)
        said = ours(record)
        assert said["fencepost-attempt"] == "2"
        assert said["fencepost-source"] == f"{pipeline.source.topic}:{lay.partition}:{lay.offset}"
    assert ours(kept[b"broken"])["fencepost-rule"] == "malformed"
    assert ours(kept[b"nobody"])["fencepost-rule"] == "expect_expression_to_be_true"

    report = report_of(first)
    assert report.quarantined is not None
    accounts = report.quarantined.accounts
    assert (accounts.read, accounts.written, accounts.quarantined, accounts.left_out) == (4, 2, 2, 0)
    assert accounts.differences() == []
    assert [c.title for c in report.evaluation.checks if c.not_judged] == ["expect_table_row_count_to_be_between"]
    assert "Not judged for an addition: 1 expectation about a whole batch." in report.evaluation.reason
    events = [r.json for r in read_all(broker.bootstrap, pipeline.announcements_topic)]
    assert [event["batch"] for event in events] == [str(b.id) for b in (base, first)]
    with pytest.raises(SettingsError, match="column n is int in batch"):
        read_validated(spark, events, kafka=kafka_of(pipeline))
    assert {r["n"] for r in read_validated(spark, events[1], kafka=kafka_of(pipeline)).collect()} == {3_000_000_000, -1}

    replay(spark, fixed, day(1))
    second = latest(fixed, day(1))
    assert (second.revision, second.adds_to, second.state) == (3, 1, State.PUBLISHED)
    assert second.written is not None
    assert second.written.rows == 0
    assert read_all(broker.bootstrap, pipeline.output.topic) == out, "nothing passes twice"
    again = quarantined(broker, second)
    assert {key: ours(r)["fencepost-attempt"] for key, r in again.items()} == {b"broken": "3", b"nobody": "3"}
    listed = list(quarantined_batches(snapshot_of(Ledger(fixed).read()), None, None, every=False))
    assert [(b.id, b.plan.attempt) for b in listed] == [(second.id, 3)], "what is left, and how often it was tried"
    assert run(spark, fixed, day(1)).changed is False


DROPPING = """
def transform(frame):
    return frame.selectExpr("_key", "_timestamp", "_headers", "n", "name")
"""
RESULT_RULES = RULES.replace("min_value: 10", "min_value: 1")
MENDED_RULES = RESULT_RULES.replace("min_value: 0}", "min_value: -5}")
NO_RULES = "expectations:\n  - type: expect_column_values_to_not_be_null\n    kwargs: {column: n}\n"


@pytest.mark.deep
def test_a_result_is_judged_again_as_it_is_and_published_once_it_passes(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    """Where the transform dropped the source record there is none to send through it again, and no need to."""
    name: str | None = None

    def pipeline_with(rules: str) -> Pipeline:
        return make_pipeline(DROPPING, rules, name=name, source=SOURCE, output=OUTPUT, quality=OFF)

    pipeline = pipeline_with(RESULT_RULES)
    name = pipeline.name
    fill(broker, pipeline)
    run(spark, pipeline, day(1))
    base = latest(pipeline, day(1))
    first = quarantined(broker, base)
    assert set(first) == {key for key, _ in BAD}
    assert {key for key in first if ours(first[key]).get("fencepost-kept") == "result"} == {b"low", b"nobody"}

    def left_after(rules: str, attempt: int, *passed: bytes) -> dict[bytes | None, Record]:
        before = read_all(broker.bootstrap, pipeline.output.topic)
        replay(spark, pipeline_with(rules), day(1))
        batch = latest(pipeline, day(1))
        assert batch.state is State.PUBLISHED
        added = {r.key: r for r in read_all(broker.bootstrap, pipeline.output.topic) if r not in before}
        assert set(added) == set(passed)
        for key, record in added.items():
            assert (record.value, record.timestamp) == (first[key].value, first[key].timestamp), "byte for byte"
            own = [header for header in HEADERS if header[0] != "fencepost-batch"]
            assert list(record.headers) == [*own, ("fencepost-batch", str(batch.id).encode())]
            assert record.partition == partition_of(key or b"", 3)
        kept = quarantined(broker, batch)
        assert {ours(record)["fencepost-attempt"] for record in kept.values()} == {str(attempt)}
        for key, record in kept.items():
            assert (record.value, record.timestamp) == (first[key].value, first[key].timestamp)
        report = report_of(batch)
        assert report.quarantined is not None
        assert report.quarantined.agrees
        assert report.quarantined.accounts.differences() == []
        assert (report.quarantined.accounts.written, report.quarantined.accounts.quarantined) == (len(added), len(kept))
        return kept

    kept = left_after(RESULT_RULES, 2)
    assert set(kept) == set(first)
    assert {ours(kept[key])["fencepost-kept"] for key in (b"low", b"nobody")} == {"result"}
    assert ours(kept[b"low"])["fencepost-rule"] == "expect_column_values_to_be_between(n)"
    assert set(left_after(MENDED_RULES, 3, b"low")) == {b"nobody", b"wide", b"broken"}
    assert set(left_after(NO_RULES, 4, b"nobody")) == {b"wide", b"broken"}
    assert set(left_after(NO_RULES, 5)) == {b"wide", b"broken"}


@pytest.mark.deep
def test_a_result_that_the_output_cannot_hold_any_more_waits_until_it_can(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    shared: dict[str, Any] = {"source": SOURCE, "output": OUTPUT, "quality": OFF}
    pipeline = make_pipeline(DROPPING, RESULT_RULES, **shared)
    fill(broker, pipeline)
    run(spark, pipeline, day(1))
    listing = DROPPING.replace('"n"', '"array(n) AS n"')
    changed = make_pipeline(listing, NO_RULES, name=pipeline.name, **shared)
    replay(spark, changed, day(1))
    addition = latest(changed, day(1))
    assert addition.written is not None
    assert (addition.written.rows, addition.written.quarantined) == (0, {"malformed": 4})
    kept = quarantined(broker, addition)
    for key in (b"low", b"nobody"):
        said = ours(kept[key])
        assert said["fencepost-reason"] == "result: not a JSON object with fields of the output's types"
        assert (said["fencepost-rule"], said["fencepost-kept"]) == ("malformed", "result")
    fixed = make_pipeline(DROPPING, NO_RULES, name=pipeline.name, **shared)
    replay(spark, fixed, day(1))
    assert latest(fixed, day(1)).written is not None
    out = Counter(r.key for r in read_all(broker.bootstrap, pipeline.output.topic))
    assert out == Counter([key for key, _ in GOOD] + [b"low", b"nobody"])


def test_what_was_deleted_is_not_replayed(spark: Any, broker: Broker, make_pipeline: Make) -> None:
    pipeline = make_pipeline(DROPPING, RESULT_RULES, source=SOURCE, output=OUTPUT, quality=OFF)
    fill(broker, pipeline)
    run(spark, pipeline, day(1))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap}, logger=QUIET_LOG)
    place = quarantined(broker, latest(pipeline, day(1)))[b"low"]
    gone = TopicPartition(pipeline.quarantine_topic, place.partition, place.offset + 1)
    next(iter(admin.delete_records([gone]).values())).result(20)
    with pytest.raises(
        NeedsOperator, match=r"cannot be replayed: quarantine topic .* no longer has .*Nothing was planned\."
    ):
        plan_replay(pipeline, day(1))


@pytest.mark.deep
def test_a_replay_that_failed_holds_no_interval_up(spark: Any, broker: Broker, make_pipeline: Make) -> None:
    """It was planned, and its write failed. There is one lane, and the schedule goes on."""
    pipeline = make_pipeline(TRANSFORM, RULES, source=SOURCE, output=OUTPUT, quality=OFF)
    fill(broker, pipeline)
    run(spark, pipeline, day(1))
    plan_replay(pipeline, day(1))
    assert (latest(pipeline, day(1)).state, latest(pipeline, day(1)).plan.lane) == (State.PLANNED, "replay-0")
    plan_batch(pipeline, day(2))
    assert latest(pipeline, day(2)).plan.lane == "0"
    assert replay(spark, pipeline, day(1)).state is State.PUBLISHED
    marks = group_offsets(broker.bootstrap, pipeline.lane_group("replay-0"), pipeline.quarantine_topic, [0, 1, 2])
    assert marks, "its marks have a group of their own"


OVERFLOWING = """
expectations:
  - {type: expect_column_values_to_not_be_null, kwargs: {column: n}}
  - {type: expect_column_values_to_match_regex, severity: quarantine, kwargs: {column: name, regex: '^(a|b)*$'}}
"""


@pytest.mark.deep
def test_a_replayed_result_that_overflows_a_regex_names_the_rule_and_the_record(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    shared: dict[str, Any] = {"source": SOURCE, "output": OUTPUT, "quality": OFF}
    pipeline = make_pipeline(DROPPING, RESULT_RULES, **shared)
    create_topic(broker.bootstrap, pipeline.source.topic, 2)
    records = [(b"good", {"n": 1, "name": "ab"}), (b"low", {"n": -1, "name": "ab" * 20_000})]
    produce(broker.bootstrap, pipeline.source.topic, [(key, value, 1, at(1)) for key, value in records])
    run(spark, pipeline, day(1))
    overflowing = make_pipeline(DROPPING, OVERFLOWING, name=pipeline.name, **shared)
    with pytest.raises(TransformFailed) as stopped:
        replay(spark, overflowing, day(1))
    said = str(stopped.value)
    assert "expectations.1: expect_column_values_to_match_regex(name): regex '^(a|b)*$' overflows Java's stack" in said
    assert ", of record " in said
    assert "abab" not in said
    fixed = make_pipeline(DROPPING, OVERFLOWING.replace("(a|b)", "[ab]"), name=pipeline.name, **shared)
    replay(spark, fixed, day(1))
    assert [r.key for r in read_all(broker.bootstrap, pipeline.output.topic)] == [b"good", b"low"]
