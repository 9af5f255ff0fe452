"""Waiting for what has to come true, instead of sleeping and hoping."""

from __future__ import annotations

import time
from collections.abc import Callable


def await_true(condition: Callable[[], bool], what: str, limit: float = 180.0) -> None:
    """Poll a condition; it is an assertion that it comes true within `limit` seconds."""
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline, f"waited {limit:.0f} s for {what}"
        time.sleep(0.05)
