"""The command line: the four steps without Airflow, a look at the ledger, and the local stack.

Exit codes: 0 published, or nothing to do; 1 rejected; 2 usage or settings; 3 worth another run; 4 a person has to act.
`--json` prints one JSON document on standard output; everything else goes to standard error.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from fencepost.cli.acls import acls
from fencepost.cli.console import err
from fencepost.cli.decide import publish, skip, withdraw
from fencepost.cli.demo import cluster, demo
from fencepost.cli.doctor import doctor
from fencepost.cli.pipelines import pipelines
from fencepost.cli.quarantine import quarantine
from fencepost.cli.replay import replay
from fencepost.cli.run import run
from fencepost.cli.schema import schema
from fencepost.cli.status import show_ledger, status
from fencepost.errors import FencepostError
from fencepost.local.commands import register
from fencepost.spark.diagnosis import unexpected
from fencepost.steps.jobs import start_log


class Commands(TyperGroup):
    """Catches errors that Click would misread: Click takes an EOFError for a closed terminal and exits with 1."""

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        """Run the command. Nothing here asks for input, so a stream that ended is Spark's or a worker's."""
        try:
            return super().invoke(ctx)
        except EOFError as error:
            raise unexpected(error, str(ctx.invoked_subcommand or "")) from error
        except KeyboardInterrupt:
            err.print("interrupted; run the same command again to continue.")
            raise typer.Exit(130) from None


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Exactly-once batch ETL from Kafka to Kafka, on Spark, Airflow and Great Expectations.",
    epilog="Exit codes: 0 published or nothing to do, 1 rejected, 2 usage or settings, 3 run it again, 4 a person has to act.",
)


for command in (
    run,
    status,
    quarantine,
    replay,
    skip,
    withdraw,
    publish,
    pipelines,
    doctor,
    schema,
    acls,
    demo,
    cluster,
):
    app.command()(command)
app.command("ledger")(show_ledger)
register(app)  # up, down, services, jars


def main() -> None:
    """The console script: Fencepost's errors become one clear line and an exit code."""
    try:
        start_log(os.environ.get("FENCEPOST_LOG", "WARNING"))
        app()
    except FencepostError as error:
        err.print(f"[bold red]{type(error).__name__}[/]: ", end="")
        err.print(str(error), markup=False, soft_wrap=True)
        sys.exit(error.exit_code)
    except Exception as error:  # unforeseen; its message may quote records
        found = unexpected(error)
        err.print(str(found), markup=False, soft_wrap=True)
        sys.exit(found.exit_code)
