"""Reads the records of published batches from a pipeline's output, and no other records.

The function needs an event, the topic of announcements, and the output. It uses neither the ledger nor the pipeline's
folder. So a reader needs no right to either, and may belong to another installation.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from fencepost.config.reader import Reader
from fencepost.config.rights import READER_GROUP
from fencepost.errors import NeedsOperator, SettingsError, Superseded
from fencepost.formats import REGISTRY_FORMATS
from fencepost.formats.written_names import with_written_names
from fencepost.kafka.client_settings import ClientSettings, client_settings
from fencepost.kafka.cluster import Cluster
from fencepost.ledger.announcements import read_announcements
from fencepost.model import RegisteredSchema, Schemas
from fencepost.outputs.rows_request import RowsRequest, rows_of
from fencepost.protocol.announcement import Announcement, counting
from fencepost.rows.unions import check_types
from fencepost.schemas.registry import NotRegistered, Registry


def read_validated(
    spark: SparkSession,
    events: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    *,
    kafka: Mapping[str, str] | None = None,
    schema_registry: Mapping[str, Any] | None = None,
    postgres: Mapping[str, str] | None = None,
    iceberg: Mapping[str, str] | None = None,
    group: str = READER_GROUP,
    current: bool = False,
) -> DataFrame:
    """Returns the rows of announced batches, as columns. For a topic it adds `_key`, `_topic`, `_partition` and
    `_offset`.

    `events` is the `extra` of one asset event, or a record of the topic of announcements as a dict. `events` may also
    be several of these, in any order, but of one pipeline. An addition, which a replay has published, has its own
    event. A batch that several events name is read once. If the events also name a newer revision of a batch, the older
    revision is left out. Skips and withdrawals are ignored. Records of other batches in the same ranges are left out
    because of their header, and aborted records because of read_committed. A second call gives the same records. A
    column that a batch does not have is null in the batch's records.

    With `current` it returns all rows of the current table that the newest of these events names, as they are now. They
    are of all batches up to now, and not of these alone.

    The settings are the reader's own: `kafka` by librdkafka's names (without it KAFKA_BOOTSTRAP names the brokers),
    `schema_registry` as in pipeline.yaml for Avro and JSON Schema, `postgres` by libpq's names and `iceberg` by
    pyiceberg's names for a table. Each may name an Airflow connection, as in pipeline.yaml: `{"connection":
    "kafka_prod"}`. The connection is looked up at each call, and settings beside it take precedence. `group` is a
    consumer group that the reader has a right to. No offsets are committed in that group.

    Raises:
        SettingsError: the events are of several pipelines or of none, or a column has different types in their batches.
            With `current`, no event names a current table.
        ConnectionNotFound: Airflow has no such connection, or its secrets backend does not answer.
        Superseded: a newer revision replaced a batch, and its event is not among these.
        TopicRecreated, NeedsOperator: the output no longer has the records.
    """
    given = [Announcement.of(one) for one in ([events] if isinstance(events, Mapping) else events)]
    pipelines = {one.pipeline for one in given}
    if len(pipelines) != 1:
        raise SettingsError(f"read_validated takes events of one pipeline; these are of {sorted(pipelines) or 'none'}.")
    (name,) = pipelines
    reader = _whole(Reader.of(name, kafka, schema_registry, postgres, iceberg))
    settings = client_settings(reader)
    cluster = Cluster(settings)
    announced = _announced(reader, given, settings, cluster, group)
    batches = announced_batches(given, announced)
    if current:
        return _current_rows(spark, reader, cluster, batches)
    # A batch without records adds nothing. If none has records, the newest one gives the columns.
    read = [one for one in batches if one.rows] or batches[-1:] or given[-1:]
    schemas = [columns_of(one) for one in read]
    check_types({one.batch: schema for one, schema in zip(read, schemas, strict=True)})
    frames = [
        rows_of(RowsRequest(spark, reader, cluster, one, columns, functools.partial(_schemas, reader, one)))
        for one, columns in zip(read, schemas, strict=True)
    ]
    return functools.reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)


def _current_rows(spark: SparkSession, reader: Reader, cluster: Cluster, batches: Sequence[Announcement]) -> DataFrame:
    """Returns the rows of the current table that the newest of these batches names."""
    named = [one for one in batches if one.current_table is not None]
    if not named:
        raise SettingsError(
            f"{reader.label}: none of these events names a current table. The pipeline has none, or it is stale."
        )
    one = max(named, key=lambda one: one.time)
    schemas = functools.partial(_schemas, reader, one)
    return rows_of(RowsRequest(spark, reader, cluster, one, columns_of(one), schemas, current=True))


def _whole(reader: Reader) -> Reader:
    """Returns the reader with the settings of its connections. Airflow is imported only if the reader has connections,
    because a reader may run without Airflow.
    """
    if not reader.connections:
        return reader
    from fencepost.airflow.connections import with_connections

    return with_connections(reader)


def _announced(
    reader: Reader, given: Iterable[Announcement], settings: ClientSettings, cluster: Cluster, group: str
) -> list[Announcement]:
    """Returns all announcements of the pipeline up to now, in the cluster that the events are from."""
    for one in given:
        if one.cluster_id != cluster.id:
            raise SettingsError(
                f"batch {one.batch} is in cluster {one.cluster_id}, and Kafka at {settings.bootstrap} is cluster {cluster.id}. "
                "Give the settings of the cluster that the event comes from."
            )
    return [one for _, one in read_announcements(cluster, cluster.describe(reader.announcements_topic), group)]


def announced_batches(events: Iterable[Announcement], announced: Sequence[Announcement]) -> list[Announcement]:
    """Returns the batches of these events that count after all announcements, each once, in order of time. Pure.

    Raises:
        Superseded: a batch no longer counts, and no batch of its interval that counts is among the events.
    """
    named = {one.identity: one for one in events if one.state == "published"}
    found = [one for one in counting(announced) if one.identity in named]
    covered = {one.interval for one in found if one.adds_to is None}  # an addition has only a part of its interval
    have = {one.identity for one in found}
    for one in named.values():
        if one.identity in have or one.interval in covered or _had_no_records(one, announced):
            continue
        raise Superseded(
            f"batch {one.batch} is {_became(one, announced)}: it is not the published batch of its interval. "
            "If a newer revision was published, add its event, or read that event instead."
        )
    return found


def _had_no_records(one: Announcement, announced: Sequence[Announcement]) -> bool:
    """Returns whether a batch had no records, and its interval was withdrawn as planned by mistake. If both are true,
    nothing was lost with the batch.
    """
    return not one.rows and _became(one, announced) == "withdrawn"


def _became(one: Announcement, announced: Sequence[Announcement]) -> str:
    """Returns in a word what was announced about a batch's interval after the batch."""
    later = [other for other in announced if other.interval == one.interval]
    places = [n for n, other in enumerate(later) if other.identity == one.identity]
    if not places:
        return "not announced"
    after = [other.state for other in later[places[0] + 1 :] if other.state != "skipped"]
    return "withdrawn" if after[-1:] == ["withdrawn"] else "superseded"


def columns_of(one: Announcement) -> StructType:
    """Returns the columns of a batch's rows, with the types that its transform gave them."""
    fields = [{"name": c.name, "type": c.type, "nullable": c.nullable, "metadata": {}} for c in one.columns]
    names = {c.name: c.field for c in one.columns if c.field is not None}
    return with_written_names(StructType.fromJson({"type": "struct", "fields": fields}), names)


def _schemas(reader: Reader, one: Announcement) -> Schemas | None:
    """Returns the schema that the records of a batch were written with, from the reader's registry. Returns None if
    they have none.
    """
    schema_id = one.schema_ids.value if one.schema_ids else None
    form = REGISTRY_FORMATS.get(one.format or "")
    if form is None or schema_id is None:
        return None
    if reader.schema_registry is None:
        raise SettingsError(
            f"{reader.label}: batch {one.batch} has values of format {one.format} with schema id {schema_id}. Give "
            'schema_registry={"url": ...}.'
        )
    try:
        found = Registry(reader, form.schema_type).by_id(schema_id)
    except NotRegistered:
        raise NeedsOperator(f"batch {one.batch}: the registry no longer has schema {schema_id}.") from None
    mapped = [c.field for c in one.columns if c.field is not None]
    text = form.written(found.text, found.references, columns=True, mapped=mapped)
    return Schemas(output=RegisteredSchema(subject=found.subject, id=schema_id, version=found.version, text=text))
