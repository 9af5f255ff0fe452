"""The job of a benchmark in Flink's SQL: exact read, projection and filter, exactly-once write with a header on every record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.data import Source
from fencepost.model import BATCH_HEADER
from fencepost.rows.source import FETCH_MAX_WAIT_MS, MAX_POLL_RECORDS

TYPES = {"timestamp": "TIMESTAMP_LTZ(3)"}  # where Flink's name is not Spark's
JSON = {"value.format": "json", "value.json.timestamp-format.standard": "ISO-8601"}


def statements(
    bootstrap: str,
    source: Source,
    output: str,
    batch: str,
    producer: Mapping[str, Any],
    columns: Mapping[str, str] | None = None,
    value: Mapping[str, str] = JSON,
) -> list[str]:
    """From exactly these ranges of the source to the output topic, in Kafka transactions. `batch` is the header's value.

    Values are bytes, of which the empty ones are left out; or, with `columns` (Spark's types by name), of a format that
    Flink is told by the options `value`, in and out.
    """
    fields = {"value": "BYTES"} if columns is None else {name: flink_type(kind) for name, kind in columns.items()}
    if columns is None:
        value = {"value.format": "raw"}
    table = ", ".join(f"`{name}` {kind}" for name, kind in {"_key": "BYTES", **fields}.items())
    read, write = source_options(bootstrap, source), output_options(bootstrap, output, producer)
    names = ", ".join(f"`{name}`" for name in ("_key", *fields))
    header = f"MAP[{text(BATCH_HEADER)}, CAST({text(batch)} AS BYTES)]"
    where = " WHERE `value` <> X''" if columns is None else ""
    return [
        "DROP TEMPORARY TABLE IF EXISTS source",
        "DROP TEMPORARY TABLE IF EXISTS output",
        f"CREATE TEMPORARY TABLE source ({table}) WITH ({options({**read, **value})})",
        f"CREATE TEMPORARY TABLE output ({table}, `headers` MAP<STRING, BYTES> METADATA) "
        f"WITH ({options({**write, **value})})",
        f"INSERT INTO output SELECT {names}, {header} FROM source{where}",  # noqa: S608 - our own texts
    ]


def source_options(bootstrap: str, source: Source) -> dict[str, Any]:
    """The ranges as a plan freezes them, and the reader's settings that Fencepost gives Spark's."""
    return {
        **_table_options(bootstrap, source.topic),
        "scan.startup.mode": "specific-offsets",
        "scan.startup.specific-offsets": offsets({r.partition: r.start for r in source.ranges}),
        "scan.bounded.mode": "specific-offsets",
        "scan.bounded.specific-offsets": offsets({r.partition: r.end for r in source.ranges}),
        "properties.isolation.level": "read_committed",
        "properties.max.poll.records": MAX_POLL_RECORDS,
        "properties.fetch.max.wait.ms": FETCH_MAX_WAIT_MS,
    }


def output_options(bootstrap: str, topic: str, producer: Mapping[str, Any]) -> dict[str, Any]:
    """Exactly-once, with these settings of Kafka's producer."""
    return {
        **_table_options(bootstrap, topic),
        "sink.delivery-guarantee": "exactly-once",
        "sink.transactional-id-prefix": topic,
        **{f"properties.{name}": value for name, value in producer.items()},
    }


def _table_options(bootstrap: str, topic: str) -> dict[str, Any]:
    return {
        "connector": "kafka",
        "properties.bootstrap.servers": bootstrap,
        "topic": topic,
        "key.format": "raw",
        "key.fields": "_key",
        "value.fields-include": "EXCEPT_KEY",
    }


def offsets(by_partition: Mapping[int, int]) -> str:
    """As the connector's options have them."""
    return ";".join(f"partition:{partition},offset:{offset}" for partition, offset in by_partition.items())


def avro(registry: str, subject: str) -> dict[str, str]:
    """Options of Avro as Confluent's serializers write it; Flink registers the output's schema under the subject."""
    avro = {"url": registry, "subject": subject}
    return {"value.format": "avro-confluent", **{f"value.avro-confluent.{name}": to for name, to in avro.items()}}


def flink_type(kind: str) -> str:
    """Flink's name of a Spark type: `bigint not null` is `BIGINT NOT NULL`."""
    name, _, null = kind.partition(" ")
    return f"{TYPES.get(name, name.upper())} {null.upper()}".strip()


def options(values: Mapping[str, Any]) -> str:
    """The inside of WITH (…)."""
    return ", ".join(f"{text(name)} = {text(str(value))}" for name, value in values.items())


def text(value: str) -> str:
    """A literal."""
    return "'" + value.replace("'", "''") + "'"
