"""Where reports lie: known to whoever writes them and to whoever shows them, neither of which needs the other.

No text of a request gets here: only what the ledger says of a batch. Even that is not trusted: a path outside of the
reports folder, by whatever way it leads there, is not opened.
"""

from __future__ import annotations

import os
from pathlib import Path

from fencepost.local.state import State
from fencepost.model import Batch


class ReportMissing(Exception):
    """There is no report to show; the text says why and what helps."""


def reports_folder() -> Path:
    """`FENCEPOST_REPORTS`, or the folder for reports in the state folder."""
    named = os.environ.get("FENCEPOST_REPORTS")
    return Path(named) if named else State.default().reports


def report_file(batch: Batch, suffix: str) -> Path:
    """The report of the batch's last verdict, as `.html` or `.json`: the file that the verdict names, and no other.

    The folder may have moved since, or be mounted elsewhere on this machine; the file's own name stays.

    Raises:
        ReportMissing: it was not judged yet, or its report is not in this machine's reports folder.
    """
    if batch.verdict is None:
        raise ReportMissing(
            "This batch has not been judged yet, so there is no report. It is written by the validate task."
        )
    named, folder = Path(batch.verdict.report), reports_folder().resolve()
    place = folder / batch.pipeline / str(batch.interval)
    for candidate in (named, place / named.name):
        try:
            file = candidate.with_suffix(suffix).resolve()
            if file.is_relative_to(folder) and file.is_file():
                return file
        except (ValueError, OSError):  # no name at all, or one that no file can have
            continue
    raise ReportMissing(
        f"Its report, {named.stem}{suffix}, is not in {place}, where this process looks for it. Mount the folder that "
        "Airflow's workers write to here as well, and name it in FENCEPOST_REPORTS. The ledger's verdict is on the batch's "
        "page."
    )
