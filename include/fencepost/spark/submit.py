"""Chooses what a Spark job starts with: settings, jars, and the package for executors."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pyspark

from fencepost import paths
from fencepost.config.pipeline import Pipeline
from fencepost.errors import NeedsOperator, SettingsError
from fencepost.spark.class_archive import java_options
from fencepost.spark.master import is_local

PACKAGE = Path(__file__).resolve().parents[1]
# The JVM's second compiler starts after forty times the usual number of calls and loops. A job of few rows ends before
# that, and saves a third of its processor time. A job of millions gets there within a second or two *(measured)*.
LATE_COMPILER = (
    "-XX:Tier4InvocationThreshold=200000 -XX:Tier4MinInvocationThreshold=24000 "
    "-XX:Tier4CompileThreshold=600000 -XX:Tier4BackEdgeThreshold=1600000"
)
# Without the compiler a job of few rows saves another third; a job of many would take longer.
NO_SECOND_COMPILER = "-XX:TieredStopAtLevel=1"
FEW = 300_000  # records; JSON of 130 bytes took less without it up to here *(measured)*
# Each read has its own consumers, which nobody uses again. Spark would keep them for five minutes, with all that they
# have fetched after the read's ranges: for a backlog in small intervals, gigabytes.
KAFKA_CACHES = {
    f"spark.kafka.consumer.{name}": value
    for cache in ("cache", "fetchedData.cache")
    for name, value in ((f"{cache}.timeout", "10s"), (f"{cache}.evictorThreadRunInterval", "5s"))
}
LOG_SETTINGS = f'"-Dlog4j2.configurationFile={Path(__file__).resolve().with_name("log4j2.properties")}"'


def connector_folder() -> Path:
    """Returns the folder with the Kafka connector's jars.

    Raises:
        SettingsError: the folder has no jars.
    """
    folder = paths.connector_folder()
    if not any(folder.glob("*.jar")):
        raise SettingsError(
            f"{folder}: the jars of the Kafka connector are missing. Run `fencepost jars`, or set FENCEPOST_SPARK_JARS to the "
            "folder that holds them."
        )
    return folder


def submit_conf(pipeline: Pipeline, master: str, records: int | None = None) -> dict[str, str]:
    """Returns the Spark settings of a pipeline's jobs on this master. The pipeline's own settings take precedence. No
    setting contains a secret.

    `records` is the number of the batch's records, if it is known. The JVM is tuned for few or for many records.

    The driver has the connector on its class path, where the archive of classes expects it. Spark sends the jars to executors
    outside the driver.
    """
    folder = connector_folder()
    compiler = NO_SECOND_COMPILER if records is not None and records <= FEW else LATE_COMPILER
    conf = {
        "spark.driver.extraClassPath": f"{folder}/*",
        "spark.driver.defaultJavaOptions": f"{compiler} {LOG_SETTINGS} {java_options(folder)}".strip(),
        "spark.pyspark.python": sys.executable,
        "spark.pyspark.driver.python": sys.executable,
        # The plan fixes the number of task-partitions: nothing may merge or split them.
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
        "spark.sql.execution.arrow.maxBytesPerBatch": "67108864",  # ten thousand records may be gigabytes
        # Spark would record the line of each call on a column, for text that only a whole error quotes. That is half of
        # the calls to the JVM.
        "spark.python.sql.dataFrameDebugging.enabled": "true" if logs_whole_errors() else "false",
        # A regex that overflows Java's stack on a long text would end the JVM, and the batch would be retried for ever.
        "spark.executor.killOnFatalError.depth": "0",
        "spark.sql.session.timeZone": "UTC",
        # Kafka's login line holds the password, and Spark shows options in plans and in its UI.
        "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|jaas|keystore|truststore",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **KAFKA_CACHES,
    }
    if is_local(master):
        conf |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
        if "spark.pyspark.python" not in pipeline.spark and os.environ.get("PYSPARK_PYTHON") in {None, sys.executable}:
            conf["spark.python.daemon.module"] = "fencepost.rows.daemon"  # another Python may not have the package
        # Spark's shuffle files hold records, and everybody may read them.
        if "spark.local.dir" not in pipeline.spark:
            conf["spark.local.dir"] = str(private_folder())
    else:
        conf["spark.jars"] = ",".join(str(jar) for jar in sorted(folder.glob("*.jar")))
    own = dict(pipeline.spark)
    for name, between in (("spark.jars", ","), ("spark.driver.extraClassPath", ":")):
        if name in own and name in conf:  # add to the connector's jars, do not replace them
            conf[name] += between + own.pop(name)
    return conf | own


def logs_whole_errors() -> bool:
    """Returns whether the log's level allows errors with their whole messages."""
    return os.environ.get("FENCEPOST_LOG", "").upper() == "DEBUG"


def private_folder() -> Path:
    """Returns the folder for Spark's files on this machine, which only this user may enter.

    Raises:
        NeedsOperator: another user made the folder, or others may enter it.
    """
    folder = Path(tempfile.gettempdir()) / f"fencepost-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise NeedsOperator(
            f"{folder}: Spark's files hold records, but this folder is not private to this user. Remove it, or set "
            "spark.local.dir in the pipeline's spark settings."
        )
    return folder


def local_dirs(conf: Mapping[str, str], master: str) -> dict[str, str]:
    """Returns the environment variable that enforces `spark.local.dir` on this machine. An inherited `SPARK_LOCAL_DIRS`
    would take precedence over the setting.

    On a cluster the workers choose their own folders.
    """
    here = is_local(master) and "spark.local.dir" in conf
    return {"SPARK_LOCAL_DIRS": conf["spark.local.dir"]} if here else {}


def check_java() -> None:
    """Checks that Spark's driver finds a Java, by JAVA_HOME or on PATH. A `spark-env.sh` may name another Java.

    Raises:
        SettingsError: there is no Java. A retry would find none either.
    """
    home = os.environ.get("JAVA_HOME")
    if shutil.which(f"{home}/bin/java" if home else "java"):
        return
    spark = os.environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)
    if (Path(os.environ.get("SPARK_CONF_DIR") or f"{spark}/conf") / "spark-env.sh").exists():
        return
    where = f"in JAVA_HOME, which is {home}" if home else "on PATH, and JAVA_HOME is not set"
    raise SettingsError(
        f"Spark needs Java 17 or newer: there is no java {where}. Install it, or set JAVA_HOME to its folder where this step "
        "runs; then run again."
    )


def spark_master() -> str:
    """Returns the Spark master for `fencepost run`. The master is `FENCEPOST_SPARK_MASTER`, or otherwise this machine."""
    return os.environ.get("FENCEPOST_SPARK_MASTER") or "local[*]"


def package_zip() -> Path:
    """Returns the `fencepost` package as a zip for executors. The zip's name has a digest of the content, and the zip
    is created only once.
    """
    files = sorted(f for f in PACKAGE.rglob("*") if f.is_file() and "__pycache__" not in f.parts)
    digest = hashlib.sha256(b"".join(str(f).encode() + f.read_bytes() for f in files)).hexdigest()[:12]
    folder = paths.state_folder() / "packages"
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"fencepost-{digest}.zip"
    if not target.exists():
        with tempfile.NamedTemporaryFile(dir=folder, suffix=".part", delete=False) as part:
            with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
                for file in files:
                    archive.write(file, Path("fencepost") / file.relative_to(PACKAGE))
            Path(part.name).rename(target)
    return target
