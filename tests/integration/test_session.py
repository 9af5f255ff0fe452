"""What a step's session has ready before the first job."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from fencepost.config.pipeline import Pipeline

TESTS = Path(__file__).parent.parent
SCRIPT = """
import sys, psutil
from pyspark.accumulators import AccumulatorServer
from fencepost.config.loading import find_pipeline
from fencepost.spark.session import build_session
from waiting import await_true
spark = build_session(find_pipeline(sys.argv[1]), "run")
def workers():
    below = {p.pid for p in psutil.Process().children(recursive=True)}
    found = [p.info for p in psutil.process_iter(["pid", "cmdline"]) if p.pid in below]
    return [p for p in found if "fencepost.spark.daemon" in (p["cmdline"] or [])]
await_true(lambda: len(workers()) > 1, "the daemon and a worker to be there without a job of ours", 60)
assert AccumulatorServer.shutdown.__name__ == "_shut_down_aside"
spark.stop()
await_true(lambda: not workers(), "them to end with the session", 60)
"""


def test_workers_of_python_start_with_the_session_and_end_with_it(make_pipeline: Callable[..., Pipeline]) -> None:
    pipeline = make_pipeline()
    environment = {
        **os.environ,
        "FENCEPOST_PIPELINES": str(pipeline.folder.parent),
        "FENCEPOST_SPARK_MASTER": "local[1]",
        "PYTHONPATH": str(TESTS),
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, pipeline.name], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
