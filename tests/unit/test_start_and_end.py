"""What makes a step of few rows start and end sooner."""

from __future__ import annotations

import subprocess
import sys

from pyspark.accumulators import AccumulatorServer, _UpdateRequestHandler

from fencepost.spark import session
from waiting import await_true


def test_nobody_waits_for_the_server_of_accumulators() -> None:
    """Nothing serves this one, so its own `shutdown` would wait for ever."""
    server = AccumulatorServer(("127.0.0.1", 0), _UpdateRequestHandler, "")
    session._shut_down_aside(server)
    await_true(lambda: server.server_shutdown, "the server to be told")
    server.server_close()


def test_great_expectations_is_kept_from_the_collector_once() -> None:
    script = (
        "import gc; from fencepost.quality.engines import load; load(); first = gc.get_freeze_count(); kept = [[], []];"
        "load(); print(gc.isenabled(), first > 100_000, gc.get_freeze_count() <= first)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "True True True\n"
