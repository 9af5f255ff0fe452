"""A user with exactly the rights of the list, on a broker that forbids all else; then with each of them taken away."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from typer.testing import CliRunner

from conftest import at, day
from fencepost.cli.app import app
from fencepost.config.pipeline import Pipeline
from fencepost.config.rights import RIGHTS, Resource, Right, Use, acl_commands, rights_of, rights_of_reader
from fencepost.doctor.inspection import Inspection
from fencepost.doctor.rights import check_rights
from fencepost.errors import AccessDenied
from fencepost.findings import Level
from fencepost.jars import java
from fencepost.kafka.client_settings import ClientSettings
from fencepost.ledger.deployment import Deployment
from fencepost.ledger.ledger import Ledger
from fencepost.model import State
from fencepost.preview import suggest
from fencepost.preview.trial import try_pipeline
from fencepost.preview.trial_input import newest, of_interval
from fencepost.reading.validated import read_validated
from fencepost.steps.advance import advance_batch
from fencepost.steps.plan import plan_batch
from fencepost.steps.validate import validate_batch
from fencepost.steps.write import write_batch
from fencepost_stack.jars import class_path
from fencepost_stack.pipeline_users import binding_of
from fencepost_stack.state_folder import StateFolder
from kafka_tools import QUIET_LOG, create_topic, end_offset, group_offsets, produce, read_all
from rigs.kafka_cluster import KafkaCluster, secured_broker
from steps import announced, latest, on_session, replay, run

pytestmark = pytest.mark.deep

Make = Callable[..., Pipeline]
USER, DAYS = "etl", 3
NEEDED = [right for right in RIGHTS if right.use is Use.NEEDED]
TOLERANT = {"quality": {"quarantine_limit": "none"}}
RULE = """
expectations:
  - type: expect_column_values_to_not_be_null
    kwargs: {column: name}
    severity: quarantine
"""
LOOKS_UP = """
def transform(frame, names):
    return frame.join(names.select("n"), "n", "left").selectExpr("_key", "n", "n * 2 AS doubled", "name")
"""
numbers = count(1)
STAGED = {"output": {"publish": "staged", "partitions": 1}, "source": {"on_malformed": "quarantine"}} | TOLERANT


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with secured_broker(tmp_path_factory.mktemp("acls")) as broker:
        broker.set_password(USER)
        yield broker


@pytest.fixture
def make_pipeline(make_pipeline: Make) -> Make:
    """Make a pipeline that uses each right of the list: it has a side table that is a topic."""

    def make(**settings: Any) -> Pipeline:
        name = settings.pop("name", None) or f"guarded{next(numbers)}"
        table = {"topic": f"{name}-names", "schema": {"n": "int"}, "key": "n", "not_empty": False}
        return make_pipeline(LOOKS_UP, name=name, tables={"names": table}, **settings)

    return make


def named(right: Right) -> str:
    """A test's id."""
    return f"{right.operation} on {right.resource} {right.name}"


def grant(broker: KafkaCluster, rights: Iterable[Right], user: str = USER) -> None:
    broker.ensure_rights([binding_of(right, user) for right in set(rights)])


def revoke(broker: KafkaCluster, right: Right, user: str = USER) -> None:
    given = binding_of(right, user)
    kind, pattern = given.restype, given.resource_pattern_type
    asked = AclBindingFilter(kind, given.name, pattern, given.principal, "*", given.operation, given.permission_type)
    assert broker.admin.delete_acls([asked])[asked].result(20), "it was granted"


def prepare(broker: KafkaCluster, pipeline: Pipeline, *, missing: Iterable[str] = ()) -> None:
    """Topics, and a record to publish, one that is malformed, and one that a rule sets aside."""
    topics = {pipeline.output.topic, pipeline.staging_topic, pipeline.quarantine_topic}
    for topic in topics - set(missing):
        create_topic(broker.direct, topic, 1)
    if pipeline.ledger_topic not in missing:
        create_topic(broker.direct, pipeline.ledger_topic, 1, **{"cleanup.policy": "compact"})
    if pipeline.announcements_topic not in missing:
        create_topic(broker.direct, pipeline.announcements_topic, 1)
    create_topic(broker.direct, pipeline.source.topic, 1)
    create_topic(broker.direct, pipeline.topic_tables["names"].topic, 1)
    records = [{"n": 1, "name": "x"}, b"not JSON", {"n": 2, "name": None}]
    produce(broker.direct, pipeline.source.topic, [(b"k", value, 0, at(1)) for value in records])


def of(pipeline: Pipeline, wanted: Right) -> Right:
    """A right of the list with the pipeline's own name."""
    return rights_of(pipeline)[RIGHTS.index(wanted)]


@pytest.fixture
def staged(secured: KafkaCluster, make_pipeline: Make) -> Pipeline:
    """A staged pipeline that quarantines, with all its rights; its topics are there."""
    pipeline = make_pipeline(expectations=RULE, kafka=secured.scram(USER), **STAGED)
    prepare(secured, pipeline)
    grant(secured, rights_of(pipeline))
    return pipeline


@pytest.mark.parametrize("login", ["SCRAM", "client certificate", "plain TLS"])
def test_with_the_rights_of_the_list_all_is_green_and_nothing_else_is_asked_for(
    login: str, spark: Any, secured: KafkaCluster, make_pipeline: Make
) -> None:
    """Of SCRAM with all rights and topics that are missing; of a client certificate with those that are needed, and topics
    that are there. With plain TLS everybody is User:ANONYMOUS, of whom rights say little."""
    kafka = {"SCRAM": secured.scram(USER), "client certificate": secured.mutual(), "plain TLS": secured.tls()}[login]
    pipeline = make_pipeline(expectations=RULE, kafka=kafka, **STAGED)
    rights, before = rights_of(pipeline), len(secured.denials())
    if login == "SCRAM":
        prepare(secured, pipeline, missing={r.name for r in rights})
        grant(secured, rights)
    else:
        prepare(secured, pipeline)
        grant(secured, [r for r in rights if r.use is Use.NEEDED], "client")
    assert run(spark, pipeline, day(1)).state is State.PUBLISHED
    assert [r.json["n"] for r in read_all(secured.direct, pipeline.output.topic)] == [1]
    assert replay(spark, pipeline, day(1)).state is State.PUBLISHED
    produce(secured.direct, pipeline.source.topic, [(b"k", {"n": 3, "name": "x"}, 0, at(2))])
    assert plan_batch(pipeline, day(2)).state is State.PLANNED  # it also looks how long unread records stay
    denied = secured.denials()[before:]
    if login == "client certificate":
        denied = [line for line in denied if "operation = DESCRIBE_CONFIGS" not in line]
    assert denied == []


def test_who_may_only_read_looks_back_and_tries(
    spark: Any,
    secured: KafkaCluster,
    staged: Pipeline,
    make_pipeline: Make,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """The broker refuses nothing but a topic's settings, which are an extra."""
    for number in range(2, DAYS + 2):
        records = [{"n": n, "name": "x"} for n in range(number)] + [b"not JSON"]
        produce(secured.direct, staged.source.topic, [(b"k", value, 0, at(number)) for value in records])
    for number in range(1, DAYS + 1):
        run(spark, staged, day(number))
    run(spark, staged, day(1), reprocess=True)
    secured.set_password("reader")
    grant(secured, [right for right in rights_of(staged) if right.operation == "Read"], "reader")
    reader = make_pipeline(name=staged.name, expectations=RULE, kafka=secured.scram("reader"), **STAGED)
    suite, before = tmp_path / "suite.yaml", len(secured.denials())
    suite.write_text(
        f"expectations: [{{type: expect_column_values_to_be_between, kwargs: {{column: n, max_value: {DAYS - 2}}}}}]"
    )
    monkeypatch.setattr(suggest, "AT_LEAST", DAYS)  # a suggestion of fewer batches asks for the same rights

    on_session(monkeypatch, spark, reader)

    def said(name: str, *options: str) -> Any:
        done = CliRunner().invoke(app, [name, reader.name, *options, "--json"], catch_exceptions=False)
        return json.loads(done.stdout)

    assert said("suggest")["batches"] == DAYS
    judged = said("judge", "--suite", str(suite))["published"]
    assert [one["now"] for one in judged] == [*["passed"] * (DAYS - 1), "rejected"]
    span = ("--start", "2026-01-01", "--end", "2026-01-02")
    assert said("diff", *span, "--revisions", "1", "2")["same"] == 1
    assert len(said("trace", "--output", f"{reader.output.topic}:0:0")["batches"]) == 1
    traced = said("trace", "--source", f"{reader.source.topic}:0:1")
    assert [one["rule"] for one in traced["quarantine"]] == ["malformed"]
    assert [one["records"] for one in said("schema", "--sample", "50")["misfits"]] == [DAYS + 1], "not JSON"
    assert said("status")
    assert said("quarantine", *span)
    deployment = Deployment.of(reader)
    assert try_pipeline(spark, deployment, newest(deployment, 5)).passes
    assert try_pipeline(spark, deployment, of_interval(deployment, day(DAYS + 1))).read == DAYS + 2
    denied = [line for line in secured.denials()[before:] if "operation = DESCRIBE_CONFIGS" not in line]
    assert denied == []


@pytest.mark.parametrize("right", [r for r in NEEDED if r.name != "pipeline." or r.resource != "group"], ids=named)
def test_a_plan_names_the_right_that_is_lacking_and_plans_nothing(
    right: Right, secured: KafkaCluster, staged: Pipeline
) -> None:
    lacking = of(staged, right)
    revoke(secured, lacking)
    with pytest.raises(
        AccessDenied, match=rf"{lacking.operation} on {lacking.resource} {lacking.name}.*fencepost acls"
    ):
        plan_batch(staged, day(1))
    assert end_offset(secured.direct, staged.ledger_topic, 0) == 0
    assert group_offsets(secured.direct, staged.group, staged.source.topic, [0]) == {}


def test_a_plan_names_all_that_is_lacking_on_topics_at_once(secured: KafkaCluster, make_pipeline: Make) -> None:
    pipeline = make_pipeline(expectations=RULE, kafka=secured.scram(USER), **STAGED)
    prepare(secured, pipeline)
    with pytest.raises(AccessDenied) as raised:
        plan_batch(pipeline, day(1))
    for right in rights_of(pipeline):
        if right.resource is Resource.TOPIC and right.use is Use.NEEDED:
            assert f"{right.operation} on topic {right.name}" in str(raised.value)


def test_who_may_not_read_a_topics_settings_gets_no_ledger(secured: KafkaCluster, staged: Pipeline) -> None:
    """The check of all rights on topics comes first in a plan; this is what the right is for."""
    (right,) = (r for r in rights_of(staged) if (r.name, r.operation) == (staged.ledger_topic, "DescribeConfigs"))
    revoke(secured, right)
    with pytest.raises(AccessDenied, match=rf"DescribeConfigs on topic {staged.ledger_topic}\."):
        Ledger(staged).create()


# Which step needs a right, of those that a batch is planned with. The last one comes when all is written.
WRITE = [
    "source Read",
    "tables Read",
    "staging Write",
    "quarantine Write",
    "pipeline. Read",
    "pipeline. Write",
    "ledger Read",
]
WRITE += ["ledger Write"]
VALIDATE = ["staging Read", "quarantine Read"]
ADVANCE = ["output Write", "output Read", "pipeline Read", "announcements Write"]


def test_a_right_that_is_taken_away_behind_the_plan_is_named_by_the_step_that_needs_it(
    spark: Any, secured: KafkaCluster, staged: Pipeline
) -> None:
    """So each is needed by itself, whatever a plan checks. The source's offsets stay, and nothing is half done: with the right
    given back the same step does its work."""
    plan_batch(staged, day(1))
    steps = {
        "write": (WRITE, lambda: write_batch(spark, staged, day(1))),
        "validate": (VALIDATE, lambda: validate_batch(spark, staged, day(1))),
        "advance": (ADVANCE, lambda: advance_batch(staged, day(1), spark=lambda: spark)),
    }
    rights = {f"{right.name} {right.operation}": right for right in NEEDED if right.operation != "DescribeConfigs"}
    assert set(WRITE + VALIDATE + ADVANCE) == set(rights)
    for needs, step in steps.values():
        for right in needs:
            lacking, began = of(staged, rights[right]), len(secured.denials())
            revoke(secured, lacking)
            # Without Read on a topic that it only reads, the user does not see the topic.
            operations = "Read|Describe" if right in ("source Read", "tables Read") else lacking.operation
            with pytest.raises(AccessDenied) as raised:
                step()
            told = (
                rf"the user lacks (.*; )?({operations}) on {lacking.resource} {re.escape(lacking.name)}.*fencepost acls"
            )
            assert re.search(told, str(raised.value)), f"{right}: {raised.value}"
            assert secured.denials()[began:], f"{right}: the broker did not refuse it"
            moved = group_offsets(secured.direct, staged.group, staged.source.topic, [0])
            assert moved.get(0, 0) == 0, right  # the beginning of a publication writes down where it stands
            grant(secured, [lacking])
        step()
    assert latest(staged, day(1)).state is State.PUBLISHED
    assert [r.json["n"] for r in read_all(secured.direct, staged.output.topic)] == [1]


@pytest.mark.parametrize("right", [r for r in RIGHTS if r.use is Use.CREATE], ids=named)
def test_who_may_not_create_a_topic_that_is_missing_is_told_so(
    right: Right, secured: KafkaCluster, make_pipeline: Make
) -> None:
    pipeline = make_pipeline(expectations=RULE, kafka=secured.scram(USER), **STAGED)
    lacking = of(pipeline, right)
    prepare(secured, pipeline, missing={lacking.name})
    grant(secured, set(rights_of(pipeline)) - {lacking})
    with pytest.raises(
        AccessDenied, match=rf"creating topic {lacking.name}, which is missing.*Create on topic {lacking.name}"
    ):
        plan_batch(pipeline, day(1))
    assert group_offsets(secured.direct, pipeline.group, pipeline.source.topic, [0]) == {}


def test_the_doctor_names_the_missing_topics_that_a_plan_may_not_create_and_creates_none(
    secured: KafkaCluster, make_pipeline: Make
) -> None:
    pipeline = make_pipeline(expectations=RULE, kafka=secured.scram(USER), **STAGED)
    creates = [of(pipeline, right) for right in RIGHTS if right.use is Use.CREATE]
    prepare(secured, pipeline, missing={right.name for right in creates})
    grant(secured, rights_of(pipeline))
    assert [one.level for one in check_rights(Inspection(pipeline))] == [Level.OK]
    lacking = creates[0]
    revoke(secured, lacking)
    (told,) = check_rights(Inspection(pipeline))
    assert (told.level, told.found) == (
        Level.WARNING,
        f"Topic {lacking.name} does not exist, and this user may not create it.",
    )
    assert f"--operation Create --topic {lacking.name}" in told.command
    there = set(secured.admin.list_topics(timeout=20).topics)
    assert there.isdisjoint(right.name for right in creates)


def test_create_is_asked_for_only_of_topics_that_are_missing(secured: KafkaCluster, staged: Pipeline) -> None:
    for right in rights_of(staged):
        if right.use is Use.CREATE:
            revoke(secured, right)
    before = len(secured.denials())
    assert plan_batch(staged, day(1)).state is State.PLANNED
    assert secured.denials()[before:] == []


def test_who_may_not_add_partitions_to_the_staging_topic_is_told_so(secured: KafkaCluster, make_pipeline: Make) -> None:
    pipeline = make_pipeline(expectations=RULE, kafka=secured.scram(USER), **STAGED)
    (right,) = (r for r in rights_of(pipeline) if r.use is Use.GROW)
    prepare(secured, pipeline, missing={pipeline.output.topic})
    create_topic(secured.direct, pipeline.output.topic, 2)
    grant(secured, set(rights_of(pipeline)) - {right})
    with pytest.raises(AccessDenied, match=rf"Alter on topic {pipeline.staging_topic}\."):
        plan_batch(pipeline, day(1))
    grant(secured, [right])
    assert plan_batch(pipeline, day(1)).state is State.PLANNED


def test_a_reader_with_the_printed_rights_reads_and_may_do_nothing_else(
    spark: Any, secured: KafkaCluster, staged: Pipeline
) -> None:
    """By event and announcements, as a user of its own: no ledger, no source, no writing."""
    run(spark, staged, day(1))
    secured.set_password("reports")
    kafka = secured.scram("reports")
    event = announced(staged, day(1), secured.direct)
    with pytest.raises(AccessDenied):
        read_validated(spark, event, kafka=kafka, group="reports")
    grant(secured, rights_of_reader(staged, "reports"), "reports")
    before = len(secured.denials())
    assert [row["n"] for row in read_validated(spark, event, kafka=kafka, group="reports").collect()] == [1]
    assert secured.denials()[before:] == []
    told = {(right.resource, right.name, right.operation) for right in rights_of_reader(staged, "reports")}
    assert told == {
        (Resource.TOPIC, staged.output.name, "Read"),
        (Resource.TOPIC, staged.announcements_topic, "Read"),
        (Resource.GROUP, "reports", "Read"),
    }
    client = AdminClient(ClientSettings(kafka).values, logger=QUIET_LOG)
    seen = set(client.list_topics(timeout=20).topics)
    assert staged.ledger_topic not in seen
    assert staged.source.topic not in seen


def test_kafkas_own_tool_takes_the_commands(secured: KafkaCluster, make_pipeline: Make) -> None:
    """Of each kind of resource one, in one virtual machine each."""
    pipeline = make_pipeline(kafka=secured.scram(USER), **STAGED)
    principal = "User:CN=o'neill, O=x"
    ((_, commands), *_) = acl_commands(
        [r for r in rights_of(pipeline) if r.name.startswith(f"{pipeline.name}.")], principal, secured.direct
    )
    tool = f"{java()} -cp '{class_path(StateFolder.default().jars_kafka)}' org.apache.kafka.tools.AclCommand"
    for command in commands:
        subprocess.run(["sh", "-c", command.replace("kafka-acls.sh", tool, 1)], check=True, capture_output=True)
    asked = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, principal, None, AclOperation.ANY, AclPermissionType.ANY
    )
    wanted = {
        binding_of(r, principal.removeprefix("User:")) for r in rights_of(pipeline) if r.name == f"{pipeline.name}."
    }
    assert set(secured.admin.describe_acls(asked).result(20)) == wanted
