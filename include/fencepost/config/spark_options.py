"""The Spark settings that a pipeline may not set: the protocol depends on them, or they are secrets."""

from __future__ import annotations

from collections.abc import Mapping

from fencepost.config.secret_names import OF_AIRFLOW, looks_secret

ARGUMENTS = (
    "looks like a secret, but spark settings are arguments of spark-submit, which everybody on the machine can read; read it "
    "from os.environ in transform.py, or set it in Spark's own spark-defaults.conf"
)
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
    """Refuse Spark settings that the protocol depends on, those that Spark would ignore, and secrets.

    Raises:
        ValueError: names the setting, what was found and what is allowed; never a value that could be a secret.
    """
    for name, value in values.items():
        if not name.startswith("spark."):
            raise ValueError(f"{name}: Spark's settings begin with 'spark.'; Spark would ignore this one")
        if name in OWN_SPARK:
            raise ValueError(f"{name} cannot be set: {OWN_SPARK[name]}")
        if OF_AIRFLOW.search(value):
            raise ValueError(
                f"{name} names a variable of Airflow's own (AIRFLOW__..., AIRFLOW_CONN_..., AIRFLOW_VAR_...)"
            )
        if looks_secret(name, value):
            raise ValueError(f"{name} {ARGUMENTS}")
        allowed, reason = FIXED_SPARK.get(name, (value, ""))
        if value != allowed:
            raise ValueError(f"{name} is {value!r}, allowed is {allowed!r}: {reason}")
