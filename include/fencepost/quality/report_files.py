"""Writes report files to disk. Each file is written whole or not at all, and no file is replaced."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from fencepost.model import Batch
from fencepost.paths import reports_folder
from fencepost.quality.report import Report


class ReportMissing(Exception):
    """There is no report to show. The message says why and what to do."""


def report_file(pipeline: str, batch: Batch, suffix: str) -> Path:
    """Returns the report of the batch's last verdict, as `.html` or `.json`. It returns only the file that the verdict
    names.

    The folder of reports may have moved, or may be mounted elsewhere on this machine. The file keeps its name. After
    links are resolved, the file has to be in the pipeline's folder. Otherwise a user who can write to a ledger could
    name any file.

    Raises:
        ReportMissing: the batch was not judged yet, or its report is not in this machine's folder of reports.
    """
    if batch.verdict is None:
        raise ReportMissing("This batch has not been judged yet, so there is no report. The validate task writes it.")
    named, folder = Path(batch.verdict.report), reports_folder().resolve() / pipeline
    place = folder / str(batch.interval)
    for candidate in (named, place / named.name):
        try:
            file = candidate.with_suffix(suffix).resolve()
            if file.is_relative_to(folder) and file.is_file():
                return file
        except (ValueError, OSError):  # the verdict names no file, or a name that no file can have
            continue
    raise ReportMissing(
        f"Its report, {named.stem}{suffix}, is not in {place}, where this process looks for it. Mount the folder "
        "that Airflow's workers write to here as well, and name it in FENCEPOST_REPORTS. The batch's page shows "
        "the verdict from the ledger."
    )


FILE_MODE, FOLDER_MODE = 0o640, 0o750


class ReportFiles(NamedTuple):
    """The paths of a written report."""

    html: Path
    json: Path


def write_report(report: Report, folder: Path) -> ReportFiles:
    """Writes `<folder>/<pipeline>/<interval>/revision-<r>-validation-<n>.html` and `.json`, each atomically.

    Only owner and group may read the files, because they show records. The umask may restrict that further. No name is
    used twice: another attempt at the same validation gets `-attempt-2` and so on. So the ledger always names the
    report that belongs to its verdict, and a reader always sees a whole report.
    """
    from fencepost.quality.report_html import render_html  # only this function needs Jinja

    batch = report.batch
    stem = f"revision-{batch.revision}-validation-{report.number}"
    target = folder / batch.pipeline / str(batch.interval)
    folder.parent.mkdir(parents=True, exist_ok=True)
    for place in (folder, target.parent, target):
        place.mkdir(mode=FOLDER_MODE, exist_ok=True)
    html, text = render_html(report), report.model_dump_json(indent=2) + "\n"
    for attempt in count(1):
        name = stem if attempt == 1 else f"{stem}-attempt-{attempt}"
        files = ReportFiles(html=target / f"{name}.html", json=target / f"{name}.json")
        if _create(files.json, text):
            break
    _create(files.html, html)
    return files


def write_page(html: str, folder: Path, pipeline: str, stem: str) -> Path:
    """Writes `<folder>/<pipeline>/<stem>.html` under the first free name. The write is atomic, and the page is as
    private as a report.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    for place in (folder, folder / pipeline):
        place.mkdir(mode=FOLDER_MODE, exist_ok=True)
    names = (stem if number == 1 else f"{stem}-{number}" for number in count(1))
    return next(file for name in names if _create(file := folder / pipeline / f"{name}.html", html))


def _create(target: Path, text: str) -> bool:
    """Makes the file, whole or not at all. Returns whether the name was still free."""
    draft = target.with_name(f".{target.name}.{uuid4().hex}")
    with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE_MODE), "wb") as part:
        try:
            part.write(text.encode("utf-8", "backslashreplace"))
            part.flush()
            os.fsync(part.fileno())
            target.hardlink_to(draft)
        except FileExistsError:
            return False
        finally:
            draft.unlink()
    return True
