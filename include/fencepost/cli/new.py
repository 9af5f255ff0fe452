"""`fencepost new`: creates a pipeline's folder from a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from fencepost.cli.arguments import AsJson, formats_like, names_like, topics_like, with_connections
from fencepost.cli.console import out, print_json, working
from fencepost.cli.extensions import use_environment
from fencepost.counts import count_of
from fencepost.errors import SettingsError

if TYPE_CHECKING:
    from fencepost.drafting.draft import Draft
    from fencepost.drafting.draft_source import DraftSource


def new(
    name: Annotated[str, typer.Argument(help="The pipeline's name: a new folder in include/pipelines.")],
    from_topic: Annotated[
        list[str],
        typer.Option(help="The topic to read. Given several times, each is a source.", autocompletion=topics_like),
    ],
    to: Annotated[str | None, typer.Option(help="The output topic; by default it has the pipeline's name.")] = None,
    sample: Annotated[
        int, typer.Option(min=1, max=100_000, help="Number of records to sample of each topic; 64 MB and 30 s at most.")
    ] = 1000,
    like: Annotated[
        str | None,
        typer.Option(
            help="A pipeline from which kafka, schema_registry and spark are copied.", autocompletion=names_like
        ),
    ] = None,
    kafka: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A setting of librdkafka; a secret as 'sasl.password=${VARIABLE}'."),
    ] = None,
    registry: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A setting of schema_registry, such as url=http://..."),
    ] = None,
    format: Annotated[  # noqa: A002
        str | None,
        typer.Option(
            help="json, bytes, avro or json_schema, for all topics. Default: what the sample shows.",
            autocompletion=formats_like,
        ),
    ] = None,
    subject: Annotated[
        str | None, typer.Option(help="The registry's subject, if the records of an only topic have several.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(help="A consumer group that you may read. Default: the pipeline's. It is not joined."),
    ] = None,
    cron: Annotated[str, typer.Option(help="The cron expression that divides time into intervals.")] = "0 0 * * *",
    timezone: Annotated[str, typer.Option(help="The time zone of the intervals.")] = "UTC",
    as_json: AsJson = False,
) -> None:
    """Draft a pipeline from a sample of a topic: pipeline.yaml, transform.sql and expectations.yaml.

    Half of the sample are the newest records, and half are spread over each partition. Each type holds every sampled value;
    checks are warnings. The command reads the topic as a reader may, writes nothing to Kafka, and overwrites no folder.

    With several topics, the transform unites their records. If their columns differ, it is a beginning for a join.

    Without --like and --kafka it uses the Kafka of `fencepost up`.

    Example: fencepost new orders_daily --from-topic orders
    """
    from fencepost.drafting.connection import connection_of
    from fencepost.drafting.draft import draft_pipeline
    from fencepost.drafting.draft_request import DraftRequest

    if not all(from_topic):
        raise SettingsError("--from-topic: name a topic.")
    use_environment()
    first, *more = from_topic
    wanted = DraftRequest(name, first, sample, to, format, subject, group, cron, timezone, tuple(more))
    connection = connection_of(like, kafka or (), registry or ())
    with working(f"reading {'topics' if more else 'topic'} {', '.join(from_topic)}"):
        draft = draft_pipeline(wanted, connection, with_connections)
    if as_json:
        print_json(as_plain(draft))
        return
    say = f"{draft.folder}: {_described(draft)} and {count_of(draft.checks, 'check')}"
    out.print(f"{say}, from {count_of(draft.sampled, 'record')}", markup=False, soft_wrap=True)
    for warning in draft.warnings:
        out.print(f"[bold yellow]![/] {escape(warning)}")
    out.print("Review the three files, then try them on a sample and run the newest interval:", markup=False)
    out.print(f"fencepost try {name}", markup=False, soft_wrap=True)
    out.print(draft.command, markup=False, soft_wrap=True)


def _described(draft: Draft) -> str:
    """Returns the formats and the numbers of columns of a draft's sources."""
    columns = [f"{one.source.format}, {count_of(len(one.fields.columns), 'column')}" for one in draft.sources]
    if len(columns) == 1:
        return columns[0]
    return ", ".join(f"source {one.name} ({said})" for one, said in zip(draft.sources, columns, strict=True))


def as_plain(draft: Draft) -> dict[str, Any]:
    """Returns a draft as JSON, for programs. Of several sources each has its own object."""
    sources = {one.name: _source_as_plain(one) for one in draft.sources}
    if len(sources) > 1:
        topics = {one.name: {"topic": one.source.topic} for one in draft.sources}
        of_sources: dict[str, Any] = {"sources": {name: topics[name] | plain for name, plain in sources.items()}}
    else:
        of_sources = next(iter(sources.values()))
    return {
        "folder": str(draft.folder),
        **of_sources,
        "checks": draft.checks,
        "interval": draft.chosen.interval.model_dump(mode="json"),
        "warnings": list(draft.warnings),
        "run": draft.command,
    }


def _source_as_plain(drafted: DraftSource) -> dict[str, Any]:
    fields = drafted.fields
    return {
        "format": drafted.source.format,
        "records": len(drafted.sample.records),
        "columns": {
            c.output: {"source": c.name, "field": c.field, "type": c.type, "note": c.note} for c in fields.columns
        },
        "left_out": dict(fields.left_out),
        "malformed": dict(fields.malformed),
        "tombstones": fields.tombstones,
    }
