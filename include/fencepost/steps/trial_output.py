"""What a trial's result meets at the pipeline's output, by a look at it."""

from __future__ import annotations

from pyspark.sql.types import StructType

from fencepost.config.rights import Use, rights_of
from fencepost.errors import (
    AccessDenied,
    AnotherCluster,
    NeedsOperator,
    SettingsError,
    StoreRefused,
    StoreUnavailable,
    TopicMissing,
)
from fencepost.ledger.ledger import Ledger
from fencepost.model import Interval
from fencepost.outputs.output import output_of

PRODUCERS = 1_000_000  # bytes of a record that librdkafka sends, unless kafka.message.max.bytes says otherwise
OVERHEAD = 200  # bytes of a record beside key and value, its batch's header among them


def of_columns(ledger: Ledger, interval: Interval | None, schema: StructType) -> tuple[list[str], list[str]]:
    """Why a run would fail with rows of these columns, and what it would change at the output otherwise. Nothing is made."""
    try:
        columns = output_of(ledger).columns
        told = columns.would_take(interval, schema) if columns is not None else ""
    except (StoreRefused, StoreUnavailable, AccessDenied, AnotherCluster) as error:
        return [str(error).rstrip(".")], []
    return [], [f"{told[0].upper()}{told[1:]}"] if told else []


def of_names(ledger: Ledger) -> list[str]:
    """Why the names of topics that a plan would make are none, or collide with those of others. Nothing is made."""
    refused = list[str]()
    for right in rights_of(ledger.pipeline):
        if right.use is not Use.CREATE:
            continue
        try:
            if ledger.cluster.find(right.name) is None:
                ledger.cluster.check_may_create(right.name)
        except SettingsError as error:
            refused.append(str(error).rstrip("."))
        except (AccessDenied, NeedsOperator):  # somebody else may make it
            continue
    return refused


def of_sizes(ledger: Ledger, written: int, aside: int) -> tuple[list[str], list[str]]:
    """What producers would refuse, and what they or topics may refuse, whose limit is about the compressed record: of the largest
    record of the output, and of the largest one that goes to quarantine, which have so many bytes."""
    pipeline, refused, doubts = ledger.pipeline, list[str](), list[str]()
    sent = int(ledger.settings.values.get("message.max.bytes", PRODUCERS))
    topics = [*pipeline.output.topics, *([pipeline.staging_topic] if pipeline.output.is_staged else [])]
    for what, size, names in (
        ("record", written, topics),
        ("record that goes to quarantine", aside, [pipeline.quarantine_topic]),
    ):
        said = f"The largest {what} has {size:,} bytes, and"
        if size + OVERHEAD > sent:
            told = f"{said} producers send {sent:,} at most: set kafka.message.max.bytes"
            (refused if size > sent else doubts).append(told if size > sent else f"{told}.")
        for name in names if size else ():
            taken = _taken(ledger, name)
            if 0 < taken < size + OVERHEAD:
                doubts.append(f"{said} topic {name} takes {taken:,} (max.message.bytes): raise it.")
    return refused, doubts


def _taken(ledger: Ledger, name: str) -> int:
    """How large a record the topic takes; 0 if it does not exist, or we may not ask."""
    try:
        return int(ledger.cluster.topic_configs(name).get("max.message.bytes", 0)) if ledger.cluster.find(name) else 0
    except (AccessDenied, TopicMissing):
        return 0
