"""`fencepost current`: whether a current table is up to date, and computing it as a whole."""

from __future__ import annotations

from typing import Annotated

import typer

from fencepost.cli.arguments import AsJson, PipelineName, pipeline_of
from fencepost.cli.console import out, print_json
from fencepost.errors import SettingsError


def current(
    pipeline: PipelineName,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Compute all keys from the output table, and change the rows that differ.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show whether the current table is up to date. With --rebuild, compute it from all rows of the output table.

    A current table is stale if it was added to a table that has rows, if its columns, key or order have changed, or if one of the
    two tables was restored, replaced or emptied. Publications then leave it as it is, until this command has computed it once.

    The command refuses while the output table lacks published rows. Publications wait until it has ended.

    Example: fencepost current customers --rebuild
    """
    from fencepost.ledger.deployment import Deployment
    from fencepost.outputs.output import output_of

    found = pipeline_of(pipeline)
    deployment = Deployment.of(found)
    table = output_of(deployment).current
    if table is None:
        raise SettingsError(
            f"pipeline {pipeline}: {found.output.description} has no current table. Set output.current."
        )
    changed = table.rebuild(deployment.ledger.read) if rebuild else None
    stale = table.why_stale()
    if as_json:
        print_json({"pipeline": pipeline, "stale": stale or None, "rebuilt": changed})
        return
    out.print(
        f"{pipeline}: {f'computed, {changed}' if changed else stale or 'the current table is up to date'}.",
        markup=False,
        soft_wrap=True,
    )
