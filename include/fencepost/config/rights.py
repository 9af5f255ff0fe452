"""The rights that a pipeline's user needs in Kafka. The plan step, `fencepost acls` and the documents use this one
list.

In Kafka's own authorizer, Read and Write include Describe. Tests take away each right in turn, and forbid all rights
that are not in the list.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import groupby
from typing import NamedTuple

from fencepost.config.pipeline import Pipeline
from fencepost.config.services.postgres import POSTGRES
from fencepost.config.side_tables import QueryTable
from fencepost.errors import SettingsError


class Use(StrEnum):
    """When a right is used, as a heading for commands and documents."""

    NEEDED = "needed"
    CREATE = "only if the topic is missing; not needed if you create topics yourself"
    GROW = "only if the output topic gets more partitions; not needed if you add them to the staging topic yourself"
    OPTIONAL = "not needed; without it Fencepost checks less"


class Resource(StrEnum):
    """Kinds of resources, by their names in messages. `kafka-acls.sh` has an option for each."""

    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional id"
    CLUSTER = "cluster"


class Right(NamedTuple):
    """An operation on a resource. `name` is a key of `NAMES`. In a right of a pipeline (`rights_of`) `name` is the
    resource's own name.
    """

    resource: Resource
    name: str
    operation: str
    why: str
    use: Use = Use.NEEDED

    @property
    def is_prefix(self) -> bool:
        """Returns whether the name is a prefix."""
        return self.name.endswith(".") and self.resource is not Resource.TOPIC


T = Resource.TOPIC
NAMES = {
    "source": "`source.topic`, or `sources.<name>.topic`",
    "tables": "`tables.<name>.topic`",
    "output": "`output.topic`",
    "staging": "`output.staging_topic`, or `fencepost.<pipeline>.staging`",
    "quarantine": "`quality.quarantine_topic`, or `fencepost.<pipeline>.quarantine`",
    "ledger": "`fencepost.<pipeline>.ledger`",
    "announcements": "`fencepost.<pipeline>.published`",
    "pipeline": "`<pipeline>`",
    "pipeline.": "beginning with `<pipeline>.`",
    "kafka-cluster": "`kafka-cluster`",
}
RETENTION = (
    "the check that the topic keeps records until they are judged and copied; without it, validate only finds that "
    "they are gone"
)
RIGHTS = (
    Right(T, "source", "Read", "reads a batch, and moves the source's offsets"),
    Right(T, "tables", "Read", "reads a side table"),
    Right(T, "ledger", "Read", "reads what is recorded of each batch"),
    Right(T, "ledger", "Write", "records each step of a batch"),
    Right(T, "ledger", "DescribeConfigs", "checks that the topic is compacted"),
    Right(T, "announcements", "Write", "announces publications, skips and withdrawals"),
    Right(T, "announcements", "DescribeConfigs", "checks that the topic keeps all announcements"),
    Right(
        T,
        "output",
        "Read",
        "looks for batches that are missing in a lost ledger, judges batches that are not staged, moves validated "
        "offsets",
    ),
    Right(T, "output", "Write", "writes or publishes a batch"),
    Right(T, "staging", "Read", "judges and copies a staged batch"),
    Right(T, "staging", "Write", "writes a staged batch"),
    Right(T, "quarantine", "Read", "judges and replays quarantined records"),
    Right(T, "quarantine", "Write", "quarantines records"),
    Right(Resource.GROUP, "pipeline", "Read", "reads and moves the source's offsets"),
    Right(Resource.GROUP, "pipeline.", "Read", "reads and commits marks, and validated offsets"),
    Right(Resource.TRANSACTIONAL_ID, "pipeline.", "Write", "writes in transactions"),
    *(
        Right(T, name, "Create", "creates the topic, with the cluster's default replication factor", Use.CREATE)
        for name in ("ledger", "announcements", "output", "staging", "quarantine")
    ),
    Right(T, "staging", "Alter", "adds partitions, so that it has as many as the output", Use.GROW),
    Right(T, "announcements", "Read", "the doctor's comparison of announcements with the ledger", Use.OPTIONAL),
    Right(T, "output", "DescribeConfigs", RETENTION, Use.OPTIONAL),
    Right(T, "staging", "DescribeConfigs", RETENTION, Use.OPTIONAL),
    Right(T, "quarantine", "DescribeConfigs", "the check that the topic is not compacted", Use.OPTIONAL),
    Right(
        T,
        "source",
        "DescribeConfigs",
        "the size limit of the source: the quarantine topic is created with the cluster's limit and may refuse "
        "large records",
        Use.OPTIONAL,
    ),
    Right(T, "tables", "DescribeConfigs", "the doctor's check that the topic is compacted", Use.OPTIONAL),
    Right(
        Resource.CLUSTER,
        "kafka-cluster",
        "DescribeConfigs",
        "the brokers' own limits: Kafka's defaults are assumed for transaction.max.timeout.ms, "
        "offsets.retention.minutes and transactional.id.expiration.ms",
        Use.OPTIONAL,
    ),
)


def rights_of(pipeline: Pipeline) -> tuple[Right, ...]:
    """Returns the rights that this pipeline uses, with the names of its own resources. Reads the pipeline's suite."""
    names: dict[str, Sequence[str]] = {
        "source": list(pipeline.source_topics),
        "tables": [table.topic for table in pipeline.topic_tables.values()],
        "ledger": [pipeline.ledger_topic],
        "announcements": [pipeline.announcements_topic],
        "output": pipeline.output.topics,
        "pipeline": [pipeline.group],
        "pipeline.": [pipeline.prefix],
        "kafka-cluster": ["kafka-cluster"],
    }
    if pipeline.output.is_staged:
        names["staging"] = [pipeline.staging_topic]
    if pipeline.quarantines:
        names["quarantine"] = [pipeline.quarantine_topic]
    unused = set() if "quarantine" in names else {("source", "DescribeConfigs")}
    found = dict[tuple[str, str, str], Right]()
    for right in RIGHTS:
        for name in names.get(right.name, ()) if (right.name, right.operation) not in unused else ():
            found.setdefault((right.resource, name, right.operation), right._replace(name=name))
    return tuple(found.values())


READER_GROUP = "fencepost-reader"


def rights_of_reader(pipeline: Pipeline, group: str = READER_GROUP) -> tuple[Right, ...]:
    """Returns the rights of a reader of the output in a consumer group of that name. The pipeline's own rights are not
    included.
    """
    return (
        *(Right(T, topic, "Read", "reads what is published") for topic in pipeline.output.topics),
        Right(T, pipeline.announcements_topic, "Read", "reads what was published, skipped and withdrawn"),
        Right(Resource.GROUP, group, "Read", "reads as this consumer group"),
    )


def query_grants(pipeline: Pipeline) -> Iterator[tuple[str, list[str]]]:
    """Yields the statements that let side tables with a query be read, with their purpose. Only the query itself says
    which tables it reads, so these have no names.
    """
    for name, table in pipeline.tables.items():
        if not isinstance(table, QueryTable):
            continue
        server = pipeline.server_of(name).plain(POSTGRES)
        user = '"' + server["user"].replace('"', '""') + '"'
        yield (
            f"needed for side table {name}, in database {server['dbname']} at {server['host']}, in the place of SCHEMA and TABLE "
            "for each table that its query reads",
            [f"GRANT USAGE ON SCHEMA SCHEMA TO {user};", f"GRANT SELECT ON TABLE SCHEMA.TABLE TO {user};"],
        )


def acl_commands(
    rights: Iterable[Right], principal: str, bootstrap: str, command_config: str | None = None
) -> Iterator[tuple[Use, list[str]]]:
    """Yields the commands of Kafka's own tool that grant these rights, by their use. Each is ready for a shell.

    Raises:
        SettingsError: the principal is not valid.
    """
    if not re.fullmatch(r"[A-Za-z][\w-]*:[^\s:*][^\n\r\0]*", principal):
        raise SettingsError(
            f"--principal {principal!r}: not a principal of Kafka. A principal has a type in front and names one "
            "user, such as User:fencepost, or 'User:CN=fencepost,O=Example' with a client certificate."
        )
    begin = ["kafka-acls.sh", "--bootstrap-server", bootstrap]
    begin += ["--command-config", command_config] if command_config else []
    begin += ["--add", "--allow-principal", principal]
    uses = list(Use)
    ordered = sorted(rights, key=lambda right: uses.index(right.use))  # stable: within a use the order is kept
    for use, of_use in groupby(ordered, key=lambda right: right.use):
        commands = []
        for (resource, name), rows in groupby(of_use, key=lambda right: (right.resource, right.name)):
            found = list(rows)
            operations = [part for right in found for part in ("--operation", right.operation)]
            on = [] if resource is Resource.CLUSTER else [name]
            pattern = ["--resource-pattern-type", "prefixed"] if found[0].is_prefix else []
            commands.append(shlex.join([*begin, *operations, f"--{resource.replace(' ', '-')}", *on, *pattern]))
        yield use, commands


def table() -> str:
    """Returns the rights in two tables in Markdown, as the documents list them."""
    lines = ["| resource | name | operation | what for |", "|---|---|---|---|"]
    for right in RIGHTS:
        if right.use is Use.OPTIONAL:
            continue
        used = "" if right.use is Use.NEEDED else f"; {right.use}"
        lines.append(f"| {right.resource} | {NAMES[right.name]} | {right.operation} | {right.why}{used} |")
    lines += ["", "These rights are used if they are granted. They are not required:", ""]
    lines += ["| resource | name | operation | what is missing without it |", "|---|---|---|---|"]
    lines += [
        f"| {right.resource} | {NAMES[right.name]} | {right.operation} | {right.why} |"
        for right in RIGHTS
        if right.use is Use.OPTIONAL
    ]
    return "\n".join(lines) + "\n"
