"""A plan in the ledger and in Kafka: ranges by topic, task-partitions by kind, and the names that their writers go by."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from fencepost.config.pipeline import Pipeline
from fencepost.ledger.codec import parse, write_record
from fencepost.model import Layout, OffsetRange, Plan, TaskBlock, TaskKind, TaskPartition, TopicInput, UnreadRange
from fencepost.steps.writers import malformed_job, rows_job
from makers import a_batch, a_plan, a_source, a_topic, an_output, task_blocks

DEPLOYMENT: Any = SimpleNamespace(cluster=SimpleNamespace(settings=None), pipeline=Pipeline.model_construct(name="p"))
QUARANTINE = a_topic(0, topic="bad")


def planned(layout: Layout) -> Plan:
    """Reads two partitions, writes to an output of three, and quarantines malformed records."""
    output = an_output(7, 8, 9)
    tasks = {"rows_tasks": 2 if layout is Layout.SOURCE else 3, "malformed_tasks": 2}
    return a_plan((0, 5), (3, 4), layout=layout, output=output, quarantine=QUARANTINE, lane="4", **tasks)


def test_a_record_is_as_long_with_ten_thousand_task_partitions_as_with_one() -> None:
    one, many = (len(write_record(a_batch(plan=a_plan((0, 1), tasks=task_blocks(n, n))))) for n in (1, 10_000))
    assert many - one == 2 * len("0000")


def test_the_name_of_a_topic_stands_once_in_a_record_and_is_in_every_range_that_is_read_from_it() -> None:
    ranges = [(0, 5)] * 10_000
    unread = (UnreadRange(topic="in", partition=0, start=0, end=2, last_timestamp=7),)
    lost = (OffsetRange(topic="in", partition=1, start=0, end=3),)
    batch = a_batch(plan=a_plan(inputs=(a_source(*ranges, lost=lost, unread=unread),), tasks=task_blocks(10_000)))
    record = write_record(batch)
    (source,) = json.loads(record)["plan"]["inputs"]
    assert source["ranges"][9_999] == {"partition": 9_999, "start": 0, "end": 5}
    assert source["lost"] == [{"partition": 1, "start": 0, "end": 3}]
    assert source["unread"] == [{"partition": 0, "start": 0, "end": 2, "last_timestamp": 7}]
    assert parse(record, "the ledger") == batch


def test_a_range_of_another_topic_is_no_part_of_an_input() -> None:
    (own,) = a_source((0, 5)).ranges
    foreign = OffsetRange(topic="other", partition=0, start=0, end=5)
    values = {"topic": "in", "topic_id": "in-1"}
    assert TopicInput(**values, ranges=(own,)).ranges == (own,)
    for other in (foreign, foreign.model_dump()):
        with pytest.raises(ValidationError, match="another topic than in"):
            TopicInput(**values, ranges=(other,))


def test_task_partitions_are_numbered_through_and_each_is_for_a_partition() -> None:
    by_source, by_output = planned(Layout.SOURCE), planned(Layout.OUTPUT)
    assert by_source.tasks_of(TaskKind.ROWS) == (TaskPartition(0, "in", 0), TaskPartition(1, "in", 1))
    assert by_source.tasks_of(TaskKind.MALFORMED) == (TaskPartition(2, "in", 0), TaskPartition(3, "in", 1))
    assert by_output.tasks_of(TaskKind.ROWS) == tuple(TaskPartition(p, "out", p) for p in range(3))
    assert by_output.tasks_of(TaskKind.MALFORMED) == (TaskPartition(3, "in", 0), TaskPartition(4, "in", 1))
    assert list(by_source.tasks_by_range(TaskKind.ROWS).items()) == [(by_source.ranges[0], 0), (by_source.ranges[1], 1)]
    assert list(by_output.tasks_by_range(TaskKind.MALFORMED).values()) == [3, 4]
    assert [(plan.row_task_count, plan.receipt_count(bypassed=1)) for plan in (by_source, by_output)] == [
        (2, 4),
        (3, 5),
    ]


def test_writers_go_by_the_names_that_fence_attempts_of_any_release() -> None:
    """Fixed: under other names an attempt would neither fence an earlier one nor find what it has committed."""
    by_source, by_output = (a_batch(lease=11, plan=planned(layout)) for layout in (Layout.SOURCE, Layout.OUTPUT))
    rows, malformed = rows_job(DEPLOYMENT, by_source).writers, malformed_job(DEPLOYMENT, by_source).writers
    assert (rows.group, malformed.group) == ("p.lane-4", "p.malformed-4")
    assert rows.transactional_ids == malformed.transactional_ids == ("p.4.in.0", "p.4.in.1")
    assert rows.marks == malformed.marks == (("in", 0, 5), ("in", 1, 4))
    assert (rows.first, malformed.first, rows.lease) == (0, 2, 11)
    rows, malformed = rows_job(DEPLOYMENT, by_output).writers, malformed_job(DEPLOYMENT, by_output).writers
    assert rows.transactional_ids == ("p.4.out.0", "p.4.out.1", "p.4.out.2")
    assert rows.marks == (("out", 0, 0), ("out", 1, 0), ("out", 2, 0))
    assert malformed.transactional_ids == ("p.4.in.0", "p.4.in.1")
    assert malformed.marks == (("in", 0, 5), ("in", 1, 4))
    assert (rows.first, malformed.first) == (0, 3)


def test_a_task_partition_that_reads_no_range_of_its_plan_gets_no_mark() -> None:
    """At offset 0 its mark would say that it has read something."""
    rows = a_batch(lease=11, plan=a_plan((0, 5), rows_tasks=2))
    malformed = a_batch(lease=11, plan=a_plan((0, 5), rows_tasks=1, malformed_tasks=2, quarantine=QUARANTINE))
    for job, batch in ((rows_job, rows), (malformed_job, malformed)):
        with pytest.raises(KeyError, match="'in', 1"):
            job(DEPLOYMENT, batch)


ROWS, MALFORMED = TaskKind.ROWS, TaskKind.MALFORMED


@pytest.mark.parametrize(
    "blocks",
    [
        [(MALFORMED, "a")],
        [(ROWS, "a"), (ROWS, "a")],
        [(ROWS, "a"), (MALFORMED, "a"), (MALFORMED, "a")],
        [(ROWS, "a"), (MALFORMED, "a"), (ROWS, "b")],
    ],
)
def test_a_plan_has_one_block_of_task_partitions_for_each_kind_and_topic_those_of_rows_first(
    blocks: list[tuple[TaskKind, str]],
) -> None:
    made = tuple(TaskBlock(kind=kind, topic=topic, partitions=1) for kind, topic in blocks)
    with pytest.raises(ValidationError, match="one block of each kind and topic"):
        a_plan((0, 1), tasks=made)


def test_task_partitions_of_two_topics_are_numbered_through_and_have_ids_of_their_own() -> None:
    blocks = [(ROWS, "a", 2), (ROWS, "b", 1), (MALFORMED, "b", 1)]
    tasks = tuple(TaskBlock(kind=kind, topic=topic, partitions=n) for kind, topic, n in blocks)
    inputs = (a_source((0, 5), (0, 4), topic="a"), a_source((0, 3), topic="b"))
    plan = a_plan(inputs=inputs, tasks=tasks, lane="4", quarantine=QUARANTINE)
    batch = a_batch(lease=11, plan=plan)
    rows, malformed = rows_job(DEPLOYMENT, batch).writers, malformed_job(DEPLOYMENT, batch).writers
    assert rows.transactional_ids == ("p.4.a.0", "p.4.a.1", "p.4.b.0")
    assert rows.marks == (("a", 0, 5), ("a", 1, 4), ("b", 0, 3))
    assert (malformed.transactional_ids, malformed.marks, malformed.first) == (("p.4.b.0",), (("b", 0, 3),), 3)
    assert (plan.row_task_count, plan.receipt_count(bypassed=1)) == (3, 4)
    first, second, third = plan.ranges
    assert plan.tasks_by_range(ROWS) == {first: 0, second: 1, third: 2}
    assert plan.tasks_by_range(MALFORMED) == {third: 3}
