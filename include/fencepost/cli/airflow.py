"""Connects commands to the Airflow that the environment names."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fencepost.config.pipeline import Pipeline
from fencepost.model import State, StepResult
from fencepost.outputs.asset import asset_name, asset_uri, extra_of

if TYPE_CHECKING:
    from fencepost.cli.airflow_api import AirflowApi

AIRFLOW_URL = "FENCEPOST_AIRFLOW_URL"
NO_AIRFLOW = (
    f"No Airflow is known here. Set {AIRFLOW_URL}, FENCEPOST_AIRFLOW_USER and FENCEPOST_AIRFLOW_PASSWORD in the "
    "environment to name one."
)
TIMEOUT = 10.0  # seconds for one answer


def known_airflow() -> AirflowApi | None:
    """Returns the Airflow that FENCEPOST_AIRFLOW_URL names, or None if the variable is not set.

    Raises:
        AirflowUnavailable: Airflow does not answer.
        AirflowRefused: Airflow refuses the login.
    """
    url = os.environ.get(AIRFLOW_URL)
    if not url:
        return None
    from fencepost.cli.airflow_api import (
        AirflowApi,
    )  # importing httpx takes a tenth of a second, which other commands need not wait

    user, password = (os.environ.get(f"FENCEPOST_AIRFLOW_{name}", "") for name in ("USER", "PASSWORD"))
    return AirflowApi(url, user, password, TIMEOUT)


def asset_event(pipeline: Pipeline, result: StepResult) -> Iterator[StepResult]:
    """Yields the result, and emits the asset event if the step has published. Another result then says whether Airflow
    accepted the event.

    The publication is complete before that, and does not depend on the event.
    """
    if (result.step, result.state, result.changed) != ("advance", State.PUBLISHED, True):
        return
    extra, name = extra_of(result), asset_name(pipeline.name, pipeline.output.name)
    emitted = False
    try:
        airflow = known_airflow()
        if airflow is None:
            message = f"no asset event, so DAGs that read the asset '{name}' do not start. {NO_AIRFLOW}"
        else:
            with airflow:
                emitted = airflow.emit(name, asset_uri(pipeline.name, pipeline.output.name), extra)
            message = f"emitted the asset event to Airflow at {airflow.url}"
            if not emitted:
                message = (
                    f"no asset event, because Airflow at {airflow.url} has no asset '{name}': no DAG there reads it"
                )
    except Exception as error:
        message = (
            f"published, but without its asset event: {type(error).__name__}: {error} DAGs that read the asset '{name}' do not "
            "start by themselves. Once Airflow answers, create the event in its UI, on the asset's page, with this extra: "
            f"{json.dumps(extra)}"
        )
    yield StepResult.model_validate(
        dict(result) | {"step": "event", "changed": emitted, "message": message, "details": {"extra": extra}}
    )
