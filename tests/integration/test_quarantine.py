"""Bad records go to the pipeline's quarantine topic, byte for byte and exactly once, and the good ones to the output."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import functions as F

from conftest import at, day
from fencepost.cli.quarantine import quarantined_batches
from fencepost.config.pipeline import Pipeline
from fencepost.errors import BatchRejected, ReceiptsDisagree, SettingsError, TransitionRefused, VerdictUndetermined
from fencepost.ledger.deployment import Deployment
from fencepost.ledger.ledger import Ledger
from fencepost.model import State
from fencepost.protocol.snapshot import snapshot_of
from fencepost.quality import rules as rules_module
from fencepost.quality.report import Report
from fencepost.rows import run_writers
from fencepost.steps.advance import advance_batch, begin_batch
from fencepost.steps.validate import validate_batch
from fencepost.steps.write import write_batch
from fencepost_stack.broker import Broker
from kafka_tools import QUIET_LOG, Record, create_topic, produce, read_all
from steps import latest, plan_and_write, run

Make = Callable[..., Pipeline]

KEEPING = "def transform(frame):\n    return frame.select('_key', '_partition', '_offset', '_record', 'n', 'name')\n"
DROPPING = "def transform(frame):\n    return frame.where('n <> 7').selectExpr('_key', 'n', 'name')\n"
AGGREGATE = """
from pyspark.sql import functions as F

def transform(frame):
    return frame.groupBy("_key").agg(F.sum("n").alias("n"), F.first("name").alias("name"))
"""
CARRYING = """
def transform(frame):
    return frame.select("_key", "_timestamp", "_headers", "_partition", "_offset", "_record", "n", "name")
"""
STAGED: dict[str, Any] = {"publish": "staged", "timestamp": "_timestamp", "headers": "_headers"}
RULES = """
expectations:
  - type: expect_column_values_to_be_between
    severity: quarantine
    description: n counts something
    kwargs: {column: n, min_value: 0}
  - type: expect_expression_to_be_true
    severity: quarantine
    kwargs: {expression: name <> 'nobody'}
  - type: expect_column_values_to_not_be_null
    kwargs: {column: n}
"""
OFF: dict[str, Any] = {"quarantine_limit": "none"}
HEADERS = [
    ("h", b"1"),
    ("h", None),
    ("fencepost-batch", b"another/batch"),
    ("fencepost-rule", b"theirs"),
    ("fencepost-timestamp", b"theirs"),
    ("", b"\xff"),
]
BROKEN = [b"", b"{", b'{"n": "5"}', b"\xff\xfe", b'{"n": 1, "n": 2}']


def fill(broker: Broker, pipeline: Pipeline) -> dict[str, list[tuple[bytes | None, bytes | None, int]]]:
    """Good records, some that fail each rule, and malformed ones, on two partitions: key, value, timestamp by kind."""
    create_topic(broker.bootstrap, pipeline.source.topic, 2)
    made: dict[str, list[tuple[bytes | None, bytes | None, int]]] = {"good": [], "low": [], "nobody": [], "broken": []}
    for i in range(30):
        made["good"].append((b"k%d" % i, json.dumps({"n": i, "name": "x"}).encode(), at(1, i / 2)))
    for i in range(3):
        made["low"].append((None if i else b"low", json.dumps({"n": -1 - i, "name": "nobody"}).encode(), at(1)))
    made["nobody"].append((b"\xff", b' {"n": 3, "name": "nobody", "more": [1.10]}', at(1)))
    made["broken"] += [(b"b%d" % i, value, at(1)) for i, value in enumerate(BROKEN)]
    listed = [one for kind in made.values() for one in kind]
    records = [(key, value, number % 2, time) for number, (key, value, time) in enumerate(listed)]
    produce(broker.bootstrap, pipeline.source.topic, records, HEADERS)
    return made


def seen_as(record: Record) -> tuple[bytes | None, bytes | None, int]:
    return record.key, record.value, record.timestamp


def headers_of(record: Record) -> dict[str, str]:
    """Our headers: the last of their names."""
    return {name: (value or b"").decode("utf-8", "replace") for name, value in record.headers}


@pytest.mark.parametrize("layout", ["source", pytest.param("output", marks=pytest.mark.deep)])
def test_bad_records_lie_in_quarantine_as_they_were_and_good_ones_in_the_output(
    layout: str, spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    source = {"on_malformed": "quarantine"}
    pipeline = make_pipeline(KEEPING, RULES, source=source, output={"layout": layout}, quality=OFF)
    made = fill(broker, pipeline)
    run(spark, pipeline, day(1))
    batch = latest(pipeline, day(1))
    assert batch.state is State.PUBLISHED
    assert batch.written is not None
    assert batch.written.quarantined == {
        "malformed": len(BROKEN),
        "expect_column_values_to_be_between(n)": 3,
        "expect_expression_to_be_true": 1,
    }
    out = read_all(broker.bootstrap, pipeline.output.topic)
    assert Counter((r.key, r.json["n"]) for r in out) == Counter(
        (k, json.loads(v or b"")["n"]) for k, v, _ in made["good"]
    )
    kept = read_all(broker.bootstrap, pipeline.quarantine_topic)
    assert Counter(map(seen_as, kept)) == Counter([*made["low"], *made["nobody"], *made["broken"]])
    for record in kept:
        assert list(record.headers[: len(HEADERS)]) == HEADERS, "the source's own come first"
        assert record.headers[-1] == ("fencepost-batch", str(batch.id).encode())
        own = headers_of(record)
        assert own["fencepost-attempt"] == "1"
        topic, partition, offset = own["fencepost-source"].split(":")
        (origin,) = (
            r for r in read_all(broker.bootstrap, topic) if (r.partition, r.offset) == (int(partition), int(offset))
        )
        assert seen_as(origin) == seen_as(record)
    told = Counter((headers_of(r)["fencepost-rule"], headers_of(r)["fencepost-reason"]) for r in kept)
    assert told["expect_column_values_to_be_between(n)", "n counts something"] == 3
    assert told["expect_expression_to_be_true", "expect_expression_to_be_true"] == 1
    assert sum(n for (rule, _), n in told.items() if rule == "malformed") == len(BROKEN)


def test_rules_add_no_copy_of_a_row_on_its_way(
    spark: Any, broker: Broker, make_pipeline: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark copies rows where its generated code ends: at Python and where rows are counted, and nowhere else."""
    plans, collect = [], run_writers._collect

    def seen(job: Any, *others: Any) -> Any:
        plans.append(job._jdf.queryExecution().executedPlan().toString())
        return collect(job, *others)

    monkeypatch.setattr(run_writers, "_collect", seen)
    pipeline = make_pipeline("def transform(frame):\n    return frame\n", RULES, quality=OFF)
    create_topic(broker.bootstrap, pipeline.source.topic, 1)
    produce(broker.bootstrap, pipeline.source.topic, [(b"k", {"n": 1, "name": "x"}, 0, at(1))])
    plan_and_write(spark, pipeline, day(1))
    nodes = re.findall(r"^\W*(?:\*\((\d+)\) )?([A-Z]\w+)", plans[0], re.MULTILINE)
    assert [name for name, _ in itertools.groupby(name if not stage else "generated" for stage, name in nodes)] == [
        *("MapInArrow", "CollectMetrics", "generated", "CollectMetrics", "MapInArrow", "generated", "BatchScan")
    ]


def test_the_report_accounts_for_every_row_and_shows_some(spark: Any, broker: Broker, make_pipeline: Make) -> None:
    pipeline = make_pipeline(DROPPING, RULES, source={"on_malformed": "quarantine"}, quality=OFF)
    made = fill(broker, pipeline)
    run(spark, pipeline, day(1))
    found = report_of(pipeline).quarantined
    assert found is not None
    assert found.agrees
    accounts = found.accounts
    total = sum(map(len, made.values()))
    assert (accounts.read, accounts.malformed, accounts.malformed_kept, accounts.dropped) == (total, 5, 5, 0)
    assert (accounts.results, accounts.failed, accounts.written, accounts.left_out) == (33, 4, 29, 1)
    assert accounts.differences() == []
    assert [(r.rule, r.rows, len(r.sample)) for r in found.rules] == [
        ("malformed", 5, 5),
        ("expect_column_values_to_be_between(n)", 3, 3),
        ("expect_expression_to_be_true", 1, 1),
    ]
    assert all(row.source is not None for row in found.rules[0].sample)
    kept = [
        r
        for r in read_all(broker.bootstrap, pipeline.quarantine_topic)
        if headers_of(r)["fencepost-rule"] != "malformed"
    ]
    assert {headers_of(r).get("fencepost-kept") for r in kept} == {"result"}, "the transform dropped the source record"
    assert {r.json["n"] for r in kept} == {-1, -2, -3, 3}


def report_of(pipeline: Pipeline) -> Report:
    from pathlib import Path

    verdict = latest(pipeline, day(1)).verdict
    assert verdict is not None
    return Report.model_validate_json(Path(verdict.report).with_suffix(".json").read_text())


def test_a_batch_above_the_limit_is_rejected_as_a_whole_until_the_limit_is_raised(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    pipeline = make_pipeline(
        KEEPING, RULES, source={"on_malformed": "quarantine"}, quality={"quarantine_limit": {"rows": 8}}
    )
    fill(broker, pipeline)
    plan_and_write(spark, pipeline, day(1))
    with pytest.raises(BatchRejected, match=r"9 records went to quarantine, above .*limit of 8 rows: malformed: 5"):
        validate_batch(spark, pipeline, day(1))
    batch = latest(pipeline, day(1))
    assert batch.state is State.REJECTED
    assert batch.verdict is not None
    assert batch.verdict.failed_critical == ("quality.quarantine_limit",)
    raised = make_pipeline(
        KEEPING,
        RULES,
        name=pipeline.name,
        source={"on_malformed": "quarantine"},
        quality={"quarantine_limit": {"rows": 9}},
    )
    run(spark, raised, day(1))
    assert (latest(raised, day(1)).state, latest(raised, day(1)).revision) == (State.PUBLISHED, 1)


@pytest.mark.deep
@pytest.mark.parametrize("megabytes", [256, 0])
def test_a_plain_consumer_of_a_staged_output_sees_good_rows_only_and_each_bad_one_is_in_quarantine_once(
    spark: Any, broker: Broker, make_pipeline: Make, megabytes: int
) -> None:
    """Above the limit nothing of the batch is in the output. The same batch is published once the limit allows it."""
    output = STAGED | {"atomic_megabytes": megabytes}
    source = {"on_malformed": "quarantine", "headers": True}
    shared: dict[str, Any] = {"source": source, "output": output}
    pipeline = make_pipeline(CARRYING, RULES, quality={"quarantine_limit": {"rows": 8}}, **shared)
    made = fill(broker, pipeline)
    bad = Counter([*made["low"], *made["nobody"], *made["broken"]])
    plan_and_write(spark, pipeline, day(1))
    with pytest.raises(BatchRejected, match=r"9 records went to quarantine, above"):
        validate_batch(spark, pipeline, day(1))
    with pytest.raises(TransitionRefused):
        advance_batch(pipeline, day(1))
    assert read_all(broker.bootstrap, pipeline.output.topic, committed=False) == []
    kept = read_all(broker.bootstrap, pipeline.quarantine_topic)
    assert Counter(map(seen_as, kept)) == bad
    for record in kept:
        assert list(record.headers[: len(HEADERS)]) == HEADERS
        assert len({name for name, _ in record.headers[len(HEADERS) :]}) == len(record.headers) - len(HEADERS) == 5

    raised = make_pipeline(CARRYING, RULES, name=pipeline.name, quality={"quarantine_limit": {"rows": 9}}, **shared)
    run(spark, raised, day(1))
    batch = latest(raised, day(1))
    assert (batch.state, batch.revision) == (State.PUBLISHED, 1)
    out = read_all(broker.bootstrap, pipeline.output.topic)
    assert Counter((r.key, r.json["n"], r.timestamp) for r in out) == Counter(
        (key, json.loads(value or b"")["n"], time) for key, value, time in made["good"]
    )
    others = [(name, value) for name, value in HEADERS if name not in {"fencepost-batch", "fencepost-timestamp"}]
    assert {r.headers for r in out} == {(*others, ("fencepost-batch", str(batch.id).encode()))}
    assert read_all(broker.bootstrap, pipeline.quarantine_topic) == kept, (
        "they are not published, and not written again"
    )
    assert batch.written is not None
    assert batch.publication is not None
    assert batch.written.rows == len(made["good"]) == len(out)
    found = report_of(raised).quarantined
    assert found is not None
    assert (found.agrees, found.accounts.written, found.accounts.quarantined) == (True, 30, 9)
    assert found.accounts.differences() == []


@pytest.mark.deep
def test_a_publication_that_is_given_up_leaves_quarantined_records_that_do_not_count(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    """Its new revision writes them again, under its own name: the ledger says whose count."""
    pipeline = make_pipeline(
        KEEPING, RULES, source={"on_malformed": "quarantine"}, output={"publish": "staged"}, quality=OFF
    )
    made = fill(broker, pipeline)
    plan_and_write(spark, pipeline, day(1))
    validate_batch(spark, pipeline, day(1))
    begin_batch(pipeline, day(1))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap}, logger=QUIET_LOG)
    places = [TopicPartition(pipeline.staging_topic, p, -1) for p in range(pipeline.output.partitions)]
    for future in admin.delete_records(places).values():
        future.result(30)
    run(spark, pipeline, day(1))
    view = Ledger(pipeline).read()
    old, new = view.known(day(1)).all
    assert (old.state, new.state) == (State.SUPERSEDED, State.PUBLISHED)
    assert Counter(r.batch for r in read_all(broker.bootstrap, pipeline.output.topic)) == {str(new.id): 30}
    kept = read_all(broker.bootstrap, pipeline.quarantine_topic)
    assert Counter(r.batch for r in kept) == {str(old.id): 9, str(new.id): 9}
    bad = Counter([*made["low"], *made["nobody"], *made["broken"]])
    assert Counter(seen_as(r) for r in kept if r.batch == str(new.id)) == bad
    assert [b.id for b in quarantined_batches(snapshot_of(view), None, None, every=False)] == [new.id]


@pytest.mark.deep
def test_other_rules_make_a_new_revision_and_are_not_judged_by(spark: Any, broker: Broker, make_pipeline: Make) -> None:
    """The rules decide what is written, so they are part of what a batch is; the rest of the suite is not."""
    pipeline = make_pipeline(KEEPING, RULES, source={"on_malformed": "drop"}, quality=OFF)
    fill(broker, pipeline)
    plan_and_write(spark, pipeline, day(1))
    first = latest(pipeline, day(1))
    looser = make_pipeline(
        KEEPING,
        RULES.replace("min_value: 0", "min_value: -1"),
        name=pipeline.name,
        source={"on_malformed": "drop"},
        quality=OFF,
    )
    with pytest.raises(TransitionRefused, match=r"rules of severity quarantine in .* have changed since it was"):
        validate_batch(spark, looser, day(1))
    run(spark, looser, day(1))
    second = latest(looser, day(1))
    assert (second.revision, second.state) == (2, State.PUBLISHED)
    assert first.written is not None
    assert second.written is not None
    assert (first.written.rows, second.written.rows) == (30, 30)
    assert second.written.quarantined == {"expect_column_values_to_be_between(n)": 2, "expect_expression_to_be_true": 2}
    assert second.written.malformed == len(BROKEN), "dropped, and told"


@pytest.mark.deep
def test_rows_that_aggregate_are_kept_as_results(spark: Any, broker: Broker, make_pipeline: Make) -> None:
    pipeline = make_pipeline(AGGREGATE, RULES, output={"layout": "output"}, quality=OFF)
    create_topic(broker.bootstrap, pipeline.source.topic, 2)
    records = [(b"k%d" % (i % 3), {"n": -5 if i % 3 == 1 else i, "name": "x"}, i % 2, at(1)) for i in range(30)]
    produce(broker.bootstrap, pipeline.source.topic, records)
    run(spark, pipeline, day(1))
    assert {r.key for r in read_all(broker.bootstrap, pipeline.output.topic)} == {b"k0", b"k2"}
    (kept,) = read_all(broker.bootstrap, pipeline.quarantine_topic)
    assert (kept.key, kept.json) == (b"k1", {"n": -50, "name": "x"})
    assert headers_of(kept)["fencepost-kept"] == "result"
    assert "fencepost-source" not in headers_of(kept)
    found = report_of(pipeline).quarantined
    assert found is not None
    assert (found.accounts.results, found.accounts.written, found.accounts.failed) == (3, 2, 1)


@pytest.mark.deep
def test_a_record_that_is_gone_from_quarantine_makes_the_verdict_undetermined(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    pipeline = make_pipeline(KEEPING, RULES, source={"on_malformed": "quarantine"}, quality=OFF)
    fill(broker, pipeline)
    plan_and_write(spark, pipeline, day(1))
    kept = read_all(broker.bootstrap, pipeline.quarantine_topic)
    first = kept[0]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap}, logger=QUIET_LOG)
    place = TopicPartition(pipeline.quarantine_topic, first.partition, first.offset + 1)
    next(iter(admin.delete_records([place]).values())).result(20)
    with pytest.raises(
        ReceiptsDisagree, match=r"receipts count 9 records in quarantine topic .* shows 8 .*no longer has partition"
    ):
        validate_batch(spark, pipeline, day(1))
    with pytest.raises(TransitionRefused):
        advance_batch(pipeline, day(1))


@pytest.mark.deep
def test_a_quarantine_topic_that_was_made_anew_asks_for_a_new_revision(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    pipeline = make_pipeline(KEEPING, RULES, source={"on_malformed": "quarantine"}, quality=OFF)
    fill(broker, pipeline)
    plan_and_write(spark, pipeline, day(1))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap}, logger=QUIET_LOG)
    admin.delete_topics([pipeline.quarantine_topic])[pipeline.quarantine_topic].result(20)
    run(spark, pipeline, day(1))
    batch = latest(pipeline, day(1))
    assert (batch.revision, batch.state) == (2, State.PUBLISHED)
    assert {r.batch for r in read_all(broker.bootstrap, pipeline.quarantine_topic)} == {str(batch.id)}


@pytest.mark.deep
def test_a_retry_that_finds_all_committed_counts_and_adds_up(
    spark: Any, broker: Broker, make_pipeline: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt dies before it records what it wrote; what it observed is lost, and nothing is written twice."""
    pipeline = make_pipeline(KEEPING, RULES, source={"on_malformed": "quarantine"}, quality=OFF)
    fill(broker, pipeline)
    with monkeypatch.context() as patch:
        patch.setattr("fencepost.steps.write._record", lambda *_: (_ for _ in ()).throw(Died))
        with pytest.raises(Died):
            plan_and_write(spark, pipeline, day(1))
    before = read_all(broker.bootstrap, pipeline.quarantine_topic)
    assert len(before) == 9
    run(spark, pipeline, day(1))
    assert read_all(broker.bootstrap, pipeline.quarantine_topic) == before
    found = report_of(pipeline).quarantined
    assert found is not None
    assert (found.accounts.read, found.accounts.results, found.accounts.differences()) == (39, 34, [])


class Died(Exception):
    """The driver ends here."""


def test_a_rule_that_the_gate_sees_otherwise_publishes_nothing(
    spark: Any, broker: Broker, make_pipeline: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What fails a rule should not have been written. If the two ever disagree, nobody knows which is right."""
    rules = RULES.replace("min_value: 0", "min_value: 5")
    pipeline = make_pipeline(KEEPING, rules, source={"on_malformed": "drop"}, quality=OFF)
    fill(broker, pipeline)
    asked = rules_module.fails

    def otherwise(one: Any, types: Any) -> Any:
        return F.col("n") < 3 if "min_value" in one.kwargs else asked(one, types)

    monkeypatch.setattr(rules_module, "fails", otherwise)
    plan_and_write(spark, pipeline, day(1))
    with pytest.raises(VerdictUndetermined, match=r"Records were written that fail a quarantine rule: expect_column"):
        validate_batch(spark, pipeline, day(1))


def test_what_is_wrong_with_a_rule_is_told_before_anything_is_written(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    pipeline = make_pipeline(KEEPING, RULES.replace("column: n,", "column: m,"), quality=OFF)
    fill(broker, pipeline)
    with pytest.raises(SettingsError, match=r"expectations\.0: .*there is no column m; there are n, name\."):
        plan_and_write(spark, pipeline, day(1))
    assert read_all(broker.bootstrap, pipeline.output.topic) == []


@pytest.mark.deep
def test_a_pipeline_without_bad_records_has_a_topic_that_stays_empty(
    spark: Any, broker: Broker, make_pipeline: Make
) -> None:
    pipeline = make_pipeline(KEEPING, RULES, source={"on_malformed": "quarantine"})
    create_topic(broker.bootstrap, pipeline.source.topic, 2)
    produce(broker.bootstrap, pipeline.source.topic, [(b"k", {"n": i, "name": None}, i % 2, at(1)) for i in range(10)])
    run(spark, pipeline, day(1))
    batch = latest(pipeline, day(1))
    assert batch.written is not None
    assert (batch.written.rows, batch.written.quarantined, batch.written.tasks) == (10, {}, 2)
    assert read_all(broker.bootstrap, pipeline.quarantine_topic, committed=False) == []
    settings = Deployment.of(pipeline).cluster.topic_configs(pipeline.quarantine_topic)
    assert settings["retention.ms"] == "-1"
    again = write_batch(spark, pipeline, day(1))
    assert again.changed is False
