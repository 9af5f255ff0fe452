"""`fencepost suggest` and `fencepost judge`: checks, tried on batches that are already published."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from fencepost.cli.arguments import AsJson, PipelineName, pipeline_of
from fencepost.cli.console import err, out, print_json
from fencepost.cli.steps import spark_that_reads
from fencepost.config.pipeline import load_suite
from fencepost.counts import count_of
from fencepost.errors import SettingsError
from fencepost.model import Interval, Outcome

if TYPE_CHECKING:
    from fencepost.ledger.deployment import Deployment
    from fencepost.preview.judge import JudgedRevision
    from fencepost.preview.past import PastRevision
    from fencepost.protocol.view import View

Over = Annotated[int, typer.Option(min=1, help="How many of the newest published intervals to read.")]
STYLE = {Outcome.PASSED: "green", Outcome.REJECTED: "bold red", Outcome.UNDETERMINED: "magenta"}


def suggest(pipeline: PipelineName, over: Over = 30, as_json: AsJson = False) -> None:
    """Suggest checks that the newest published batches pass, for you to choose from.

    Each check is a warning. It holds for every batch that was read, with room for those to come. Batches whose records are
    deleted, or have no header, are named and not used. At least seven batches have to be left. A page with the figures of each
    batch is written to the folder of reports. Nothing else changes: copy what you want into expectations.yaml.

    Example: fencepost suggest nyc_flights --over 30
    """
    from fencepost.preview.page import write_suggested
    from fencepost.preview.suggest import suggest as suggested_of

    found = pipeline_of(pipeline)
    deployment, _, pasts = _published(found, over)
    unread: dict[Interval, str] = {}
    with spark_that_reads(found, "suggest", f"reading {len(pasts)} published batches") as spark:
        suggestions, batches = suggested_of(
            spark, deployment, pasts, lambda past, why: unread.update({past.interval: why})
        )
    page = write_suggested(found, suggestions, unread, batches)
    if as_json:
        print_json(
            {
                "pipeline": pipeline,
                "batches": batches,
                "suggestions": [one.model_dump(mode="json") for one in suggestions],
                "not_read": [{"interval": i.model_dump(mode="json"), "why": why} for i, why in unread.items()],
                "page": str(page),
            }
        )
        return
    for interval, why in unread.items():
        err.print(f"not read: {interval.description}: {why}", markup=False, soft_wrap=True)
    out.print("expectations:", markup=False)
    for one in suggestions:
        out.print(one.yaml, markup=False, soft_wrap=True, end="")
    err.print(
        f"{count_of(len(suggestions), 'check')}, drawn from {count_of(batches, 'batch', 'batches')}; the figures of each: {page}",
        soft_wrap=True,
    )


def judge(
    pipeline: PipelineName,
    suite: Annotated[Path, typer.Option(help="The suite to judge by, such as a changed copy of expectations.yaml.")],
    over: Over = 30,
    as_json: AsJson = False,
) -> None:
    """Show which verdict a suite would have given on the newest published batches, before you use it.

    Each interval is judged as it is in force, with its additions. Rejected batches of the same time are judged separately. Rows
    that a rule of severity quarantine would have taken count towards quality.quarantine_limit. Batches whose records are deleted,
    or have no header, are listed as not judged. A page with each check is written to the folder of reports. Nothing else changes.

    Example: fencepost judge nyc_flights --suite stricter.yaml --over 30
    """
    from fencepost.preview.judge import judge_past
    from fencepost.preview.page import write_judged
    from fencepost.preview.past import rejected_since

    found, content = pipeline_of(pipeline), load_suite(suite)
    deployment, view, pasts = _published(found, over)
    apart = rejected_since(view, pasts[0].interval)
    with spark_that_reads(found, "judge", f"judging {len(pasts) + len(apart)} batches") as spark:
        published = list(judge_past(spark, deployment, view, pasts, content, suite))
        rejected = list(judge_past(spark, deployment, view, apart, content, suite))
    page = write_judged(found, suite, published, rejected)
    if as_json:
        print_json(
            {
                "pipeline": pipeline,
                "suite": str(suite),
                "published": [one.model_dump(mode="json") for one in published],
                "rejected": [one.model_dump(mode="json") for one in rejected],
                "page": str(page),
            }
        )
        return
    for title, judged in (("published", published), ("rejected", rejected)):
        if judged:
            _print_judged(f"{pipeline}: {title} batches under {suite.name}", judged)
    out.print(summary(published), soft_wrap=True)
    err.print(f"each check, and why: {page}", soft_wrap=True)


def summary(judged: list[JudgedRevision]) -> str:
    """Returns how many batches would have passed, in a sentence."""
    passed, refused, unclear = (sum(one.now is outcome for one in judged) for outcome in Outcome)
    left = len(judged) - passed - refused - unclear
    parts = [f"{passed} would have passed", f"{refused} would have been rejected"]
    parts += [f"{unclear} could not be decided"] if unclear else []
    parts += [f"{left} could not be judged"] if left else []
    return f"Of {len(judged)} published: {', '.join(parts)}."


def _print_judged(title: str, judged: list[JudgedRevision]) -> None:
    table = Table(title=title, title_justify="left")
    for name in ("interval (UTC)", "rev", "rows", "then", "would be", "taken"):
        right = name in {"rev", "rows", "taken"}
        table.add_column(name, justify="right" if right else "left", no_wrap=True)
    for one in judged:
        now = "not judged" if one.now is None else f"[{STYLE[one.now]}]{one.now}[/]"
        span = f"{one.interval.start:%Y-%m-%d %H:%M} → {one.interval.end:%m-%d %H:%M}"
        taken = sum(one.taken.values())
        table.add_row(span, one.revision, str(one.rows), str(one.then or ""), now, str(taken) if taken else "")
    out.print(table)
    for one in judged:
        if one.now is not Outcome.PASSED:
            out.print(f"  {one.interval.start:%Y-%m-%d %H:%M}  {escape(one.why)}", soft_wrap=True)


def _published(pipeline: Any, over: int) -> tuple[Deployment, View, list[PastRevision]]:
    """Returns the deployment, what its ledger has, and the newest published intervals. Raises SettingsError if there
    are none.
    """
    from fencepost.ledger.deployment import Deployment
    from fencepost.preview.past import newest_published

    deployment = Deployment.of(pipeline)
    view = deployment.ledger.read()
    if not (pasts := newest_published(view, over)):
        raise SettingsError(f"pipeline {pipeline.name}: no batch is published yet, so there is none to read.")
    return deployment, view, pasts
