"""Options that several commands share, with their parsing and checks."""

from __future__ import annotations

import os
import pwd
from datetime import datetime
from typing import Annotated

import typer

from fencepost.cli.console import err
from fencepost.cli.extensions import use_environment
from fencepost.config.loading import find_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.errors import FencepostError, SettingsError
from fencepost.model import Decision, Interval, to_utc, utc_now
from fencepost.paths import pipelines_folder

COMPLETION = 2.0  # seconds that a completion waits for Kafka


def names_like(incomplete: str) -> list[str]:
    """Returns the names of pipelines with this prefix, for shell completion."""
    folder = pipelines_folder()
    files = folder.glob("*/pipeline.yaml") if folder.is_dir() else ()
    return sorted(file.parent.name for file in files if file.parent.name.startswith(incomplete))


def formats_like(incomplete: str) -> list[str]:
    """Returns the formats with this prefix, for shell completion."""
    from fencepost.formats import FORMATS

    return [name for name in FORMATS if name.startswith(incomplete)]


def topics_like(ctx: typer.Context, incomplete: str) -> list[str]:
    """Returns the topics with this prefix, for shell completion of `new`. The topics are those of the Kafka that the
    command line names so far. The list is empty if Kafka does not answer within a moment.
    """
    from fencepost.drafting.connection import connection_of
    from fencepost.drafting.draft import known_topics

    given = ctx.params
    try:
        use_environment()
        connection = connection_of(given.get("like"), given.get("kafka") or (), given.get("registry") or ())
        found = known_topics(connection, with_connections, COMPLETION)
    except FencepostError:
        return []
    return [name for name in found if name.startswith(incomplete)]


PipelineName = Annotated[
    str, typer.Argument(help="The pipeline's name: its folder in include/pipelines.", autocompletion=names_like)
]
Start = Annotated[str, typer.Option(help="Start of the interval, ISO 8601; UTC if it has no zone.")]
End = Annotated[str, typer.Option(help="End of the interval (exclusive), ISO 8601.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs. A failure is printed as JSON too.")]
Reason = Annotated[
    str, typer.Option(help="The reason, for later readers: stored in the ledger with your name and the time.")
]


def interval_of(start: str, end: str) -> Interval:
    """Returns the interval of --start and --end. Raises SettingsError if they are not times, or in the wrong order."""
    first, last = moment_of("--start", start), moment_of("--end", end)
    if last <= first:
        raise SettingsError(f"--end {end} is not after --start {start}. An interval's end is later than its start.")
    return Interval(start=first, end=last)


def moment_of(option: str, text: str) -> datetime:
    """Returns a time in ISO 8601, in UTC. Raises a SettingsError that names `option` if the text is not a time."""
    try:
        return to_utc(datetime.fromisoformat(text))
    except ValueError:
        raise SettingsError(f"{option} {text}: not a time in ISO 8601, such as 2013-01-01T00:00-05:00.") from None
    except OverflowError:
        raise SettingsError(f"{option} {text}: not within the years 1 to 9999 in UTC.") from None


def decision_of(action: str, reason: str) -> Decision:
    """Returns an operator's decision, with name and time. Raises SettingsError if the reason is blank."""
    if not reason.strip():
        raise SettingsError("--reason: give a reason, for later readers of the ledger.")
    return Decision(action=action, by=user_name(), reason=reason, decided_at=utc_now())


def user_name() -> str:
    """Returns the name of the user who decides, from LOGNAME or USER. If the user of the process is another user, the
    name has both.

    Anybody can set the variables. In a container a user may have only a number.
    """
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = f"uid {os.getuid()}"
    claimed = os.environ.get("LOGNAME") or os.environ.get("USER") or user
    return user if claimed == user else f"{claimed} (process user: {user})"


def pipeline_of(name: str) -> Pipeline:
    """Returns the pipeline of that name, with the settings of its connections."""
    use_environment()
    return with_connections(find_pipeline(name))


def with_connections(pipeline: Pipeline) -> Pipeline:
    """Returns the pipeline with the settings of its connections, which are looked up where Airflow would. Airflow is
    imported only if the pipeline has connections.
    """
    if not pipeline.all_connections:
        return pipeline
    from fencepost.airflow.command_connections import resolve_for_command

    return resolve_for_command(pipeline, lambda line: err.print(line, markup=False, soft_wrap=True))[0]
