"""Great Expectations is imported by one thread at a time: its modules import each other in circles."""

from __future__ import annotations

import subprocess
import sys

# The second thread asks while the first is in the middle of the import, and stays there until the other waits, or is done.
TWO_THREADS = """
import sys
from importlib.abc import MetaPathFinder
from threading import Event, Lock, Thread, current_thread

from fencepost.quality import judging

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
        self.lock.release()


class Slow(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == LATE and current_thread() is first:
            in_the_middle.set()
            assert go_on.wait(60)


def load():
    judging.load()
    order.append("loaded")


def ask():
    assert judging.judge_records([], {}) == {}
    order.append("asked")
    go_on.set()


first, second = Thread(target=load), Thread(target=ask)
judging._LOADING = Told()
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
