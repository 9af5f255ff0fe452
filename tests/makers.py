"""Batches and their parts made by hand: each a whole and valid value, of which a test names only what matters to it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from fencepost.model import (
    Batch,
    Decision,
    HistoryEntry,
    Interval,
    Layout,
    OffsetRange,
    Outcome,
    Plan,
    ReadSchemas,
    Receipt,
    SideTableState,
    SourceSchemas,
    SourceSummary,
    State,
    Tally,
    TaskBlock,
    TaskKind,
    TopicEnds,
    TopicInput,
    Verdict,
    WriteSummary,
)
from fencepost.outputs.topic.values import TopicOutput, TopicPublication
from fencepost.protocol.announcement import Announcement
from fencepost.protocol.decisions import Beginning, PreparedBatch, decide_publish, to_publish
from fencepost.protocol.planning import PlanFacts
from fencepost.protocol.view import View

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MILLIS = 1_767_225_600_000  # the same moment, as Kafka counts
DAY = timedelta(days=1)


def a_day(number: int) -> Interval:
    """The day of that number, 0 being 1 January 2026."""
    return Interval(start=NOW + number * DAY, end=NOW + (number + 1) * DAY)


def a_source(*ranges: tuple[int, int], topic: str = "in", **changes: Any) -> TopicInput:
    """What is read of a topic: where each partition's range starts, and its end."""
    parts = tuple(OffsetRange(topic=topic, partition=p, start=s, end=e) for p, (s, e) in enumerate(ranges))
    return TopicInput(**{"topic": topic, "topic_id": f"{topic}-1", "ranges": parts, **changes})


def a_topic(*ends: int, topic: str = "staging", **changes: Any) -> TopicEnds:
    """A topic that ends there, and is no output: of staged or quarantined records, or where a write ended."""
    return TopicEnds(**{"topic": topic, "topic_id": f"{topic}-1", "ends": ends, **changes})


def an_output(*ends: int, topic: str = "out", **changes: Any) -> TopicOutput:
    """An output topic that ends there."""
    return TopicOutput(**{"topic": topic, "topic_id": f"{topic}-1", "ends": ends, **changes})


def of_source(values: ReadSchemas, keys: ReadSchemas | None = None, topic: str = "in") -> dict[str, SourceSchemas]:
    """The schemas of a source, by its topic."""
    return {topic: SourceSchemas(value=values, key=keys)}


def task_blocks(rows: int, malformed: int = 0, topic: str = "in", source: str = "in") -> tuple[TaskBlock, ...]:
    """So many task-partitions of rows, for the partitions of a topic, and so many of malformed records of the source."""
    of_rows = TaskBlock(kind=TaskKind.ROWS, topic=topic, partitions=rows)
    return (of_rows, *([TaskBlock(kind=TaskKind.MALFORMED, topic=source, partitions=malformed)] if malformed else []))


def a_plan(*ranges: tuple[int, int], rows_tasks: int | None = None, malformed_tasks: int = 0, **changes: Any) -> Plan:
    """A plan that reads these ranges of topic `in`; with a task-partition of rows for each, if nothing else is said."""
    values: dict[str, Any] = {
        "inputs": (a_source(*ranges),),
        "output": an_output(0),
        "ledger_topic_id": "",
        "layout": Layout.SOURCE,
        "lane": "0",
        "digests": {"transform": "now"},
        "software": "1",
        "output_format": "json",
        "planned_at": NOW,
        **changes,
    }
    source = values["inputs"][0]
    written = values.get("staging") or values["output"]
    of = source.topic if values["layout"] is Layout.SOURCE else written.topic
    values.setdefault("tasks", task_blocks(rows_tasks or max(1, len(source.ranges)), malformed_tasks, of, source.topic))
    values.setdefault("unfinished_ids", {})
    return Plan(**values)


def reading(batch: Batch, ranges: tuple[OffsetRange, ...], lost: tuple[OffsetRange, ...] = ()) -> Batch:
    """The batch with other ranges of its source."""
    (source,) = batch.plan.inputs
    return planned(batch, inputs=(source.model_copy(update={"ranges": ranges, "lost": lost}),))


def planned(batch: Batch, **changes: Any) -> Batch:
    """The batch with another plan: what is named is changed in it."""
    return batch.model_copy(update={"plan": batch.plan.model_copy(update=changes)})


def the_facts(**changes: Any) -> PlanFacts:
    """What a plan depends on, of a pipeline that stages and quarantines nothing; the test gives neighbours and source."""
    values: dict[str, Any] = {
        "pipeline": "p",
        "output": an_output(0),
        "staging": None,
        "quarantine": None,
        "ledger_topic_id": "ledger-0",
        "layout": Layout.SOURCE,
        "lanes": 64,
        "digests": {"transform": "0"},
        "software": "model",
        "output_format": "json",
        "schemas": None,
        "now": NOW,
        "clock": MILLIS,
    }
    said = {**values, **changes}
    if (source := said.pop("source", None)) is not None:
        settings = {"accept_loss": True, "quarantines_malformed": False}
        said["sources"] = (replace(source, **{name: said.pop(name, value) for name, value in settings.items()}),)
    said.setdefault("sources", ())
    return PlanFacts(**{"reads": tuple(one.topic for one in said["sources"]) or ("in",), **said})


def a_table(name: str = "airlines", fingerprint: str = "f" * 32, **changes: Any) -> SideTableState:
    """The state of a side table with one row."""
    schema = '{"type":"struct","fields":[{"name":"carrier","type":"string","nullable":true,"metadata":{}}]}'
    values = {"rows": 1, "bytes": 8, "value_schema": schema, "read_at": NOW, **changes}
    return SideTableState(name=name, fingerprint=fingerprint, **values)


def a_receipt(task: int = 0, lease: int = 0, rows: int = 1, topic: str = "out", **changes: Any) -> Receipt:
    """A receipt of records in one topic; their fingerprint is made of their number."""
    topics = {topic: Tally(rows=rows, fingerprint=rows * 7919)}
    return Receipt(**{"task": task, "ledger": "", "lease": lease, "topics": topics, **changes})


def a_written(*receipts: Receipt, **changes: Any) -> WriteSummary:
    """The end of a write that brought these receipts, and read as many records as it wrote."""
    rows = sum(t.rows for r in receipts for t in r.topics.values())
    values = {"rules": (), "output": a_topic(rows, topic="out"), "rows_in": rows, "seconds": 0, "written_at": NOW}
    said = {**values, **changes}
    counts = {name: said.pop(name) for name in SourceSummary.model_fields if name in said}
    return WriteSummary.of(receipts or (a_receipt(rows=0),), sources={"in": SourceSummary(**counts)}, **said)


def counted(written: WriteSummary, **changes: Any) -> WriteSummary:
    """The summary with other counts of its only source."""
    ((topic, summary),) = written.sources.items()
    return written.model_copy(update={"sources": {topic: summary.model_copy(update=changes)}})


def a_publication(lease: int | None = 7, **changes: Any) -> TopicPublication:
    """A publication in one transaction that has begun and has no receipt yet."""
    values = {
        "lane": 0,
        "ledger": "",
        "lease": lease,
        "tasks": 1,
        "atomic": True,
        "begun": a_topic(0, topic="out"),
        "begun_at": NOW,
    }
    return TopicPublication(**{**values, **changes})


def staged(batch: Batch, **changes: Any) -> Batch:
    """The batch as one that is written to a staging topic first, with that topic's name where it names its output's."""
    after = planned(batch, staging=a_topic(*batch.plan.output.ends), staging_timestamp=MILLIS)
    if batch.written is not None:
        topics = {{"out": "staging"}.get(name, name): tally for name, tally in batch.written.topics.items()}
        output = a_topic(*batch.written.output.ends)
        written = batch.written.model_copy(update={"topics": topics, "output": output})
        after = after.model_copy(update={"written": written})
    return after.model_copy(update=changes)


def a_verdict(outcome: Outcome, number: int = 1, **changes: Any) -> Verdict:
    """The verdict of that validation."""
    values = {"reason": "", "expectations": 1, "suite_digest": "", "report": "r", "seconds": 0, "judged_at": NOW}
    return Verdict(**{"outcome": outcome, "number": number, **values, **changes})


def publish_prepared(
    view: View,
    interval: Interval,
    now: datetime,
    decision: Decision | None = None,
    beginning: Beginning | None = None,
    read: View | None = None,
) -> tuple[Batch, ...]:
    """Decide about a publication as advance does. It was prepared on the ledger `read`, or else on the same one."""
    batch = to_publish(view if read is None else read, interval, decision)
    prepared = None if batch is None else PreparedBatch(batch.id, beginning)
    return decide_publish(view, interval, now, decision, prepared)


def a_decision(action: str, **changes: Any) -> Decision:
    """An operator's word."""
    return Decision(**{"action": action, "by": "operator", "reason": "looked at it", "decided_at": NOW, **changes})


def an_announcement(**changes: Any) -> Announcement:
    """A publication of a topic's batch of six records."""
    values = {
        "state": "published",
        "ledger_id": "ledger-1",
        "cluster_id": "cluster-1",
        "batch": f"p/{a_day(0)}/1",
        "interval": a_day(0),
        "revision": 1,
        "kind": "topic",
        "output": "out",
        "topic_id": "out-1",
        "ranges": {"10": (0, 2), "2": (5, 9)},
        "header": "fencepost-batch",
        "format": "json",
        "columns": [{"name": "n", "type": "integer"}],
        "rows": 6,
        "verdict": Outcome.PASSED,
        "decided_by_person": False,
        "time": NOW,
        "complete_until": a_day(0).end,
    }
    return Announcement(**{**values, **changes})


def a_batch(state: State = State.PLANNED, **changes: Any) -> Batch:
    """Revision 1 of the first day in that state; what a batch in that state has beside its plan, the test gives."""
    values = {"pipeline": "p", "interval": a_day(0), "revision": 1, "state": state, "lease": 0, "plan": a_plan()}
    values["history"] = (HistoryEntry(state=state, at=NOW),)
    return Batch(**{**values, **changes})
