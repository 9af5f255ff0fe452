"""`fencepost schema`: a pipeline's schemas in the registry, and whether its records can be read and written with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from fencepost.cli.arguments import AsJson, PipelineName, pipeline_of
from fencepost.cli.console import out, print_json
from fencepost.cli.steps import spark_session
from fencepost.config.pipeline import Pipeline
from fencepost.config.record_parts import SourcePart
from fencepost.config.source import Source
from fencepost.errors import SettingsError

if TYPE_CHECKING:
    from fencepost.drafting.drift import Drift, FieldDrift
    from fencepost.kafka.sample import Sample
    from fencepost.schemas.report import PartReport


def schema(
    pipeline: PipelineName,
    sample: Annotated[
        int | None,
        typer.Option(
            help="Read this many records of each source instead, and show what changed in its topic since it was declared."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the registry's schemas: what a plan would read, what the transform would write, and whether they fit.

    Starts Spark to get the type of the transform's result. Reads no record of a source, and registers nothing. Exit code 2:
    something does not fit.

    With --sample it reads records of each source, half of them the newest and half from all offsets, for every format. It shows
    fields that are not declared, and declared types that no longer fit, with their share. That needs no Spark. Exit code 1: a
    batch of such records would not be published.

    Example: fencepost schema nyc_weather --sample 1000
    """
    found = pipeline_of(pipeline)
    if sample is not None:
        _show_drift(found, sample, as_json)
        return
    if not found.uses_registry:
        raise SettingsError(
            f"pipeline {pipeline}: no part of it uses a schema registry. Set format: avro or json_schema, or "
            "key_format: avro."
        )
    from fencepost.kafka.client_settings import client_settings
    from fencepost.kafka.cluster import Cluster
    from fencepost.schemas.report import report_schemas
    from fencepost.side_tables.frames import frames_of
    from fencepost.side_tables.reading import read_tables
    from fencepost.spark.diagnosis import spark_reads

    with spark_session(found, step="schema") as spark:
        with spark_reads(f"pipeline {pipeline}, schema"):
            contents = read_tables(spark(), found, Cluster(client_settings(found))) if found.tables else {}
        parts = report_schemas(spark(), found, frames_of(spark(), found, contents))
    if as_json:
        print_json({"pipeline": pipeline, "parts": [as_plain(part) for part in parts]})
    else:
        for part in parts:
            _print(part)
    if not all(part.is_compatible for part in parts):
        raise typer.Exit(2)


def _show_drift(pipeline: Pipeline, wanted: int, as_json: bool) -> None:
    from fencepost.drafting.drift import check_size, look_for_drift
    from fencepost.kafka.client_settings import client_settings
    from fencepost.kafka.cluster import Cluster

    check_size(wanted)
    cluster = Cluster(client_settings(pipeline))
    found = {source.topic: look_for_drift(pipeline, source, cluster, wanted) for source in pipeline.sources.values()}
    if as_json:
        plain = {topic: plain_drift(drift) for topic, (_, drift) in found.items()}
        of_sources = {"sources": plain} if pipeline.several else next(iter(plain.values()))
        print_json({"pipeline": pipeline.name, **of_sources})
    else:
        for topic, (sample, drift) in found.items():
            _print_sample(pipeline, pipeline.source_topics[topic], sample, drift)
    if not all(drift.fits for _, drift in found.values()):
        raise typer.Exit(1)


def _print_sample(pipeline: Pipeline, source: Source, sample: Sample, drift: Drift) -> None:
    """Prints what changed in a source. It is named by its section of pipeline.yaml if the pipeline has several."""
    from fencepost.drafting.drift import describe_notes

    cut = f" ({sample.cut})" if sample.cut else ""
    name = f"{source.setting}: " if pipeline.several else ""
    say = f"{name}{drift.records:,} sampled records of topic {source.topic}{cut}"
    if not drift.undeclared and not drift.misfits and not drift.undeclarable:
        none = "the format declares nothing" if source.format == "bytes" else "all fit what is declared"
        out.print(f"{say}: {none}", markup=False, soft_wrap=True)
    else:
        out.print(f"{say}:", markup=False, soft_wrap=True)
        _print_drift(drift)
    if drift.excluded:
        out.print(f"{drift.excluded:,} other sampled records are excluded", markup=False)
    if drift.absent:
        out.print(f"declared, but in no sampled record: {', '.join(drift.absent)}", markup=False)
    if drift.set_aside:
        out.print(next(describe_notes(drift)), markup=False, soft_wrap=True)


def plain_drift(drift: Drift) -> dict[str, Any]:
    """Returns what changed, as JSON, for programs."""
    return {
        "records": drift.records,
        "undeclared": [{"field": d.name, "records": d.records, "type": d.what} for d in drift.undeclared],
        "misfits": [{"field": d.name, "records": d.records, "reason": d.what} for d in drift.misfits],
        "undeclarable": [{"field": d.name, "records": d.records, "reason": d.what} for d in drift.undeclarable],
        "absent": list(drift.absent),
        "malformed": drift.malformed,
        "excluded": drift.excluded,
        "fits": drift.fits,
    }


def _print_drift(drift: Drift) -> None:
    table = Table()
    table.add_column("field", overflow="fold")
    table.add_column("records", justify="right")
    table.add_column("share", justify="right")
    table.add_column("what", overflow="fold")
    for one in drift.misfits:
        table.add_row(*_cells(one, drift), Text(f"does not fit: {one.what}"))
    for one in drift.undeclared:
        what = f"not declared; would be {one.what}" if one.what else "not declared"
        table.add_row(*_cells(one, drift), Text(what))
    for one in drift.undeclarable:
        table.add_row(*_cells(one, drift), Text(f"cannot be a column: {one.what}"))
    out.print(table)


def _cells(one: FieldDrift, drift: Drift) -> tuple[Text, str, str]:
    from fencepost.drafting.writing import printable

    return Text(printable(one.name)), f"{one.records:,}", f"{one.records / drift.records:.1%}"


def as_plain(part: PartReport) -> dict[str, Any]:
    """Returns one part of the records as JSON, for programs."""
    return {
        "part": part.part.name,
        "subject": part.part.subject,
        "takes": part.takes.model_dump(exclude={"text"}) if part.takes else None,
        "gives": part.gives,
        "versions": [{"id": k.id, "version": k.version, "problem": k.problem} for k in part.versions],
        "compatible": part.is_compatible,
    }


def _print(part: PartReport) -> None:
    takes = f"version {part.takes.version}, id {part.takes.id}" if part.takes else "none yet; the write registers one"
    does = "read" if isinstance(part.part, SourcePart) else "written"
    title = f"{part.part.title}: subject {escape(part.part.subject)}, {does} with {takes}"
    table = Table(title=title, title_justify="left")
    for name in ("version", "id"):
        table.add_column(name, justify="right")
    table.add_column(f"can be {does}", overflow="fold")
    for known in part.versions:
        version = "" if known.version is None else str(known.version)
        table.add_row(
            version, str(known.id), "yes" if known.problem is None else f"[bold red]no[/]: {escape(known.problem)}"
        )
    out.print(table)
    if part.gives is not None:
        out.print(f"the transform gives {part.gives}", markup=False, soft_wrap=True)
