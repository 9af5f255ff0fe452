"""The doctor's checks of a folder of files."""

from __future__ import annotations

from pathlib import Path

from fencepost.errors import TableRefused
from fencepost.findings import Finding, error, ok
from fencepost.outputs.output import Checks, Inspected, missing_of


def check_folder(look: Inspected) -> Finding:
    """The folder is there."""
    folder = look.pipeline.output.name
    if not Path(folder).is_dir():
        return error(f"Folder {folder} is not there.", "Run again.", kind=TableRefused)
    return ok(f"folder {folder} is there")


def check_files(look: Inspected) -> Finding:
    """Each published interval has its file."""
    missing = missing_of(look.deployment)
    return error(missing, "Run them.", kind=TableRefused) if missing else ok("each published interval has its file")


CHECKS = Checks(check_folder, "the folder is not there", (check_files,))
