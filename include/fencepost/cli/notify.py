"""`fencepost notify`: tests whether a pipeline's notifications arrive."""

from __future__ import annotations

from typing import Annotated

import typer

from fencepost.cli.arguments import AsJson, PipelineName, pipeline_of
from fencepost.cli.console import err, out, print_json
from fencepost.config.notify import EVENTS
from fencepost.errors import SettingsError


def notify(
    pipeline: PipelineName,
    test: Annotated[
        str, typer.Option(help=f"Send this event as a test: {', '.join(EVENTS)}.", autocompletion=lambda: list(EVENTS))
    ],
    as_json: AsJson = False,
) -> None:
    """Send a test of an event through each notifier that `notify` in pipeline.yaml names for it.

    The message has invented figures and says that it is a test. The command does not contact Kafka, and records nothing.

    Run it where Airflow's workers run. It uses the notifiers that are installed here, and connections from the secrets backend,
    from AIRFLOW_CONN_... in the environment, and from Airflow's database if the settings here reach it.

    Example: fencepost notify nyc_flights --test rejected
    """
    found = pipeline_of(pipeline)
    event = next((one for one in EVENTS if one == test), None)
    if event is None:
        raise SettingsError(f"--test {test}: no such event; there are {', '.join(EVENTS)}.")
    if not any(event in entry.on for entry in found.notify):
        raise SettingsError(
            f"{found.folder / 'pipeline.yaml'}: notify: no entry has {event} in `on`, so nobody is notified of it. "
            "Add one."
        )
    from fencepost.airflow.sample_event import send_test

    sent = send_test(found, event)
    failed = [one for one in sent if one.error]
    if as_json:
        results = [{"notifier": one.entry.notifier, "sent": not one.error, "error": one.error or None} for one in sent]
        print_json({"pipeline": pipeline, "event": event, "notifiers": results})
    else:
        for one in sent:
            (err if one.error else out).print(
                f"{one.entry.notifier}: {one.error or 'sent'}", markup=False, soft_wrap=True
            )
    if failed:
        raise typer.Exit(SettingsError.exit_code)
