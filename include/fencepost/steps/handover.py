"""Hands the settings of Airflow's connections from a task to its job, through a named pipe in the job's private folder.

Arguments and environment are not safe. On YARN and Kubernetes, Airflow's Spark provider writes `env_vars` into the
arguments, which every user of the machine can read. The pipe writes nothing to a disk. The pipe is filled before the
job starts, can be read once, and is gone when the task or the job ends. So neither side waits for the other.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fencepost.config.connections import settings_of, with_settings
from fencepost.config.pipeline import Pipeline
from fencepost.errors import DriverDied, SettingsError

LARGEST = 1 << 20  # bytes that Linux lets any user put into a pipe


@contextmanager
def handed_over(pipeline: Pipeline, pipe: Path) -> Iterator[bool]:
    """Offers the settings in `pipe` while the block runs. Only this user may open the pipe. Yields False if there are
    no settings.

    Raises:
        SettingsError: the settings are larger than a pipe's capacity.
    """
    if not pipeline.all_connections:
        yield False
        return
    content = json.dumps(settings_of(pipeline)).encode() + b"\n"
    os.mkfifo(pipe, 0o600)
    # Opened for reading and writing: opened for writing only, it would wait for a reader.
    end = os.open(pipe, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _make_room(end, len(content), pipeline)
        written = os.write(end, content)
        assert written == len(content), "there is room for all of it"
        yield True
    finally:
        os.close(end)
        pipe.unlink()


def _make_room(end: int, size: int, pipeline: Pipeline) -> None:
    try:
        if size > fcntl.fcntl(end, fcntl.F_GETPIPE_SZ):
            fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, size)
    except OSError:
        names = ", ".join(sorted(set(pipeline.all_connections.values())))
        raise SettingsError(
            f"pipeline {pipeline.name}: the settings of connection {names} have {size} bytes, more than a pipe on this machine "
            f"can hold ({LARGEST} at most). Give certificates as files."
        ) from None


def taken_over(pipeline: Pipeline, pipe: Path) -> Pipeline:
    """Returns the job's pipeline with the settings that its task handed over.

    Raises:
        DriverDied: the task has ended, so its settings are gone.
    """
    end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(end, "rb", buffering=0) as opened:
        content = b""
        while not content.endswith(b"\n"):
            part = opened.read(LARGEST)
            if not part:  # the writer has ended, or the pipe was read before
                raise DriverDied(f"pipeline {pipeline.name}: the task that started this job has ended. Run it again.")
            content += part
    return with_settings(pipeline, json.loads(content))
