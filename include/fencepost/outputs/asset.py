"""The asset event of a publication in Airflow. The DAG's task emits it, or a command does."""

from __future__ import annotations

from pydantic import JsonValue

from fencepost.model import StepResult


def asset_name(pipeline: str, output: str) -> str:
    """Returns the asset's name in Airflow."""
    return f"{pipeline}: {output}"


def asset_uri(pipeline: str, output: str) -> str:
    """Returns the asset's URI in Airflow."""
    return f"fencepost://{pipeline}/{output}"


def extra_of(result: StepResult) -> dict[str, JsonValue]:
    """Returns the event's `extra`. The `extra` is the announcement in the result of the step advance, and
    `fencepost.read_validated` accepts it.
    """
    announcement = result.details["announcement"]
    assert isinstance(announcement, dict), f"batch {result.batch} is {result.state}, and was not announced"
    return announcement
