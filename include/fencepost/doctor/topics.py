"""Checks that a pipeline's topics keep records long enough and accept what a run writes, and that no transaction hides
records.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from fencepost.counts import count_of
from fencepost.doctor.inspection import OFFSETS, TRANSACTIONS, Inspection, Role, duration
from fencepost.doctor.observed_state import observed_state
from fencepost.drafting.source import compaction
from fencepost.errors import AccessDenied, SideTableRefused, TopicMissing
from fencepost.findings import Finding, Level, error, ok, skipped, warning
from fencepost.kafka.clients import PRODUCER_DEFAULTS
from fencepost.kafka.cluster import Replicas
from fencepost.ledger.codec import write_record
from fencepost.ledger.ledger import KEEP_THE_TOPIC, unfit_for_ledger
from fencepost.model import Interval, describe_timestamp
from fencepost.outputs.quarantine import ROOM, QuarantineTopic
from fencepost.protocol.obstacle import obstacle
from fencepost.protocol.ranges import CLOCKS
from fencepost.protocol.snapshot import snapshot_of

AFTER_ITS_END = timedelta(seconds=30)  # brokers check every ten seconds for transactions to end


def check_sources(inspection: Inspection) -> Iterator[Finding]:
    """Checks that the sources exist, and that compaction does not delete a record before it is read, or read again by a
    retry.
    """
    for source in inspection.sources:
        found, do = compaction(source.name, (source.settings or {}).get("cleanup.policy", "delete"))
        if found:
            patience = round(inspection.pipeline.schedule.patience.total_seconds() * 1000)
            yield warning(found, do, inspection.set_topic(source.name, min_compaction_lag_ms=patience))
        else:
            yield ok(f"topic {source.name} has {count_of(source.there.partitions, 'partition')}")


def check_table_topics(inspection: Inspection) -> Iterator[Finding]:
    """Checks that the topics of side tables exist, have records, and are compacted."""
    found = False
    for name, table in inspection.pipeline.topic_tables.items():
        topic = inspection.cluster.describe(table.topic)
        if table.not_empty and inspection.cluster.earliest(topic) == inspection.cluster.last_stable(topic):
            found = True
            yield error(
                f"Topic {topic.name} of side table {name} has no records, so a run would fail.",
                "Fill it, or set not_empty: false if an empty table is as it should be.",
                kind=SideTableRefused,
            )
        try:
            policy = inspection.cluster.topic_config(topic.name, "cleanup.policy")
        except AccessDenied:
            continue
        if policy != "compact":
            found = True
            yield warning(
                f"Topic {topic.name} of side table {name} has cleanup.policy={policy}: Kafka deletes records that are older than "
                "retention.ms, and their rows vanish from the table.",
                "Let Kafka keep the newest record of each key.",
                inspection.set_topic(topic.name, cleanup_policy="compact"),
            )
    if not found:
        yield ok(
            f"{count_of(len(inspection.pipeline.topic_tables), 'side table is a topic', 'side tables are topics')}"
        )


def check_source_times(inspection: Inspection) -> Iterator[Finding]:
    """Checks that no record of a source is dated ahead of the clock."""
    found, limit = False, (inspection.now + CLOCKS).timestamp() * 1000
    for source in inspection.sources:
        for partition, (offset, at) in inspection.cluster.largest_times(source.there).items():
            if at <= limit:
                continue
            found = True
            yield warning(
                f"Source topic {source.name} has a record that is dated ahead of the clock (partition {partition}, "
                f"offset {offset}: {describe_timestamp(at)}). The batch that reads up to this offset includes the "
                "record. As long as the topic has the record, a plan reads the partition's records to find the end of "
                "an interval, and Kafka does not delete them by age.",
                "Fix the producer, which may send microseconds, and let Kafka refuse such records.",
                inspection.set_topic(source.name, message_timestamp_after_max_ms=3_600_000),
            )
    if not found:
        yield ok("no record is dated ahead of the clock")


def check_output_retention(inspection: Inspection) -> Iterator[Finding]:
    """Checks that the topics of batches accept records of the batches' age, and keep the records until they are judged."""
    interval, found = inspection.newest_due, False
    for role in inspection.own_topics:
        refusal = _refusal(inspection, role, interval)
        if refusal:
            found = True
            yield error(f"The {role.role} topic {role.name} {refusal}", "")
    if not found:
        yield ok(f"a batch of {interval} would be kept until it is judged")


def _refusal(inspection: Inspection, role: Role, interval: Interval) -> str | None:
    """Returns why a topic would refuse the interval's records or delete them too early. Returns None if it would not,
    or if that is not known.
    """
    if role.topic is None or role.settings is None:
        return None
    match role.role:
        case "quarantine":
            return QuarantineTopic.refusal(role.settings)
        case _:
            topic = next((one for one in inspection.destination.topics if one.role == role.role), None)
            return topic.refusal(role.settings, interval) if topic is not None else None


def check_topics_of_batches(inspection: Inspection) -> Iterator[Finding]:
    """Checks that every batch under way can go on. The topics that it was planned with have to exist and have its
    records.
    """
    found = False
    for row in snapshot_of(inspection.view).unfinished:
        batch = row.newest
        stopped = obstacle(batch, observed_state(inspection.deployment, batch))
        if stopped is not None and stopped.lasting:
            found = True
            yield error(f"Batch {batch.id} cannot go on: {stopped.why}.", stopped.next_step(batch))
    if not found:
        yield ok("every batch under way still has its topics, and its records in them")


def check_ledger_topic(inspection: Inspection) -> Finding:
    """Checks that the ledger's topic has one partition and keeps the newest record of every key."""
    role = inspection.role("ledger")
    if role is None:
        return ok("the topic does not exist yet; the first plan creates it")
    if role.settings is None:
        return skipped(f"Kafka does not show the settings of topic {role.name}", "Grant DescribeConfigs on it.")
    refusal = unfit_for_ledger(role.there, role.settings.get("cleanup.policy", "delete"))
    if refusal:
        return error(f"The {refusal}", KEEP_THE_TOPIC, inspection.set_topic(role.name, cleanup_policy="compact"))
    return ok(f"topic {role.name} is compacted and has one partition")


def check_replication(inspection: Inspection) -> Iterator[Finding]:
    """Checks that acknowledged records survive the loss of a broker, and that writes continue without it."""
    found = list(_replication(inspection))
    errors = [one for one in found if one.level is Level.ERROR]
    if inspection.brokers > 1:
        yield from found or [
            ok(f"each topic has replicas on several of {inspection.brokers} brokers, and enough replicas are in sync")
        ]
        return
    yield from errors
    yield warning(
        "The cluster has one broker. If its disk fails, all data are lost, including the ledger and the marks.",
        "This is fine for trials. Use three brokers or more for data that matter.",
    )


def _replication(inspection: Inspection) -> Iterator[Finding]:
    """Yields the findings for the pipeline's topics, and for the topics in which Kafka keeps marks and transactions."""
    own = [
        (f"{one.role} topic {one.name}", one.name, one.settings)
        for one in inspection.own_topics
        if one.topic is not None
    ]
    for what, name, settings in (
        *own,
        (f"topic {OFFSETS}", OFFSETS, None),
        (f"topic {TRANSACTIONS}", TRANSACTIONS, None),
    ):
        try:
            copies = inspection.cluster.copies(name)
        except (TopicMissing, AccessDenied):
            continue
        least = int(settings["min.insync.replicas"]) if settings else None
        yield from replication(inspection, what, name, copies, least)


def replication(inspection: Inspection, what: str, name: str, copies: Replicas, least: int | None) -> Iterator[Finding]:
    """Yields what a topic's replicas and its `min.insync.replicas` mean together. `least` is that setting, or None if
    it is not known.
    """
    replicas, in_sync = copies.replicas, copies.in_sync
    more = "give the topic more replicas with kafka-reassign-partitions.sh."
    if least is not None and replicas < least:
        yield error(
            f"The {what} has {count_of(replicas, 'replica')} and min.insync.replicas={least}: no write is ever acknowledged.",
            f"Lower min.insync.replicas, or {more}",
            inspection.set_topic(name, min_insync_replicas=max(1, replicas - 1)),
        )
    elif least is not None and in_sync < least:
        yield error(
            f"The {what} has {in_sync} of {replicas} replicas in sync, and min.insync.replicas={least}: it accepts no writes.",
            "Bring back the brokers that are down.",
        )
    elif replicas == 1:
        yield warning(f"The {what} has one replica, which is lost with its broker.", more.capitalize())
    elif least == 1:
        yield warning(
            f"The {what} has min.insync.replicas=1: a record counts as acknowledged even if only the leader has it.",
            "Raise min.insync.replicas to 2.",
            inspection.set_topic(name, min_insync_replicas=2),
        )
    elif least == replicas:
        yield warning(
            f"The {what} has {replicas} replicas and min.insync.replicas={least}: writes stop while any broker is down.",
            f"Lower min.insync.replicas by one, or {more}",
            inspection.set_topic(name, min_insync_replicas=least - 1),
        )


def check_record_size(inspection: Inspection) -> Iterator[Finding]:
    """Checks that the pipeline's topics accept what its producers send: record batches, and the ledger's records."""
    values = inspection.cluster.settings.values
    batch = int(values.get("batch.size", PRODUCER_DEFAULTS["batch.size"]))
    sent = min(batch, int(values.get("message.max.bytes", 1_000_000)))
    largest = max((len(write_record(b)) for b in inspection.newest_batches), default=0)
    source = max(int((one.settings or {}).get("max.message.bytes", 0)) for one in inspection.sources)
    found = False
    for role in inspection.own_topics:
        taken = int((role.settings or {}).get("max.message.bytes", 0))
        if role.topic is None or not taken:
            continue
        for one in record_size(inspection, role, taken, sent, largest, source):
            found = True
            yield one
    if not found:
        yield ok(f"topics accept record batches of {sent:,} bytes; the largest recent ledger record has {largest:,}")


def record_size(
    inspection: Inspection, role: Role, taken: int, sent: int, largest: int, source: int
) -> Iterator[Finding]:
    """Yields what a topic's `max.message.bytes` (`taken`) means for the records that are sent to it."""
    if role.role in {"ledger", "announcements"}:  # an announcement is smaller than its ledger record
        if largest * 2 > taken:
            yield (error if largest > taken else warning)(
                f"The ledger's records have up to {largest:,} bytes, and the {role.role} topic {role.name} accepts {taken:,} "
                "(max.message.bytes).",
                "Raise this limit; otherwise a batch with more partitions could not be recorded.",
                inspection.set_topic(role.name, max_message_bytes=max(4 * largest, 1_048_588)),
            )
        return
    if taken < sent:
        yield warning(
            f"The {role.role} topic {role.name} accepts record batches of up to {taken:,} bytes (max.message.bytes), and "
            f"producers send up to {sent:,}: a write fails with RecordRefused if a record batch does not compress below that "
            "limit.",
            f"Raise max.message.bytes, or set kafka.batch.size to at most {taken} in pipeline.yaml.",
            inspection.set_topic(role.name, max_message_bytes=max(sent + 100_000, 1_048_588)),
        )
    elif role.role == "quarantine" and taken < source:
        yield warning(
            f"The quarantine topic {role.name} accepts records of up to {taken:,} bytes, and the source up to {source:,}, so a "
            "large malformed record would fail the write.",
            "Raise max.message.bytes above the source's.",
            inspection.set_topic(role.name, max_message_bytes=source + ROOM),
        )


def check_open_transactions(inspection: Inspection) -> Iterator[Finding]:
    """Checks that no open transaction hides records of a source or of the pipeline's own topics from readers."""
    found = False
    for role in (*inspection.sources, *inspection.own_topics):
        if role.topic is None:
            continue
        stable = inspection.cluster.last_stable(role.topic)
        ends = inspection.cluster.high_watermarks(role.topic)
        held = {p: stable[p] for p in range(role.topic.partitions) if stable[p] < ends[p]}
        began = inspection.cluster.record_times(role.topic, held, inspection.pipeline.group) if held else {}
        for partition, offset in held.items():
            found = True
            yield _open_transaction(inspection, role, partition, offset, began.get(partition))
    if not found:
        yield ok("no transaction is open on a source or on the pipeline's topics")


HELD_BACK = {
    "source": "a plan ends there, and later records wait for the next interval",
    "ledger": "no step can read the ledger",
    "announcements": "readers see no further announcement",
}


def _open_transaction(
    inspection: Inspection, role: Role, partition: int, offset: int, began: datetime | None
) -> Finding:
    """Returns what an open transaction means. The broker ends a transaction after its timeout. A transaction that is
    older than any timeout hangs.

    The transaction's age is the age of its first record, if the record's timestamp is the time of writing.
    """
    limit = inspection.transaction_limit
    age = inspection.now - began if began is not None and _is_dated_by_its_writing(inspection, role) else None
    means = HELD_BACK.get(role.role, "readers, including validate, do not see later records")
    place = f"the {role.role} topic {role.name}, partition {partition}, offset {offset}"
    command = inspection.command(
        "kafka-transactions",
        *("abort", "--topic", role.name, "--partition", str(partition), "--start-offset", str(offset)),
    )
    if age is not None and age > limit + AFTER_ITS_END:
        return error(
            f"A transaction hangs on {place}. It began {duration(age)} ago, and none may take longer than {duration(limit)} "
            f"(transaction.max.timeout.ms): {means}.",
            "Abort it. (`describe-producers` instead of `abort`, without the offset, shows its producer.)",
            command,
        )
    since = f"; it began {duration(age)} ago" if age is not None else ""
    return warning(
        f"A transaction is open on {place}{since}: {means}.",
        f"Wait: the broker ends it after {duration(limit)} at most. If it does not end, it hangs: abort it.",
        command,
    )


def _is_dated_by_its_writing(inspection: Inspection, role: Role) -> bool:
    """Returns whether records have the time of writing as their timestamp. Records in quarantine and staging do not
    have it. Records of the source are assumed to have it, although its producers may choose timestamps.
    """
    if (role.settings or {}).get("message.timestamp.type") == "LogAppendTime":
        return True
    if role.role in {"quarantine", "staging"}:  # these have the source record's time, and the plan's
        return False
    return role.role != "output" or inspection.pipeline.output.records.timestamp is None
