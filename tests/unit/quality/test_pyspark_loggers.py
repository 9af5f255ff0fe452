"""PySpark's own loggers stay its own."""

from __future__ import annotations

import subprocess
import sys

FIRST_TO_ASK = """
from types import SimpleNamespace

from fencepost.quality.columns import condition_error
from pyspark.logger import PySparkLogger

assert condition_error(SimpleNamespace(where=lambda sql: SimpleNamespace(schema=None)), "n > 1") is None
# What PySpark does with an error that has a query context; of a plain logger it would be a TypeError in the error's place.
PySparkLogger.getLogger("SQLQueryContextLogger").exception("CAST_INVALID_INPUT", errorClass="CAST_INVALID_INPUT")
"""


def test_an_error_of_spark_is_still_told_after_a_condition_was_checked() -> None:
    done = subprocess.run([sys.executable, "-c", FIRST_TO_ASK], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
