"""The Airflow that a command knows: the one that the environment names."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fencepost.config.pipeline import Pipeline
from fencepost.model import State, StepResult
from fencepost.outputs.event import asset_name, asset_uri, extra_of

if TYPE_CHECKING:
    from fencepost.cli.airflow_api import AirflowApi

AIRFLOW_URL = "FENCEPOST_AIRFLOW_URL"
NO_AIRFLOW = (
    f"No Airflow is known here. {AIRFLOW_URL}, FENCEPOST_AIRFLOW_USER and FENCEPOST_AIRFLOW_PASSWORD in the environment name "
    "one."
)
TIMEOUT = 10.0  # seconds for one answer


def known_airflow() -> AirflowApi | None:
    """The Airflow that FENCEPOST_AIRFLOW_URL names; None: none is known here.

    Raises:
        AirflowUnavailable: it does not answer.
        AirflowRefused: it refuses the login.
    """
    url = os.environ.get(AIRFLOW_URL)
    if not url:
        return None
    from fencepost.cli.airflow_api import AirflowApi  # every command would wait a tenth of a second for httpx

    user, password = (os.environ.get(f"FENCEPOST_AIRFLOW_{name}", "") for name in ("USER", "PASSWORD"))
    return AirflowApi(url, user, password, TIMEOUT)


def asset_event(pipeline: Pipeline, result: StepResult) -> Iterator[StepResult]:
    """Emit the asset event of what this step has just published, if it has; the result says whether Airflow got it.

    The publication is done and stays as it is, whatever happens here.
    """
    if (result.step, result.state, result.changed) != ("advance", State.PUBLISHED, True):
        return
    extra, name = extra_of(result), asset_name(pipeline.name, pipeline.output.name)
    emitted = False
    try:
        airflow = known_airflow()
        if airflow is None:
            told = f"no asset event, so no DAG that reads the asset '{name}' starts. {NO_AIRFLOW}"
        else:
            with airflow:
                emitted = airflow.emit(name, asset_uri(pipeline.name, pipeline.output.name), extra)
            told = f"emitted the asset event to Airflow at {airflow.url}"
            if not emitted:
                told = f"no asset event: Airflow at {airflow.url} has no asset '{name}': no DAG there reads it"
    except Exception as error:
        told = (
            f"published, but without its asset event: {type(error).__name__}: {error} DAGs that read the asset '{name}' do not "
            "start by themselves. Once Airflow answers, create the event in its UI, on the asset's page, with this extra: "
            f"{json.dumps(extra)}"
        )
    yield StepResult.model_validate(
        dict(result) | {"step": "event", "changed": emitted, "message": told, "details": {"extra": extra}}
    )
