"""Python's garbage collector, out of the way of work that makes many objects which stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collector() -> Iterator[None]:
    """Pause the collector. With it, thousands of batches take four times as long to make, and a large import a quarter longer."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def collect_for_the_last_time() -> None:
    """Collect garbage, and keep the rest from the collector. A process that ends would walk over all of it several times."""
    gc.collect()  # Kafka clients among it: their threads must not outlive them
    gc.freeze()
