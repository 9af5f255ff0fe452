"""Starts and ends Spark's session and its JVM, without noise on stderr."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any

from pyspark import SparkConf, SparkContext, java_gateway
from pyspark.accumulators import AccumulatorTCPServer
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from fencepost.config.pipeline import Pipeline
from fencepost.errors import DriverDied
from fencepost.spark.master import check_master, is_local
from fencepost.spark.sql_settings import copy_settings, pin_settings
from fencepost.spark.submit import check_java, local_dirs, package_zip, spark_master, submit_conf

log = logging.getLogger("fencepost.spark.session")
# Every start of Spark prints these on stderr, whatever the settings.
IDLE_WORDS = (b"WARNING: Using incubator modules: jdk.incubator.vector", b"NOTE: Picked up JDK_JAVA_OPTIONS:")
SHUT_DOWN = AccumulatorTCPServer.shutdown
WITH_WORKERS = {"run", "write"}  # the steps that always need Python workers


def build_session(pipeline: Pipeline, step: str, records: int | None = None) -> SparkSession:
    """Returns a session for one step. Under spark-submit the session keeps the given master and settings. `records` has
    the meaning of `submit_conf`.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(f"fencepost {pipeline.name} {step}")
    if "SPARK_ENV_LOADED" not in os.environ:
        master = spark_master()
        check_master(master, "FENCEPOST_SPARK_MASTER")
        check_java()
        conf = {"spark.master": master, **submit_conf(pipeline, master, records)}
        os.environ.update(local_dirs(conf, master))
        if is_local(master):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        else:
            conf["spark.submit.pyFiles"] = str(package_zip())
        for name, value in conf.items():
            builder = builder.config(name, value)
        _start_jvm(conf)
    # If the JVM dies, the original handler and py4j's root logger would print a traceback on stderr.
    setattr(AccumulatorTCPServer, "handle_error", _log_broken_connection)  # noqa: B010
    logging.getLogger().addFilter(_without_py4j)
    setattr(AccumulatorTCPServer, "shutdown", _shut_down_aside)  # noqa: B010
    with _own_sigint():
        session = builder.getOrCreate()
    for context in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):  # these quote records on stderr as well
        PySparkLogger.getLogger(context).disabled = True
    pin_settings(session, pipeline)
    if step in WITH_WORKERS and is_local(session.sparkContext.master or ""):
        Thread(target=_start_workers, args=(session,), name="start Python workers", daemon=True).start()
    return session


def session_of_its_own(session: SparkSession, pipeline: Pipeline | None = None) -> SparkSession:
    """Returns a new session on the same JVM. It has nothing that a transform may have set, registered or named in
    another session.

    It has the pipeline's settings that decide values. Without a pipeline the new session has these settings of
    `session`. No other function creates a second session.
    """
    own = session.newSession()
    if pipeline is None:
        copy_settings(session, own)
    else:
        pin_settings(own, pipeline)
    return own


@contextmanager
def _own_sigint() -> Iterator[None]:
    """Keeps the handler of Ctrl-C in the block. PySpark's own handler asks the JVM to cancel all jobs. PySpark's
    handler asks on the connection of the interrupted call, so any answer would become an error of py4j.
    """
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        with suppress(ValueError):  # not the main thread: PySpark sets no handler there
            signal.signal(signal.SIGINT, before)


def tell_jvm_to_end() -> None:
    """Makes Spark's JVM end, whatever it is doing, without a call into the JVM. The JVM removes its files. This
    function does not wait.
    """
    if (process := _jvm()) is not None:
        process.terminate()


def await_end_of_jvm(limit: float = 10.0) -> None:
    """Waits until the JVM has ended that `tell_jvm_to_end` ends. After `limit` seconds it kills the JVM."""
    if (process := _jvm()) is None:
        return
    try:
        process.wait(limit)
    except subprocess.TimeoutExpired:
        process.kill()


def _jvm() -> subprocess.Popen[bytes] | None:
    """Returns the JVM's process, even while it starts. Returns None if there is none, or if the JVM is the parent, as
    under spark-submit.
    """
    return getattr(SparkContext._gateway, "proc", None) or (_started[-1] if _started else None)


_started: list[subprocess.Popen[bytes]] = []  # the JVM's process, from its start on


class _KnownAtOnce(subprocess.Popen[bytes]):
    """A process that PySpark starts. PySpark exposes the process only once the JVM answers, and a JVM that is abandoned
    earlier never ends.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        _started[:] = [self]


def _start_workers(session: SparkSession) -> None:
    """Runs a job that does nothing, so that Python workers and their part of the JVM are ready for the first real job.

    The start of both takes a second, in which the driver analyses the transform. On a cluster this job would take a
    slot from other jobs.
    """
    with suppress(Exception):  # the session has been stopped, or the real job will give the reason
        session.range(0, 1, 1, 1).mapInArrow(_unchanged, "id long").collect()


def _unchanged(batches: Iterable[Any]) -> Iterable[Any]:
    yield from batches


def _without_py4j(record: logging.LogRecord) -> bool:
    """Returns whether the root logger accepts a record. It refuses the traceback that py4j logs when a JVM dies."""
    return record.module != "java_gateway" or log.isEnabledFor(logging.DEBUG)


def _log_broken_connection(server: object, request: object, client: object) -> None:
    log.debug("the JVM's connection to %s broke", type(server).__name__, exc_info=True)


def _shut_down_aside(server: AccumulatorTCPServer) -> None:
    """Shuts the server down without waiting for its thread. The thread checks only once a second whether to end."""
    Thread(target=SHUT_DOWN, args=(server,), name="shut down Spark's accumulators", daemon=True).start()


def _start_jvm(conf: dict[str, str]) -> None:
    """Starts Spark's JVM if none runs yet, without the lines that every start prints.

    Raises:
        DriverDied: the JVM ended during its start. Stderr has the reason.
    """
    if SparkContext._gateway is not None:
        return
    words, its_stderr = os.pipe()
    passing = Thread(target=_pass_on, args=(words,), name="Spark's stderr", daemon=True)
    passing.start()
    setattr(java_gateway, "Popen", _KnownAtOnce)  # noqa: B010
    try:
        gateway = launch_gateway(SparkConf(loadDefaults=False).setAll(list(conf.items())), {"stderr": its_stderr})
    except PySparkRuntimeError as error:
        os.close(its_stderr)
        passing.join(5)
        raise DriverDied(
            "Spark's JVM did not start; its own messages are above. Check that Java is 17 or newer, that there is "
            "enough memory, and that the spark: settings in pipeline.yaml are right. Then run again."
        ) from error
    os.close(its_stderr)
    SparkContext._ensure_initialized(gateway=gateway)


def _pass_on(words: int) -> None:
    """Passes the JVM's stderr on, except the lines of every start. The function writes to the descriptor, so it holds
    no lock at exit.
    """
    rest = b""
    while chunk := os.read(words, 65_536):
        *lines, rest = (rest + chunk).split(b"\n")
        _say(b"".join(line + b"\n" for line in lines if not line.startswith(IDLE_WORDS)))
    _say(rest)
    os.close(words)


def _say(text: bytes) -> None:
    """Prints on stderr, or does nothing if stderr is closed. So the JVM's pipe is still read, because the JVM would
    block on a full pipe.
    """
    with suppress(OSError):
        os.write(2, text)
