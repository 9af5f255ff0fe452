"""The Spark settings that a pipeline may not set, because the protocol depends on them."""

from __future__ import annotations

from collections.abc import Mapping

FIXED_SPARK = {
    "spark.sql.adaptive.enabled": ("false", "the plan fixes the number of task-partitions"),
    "spark.sql.session.timeZone": ("UTC", "all times are UTC"),
    "spark.submit.deployMode": ("client", "the driver has to end with the task"),
}
OWN_SPARK = {
    "spark.master": "it does not belong to a pipeline: Airflow takes the host of its connection spark_default, and `fencepost "
    "run` takes the variable FENCEPOST_SPARK_MASTER (local[*] without it). Set it there",
    "spark.submit.pyFiles": "it brings the fencepost package to the executors",
    "spark.redaction.regex": "it keeps passwords out of Spark's plans",
}


def check_spark(values: Mapping[str, str]) -> None:
    """Refuse Spark settings that the protocol depends on, and those that Spark would ignore.

    Raises:
        ValueError: names the setting, what was found and what is allowed.
    """
    for name, value in values.items():
        if not name.startswith("spark."):
            raise ValueError(f"{name}: Spark's settings begin with 'spark.'; Spark would ignore this one")
        if name in OWN_SPARK:
            raise ValueError(f"{name} cannot be set: {OWN_SPARK[name]}")
        allowed, reason = FIXED_SPARK.get(name, (value, ""))
        if value != allowed:
            raise ValueError(f"{name} is {value!r}, allowed is {allowed!r}: {reason}")
