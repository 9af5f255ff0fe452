"""Finds the archive of classes that Spark's JVM starts with. `fencepost_stack/class_archive.py` makes the archive."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ARCHIVE, RECORD = "job-classes.jsa", "job-classes.json"
# The JVM warns on stderr about a class that it cannot archive, and about another Java's archive: stdout belongs to the
# command.
TO_STDERR = "-Xlog:disable -Xlog:all=warning:stderr"


def java_options(folder: Path) -> str:
    """Returns the JVM options that use the archive in the connector's folder. The options are empty if there is no
    archive, or an incomplete archive.

    A JVM that maps an incomplete archive dies, so the archive has to have the recorded size.
    """
    archive = folder / ARCHIVE
    try:
        whole = archive.stat().st_size == read_archive_record(folder).get("size")
    except FileNotFoundError:
        whole = False
    return f"{quoted_option('-XX:SharedArchiveFile', archive)} {TO_STDERR}" if whole else ""


def quoted_option(option: str, file: Path) -> str:
    """Returns an option in quotes for a string of several options. A path may contain blanks."""
    return f'"{option}={file}"'


def read_archive_record(folder: Path) -> dict[str, Any]:
    """Returns the record about the archive in this folder. It is empty if there is no record, or if the record cannot
    be read.
    """
    try:
        found = json.loads((folder / RECORD).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
