"""A JVM of Spark's that is told to end while it starts."""

from __future__ import annotations

import signal
import sys
from typing import Any, NoReturn

import pytest
from pyspark import SparkContext, java_gateway

from fencepost.spark import session


def test_a_jvm_that_still_starts_is_ended_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark names the process once the JVM answers; one that is left alone before that runs for ever."""
    started: list[Any] = []

    def launch(*_: Any) -> NoReturn:
        started.append(java_gateway.Popen([sys.executable, "-c", "import time; time.sleep(600)"]))
        session.tell_jvm_to_end()
        session.await_end_of_jvm()
        raise KeyboardInterrupt

    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr(java_gateway, "Popen", java_gateway.Popen)
    monkeypatch.setattr(session, "_started", [])
    monkeypatch.setattr(session, "launch_gateway", launch)
    with pytest.raises(KeyboardInterrupt):
        session._start_jvm({})
    assert started[0].poll() == -signal.SIGTERM
