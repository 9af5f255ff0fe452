"""Where a batch's report lies. No text of a request gets here: only what the ledger says of a batch.

Even that is not trusted: a path outside of the reports folder, by whatever way it leads there, is not opened.
"""

from __future__ import annotations

from pathlib import Path

from fencepost.model import Batch, Verdict
from fencepost.reports import reports_folder


class ReportMissing(Exception):
    """There is no report to show; the text says why and what helps."""


def report_file(batch: Batch, suffix: str) -> Path:
    """The report of the batch's last verdict, as `.html` or `.json`.

    Raises:
        ReportMissing: it was not judged yet, or its report is not in this machine's reports folder.
    """
    if batch.verdict is None:
        raise ReportMissing(
            "This batch has not been judged yet, so there is no report. It is written by the validate task."
        )
    folder = reports_folder().resolve()
    for named in _candidates(batch, batch.verdict, folder):
        file = named.with_suffix(suffix).resolve()
        if file.is_relative_to(folder) and file.is_file():
            return file
    raise ReportMissing(
        "Its report is not in the folder of reports that this API server sees. Mount the folder that Airflow's workers "
        "write to here as well, and name it in FENCEPOST_REPORTS. The ledger's verdict is on the batch's page."
    )


def _candidates(batch: Batch, verdict: Verdict, folder: Path) -> list[Path]:
    """As the ledger names it; and at the same place in this machine's folder, which may be mounted elsewhere."""
    name = f"revision-{batch.revision}-validation-{verdict.number}.html"
    return [Path(verdict.report), folder / batch.pipeline / str(batch.interval) / name]
