"""What may be said of an error that Spark, a transform or a bug raised: its kind and its place, never its words.

Such words quote records: `[CAST_INVALID_INPUT] The value '...' of the type "STRING" cannot be cast`. A log, Airflow's UI and
a terminal are read by more people than the topic is. The words go to the log at level DEBUG, for who asks.
"""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fencepost.errors import JobFailed

log = logging.getLogger("fencepost.failures")

HOW_TO_SEE = "FENCEPOST_LOG=DEBUG logs the whole error, which may quote records"

_FRAME = re.compile(r'^\s*File "([^"\n]+)", line (\d+), in ', re.MULTILINE)
_PYTHON = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit))(?::|$)", re.MULTILINE)
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*)\]")
_CAUSE = re.compile(r"^Caused by: ([\w.$]+)", re.MULTILINE)
_LOST = re.compile(r"ExecutorLostFailure \([^)\n]{0,200}\)(?: Reason: [^\n]{0,300})?")
_UNTOLD = frozenset({"SPARK_JOB_CANCELLED", "INTERNAL_ERROR", "FAILED_EXECUTE_UDF"})  # say nothing; the cause does


def told(error: BaseException, folder: Path | None = None) -> str:
    """One line: Spark's error condition, or the exception's type with the line that raised it.

    A line in `folder`, the pipeline's, is preferred to one of a library.
    """
    log.debug("the whole error", exc_info=error)
    text = str(error)
    lost = _LOST.search(text)
    if lost:
        return str(lost.group(0)).strip()
    kinds = _PYTHON.findall(text)
    frames = [(Path(file), line) for file, line in _FRAME.findall(text)]
    if kinds and "Traceback (most recent call last)" in text:
        return _at(kinds[-1], frames, folder)
    condition = next((c for c in _CONDITION.findall(text) if c not in _UNTOLD), None)
    if condition:
        return str(condition)
    causes = _CAUSE.findall(text)
    if causes:
        return str(causes[-1])
    frames = [(Path(f.filename), str(f.lineno)) for f in traceback.extract_tb(error.__traceback__)]
    return _at(type(error).__name__, frames, folder)


def _at(kind: str, frames: list[tuple[Path, str]], folder: Path | None) -> str:
    own = [f for f in frames if folder is not None and f[0].parent.name == folder.name]
    if not frames:
        return kind
    file, line = (own or frames)[-1]
    return f"{kind} in {file.name}, line {line}"


@contextmanager
def spark_reads(doing: str) -> Iterator[None]:
    """Raises JobFailed for what Spark raises while it only reads."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise JobFailed(
            f"{doing}: the Spark job failed: {told(error)}. Nothing was changed; run again. {HOW_TO_SEE}."
        ) from error
