"""Loads the pipelines in the present folders, and the pipelines that only a DAG carries.

A folder is parsed again only when a file has changed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fencepost.config.files import pipeline_folders
from fencepost.config.loading import load_pipelines
from fencepost.config.pipeline import Pipeline
from fencepost.config.public_settings import pipeline_of_public
from fencepost.errors import SettingsError
from fencepost.paths import pipelines_folder

Loaded = tuple[dict[str, Pipeline], dict[str, SettingsError]]
CarriedSettings = Mapping[str, tuple[str, Mapping[str, Any]]]  # by DAG id: the DAG's hash, and what it carries


class Pipelines:
    """All pipelines. There is one object per process, and many threads may use it."""

    def __init__(self, carried: Callable[[], CarriedSettings] = dict) -> None:
        """`carried` has the pipelines whose folders are elsewhere."""
        self._lock = threading.Lock()
        self._carried = carried
        self._seen: object = None
        self._loaded: Loaded = ({}, {})

    def load(self) -> Loaded:
        """Returns the valid pipelines by name, and the errors of the others. A local folder takes precedence over the
        settings that a DAG carries.

        Raises:
            SettingsError: the folder of pipelines does not exist, and no DAG carries settings.
        """
        folder, carried = pipelines_folder(), self._carried()
        with self._lock:
            has_folder = folder.is_dir() or not carried
            seen = (_files(folder) if has_folder else [], {name: found for name, (found, _) in carried.items()})
            if seen != self._seen:
                good, bad = load_pipelines(folder) if has_folder else ({}, {})
                for name, (_, public) in carried.items():
                    if name not in good and name not in bad:
                        try:
                            good[name] = pipeline_of_public(public, name)
                        except SettingsError as error:
                            bad[name] = error
                self._loaded = good, bad
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
    except OSError as error:  # a broken link, such as an editor's lock
        return str(path), -1, error.errno or 0
    return str(path), about.st_mtime_ns, about.st_size
