"""Great Expectations is imported by one thread at a time, since its modules import each other in circles, and without what no
verdict needs, which nobody else misses."""

from __future__ import annotations

import subprocess
import sys

import pytest

# The second thread asks while the first is in the middle of the import, and stays there until the other waits, or is done.
TWO_THREADS = """
import sys
from importlib.abc import MetaPathFinder
from threading import Event, Lock, Thread, current_thread

from fencepost.quality import judging, loading

LATE = "great_expectations.execution_engine.sparkdf_execution_engine"
in_the_middle, go_on = Event(), Event()
order = []


class Told:
    def __init__(self):
        self.lock = Lock()

    def __enter__(self):
        if current_thread() is not first:
            go_on.set()
        self.lock.acquire()

    def __exit__(self, *_):
        if current_thread() is first:
            order.append("loaded")  # while the lock is held
        self.lock.release()


class Slow(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == LATE and current_thread() is first:
            in_the_middle.set()
            assert go_on.wait(60)


def ask():
    assert judging.judge_records([], {}) == {}
    order.append("asked")
    go_on.set()


first, second = Thread(target=loading.load), Thread(target=ask)
loading._LOADING = Told()
sys.meta_path.insert(0, Slow())
first.start()
assert in_the_middle.wait(120)
second.start()
first.join()
second.join()
print(order)
"""


def test_who_needs_it_waits_for_the_thread_that_imports_it() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", TWO_THREADS], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.stdout == "['loaded', 'asked']\n", done.stderr


MEANWHILE = """
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from fencepost.quality.loading import _without_unused

with ThreadPoolExecutor(1) as other, _without_unused():
    try:
        import sqlalchemy
    except ModuleNotFoundError:
        pass
    else:
        raise AssertionError("imported here")
    assert other.submit(import_module, "sqlalchemy").result().select
    import altair
    assert "altair.vegalite" not in sys.modules
    assert other.submit(lambda: altair.Chart).result()
assert "altair.vegalite" in sys.modules
"""
AFTERWARDS = """
import sys
from fencepost.quality.loading import load

before = list(sys.meta_path)
load()
assert sys.meta_path == before
assert not {"sqlalchemy", "pyspark.ml", "scipy.stats._stats_py", "altair.vegalite"} & sys.modules.keys()
from great_expectations.expectations.core import ExpectColumnToExist
from pyspark import cloudpickle
from scipy import stats
assert cloudpickle.dumps([stats])
assert stats.norm.cdf(0) == 0.5
import sqlalchemy, altair
import pyspark.ml.feature
assert sqlalchemy.select and altair.Chart and pyspark.ml.feature.Bucketizer
"""


@pytest.mark.parametrize("code", [MEANWHILE, AFTERWARDS], ids=["meanwhile", "afterwards"])
def test_what_is_left_out_of_the_import_is_there_for_others(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
