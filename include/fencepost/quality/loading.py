"""Imports Great Expectations without SQLAlchemy, SciPy's statistics, charts and Spark's machine learning. No verdict needs them,
and importing them takes two thirds more processor time.
"""

from __future__ import annotations

import atexit
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from threading import Lock, Thread, get_ident
from types import ModuleType

from fencepost.garbage_collector import collect_for_the_last_time, without_collector

LATER = {"altair", "scipy.stats"}  # modules that Great Expectations imports unconditionally
OPTIONAL = {"sqlalchemy", "pyspark.ml"}  # modules that it can do without if they are not installed
_LOADING = Lock()


def load() -> None:
    """Imports Great Expectations, which takes seconds. If another thread is importing Great Expectations, the call
    waits for that thread.

    The modules of Great Expectations import each other in circles. If two threads import them at once, each thread gets
    incomplete modules and an ImportError. So no module of this package imports a part of Great Expectations before this
    function has returned.
    """
    with _LOADING:
        with without_collector(), _without_unused():
            import great_expectations.execution_engine.sparkdf_execution_engine  # noqa: F401
        atexit.unregister(collect_for_the_last_time)
        atexit.register(collect_for_the_last_time)  # not to collect 200,000 objects saves a third of a second


def load_ahead() -> None:
    """Starts `load` in a thread. A failure is ignored, because the next caller of `load` gets it."""

    def begin() -> None:
        with suppress(Exception):
            load()

    Thread(target=begin, name="load Great Expectations", daemon=True).start()


@contextmanager
def _without_unused() -> Iterator[None]:
    finder = _Unused(get_ident())
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in LATER:
            _forget(name)


def _forget(name: str) -> None:
    """Removes the module from `sys.modules`, so that the next import loads it completely. Spark cannot pickle a lazily
    loaded module.
    """
    module = sys.modules.get(name)
    if module is None or type(module) is ModuleType:  # `type` does not trigger its import
        return
    del sys.modules[name]
    parent, _, child = name.rpartition(".")
    if parent:
        delattr(sys.modules[parent], child)


class _Unused(MetaPathFinder):
    """Defers or hides imports, in one thread only. A module of `LATER` is imported on first use. A module of `OPTIONAL`
    appears not to be installed.

    Other threads, such as one that loads a transform, import the same modules as usual.
    """

    def __init__(self, thread: int) -> None:
        self._thread = thread

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if get_ident() != self._thread:
            return None
        if name in OPTIONAL:
            raise ModuleNotFoundError(f"{name} is not needed here", name=name)
        spec = PathFinder.find_spec(name, path, target) if name in LATER else None
        if spec is not None and isinstance(spec.loader, Loader):
            spec.loader = LazyLoader(spec.loader)
        return spec
