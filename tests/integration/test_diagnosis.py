"""What a failure says of Spark's JVM, the driver."""

from __future__ import annotations

import signal
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkContext

from fencepost.spark.diagnosis import describe_jvm_end


def test_who_fails_asks_the_jvm_whether_it_lives_and_waits_for_its_end_only_if_it_does_not(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    awaited: list[float] = []

    def wait(timeout: float) -> int:
        awaited.append(timeout)
        return -signal.SIGTERM

    monkeypatch.setattr(SparkContext._gateway.proc, "wait", wait)  # type: ignore[union-attr]
    with pytest.raises(Exception, match="on purpose") as failed:
        spark.sql("SELECT raise_error('on purpose')").collect()
    assert describe_jvm_end(failed.value) is None
    assert not awaited

    stopped = SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: True)))
    monkeypatch.setattr(SparkContext, "_active_spark_context", stopped)
    assert describe_jvm_end(failed.value) == "killed by SIGTERM"
    assert awaited
