"""Which archive of classes a JVM of Spark's is started with. `local/class_archive.py` makes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ARCHIVE, RECORD = "job-classes.jsa", "job-classes.json"
# A class that cannot be archived, or an archive of another Java, is told of on stderr: stdout belongs to the command.
TO_STDERR = "-Xlog:disable -Xlog:all=warning:stderr"


def java_options(folder: Path) -> str:
    """What a JVM is given to use the archive in the connector's folder; nothing where there is none, or not all of it.

    A JVM that maps half of an archive dies, so its size has to be the recorded one.
    """
    archive = folder / ARCHIVE
    try:
        whole = archive.stat().st_size == read_archive_record(folder).get("size")
    except FileNotFoundError:
        whole = False
    return f"{quoted_option('-XX:SharedArchiveFile', archive)} {TO_STDERR}" if whole else ""


def quoted_option(option: str, file: Path) -> str:
    """An option as Spark takes it from a string of several, where a path may hold blanks."""
    return f'"{option}={file}"'


def read_archive_record(folder: Path) -> dict[str, Any]:
    """What was noted about the archive in this folder; empty where there is none, or nobody can read it."""
    try:
        found = json.loads((folder / RECORD).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
