"""The command line has the four steps without Airflow, views of the ledger, and the commands that other packages add.

Exit codes: 0 published, or nothing to do; 1 rejected; 2 usage or settings; 3 worth another run; 4 a person has to act.
`--json` prints one JSON document on standard output, of a failure too; everything else goes to standard error.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from fencepost.cli.acls import acls
from fencepost.cli.announce import announce
from fencepost.cli.compare import DiffCommand, diff, trace
from fencepost.cli.console import end_quietly, err, is_read, out, plain_error, print_json
from fencepost.cli.current import current
from fencepost.cli.decide import publish, skip, withdraw
from fencepost.cli.doctor import doctor
from fencepost.cli.extensions import mount_commands
from fencepost.cli.interruption import heeding_signals, leave_if_interrupted, saying_how_to_go_on
from fencepost.cli.jars import jars
from fencepost.cli.judge import judge, suggest
from fencepost.cli.new import new
from fencepost.cli.notify import notify
from fencepost.cli.pipelines import pipelines
from fencepost.cli.quarantine import quarantine
from fencepost.cli.remove import remove
from fencepost.cli.replay import replay
from fencepost.cli.run import run
from fencepost.cli.schema import schema
from fencepost.cli.status import show_ledger, status
from fencepost.cli.try_ import try_
from fencepost.config.software import software
from fencepost.errors import FencepostError, SettingsError
from fencepost.spark.diagnosis import unexpected
from fencepost.steps.jobs import start_log


class Commands(TyperGroup):
    """Catches errors that Typer would misinterpret. Typer takes an EOFError for a closed terminal and a BrokenPipeError
    for a closed output, and exits with 1.
    """

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        """Runs the command. No command asks for input, so a stream that ended belongs to Spark or a worker."""

        def command() -> str:  # set once it is known
            return str(ctx.invoked_subcommand or "")

        with saying_how_to_go_on(command, as_json="--json" in sys.argv):
            try:
                return super().invoke(ctx)
            except BrokenPipeError as error:
                if not is_read(1):
                    end_quietly()
                raise unexpected(error, command()) from error  # the stream of a JVM or a worker that ended
            except EOFError as error:
                raise unexpected(error, command()) from error


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Exactly-once batch ETL from Kafka to Kafka, PostgreSQL or Iceberg, on Spark, Airflow and Great Expectations.",
    epilog="Exit codes: 0 published or nothing to do, 1 rejected, 2 usage or settings, 3 run it again, 4 a person has to act.",
)


def _show_version(asked: bool) -> None:
    if asked:
        out.print(software(), soft_wrap=True)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_show_version,
            is_eager=True,
            help="Print the version, and the versions of the packages that compute and encode records.",
        ),
    ] = False,
) -> None:
    pass


for command in (
    new,
    run,
    status,
    quarantine,
    replay,
    skip,
    withdraw,
    publish,
    remove,
    current,
    pipelines,
    suggest,
    judge,
    trace,
    doctor,
    schema,
    acls,
    announce,
    notify,
    jars,
):
    app.command()(command)
app.command("try")(try_)
app.command(cls=DiffCommand)(diff)
app.command("ledger")(show_ledger)
mount_commands(app)


def main() -> None:
    """Runs the console script. An error of Fencepost becomes one line and an exit code. With `--json` the error also
    becomes a document.
    """
    as_json = "--json" in sys.argv
    try:
        start_log(os.environ.get("FENCEPOST_LOG", "WARNING"))
        with heeding_signals():
            sys.exit(app(standalone_mode=not as_json))
    except (SystemExit, KeyboardInterrupt) as ended:
        leave_if_interrupted(ended)
        raise
    except FencepostError as error:
        err.print(f"[bold red]{type(error).__name__}[/]: ", end="")
        err.print(str(error), markup=False, soft_wrap=True)
        failed, exit_code = error, error.exit_code
    except TyperException as error:  # a usage error; without --json, Typer itself prints it and exits
        failed, exit_code = SettingsError(error.format_message()), error.exit_code
        err.print(f"{str(failed).rstrip('.')}. See fencepost --help.", markup=False, soft_wrap=True)
    except Exception as error:  # an unforeseen error; its message may quote records
        failed = unexpected(error)
        err.print(str(failed), markup=False, soft_wrap=True)
        exit_code = failed.exit_code
    if as_json:
        print_json(plain_error(failed, exit_code))
    sys.exit(exit_code)
