"""Great Expectations' import, without what no verdict needs: with SQLAlchemy, SciPy's statistics, charts and Spark's machine
learning it takes two thirds more processor time."""

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

from fencepost.collector import collect_for_the_last_time, without_collector

LATER = {"altair", "scipy.stats"}  # which it imports without asking
OPTIONAL = {"sqlalchemy", "pyspark.ml"}  # which it does without where they are not installed
_LOADING = Lock()


def load() -> None:
    """Import Great Expectations, which takes seconds, or wait until another thread has.

    Its modules import each other in circles. If two threads import them at once, each sees the other's half-made modules
    and gets an ImportError. So nothing here imports any of it before this function has returned.
    """
    with _LOADING:
        with without_collector(), _without_unused():
            import great_expectations.execution_engine.sparkdf_execution_engine  # noqa: F401
        atexit.unregister(collect_for_the_last_time)
        atexit.register(collect_for_the_last_time)  # of 200,000 objects: it saves a third of a second


def load_ahead() -> None:
    """Start `load` in a thread. Ignore its failure: the next caller of `load` gets it."""

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
    """Whoever imports the module from now on gets it whole: Spark cannot pickle one that is still to be loaded."""
    module = sys.modules.get(name)
    if module is None or type(module) is ModuleType:  # `type` alone does not have it imported
        return
    del sys.modules[name]
    parent, _, child = name.rpartition(".")
    if parent:
        delattr(sys.modules[parent], child)


class _Unused(MetaPathFinder):
    """For one thread: `LATER` is imported once what asked for it uses it, `OPTIONAL` seems not to be installed.

    Other threads, such as one that loads a transform, import the same modules as ever.
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
