"""The pipelines in their present folders, parsed again only when a file has changed."""

from __future__ import annotations

import threading
from pathlib import Path

from fencepost.config.files import pipeline_folders
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
    for entry in pipeline_folders(folder):
        try:
            inside = sorted(entry.iterdir())
        except OSError:
            inside = []
        found += [_standing(path) for path in (entry, *inside)]
    return found


def _standing(path: Path) -> tuple[str, int, int]:
    try:
        about = path.stat()
    except OSError as error:  # a link to nowhere, such as an editor's lock
        return str(path), -1, error.errno or 0
    return str(path), about.st_mtime_ns, about.st_size
