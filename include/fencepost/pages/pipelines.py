"""The pipelines in their present folders, parsed again only when a file has changed."""

from __future__ import annotations

import threading
from pathlib import Path

from fencepost.config.loading import load_pipelines
from fencepost.config.pipeline import Pipeline
from fencepost.errors import SettingsError
from fencepost.paths import pipelines_folder

Loaded = tuple[dict[str, Pipeline], dict[str, SettingsError]]


class Pipelines:
    """One per process. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: list[tuple[str, int, int]] | None = None
        self._loaded: Loaded = ({}, {})

    def load(self) -> Loaded:
        """The good pipelines by name, and the errors of the others.

        Raises:
            SettingsError: the folder of pipelines does not exist.
        """
        folder = pipelines_folder()
        with self._lock:
            seen = _files(folder)
            if seen != self._seen:
                self._loaded = load_pipelines(folder)
                self._seen = seen
            return self._loaded


def _files(folder: Path) -> list[tuple[str, int, int]]:
    found = []
    for file in sorted(folder.glob("*/*")) if folder.is_dir() else []:
        about = file.stat()
        found.append((str(file), about.st_mtime_ns, about.st_size))
    return found
