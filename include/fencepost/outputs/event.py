"""The asset event of a publication, as Airflow's readers get it, whoever emits it: the DAG's task, or a command."""

from __future__ import annotations

from pydantic import JsonValue

from fencepost.model import StepResult


def asset_name(pipeline: str, output: str) -> str:
    """The asset's name in Airflow."""
    return f"{pipeline}: {output}"


def asset_uri(pipeline: str, output: str) -> str:
    """The asset's URI in Airflow."""
    return f"fencepost://{pipeline}/{output}"


def extra_of(result: StepResult) -> dict[str, JsonValue]:
    """The event's `extra`, of what the step advance returned about a batch that is published: its announcement.

    `fencepost.read_validated` takes it.
    """
    told = result.details["announcement"]
    assert isinstance(told, dict), f"batch {result.batch} is {result.state}, and was not announced"
    return told
