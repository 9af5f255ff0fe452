"""What makes a step of few rows start and end sooner."""

from __future__ import annotations

import subprocess
import sys

from pyspark.accumulators import AccumulatorTCPServer, UpdateRequestHandler

from fencepost.spark import session
from waiting import await_true


def test_nobody_waits_for_the_server_of_accumulators() -> None:
    """Nothing serves this one, so its own `shutdown` would wait for ever."""
    server = AccumulatorTCPServer(("127.0.0.1", 0), UpdateRequestHandler, "")
    session._shut_down_aside(server)
    await_true(lambda: server.server_shutdown, "the server to be told")
    server.server_close()


def test_the_last_collection_is_made_once_and_takes_garbage_with_it() -> None:
    """The process's end goes over what is left, which is a great deal with Great Expectations."""
    script = (
        "import atexit, gc, weakref; frozen = gc.get_freeze_count(); from fencepost.quality.judging import load\n"
        "class Client: pass\n"
        "garbage = Client(); garbage.itself = garbage; found = weakref.ref(garbage)\n"
        "atexit.register(lambda: print(gc.get_freeze_count() > 100_000, found() is None))\n"  # runs last
        "load(); load(); print(gc.isenabled(), gc.get_freeze_count() - frozen); del garbage; gc.disable()\n"
        "collect = gc.collect; gc.collect = lambda: print('collects', collect() > 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "True 0\ncollects True\nTrue True\n"
