"""Checks whether the pipeline's output would accept a trial's result. It changes nothing."""

from __future__ import annotations

from pyspark.sql.types import StructType

from fencepost.config.rights import Use, rights_of
from fencepost.errors import (
    AccessDenied,
    AnotherCluster,
    NeedsOperator,
    SettingsError,
    TableRefused,
    TableUnavailable,
    TopicMissing,
)
from fencepost.kafka.cluster import Cluster
from fencepost.ledger.deployment import Deployment
from fencepost.model import Interval
from fencepost.outputs.output import output_of

PRODUCERS = 1_000_000  # bytes of a record that librdkafka sends, unless kafka.message.max.bytes says otherwise
OVERHEAD = 200  # bytes of a record besides key and value, such as its batch's header


def of_columns(deployment: Deployment, interval: Interval | None, schema: StructType) -> tuple[list[str], list[str]]:
    """Returns why a run would fail with rows of these columns, and what the run would change in the output otherwise."""
    try:
        columns = output_of(deployment).columns
        remark = columns.would_take(interval, schema) if columns is not None else ""
    except (TableRefused, TableUnavailable, AccessDenied, AnotherCluster) as error:
        return [str(error).rstrip(".")], []
    return [], [f"{remark[0].upper()}{remark[1:]}"] if remark else []


def of_names(deployment: Deployment) -> list[str]:
    """Returns why topics that a plan would create cannot have their names. A name may be invalid, or collide with
    another topic's name.
    """
    refused = list[str]()
    for right in rights_of(deployment.pipeline):
        if right.use is not Use.CREATE:
            continue
        try:
            if deployment.cluster.find(right.name) is None:
                deployment.cluster.check_may_create(right.name)
        except SettingsError as error:
            refused.append(str(error).rstrip("."))
        except (AccessDenied, NeedsOperator):  # a person may create it
            continue
    return refused


def of_sizes(deployment: Deployment, written: int, quarantined: int) -> tuple[list[str], list[str]]:
    """Returns why producers would refuse the largest records, and why producers or topics may refuse them. The limits of
    the second list apply to compressed records. `written` and `quarantined` are the bytes of the largest record for the output
    and for quarantine.
    """
    pipeline, refused, doubts = deployment.pipeline, list[str](), list[str]()
    sent = int(deployment.cluster.settings.values.get("message.max.bytes", PRODUCERS))
    topics = [*pipeline.output.topics, *([pipeline.staging_topic] if pipeline.output.is_staged else [])]
    for what, size, names in (
        ("record", written, topics),
        ("record that goes to quarantine", quarantined, [pipeline.quarantine_topic]),
    ):
        said = f"The largest {what} has {size:,} bytes, and"
        if size + OVERHEAD > sent:
            remark = f"{said} producers send {sent:,} at most: set kafka.message.max.bytes"
            (refused if size > sent else doubts).append(remark if size > sent else f"{remark}.")
        for name in names if size else ():
            taken = _taken(deployment.cluster, name)
            if 0 < taken < size + OVERHEAD:
                doubts.append(f"{said} topic {name} accepts {taken:,} (max.message.bytes): raise max.message.bytes.")
    return refused, doubts


def _taken(cluster: Cluster, name: str) -> int:
    """Returns the topic's `max.message.bytes`. Returns 0 if the topic does not exist or the user may not read its
    settings.
    """
    try:
        return int(cluster.topic_configs(name).get("max.message.bytes", 0)) if cluster.find(name) else 0
    except (AccessDenied, TopicMissing):
        return 0
