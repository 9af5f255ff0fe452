"""`fencepost announce`: write a lost topic of announcements again."""

from __future__ import annotations

import typer

from fencepost.cli.arguments import AsJson, PipelineName, pipeline_of
from fencepost.cli.console import print_json


def announce(pipeline: PipelineName, as_json: AsJson = False) -> None:
    """Write the topic of announcements again, if it was lost.

    Each publication, skip and withdrawal is announced in topic fencepost.PIPELINE.published, in the transaction that records it.
    If the topic was deleted or emptied, plans and publications stop until this command has written it again from the ledger. A
    complete topic is left as it is.

    Example: fencepost announce orders_hourly
    """
    from fencepost.steps.announce import announce_again

    found = announce_again(pipeline_of(pipeline))
    if as_json:
        print_json({"pipeline": pipeline, "topic": found.topic, "written": found.written, "had": found.had})
        return
    typer.echo(f"{found.message}.")
