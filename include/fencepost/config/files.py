"""Opens files in the folder of pipelines, whatever they are. A broken link, a pipe and a file without permission each
raise a SettingsError with the reason, and no read waits.
"""

from __future__ import annotations

import os
import stat
from io import BufferedReader
from pathlib import Path

from fencepost.errors import SettingsError


def open_file(file: Path) -> BufferedReader:
    """Returns a regular file, opened for reading.

    Raises:
        SettingsError: the file cannot be read, or is not a regular file.
    """
    try:
        # Without O_NONBLOCK a pipe without a writer would block.
        number = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise unreadable(file, error) from None
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise unreadable(file, "it is not a regular file")
    return os.fdopen(number, "rb")


def read_file(file: Path) -> bytes:
    """Returns the content of a regular file. Raises SettingsError if it cannot be opened or read."""
    with open_file(file) as opened:
        try:
            return opened.read()
        except OSError as error:
            raise unreadable(file, error) from None


def unreadable(path: Path, error: OSError | str) -> SettingsError:
    """Returns the error for a file or folder that is missing or cannot be read. The error for a link says where the
    link leads.
    """
    link = os.path.islink(path)  # noqa: PTH114 - Path.is_symlink raises where the folder is closed
    if isinstance(error, FileNotFoundError) and not link:
        return SettingsError(f"{path}: does not exist.")
    leads = f" is a link to {path.readlink()}, and" if link else ""
    why = error if isinstance(error, str) else error.strerror
    return SettingsError(f"{path}:{leads} cannot be read: {why}. Make it readable for this user, or move it away.")


def pipeline_folders(folder: Path) -> list[Path]:
    """Returns the folders that may be pipelines, in order. Names that begin with a dot or an underscore are left out.

    An entry that cannot be examined is included, because it may be a pipeline. Loading it raises the error.

    Raises:
        SettingsError: the folder of pipelines itself cannot be read.
    """
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise SettingsError(
            f"{folder}: cannot be read: {error.strerror}. Set FENCEPOST_PIPELINES to the folder with your pipelines."
        ) from None
    return [entry for entry in entries if not entry.name.startswith((".", "_")) and _may_be_folder(entry)]


def _may_be_folder(entry: Path) -> bool:
    try:
        return stat.S_ISDIR(entry.stat().st_mode)
    except OSError:
        return os.path.lexists(entry)
