"""Options that several commands share, read and checked."""

from __future__ import annotations

import getpass
import os
from datetime import datetime
from typing import Annotated

import typer

from fencepost.config.loading import find_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.errors import SettingsError
from fencepost.local.state_folder import StateFolder
from fencepost.model import Decision, Interval, to_utc, utc_now

PipelineName = Annotated[str, typer.Argument(help="The pipeline's name: its folder in include/pipelines.")]
Start = Annotated[str, typer.Option(help="Start of the interval, ISO 8601; UTC where no zone is given.")]
End = Annotated[str, typer.Option(help="End of the interval (exclusive), ISO 8601.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Reason = Annotated[str, typer.Option(help="Why; stored in the ledger with who and when.")]


def interval_of(start: str, end: str) -> Interval:
    """The interval of --start and --end; SettingsError where they are no times, or the wrong way round."""
    first, last = moment_of("--start", start), moment_of("--end", end)
    if last <= first:
        raise SettingsError(
            f"--end {end} does not lie after --start {start}. An interval is from its start up to its end."
        )
    return Interval(start=first, end=last)


def moment_of(option: str, text: str) -> datetime:
    """A time in ISO 8601, in UTC; `option` is named in the SettingsError where it is none."""
    try:
        return to_utc(datetime.fromisoformat(text))
    except ValueError:
        raise SettingsError(f"{option} {text}: not a time in ISO 8601, such as 2013-01-01T00:00-05:00.") from None
    except OverflowError:
        raise SettingsError(f"{option} {text}: not within the years 1 to 9999 in UTC.") from None


def decision_of(action: str, reason: str) -> Decision:
    """An operator's word, with who and when; SettingsError where the reason is blank."""
    if not reason.strip():
        raise SettingsError("--reason: say why, for those who read the ledger later.")
    return Decision(action=action, by=user_name(), reason=reason, decided_at=utc_now())


def user_name() -> str:
    """Who decides, by name; in a container the user may have a number alone."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def pipeline_of(name: str) -> Pipeline:
    """The pipeline of that name, on the local stack where nothing else is said."""
    use_local_kafka()
    return find_pipeline(name)


def use_local_kafka() -> None:
    """Without KAFKA_BOOTSTRAP the local stack's broker is meant, where it has been started."""
    if "KAFKA_BOOTSTRAP" not in os.environ and StateFolder.default().services_file.exists():
        from fencepost.local.stack import Stack

        kafka = Stack().services()["kafka"]
        if kafka["running"]:
            os.environ["KAFKA_BOOTSTRAP"] = kafka["bootstrap"]
