"""Describes an error from Spark, a transform or a bug by its kind and place, without quoting its message.

Spark's messages quote records: `[CAST_INVALID_INPUT] The value '...' of the type "STRING" cannot be cast`. More people
can read a log, Airflow's UI or a terminal than the topic. The whole message goes to the log at level DEBUG.

A record may contain anything, even a traceback. So only the first traceback in a text counts, because it precedes any
message. An error that a writer raised on purpose has a random number in front, which no record can contain.
"""

from __future__ import annotations

import json
import logging
import re
import signal
import subprocess
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from fencepost import errors
from fencepost.errors import DriverDied, FencepostError, JobFailed, Retriable, TransformFailed, Unexpected

log = logging.getLogger("fencepost.spark.diagnosis")

IN_REGEX = " in a regex, on a long text"
_HINTS = {
    "StackOverflowError": ", most likely in a regex on a long text, or in a deeply nested expression",
    "OutOfMemoryError": ": set spark.driver.memory, or spark.executor.memory on a cluster, under spark: in pipeline.yaml",
}
HOW_TO_SEE = "FENCEPOST_LOG=DEBUG logs the whole error, which may quote records"

_BLOCK = re.compile(r"Traceback \(most recent call last\):\n((?:[ \t]+[^\n]*\n)+)([A-Za-z_][\w.]*)(?=:|\s|$)")
_FRAME = re.compile(r'^\s*File "([^"\n]+)", line (\d+), in ', re.MULTILINE)
# Spark's error condition, at the start of an error's text: only words of Spark and py4j may precede it.
_BEFORE = (
    r"(?:An error occurred while calling [^\n]{0,200}\n: )?(?:java\.util\.concurrent\.ExecutionException: )?(?:[\w.$]+: )?"
    r"(?:Job aborted due to stage failure: Task \d+ in stage [\d.]+ failed \d+ times?, most recent failure: "
    r"Lost task [\d.]+ in stage [\d.]+ \(TID \d+\) \([^)\n]{0,200}\): (?:[\w.$]+: )?)?"
)
_CONDITION = re.compile(_BEFORE + r"\[([A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*)\]")
# Errors of Java for which Spark would end the JVM (`spark.executor.killOnFatalError.depth`).
_FATAL = re.compile(_BEFORE + r"java\.lang\.(StackOverflowError|OutOfMemoryError)\b")
_STATE = re.compile(r"SQLSTATE: ([0-9A-Z]{2})[0-9A-Z]{3}")
_CAUSE = re.compile(r"^Caused by: ([\w.$]+)", re.MULTILINE)
# The place where Spark names the failed task, before any text from the task itself.
_LOST = re.compile(
    r"\(TID \d+\) \([^)\n]{0,200}\): (?:(ExecutorLostFailure \([^)\n]{0,200}\)(?: Reason: [^\n]{0,300})?)|[^E])"
)
# These conditions say nothing; their cause does.
_UNTOLD = frozenset({"SPARK_JOB_CANCELLED", "INTERNAL_ERROR", "FAILED_EXECUTE_UDF"})
# Classes of SQLSTATE for failures in a query's own expressions: feature, cardinality, data, constraint, external routine,
# syntax, and raise_error.
_OF_EXPRESSIONS = frozenset({"0A", "21", "22", "23", "38", "39", "42", "P0"})
# A Python worker lost its connection or ran out of memory. Raised in the transform's own lines, these are the
# transform's.
_OF_MACHINES = frozenset(
    "EOFError MemoryError OSError IOError ConnectionResetError BrokenPipeError TimeoutError".split()
)
# Only a mistake in a program raises these.
_DEFECTS = (
    *(TypeError, AttributeError, LookupError, NameError, AssertionError, ValueError, ArithmeticError, ImportError),
    *(RecursionError, NotImplementedError),
)


class _Traceback(NamedTuple):
    """A Python worker's error: the exception's name, and the files and lines of its frames."""

    kind: str
    frames: list[tuple[Path, str]]

    def own(self, folder: Path | None) -> list[tuple[Path, str]]:
        """Returns the frames in the pipeline's folder."""
        return [f for f in self.frames if folder is not None and folder in f[0].parents]


def _traceback_in(text: str) -> _Traceback | None:
    found = _BLOCK.search(text)
    if found is None:
        return None
    return _Traceback(found.group(2).rpartition(".")[2], [(Path(f), n) for f, n in _FRAME.findall(found.group(1))])


def describe(error: BaseException, folder: Path | None = None) -> str:
    """Returns one line: Spark's error condition, or the exception's type with the line that raised it.

    A line in `folder`, the pipeline's folder, takes precedence over a library's line.
    """
    log.debug("the whole error", exc_info=error)
    text = str(error)
    if lost := _lost_executor(text):
        return lost
    if fatal := _fatal(text):
        return f"java.lang.{fatal}{_HINTS[fatal] if not _in_regex(text) else IN_REGEX}"
    raised = _traceback_in(text)
    if raised is not None:
        return _at(raised, folder)
    if (condition := _condition(text)) and condition not in _UNTOLD:
        return condition
    causes = _CAUSE.findall(text)
    if causes:
        return str(causes[-1])
    frames = [(Path(f.filename), str(f.lineno)) for f in traceback.extract_tb(error.__traceback__)]
    return _at(_Traceback(type(error).__name__, frames), folder)


def _condition(text: str) -> str | None:
    """Returns Spark's error condition. Only the first brackets count, because later brackets may quote a record."""
    found = _CONDITION.match(text)
    return str(found.group(1)) if found else None


def overflowed(text: str) -> bool:
    """Returns whether Java's stack overflowed, usually in a regex on a long text. The same record overflows it again."""
    return _fatal(text) == "StackOverflowError"


def _fatal(text: str) -> str | None:
    found = _FATAL.match(text)
    return str(found.group(1)) if found else None


def _in_regex(text: str) -> bool:
    """Returns whether the first frame of a fatal error belongs to Java's regexes."""
    found = _FATAL.match(text)
    return found is not None and text[found.end() :].lstrip().startswith("at java.base/java.util.regex.")


def _lost_executor(text: str) -> str | None:
    """Returns why Spark lost the executor together with its task, or None if only the task failed."""
    found = _LOST.search(text)
    return str(found.group(1)).strip() if found and found.group(1) else None


def _at(raised: _Traceback, folder: Path | None) -> str:
    if not raised.frames:
        return raised.kind
    file, line = (raised.own(folder) or raised.frames)[-1]
    return f"{raised.kind} in {file.name}, line {line}"


def is_the_transforms(error: Exception, folder: Path) -> bool:
    """Returns whether a job failed in the transform's own code or expressions. The same records would fail again."""
    text = str(error)
    if _lost_executor(text):
        return False
    if fatal := _fatal(text):
        return fatal == "StackOverflowError"
    raised = _traceback_in(text)
    if raised is not None:
        ours = any(_is_ours(file) for file, _ in raised.frames)
        return bool(raised.own(folder)) or not (ours or raised.kind in _OF_MACHINES)
    state, condition = _STATE.search(text), _condition(text)
    of_the_source = condition is not None and condition.startswith("KAFKA")
    return state is not None and state.group(1) in _OF_EXPRESSIONS and not of_the_source


def _is_ours(file: Path) -> bool:
    """Returns whether the file is a module of this package, wherever an executor keeps it. A parent folder may have the
    package's name.
    """
    package, parts = resources.files("fencepost"), file.parts
    return any(part == "fencepost" and package.joinpath(*parts[n:]).is_file() for n, part in enumerate(parts, 1))


def carry(error: FencepostError, nonce: str) -> RuntimeError:
    """Returns a Fencepost error in the form that a task can raise. `find_carried` restores it from Spark's text."""
    return RuntimeError(f"{nonce} {json.dumps({'type': type(error).__name__, 'message': str(error)})}")


def find_carried(text: str, nonce: str) -> FencepostError | None:
    """Returns the error that a task of this job raised on purpose, or None. The nonce is the job's own secret, so no
    other text matches.
    """
    begin = text.find(f"{nonce} {{")
    if not nonce or begin < 0:
        return None
    found, _ = json.JSONDecoder().raw_decode(text, begin + len(nonce) + 1)
    kind: type[FencepostError] = getattr(errors, found["type"])
    return kind(found["message"])


@contextmanager
def carried_error(nonce: str) -> Iterator[None]:
    """Raises the error that a task raised on purpose in this block, in place of Spark's text about it."""
    try:
        yield
    except Exception as error:
        if (ours := find_carried(str(error), nonce)) is not None:
            raise ours from error
        raise


def common_failure(error: Exception, batch: str, nonce: str) -> FencepostError | None:
    """Returns the error for a failure that is common to all jobs that write this batch, or None. These failures are a
    dead driver, and a writer that raised an error on purpose.
    """
    if describe_jvm_end(error):
        return errors.WriteFailed(f"batch {batch}: the driver died.")  # `jvm_watched` raises the error with the details
    ours = find_carried(str(error), nonce)
    if ours is None or batch in str(ours):
        return ours
    return type(ours)(f"batch {batch}: {ours}")


def unexpected(error: Exception, doing: str = "") -> FencepostError:
    """Returns the error for an unforeseen exception, without the exception's message. A mistake in a program is not
    worth a retry. Any other cause may be.
    """
    where = f"{doing and f' in {doing}'}: {describe(error)}."
    if isinstance(error, _DEFECTS):
        return Unexpected(
            f"defect in Fencepost{where} Running again ends the same way: report it with this line. {HOW_TO_SEE}."
        )
    return Retriable(f"unexpected error{where} The machine or the network may have failed: run again. {HOW_TO_SEE}.")


def describe_jvm_end(error: BaseException | None = None) -> str | None:
    """Returns how Spark's JVM ended, if its end may have caused the error. Returns None while the JVM lives.

    py4j reports a dead JVM in many ways: a refused or broken connection, an empty answer, a missing object. So this
    function sends the JVM a request. It also checks the JVM's process if that is a child of this process, which is not
    the case under spark-submit.
    """
    from py4j.protocol import Py4JError
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is None:
        return None
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if process is not None and process.poll() is not None:
        return _ending(process.returncode)
    if not _from(error, (Py4JError, OSError, EOFError)):
        return None
    try:
        gateway.jvm.System.nanoTime()
        context = SparkContext._active_spark_context
        if process is None or context is None or not context._jsc.sc().isStopped():
            return None
    except Exception:
        if process is None:
            return "it no longer answers"
    with suppress(subprocess.TimeoutExpired):  # the JVM stops Spark and closes its sockets before it ends
        return _ending(process.wait(2))
    return None


def _ending(code: int) -> str:
    with suppress(ValueError):
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"


def _from(error: BaseException | None, kinds: tuple[type[BaseException], ...]) -> bool:
    """Returns whether the error, or a cause of it, is of these kinds."""
    while error is not None:
        if isinstance(error, kinds):
            return True
        error = error.__cause__ or error.__context__
    return False


@contextmanager
def jvm_watched(doing: str) -> Iterator[None]:
    """Raises DriverDied if Spark's JVM died in the block, in place of the error that followed from it.

    DriverDied is raised even if the block ended without an error. A check that cannot be evaluated leads to a verdict,
    and the death of a JVM must not lead to a verdict.
    """
    try:
        yield
    except Exception as error:
        ended = describe_jvm_end(error)
        if ended is None:
            raise
        log.debug("the whole error", exc_info=error)
    else:
        ended = describe_jvm_end()
        if ended is None:
            return
    raise DriverDied(
        f"{doing}: Spark's JVM, the driver, died ({ended}). Most often memory ran out: look at `dmesg` and at the limit of the "
        "container or pod, and set spark.driver.memory to fit, under spark: in pipeline.yaml. Nothing is half done; run again."
    )


@contextmanager
def spark_reads(doing: str) -> Iterator[None]:
    """Raises JobFailed if Spark fails in this block. The block only reads."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        with jvm_watched(doing):
            yield
    except (PySparkException, Py4JError) as error:
        if overflowed(str(error)):
            raise TransformFailed(
                f"{doing}: the Spark job failed: {describe(error)}. Nothing was changed. The same record fails again: rewrite "
                "the regex, or limit the text's length first, then run again."
            ) from error
        raise JobFailed(
            f"{doing}: the Spark job failed: {describe(error)}. Nothing was changed; run again. {HOW_TO_SEE}."
        ) from error
