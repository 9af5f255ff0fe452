"""Reads what Spark has observed while a job ran."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Observation


def observed_values(observation: Observation) -> dict[str, Any] | None:
    """Returns the values of an observation whose job has ended. Returns None if the job did not come past it: Spark leaves
    out a part of a plan that it knows to give no rows.
    """
    jvm_observation = observation._jo
    assert jvm_observation is not None, "a DataFrame observes it"
    if jvm_observation.getRow().schema() is None:  # and then `get` fails in the JVM
        return None
    return observation.get
