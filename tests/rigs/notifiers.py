"""Notifiers for tests, by import path."""

from __future__ import annotations

from typing import Any, ClassVar

from airflow.sdk import BaseNotifier


class FailsAtFirst(BaseNotifier):
    """Fails the first times, with an error that quotes a token."""

    calls: ClassVar[int] = 0

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def notify(self, context: Any) -> None:
        """Count, and fail."""
        type(self).calls += 1
        if type(self).calls <= self.times:
            raise OSError("https://hooks.example/a-token-that-nobody-sees")
