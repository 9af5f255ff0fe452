"""Which of Spark's settings a pipeline may not name, because the protocol rests on them."""

from __future__ import annotations

from collections.abc import Mapping

FIXED_SPARK = {
    "spark.sql.adaptive.enabled": ("false", "the number of task-partitions is the plan's"),
    "spark.sql.session.timeZone": ("UTC", "all times are UTC"),
    "spark.submit.deployMode": ("client", "the driver has to end with the task"),
}
OWN_SPARK = {
    "spark.master": "it is not the pipeline's: Airflow takes the host of its connection spark_default, and `fencepost run` "
    "the variable FENCEPOST_SPARK_MASTER (local[*] without it). Set it there",
    "spark.submit.pyFiles": "it carries the fencepost package to the executors",
    "spark.redaction.regex": "it keeps passwords out of Spark's plans",
}


def check_spark(values: Mapping[str, str]) -> None:
    """Refuse Spark settings that the protocol rests on, and those that Spark would ignore.

    Raises:
        ValueError: naming the setting, what was found and what is allowed.
    """
    for name, value in values.items():
        if not name.startswith("spark."):
            raise ValueError(f"{name}: a name of Spark's begins with 'spark.'; Spark would ignore this one")
        if name in OWN_SPARK:
            raise ValueError(f"{name} cannot be set: {OWN_SPARK[name]}")
        allowed, reason = FIXED_SPARK.get(name, (value, ""))
        if value != allowed:
            raise ValueError(f"{name} is {value!r}, allowed is {allowed!r}: {reason}")
